//! The list of trusted keys: its lines, and its text.

use core::fmt;
use core::str::FromStr;

use super::error::KeyError;
use super::key::{Fingerprint, PublicKey, shown};
use crate::limits;

/// A line of the list of trusted keys: `NAME KEY COMMENT`, separated by spaces.
///
/// The name is what this side calls the holder of the key: 1 to 64 letters, digits, `.`, `-`, `_` and `@`.
/// The comment is optional, and has at most 256 characters, none of them a control character.
///
/// ```
/// use peregrine::secure::TrustedKey;
///
/// let line = "bob MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE= bob's laptop";
/// let key: TrustedKey = line.parse()?;
/// assert_eq!((key.name(), key.comment()), ("bob", "bob's laptop"));
/// assert_eq!(key.to_string(), line);
/// # Ok::<(), peregrine::secure::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedKey {
    name: String,
    key: PublicKey,
    comment: String,
}

/// Returns whether a text can be the name of a key. Such a name is no path, no pattern and no fingerprint.
pub(super) fn is_name(text: &str) -> bool {
    let letter = |c: char| c.is_ascii_alphanumeric() || ".-_@".contains(c);
    (1..=limits::NAME_BYTES_MAX).contains(&text.len())
        && text.chars().all(letter)
        && !text.starts_with(['-', '.'])
}

impl TrustedKey {
    /// Returns a line.
    ///
    /// # Errors
    /// [`KeyError::Invalid`] if the name or the comment is not valid.
    pub fn new(name: &str, key: PublicKey, comment: &str) -> Result<Self, KeyError> {
        if !is_name(name) {
            let why = "a name has 1 to 64 letters, digits, `.`, `-`, `_` and `@`, and does not begin with `-` \
                       or `.`";
            return Err(KeyError::invalid(shown(name), why));
        }
        let comment = comment.trim();
        if comment.chars().count() > limits::KEY_COMMENT_MAX {
            return Err(KeyError::invalid(shown(comment), "a comment has at most 256 characters"));
        }
        if comment.chars().any(is_hidden) {
            return Err(KeyError::invalid(shown(comment), "a comment has no control characters"));
        }
        Ok(Self { name: name.to_owned(), key, comment: comment.to_owned() })
    }

    /// Returns the name that this side gives to the holder of the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Returns the fingerprint of the key.
    pub fn fingerprint(&self) -> Fingerprint {
        self.key.fingerprint()
    }

    /// Returns the comment, which may be empty. It has no meaning.
    pub fn comment(&self) -> &str {
        &self.comment
    }
}

/// Returns whether a character could hide from a reader what a terminal or an editor shows.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

impl fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.key)?;
        if self.comment.is_empty() { Ok(()) } else { write!(f, " {}", self.comment) }
    }
}

impl FromStr for TrustedKey {
    type Err = KeyError;

    fn from_str(line: &str) -> Result<Self, KeyError> {
        if line.len() > limits::TRUSTED_LINE_BYTES_MAX {
            return Err(KeyError::invalid(shown(line), "the line is too long"));
        }
        let spaces = [' ', '\t'];
        let line = line.trim_matches(spaces);
        let (name, rest) = line.split_once(spaces).unwrap_or((line, ""));
        let rest = rest.trim_start_matches(spaces);
        let (key, comment) = rest.split_once(spaces).unwrap_or((rest, ""));
        if key.is_empty() {
            let why = "a line is `NAME KEY COMMENT`: no key follows the name";
            return Err(KeyError::invalid(shown(line), why));
        }
        Self::new(name, key.parse()?, comment)
    }
}

/// The lines of a list, and what is wrong with the others.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) keys: Vec<TrustedKey>,
    /// Each with the number of its line. A wrong line is ignored.
    pub(super) wrong: Vec<(usize, String)>,
}

/// Reads the text of a list. Empty lines and those that begin with `#` have no meaning.
pub(super) fn parse(text: &[u8]) -> Parsed {
    let mut parsed = Parsed::default();
    let mut wrong = |line, why: String| {
        if parsed.wrong.len() < limits::TRUST_PROBLEMS_MAX {
            parsed.wrong.push((line, why));
        }
    };
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Ok(line) = str::from_utf8(line) else {
            wrong(number, "the line is not UTF-8".to_owned());
            continue;
        };
        let content = line.trim_matches([' ', '\t']);
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let key: TrustedKey = match line.parse() {
            Ok(key) => key,
            Err(error) => {
                wrong(number, error.to_string());
                continue;
            }
        };
        if parsed.keys.len() == limits::TRUSTED_KEYS_MAX {
            wrong(number, format!("more than {} keys", limits::TRUSTED_KEYS_MAX));
            break;
        }
        parsed.keys.push(key);
    }
    parsed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=";

    #[test]
    fn wrong_lines_are_reported_with_their_numbers_and_trust_nobody() {
        let text = format!(
            "# who may call\n\n\tada\t{KEY}\t at work \nbob\nb\u{fc}b {KEY}\ncara {}\ndan {KEY} \u{1b}[2J\r\n\
             eve {KEY}\r\nmalo\u{0}ry {KEY}\n-x {KEY}\nops/* {KEY}\n",
            &KEY[1..]
        );
        let text = [text.as_bytes(), b"\xff\xfe\n"].concat();
        let parsed = parse(&text);
        let names: Vec<_> = parsed.keys.iter().map(|key| (key.name(), key.comment())).collect();
        assert_eq!(names, [("ada", "at work"), ("eve", "")]);
        let lines: Vec<_> = parsed.wrong.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 5, 6, 7, 9, 10, 11, 12]);
        assert!(parsed.wrong.iter().all(|(_, why)| !why.contains(['\u{1b}', '\0'])));
        assert!(parsed.wrong[0].1.contains("no key follows the name"), "{:?}", parsed.wrong[0]);
    }

    #[test]
    fn keys_and_problems_of_a_list_are_bounded() {
        let many = format!("ada {KEY}\n").repeat(limits::TRUSTED_KEYS_MAX + 2);
        let parsed = parse(many.as_bytes());
        assert_eq!((parsed.keys.len(), parsed.wrong.len()), (limits::TRUSTED_KEYS_MAX, 1));
        let parsed = parse(&b"x\n".repeat(limits::TRUST_PROBLEMS_MAX * 2));
        assert_eq!((parsed.keys.len(), parsed.wrong.len()), (0, limits::TRUST_PROBLEMS_MAX));
        let long = format!("ada {KEY} {}", "x".repeat(limits::TRUSTED_LINE_BYTES_MAX));
        assert!(long.parse::<TrustedKey>().is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic_or_trust_a_strange_name(
            text in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            prop_assert_eq!(parse(&text).keys.len(), 0);
            let parsed = parse(&[&text, format!("\nada {KEY}\n").as_bytes()].concat());
            prop_assert_eq!(parsed.keys.len(), 1);
        }

        #[test]
        fn a_line_that_is_read_is_read_again_from_its_text(
            name in "[ -~]{0,12}", comment in "\\PC{0,20}", gap in "[ \t]{1,3}",
        ) {
            let line = format!("{gap}{name}{gap}{KEY}{gap}{comment}{gap}");
            if let Ok(key) = line.parse::<TrustedKey>() {
                prop_assert!(is_name(key.name()));
                prop_assert_eq!(key.to_string().parse::<TrustedKey>().unwrap(), key.clone());
                let listed = parse(format!("{key}\n").as_bytes());
                prop_assert_eq!(listed.keys, vec![key]);
            }
        }
    }
}
