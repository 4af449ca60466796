//! Binding over datagrams: a handle from whoever listens at an address, and an association with it
//! that all bindings of this process share.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};

use super::ladder::Wanted;
use super::session::{refused, until};
use super::{BindOptions, Binding, EthernetDevice, Explanation, Leg, Verdict};
use crate::address::Place;
use crate::call::{CallPath, Limit, Wait};
use crate::device::udp::Udp;
use crate::device::{Route, Station};
use crate::error::{CallError, Kind, NO_THREAD, Phase};
use crate::interface::{Description, Digest, Known};
use crate::keeper::{Keeper, Next, Watch, Watched};
use crate::limits;
use crate::path::datagram::{
    self, Association, DESCRIBE, DatagramPath, Fallback, Granted, LinkedPath, OWED, Renew,
};
use crate::path::local::{RegionLayout, block_cost};
use crate::protocol::exchange::bind::{Name, Wish};
use crate::protocol::stream::description_from_bytes;
use crate::sys::{self, ForkMark};
use crate::value::ByteOrder;

/// Handles that are asked for together once one is not enough.
const HANDLES_ASKED: u32 = 4;

/// An association, and the keeper's eye on it.
struct Joined {
    // First, so that nothing is tended any more when the rest goes.
    watch: Watch,
    association: Arc<Association>,
    mark: ForkMark,
}

/// The keeper's view: nothing ever happens, but now and then something is owed.
struct Tending {
    association: Arc<Association>,
    /// Never readable.
    event: OwnedFd,
}

impl Watched for Tending {
    fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn interest(&self) -> EventFlags {
        EventFlags::empty()
    }

    fn ready(self: Arc<Self>) -> Next {
        Next::Sleep
    }

    fn tick(self: Arc<Self>) -> Next {
        if self.association.tend() { Next::Tend(OWED / 2) } else { Next::Sleep }
    }
}

/// What a binding needs to get further handles.
struct Again {
    joined: Arc<Joined>,
    wish: Wish,
    limit: Duration,
    /// Which server it was.
    incarnation: u64,
}

impl Renew for Again {
    fn renew(&self, deadline: Option<Instant>) -> Result<Granted, CallError> {
        let until = in_time(self.limit, deadline);
        let renewed = self.joined.association.bind(self.wish, until);
        let renewed = renewed.map_err(|error| datagram::lost(error, deadline))?;
        same_server(renewed.0.incarnation, self.incarnation)?;
        Ok(renewed)
    }

    fn remind(&self) {
        self.joined.watch.remind(OWED / 2);
    }

    fn is_own(&self) -> bool {
        !self.joined.mark.wiped()
    }
}

/// The association of this process that takes a route, for messages of so many bytes.
fn join(to: &Route, bytes: usize, options: &BindOptions) -> Result<Arc<Joined>, CallError> {
    struct Table {
        /// A forked child begins with none: its parent's sockets are not its own.
        owner: u32,
        joined: Vec<Weak<Joined>>,
    }
    static TABLE: Mutex<Option<Table>> = Mutex::new(None);
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let owner = std::process::id();
    if table.as_ref().is_none_or(|table| table.owner != owner) {
        // Not dropped: a thread that the child does not have may hold locks in it.
        core::mem::forget(table.replace(Table { owner, joined: Vec::new() }));
    }
    let joined = &mut table.get_or_insert(Table { owner, joined: Vec::new() }).joined;
    joined.retain(|one| one.strong_count() > 0);
    let fits =
        |one: &Arc<Joined>| one.association.to() == to && one.association.message_bytes() >= bytes;
    if let Some(known) = joined.iter().filter_map(Weak::upgrade).find(fits) {
        return Ok(known);
    }
    let system =
        |what: &'static str| move |error| CallError::system(Phase::Bind, String::from(what), error);
    let room = RegionLayout::at_most(options.astacks.max(limits::ASTACKS_SPARSE), bytes);
    let count = room.map_or(1, |room| room.count);
    let association = Association::new(to.clone(), count, options.astacks.min(count), bytes);
    let association = Arc::new(association.map_err(system("no memory for the frames"))?);
    let new = watched(association)?;
    joined.push(Arc::downgrade(&new));
    Ok(new)
}

/// An association, and the keeper's eye on it.
fn watched(association: Arc<Association>) -> Result<Arc<Joined>, CallError> {
    let system =
        |what: &'static str| move |error| CallError::system(Phase::Bind, String::from(what), error);
    let event = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| {
        CallError::system(Phase::Bind, "no descriptor".to_owned(), error.into())
    })?;
    let keeper = Keeper::of_process().map_err(system(NO_THREAD))?;
    let tending = Tending { association: Arc::clone(&association), event };
    let watch = keeper.watch(Arc::new(tending)).map_err(system("watching the association"))?;
    let mark = ForkMark::of_process().map_err(system("no memory for the fork mark"))?;
    Ok(Arc::new(Joined { watch, association, mark }))
}

/// What a binding over a link needs to go on over UDP.
struct Otherwise {
    link: Arc<Joined>,
    station: Arc<Station>,
    to: SocketAddr,
    wish: Wish,
    limit: Duration,
    incarnation: u64,
    wait: Wait,
}

impl Fallback for Otherwise {
    type Renew = Again;

    fn fall_back(&self, deadline: Option<Instant>) -> Result<DatagramPath<Again>, CallError> {
        let to = Route::Udp(self.to);
        let granted = datagram::bind(&to, self.wish, in_time(self.limit, deadline))?;
        let joined = watched(Arc::new(self.link.association.beside(to)))?;
        same_server(granted.0.incarnation, self.incarnation)?;
        let association = Arc::clone(&joined.association);
        let Self { wish, limit, incarnation, .. } = *self;
        let again = Again { joined, wish, limit, incarnation };
        Ok(DatagramPath::new(association, granted, self.wait, again))
    }

