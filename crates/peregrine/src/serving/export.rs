//! Exports: a name, the object that is served under the name, and which users may bind to the export.

use core::cell::LazyCell;
use core::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::ServerCore;
use super::access::{Access, Denials, Denied};
use super::binding_table::BindingRow;
use crate::call::{CallerIdentity, CallerInfo, Ending, Identified, PathKind, Serve};
use crate::counters::{ExportCounters, Tally};
use crate::error::{CallError, Kind};
use crate::interface::Description;
use crate::limits;
use crate::observe::{Layer, Layered, Layers, Tap};
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Credentials};

/// The options of an export.
///
/// ```no_run
/// use peregrine::{ExportOptions, Server};
///
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let options = ExportOptions::default().public().astacks_max(4);
/// let running = Server::new().export_with("echo", EchoServer::new(Same), options)?.spawn()?;
/// assert_eq!(running.names(), ["echo"]);
/// running.stop();
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct ExportOptions {
    public: bool,
    users: Vec<u32>,
    groups: Vec<u32>,
    /// The largest number of A-stacks. `None`: [`limits::ASTACKS_MAX`], and fewer for users other than root
    /// and the server's own user.
    astacks_max: Option<u32>,
    /// The largest message size in bytes. `None`: [`limits::MESSAGE_BYTES`], or more if the interface needs
    /// more.
    message_bytes_max: Option<usize>,
    networks_only: bool,
    unregistered: bool,
    layers: Layers,
    access: Access,
}

impl ExportOptions {
    /// Lets every user of the machine bind. By default only the server's user and root may bind.
    pub const fn public(mut self) -> Self {
        self.public = true;
        self
    }

    /// Also lets the users with these user IDs bind.
    ///
    /// ```
    /// # use peregrine::ExportOptions;
    /// let options = ExportOptions::default().users([1000, 1001]).groups([50]);
    /// ```
    pub fn users(mut self, users: impl IntoIterator<Item = u32>) -> Self {
        self.users.extend(users);
        self
    }

    /// Also lets the members of the groups with these group IDs bind. A process is a member if it has the
    /// group as its effective group or as a supplementary group.
    pub fn groups(mut self, groups: impl IntoIterator<Item = u32>) -> Self {
        self.groups.extend(groups);
        self
    }

    /// Lets only callers bind that match one of these patterns. Patterns of several calls of this function add
    /// up. With an empty list, nobody may bind over a network.
    ///
    /// | pattern | who matches |
    /// |---|---|
    /// | `spiffe://example.org/ops/*`, `ops/*` | over networks, certificates with such a SPIFFE ID |
    /// | `ada` | the client whose key has this name in the list of trusted keys |
    /// | `SHA256:...` | the client with the key of this fingerprint |
    /// | `*` | every client that the server trusts |
    /// | `uid:1000` | on this machine, processes of the user with this number |
    /// | `gid:50` | on this machine, processes that have the group with this number |
    ///
    /// `IdentityPattern` in the module `secure` says more about the first four.
    ///
    /// Over networks, such an export is offered only at [endpoints](crate::Server::listen_beyond_this_machine)
    /// with an identity, because nothing else proves who calls. A library without the feature `secure` offers
    /// it on no network.
    ///
    /// On this machine, the server's own user and root may always bind. Others may bind only if they match a
    /// pattern with `uid:` or `gid:`, or one of [`public`](Self::public), [`users`](Self::users) and
    /// [`groups`](Self::groups) admits them.
    ///
    /// A client learns why it may not bind ([`Kind::Denied`]). [`Server::on_denied`](crate::Server::on_denied)
    /// reports it here.
    ///
    /// ```
    /// # use peregrine::ExportOptions;
    /// let options = ExportOptions::default().identities(["ops/*", "backup", "uid:34"]);
    /// ```
    ///
    /// # Errors
    /// [`Server::export_with`](crate::Server::export_with) fails if one of the texts is no pattern.
    pub fn identities<T: AsRef<str>>(mut self, patterns: impl IntoIterator<Item = T>) -> Self {
        self.access.limit(patterns);
        self
    }

