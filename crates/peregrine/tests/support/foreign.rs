//! What the tests of ONC RPC and of Courier share.

// Each test program uses only some of these items.
#![allow(dead_code)]

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peregrine::{CallError, Executed, Kind, Running, interface};

/// A test that waits longer than this fails.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Returns the kind of a failure, and whether its call was executed.
pub(crate) fn kind(error: &CallError) -> (Kind, Executed) {
    (error.kind(), error.executed())
}

/// The rejections of Courier: the words of a rejection, the failure of the call, and a part of its text.
pub(crate) const REJECTIONS: [(&[u16], Kind, Executed, &str); 6] = [
    (&[0], Kind::Withdrawn, Executed::No, "does not have the program"),
    (&[1, 3, 4], Kind::InterfaceMismatch, Executed::No, "versions 3 to 4"),
    (&[2], Kind::NoSuchProcedure, Executed::No, "no such procedure"),
    (&[3], Kind::BadArguments, Executed::No, "cannot read the arguments"),
    (&[0xffff], Kind::Relayed, Executed::Maybe, "reason 65535"),
    (&[77], Kind::Relayed, Executed::Maybe, "reason 77"),
];

/// Returns an address of this machine that no other process uses. So if a test starts a second server at the
/// port of a first one, the port is free. Each test program has its own `net`, which is the second number of
/// the address.
pub(crate) fn own_address(net: u8) -> Ipv4Addr {
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, net, high, low.clamp(1, 254))
}

/// Returns a name for an export that no other process uses.
pub(crate) fn name_of(test: &str) -> String {
    format!("foreign-{test}-{}", std::process::id())
}

/// An object that counts its calls, and whose calls may wait for the test.
#[derive(Clone)]
pub(crate) struct Object {
    runs: Arc<AtomicU32>,
    begun: Sender<()>,
    goes_on: Arc<Mutex<Receiver<()>>>,
}

impl Object {
    /// Counts a call, and returns its number.
    pub(crate) fn run(&self) -> u32 {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Reports that a call has begun, and waits until the test lets it end. Then counts the call.
    pub(crate) fn run_when_told(&self) -> u32 {
        self.begun.send(()).expect("the test waits");
        self.goes_on.lock().unwrap().recv().expect("the test lets the call end");
        self.run()
    }
}

/// A server, the number of calls that its object ran, and the test's ends of the channels to its object.
pub(crate) struct World {
    pub(crate) server: Running,
    pub(crate) runs: Arc<AtomicU32>,
    pub(crate) begun: Receiver<()>,
    pub(crate) go_on: Sender<()>,
}

impl World {
    /// Makes an object. Calls `start`, which starts a server of the object.
    pub(crate) fn of(
        start: impl FnOnce(Object) -> Result<Running, CallError>,
    ) -> Result<Self, CallError> {
        let (begun_at, begun) = channel();
        let (go_on, goes_on) = channel();
        let goes_on = Arc::new(Mutex::new(goes_on));
        let object = Object { runs: Arc::default(), begun: begun_at, goes_on };
        let runs = Arc::clone(&object.runs);
        Ok(Self { server: start(object)?, runs, begun, go_on })
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }
}

#[interface(onc(program = 0x2000_0019, version = 1), courier(program = 0x0001_8019, version = 1))]
pub(crate) trait Later {
    #[onc(1)]
    #[courier(1)]
    fn later(&self, value: u16) -> peregrine::Result<u16>;
}

/// An object that yields once in each call, and counts its calls.
pub(crate) struct Yields(pub(crate) Arc<AtomicU32>);

impl LaterAsync for Yields {
    async fn later(&self, value: u16) -> peregrine::Result<u16> {
        let mut is_first = true;
        core::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            match core::mem::take(&mut is_first) {
                true => core::task::Poll::Pending,
                false => core::task::Poll::Ready(()),
            }
        })
        .await;
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(value + 1)
    }
}
