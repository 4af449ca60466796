//! Binds over datagrams. To bind, a client requests a *handle* from the server at an address. A handle
//! identifies a sequence of calls, and the server's record of that sequence. All bindings of this process to
//! one server by one route share an [`Association`]: its sockets, and its frames, the memory of calls.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::client::association::{ACKNOWLEDGE_WITHIN, Association};
use super::client::fallback::{Fallback, LinkedPath};
use super::client::handles::{self as handles, FirstBind, Granted, where_on_link};
use super::client::{BoundOver, DatagramPath, HandleProvider};
use super::sealed::{ClientChannel, Wants};
use super::wire::DESCRIBE;
use crate::address::Place;
use crate::call::{CallPath, OnExhausted, PathKind, Wait, block_cost, frames_that_fit};
use crate::device::udp::Udp;
use crate::device::{LinkPort, Route};
use crate::error::{CallError, Kind, NO_RAW_ETHERNET, NO_THREAD, Phase};
use crate::interface::Digest;
use crate::keeper::{Keeper, Next, Watch};
use crate::limits;
use crate::path::bind::{BoundPath, Connect, Inquiry, STAGGER, Target, Wanted, system, until};
use crate::path::options::{BindOptions, EthernetDevice};
use crate::path::security::{ClientSecurity, watch_trust};
use crate::protocol::exchange::bind::{BindRequest, ExportName};
use crate::registry::Registry;
use crate::sync::Rank;
use crate::sys::{self, ForkMark};
use crate::value::ByteOrder;

/// The client's implementation of the datagram path over UDP.
pub(crate) struct OverUdp;

/// The client's implementation of the datagram path over raw Ethernet.
pub(crate) struct OverEthernet;

impl Connect for OverUdp {
    fn kind(&self) -> PathKind {
        PathKind::Udp
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(Over::Udp, target.place()?, wanted)
    }

    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Ok(Inquiry::Call { path: self.bind(target, wanted)?, procedure: DESCRIBE })
    }
}

impl Connect for OverEthernet {
    fn kind(&self) -> PathKind {
        PathKind::Ethernet
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(Over::Ethernet { asked: target.is_asked }, target.place()?, wanted)
    }

    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Ok(Inquiry::Call { path: self.bind(target, wanted)?, procedure: DESCRIBE })
    }
}

/// How long the client at first waits for an answer over the link. If no answer arrives in time, the client
/// asks over UDP for the server's location on the link once more. Then the client waits twice as long as
/// before.
const LINK_PATIENCE: Duration = Duration::from_millis(500);

/// The largest number of handles that a bind request over a shared socket asks for. The frame that sends the
/// request uses one handle. Frames that use the shared socket later get the others.
const HANDLES_ASKED: u32 = 4;

/// An association for which the keeper, the background thread of the process, sends due packets.
struct Maintained {
    // Fields are dropped in this order. So the keeper's timer ends before this reference to the association
    // does.
    watch: Watch,
    /// Looks whether the server is still trusted, if packets are encrypted.
    _trust: Option<Watch>,
    association: Arc<Association>,
    mark: ForkMark,
}

/// The parts that a binding needs to request further handles.
struct HandleSource {
    joined: Arc<Maintained>,
    request: BindRequest,
    limit: Duration,
}

impl HandleProvider for HandleSource {
    fn request(&self) -> BindRequest {
        self.request
    }

    fn until(&self, deadline: Option<Instant>) -> Instant {
        bind_until(self.limit, deadline)
    }

    fn remind(&self) {
        self.joined.watch.remind(ACKNOWLEDGE_WITHIN / 2);
    }

    fn is_own(&self) -> bool {
        !self.joined.mark.wiped()
    }
}

/// The associations of this process. The newest association is the last in the list. A binding may search for
/// an association by several routes. So one entry of the registry contains all associations. Bindings to all
/// servers need this entry. So no thread holds the lock of the entry during a bind.
static ASSOCIATIONS: Registry<(), Maintained> = Registry::new(Rank::Associations);

/// Runs `with` on the list of the associations that are in use.
fn with_table<T>(with: impl FnOnce(&mut Vec<Weak<Maintained>>) -> T) -> T {
    let entry = ASSOCIATIONS.entry(());
    let mut joined = entry.lock();
    joined.retain(|one| one.strong_count() > 0);
    with(&mut joined)
}

/// The largest number of existing associations that a new binding tries before it creates a socket. A load
/// balancer may direct one route to several servers. Then each of these servers has its own association.
const KNOWN_MAX: usize = 2;

