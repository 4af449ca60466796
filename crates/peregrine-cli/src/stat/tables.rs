//! Formats an interval between two readings of a server's counters as tables that fit the terminal, or as one
//! line.

use core::fmt::Write as _;

use peregrine::counters::{BindingStat, Counts, Latency, SessionStat};

use super::{Interval, procedures};
use crate::output::{self, BOLD, DIM, age, nanoseconds};

/// Returns the counters that the session `now` had at the start of the interval.
pub(super) fn session_before(interval: &Interval, now: &SessionStat) -> Counts {
    let before = interval.before.sessions.iter().find(|one| one.number == now.number);
    before.map(|one| one.counts).unwrap_or_default()
}

/// Returns the counters that the binding `now` had at the start of the interval.
pub(super) fn binding_before(interval: &Interval, now: &BindingStat) -> Counts {
    let same = |one: &&BindingStat| (one.number, one.began_ns) == (now.number, now.began_ns);
    interval.before.bindings.iter().find(same).map(|one| one.counts).unwrap_or_default()
}

/// A column of a table: its header, whether it contains numbers, and its priority. 0 is the highest priority.
pub(super) struct Column(pub(super) &'static str, pub(super) bool, pub(super) u8);

/// Formats all tables of an interval for a terminal with `columns` columns.
pub(super) fn whole(interval: &Interval, columns: Option<usize>) -> String {
    let mut text = head(interval);
    for (title, table) in [
        ("exports", exports(interval, columns)),
        ("limits of procedures", procedures::limits(interval, columns)),
        ("promised times", procedures::promises(interval, columns)),
        ("census since the server began", procedures::census(interval, columns)),
        ("sizes of calls", procedures::sizes(interval, columns)),
        ("sessions", sessions(interval, columns)),
        ("bindings", bindings(interval, columns)),
    ] {
        if let Some(table) = table {
            let _ = write!(text, "\n\n{BOLD}{title}{BOLD:#}\n{table}");
        }
    }
    let (sessions, bindings) = (interval.now.server.sessions, interval.now.server.bindings);
    if sessions > 0 && interval.now.sessions.is_empty() {
        let _ = write!(
            text,
            "\n\n{DIM}{} and {}, whose details the server does not disclose{DIM:#}",
            number_of(sessions, "session"),
            number_of(bindings, "binding"),
        );
    }
    text
}

/// Formats an interval as one line.
pub(super) fn line(interval: &Interval, number: u64) -> String {
    let (before, now) = (&interval.before.server, &interval.now.server);
    let since = interval.now.latency().since(&interval.before.latency());
    let of = |part| time(&since, part);
    let kinds = now.in_flight.map_or_else(String::new, |of| {
        format!(
            "  deferred {}  one-way {}  streams {} ({})",
            of.deferred,
            of.oneway,
            of.streams,
            bytes(of.stream_bytes as f64),
        )
    });
    format!(
        "{number:>4}  {} calls/s  in flight {}  refused {}  failed {}  p50 {}  p99 {}  in {}/s  out {}/s{kinds}",
        rate(interval.rate(before.counts.calls, now.counts.calls)),
        now.counts.in_flight,
        now.counts.refused.saturating_sub(before.counts.refused),
        now.counts.failed.saturating_sub(before.counts.failed),
        of(0.5),
        of(0.99),
        bytes(interval.rate(before.counts.bytes_in, now.counts.bytes_in)),
        bytes(interval.rate(before.counts.bytes_out, now.counts.bytes_out)),
    )
}

fn head(interval: &Interval) -> String {
    let (before, now) = (&interval.before.server, &interval.now.server);
    let [local, tcp, datagrams] = now.threads;
    let since = interval.now.latency().since(&interval.before.latency());
    let captured: u64 = now.captured.iter().fold(0, |sum, one| sum.saturating_add(*one));
    let rates = [before.counts.calls, now.counts.calls];
    let spun = now.waits.spun.saturating_sub(before.waits.spun);
    let slept = now.waits.slept.saturating_sub(before.waits.slept);
    let kinds = now.in_flight.map_or_else(String::new, |of| {
        format!(
            "in flight: {} blocking, {} deferred, {} one-way; {} with {} buffered\n",
            of.blocking,
            of.deferred,
            of.oneway,
            number_of(of.streams, "stream"),
            bytes(of.stream_bytes as f64),
        )
    });
    let denied = now.denied.filter(|denied| *denied > 0);
    let denied = denied.map_or_else(String::new, |denied| format!(", {denied} denied"));
    format!(
        "{BOLD}{}{BOLD:#}  process {}, up {}; threads: {local} local, {tcp} tcp, {datagrams} datagrams\n\
         {BOLD}{}{BOLD:#} calls/s  p50 {}  p99 {}  max {}  {DIM}over {}{DIM:#}\n\
         {} calls: {} in flight, {} failed, {} refused{denied}; {} queued, {captured} captured\n\
         {kinds}waits: {spun} spun, {slept} slept; packets: {} retransmitted, {} duplicates",
        interval.address,
        now.process,
        age(now.age_ms),
        rate(interval.rate(rates[0], rates[1])),
        time(&since, 0.5),
        time(&since, 0.99),
        time(&since, 1.0),
        nanoseconds(interval.seconds() * 1e9),
        now.counts.calls,
        now.counts.in_flight,
        now.counts.failed,
        now.counts.refused,
        now.queued,
        now.resent,
        now.came_again,
    )
}

fn exports(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("EXPORT", false, 0),
        Column("INTERFACE", false, 2),
        Column("CALLS/S", true, 0),
        Column("P50", true, 1),
        Column("P99", true, 0),
        Column("MAX", true, 2),
        Column("IN FLIGHT", true, 0),
        Column("CALLS", true, 1),
        Column("FAILED", true, 2),
        Column("REFUSED", true, 1),
        Column("IN/S", true, 2),
        Column("OUT/S", true, 2),
        Column("BINDINGS", true, 2),
    ];
    let rows = interval.now.exports.iter().map(|now| {
        let before = interval.before.export(&now.name).cloned().unwrap_or_default();
        let since = now.latency.since(&before.latency);
        let (then, counts) = (&before.counts, &now.counts);
        vec![
            if now.name.is_empty() { "(others)".to_owned() } else { now.name.clone() },
            now.interface.clone(),
            rate(interval.rate(then.calls, counts.calls)),
            time(&since, 0.5),
            time(&since, 0.99),
            time(&since, 1.0),
            counts.in_flight.to_string(),
            counts.calls.to_string(),
            counts.failed.to_string(),
            counts.refused.to_string(),
            bytes(interval.rate(then.bytes_in, counts.bytes_in)),
            bytes(interval.rate(then.bytes_out, counts.bytes_out)),
            now.bindings.to_string(),
        ]
    });
    table(&header, rows.collect(), columns)
}

