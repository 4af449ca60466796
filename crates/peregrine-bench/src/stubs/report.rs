//! Writes the study as tables for people, or as JSON for programs.

use std::io::{self, Write};

use crate::cost::{Control, Copying, Design, Parameters, Symbol};
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use super::paper;
use super::shipped::Row;
use super::study::{Cell, Ours, Study};
use super::user::Data;
use super::{marks, model};
use crate::row::Format;

/// Writes the study to standard output.
pub(crate) fn show(study: &Study, machine: Value, format: Format) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        Format::Json => writeln!(out, "{:#}", to_json(study, machine)),
        Format::Human => write!(out, "{}", to_text(study)),
    }
}

/// Returns the name of interpreted or of compiled stubs in the paper's tables.
pub(crate) const fn control(control: Control) -> &'static str {
    match control {
        Control::Interpreted => "interpreted",
        Control::Compiled => "compiled",
    }
}

/// Returns the name of a way to copy in the paper's tables.
pub(crate) const fn copying(copying: Copying) -> &'static str {
    match copying {
        Copying::InlineByte => "inline, byte",
        Copying::InlineItem => "inline, item",
        Copying::ProceduralByte => "procedural, byte",
        Copying::ProceduralItem => "procedural, item",
        Copying::Block => "block",
    }
}

const fn way(marshals: bool) -> &'static str {
    if marshals { "marshal" } else { "unmarshal" }
}

/// Rounds to three decimal places.
pub(crate) fn rounded(value: f64) -> Value {
    json!((value * 1000.0).round() / 1000.0)
}

impl Study {
    /// Returns the result of a design for a type and a direction.
    pub(crate) fn cell(&self, design: Design, data: Data, marshals: bool) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.design, cell.data, cell.marshals) == (design, data, marshals))
    }

    /// Returns the result of one of Peregrine's stubs.
    pub(crate) fn ours(&self, row: Row, data: Data, marshals: bool) -> Option<&Ours> {
        self.ours.iter().find(|one| (one.row, one.data, one.marshals) == (row, data, marshals))
    }
}

fn to_json(study: &Study, machine: Value) -> Value {
    let cells: Vec<Value> = study
        .cells
        .iter()
        .map(|cell| {
            let place = Design::ALL.iter().position(|design| *design == cell.design).unwrap_or(0);
            json!({
                "control": control(cell.design.control),
                "copying": copying(cell.design.copying),
                "data": cell.data.name(),
                "way": way(cell.marshals),
                "equation": model::equation(cell.design, cell.data).to_string(),
                "ns": rounded(cell.ns[1]),
                "ns_low": rounded(cell.ns[0]),
                "ns_high": rounded(cell.ns[2]),
                "sum_ns": rounded(cell.prediction.sum),
                "sum_off": rounded(cell.off(cell.prediction.sum)),
                "overlap_ns": rounded(cell.prediction.overlap),
                "overlap_off": rounded(cell.off(cell.prediction.overlap)),
                "paper_ms": paper::MEASURED_MS[place][cell.data as usize],
            })
        })
        .collect();
    let parameters: Vec<Value> = [true, false].into_iter().zip(&study.parameters).map(|(marshals, measured)| {
        let symbols: serde_json::Map<String, Value> = Symbol::ALL.into_iter().zip(measured.symbols)
            .map(|(symbol, ns)| (symbol.name().to_owned(), rounded(ns))).collect();
        let blocks: Vec<Value> = measured.blocks.iter().map(|(bytes, ns)| json!({"bytes": bytes, "ns": rounded(*ns)})).collect();
        json!({ "way": way(marshals), "call_ns": rounded(measured.call), "symbols_ns": symbols, "blocks": blocks })
    }).collect();
    let effects: Vec<Value> = study
        .differences
        .iter()
        .map(|one| {
            json!({
                "name": one.effect.name,
                "what": one.effect.what,
                "with_ns": rounded(one.with),
                "without_ns": rounded(one.without),
                "per": one.effect.per,
                "each_ns": rounded((one.with - one.without) / one.effect.per as f64),
            })
        })
        .collect();
    let ours: Vec<Value> = study
        .ours
        .iter()
        .map(|one| {
            json!({
                "row": one.row.name(),
                "data": one.data.name(),
                "way": way(one.marshals),
                "ns": rounded(one.ns[1]),
                "ns_low": rounded(one.ns[0]),
                "ns_high": rounded(one.ns[2]),
                "ratio": rounded(one.ratio[1]),
                "ratio_low": rounded(one.ratio[0]),
                "ratio_high": rounded(one.ratio[2]),
            "more_ns": rounded(one.more),
            })
        })
        .collect();
    let marks: Vec<Value> = marks::of(study)
        .into_iter()
        .map(|mark| {
            json!({
                "mark": mark.what, "must": mark.must, "is": rounded(mark.is), "met": mark.is_met(),
            })
        })
        .collect();
    json!({
        "experiment": "stubs",
        "machine": machine,
        "rounds": study.rounds,
        "cells": cells,
        "parameters": parameters,
        "effects": effects,
        "ours": ours,
        "marks": marks,
    })
}