/// Returns at most [`KNOWN_MAX`] associations of this process, the newest first. Each of them uses one of
/// `routes`, accepts messages of `bytes` bytes, and was made with the same security.
fn known(routes: &[Route], bytes: usize, security: Option<Wants<'_>>) -> Vec<Arc<Maintained>> {
    let key = security.map(|security| security.key());
    let fits = |one: &Arc<Maintained>| {
        let association = &one.association;
        !association.is_lost()
            && association.channel().map(ClientChannel::key) == key.as_ref()
            && association.message_bytes() >= bytes
            && routes.contains(association.to())
    };
    // References to associations that do not fit are dropped only after the lock of the table is released.
    let all =
        with_table(|joined| joined.iter().rev().filter_map(Weak::upgrade).collect::<Vec<_>>());
    all.into_iter().filter(fits).take(KNOWN_MAX).collect()
}

/// Removes an association from the table because its server did not answer. So no new binding joins the
/// association. Bindings that already use the association keep it alive.
fn retire(silent: &Arc<Maintained>) {
    with_table(|joined| joined.retain(|one| Weak::as_ptr(one) != Arc::as_ptr(silent)));
}

/// A new binding: the shared association, the path of the binding, and the byte order of the server.
struct Attached {
    joined: Arc<Maintained>,
    path: DatagramPath<HandleSource>,
    order: ByteOrder,
}

/// Binds over the first of `routes` on which a server answers. At first, tries for a short time the
/// associations that this process already has on these routes.
fn attach(
    routes: &[Route],
    request: BindRequest,
    bytes: usize,
    options: &BindOptions,
    security: Option<Wants<'_>>,
    until: Instant,
) -> Result<Attached, CallError> {
    for joined in known(routes, request.result_bytes_max as usize, security) {
        let association = &*joined.association;
        let (now, patience) = (Instant::now(), STAGGER.max(association.round_trip() * 4));
        // At least half of the remaining time is kept for an attempt over a new socket.
        let soon = now + patience.min(until.saturating_duration_since(now) / 2);
        let is_released = |frame| association.is_released(frame);
        let Some(taken) = association.frames.take(|| Some(soon), is_released, OnExhausted::More)
        else {
            continue;
        };
        match association.bind(taken.index(), request, soon) {
            Ok(granted) => {
                let first = BoundOver::Frame(taken.index());
                return Ok(attached(Arc::clone(&joined), first, granted, request, options));
            }
            Err(error) if is_answer(error.kind()) => return Err(error),
            // The sockets of this association may be dead. The association is retired, so that later bindings
            // lose no time with these sockets.
            Err(error) => {
                drop(taken);
                if matches!(error.kind(), Kind::TimedOut | Kind::Unreachable) {
                    retire(&joined);
                }
            }
        }
    }
    let FirstBind { route, socket, granted, channel } =
        handles::bind(routes, request, security, until)?;
    let count = frames_that_fit(options.astacks.max(limits::ASTACKS_SPARSE), bytes);
    let (to, active) = (routes[route].clone(), options.astacks.min(count));
    let association = Association::new(to, (&granted, channel), count, active, bytes);
    let association = association.map_err(|error| {
        CallError::system(Phase::Bind, "no memory for the frames".to_owned(), error)
    })?;
    let joined = maintained(Arc::new(association))?;
    with_table(|table| table.push(Arc::downgrade(&joined)));
    Ok(attached(joined, BoundOver::Socket(socket), granted, request, options))
}

/// Returns whether an error of this kind is a server's answer. Other kinds mean that no usable answer
/// arrived.
const fn is_answer(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::TimedOut | Kind::Unreachable | Kind::ServerGone | Kind::System | Kind::Exhausted
    )
}

/// Creates a binding whose first handle was granted over `first`.
fn attached(
    joined: Arc<Maintained>,
    first: BoundOver,
    granted: Granted,
    request: BindRequest,
    options: &BindOptions,
) -> Attached {
    let association = Arc::clone(&joined.association);
    association.frames.at_least(options.astacks);
    let order = if granted.grant.big_endian { ByteOrder::Big } else { ByteOrder::Little };
    let request = BindRequest { handles: options.astacks.min(HANDLES_ASKED) as u16, ..request };
    let again = HandleSource { joined: Arc::clone(&joined), request, limit: options.bind_limit };
    let (wait, ask_after) = (options.wait, options.ask_after);
    let path = DatagramPath::new(association, first, granted, wait, ask_after, again);
    Attached { joined, path, order }
}

