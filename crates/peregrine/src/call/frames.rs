//! `Frames`: the call frames (A-stacks) of a session, taken and given back without a virtual call.
//!
//! Firefly's Starter and Ender: a thread tries the frame that it used before. LRPC's uncommon case:
//! if none is free the caller waits or more are made, as [`OnExhausted`] says. Who has which frame, and
//! how callers wait in order, stands in `turns.rs`; here is where the frames are.

use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::OnExhausted;
use super::turns::{Patience, Turns};
use crate::limits;
use crate::sys::Memory;
use crate::value::{Space, Window, align_up};

/// Where each frame's call space and reply space lie in the memory of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLayout {
    /// How many frames there are.
    pub count: u32,
    /// Bytes before the first frame.
    pub first: usize,
    /// Bytes from one frame to the next.
    pub stride: usize,
    /// Bytes from a frame's start to its call space.
    pub call_at: usize,
    /// Bytes from a frame's start to its reply space.
    pub reply_at: usize,
    /// Bytes of either space.
    pub bytes: usize,
}

/// The frames of one session, for any number of threads and bindings.
///
/// All of them lie in the memory from the first; only some are *active*, which is to say used. What
/// was never used has no pages, so a frame that is not active costs 128 bytes here.
///
/// ```
/// use peregrine::OnExhausted;
/// use peregrine::call::Frames;
///
/// let frames = Frames::private(4, 1, 4096)?;
/// let one = frames.take(|| None, |_| true, OnExhausted::Wait).expect("a free frame");
/// // The only active frame is taken: another one becomes active.
/// let two = frames.take(|| None, |_| true, OnExhausted::More).expect("a new frame");
/// assert_ne!(one.index(), two.index());
/// assert_eq!(frames.active(), 2);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Frames {
    memory: Arc<Memory>,
    layout: FrameLayout,
    turns: Turns,
    look_every: Duration,
}

/// Returns how many frames a session has room for: `count`, or fewer if messages are large.
///
/// The number is the same on every path, so that a binding may have the same number of calls in flight
/// whichever path it takes. It is what fits a region of the local path, whose frames take the most
/// address space (`path/local/region.rs`). Memory that is never touched costs nothing.
pub(crate) fn frames_that_fit(count: u32, message_bytes: usize) -> u32 {
    /// What a region has beside its frames: one page before them, and one at most after them.
    const PAGES: usize = 2 * 4096;
    /// What each frame has beside its two messages: a header and room to rotate for each, and words.
    const HEADER: usize = 32;
    const ROTATION: usize = 2 << 20;
    const WORDS: usize = 3 * 128;
    let message_bytes = message_bytes.min(limits::MESSAGE_BYTES_MAX);
    let stride = 2 * (message_bytes + ROTATION + HEADER).next_multiple_of(128) + WORDS;
    let most = ((limits::REGION_BYTES_MAX - PAGES) / stride) as u32;
    count.min(most).clamp(1, limits::ASTACKS_MAX)
}

/// The longest time, while callers wait, without a look at frames that come back without a notice.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A small number for each thread, so that it finds its last frame again.
#[inline]
fn thread_index() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    thread_local!(static INDEX: Cell<u32> = const { Cell::new(u32::MAX) });
    INDEX.with(|index| {
        if index.get() == u32::MAX {
            index.set(NEXT.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff);
        }
        index.get()
    })
}

impl Frames {
    /// `count` frames in private memory, each for a call and a reply of at most `bytes` bytes. The
    /// first `active`, but at least one, are in use from now on.
    ///
    /// # Errors
    /// If the kernel has no memory.
    ///
    /// # Panics
    /// If there is no frame.
    pub fn private(count: u32, active: u32, bytes: usize) -> io::Result<Self> {
        let bytes = align_up(bytes);
        let stride = 2 * bytes;
        let memory = Memory::private(stride * count as usize)?;
        let layout = FrameLayout { count, first: 0, stride, call_at: 0, reply_at: bytes, bytes };
        Ok(Self::new(Arc::new(memory), layout, active))
    }

