//! The messages of a deferred call, in memory of their own: the call ([`OwnedCall`]) and its result
//! ([`Answered`]).

use crate::call::request::Refusal;
use crate::call::serve::{EStack, Served};
use crate::call::{Answer, Reply, Request, blocks_at};
use crate::value::{Out, Overflow, Plain, Space, Value, Window, Writer, align_up, bytes_of};

/// The number of bytes of the memory in which heads of results are first written.
const HEAD_BYTES: usize = 256;

/// A received call, with its message in memory of its own.
#[derive(Debug)]
pub struct OwnedCall {
    procedure: u32,
    memory: EStack,
    /// The offsets at which the head, the copied blocks and the lent blocks end.
    ends: [usize; 3],
    /// The number of bytes that a result may have.
    room: usize,
}

impl OwnedCall {
    /// Copies a call.
    ///
    /// # Errors
    /// Fails if the message does not arrive completely, or there is no memory for it.
    pub(super) fn of(request: &mut Request<'_>, reply: &Reply<'_>) -> Result<Self, Refusal> {
        let mut memory = EStack::default();
        let ends = request.copy_to(&mut memory)?;
        Ok(Self { procedure: request.procedure(), memory, ends, room: reply.bytes() })
    }

    /// Returns the procedure's number.
    pub const fn procedure(&self) -> u32 {
        self.procedure
    }

    /// Returns the number of bytes that the `outs` blocks of a result may have.
    pub const fn room(&self, outs: usize) -> usize {
        self.room.saturating_sub(blocks_at(outs)) & !15
    }

    /// Returns the request, from which the arguments are taken. They borrow the memory of this call.
    ///
    /// # Errors
    /// Fails if the lengths in the message contradict each other.
    pub fn request(&mut self) -> Result<Request<'_>, Refusal> {
        let [head, copied, end] = self.ends;
        let (message, lent) = self.memory.memory()[..end].split_at_mut(copied);
        let lent = Window::from(&*lent).into();
        let request = Request::new(self.procedure, message, head, lent);
        request.ok_or_else(|| {
            Refusal::new(crate::error::Kind::BadArguments, "the message is too short")
        })
    }
}

/// The result of a procedure: encoded, and still in memory of its own.
#[derive(Debug)]
pub struct Answered(Result<Encoded, Refusal>);

#[derive(Debug)]
struct Encoded {
    answer: Answer,
    head: Vec<u8>,
    blocks: Vec<OutBytes>,
}

/// The bytes of an out block, and the number of bytes that the caller has offered for the block.
type OutBytes = (Vec<u8>, usize);

const fn filled((bytes, _): &OutBytes) -> usize {
    bytes.len()
}

const fn offered((_, capacity): &OutBytes) -> usize {
    *capacity
}

