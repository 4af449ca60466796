//! Measures the costs of Peregrine's own stubs for the three types of the study, and compares them with
//! copies of the same number of bytes.
//!
//! * `value`: `Value::encode` and `Value::decode` of the type, as for an argument that is passed by value.
//!   The arrays of the type have fixed lengths.
//! * `stub`: a generated stub. The client's stub is measured until the message is complete in its frame (the
//!   memory of the call). The server's stub is measured from the complete message to the procedure and back.
//!   This includes a copy of the arguments, as on a path.
//! * `call`: a whole call within this process. The compiled and the interpreted client call the same compiled
//!   server.

use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;

use peregrine::call::{Call, CallTerms, EStack, FrameGuard, Frames, Incoming, Serve, execute};
use peregrine::interface::Described;
use peregrine::value::{
    Block, Native, Reader, Representation, Space, Swapped, Window, Writer, plain_slice,
};
use peregrine::{Argument, Binding, Dynamic, GenericClient, OnExhausted, Plain, Value, interface};

use super::Used;
use super::repeated::Repeated;
use super::user::{Data, INTEGERS, MIDDLE, PACKET, Placed, RECORDS, Room, User};
use crate::subject::Failure;

/// A record of three integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Plain)]
#[repr(C)]
pub(crate) struct Triple {
    first: i32,
    second: i32,
    third: i32,
}

/// A record of an integer and a text.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Labelled {
    n: i32,
    s: String,
}

/// The paper's three procedures.
#[interface]
pub(crate) trait Three {
    /// Takes an integer.
    fn one(&self, i: i32) -> peregrine::Result<()>;
    /// Takes 256 integers.
    fn array(&self, #[max_len(256)] a: &[i32]) -> peregrine::Result<()>;
    /// Takes integers, an array, records and a text.
    fn structure(
        &self,
        a: i32,
        b: i32,
        c: i32,
        #[max_len(256)] d: &[i32],
        #[max_len(86)] e: &[Triple],
        f: &Labelled,
    ) -> peregrine::Result<()>;
}

/// Returns the description of the interface [`Three`]. The equations are derived from it.
pub(crate) fn description() -> Described {
    let text = ThreeClient::INTERFACE.canonical_text();
    Described::parse(&text).expect("the macro writes a valid description")
}

/// An object that ignores the arguments of its procedures.
#[derive(Debug)]
struct Object;

impl Three for Object {
    fn one(&self, i: i32) -> peregrine::Result<()> {
        black_box(i);
        Ok(())
    }

    fn array(&self, a: &[i32]) -> peregrine::Result<()> {
        black_box(a);
        Ok(())
    }

    fn structure(
        &self,
        a: i32,
        b: i32,
        c: i32,
        d: &[i32],
        e: &[Triple],
        f: &Labelled,
    ) -> peregrine::Result<()> {
        black_box((a, b, c, d, e, f));
        Ok(())
    }
}

/// Returns a server of the interface [`Three`]. Its object ignores the arguments.
pub(crate) fn equal_server() -> Arc<dyn Serve> {
    Arc::new(ThreeServer::new(Object))
}

/// The third data type of the study (the structure), as one value.
#[derive(Clone, Debug, PartialEq, Eq, Value)]
pub(crate) struct Structure {
    pub(crate) a: i32,
    pub(crate) b: i32,
    pub(crate) c: i32,
    pub(crate) d: [i32; INTEGERS],
    pub(crate) e: [Triple; RECORDS],
    pub(crate) f: Labelled,
}

impl Structure {
    /// Returns the structure that contains the user's values.
    pub(crate) fn of(user: &User) -> Self {
        let triple = |&[first, second, third]: &[i32; 3]| Triple { first, second, third };
        Self {
            a: user.first,
            b: user.second,
            c: user.third,
            d: user.array.value,
            e: core::array::from_fn(|i| triple(&user.records[i])),
            f: Labelled { n: user.label, s: String::from_utf8_lossy(&user.text[..]).into_owned() },
        }
    }
}

/// A kind of measured stub of Peregrine, or the copy with which stubs are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    /// A copy of as many bytes as the value has.
    Copy,
    /// The value in the native representation.
    Value,
    /// The value in the swapped representation.
    Swapped,
    /// The generated stub in the native representation.
    Stub,
    /// A call by the compiled client, within this process.
    Compiled,
    /// A call by the interpreted client, within this process.
    Interpreted,
}

