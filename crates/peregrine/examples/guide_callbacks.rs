//! Callbacks: a chapter of docs/GUIDE.md.

use std::sync::{Arc, Mutex};

use peregrine::{Callback, Server, interface};

/// Learns how a copy goes on.
#[interface]
pub trait Progress {
    /// Reports that `files` of `all` files are copied. Returns whether the copy goes on.
    fn copied(&self, files: u32, all: u32) -> peregrine::Result<bool>;
}

/// Copies files.
#[interface]
pub trait Copier {
    /// Copies the files, and returns how many it has copied.
    fn copy(&self, files: u32, progress: Callback<'_, dyn Progress>) -> peregrine::Result<u32>;
    /// Tells the listener of all copies from now on.
    fn watch(&self, listener: Callback<'static, dyn Progress>) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Disk {
    listeners: Mutex<Vec<Callback<'static, dyn Progress>>>,
}

impl Copier for Disk {
    fn copy(&self, files: u32, progress: Callback<'_, dyn Progress>) -> peregrine::Result<u32> {
        for copied in 1..=files {
            // A listener that has gone is forgotten.
            let mut listeners = self.listeners.lock().unwrap();
            listeners.retain(|listener| listener.copied(copied, files).is_ok());
            drop(listeners);
            if !progress.copied(copied, files)? {
                return Ok(copied);
            }
        }
        Ok(files)
    }
    fn watch(&self, listener: Callback<'static, dyn Progress>) -> peregrine::Result<()> {
        self.listeners.lock().unwrap().push(listener);
        Ok(())
    }
}

/// Wants a certain number of files.
struct Enough(u32);

impl Progress for Enough {
    fn copied(&self, files: u32, all: u32) -> peregrine::Result<bool> {
        println!("{files} of {all}");
        Ok(files < self.0)
    }
}

/// Counts the files.
#[derive(Default)]
struct Count(Mutex<u32>);

impl Progress for Count {
    fn copied(&self, _: u32, _: u32) -> peregrine::Result<bool> {
        *self.0.lock().unwrap() += 1;
        Ok(true)
    }
}

fn main() -> peregrine::Result<()> {
    let disk = CopierServer::new(Disk::default());
    let _running = Server::new().export("copier", disk)?.spawn()?;
    let copier = CopierClient::bind("copier")?;

    // The procedure calls this object while the call runs.
    let wanted = Enough(2);
    println!("copied {}", copier.copy(5, Callback::new(&wanted))?);

    // The server keeps this object, and calls it until the registration is dropped.
    let count = Arc::new(Count::default());
    let (listener, registration) = Callback::registered(Arc::clone(&count));
    copier.watch(listener)?;
    copier.copy(3, Callback::new(Enough(3)))?;
    drop(registration);
    copier.copy(3, Callback::new(Enough(1)))?;
    println!("the listener was told of {} files", count.0.lock().unwrap());
    Ok(())
}
