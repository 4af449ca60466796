//! `Failure`: why a request failed, whether its call was executed, and the HTTP status code of the answer.

use core::fmt;
use std::sync::Arc;

use hyper::StatusCode;
use peregrine::{CallError, Kind};
use serde_json::{Value, json};

/// Whether the call of a request was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// The call was not executed, and may be repeated.
    No,
    /// It is unknown whether the call was executed.
    Maybe,
    /// The procedure was executed to its end.
    Yes,
}

impl Executed {
    /// Returns the value of the header `peregrine-executed` and of the JSON member `executed`.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Maybe => "maybe",
            Self::Yes => "yes",
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) executed: Executed,
    kind: String,
    text: String,
    advice: String,
    /// The methods that the path permits, if the request has another method.
    pub(crate) allowed: Option<&'static str>,
    /// The error that the procedure returned.
    value: Option<Box<Value>>,
}

impl Failure {
    fn new(
        status: StatusCode,
        kind: &str,
        text: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (text, advice) = (text.into(), advice.into());
        let (executed, kind, allowed, value) = (Executed::No, kind.to_owned(), None, None);
        Self { status, executed, kind, text, advice, allowed, value }
    }

    /// Returns the failure of a request that violates the rules of HTTP, or that has a header with an invalid
    /// value.
    pub(crate) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", text, "correct the request")
    }

    /// Returns the failure of a request with an argument that does not fit its parameter. `text` begins with
    /// the place of the argument.
    pub(crate) fn bad_arguments(text: impl Into<String>) -> Self {
        let advice = "pass what the interface declares: /openapi.json describes it";
        Self::new(StatusCode::BAD_REQUEST, "BadArguments", text, advice)
    }

    /// Returns the failure of a request that comes from a page of another site.
    pub(crate) fn cross_site() -> Self {
        let text = "a page of another site sent the request";
        let advice = "send requests from the bridge's own page, or without a browser";
        Self::new(StatusCode::FORBIDDEN, "CrossSite", text, advice)
    }

    /// Returns the failure of a request whose host is not a name of the bridge.
    pub(crate) fn misdirected(host: &str) -> Self {
        let text = format!("`{host}` is not a name of this bridge");
        let advice =
            "use `localhost` or an IP address of the bridge, or start the bridge with --host";
        Self::new(StatusCode::MISDIRECTED_REQUEST, "Misdirected", text, advice)
    }

    /// Returns the failure of a request for a path that does not exist.
    pub(crate) fn no_such(text: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", text, advice)
    }

    /// Returns the failure of a request with a method that its path does not permit.
    pub(crate) fn method(allowed: &'static str) -> Self {
        let advice = format!("use {allowed}");
        let text = "the path does not have this method";
        let failure = Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", text, advice);
        Self { allowed: Some(allowed), ..failure }
    }

    /// Returns the failure of a request whose body is not declared as JSON.
    pub(crate) fn not_json() -> Self {
        let (text, advice) =
            ("the body is not declared as JSON", "send `Content-Type: application/json`");
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", text, advice)
    }

    /// Returns the failure of a request whose body has more than `most` bytes.
    pub(crate) fn body_too_large(most: usize) -> Self {
        let text = format!("the body has more than {most} bytes");
        let advice = "send less, or start the bridge with a larger --body-max";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", text, advice)
    }

    /// Returns the failure of a request whose body did not arrive in time.
    pub(crate) fn slow_body() -> Self {
        let text = "the body did not arrive in time";
        Self::new(StatusCode::REQUEST_TIMEOUT, "SlowBody", text, "send the request again")
    }

    /// Returns the failure of a request that arrives while the maximum number of requests is being answered.
    pub(crate) fn busy() -> Self {
        let text = "the bridge answers as many requests as it may";
        let advice =
            "try again later with a growing pause, or start the bridge with a larger --calls";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "Overloaded", text, advice)
    }

    /// Returns the failure of a call of a procedure with the callback parameter `name`.
    pub(crate) fn callback(name: &str) -> Self {
        let text = format!("`{name}` is a callback, which HTTP cannot carry");
        let advice = "call the procedure with `peregrine call`, or from a program";
        Self::new(StatusCode::NOT_IMPLEMENTED, "Callback", text, advice)
    }

    /// Returns the failure of a call during which the bridge itself failed.
    pub(crate) fn internal() -> Self {
        let text = "the bridge failed while it made the call";
        let advice = "this is a fault of the bridge: please report it";
        let executed = Executed::Maybe;
        Self { executed, ..Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal", text, advice) }
    }

    /// Returns the failure of a call whose procedure returned the error `value`.
    pub(crate) fn refused(procedure: &str, value: Value) -> Self {
        let shown = match &value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text = format!("`{procedure}` returned an error: {shown}");
        let advice = "the procedure ran and returned an error: check the arguments";
        Self {
            executed: Executed::Yes,
            value: Some(Box::new(value)),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Refused", text, advice)
        }
    }

    /// Returns the JSON of the failure.
    pub(crate) fn to_json(&self) -> Value {
        let mut error = json!({
            "kind": self.kind,
            "executed": self.executed.text(),
            "text": self.text,
            "advice": self.advice,
        });
        if let Some(value) = &self.value {
            error["value"] = Value::clone(value);
        }
        json!({ "error": error })
    }
}

impl From<Arc<CallError>> for Failure {
    fn from(error: Arc<CallError>) -> Self {
        Self::from(&*error)
    }
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        let executed = match error.executed() {
            peregrine::Executed::No => Executed::No,
            peregrine::Executed::Maybe => Executed::Maybe,
        };
        let (kind, status) = (format!("{:?}", error.kind()), status(error.kind(), executed));
        Self { executed, ..Self::new(status, &kind, error.chain(), error.advice()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.text, self.advice)
    }
}

/// Returns the status code of a failed call. docs/BRIDGE.md contains the same table.
fn status(kind: Kind, executed: Executed) -> StatusCode {
    match (kind, executed) {
        (Kind::BadArguments, _) => StatusCode::BAD_REQUEST,
        (Kind::NoSuchProcedure, _) => StatusCode::NOT_FOUND,
        (Kind::TooLarge, Executed::No) => StatusCode::PAYLOAD_TOO_LARGE,
        (Kind::TimedOut, _) => StatusCode::GATEWAY_TIMEOUT,
        (
            Kind::NotFound
            | Kind::Unreachable
            | Kind::ServerGone
            | Kind::Withdrawn
            | Kind::Overloaded
            | Kind::Exhausted,
            Executed::No,
        ) => StatusCode::SERVICE_UNAVAILABLE,
        (Kind::BadName | Kind::System | Kind::Forked, _) => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::BAD_GATEWAY,
    }
}
