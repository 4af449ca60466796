//! `Request`: the server stub's view of a call. Each argument is taken once, in order.

use core::ops::{Deref, DerefMut};

use super::serve::EStack;
use super::{Answer, Reply};
use crate::error::{CallError, Executed, Kind};
use crate::interface::System;
use crate::value::{
    Arriving, Departing, Invalid, Lent, Out, Overflow, Plain, Reader, Representation, Value,
    Window, Writer, align_up,
};

/// Why the server answers without a result.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub(crate) kind: Kind,
    pub(crate) executed: Executed,
    pub(crate) text: String,
}

impl Refusal {
    /// Returns the kind of the failure.
    #[doc(hidden)]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns whether the procedure may have run.
    #[doc(hidden)]
    pub const fn executed(&self) -> Executed {
        self.executed
    }

    /// Makes a refusal of a call that has not begun.
    #[cold]
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { kind, executed: Executed::No, text: text.into() }
    }
}

impl Refusal {
    /// Reads the refusal in the head of a reply whose answer is `answer`. A refusal is little-endian in each
    /// representation. Returns `None` if it is invalid.
    pub(crate) fn read<R: Representation>(
        answer: Answer,
        head: &mut Reader<'_, R>,
    ) -> Option<Self> {
        let executed = match answer {
            Answer::NotExecuted => Executed::No,
            _ => Executed::Maybe,
        };
        let kind = head.plain().map(u32::from_le_bytes).ok().and_then(Kind::from_number)?;
        let bytes = head.plain().map(u32::from_le_bytes).ok()?;
        let text = String::from_utf8(head.plain_vec(bytes as usize).ok()?).ok()?;
        Some(Self { kind, executed, text })
    }
}

impl From<Invalid> for Refusal {
    #[cold]
    fn from(invalid: Invalid) -> Self {
        let kind = if invalid == Invalid::TooLong { Kind::TooLarge } else { Kind::BadArguments };
        Self::new(kind, invalid.to_string())
    }
}

/// A received call, in private memory except for the lent blocks.
#[derive(Debug)]
pub struct Request<'a> {
    procedure: u32,
    head: Reader<'a>,
    blocks: &'a mut [u8],
    lent: Arriving<'a>,
}

/// The parts of a received message, for a server that works from a description instead of compiled
/// stubs.
#[doc(hidden)]
#[derive(Debug)]
pub struct RawRequest<'a> {
    /// The head, in private memory.
    pub head: Window<'a>,
    /// The copied blocks, in private memory. The first block begins at offset 0. Each further block begins at
    /// the next multiple of 16 after the previous block.
    pub copied: &'a mut [u8],
    /// The lent blocks, in the layout of `copied`.
    pub lent: Arriving<'a>,
}

/// A slice argument. Plain values stay in the received block, and structured values are rebuilt from the
/// head.
#[derive(Debug)]
pub enum Slice<'a, T> {
    /// The block itself, in private memory.
    Block(&'a mut [T]),
    /// Structured values, taken from the head.
    Rebuilt(Vec<T>),
}

impl<T> Deref for Slice<'_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Block(block) => block,
            Self::Rebuilt(values) => values,
        }
    }
}

impl<T> DerefMut for Slice<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Block(block) => block,
            Self::Rebuilt(values) => values,
        }
    }
}

/// An in-out slice, and the block of the reply that sends the slice back.
#[derive(Debug)]
pub struct InOut<'a, 'r, T> {
    values: Slice<'a, T>,
    pub(super) block: Departing<'r>,
}

impl<T> InOut<'_, '_, T> {
    /// Appends structured values to the head. Plain values are sent back as a block.
    ///
    /// # Errors
    /// Fails if the values do not fit.
    #[inline]
    pub fn encode(&self, head: &mut Writer<'_>) -> Result<(), Overflow>
    where
        T: Value,
    {
        if T::PLAIN {
            return Ok(());
        }
        head.count(self.len())?;
        head.deeper(|head| T::encode_all(self, head))
    }
}

impl<T> Deref for InOut<'_, '_, T> {
    type Target = [T];
    #[inline]
    fn deref(&self) -> &[T] {
        &self.values
    }
}

impl<T> DerefMut for InOut<'_, '_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.values
    }
}

impl<'a> Request<'a> {
    /// Makes the request from a message in private memory, aligned to 16: a head of `head_bytes` bytes, then
    /// the copied blocks. `lent` is the rest of the message.
    pub(crate) fn new(
        procedure: u32,
        message: &'a mut [u8],
        head_bytes: usize,
        lent: Arriving<'a>,
    ) -> Option<Self> {
        let (head, blocks) = message.split_at_mut_checked(head_bytes)?;
        let padding = (align_up(head_bytes) - head_bytes).min(blocks.len());
        let head = Reader::new(Window::from(&*head));
        Some(Self { procedure, head, blocks: &mut blocks[padding..], lent })
    }