    fn device(&self) -> String {
        format!("{} at `{}`", self.station.describe(), self.station.interface().name)
    }
}

/// The moment until which a call may wait for what it needs of binding.
fn in_time(limit: Duration, deadline: Option<Instant>) -> Instant {
    let until = until(limit);
    deadline.map_or(until, |deadline| deadline.min(until))
}

/// One that has come since may know other things under the name: whoever bound decides.
fn same_server(now: u64, then: u64) -> Result<(), CallError> {
    if now == then {
        return Ok(());
    }
    let text = "the server was started again, and knows none of its callers";
    Err(CallError::not_executed(Kind::ServerGone, Phase::Call, text))
}

/// How a place is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    Udp,
    Ethernet,
}

/// The route over the link to a server that listens at an address, and what this process has there.
fn link_to(
    to: SocketAddr,
    options: &BindOptions,
    until: Instant,
) -> Result<(Route, Arc<Station>), CallError> {
    let unreachable = |text: String| CallError::not_executed(Kind::Unreachable, Phase::Bind, text);
    let there = datagram::where_on_link(&Route::Udp(to), until)?;
    let Some(node) = there else {
        let text =
            "the server does not speak raw Ethernet there: it listens at `udp:`, not at `eth:`";
        return Err(unreachable(text.to_owned()));
    };
    let own = Udp::connected(to).and_then(|socket| socket.local());
    let interface = own.and_then(|own| sys::interface_of(own.ip()));
    let interface = interface.map_err(|error| {
        CallError::system(Phase::Bind, "finding the interface that leads there", error)
    })?;
    let queue = options.ethernet == EthernetDevice::Any;
    let station = Station::at(&interface, queue, None).map_err(|error| {
        let what = format!("speaking raw Ethernet at `{}`", interface.name);
        CallError::system(Phase::Bind, what, error)
    })?;
    Ok((Route::Link(Arc::clone(&station), node), station))
}

fn wish(
    name: &str,
    digest: Option<Digest>,
    bytes: usize,
    payload_check: bool,
) -> Result<Wish, CallError> {
    let Some(name) = Name::new(name.as_bytes()) else {
        let text = format!("`{name}` is longer than a name may be");
        return Err(CallError::not_executed(Kind::BadName, Phase::Resolve, text));
    };
    Ok(Wish {
        name,
        digest: digest.map(|digest| digest.0),
        handles: 1,
        piece: 0,
        result_bytes_max: bytes as u32,
        credits: 0,
        payload_check,
    })
}

/// Binds to a name at a place.
pub(super) fn bind(over: Over, place: &Place, wanted: &Wanted<'_>) -> Result<Leg, CallError> {
    let Wanted { name, interface, digest, options, until } = *wanted;
    let bytes = options.message_bytes_for(interface).next_multiple_of(16);
    // One handle is one record at the server. Who calls from several threads gets more when they do.
    let check = options.payload_check.unwrap_or(over == Over::Ethernet);
    let wish = wish(name, digest, bytes, check)?;
    let mut last = None;
    for to in place.resolve()? {
        let (route, station) = match over {
            Over::Udp => (Route::Udp(to), None),
            Over::Ethernet => match link_to(to, options, until) {
                Ok((route, station)) => (route, Some(station)),
                Err(error) if error.kind() == Kind::Unreachable => {
                    last = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let granted = match datagram::bind(&route, wish, until) {
            Ok(granted) => granted,
            Err(error) if error.kind() == Kind::Unreachable => {
                last = Some(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let joined = join(&route, bytes, options)?;
        let association = Arc::clone(&joined.association);
        association.frames.at_least(options.astacks);
        let frames = Arc::clone(&association.frames);
        let (limit, incarnation) = (options.bind_limit, granted.0.incarnation);
        let order = if granted.0.big_endian { ByteOrder::Big } else { ByteOrder::Little };
        let wish = Wish { handles: options.astacks.min(HANDLES_ASKED) as u16, ..wish };
        let again = Again { joined: Arc::clone(&joined), wish, limit, incarnation };
        if options.wait == Wait::Adaptive {
            // Measured before the first call rather than in it.
            block_cost();
        }
        let path = DatagramPath::new(association, granted, options.wait, again);
        let path: Box<dyn CallPath> = match station {
            None => Box::new(path),
            Some(station) => {
                let (link, wait) = (joined, options.wait);
                let wish = Wish { payload_check: options.payload_check.unwrap_or(false), ..wish };
                let otherwise = Otherwise { link, station, to, wish, limit, incarnation, wait };
                Box::new(LinkedPath::new(path, otherwise))
            }
        };
        return Ok(Leg { path, frames, order });
    }
    Err(last.unwrap_or_else(|| refused(0, "the place has no address".into())))
}

/// What an export says of itself.
pub(super) fn describe(
    over: Over,
    place: &Place,
    name: &str,
    options: &BindOptions,
    limit: Duration,
) -> Result<Description, CallError> {
    let interface = &Known::none();
    let wanted = Wanted { name, interface, digest: None, options, until: until(limit) };
    let leg = bind(over, place, &wanted)?;
    let explanation = Explanation::all("", Verdict::Excluded, "");
    let binding = Binding::of_leg(leg, interface.clone(), explanation, options)?;
    let binding = binding.with_limit(Limit::Within(limit));
    let bytes = crate::stub::ask(&binding, DESCRIBE)?;
    description_from_bytes(&bytes).ok_or_else(|| refused(0, "its answer is not readable".into()))
}
