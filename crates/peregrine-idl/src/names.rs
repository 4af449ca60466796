//! Converts names of other interface languages to names in Rust.

use std::collections::HashMap;

use heck::{ToShoutySnakeCase as _, ToSnakeCase as _, ToUpperCamelCase as _};
use proc_macro2::{Ident, Span};

use crate::print::TAKEN;

/// More names that no imported type may have, because the Rust text uses them with their usual meaning, or
/// because [`parse_trait`](crate::parse_trait) knows them as types.
const USED: &str = "Arc BTreeMap BTreeSet ByteString Clone Copy Cow Debug Eq Err Foreign From HashMap HashSet \
    Hash None NonZero Ok PartialEq Rc Some VecDeque peregrine";

/// Keywords that cannot have the prefix `r#`.
const NEVER_RAW: [&str; 5] = ["self", "Self", "super", "crate", "_"];

/// The names of one scope.
#[derive(Default)]
pub(crate) struct Names {
    /// The names that are taken. With each name: the last number that was put at its end, or 1.
    wanted: HashMap<String, usize>,
}

impl Names {
    /// Returns the names of a new module. Names that imported types cannot have, such as those in the
    /// prelude, are already taken.
    pub(crate) fn of_types() -> Self {
        let words = TAKEN.split_whitespace().chain(USED.split_whitespace());
        let wanted = words.map(|name| (name.to_owned(), 1)).collect();
        Self { wanted }
    }

    /// Returns whether a name is free.
    pub(crate) fn is_free(&self, name: &str) -> bool {
        !self.wanted.contains_key(name)
    }

    /// Takes a name and returns it. If the name is already taken, takes the name with the first free number
    /// at its end.
    pub(crate) fn take(&mut self, name: impl AsRef<str>) -> String {
        let name = name.as_ref();
        let count = self.wanted.entry(name.to_owned()).or_insert(0);
        *count += 1;
        if *count == 1 {
            return name.to_owned();
        }
        let mut number = *count;
        let free = loop {
            let numbered = format!("{name}{number}");
            if self.is_free(&numbered) {
                break numbered;
            }
            number += 1;
        };
        self.wanted.insert(name.to_owned(), number);
        self.wanted.insert(free.clone(), 1);
        free
    }
}

/// Converts a name to the name of a type or a variant.
pub(crate) fn camel(name: &str) -> String {
    usable(name.to_upper_camel_case(), "N", "Unnamed")
}

/// Returns the name of the variant for a case that has no name in the interface file.
pub(crate) fn of_case(number: i128) -> String {
    match number {
        number if number < 0 => format!("CaseMinus{}", -number),
        number => format!("Case{number}"),
    }
}

/// Converts a name to the name of a field, a parameter or a method.
pub(crate) fn snake(name: &str) -> String {
    usable(name.to_snake_case(), "n", "unnamed")
}

/// Converts a name to the name of a constant.
pub(crate) fn shouty(name: &str) -> String {
    let has_lower = name.contains(|c: char| c.is_ascii_lowercase());
    let name = if has_lower { name.to_shouty_snake_case() } else { name.to_owned() };
    usable(name.trim_matches('_').to_owned(), "N", "UNNAMED")
}

/// Adds a prefix if a name starts with a digit. Replaces an empty name by `instead`.
fn usable(name: String, prefix: &str, instead: &str) -> String {
    match name.chars().next() {
        None => instead.to_owned(),
        Some(first) if first.is_ascii_digit() => format!("{prefix}{name}"),
        Some(_) => name,
    }
}

/// Converts a name to an identifier. A keyword gets the prefix `r#`, or a `_` at its end if it cannot have
/// the prefix.
pub(crate) fn ident(name: &str) -> Ident {
    let span = Span::call_site();
    if NEVER_RAW.contains(&name) {
        return Ident::new(&format!("{name}_"), span);
    }
    match syn::parse_str::<Ident>(name).is_ok() {
        true => Ident::new(name, span),
        false => Ident::new_raw(name, span),
    }
}

/// Returns a name as it is written in Rust. Keywords are changed as by [`ident`].
pub(crate) fn written(name: &str) -> String {
    ident(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions_of_rust() {
        assert_eq!(camel("nfs_fh"), "NfsFh");
        assert_eq!(camel("NFSERR_PERM"), "NfserrPerm");
        assert_eq!(snake("dirName"), "dir_name");
        assert_eq!((shouty("MAX_LEN"), shouty("maxLen")), ("MAX_LEN".into(), "MAX_LEN".into()));
        assert_eq!((camel("__"), snake("_1")), ("Unnamed".into(), "n1".into()));
    }

    #[test]
    fn equal_names_get_numbers_in_their_order() {
        let mut names = Names::default();
        let all = ["A", "A3", "A", "A", "A"].map(|name| names.take(name));
        assert_eq!(all, ["A", "A3", "A2", "A4", "A5"]);
        assert_eq!(Names::of_types().take("Result"), "Result2");
    }

    #[test]
    fn keywords_become_identifiers() {
        assert_eq!(ident("type").to_string(), "r#type");
        assert_eq!(ident("self").to_string(), "self_");
        assert_eq!(ident("name").to_string(), "name");
    }
}
