//! [`Flow`]: one end of a stream. The same code is used at the client and at the server, for senders and for
//! receivers.
//!
//! A flow does no input or output. The *user* of an end is the code that holds a sink, a source or a
//! callback. It adds items, or takes them. A conduit collects the records that are to be sent, and passes on
//! the records that arrive.

use core::task::Waker;
use std::collections::VecDeque;

use super::{HEADER_BYTES, ITEM_COST, Record, RecordKind};
use crate::error::{CallError, Executed, Kind};
use crate::sync::{Mutex, Rank};
use crate::value::{
    Overflow, Representation, Space, Window, Writer, align_up, bytes_of, bytes_of_blocks,
};

/// A record gets no more items when it has this number of bytes. A larger item has a record of its own.
const CHUNK_BYTES: usize = 16 << 10;
/// The largest number of records whose memory is kept.
const SPARE_MAX: usize = 4;

/// One end of a stream.
pub(crate) struct Flow {
    pub(crate) number: u32,
    state: Mutex<State>,
}

struct State {
    /// How many bytes a record may have, with its header.
    room: usize,
    /// The records of items that were not sent. Only the last one may get more items.
    chunks: VecDeque<Chunk>,
    /// Unused memory for records.
    spare: Vec<Chunk>,
    /// The number of items that were sent.
    sent: u64,
    /// The number of items that were added.
    added: u64,
    /// The total cost of the items that were added.
    cost: u64,
    /// The total cost that the receiver allows since the stream began.
    allowed: u64,
    /// The number of items that the receiver has taken, as far as the sender knows.
    taken: u64,
    /// The records of items that have arrived and were not taken.
    inbox: VecDeque<Chunk>,
    /// The number of items that have arrived.
    received: u64,
    /// The total cost of the items that have arrived.
    received_cost: u64,
    /// The number of items that the user of this receiver has consumed.
    consumed: u64,
    /// The total cost of the items that the user has consumed.
    consumed_cost: u64,
    /// The total cost that this receiver has granted.
    granted: u64,
    /// The cost that this receiver grants in addition to `consumed_cost`.
    window: u64,
    /// What is to be sent besides items.
    notice: Option<Notice>,
    /// Whether this receiver asks if its stream was opened.
    ask: Ask,
    /// Whether the user no longer needs the stream.
    closed: bool,
    /// Whether the user of the stream notices by itself that the client has gone.
    attended: bool,
    /// Why nothing more arrives from the peer.
    end: Option<End>,
    /// Whether a conduit knows that there is something to send.
    listed: bool,
    waker: Option<Waker>,
}

/// Whether a receiver asks if its stream was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    No,
    Due,
    Sent,
}

/// A record without items that is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Notice {
    Credit,
    End,
    Break,
    Stop(String),
}

/// How a stream ended at the peer.
#[derive(Debug)]
pub(crate) enum End {
    /// The sender has sent all items.
    Complete,
    /// The receiver wants no more items, for this reason.
    Stopped(String),
    /// The stream is broken.
    Broken(CallError),
}

/// Whether a sender may add an item.
#[derive(Debug)]
pub(crate) enum Room {
    Free,
    /// The receiver must grant more credit first.
    Full,
    Ended(CallError),
}

/// What a receiver finds when it looks for items.
#[derive(Debug)]
pub(crate) enum Received {
    Items(Chunk),
    /// Nothing has arrived.
    Nothing,
    /// All items were taken, and no more come.
    End,
    Broken(CallError),
}

/// What is left of a stream after its records were collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Records,
    Nothing,
    /// Neither side sends records any more.
    Over,
}

/// A record of items, with space for its header.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    memory: Vec<u128>,
    length: usize,
    count: u32,
}

impl Chunk {
    /// Returns a record without items, which has at most `room` bytes.
    fn empty(room: usize) -> Self {
        let memory = vec![0; room.min(CHUNK_BYTES) / size_of::<u128>()];
        Self { memory, length: HEADER_BYTES, count: 0 }
    }

