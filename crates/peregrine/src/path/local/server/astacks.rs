//! `ServerRegion`: the A-stacks (call frames) and the bindings of one client process, as the server uses
//! them.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use super::arrival::{StallPermits, Stalls};
use super::assignment::{self, Assignment, AssignmentWord, RingAction};
use super::deferred::{self, DeferredCall};
use super::pool::WorkerPool;
use crate::growing::Growing;
use crate::limits;
use crate::path::local::region::RegionLayout;
use crate::path::local::region::chunks::StoreMode;
use crate::path::local::region::word::{self, Look};
use crate::serving::binding_table::BindingTable;
use crate::sync::{Mutex, MutexGuard, Rank};
use crate::sys::{self, Memory};

/// The value of [`ServerAstack::queued`] that names no call.
pub(super) const NO_CALL: u32 = 0;

/// The user of a client process. A client can make each read of its region slow. A thread therefore
/// normally polls the A-stacks of one user only, so that slow reads delay only that user's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The server's own user, or root: both can stop the server anyway.
    Own,
    Other(u32),
}

/// The A-stacks and the bindings of a session.
pub(crate) struct ServerRegion {
    user: User,
    pub(super) memory: Memory,
    pub(super) layout: RegionLayout,
    pub(super) astacks: Growing<ServerAstack>,
    bindings: Mutex<BindingTable>,
    /// Whether the session has ended.
    pub(super) closed: AtomicBool,
    pub(super) stalls: Stalls,
    /// The deferred calls, by the number of the A-stack.
    pub(super) deferred: Mutex<HashMap<u32, DeferredCall>>,
    /// The pool whose workers poll the A-stacks.
    pub(super) pool: Weak<WorkerPool>,
    /// The number of this region, unique in this process.
    pub(super) number: u64,
}

/// The server's private record of an A-stack.
#[repr(align(64))]
pub(super) struct ServerAstack {
    /// The offset of the call word in the region. The header of the call follows this word.
    pub(super) call_at: usize,
    /// The offset of the reply word in the region. The header of the reply follows this word.
    pub(super) reply_at: usize,
    /// The offset of the taken word in the region.
    pub(super) taken_at: usize,
    /// The value of the call word of the last call that was taken.
    pub(super) last_call: AtomicU32,
    assignment: AssignmentWord<AtomicU32>,
    /// The value of the call word of the last call for which the client rang, or [`NO_CALL`].
    pub(super) queued: AtomicU32,
    /// The progress of a deferred call: see `deferred.rs`.
    pub(super) deferral: AtomicU32,
    /// The time in nanoseconds at which the client first rang for the call in `queued`.
    queued_at: AtomicU64,
    pub(super) store_mode: StoreMode,
}

