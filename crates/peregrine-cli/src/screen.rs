//! `Screen`: redraws the whole screen of a terminal, and restores the terminal at the end.
//!
//! A `Screen` uses the alternate screen of the terminal, so that the previous content comes back at the end.
//! Keys are read one by one without an echo. Ctrl-C is the only key that sends a signal. [`SavedTerminal`]
//! restores the terminal, no matter how the command ends.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};

use crate::output::{self, Failure, OrFail as _};

/// The value that disables a special key (`_POSIX_VDISABLE`).
const DISABLED: u8 = 0;
/// The control sequences that switch to the alternate screen and hide the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// The control sequences that show the cursor and switch back from the alternate screen.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// The meaning of a key that the user pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// No key was pressed, or the key has no meaning.
    None,
    /// Space: refresh.
    Refresh,
    /// `q`, Ctrl-D or Escape.
    Quit,
}

/// A terminal on which the command draws.
pub(crate) struct Screen {
    saved: Arc<SavedTerminal>,
    /// Whether keys can be read: whether standard input is a terminal.
    keys: bool,
}

/// The modes that the terminal had before the command changed them.
pub(crate) struct SavedTerminal {
    before: Option<Termios>,
    is_restored: AtomicBool,
}

impl Screen {
    /// Switches to the alternate screen. Returns `None` if standard output is no terminal on which a command
    /// can draw.
    pub(crate) fn take() -> Result<Option<Self>, Failure> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if dumb || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let what = "cannot change the modes of the terminal";
        let keys = io::stdin().is_terminal();
        let before = if keys { Some(tcgetattr(io::stdin()).or_fail(what)?) } else { None };
        // From here on, dropping `screen` restores the terminal.
        let saved = Arc::new(SavedTerminal { before, is_restored: AtomicBool::new(false) });
        let screen = Self { saved, keys };
        if let Some(before) = &screen.saved.before {
            let mut own = before.clone();
            own.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
            // The keys for suspending and quitting (usually Ctrl-Z and Ctrl-\) would stop or kill the process
            // before it restores the terminal. So these keys are disabled.
            for key in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
                own.special_codes[key] = DISABLED;
            }
            tcsetattr(io::stdin(), OptionalActions::Now, &own).or_fail(what)?;
        }
        write(ENTER)?;
        Ok(Some(screen))
    }

    /// Returns the saved modes, with which a forced exit restores the terminal.
    pub(crate) fn saved(&self) -> Arc<SavedTerminal> {
        Arc::clone(&self.saved)
    }

    /// Draws as many lines of a text as the terminal has rows. `text` returns the text for a given number of
    /// columns.
    pub(crate) fn draw(&self, text: impl FnOnce(Option<usize>) -> String) -> Result<(), Failure> {
        let columns = output::columns();
        let rows = tcgetwinsize(io::stdout()).map_or(24, |size| usize::from(size.ws_row)).max(2);
        let text = text(columns);
        let text = output::folded(&text, columns);
        let lines: Vec<&str> = text.lines().collect();
        let rows = rows - 1;
        let mut picture = String::from("\x1b[H");
        for line in lines.iter().take(rows) {
            picture.push_str(line);
            // Clears the rest of the line.
            picture.push_str("\x1b[0m\x1b[K\n");
        }
        picture.push_str("\x1b[J");
        let left = lines.len().saturating_sub(rows);
        let more = if left > 0 { format!("{left} more lines; ") } else { String::new() };
        let foot = format!("{more}press q to quit");
        picture.extend(foot.chars().take(columns.unwrap_or(80)));
        if anstream::AutoStream::choice(&io::stdout()) == anstream::ColorChoice::Never {
            picture = without_colours(&picture);
        }
        write(&picture)
    }

    /// Waits until a key is pressed, for at most `limit`.
    pub(crate) fn key(&self, limit: Duration) -> Result<Key, Failure> {
        if !self.keys {
            std::thread::sleep(limit);
            return Ok(Key::None);
        }
        let stdin = io::stdin();
        let wait = rustix::time::Timespec {
            tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: limit.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Key::None),
            Ok(_) => {}
            Err(error) => return Err(error).or_fail("cannot read a key"),
        }
        let mut keys = [0; 64];
        let read = rustix::io::read(&stdin, &mut keys).unwrap_or(0);
        Ok(match &keys[..read] {
            // Reading no bytes means that the terminal is closed.
            [] => Key::Quit,
            [0x1b] => Key::Quit,
            // An escape sequence, such as that of an arrow key.
            [0x1b, ..] => Key::None,
            keys if keys.iter().any(|key| matches!(key, b'q' | b'Q' | 4)) => Key::Quit,
            keys if keys.contains(&b' ') => Key::Refresh,
            _ => Key::None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.saved.restore();
    }
}

impl SavedTerminal {
    /// Restores the terminal. Only the first call has an effect.
    pub(crate) fn restore(&self) {
        if self.is_restored.swap(true, Ordering::SeqCst) {
            return;
        }
        // The modes are restored first, because changing them does not block.
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
        // Errors are ignored, because a closed terminal need not be restored.
        let _ = write(LEAVE);
    }
}

impl Drop for SavedTerminal {
    fn drop(&mut self) {
        self.restore();
    }
}

fn write(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::Closed),
        written => written.or_fail("cannot write to the terminal"),
    }
}

/// Removes styles, which are escape sequences that end with `m`.
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
    fn only_styles_are_removed() {
        assert_eq!(without_colours("\x1b[H\x1b[1mbold\x1b[0m\x1b[K\nx"), "\x1b[Hbold\x1b[K\nx");
        assert_eq!(without_colours("\x1b["), "\x1b[");
    }
}
