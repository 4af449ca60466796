//! The counts of a server as text for Prometheus. `docs/METRICS.md` lists the metrics.

use core::fmt::{Display, Write as _};

use super::histogram::{BUCKETS, bounds, bucket_of};
use super::procedures::{AtMostStat, Census, ProcedureStat, WithinStat};
use super::sizes::Sizes;
use super::stat::{Counts, ExportStat, Latency, ServerStat, Stat};
use crate::limits::{COUNTED_EXPORTS, COUNTED_PROCEDURES, ONE_PACKET_BYTES};

/// The value of the HTTP header `Content-Type` for the text that [`Stat::to_prometheus`] returns.
///
/// ```
/// use peregrine::counters::PROMETHEUS_CONTENT_TYPE;
///
/// assert!(PROMETHEUS_CONTENT_TYPE.starts_with("text/plain; version=0.0.4"));
/// ```
pub const PROMETHEUS_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The paths by which a server counts threads and captured calls, in the order of [`ServerStat::threads`].
const THREAD_PATHS: [&str; 3] = ["local", "tcp", "datagrams"];
/// The bounds of the buckets, as powers of two in nanoseconds: from 32 ns to 34 s. The last of them must be
/// below the last bucket of [`Latency`], because that bucket also has all longer times.
const BOUNDS: core::ops::RangeInclusive<u32> = 5..=35;
/// The bounds of the buckets for sizes, in bytes: the largest sizes of buckets of [`Sizes`].
const SIZES: [u64; 10] =
    [0, 15, 63, 255, 1023, ONE_PACKET_BYTES as u64, 4095, 16_383, 65_535, (1 << 20) - 1];
/// The maximum number of characters of a label. A name that a server sends over a network may be longer than
/// any valid name.
const LABEL_CHARS: usize = 128;
/// The label of the exports that have no counters of their own.
const OTHERS: &str = "(others)";

const COUNTER: &str = "counter";
const GAUGE: &str = "gauge";

/// A count that the server and each export have.
struct Count {
    /// The name of the metric after `peregrine_` or `peregrine_export_`.
    name: &'static str,
    kind: &'static str,
    /// What is counted, before "at the export".
    help: &'static str,
    of: fn(&Counts) -> u64,
}

const COUNTS: [Count; 6] = [
    Count {
        name: "calls_total",
        kind: COUNTER,
        help: "Calls that have ended, without those that were refused",
        // A deferred call leaves the calls in flight before it ends. The number of calls that have begun
        // therefore decreases sometimes, and a counter must not.
        of: |counts| counts.calls.saturating_sub(counts.in_flight),
    },
    Count {
        name: "calls_in_flight",
        kind: GAUGE,
        help: "Calls that a thread runs now",
        of: |counts| counts.in_flight,
    },
    Count {
        name: "failed_calls_total",
        kind: COUNTER,
        help: "Calls that ended with an error of the procedure, or without a result",
        of: |counts| counts.failed,
    },
    Count {
        name: "refused_calls_total",
        kind: COUNTER,
        help: "Calls that were refused and not executed",
        of: |counts| counts.refused,
    },
    Count {
        name: "received_bytes_total",
        kind: COUNTER,
        help: "Bytes of the messages of executed calls",
        of: |counts| counts.bytes_in,
    },
    Count {
        name: "sent_bytes_total",
        kind: COUNTER,
        help: "Bytes of the heads and out buffers of the results of executed calls",
        of: |counts| counts.bytes_out,
    },
];

