//! Copies a file from the server `files_server`: `cargo run --example files_client -- FILE COPY`

pub mod files;

use std::{env, fs::File, io::Write};

use files::{FileError, Files, FilesClient};
use peregrine::Out;

fn main() -> Result<(), FileError> {
    let path = env::args().nth(1).expect("usage: files_client FILE COPY");
    let mut copy = File::create(env::args().nth(2).expect("usage: files_client FILE COPY"))?;

    let files = FilesClient::bind("files")?;
    let mut chunk = Vec::with_capacity(8192);
    for offset in (0..files.size(&path)?).step_by(8192) {
        files.read(&path, offset, Out::from(&mut chunk))?;
        copy.write_all(&chunk)?;
    }
    let mut values = [3, 1, 2];
    files.sort(&mut values)?;
    assert_eq!(values, [1, 2, 3]);
    Ok(())
}
