//! Formats what a server keeps for procedures: as tables, and as JSON.

use peregrine::counters::{AtMostStat, Census, ProcedureStat, Sizes, WithinStat};
use serde_json::{Value, json};

use super::Interval;
use super::tables::{Column, bytes, table};
use crate::output::{age, nanoseconds};

/// The largest sizes in bytes of the rows in the table of sizes. The last row has all larger sizes.
const ROWS: [u64; 9] = [0, 15, 63, 255, 1023, 1408, 4095, 65_535, u64::MAX];

/// Returns the procedures of a server. An older server has none.
fn of(interval: &Interval) -> &[ProcedureStat] {
    interval.now.procedures.as_deref().unwrap_or_default()
}

/// Formats the limits of procedures and their running calls.
pub(super) fn limits(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("EXPORT", false, 1),
        Column("PROCEDURE", false, 0),
        Column("RUNNING", true, 0),
        Column("AT MOST", true, 0),
        Column("REFUSED", true, 0),
    ];
    let rows = of(interval).iter().filter_map(|one| {
        let AtMostStat { most, running, refused } = one.at_most?;
        let [running, most, refused] = [running.to_string(), most.to_string(), refused.to_string()];
        Some(vec![one.export.clone(), one.name.clone(), running, most, refused])
    });
    table(&header, rows.collect(), columns)
}

/// Formats the times that procedures promise, and whether they keep them.
pub(super) fn promises(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("EXPORT", false, 1),
        Column("PROCEDURE", false, 0),
        Column("WITHIN", true, 0),
        Column("PROMISED", true, 1),
        Column("CALLS", true, 2),
        Column("IN TIME", true, 1),
        Column("LATE OF 1000", true, 0),
        Column("STATE", false, 0),
    ];
    let rows = of(interval).iter().filter_map(|one| {
        let WithinStat { limit_ns, promised, calls, late, late_now, late_for_ms } = one.within?;
        Some(vec![
            one.export.clone(),
            one.name.clone(),
            nanoseconds(limit_ns as f64),
            share(promised.into(), 1000),
            calls.to_string(),
            share(calls.saturating_sub(late), calls),
            late_now.to_string(),
            late_for_ms.map_or_else(|| "kept".to_owned(), |ms| format!("broken for {}", age(ms))),
        ])
    });
    table(&header, rows.collect(), columns)
}

/// Formats the census of all procedures that were called, since the server began.
pub(super) fn census(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("EXPORT", false, 1),
        Column("PROCEDURE", false, 0),
        Column("CALLS", true, 0),
        Column("REMOTE", true, 0),
        Column("ARGS P50", true, 1),
        Column("P99", true, 2),
        Column("MAX", true, 1),
        Column("ONE PACKET", true, 0),
        Column("RESULTS P50", true, 1),
        Column("P99", true, 2),
        Column("MAX", true, 1),
        Column("ONE PACKET", true, 0),
    ];
    let rows = of(interval).iter().filter_map(|one| {
        let census = one.census.as_ref().filter(|census| census.calls() > 0)?;
        let mut row = vec![
            one.export.clone(),
            one.name.clone(),
            census.calls().to_string(),
            share(census.remote, census.calls()),
        ];
        for sizes in [&census.arguments, &census.results] {
            row.extend([0.5, 0.99, 1.0].map(|part| size(sizes, part)));
            row.push(share(sizes.in_one_packet(), sizes.calls()));
        }
        Some(row)
    });
    table(&header, rows.collect(), columns)
}

/// Formats the sizes of the arguments and results of all calls of the census, since the server began.
pub(super) fn sizes(interval: &Interval, columns: Option<usize>) -> Option<String> {
    let header = [
        Column("UP TO", true, 0),
        Column("ARGUMENTS", true, 0),
        Column("TOGETHER", true, 1),
        Column("RESULTS", true, 0),
        Column("TOGETHER", true, 1),
    ];
    let counted = || of(interval).iter().filter_map(|one| one.census.as_ref());
    let sums = |of: fn(&Census) -> &Sizes| {
        let mut sums = [0u64; ROWS.len()];
        for (range, calls) in counted().flat_map(|census| of(census).buckets()) {
            let row = ROWS.iter().position(|most| *most >= *range.end()).unwrap_or(ROWS.len() - 1);
            sums[row] = sums[row].saturating_add(calls);
        }
        sums
    };
    let both = [sums(|census| &census.arguments), sums(|census| &census.results)];
    let all = both.map(|sums| sums.iter().fold(0u64, |all, one| all.saturating_add(*one)));
    if all == [0; 2] {
        return None;
    }
    let mut together = [0u64; 2];
    let rows = ROWS.iter().enumerate().map(|(at, most)| {
        let largest = if *most == u64::MAX { "more".to_owned() } else { format!("{most} B") };
        let mut row = vec![largest];
        for side in 0..2 {
            together[side] = together[side].saturating_add(both[side][at]);
            row.extend([both[side][at], together[side]].map(|calls| share(calls, all[side])));
        }
        row
    });
    table(&header, rows.collect(), columns)
}

