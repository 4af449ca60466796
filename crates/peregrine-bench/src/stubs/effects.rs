//! Isolates effects that the model of the costs of stubs (see `model.rs`) does not contain. Each experiment
//! compares two programs that differ in one thing.

use crate::cost::{Control, Copying, Design};

use super::compiled::array_of_known_length;
use super::copying::{Block, InlineItem, Mover, Procedural};
use super::interpreted;
use super::packet::{Marshal, Packet};
use super::repeated::{Repeated, stub};
use super::user::{Data, INTEGERS, RECORDS, User};
use super::{Stub, Used};

/// Two operations that differ in one thing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    /// The name of the effect.
    pub(crate) name: &'static str,
    /// A text that says what differs.
    pub(crate) what: &'static str,
    /// The number by which the difference is divided: the number of elements or records.
    pub(crate) per: usize,
    with: Stub,
    without: Stub,
}

impl Effect {
    /// Returns the program with the effect, and the one without.
    pub(crate) fn operations(&self) -> [Repeated; 2] {
        [self.with, self.without].map(|stub| Repeated::of(stub, Data::Structure))
    }
}

const fn design(control: Control, copying: Copying) -> Design {
    Design { control, copying }
}

/// Returns all effects.
pub(crate) fn all() -> Vec<Effect> {
    let array = |control, copying| stub(design(control, copying), Data::Array, true);
    vec![
        Effect {
            name: "an array's length that the compiler knows",
            what: "compiled, inline, items: the array's length is given by the caller, or known to the compiler",
            per: INTEGERS,
            with: array(Control::Compiled, Copying::InlineItem),
            without: array_of_known_length::<Marshal>,
        },
        Effect {
            name: "moving, beside calls",
            what: "a procedure call for each element of an array: it moves the element, or only advances in the message",
            per: INTEGERS,
            with: array(Control::Compiled, Copying::ProceduralItem),
            without: |user, packet| elements(&Procedural::<Marshal>::advance(), user, packet),
        },
        Effect {
            name: "the position in memory, in addition to calls",
            what: "a procedure call for each element of an array: it advances in the message, or does nothing",
            per: INTEGERS,
            with: |user, packet| elements(&Procedural::<Marshal>::advance(), user, packet),
            without: |user, packet| elements(&Procedural::<Marshal>::nothing(), user, packet),
        },
        Effect {
            name: "calls from an interpreter",
            what: "a procedure call for each element of an array: the loop is in the interpreter, or in a compiled stub",
            per: INTEGERS,
            with: array(Control::Interpreted, Copying::ProceduralItem),
            without: array(Control::Compiled, Copying::ProceduralItem),
        },
        Effect {
            name: "four stores of bytes, not one of an item",
            what: "an array is moved byte by byte, or item by item",
            per: INTEGERS,
            with: array(Control::Compiled, Copying::InlineByte),
            without: array(Control::Compiled, Copying::InlineItem),
        },
        Effect {
            name: "a count stored before a block",
            what: "1024 bytes follow a count in the message; the count is written first, or last",
            per: 1,
            with: array(Control::Compiled, Copying::Block),
            without: block_then_count,
        },
        Effect {
            name: "records of three, not one row of items",
            what: "86 records of three items are moved, or the same number of items in one row",
            per: RECORDS,
            with: |user, packet| records(&InlineItem::<Marshal>::new(), user, packet),
            without: |user, packet| items_of_records(&InlineItem::<Marshal>::new(), user, packet),
        },
        Effect {
            name: "one code alone",
            what: "the interpreter finds one integer and does not move it, or interprets nothing",
            per: 1,
            with: interpreted::integer_for_nothing,
            without: interpreted::nothing,
        },
        Effect {
            name: "codes in records, not in one row",
            what: "86 records of three integers are found and not moved, or the same number of integers in one row of codes",
            per: RECORDS,
            with: interpreted::records_found,
            without: interpreted::row_found,
        },
        Effect {
            name: "moving records, in addition to finding them",
            what: "86 records are found and moved as items, or only found",
            per: RECORDS,
            with: interpreted::records_moved,
            without: interpreted::records_found,
        },
    ]
}

fn elements(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    mover.items(&mut packet, user.integers()?)?;
    Some(bytes - packet.left())
}

fn records(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    mover.records(&mut packet, user.records()?)?;
    Some(bytes - packet.left())
}

fn items_of_records(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    mover.items(&mut packet, user.records()?.as_flattened_mut())?;
    Some(bytes - packet.left())
}

fn block_then_count(user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    let count = packet.next(4)?;
    let integers = user.integers()?;
    let length = integers.len() as u32;
    Block::<Marshal>::new().items(&mut packet, integers)?;
    count.copy_from_slice(&length.to_ne_bytes());
    Some(bytes - packet.left())
}
