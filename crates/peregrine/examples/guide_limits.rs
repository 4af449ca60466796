//! Procedures with limits.

use std::sync::{Arc, Barrier};

use peregrine::{Server, interface};

/// Images, which need much memory while they are made.
#[interface]
pub trait Images {
    /// Returns the number of pixels of a square image. At most two calls run at once.
    #[at_most(2)]
    fn resize(&self, width: u32) -> peregrine::Result<u32>;
    /// Returns the number of images. No server is as fast as this promises.
    #[within(1ns, of = 99.9)]
    fn count(&self) -> peregrine::Result<u32>;
}

/// The calls wait here, so that the example knows when they run.
struct Studio(Arc<Barrier>);

impl Images for Studio {
    fn resize(&self, width: u32) -> peregrine::Result<u32> {
        self.0.wait();
        self.0.wait();
        Ok(width * width)
    }
    fn count(&self) -> peregrine::Result<u32> {
        Ok(3)
    }
}

fn main() -> peregrine::Result<()> {
    let barrier = Arc::new(Barrier::new(3));
    let studio = Studio(Arc::clone(&barrier));
    let server = Server::new().on_late(|late| println!("{late}"));
    let _running = server.export("images", ImagesServer::new(studio))?.spawn()?;
    let images = ImagesClient::bind("images")?;
    std::thread::scope(|scope| {
        let both = [10, 20].map(|width| {
            let images = images.clone();
            scope.spawn(move || images.resize(width))
        });
        barrier.wait();
        let error = images.resize(30).expect_err("two calls run");
        println!("{}: {}, {}", error.kind().text(), error.detail(), error.executed());
        barrier.wait();
        for call in both {
            println!("{}", call.join().expect("no panic")?);
        }
        for _ in 0..100 {
            images.count()?;
        }
        Ok(())
    })
}
