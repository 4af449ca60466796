//! Shows on standard error what happens now: redrawn in place on a terminal, and otherwise as plain lines.

use std::io::{IsTerminal as _, Write as _};

use crate::load::Interval;
use crate::measured::Tally;

/// What is shown.
pub(crate) struct View {
    is_terminal: bool,
    /// The number of lines that the next drawing replaces.
    drawn: usize,
    phase: String,
}

impl View {
    pub(crate) fn new() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { is_terminal, drawn: 0, phase: String::new() }
    }

    /// Shows what is done now.
    pub(crate) fn phase(&mut self, phase: &str) {
        phase.clone_into(&mut self.phase);
        if !self.is_terminal || self.drawn == 0 {
            let _ = writeln!(std::io::stderr(), "{phase}");
        }
    }

    /// Shows the state of the machines and the calls of the last moment.
    pub(crate) fn show(&mut self, servers: &[String], members: &[&str], interval: &Interval) {
        if !self.is_terminal {
            return;
        }
        let numbered = |states: &mut dyn Iterator<Item = String>| {
            let each = (1..).zip(states).map(|(n, state)| format!("{n} {state:<12}"));
            each.collect::<Vec<_>>().join("")
        };
        let lines = [
            format!("\x1b[1m{}\x1b[0m", self.phase),
            format!("  servers  {}", numbered(&mut servers.iter().cloned())),
            format!("  etcd     {}", numbered(&mut members.iter().map(ToString::to_string))),
            calls("store", &interval.store),
            calls("pool", &interval.pool),
            format!(
                "  {} servers in the pool, {} wrong values",
                interval.used, interval.violations
            ),
        ];
        let mut text = match self.drawn {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        for line in &lines {
            text += &format!("\r\x1b[2K{line}\n");
        }
        let _ = std::io::stderr().write_all(text.as_bytes());
        self.drawn = lines.len();
    }
}

fn calls(of: &str, tally: &Tally) -> String {
    let (p50, p99) = (tally.quantile_text(0.5), tally.quantile_text(0.99));
    // A long line would take two lines of the terminal.
    let failures: String = tally.failures_text().chars().take(40).collect();
    format!(
        "  {of:<8} {:>5} calls  p50 {p50:>5} ms  p99 {p99:>5} ms  failures {failures}",
        tally.calls
    )
}