    /// Returns the procedure's number.
    #[inline]
    pub const fn procedure(&self) -> u32 {
        self.procedure
    }

    /// Replaces the procedure's number.
    pub(super) const fn set_procedure(&mut self, number: u32) {
        self.procedure = number;
    }

    /// Returns the number of bytes of the message that were not taken yet.
    pub(crate) const fn bytes(&self) -> usize {
        self.head.remaining() + self.blocks.len() + self.lent.len()
    }

    /// Returns the parts of the message that were not taken yet, without taking them: the head, the copied
    /// blocks, and the number of bytes of the lent blocks.
    pub(crate) fn parts(&self) -> (Window<'_>, &[u8], usize) {
        (self.head.rest(), self.blocks, self.lent.len())
    }

    /// Takes all parts of the message that were not taken yet, without decoding them.
    #[doc(hidden)]
    pub fn raw(&mut self) -> RawRequest<'a> {
        let head = self.head.rest();
        self.head = Reader::new(Window::empty());
        let lent = core::mem::replace(&mut self.lent, Window::empty().into());
        RawRequest { head, copied: core::mem::take(&mut self.blocks), lent }
    }

    /// Copies everything that has not been taken yet to `memory`: the head, then the copied blocks, then the
    /// lent blocks, each part at a multiple of 16. Returns the offsets at which the three parts end.
    ///
    /// # Errors
    /// Fails if there is no memory, or the message does not arrive completely.
    pub(super) fn copy_to(&mut self, memory: &mut EStack) -> Result<[usize; 3], Refusal> {
        let RawRequest { head, copied, lent } = self.raw();
        let head_end = head.len();
        // The part of the copied blocks is aligned even if it is empty, because even an empty slice must be
        // aligned.
        let copied_at = align_up(head_end);
        let copied_end = copied_at + copied.len();
        let lent_at = align_up(copied_end);
        let end = lent_at + lent.len();
        if !memory.reserve(end) {
            return Err(Refusal::exhausted("no memory for the arguments"));
        }
        let memory = memory.memory();
        head.read(0, &mut memory[..head_end]).ok_or(Invalid::Short)?;
        memory[head_end..copied_at].fill(0);
        memory[copied_at..copied_end].copy_from_slice(copied);
        memory[copied_end..lent_at].fill(0);
        lent.read(&mut memory[lent_at..end])?;
        Ok([head_end, lent_at, end])
    }

    /// Takes the number of values that fit the caller's buffer for an out parameter. Returns an empty vector
    /// with this capacity, or with the capacity `max_len` if that is smaller. Also returns the size in bytes
    /// of the caller's buffer. `room` is the number of bytes that are left for blocks.
    ///
    /// # Errors
    /// Fails if the buffer does not fit the reply, or if there is no memory.
    pub fn out_vec<T: Plain>(
        &mut self,
        room: &mut usize,
        max_len: usize,
    ) -> Result<(Vec<T>, usize), Refusal> {
        let capacity = self.head.count()?;
        let bytes = capacity.checked_mul(size_of::<T>()).ok_or(Invalid::TooLong)?;
        take_room(room, bytes)?;
        let mut values = Vec::new();
        let reserved = values.try_reserve_exact(capacity.min(max_len));
        reserved.map_err(|_| Refusal::exhausted("no memory for the result"))?;
        Ok((values, bytes))
    }

    /// Takes an in-out slice of at most `max_len` values. `room` is the number of bytes that are left for
    /// blocks.
    ///
    /// # Errors
    /// Fails if there are more values, one is invalid, or the values do not fit the reply.
    pub fn in_out_slice<T: Value>(
        &mut self,
        room: &mut usize,
        max_len: usize,
    ) -> Result<Slice<'a, T>, Refusal> {
        let values = self.slice(max_len)?;
        take_room(room, if T::PLAIN { size_of_val(&*values) } else { 0 })?;
        Ok(values)
    }

    /// Takes a value from the head.
    ///
    /// # Errors
    /// Fails if the bytes are not such a value.
    #[inline]
    pub fn value<T: Value>(&mut self) -> Result<T, Refusal> {
        Ok(T::decode(&mut self.head)?)
    }

    #[inline]
    fn count(&mut self, max_len: usize) -> Result<usize, Invalid> {
        let count = self.head.count()?;
        if count > max_len { Err(Invalid::TooLong) } else { Ok(count) }
    }

    #[inline]
    fn block(&mut self, bytes: usize) -> Result<&'a mut [u8], Invalid> {
        let blocks = core::mem::take(&mut self.blocks);
        let (block, rest) = blocks.split_at_mut_checked(bytes).ok_or(Invalid::Short)?;
        let padding = (align_up(bytes) - bytes).min(rest.len());
        self.blocks = &mut rest[padding..];
        Ok(block)
    }

    /// Takes text of at most `max_len` bytes.
    ///
    /// # Errors
    /// Fails if the text is longer, incomplete, or not UTF-8.
    #[inline]
    pub fn text(&mut self, max_len: usize) -> Result<&'a str, Refusal> {
        let bytes = self.count(max_len)?;
        let block = self.block(bytes)?;
        Ok(core::str::from_utf8(block).map_err(|_| Invalid::Utf8)?)
    }

    /// Takes a slice of at most `max_len` values.
    ///
    /// # Errors
    /// Fails if there are more values, or one is invalid.
    #[inline]
    pub fn slice<T: Value>(&mut self, max_len: usize) -> Result<Slice<'a, T>, Refusal> {
        let count = self.count(max_len)?;
        if !T::PLAIN {
            return Ok(Slice::Rebuilt(self.head.deeper(|head| T::decode_all(count, head))?));
        }
        let bytes = count.checked_mul(size_of::<T>()).ok_or(Invalid::Short)?;
        match T::from_block(self.block(bytes)?) {
            Some(values) => Ok(Slice::Block(values?)),
            None => Err(Invalid::Block.into()),
        }
    }

    /// Takes a lent buffer of at most `max_len` values.
    ///
    /// # Errors
    /// Fails if there are more values, or the buffer is incomplete.
    #[inline]
    pub fn lent<T: Plain>(&mut self, max_len: usize) -> Result<Lent<'a, T>, Refusal> {
        let count = self.count(max_len)?;
        let bytes = count.checked_mul(size_of::<T>()).ok_or(Invalid::Short)?;
        let block = self.lent.part(0, bytes)?;
        let next = align_up(bytes).min(self.lent.len());
        self.lent = self.lent.part(next, self.lent.len() - next)?;
        Ok(Lent::of_bytes(block))
    }

    /// Takes the buffer for an out parameter of at most `max_len` values. The stub later stores the number of
    /// filled values in `filled`.
    ///
    /// # Errors
    /// Fails if the buffer that the caller offers does not fit the reply.
    #[inline]
    pub fn out<'f, 'r: 'f, T: Plain>(
        &mut self,
        reply: &mut Reply<'r>,
        filled: &'f mut usize,
        max_len: usize,
    ) -> Result<Out<'f, T>, Refusal> {
        let capacity = self.head.count()?;
        let bytes = capacity.checked_mul(size_of::<T>()).ok_or(Invalid::TooLong)?;
        let block = reply.block(bytes).ok_or_else(|| no_room(bytes, reply))?;
        // A buffer that is larger than the interface allows is no error. The rest is not used.
        let usable = bytes.min(max_len.saturating_mul(size_of::<T>()));
        let block = block.beginning(usable).ok_or(Invalid::TooLong)?;
        Ok(Out::of_space(block, filled))
    }

    /// Takes an in-out slice of at most `max_len` values, with its block of the reply. Blocks are taken
    /// in the order of the parameters, before the procedure runs.
    ///
    /// # Errors
    /// Fails if there are more values, one is invalid, or the values do not fit the reply.
    #[inline]
    pub fn in_out<'r, T: Value>(
        &mut self,
        reply: &mut Reply<'r>,
        max_len: usize,
    ) -> Result<InOut<'a, 'r, T>, Refusal> {
        let values = self.slice(max_len)?;
        let bytes = if T::PLAIN { size_of_val(&*values) } else { 0 };
        let block = reply.block(bytes).ok_or_else(|| no_room(bytes, reply))?;
        Ok(InOut { values, block })
    }

    /// Checks that the whole message was taken.
    ///
    /// # Errors
    /// Fails if something is left.
    #[inline]
    pub fn finish(&self) -> Result<(), Refusal> {
        if self.head.remaining() != 0 || !self.blocks.is_empty() || !self.lent.is_empty() {
            return Err(Invalid::Long.into());
        }
        Ok(())
    }
}

