//! Failures: everything that is told about one, as text or JSON, and the exit code.

use core::fmt::Display;
use std::error::Error;
use std::io::{self, IsTerminal as _};
use std::time::Duration;

use peregrine::{CallError, Executed, Kind};
use serde_json::{Value, json};

use super::{BAD, DIM, GOOD, near, visible};
use crate::args::Format;

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A call, a bind or an export failed.
    Call(CallError),
    /// The procedure ran and said no.
    Said(String),
    /// Something on this side failed; nothing was called.
    Local {
        /// What was attempted.
        what: String,
        /// Why it failed.
        causes: Vec<String>,
        /// What to do about it.
        advice: &'static str,
        /// What may have been meant.
        suggestions: Vec<String>,
    },
    /// The command line makes no sense.
    Usage {
        /// What is wrong with it.
        what: String,
        /// Why that is wrong.
        causes: Vec<String>,
        /// What can be written.
        advice: String,
        /// What may have been meant.
        suggestions: Vec<String>,
    },
    /// A signal came.
    Interrupted {
        /// Its number.
        signal: i32,
        /// What was done until then, and what is left of it.
        what: String,
        /// Whether anything was executed: "no" or "maybe".
        executed: &'static str,
    },
    /// A failure beside which there is more to tell: the members of an object.
    With {
        /// What else is told.
        told: Value,
        /// What failed.
        failure: Box<Self>,
    },
    /// The answer could not be written; what it tells of may well have happened.
    Unwritten {
        /// Where it was to go.
        what: String,
        /// Why it did not.
        error: io::Error,
    },
    /// Nobody reads standard output any more: no failure at all.
    Closed,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Failure {
    /// A failure of this side.
    pub(crate) fn local(what: impl Into<String>, advice: &'static str) -> Self {
        Self::Local { what: what.into(), causes: Vec::new(), advice, suggestions: Vec::new() }
    }

    /// The same, with more to tell beside it: an object.
    pub(crate) fn with(self, told: Value) -> Self {
        Self::With { told, failure: Box::new(self) }
    }

    /// The same, with what may have been meant.
    pub(crate) fn or_meant(mut self, near: Vec<String>) -> Self {
        if let Self::Local { suggestions, .. } = &mut self {
            *suggestions = near;
        }
        self
    }

    /// In one line.
    pub(crate) fn brief(self) -> String {
        let Some(explained) = self.explain() else { return "nobody listens".to_owned() };
        let whole = [explained.what].into_iter().chain(explained.causes);
        whole.collect::<Vec<_>>().join(": ")
    }

    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::Said(_) => 1,
            Self::Usage { .. } => 2,
            Self::Local { .. } => 3,
            Self::Call(error) => match error.executed() {
                Executed::No => 3,
                Executed::Maybe => 4,
            },
            Self::Unwritten { .. } => 4,
            Self::Interrupted { signal, .. } => 128 + *signal as u8,
            Self::With { failure, .. } => failure.code(),
        }
    }

    /// Tells the user what failed after how long, and says with which code to exit.
    pub(crate) fn report(self, format: Format, took: Duration) -> u8 {
        let code = self.code();
        let cleared = super::clear_bars();
        let mut told = json!({});
        let mut failure = self;
        while let Self::With { told: more, failure: inner } = failure {
            told = more;
            failure = *inner;
        }
        // Nothing has begun when the command line makes no sense.
        if !matches!(failure, Self::Usage { .. }) && told["took_ns"].is_null() {
            told["took_ns"] = super::whole_ns(took);
        }
        let Some(error) = failure.explain() else { return code };
        if format.is_json() {
            told["error"] = error.to_json();
            drop(super::print(told));
        } else {
            // Behind the `^C` that the terminal wrote, unless it went with a bar.
            if error.kind == "Interrupted" && !cleared && io::stderr().is_terminal() {
                super::tell("");
            }
            error.print();
        }
        code
    }

    fn explain(self) -> Option<Explained> {
        Some(match self {
            Self::Closed => return None,
            Self::Said(what) => Explained {
                executed: "yes",
                advice: "the procedure ran and refused: change what it was asked for".into(),
                ..Explained::local("Refused", what)
            },
            Self::Local { what, causes, advice, suggestions } => {
                let advice = advice.to_owned();
                Explained { causes, advice, suggestions, ..Explained::local("Local", what) }
            }
            Self::Usage { what, causes, advice, suggestions } => {
                let phase = "reading the command line".to_owned();
                let usage = Explained::local("Usage", what);
                Explained { phase, causes, advice, suggestions, ..usage }
            }
            Self::Unwritten { what, error } => Explained {
                executed: "maybe",
                causes: vec![error.to_string()],
                advice: "make room where the answer goes".into(),
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

/// A result of the operating system together with what was attempted.
pub(crate) trait During<T> {
    /// Says what was attempted.
    fn during(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> During<T> for Result<T, E> {
    fn during(self, what: impl Display) -> Result<T, Failure> {
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

/// A failure with everything that is told about it.
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
            // Whoever interrupts knows that it was not awaited to its end.
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
        super::tell(text);
    }
}
