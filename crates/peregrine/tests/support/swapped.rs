//! Provides `SwappedServer`, a server that behaves as if its machine had the other byte order.
//!
//! This server uses only the description of its interface. First it swaps the bytes of each value in a
//! received message. Then it passes the message to a server with this machine's byte order, and swaps the
//! reply.

use peregrine::call::{
    Answer, EStack, Incoming, Ran, Refusal, Reply, Request, Serve, Served, execute, undeferred,
};
use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedProcedure, DescribedType, Direction,
    InterfaceRef, Shape,
};
use peregrine::value::{ByteOrder, Invalid, Space, Window, align_up};

/// Serves as the server `S` does, but with all values in the other byte order.
pub(crate) struct SwappedServer<S> {
    serve: S,
    described: Described,
}

impl<S: Serve> SwappedServer<S> {
    pub(crate) fn new(serve: S) -> Self {
        let described = Described::parse(&serve.interface().canonical_text());
        Self { serve, described: described.expect("the description of an interface") }
    }
}

/// The size in bytes of the memory for the head of a reply (the part before the blocks). A head may be as
/// large as a whole message.
const HEAD_BYTES_MAX: usize = 4 << 20;

/// The bytes of a message that is being swapped in place. The bytes before `at` have already been swapped.
struct Swapping<'w, 'b> {
    whole: &'w Described,
    bytes: &'b mut [u8],
    at: usize,
    /// Whether the values are swapped to this machine's byte order. Otherwise they are swapped from this
    /// machine's order to the other one.
    inwards: bool,
}

impl<'w> Swapping<'w, '_> {
    fn align(&mut self, align: usize) {
        self.at = self.at.next_multiple_of(align);
    }

    fn take(&mut self, bytes: usize) -> Result<&mut [u8], Invalid> {
        let at = self.at;
        self.at = at.checked_add(bytes).ok_or(Invalid::Short)?;
        self.bytes.get_mut(at..self.at).ok_or(Invalid::Short)
    }

    /// Swaps a number in a head. Returns the number's value if the number has at most four bytes.
    fn number(&mut self, width: usize) -> Result<u32, Invalid> {
        self.align(width);
        let inwards = self.inwards;
        let bytes = self.take(width)?;
        let mut own = bytes.to_vec();
        bytes.reverse();
        if inwards {
            own.reverse();
        }
        own.resize(4.max(width), 0);
        Ok(own.first_chunk().copied().map_or(0, u32::from_le_bytes))
    }

    /// Swaps the plain value at `at`. Plain types have no padding, so no alignment is necessary within a
    /// plain type or a block.
    fn plain(&mut self, ty: &'w DescribedType) -> Result<(), Invalid> {
        match ty {
            DescribedType::Array(one, count) => (0..*count).try_for_each(|_| self.plain(one)),
            DescribedType::Named(number) => match &self.whole.types[*number].body {
                DescribedBody::Plain { fields, .. } => {
                    fields.iter().try_for_each(|field| self.plain(&field.ty))
                }
                DescribedBody::PlainEnum { repr, .. } => self.plain(repr),
                body => panic!("{body:?} is not plain"),
            },
            ty => {
                let width = self.number_bytes(ty).expect("a number");
                self.take(width)?.reverse();
                Ok(())
            }
        }
    }

    /// Returns the size in bytes of a number, of a character, or of a flag. Returns `None` for other types.
    fn number_bytes(&self, ty: &DescribedType) -> Option<usize> {
        let is_simple = !matches!(
            ty,
            DescribedType::Unit
                | DescribedType::Text
                | DescribedType::Array(..)
                | DescribedType::Named(_)
        );
        self.whole.bytes_max(ty).filter(|bytes| is_simple && bytes.is_power_of_two())
    }

    fn fields(&mut self, fields: &'w [DescribedField]) -> Result<(), Invalid> {
        fields.iter().try_for_each(|field| self.value(&field.ty))
    }

    fn values(&mut self, ty: &'w DescribedType, count: usize) -> Result<(), Invalid> {
        // A unit value has no bytes, so any number of unit values is valid.
        if self.whole.bytes_max(ty) == Some(0) {
            Ok(())
        } else {
            (0..count).try_for_each(|_| self.value(ty))
        }
    }

    /// Swaps one value in a head.
    fn value(&mut self, ty: &'w DescribedType) -> Result<(), Invalid> {
        match ty {
            DescribedType::Unit => {}
            DescribedType::Text => {
                let bytes = self.number(4)?;
                self.take(bytes as usize)?;
            }
            DescribedType::Array(one, count) => self.values(one, *count as usize)?,
            DescribedType::Sequence(one) => {
                let count = self.number(4)?;
                self.values(one, count as usize)?;
            }
            DescribedType::Option(one) => {
                if self.number(1)? == 1 {
                    self.value(one)?;
                }
            }
            DescribedType::Result(ok, err) => {
                let which = if self.number(1)? == 0 { ok } else { err };
                self.value(which)?;
            }
            DescribedType::Tuple(parts) => parts.iter().try_for_each(|part| self.value(part))?,
            DescribedType::Named(number) => match &self.whole.types[*number].body {
                DescribedBody::Struct(fields) => self.fields(fields)?,
                DescribedBody::Enum(variants) => {
                    let variant = self.number(4)? as usize;
                    self.fields(&variants.get(variant).ok_or(Invalid::Bits)?.fields)?;
                }
                DescribedBody::Plain { align, .. } => {
                    self.align(*align as usize);
                    self.plain(ty)?;
                }
                DescribedBody::PlainEnum { repr, .. } => self.value(repr)?,
                body => panic!("{body:?} is not supported here"),
            },
            ty => drop(self.number(self.number_bytes(ty).expect("a number"))?),
        }
        Ok(())
    }
}