fn sessions(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("SESSION", true, 0),
        Column("PATH", false, 1),
        Column("CLIENT", false, 0),
        Column("AGE", true, 2),
        Column("BINDINGS", true, 2),
        Column("CALLS/S", true, 0),
        Column("IN FLIGHT", true, 1),
        Column("CALLS", true, 1),
    ];
    let rows = interval.now.sessions.iter().map(|now| {
        let before = session_before(interval, now);
        vec![
            now.number.to_string(),
            printable(&now.path),
            client(now),
            age(now.age_ms),
            now.bindings.to_string(),
            rate(interval.rate(before.calls, now.counts.calls)),
            now.counts.in_flight.to_string(),
            now.counts.calls.to_string(),
        ]
    });
    table(&header, rows.collect(), columns)
}

fn bindings(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("SESSION", true, 0),
        Column("EXPORT", false, 0),
        Column("AGE", true, 2),
        Column("CALLS/S", true, 0),
        Column("IN FLIGHT", true, 1),
        Column("CALLS", true, 1),
        Column("FAILED", true, 2),
        Column("REFUSED", true, 2),
        Column("IN/S", true, 2),
        Column("OUT/S", true, 2),
    ];
    let rows = interval.now.bindings.iter().map(|now| {
        let before = binding_before(interval, now);
        vec![
            if now.session == 0 { "-".to_owned() } else { now.session.to_string() },
            printable(&now.export),
            age(now.age_ms),
            rate(interval.rate(before.calls, now.counts.calls)),
            now.counts.in_flight.to_string(),
            now.counts.calls.to_string(),
            now.counts.failed.to_string(),
            now.counts.refused.to_string(),
            bytes(interval.rate(before.bytes_in, now.counts.bytes_in)),
            bytes(interval.rate(before.bytes_out, now.counts.bytes_out)),
        ]
    });
    table(&header, rows.collect(), columns)
}

