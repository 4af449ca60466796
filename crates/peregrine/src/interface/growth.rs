//! Growth: how a part of an interface may differ from the same part of an older or newer peer.

use core::fmt::{self, Write};

/// How a field or a parameter may differ from the same one of an older or newer peer (docs/EVOLUTION.md).
///
/// ```
/// use peregrine::interface::Growth;
///
/// assert_eq!(Growth::NONE.default, None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// The earlier names of the field or parameter: `#[was("old")]`.
    pub was: &'static [&'static str],
    /// Whether integers in the field or parameter may have another width at the peer: `#[widens]`.
    pub widens: bool,
    /// A function that returns the value that is used if the peer does not have the field or parameter:
    /// `#[default]`. The form of this value is that of [`default_bytes`](crate::value::default_bytes).
    pub default: Option<fn() -> Vec<u8>>,
}

impl Growth {
    /// The growth of a field or a parameter without attributes.
    pub const NONE: Self = Self { was: &[], widens: false, default: None };

    pub(super) fn write(&self, text: &mut String) {
        write_was(self.was, text);
        if self.widens {
            text.push_str(" widens");
        }
        if let Some(default) = self.default {
            write_default(&default(), text);
        }
    }
}

/// The maximum size of a default in bytes. The size is limited because the description of the interface
/// contains the default.
pub const DEFAULT_BYTES_MAX: usize = 4096;

/// Writes earlier names in the form of a canonical text.
pub(super) fn write_was(was: &[&str], text: &mut String) {
    for name in was {
        let _ = write!(text, " was {name}");
    }
}

fn write_default(bytes: &[u8], text: &mut String) {
    let _ = write!(text, " = {}", Hex(bytes));
}

/// Bytes in the form of a canonical text: `x`, followed by two hexadecimal digits for each byte.
pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('x')?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