/// Returns the size in bytes of a value of a plain type. Returns `None` for a structured type.
fn plain_bytes(whole: &Described, ty: &DescribedType) -> Option<usize> {
    whole.plain_bytes(ty).and_then(|bytes| usize::try_from(bytes).ok())
}

/// Swaps the values of a block. Values of a structured type are in the head, and their block is empty.
fn swap_block(whole: &Described, ty: &DescribedType, bytes: &mut [u8]) {
    let Some(size) = plain_bytes(whole, ty) else { return };
    let mut swapping = Swapping { whole, bytes, at: 0, inwards: true };
    while swapping.at + size <= swapping.bytes.len() {
        swapping.plain(ty).expect("a whole value");
    }
}

/// The out and in-out blocks of a procedure. Each entry has the type of the values and the size of the block
/// in bytes.
type Blocks<'a> = Vec<(&'a DescribedType, usize)>;

/// Swaps a received message. Returns the blocks of its reply.
fn swap_call<'a>(
    whole: &'a Described,
    procedure: &'a DescribedProcedure,
    head: &mut [u8],
    copied: &mut [u8],
    lent: &mut [u8],
) -> Result<Blocks<'a>, Invalid> {
    let mut head = Swapping { whole, bytes: head, at: 0, inwards: true };
    let (mut copied_at, mut lent_at) = (0, 0);
    let mut outs = Vec::new();
    for parameter in &procedure.parameters {
        let ty = &parameter.ty;
        if parameter.shape == Shape::One {
            head.value(ty)?;
            continue;
        }
        let count = head.number(4)? as usize;
        let size = if parameter.shape == Shape::Text { Some(1) } else { plain_bytes(whole, ty) };
        let bytes = size.unwrap_or(0).checked_mul(count).ok_or(Invalid::Short)?;
        let (from, at) = match parameter.direction {
            Direction::Lent => (&mut *lent, &mut lent_at),
            _ => (&mut *copied, &mut copied_at),
        };
        if parameter.direction != Direction::Out {
            let block = from.get_mut(*at..).and_then(|rest| rest.get_mut(..bytes));
            let block = block.ok_or(Invalid::Short)?;
            swap_block(whole, ty, block);
            *at = align_up(*at + bytes).min(from.len());
            if size.is_none() {
                head.values(ty, count)?;
            }
        }
        if matches!(parameter.direction, Direction::Out | Direction::InOut) {
            outs.push((ty, bytes));
        }
    }
    Ok(outs)
}

