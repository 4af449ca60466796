//! `Brief`: a text that is cut to a limited length. It is used for names and types in error messages, because
//! a peer chooses their lengths.

use core::fmt::{self, Display, Write};

/// The maximum number of bytes of a text that `Brief` shows.
pub(super) const BRIEF_BYTES_MAX: usize = 400;

/// Displays the beginning of a text.
///
/// The rest of the text is not generated, because the text of a type may be a mebibyte long.
pub(super) struct Brief<T>(pub(super) T);

impl<T: Display> Display for Brief<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { left: BRIEF_BYTES_MAX, is_full: false, f };
        match write!(cut, "{}", self.0) {
            Err(_) if cut.is_full => f.write_str("..."),
            done => done,
        }
    }
}

struct Cut<'a, 'f> {
    left: usize,
    is_full: bool,
    f: &'a mut fmt::Formatter<'f>,
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.left);
        self.is_full |= end < text.len();
        self.left -= end;
        self.f.write_str(&text[..end])?;
        if self.is_full { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_letters() {
        let text = |letters: usize| "\u{e4}".repeat(letters);
        assert_eq!(Brief("short").to_string(), "short");
        let most = BRIEF_BYTES_MAX / 2;
        assert_eq!(Brief(text(most)).to_string(), text(most));
        assert_eq!(Brief(text(most + 1)).to_string(), text(most) + "...");
        assert_eq!(
            Brief(format!("x{}", text(most))).to_string(),
            format!("x{}...", text(most - 1))
        );
        let parts = [text(most), text(1), text(1)];
        let all = fmt::from_fn(|f| parts.iter().try_for_each(|part| f.write_str(part)));
        assert_eq!(Brief(all).to_string(), text(most) + "...");
    }
}
