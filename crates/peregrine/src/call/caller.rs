//! `caller()`: a running procedure queries its caller and the conditions of the call.

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::CallerIdentity;
use super::accounted::ClientAccount;
use super::batch::Account;
use super::chain::{self, Link};
use super::deferred::{Cancels, Owed};
use super::extensions;
use super::metadata::Metadata;
use super::path_kind::PathKind;
use super::request::Refusal;
use crate::value::Window;

/// Who a caller is, as TLS has proven. Without the feature `secure`, there is no such caller.
#[cfg(feature = "secure")]
pub(crate) type Identified = crate::secure::Peer;
/// Who a caller is, as TLS has proven. Without the feature `secure`, there is no such caller.
#[cfg(not(feature = "secure"))]
pub(crate) type Identified = core::convert::Infallible;

#[derive(Clone, Debug)]
pub(crate) struct CallerInfo {
    pub(crate) path: PathKind,
    pub(crate) export: Box<str>,
    pub(crate) process: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The address and port of the caller, for calls over IP networks.
    pub(crate) from: Option<SocketAddr>,
    /// The caller's hardware address, for calls over raw Ethernet.
    pub(crate) hardware: Option<[u8; 6]>,
    /// The identity that the caller claims, for calls of other RPC systems.
    pub(crate) claimed: Option<Box<Claimed>>,
    /// Who the caller is, if TLS has proven it.
    pub(crate) identity: Option<Identified>,
    /// Whether the called server ends. `None` for calls within one process.
    pub(crate) ending: Option<Ending>,
    /// The metadata of the call. Most calls have none, and all calls of a binding then share one value.
    pub(crate) carried: Option<Carried>,
    /// The account that the caller makes of its calls.
    pub(crate) account: ClientAccount,
}

/// What the [`CallerInfo`] of a call with metadata has in addition.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    metadata: Metadata,
    /// The value that the calls without metadata share.
    plain: Arc<CallerInfo>,
}

/// The identity that a caller of another RPC system claims. Nothing proves the claim: any program that can
/// reach the server can claim any identity. ONC RPC names this kind of claim AUTH_SYS.
///
/// ```
/// fn is_claimed_by_root() -> bool {
///     let caller = peregrine::caller();
///     let claimed = caller.as_ref().and_then(|caller| caller.claimed());
///     claimed.is_some_and(|claimed| claimed.user == 0)
/// }
/// # assert!(!is_claimed_by_root());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// The name of the caller's machine. Bytes that are not UTF-8 are replaced.
    pub machine: String,
    /// The user number on the caller's machine.
    pub user: u32,
    /// The group number on the caller's machine.
    pub group: u32,
    /// Further groups of the user.
    pub groups: Vec<u32>,
}

/// Whether a server ends, or withdraws an export.
#[derive(Clone, Debug)]
pub(crate) struct Ending {
    /// Whether the server is stopping.
    pub(crate) stopping: Arc<AtomicBool>,
    /// Whether the export is withdrawn.
    pub(crate) withdrawn: Arc<AtomicBool>,
}

impl CallerInfo {
    /// The user and group number of callers whose identity the kernel does not confirm. No system
    /// assigns this number.
    pub(crate) const NOBODY: u32 = u32::MAX;

    /// Returns a caller of `export` by the path `path`, of whom nothing is known.
    pub(crate) fn stranger(path: PathKind, export: &str) -> Self {
        Self {
            path,
            export: export.into(),
            process: 0,
            user: Self::NOBODY,
            group: Self::NOBODY,
            from: None,
            hardware: None,
            claimed: None,
            identity: None,
            ending: None,
            carried: None,
            account: ClientAccount::default(),
        }
    }

