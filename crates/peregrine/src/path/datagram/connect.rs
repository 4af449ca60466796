//! Binding over datagrams: a handle from whoever listens at an address, and an association with it
//! that all bindings of this process share.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::client::association::{Association, OWED};
use super::client::fallback::{Fallback, LinkedPath};
use super::client::handles::{self as handles, Granted, where_on_link};
use super::client::{BoundOver, DatagramPath, Renew};
use super::wire::DESCRIBE;
use crate::address::{Address, Place};
use crate::call::{CallPath, OnExhausted, PathKind, Wait, block_cost, frames_that_fit};
use crate::device::udp::Udp;
use crate::device::{LinkPort, Route};
use crate::error::{CallError, Kind, NO_RAW_ETHERNET, NO_THREAD, Phase};
use crate::interface::Digest;
use crate::keeper::{Keeper, Next, Watch};
use crate::limits;
use crate::path::bind::{BoundPath, Connect, Inquiry, STAGGER, Target, Wanted, system, until};
use crate::path::options::{BindOptions, EthernetDevice};
use crate::protocol::exchange::bind::{BindRequest, ExportName};
use crate::registry::Registry;
use crate::sync::Rank;
use crate::sys::{self, ForkMark};
use crate::value::ByteOrder;

/// The client half of the datagram path over UDP.
pub(crate) struct OverUdp;

/// The client half of the datagram path over raw Ethernet.
pub(crate) struct OverEthernet;

impl Connect for OverUdp {
    fn kind(&self) -> PathKind {
        PathKind::Udp
    }

    fn leads_to(&self, target: &Address) -> bool {
        target.place().is_some()
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

    fn leads_to(&self, target: &Address) -> bool {
        target.place().is_some()
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        bind(Over::Ethernet { asked: target.is_asked }, target.place()?, wanted)
    }

    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Ok(Inquiry::Call { path: self.bind(target, wanted)?, procedure: DESCRIBE })
    }
}

/// How long a server may be silent on the link, at first, until it is asked again where it is.
const LINK_PATIENCE: Duration = Duration::from_millis(500);

/// Handles that are asked for together by those who share a socket.
const HANDLES_ASKED: u32 = 4;

/// An association, and the keeper's eye on it.
struct Joined {
    // First, so that nothing is tended any more when the rest goes.
    watch: Watch,
    association: Arc<Association>,
    mark: ForkMark,
}

/// What a binding needs to get further handles.
struct Again {
    joined: Arc<Joined>,
    wish: BindRequest,
    limit: Duration,
}

impl Renew for Again {
    fn wish(&self) -> BindRequest {
        self.wish
    }

    fn until(&self, deadline: Option<Instant>) -> Instant {
        in_time(self.limit, deadline)
    }

    fn remind(&self) {
        self.joined.watch.remind(OWED / 2);
    }

    fn is_own(&self) -> bool {
        !self.joined.mark.wiped()
    }
}

/// The associations of this process, in one entry, the newest last. Its lock is not held while a
/// thread binds: an association is found by any of its routes.
static ASSOCIATIONS: Registry<(), Joined> = Registry::new(Rank::Associations);

/// Runs `with` on the associations that live.
fn with_table<T>(with: impl FnOnce(&mut Vec<Weak<Joined>>) -> T) -> T {
    let entry = ASSOCIATIONS.entry(());
    let mut joined = entry.lock();
    joined.retain(|one| one.strong_count() > 0);
    with(&mut joined)
}

/// Associations that one who binds tries before others: behind a balancer there is one for each server.
const KNOWN_MAX: usize = 2;

/// The associations of this process that take one of some routes, for messages of so many bytes.
fn known(routes: &[Route], bytes: usize) -> Vec<Arc<Joined>> {
    let fits = |one: &Arc<Joined>| {
        let association = &one.association;
        !association.is_lost()
            && association.message_bytes() >= bytes
            && routes.contains(association.to())
    };
    // They are dropped elsewhere than under the table's lock.
    let all =
        with_table(|joined| joined.iter().rev().filter_map(Weak::upgrade).collect::<Vec<_>>());
    all.into_iter().filter(fits).take(KNOWN_MAX).collect()
}

/// No binding joins an association any more over which there was no answer. Its own bindings keep it.
fn retire(silent: &Arc<Joined>) {
    with_table(|joined| joined.retain(|one| Weak::as_ptr(one) != Arc::as_ptr(silent)));
}