    /// All frames of the layout; the first `active`, but at least one, are in use from now on.
    ///
    /// # Panics
    /// If there is no frame, or the layout does not lie within the memory.
    pub(crate) fn new(memory: Arc<Memory>, layout: FrameLayout, active: u32) -> Self {
        assert!(layout.count > 0, "a binding needs a frame");
        let last = layout.first + layout.stride * (layout.count as usize - 1);
        let end = last + layout.call_at.max(layout.reply_at) + layout.bytes;
        assert!(end <= memory.len(), "frames of {end} bytes in {} bytes", memory.len());
        let starts = (0..layout.count as usize).map(|index| layout.first + layout.stride * index);
        let turns = Turns::new(starts, active.clamp(1, layout.count));
        Self { memory, layout, turns, look_every: LOOK_EVERY }
    }

    /// The memory in which the frames lie.
    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Where they lie.
    pub const fn layout(&self) -> &FrameLayout {
        &self.layout
    }

    /// How many are in use, those included that are free.
    pub fn active(&self) -> u32 {
        self.turns.active()
    }

    /// Makes at least `count` frames active, or all there are if that is less. Shrinking leaves as
    /// many from now on.
    pub fn at_least(&self, count: u32) {
        self.turns.at_least(count);
    }

    /// Takes a frame. While there is none, does as `short` says; who waits, waits in the order of
    /// coming, until `deadline`. `is_released` returns whether the server has let go of a captured frame.
    /// It may be asked on behalf of another caller, and must not take frames itself. It is asked
    /// without any lock of this pool, and may use the rest of it.
    ///
    /// A caller that gives up has no frame, even if one came at the last moment: the next gets it.
    #[inline]
    pub fn take(
        &self,
        deadline: impl FnOnce() -> Option<Instant>,
        is_released: impl Fn(u32) -> bool,
        short: OnExhausted,
    ) -> Option<Taken<'_>> {
        match self.turns.take(thread_index()) {
            Some(index) => Some(Taken { frames: self, index }),
            None => self.take_slowly(deadline(), &is_released, short),
        }
    }

    /// The hinted frame was not free, or others wait.
    #[cold]
    #[inline(never)]
    fn take_slowly(
        &self,
        deadline: Option<Instant>,
        is_released: &dyn Fn(u32) -> bool,
        short: OnExhausted,
    ) -> Option<Taken<'_>> {
        // A procedure's own call may be what those who have the others wait for.
        let short = if super::inside().is_some() { OnExhausted::More } else { short };
        let left = || {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            left.unwrap_or(Duration::MAX)
        };
        let patience = Patience { left: &left, look_every: self.look_every };
        let index = self.turns.take_slowly(thread_index(), &patience, is_released, short)?;
        Some(Taken { frames: self, index })
    }

    /// Takes back captured frames of which `is_released` says that the server has let go. Otherwise they
    /// come back when a caller finds no other frame, and until then are neither free nor shrunk.
    pub fn reclaim(&self, is_released: &dyn Fn(u32) -> bool) {
        self.turns.reclaim(is_released);
    }

    /// Gives back what a burst of calls made active; to be called about once a second.
    ///
    /// Takes each frame beyond those that [`Frames::private`] and [`Frames::at_least`] asked for that
    /// is free, was free the last time this was called, and has not been used in between, and calls
    /// `release` with its index. Nobody else uses the frame meanwhile, and what `release` leaves
    /// in its memory must do for its next call. Where all frames behind such a one are no longer
    /// active, neither is this.
    ///
    /// If `release` panics, its frame is lost.
    pub fn shrink(&self, release: &dyn Fn(u32)) {
        self.turns.shrink(release);
    }

    /// Does something with each frame that is free, while nobody else has it.
    pub fn each_free(&self, todo: &dyn Fn(u32)) {
        self.turns.each_free(todo);
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("layout", &self.layout).finish_non_exhaustive()
    }
}

/// A frame that belongs to one call; given back when dropped.
#[derive(Debug)]
pub struct Taken<'a> {
    frames: &'a Frames,
    index: u32,
}