    /// Returns what the procedure of a call with this metadata sees.
    #[cold]
    pub(crate) fn with_metadata(self: &Arc<Self>, metadata: &Metadata) -> Arc<Self> {
        let plain = Arc::clone(self.plain());
        let carried = Carried { metadata: metadata.clone(), plain: Arc::clone(&plain) };
        Arc::new(Self { carried: Some(carried), ..(*plain).clone() })
    }

    fn plain(self: &Arc<Self>) -> &Arc<Self> {
        self.carried.as_ref().map_or(self, |carried| &carried.plain)
    }

    /// Returns the account that the caller makes of its calls.
    pub(super) fn account(&self) -> &ClientAccount {
        &self.carried.as_ref().map_or(self, |carried| &carried.plain).account
    }
}

/// The source of the calls that a thread runs, such as a session or a connection. Each call has a number that
/// only the source can interpret.
pub(crate) trait Calls: Send + Sync {
    /// Returns whether the call is known to be abandoned: the caller has cancelled the call, or the caller no
    /// longer exists.
    fn is_given_up(&self, call: u64) -> bool;

    /// Returns whether the client of this source is known to exist no longer. Sources that serve many clients
    /// do not know this.
    fn is_gone(&self) -> bool {
        false
    }

    /// Takes over the running call, whose reply any thread may send later. From now on the source calls
    /// [`Cancels::cancel`] when the caller gives up the call or does not exist any more. Returns `None` if
    /// the source cannot defer replies: the thread that runs the call must then wait for its end.
    ///
    /// Only the thread that runs the call uses this function, and only once. If the call was taken over, the
    /// thread then returns [`Answer::Deferred`](super::Answer::Deferred).
    fn defer(self: Arc<Self>, call: u64, cancels: Arc<dyn Cancels>) -> Option<Box<dyn Owed>> {
        let _ = (call, cancels);
        None
    }

    /// Returns what the calls of the running procedure are within, if its export has layers and it is async.
    #[cfg(feature = "tracing")]
    fn scope(&self) -> Option<Arc<dyn core::any::Any + Send + Sync>> {
        None
    }

    /// Returns a procedure whose polls run within the span of the call, if the call has a span. The first poll
    /// of the procedure is over.
    #[cfg(feature = "tracing")]
    fn within(&self, procedure: super::deferred::Procedure) -> super::deferred::Procedure {
        procedure
    }

    /// Calls `with` with the account of the client that made a call, if a server counts its calls.
    fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
        let _ = (call, with);
    }
}

/// The identity of a caller, as the kernel recorded it when the session began, and the conditions of
/// its call.
///
/// Over a network no kernel confirms the identity. Only the address that such a caller uses
/// ([`from`](Self::from)) is known; everything else is the caller's own claim.
#[derive(Clone)]
pub struct Caller {
    info: Arc<CallerInfo>,
    due: Option<Instant>,
    /// The source of the call, and the call's number at the source.
    call: Option<(Arc<dyn Calls>, u64)>,
}

impl Caller {
    /// Returns the caller of a call that does not run.
    pub(crate) fn of(info: &Arc<CallerInfo>) -> Self {
        Self { info: Arc::clone(info), due: None, call: None }
    }

    /// Returns the account that the caller makes of its calls.
    pub(super) fn account(&self) -> &ClientAccount {
        self.info.account()
    }

    /// Returns the path by which the call arrived.
    pub fn path(&self) -> PathKind {
        self.info.path
    }

    /// Returns the processes through which the call came, from the first caller to the direct one. There are
    /// several if a procedure of another server has made this call. Each process reports the processes before
    /// it, and the kernel confirms only the last one. Over UDP, only the calls that procedures make contain
    /// the numbers of processes. The process of any other caller over UDP is 0.
    ///
    /// Call this function on the thread that runs the procedure.
    pub fn chain(&self) -> Vec<u32> {
        let mut processes = chain::processes();
        // Over datagrams, only the chain contains the numbers of processes.
        let told = self.info.process != 0 || processes.is_empty();
        if told && processes.last() != Some(&self.info.process) {
            processes.push(self.info.process);
        }
        processes
    }

