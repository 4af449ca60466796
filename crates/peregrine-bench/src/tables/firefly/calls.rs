//! Tables I to V: calls by several threads, and marshalling.

use super::super::measure::local::marshalled_key;
use super::super::measure::processors::{Spread, thread_key};
use super::super::measured::Measured;
use super::super::paper::firefly as paper;
use super::super::plot::{self, Series};
use super::super::table::{Cell, Picture, Table, exact, label, ours, said, theirs, times};
use super::{megabits, table};

pub(crate) fn table_1(measured: &Measured) -> Table {
    let columns = vec![
        label("threads"),
        theirs("Null, s", ""),
        theirs("calls/s", ""),
        theirs("Max, s", ""),
        theirs("Mbit/s", ""),
        ours("Null, s", ""),
        ours("calls/s", ""),
        ours("Max, s", ""),
        ours("Mbit/s", ""),
    ];
    let title = "The time of 10,000 calls by several threads. `Null` does nothing. `MaxResult` (*Max*) returns 1440 bytes.";
    let mut table = table("Table I", title, columns);
    let of = |case: &str, threads| measured.value(&thread_key(Spread::All, case, threads));
    let seconds = |ns: Option<f64>| Cell::from(ns.map(|ns| ns * 1e4 / 1e9));
    for (threads, null, per_s, largest, rate) in paper::THREADS {
        let [nulls, results] = ["null", "out-1440"].map(|case| of(case, threads));
        table.grids[0].row(vec![
            threads.to_string().into(),
            exact(null),
            exact(per_s),
            exact(largest),
            exact(rate),
            seconds(nulls),
            nulls.map(|ns| 1e9 / ns).into(),
            seconds(results),
            megabits(results).into(),
        ]);
    }
    table.how = "Calls over UDP and veth. The threads share one binding, and the server has as many \
        threads. All sleep while they wait. Both sides use all processors. The calls of a window of time \
        are counted, and the seconds are calculated for 10,000 of them."
        .into();
    let best = |case: &str| {
        let all = (1..=8).filter_map(|threads| of(case, threads));
        Some(all.fold(f64::INFINITY, f64::min)).filter(|ns| ns.is_finite())
    };
    table.changed = format!(
        "In the paper, several threads made twice as many calls as one, and four threads occupied the \
        controller of the network with `MaxResult`. Here the best number of threads makes {} times as many \
        calls of `Null` as one thread, and {} times as many of `MaxResult`. The processors do all of the work, so \
        further threads gain only what one caller leaves idle.",
        times(of("null", 1), best("null")),
        times(of("out-1440", 1), best("out-1440"))
    );
    let line = |name: &str, values: [Option<f64>; 8]| {
        let points: Vec<_> =
            (1..).zip(values).filter_map(|(n, value)| Some((f64::from(n), value?))).collect();
        let first = points.first().map_or(1.0, |point: &(f64, f64)| point.1);
        Series {
            name: name.to_owned(),
            points: points.into_iter().map(|(x, y)| (x, y / first)).collect(),
        }
    };
    let all = [1, 2, 3, 4, 5, 6, 7, 8];
    let series = [
        line("Firefly: Null", paper::THREADS.map(|row| Some(row.2))),
        line("Firefly: MaxResult", paper::THREADS.map(|row| Some(row.4))),
        line("Peregrine: Null", all.map(|n| of("null", n).map(|ns| 1e9 / ns))),
        line("Peregrine: MaxResult", all.map(|n| megabits(of("out-1440", n)))),
    ];
    table.picture = Some(Picture {
        file: "firefly-table-1.svg",
        title: "Throughput by the number of calling threads".into(),
        svg: plot::lines(
            "Throughput by the number of calling threads",
            "threads",
            "times one thread",
            &series,
        ),
    });
    table
}

/// Returns how much longer a call takes than one without arguments, in nanoseconds.
fn more(measured: &Measured, what: &str, near: bool) -> Option<f64> {
    let [with, without] = [what, "nothing"].map(|what| measured.value(&marshalled_key(what, near)));
    with.zip(without).map(|(with, without)| with - without)
}

