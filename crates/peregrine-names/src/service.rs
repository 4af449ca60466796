//! [`NameService`]: the server's objects over a directory, and their limits.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use peregrine::directory::{Directory, Offer, Offers};
use peregrine::{Address, CallError, Executed, ExportOptions, Kind, Phase, Server, caller, limits};

use crate::access::Access;
use crate::bindings::Bindings;
use crate::client::HOPS;
use crate::interface::{
    Failure, Interface, Known, Lookup, LookupServer, NameWatchAsyncServer, NamesError, Page,
    Returned, watch_name,
};
use crate::keeper::Keeper;
use crate::shares::Shares;
use crate::watching::Watched;

/// The largest number of names in a page.
const PAGE_MAX: usize = 1000;
/// The largest number of name services that may be in a row, each of which is the directory of the one
/// before. A longer row is a loop.
const HOPS_MAX: u32 = 4;

/// The bounds of a name service.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) has_calls: bool,
    pub(crate) calls: usize,
    pub(crate) watches: usize,
    pub(crate) arguments_bytes: usize,
    pub(crate) result_bytes: usize,
    pub(crate) time: Duration,
}

/// A name service over a directory: see the [crate].
///
/// ```
/// use std::sync::Arc;
///
/// use peregrine::directory::Hosts;
/// use peregrine_names::NameService;
///
/// let service = NameService::new(Arc::new(Hosts::of_environment())).calls(8).bindings(64);
/// ```
pub struct NameService {
    directory: Arc<dyn Directory>,
    limits: Limits,
    bindings: usize,
}

impl fmt::Debug for NameService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameService({}, {:?})", self.directory.describe(), self.limits)
    }
}

impl NameService {
    /// Makes a name service over a directory.
    pub fn new(directory: Arc<dyn Directory>) -> Self {
        let limits = Limits {
            has_calls: true,
            calls: 32,
            watches: 1024,
            arguments_bytes: 256 << 10,
            result_bytes: limits::MESSAGE_BYTES_ASKED,
            time: Duration::from_secs(60),
        };
        Self { directory, limits, bindings: 256 }
    }

    /// Sets the maximum number of second calls that run at the same time. The default is 32. Others are
    /// refused as not executed. Reading an interface from a server counts as a call. One caller (a process of
    /// this machine, or another host) gets at most half of what the others leave, but at least one. With 0,
    /// the service makes no calls: it only finds servers.
    #[must_use]
    pub const fn calls(mut self, most: usize) -> Self {
        self.limits.calls = most;
        self.limits.has_calls = most > 0;
        self
    }

    /// Sets the maximum number of bindings to servers that the service keeps. The default is 256. A binding
    /// without calls ends after a minute.
    #[must_use]
    pub const fn bindings(mut self, most: usize) -> Self {
        self.bindings = most;
        self
    }

    /// Sets the maximum number of watches. The default is 1,024. One caller gets at most half of what the
    /// others leave, as for [`calls`](Self::calls).
    #[must_use]
    pub const fn watches(mut self, most: usize) -> Self {
        self.limits.watches = most;
        self
    }

    /// Sets the maximum size of the arguments of a second call, as JSON, in bytes. The default is 256 KiB.
    /// While they are converted, arguments may need some 60 times as much memory.
    #[must_use]
    pub const fn arguments_bytes(mut self, most: usize) -> Self {
        self.limits.arguments_bytes = most;
        self
    }

    /// Sets the maximum size of the result of a second call as JSON, in bytes. The default is 1 MiB. The
    /// conversion to JSON ends when the text becomes longer. Until then, it may need some 100 times as much
    /// memory as the text.
    ///
    /// The buffers that a procedure fills have at most this size together. A server's message may have as many
    /// bytes, and its values may need some 250 times as much memory, before they are converted. If the
    /// interface declares larger messages, they may have up to [`limits::MESSAGE_BYTES`], but only for
    /// procedures that return a few texts, numbers and sequences of plain values. These need little more
    /// memory than their message. So a directory should name only servers that do not attack the name service.
    #[must_use]
    pub const fn result_bytes(mut self, most: usize) -> Self {
        self.limits.result_bytes = most;
        self
    }

    /// Sets the longest time that a second call may take. The default is a minute. A caller may give a shorter
    /// limit.
    #[must_use]
    pub const fn time(mut self, limit: Duration) -> Self {
        self.limits.time = limit;
        self
    }

    /// Exports the service from `server` under `name`, and its watches under [`watch_name`].
    ///
    /// # Errors
    /// If the server cannot export these names, or no thread can be started.
    pub fn export(
        self,
        server: Server,
        name: &str,
        options: &ExportOptions,
    ) -> Result<Server, CallError> {
        let message = self.limits.result_bytes.max(self.limits.arguments_bytes);
        let message = message.max(limits::MESSAGE_BYTES_MIN);
        let bindings = Arc::new(Bindings::new(self.bindings, message));
        let keeper = Keeper::start(Arc::clone(&self.directory), Arc::clone(&bindings));
        let keeper = keeper.map_err(|error| {
            let text = format!("cannot start the thread of the name service: {error}");
            CallError::new(Kind::Exhausted, Executed::No, text).in_phase(Phase::Export)
        })?;
        let (directory, limits) = (self.directory, self.limits);
        let (running, watches) = (Shares::new(limits.calls), Shares::new(limits.watches));
        let turn = AtomicUsize::new(0);
        let shared =
            Arc::new(Shared { directory, limits, bindings, keeper, running, watches, turn });
        let service = LookupServer::new(Service(Arc::clone(&shared)));
        let watched = NameWatchAsyncServer::new(Watched(shared));
        let server = server.export_with(name, service, options.clone())?;
        server.export_with(&watch_name(name), watched, options.clone())
    }
}

