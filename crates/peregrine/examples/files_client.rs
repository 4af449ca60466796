//! Copies a served file and checks it: `cargo run --example files_client -- FILE COPY`

mod files;

use std::{env, error, fs, io::Write};

use files::{Files, FilesClient};
use peregrine::Out;

fn main() -> Result<(), Box<dyn error::Error>> {
    let path = env::args().nth(1).ok_or("which file?")?;
    let copy = env::args().nth(2).ok_or("copied to where?")?;

    let files = FilesClient::bind("files")?;
    let mut target = fs::File::create(&copy)?;
    let (mut chunk, mut sums, mut at) = (Vec::with_capacity(1 << 20), Vec::new(), 0);
    while at < files.size(&path)? {
        files.read(&path, at, Out::from(&mut chunk))?;
        target.write_all(&chunk)?;
        sums.push(chunk.iter().map(|byte| u64::from(*byte)).sum());
        at += chunk.len() as u64;
    }

    let sum: u64 = fs::read(&copy)?.iter().map(|byte| u64::from(*byte)).sum();
    assert_eq!(sum, sums.iter().sum(), "the copy differs");
    files.sort(&mut sums)?;
    println!("{at} bytes copied and checked; the darkest MiB sums up to {:?}", sums.first());
    Ok(())
}