    /// Lets only callers call a procedure that match one of these patterns, which are those of
    /// [`identities`](Self::identities). Patterns of several calls of this function add up for each procedure.
    /// With an empty list, nobody but the server's own user and root may call it.
    ///
    /// It replaces what the attribute `#[callers("PATTERN")]` of the method says. It does not let anybody bind
    /// who may not bind otherwise.
    ///
    /// A call of another client is not executed ([`Kind::Denied`]), and reported by
    /// [`Server::on_denied`](crate::Server::on_denied). On this machine, the server's own user and root may call
    /// all procedures. Where nothing proves who calls, such as on a network without encryption, nobody may call
    /// the procedure. Whether a client matches is decided when it binds. An encrypted connection ends when the
    /// names of its client change.
    ///
    /// ```
    /// # use peregrine::{ExportOptions, Server, interface};
    /// #[interface]
    /// trait Files {
    ///     fn list(&self) -> peregrine::Result<Vec<String>>;
    ///     fn erase(&self, name: &str) -> peregrine::Result<()>;
    /// }
    /// # struct Disk;
    /// # impl Files for Disk {
    /// #     fn list(&self) -> peregrine::Result<Vec<String>> { Ok(Vec::new()) }
    /// #     fn erase(&self, _: &str) -> peregrine::Result<()> { Ok(()) }
    /// # }
    /// # let name = format!("doc-allow-{}", std::process::id());
    /// let options = ExportOptions::default().allow("erase", ["ops/*", "uid:0"]);
    /// let server = Server::new().export_with(&name, FilesServer::new(Disk), options)?;
    /// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
    ///
    /// let files = FilesClient::bind(&format!("{}/{name}", running.addresses()[0]))?;
    /// assert_eq!(files.list()?, [""; 0]);
    /// // Nothing proves who calls at this port.
    /// let error = files.erase("notes").unwrap_err();
    /// assert_eq!(error.kind(), peregrine::Kind::Denied);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// [`Server::export_with`](crate::Server::export_with) fails if one of the texts is no pattern, or the
    /// interface has no such procedure.
    pub fn allow<T: AsRef<str>>(
        mut self,
        procedure: &str,
        patterns: impl IntoIterator<Item = T>,
    ) -> Self {
        self.access.limit_procedure(procedure, patterns);
        self
    }

    /// Checks the patterns, and finds the procedures of `serve` that they limit.
    ///
    /// # Errors
    /// If a text is no pattern, or there is no such procedure.
    pub(crate) fn check_access(&mut self, serve: &dyn Serve) -> Result<(), CallError> {
        self.access.check(serve)
    }

    /// Offers the export only at the endpoints at which the server [listens](crate::Server::listen). The name
    /// is not published on this machine, so another server may have it.
    ///
    /// ```
    /// # use peregrine::{ExportOptions, Server, interface};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # let name = format!("doc-networks-only-{}", std::process::id());
    /// let options = ExportOptions::default().networks_only();
    /// let server = Server::new().export_with(&name, EchoServer::new(Same), options)?;
    /// let running = server.listen("tcp:127.0.0.1:0")?.spawn()?;
    /// assert!(EchoClient::bind(&name).is_err());
    /// assert!(EchoClient::bind(&format!("{}/{name}", running.addresses()[0])).is_ok());
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub const fn networks_only(mut self) -> Self {
        self.networks_only = true;
        self
    }

    /// Does not register the export in the [directory](crate::Server::register_in) of its server. Clients reach
    /// it on this machine, and by an address with the host of the server.
    ///
    /// ```
    /// # use peregrine::ExportOptions;
    /// let options = ExportOptions::default().unregistered();
    /// ```
    pub const fn unregistered(mut self) -> Self {
        self.unregistered = true;
        self
    }

