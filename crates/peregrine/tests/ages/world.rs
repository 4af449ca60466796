//! Starts servers on each path, with the old or the new interface of a change, and binds clients to them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread::JoinHandle;

use peregrine::call::{Reply, Request, Serve, Served};
use peregrine::interface::{Described, Interface, InterfaceRef};
use peregrine::value::ByteOrder;
use peregrine::{
    BindOptions, Binding, CallError, GenericClient, Insecure, PathKind, Running, Server,
};

use crate::changes::Age;
use crate::support;
use crate::support::link::{ENDS, at_far_end};
use crate::support::swapped::SwappedServer;

/// The path of the calls of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    InProcess,
    Local,
    Udp,
    Tcp,
    /// Raw Ethernet between the two ends of a link, which are network namespaces. The client is at the near
    /// end, whose namespace the test's thread has entered. The server is at the far end.
    Ethernet,
}

/// A server of any type.
#[derive(Clone)]
struct Any(Arc<dyn Serve>);

impl Serve for Any {
    fn interface(&self) -> InterfaceRef {
        self.0.interface()
    }
    fn byte_order(&self) -> ByteOrder {
        self.0.byte_order()
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        self.0.serve(request, reply)
    }
}

/// The path and the runtime directory of the servers of one test.
pub(crate) struct World {
    way: Way,
    /// Threads that end servers.
    ending: RefCell<VecDeque<JoinHandle<()>>>,
    _directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

/// What a test binds to: a server that runs, or an object of this process.
pub(crate) struct Home<'a> {
    world: &'a World,
    object: Any,
    address: String,
    running: Option<Running>,
}

impl World {
    pub(crate) fn new(way: Way) -> Self {
        let alone = support::alone();
        let ending = RefCell::default();
        Self { way, ending, _directory: support::own_directory(), _alone: alone }
    }

    pub(crate) const fn way(&self) -> Way {
        self.way
    }

    /// Starts a server of an interface (the old or the new one of a change). If `swapped` is true, the server
    /// behaves as on a machine with the other byte order.
    pub(crate) fn serve(&self, age: &Age, swapped: bool) -> Home<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let object = Any((age.server)());
        let object = if swapped { Any(Arc::new(SwappedServer::new(object))) } else { object };
        let way = self.way;
        if way == Way::InProcess {
            return Home { world: self, object, address: String::new(), running: None };
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ages-{}-{number}", std::process::id());
        let server = Server::new().export(&name, object.clone()).expect("a free name");
        let server = match way {
            Way::Udp => server.listen("udp:127.0.0.1:0").expect("a port"),
            Way::Tcp => server.listen("tcp:127.0.0.1:0").expect("a port"),
            Way::Ethernet => {
                let at = format!("eth:{}:0", ENDS[1]);
                server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).expect("a port")
            }
            _ => server,
        };
        let spawn = || server.spawn().expect("a running server");
        let running = if way == Way::Ethernet { at_far_end(spawn) } else { spawn() };
        let address = match way {
            Way::Local => name,
            _ => format!("{}/{name}", running.addresses()[0]),
        };
        Home { world: self, object, address, running: Some(running) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for ending in self.ending.take() {
            let ended = ending.join();
            // A panic while another panic unwinds would end the process without a message.
            assert!(ended.is_ok() || std::thread::panicking(), "a server does not end");
        }
    }
}

/// The number of servers that may be ending at the same time.
const ENDING: usize = 16;

/// Ends the server. The end of a server over raw Ethernet takes a tenth of a second, and a test has hundreds
/// of servers. So each server ends on a separate thread, while the test goes on.
impl Drop for Home<'_> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let mut ending = self.world.ending.borrow_mut();
        ending.push_back(std::thread::spawn(|| drop(running)));
        if ending.len() > ENDING {
            let ended = ending.pop_front().expect("a thread").join();
            assert!(ended.is_ok() || std::thread::panicking(), "a server does not end");
        }
    }
}

impl Home<'_> {
    /// Binds with the description that is compiled into a client.
    pub(crate) fn bind(&self, interface: &'static Interface) -> Result<Binding, CallError> {
        self.bind_as(interface.into())
    }

    /// Binds with a description that was read from text. Returns an interpreted client.
    pub(crate) fn bind_interpreted(
        &self,
        interface: &'static Interface,
    ) -> Result<GenericClient, CallError> {
        let described = Described::parse(&interface.canonical_text()).expect("a description");
        let binding = self.bind_as(described.clone().into())?;
        Ok(GenericClient::over(binding, described))
    }

    fn bind_as(&self, interface: InterfaceRef) -> Result<Binding, CallError> {
        let options = BindOptions::default();
        if self.world.way == Way::InProcess {
            return Binding::in_process_as(interface, Arc::new(self.object.clone()), &options);
        }
        let binding = Binding::bind(&self.address, interface, &options)?;
        let path = match self.world.way {
            Way::Udp => PathKind::Udp,
            Way::Tcp => PathKind::Tcp,
            Way::Ethernet => PathKind::Ethernet,
            _ => PathKind::Local,
        };
        assert_eq!(binding.path(), path);
        Ok(binding)
    }
}
