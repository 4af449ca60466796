//! The streams of a call: the items of a sink are printed as they arrive, and the items of a source are
//! read line by line. The calls of callbacks are printed in the same way as items.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError};

use peregrine::interface::{Described, DescribedParameter, DescribedProcedure, Direction};
use peregrine::json::Bytes;
use peregrine::{Dynamic, Sender, Sink, Source};
use serde_json::{Map, Value, json};

use super::arguments::{is_number, is_text};
use crate::args::Format;
use crate::interrupt::{Interrupt, SignalFlag};
use crate::output::{self, Failure};

/// The maximum number of items that are read before the procedure takes them.
const AHEAD: usize = 64;

/// The items of a source, before the call.
pub(super) enum Input {
    /// All items, which were read before the call.
    Items(Vec<Dynamic>),
    /// Each line is an item.
    Lines(Box<dyn BufRead + Send>),
}

impl Input {
    /// Returns an input that reads lines.
    pub(super) fn lines(reader: impl std::io::Read + Send + 'static) -> Self {
        Self::Lines(Box::new(BufReader::new(reader)))
    }

    /// Returns the source of a call. A thread reads the lines, because reading may take any time, and
    /// other streams of the call go on meanwhile.
    pub(super) fn source(
        self,
        described: &Described,
        parameter: &DescribedParameter,
    ) -> Result<Source<'static, Dynamic>, Failure> {
        let lines = match self {
            Self::Items(items) => return Ok(Source::new(items)),
            Self::Lines(lines) => lines,
        };
        let (source, sender) = Source::channel(AHEAD);
        let (described, parameter) = (described.clone(), parameter.clone());
        let read = move || send_lines(&described, &parameter, lines, sender);
        let spawned = std::thread::Builder::new().name("lines".into()).spawn(read);
        output::OrFail::or_fail(spawned, "cannot start a thread that reads lines")?;
        Ok(source)
    }
}

/// Sends the lines as items. Ends the call with a reason if a line is not an item.
fn send_lines(
    described: &Described,
    parameter: &DescribedParameter,
    lines: Box<dyn BufRead + Send>,
    mut sender: Sender<Dynamic>,
) {
    let name = &parameter.name;
    for (line, number) in lines.lines().zip(1u64..) {
        let item = match line {
            Ok(line) if line.trim().is_empty() && !is_text(described, parameter) => continue,
            Ok(line) => item(described, parameter, line),
            Err(error) => Err(error.to_string()),
        };
        match item {
            Ok(item) => {
                if sender.send(item).is_err() {
                    // The procedure wants no more items.
                    return;
                }
            }
            Err(error) => return sender.fail(format_args!("line {number} of `{name}`: {error}")),
        }
    }
}

/// Reads an item. A line is JSON, but a text, a number or the name of a variant needs no quotes.
fn item(
    described: &Described,
    parameter: &DescribedParameter,
    line: String,
) -> Result<Dynamic, String> {
    let is_word = is_text(described, parameter) || is_number(parameter);
    let json = match serde_json::from_str(&line) {
        Ok(json @ Value::String(_)) => json,
        // A number stays text, because the conversion to a JSON number can lose digits.
        Ok(_) | Err(_) if is_word => Value::String(line),
        Ok(json) => json,
        Err(error) => return Err(format!("cannot parse it as JSON: {error}")),
    };
    described.argument_from_json(parameter, &json).map_err(|unfit| unfit.to_string())
}

/// Prints the items of sinks and the calls of callbacks, or collects them for a single JSON object.
pub(super) struct Printer {
    pub(super) described: Described,
    pub(super) bytes: Bytes,
    format: Format,
    /// Whether each line must name its sink or callback, because the call has several.
    has_several: bool,
    interrupted: SignalFlag,
    state: Mutex<State>,
}

/// The items and calls that were collected instead of printed, and the failure of printing.
#[derive(Default)]
struct State {
    /// The items and calls for the single JSON object.
    collected: Collected,
    /// Why an item or a call could not be printed.
    failure: Option<Failure>,
}

