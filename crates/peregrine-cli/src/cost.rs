//! `describe --cost`: what the procedures of an export cost in each of ten stub designs, by equation.
//!
//! The equations are the library's. What stands in them is measured here, in some tens of milliseconds: good
//! enough to tell designs apart; `peregrine-bench stubs` measures it well.

use core::fmt::Write;
use std::hint::black_box;
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::{Duration, Instant};

use peregrine::interface::{
    Control, Copying, Cost, Described, Design, Parameters, ProcedureCost, Symbol,
};
use serde_json::{Map, Value, json};

use crate::args::Written;
use crate::output::{self, BOLD, DIM, Failure};

/// What stands for every length that the interface does not bound.
const LENGTH: f64 = 64.0;

/// Tells what the procedures of an interface cost.
pub(crate) fn show(described: &Described, format: Written, begun: Instant) -> Result<(), Failure> {
    if format == Written::C {
        return Err(Failure::local("`--cost` is no header in C", "leave out one of the two"));
    }
    let blocks = blocks();
    let machine = Parameters { symbols: symbols(), blocks: &blocks };
    let costs = Design::ALL.map(|design| described.costs(design));
    let names: Vec<&str> = described.procedures.iter().map(|one| &*one.name).collect();
    let study = Study { interface: &described.name, names, costs, machine };
    match format {
        Written::Human => output::say(study.to_text()),
        _ => output::print(study.to_json(begun)),
    }
}

/// Equations, and what stands in them.
struct Study<'a> {
    interface: &'a str,
    names: Vec<&'a str>,
    /// By design, then by procedure.
    costs: [Vec<ProcedureCost>; Design::ALL.len()],
    machine: Parameters<'a>,
}

const fn control(control: Control) -> &'static str {
    match control {
        Control::Interpreted => "interpreted",
        Control::Compiled => "compiled",
    }
}

const fn copying(copying: Copying) -> &'static str {
    match copying {
        Copying::InlineByte => "inline, byte",
        Copying::InlineItem => "inline, item",
        Copying::ProceduralByte => "procedural, byte",
        Copying::ProceduralItem => "procedural, item",
        Copying::Block => "block",
    }
}

impl Study<'_> {
    fn ns(&self, cost: &Cost) -> f64 {
        cost.evaluate(&self.machine, &|_| LENGTH)
    }

    /// The costs of a procedure by design.
    fn of(&self, procedure: usize) -> impl Iterator<Item = (Design, &ProcedureCost)> {
        let costs = self.costs.iter().filter_map(move |all| all.get(procedure));
        Design::ALL.into_iter().zip(costs)
    }

    fn to_text(&self) -> String {
        let mut text = format!("What marshalling costs for {BOLD}{}{BOLD:#}\n\n", self.interface);
        for (procedure, name) in self.names.iter().enumerate() {
            let rows = self.of(procedure).map(|(design, cost)| {
                vec![
                    control(design.control).to_owned(),
                    copying(design.copying).to_owned(),
                    output::nanoseconds(self.ns(&cost.call)),
                    output::nanoseconds(self.ns(&cost.result)),
                    cost.call.to_string(),
                    cost.result.to_string(),
                ]
            });
            let header = ["stub", "copying", "call", "result", "call =", "result ="];
            let table = output::table(&header, &[2, 3], rows.collect());
            let _ = writeln!(text, "{BOLD}{name}{BOLD:#}\n{table}\n");
        }
        let rows = Symbol::ALL.map(|symbol| {
            let ns = format!("{:.2} ns", self.machine.of(symbol));
            vec![symbol.name().to_owned(), ns, symbol.meaning().to_owned()]
        });
        let mut rows = Vec::from(rows);
        for (bytes, ns) in self.machine.blocks {
            rows.push(vec![
                format!("b({bytes})"),
                format!("{ns:.2} ns"),
                "move so many bytes as a block".to_owned(),
            ]);
        }
        let table = output::table(&["symbol", "here", "what it stands for"], &[1], rows);
        let _ = writeln!(text, "{BOLD}measured on this machine, just now{BOLD:#}\n{table}");
        let _ = write!(
            text,
            "{DIM}Lengths without a bound count as {LENGTH}, and so many ns for each cost(...). \
             The times are sums of parts, each measured alone: processors overlap them.{DIM:#}"
        );
        text
    }

    fn to_json(&self, begun: Instant) -> Value {
        let message = |cost: &Cost| {
            let ns = (self.ns(cost) * 1000.0).round() / 1000.0;
            json!({ "equation": cost.to_string(), "ns": ns })
        };
        let procedures: Vec<Value> = self
            .names
            .iter()
            .enumerate()
            .map(|(procedure, name)| {
                let designs: Vec<Value> = self
                    .of(procedure)
                    .map(|(design, cost)| {
                        json!({
                            "stub": control(design.control),
                            "copying": copying(design.copying),
                            "call": message(&cost.call),
                            "result": message(&cost.result),
                        })
                    })
                    .collect();
                json!({ "name": name, "designs": designs })
            })
            .collect();
        let symbols: Map<String, Value> = Symbol::ALL
            .into_iter()
            .map(|symbol| (symbol.name().to_owned(), json!(self.machine.of(symbol))))
            .collect();
        let blocks: Vec<Value> = self
            .machine
            .blocks
            .iter()
            .map(|(bytes, ns)| json!({ "bytes": bytes, "ns": ns }))
            .collect();
        json!({
            "interface": self.interface,
            "procedures": procedures,
            "parameters": {
                "measured": "on this machine, just now",
                "symbols_ns": symbols,
                "blocks_ns": blocks,
                "length": LENGTH,
            },
            "took_ns": output::whole_ns(begun.elapsed()),
        })
    }
}

