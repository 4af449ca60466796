//! `capture`: shows the calls of a server of this machine as they happen.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use peregrine::interface::{Described, DescribedProcedure};
use peregrine::{
    CallError, Capture as Calls, CaptureOptions, Captured, CapturedArgument, Executed, Kind,
    LayerOutcome,
};
use serde_json::{Map, Value, json};

use crate::args::{Capture, Format};
use crate::interrupt::{Interrupt, InterruptOptions};
use crate::output::{self, BAD, BOLD, DIM, FAIR, Failure, GOOD, visible};

/// How long the command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// How often the command checks whether a signal has arrived.
const CHECK: Duration = Duration::from_millis(50);

/// The maximum number of letters of an argument in a line of text.
const LETTERS: usize = 60;

/// Shows calls until the last one, until the server ends, or until a signal arrives.
pub(crate) fn run(capture: &Capture, format: Format) -> Result<(), Failure> {
    if format == Format::Json && capture.count.is_none() {
        return Err(Failure::Usage {
            what: "`--format json` prints one object, but a capture has no end".to_owned(),
            causes: Vec::new(),
            advice: "use `--format ndjson` for one object per call, or `--count N` to end"
                .to_owned(),
            suggestions: Vec::new(),
        });
    }
    let options = CaptureOptions::default()
        .argument_bytes(usize::try_from(capture.argument_bytes).unwrap_or(usize::MAX));
    let options = if capture.failed { options.failed_only() } else { options };
    let options = match &capture.procedure {
        Some(name) => options.procedure(name),
        None => options,
    };
    // Signals are handled before the capture begins, so that a signal at any time ends it with the totals.
    let signals = InterruptOptions { format, grace: GRACE, executed: "no" };
    let interrupt = Interrupt::handle(signals, || {}, || "calls were shown".to_owned())?;
    let mut calls = Calls::open_with(&capture.name, &options)?;
    if format == Format::Human {
        output::note(format_args!("{DIM}capturing calls of {}{DIM:#}", visible(&capture.name)));
    }
    let (shown, all) = show(capture, format, &mut calls, &interrupt)?;
    interrupt.check(|| totals(shown, calls.left_out()))?;
    interrupt.leave();
    match format {
        Format::Human => output::note(totals(shown, calls.left_out())),
        Format::Json => output::print(json!({ "calls": all, "left_out": calls.left_out() }))?,
        Format::Ndjson => {}
    }
    Ok(())
}

/// Returns the report at the end.
fn totals(shown: u64, left_out: u64) -> String {
    format!("calls shown: {shown}, left out: {left_out}")
}

/// Shows calls. Returns their number. For one JSON object, also returns the calls.
fn show(
    capture: &Capture,
    format: Format,
    calls: &mut Calls,
    interrupt: &Interrupt,
) -> Result<(u64, Vec<Value>), Failure> {
    let (mut shown, mut all, mut left_out) = (0, Vec::new(), 0);
    let described = calls.described().clone();
    while shown < capture.count.unwrap_or(u64::MAX) && interrupt.signal().is_none() {
        let call = match calls.next_within(CHECK) {
            Ok(None) => continue,
            Ok(Some(call)) => call,
            Err(error) => return Err(ended(error, shown, calls.left_out(), interrupt)),
        };
        if calls.left_out() > left_out && format == Format::Human {
            let more = calls.left_out() - left_out;
            output::say(format_args!("{FAIR}left out: {more} calls{FAIR:#}"))?;
        }
        left_out = calls.left_out();
        let arguments = arguments(&described, &call, capture);
        match format {
            Format::Human => output::say(line(&call, &arguments))?,
            Format::Ndjson => output::print(json(&call, &arguments, left_out))?,
            Format::Json => all.push(json(&call, &arguments, left_out)),
        }
        shown += 1;
    }
    Ok((shown, all))
}

/// Returns the failure for a capture that its server has ended.
fn ended(error: CallError, shown: u64, left_out: u64, interrupt: &Interrupt) -> Failure {
    interrupt.leave();
    let what = match error.kind() {
        Kind::Withdrawn => "the server has stopped, or has withdrawn the export",
        Kind::ServerGone => "the server has ended",
        _ => return error.into(),
    };
    Failure::local(format!("{what}: {}", totals(shown, left_out)), "start the capture again")
}

/// The arguments of a call, or why they cannot be read.
type Arguments = Result<Vec<(String, Value)>, String>;

fn arguments(described: &Described, call: &Captured, capture: &Capture) -> Arguments {
    let procedure = &described.procedures[call.procedure_number() as usize];
    let values = call.arguments().map_err(|error| error.detail().to_owned())?;
    let one =
        |(index, (name, value))| (name, argument(described, procedure, index, &value, capture));
    Ok(values.into_iter().enumerate().map(one).collect())
}

