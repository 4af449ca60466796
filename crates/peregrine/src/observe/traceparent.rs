//! The trace of a call, as the metadata of the call carries it: the fields `traceparent` and `tracestate` of
//! the recommendation *Trace Context* of the W3C.
//!
//! `traceparent` is a version, the number of the trace, the number of the caller's span, and flags, each in
//! lower-case hexadecimal digits, with hyphens between them: `00-` 32 digits `-` 16 digits `-` 2 digits.

use core::fmt;

use crate::call::Metadata;
use crate::sys;

/// The key of the trace in metadata.
pub(super) const TRACEPARENT: &str = "traceparent";
/// The key of what tracing systems add to the trace. It is passed on as it is.
pub(super) const TRACESTATE: &str = "tracestate";

/// The flag of a trace that its first caller records.
const SAMPLED: u8 = 1;
/// A longer `tracestate` is not passed on. Each system must pass on this number of bytes.
const STATE_BYTES_MAX: usize = 512;

/// Where a call is in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) trace: u128,
    pub(super) span: u64,
    flags: u8,
    state: Option<Box<str>>,
}

impl Trace {
    /// Returns the trace of a call with this metadata. `None` if it has none, or an invalid one. Any caller can
    /// send any text here.
    pub(super) fn of(metadata: &Metadata) -> Option<Self> {
        if metadata.is_empty() {
            return None;
        }
        let context = Self::parse(metadata.get(TRACEPARENT)?)?;
        let is_state = |state: &&str| {
            let printable = |byte: &u8| (b' '..=b'~').contains(byte);
            !state.is_empty()
                && state.len() <= STATE_BYTES_MAX
                && state.as_bytes().iter().all(printable)
        };
        let state = metadata.get(TRACESTATE).filter(is_state).map(Into::into);
        Some(Self { state, ..context })
    }

    /// Reads a `traceparent`. Later versions may have more fields after those of version 0.
    fn parse(text: &str) -> Option<Self> {
        const LENGTH: usize = 55;
        let (known, more) = text.as_bytes().split_at_checked(LENGTH)?;
        let known = str::from_utf8(known).ok()?;
        let mut fields = known.split('-');
        let mut field = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            field.bytes().all(is_digit).then(|| u128::from_str_radix(field, 16).ok()).flatten()
        };
        let [version, trace, span, flags] = [field(2)?, field(32)?, field(16)?, field(2)?];
        let is_whole = match version {
            0 => more.is_empty(),
            0xff => false,
            _ => more.is_empty() || more[0] == b'-',
        };
        (is_whole && trace != 0 && span != 0).then_some(Self {
            trace,
            span: span as u64,
            flags: flags as u8 & SAMPLED,
            state: None,
        })
    }

    /// Returns the place of a new span in the trace of `parent`, or in a new trace. `None` if the system has
    /// no random bytes.
    pub(super) fn new_span(parent: Option<&Self>) -> Option<Self> {
        let span = u64::from_le_bytes(sys::random().ok()?).max(1);
        Some(match parent {
            Some(parent) => Self { span, ..parent.clone() },
            None => {
                let trace = u128::from_le_bytes(sys::random().ok()?).max(1);
                Self { trace, span, flags: SAMPLED, state: None }
            }
        })
    }

    /// Returns the `tracestate`, if there is one.
    pub(super) fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn of(parent: &str, state: &str) -> Option<Trace> {
        let pairs = [(TRACEPARENT, parent), (TRACESTATE, state)];
        Trace::of(&Metadata::EMPTY.with(pairs).unwrap())
    }

    #[test]
    fn valid_traces_are_read_and_written() {
        for flags in ["00", "01"] {
            let text = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
            assert_eq!(of(&text, "").unwrap().to_string(), text);
        }
        let context = of(&format!("00-{TRACE}-00f067aa0ba902b7-01"), "a=1,b=2").unwrap();
        assert_eq!((context.span, context.state()), (0x00f0_67aa_0ba9_02b7, Some("a=1,b=2")));
        let child = Trace::new_span(Some(&context)).unwrap();
        assert_eq!((child.trace, child.state()), (context.trace, Some("a=1,b=2")));
        assert_ne!(child.span, context.span);
        let (one, other) = (Trace::new_span(None), Trace::new_span(None));
        assert_ne!(one.unwrap().trace, other.unwrap().trace);
    }

    #[test]
    fn fields_of_later_versions_are_ignored() {
        for later in ["", "-", "-what-comes-later"] {
            let text = format!("cc-{TRACE}-00f067aa0ba902b7-ff{later}");
            let known = format!("00-{TRACE}-00f067aa0ba902b7-01");
            assert_eq!(of(&text, "").unwrap().to_string(), known);
        }
    }

    #[test]
    fn invalid_traces_are_ignored() {
        let zero = "0".repeat(32);
        for text in [
            "",
            "00",
            &format!("ff-{TRACE}-00f067aa0ba902b7-01"),
            &format!("00-{TRACE}-00f067aa0ba902b7-01-"),
            &format!("00-{TRACE}-00f067aa0ba902b7-01-more"),
            &format!("cc-{TRACE}-00f067aa0ba902b7-01more"),
            &format!("00-{zero}-00f067aa0ba902b7-01"),
            &format!("00-{TRACE}-0000000000000000-01"),
            &format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
            &format!("00-{TRACE}-+0f067aa0ba902b7-01"),
            &format!("00-{TRACE}-00f067aa0ba902b7_01"),
            &format!("00-{}-00f067aa0ba902b7-01", "ä".repeat(16)),
            &format!(" 0-{TRACE}-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(of(text, "a=1"), None, "{text}");
        }
        let valid = format!("00-{TRACE}-00f067aa0ba902b7-01");
        for state in ["\n", "ä=1", &"s".repeat(513)] {
            assert_eq!(of(&valid, state).unwrap().state(), None);
        }
        assert_eq!(Trace::of(Metadata::EMPTY), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_harm(text in "[0-9a-f-]{50,60}|.{0,80}") {
            if let Some(context) = of(&text, "") {
                prop_assert_eq!(of(&context.to_string(), ""), Some(context));
            }
        }
    }
}