/// Items of a straight row, and steps of a loop.
const MANY: usize = 16;
const STEPS: usize = 256;

/// What one of `per` takes, at best: in nanoseconds.
fn timed(per: usize, mut run: impl FnMut()) -> f64 {
    const TIMES: u32 = 200;
    let mut best = Duration::MAX;
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..TIMES {
            run();
        }
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / f64::from(TIMES) / per as f64
}

/// Keeps the compiler from making one of two moves.
fn apart() {
    compiler_fence(Ordering::SeqCst);
}

/// The next four bytes of a message, if it has so many.
fn room<'a>(message: &mut &'a mut [u8]) -> Option<&'a mut [u8; 4]> {
    let (here, rest) = core::mem::take(message).split_first_chunk_mut()?;
    *message = rest;
    Some(here)
}

/// A row of items, each moved by `one`, without a loop.
#[inline(always)]
fn row(
    items: &[[u8; 4]; MANY],
    message: &mut [u8],
    one: impl Fn(&mut &mut [u8], &[u8; 4]) -> Option<()>,
) -> Option<()> {
    let mut rest = message;
    macro_rules! all {
        ($($place:literal)*) => {$(one(&mut rest, &items[$place])?;)*};
    }
    all!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    Some(())
}

/// Called, and does nothing.
#[inline(never)]
fn called(message: &mut &mut [u8], item: &[u8; 4]) -> Option<()> {
    black_box((&message, item));
    Some(())
}

/// A description, as an interpreter has it.
enum Code {
    Integer,
    Array(usize),
}

/// Finds the values of a description, and moves none.
#[inline(never)]
fn interpret(codes: &[Code], values: &mut core::slice::Iter<'_, u32>) -> Option<()> {
    for code in codes {
        match code {
            Code::Integer => {
                black_box(values.next()?);
            }
            Code::Array(count) => {
                let (these, rest) = values.as_slice().split_at_checked(*count)?;
                black_box(these);
                *values = rest.iter();
            }
        }
    }
    Some(())
}