    /// Sets the items of the record: `count` items, which are encoded in `bytes`.
    fn fill(&mut self, bytes: &[u8], count: u32) {
        let length = HEADER_BYTES + bytes.len();
        let blocks = length.div_ceil(size_of::<u128>());
        if self.memory.len() < blocks {
            self.memory = vec![0; blocks];
        }
        bytes_of_blocks(&mut self.memory)[HEADER_BYTES..length].copy_from_slice(bytes);
        (self.length, self.count) = (length, count);
    }

    /// Returns the number of items.
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the items as they were encoded.
    pub(crate) fn items(&self) -> Window<'_> {
        Window::from(self.bytes())
    }

    /// Returns the bytes of the items.
    pub(crate) fn bytes(&self) -> &[u8] {
        &bytes_of(&self.memory)[HEADER_BYTES..self.length]
    }

    pub(crate) const fn cost(&self) -> u64 {
        (self.length - HEADER_BYTES) as u64 + ITEM_COST * self.count as u64
    }

    /// Appends an item. If there is an error, the items of the chunk stay as they were.
    fn append<R: Representation>(
        &mut self,
        encode: &mut dyn FnMut(&mut Writer<'_, R>) -> Result<(), Overflow>,
    ) -> Result<(), Overflow> {
        let mut memory = bytes_of_blocks(&mut self.memory);
        if self.count > 0 {
            if self.length >= CHUNK_BYTES {
                return Err(Overflow::Full);
            }
            let most = memory.len().min(CHUNK_BYTES);
            memory = &mut memory[..most];
        }
        let mut writer: Writer<'_, R> = Writer::represented(Space::of_mut(memory));
        writer.resume(HEADER_BYTES, self.length);
        encode(&mut writer)?;
        self.length = HEADER_BYTES + writer.len();
        self.count += 1;
        Ok(())
    }
}

impl Flow {
    /// Returns an end of the stream `number`. A record has at most `room` bytes. If the end is a sender, it
    /// begins with the credit `allowed`. If it is a receiver, it has granted the credit `granted`, and later
    /// grants `window` more than the cost of the consumed items.
    pub(crate) fn new(number: u32, room: usize, allowed: u64, granted: u64, window: u64) -> Self {
        let state = State {
            room,
            chunks: VecDeque::new(),
            spare: Vec::new(),
            sent: 0,
            added: 0,
            cost: 0,
            allowed,
            taken: 0,
            inbox: VecDeque::new(),
            received: 0,
            received_cost: 0,
            consumed: 0,
            consumed_cost: 0,
            granted,
            window,
            notice: None,
            ask: Ask::No,
            closed: false,
            attended: true,
            end: None,
            listed: false,
            waker: None,
        };
        Self { number, state: Mutex::ranked(Rank::Stream, state) }
    }

    /// Marks this end as unattended: its user cannot notice by itself that the client has gone.
    pub(crate) fn unattended(mut self) -> Self {
        self.state.exclusive().attended = false;
        self
    }

    // The following functions are for the user of the stream. A function that changes the stream and returns
    // a bool returns whether the user must tell the conduit that there is something to send.

    /// Returns whether the sender may add an item. If not, `waker` is woken later.
    pub(crate) fn room(&self, waker: Option<&Waker>) -> Room {
        let mut state = self.state.lock();
        match &state.end {
            Some(end) => Room::Ended(end.to_sender(state.taken)),
            None if state.cost < state.allowed => Room::Free,
            None => {
                state.sleep(waker);
                Room::Full
            }
        }
    }

    /// Returns why the sender cannot send more items. If it can, `waker` is woken when this changes.
    pub(crate) fn ended(&self, waker: Option<&Waker>) -> Option<CallError> {
        let mut state = self.state.lock();
        let ended = state.end.as_ref().map(|end| end.to_sender(state.taken));
        if ended.is_none() {
            state.sleep(waker);
        }
        ended
    }