/// Swaps the head of a result.
fn swap_result(
    whole: &Described,
    procedure: &DescribedProcedure,
    head: &mut [u8],
) -> Result<(), Invalid> {
    let mut head = Swapping { whole, bytes: head, at: 0, inwards: false };
    head.value(&procedure.result)?;
    for parameter in &procedure.parameters {
        match (parameter.direction, parameter.shape) {
            (Direction::InOut, Shape::One) => head.value(&parameter.ty)?,
            (Direction::InOut, Shape::Buffer) if plain_bytes(whole, &parameter.ty).is_none() => {
                let count = head.number(4)?;
                head.values(&parameter.ty, count as usize)?;
            }
            _ => {}
        }
    }
    Ok(())
}

impl<S: Serve> Serve for SwappedServer<S> {
    fn interface(&self) -> InterfaceRef {
        self.serve.interface()
    }

    fn byte_order(&self) -> ByteOrder {
        ByteOrder::NATIVE.other()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let number = request.procedure();
        let whole = &self.described;
        let procedure = whole.procedures.get(number as usize);
        let procedure = procedure.ok_or_else(|| Refusal::no_such_procedure(number))?;
        let raw = request.raw();
        let mut head = vec![0; raw.head.len()];
        raw.head.read(0, &mut head).ok_or(Invalid::Short)?;
        let mut lent = vec![0; raw.lent.len()];
        raw.lent.read(&mut lent)?;
        let outs = swap_call(whole, procedure, &mut head, raw.copied, &mut lent)?;

        // Build the message that a client with this machine's byte order would send.
        let head_bytes = head.len();
        let mut message = head;
        let has = |direction| {
            let mut all = procedure.parameters.iter();
            all.any(|one| one.direction == direction && one.shape != Shape::One)
        };
        // Padding precedes every block, even an empty one.
        if has(Direction::In) || has(Direction::InOut) {
            message.resize(align_up(message.len()), 0);
            message.extend_from_slice(raw.copied);
        }
        if has(Direction::Lent) {
            message.resize(align_up(message.len()), 0);
        }
        let copied = message.len();
        message.extend(lent);
        let incoming = Incoming {
            procedure: number,
            space: Window::from(&message[..]),
            head_bytes,
            copied,
            total: message.len(),
            arrives: None,
            departs: None,
        };

        let blocks_at = if outs.is_empty() { 0 } else { align_up(4 * outs.len()).max(32) };
        let room = |sum, (_, bytes): &(_, usize)| sum + align_up(*bytes);
        let mut memory = vec![0; outs.iter().fold(blocks_at + HEAD_BYTES_MAX, room)];
        reply.expect(outs.len());
        let mut blocks = Vec::new();
        for (_, bytes) in &outs {
            // The block gets the size that the caller offers. If the reply has less space, the caller gets an
            // error.
            let block = reply.block(*bytes);
            blocks.push(block.ok_or(Invalid::TooLong)?);
        }
        let space = Space::of_mut(&mut memory);
        let Ran { answer, head_at, head_bytes, .. } =
            undeferred(|| execute(&self.serve, &incoming, space, &mut EStack::default()));
        let filled = |index: usize| {
            u32::from_le_bytes(memory[4 * index..][..4].try_into().expect("four bytes")) as usize
        };
        let mut head = memory[head_at as usize..][..head_bytes as usize].to_vec();
        match answer {
            Answer::Ok => {
                let mut at = blocks_at;
                for (index, (ty, bytes)) in outs.iter().enumerate() {
                    let mut block = memory[at..at + filled(index)].to_vec();
                    swap_block(whole, ty, &mut block);
                    blocks[index].write(0, &block).ok_or(Invalid::TooLong)?;
                    reply.filled(index, block.len())?;
                    at = align_up(at + bytes);
                }
                swap_result(whole, procedure, &mut head).expect("a result of its type");
            }
            Answer::Err => {
                let mut swapping = Swapping { whole, bytes: &mut head, at: 0, inwards: false };
                swapping.value(&procedure.error).expect("an error of its type");
            }
            _ => {}
        }
        reply.raw(answer, &head)
    }
}

/// Swaps a head that consists of one value, from this machine's byte order to the other one.
pub(crate) fn swap_value(
    whole: &Described,
    ty: &DescribedType,
    head: &mut [u8],
) -> Result<(), Invalid> {
    Swapping { whole, bytes: head, at: 0, inwards: false }.value(ty)
}
