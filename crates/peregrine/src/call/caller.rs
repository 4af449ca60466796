//! `caller()`: a running procedure asks who calls it, and on what terms.

use core::cell::{Cell, RefCell};
use std::sync::Arc;

/// The family of path that a binding uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathKind {
    /// The same process.
    InProcess,
    /// Shared memory with another process of this machine.
    Local,
}

impl core::fmt::Display for PathKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(match self {
            Self::InProcess => "in-process",
            Self::Local => "local",
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
}

/// Who calls, as the kernel vouched for it when the session began.
#[derive(Clone, Debug)]
pub struct Caller(Arc<CallerInfo>);

impl Caller {
    /// The path that the call took.
    pub fn path(&self) -> PathKind {
        self.0.path
    }

    /// The processes through which the call came, the first caller first, this one's caller last:
    /// a procedure of another server may have made the call. They are what each said of the
    /// one before it; the kernel vouches for the last.
    ///
    /// To be asked on the thread that runs the procedure.
    pub fn chain(&self) -> Vec<u32> {
        let mut processes = super::chain::processes();
        if processes.last() != Some(&self.0.process) {
            processes.push(self.0.process);
        }
        processes
    }

    /// The name under which the procedure was called; empty within one process.
    pub fn export(&self) -> &str {
        &self.0.export
    }

    /// The caller's process.
    pub fn process(&self) -> u32 {
        self.0.process
    }

    /// The caller's effective user.
    pub fn user(&self) -> u32 {
        self.0.user
    }

    /// The caller's effective group.
    pub fn group(&self) -> u32 {
        self.0.group
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

thread_local! {
    /// The process whose call this thread runs, or zero: the same, for those in a hurry.
    static INSIDE: Cell<u32> = const { Cell::new(0) };
}

/// The process whose call this thread runs, if it runs one.
#[inline(always)]
pub(crate) fn inside() -> Option<u32> {
    let process = INSIDE.get();
    (process != 0).then_some(process)
}

/// Puts the caller in place; gives back whoever was there.
pub(crate) fn enter(info: Option<Arc<CallerInfo>>) -> Option<Arc<CallerInfo>> {
    INSIDE.set(info.as_ref().map_or(0, |info| info.process));
    CALLER.replace(info.map(Caller)).map(|caller| caller.0)
}
