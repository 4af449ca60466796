//! Copies a file from the server `files_server`: `cargo run --example files_client -- FILE COPY`

pub mod files;

use std::{env, fs::File, io::Write, ops::ControlFlow};

use files::{FileError, Files, FilesClient};
use peregrine::{Out, Sink};

fn main() -> Result<(), FileError> {
    let path = env::args().nth(1).expect("usage: files_client FILE COPY");
    let mut copy = File::create(env::args().nth(2).expect("usage: files_client FILE COPY"))?;

    let files = FilesClient::bind("files")?;
    // One call copies the whole file. The first piece that cannot be written ends the stream.
    let mut written = Ok(());
    let copied = files.copy(
        &path,
        Sink::until(|piece: Vec<u8>| {
            written = copy.write_all(&piece);
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }),
    );
    written?;
    assert_eq!(copied?, files.size(&path)?);

    // Without a stream, each call reads one piece into a buffer of the caller.
    let mut first = Vec::with_capacity(8192);
    files.read(&path, 0, Out::from(&mut first))?;
    println!(
        "copied {} bytes; the first call of `read` returned {}",
        copy.metadata()?.len(),
        first.len()
    );
    let mut values = [3, 1, 2];
    files.sort(&mut values)?;
    assert_eq!(values, [1, 2, 3]);
    Ok(())
}