impl Row {
    pub(crate) const ALL: [Self; 6] =
        [Self::Copy, Self::Value, Self::Swapped, Self::Stub, Self::Compiled, Self::Interpreted];

    /// Returns the row with which this row is compared.
    pub(crate) const fn base(self) -> Self {
        match self {
            Self::Interpreted => Self::Compiled,
            _ => Self::Copy,
        }
    }

    /// Returns whether the directions are measured separately.
    pub(crate) const fn has_ways(self) -> bool {
        !matches!(self, Self::Compiled | Self::Interpreted)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Copy => "memcpy",
            Self::Value => "value, native",
            Self::Swapped => "value, swapped",
            Self::Stub => "stub, native",
            Self::Compiled => "call, compiled client",
            Self::Interpreted => "call, interpreted client",
        }
    }
}

/// A separately allocated value.
type Kept<T> = Box<Placed<T, MIDDLE>>;
/// The memory that is copied to a message, or to which a message is copied.
type Flat = Kept<[u8; PACKET]>;

fn room() -> Room {
    Placed::boxed([0; PACKET])
}

fn encode<T: Value, R: Representation>(value: &mut Kept<T>, packet: &mut [u8]) -> Used {
    let mut head = Writer::<R>::represented(Space::of_mut(packet));
    value.encode(&mut head).ok()?;
    head.flush();
    Some(head.len())
}

fn decode<T: Value, R: Representation>(value: &mut Kept<T>, packet: &mut [u8]) -> Used {
    let mut head = Reader::<R>::represented(Window::from(&*packet));
    match T::decode(&mut head) {
        Ok(decoded) => value.value = decoded,
        Err(_) => return None,
    }
    Some(packet.len() - head.remaining())
}

fn copy_to<const N: usize>(flat: &mut Flat, packet: &mut [u8]) -> Used {
    packet.get_mut(..N)?.copy_from_slice(flat.get(..N)?);
    Some(N)
}

fn copy_from<const N: usize>(flat: &mut Flat, packet: &mut [u8]) -> Used {
    flat.get_mut(..N)?.copy_from_slice(packet.get(..N)?);
    Some(N)
}

/// Returns the program that encodes or decodes a value in a representation.
fn of_value<T: Value + Clone + 'static, R: Representation>(value: &T, marshals: bool) -> Repeated {
    let (mut boxed, mut packet) = (Placed::boxed(value.clone()), room());
    if marshals {
        return Repeated::calling(boxed, packet, encode::<T, R>);
    }
    let _ = encode::<T, R>(&mut boxed, &mut packet[..]);
    Repeated::calling(boxed, packet, decode::<T, R>)
}

/// The number of bytes of the structure as a value.
pub(crate) const STRUCTURE_BYTES: usize = 3 * 4 + 4 * INTEGERS + 12 * RECORDS + 4 + 4 + 1024;

/// Returns frames (the memory of calls) that have the size of a message, like the frames of a binding.
fn frames() -> Result<Frames, Failure> {
    Ok(Frames::private(1, 1, PACKET)?)
}

/// A caller that writes the arguments of a procedure into a frame, as a generated stub and a path do.
struct Caller {
    frames: Frames,
    user: User,
    records: Box<Placed<[Triple; RECORDS], MIDDLE>>,
    labelled: Labelled,
}

/// The layout of a message: the number of bytes of its head, and of the whole message.
type Layout = (usize, usize);

impl Caller {
    fn new() -> Result<Self, Failure> {
        let user = User::full();
        let Structure { e, f, .. } = Structure::of(&user);
        Ok(Self { frames: frames()?, user, records: Placed::boxed(e), labelled: f })
    }

    /// Writes the message of a call with values of the type `data` into one frame, `times` times. Returns the
    /// layout of the message.
    fn run(&self, data: Data, times: u32) -> Option<Layout> {
        let mut frame = self.frames.take(|| None, |_| false, OnExhausted::Wait)?;
        frame.fill(|frame, space| self.fill(frame, space, data, times))
    }

