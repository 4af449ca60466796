//! Failures of commands: their reports as text or JSON, and their exit codes.

use core::fmt::Display;
use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use peregrine::{CallError, Executed, Kind};
use serde_json::{Map, Value, json};

use super::{BAD, DIM, GOOD, near, visible};
use crate::args::Format;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call, a bind or an export failed.
    Call(CallError),
    /// The procedure ran and returned an error.
    Refused(String),
    /// An operation of this process failed. No call was made.
    Local {
        /// What failed.
        what: String,
        /// Why it failed.
        causes: Vec<String>,
        /// What to do.
        advice: &'static str,
        /// Similar names that exist.
        suggestions: Vec<String>,
    },
    /// Usage error: the command line is invalid.
    Usage {
        /// What is invalid.
        what: String,
        /// Why it is invalid.
        causes: Vec<String>,
        /// What to write instead.
        advice: String,
        /// Similar names that exist.
        suggestions: Vec<String>,
    },
    /// A signal interrupted the command.
    Interrupted {
        /// The number of the signal.
        signal: i32,
        /// What was done before, and what is left.
        what: String,
        /// Whether a call was executed: "no" or "maybe".
        executed: &'static str,
    },
    /// A failure of a command that also has results. In JSON, the report contains these results.
    With {
        /// An object whose members are the results.
        results: Value,
        /// What failed.
        failure: Box<Self>,
    },
    /// The output could not be written. The call itself may have been executed.
    Unwritten {
        /// What failed.
        what: String,
        /// Why it failed.
        error: io::Error,
    },
    /// The two compared interfaces do not fit each other, or a checked file is not up to date. The output
    /// says why.
    Differs,
    /// A server does not serve, as the output says. This is the exit code.
    NotServing(u8),
    /// The reader of standard output has closed the pipe. The exit code is 0.
    Closed,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Failure {
    /// Returns a failure of an operation of this process.
    pub(crate) fn local(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Local { what: what.into(), causes: Vec::new(), advice, suggestions: Vec::new() }
    }

    /// Adds the members of the object `results` to the report in JSON.
    pub(crate) fn with(self, results: Value) -> Self {
        Self::With { results, failure: Box::new(self) }
    }

    /// Adds names that exist and are similar to a wrong name.
    pub(crate) fn suggest(mut self, near: Vec<String>) -> Self {
        if let Self::Local { suggestions, .. } = &mut self {
            *suggestions = near;
        }
        self
    }

    /// Formats the failure in one line.
    pub(crate) fn brief(self) -> String {
        let Some(explained) = self.explain() else { return "the output is closed".to_owned() };
        let whole = [explained.what].into_iter().chain(explained.causes);
        whole.collect::<Vec<_>>().join(": ")
    }

    /// Returns the exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Refused(_) | Self::Differs => 1,
            Self::Usage { .. } => 2,
            Self::Local { .. } => 3,
            Self::Call(error) => match error.executed() {
                Executed::No => 3,
                // One-way calls failed, and all of them ran. So the code is that of an error of the
                // procedure.
                Executed::Maybe if error.oneway_failed() > 0 && error.oneway_not_run() == 0 => 1,
                Executed::Maybe => 4,
            },
            Self::NotServing(code) => *code,
            Self::Unwritten { .. } => 4,
            Self::Interrupted { signal, .. } => 128 + *signal as u8,
            Self::With { failure, .. } => failure.code(),
        }
    }

    /// Prints the report of a failure that happened after the time `took`. Returns the exit code.
    pub(crate) fn report(self, format: Format, took: Duration) -> u8 {
        let code = self.code();
        let cleared = super::clear_bars();
        let (mut results, failure) = self.split();
        // The report of a usage error has no duration, because such an error is found before anything starts.
        if !matches!(failure, Self::Usage { .. }) && results["took_ns"].is_null() {
            results["took_ns"] = super::whole_ns(took);
        }
        let Some(error) = failure.explain() else { return code };
        if format.is_json() {
            results["error"] = error.to_json();
            drop(super::print(results));
        } else {
            // After Ctrl-C, the terminal shows `^C`, so the report starts on a new line. If a progress bar
            // was cleared, the `^C` was cleared with the bar, and no new line is needed.
            if error.kind == "Interrupted" && !cleared && io::stderr().is_terminal() {
                super::note("");
            }
            error.print();
        }
        code
    }

    /// Returns the members that were added to the report, and the failure without them.
    fn split(self) -> (Value, Self) {
        let (mut results, mut failure) = (Map::new(), self);
        while let Self::With { results: more, failure: inner } = failure {
            if let Value::Object(more) = more {
                results.extend(more);
            }
            failure = *inner;
        }
        (Value::Object(results), failure)
    }

    fn explain(self) -> Option<Explained> {
        Some(match self {
            Self::Closed | Self::Differs | Self::NotServing(_) => return None,
            Self::Refused(what) => Explained {
                executed: "yes",
                advice: "the procedure returned an error: check the arguments".into(),
                ..Explained::local("Refused", what)
            },
            Self::Local { what, causes, advice, suggestions } => {
                let advice = advice.to_owned();
                Explained { causes, advice, suggestions, ..Explained::local("Local", what) }
            }
            Self::Usage { what, causes, advice, suggestions } => {
                let phase = "parsing the command line".to_owned();
                let usage = Explained::local("Usage", what);
                Explained { phase, causes, advice, suggestions, ..usage }
            }
            Self::Unwritten { what, error } => Explained {
                executed: "maybe",
                causes: vec![error.to_string()],
                advice: "check the destination of the output, such as its free space".into(),
                ..Explained::local("Local", what)
            },
            Self::Interrupted { what, executed, .. } => {
                Explained { executed, ..Explained::local("Interrupted", what) }
            }
            Self::Call(error) => Explained::of(&error),
            Self::With { failure, .. } => return failure.explain(),
        })
    }
}

