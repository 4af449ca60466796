//! `Turned`: a server as it would be on a machine of the other byte order.
//!
//! It knows of its interface what the description says and nothing else: so it turns whole messages
//! by walking over types, lets a server of this machine answer, and turns the reply.

use peregrine::call::{
    Answer, EStack, Incoming, Ran, Refusal, Reply, Request, Serve, Served, execute,
};
use peregrine::interface::{Body, Direction, Field, InterfaceRef, Procedure, Shape, Type};
use peregrine::value::{ByteOrder, Invalid, Space, Window, align_up};

/// Answers as `S` does, with all values in the other byte order.
pub(crate) struct Turned<S>(pub(crate) S);

/// Room for the head of a reply, which has no bound but the message's.
const HEAD_BYTES_MAX: usize = 4 << 20;

/// The bytes of a message of one order, of which those that were passed are of the other.
struct Turning<'a> {
    bytes: &'a mut [u8],
    at: usize,
    /// Whether it is turned to this machine's order, or from it.
    inwards: bool,
}

impl Turning<'_> {
    fn align(&mut self, align: usize) {
        self.at = self.at.next_multiple_of(align);
    }

    fn take(&mut self, bytes: usize) -> Result<&mut [u8], Invalid> {
        let at = self.at;
        self.at = at.checked_add(bytes).ok_or(Invalid::Short)?;
        self.bytes.get_mut(at..self.at).ok_or(Invalid::Short)
    }

    /// Passes a number of a head; what it is in this machine's order, if it has four bytes at most.
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

    /// Passes a plain value that follows another within a plain type or a block.
    fn plain(&mut self, ty: &Type) -> Result<(), Invalid> {
        match ty {
            Type::Array(one, count) => (0..*count).try_for_each(|_| self.plain(one)),
            Type::Named(named) => match (named.body)() {
                Body::Plain { fields, .. } => {
                    fields.iter().try_for_each(|field| self.plain(field.ty))
                }
                Body::PlainEnum { repr, .. } => self.plain(repr),
                body => panic!("{body:?} is not plain"),
            },
            ty => {
                let width = number_bytes(ty).expect("a number");
                self.take(width)?.reverse();
                Ok(())
            }
        }
    }

    fn fields(&mut self, fields: &[Field]) -> Result<(), Invalid> {
        fields.iter().try_for_each(|field| self.value(field.ty))
    }

    fn values(&mut self, ty: &Type, count: usize) -> Result<(), Invalid> {
        // Any number of units is nothing.
        if ty.bytes_max() == Some(0) { Ok(()) } else { (0..count).try_for_each(|_| self.value(ty)) }
    }

    /// Passes a value of a head.
    fn value(&mut self, ty: &Type) -> Result<(), Invalid> {
        match ty {
            Type::Unit => {}
            Type::Text => {
                let bytes = self.number(4)?;
                self.take(bytes as usize)?;
            }
            Type::Array(one, count) => self.values(one, *count)?,
            Type::Sequence(one) => {
                let count = self.number(4)?;
                self.values(one, count as usize)?;
            }
            Type::Option(one) => {
                if self.number(1)? == 1 {
                    self.value(one)?;
                }
            }
            Type::Result(ok, err) => {
                let which = if self.number(1)? == 0 { ok } else { err };
                self.value(which)?;
            }
            Type::Tuple(parts) => parts.iter().try_for_each(|part| self.value(part))?,
            Type::Named(named) => match (named.body)() {
                Body::Struct(fields) => self.fields(fields)?,
                Body::Enum(variants) => {
                    let variant = self.number(4)? as usize;
                    self.fields(variants.get(variant).ok_or(Invalid::Bits)?.fields)?;
                }
                Body::Plain { align, .. } => {
                    self.align(align);
                    self.plain(ty)?;
                }
                Body::PlainEnum { repr, .. } => self.value(repr)?,
                body => panic!("{body:?} is unknown here"),
            },
            ty => drop(self.number(number_bytes(ty).expect("a number"))?),
        }
        Ok(())
    }
}

/// Bytes of a number, a letter or a flag.
fn number_bytes(ty: &Type) -> Option<usize> {
    let simple = !matches!(ty, Type::Unit | Type::Text | Type::Array(..) | Type::Named(_));
    if simple { ty.bytes_max().filter(|bytes| bytes.is_power_of_two()) } else { None }
}

/// Bytes of a value of a plain type; `None` if it is structured.
fn plain_bytes(ty: &Type) -> Option<usize> {
    match ty {
        Type::Array(one, count) if *count > 0 => Some(plain_bytes(one)? * count),
        Type::Named(named) => match (named.body)() {
            Body::Plain { size, .. } => Some(size),
            Body::PlainEnum { repr, .. } => number_bytes(repr),
            _ => None,
        },
        Type::Option(_) | Type::Result(..) | Type::Tuple(_) | Type::Sequence(_) => None,
        ty => number_bytes(ty),
    }
}