    fn fill(
        &self,
        frame: &FrameGuard<'_>,
        space: Space<'_>,
        data: Data,
        times: u32,
    ) -> Option<Layout> {
        let mut layout = (0, 0);
        for _ in 0..times {
            let mut head = Writer::new(space);
            let Self { user, records, labelled, .. } = black_box(self);
            let mut blocks = [Block::empty(); 2];
            let mut used = 0;
            match data {
                Data::One => user.one.encode(&mut head).ok()?,
                Data::Array => {
                    head.count(user.array.len()).ok()?;
                    blocks[0] = Window::from(i32::as_block(&user.array[..])?).into();
                    used = 1;
                }
                Data::Structure => {
                    user.first.encode(&mut head).ok()?;
                    user.second.encode(&mut head).ok()?;
                    user.third.encode(&mut head).ok()?;
                    head.count(user.array.len()).ok()?;
                    blocks[0] = Window::from(i32::as_block(&user.array[..])?).into();
                    head.count(records.len()).ok()?;
                    blocks[1] = Window::from(Triple::as_block(&records[..])?).into();
                    labelled.encode(&mut head).ok()?;
                    used = 2;
                }
            }
            let mut call = Call {
                procedure: data as u32,
                frame,
                head: &mut head,
                ins: &blocks[..used],
                lent: &[],
                outs: &mut [],
                terms: CallTerms::None,
            };
            let message = call.put(usize::MAX)?;
            head.flush();
            layout = (message.head, message.total);
        }
        Some(layout)
    }
}

/// A server stub, and a frame with the message that the stub serves.
struct Server {
    caller: Caller,
    layout: Layout,
    server: ThreeServer<Object>,
    estack: EStack,
    reply: Room,
}

impl Server {
    fn new(data: Data) -> Result<Self, Failure> {
        let caller = Caller::new()?;
        let layout = caller.run(data, 1).ok_or("no message")?;
        let server = ThreeServer::new(Object);
        Ok(Self { caller, layout, server, estack: EStack::default(), reply: room() })
    }

    fn run(&mut self, data: Data, times: u32) -> Option<()> {
        let Self { caller, layout, server, estack, reply } = self;
        let mut frame = caller.frames.take(|| None, |_| false, OnExhausted::Wait)?;
        let mut fine = true;
        frame.fill(|_, space| {
            for _ in 0..times {
                let (head_bytes, bytes) = *layout;
                let incoming = Incoming {
                    procedure: data as u32,
                    space: space.window(),
                    head_bytes,
                    copied: bytes,
                    total: bytes,
                    arrives: None,
                    departs: None,
                };
                let reply = Space::of_mut(&mut reply[..]);
                let answer = execute(server, &incoming, reply, estack).answer;
                fine &= answer == peregrine::call::Answer::Ok;
            }
        });
        fine.then_some(())
    }
}

/// The compiled and the interpreted client of one server in this process. Both send the same values from the
/// same memory.
pub(crate) struct Calling {
    compiled: ThreeClient,
    interpreted: GenericClient,
    user: User,
    labelled: Labelled,
    one: Dynamic,
    numbers: [Dynamic; 3],
    array: Dynamic,
    records: Dynamic,
    label: Dynamic,
    result: Dynamic,
}

/// Both clients and the values that they send. All measured programs that make calls share this state.
pub(crate) type Shared = Rc<RefCell<Calling>>;

/// Returns plain values as a slice, or `None` if `values` are not plain.
fn plain<T: Plain>(values: &Dynamic) -> Option<&[T]> {
    match values {
        Dynamic::Plain(bytes) => plain_slice(bytes).ok(),
        _ => None,
    }
}

impl Calling {
    pub(crate) fn shared() -> Shared {
        let compiled = ThreeClient::in_process(Object);
        Rc::new(RefCell::new(Self::over(compiled.binding().clone())))
    }

    /// Creates both clients. They use the same binding.
    pub(crate) fn over(binding: Binding) -> Self {
        let user = User::full();
        let Structure { e, f, .. } = Structure::of(&user);
        let compiled = ThreeClient { binding };
        let interpreted = GenericClient::over(compiled.binding().clone(), description());
        Self {
            compiled,
            interpreted,
            one: user.one.into(),
            numbers: [user.first.into(), user.second.into(), user.third.into()],
            array: Dynamic::plain(&user.array[..]),
            records: Dynamic::plain(&e),
            label: Dynamic::List(vec![f.n.into(), f.s.clone().into()]),
            result: Dynamic::Unit,
            labelled: f,
            user,
        }
    }

