//! `caller()`: a running procedure asks who calls it, and on what terms.

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

/// The family of path that a binding uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// The same process.
    InProcess,
    /// Shared memory with another process of this machine.
    Local,
    /// A TCP connection.
    Tcp,
    /// UDP datagrams.
    Udp,
    /// Ethernet frames.
    Ethernet,
}

impl PathKind {
    /// The paths that an address can name, and the scheme with which it names each.
    pub(crate) const SCHEMES: &[(Self, &str)] =
        &[(Self::Local, "local"), (Self::Ethernet, "eth"), (Self::Udp, "udp"), (Self::Tcp, "tcp")];

    /// Returns the scheme with which an address names the path, if one can.
    pub(crate) fn scheme(self) -> Option<&'static str> {
        let found = Self::SCHEMES.iter().find(|(path, _)| *path == self);
        found.map(|(_, scheme)| *scheme)
    }
}

impl core::fmt::Display for PathKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::InProcess => "in-process",
            Self::Local => "local",
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Ethernet => "ethernet",
        })
    }
}

#[derive(Debug)]
pub(crate) struct CallerInfo {
    pub(crate) path: PathKind,
    pub(crate) export: String,
    pub(crate) process: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// Where it calls from, if that is over a network.
    pub(crate) from: Option<SocketAddr>,
    /// The hardware that it calls from, if that is over a link.
    pub(crate) hardware: Option<[u8; 6]>,
}

impl CallerInfo {
    /// What stands for a user or a group for which nobody vouches. It is nobody's, in any system.
    pub(crate) const NOBODY: u32 = u32::MAX;
}

/// Where calls come from that threads of this process run, by numbers that mean something there.
pub(crate) trait Calls: Send + Sync {
    /// Whether nobody waits for a call any more, as far as is known: its caller has given it up, or
    /// has gone.
    fn is_given_up(&self, call: u64) -> bool;
}

/// Who calls, as the kernel vouched for it when the session began, and on what terms.
///
/// Over a network there is nobody to vouch: what such a caller is, is where it calls
/// [from](Self::from), and the rest is what it says.
#[derive(Clone)]
pub struct Caller {
    info: Arc<CallerInfo>,
    due: Option<Instant>,
    /// Where the call is known by which number.
    call: Option<(Arc<dyn Calls>, u64)>,
}

impl Caller {
    /// The path that the call took.
    pub fn path(&self) -> PathKind {
        self.info.path
    }

    /// The processes through which the call came, the first caller first, this one's caller last:
    /// a procedure of another server may have made the call. They are what each said of the
    /// one before it; the kernel vouches for the last. Over UDP a caller that was in no procedure
    /// is 0, for nobody says which process it is.
    ///
    /// To be asked on the thread that runs the procedure.
    pub fn chain(&self) -> Vec<u32> {
        let mut processes = super::chain::processes();
        // Nothing but the chain says who called over datagrams.
        let told = self.info.process != 0 || processes.is_empty();
        if told && processes.last() != Some(&self.info.process) {
            processes.push(self.info.process);
        }
        processes
    }

    /// How long its caller still waits, counted from when the call came here: zero once that has
    /// passed, `None` if the caller waits for as long as it takes.
    ///
    /// A procedure that makes calls need not ask: whatever limit these have, they end
    /// when nothing is left of this. (What is to go on although nobody waits runs on another
    /// thread, for which none of this holds.)
    ///
    /// ```
    /// use core::time::Duration;
    /// # use peregrine::interface;
    /// #[interface]
    /// trait Search {
    ///     /// As much as can be found in the time that there is.
    ///     fn search(&self, from: u64) -> peregrine::Result<u64>;
    /// }
    ///
    /// struct Index;
    /// impl Search for Index {
    ///     fn search(&self, from: u64) -> peregrine::Result<u64> {
    ///         let caller = peregrine::caller().expect("a procedure has a caller");
    ///         let ends = |found: &u64| match caller.remaining() {
    ///             Some(left) => left < Duration::from_millis(1),
    ///             None => *found == from + 100,
    ///         };
    ///         Ok((from..).find(ends).unwrap_or(u64::MAX))
    ///     }
    /// }
    ///
    /// let index = SearchClient::in_process(Index);
    /// assert_eq!(index.search(1)?, 101);
    /// assert!(index.with_timeout(Duration::from_millis(20)).search(0)? > 0);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn remaining(&self) -> Option<Duration> {
        self.due.map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Whether nobody waits for the result any more, as far as is known: the caller has given
    /// the call up, its time has [passed](Self::remaining), or its process or connection is
    /// gone. What is not known yet may be a moment later; a call that was given up stays so.
    ///
    /// The death of a caller is known at once locally and over TCP. Over UDP and raw Ethernet it is known
    /// within 2.5 seconds. The server asks a caller of which it hears nothing for 500 ms (or a
    /// second, if it has answered before) five times, 300 ms apart.
    ///
    /// A procedure that takes long looks here now and then, from whatever thread, and ends early: what it
    /// returns then goes nowhere.
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