/// Returns an argument as JSON. What is no value is an object that says what it is.
fn argument(
    described: &Described,
    procedure: &DescribedProcedure,
    index: usize,
    value: &CapturedArgument,
    capture: &Capture,
) -> Value {
    match value {
        CapturedArgument::Value(value) => {
            let parameter = &procedure.parameters[index];
            described.argument_to_json(parameter, value, capture.bytes.into())
        }
        CapturedArgument::Out { bytes } => json!({ "out": bytes }),
        CapturedArgument::Lent { bytes } => json!({ "lent": bytes }),
        CapturedArgument::Sink => json!({ "stream": "sink" }),
        CapturedArgument::Source => json!({ "stream": "source" }),
        CapturedArgument::Callback => json!({ "callback": true }),
        CapturedArgument::Cut { bytes } => json!({ "cut": bytes }),
        _ => json!({ "unknown": true }),
    }
}

/// Returns an argument as it is shown in a line of text.
fn brief(value: &Value) -> String {
    let text = match value {
        Value::Object(one) if one.len() == 1 => match one.iter().next() {
            Some((key, bytes)) if key == "out" && bytes.is_u64() => format!("out[{bytes}]"),
            Some((key, bytes)) if key == "lent" && bytes.is_u64() => format!("lent {bytes} bytes"),
            Some((key, bytes)) if key == "cut" && bytes.is_u64() => format!("cut, {bytes} bytes"),
            Some((key, bytes)) if key == "cut" && bytes.is_null() => "cut".to_owned(),
            Some((key, _)) if key == "stream" => "stream".to_owned(),
            Some((key, _)) if key == "callback" => "callback".to_owned(),
            _ => value.to_string(),
        },
        value => value.to_string(),
    };
    let text = visible(&text);
    match text.char_indices().nth(LETTERS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

/// Returns the time of the day in UTC.
fn time(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (day, us) = (since.as_secs() % 86400, since.subsec_micros());
    format!("{:02}:{:02}:{:02}.{us:06}", day / 3600, day / 60 % 60, day % 60)
}

/// Returns who made a call.
fn caller(call: &Captured) -> String {
    let mut text = call.path().to_owned();
    match call.from() {
        Some(from) => {
            let _ = write!(text, " {from}");
        }
        None => {
            let _ = write!(text, " process {} user {}", call.process(), call.user());
        }
    }
    if let Some(identity) = call.identity() {
        let _ = write!(text, " {identity}");
    }
    visible(&text)
}

/// Returns the line of text for a call.
fn line(call: &Captured, arguments: &Arguments) -> String {
    let mut line =
        format!("{DIM}{}{DIM:#} {BOLD}{}{BOLD:#}(", time(call.begun()), call.procedure());
    match arguments {
        Ok(arguments) => {
            for (index, (name, value)) in arguments.iter().enumerate() {
                let gap = if index > 0 { ", " } else { "" };
                let _ = write!(line, "{gap}{}: {}", visible(name), brief(value));
            }
        }
        Err(text) => {
            let _ = write!(line, "{}", visible(text));
        }
    }
    line.push_str(") ");
    match call.outcome() {
        LayerOutcome::Returned => {
            let _ = write!(line, "{GOOD}ok{GOOD:#}");
        }
        LayerOutcome::ReturnedError => {
            let _ = write!(line, "{FAIR}own error{FAIR:#}");
        }
        LayerOutcome::Failed { kind, executed, text } => {
            let text = visible(text);
            let _ = write!(line, "{BAD}failed{BAD:#}: {}, {executed}: {text}", kind.text());
        }
        _ => {}
    }
    let took = output::nanoseconds(call.took().as_nanos() as f64);
    let _ = write!(line, " {DIM}{took}, {}{DIM:#}", caller(call));
    line
}

/// Returns the JSON object for a call.
fn json(call: &Captured, arguments: &Arguments, left_out: u64) -> Value {
    let since = call.begun().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut object = json!({
        "number": call.number(),
        "left_out": left_out,
        "begun_unix_ns": output::whole_ns(since),
        "took_ns": output::whole_ns(call.took()),
        "procedure": call.procedure(),
        "path": call.path(),
        "process": call.process(),
        "from": call.from(),
        "identity": call.identity(),
        "argument_bytes": call.argument_bytes(),
        "result_bytes": call.result_bytes(),
    });
    if call.user() != u32::MAX {
        object["user"] = json!(call.user());
    }
    match arguments {
        Ok(all) => object["arguments"] = all.iter().cloned().collect::<Map<_, _>>().into(),
        Err(text) => object["unreadable"] = json!(text),
    }
    match call.outcome() {
        LayerOutcome::Returned => object["outcome"] = json!("ok"),
        LayerOutcome::ReturnedError => object["outcome"] = json!("own-error"),
        LayerOutcome::Failed { kind, executed, text } => {
            object["outcome"] = json!("failed");
            object["kind"] = json!(format!("{kind:?}"));
            object["executed"] = json!(if executed == Executed::No { "no" } else { "maybe" });
            object["text"] = json!(text);
        }
        _ => {}
    }
    object
}