/// Converts an error of the operating system to a failure.
pub(crate) trait OrFail<T> {
    /// Converts the error to a failure. `what` says what failed, such as `cannot open the file`.
    fn or_fail(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> OrFail<T> for Result<T, E> {
    fn or_fail(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            Failure::Local {
                what: what.to_string(),
                causes: vec![error.to_string()],
                advice: "see the cause; nothing was executed",
                suggestions: Vec::new(),
            }
        })
    }
}

/// The content of a report.
struct Explained {
    kind: String,
    what: String,
    executed: &'static str,
    address: String,
    phase: String,
    causes: Vec<String>,
    advice: String,
    suggestions: Vec<String>,
}

impl Explained {
    fn local(kind: &str, what: String) -> Self {
        Self {
            kind: kind.to_owned(),
            what,
            executed: "no",
            address: String::new(),
            phase: String::new(),
            causes: Vec::new(),
            advice: String::new(),
            suggestions: Vec::new(),
        }
    }

    fn of(error: &CallError) -> Self {
        let mut what = error.phase().to_string();
        for (before, name) in [("", error.procedure()), ("at ", error.address())] {
            if !name.is_empty() {
                what = format!("{what} {before}`{name}`");
            }
        }
        what = format!("{what}: {}", error.kind().text());
        let detail = [error.detail().to_owned()];
        let mut causes: Vec<String> = detail.into_iter().filter(|text| !text.is_empty()).collect();
        let mut cause = error.source();
        while let Some(error) = cause {
            causes.push(error.to_string());
            cause = error.source();
        }
        Self {
            kind: format!("{:?}", error.kind()),
            what,
            executed: match error.executed() {
                Executed::No => "no",
                Executed::Maybe => "maybe",
            },
            address: error.address().to_owned(),
            phase: error.phase().to_string(),
            causes,
            advice: error.advice().to_owned(),
            suggestions: match error.kind() {
                Kind::NotFound => near::names(error.address()),
                Kind::BadName => near::paths(error.address()),
                _ => Vec::new(),
            },
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "kind": self.kind,
            "what": self.what,
            "executed": self.executed,
            "address": self.address,
            "phase": self.phase,
            "causes": self.causes,
            "advice": self.advice,
            "suggestions": self.suggestions,
        })
    }

    fn print(&self) {
        let executed = match (&*self.kind, self.executed) {
            // For these kinds, the text does not mention whether a call was executed.
            ("Usage" | "Interrupted", _) => String::new(),
            (_, "no") => format!(" {DIM}(not executed){DIM:#}"),
            (_, "maybe") => format!(" {DIM}(may have been executed){DIM:#}"),
            _ => format!(" {DIM}(executed){DIM:#}"),
        };
        let begin = if self.kind == "Interrupted" { "interrupted" } else { "error" };
        let mut text = format!("{BAD}{begin}:{BAD:#} {}{executed}", visible(&self.what));
        for cause in &self.causes {
            text.push_str(&format!("\n  {DIM}cause:{DIM:#} {}", visible(cause)));
        }
        for name in &self.suggestions {
            text.push_str(&format!("\n{GOOD}help:{GOOD:#} did you mean `{}`?", visible(name)));
        }
        if !self.advice.is_empty() {
            text.push_str(&format!("\n{GOOD}help:{GOOD:#} {}", self.advice));
        }
        super::note(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_were_added_one_after_another_are_all_reported() {
        let failure = Failure::Refused("no".to_owned()).with(json!({ "error_value": 3 }));
        let (results, failure) = failure.with(json!({ "result": null, "out": {} })).split();
        assert_eq!(results, json!({ "error_value": 3, "result": null, "out": {} }));
        assert!(matches!(failure, Failure::Refused(_)));
    }
}
