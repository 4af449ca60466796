//! The listing of the chapter "Tracing" of docs/GUIDE.md.

use peregrine::{BindOptions, Server, Tracing, caller, interface};

/// Looks for birds.
#[interface]
pub trait Search {
    /// Returns the trace in which the call arrived.
    fn find(&self) -> peregrine::Result<String>;
}

/// Answers for another server.
#[interface]
pub trait Front {
    /// Returns what `Search` returns to this server.
    fn find(&self) -> peregrine::Result<String>;
}

struct Index;

impl Search for Index {
    fn find(&self) -> peregrine::Result<String> {
        let caller = caller().expect("a procedure has a caller");
        Ok(caller.metadata().get("traceparent").unwrap_or("no trace").to_owned())
    }
}

struct Desk(SearchClient);

impl Front for Desk {
    fn find(&self) -> peregrine::Result<String> {
        self.0.find()
    }
}

fn main() -> peregrine::Result<()> {
    let traced = BindOptions::default().layer(Tracing::new());
    let server = Server::new().layer(Tracing::new());
    let _index = server.export("search", SearchServer::new(Index))?.spawn()?;
    let desk = Desk(SearchClient::bind_with("search", &traced)?);
    let server = Server::new().layer(Tracing::new());
    let _front = server.export("front", FrontServer::new(desk))?.spawn()?;

    let front = FrontClient::bind_with("front", &traced)?;
    println!("{}", front.find()?);
    // A trace that has begun elsewhere, such as in a browser.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    println!("{}", front.with_metadata("traceparent", trace)?.find()?);
    Ok(())
}