impl Stat {
    /// Returns the counts as text that Prometheus reads. A program that has an HTTP endpoint sends the text
    /// with the header [`PROMETHEUS_CONTENT_TYPE`]. `docs/METRICS.md` in the repository describes each
    /// metric.
    ///
    /// The text has neither sessions nor bindings, except for their numbers: each client would add time
    /// series to the database. It describes at most 64 exports and 512 procedures. Further exports are added up under the name
    /// `(others)`. Names are escaped, and longer ones are cut to 128 characters.
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// let running = Server::new().export("text-example", EchoServer::new(Same))?.spawn()?;
    /// let echo = EchoClient::bind("text-example")?;
    /// let text = running.stat().to_prometheus();
    /// assert!(text.contains("\nperegrine_export_bindings{export=\"text-example\"} 1\n"));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn to_prometheus(&self) -> String {
        let mut text = Text(String::new());
        server(&mut text, &self.server);
        exports(&mut text, &merged(&self.exports));
        procedures(&mut text, &merged_procedures(self.procedures.as_deref().unwrap_or_default()));
        text.0
    }
}

/// Text in the exposition format of Prometheus.
struct Text(String);

impl Text {
    /// Begins a metric. Its samples must follow.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}.\n# TYPE {name} {kind}");
    }

    /// Adds a sample. The values of the labels are escaped.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    /// Adds a metric that has one sample.
    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// Adds a metric that has a sample for each value of one label.
    fn each<T: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        label: &str,
        samples: impl IntoIterator<Item = (&'static str, T)>,
    ) {
        self.metric(name, kind, help);
        for (text, value) in samples {
            self.sample(name, &[(label, text)], value);
        }
    }
}

/// Adds the metrics of the server as a whole.
fn server(text: &mut Text, server: &ServerStat) {
    let process = server.process.to_string();
    text.metric(
        "peregrine_server_info",
        GAUGE,
        "The constant 1, with the number of the server's process",
    );
    text.sample("peregrine_server_info", &[("process", &process)], 1);
    let age_ns = u128::from(server.age_ms) * 1_000_000;
    let help = "Time since the server began";
    text.single("peregrine_uptime_seconds", GAUGE, help, seconds(age_ns));
    for Count { name, kind, help, of } in COUNTS {
        let help = format!("{help}, at all present and past exports");
        text.single(&format!("peregrine_{name}"), kind, &help, of(&server.counts));
    }
    let help = "Calls that wait for a thread";
    text.single("peregrine_queued_calls", GAUGE, help, server.queued);
    let help = "Calls that their callers gave up and that still run, by path";
    let captured = THREAD_PATHS.into_iter().zip(server.captured);
    text.each(("peregrine_captured_calls", GAUGE, help), "path", captured);
    let help = "Threads that serve calls, also those that wait, by path";
    let threads = THREAD_PATHS.into_iter().zip(server.threads);
    text.each(("peregrine_threads", GAUGE, help), "path", threads);
    let help = "Client processes, connections, and associations over datagrams";
    text.single("peregrine_sessions", GAUGE, help, server.sessions);
    let help = "Bindings of clients";
    text.single("peregrine_bindings", GAUGE, help, server.bindings);
    let help = "Waits of threads for a call that ended while the thread polled";
    text.single("peregrine_spun_waits_total", COUNTER, help, server.waits.spun);
    let help = "Times that a thread slept while it waited for a call";
    text.single("peregrine_sleeps_total", COUNTER, help, server.waits.slept);
    let help = "Packets of results that were retransmitted";
    text.single("peregrine_retransmitted_packets_total", COUNTER, help, server.resent);
    let help = "Duplicate packets of calls, which were not executed again";
    text.single("peregrine_duplicate_packets_total", COUNTER, help, server.came_again);
    if let Some(denied) = server.denied {
        let help = "Calls and requests to bind that were refused because of who made them";
        text.single("peregrine_denied_total", COUNTER, help, denied);
    }
    let Some(now) = server.in_flight else { return };
    let kinds = [("blocking", now.blocking), ("deferred", now.deferred), ("oneway", now.oneway)];
    let help = "Calls that have begun and not ended, by kind: blocking, deferred or one-way";
    text.each(("peregrine_pending_calls", GAUGE, help), "kind", kinds);
    let help = "Open streams of calls, with two for each callback";
    text.single("peregrine_streams", GAUGE, help, now.streams);
    let help = "Bytes of items that streams have buffered at the server";
    text.single("peregrine_stream_buffered_bytes", GAUGE, help, now.stream_bytes);
}