fn table(title: &str, header: &[&str], text_columns: usize, rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for number in text_columns..header.len() {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{title}\n\n{}\n\n", table.trim_fmt())
}

/// Returns a time in nanoseconds as text with three significant digits.
pub(crate) fn ns(ns: f64) -> String {
    match ns {
        ns if ns < 9.995 => format!("{ns:.2}"),
        ns if ns < 99.95 => format!("{ns:.1}"),
        ns => format!("{ns:.0}"),
    }
}

fn percent(part: f64) -> String {
    format!("{:+.0} %", part * 100.0)
}

fn to_text(study: &Study) -> String {
    let mut text = String::new();
    for marshals in [true, false] {
        text += &principal(study, marshals);
    }
    text += &shares(study);
    text += &parameters(study);
    for marshals in [true, false] {
        text += &predictions(study, marshals);
    }
    let rows = study.differences.iter().map(|one| {
        let each = (one.with - one.without) / one.effect.per as f64;
        vec![
            one.effect.name.to_owned(),
            one.effect.what.to_owned(),
            ns(one.with),
            ns(one.without),
            format!("{each:.2} ({})", one.effect.per),
        ]
    });
    let header = ["effect", "what differs", "first ns", "second ns", "each (of)"];
    text += &table("What the model misses", &header, 2, rows.collect());
    let rows = study.ours.iter().map(|one| {
        let ratio = if one.row == Row::Copy || one.row == Row::Compiled {
            "-".into()
        } else {
            format!("{:.2}", one.ratio[1])
        };
        let spread = format!("{:.2}-{:.2}", one.ratio[0], one.ratio[2]);
        vec![
            one.data.name().to_owned(),
            way(one.marshals).to_owned(),
            one.row.name().to_owned(),
            ns(one.ns[1]),
            ratio,
            spread,
        ]
    });
    let header = ["type", "way", "what", "ns", "ratio", "quartiles"];
    text += &table(
        "The cost of Peregrine's stubs, as a ratio: to memcpy, and of interpreted to compiled ones",
        &header,
        3,
        rows.collect(),
    );
    let rows = marks::of(study).into_iter().map(|mark| {
        let met = if mark.is_met() { "met" } else { "missed" };
        vec![mark.what.clone(), format!("{:.2}", mark.must), format!("{:.2}", mark.is), met.into()]
    });
    text + &table("Marks", &["mark", "at most", "is", ""], 1, rows.collect())
}

/// Returns Table 2 of the paper, with the paper's figures and this machine's.
fn principal(study: &Study, marshals: bool) -> String {
    let mut rows = Vec::new();
    for (place, design) in Design::ALL.into_iter().enumerate() {
        let mut row = vec![control(design.control).to_owned(), copying(design.copying).to_owned()];
        for data in Data::ALL {
            row.push(
                study.cell(design, data, marshals).map_or_else(String::new, |one| ns(one.ns[1])),
            );
        }
        if marshals {
            for (data, ms) in paper::MEASURED_MS[place].into_iter().enumerate() {
                let doubtful = paper::DOUBTFUL.iter().any(|one| (one.0, one.1) == (place, data));
                let ms = if ms.is_nan() { "-".to_owned() } else { ms.to_string() };
                row.push(format!("{ms}{}", if doubtful { " ?" } else { "" }));
            }
        }
        rows.push(row);
    }
    let names = Data::ALL.map(Data::name);
    let here = names.map(|name| format!("{name} ns"));
    let there = names.map(|name| format!("paper {name} ms"));
    let mut header = vec!["stub", "copying"];
    header.extend(here.iter().map(String::as_str));
    if marshals {
        header.extend(there.iter().map(String::as_str));
    }
    let title = format!("To {} (Table 2), {} rounds", way(marshals), study.rounds);
    let mut text = table(&title, &header, 2, rows);
    if marshals {
        for (_, _, why) in paper::DOUBTFUL {
            text += &format!("? {why}\n");
        }
        text.push('\n');
    }
    text
}

/// Returns how much longer one design takes than another, as a fraction of the longer time. `of` is the
/// longer time, and `over` is the shorter one.
pub(crate) fn excess(of: f64, over: f64) -> f64 {
    (of - over) / of
}

/// Returns Tables 3 and 4: the shares of interpretation and procedure calls, on this machine and in the
/// paper.
fn shares(study: &Study) -> String {
    let here = |design, data| study.cell(design, data, true).map_or(f64::NAN, |cell| cell.ns[1]);
    let line = |design: Design, without: Design, there: [u32; 3]| {
        let mut row = vec![control(design.control).to_owned(), copying(design.copying).to_owned()];
        row.extend(Data::ALL.map(|data| {
            format!("{:.0} %", 100.0 * excess(here(design, data), here(without, data)))
        }));
        row.extend(there.map(|percent| format!("{percent} %")));
        row
    };
    let names = Data::ALL.map(Data::name);
    let there_names = names.map(|name| format!("paper {name}"));
    let mut header = vec!["stub", "copying"];
    header.extend(names);
    header.extend(there_names.iter().map(String::as_str));
    let interpreted =
        Copying::ALL.into_iter().zip(paper::INTERPRETATION).map(|(copying, there)| {
            let of = |control| Design { control, copying };
            line(of(Control::Interpreted), of(Control::Compiled), there)
        });
    let controls = [Control::Interpreted, Control::Compiled];
    let calls = controls.into_iter().zip(paper::CALLS).flat_map(|(control, there)| {
        let of = |copying| Design { control, copying };
        [
            line(of(Copying::ProceduralByte), of(Copying::InlineByte), there[0]),
            line(of(Copying::ProceduralItem), of(Copying::InlineItem), there[1]),
        ]
    });
    let title = "Percent of marshalling time due to interpretation (Table 3)";
    let text = table(title, &header, 2, interpreted.collect());
    let title = "Percent of marshalling time due to procedure calls (Table 4)";
    text + &table(title, &header, 2, calls.collect())
}

/// Returns Table 6, and the times of moving blocks of bytes.
fn parameters(study: &Study) -> String {
    let [to, from] = &study.parameters;
    let there = Parameters::MICROVAX;
    let mut rows = vec![vec![
        "c".to_owned(),
        "call a stub, through a pointer".to_owned(),
        ns(to.call),
        ns(from.call),
        "-".to_owned(),
    ]];
    for (i, symbol) in Symbol::ALL.into_iter().enumerate() {
        rows.push(vec![
            symbol.name().to_owned(),
            symbol.meaning().to_owned(),
            format!("{:.3}", to.symbols[i]),
            format!("{:.3}", from.symbols[i]),
            format!("{}", there.of(symbol)),
        ]);
    }
    for (to, from) in to.blocks.iter().zip(&from.blocks) {
        let there = if to.0 == 1024 { "382".to_owned() } else { "-".to_owned() };
        rows.push(vec![
            format!("b({})", to.0),
            "move that number of bytes as a block".to_owned(),
            ns(to.1),
            ns(from.1),
            there,
        ]);
    }
    let header = ["symbol", "meaning", "to the message ns", "from it ns", "paper us"];
    table("Parameters (Table 6), each measured alone", &header, 2, rows)
}

fn predictions(study: &Study, marshals: bool) -> String {
    let rows = study.cells.iter().filter(|cell| cell.marshals == marshals).map(|cell| {
        let Cell { design, data, ns: measured, prediction, .. } = cell;
        vec![
            control(design.control).to_owned(),
            copying(design.copying).to_owned(),
            data.name().to_owned(),
            ns(measured[1]),
            ns(prediction.sum),
            percent(cell.off(prediction.sum)),
            ns(prediction.overlap),
            percent(cell.off(prediction.overlap)),
        ]
    });
    let header = ["stub", "copying", "type", "ns", "sum", "off", "overlapped", "off"];
    let title = format!("To {}: predictions of the model", way(marshals));
    table(&title, &header, 3, rows.collect())
}
