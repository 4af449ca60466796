//! `Screen`: a terminal on which the same picture is drawn over and over, and that is then as it was.
//!
//! The alternate screen is taken, so that what stood there comes back. Keys come one by one and are
//! not shown; Ctrl-C is a signal as ever, and no other key is. Whatever way the command ends, the
//! [`WayBack`] has put all back before.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::output::{self, During as _, Failure};

/// No key is this one (`_POSIX_VDISABLE`).
const DISABLED: u8 = 0;
/// Takes the alternate screen, and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What somebody has pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pressed {
    Nothing,
    /// A key that asks for nothing but to look again.
    Again,
    /// `q`, Ctrl-D or Escape alone.
    End,
}

/// A terminal that is drawn on.
pub(super) struct Screen {
    way_back: Arc<WayBack>,
    /// Whether keys come from it, too.
    keys: bool,
}

/// How the terminal was.
pub(super) struct WayBack {
    before: Option<Termios>,
    gone: AtomicBool,
}

impl Screen {
    /// Takes the terminal; `None` if standard output is none, or one that cannot be drawn on.
    pub(super) fn take() -> Result<Option<Self>, Failure> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if dumb || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let what = "taking the terminal";
        let keys = io::stdin().is_terminal();
        let before = if keys { Some(tcgetattr(io::stdin()).during(what)?) } else { None };
        // From here on it is put back, whatever happens.
        let way_back = Arc::new(WayBack { before, gone: AtomicBool::new(false) });
        let screen = Self { way_back, keys };
        if let Some(before) = &screen.way_back.before {
            let mut own = before.clone();
            own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // Who is halted cannot give the terminal back.
            for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
                own.special_codes[key] = DISABLED;
            }
            tcsetattr(io::stdin(), OptionalActions::Now, &own).during(what)?;
        }
        write(ENTER)?;
        Ok(Some(screen))
    }

    /// What puts it back, for whoever ends the process from outside.
    pub(super) fn way_back(&self) -> Arc<WayBack> {
        Arc::clone(&self.way_back)
    }

    /// Draws a text for the width that the terminal has now, as much of it as there is room for.
    pub(super) fn draw(&self, text: impl FnOnce(Option<usize>) -> String) -> Result<(), Failure> {
        let columns = output::columns();
        let rows = tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row)).max(2);
        let text = text(columns);
        let text = output::folded(&text, columns);
        let lines: Vec<&str> = text.lines().collect();
        let room = rows - 1;
        let mut picture = String::from("\x1b[H");
        for line in lines.iter().take(room) {
            picture.push_str(line);
            // What stood behind it goes.
            picture.push_str("\x1b[0m\x1b[K\n");
        }
        picture.push_str("\x1b[J");
        let left = lines.len().saturating_sub(room);
        let more = if left > 0 { format!("{left} more lines; ") } else { String::new() };
        let foot = format!("{more}q ends");
        picture.extend(foot.chars().take(columns.unwrap_or(80)));
        if anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never {
            picture = without_colours(&picture);
        }
        write(&picture)
    }

    /// Waits so long for a key.
    pub(super) fn pressed(&self, limit: Duration) -> Result<Pressed, Failure> {
        if !self.keys {
            std::thread::sleep(limit);
            return Ok(Pressed::Nothing);
        }
        let stdin = io::stdin();
        let wait = rustix::time::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Pressed::Nothing),
            Ok(_) => {}
            Err(error) => return Err(error).during("waiting for a key"),
        }
        let mut keys = [0; 64];
        let read = rustix::io::read(&stdin, &mut keys).unwrap_or(0);
        Ok(match &keys[..read] {
            // The terminal has gone.
            [] => Pressed::End,
            [0x1b] => Pressed::End,
            // An arrow, or another key that is more than a letter.
            [0x1b, ..] => Pressed::Nothing,
            keys if keys.iter().any(|key| matches!(key, b'q' | b'Q' | 4)) => Pressed::End,
            keys if keys.contains(&b' ') => Pressed::Again,
            _ => Pressed::Nothing,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.way_back.go();
    }
}

impl WayBack {
    /// The terminal is as it was, once.
    pub(super) fn go(&self) {
        if self.gone.swap(true, Ordering::SeqCst) {
            return;
        }
        // What keys do comes first, for that waits for nobody.
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        // Where nobody looks any more there is nothing to put back.
        let _ = write(LEAVE);
    }
}

impl Drop for WayBack {
    fn drop(&mut self) {
        self.go();
    }
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.during("drawing on the terminal"),
    }
}

/// The text without escape sequences that colour it: those that end with `m`.
fn without_colours(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let end = sequence[2..]
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(sequence.len(), |end| end + 3);
        if !sequence[..end].ends_with('m') {
            plain.push_str(&sequence[..end]);
        }
        rest = &sequence[end..];
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_and_all_else_stays() {
        assert_eq!(without_colours("\x1b[H\x1b[1mbold\x1b[0m\x1b[K\nx"), "\x1b[Hbold\x1b[K\nx");
        assert_eq!(without_colours("\x1b["), "\x1b[");
    }
}
