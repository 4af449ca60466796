//! Base64 (RFC 4648) with the standard alphabet. Every sequence of bytes has exactly one text.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Whether the text is filled with `=` to a multiple of four characters.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Padding {
    Filled,
    Omitted,
}

/// Appends the text of `bytes` to `text`. Its length is known before, so no copy of a secret is left behind
/// if the caller has reserved it ([`encoded_len`]).
pub(super) fn encode_into(bytes: &[u8], padding: Padding, text: &mut String) {
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, i| word << 8 | u32::from(*group.get(i).unwrap_or(&0)));
        for i in 0..4 {
            if i <= group.len() {
                let digit = word >> (18 - 6 * i) & 63;
                text.push(char::from(ALPHABET[digit as usize]));
            } else if padding == Padding::Filled {
                text.push('=');
            }
        }
    }
}

/// Returns the text of `bytes`.
pub(super) fn encode(bytes: &[u8], padding: Padding) -> String {
    let mut text = String::with_capacity(encoded_len(bytes.len()));
    encode_into(bytes, padding, &mut text);
    text
}

/// Returns the length of the filled text of `len` bytes.
pub(super) const fn encoded_len(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Returns the bytes of a text. Returns `None` unless [`encode`] returns exactly this text for the bytes.
pub(super) fn decode(text: &str, padding: Padding) -> Option<Vec<u8>> {
    let digits = match padding {
        Padding::Omitted => text,
        Padding::Filled if !text.len().is_multiple_of(4) => return None,
        Padding::Filled => {
            let digits = text.trim_end_matches('=');
            if text.len() - digits.len() > 2 {
                return None;
            }
            digits
        }
    };
    if digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let mut word = 0u32;
        for i in 0..4 {
            let digit = group.get(i).map_or(Some(0), |digit| value(*digit))?;
            word = word << 6 | digit;
        }
        let [_, all @ ..] = word.to_be_bytes();
        let whole = group.len() * 6 / 8;
        // The bits that belong to no byte are zero in the one text of these bytes.
        if word & ((1 << (24 - 8 * whole)) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&all[..whole]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(
        match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        }
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_those_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes(), Padding::Filled), text);
            assert_eq!(decode(text, Padding::Filled).unwrap(), bytes.as_bytes());
            let bare = text.trim_end_matches('=');
            assert_eq!(encode(bytes.as_bytes(), Padding::Omitted), bare);
            assert_eq!(decode(bare, Padding::Omitted).unwrap(), bytes.as_bytes());
        }
    }

    #[test]
    fn other_texts_of_the_same_bytes_are_refused() {
        for text in [
            "Zh==", "Zm9=", "Zg=", "Zg", "Z===", "====", "=", "Zg==Zg==", "Zm 9v", "Zm9v\n", "é===",
        ] {
            assert_eq!(decode(text, Padding::Filled), None, "{text}");
        }
        assert_eq!(decode("Zg==", Padding::Omitted), None);
    }

    proptest! {
        #[test]
        fn every_text_that_is_read_is_the_one_that_is_written(text in "[A-Za-z0-9+/=]{0,40}") {
            for padding in [Padding::Filled, Padding::Omitted] {
                if let Some(bytes) = decode(&text, padding) {
                    prop_assert_eq!(encode(&bytes, padding), text.as_str());
                }
            }
        }

        #[test]
        fn all_bytes_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            for padding in [Padding::Filled, Padding::Omitted] {
                prop_assert_eq!(decode(&encode(&bytes, padding), padding), Some(bytes.clone()));
            }
        }
    }
}
