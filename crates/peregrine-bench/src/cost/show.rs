//! Shows the costs of an interface as text and as JSON.

use core::fmt::Write as _;
use std::io::{self, Write as _};

use comfy_table::{CellAlignment, Table};
use peregrine::interface::Described;
use serde_json::{Map, Value, json};

use super::costs;
use super::equation::{Cost, Design, Parameters, ProcedureCost, Symbol};
use crate::row::Format;
use crate::stubs::{control, copying, ns, rounded};

/// The assumed value of every unbounded length, and the assumed time of every unknown cost in
/// nanoseconds.
const LENGTH: f64 = 64.0;

/// Writes the costs of the procedures of an interface to standard output.
pub(super) fn show(
    described: &Described,
    machine: &Parameters<'_>,
    format: Format,
) -> io::Result<()> {
    let costs = Design::ALL.map(|design| costs(described, design));
    let names = described.procedures.iter().map(|one| &*one.name).collect();
    let study = Study { interface: &described.name, names, costs, machine };
    let mut out = io::stdout().lock();
    match format {
        Format::Human => writeln!(out, "{}", study.to_text()),
        Format::Json => writeln!(out, "{:#}", study.to_json()),
    }
}

/// The costs of an interface's procedures in all designs, and the parameters of this machine.
struct Study<'a> {
    interface: &'a str,
    names: Vec<&'a str>,
    /// The costs, indexed by design and then by procedure.
    costs: [Vec<ProcedureCost>; Design::ALL.len()],
    machine: &'a Parameters<'a>,
}

impl Study<'_> {
    fn ns(&self, cost: &Cost) -> f64 {
        cost.evaluate(self.machine, &|_| LENGTH)
    }

    /// Returns the costs of a procedure by design.
    fn of(&self, procedure: usize) -> impl Iterator<Item = (Design, &ProcedureCost)> {
        let costs = self.costs.iter().filter_map(move |all| all.get(procedure));
        Design::ALL.into_iter().zip(costs)
    }

    fn to_text(&self) -> String {
        let mut text = format!("Cost of marshalling for {}\n\n", self.interface);
        for (procedure, name) in self.names.iter().enumerate() {
            let rows = self.of(procedure).map(|(design, cost)| {
                vec![
                    control(design.control).to_owned(),
                    copying(design.copying).to_owned(),
                    ns(self.ns(&cost.call)),
                    ns(self.ns(&cost.result)),
                    cost.call.to_string(),
                    cost.result.to_string(),
                ]
            });
            let header = ["stub", "copying", "call ns", "result ns", "call =", "result ="];
            let table = table(&header, &[2, 3], rows.collect());
            let _ = writeln!(text, "{name}\n{table}\n");
        }
        let mut rows: Vec<_> = Symbol::ALL
            .into_iter()
            .map(|symbol| {
                let ns = format!("{:.2}", self.machine.of(symbol));
                vec![symbol.name().to_owned(), ns, symbol.meaning().to_owned()]
            })
            .collect();
        for (bytes, ns) in self.machine.blocks {
            let meaning = "move that number of bytes as a block".to_owned();
            rows.push(vec![format!("b({bytes})"), format!("{ns:.2}"), meaning]);
        }
        let table = table(&["symbol", "here ns", "meaning"], &[1], rows);
        let _ = writeln!(text, "measured on this machine, just now\n{table}");
        let _ = write!(
            text,
            "Unbounded lengths count as {LENGTH}, and each cost(...) as {LENGTH} ns. The times are \
             sums of parts, each measured alone; a processor overlaps them."
        );
        text
    }

    fn to_json(&self) -> Value {
        let message =
            |cost: &Cost| json!({ "equation": cost.to_string(), "ns": rounded(self.ns(cost)) });
        let design = |(design, cost): (Design, &ProcedureCost)| {
            json!({
                "stub": control(design.control),
                "copying": copying(design.copying),
                "call": message(&cost.call),
                "result": message(&cost.result),
            })
        };
        let procedure = |(procedure, name): (usize, &&str)| {
            let designs: Vec<Value> = self.of(procedure).map(design).collect();
            json!({ "name": name, "designs": designs })
        };
        let procedures: Vec<Value> = self.names.iter().enumerate().map(procedure).collect();
        let symbol = |symbol: Symbol| (symbol.name().to_owned(), rounded(self.machine.of(symbol)));
        let symbols: Map<String, Value> = Symbol::ALL.into_iter().map(symbol).collect();
        let block = |(bytes, ns): &(u64, f64)| json!({ "bytes": bytes, "ns": rounded(*ns) });
        let blocks: Vec<Value> = self.machine.blocks.iter().map(block).collect();
        json!({
            "interface": self.interface,
            "procedures": procedures,
            "parameters": {
                "measured": "on this machine, just now",
                "symbols_ns": symbols,
                "blocks_ns": blocks,
                "length": LENGTH,
            },
        })
    }
}

fn table(header: &[&str], numbers: &[usize], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for number in numbers {
        if let Some(column) = table.column_mut(*number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_design_of_every_procedure_is_shown() {
        let text =
            "interface Sum version 0\nsum(in all: [i32] max 256, in name: str) -> i64 or text\n";
        let described = Described::parse(text).unwrap();
        let costs = Design::ALL.map(|design| costs(&described, design));
        let machine = &Parameters::MICROVAX;
        let study = Study { interface: "Sum", names: vec!["sum"], costs, machine };
        let json = study.to_json();
        let designs = json["procedures"][0]["designs"].as_array().unwrap();
        assert_eq!(designs.len(), 10);
        assert_eq!(designs[9]["call"]["equation"], "2 L_i + b(1024) + b(name) + α");
        assert_eq!(designs[6]["result"], json!({ "equation": "L_i", "ns": 10.0 }));
        assert_eq!(json["parameters"]["symbols_ns"]["p"], 25.0);
        let text = study.to_text();
        for part in ["sum", "procedural, byte", "b(name)", "this machine, just now"] {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
    }
}