impl ServerRegion {
    /// Makes the region of one session. Returns the region, and the descriptor by which the client maps the
    /// region's memory.
    pub(super) fn new(
        user: User,
        layout: RegionLayout,
        permits: Arc<StallPermits>,
        pool: Weak<WorkerPool>,
    ) -> io::Result<(Self, OwnedFd)> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (memory, file) = Memory::shared(layout.region_bytes())?;
        let astack = move |index| ServerAstack {
            call_at: layout.call_word(index),
            reply_at: layout.reply_word(index),
            taken_at: layout.taken_word(index),
            last_call: AtomicU32::new(0),
            assignment: AssignmentWord::default(),
            queued: AtomicU32::new(NO_CALL),
            deferral: deferred::no_deferral(),
            queued_at: AtomicU64::new(0),
            store_mode: StoreMode::default(),
        };
        let region = Self {
            user,
            memory,
            layout,
            astacks: Growing::new(layout.count, astack),
            bindings: Mutex::ranked(Rank::BindingTable, BindingTable::default()),
            closed: AtomicBool::new(false),
            stalls: Stalls::new(permits),
            deferred: Mutex::default(),
            pool,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        };
        Ok((region, file))
    }

    /// Returns the user of the client process.
    pub(crate) const fn user(&self) -> User {
        self.user
    }

    pub(crate) const fn layout(&self) -> RegionLayout {
        self.layout
    }

    /// Returns the number of A-stacks.
    pub(crate) const fn count(&self) -> u32 {
        self.layout.count
    }

    /// Locks the bindings of the session.
    #[track_caller]
    pub(crate) fn bindings(&self) -> MutexGuard<'_, BindingTable> {
        self.bindings.lock()
    }

    /// Returns a number that identifies the A-stack within this process. It is never zero.
    #[inline]
    pub(super) const fn key(&self, index: u32) -> u64 {
        self.number * limits::ASTACKS_MAX as u64 + index as u64 + 1
    }

    /// Returns which worker polls an A-stack, or `None` if there is no such A-stack.
    pub(crate) fn assignment(&self, index: u32) -> Option<Assignment> {
        self.astacks.get(index as usize).map(|astack| astack.assignment.get())
    }

    /// Sets which worker polls an A-stack, regardless of the previous value.
    pub(crate) fn set_assignment(&self, index: u32, to: Assignment) {
        self.astacks[index as usize].assignment.set(to);
    }

    /// Returns what the server must do because the client rang for an A-stack.
    pub(crate) fn on_ring(&self, index: u32) -> RingAction {
        let Some(astack) = self.astacks.get(index as usize) else { return RingAction::Nothing };
        match astack.assignment.on_ring(self.call_word(index), self.last_call(index)) {
            RingAction::Enqueue if self.is_closed() => RingAction::Nothing,
            action => action,
        }
    }

    /// Returns the value of the call word for the last call that was taken on an A-stack.
    #[inline]
    pub(super) fn last_call(&self, index: u32) -> u32 {
        self.astacks[index as usize].last_call.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn call_word(&self, index: u32) -> &AtomicU32 {
        self.memory.word(self.astacks[index as usize].call_at)
    }

    /// Looks for a new call on an A-stack.
    #[inline]
    pub(super) fn look(&self, index: u32) -> Look {
        let astack = &self.astacks[index as usize];
        word::look(self.memory.word(astack.call_at), astack.last_call.load(Ordering::Relaxed))
    }

    /// Returns whether an A-stack has a posted call that no thread has taken.
    pub(super) fn is_posted(&self, index: u32) -> bool {
        assignment::is_posted(self.call_word(index), self.last_call(index))
    }

    /// Marks in the call word that a thread sleeps on the word. Returns false if a call was posted.
    pub(super) fn mark_asleep(&self, index: u32) -> bool {
        assignment::mark_asleep(self.call_word(index), self.last_call(index))
    }

    /// Marks in the call word that a thread polls the word.
    pub(super) fn mark_polled(&self, index: u32) {
        assignment::mark_polled(self.call_word(index));
    }

    /// Ends the assignment of an A-stack, so that the client rings for its next call there. Returns false,
    /// and keeps the assignment, if a call was posted meanwhile.
    pub(super) fn unassign(&self, index: u32) -> bool {
        let astack = &self.astacks[index as usize];
        astack.assignment.clear(self.call_word(index), self.last_call(index))
    }

    /// Notes the time of the first ring for the call that is posted on an A-stack.
    pub(crate) fn note_queued(&self, index: u32) {
        let Some(astack) = self.astacks.get(index as usize) else { return };
        let Look::Posted(id) = self.look(index) else { return };
        if astack.queued.load(Ordering::Relaxed) != id {
            astack.queued_at.store(sys::boot_ns(), Ordering::Relaxed);
            // SYNC: queued, in `waited`.
            astack.queued.store(id, Ordering::Release);
        }
    }

    /// Returns how long ago the client first rang for call `id`, or zero if it did not ring.
    pub(super) fn waited(&self, astack: &ServerAstack, id: u32) -> Duration {
        let queued = astack.queued.load(Ordering::Acquire) == id;
        let waited = || sys::boot_ns().saturating_sub(astack.queued_at.load(Ordering::Relaxed));
        Duration::from_nanos(if queued { waited() } else { 0 })
    }

    /// Returns whether the client has given up the last call that was taken on an A-stack.
    pub(super) fn is_captured(&self, index: u32) -> bool {
        self.was_given_up(index, self.last_call(index))
    }

    /// Returns whether the client has given up call `id`.
    pub(super) fn was_given_up(&self, index: u32, id: u32) -> bool {
        self.memory.word(self.layout.given_up_word(index)).load(Ordering::Relaxed) == id
    }

    /// Closes the region because the session has ended: workers stop polling its A-stacks, and queued
    /// A-stacks are skipped. The caller wakes the workers through their own wake words. The words of the
    /// A-stacks are not changed: a write would allocate the memory of A-stacks that were never used.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // SYNC: rouse, the other half is in `WorkerHandle::sleep`. A worker that takes an A-stack of this
        // region after the wake-ups sees that the region is closed.
        fence(Ordering::SeqCst);
        self.cancel_deferred();
    }

    /// Returns whether the session has ended.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns whether any A-stack has a worker.
    pub(crate) fn has_workers(&self) -> bool {
        self.workers().next().is_some()
    }

    /// Returns the numbers of the workers to which A-stacks are assigned. A number may occur more than once.
    pub(crate) fn workers(&self) -> impl Iterator<Item = u32> {
        self.astacks.iter().filter_map(|one| match one.assignment.get() {
            Assignment::Worker(number) => Some(number),
            Assignment::Unassigned | Assignment::Queued | Assignment::Deferred => None,
        })
    }
}
