//! Firefly's Tables I to XII, the speculations of section 4.2, and the Exerciser of section 5.

mod calls;
mod improvements;
mod latency;

pub(super) use calls::{table_1, table_2, table_3, table_4, table_5};
pub(super) use improvements::{exerciser, speculations, table_9, table_10, table_11, table_12};
pub(super) use latency::{table_6, table_7, table_8};

use super::paper::firefly::RESULT_BYTES;
use super::table::{Cell, Column, Paper, Table};

fn table(name: &'static str, title: &str, columns: Vec<Column>) -> Table {
    Table::new(Paper::Firefly, name, title, columns)
}

fn us(ns: Option<f64>) -> Cell {
    ns.map(|ns| ns / 1e3).into()
}

/// Returns the megabits in a second of calls of `MaxResult` that take so long.
pub(super) fn megabits(ns: Option<f64>) -> Option<f64> {
    ns.map(|ns| f64::from(RESULT_BYTES) * 8e3 / ns)
}
