//! Converts descriptions and values to JSON and back. This module needs the feature `json`.
//!
//! Values have the form that serde uses for the same types, so that existing JSON can be used:
//!
//! | type | JSON |
//! |---|---|
//! | numbers | a number; a string of digits is also read, and is written for more than 64 bits |
//! | `f32`, `f64` | a number, or `"NaN"`, `"inf"`, `"-inf"` |
//! | `bool`, `char`, text | `true`, a string of one letter, a string |
//! | `()` | `null` |
//! | a sequence, an array, a tuple, a buffer | an array |
//! | a sequence, array or buffer of `u8` | a string if it is text, otherwise `{"hex": "..."}` |
//! | values without bytes, such as `[T; 0]` or `((),)` | `null`; a long sequence of them is `{"count": N}` |
//! | `Option` | `null` or the value; `{"some": ...}` where the value could be `null` itself |
//! | `Result` | `{"ok": ...}` or `{"err": ...}` |
//! | a struct | an object; with numbered fields an array; with one numbered field the value of that field |
//! | a plain enum | the name of the variant; the discriminant is also read |
//! | an enum | the name of the variant, or `{"Name": fields}` |
//!
//! For a sequence, array or buffer of `u8`, an array is also read. For values without bytes, other forms are
//! also read.
//!
//! If a value does not fit its type, the error names the place: `entries[3].name: expected string, got
//! number`.

mod call;
mod description;
mod from;
mod to;

#[cfg(test)]
mod tests;

pub use call::{NoSlots, Slots};
pub use to::Bytes;

/// Returns the name of a JSON value's kind, for error messages.
const fn kind(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "bool",
        serde_json::Value::Number(_) => "number",
        serde_json::Value::String(_) => "string",
        serde_json::Value::Array(_) => "array",
        serde_json::Value::Object(_) => "object",
    }
}