    /// Adds a [`Layer`], which sees each call of the export and may refuse it. It is inside of the layers that
    /// were added before, and of the layers of the [server](crate::Server::layer).
    ///
    /// If a procedure gets a callback, the layers also see its calls to the object of the callback
    /// ([`LayerSide::Client`](crate::LayerSide::Client)).
    ///
    /// # Panics
    /// If the export has more than [`limits::LAYERS_MAX`] layers together with those of the server. This panic
    /// may come when the server begins to run.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.add(layer);
        self
    }

    /// Returns the server stub that calls these layers and those of the server around `serve`.
    pub(crate) fn layered(
        &self,
        name: &str,
        serve: Arc<dyn Serve>,
        of_server: &Layers,
    ) -> Arc<dyn Serve> {
        let layers = of_server.around(&self.layers);
        if layers.is_empty() {
            return serve;
        }
        let observed = layers.observe(serve.interface(), name);
        Arc::new(Layered::over(serve, observed))
    }

    /// Returns whether the name is published on this machine.
    pub(crate) const fn is_published(&self) -> bool {
        !self.networks_only
    }

    /// Returns whether processes of other users must be able to connect, so that the server can check their
    /// users and groups.
    pub(crate) fn is_for_others(&self) -> bool {
        let others = !self.users.is_empty() || !self.groups.is_empty();
        self.public || others || self.access.is_for_others()
    }

    /// Returns whether a client may bind to an export of the user `own`. `groups` returns the client's
    /// supplementary groups.
    fn admit(&self, own: u32, peer: &Credentials, groups: impl FnOnce() -> Vec<u32>) -> bool {
        let Self { public, users, groups: admitted, access, .. } = self;
        if *public || peer.uid == own || peer.uid == 0 || users.contains(&peer.uid) {
            return true;
        }
        let known = LazyCell::new(groups);
        admitted.contains(&peer.gid)
            || access.admits_process(peer, || known.clone())
            || !admitted.is_empty() && known.iter().any(|group| admitted.contains(group))
    }

    /// Sets the largest number of A-stacks (call frames) of a session, 1 to [`limits::ASTACKS_MAX`]. The
    /// limit applies to sessions that a binding to this export creates. The default is
    /// [`limits::ASTACKS_MAX`]. For users other than root and the server's own user, the default is at most
    /// [`limits::ASTACKS_OF_OTHERS`].
    ///
    /// # Panics
    /// If `count` is out of that range.
    pub const fn astacks_max(mut self, count: u32) -> Self {
        assert!(count >= 1 && count <= limits::ASTACKS_MAX, "A-stacks out of range");
        self.astacks_max = Some(count);
        self
    }

    /// Sets the size in bytes of the largest message, in each direction. Clients that need larger messages
    /// are refused. The default is [`limits::MESSAGE_BYTES`], or the size that the interface's bounded
    /// parameters need if that is larger.
    pub const fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = Some(bytes);
        self
    }
}

/// A name, and the object that the server serves under the name.
pub(crate) struct Export {
    pub(crate) name: String,
    /// The number of this export, unique in its server.
    pub(crate) number: u64,
    pub(crate) serve: Arc<dyn Serve>,
    /// Through which other programs capture the calls.
    pub(crate) tap: Arc<Tap>,
    options: ExportOptions,
    denials: Arc<Denials>,
    /// The addresses at which the server listens, set when it has begun to listen.
    listens: Arc<OnceLock<Vec<String>>>,
    /// Whether the server is stopping.
    stopping: Arc<AtomicBool>,
    since: Instant,
    /// Whether the export is closed, so that clients can no longer connect or bind.
    closed: Arc<AtomicBool>,
    /// The number of bindings. It is updated when a binding is added or revoked. A server may have a quarter
    /// of a million bindings. Counting them for each description would occupy the keeper, a background
    /// thread.
    pub(crate) bindings: Arc<AtomicU32>,
    /// The counters of the export.
    pub(crate) counters: Arc<ExportCounters>,
    /// The reserved name by which clients find the export, if it is a [view](Self::viewed) of another one.
    reserved: Option<String>,
}

