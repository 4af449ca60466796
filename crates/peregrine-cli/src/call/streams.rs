//! The streams of a call: the items of a sink are printed as they arrive, and the items of a source are read line
//! by line.

use std::io::{BufRead, BufReader};
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

use peregrine::interface::{Described, DescribedParameter, DescribedProcedure, Direction};
use peregrine::json::Bytes;
use peregrine::{Dynamic, Sender, Sink, Source};
use serde_json::{Map, Value, json};

use super::arguments::{is_number, is_text};
use crate::args::Format;
use crate::interrupt::Interrupt;
use crate::output::{self, Failure};

/// The number of items that are read before the procedure takes them.
const AHEAD: usize = 64;

/// The items of a source, before the call.
pub(super) enum Input {
    /// The items are known.
    Items(Vec<Dynamic>),
    /// Each line is an item.
    Lines(Box<dyn BufRead + Send>),
}

impl Input {
    /// Returns an input that reads lines.
    pub(super) fn lines(reader: impl std::io::Read + Send + 'static) -> Self {
        Self::Lines(Box::new(BufReader::new(reader)))
    }

    /// Returns the source of a call. A thread reads the lines, because reading may take any time, and other streams of
    /// the call go on meanwhile.
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

/// Prints the items of sinks, or collects them for a single JSON object.
pub(super) struct Printer<'a> {
    described: &'a Described,
    bytes: Bytes,
    format: Format,
    /// Whether a line must say to which sink its item belongs.
    has_several: bool,
    interrupt: &'a Interrupt,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The items that were not printed, by the names of the sinks.
    collected: Map<String, Value>,
    /// Why an item was not printed.
    failure: Option<Failure>,
}

/// Returns whether a procedure has a sink.
pub(super) fn has_sink(procedure: &DescribedProcedure) -> bool {
    procedure.parameters.iter().any(|one| one.direction == Direction::Sink)
}

impl<'a> Printer<'a> {
    pub(super) fn new(
        described: &'a Described,
        procedure: &DescribedProcedure,
        bytes: Bytes,
        format: Format,
        interrupt: &'a Interrupt,
    ) -> Self {
        let sinks = procedure.parameters.iter().filter(|one| one.direction == Direction::Sink);
        let mut collected = Map::new();
        if format == Format::Json {
            collected.extend(sinks.clone().map(|one| (one.name.clone(), json!([]))));
        }
        let has_several = sinks.count() > 1;
        let state = Mutex::new(State { collected, failure: None });
        Self { described, bytes, format, has_several, interrupt, state }
    }

    /// Returns a sink for a parameter.
    pub(super) fn sink<'s>(&'s self, parameter: &'s DescribedParameter) -> Sink<'s, Dynamic> {
        Sink::until(move |item| self.receive(parameter, &item))
    }

    fn receive(&self, parameter: &DescribedParameter, item: &Dynamic) -> ControlFlow<()> {
        let json = self.described.argument_to_json(parameter, item, self.bytes);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match self.format {
            Format::Json => {
                if let Some(Value::Array(items)) = state.collected.get_mut(&parameter.name) {
                    items.push(json);
                }
                None
            }
            Format::Ndjson => Some(json!({ "sink": parameter.name, "item": json })),
            Format::Human if self.has_several => Some(json!({ &parameter.name: json })),
            Format::Human => Some(json),
        };
        // Without a reader of the output, the procedure need not go on.
        if let Some(Err(failure)) = line.map(output::print) {
            state.failure = Some(failure);
            return ControlFlow::Break(());
        }
        match self.interrupt.signal() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// Returns the items that were not printed.
    ///
    /// # Errors
    /// If an item could not be printed.
    pub(super) fn end(self) -> Result<Map<String, Value>, Failure> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failure.map_or(Ok(state.collected), Err)
    }
}