/// Adds the metrics of exports. Each export has its label, which is escaped.
fn exports(text: &mut Text, exports: &[(String, ExportStat)]) {
    let name = "peregrine_export_info";
    text.metric(
        name,
        GAUGE,
        "The constant 1, with the export's interface, its version and its digest",
    );
    for (label, export) in exports {
        let (interface, digest) = (escaped(&export.interface), export.digest().to_string());
        let version = export.version.to_string();
        let labels = [
            ("export", &**label),
            ("interface", &interface),
            ("version", &version),
            ("digest", &digest),
        ];
        text.sample(name, &labels, 1);
    }
    for Count { name, kind, help, of } in COUNTS {
        let name = format!("peregrine_export_{name}");
        text.metric(&name, kind, &format!("{help}, at the export"));
        for (label, export) in exports {
            text.sample(&name, &[("export", label)], of(&export.counts));
        }
    }
    let name = "peregrine_export_bindings";
    text.metric(name, GAUGE, "Bindings of clients to the export");
    for (label, export) in exports {
        text.sample(name, &[("export", label)], export.bindings);
    }
    let name = "peregrine_export_call_duration_seconds";
    let help = "How long procedures took, from before the arguments are read until the result is \
                complete. The sum is accurate to a sixteenth";
    text.metric(name, "histogram", help);
    for (label, export) in exports {
        histogram(text, name, label, &export.latency);
    }
}

/// A procedure, with the labels of its export and its own.
type Labelled = (String, String, ProcedureStat);

fn labels<'a>(export: &'a str, procedure: &'a str) -> [(&'static str, &'a str); 2] {
    [("export", export), ("procedure", procedure)]
}

/// Adds the metrics of procedures for which the server keeps something.
fn procedures(text: &mut Text, procedures: &[Labelled]) {
    let limited: Vec<_> = procedures
        .iter()
        .filter_map(|(export, name, one)| Some((labels(export, name), one.at_most?)))
        .collect();
    let mut each = |name: &str, kind, help, value: fn(&AtMostStat) -> u64| {
        if !limited.is_empty() {
            text.metric(name, kind, help);
        }
        for (labels, at_most) in &limited {
            text.sample(name, labels, value(at_most));
        }
    };
    let help = "Calls that may run at once, of procedures with such a limit";
    each("peregrine_procedure_calls_max", GAUGE, help, |of| of.most.into());
    let help = "Calls that run now, of procedures with a limit";
    each("peregrine_procedure_calls_running", GAUGE, help, |of| of.running.into());
    let help = "Calls that were refused because as many ran as may run at once";
    each("peregrine_procedure_refused_calls_total", COUNTER, help, |of| of.refused);
    let promised: Vec<_> = procedures
        .iter()
        .filter_map(|(export, name, one)| Some((labels(export, name), one.within?)))
        .collect();
    let mut each = |name: &str, kind, help, value: fn(&WithinStat) -> String| {
        if !promised.is_empty() {
            text.metric(name, kind, help);
        }
        for (labels, within) in &promised {
            text.sample(name, labels, value(within));
        }
    };
    let help = "The time that calls may take, of procedures that promise one";
    each("peregrine_procedure_limit_seconds", GAUGE, help, |of| seconds(of.limit_ns.into()));
    let help = "Calls that have ended, of procedures that promise a time";
    each("peregrine_procedure_timed_calls_total", COUNTER, help, |of| of.calls.to_string());
    let help = "Calls that took longer than their procedure promises";
    each("peregrine_procedure_late_calls_total", COUNTER, help, |of| of.late.to_string());
    let help = "1 if the procedure keeps the time that it promises, or 0";
    each("peregrine_procedure_in_time", GAUGE, help, |of| {
        u8::from(of.late_for_ms.is_none()).to_string()
    });
    let counted: Vec<_> = procedures
        .iter()
        .filter_map(|(export, name, one)| Some((labels(export, name), one.census.as_ref()?)))
        .collect();
    if counted.is_empty() {
        return;
    }
    let name = "peregrine_procedure_remote_calls_total";
    text.metric(name, COUNTER, "Calls of the census that came from other machines");
    for (labels, census) in &counted {
        text.sample(name, labels, census.remote);
    }
    let of_arguments: fn(&Census) -> &Sizes = |census| &census.arguments;
    for (name, what, of) in [
        ("peregrine_procedure_argument_bytes", "the messages of calls", of_arguments),
        ("peregrine_procedure_result_bytes", "results", |census| &census.results),
    ] {
        let help = format!("Bytes of {what} of the census. The sum adds up the middles of buckets");
        text.metric(name, "histogram", &help);
        for (labels, census) in &counted {
            sizes(text, name, *labels, of(census));
        }
    }
}