    /// Returns how much longer the caller waits: zero if the caller's time has passed, `None` if there is no
    /// limit. The time is measured from the arrival of the call.
    ///
    /// A procedure that makes calls need not check this time: these calls end when the time has passed, even
    /// if their own limits are longer. (Work that must continue without a caller belongs on another thread,
    /// to which no limit applies.)
    ///
    /// ```
    /// use core::time::Duration;
    /// # use peregrine::interface;
    /// #[interface]
    /// trait Search {
    ///     /// Returns as much as can be found in the time that is left.
    ///     fn search(&self, from: u64) -> peregrine::Result<u64>;
    /// }
    ///
    /// struct Index;
    /// impl Search for Index {
    ///     fn search(&self, from: u64) -> peregrine::Result<u64> {
    ///         let caller = peregrine::caller().expect("a procedure has a caller");
    ///         // The result needs some of the time: to be shown, or to return over a slow network.
    ///         let ends = |found: &u64| match caller.remaining() {
    ///             Some(left) => left < Duration::from_secs(10),
    ///             None => *found == from + 100,
    ///         };
    ///         Ok((from..).find(ends).unwrap_or(u64::MAX))
    ///     }
    /// }
    ///
    /// let index = SearchClient::in_process(Index);
    /// assert_eq!(index.search(1)?, 101);
    /// assert!(index.with_timeout(Duration::from_millis(10_020)).search(0)? > 0);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn remaining(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Returns whether it is known that the result is no longer needed: the caller has cancelled the
    /// call, the deadline has [passed](Self::remaining), or the caller's process or connection no longer
    /// exists. Once this function has returned true for a call, it always returns true for that call.
    ///
    /// Locally and over TCP, the death of a caller is known at once. Over UDP and raw Ethernet, it is known
    /// within 2.5 seconds: the server sends five probes, at intervals of 300 ms. The first probe is
    /// sent when the caller has been silent for 500 ms, or for a second if the caller has answered the
    /// previous probe.
    ///
    /// A long procedure should check this regularly, on any thread, and end early. Its result is then
    /// discarded.
    ///
    /// ```
    /// # use peregrine::interface;
    /// #[interface]
    /// trait Sums { fn sum(&self, to: u64) -> peregrine::Result<u64>; }
    ///
    /// struct Adder;
    /// impl Sums for Adder {
    ///     fn sum(&self, to: u64) -> peregrine::Result<u64> {
    ///         let caller = peregrine::caller().expect("a procedure has a caller");
    ///         let wanted = |n: &u64| n % 1000 != 0 || !caller.is_cancelled();
    ///         Ok((1..=to).take_while(wanted).sum())
    ///     }
    /// }
    ///
    /// let sums = SumsClient::in_process(Adder);
    /// assert_eq!(sums.sum(10_000)?, 50_005_000);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.remaining().is_some_and(|left| left.is_zero())
            || self.call.as_ref().is_some_and(|(calls, call)| calls.is_given_up(*call))
    }

    /// Returns whether the server that runs the procedure is stopping. A server that is stopping begins no
    /// new calls, and waits for running procedures at most as long as
    /// [configured](crate::Server::drain_on_signals). Returns false for calls within one process.
    ///
    /// A procedure that runs for long or waits for an event can call this function from any thread, and
    /// return early. Its caller still receives the result.
    ///
    /// ```
    /// # use peregrine::interface;
    /// #[interface]
    /// trait Jobs { fn next(&self) -> peregrine::Result<Option<u32>>; }
    ///
    /// struct Queue;
    /// impl Jobs for Queue {
    ///     fn next(&self) -> peregrine::Result<Option<u32>> {
    ///         let caller = peregrine::caller().expect("a procedure has a caller");
    ///         while !caller.is_stopping() && !caller.is_cancelled() {
    ///             // Waits for a job for a short time.
    ///             # return Ok(Some(7));
    ///         }
    ///         Ok(None)
    ///     }
    /// }
    /// # assert_eq!(JobsClient::in_process(Queue).next()?, Some(7));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn is_stopping(&self) -> bool {
        let ending = self.info.ending.as_ref();
        ending.is_some_and(|ending| ending.stopping.load(Ordering::Relaxed))
    }

    /// Returns the pairs that the client has set for the call by `with_metadata`. There are none if it has
    /// set none. They do not arrive at servers that the procedure calls, unless the procedure passes them on
    /// by `with_metadata_of`.
    ///
    /// Nothing proves what metadata says: a caller can send any pairs.
    pub fn metadata(&self) -> &Metadata {
        self.info.carried.as_ref().map_or(Metadata::EMPTY, |carried| &carried.metadata)
    }

    /// Returns the name of the export to which the call was made. The name is empty for calls within a
    /// process.
    pub fn export(&self) -> &str {
        &self.info.export
    }

    /// Returns the number of the caller's process. Over a network the number is the caller's own claim.
    pub fn process(&self) -> u32 {
        self.info.process
    }

    /// Returns the caller's effective user number. Over a network the number is [`u32::MAX`]. No user has
    /// this number.
    pub fn user(&self) -> u32 {
        self.info.user
    }

    /// Returns the caller's effective group number. Over a network the number is [`u32::MAX`]. No group has
    /// this number.
    pub fn group(&self) -> u32 {
        self.info.group
    }

    /// Returns the identity that a caller of ONC RPC claims by AUTH_SYS. `None` if the caller claims nothing,
    /// or does not use ONC RPC.
    ///
    /// **Nothing proves this claim.** Do not use it for decisions that protect anything.
    pub fn claimed(&self) -> Option<&Claimed> {
        self.info.claimed.as_deref()
    }

    /// Returns who the caller is, on every path on which this is proven. On this machine, the kernel says
    /// which user and which process calls. On an encrypted connection, it is the key that the client has
    /// proven to have, with the names that the server's `Trust` gives it. `None` on networks without
    /// encryption.
    ///
    /// To let only some callers call a procedure, see [`ExportOptions::allow`](crate::ExportOptions::allow).
    ///
    /// ```
    /// use peregrine::CallerIdentity;
    ///
    /// /// Returns whether the caller is the user that runs backups on this machine.
    /// fn is_backup() -> bool {
    ///     let identity = peregrine::caller().and_then(|caller| caller.identity());
    ///     matches!(identity, Some(CallerIdentity::Local { user: 34, .. }))
    /// }
    /// # assert!(!is_backup());
    /// ```
    pub fn identity(&self) -> Option<CallerIdentity> {
        CallerIdentity::of(&self.info)
    }

    /// Returns the address and port from which the call came over an IP network. `None` on paths
    /// within this machine and on raw Ethernet.
    pub fn from(&self) -> Option<SocketAddr> {
        self.info.from
    }

    /// Returns the Ethernet address from which the call came. `None` on paths other than raw Ethernet. Any
    /// host on the link can use any address.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        self.info.hardware
    }
}

