//! The two streams of a callback at one side, and the items that they carry.

use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::Waker;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::Wake;

use crate::call::batch::ResultRecord;
use crate::call::streams::{CallbackEnds, Received, Room, item_cost};
use crate::call::words::{HEADER_BYTES, halves, to_bytes, wide, words_at};
use crate::error::CallError;
use crate::sync::{Mutex, Rank};
use crate::value::{Native, Overflow, Window, Writer, align_up};

/// The kind of an item from the procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum RequestKind {
    Call = 1,
    Cancel = 2,
}

/// The header of an item from the procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) number: u64,
    pub(super) kind: RequestKind,
    pub(super) procedure: u32,
    pub(super) head: u32,
    pub(super) copied: u32,
    pub(super) total: u32,
    pub(super) extensions: u32,
}

impl RequestHeader {
    pub(super) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let Self { number, kind, procedure, head, copied, total, extensions } = self;
        let [low, high] = halves(number);
        to_bytes([low, high, kind as u32, procedure, head, copied, total, extensions])
    }

    /// Takes an item from the front of `items`. Returns the header, the message and the extensions.
    pub(super) fn take<'i>(items: &mut &'i [u8]) -> Option<(Self, &'i [u8], &'i [u8])> {
        let [low, high, kind, procedure, head, copied, total, extensions] = words_at(items, 0)?;
        let kind = match kind {
            1 => RequestKind::Call,
            2 => RequestKind::Cancel,
            _ => return None,
        };
        if head > copied || copied > total {
            return None;
        }
        let message = take(items, HEADER_BYTES, total)?;
        let rest = take(items, 0, extensions)?;
        let number = wide(low, high);
        Some((Self { number, kind, procedure, head, copied, total, extensions }, message, rest))
    }
}

/// Returns the number of bytes of an item with a message and extensions of these sizes.
pub(super) const fn item_bytes(message: usize, extensions: usize) -> usize {
    HEADER_BYTES + align_up(message) + align_up(extensions)
}

/// Takes an item of the object from the front of `items`. Returns its header and the result.
pub(super) fn take_result<'i>(items: &mut &'i [u8]) -> Option<(ResultRecord, &'i [u8])> {
    let record = ResultRecord::at(items, 0)?;
    if record.head_at.checked_add(record.head_bytes)? > record.total {
        return None;
    }
    Some((record, take(items, HEADER_BYTES, record.total)?))
}

/// Removes the first `skipped` bytes of `items`, the next `bytes` bytes, and their padding. Returns the
/// `bytes` bytes.
fn take<'i>(items: &mut &'i [u8], skipped: usize, bytes: u32) -> Option<&'i [u8]> {
    let end = skipped.checked_add(bytes as usize)?;
    let taken = items.get(skipped..end)?;
    *items = items.get(end.checked_next_multiple_of(16)?..)?;
    Some(taken)
}

/// Handles what one side of a callback receives.
pub(crate) trait Handles: Send + Sync + Sized + 'static {
    /// Handles the item at the front of `items`, and removes it from `items`. Returns `None` if the
    /// item is malformed.
    fn take(&self, side: &Arc<Side<Self>>, items: &mut &[u8]) -> Option<()>;

    /// Handles a wake-up, after everything that has arrived was handled. There may be new credit.
    fn woken(&self);

    /// Called when the peer sends nothing more. `error` is the reason, or `None` if the peer has sent
    /// everything.
    fn end(&self, side: &Side<Self>, error: Option<CallError>);
}

/// One side of a callback.
pub(crate) struct Side<H> {
    ends: CallbackEnds,
    pub(super) handler: H,
    /// Items for which there was no credit yet, and the numbers of their calls.
    unsent: Mutex<VecDeque<(u64, Vec<u8>)>>,
    /// The number of wake-ups that were not handled yet.
    wakes: AtomicUsize,
    /// The waker of this side. It has only a weak reference to the side.
    waker: Waker,
}

/// The waker of a side, which may have been dropped already.
struct WakesSide<H>(Weak<Side<H>>);

impl<H: Handles> Wake for WakesSide<H> {
    fn wake(self: Arc<Self>) {
        if let Some(side) = self.0.upgrade() {
            side.receive();
        }
    }
}

impl<H: Handles> Side<H> {
    /// Makes one side of a callback. The side receives nothing before [`receive`](Self::receive) is called.
    pub(super) fn new(ends: CallbackEnds, handler: H) -> Arc<Self> {
        Arc::new_cyclic(|side| Self {
            ends,
            handler,
            unsent: Mutex::ranked(Rank::Callback, VecDeque::new()),
            wakes: AtomicUsize::new(0),
            waker: Waker::from(Arc::new(WakesSide(Weak::clone(side)))),
        })
    }

    /// Handles everything that has arrived, and sends the unsent items for which there is credit. The
    /// streams wake this side when something arrives.
    pub(super) fn receive(self: &Arc<Self>) {
        // Handling an item may wake this side on the same thread, and another thread may wake it at any time.
        // The first thread that gets here does the work for all of these wake-ups.
        if self.wakes.fetch_add(1, Ordering::SeqCst) > 0 {
            return;
        }
        let mut handled = 1;
        loop {
            self.receive_once();
            self.send_unsent();
            self.handler.woken();
            // SYNC: wakes. A wake-up that is not subtracted here may be for an item that arrived after the
            // last look. So the loop looks again.
            match self.wakes.fetch_sub(handled, Ordering::SeqCst) - handled {
                0 => return,
                more => handled = more,
            }
        }
    }