/// Adds the samples of a histogram of sizes.
fn sizes(text: &mut Text, name: &str, labels: [(&str, &str); 2], sizes: &Sizes) {
    let [export, procedure] = labels;
    let mut bounds = SIZES.iter().peekable();
    let (mut below, mut sum) = (0u64, 0u128);
    for (range, count) in sizes.buckets() {
        below = below.saturating_add(count);
        // The last bucket has no upper bound.
        let middle = if *range.end() == u64::MAX {
            *range.start()
        } else {
            range.start().midpoint(*range.end())
        };
        sum = sum.saturating_add(u128::from(count) * u128::from(middle));
        if let Some(bound) = bounds.next_if(|bound| *bound == range.end()) {
            let bound = bound.to_string();
            text.sample(&format!("{name}_bucket"), &[export, procedure, ("le", &bound)], below);
        }
    }
    text.sample(&format!("{name}_bucket"), &[export, procedure, ("le", "+Inf")], below);
    text.sample(&format!("{name}_sum"), &labels, sum);
    text.sample(&format!("{name}_count"), &labels, below);
}

/// Returns procedures with different labels, and not more than a server can show.
fn merged_procedures(procedures: &[ProcedureStat]) -> Vec<Labelled> {
    let mut merged: Vec<Labelled> = Vec::new();
    for one in procedures.iter().take(COUNTED_PROCEDURES) {
        let (export, name) = (escaped(&one.export), escaped(&one.name));
        let same = merged.iter_mut().find(|(of, known, _)| *of == export && *known == name);
        match same {
            None => merged.push((export, name, one.clone())),
            Some((_, _, sum)) => {
                if let (Some(sum), Some(more)) = (&mut sum.census, &one.census) {
                    sum.add(more);
                }
            }
        }
    }
    merged
}

/// Adds the samples of a histogram. Times that are exactly a bound are in the next bucket.
fn histogram(text: &mut Text, name: &str, export: &str, latency: &Latency) {
    let bucket = format!("{name}_bucket");
    let counts = &latency.buckets;
    let (mut next, mut below) = (0, 0u64);
    for bits in BOUNDS {
        let bound = 1u64 << bits;
        let end = bucket_of(bound).min(counts.len());
        let within = counts.get(next..end).unwrap_or_default();
        below = within.iter().fold(below, |sum, count| sum.saturating_add(*count));
        next = end;
        text.sample(&bucket, &[("export", export), ("le", &seconds(bound.into()))], below);
    }
    let all = latency.calls();
    text.sample(&bucket, &[("export", export), ("le", "+Inf")], all);
    text.sample(&format!("{name}_sum"), &[("export", export)], seconds(sum_ns(latency)));
    text.sample(&format!("{name}_count"), &[("export", export)], all);
}

/// Returns the sum of all times in nanoseconds. Each time counts as the middle of its bucket. Times in the
/// last bucket count as its shortest time, because that bucket has no upper bound.
fn sum_ns(latency: &Latency) -> u128 {
    let times = (0..).zip(&latency.buckets).map(|(bucket, count)| {
        let (from, to) = bounds(Ord::min(bucket, BUCKETS - 1));
        let time = if bucket < BUCKETS - 1 { from.midpoint(to) } else { from };
        u128::from(*count) * u128::from(time)
    });
    times.fold(0, u128::saturating_add)
}