impl Export {
    /// The number of the export through which clients on networks read about the server.
    pub(crate) const OF_SERVER: u64 = u64::MAX;
    /// The number of the export through which clients on networks watch the server's counters.
    pub(crate) const OF_WATCH: u64 = u64::MAX - 1;
    /// The number of the export through which clients on networks ask for the server's health. Its calls run
    /// also if no thread is free for other calls, and while the server stops.
    pub(crate) const OF_HEALTH: u64 = u64::MAX - 2;

    pub(crate) fn new(
        name: String,
        number: u64,
        serve: Arc<dyn Serve>,
        options: ExportOptions,
        core: &ServerCore,
    ) -> Arc<Self> {
        let counters = Arc::new(ExportCounters::new(&core.page(), &name, &serve.interface()));
        Arc::new(Self {
            name,
            number,
            serve,
            tap: Arc::default(),
            options,
            denials: Arc::clone(&core.denials),
            listens: Arc::clone(&core.listens),
            stopping: Arc::clone(&core.stopping),
            since: Instant::now(),
            closed: Arc::default(),
            bindings: Arc::default(),
            counters,
            reserved: None,
        })
    }

    /// Returns a view of this export: another export, which clients on networks find by a reserved name.
    /// `serve` serves the same object in another way. Both exports have the same number, and end together.
    pub(crate) fn viewed(&self, reserved: String, serve: Arc<dyn Serve>) -> Arc<Self> {
        Arc::new(Self {
            name: self.name.clone(),
            number: self.number,
            serve,
            tap: Arc::default(),
            options: self.options.clone(),
            denials: Arc::clone(&self.denials),
            listens: Arc::clone(&self.listens),
            stopping: Arc::clone(&self.stopping),
            since: self.since,
            closed: Arc::clone(&self.closed),
            bindings: Arc::clone(&self.bindings),
            counters: Arc::clone(&self.counters),
            reserved: Some(reserved),
        })
    }

    /// Returns whether clients find the export by this name.
    fn is_found_by(&self, name: &str) -> bool {
        self.reserved.as_ref().unwrap_or(&self.name) == name
    }