/// A binding to a name, over the socket of one frame.
struct Attached {
    joined: Arc<Joined>,
    path: DatagramPath<Again>,
    order: ByteOrder,
}

/// Binds by the first of some routes where a server answers. What this process has at one of them is
/// tried first, for a moment.
fn attach(
    routes: &[Route],
    wish: BindRequest,
    bytes: usize,
    options: &BindOptions,
    until: Instant,
) -> Result<Attached, CallError> {
    for joined in known(routes, wish.result_bytes_max as usize) {
        let association = &*joined.association;
        let (now, patience) = (Instant::now(), STAGGER.max(association.round_trip() * 4));
        // A new socket is to have its time, too, however little there is.
        let soon = now + patience.min(until.saturating_duration_since(now) / 2);
        let is_released = |frame| association.is_released(frame);
        let Some(taken) = association.frames.take(|| Some(soon), is_released, OnExhausted::More)
        else {
            continue;
        };
        match association.bind(taken.index(), wish, soon) {
            Ok(granted) => {
                let first = BoundOver::Frame(taken.index());
                return Ok(attached(Arc::clone(&joined), first, granted, wish, options));
            }
            Err(error) if is_answer(error.kind()) => return Err(error),
            // Perhaps its sockets are of no use any more. Not even the next one who binds tries them:
            // it may have as little time.
            Err(error) => {
                drop(taken);
                if matches!(error.kind(), Kind::TimedOut | Kind::Unreachable) {
                    retire(&joined);
                }
            }
        }
    }
    let (route, socket, granted) = handles::bind(routes, wish, until)?;
    let count = frames_that_fit(options.astacks.max(limits::ASTACKS_SPARSE), bytes);
    let (to, active) = (routes[route].clone(), options.astacks.min(count));
    let association = Association::new(to, &granted, count, active, bytes).map_err(|error| {
        CallError::system(Phase::Bind, "no memory for the frames".to_owned(), error)
    })?;
    let joined = watched(Arc::new(association))?;
    with_table(|table| table.push(Arc::downgrade(&joined)));
    Ok(attached(joined, BoundOver::Socket(socket), granted, wish, options))
}

/// Whether a server has said so.
const fn is_answer(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::TimedOut | Kind::Unreachable | Kind::ServerGone | Kind::System | Kind::Exhausted
    )
}

/// A binding whose first handle was bound so.
fn attached(
    joined: Arc<Joined>,
    first: BoundOver,
    granted: Granted,
    wish: BindRequest,
    options: &BindOptions,
) -> Attached {
    let association = Arc::clone(&joined.association);
    association.frames.at_least(options.astacks);
    let order = if granted.grant.big_endian { ByteOrder::Big } else { ByteOrder::Little };
    let wish = BindRequest { handles: options.astacks.min(HANDLES_ASKED) as u16, ..wish };
    let again = Again { joined: Arc::clone(&joined), wish, limit: options.bind_limit };
    let (wait, ask_after) = (options.wait, options.ask_after);
    let path = DatagramPath::new(association, first, granted, wait, ask_after, again);
    Attached { joined, path, order }
}

/// An association, and the keeper's eye on it.
fn watched(association: Arc<Association>) -> Result<Arc<Joined>, CallError> {
    let keeper = Keeper::of_process().map_err(system(NO_THREAD))?;
    let tended = Arc::clone(&association);
    // Now and then something is owed.
    let tick = move || if tended.tend() { Next::SleepAndTick(OWED / 2) } else { Next::Sleep };
    let watch = keeper.watch_timer(tick).map_err(system("watching the association"))?;
    let mark = ForkMark::of_process().map_err(system("no memory for the fork mark"))?;
    Ok(Arc::new(Joined { watch, association, mark }))
}

/// What a binding over a link needs to go on over UDP.
struct Otherwise {
    link: Arc<Joined>,
    link_port: Arc<LinkPort>,
    to: SocketAddr,
    wish: BindRequest,
    limit: Duration,
    wait: Wait,
    ask_after: Duration,
}

impl Fallback for Otherwise {
    type Renew = Again;