/// What the objects of a name service share.
pub(crate) struct Shared {
    pub(crate) directory: Arc<dyn Directory>,
    pub(crate) limits: Limits,
    pub(crate) bindings: Arc<Bindings>,
    pub(crate) keeper: Keeper,
    /// The permits of the second calls that run.
    pub(crate) running: Shares,
    /// The places of watches.
    pub(crate) watches: Shares,
    /// Which server of a name is called first, if their order means nothing.
    pub(crate) turn: AtomicUsize,
}

impl Shared {
    /// # Errors
    /// If a caller may not ask for a name, or if the question has come back to where it was asked before.
    pub(crate) fn check(&self, name: &str) -> Result<(), Failure> {
        self.check_hops()?;
        let is_name = !name.starts_with('.')
            && name.parse::<Address>().is_ok_and(|address| {
                address.name() == name && address.place().is_none() && address.path().is_none()
            });
        if is_name {
            return Ok(());
        }
        let shown: String = name.chars().take(limits::NAME_BYTES_MAX).collect();
        let text = format!(
            "`{}` is not a name of a directory: a name has 1 to 64 letters, digits, '-', '_' or '.' and \
             does not begin with a dot",
            shown.escape_default()
        );
        Err(Failure::new(Kind::BadName, text))
    }

    /// # Errors
    /// If this question has come through too many name services.
    pub(crate) fn check_hops(&self) -> Result<(), Failure> {
        let caller = caller();
        let hops = caller.as_ref().and_then(|caller| caller.metadata().get(HOPS));
        if hops.is_some_and(|hops| hops.parse::<u32>().is_ok_and(|hops| hops > HOPS_MAX)) {
            let text = format!(
                "more than {HOPS_MAX} name services have passed this question on. Probably {} leads back \
                 to one of them: choose another --directory for one of them",
                self.directory.describe()
            );
            return Err(Failure::new(Kind::BadName, text));
        }
        Ok(())
    }

    /// Returns what a caller learns of these servers: without the addresses that mean another machine there.
    pub(crate) fn known(&self, mut offers: Offers, access: Access) -> Known {
        let mut left_out = Vec::new();
        offers.servers = core::mem::take(&mut offers.servers)
            .into_iter()
            .filter_map(|offer| {
                let meant =
                    |address: &&Address| address.place().is_some() && access.is_meant(address);
                let addresses = offer.addresses().iter().filter(meant).map(ToString::to_string);
                let addresses: Vec<_> = addresses.collect();
                let known = Offer::new(offer.server(), &addresses).ok();
                let known = known.map(|known| known.with_priority(offer.priority()));
                if known.is_none() {
                    left_out.push(offer.to_string());
                }
                known
            })
            .collect();
        for offer in left_out {
            let text = "which only the machine of the name service can reach";
            offers.remark(&format!("left out: {offer}, {text}"));
        }
        Known::new(&offers, self.directory.is_ordered())
    }
}

/// The object of the export of a name service.
struct Service(Arc<Shared>);

impl Lookup for Service {
    fn resolve(&self, name: &str) -> Result<Known, NamesError> {
        self.0.check(name)?;
        let offers = self.0.directory.look_up(name).map_err(|error| Failure::before(&error))?;
        Ok(self.0.known(offers, Access::of(caller().as_ref())))
    }

    fn names(&self, after: &str, most: u32) -> Result<Page, NamesError> {
        self.0.check_hops()?;
        let mut names = self.0.directory.names().map_err(|error| Failure::before(&error))?;
        names.retain(|name| &**name > after);
        names.sort_unstable();
        let most = (most as usize).clamp(1, PAGE_MAX);
        let has_more = names.len() > most;
        names.truncate(most);
        Ok(Page { names, has_more })
    }

    fn describe(&self, name: &str) -> Result<Interface, NamesError> {
        self.0.check(name)?;
        Ok(self.0.interface_of(name)?)
    }

    fn call(&self, name: &str, procedure: &str, arguments: &str) -> Result<Returned, NamesError> {
        self.0.check(name)?;
        Ok(self.0.second_call(name, procedure, arguments)?)
    }
}

impl Shared {
    /// Returns the number of the first server that is tried, out of `count`.
    pub(crate) fn first_of(&self, count: usize) -> usize {
        if self.directory.is_ordered() || count == 0 {
            return 0;
        }
        self.turn.fetch_add(1, Ordering::Relaxed) % count
    }
}
