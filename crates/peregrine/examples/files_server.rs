//! Exports the files of a directory: `cargo run --example files_server -- DIRECTORY`

pub mod files;

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::PathBuf,
};

use files::{FileError, Files, FilesServer};
use peregrine::{Out, Server, Sink};

struct Disk(PathBuf);

impl Disk {
    /// Opens a file, which must be in the directory. A path cannot leave the directory by `..`, `/` or a
    /// symbolic link.
    fn open(&self, path: &str) -> io::Result<File> {
        let path = self.0.join(path).canonicalize()?;
        if path.starts_with(&self.0) {
            File::open(path)
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

impl Files for Disk {
    fn size(&self, path: &str) -> Result<u64, FileError> {
        Ok(self.open(path)?.metadata()?.len())
    }
    fn read(&self, path: &str, offset: u64, mut into: Out<'_, u8>) -> Result<(), FileError> {
        into.fill_from_file(&self.open(path)?, offset)?;
        Ok(())
    }
    fn copy(&self, path: &str, mut pieces: Sink<'_, Vec<u8>>) -> Result<u64, FileError> {
        let (mut file, mut size) = (self.open(path)?, 0);
        let mut piece = vec![0; 16 << 10];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(size),
                read => {
                    // Waits while the client does not take the pieces.
                    pieces.send(piece[..read].to_vec())?;
                    size += read as u64;
                }
            }
        }
    }
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
        values.sort_unstable();
        Ok(())
    }
}

fn main() -> Result<(), FileError> {
    let directory = env::args().nth(1).expect("usage: files_server DIRECTORY");
    let disk = Disk(PathBuf::from(directory).canonicalize()?);
    Server::new().export("files", FilesServer::new(disk))?.stop_on_signals().run()?;
    Ok(())
}