    fn fall_back(
        &self,
        frame: u32,
        deadline: Option<Instant>,
    ) -> Result<DatagramPath<Again>, CallError> {
        let association = Arc::new(self.link.association.beside(Route::Udp(self.to)));
        let granted = association.bind(frame, self.wish, in_time(self.limit, deadline))?;
        let joined = watched(Arc::clone(&association))?;
        let again = Again { joined, wish: self.wish, limit: self.limit };
        let first = BoundOver::Frame(frame);
        let (wait, ask_after) = (self.wait, self.ask_after);
        Ok(DatagramPath::new(association, first, granted, wait, ask_after, again))
    }

    fn device(&self) -> String {
        format!("{} at `{}`", self.link_port.describe(), self.link_port.interface().name)
    }
}

/// The moment until which a call may wait for what it needs of binding.
fn in_time(limit: Duration, deadline: Option<Instant>) -> Instant {
    let until = until(limit);
    deadline.map_or(until, |deadline| deadline.min(until))
}

/// How a place is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Udp,
    /// Whether the address names it.
    Ethernet {
        asked: bool,
    },
}

/// The route over the link to the first server that answers at some addresses, and what this process has
/// there. `asked`: the address names raw Ethernet.
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
        CallError::system(Phase::Bind, "finding the interface that leads there", error)
    })?;
    let by = EthernetDevice::by(options.ethernet, asked);
    let link_port = LinkPort::at(&interface, by, None).map_err(|error| {
        let what = format!("speaking raw Ethernet at `{}`", interface.name);
        CallError::system(Phase::Bind, what, error).denied_means(NO_RAW_ETHERNET)
    })?;
    Ok((to, Route::Link(Arc::clone(&link_port), node), link_port))
}

/// Binds over the link to the first server that answers at some addresses. One that does not answer where
/// it said it is may be gone, and another one be elsewhere: after a while the addresses are asked again.
fn attach_over_link(
    addresses: &[SocketAddr],
    asked: bool,
    wish: BindRequest,
    bytes: usize,
    options: &BindOptions,
    until: Instant,
) -> Result<(SocketAddr, Arc<LinkPort>, Attached), CallError> {
    let mut patience = LINK_PATIENCE;
    loop {
        let (to, route, link_port) = link_to(addresses, asked, options, until)?;
        let soon = until.min(Instant::now() + patience);
        match attach(&[route], wish, bytes, options, soon) {
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

fn wish(
    name: &str,
    digest: Option<Digest>,
    bytes: usize,
    payload_check: bool,
) -> Result<BindRequest, CallError> {
    let Some(name) = ExportName::new(name.as_bytes()) else {
        let text = format!("`{name}` is longer than a name may be");
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

/// Binds to a name at a place. A server may refuse the size of message that this client requests by
/// default. Then the client requests the size that every server grants.
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

/// Binds for messages of at most so many bytes.
fn bind_for(
    over: Over,
    place: &Place,
    wanted: &Wanted<'_>,
    asked: usize,
) -> Result<BoundPath, CallError> {
    let Wanted { name, interface, digest, options, until } = *wanted;
    // Bindings share an association, so its frames have the size that most bindings need.
    let bytes = asked.max(options.message_bytes_default());
    // One handle is one record at the server. Who calls from several threads gets more when they do.
    let check = options.payload_check.unwrap_or(over != Over::Udp);
    let wish = wish(name, digest, asked, check)?;
    let addresses = place.resolve()?;
    if options.wait == Wait::Adaptive {
        // Measured before the first call rather than in it.
        block_cost();
    }
    let (path, joined, order): (Box<dyn CallPath>, _, _) = match over {
        Over::Udp => {
            let Attached { joined, path, order } =
                attach(&over_udp(&addresses), wish, bytes, options, until)?;
            options.check_granted(interface, path.call_bytes_max())?;
            (Box::new(path), joined, order)
        }
        Over::Ethernet { asked } => {
            let (to, link_port, Attached { joined, path, order }) =
                attach_over_link(&addresses, asked, wish, bytes, options, until)?;
            options.check_granted(interface, path.call_bytes_max())?;
            let (link, limit, wait) = (Arc::clone(&joined), options.bind_limit, options.wait);
            let ask_after = options.ask_after;
            let handles = options.astacks.min(HANDLES_ASKED) as u16;
            let payload_check = options.payload_check.unwrap_or(false);
            let wish = BindRequest { payload_check, handles, ..wish };
            let otherwise = Otherwise { link, link_port, to, wish, limit, wait, ask_after };
            (Box::new(LinkedPath::new(path, otherwise)), joined, order)
        }
    };
    Ok(BoundPath { path, frames: Arc::clone(&joined.association.frames), order })
}