    /// Makes a call by the compiled client. Returns `None` if it fails.
    pub(crate) fn compiled(&self, data: Data) -> Option<()> {
        let Self { compiled, user, array, records, labelled, .. } = self;
        let called = match data {
            Data::One => compiled.one(user.one),
            Data::Array => compiled.array(plain(array)?),
            Data::Structure => compiled.structure(
                user.first,
                user.second,
                user.third,
                plain(array)?,
                plain(records)?,
                labelled,
            ),
        };
        called.ok()
    }

    /// Makes a call by the interpreted client. Returns `None` if it fails.
    pub(crate) fn interpreted(&mut self, data: Data) -> Option<()> {
        let Self { interpreted, one, numbers, array, records, label, result, .. } = self;
        let [a, b, c] = numbers;
        let number = data as u32;
        let called = match data {
            Data::One => interpreted.call_into(number, &mut [Argument::In(one)], result),
            Data::Array => interpreted.call_into(number, &mut [Argument::In(array)], result),
            Data::Structure => {
                let all = [a, b, c, array, records, label];
                let mut all = all.map(|value| Argument::In(value));
                interpreted.call_into(number, &mut all, result)
            }
        };
        called.ok()?.then_some(())
    }
}

/// Returns the program that a row measures.
pub(crate) fn program(
    row: Row,
    data: Data,
    marshals: bool,
    calling: &Shared,
) -> Result<Repeated, Failure> {
    let user = User::full();
    let value = |swapped: bool| match (data, swapped) {
        (Data::One, false) => of_value::<_, Native>(&user.one, marshals),
        (Data::Array, false) => of_value::<_, Native>(&user.array.value, marshals),
        (Data::Structure, false) => of_value::<_, Native>(&Structure::of(&user), marshals),
        (Data::One, true) => of_value::<_, Swapped>(&user.one, marshals),
        (Data::Array, true) => of_value::<_, Swapped>(&user.array.value, marshals),
        (Data::Structure, true) => of_value::<_, Swapped>(&Structure::of(&user), marshals),
    };
    Ok(match row {
        Row::Copy => {
            let copy: fn(&mut Flat, &mut [u8]) -> Used = match (data, marshals) {
                (Data::One, true) => copy_to::<4>,
                (Data::Array, true) => copy_to::<{ 4 * INTEGERS }>,
                (Data::Structure, true) => copy_to::<STRUCTURE_BYTES>,
                (Data::One, false) => copy_from::<4>,
                (Data::Array, false) => copy_from::<{ 4 * INTEGERS }>,
                (Data::Structure, false) => copy_from::<STRUCTURE_BYTES>,
            };
            Repeated::calling(Placed::boxed([0; PACKET]), room(), copy)
        }
        Row::Value => value(false),
        Row::Swapped => value(true),
        Row::Compiled => {
            let calling = Rc::clone(calling);
            Repeated::new(move |times| {
                let calling = calling.borrow();
                (0..times).try_for_each(|_| black_box(&*calling).compiled(data)).is_some()
            })
        }
        Row::Interpreted => {
            let calling = Rc::clone(calling);
            Repeated::new(move |times| {
                let mut calling = calling.borrow_mut();
                (0..times).try_for_each(|_| black_box(&mut *calling).interpreted(data)).is_some()
            })
        }
        Row::Stub if marshals => {
            let caller = Caller::new()?;
            Repeated::new(move |times| caller.run(data, times).is_some())
        }
        Row::Stub => {
            let mut server = Server::new(data)?;
            Repeated::new(move |times| server.run(data, times).is_some())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_runs_for_every_row() {
        let user = User::full();
        let structure = Structure::of(&user);
        let (mut value, mut packet) = (Placed::boxed(structure.clone()), room());
        let used = encode::<_, Native>(&mut value, &mut packet[..]);
        assert_eq!(used, Some(STRUCTURE_BYTES));
        value.d.fill(0);
        assert!(decode::<_, Native>(&mut value, &mut packet[..STRUCTURE_BYTES]).is_some());
        assert!(value.value == structure);
        for data in Data::ALL {
            for marshals in [true, false] {
                for row in Row::ALL {
                    let mut program = program(row, data, marshals, &Calling::shared()).unwrap();
                    assert!(program.once(), "{row:?} {data:?} {marshals}");
                }
            }
        }
    }
}