    /// Closes the export: no client may bind any more. Existing bindings are not ended here: the paths revoke
    /// them.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.counters.end();
    }

    /// Returns whether the owner of the server made this export, and named it. The server itself makes the
    /// exports [`OF_SERVER`](Self::OF_SERVER), [`OF_WATCH`](Self::OF_WATCH) and
    /// [`OF_HEALTH`](Self::OF_HEALTH), and [views](Self::viewed).
    pub(crate) const fn is_named(&self) -> bool {
        self.number < Self::OF_HEALTH && self.reserved.is_none()
    }

    /// Returns the row of a new binding of `caller`. The binding's messages have at most `bytes` bytes.
    /// `tally` counts the calls of the binding.
    pub(crate) fn bind(&self, caller: CallerInfo, bytes: usize, tally: Tally) -> Arc<BindingRow> {
        self.bind_process(caller, bytes, tally, Vec::new)
    }

    /// As [`bind`](Self::bind), for a process of this machine. `groups` returns its supplementary groups, and
    /// is called only if they decide which procedures it may call.
    pub(crate) fn bind_process(
        &self,
        caller: CallerInfo,
        bytes: usize,
        tally: Tally,
        groups: impl FnOnce() -> Vec<u32>,
    ) -> Arc<BindingRow> {
        let serve = match self.reserved {
            None => self.options.access.serve_for(&self.serve, &caller, &self.denials, groups),
            // The view has already limited the procedures of the object.
            Some(_) => Arc::clone(&self.serve),
        };
        let stub = (serve, Arc::clone(&self.tap));
        let bindings = Arc::clone(&self.bindings);
        let (stopping, withdrawn) = (Arc::clone(&self.stopping), Arc::clone(&self.closed));
        let ending = Some(Ending { stopping, withdrawn });
        let caller = Arc::new(CallerInfo { ending, ..caller });
        Arc::new(BindingRow::new(self.number, stub, caller, bytes, bindings, tally))
    }

    /// Returns whether no client may bind any more. A path calls this function after it has added a binding,
    /// and revokes the binding if the export is closed: a withdrawal revokes only the bindings that exist.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    pub(crate) fn withdrawn(&self) -> String {
        format!("`{}` was withdrawn", self.name)
    }

    /// Checks whether a client may bind, on a path on which the kernel proves the identity of the client.
    /// `peer` is what the kernel reports about the client. `groups` returns the client's supplementary
    /// groups. This function calls `groups` only if the answer depends on the groups, because `groups` may
    /// make a system call.
    ///
    /// # Errors
    /// If the client may not bind. The error is the reason.
    pub(crate) fn admits(
        &self,
        peer: &Credentials,
        groups: impl FnOnce() -> Vec<u32>,
    ) -> Result<(), String> {
        let own = rustix::process::geteuid().as_raw();
        if self.options.admit(own, peer, groups) {
            return Ok(());
        }
        let (user, group, process) = (peer.uid, peer.gid, peer.pid);
        let identity = CallerIdentity::Local { user, group, process };
        self.denials.report(&Denied {
            export: &self.name,
            procedure: None,
            identity: Some(&identity),
            from: None,
        });
        let (name, uid) = (&self.name, peer.uid);
        if !self.options.is_for_others() {
            return Err(format!("`{name}` is private to user {own}, and the client is user {uid}"));
        }
        Err(format!("`{name}` is limited to users and groups that do not include user {uid}"))
    }

    /// Returns what serves the object to clients of the path `path`, on which nothing proves who they are.
    pub(crate) fn serve_strangers(&self, path: PathKind) -> Arc<dyn Serve> {
        let caller = CallerInfo::stranger(path, &self.name);
        self.options.access.serve_for(&self.serve, &caller, &self.denials, Vec::new)
    }

    /// Returns whether the export may be called over a network on which nothing proves who a client is. This
    /// includes exports that only the server's user and root may call on this machine.
    pub(crate) fn is_offered_in_clear(&self) -> bool {
        let Self { options, .. } = self;
        options.users.is_empty() && options.groups.is_empty() && !options.access.is_limited()
    }

    /// Returns whether any client may call the export over a network.
    pub(crate) fn is_offered_on_networks(&self) -> bool {
        self.is_offered_in_clear() || self.options.access.is_limited()
    }

    /// Returns whether the server registers the export in its directory.
    pub(crate) fn is_registered(&self) -> bool {
        self.is_offered_on_networks() && !self.options.unregistered
    }

    /// Checks whether a client of a network may bind.
    ///
    /// # Errors
    /// If the client may not bind. The error is the reason.
    fn admits_from(&self, applicant: &Applicant<'_>) -> Result<(), String> {
        let name = &self.name;
        match applicant.identity {
            _ if self.is_offered_in_clear() => Ok(()),
            Some(peer) if self.options.access.is_limited() => {
                if self.options.access.admits_peer(peer) {
                    return Ok(());
                }
                Err(format!("`{name}` is limited to identities that do not include `{peer}`"))
            }
            None if self.options.access.is_limited() => Err(format!(
                "`{name}` is limited to some identities, and without encryption nothing proves who calls"
            )),
            _ => Err(format!(
                "`{name}` is limited to users or groups, and a network cannot prove who calls"
            )),
        }
    }

    #[cold]
    fn report_denied(&self, applicant: &Applicant<'_>) {
        #[cfg(feature = "secure")]
        let identity = applicant.identity.map(|peer| CallerIdentity::Peer(peer.clone()));
        #[cfg(not(feature = "secure"))]
        let identity: Option<CallerIdentity> = None;
        self.denials.report(&Denied {
            export: &self.name,
            procedure: None,
            identity: identity.as_ref(),
            from: applicant.from,
        });
    }

    pub(crate) fn astacks_max(&self) -> u32 {
        self.options.astacks_max.unwrap_or(limits::ASTACKS_MAX)
    }

    /// Returns the number of A-stacks of a new session with this client, and the size in bytes of their
    /// largest message. `count` and `bytes` are the values that the client requests. `left` is the part of
    /// [`limits::REGION_BYTES_PER_USER`] that the sessions of the client's user have not used.
    pub(crate) fn room_for(
        &self,
        peer: &Credentials,
        left: usize,
        (count, bytes): (u32, usize),
    ) -> (u32, usize) {
        /// The limits of new sessions, for users other than root and the server's own user. Each entry has a
        /// number of sixteenths of the user's memory, a number of A-stacks, and a message size. A new session
        /// gets the first entry for which at least that number of sixteenths is left.
        const SHARES: [(usize, u32, usize); 4] = [
            (14, limits::ASTACKS_OF_OTHERS, limits::MESSAGE_BYTES),
            (8, limits::ASTACKS_OF_OTHERS / 4, limits::MESSAGE_BYTES),
            (2, limits::ASTACKS_OF_OTHERS / 4, limits::MESSAGE_BYTES_ASKED),
            (0, limits::ASTACKS_OF_OTHERS / 16, limits::MESSAGE_BYTES_ASKED),
        ];
        const SIXTEENTH: usize = limits::REGION_BYTES_PER_USER / 16;
        let is_left = |share: &(usize, u32, usize)| left >= share.0 * SIXTEENTH;
        let share = SHARES.into_iter().find(is_left).filter(|_| is_other(peer));
        let (most, large) = match share {
            Some((_, count, bytes)) => (count, bytes),
            None => (limits::ASTACKS_MAX, limits::MESSAGE_BYTES),
        };
        let count = count.clamp(1, self.options.astacks_max.unwrap_or(most));
        // With more than `ASTACKS_SPARSE` A-stacks, larger messages would need too much address space.
        let large =
            if count > limits::ASTACKS_SPARSE { limits::MESSAGE_BYTES_ASKED } else { large };
        (count, bytes.max(large))
    }

    pub(crate) fn description(&self) -> Description {
        let interface = self.serve.interface();
        Description {
            interface: interface.name().to_owned(),
            version: interface.version(),
            digest: interface.digest(),
            text: interface.canonical_text(),
            docs: interface.sent_docs(),
            process: std::process::id(),
            age_ms: self.since.elapsed().as_millis() as u64,
            bindings: self.bindings.load(Ordering::Relaxed),
            listens: match self.is_offered_on_networks() {
                true => self.listens.get().cloned().unwrap_or_default(),
                false => Vec::new(),
            },
            network: sys::network_number(),
        }
    }

    /// Returns the size in bytes of the largest message that the export allows.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.options.message_bytes_max.unwrap_or_else(|| {
            let needed = self.serve.interface().message_bytes().next_multiple_of(16);
            needed.max(limits::MESSAGE_BYTES)
        })
    }

    /// Returns the size in bytes of the largest message of a client with this interface: the size that the
    /// client requests, or the size that the export allows if that is smaller.
    ///
    /// # Errors
    /// If the client's interface differs, or its messages are too large.
    pub(crate) fn admitted_bytes(
        &self,
        digest: Option<[u8; 16]>,
        bytes: u64,
    ) -> Result<usize, (Kind, String)> {
        let interface = self.serve.interface();
        if let Some(digest) = digest
            && digest != interface.digest().0
        {
            let text = format!(
                "the server's interface is `{}` version {}",
                interface.name(),
                interface.version()
            );
            return Err((Kind::InterfaceMismatch, text));
        }
        let (bytes, most) =
            (usize::try_from(bytes).unwrap_or(usize::MAX), self.message_bytes_max());
        // A client whose options set no size requests the default size. It is not refused, even if the
        // server allows less.
        if bytes > most.max(limits::MESSAGE_BYTES) {
            let text = format!(
                "the client asks for messages of {bytes} bytes (`BindOptions::message_bytes` or \
                 its interface), and the server allows {most} \
                 (`ExportOptions::message_bytes_max`)"
            );
            return Err((Kind::TooLarge, text));
        }
        Ok(bytes.min(most))
    }
}

