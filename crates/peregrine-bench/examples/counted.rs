//! Makes a given number of calls. The script `compare` counts the instructions of this program with
//! callgrind.
//!
//! The script builds this file twice, with the libraries of two commits. Therefore this file uses only
//! functions that the library has in both commits, and nothing else of this crate.
//!
//!     counted serve WAIT
//!     counted in-process|local CASE WAIT CALLS
//!
//! CASE is `null` or `in-BYTES`, and WAIT is `spin` or `adaptive`. Calls on the local path need a
//! second process that serves.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Read as _};
use std::process::ExitCode;

use peregrine::{BindOptions, Server, Wait, interface};

/// The calls that are counted.
#[interface]
trait Counted {
    /// Does nothing.
    fn null(&self) -> peregrine::Result<()>;
    /// Takes bytes.
    fn take(&self, #[max_len(3000)] bytes: &[u8]) -> peregrine::Result<()>;
}

/// An object that ignores the arguments of its procedures.
struct Object;

impl Counted for Object {
    #[inline(never)]
    fn null(&self) -> peregrine::Result<()> {
        black_box(());
        Ok(())
    }

    #[inline(never)]
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }
}

type Failure = Box<dyn Error + Send + Sync>;

/// The name of the export.
const NAME: &str = "counted";

fn waiting(word: &str) -> Result<Wait, Failure> {
    match word {
        "spin" => Ok(Wait::Spin),
        "adaptive" => Ok(Wait::Adaptive),
        _ => Err(format!("unknown way to wait: {word}").into()),
    }
}

/// Serves until the standard input of this process ends. Then the function returns, so that the process exits
/// and callgrind writes its counts.
fn serve(wait: Wait) -> Result<(), Failure> {
    let server = Server::new().wait(wait).export(NAME, CountedServer::new(Object))?.spawn()?;
    println!("ready");
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(server);
    Ok(())
}

/// Makes the calls of a case, one after the other.
fn call(object: &impl Counted, case: &str, calls: u32) -> Result<(), Failure> {
    if case == "null" {
        for _ in 0..calls {
            object.null()?;
        }
        return Ok(());
    }
    let bytes = case.strip_prefix("in-").ok_or_else(|| format!("unknown case: {case}"))?;
    let bytes = vec![0xa5; bytes.parse()?];
    for _ in 0..calls {
        object.take(black_box(&bytes))?;
    }
    Ok(())
}

fn run() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", wait] => serve(waiting(wait)?),
        ["in-process", case, _, calls] => {
            call(&CountedClient::in_process(Object), case, calls.parse()?)
        }
        ["local", case, wait, calls] => {
            let options = BindOptions::default().wait(waiting(wait)?);
            call(&CountedClient::bind_with(NAME, &options)?, case, calls.parse()?)
        }
        _ => Err("usage: counted serve WAIT, or in-process|local CASE WAIT CALLS".into()),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("counted: {error}");
            ExitCode::FAILURE
        }
    }
}