/// Registers an association with the keeper. The keeper then sends the due packets of the association.
fn maintained(association: Arc<Association>) -> Result<Arc<Maintained>, CallError> {
    let keeper = Keeper::of_process().map_err(system(NO_THREAD))?;
    let maintained = Arc::clone(&association);
    let tick = move || {
        if maintained.maintain() { Next::SleepAndTick(ACKNOWLEDGE_WITHIN / 2) } else { Next::Sleep }
    };
    let watch = keeper
        .watch_timer(tick)
        .map_err(system("cannot start the timer that maintains the association"))?;
    let mark = ForkMark::of_process().map_err(system("no memory for the fork mark"))?;
    let look = |channel: &ClientChannel| {
        let weak = Arc::downgrade(&association);
        watch_trust(&keeper, Arc::clone(channel.server()), weak, Association::distrust)
    };
    let trust = association.channel().map(look).transpose();
    let _trust = trust.map_err(system("cannot start the timer that looks at the trust"))?;
    Ok(Arc::new(Maintained { watch, _trust, association, mark }))
}

/// The parts that a binding over a link needs to continue over UDP.
struct OverUdpInstead {
    link: Arc<Maintained>,
    link_port: Arc<LinkPort>,
    to: SocketAddr,
    request: BindRequest,
    limit: Duration,
    wait: Wait,
    ask_after: Duration,
    security: Option<(ClientSecurity, Place)>,
}

impl Fallback for OverUdpInstead {
    type Provider = HandleSource;

    fn fall_back(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<DatagramPath<HandleSource>, CallError> {
        let (to, until) = (Route::Udp(self.to), bind_until(self.limit, deadline));
        let channel = match &self.security {
            None => None,
            Some((security, place)) => {
                let wants = Wants { security, place };
                Some(handles::shake_over(&to, self.request, wants, until)?)
            }
        };
        let association = Arc::new(self.link.association.with_route(to, channel));
        let granted = association.bind(frame, self.request, until)?;
        let joined = maintained(Arc::clone(&association))?;
        let again = HandleSource { joined, request: self.request, limit: self.limit };
        let first = BoundOver::Frame(frame);
        let (wait, ask_after) = (self.wait, self.ask_after);
        Ok(DatagramPath::new(association, first, granted, wait, ask_after, again))
    }

    fn device(&self) -> String {
        format!("{} at `{}`", self.link_port.describe(), self.link_port.interface().name)
    }
}

/// Returns the time until which a call with this deadline may wait for a bind.
fn bind_until(limit: Duration, deadline: Option<Instant>) -> Instant {
    let until = until(limit);
    deadline.map_or(until, |deadline| deadline.min(until))
}

/// How packets reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Udp,
    /// Over raw Ethernet. `asked` is true if the user's address names raw Ethernet explicitly.
    Ethernet {
        asked: bool,
    },
}

/// Finds the first server that answers at these addresses. Returns the server's UDP address, the route to the
/// server over the link, and the link port of that route. A link port is the state that all sockets at one
/// interface share. `asked` is true if the user's address names raw Ethernet explicitly.
fn link_to(
    addresses: &[SocketAddr],
    asked: bool,
    options: &BindOptions,
    until: Instant,
) -> Result<(SocketAddr, Route, Arc<LinkPort>), CallError> {
    let unreachable = |text: String| CallError::not_executed(Kind::Unreachable, Phase::Bind, text);
    let (number, there) = where_on_link(&over_udp(addresses), until)?;
    let Some(node) = there else {
        let text =
            "the server does not speak raw Ethernet there: it listens at `udp:`, not at `eth:`";
        return Err(unreachable(text.to_owned()));
    };
    let to = addresses[number];
    let own = Udp::connected(to).and_then(|socket| socket.local());
    let interface = own.and_then(|own| sys::interface_of(own.ip()));
    let interface = interface.map_err(|error| {
        CallError::system(
            Phase::Bind,
            "cannot find the network interface of the route to the server",
            error,
        )
    })?;
    let by = EthernetDevice::by(options.ethernet, asked);
    let link_port = LinkPort::at(&interface, by, None).map_err(|error| {
        let what = format!("cannot use raw Ethernet at `{}`", interface.name);
        CallError::system(Phase::Bind, what, error).denied_means(NO_RAW_ETHERNET)
    })?;
    Ok((to, Route::Link(Arc::clone(&link_port), node), link_port))
}