    /// Adds an item. The caller has checked that there is [room](Self::room).
    ///
    /// # Errors
    /// If the item does not fit a record.
    pub(crate) fn add<R: Representation>(
        &self,
        encode: &mut dyn FnMut(&mut Writer<'_, R>) -> Result<(), Overflow>,
    ) -> Result<bool, Overflow> {
        let mut state = self.state.lock();
        state.append(encode)?;
        Ok(state.list())
    }

    /// Ends the stream, as its sender.
    pub(crate) fn finish(&self) -> bool {
        self.close(Notice::End)
    }

    /// Gives the stream up, as its sender.
    pub(crate) fn give_up(&self) -> bool {
        self.close(Notice::Break)
    }

    fn close(&self, notice: Notice) -> bool {
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) {
            return false;
        }
        if state.end.is_some() || notice == Notice::Break {
            state.chunks.clear();
        }
        if state.end.is_none() {
            state.notice = Some(notice);
        }
        state.list()
    }

    /// Returns why the receiver wants no more items, if it has said so.
    pub(crate) fn stop_reason(&self) -> Option<String> {
        match &self.state.lock().end {
            Some(End::Stopped(reason)) => Some(reason.clone()),
            _ => None,
        }
    }

    /// Returns whether the peer has sent anything.
    pub(crate) fn has_begun(&self) -> bool {
        let state = self.state.lock();
        state.received > 0 || state.allowed > 0 || state.end.is_some()
    }

    /// Takes what has arrived. If nothing has, `waker` is woken later.
    pub(crate) fn receive(&self, waker: Option<&Waker>) -> Received {
        let mut state = self.state.lock();
        if let Some(chunk) = state.inbox.pop_front() {
            return Received::Items(chunk);
        }
        match &state.end {
            Some(End::Complete) => Received::End,
            Some(End::Broken(error)) => Received::Broken(error.copy()),
            Some(End::Stopped(_)) | None => {
                state.sleep(waker);
                Received::Nothing
            }
        }
    }

    /// Notes that the user has consumed `count` items, which have the total cost `cost`.
    pub(crate) fn consume(&self, count: u64, cost: u64) -> bool {
        let mut state = self.state.lock();
        state.consumed += count;
        state.consumed_cost += cost;
        let granted = state.consumed_cost + state.window;
        if granted - state.granted < state.window / 2 || state.closed || state.end.is_some() {
            return false;
        }
        state.granted = granted;
        state.notice = Some(Notice::Credit);
        state.list()
    }

    /// Keeps the memory of a record for another record. All items of the record were decoded.
    pub(crate) fn recycle(&self, chunk: Chunk) {
        let chunk = self.state.lock().keep(chunk);
        drop(chunk);
    }

