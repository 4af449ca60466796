//! Tests one-way calls, streams, callbacks and futures in bad weather: networks that lose, duplicate, delay
//! and reorder packets, futures that are dropped after any number of polls, and readers that never read.
//!
//! The objects of the server and of the caller record what happens. No call runs twice, one-way calls keep
//! their order, and no item of a stream is lost or duplicated. If an error says how many items have arrived,
//! the number is true.
//!
//! `PEREGRINE_SEEDS=n` sets the number of runs. Each run prints its seed, and `PEREGRINE_SEED=n` repeats it.
#![cfg(feature = "async")]

mod callbacks;
mod crashes;
mod drops;
mod readers;
mod storm;
#[path = "../support/mod.rs"]
mod support;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use peregrine::{BindOptions, Callback, Kind, Running, Server, Sink, Source, interface};
use tempfile::TempDir;

use callbacks::{Asked, AskedClient};

#[interface]
pub(crate) trait Weather {
    /// Counts this execution of the call with the number `number`. Returns how often this call was
    /// executed.
    fn add(&self, number: u64) -> peregrine::Result<u32>;
    /// Appends a note.
    #[oneway]
    fn note(&self, number: u64) -> peregrine::Result<()>;
    /// Sends the numbers below `end`, each in an item of at least `size` bytes. If the caller wants
    /// no more items, returns N of the error "the receiver has taken at least N": the number of
    /// taken items.
    fn count(&self, end: u64, size: u32, items: Sink<'_, Item>) -> peregrine::Result<Option<u64>>;
    /// Checks that the items have the numbers from 0 on. Returns the number of items.
    fn check(&self, items: Source<'_, Item>) -> peregrine::Result<u64>;
    /// Sends back each item.
    fn echo(&self, items: Source<'_, Item>, back: Sink<'_, Item>) -> peregrine::Result<u64>;
    /// Calls the caller's object with the numbers below `end`, each with `size` bytes. Every third call is
    /// one-way.
    fn ask(&self, end: u64, size: u32, object: Callback<'_, dyn Asked>) -> peregrine::Result<()>;
}

/// An item of a stream.
#[derive(Clone, Debug, PartialEq, Eq, peregrine::Value)]
pub(crate) struct Item {
    number: u64,
    ballast: Vec<u8>,
}

impl Item {
    fn new(number: u64, size: u32) -> Self {
        Self { number, ballast: vec![number as u8; size as usize] }
    }

    fn is_intact(&self) -> bool {
        self.ballast.iter().all(|byte| *byte == self.number as u8)
    }
}

/// What the procedures have done.
#[derive(Default)]
pub(crate) struct Seen {
    added: Mutex<HashMap<u64, u32>>,
    notes: Mutex<Vec<u64>>,
    /// The number of items that all procedures have sent.
    sent: AtomicU64,
    /// The number of running procedures that have streams.
    running: AtomicU64,
    /// Whether an item came twice, out of order or damaged.
    is_wrong: AtomicBool,
    /// A file with a line for each call, which remains when the server is killed.
    journal: Option<File>,
}

impl Seen {
    fn write(&self, word: &str, number: u64) {
        if let Some(mut journal) = self.journal.as_ref() {
            journal.write_all(format!("{word} {number}\n").as_bytes()).expect("space");
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct Object(Arc<Seen>);

/// A running procedure.
struct Runs<'a>(&'a AtomicU64);

impl<'a> Runs<'a> {
    fn begin(seen: &'a Seen) -> Self {
        seen.running.fetch_add(1, Ordering::SeqCst);
        Self(&seen.running)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the number in the text "the receiver has taken at least N".
fn taken_at_least(text: &str) -> u64 {
    let (_, rest) = text.split_once("taken at least ").expect("a number of items");
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

impl Weather for Object {
    fn add(&self, number: u64) -> peregrine::Result<u32> {
        self.0.write("add", number);
        let mut added = self.0.added.lock().unwrap();
        let times = added.entry(number).or_default();
        *times += 1;
        Ok(*times)
    }
    fn note(&self, number: u64) -> peregrine::Result<()> {
        self.0.write("note", number);
        self.0.notes.lock().unwrap().push(number);
        Ok(())
    }
    fn count(
        &self,
        end: u64,
        size: u32,
        mut items: Sink<'_, Item>,
    ) -> peregrine::Result<Option<u64>> {
        let _runs = Runs::begin(&self.0);
        for number in 0..end {
            match items.send(Item::new(number, size)) {
                Ok(()) => self.0.sent.fetch_add(1, Ordering::SeqCst),
                Err(error) if error.kind() == Kind::Stopped => {
                    let text = error.to_string();
                    return Ok(text.contains("taken at least").then(|| taken_at_least(&text)));
                }
                Err(error) => return Err(error),
            };
        }
        Ok(None)
    }
    fn check(&self, mut items: Source<'_, Item>) -> peregrine::Result<u64> {
        let _runs = Runs::begin(&self.0);
        let mut next = 0;
        while let Some(item) = items.next()? {
            if item.number != next || !item.is_intact() {
                self.0.is_wrong.store(true, Ordering::SeqCst);
            }
            next += 1;
        }
        Ok(next)
    }
    fn echo(
        &self,
        mut items: Source<'_, Item>,
        mut back: Sink<'_, Item>,
    ) -> peregrine::Result<u64> {
        let _runs = Runs::begin(&self.0);
        let mut count = 0;
        while let Some(item) = items.next()? {
            back.send(item)?;
            count += 1;
        }
        Ok(count)
    }
    fn ask(&self, end: u64, size: u32, object: Callback<'_, dyn Asked>) -> peregrine::Result<()> {
        let _runs = Runs::begin(&self.0);
        for number in 0..end {
            let item = Item::new(number, size);
            if number % 3 == 0 {
                object.tell(item)?;
            } else if object.answer(item)? != Item::new(number + 1, size) {
                self.0.is_wrong.store(true, Ordering::SeqCst);
            }
        }
        object.client().map_or(Ok(()), AskedClient::flush)
    }
}

/// A path within this machine. Nothing impairs its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    InProcess,
    Local,
    Tcp,
    Udp,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::InProcess, Self::Local, Self::Tcp, Self::Udp];
}

/// A server, and a client of it.
pub(crate) struct World {
    pub(crate) object: Object,
    pub(crate) client: WeatherClient,
    running: Option<Running>,
    _directory: TempDir,
}

impl World {
    pub(crate) fn new(way: Way) -> Self {
        let (object, directory) = (Object::default(), support::own_directory());
        if way == Way::InProcess {
            let client = WeatherClient::in_process(object.clone());
            return Self { object, client, running: None, _directory: directory };
        }
        let running = serve(&object, "127.0.0.1:0");
        let at = port(&running);
        let address = match way {
            Way::Udp => format!("udp:weather@127.0.0.1:{at}"),
            Way::Tcp => format!("tcp:weather@127.0.0.1:{at}"),
            _ => "local:weather".to_owned(),
        };
        let client = WeatherClient::bind(&address).unwrap();
        Self { object, client, running: Some(running), _directory: directory }
    }

    pub(crate) fn seen(&self) -> &Seen {
        &self.object.0
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.stop();
        }
    }
}

fn serve(object: &Object, listens: &str) -> Running {
    let server = Server::new().export("weather", WeatherServer::new(object.clone())).unwrap();
    server.listen(listens).unwrap().spawn().unwrap()
}

/// Returns the port at which a server listens.
fn port(running: &Running) -> u16 {
    let endpoint = running.addresses()[0].to_string();
    endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// Returns the options of a client in bad weather. Binding asks for many handles at once.
fn for_bad_weather() -> BindOptions {
    BindOptions::default().bind_timeout(std::time::Duration::from_secs(30)).astacks(16)
}

/// Returns a client over UDP, which reaches the server through the relay at this address.
fn behind(relay: SocketAddr) -> WeatherClient {
    WeatherClient::bind_with(&format!("udp:weather@{relay}"), &for_bad_weather()).unwrap()
}
