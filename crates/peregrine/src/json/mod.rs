//! Descriptions and values as JSON, for people and their programs; with the feature `json`.
//!
//! Values follow what serde does with the same types, so that JSON that is at hand fits:
//!
//! | type | JSON |
//! |---|---|
//! | numbers | a number; a string of digits is taken too, and given for what has more than 64 bits |
//! | `f32`, `f64` | a number, or `"NaN"`, `"inf"`, `"-inf"` |
//! | `bool`, `char`, text | `true`, a string of one letter, a string |
//! | `()` | `null` |
//! | a sequence, an array, a tuple, a buffer | an array |
//! | the same of bytes (`u8`) | a string if they are text, `{"hex": "..."}` if not; an array is taken too |
//! | what takes no bytes: `[T; 0]`, `((),)` | `null` is taken too, and given; a long sequence of such is `{"count": N}` |
//! | `Option` | `null` or the value; `{"some": ...}` where the value could be `null` itself |
//! | `Result` | `{"ok": ...}` or `{"err": ...}` |
//! | a struct | an object; of numbered fields an array, of a single one what is in it |
//! | a plain enum | its variant's name; the discriminant is taken too |
//! | an enum | the variant's name, or `{"Name": fields}` |
//!
//! What does not fit is refused with the path to it: `entries[3].name: expected string, got number`.

mod description;
mod from;
mod to;

#[cfg(test)]
mod tests;

pub use to::Bytes;

/// What a JSON value is, for people.
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