/// Binds over the link to the first server that answers at these addresses. If the server does not answer at
/// its location on the link, the server may be gone. Another server may then have started at another
/// location. So the client asks for the location again from time to time.
fn attach_over_link(
    addresses: &[SocketAddr],
    asked: bool,
    request: BindRequest,
    bytes: usize,
    options: &BindOptions,
    security: Option<Wants<'_>>,
    until: Instant,
) -> Result<(SocketAddr, Arc<LinkPort>, Attached), CallError> {
    let mut patience = LINK_PATIENCE;
    loop {
        let (to, route, link_port) = link_to(addresses, asked, options, until)?;
        let soon = until.min(Instant::now() + patience);
        match attach(&[route], request, bytes, options, security, soon) {
            Err(error) if error.kind() == Kind::TimedOut && Instant::now() < until => {
                patience *= 2;
            }
            done => return Ok((to, link_port, done?)),
        }
    }
}

fn over_udp(addresses: &[SocketAddr]) -> Vec<Route> {
    addresses.iter().copied().map(Route::Udp).collect()
}

fn bind_request(
    name: &str,
    digest: Option<Digest>,
    bytes: usize,
    payload_check: bool,
) -> Result<BindRequest, CallError> {
    let Some(name) = ExportName::new(name.as_bytes()) else {
        let text = format!("`{name}` is too long for a name");
        return Err(CallError::not_executed(Kind::BadName, Phase::Resolve, text));
    };
    Ok(BindRequest {
        name,
        digest: digest.map(|digest| digest.0),
        handles: 1,
        piece: 0,
        result_bytes_max: bytes as u32,
        credits: 0,
        payload_check,
    })
}

/// Binds to a name at a place. The client first requests the message size that it prefers. If the server
/// refuses this size as too large, the client requests the size that every server grants, or more if the
/// client needs more.
fn bind(over: Over, place: &Place, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
    let Wanted { interface, options, .. } = *wanted;
    let message_bytes = options.message_bytes_for(interface);
    let least = options.message_bytes_asked(interface);
    match bind_for(over, place, wanted, message_bytes) {
        Err(error) if error.kind() == Kind::TooLarge && least < message_bytes => {
            bind_for(over, place, wanted, least)
        }
        bound => bound,
    }
}

/// Binds for messages of at most `asked` bytes.
fn bind_for(
    over: Over,
    place: &Place,
    wanted: &Wanted<'_>,
    asked: usize,
) -> Result<BoundPath, CallError> {
    let Wanted { name, interface, digest, options, until } = *wanted;
    // Further bindings may share the association. So its frames have at least the default size.
    let bytes = asked.max(options.message_bytes_default());
    let security = options.security.as_ref().map(|security| Wants { security, place });
    // The tag of an encrypted packet protects the payload, too.
    let check = security.is_none() && options.payload_check.unwrap_or(over != Over::Udp);
    // Each handle occupies a record of the server. So the first request asks for one handle only. The frames
    // of further threads request handles when they need them.
    let request = bind_request(name, digest, asked, check)?;
    let addresses = place.resolve()?;
    if options.wait == Wait::Adaptive {
        // Measures the cost of sleeping and waking now, so that the measurement does not delay the first
        // call.
        block_cost();
    }
    let (path, joined, order): (Box<dyn CallPath>, _, _) = match over {
        Over::Udp => {
            let Attached { joined, path, order } =
                attach(&over_udp(&addresses), request, bytes, options, security, until)?;
            options.check_granted(interface, path.call_bytes_max())?;
            (Box::new(path), joined, order)
        }
        Over::Ethernet { asked } => {
            let (to, link_port, Attached { joined, path, order }) =
                attach_over_link(&addresses, asked, request, bytes, options, security, until)?;
            options.check_granted(interface, path.call_bytes_max())?;
            let (link, limit, wait) = (Arc::clone(&joined), options.bind_limit, options.wait);
            let ask_after = options.ask_after;
            let handles = options.astacks.min(HANDLES_ASKED) as u16;
            let payload_check = security.is_none() && options.payload_check.unwrap_or(false);
            let security = options.security.clone().map(|security| (security, place.clone()));
            let request = BindRequest { payload_check, handles, ..request };
            let instead =
                OverUdpInstead { link, link_port, to, request, limit, wait, ask_after, security };
            (Box::new(LinkedPath::new(path, instead)), joined, order)
        }
    };
    Ok(BoundPath { path, frames: Arc::clone(&joined.association.frames), order })
}
