//! The headers and bodies of HTTP answers.

use core::convert::Infallible;
use core::pin::Pin;
use core::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use hyper::{Response, StatusCode};
use serde_json::Value;

use crate::failure::{Executed, Failure};
use crate::lines::Lines;

/// The header that says whether the call was executed.
pub(crate) const EXECUTED: HeaderName = HeaderName::from_static("peregrine-executed");

const JSON: &str = "application/json";

/// The headers of all answers. Because of them, a page of another site can neither read nor show an answer.
const ALWAYS: [(&str, &str); 4] = [
    ("x-content-type-options", "nosniff"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// The body of an answer.
pub(crate) enum Content {
    /// A body of which all bytes are known.
    Whole(Full<Bytes>),
    /// The lines of a stream.
    Lines(Lines),
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(context),
            Self::Lines(lines) => {
                lines.poll_line(context).map(|line| line.map(|line| Ok(Frame::data(line))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Lines(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Lines(_) => SizeHint::default(),
        }
    }
}

fn of(status: StatusCode, media: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn whole(status: StatusCode, media: &'static str, bytes: impl Into<Bytes>) -> Response<Content> {
    of(status, media, Content::Whole(Full::new(bytes.into())))
}

fn say_executed(headers: &mut HeaderMap, executed: Executed) {
    headers.insert(EXECUTED, HeaderValue::from_static(executed.text()));
}

/// Returns the answer with the result of a call, as JSON text.
pub(crate) fn result(text: Bytes) -> Response<Content> {
    let mut response = whole(StatusCode::OK, JSON, text);
    say_executed(response.headers_mut(), Executed::Yes);
    response
}

/// Returns an answer with a JSON body.
pub(crate) fn json(value: &Value) -> Response<Content> {
    whole(StatusCode::OK, JSON, value.to_string())
}

/// Returns an answer with the lines of a stream. It has no header that says whether the call was executed:
/// this is known only at the end of the call, so the last line says it.
pub(crate) fn lines(lines: Lines) -> Response<Content> {
    of(StatusCode::OK, "application/x-ndjson", Content::Lines(lines))
}

/// Returns the answer with a file of the web page.
pub(crate) fn file(media: &'static str, text: impl Into<Bytes>) -> Response<Content> {
    whole(StatusCode::OK, media, text)
}

/// Returns the answer to a failed request.
pub(crate) fn failure(failure: &Failure) -> Response<Content> {
    let mut response = whole(failure.status, JSON, failure.to_json().to_string());
    let headers = response.headers_mut();
    say_executed(headers, failure.executed);
    if failure.status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(allowed) = failure.allowed {
        headers.insert(ALLOW, HeaderValue::from_static(allowed));
    }
    response
}