impl<'a> Taken<'a> {
    /// Its number, from 0.
    #[inline]
    pub const fn index(&self) -> u32 {
        self.index
    }

    #[inline]
    fn part(&self, at: usize) -> Space<'a> {
        let start = self.frames.turns.start(self.index) + at;
        let space = self.frames.memory.space();
        space.range(start, self.frames.layout.bytes)
    }

    /// Does something with the place where the message of the call goes.
    pub fn fill<T>(&mut self, fill: impl FnOnce(&Self, Space<'_>) -> T) -> T {
        fill(self, self.call_space())
    }

    /// Where the message of the call goes.
    #[inline]
    pub(crate) fn call_space(&self) -> Space<'a> {
        self.part(self.frames.layout.call_at)
    }

    /// Where the message of the result is.
    #[inline]
    pub(crate) fn reply_space(&self) -> Window<'a> {
        self.part(self.frames.layout.reply_at).window()
    }

    /// The reply space as the server writes it, for paths that run the server themselves.
    #[inline]
    pub(crate) fn reply_to(&self) -> Space<'a> {
        self.part(self.frames.layout.reply_at)
    }

    /// Leaves the frame to the server, which may still use it: the caller gave up. It comes back
    /// when the server lets go.
    pub fn capture(self) {
        self.frames.turns.capture(self.index);
        core::mem::forget(self);
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.turns.give_back(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const LONG: Duration = Duration::from_secs(20);
    const BYTES: usize = 4096;

    fn frames(count: u32, active: u32) -> Frames {
        let stride = 2 * BYTES;
        let memory = Memory::private(stride * count as usize).unwrap();
        let layout =
            FrameLayout { count, first: 0, stride, call_at: 0, reply_at: BYTES, bytes: BYTES };
        Frames::new(Arc::new(memory), layout, active)
    }

    /// Frames whose callers never look at them by themselves: what is not handed over is lost.
    fn strict(count: u32, active: u32) -> Frames {
        Frames { look_every: LONG, ..frames(count, active) }
    }

    #[test]
    fn frames_lie_within_their_memory() {
        let refused = |bytes: usize, call_at, reply_at| {
            let memory = Arc::new(Memory::private(4096).unwrap());
            assert_eq!(memory.len(), 4096);
            let layout =
                FrameLayout { count: 2, first: 96, stride: 2000, call_at, reply_at, bytes };
            std::panic::catch_unwind(|| Frames::new(memory, layout, 1)).is_err()
        };
        assert!(!refused(1000, 0, 1000) && !refused(1000, 1000, 0));
        assert!(refused(1001, 0, 1000) && refused(1000, 1001, 0));
    }

    impl Frames {
        fn wait(&self) -> Option<Taken<'_>> {
            self.take(|| None, |_| false, OnExhausted::Wait)
        }

        fn wait_for(&self, limit: Duration) -> Option<Taken<'_>> {
            self.take(|| Some(Instant::now() + limit), |_| false, OnExhausted::Wait)
        }

        fn more(&self) -> Taken<'_> {
            self.take(|| None, |_| false, OnExhausted::More).expect("one more")
        }

        /// Returns when so many callers wait.
        fn until_waiting(&self, callers: usize) {
            until(|| self.turns.waiting() == callers);
        }

        /// The frames whose memory shrinking gives back.
        fn shrunk(&self) -> Vec<u32> {
            let released = Mutex::new(Vec::new());
            self.shrink(&|index| released.lock().unwrap().push(index));
            released.into_inner().unwrap()
        }
    }

    fn until(condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LONG, "it never came so far");
            thread::yield_now();
        }
    }

    const MOMENT: Duration = Duration::from_millis(20);

    #[test]
    fn who_waits_longest_is_next() {
        let frames = strict(2, 2);
        let (one, other) = (frames.wait().unwrap(), frames.wait().unwrap());
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for place in 0..6 {
                frames.until_waiting(place);
                let (frames, order) = (&frames, &order);
                scope.spawn(move || {
                    let taken = frames.wait().unwrap();
                    order.lock().unwrap().push((place, taken.index()));
                });
            }
            frames.until_waiting(6);
            // From here on one frame goes from each to the next.
            let index = one.index();
            drop(one);
            until(|| order.lock().unwrap().len() == 6);
            let expected: Vec<_> = (0..6).map(|place| (place, index)).collect();
            assert_eq!(*order.lock().unwrap(), expected);
        });
        drop(other);
        assert!(frames.wait_for(Duration::ZERO).is_some());
    }

    #[test]
    fn nobody_overtakes_one_who_waits() {
        let frames = strict(1, 1);
        for _ in 0..20 {
            let taken = frames.wait().unwrap();
            let was_next = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let _taken = frames.wait().unwrap();
                    thread::sleep(Duration::from_millis(1));
                    was_next.store(true, Ordering::Relaxed);
                });
                frames.until_waiting(1);
                drop(taken);
                // At once, while the other is still being woken.
                let _taken = frames.wait().unwrap();
                assert!(was_next.load(Ordering::Relaxed), "its frame was taken from it");
            });
        }
    }

    #[test]
    fn a_deadline_ends_the_wait_and_the_place_in_the_queue() {
        let frames = strict(1, 1);
        let taken = frames.wait().unwrap();
        let start = Instant::now();
        assert!(frames.wait_for(MOMENT).is_none());
        assert!((MOMENT..LONG).contains(&start.elapsed()));
        assert!(frames.wait_for(Duration::ZERO).is_none());
        assert_eq!(frames.turns.waiting(), 0);
        thread::scope(|scope| {
            let hasty = scope.spawn(|| frames.wait_for(MOMENT).is_none());
            // On a machine that is late it has come and gone.
            until(|| frames.turns.waiting() == 1 || hasty.is_finished());
            let patient = scope.spawn(|| frames.wait().is_some());
            assert!(hasty.join().unwrap());
            frames.until_waiting(1);
            drop(taken);
            assert!(patient.join().unwrap());
        });
        // What is free is taken also by one who has no time.
        assert!(frames.wait_for(Duration::ZERO).is_some());
    }

    #[test]
    fn more_are_made_until_there_are_no_more() {
        let frames = strict(3, 1);
        let first = frames.wait().unwrap();
        assert!(frames.wait_for(Duration::ZERO).is_none(), "waiting makes no more");
        assert_eq!(frames.active(), 1);
        let (second, third) = (frames.more(), frames.more());
        assert_eq!((first.index(), second.index(), third.index()), (0, 1, 2));
        thread::scope(|scope| {
            let beyond = scope.spawn(|| frames.more().index());
            frames.until_waiting(1);
            drop(second);
            assert_eq!(beyond.join().unwrap(), 1);
        });
        assert_eq!(frames.more().index(), 1, "one that is free comes before one that is new");
        assert_eq!(frames.active(), 3);
    }

    #[test]
    fn one_who_wants_more_does_not_wait_behind_those_who_wait() {
        let frames = strict(2, 1);
        let first = frames.wait().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| frames.wait().unwrap().index());
            frames.until_waiting(1);
            let second = frames.more();
            assert_eq!((second.index(), frames.turns.waiting()), (1, 1));
            // The new one is given back as any is: to the one who waits.
            drop(second);
            assert_eq!(waits.join().unwrap(), 1);
        });
        drop(first);
    }

    #[test]
    fn at_least_serves_those_who_wait_and_stays() {
        let frames = strict(4, 1);
        let _first = frames.wait().unwrap();
        thread::scope(|scope| {
            let two = [(); 2].map(|()| scope.spawn(|| frames.wait().unwrap().index()));
            frames.until_waiting(2);
            frames.at_least(3);
            assert!(two.into_iter().all(|one| (1..3).contains(&one.join().unwrap())));
        });
        frames.at_least(2);
        assert_eq!(frames.active(), 3, "less than what is there changes nothing");
        frames.at_least(100);
        assert_eq!(frames.active(), 4, "there are no more");
        assert_eq!((frames.shrunk(), frames.shrunk(), frames.active()), (vec![], vec![], 4));
    }

    #[test]
    fn captured_frames_are_shrunk_once_they_were_taken_back() {
        let frames = frames(3, 1);
        let (_one, two, three) = (frames.more(), frames.more(), frames.more());
        let index = two.index();
        two.capture();
        three.capture();
        frames.reclaim(&|frame| frame == index);
        assert_eq!((frames.shrunk(), frames.shrunk()), (vec![], vec![index]));
        assert_eq!(frames.active(), 3, "the last one is the server's still");
        frames.reclaim(&|_| true);
        assert_eq!((frames.shrunk().len(), frames.shrunk()), (0, vec![2]));
        assert_eq!(frames.active(), 1);
    }

    #[test]
    fn what_is_not_used_from_one_time_to_the_next_is_given_back() {
        let frames = strict(5, 2);
        let mut taken: Vec<_> = (0..5).map(|_| frames.more()).collect();
        assert_eq!((frames.shrunk(), frames.shrunk(), frames.active()), (vec![], vec![], 5));
        let last = taken.pop();
        taken.clear();
        // Marked, and then used: not given back.
        assert!(frames.shrunk().is_empty());
        let again: Vec<_> = (0..4).map(|_| frames.wait().unwrap()).collect();
        drop(again);
        assert!(frames.shrunk().is_empty());
        // The last one is used, so all stay active, but the memory of the others goes, once.
        assert_eq!((frames.shrunk(), frames.active()), (vec![2, 3], 5));
        assert!(frames.shrunk().is_empty());
        // They can be taken all the same.
        let again: Vec<_> = (0..4).map(|_| frames.wait().unwrap()).collect();
        assert!(again.iter().any(|taken| taken.index() == 3));
        drop((again, last));
        assert_eq!((frames.shrunk(), frames.active()), (vec![], 5));
        assert_eq!((frames.shrunk(), frames.active()), (vec![2, 3, 4], 2));
        assert_eq!((frames.shrunk(), frames.active()), (vec![], 2));
        // From the start again.
        let taken: Vec<_> = (0..3).map(|_| frames.more()).collect();
        assert_eq!((taken.last().map(Taken::index), frames.active()), (Some(2), 3));
    }

    #[test]
    fn a_frame_whose_memory_is_given_back_is_nobody_elses_meanwhile() {
        let frames = strict(2, 1);
        let (first, second) = (frames.more(), frames.more());
        drop(second);
        assert!(frames.shrunk().is_empty());
        thread::scope(|scope| {
            frames.shrink(&|index| {
                assert_eq!(index, 1);
                assert!(frames.wait_for(Duration::ZERO).is_none());
                // Who comes now gets it when it is given back.
                let frames = &frames;
                scope.spawn(move || assert_eq!(frames.wait().unwrap().index(), 1));
                frames.until_waiting(1);
            });
        });
        drop(first);
    }

    #[test]
    fn a_captured_frame_comes_back_when_it_is_let_go() {
        let frames = frames(2, 1);
        frames.wait().unwrap().capture();
        let asked = Mutex::new(Vec::new());
        let held = |index| {
            asked.lock().unwrap().push(index);
            false
        };
        let late = || Some(Instant::now());
        assert!(frames.take(late, held, OnExhausted::Wait).is_none());
        assert!(asked.lock().unwrap().iter().all(|index| *index == 0));
        assert!(!asked.lock().unwrap().is_empty());
        // It is as good as taken: who does not wait gets another.
        assert_eq!(frames.take(late, held, OnExhausted::More).map(|taken| taken.index()), Some(1));
        let second = frames.take(late, held, OnExhausted::More).unwrap();
        // Nobody says so when it is let go; who waits finds out.
        let is_released = AtomicBool::new(false);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let is_released = |_| is_released.load(Ordering::Relaxed);
                frames.take(|| None, is_released, OnExhausted::Wait).unwrap().index()
            });
            frames.until_waiting(1);
            is_released.store(true, Ordering::Relaxed);
            assert_eq!(waits.join().unwrap(), 0);
        });
        // It is a frame like any other again.
        drop(second);
        assert!(frames.wait_for(Duration::ZERO).is_some());
    }

    #[test]
    fn one_who_waits_finds_what_was_let_go_for_the_one_before() {
        let frames = frames(2, 2);
        let second = {
            let (first, second) = (frames.wait().unwrap(), frames.wait().unwrap());
            first.capture();
            second
        };
        let is_released = AtomicBool::new(false);
        thread::scope(|scope| {
            // The first in the queue cannot tell, the second can.
            let first = scope.spawn(|| frames.wait().unwrap().index());
            frames.until_waiting(1);
            let tells = scope.spawn(|| {
                let is_released = |_| is_released.load(Ordering::Relaxed);
                frames.take(|| None, is_released, OnExhausted::Wait).unwrap().index()
            });
            frames.until_waiting(2);
            let captured = 1 - second.index();
            is_released.store(true, Ordering::Relaxed);
            assert_eq!(first.join().unwrap(), captured);
            tells.join().unwrap();
        });
    }

    /// A number that nobody can foresee, but that is the same in each run.
    fn next(state: &mut u32) -> u32 {
        *state ^= *state << 13;
        *state ^= *state >> 17;
        *state ^= *state << 5;
        *state
    }

    /// Eight threads, fewer frames, a keeper that shrinks all the time.
    fn stress(frames: &Frames, calls: u32, captures: bool) {
        let holders: Vec<_> = (0..frames.layout().count).map(|_| AtomicU32::new(0)).collect();
        let hold = |index: u32, who| {
            assert_eq!(holders[index as usize].swap(who, Ordering::Relaxed), 0, "two have one");
        };
        let release = |index: u32| holders[index as usize].store(0, Ordering::Relaxed);
        let (left, start) = (AtomicU32::new(8), Instant::now());
        let one = |thread: u32| {
            let mut state = thread.wrapping_mul(0x9e37_79b9);
            for _ in 0..calls / 8 {
                let limit = match next(&mut state) % 4 {
                    0 => Some(Instant::now() + Duration::from_micros((state >> 8) as u64 % 50)),
                    _ => None,
                };
                let short = if next(&mut state).is_multiple_of(64) {
                    OnExhausted::More
                } else {
                    OnExhausted::Wait
                };
                let Some(taken) = frames.take(|| limit, |_| true, short) else {
                    assert!(limit.is_some(), "it gave up without a deadline");
                    continue;
                };
                hold(taken.index(), thread);
                if next(&mut state).is_multiple_of(16) {
                    thread::yield_now();
                }
                release(taken.index());
                if captures && next(&mut state).is_multiple_of(256) {
                    taken.capture();
                }
            }
            left.fetch_sub(1, Ordering::Relaxed);
        };
        thread::scope(|scope| {
            for thread in 1..=8 {
                let one = &one;
                scope.spawn(move || one(thread));
            }
            while left.load(Ordering::Relaxed) > 0 {
                frames.shrink(&|index| {
                    hold(index, 9);
                    release(index);
                });
                thread::sleep(Duration::from_micros(200));
            }
        });
        assert!(start.elapsed() < LONG, "somebody slept until he looked by himself");
        assert_eq!(frames.turns.waiting(), 0);
        let all = || frames.take(|| Some(Instant::now()), |_| true, OnExhausted::Wait);
        let all: Vec<_> = (0..frames.active()).map_while(|_| all()).collect();
        assert_eq!(all.len() as u32, frames.active(), "a frame was lost");
    }

    #[test]
    fn no_frame_is_lost_between_those_who_give_wait_and_give_up() {
        if !crate::sys::membarrier() {
            eprintln!("skipped: without membarrier a frame may come late");
            return;
        }
        stress(&strict(2, 2), 50_000, false);
        stress(&strict(4, 2), 30_000, false);
    }

    #[test]
    fn captured_frames_come_late_but_come() {
        let frames = Frames { look_every: Duration::from_millis(1), ..frames(3, 2) };
        stress(&frames, 20_000, true);
    }
}