impl Refusal {
    /// Makes the refusal for a call that ran. Its result is not sent, because the caller no longer waits.
    #[cold]
    pub(crate) fn abandoned(text: &str) -> Self {
        Self { kind: Kind::TimedOut, executed: Executed::Maybe, text: text.to_owned() }
    }

    /// Makes the refusal for a call that ran when the server stopped.
    #[cold]
    pub(crate) fn stopped() -> Self {
        let text = "the server stopped before the procedure ended".to_owned();
        Self { kind: Kind::Withdrawn, executed: Executed::Maybe, text }
    }

    /// Makes the refusal for a call that did not run because its caller cancelled it.
    #[cold]
    pub(crate) fn given_up() -> Self {
        Self::new(Kind::TimedOut, "the caller gave up before the call began")
    }

    /// Makes the refusal for a call that did not run because its deadline had passed.
    #[cold]
    pub(crate) fn late() -> Self {
        Self::new(Kind::TimedOut, "the caller's deadline passed before the call began")
    }

    /// Makes the refusal for a procedure that ran and made a call itself. The procedure failed because this
    /// call failed.
    #[cold]
    pub(crate) fn relayed(error: &CallError) -> Self {
        Self { kind: Kind::Relayed, executed: Executed::Maybe, text: error.relayed_text() }
    }

