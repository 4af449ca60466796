//! Follows a file, as `tail -f` does: `cargo run --example tail -- serve FILE` in one terminal, and
//! `cargo run --example tail` in others.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use peregrine::{CallError, Server, Sink, Value, interface};

/// How long the server waits at the end of the file before it looks again.
const PAUSE: Duration = Duration::from_millis(20);

/// A file that grows.
#[interface]
pub trait Tail {
    /// Sends the bytes of the file, and those that are appended later. Ends when the file is removed.
    fn follow(&self, bytes: Sink<'_, Vec<u8>>) -> Result<(), TailError>;
}

/// Why a file is not followed.
#[derive(Debug, Value)]
pub enum TailError {
    /// The file cannot be read.
    File(String),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for TailError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<io::Error> for TailError {
    fn from(error: io::Error) -> Self {
        Self::File(error.to_string())
    }
}

struct Follower(PathBuf);

impl Tail for Follower {
    fn follow(&self, mut bytes: Sink<'_, Vec<u8>>) -> Result<(), TailError> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        let mut file = File::open(&self.0)?;
        let mut buffer = vec![0; 16 << 10];
        // While the file does not grow, the procedure sends nothing. So no failed `send` shows that
        // the reader has gone, and the procedure checks for this here.
        while !bytes.is_stopped() && !caller.is_stopping() {
            let about = file.metadata()?;
            let read = file.read(&mut buffer)?;
            if read > 0 {
                if bytes.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            } else if about.nlink() == 0 {
                break;
            } else if about.len() < file.stream_position()? {
                // The file was truncated.
                file.rewind()?;
            } else {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }
}

/// Prints bytes. Ends the stream if nothing reads the output any more.
fn print(bytes: Vec<u8>) -> ControlFlow<()> {
    let mut output = io::stdout().lock();
    match output.write_all(&bytes).and_then(|()| output.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

fn main() -> Result<(), TailError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [verb, file] if verb == "serve" => {
            let server = TailServer::new(Follower(file.into()));
            Server::new().export("tail", server)?.stop_on_signals().run()?;
        }
        [] => TailClient::bind("tail")?.follow(Sink::until(print))?,
        _ => {
            eprintln!("usage: tail [serve FILE]");
            std::process::exit(2);
        }
    }
    Ok(())
}