/// Returns exports with different labels. A hostile server may report two exports of one name, and Prometheus
/// would refuse all metrics because of two samples with the same labels.
fn merged(exports: &[ExportStat]) -> Vec<(String, ExportStat)> {
    let mut merged: Vec<(String, ExportStat)> = Vec::new();
    for export in exports {
        let label = if export.name.is_empty() { OTHERS.to_owned() } else { escaped(&export.name) };
        // One place is left for the other exports.
        let is_full = merged.len() >= COUNTED_EXPORTS - 1;
        let known = |label: &str| merged.iter().position(|(known, _)| known == label);
        let label = if known(&label).is_none() && is_full { OTHERS.to_owned() } else { label };
        match known(&label) {
            Some(at) => {
                let (_, sum) = &mut merged[at];
                sum.counts.add(&export.counts);
                sum.latency.add(&export.latency);
                sum.bindings = sum.bindings.saturating_add(export.bindings);
            }
            None if label == OTHERS => {
                let ExportStat { bindings, counts, ref latency, .. } = *export;
                let latency = latency.clone();
                let others = ExportStat { bindings, counts, latency, ..ExportStat::default() };
                merged.push((label, others));
            }
            None => merged.push((label, export.clone())),
        }
    }
    merged
}

/// Returns a text as the value of a label. The format can escape no control characters except the line feed,
/// so they are replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars().take(LABEL_CHARS) {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Returns a time in seconds, as an exact decimal number.
fn seconds(ns: u128) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let text = format!("{whole}.{rest:09}");
    let text = text.trim_end_matches('0');
    text.strip_suffix('.').unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::counters::InFlightCounts;

    fn export(name: &str) -> ExportStat {
        ExportStat { name: name.to_owned(), ..ExportStat::default() }
    }

    fn of_exports(exports: Vec<ExportStat>) -> String {
        Stat { exports, ..Stat::default() }.to_prometheus()
    }

    /// Returns the samples of a text whose names and labels begin with `of`.
    fn samples<'a>(text: &'a str, of: &str) -> Vec<&'a str> {
        text.lines().filter(|line| line.starts_with(of)).collect()
    }

    #[test]
    fn counts_are_samples_of_their_names() {
        let counts =
            Counts { calls: 12, in_flight: 2, refused: 3, failed: 4, bytes_in: 50, bytes_out: 60 };
        let in_flight =
            InFlightCounts { blocking: 1, deferred: 2, oneway: 3, streams: 4, stream_bytes: 5 };
        let server = ServerStat {
            process: 77,
            age_ms: 1_500,
            threads: [1, 2, 3],
            counts,
            resent: 7,
            captured: [0, 9, 0],
            in_flight: Some(in_flight),
            denied: Some(8),
            ..ServerStat::default()
        };
        let exports = vec![ExportStat { counts, bindings: 6, version: 3, ..export("files") }];
        let mut stat = Stat { server, exports, ..Stat::default() };
        let text = stat.to_prometheus();
        for line in [
            "peregrine_server_info{process=\"77\"} 1",
            "peregrine_uptime_seconds 1.5",
            "peregrine_calls_total 10",
            "peregrine_calls_in_flight 2",
            "peregrine_refused_calls_total 3",
            "peregrine_threads{path=\"datagrams\"} 3",
            "peregrine_captured_calls{path=\"tcp\"} 9",
            "peregrine_retransmitted_packets_total 7",
            "peregrine_denied_total 8",
            "peregrine_pending_calls{kind=\"oneway\"} 3",
            "peregrine_stream_buffered_bytes 5",
            "peregrine_export_calls_total{export=\"files\"} 10",
            "peregrine_export_failed_calls_total{export=\"files\"} 4",
            "peregrine_export_received_bytes_total{export=\"files\"} 50",
            "peregrine_export_sent_bytes_total{export=\"files\"} 60",
            "peregrine_export_bindings{export=\"files\"} 6",
            "# TYPE peregrine_export_calls_total counter",
            "# HELP peregrine_queued_calls Calls that wait for a thread.",
        ] {
            assert!(text.lines().any(|one| one == line), "no `{line}` in:\n{text}");
        }
        let digest = "0".repeat(32);
        assert_eq!(
            samples(&text, "peregrine_export_info"),
            [format!(
                "peregrine_export_info{{export=\"files\",interface=\"\",version=\"3\",digest=\"{digest}\"}} 1"
            )],
        );
        // A server of an earlier version does not count by kind.
        (stat.server.in_flight, stat.server.denied) = (None, None);
        let text = stat.to_prometheus();
        assert!(!text.contains("peregrine_pending_calls") && !text.contains("peregrine_denied"));
    }

    #[test]
    fn buckets_are_cumulative_and_every_call_is_in_the_last_one() {
        let mut latency = Latency { buckets: vec![0; BUCKETS] };
        for ns in [31, 32, 63, 64, 1 << 35, u64::MAX] {
            latency.buckets[bucket_of(ns)] += 1;
        }
        let text = of_exports(vec![ExportStat { latency, ..export("x") }]);
        let name = "peregrine_export_call_duration_seconds";
        let buckets = samples(&text, &format!("{name}_bucket"));
        assert_eq!(buckets.len(), 32);
        for (at, le, count) in [
            (0, "0.000000032", 1),
            (1, "0.000000064", 3),
            (2, "0.000000128", 4),
            (30, "34.359738368", 4),
            (31, "+Inf", 6),
        ] {
            assert_eq!(buckets[at], format!("{name}_bucket{{export=\"x\",le=\"{le}\"}} {count}"));
        }
        assert_eq!(
            samples(&text, &format!("{name}_count")),
            [format!("{name}_count{{export=\"x\"}} 6")]
        );
        let (from, to) = bounds(bucket_of(1 << 35));
        let (last, _) = bounds(BUCKETS - 1);
        let sum = 31 + 34 + 62 + 68 + from.midpoint(to) + last;
        let sum = seconds(sum.into());
        assert_eq!(
            samples(&text, &format!("{name}_sum")),
            [format!("{name}_sum{{export=\"x\"}} {sum}")],
        );
        // Further buckets, which only a hostile server sends, have calls of any length.
        let latency = Latency { buckets: vec![u64::MAX; BUCKETS + 9] };
        let text = of_exports(vec![ExportStat { latency, ..export("x") }]);
        assert!(text.contains(&format!("{name}_count{{export=\"x\"}} {}\n", u64::MAX)));
    }

    #[test]
    fn hostile_names_stay_within_their_label() {
        let text = of_exports(vec![
            ExportStat { interface: "I\"} 1\nx\\".to_owned(), ..export("a\"} 9\nb\\c\0\u{1b}[2J") },
            export(&"n".repeat(5_000)),
        ]);
        let calls = samples(&text, "peregrine_export_calls_total");
        assert_eq!(
            calls[0],
            "peregrine_export_calls_total{export=\"a\\\"} 9\\nb\\\\c\u{fffd}\u{fffd}[2J\"} 0",
        );
        let cut = "n".repeat(128);
        assert_eq!(calls[1], format!("peregrine_export_calls_total{{export=\"{cut}\"}} 0"));
        let info = samples(&text, "peregrine_export_info")[0];
        assert!(info.contains("interface=\"I\\\"} 1\\nx\\\\\""), "{info}");
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("peregrine_")));
    }

    #[test]
    fn no_two_samples_have_the_same_labels_and_their_number_is_bounded() {
        let counts = Counts { calls: 1, ..Counts::default() };
        let long = "n".repeat(200);
        let names = (0..500).map(|i| format!("export-{i}"));
        let names = names.chain(["export-0", "", "", &long, &format!("{long}x")].map(String::from));
        let exports = names.map(|name| ExportStat { counts, ..export(&name) }).collect();
        let text = of_exports(exports);
        let calls = samples(&text, "peregrine_export_calls_total");
        assert_eq!(calls.len(), COUNTED_EXPORTS);
        assert!(calls.contains(&"peregrine_export_calls_total{export=\"export-0\"} 2"));
        assert!(calls.contains(&"peregrine_export_calls_total{export=\"(others)\"} 441"));
        let sample = |line: &str| line.rsplit_once(' ').unwrap().0.to_owned();
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(sample);
        let all: Vec<String> = lines.collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn procedures_have_limits_and_sizes() {
        let of = |sizes: &[u64]| {
            let mut counts = [0; crate::counters::SIZE_BUCKETS];
            sizes.iter().for_each(|bytes| counts[crate::counters::size_bucket(*bytes)] += 1);
            Sizes::of(&counts)
        };
        let census =
            Census { remote: 2, arguments: of(&[0, 8, 1408, 1409, 1 << 30]), results: of(&[0; 5]) };
        let at_most = Some(AtMostStat { most: 4, running: 1, refused: 9 });
        let (export, name) = ("im\"ages".to_owned(), "resize".to_owned());
        let within = Some(WithinStat {
            limit_ns: 1_500_000,
            promised: 990,
            calls: 2000,
            late: 30,
            late_now: 20,
            late_for_ms: Some(7),
        });
        let one = ProcedureStat { export, name, at_most, within, census: Some(census) };
        let none = ProcedureStat { name: "plain".to_owned(), ..ProcedureStat::default() };
        let stat = |procedures| Stat { procedures, ..Stat::default() }.to_prometheus();
        let text = stat(Some(vec![one.clone(), none.clone()]));
        let labels = "export=\"im\\\"ages\",procedure=\"resize\"";
        for (name, more, value) in [
            ("calls_max", "", "4"),
            ("calls_running", "", "1"),
            ("refused_calls_total", "", "9"),
            ("limit_seconds", "", "0.0015"),
            ("timed_calls_total", "", "2000"),
            ("late_calls_total", "", "30"),
            ("in_time", "", "0"),
            ("remote_calls_total", "", "2"),
            ("argument_bytes_bucket", ",le=\"0\"", "1"),
            ("argument_bytes_bucket", ",le=\"15\"", "2"),
            ("argument_bytes_bucket", ",le=\"1023\"", "2"),
            ("argument_bytes_bucket", ",le=\"1408\"", "3"),
            ("argument_bytes_bucket", ",le=\"4095\"", "4"),
            ("argument_bytes_bucket", ",le=\"+Inf\"", "5"),
            ("argument_bytes_count", "", "5"),
            ("result_bytes_bucket", ",le=\"0\"", "5"),
            ("result_bytes_sum", "", "0"),
        ] {
            let line = format!("peregrine_procedure_{name}{{{labels}{more}}} {value}");
            assert!(text.lines().any(|one| one == line), "no `{line}` in:\n{text}");
        }
        assert_eq!(samples(&text, "peregrine_procedure_argument_bytes_bucket").len(), 11);
        assert!(!text.contains("plain"));
        // A hostile server may report a procedure twice, and more procedures than there can be.
        let twice = stat(Some(vec![one.clone(), one.clone()]));
        let counts = samples(&twice, "peregrine_procedure_argument_bytes_count");
        assert_eq!(counts, [format!("peregrine_procedure_argument_bytes_count{{{labels}}} 10")]);
        let many =
            (0..600).map(|number| ProcedureStat { name: format!("{number}"), ..one.clone() });
        let many = stat(Some(many.collect()));
        assert_eq!(samples(&many, "peregrine_procedure_calls_max").len(), 512);
        for without in [None, Some(vec![none])] {
            assert!(!stat(without).contains("peregrine_procedure_"));
        }
    }

    #[test]
    fn seconds_are_exact() {
        for (ns, text) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_500_000_000, "1.5"),
            (20_000_000_000, "20"),
            (u128::from(u64::MAX), "18446744073.709551615"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }
}