/// Returns what is kept for procedures as JSON, or null if the server is older.
pub(super) fn json(interval: &Interval) -> Value {
    let one = |one: &ProcedureStat| {
        let at_most = one.at_most.map(|AtMostStat { most, running, refused }| {
            json!({ "most": most, "running": running, "refused": refused })
        });
        let within = one.within.map(|within| {
            json!({
                "limit_ns": within.limit_ns,
                "promised_of_1000": within.promised,
                "calls": within.calls,
                "late": within.late,
                "late_of_last_1000": within.late_now,
                "is_kept": within.late_for_ms.is_none(),
                "broken_for_ms": within.late_for_ms,
            })
        });
        let census = one.census.as_ref().map(|census| {
            json!({
                "calls": census.calls(),
                "remote": census.remote,
                "argument_bytes": json_sizes(&census.arguments),
                "result_bytes": json_sizes(&census.results),
            })
        });
        json!({
            "export": one.export,
            "name": one.name,
            "at_most": at_most,
            "within": within,
            "census": census,
        })
    };
    let procedures = interval.now.procedures.as_ref();
    json!(procedures.map(|all| all.iter().map(one).collect::<Vec<_>>()))
}

/// Returns sizes as JSON. The last bucket, with the largest sizes, has no `to`.
fn json_sizes(sizes: &Sizes) -> Value {
    let known = |bytes: u64| (bytes != u64::MAX).then_some(bytes);
    let buckets = sizes.buckets().filter(|(_, calls)| *calls > 0).map(|(range, calls)| {
        json!({ "from": range.start(), "to": known(*range.end()), "calls": calls })
    });
    json!({
        "in_one_packet": sizes.in_one_packet(),
        "p50": sizes.percentile(0.5).and_then(known),
        "p99": sizes.percentile(0.99).and_then(known),
        "max": sizes.percentile(1.0).and_then(known),
        "buckets": buckets.collect::<Vec<_>>(),
    })
}

fn size(sizes: &Sizes, part: f64) -> String {
    match sizes.percentile(part) {
        None => "-".to_owned(),
        Some(u64::MAX) => "more".to_owned(),
        Some(most) => bytes(most as f64),
    }
}

/// Formats a part of a whole in per cent.
fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use peregrine::{ExportOptions, Server, interface};

    use super::*;

    #[interface]
    trait Notes {
        fn add(&self, text: &str) -> peregrine::Result<u32>;
        #[at_most(3)]
        #[within(1ns, of = 100)]
        fn count(&self) -> peregrine::Result<u32>;
        fn erase(&self) -> peregrine::Result<()>;
    }

    struct Pad;

    impl Notes for Pad {
        fn add(&self, _: &str) -> peregrine::Result<u32> {
            Ok(1)
        }
        fn count(&self) -> peregrine::Result<u32> {
            Ok(2)
        }
        fn erase(&self) -> peregrine::Result<()> {
            Ok(())
        }
    }

    /// Returns an interval of a server with a census, after some calls.
    fn interval() -> Interval {
        let options = ExportOptions::default().networks_only();
        let server = Server::new().census().export_with("notes", NotesServer::new(Pad), options);
        let running = server.unwrap().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        let notes = NotesClient::bind(&format!("{}/notes", running.addresses()[0])).unwrap();
        assert_eq!(notes.count().unwrap(), 2);
        for bytes in [0, 100, 100, 70_000] {
            notes.add(&"x".repeat(bytes)).unwrap();
        }
        let (address, before, now) = ("notes".to_owned(), Default::default(), running.stat());
        Interval { address, before, now, took: None }
    }

    #[test]
    fn limits_and_census_are_tables_and_json() {
        let mut interval = interval();
        let line = |table: Option<String>, begins: &str| {
            let table = table.expect("a table");
            let found = table.lines().find(|line| line.trim_start().starts_with(begins));
            let words = found.unwrap_or_else(|| panic!("no `{begins}` in\n{table}"));
            words.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(limits(&interval, None), "notes"), "notes count 0 3 0");
        let counted = line(census(&interval, None), "notes");
        assert!(counted.starts_with("notes add 4 0.0 % "), "{counted}");
        assert!(counted.contains(" 128 KiB 75.0 % ") && counted.ends_with(" 100.0 %"), "{counted}");
        // The procedure without calls is left out.
        assert!(!census(&interval, None).unwrap().contains("erase"));
        let promised = line(promises(&interval, None), "notes");
        assert!(
            promised.starts_with("notes count 1 ns 100.0 % 1 0.0 % 1 broken for "),
            "{promised}"
        );
        assert_eq!(line(sizes(&interval, None), "1408 B").split(' ').nth(4), Some("80.0"));
        assert!(line(sizes(&interval, None), "more").starts_with("more 20.0 % 100.0 %"));

        let report = json(&interval);
        let [add, count, _] = report.as_array().unwrap().as_slice() else { panic!("{report}") };
        assert_eq!((&add["name"], &add["at_most"]), (&"add".into(), &Value::Null));
        let census_of_add = &add["census"];
        assert_eq!((&census_of_add["calls"], &census_of_add["remote"]), (&4.into(), &0.into()));
        let arguments = &census_of_add["argument_bytes"];
        assert_eq!((&arguments["in_one_packet"], &arguments["max"]), (&3.into(), &131_071.into()));
        assert_eq!(arguments["buckets"].as_array().unwrap().last().unwrap()["calls"], 1);
        assert_eq!(count["at_most"], json!({ "most": 3, "running": 0, "refused": 0 }));
        let within = &count["within"];
        assert_eq!((&within["limit_ns"], &within["late"]), (&1.into(), &1.into()));
        assert_eq!((&within["is_kept"], &add["within"]), (&false.into(), &Value::Null));

        interval.now.procedures = None;
        assert!(limits(&interval, None).is_none() && census(&interval, None).is_none());
        assert!(promises(&interval, None).is_none());
        assert!(sizes(&interval, None).is_none() && json(&interval).is_null());
    }
}
