//! Formats an interval between two readings of a server's counters as JSON.

use peregrine::counters::{BindingStat, Counts, ExportStat, InFlightCounts, Latency, SessionStat};
use serde_json::{Map, Value, json};

use super::{Interval, procedures};
use crate::output;

/// Returns an interval as a JSON object.
pub(super) fn interval(interval: &Interval) -> Value {
    let Interval { before, now, .. } = interval;
    let (server, then) = (&now.server, &before.server);
    let mut members = json!({
        "address": interval.address,
        "interval_ns": (interval.seconds() * 1e9) as u64,
        "took_ns": interval.took.map(output::whole_ns),
        "process": server.process,
        "age_ms": server.age_ms,
        "threads": paths(&server.threads),
        "waits": { "spun": server.waits.spun, "slept": server.waits.slept },
        "resent": server.resent,
        "came_again": server.came_again,
        "in_flight_by_kind": server.in_flight.as_ref().map(by_kind),
        "streams": server.in_flight.as_ref().map(streams),
        "denied": server.denied,
        "queued": server.queued,
        "captured": paths(&server.captured),
        "sessions_standing": server.sessions,
        "bindings_standing": server.bindings,
        "latency": latency(&now.latency().since(&before.latency())),
        "procedures": procedures::json(interval),
        "exports": now.exports.iter().map(|one| export(interval, one)).collect::<Vec<_>>(),
        "sessions": now.sessions.iter().map(|one| session(interval, one)).collect::<Vec<_>>(),
        "bindings": now.bindings.iter().map(|one| binding(interval, one)).collect::<Vec<_>>(),
    });
    add(&mut members, counts(interval, &then.counts, &server.counts));
    members
}

fn by_kind(of: &InFlightCounts) -> Value {
    json!({ "blocking": of.blocking, "deferred": of.deferred, "oneway": of.oneway })
}

fn streams(of: &InFlightCounts) -> Value {
    json!({ "open": of.streams, "bytes_buffered": of.stream_bytes })
}

fn paths<T: Copy + Into<Value>>(of: &[T; 3]) -> Value {
    let [local, tcp, datagrams] = *of;
    json!({ "local": local.into(), "tcp": tcp.into(), "datagrams": datagrams.into() })
}

fn add(members: &mut Value, more: Map<String, Value>) {
    if let Value::Object(members) = members {
        members.extend(more);
    }
}

fn counts(interval: &Interval, before: &Counts, now: &Counts) -> Map<String, Value> {
    let members = json!({
        "calls": now.calls,
        "in_flight": now.in_flight,
        "refused": now.refused,
        "failed": now.failed,
        "bytes_in": now.bytes_in,
        "bytes_out": now.bytes_out,
        "calls_per_s": interval.rate(before.calls, now.calls),
        "bytes_in_per_s": interval.rate(before.bytes_in, now.bytes_in),
        "bytes_out_per_s": interval.rate(before.bytes_out, now.bytes_out),
    });
    let Value::Object(members) = members else { return Map::new() };
    members
}

/// Returns quantiles of latencies as JSON. They are null if no call was timed.
fn latency(of: &Latency) -> Value {
    let ns = |part| of.percentile(part).map(output::whole_ns);
    json!({
        "calls": of.calls(),
        "p50_ns": ns(0.5),
        "p90_ns": ns(0.9),
        "p99_ns": ns(0.99),
        "max_ns": ns(1.0),
    })
}

fn export(interval: &Interval, now: &ExportStat) -> Value {
    let before = interval.before.export(&now.name).cloned().unwrap_or_default();
    let mut members = json!({
        "name": now.name,
        "interface": now.interface,
        "version": now.version,
        "digest": now.digest().to_string(),
        "age_ms": now.age_ms,
        "bindings": now.bindings,
        "latency": latency(&now.latency.since(&before.latency)),
        "latency_since_it_began": latency(&now.latency),
    });
    add(&mut members, counts(interval, &before.counts, &now.counts));
    members
}

fn session(interval: &Interval, now: &SessionStat) -> Value {
    let mut members = json!({
        "number": now.number,
        "path": now.path,
        "process": (now.process != 0).then_some(now.process),
        "user": (now.user != u32::MAX).then_some(now.user),
        "group": (now.group != u32::MAX).then_some(now.group),
        "from": (!now.from.is_empty()).then_some(&now.from),
        "age_ms": now.age_ms,
        "bindings": now.bindings,
    });
    add(&mut members, counts(interval, &super::tables::session_before(interval, now), &now.counts));
    members
}

fn binding(interval: &Interval, now: &BindingStat) -> Value {
    let mut members = json!({
        "number": now.number,
        "session": (now.session != 0).then_some(now.session),
        "export": now.export,
        "age_ms": now.age_ms,
    });
    add(&mut members, counts(interval, &super::tables::binding_before(interval, now), &now.counts));
    members
}
