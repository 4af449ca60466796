//! Defines the interface for the tests of one-way calls, and the object that records which calls ran. Also
//! binds clients of either form (blocking or async) over each path.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, CallError, Executed, Kind, Running, Server, Value, interface};

use crate::contract::{AnyServer, Form, interface_in_both_forms};
use crate::support::futures::{block_on, yielded};

/// How long a test waits for an event that must happen.
pub(crate) const LONG: Duration = Duration::from_secs(20);

/// The error of a procedure: either the procedure refuses a line, or a call has failed.
#[derive(Debug, Value)]
pub(crate) enum Refused {
    Line(u32),
    Call(CallError),
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

interface_in_both_forms! {
    client: Client = JournalClient | JournalAsyncClient,
    server: Object = JournalServer | JournalAsyncServer,
    async form: JournalAsync by procedure!,
    #[interface]
    pub(crate) trait Journal {
        /// Appends a line.
        #[oneway]
        fn note(&self, line: &str) -> peregrine::Result<()>;
        /// Appends the number of bytes as a line.
        #[oneway]
        fn bulk(&self, bytes: Vec<u8>) -> peregrine::Result<()>;
        /// Appends a line, and fails in the way that `way` selects.
        #[oneway]
        fn fail(&self, way: u32) -> peregrine::Result<()>;
        /// Appends a line, and fails with [`Refused::Line`].
        #[oneway]
        fn refuse(&self, line: u32) -> Result<(), Refused>;
        /// Ends when the gate of the object is open.
        #[oneway]
        fn wait(&self) -> peregrine::Result<()>;
        /// Returns the lines.
        fn lines(&self) -> peregrine::Result<Vec<String>>;
        /// Appends a line, and returns the number of lines.
        fn line(&self, line: &str) -> peregrine::Result<u32>;
    }
}

macro_rules! procedure {
    ($self:ident wait) => {{
        $self.object.0.waiting.fetch_add(1, Ordering::SeqCst);
        while !$self.object.is_open() {
            yielded().await;
        }
        Ok(())
    }};
    ($self:ident $method:ident $($argument:ident)*) => {
        $self.run(|object| object.$method($($argument),*)).await
    };
}
use procedure;

/// The state of the object, which its procedures share.
#[derive(Debug, Default)]
pub(crate) struct Inner {
    lines: Mutex<Vec<String>>,
    open: AtomicBool,
    /// How many calls of `wait` have begun.
    pub(crate) waiting: AtomicU32,
    /// How many procedures run now.
    running: AtomicU32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Object(pub(crate) Arc<Inner>);

impl Object {
    pub(crate) fn open(&self) {
        self.0.open.store(true, Ordering::SeqCst);
    }
    pub(crate) fn is_open(&self) -> bool {
        self.0.open.load(Ordering::SeqCst)
    }
    pub(crate) fn seen(&self) -> Vec<String> {
        self.0.lines.lock().unwrap().clone()
    }
    fn push(&self, line: impl Into<String>) -> u32 {
        assert_eq!(self.0.running.fetch_add(1, Ordering::SeqCst), 0, "two calls run at once");
        let mut lines = self.0.lines.lock().unwrap();
        lines.push(line.into());
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        lines.len() as u32
    }
}

impl Journal for Object {
    fn note(&self, line: &str) -> peregrine::Result<()> {
        self.push(line);
        Ok(())
    }
    fn bulk(&self, bytes: Vec<u8>) -> peregrine::Result<()> {
        assert!(bytes.iter().all(|byte| *byte == 7));
        self.push(bytes.len().to_string());
        Ok(())
    }
    fn fail(&self, way: u32) -> peregrine::Result<()> {
        self.push("failed");
        match way {
            0 => Err(CallError::new(Kind::System, Executed::Maybe, "the disk is full")),
            _ => panic!("a fault on purpose"),
        }
    }
    fn refuse(&self, line: u32) -> Result<(), Refused> {
        self.push("refused");
        Err(Refused::Line(line))
    }
    fn wait(&self) -> peregrine::Result<()> {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.is_open() {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn lines(&self) -> peregrine::Result<Vec<String>> {
        Ok(self.seen())
    }
    fn line(&self, line: &str) -> peregrine::Result<u32> {
        Ok(self.push(line))
    }
}

/// The path of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    InProcess,
    Local,
    Udp,
    Tcp,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::InProcess, Self::Local, Self::Udp, Self::Tcp];
}

/// A server of one object, and how clients bind to it.
pub(crate) struct World {
    pub(crate) object: Object,
    pub(crate) name: String,
    pub(crate) running: Option<Running>,
    pub(crate) address: String,
    in_process: Option<AnyServer>,
}

impl World {
    pub(crate) fn new(way: Way, form: Form) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("journal-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let object = Object::default();
        let serve = object.clone().server(form);
        let (running, address, in_process) = if way == Way::InProcess {
            (None, String::new(), Some(serve))
        } else {
            let server = Server::new().export(&name, serve).unwrap();
            let server = match way {
                Way::Udp => server.listen("udp:127.0.0.1:0").unwrap(),
                Way::Tcp => server.listen("tcp:127.0.0.1:0").unwrap(),
                _ => server,
            };
            let running = server.spawn().unwrap();
            let place = running.addresses().first().map(|address| address.place().to_string());
            let address = match way {
                Way::Udp => format!("udp:{name}@{}", place.unwrap()),
                Way::Tcp => format!("tcp:{name}@{}", place.unwrap()),
                _ => name.clone(),
            };
            (Some(running), address, None)
        };
        Self { object, name, running, address, in_process }
    }

    /// Binds a client. On the in-process path, this function may be called only once.
    pub(crate) fn client(&mut self, form: Form) -> Client {
        let options = BindOptions::default();
        match self.in_process.take() {
            Some(serve) => Client::in_process(form, serve, &options),
            None => Client::bind(form, &self.address, &options).unwrap(),
        }
    }
}

impl Client {
    pub(crate) fn flush(&self) -> peregrine::Result<()> {
        match self {
            Self::Blocking(client) => client.flush(),
            Self::Async(client) => block_on(client.flush()),
        }
    }
}

/// Waits until `what` returns true.
pub(crate) fn until(what: impl Fn() -> bool) {
    let begun = Instant::now();
    while !what() {
        assert!(begun.elapsed() < LONG, "it never happens");
        std::thread::yield_now();
    }
}