/// How marshalling is measured.
const HOW: &str = "As in the paper, the time by which a call takes longer than one without arguments, \
    calculated from the medians of the same rounds. *Between* is a call to another process of the machine, \
    which polls. *Within* is a call within a process, by the same stubs, without any transport, in the \
    place of the paper's shared buffers. Differences of a few nanoseconds between two processes are less \
    than what the calls themselves vary.";

fn marshalling(
    measured: &Measured,
    name: &'static str,
    title: &str,
    what: &str,
    rows: Vec<(String, f64, String)>,
) -> Table {
    let columns =
        vec![label(what), theirs("time", "us"), ours("between", "ns"), ours("within", "ns")];
    let mut table = table(name, title, columns);
    for (row, time, key) in rows {
        table.grids[0].row(vec![
            row.into(),
            exact(time),
            more(measured, &key, false).into(),
            more(measured, &key, true).into(),
        ]);
    }
    table.how = HOW.into();
    table
}

pub(crate) fn table_2(measured: &Measured) -> Table {
    let rows =
        paper::INTEGERS.map(|(count, time)| (count.to_string(), time, format!("integers-{count}")));
    let title = "Marshalling integers of four bytes, passed by value.";
    let mut table = marshalling(measured, "Table II", title, "integers", rows.into());
    table.changed = format!(
        "In the paper, each integer took eight microseconds: copies between stacks and packets, each some \
        instructions of a processor with 1 MIPS. Today an integer is a store and a load. Four of them take {} ns \
        within a process.",
        said(more(measured, "integers-4", true), 0)
    );
    table
}

pub(crate) fn table_3(measured: &Measured) -> Table {
    let rows =
        paper::FIXED.map(|(bytes, time)| (bytes.to_string(), time, format!("fixed-{bytes}")));
    let title = "Marshalling an array of bytes of fixed length, passed by VAR OUT: a result here.";
    let mut table = marshalling(measured, "Table III", title, "bytes", rows.into());
    table.changed = "The paper's array was written into the result packet by the server, and copied once by the \
        caller. Here a result of a fixed length is a value, and is moved at each side. A register holds many \
        bytes, so this takes few instructions. Between two processors, each further cache line takes longer \
        than the instructions that move it."
        .into();
    table
}

pub(crate) fn table_4(measured: &Measured) -> Table {
    let rows =
        paper::VARIABLE.map(|(bytes, time)| (bytes.to_string(), time, format!("variable-{bytes}")));
    let title =
        "Marshalling an array of bytes of variable length, passed by VAR OUT: an `Out` here.";
    let mut table = marshalling(measured, "Table IV", title, "bytes", rows.into());
    table.changed = "In the paper, a buffer of one byte took a fifth of the time of the largest one: a variable length \
        costs something, whatever is in it. Here the fixed part is the place in the message, a length and a \
        bound. The bytes cost little within a process, and between two processors the time in which their \
        cache lines move."
        .into();
    table
}

pub(crate) fn table_5(measured: &Measured) -> Table {
    let rows = paper::TEXTS.map(|(text, time)| (text.to_owned(), time, format!("text-{text}")));
    let title = "Marshalling a text, which the server allocates: `Option<Cow<str>>` here.";
    let mut table = marshalling(measured, "Table V", title, "bytes", rows.into());
    table.changed = format!(
        "The paper's text was the dearest argument, because of library procedures and memory that is collected. \
        Here the server still allocates memory for a text, and checks that it is UTF-8. A text of 128 bytes \
        takes {} ns within a process.",
        said(more(measured, "text-128", true), 0)
    );
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marshalling_is_the_difference_to_a_call_without_arguments() {
        let mut measured = Measured::default();
        measured.set(marshalled_key("nothing", true), 50.0);
        measured.set(marshalled_key("integers-4", true), 62.0);
        assert_eq!(more(&measured, "integers-4", true), Some(12.0));
        assert_eq!(more(&measured, "integers-4", false), None);
        let row = &table_2(&measured).grids[0].rows[2];
        assert_eq!(row[3], Cell::Number(12.0));
    }
}
