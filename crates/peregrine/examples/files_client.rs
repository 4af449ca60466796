//! Copies a served file and checks it: `cargo run --example files_client -- FILE COPY`

pub mod files;

use std::{env, error, fs, io::Write};

use files::{FileError, Files, FilesClient};
use peregrine::Out;

/// Bytes that one call reads.
const CHUNK: usize = 8192;

fn main() -> Result<(), Box<dyn error::Error>> {
    let path = env::args().nth(1).ok_or("which file?")?;
    let copy = env::args().nth(2).ok_or("copied to where?")?;

    let files = FilesClient::bind("files")?;
    let read = |offset| -> Result<Vec<u8>, FileError> {
        let mut chunk = Vec::with_capacity(CHUNK);
        files.read(&path, offset, Out::from(&mut chunk))?;
        Ok(chunk)
    };
    let size = files.size(&path)?;
    let mut target = fs::File::create(&copy)?;
    for offset in (0..size).step_by(CHUNK) {
        target.write_all(&read(offset)?)?;
    }

    let copied = fs::read(&copy)?;
    assert_eq!(copied.len() as u64, size, "the copy is not complete");
    for (offset, chunk) in (0..).step_by(CHUNK).zip(copied.chunks(CHUNK)) {
        assert!(read(offset)? == chunk, "the copy differs at {offset}");
    }
    let mut values = [3, 1, 2];
    files.sort(&mut values)?;
    assert_eq!(values, [1, 2, 3]);
    println!("{size} bytes copied to {copy} and compared");
    Ok(())
}
