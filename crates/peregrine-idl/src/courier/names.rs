//! Names of Courier as names of Rust.

use std::collections::HashMap;

use crate::print::{KEYWORDS, TAKEN, is_one_of};

/// More names that the printed text uses, and that no declaration may have therefore.
const USED: &str =
    "ByteString Foreign Clone Copy Debug PartialEq Eq Hash From Some None Ok Err peregrine";

/// The names of one module, one enum, or one list of fields.
#[derive(Default)]
pub(crate) struct Names {
    /// For each name, how often it was asked for.
    taken: HashMap<String, usize>,
}

impl Names {
    /// Returns the names that a module has from the beginning.
    pub(crate) fn of_module() -> Self {
        let words = TAKEN.split(' ').chain(USED.split(' '));
        Self { taken: words.map(|word| (word.to_owned(), 1)).collect() }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.taken.contains_key(name)
    }

    /// Returns a name, with a number after it if it is taken.
    pub(crate) fn claim(&mut self, wanted: String) -> String {
        let mut count = self.taken.get(&wanted).copied().unwrap_or_default();
        let name = loop {
            let name = match count {
                0 => wanted.clone(),
                count => format!("{wanted}{}", count + 1),
            };
            if count == 0 || !self.taken.contains_key(&name) {
                break name;
            }
            count += 1;
        };
        self.taken.insert(wanted, count + 1);
        self.taken.entry(name.clone()).or_insert(1);
        name
    }
}

/// Returns a name of a type: `NetworkAddress` for `networkAddress` and `network_address`.
pub(crate) fn camel(name: &str) -> String {
    let parts = name.split('_').filter(|part| !part.is_empty());
    let mut camel = String::new();
    for part in parts {
        // `A_1` and `A1` would be the same without the `_`.
        let digit = part.starts_with(|c: char| c.is_ascii_digit());
        camel.push_str(if digit && !camel.is_empty() { "_" } else { "" });
        let mut letters = part.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Returns a name of a field or a function: `network_address` for `networkAddress`.
pub(crate) fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let after = letters.get(at + 1);
        let is_first = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || before != '_' && after.is_some_and(char::is_ascii_lowercase)
            });
        if is_first {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns a name as it is written in Rust, where keywords need a prefix.
pub(crate) fn written(name: &str) -> String {
    match name {
        "self" | "super" | "crate" | "Self" => format!("{name}_"),
        word if is_one_of(KEYWORDS, word) => format!("r#{word}"),
        word => word.to_owned(),
    }
}