fn number_of(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn client(session: &SessionStat) -> String {
    if session.from.is_empty() {
        format!("process {}, user {}", session.process, session.user)
    } else {
        printable(&session.from)
    }
}

/// Replaces control characters in text from a server, so that the text cannot control the terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Formats a table. If the table is wider than the terminal, omits columns with a low priority.
pub(super) fn table(
    header: &[Column],
    rows: Vec<Vec<String>>,
    columns: Option<usize>,
) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let shown = |most: u8| {
        let kept: Vec<usize> = (0..header.len()).filter(|at| header[*at].2 <= most).collect();
        let names: Vec<&str> = kept.iter().map(|at| header[*at].0).collect();
        let right: Vec<usize> = (0..kept.len()).filter(|at| header[kept[*at]].1).collect();
        let cells = |row: &Vec<String>| kept.iter().map(|at| printable(&row[*at])).collect();
        (names, right, rows.iter().map(cells).collect::<Vec<_>>())
    };
    for most in [2, 1] {
        let (names, right, rows) = shown(most);
        if let Some(table) = output::table_within(&names, &right, &rows, columns) {
            return Some(table);
        }
    }
    let (names, right, rows) = shown(0);
    Some(output::table_fitted(&names, &right, rows, columns))
}

/// Formats a number with three digits and a unit.
fn scaled(value: f64, units: &[&str], step: f64) -> String {
    let (mut value, mut at) = (value, 0);
    while value >= step && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    let unit = units[at];
    match value {
        value if at == 0 && (value.fract() == 0.0 || value >= 100.0) => format!("{value:.0}{unit}"),
        value if value < 10.0 => format!("{value:.2}{unit}"),
        value if value < 100.0 => format!("{value:.1}{unit}"),
        value => format!("{value:.0}{unit}"),
    }
}

pub(crate) fn rate(per_s: f64) -> String {
    scaled(per_s, &["", "k", "M", "G"], 1000.0)
}

pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, &[" B", " KiB", " MiB", " GiB"], 1024.0)
}

fn time(latency: &Latency, part: f64) -> String {
    let time = latency.percentile(part);
    time.map_or_else(|| "-".to_owned(), |time| nanoseconds(time.as_nanos() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.50"),
            (7.0, "7"),
            (123.4, "123"),
            (1234.0, "1.23k"),
            (56_789.0, "56.8k"),
            (9_876_543.0, "9.88M"),
        ] {
            assert_eq!(rate(value), text);
        }
        assert_eq!(bytes(2048.0), "2.00 KiB");
        assert_eq!(printable("a\u{1b}[2Jb"), "a?[2Jb");
    }

    #[test]
    fn kinds_are_shown_unless_the_server_is_older() {
        let mut now = peregrine::counters::Stat::default();
        now.server.in_flight = Some(peregrine::counters::InFlightCounts {
            blocking: 1,
            deferred: 2,
            oneway: 3,
            streams: 1,
            stream_bytes: 2048,
        });
        let shown = |now| {
            let address = "files".to_owned();
            let before = peregrine::counters::Stat::default();
            let interval = Interval { address, before, now, took: None };
            (head(&interval), line(&interval, 0))
        };
        let (whole, line) = shown(now);
        let kinds = "in flight: 1 blocking, 2 deferred, 3 one-way; 1 stream with 2.00 KiB buffered";
        assert!(whole.lines().any(|line| line == kinds), "{whole}");
        assert!(line.ends_with("  deferred 2  one-way 3  streams 1 (2.00 KiB)"), "{line}");
        let (whole, line) = shown(peregrine::counters::Stat::default());
        assert!(!whole.contains("blocking") && !line.contains("deferred"), "{whole}");
    }

    #[test]
    fn callers_that_were_denied_are_shown_if_there_are_some() {
        let head = |denied| {
            let mut now = peregrine::counters::Stat::default();
            now.server.denied = denied;
            let before = peregrine::counters::Stat::default();
            head(&Interval { address: "files".to_owned(), before, now, took: None })
        };
        assert!(head(Some(7)).contains(" 0 refused, 7 denied; "), "{}", head(Some(7)));
        assert!(!head(Some(0)).contains("denied") && !head(None).contains("denied"));
    }

    #[test]
    fn narrow_terminal_gets_fewer_columns() {
        let header = [Column("NAME", false, 0), Column("MORE", true, 1), Column("MOST", true, 2)];
        let row = || vec![vec!["n".repeat(10), "1".repeat(10), "2".repeat(10)]];
        let lines = |columns| table(&header, row(), Some(columns)).unwrap();
        assert!(lines(60).contains("MOST"));
        assert!(lines(30).contains("MORE") && !lines(30).contains("MOST"));
        assert!(!lines(20).contains("MORE") && lines(20).contains("NAME"));
        assert_eq!(table(&header, Vec::new(), Some(60)), None);
    }
}