    fn receive_once(self: &Arc<Self>) {
        loop {
            match self.ends.incoming.receive(Some(&self.waker)) {
                Received::Nothing => return,
                Received::End => return self.handler.end(self, None),
                Received::Broken(error) => return self.handler.end(self, Some(error)),
                Received::Items(chunk) => {
                    let mut items = chunk.bytes();
                    for _ in 0..chunk.count() {
                        if self.handler.take(self, &mut items).is_none() {
                            let error = CallError::bad_result("an item of a callback is malformed");
                            self.ends.incoming.fail(&error);
                            break;
                        }
                    }
                }
            }
        }
    }

    /// Notes that an item of `bytes` bytes was handled, and grants the peer new credit for it.
    pub(super) fn consume(&self, bytes: usize) {
        if self.ends.incoming.consume(1, item_cost(bytes)) {
            self.ends.carrier.list(&self.ends.incoming, false);
        }
    }

    /// If nothing has arrived, asks whether the peer has opened the callback.
    pub(super) fn ask(&self) {
        if self.ends.incoming.ask() {
            self.ends.carrier.list(&self.ends.incoming, false);
        }
    }

    /// Returns whether the peer has sent anything.
    pub(super) fn has_begun(&self) -> bool {
        self.ends.incoming.has_begun() || self.ends.outgoing.has_begun()
    }

    /// Returns whether the peer takes more items. If not, this side is woken when the peer takes more.
    pub(super) fn room(&self) -> Room {
        if !self.unsent.lock().is_empty() {
            Room::Full
        } else {
            self.ends.outgoing.room(Some(&self.waker))
        }
    }

    /// Returns whether the peer takes no more items.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.ends.outgoing.room(None), Room::Ended(_))
    }

    /// Returns why the peer has ended the callback, if the peer has given a reason.
    pub(super) fn reason(&self) -> Option<String> {
        self.ends.outgoing.stop_reason()
    }

    /// Sends an item of the call `number`, or keeps the item until there is credit. `parts` are the header of
    /// the item, and what follows. Each part begins at a multiple of 16 bytes.
    ///
    /// # Errors
    /// If the item does not fit a message.
    pub(super) fn send(&self, number: u64, parts: &[Window<'_>]) -> Result<(), Overflow> {
        let bytes: usize = parts.iter().map(|part| align_up(part.len())).sum();
        if bytes > self.item_bytes_max() {
            return Err(Overflow::Full);
        }
        let mut unsent = self.unsent.lock();
        if unsent.is_empty() && matches!(self.ends.outgoing.room(Some(&self.waker)), Room::Free) {
            let tells = self.add(parts)?;
            drop(unsent);
            self.tell(tells);
            return Ok(());
        }
        let mut item = Vec::with_capacity(bytes);
        for part in parts {
            let start = item.len();
            item.resize(start + align_up(part.len()), 0);
            let _ = part.read(0, &mut item[start..start + part.len()]);
        }
        unsent.push_back((number, item));
        Ok(())
    }

    /// Returns the largest size in bytes of an item.
    pub(super) const fn item_bytes_max(&self) -> usize {
        (self.ends.room & !15) - HEADER_BYTES
    }

    fn add(&self, parts: &[Window<'_>]) -> Result<bool, Overflow> {
        self.ends.outgoing.add(&mut |items: &mut Writer<'_, Native>| {
            parts.iter().try_for_each(|part| items.window(16, *part))?;
            items.align_to(16)
        })
    }

    fn send_unsent(&self) {
        let mut tells = false;
        let mut unsent = self.unsent.lock();
        while !unsent.is_empty() {
            match self.ends.outgoing.room(Some(&self.waker)) {
                Room::Full => break,
                Room::Ended(_) => unsent.clear(),
                Room::Free => {
                    if let Some((_, item)) = unsent.pop_front() {
                        // The size of the item was checked. Without memory, the item is lost, and its call
                        // ends at its deadline.
                        tells |= self.add(&[Window::from(&item[..])]).unwrap_or(false);
                    }
                }
            }
        }
        drop(unsent);
        self.tell(tells);
    }

    /// Forgets the unsent items of a call. Returns whether there were any.
    pub(super) fn take_back(&self, number: u64) -> bool {
        let mut unsent = self.unsent.lock();
        let before = unsent.len();
        unsent.retain(|(one, _)| *one != number);
        unsent.len() < before
    }

    fn tell(&self, tells: bool) {
        if tells {
            self.ends.carrier.list(&self.ends.outgoing, false);
        }
    }

    /// Takes the records that have arrived at this process.
    pub(super) fn look(&self) {
        self.ends.carrier.look();
    }

    /// Ends the callback: this side sends nothing more, and takes no more items.
    pub(super) fn close(&self, reason: &str) {
        self.send_unsent();
        self.ends.close(reason);
    }
}
