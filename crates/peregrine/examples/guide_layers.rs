//! The listing of the chapter "Layers" of docs/GUIDE.md.

use std::sync::atomic::{AtomicU32, Ordering};

use peregrine::{
    BindOptions, Layer, LayerCall, LayerEnd, LayerRefusal, LayerSide, Server, interface,
};

/// Keeps birds.
#[interface]
pub trait Aviary {
    /// Feeds a bird.
    fn feed(&self, bird: &str) -> peregrine::Result<String>;
}

struct Cage;

impl Aviary for Cage {
    fn feed(&self, bird: &str) -> peregrine::Result<String> {
        Ok(format!("{bird} is fed"))
    }
}

/// Prints the begin and the end of each call.
struct Print;

impl Layer for Print {
    // `begin` returns this value, and `end` gets it.
    type State = LayerSide;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<LayerSide, LayerRefusal> {
        println!("{:?}: {} of {}", call.side(), call.procedure(), call.name());
        Ok(call.side())
    }

    fn end(&self, side: LayerSide, end: &LayerEnd<'_>) {
        println!("{side:?}: {:?}", end.outcome());
    }
}

/// Lets each caller make a number of calls.
struct Quota(AtomicU32);

impl Layer for Quota {
    type State = ();

    fn begin(&self, _: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        left.map(drop).map_err(|_| LayerRefusal::exhausted("the food is used up"))
    }

    fn end(&self, (): (), _: &LayerEnd<'_>) {}
}

fn main() -> peregrine::Result<()> {
    let server = Server::new().layer(Print).layer(Quota(AtomicU32::new(1)));
    let _running = server.export("aviary", AviaryServer::new(Cage))?.spawn()?;
    let aviary = AviaryClient::bind_with("aviary", &BindOptions::default().layer(Print))?;
    println!("{}", aviary.feed("the heron")?);
    println!("{}", aviary.feed("the kite").unwrap_err().kind().text());
    Ok(())
}