impl Answered {
    /// Makes the result of a procedure that returned `Ok(value)`. `blocks` has the bytes and the offered size
    /// of each out block. `more` appends further values to the head.
    pub fn ok<T: Value>(
        value: &T,
        blocks: Vec<(Vec<u8>, usize)>,
        more: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>,
    ) -> Self {
        let encode = |head: &mut Writer<'_>| {
            value.encode(head)?;
            more(head)
        };
        Self(encoded(encode).map(|head| Encoded { answer: Answer::Ok, head, blocks }))
    }

    /// Makes the result of a procedure that returned its own error.
    pub fn err<E: Value>(error: &E) -> Self {
        let head = encoded(|head| error.encode(head));
        Self(head.map(|head| Encoded { answer: Answer::Err, head, blocks: Vec::new() }))
    }

    /// Makes an out parameter that fills the empty vector `values`.
    pub fn out<T: Plain>(values: &mut Vec<T>) -> Out<'_, T> {
        values.into()
    }

    /// Returns the bytes of the values of an out parameter, or of an in-out slice.
    pub fn block<T: Plain>(values: &[T]) -> Vec<u8> {
        bytes_of(values).to_vec()
    }

    /// Returns the block of an in-out slice, and the size of the block. The block is empty if the values are
    /// not plain.
    pub fn in_out<T: Value>(values: &[T]) -> (Vec<u8>, usize) {
        let bytes = T::as_block(values).unwrap_or(&[]);
        (bytes.to_vec(), bytes.len())
    }

    /// Appends the values of an in-out slice to the head, if they are not plain.
    ///
    /// # Errors
    /// Fails if the values do not fit.
    pub fn in_out_head<T: Value>(values: &[T], head: &mut Writer<'_>) -> Result<(), Overflow> {
        if T::PLAIN {
            return Ok(());
        }
        head.count(values.len())?;
        head.deeper(|head| T::encode_all(values, head))
    }

    /// Returns the kind of answer in the head of the reply, such as `Ok` or not executed.
    pub(crate) fn answer(&self) -> Answer {
        match &self.0 {
            Ok(encoded) => encoded.answer,
            Err(refusal) => refusal.answer(),
        }
    }

    /// Returns what the result contains, and the number of its bytes that the procedure has filled. Returns
    /// the refusal if there is no result.
    pub(crate) fn ended(&self) -> Result<(Answer, usize), &Refusal> {
        let Encoded { answer, head, blocks } = self.0.as_ref()?;
        Ok((*answer, head.len() + blocks.iter().map(filled).sum::<usize>()))
    }

    /// Returns this result, or a refusal if the result does not fit a reply of `room` bytes. Each block
    /// counts with the size that the caller has offered, even if the reply will be
    /// [packed](Self::write_packed).
    pub(crate) fn within(self, room: usize) -> Self {
        let fits = |encoded: &Encoded| encoded.reply_bytes(offered) <= align_up(room);
        match &self.0 {
            Ok(encoded) if !fits(encoded) => Refusal::unwritten(Overflow::Full, room).into(),
            _ => self,
        }
    }

    /// Returns the largest size in bytes of a [packed](Self::write_packed) reply.
    pub(crate) fn packed_bytes(&self) -> usize {
        match &self.0 {
            Ok(encoded) => encoded.reply_bytes(filled),
            Err(refusal) => refusal.bytes_max(),
        }
    }

    /// Writes the result to a reply. Each block has the size that the caller has offered.
    ///
    /// # Errors
    /// Fails if the call was refused, or the result does not fit.
    pub(crate) fn write(&self, reply: &mut Reply<'_>) -> Served {
        self.write_sized(reply, offered)
    }

    /// Writes the result to a reply as [`write`](Self::write) does, but without the unfilled parts of blocks.
    ///
    /// # Errors
    /// Fails if the call was refused, or the reply has fewer than [`packed_bytes`](Self::packed_bytes) bytes.
    pub(crate) fn write_packed(&self, reply: &mut Reply<'_>) -> Served {
        self.write_sized(reply, filled)
    }

    fn write_sized(&self, reply: &mut Reply<'_>, size: fn(&OutBytes) -> usize) -> Served {
        let encoded = self.0.as_ref().map_err(Clone::clone)?;
        reply.forget_blocks();
        reply.expect(encoded.blocks.len());
        for (index, block) in encoded.blocks.iter().enumerate() {
            let (size, (bytes, _)) = (size(block), block);
            let block = reply.block(size).ok_or_else(|| Refusal::no_room(size, reply))?;
            block.write(0, bytes).ok_or_else(|| Refusal::no_room(size, reply))?;
            reply.filled(index, bytes.len())?;
        }
        reply.raw(encoded.answer, &encoded.head)
    }
}

impl Encoded {
    /// Returns the number of bytes of a reply whose blocks have the sizes that `size` returns. A [`Reply`]
    /// begins with a table of block lengths. The head follows this table if it fits before the first block.
    /// Otherwise the head follows the blocks.
    fn reply_bytes(&self, size: fn(&OutBytes) -> usize) -> usize {
        let (table, first) = (4 * self.blocks.len(), blocks_at(self.blocks.len()));
        let end = self.blocks.iter().fold(first, |at, block| align_up(at + size(block)));
        if table + self.head.len() > first { end + self.head.len() } else { end }
    }
}

impl From<Refusal> for Answered {
    fn from(refusal: Refusal) -> Self {
        Self(Err(refusal))
    }
}

/// Encodes the head of a result. The head may have any length.
fn encoded(encode: impl Fn(&mut Writer<'_>) -> Result<(), Overflow>) -> Result<Vec<u8>, Refusal> {
    let mut bytes = HEAD_BYTES;
    loop {
        let mut memory: Vec<u128> = Vec::new();
        if memory.try_reserve_exact(bytes / 16).is_err() {
            return Err(Refusal::bad_result("no memory for the result".into()));
        }
        memory.resize(bytes / 16, 0);
        let memory = crate::value::bytes_of_blocks(&mut memory);
        let mut head = Writer::new(Space::of_mut(memory));
        match encode(&mut head) {
            Ok(()) => {
                head.flush();
                let length = head.len();
                return Ok(memory[..length].to_vec());
            }
            Err(Overflow::Full) if bytes < crate::limits::MESSAGE_BYTES_MAX => bytes *= 4,
            Err(overflow) => return Err(Refusal::unwritten(overflow, bytes)),
        }
    }
}
