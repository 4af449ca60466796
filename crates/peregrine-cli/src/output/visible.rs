//! What others say, made harmless for a terminal: docs, names and reasons come from servers and files
//! that nobody here has written.

use core::fmt::Write as _;

/// The text with control characters as they would be written in a program, `\u{1b}` for one, so that it
/// moves no cursor, changes no title and looks like nothing else. Lines stay lines.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        push(&mut shown, letter);
    }
    shown
}

/// The same of a whole answer, in which colours are ours.
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
    // Those that turn the direction of text let one read what does not stand there.
    let turns = matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    match letter {
        '\n' => shown.push('\n'),
        '\t' => shown.push(' '),
        letter if letter.is_control() || turns => {
            let _ = write!(shown, "{}", letter.escape_default());
        }
        letter => shown.push(letter),
    }
}

/// Bytes of a style that a text begins with: `ESC [`, numbers, `m`.
fn style_bytes(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("\u{1b}[")?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == ';'))?;
    rest[end..].starts_with('m').then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_written_out() {
        assert_eq!(visible("plain\ntext, größer"), "plain\ntext, größer");
        assert_eq!(visible("\u{1b}[31mred\r\u{7}"), "\\u{1b}[31mred\\r\\u{7}");
        assert_eq!(visible("a\tb\u{9b}2J\u{202e}c"), "a b\\u{9b}2J\\u{202e}c");
    }

    #[test]
    fn of_a_whole_answer_only_styles_stay() {
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