/// Returns whether a client's user is neither this process's user nor root.
pub(crate) fn is_other(peer: &Credentials) -> bool {
    peer.uid != rustix::process::geteuid().as_raw() && peer.uid != 0
}

/// A client of a network that asks for an export.
#[derive(Clone, Copy)]
pub(crate) struct Applicant<'a> {
    /// Who the client is. `None` if nothing proves it.
    pub(crate) identity: Option<&'a Identified>,
    pub(crate) from: Option<SocketAddr>,
    /// Whether a refusal is counted and reported: the client wants to bind.
    pub(crate) is_reported: bool,
}

impl Applicant<'_> {
    /// A client of which nothing is known.
    pub(crate) const STRANGER: Self = Self { identity: None, from: None, is_reported: false };
}

/// The exports of a server. A withdrawn export is removed from this list.
pub(crate) struct Exports(Mutex<Vec<Arc<Export>>>);

impl Exports {
    pub(crate) const fn new(exports: Vec<Arc<Export>>) -> Self {
        Self(Mutex::ranked(Rank::Exports, exports))
    }

    /// Locks the list of exports.
    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<Arc<Export>>> {
        self.0.lock()
    }

    /// Returns the export that a client of a network can call under a name. An export that is open only to the
    /// server's own user on this machine is found, too: over a network no user can be checked. If the kernel
    /// proves the user, as on the local path, [`Export::admits`] is called instead.
    ///
    /// # Errors
    /// If there is no such export, it was withdrawn, or it is limited to others.
    pub(crate) fn offered(
        &self,
        name: &str,
        applicant: &Applicant<'_>,
    ) -> Result<Arc<Export>, (Kind, String)> {
        let found = self.lock().iter().find(|export| export.is_found_by(name)).map(Arc::clone);
        let export =
            found.ok_or_else(|| (Kind::NotFound, format!("the server has no `{name}`")))?;
        if export.is_closed() {
            return Err((Kind::Withdrawn, export.withdrawn()));
        }
        match export.admits_from(applicant) {
            Ok(()) => Ok(export),
            Err(text) => {
                if applicant.is_reported {
                    export.report_denied(applicant);
                }
                Err((Kind::Denied, text))
            }
        }
    }

    /// Returns the export with this number.
    pub(crate) fn numbered(&self, number: u64) -> Option<Arc<Export>> {
        self.lock().iter().find(|export| export.number == number).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_looked_up_only_if_they_decide() {
        let peer = Credentials { pid: 1, uid: 1000, gid: 50 };
        let unasked = || -> Vec<u32> { panic!("the groups were looked up needlessly") };
        let private = ExportOptions::default();
        assert!(private.admit(1000, &peer, unasked) && !private.admit(7, &peer, unasked));
        assert!(private.admit(7, &Credentials { uid: 0, ..peer }, unasked));
        for open in [private.clone().public(), private.clone().users([3, 1000])] {
            assert!(open.admit(7, &peer, unasked));
        }
        assert!(!private.clone().users([3]).admit(7, &peer, unasked));
        assert!(private.clone().groups([50]).admit(7, &peer, unasked));
        let grouped = private.groups([60, 70]);
        assert!(grouped.admit(7, &peer, || vec![10, 70]));
        assert!(!grouped.admit(7, &peer, || vec![10, 80]));
    }
}
