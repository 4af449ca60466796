//! `caller()`: a running procedure asks who calls it, and on what terms.

use core::cell::{Cell, RefCell};
use core::net::SocketAddr;
use std::sync::Arc;

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

/// Who calls, as the kernel vouched for it when the session began.
///
/// Over a network there is nobody to vouch: what such a caller is, is where it calls
/// [from](Self::from), and the rest is what it says.
#[derive(Clone, Debug)]
pub struct Caller(Arc<CallerInfo>);

impl Caller {
    /// The path that the call took.
    pub fn path(&self) -> PathKind {
        self.0.path
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
        let told = self.0.process != 0 || processes.is_empty();
        if told && processes.last() != Some(&self.0.process) {
            processes.push(self.0.process);
        }
        processes
    }

    /// The name under which the procedure was called; empty within one process.
    pub fn export(&self) -> &str {
        &self.0.export
    }

    /// The caller's process; over a network, what it says that it is on its own machine.
    pub fn process(&self) -> u32 {
        self.0.process
    }

    /// The caller's effective user; over a network [`u32::MAX`], which is nobody.
    pub fn user(&self) -> u32 {
        self.0.user
    }

    /// The caller's effective group; over a network [`u32::MAX`], which is nobody.
    pub fn group(&self) -> u32 {
        self.0.group
    }

    /// The address and port from which the call came over an internet protocol; `None` on this
    /// machine's own paths and on raw Ethernet.
    pub fn from(&self) -> Option<SocketAddr> {
        self.0.from
    }

    /// The Ethernet address from which the call came; `None` on other paths. Nobody vouches for it:
    /// whoever is on the link can send in the name of any.
    pub fn hardware(&self) -> Option<[u8; 6]> {
        self.0.hardware
    }
}

thread_local! {
    static CALLER: RefCell<Option<Caller>> = const { RefCell::new(None) };
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
    CALLER.with_borrow(Clone::clone)
}

/// Of a thread that runs no call.
const OUTSIDE: u32 = u32::MAX;

thread_local! {
    /// The process whose call this thread runs (zero if nobody knows it), or [`OUTSIDE`]: the same,
    /// for those in a hurry.
    static INSIDE: Cell<u32> = const { Cell::new(OUTSIDE) };
}

/// The process whose call this thread runs, if it runs one.
#[inline(always)]
pub(crate) fn inside() -> Option<u32> {
    let process = INSIDE.get();
    (process != OUTSIDE).then_some(process)
}

/// Puts the caller in place; gives back whoever was there.
pub(crate) fn enter(info: Option<Arc<CallerInfo>>) -> Option<Arc<CallerInfo>> {
    // Who calls over a network may say that it is any process.
    INSIDE.set(info.as_ref().map_or(OUTSIDE, |info| info.process.min(OUTSIDE - 1)));
    CALLER.replace(info.map(Caller)).map(|caller| caller.0)
}