/// The items and calls that arrived while the call ran.
#[derive(Default)]
pub(super) struct Collected {
    /// The items, by the names of the sinks.
    pub(super) items: Map<String, Value>,
    /// The calls, by the names of the callbacks.
    pub(super) calls: Map<String, Value>,
}

/// Returns whether the command prints lines while a procedure runs.
pub(super) fn has_lines(procedure: &DescribedProcedure) -> bool {
    procedure.parameters.iter().any(|one| prints(one.direction))
}

/// Returns whether the command prints lines for a parameter while the procedure runs.
const fn prints(direction: Direction) -> bool {
    matches!(direction, Direction::Sink | Direction::Callback)
}

impl Printer {
    pub(super) fn new(
        described: &Described,
        procedure: &DescribedProcedure,
        bytes: Bytes,
        format: Format,
        interrupt: &Interrupt,
    ) -> Self {
        let mut collected = Collected::default();
        let parameters = || procedure.parameters.iter().filter(|one| prints(one.direction));
        if format == Format::Json {
            for one in parameters() {
                let all = match one.direction {
                    Direction::Sink => &mut collected.items,
                    _ => &mut collected.calls,
                };
                all.insert(one.name.clone(), json!([]));
            }
        }
        Self {
            described: described.clone(),
            bytes,
            format,
            has_several: parameters().count() > 1,
            interrupted: interrupt.flag(),
            state: Mutex::new(State { collected, failure: None }),
        }
    }

    /// Returns a sink for a parameter.
    pub(super) fn sink<'s>(&'s self, parameter: &'s DescribedParameter) -> Sink<'s, Dynamic> {
        Sink::until(move |item| self.receive(parameter, &item))
    }

    /// Prints a call of a callback.
    ///
    /// # Errors
    /// If the call cannot be printed, or a signal has interrupted the command.
    pub(super) fn called(
        &self,
        callback: &str,
        procedure: &str,
        arguments: Map<String, Value>,
    ) -> Result<(), ()> {
        let mut state = self.state();
        let line = match self.format {
            Format::Json => {
                if let Some(Value::Array(calls)) = state.collected.calls.get_mut(callback) {
                    calls.push(json!({ "procedure": procedure, "arguments": arguments }));
                }
                None
            }
            Format::Ndjson => Some(
                json!({ "callback": callback, "procedure": procedure, "arguments": arguments }),
            ),
            Format::Human if self.has_several => {
                Some(json!({ callback: { procedure: arguments } }))
            }
            Format::Human => Some(json!({ procedure: arguments })),
        };
        match self.print(&mut state, line) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints a line, if there is one. Returns `Break` if the procedure need not go on.
    fn print(&self, state: &mut State, line: Option<Value>) -> ControlFlow<()> {
        // If nothing reads the output any more, the procedure need not go on.
        if let Some(Err(failure)) = line.map(output::print) {
            state.failure = Some(failure);
            return ControlFlow::Break(());
        }
        match self.interrupted.is_set() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn receive(&self, parameter: &DescribedParameter, item: &Dynamic) -> ControlFlow<()> {
        let json = self.described.argument_to_json(parameter, item, self.bytes);
        let mut state = self.state();
        let line = match self.format {
            Format::Json => {
                if let Some(Value::Array(items)) = state.collected.items.get_mut(&parameter.name) {
                    items.push(json);
                }
                None
            }
            Format::Ndjson => Some(json!({ "sink": parameter.name, "item": json })),
            Format::Human if self.has_several => Some(json!({ &parameter.name: json })),
            Format::Human => Some(json),
        };
        self.print(&mut state, line)
    }

    /// Returns the items and calls that were collected instead of printed.
    ///
    /// # Errors
    /// If an item or a call could not be printed.
    pub(super) fn end(&self) -> Result<Collected, Failure> {
        let State { collected, failure } = core::mem::take(&mut *self.state());
        failure.map_or(Ok(collected), Err)
    }
}
