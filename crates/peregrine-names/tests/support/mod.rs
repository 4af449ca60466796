//! What the tests of the name service share: directories, servers and child processes.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::directory::Directory;
use peregrine::{
    Address, CallError, Executed, ExportOptions, Kind, Out, Running, Server, Sink, Value, interface,
};
use peregrine_names::{LookupClient, NameService, NamesError};

/// A generous limit for everything that a test waits for.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Returns a name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Waits until something is true.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < end, "not reached: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory in memory, which cannot be watched.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl Table {
    pub(crate) fn set(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        self.0.lock().unwrap().insert(name.to_owned(), addresses);
    }
}

impl Directory for Table {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        let table = self.0.lock().unwrap();
        table.get(name).into_iter().flatten().map(|address| address.parse()).collect()
    }
    fn describe(&self) -> String {
        "a table".to_owned()
    }
    fn names(&self) -> Result<Vec<String>, CallError> {
        Ok(self.0.lock().unwrap().keys().cloned().collect())
    }
}

#[derive(Debug, Value)]
pub(crate) enum ShopError {
    Sold(String),
    Call(CallError),
}

impl From<CallError> for ShopError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// A server that the tests call through a name service.
#[interface]
pub(crate) trait Shop {
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64>;
    fn buy(&self, what: &str) -> Result<u32, ShopError>;
    fn fill(&self, byte: u8, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn sort(&self, values: &mut Vec<u32>) -> peregrine::Result<()>;
    /// Returns the user of the caller, its identity, and the metadata `token`.
    fn who(&self) -> peregrine::Result<(u32, Option<String>, Option<String>)>;
    fn long(&self, bytes: u32) -> peregrine::Result<String>;
    /// Counts, and ends when its caller gives up.
    fn wait(&self) -> peregrine::Result<()>;
    fn list(&self, items: Sink<'_, u32>) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, number: u32) -> peregrine::Result<()>;
}

#[derive(Clone, Default)]
pub(crate) struct Counter {
    pub(crate) began: Arc<AtomicU32>,
    pub(crate) ended: Arc<AtomicU32>,
    pub(crate) noted: Arc<AtomicU32>,
}

impl Shop for Counter {
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64> {
        Ok(a + b)
    }
    fn buy(&self, what: &str) -> Result<u32, ShopError> {
        Err(ShopError::Sold(what.to_owned()))
    }
    fn fill(&self, byte: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let room = into.remaining();
        into.put(&vec![byte; room]).expect("the buffer has this size");
        Ok(())
    }
    fn sort(&self, values: &mut Vec<u32>) -> peregrine::Result<()> {
        values.sort_unstable();
        Ok(())
    }
    fn who(&self) -> peregrine::Result<(u32, Option<String>, Option<String>)> {
        let caller = peregrine::caller().expect("inside a call");
        let token = caller.metadata().get("token").map(str::to_owned);
        Ok((caller.user(), caller.identity().map(|identity| identity.to_string()), token))
    }
    fn long(&self, bytes: u32) -> peregrine::Result<String> {
        self.began.fetch_add(1, Ordering::SeqCst);
        Ok("x".repeat(bytes as usize))
    }
    fn wait(&self) -> peregrine::Result<()> {
        println!("\nwaits");
        self.began.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("inside a call");
        let end = Instant::now() + LIMIT;
        while !caller.is_cancelled() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.ended.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        items.send(1)
    }
    fn note(&self, number: u32) -> peregrine::Result<()> {
        self.noted.fetch_add(number, Ordering::SeqCst);
        Ok(())
    }
}

/// Starts a shop that listens at `endpoint`. Returns its address, too.
pub(crate) fn shop(endpoint: &str, counter: &Counter) -> (Running, String) {
    let options = ExportOptions::default().networks_only();
    let server = Server::new().export_with("shop", ShopServer::new(counter.clone()), options);
    let running = server.unwrap().listen(endpoint).unwrap().spawn().unwrap();
    let address = format!("{}/shop", running.addresses()[0]).parse::<Address>().unwrap();
    (running, address.to_string())
}

/// Starts a name service that listens with UDP and TCP. Returns its addresses: UDP, TCP and local.
pub(crate) fn serve(service: NameService) -> (Running, [String; 3]) {
    let name = unique("names");
    let server = service.export(Server::new(), &name, &ExportOptions::default()).unwrap();
    let server = server.listen("udp:127.0.0.1:0").unwrap().listen("tcp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let [udp, tcp] = [0, 1].map(|number| {
        let text = format!("{}/{name}", running.addresses()[number]);
        text.parse::<Address>().unwrap().to_string()
    });
    let local = format!("local:{name}");
    (running, [udp, tcp, local])
}

pub(crate) fn service(table: &Table) -> NameService {
    NameService::new(Arc::new(table.clone()))
}

pub(crate) fn client(address: &str) -> LookupClient {
    LookupClient::bind(address).unwrap()
}

/// Returns the kind, the execution and the text of a failure.
pub(crate) fn failed<T: core::fmt::Debug>(made: Result<T, NamesError>) -> (Kind, Executed, String) {
    let error = made.expect_err("the call fails");
    let (executed, text) = (error.executed(), error.to_string());
    (error.into_call_error().kind(), executed, text)
}

/// Runs this test program again as a child process with a role. It is killed when it is dropped.
pub(crate) struct Role {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
}

const ROLE: &str = "PEREGRINE_NAMES_TEST_ROLE";

/// Returns the role of this process.
pub(crate) fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// Returns the words that run the role in a child process.
pub(crate) fn role_words() -> Vec<String> {
    let own = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    [&*own, "--exact", "child", "--nocapture", "--test-threads", "1"].map(str::to_owned).into()
}

impl Role {
    pub(crate) fn start(role: &str, command: &mut Command) -> Self {
        command.env(ROLE, role).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Returns what the child prints after `word`.
    pub(crate) fn after(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            if let Some(rest) = line.trim_end().strip_prefix(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("the child has ended and has not printed `{word}`");
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
