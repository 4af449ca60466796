//! Progress bars on standard error. They are shown only on a terminal, and are always cleared at the end.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::LazyLock;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use super::layout;

/// The number of columns that stay free after a bar. The terminal shows `^C` there after Ctrl-C. If the line
/// were full, the `^C` would wrap to the next line, and clearing the bar would clear the wrong line.
const FREE: usize = 3;
/// How many times per second a bar is drawn at most.
const DRAWN_PER_S: u8 = 20;

/// All visible bars. They share one value, because the process has only one terminal.
static SHOWN: LazyLock<MultiProgress> = LazyLock::new(|| {
    MultiProgress::with_draw_target(match is_drawn() {
        true => ProgressDrawTarget::term_like_with_hz(Box::new(Narrower), DRAWN_PER_S),
        false => ProgressDrawTarget::hidden(),
    })
});

/// Returns whether standard error is a terminal on which a line can be redrawn.
fn is_drawn() -> bool {
    let kind = std::env::var_os("TERM");
    io::stderr().is_terminal() && kind.is_some_and(|kind| !kind.is_empty() && kind != "dumb")
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Bytes. The bar also shows the rate per second.
    Bytes,
    /// Steps.
    Steps,
}

/// Returns a new bar that is full at `whole` bytes or steps. Dropping the bar clears it.
pub(crate) fn bar(whole: u64, what: &'static str, counted: Counted) -> ProgressBar {
    let columns = layout::columns(io::stderr()).unwrap_or(80);
    let style = ProgressStyle::with_template(&template(columns, counted));
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    SHOWN.add(ProgressBar::new(whole).with_style(style).with_message(what))
}

/// Clears all bars and disables drawing. Returns whether any bar was drawn.
pub(crate) fn clear_bars() -> bool {
    let Some(shown) = LazyLock::get(&SHOWN) else { return false };
    let _ = shown.clear();
    let were = !shown.is_hidden();
    shown.set_draw_target(ProgressDrawTarget::hidden());
    were
}

fn template(columns: usize, counted: Counted) -> String {
    const WHAT: usize = "  ".len() + 14 + "  ".len();
    let (suffix, taken) = match counted {
        Counted::Bytes if columns >= 75 => (
            "{binary_bytes:>10} of {binary_total_bytes:>10} {binary_bytes_per_sec:>14}",
            10 + " of ".len() + 10 + " ".len() + 14,
        ),
        Counted::Steps if columns >= 50 => ("{pos:>4} of {len:4}", 4 + " of ".len() + 4),
        _ => ("{percent:>3}%", 4),
    };
    let wide = columns.saturating_sub(FREE + WHAT + taken).max(1);
    format!("  {{msg:14}} {{bar:{wide}}} {suffix}")
}

/// The terminal of standard error. Its reported width is reduced by `FREE` columns.
#[derive(Debug)]
struct Narrower;

impl Narrower {
    /// Moves the cursor by `steps`, with the control sequence of ECMA-48 that ends in `letter`.
    fn go(steps: usize, letter: char) -> io::Result<()> {
        if steps == 0 { Ok(()) } else { write!(io::stderr(), "\u{1b}[{steps}{letter}") }
    }
}

impl TermLike for Narrower {
    fn width(&self) -> u16 {
        let columns = layout::columns(io::stderr()).unwrap_or(80).saturating_sub(FREE);
        u16::try_from(columns).unwrap_or(u16::MAX)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        Self::go(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        Self::go(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        Self::go(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        Self::go(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        writeln!(io::stderr(), "{s}")
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        write!(io::stderr(), "{s}")
    }

    fn clear_line(&self) -> io::Result<()> {
        write!(io::stderr(), "\r\u{1b}[2K")
    }

    fn flush(&self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_valid() {
        for columns in [20, 40, 50, 75, 80, 300] {
            for counted in [Counted::Bytes, Counted::Steps] {
                assert!(ProgressStyle::with_template(&template(columns, counted)).is_ok());
            }
        }
    }
}
