//! Binds over TCP. A client connects to the server, or shares an existing connection of this process to the
//! same address. The keeper, the background thread of the process, watches each connection for its end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use rustix::event::epoll::EventFlags;

use super::{Connection, Grant, StreamPath, ask_alone};
use crate::address::Place;
use crate::call::{Call, CallPath, PathKind, Returned, Wait, block_cost, frames_that_fit, pass_on};
use crate::device::tcp::Stream;
use crate::error::{CallError, Executed, Kind, NO_THREAD};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::bind::{
    BoundPath, Connect, Inquiry, NO_RIGHT, Target, Wanted, byte_order, connect, hold, refused,
    system, violated,
};
use crate::path::options::BindOptions;
use crate::path::security::{AcceptedServer, ClientSecurity, SecurityKey, watch_trust};
use crate::protocol::description;
use crate::protocol::stream::{self as wire, BindGrant, BindRequest, Header, Refused};
use crate::registry::Registry;
use crate::sync::Rank;
use crate::sys::ForkMark;
use crate::value::ByteOrder;

/// The client's implementation of the stream path.
pub(crate) struct Tcp;

impl Connect for Tcp {
    fn kind(&self) -> PathKind {
        PathKind::Tcp
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(target.place()?, wanted)
    }

    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        let place = target.place()?;
        let (stream, _) = open(place, wanted.options.security.as_ref(), None, wanted.until)?;
        let name = wanted.name.as_bytes();
        let (header, body) = ask_alone(&stream, wire::MessageKind::Describe, name, wanted.until)?;
        expect_kind(&header, &body, wire::MessageKind::Description)?;
        description::from_bytes(&body).map(Inquiry::Answer).ok_or_else(unreadable)
    }
}

/// The connections of this process. The key is the place to which a connection leads, a host and a port, and
/// the security of its bindings.
static CONNECTIONS: Registry<(Place, Option<SecurityKey>), JoinedConnection> =
    Registry::new(Rank::Server);

/// A connection that bindings of this process share. The connection ends when the last of these bindings is
/// dropped.
struct JoinedConnection {
    // The watch must be dropped first. Then the keeper no longer watches the connection when the other fields
    // are dropped.
    _watch: Watch,
    /// Looks whether the server is still trusted, if the connection is encrypted.
    _trust: Option<Watch>,
    connection: Arc<Connection>,
    epoch: u64,
    mark: ForkMark,
    /// The address of the server, if it is known. `explain` shows this address.
    to: Option<SocketAddr>,
    /// Says in words how the connection is encrypted, if it is.
    sealed: Option<String>,
}

/// The path of one binding, and the shared connection that it uses.
struct Member {
    path: StreamPath,
    joined: Arc<JoinedConnection>,
}

impl CallPath for Member {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let returned = self.path.transport(call);
        if self.path.connection.begins_to_tidy() {
            self.path.connection.tidy_soon();
        }
        if let Err(error) = &returned
            && error.executed() == Executed::Maybe
        {
            // The reply may still arrive. If no caller on this connection receives, the keeper receives the
            // reply.
            self.path.connection.watch_for_late_reply();
        }
        returned
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        let ended = self.path.poll(call)?;
        if self.path.connection.begins_to_tidy() {
            self.path.connection.tidy_soon();
        }
        Some(ended)
    }

    fn explain(&self) -> String {
        let JoinedConnection { to, sealed, .. } = &*self.joined;
        let mut text = to.map_or_else(String::new, |to| format!("a connection with {to}"));
        if let Some(sealed) = sealed {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(sealed);
        }
        text
    }

    pass_on! {
        self => self.path;
        begin, arm, give_up, is_prepared, prepare, message_bytes, server_cpu, wait, kind,
        is_alive, captures, is_released, retransmissions
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Dropping the last binding ends the connection, so the server needs no message about the end of that
        // binding. A forked child process sends nothing, because the connection belongs to its parent.
        if !self.joined.mark.wiped() && Arc::strong_count(&self.joined) > 1 {
            self.path.unbind();
        }
    }
}

/// The keeper's view of a connection. The keeper notices the end of the connection, and receives replies for
/// which no caller waits.
struct Watcher(Arc<Connection>);

impl Watched for Watcher {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.stream().as_fd()
    }

    fn interest(&self) -> EventFlags {
        self.0.interest()
    }

    fn ready(self: Arc<Self>) -> Next {
        self.0.ready(EventFlags::empty())
    }

    fn ready_for(self: Arc<Self>, events: EventFlags) -> Next {
        self.0.ready(events)
    }

    fn tick(self: Arc<Self>) -> Next {
        self.0.tick();
        Next::Sleep
    }
}

#[cold]
fn unreadable() -> CallError {
    violated("the server's answer is not readable")
}

/// Returns an error if the message is a refusal, or if the kind of the message is not `kind`.
fn expect_kind(header: &Header, body: &[u8], kind: wire::MessageKind) -> Result<(), CallError> {
    match header.kind {
        wire::MessageKind::Refused => {
            let Refused { kind, text } = Refused::from_bytes(body).ok_or_else(unreadable)?;
            Err(refused(kind, text).denied_means(NO_RIGHT))
        }
        other if other == kind => Ok(()),
        _ => Err(violated("the server's answer does not fit the client's request")),
    }
}

fn bound(header: &Header, body: &[u8]) -> Result<BindGrant, CallError> {
    expect_kind(header, body, wire::MessageKind::Bound)?;
    BindGrant::from_bytes(body).ok_or_else(unreadable)
}

