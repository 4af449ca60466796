//! Texts between double quotes, with the escape sequences of C.

/// The escape sequences of one letter.
const LETTERS: [(char, char); 11] = [
    ('a', '\x07'),
    ('b', '\x08'),
    ('f', '\x0c'),
    ('n', '\n'),
    ('r', '\r'),
    ('t', '\t'),
    ('v', '\x0b'),
    ('\\', '\\'),
    ('"', '"'),
    ('\'', '\''),
    ('?', '?'),
];

/// Returns the meaning of a text between quotes: its escape sequences are replaced. A `\` that begins no
/// escape sequence is left out.
pub(super) fn unescaped(written: &str) -> String {
    let mut text = String::new();
    let mut rest = written.chars().peekable();
    while let Some(letter) = rest.next() {
        if letter != '\\' {
            text.push(letter);
            continue;
        }
        let (radix, digits_max) = match rest.peek() {
            Some('x') => (16, 2),
            Some('0'..='7') => (8, 3),
            _ => {
                let letter = rest.next();
                let known = LETTERS.iter().find(|(one, _)| Some(*one) == letter);
                text.extend(known.map(|(_, meant)| *meant).or(letter));
                continue;
            }
        };
        if radix == 16 {
            rest.next();
        }
        let mut number = 0;
        for _ in 0..digits_max {
            let Some(digit) = rest.peek().and_then(|letter| letter.to_digit(radix)) else { break };
            number = number * radix + digit;
            rest.next();
        }
        text.extend(char::from_u32(number));
    }
    text
}

/// Returns a text as it is written between quotes in a file, with escape sequences.
pub(super) fn escaped(text: &str) -> String {
    let mut written = String::new();
    for letter in text.chars() {
        match LETTERS.iter().find(|(_, meant)| *meant == letter) {
            Some((_, '\'' | '?')) => written.push(letter),
            Some((one, _)) => written.extend(['\\', *one]),
            None if letter.is_ascii_control() => {
                written.push_str(&format!("\\{:03o}", u32::from(letter)));
            }
            None => written.push(letter),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_have_their_meaning() {
        for (written, text) in [
            (r#"a \"b\" \\ c"#, "a \"b\" \\ c"),
            (r"\n\t\0\01234\x41g\q\'", "\n\t\0\n34Agq'"),
            (r"é\", "é"),
        ] {
            let meant = unescaped(written);
            assert_eq!(meant, text, "{written}");
            assert_eq!(unescaped(&escaped(&meant)), meant, "{written}");
        }
        assert_eq!(escaped("\u{1}2\"\\'?"), "\\0012\\\"\\\\'?");
    }
}