/// What each symbol takes here, in nanoseconds.
fn symbols() -> [f64; Symbol::ALL.len()] {
    let items = black_box([[0x5a_u8; 4]; MANY]);
    let mut message = [0_u8; 4 * MANY];
    let nothing = timed(1, || {
        black_box(black_box(&items).first());
    });
    let over = |ns: f64, per: usize| ((ns - nothing) / per as f64).max(0.0);
    let by_byte = timed(1, || {
        black_box(row(black_box(&items), black_box(&mut message), |message, item| {
            for (to, from) in room(message)?.iter_mut().zip(item) {
                *to = *from;
                apart();
            }
            Some(())
        }));
    });
    let as_one = timed(1, || {
        black_box(row(black_box(&items), black_box(&mut message), |message, item| {
            *room(message)? = *item;
            apart();
            Some(())
        }));
    });
    let procedure = black_box(called as fn(&mut &mut [u8], &[u8; 4]) -> Option<()>);
    let calls = timed(1, || {
        black_box(row(black_box(&items), black_box(&mut message), procedure));
    });
    let steps = black_box([1_u32; STEPS]);
    let looped = timed(1, || {
        for one in black_box(&steps[..]) {
            apart();
            if *one == 0 {
                break;
            }
        }
    });
    let interpreted = |codes: &[Code]| {
        timed(1, || {
            black_box(interpret(black_box(codes), &mut black_box(&steps[..]).iter()));
        })
    };
    let setup = over(interpreted(&[]), 1);
    let integers: [Code; MANY] = core::array::from_fn(|_| Code::Integer);
    let code = (over(interpreted(&integers), 1) - setup).max(0.0) / MANY as f64;
    let arrays: [Code; MANY] = core::array::from_fn(|_| Code::Array(1));
    let array = ((over(interpreted(&arrays), 1) - setup) / MANY as f64 - code).max(0.0);
    let mut all = [0.0; Symbol::ALL.len()];
    for (symbol, ns) in [
        (Symbol::ByteCopy, over(by_byte, MANY)),
        (Symbol::ItemCopy, over(as_one, MANY)),
        (Symbol::Call, over(calls, MANY)),
        (Symbol::Step, over(looped, STEPS)),
        (Symbol::Setup, setup),
        (Symbol::ArraySetup, array),
        (Symbol::Code, code),
    ] {
        all[symbol as usize] = ns;
    }
    all
}

/// What blocks of some lengths take here.
fn blocks() -> Vec<(u64, f64)> {
    let from = vec![0x5a_u8; 64 << 10];
    let mut to = from.clone();
    let mut one = |bytes: usize| {
        let ns = timed(1, || {
            let bytes = black_box(bytes);
            black_box(&mut to)[..bytes].copy_from_slice(&black_box(&from)[..bytes]);
        });
        (bytes as u64, ns)
    };
    [0, 16, 64, 256, 1024, 4096, 16 << 10].map(&mut one).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_sane_and_soon_done() {
        let (symbols, blocks) = (symbols(), blocks());
        assert!(symbols.iter().all(|ns| (0.0..1e6).contains(ns)), "{symbols:?}");
        assert!(blocks.is_sorted_by_key(|(bytes, _)| *bytes));
        assert!(blocks.iter().all(|(_, ns)| (0.0..1e9).contains(ns)), "{blocks:?}");
    }

    #[test]
    fn every_design_of_every_procedure_is_told() {
        let text =
            "interface Sum version 0\nsum(in all: [i32] max 256, in name: str) -> i64 or text\n";
        let described = Described::parse(text).unwrap();
        let costs = Design::ALL.map(|design| described.costs(design));
        let study =
            Study { interface: "Sum", names: vec!["sum"], costs, machine: Parameters::MICROVAX };
        let json = study.to_json(Instant::now());
        let designs = json["procedures"][0]["designs"].as_array().unwrap();
        assert_eq!(designs.len(), 10);
        assert_eq!(designs[9]["call"]["equation"], "2 L_i + b(1024) + b(name) + α");
        assert_eq!(designs[6]["result"], json!({ "equation": "L_i", "ns": 10.0 }));
        let told = study.to_text();
        for part in ["sum", "procedural, byte", "b(name)", "this machine, just now"] {
            assert!(told.contains(part), "{part:?} is missing in {told}");
        }
    }
}
