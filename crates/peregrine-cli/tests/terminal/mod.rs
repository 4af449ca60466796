//! A terminal in which a command runs, and its screen.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use pty_process::Size;
use pty_process::blocking::{Pty, open};
use vt100::{Parser, Screen};

use crate::sandbox::{Process, until};

/// A command that runs in a terminal.
pub(crate) struct Terminal {
    pub(crate) process: Process,
    pty: Arc<Pty>,
    parser: Arc<Mutex<Parser>>,
    /// The thread that processes output until all processes have closed the terminal.
    shows: JoinHandle<()>,
}

/// The exit code of a command, and the screen when the command has ended.
pub(crate) struct Seen {
    pub(crate) code: i32,
    pub(crate) screen: Screen,
}

impl Terminal {
    /// Starts a command in a terminal with `rows` and `columns`.
    pub(crate) fn start(command: Command, rows: u16, columns: u16) -> Self {
        Self::start_as(command, "xterm-256color", rows, columns)
    }

    /// Starts a command with another value of `TERM`.
    pub(crate) fn start_as(mut command: Command, kind: &str, rows: u16, columns: u16) -> Self {
        let (pty, inside) = open().unwrap();
        pty.resize(Size::new(rows, columns)).unwrap();
        command.env("TERM", kind);
        let command = pty_process::blocking::Command::from(command);
        // The terminal becomes the standard input, output and error of `command`.
        let process = Process(command.spawn(inside).unwrap());
        let [rows, columns] = [rows, columns].map(|size| NonZeroU16::new(size).unwrap());
        let (pty, parser) = (Arc::new(pty), Arc::new(Mutex::new(Parser::new(rows, columns, 0))));
        let (from, to) = (Arc::clone(&pty), Arc::clone(&parser));
        let shows = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails when the last process that uses the terminal has closed it.
            while let Ok(read @ 1..) = (&*from).read(&mut bytes) {
                to.lock().unwrap_or_else(PoisonError::into_inner).process(&bytes[..read]);
            }
        });
        Self { process, pty, parser, shows }
    }

    /// Types a text.
    pub(crate) fn write(&self, text: &str) {
        (&*self.pty).write_all(text.as_bytes()).unwrap();
    }

    /// Types Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.write("\u{3}");
    }

    /// Returns the current screen.
    pub(crate) fn screen(&self) -> Screen {
        self.parser.lock().unwrap_or_else(PoisonError::into_inner).screen().clone()
    }

    /// Waits until this text is on the screen.
    pub(crate) fn until(&self, text: &str) {
        until(&format!("{text:?} is on the screen"), || {
            let contents = self.screen().contents();
            let ended = self.shows.is_finished();
            assert!(!ended || contents.contains(text), "{text:?} is missing:\n{contents}");
            contents.contains(text)
        });
    }

    /// Waits until the last line on the screen is complete, so that typed text starts a new line.
    #[allow(dead_code)] // not every test program uses it
    pub(crate) fn until_line_ends(&self) {
        until("the cursor is at the start of a line", || self.screen().cursor_position().1 == 0);
    }

    /// Waits until the command has ended.
    pub(crate) fn end(mut self) -> Seen {
        let status = self.process.wait();
        // Child processes may still have the terminal open.
        until("the terminal is closed", || self.shows.is_finished());
        let screen = self.screen();
        let code = status.code().unwrap_or_else(|| panic!("{status}:\n{}", screen.contents()));
        Seen { code, screen }
    }
}

impl Seen {
    /// Returns the text of the screen, without spaces at the ends of lines.
    pub(crate) fn text(&self) -> String {
        let contents = self.screen.contents();
        let lines: Vec<&str> = contents.lines().map(str::trim_end).collect();
        lines.join("\n").trim_end().to_owned()
    }

    /// Returns the lines that were wider than the screen and therefore wrapped.
    pub(crate) fn wrapped(&self) -> Vec<String> {
        let (rows, columns) = self.screen.size();
        let lines = (0..rows.get()).zip(self.screen.rows(0, columns.get()));
        lines.filter(|(row, _)| self.screen.row_wrapped(*row)).map(|(_, line)| line).collect()
    }

    /// Returns whether any cell has a colour or is bold.
    pub(crate) fn is_coloured(&self) -> bool {
        let (rows, columns) = self.screen.size();
        let cells = (0..rows.get()).flat_map(|row| (0..columns.get()).map(move |c| (row, c)));
        let mut cells = cells.filter_map(|(row, column)| self.screen.cell(row, column));
        cells.any(|cell| cell.bold() || cell.dim() || cell.fgcolor() != vt100::Color::Default)
    }
}