impl core::fmt::Debug for Caller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Caller").field("info", &self.info).finish_non_exhaustive()
    }
}

thread_local! {
    /// The caller of the calls that this thread runs.
    static CALLER: RefCell<Option<Arc<CallerInfo>>> = const { RefCell::new(None) };
    /// The source of the calls that this thread runs.
    static CALLS: RefCell<Option<Arc<dyn Calls>>> = const { RefCell::new(None) };
    /// The number that the current call has at its source.
    static CALL: Cell<u64> = const { Cell::new(0) };
    /// The deadline of the current call, if it has one. Valid only inside procedures.
    static DUE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the caller of the procedure that this thread runs, or `None` outside of procedures.
///
/// ```
/// # use peregrine::interface;
/// #[interface]
/// trait Who { fn process(&self) -> peregrine::Result<u32>; }
///
/// struct Answer;
/// impl Who for Answer {
///     fn process(&self) -> peregrine::Result<u32> {
///         Ok(peregrine::caller().map_or(0, |caller| caller.process()))
///     }
/// }
/// assert_eq!(WhoClient::in_process(Answer).process().unwrap(), std::process::id());
/// assert!(peregrine::caller().is_none());
/// ```
pub fn caller() -> Option<Caller> {
    inside()?;
    let info = CALLER.with_borrow(Clone::clone)?;
    let calls = CALLS.with_borrow(Clone::clone);
    Some(Caller { info, due: DUE.get(), call: calls.map(|calls| (calls, CALL.get())) })
}

/// The value of [`INSIDE`] for a thread that runs no call.
const OUTSIDE: u32 = u32::MAX;

/// Returns the value of [`INSIDE`] for a thread that runs a call of the process `process`.
const fn inside_of(process: u32) -> u32 {
    // A caller over a network may claim any process number, also the value of `OUTSIDE`.
    if process == OUTSIDE { OUTSIDE - 1 } else { process }
}

thread_local! {
    /// The process whose call this thread runs, or zero if the process is unknown. [`OUTSIDE`] if the thread
    /// runs no call. The other variables for the current call are valid only while this value is not
    /// [`OUTSIDE`].
    static INSIDE: Cell<u32> = const { Cell::new(OUTSIDE) };
}

/// Returns the process whose call this thread runs, if the thread runs a call.
#[inline(always)]
pub(crate) fn inside() -> Option<u32> {
    let process = INSIDE.get();
    (process != OUTSIDE).then_some(process)
}

/// Returns whether the call that this thread runs carries metadata.
#[inline]
pub(crate) fn has_metadata() -> bool {
    CALLER.with_borrow(|caller| caller.as_ref().is_some_and(|info| info.carried.is_some()))
}

/// Returns whether the call that this thread runs came from another machine. A call from a loopback address
/// came from this machine.
pub(crate) fn is_remote() -> bool {
    CALLER.with_borrow(|caller| {
        caller.as_ref().is_some_and(|info| match info.from {
            Some(from) => !from.ip().to_canonical().is_loopback(),
            None => info.hardware.is_some(),
        })
    })
}

/// Sets the caller of the calls that this thread runs from now on.
pub(crate) fn tell_caller(info: Option<Arc<CallerInfo>>) {
    drop(CALLER.replace(info));
}

/// Sets the source of the calls that this thread runs from now on.
pub(crate) fn serve_calls_of(calls: Option<Arc<dyn Calls>>) {
    drop(CALLS.replace(calls));
}

/// Marks that this thread begins to run call number `call`, which the process `process` makes.
#[inline(always)]
pub(crate) fn serve_call(call: u64, process: u32) {
    CALL.set(call);
    INSIDE.set(inside_of(process));
}

/// Marks the end of the call that this thread runs.
#[inline(always)]
pub(crate) fn leave_call() {
    INSIDE.set(OUTSIDE);
}

/// A call that this thread makes and runs itself, possibly during another call. When this value is
/// dropped, the outer call is current again.
pub(crate) struct Nested {
    inside: u32,
    caller: Option<Arc<CallerInfo>>,
    due: Option<Instant>,
    calls: Option<Arc<dyn Calls>>,
    call: u64,
}

impl Nested {
    /// Begins a call. `call` is its number at the source `calls`.
    pub(crate) fn enter(
        caller: &Arc<CallerInfo>,
        due: Option<Instant>,
        calls: Arc<dyn Calls>,
        call: u64,
    ) -> Self {
        Self {
            inside: INSIDE.replace(inside_of(caller.process)),
            caller: CALLER.replace(Some(Arc::clone(caller))),
            due: DUE.replace(due),
            calls: CALLS.replace(Some(calls)),
            call: CALL.replace(call),
        }
    }
}

/// As [`Nested`], for a call that another process has sent to this thread.
pub(crate) struct NestedReceived {
    chain: Vec<Link>,
    _nested: Nested,
}

impl NestedReceived {
    /// Begins a call with its extensions. `waited` returns how long ago the call was received.
    ///
    /// # Errors
    /// Fails if the deadline of the call has passed.
    pub(crate) fn enter(
        caller: &Arc<CallerInfo>,
        calls: Arc<dyn Calls>,
        call: u64,
        extensions: Window<'_>,
        waited: impl FnOnce() -> Duration,
    ) -> Result<Self, Refusal> {
        let chain = chain::links();
        let nested = Self { chain, _nested: Nested::enter(caller, None, calls, call) };
        extensions::enter(extensions, waited)?;
        Ok(nested)
    }
}

impl Drop for NestedReceived {
    fn drop(&mut self) {
        chain::enter(self.chain.iter().copied());
    }
}

/// Runs `serve`, and makes this thread wait for the end of each async procedure that `serve` runs. A server
/// that changes the results of another server, which it wraps, needs this function: the reply to a deferred
/// call would bypass the wrapper.
pub fn undeferred<T>(serve: impl FnOnce() -> T) -> T {
    struct Undeferred(Arc<dyn Calls>);
    impl Calls for Undeferred {
        fn is_given_up(&self, call: u64) -> bool {
            self.0.is_given_up(call)
        }
        fn with_account(&self, call: u64, with: &mut dyn FnMut(&dyn Account)) {
            self.0.with_account(call, with);
        }
    }
    match CALLS.with_borrow(Clone::clone) {
        Some(calls) => with_calls(Arc::new(Undeferred(calls)), serve),
        None => serve(),
    }
}

/// Runs `serve` while `calls` is the source of the calls that this thread runs. `calls` passes on what it is
/// asked to the source that the thread had before.
pub(crate) fn with_calls<T>(calls: Arc<dyn Calls>, serve: impl FnOnce() -> T) -> T {
    struct Restores(Option<Arc<dyn Calls>>);
    impl Drop for Restores {
        fn drop(&mut self) {
            serve_calls_of(self.0.take());
        }
    }
    let _restores = Restores(CALLS.replace(Some(calls)));
    serve()
}

#[cfg(test)]
impl Nested {
    /// Begins a call whose caller never gives it up.
    pub(crate) fn of(caller: &Arc<CallerInfo>, due: Option<Instant>) -> Self {
        struct Patient;
        impl Calls for Patient {
            fn is_given_up(&self, _: u64) -> bool {
                false
            }
        }
        Self::enter(caller, due, Arc::new(Patient), 0)
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        INSIDE.set(self.inside);
        drop(CALLER.replace(self.caller.take()));
        DUE.set(self.due);
        drop(CALLS.replace(self.calls.take()));
        CALL.set(self.call);
    }
}

/// Returns the deadline of the call that this thread runs.
#[inline]
pub(crate) fn due() -> Option<Instant> {
    inside().and_then(|_| DUE.get())
}

/// Sets the deadline of the current call, and returns the previous value.
pub(crate) fn set_due(due: Option<Instant>) -> Option<Instant> {
    DUE.replace(due)
}

/// Sets the metadata of the current call, or removes that of the previous call.
pub(super) fn set_metadata(metadata: Option<&Metadata>) {
    CALLER.with_borrow_mut(|caller| {
        let Some(info) = caller else { return };
        match metadata {
            Some(metadata) => *info = info.with_metadata(metadata),
            None if info.carried.is_some() => *info = Arc::clone(info.plain()),
            None => {}
        }
    });
}

/// The state of a thread that runs a call, as [`caller`] and nested calls see it. A deferred procedure keeps
/// this state. A thread that polls the procedure sets the state for the time of the poll.
pub(super) struct Conditions {
    inside: u32,
    caller: Option<Arc<CallerInfo>>,
    calls: Option<Arc<dyn Calls>>,
    call: u64,
    due: Option<Instant>,
    chain: Vec<Link>,
}

impl Conditions {
    /// Returns the state of this thread.
    pub(super) fn of_thread() -> Self {
        Self {
            inside: INSIDE.get(),
            caller: CALLER.with_borrow(Clone::clone),
            calls: CALLS.with_borrow(Clone::clone),
            call: CALL.get(),
            due: DUE.get(),
            chain: chain::links(),
        }
    }

    /// Returns the source of the call, and the call's number there.
    pub(super) fn source(&self) -> Option<(&Arc<dyn Calls>, u64)> {
        self.calls.as_ref().map(|calls| (calls, self.call))
    }

    /// Returns the deadline of the call.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Sets this state on the thread until the returned value is dropped.
    pub(super) fn enter(&self) -> Entered {
        let before = Self::of_thread();
        self.set();
        Entered(before)
    }

    fn set(&self) {
        INSIDE.set(self.inside);
        drop(CALLER.replace(self.caller.clone()));
        drop(CALLS.replace(self.calls.clone()));
        CALL.set(self.call);
        DUE.set(self.due);
        chain::enter(self.chain.iter().copied());
    }
}

/// Returns the source of the call that this thread runs, and the call's number there.
pub(crate) fn source_of_thread() -> Option<(Arc<dyn Calls>, u64)> {
    inside()?;
    CALLS.with_borrow(Clone::clone).map(|calls| (calls, CALL.get()))
}

/// Returns the flags of the running call's server: whether it is stopping, and whether the export is
/// withdrawn. `None` for calls within one process.
pub(super) fn ending_of_thread() -> Option<Ending> {
    CALLER.with_borrow(|caller| caller.as_ref().and_then(|caller| caller.ending.clone()))
}

/// The calls of a batch, which this thread runs one after the other within the call that carries the batch.
/// When this value is dropped, the carrying call is current again.
pub(super) struct InBatch {
    calls: Option<Arc<dyn Calls>>,
    call: u64,
    due: Option<Instant>,
    /// Whether the calls have a source of their own. If so, `calls` is the source that the thread had before.
    has_source: bool,
    /// When the batch arrived.
    arrived: Instant,
}

impl InBatch {
    /// Begins to run the calls of a batch. `calls` knows which of them are cancelled. With `None`, the calls are
    /// cancelled only together with the batch.
    pub(super) fn enter(calls: Option<Arc<dyn Calls>>) -> Self {
        Self::enter_at(calls, Instant::now())
    }

    /// As [`enter`](Self::enter), for a batch that arrived at the time `arrived`.
    pub(super) fn enter_at(calls: Option<Arc<dyn Calls>>, arrived: Instant) -> Self {
        let has_source = calls.is_some();
        let calls = if has_source { CALLS.replace(calls) } else { None };
        let (call, due) = (CALL.get(), DUE.get());
        Self { calls, has_source, call, due, arrived }
    }

    /// Begins the next call. `left` is the time that the call's caller had left when the batch arrived.
    /// `None` without a limit. Returns false if this time has passed.
    pub(super) fn begin(&self, call: u64, left: Option<Duration>) -> bool {
        if self.has_source {
            CALL.set(call);
        }
        let due = left.and_then(|left| self.arrived.checked_add(left));
        DUE.set(due);
        due.is_none_or(|due| due > Instant::now())
    }
}

impl Drop for InBatch {
    fn drop(&mut self) {
        if self.has_source {
            drop(CALLS.replace(self.calls.take()));
            CALL.set(self.call);
        }
        DUE.set(self.due);
    }
}

/// The state that a thread had before it began to poll a procedure. Dropping this value restores the state.
pub(super) struct Entered(Conditions);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.set();
    }
}