/// Connects to a place. If the binding is secure, also makes the handshake. Returns the stream, and the
/// server if the stream is encrypted.
fn open(
    place: &Place,
    security: Option<&ClientSecurity>,
    congestion: Option<&str>,
    until: Instant,
) -> Result<(Stream, Option<AcceptedServer>), CallError> {
    let stream = connect(&place.resolve()?, congestion, until)?;
    match security {
        None => Ok((stream, None)),
        Some(security) => {
            security.connect(stream, place, until).map(|(stream, server)| (stream, Some(server)))
        }
    }
}

/// Binds to a name at a place. The client first requests the message size that it prefers. If the server
/// refuses this size as too large, the client requests a smaller size: the size that every server
/// grants, or more if the client needs more.
fn bind(place: &Place, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let Wanted { interface, options, .. } = *wanted;
    let message_bytes = options.message_bytes_for(interface);
    let least = options.message_bytes_asked(interface);
    match bind_for(place, wanted, message_bytes) {
        Err(error) if error.kind() == Kind::TooLarge && least < message_bytes => {
            bind_for(place, wanted, least)
        }
        bound => bound,
    }
}

/// Binds to a name at a place, for messages of at most `message_bytes` bytes.
fn bind_for(
    place: &Place,
    wanted: &Wanted<'_>,
    message_bytes: usize,
) -> Result<BoundPath, CallError> {
    let Wanted { name, interface, digest, options, until } = *wanted;
    // Bindings share the frames of a connection. So frames have at least the size that most bindings need.
    let frame_bytes = message_bytes.max(options.message_bytes_default());
    // Memory that was never touched costs only address space. So the client requests many frames.
    let count = frames_that_fit(options.astacks.max(limits::ASTACKS_SPARSE), frame_bytes);
    let request = BindRequest {
        digest: digest.map(|digest| digest.0),
        representation: ByteOrder::NATIVE.number(),
        count,
        bytes: message_bytes as u64,
        process: std::process::id(),
        name: name.to_owned(),
    };
    let request = request.to_bytes();
    let security = options.security.as_ref();
    let key = security.map(|security| security.key(place));
    let entry = CONNECTIONS.entry((place.clone(), key));
    let mut connections = hold(&entry, until)?;
    connections.retain(|joined| joined.upgrade().is_some_and(|one| !one.connection.has_ended()));
    let fits = |joined: &Arc<JoinedConnection>| joined.connection.message_bytes() >= message_bytes;
    let known = connections.iter().filter_map(Weak::upgrade).find(fits);
    let (joined, bound) = match known {
        Some(joined) => {
            // The lock is released, so that other threads can bind meanwhile.
            drop(connections);
            let (header, body) = joined.connection.ask(wire::MessageKind::Bind, &request, until)?;
            let bound = bound(&header, &body)?;
            if bound.epoch != joined.epoch {
                return Err(violated("the server at the other end of the connection has changed"));
            }
            (joined, bound)
        }
        None => {
            let congestion = options.congestion.as_deref();
            let (stream, server) = open(place, security, congestion, until)?;
            let (header, body) = ask_alone(&stream, wire::MessageKind::Bind, &request, until)?;
            let bound = bound(&header, &body)?;
            let joined = Arc::new(join(stream, server, &bound, frame_bytes, options)?);
            connections.push(Arc::downgrade(&joined));
            (joined, bound)
        }
    };
    let order = byte_order(bound.representation)?;
    let connection = Arc::clone(&joined.connection);
    connection.frames.at_least(options.astacks);
    let granted = usize::try_from(bound.bytes).unwrap_or(usize::MAX);
    options.check_granted(interface, granted)?;
    let path = StreamPath {
        revoked: connection.add(bound.binding),
        binding: bound.binding,
        message_bytes: message_bytes.min(granted),
        own_bytes: message_bytes,
        granted,
        wait: options.wait,
        connection,
    };
    if options.wait == Wait::Adaptive {
        // Measures the cost of sleeping and waking now, so that the measurement does not delay the first
        // call.
        block_cost();
    }
    let frames = Arc::clone(&path.connection.frames);
    Ok(BoundPath { path: Box::new(Member { path, joined }), frames, order })
}

/// Creates the shared connection from a socket on which a binding was made, and registers it with the keeper.
fn join(
    stream: Stream,
    server: Option<AcceptedServer>,
    bound: &BindGrant,
    message_bytes: usize,
    options: &BindOptions,
) -> Result<JoinedConnection, CallError> {
    let count = frames_that_fit(bound.count, message_bytes);
    let grant = Grant { count, bytes: message_bytes };
    let connection = Connection::new(stream, grant, options.astacks.min(count));
    let connection =
        Arc::new(connection.map_err(system("cannot allocate memory for the connection"))?);
    let mark =
        ForkMark::of_process().map_err(system("cannot allocate memory for the fork mark"))?;
    let keeper = Keeper::of_process().map_err(system(NO_THREAD))?;
    let watcher = Arc::new(Watcher(Arc::clone(&connection)));
    let watch = keeper.watch(watcher).map_err(system("watching the connection"))?;
    connection.set_watch(watch.handle());
    let sealed = server.as_ref().map(AcceptedServer::in_words);
    let look = |server: AcceptedServer| {
        let weak = Arc::downgrade(&connection);
        watch_trust(&keeper, Arc::new(server), weak, Connection::distrust)
    };
    let trust = server.map(look).transpose().map_err(system("watching the trust"))?;
    let to = connection.stream().peer().ok();
    let (epoch, _watch, _trust) = (bound.epoch, watch, trust);
    Ok(JoinedConnection { _watch, _trust, connection, epoch, mark, to, sealed })
}