    /// Grants the first credit.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.state.lock();
        state.granted = state.window;
        state.notice = Some(Notice::Credit);
        state.list()
    }

    /// Asks whether the peer has opened the stream, unless items have arrived. A peer that has not opened the
    /// stream answers with a record [`End`](RecordKind::End).
    pub(crate) fn ask(&self) -> bool {
        let mut state = self.state.lock();
        if state.received > 0 || state.closed || state.end.is_some() || state.ask != Ask::No {
            return false;
        }
        state.ask = Ask::Due;
        state.list()
    }

    /// Ends the stream, as its receiver. The sender learns the reason.
    pub(crate) fn stop(&self, reason: &str) -> bool {
        let mut state = self.state.lock();
        if core::mem::replace(&mut state.closed, true) || state.end.is_some() {
            return false;
        }
        state.inbox.clear();
        state.notice = Some(Notice::Stop(reason.to_owned()));
        state.list()
    }

    // The following functions are for the conduit.

    /// Takes a record that has arrived. If the peer breaks the rules, the stream is broken. Returns a waker,
    /// which must be woken while the calling thread holds no lock.
    pub(crate) fn take(&self, record: &Record, bytes: &[u8]) -> Option<Waker> {
        let mut state = self.state.lock();
        if state.take(record, bytes).is_none() {
            let text = "the peer has sent a record that the stream does not allow";
            state.break_off(&CallError::new(Kind::BadResult, Executed::Maybe, text));
        }
        state.waker.take()
    }

    /// Breaks the stream. Returns a waker, which must be woken while the calling thread holds no lock.
    pub(crate) fn break_off(&self, error: &CallError) -> Option<Waker> {
        let mut state = self.state.lock();
        state.break_off(error);
        state.waker.take()
    }

    /// Breaks the stream on behalf of its user. Items that have arrived are dropped.
    pub(crate) fn fail(&self, error: &CallError) {
        let mut state = self.state.lock();
        state.inbox.clear();
        state.end = Some(End::Broken(error.copy()));
    }

    /// Returns whether the stream is closed, or is [unattended](Self::unattended).
    pub(crate) fn is_left(&self) -> bool {
        let state = self.state.lock();
        state.closed || !state.attended
    }

    /// Returns the number of bytes of items that were sent and not collected, or have arrived and were not
    /// taken.
    pub(crate) fn buffered(&self) -> u64 {
        let state = self.state.lock();
        state.chunks.iter().chain(&state.inbox).map(|chunk| chunk.bytes().len() as u64).sum()
    }

    /// Appends at most `room` bytes to `message`: the records that this end has to send.
    pub(crate) fn collect(&self, room: usize, message: &mut Vec<u8>) -> Left {
        let mut state = self.state.lock();
        let left = state.collect(self.number, room, message);
        state.listed = left == Left::Records;
        left
    }
}