    /// Makes the refusal for a call that was passed on to another server, where it has failed. If the other
    /// server is gone, the client must not bind again to this server. So errors of that kind become
    /// [`Kind::Relayed`].
    #[cold]
    pub(crate) fn passed_on(error: &CallError) -> Self {
        let kind = match error.kind() {
            kind @ (Kind::NoSuchProcedure
            | Kind::BadArguments
            | Kind::TooLarge
            | Kind::Overloaded
            | Kind::Exhausted
            | Kind::Panicked
            | Kind::TimedOut
            | Kind::BadResult) => kind,
            _ => Kind::Relayed,
        };
        Self { kind, executed: error.executed(), text: error.relayed_text() }
    }

    /// Makes the refusal for a procedure that ran, but whose result cannot be sent.
    #[cold]
    pub(crate) const fn bad_result(text: String) -> Self {
        Self { kind: Kind::BadResult, executed: Executed::Maybe, text }
    }

    /// Makes the refusal for a procedure that ran and failed, and whose error the protocol cannot carry.
    #[cold]
    pub(crate) const fn failed(text: String) -> Self {
        Self { kind: Kind::Relayed, executed: Executed::Maybe, text }
    }

    /// Makes the refusal for a procedure that ran, but whose result does not fit the message. `overflow` says
    /// why.
    #[cold]
    pub(crate) fn unsent(overflow: Overflow) -> Self {
        let text = format!("the procedure ran, but its result does not fit: {overflow}");
        Self { kind: Kind::TooLarge, executed: Executed::Maybe, text }
    }

    /// Makes the refusal for a buffer of `bytes` bytes that does not fit the reply.
    #[cold]
    pub(crate) fn no_room(bytes: usize, reply: &Reply<'_>) -> Self {
        no_room(bytes, reply)
    }

    /// Makes the refusal for a procedure that ran, but for whose result there is no memory.
    #[cold]
    pub(crate) fn lost(text: &str) -> Self {
        Self { kind: Kind::Exhausted, executed: Executed::Maybe, text: text.to_owned() }
    }

    /// Makes the refusal for a call for which there is no memory or thread.
    #[cold]
    pub(crate) fn exhausted(text: &str) -> Self {
        Self::new(Kind::Exhausted, text)
    }

    /// Makes the refusal for a call that does not begin because the server is stopping.
    #[cold]
    pub(crate) fn stopping() -> Self {
        Self::new(Kind::Withdrawn, "the server is stopping")
    }

    /// Makes the refusal for an interface that is no program of another RPC system.
    #[doc(hidden)]
    #[cold]
    pub fn no_such_program(system: System) -> Self {
        Self::new(Kind::InterfaceMismatch, format!("the interface is no program of {system}"))
    }

    /// Makes the refusal for a procedure number that the interface does not have.
    #[cold]
    pub fn no_such_procedure(number: u32) -> Self {
        Self::new(Kind::NoSuchProcedure, format!("number {number}"))
    }
}

/// Takes the space for a block of `bytes` bytes from the space that is left for blocks.
fn take_room(room: &mut usize, bytes: usize) -> Result<(), Refusal> {
    match room.checked_sub(bytes) {
        Some(left) => {
            // The next block begins at a multiple of 16.
            *room = left & !15;
            Ok(())
        }
        None => Err(no_room_in(bytes, *room)),
    }
}

#[cold]
fn no_room(bytes: usize, reply: &Reply<'_>) -> Refusal {
    no_room_in(bytes, reply.bytes())
}

#[cold]
fn no_room_in(bytes: usize, room: usize) -> Refusal {
    let text =
        format!("a buffer for the result has {bytes} bytes, and a result has room for {room}");
    Refusal::new(Kind::TooLarge, text)
}