    /// The name under which the procedure was called; empty within one process.
    pub fn export(&self) -> &str {
        &self.info.export
    }

    /// The caller's process; over a network, what it says that it is on its own machine.
    pub fn process(&self) -> u32 {
        self.info.process
    }

    /// The caller's effective user; over a network [`u32::MAX`], which is nobody.
    pub fn user(&self) -> u32 {
        self.info.user
    }

    /// The caller's effective group; over a network [`u32::MAX`], which is nobody.
    pub fn group(&self) -> u32 {
        self.info.group
    }

    /// The address and port from which the call came over an internet protocol; `None` on this
    /// machine's own paths and on raw Ethernet.
    pub fn from(&self) -> Option<SocketAddr> {
        self.info.from
    }

    /// The Ethernet address from which the call came; `None` on other paths. Nobody vouches for it:
    /// whoever is on the link can send in the name of any.
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
    static CALLER: RefCell<Option<Arc<CallerInfo>>> = const { RefCell::new(None) };
    /// Where the calls come from that this thread runs, and which of them it runs.
    static CALLS: RefCell<Option<Arc<dyn Calls>>> = const { RefCell::new(None) };
    static CALL: Cell<u64> = const { Cell::new(0) };
    /// When the time is up of who called, if there is a limit to it. Of use inside of procedures.
    static DUE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Who called the procedure that this thread runs; `None` outside of procedures.
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
    // A call within the process is nobody's but this thread's.
    let calls =
        CALLS.with_borrow(|calls| calls.clone().filter(|_| info.path != PathKind::InProcess));
    Some(Caller { info, due: DUE.get(), call: calls.map(|calls| (calls, CALL.get())) })
}

/// Of a thread that runs no call.
const OUTSIDE: u32 = u32::MAX;

/// What a thread notes that runs a call of this process.
const fn inside_of(process: u32) -> u32 {
    // A caller over a network may say that it is any process.
    if process == OUTSIDE { OUTSIDE - 1 } else { process }
}

thread_local! {
    /// The process whose call this thread runs (zero if nobody knows it), or [`OUTSIDE`]. What else
    /// is noted of a call counts only while this says that the thread runs one.
    static INSIDE: Cell<u32> = const { Cell::new(OUTSIDE) };
}

/// The process whose call this thread runs, if it runs one.
#[inline(always)]
pub(crate) fn inside() -> Option<u32> {
    let process = INSIDE.get();
    (process != OUTSIDE).then_some(process)
}

/// The caller of the calls that this thread runs from now on.
pub(crate) fn tell_caller(info: Option<Arc<CallerInfo>>) {
    drop(CALLER.replace(info));
}

/// Where the calls come from that this thread runs from now on.
pub(crate) fn serve_calls_of(calls: Option<Arc<dyn Calls>>) {
    drop(CALLS.replace(calls));
}

/// This thread is about to run the call of that number, which a process makes.
#[inline(always)]
pub(crate) fn serve_call(call: u64, process: u32) {
    CALL.set(call);
    INSIDE.set(inside_of(process));
}

/// This thread runs no call any more.
#[inline(always)]
pub(crate) fn leave_call() {
    INSIDE.set(OUTSIDE);
}

/// A call that this thread makes and runs itself, perhaps while it runs another one: that one is in
/// its place again when this is dropped.
pub(crate) struct Nested {
    inside: u32,
    caller: Option<Arc<CallerInfo>>,
    due: Option<Instant>,
}

impl Nested {
    pub(crate) fn enter(caller: &Arc<CallerInfo>, due: Option<Instant>) -> Self {
        Self {
            inside: INSIDE.replace(inside_of(caller.process)),
            caller: CALLER.replace(Some(Arc::clone(caller))),
            due: DUE.replace(due),
        }
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        INSIDE.set(self.inside);
        drop(CALLER.replace(self.caller.take()));
        DUE.set(self.due);
    }
}

/// When the time of the call is up that this thread runs.
#[inline]
pub(crate) fn due() -> Option<Instant> {
    inside().and_then(|_| DUE.get())
}

/// Notes that; gives back what was noted before.
pub(crate) fn set_due(due: Option<Instant>) -> Option<Instant> {
    DUE.replace(due)
}