impl State {
    fn sleep(&mut self, waker: Option<&Waker>) {
        if let Some(waker) = waker {
            match &mut self.waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            }
        }
    }

    fn break_off(&mut self, error: &CallError) {
        if self.end.is_none() {
            self.end = Some(End::Broken(error.copy()));
            self.chunks.clear();
        }
    }

    /// Notes that there is something to send. Returns whether the user must tell the conduit.
    fn list(&mut self) -> bool {
        !core::mem::replace(&mut self.listed, true)
    }

    fn append<R: Representation>(
        &mut self,
        encode: &mut dyn FnMut(&mut Writer<'_, R>) -> Result<(), Overflow>,
    ) -> Result<(), Overflow> {
        if let Some(last) = self.chunks.back_mut() {
            let before = last.cost();
            match last.append(encode) {
                Ok(()) => {
                    self.cost += last.cost() - before;
                    self.added += 1;
                    return Ok(());
                }
                Err(Overflow::Full) => {}
                Err(overflow) => return Err(overflow),
            }
        }
        let mut chunk = self.spare.pop().unwrap_or_else(|| Chunk::empty(self.room));
        loop {
            match chunk.append(encode) {
                Ok(()) => break,
                Err(Overflow::Full) if chunk.memory.len() * size_of::<u128>() < self.room & !15 => {
                    let bytes = (4 * chunk.memory.len() * size_of::<u128>()).min(self.room) & !15;
                    chunk.memory = Vec::new();
                    let blocks = bytes.div_ceil(size_of::<u128>());
                    chunk.memory.try_reserve_exact(blocks).map_err(|_| Overflow::Full)?;
                    chunk.memory.resize(blocks, 0);
                }
                Err(overflow) => {
                    let _ = self.keep(chunk);
                    return Err(overflow);
                }
            }
        }
        self.cost += chunk.cost();
        self.added += 1;
        self.chunks.push_back(chunk);
        Ok(())
    }

    /// Keeps the memory of a record. Returns the record if enough memory is kept already.
    fn keep(&mut self, chunk: Chunk) -> Option<Chunk> {
        if self.spare.len() >= SPARE_MAX {
            return Some(chunk);
        }
        self.spare.push(Chunk { length: HEADER_BYTES, count: 0, ..chunk });
        None
    }

    fn take(&mut self, record: &Record, bytes: &[u8]) -> Option<()> {
        match record.kind {
            RecordKind::Items => {
                // A sender may exceed its credit by its last item.
                let cost = bytes.len() as u64 + ITEM_COST * u64::from(record.count);
                let allowed = self.received_cost < self.granted
                    && bytes.len() <= self.room
                    && self.received_cost + cost <= self.granted + self.room as u64 + ITEM_COST;
                if !allowed || record.items != self.received || self.end.is_some() {
                    return None;
                }
                self.received += u64::from(record.count);
                self.received_cost += cost;
                if !self.closed {
                    let mut chunk = self.spare.pop().unwrap_or_default();
                    chunk.fill(bytes, record.count);
                    self.inbox.push_back(chunk);
                }
            }
            RecordKind::Credit => {
                if record.credit < self.allowed || record.items > self.added {
                    return None;
                }
                self.allowed = record.credit;
                self.taken = record.items;
            }
            RecordKind::End => {
                if record.items != self.received {
                    return None;
                }
                self.end.get_or_insert(End::Complete);
            }
            RecordKind::Break => {
                let text = format!("the sender has given up after {} items", record.items);
                self.break_off(&CallError::new(Kind::Stopped, Executed::Maybe, text));
            }
            RecordKind::Stop => {
                self.taken = self.taken.max(record.items.min(self.added));
                let reason = String::from_utf8_lossy(bytes).into_owned();
                self.end.get_or_insert(End::Stopped(reason));
                self.chunks.clear();
            }
            // The stream was opened. So its sender will send `End` or `Break`, and `Ask` needs no other
            // answer.
            RecordKind::Ask => {}
        }
        Some(())
    }

    fn collect(&mut self, stream: u32, room: usize, message: &mut Vec<u8>) -> Left {
        let limit = message.len() + room;
        while let Some(mut chunk) = self.chunks.pop_front() {
            if message.len() + align_up(chunk.length) > limit {
                self.chunks.push_front(chunk);
                return Left::Records;
            }
            let Chunk { length, count, .. } = chunk;
            let bytes = (length - HEADER_BYTES) as u32;
            let items = self.sent;
            let record = Record { kind: RecordKind::Items, stream, bytes, count, credit: 0, items };
            let memory = bytes_of_blocks(&mut chunk.memory);
            memory[..HEADER_BYTES].copy_from_slice(&record.to_bytes());
            memory[length..align_up(length)].fill(0);
            message.extend_from_slice(&memory[..align_up(length)]);
            self.sent += u64::from(count);
            let _ = self.keep(chunk);
        }
        if self.ask == Ask::Due {
            if message.len() + HEADER_BYTES > limit {
                return Left::Records;
            }
            self.ask = Ask::Sent;
            message.extend_from_slice(&Record::bare(RecordKind::Ask, stream).to_bytes());
        }
        let Some(notice) = self.notice.take() else { return self.left() };
        let text = if let Notice::Stop(reason) = &notice { reason.as_str() } else { "" };
        if message.len() + align_up(HEADER_BYTES + text.len()) > limit {
            self.notice = Some(notice);
            return Left::Records;
        }
        let (kind, credit, items) = match notice {
            Notice::Credit => (RecordKind::Credit, self.granted, self.consumed),
            Notice::End => (RecordKind::End, 0, self.added),
            Notice::Break => (RecordKind::Break, 0, self.sent),
            Notice::Stop(_) => (RecordKind::Stop, 0, self.consumed),
        };
        let bytes = text.len() as u32;
        let record = Record { kind, stream, bytes, count: 0, credit, items };
        message.extend_from_slice(&record.to_bytes());
        message.extend_from_slice(text.as_bytes());
        message.resize(align_up(message.len()), 0);
        self.left()
    }

    /// Returns what is left after all records were collected.
    fn left(&self) -> Left {
        if self.closed { Left::Over } else { Left::Nothing }
    }
}