/// Turns values that lie one behind the other.
fn turn_block(ty: &Type, bytes: &mut [u8]) {
    let Some(size) = plain_bytes(ty) else { return };
    let mut turning = Turning { bytes, at: 0, inwards: true };
    while turning.at + size <= turning.bytes.len() {
        turning.plain(ty).expect("a whole value");
    }
}

/// Out and in-out blocks of a procedure: the type of each, and its bytes.
type Blocks = Vec<(&'static Type, usize)>;

/// Turns a message that has come, and says which blocks its reply has.
fn turn_call(
    procedure: &Procedure,
    head: &mut [u8],
    copied: &mut [u8],
    lent: &mut [u8],
) -> Result<Blocks, Invalid> {
    let mut head = Turning { bytes: head, at: 0, inwards: true };
    let (mut copied_at, mut lent_at) = (0, 0);
    let mut outs = Vec::new();
    for parameter in procedure.parameters {
        let ty = parameter.ty;
        if parameter.shape == Shape::One {
            head.value(ty)?;
            continue;
        }
        let count = head.number(4)? as usize;
        let size = if parameter.shape == Shape::Text { Some(1) } else { plain_bytes(ty) };
        let bytes = size.unwrap_or(0).checked_mul(count).ok_or(Invalid::Short)?;
        let (from, at) = match parameter.direction {
            Direction::Lent => (&mut *lent, &mut lent_at),
            _ => (&mut *copied, &mut copied_at),
        };
        if parameter.direction != Direction::Out {
            let block = from.get_mut(*at..).and_then(|rest| rest.get_mut(..bytes));
            let block = block.ok_or(Invalid::Short)?;
            turn_block(ty, block);
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

/// Turns the head of a result.
fn turn_result(procedure: &Procedure, head: &mut [u8]) -> Result<(), Invalid> {
    let mut head = Turning { bytes: head, at: 0, inwards: false };
    head.value(procedure.result)?;
    for parameter in procedure.parameters {
        match (parameter.direction, parameter.shape) {
            (Direction::InOut, Shape::One) => head.value(parameter.ty)?,
            (Direction::InOut, Shape::Buffer) if plain_bytes(parameter.ty).is_none() => {
                head.value(&Type::Sequence(parameter.ty))?;
            }
            _ => {}
        }
    }
    Ok(())
}

impl<S: Serve> Serve for Turned<S> {
    fn interface(&self) -> InterfaceRef {
        self.0.interface()
    }

    fn byte_order(&self) -> ByteOrder {
        ByteOrder::NATIVE.other()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let number = request.procedure();
        let interface = self.0.interface().compiled().expect("compiled stubs");
        let procedure = interface.procedures.get(number as usize);
        let procedure = procedure.ok_or_else(|| Refusal::no_such_procedure(number))?;
        let raw = request.raw();
        let mut head = vec![0; raw.head.len()];
        raw.head.read(0, &mut head).ok_or(Invalid::Short)?;
        let mut lent = vec![0; raw.lent.len()];
        raw.lent.read(&mut lent)?;
        let outs = turn_call(procedure, &mut head, raw.copied, &mut lent)?;

        // The message as a client of this machine would have sent it.
        let head_bytes = head.len();
        let mut message = head;
        let has = |direction| {
            let mut all = procedure.parameters.iter();
            all.any(|one| one.direction == direction && one.shape != Shape::One)
        };
        // Also before an empty block there is padding.
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
            // As long as it may be: whoever offers more than there is room for is told so.
            let block = reply.block(*bytes);
            blocks.push(block.ok_or(Invalid::TooLong)?);
        }
        let space = Space::of_mut(&mut memory);
        let Ran { answer, head_at, head_bytes, .. } =
            execute(&self.0, &incoming, space, &mut EStack::default());
        let filled = |index: usize| {
            u32::from_le_bytes(memory[4 * index..][..4].try_into().expect("four bytes")) as usize
        };
        let mut head = memory[head_at as usize..][..head_bytes as usize].to_vec();
        match answer {
            Answer::Ok => {
                let mut at = blocks_at;
                for (index, (ty, bytes)) in outs.iter().enumerate() {
                    let mut block = memory[at..at + filled(index)].to_vec();
                    turn_block(ty, &mut block);
                    blocks[index].write(0, &block).ok_or(Invalid::TooLong)?;
                    reply.filled(index, block.len())?;
                    at = align_up(at + bytes);
                }
                turn_result(procedure, &mut head).expect("a result of its type");
            }
            Answer::Err => {
                let mut turning = Turning { bytes: &mut head, at: 0, inwards: false };
                turning.value(procedure.error).expect("an error of its type");
            }
            _ => {}
        }
        reply.raw(answer, &head)
    }
}

/// Turns a head of one value from this machine's order to the other.
pub(crate) fn turn_value(ty: &Type, head: &mut [u8]) -> Result<(), Invalid> {
    Turning { bytes: head, at: 0, inwards: false }.value(ty)
}
