//! Escapes text from servers and files, such as names and documentation, so that it cannot control the
//! terminal.

use core::fmt::Write as _;

/// Escapes control characters, such as `\u{1b}`, so that the text cannot move the cursor or change the title
/// of the terminal. Line breaks stay.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        push(&mut shown, letter);
    }
    shown
}

/// Escapes the control characters of a whole output, except for the escape sequences of styles.
pub(super) fn guarded(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let bytes = style_bytes(rest).unwrap_or(0);
        if bytes > 0 {
            shown.push_str(&rest[..bytes]);
            rest = &rest[bytes..];
        } else {
            push(&mut shown, letter);
            rest = &rest[letter.len_utf8()..];
        }
    }
    shown
}

fn push(shown: &mut String, letter: char) {
    // Characters that change the direction of text can make a text look like another one.
    let is_bidi = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match letter {
        '\n' => shown.push('\n'),
        '\t' => shown.push(' '),
        letter if letter.is_control() || is_bidi => {
            let _ = write!(shown, "{}", letter.escape_default());
        }
        letter => shown.push(letter),
    }
}

/// Returns the length in bytes of a style at the start of a text: `ESC [`, numbers, `m`. Returns `None` if
/// the text does not start with a style.
fn style_bytes(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    rest[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(visible("plain\ntext, größer"), "plain\ntext, größer");
        assert_eq!(visible("\u{1b}[31mred\r\u{7}"), "\\u{1b}[31mred\\r\\u{7}");
        assert_eq!(visible("a\tb\u{9b}2J\u{202e}c"), "a b\\u{9b}2J\\u{202e}c");
    }

    #[test]
    fn guarded_text_keeps_only_styles() {
        let bold = "\u{1b}[1mbold\u{1b}[0m";
        assert_eq!(guarded(bold), bold);
        for (text, shown) in [
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("\u{1b}[2J\u{1b}[1;31m", "\\u{1b}[2J\u{1b}[1;31m"),
            ("\u{1b}", "\\u{1b}"),
            ("\u{1b}[", "\\u{1b}["),
            ("\u{1b}[1", "\\u{1b}[1"),
        ] {
            assert_eq!(guarded(text), shown);
        }
    }
}