impl End {
    /// Returns the error that a sender gets. Its text says that the receiver has taken at least `taken`
    /// items.
    fn to_sender(&self, taken: u64) -> CallError {
        let text = match self {
            Self::Complete => "the stream has ended".to_owned(),
            Self::Stopped(reason) => format!("the receiver wants no more items: {reason}"),
            Self::Broken(error) => return error.copy(),
        };
        let text = format!("{text} (the receiver has taken at least {taken})");
        CallError::new(Kind::Stopped, Executed::Maybe, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::streams::{Compiled, Taken};
    use crate::value::{Native, Value};

    const ROOM: usize = 64 << 10;

    fn add(flow: &Flow, item: &impl Value) -> Result<bool, Overflow> {
        flow.add::<Native>(&mut |head| item.encode(head))
    }

    /// Moves the records of one end to the other.
    fn carry(from: &Flow, to: &Flow) -> Left {
        let mut message = vec![0; HEADER_BYTES];
        let left = from.collect(ROOM, &mut message);
        let take = |record, bytes: &[u8]| {
            let _ = to.take(&record, bytes);
            Some(())
        };
        Record::all(&message, take).expect("well-formed records");
        left
    }

    /// Takes all items that have arrived. Returns them, and why there are no more.
    fn taken(flow: &Flow) -> (Vec<u64>, Received) {
        let (mut items, mut taken) = (Vec::new(), Taken::<u64>::default());
        loop {
            match flow.receive(None) {
                Received::Items(chunk) => {
                    taken.fill::<Native>(&chunk, &mut Compiled).unwrap();
                    while let Some((item, _)) = taken.take(flow) {
                        items.push(item);
                    }
                }
                other => return (items, other),
            }
        }
    }

    /// Returns the sender and the receiver of a stream. The receiver grants the credit `window`.
    fn ends(window: u64) -> (Flow, Flow) {
        let (sender, receiver) = (Flow::new(1, ROOM, 0, 0, 0), Flow::new(1, ROOM, 0, 0, window));
        assert!(receiver.begin());
        assert_eq!(carry(&receiver, &sender), Left::Nothing);
        (sender, receiver)
    }

    #[test]
    fn credit_bounds_what_is_under_way() {
        let (sender, receiver) = ends(1000);
        let mut sent = 0_u64;
        for _ in 0..100 {
            while matches!(sender.room(None), Room::Free) {
                add(&sender, &sent).unwrap();
                sent += 1;
            }
            // Each item costs 24: its 8 bytes, and 16 more.
            assert!(sent * 24 < receiver.state.lock().consumed_cost + 1000 + 24);
            assert_eq!(carry(&sender, &receiver), Left::Nothing);
            let (items, end) = taken(&receiver);
            assert!(items.into_iter().eq(sender.state.lock().taken..sent) && sent > 0);
            assert!(matches!(end, Received::Nothing));
            assert_eq!(carry(&receiver, &sender), Left::Nothing);
        }
        assert!(sender.finish() && !sender.finish());
        assert_eq!(carry(&sender, &receiver), Left::Over);
        assert!(matches!(taken(&receiver), (items, Received::End) if items.is_empty()));
    }

    #[test]
    fn receiver_that_stops_ends_its_sender() {
        let (sender, receiver) = ends(1000);
        add(&sender, &1_u64).unwrap();
        carry(&sender, &receiver);
        assert_eq!(taken(&receiver).0, [1]);
        add(&sender, &2_u64).unwrap();
        assert!(receiver.stop("it has enough"));
        assert_eq!(carry(&receiver, &sender), Left::Over);
        let Room::Ended(error) = sender.room(None) else { panic!("the sender goes on") };
        assert_eq!(error.kind(), Kind::Stopped);
        let text = error.to_string();
        assert!(text.contains("it has enough") && text.contains("at least 1"), "{text}");
        // The item that was not sent is dropped.
        sender.finish();
        assert_eq!(carry(&sender, &receiver), Left::Over);
    }

    #[test]
    fn sender_that_gives_up_breaks_the_stream() {
        let (sender, receiver) = ends(1000);
        add(&sender, &1_u64).unwrap();
        carry(&sender, &receiver);
        add(&sender, &2_u64).unwrap();
        sender.give_up();
        assert_eq!(carry(&sender, &receiver), Left::Over);
        let (items, Received::Broken(error)) = taken(&receiver) else { panic!("not broken") };
        assert_eq!((items, error.kind()), (vec![1], Kind::Stopped));
    }

    #[test]
    fn records_against_the_rules_break_the_stream() {
        let items = |items, count, bytes| {
            let kind = RecordKind::Items;
            (Record { kind, stream: 1, bytes, count, credit: 0, items }, vec![0; bytes as usize])
        };
        let other = |kind, credit, items| {
            (Record { kind, stream: 1, bytes: 0, count: 0, credit, items }, Vec::new())
        };
        let whole = items(0, 125, 1000);
        for (before, record) in [
            // Items that were skipped, or came twice.
            (None, items(1, 1, 8)),
            (Some(&whole), items(0, 1, 8)),
            // More than the credit, or more than fits a record.
            (Some(&whole), items(125, 1, 8)),
            (None, items(0, 1, ROOM as u32 + 1)),
            (None, items(0, u32::MAX, 0)),
            // A record `End` that contradicts the items.
            (Some(&whole), other(RecordKind::End, 0, 124)),
            // Credit, which only the receiver of a stream sends. It also claims an item that was never sent.
            (None, other(RecordKind::Credit, 0, 1)),
        ] {
            let (_, receiver) = ends(1000);
            for (record, bytes) in before.into_iter().chain([&record]) {
                let _ = receiver.take(record, bytes);
            }
            while let Received::Items(_) = receiver.receive(None) {}
            assert!(matches!(receiver.receive(None), Received::Broken(_)), "{record:?}");
        }
        // A record that takes back credit breaks the stream.
        let (sender, _) = ends(1000);
        let (record, bytes) = other(RecordKind::Credit, 999, 0);
        let _ = sender.take(&record, &bytes);
        assert!(matches!(sender.room(None), Room::Ended(_)));
    }

    #[test]
    fn large_items_have_records_of_their_own() {
        let (sender, receiver) = ends(1 << 20);
        let large = vec![7_u8; 40_000];
        for item in [&vec![1][..], &large, &[2]] {
            add(&sender, &item.to_vec()).unwrap();
        }
        assert_eq!(add(&sender, &vec![0_u8; ROOM]), Err(Overflow::Full));
        assert_eq!(carry(&sender, &receiver), Left::Nothing);
        let mut lengths = Vec::new();
        while let Received::Items(chunk) = receiver.receive(None) {
            let mut taken = Taken::<Vec<u8>>::default();
            taken.fill::<Native>(&chunk, &mut Compiled).unwrap();
            while let Some((item, _)) = taken.take(&receiver) {
                lengths.push(item.len());
            }
        }
        assert_eq!(lengths, [1, 40_000, 1]);
        // A record that does not fit the message is not divided.
        add(&sender, &large).unwrap();
        let mut message = Vec::new();
        assert_eq!(sender.collect(40_000, &mut message), Left::Records);
        assert!(message.is_empty());
        assert_eq!(sender.collect(ROOM, &mut message), Left::Nothing);
    }

    #[test]
    fn failed_receiver_takes_nothing_more() {
        let (sender, receiver) = ends(1000);
        add(&sender, &1_u64).unwrap();
        sender.finish();
        carry(&sender, &receiver);
        receiver.fail(&CallError::bad_result("an item is invalid"));
        assert!(matches!(taken(&receiver), (items, Received::Broken(_)) if items.is_empty()));
    }
}
