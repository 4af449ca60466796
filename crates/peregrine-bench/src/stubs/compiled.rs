//! Implements compiled stubs. Each of the three procedures of the study has separate code.

use crate::cost::Copying;

use super::copying::{InlineItem, Mover, with_mover};
use super::packet::{Packet, Way};
use super::user::{Data, INTEGERS, User};
use super::{Stub, Used};

/// Returns the stub of a procedure.
pub(crate) fn stub<W: Way>(copying: Copying, data: Data) -> Stub {
    with_mover!(copying, W, [one, array, structure])[data as usize]
}

#[inline(always)]
fn one(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    mover.item(&mut packet, &mut user.one)?;
    Some(bytes - packet.left())
}

#[inline(always)]
fn array(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    let integers = user.integers()?;
    mover.count(&mut packet, integers.len())?;
    mover.items(&mut packet, integers)?;
    Some(bytes - packet.left())
}

#[inline(always)]
fn structure(mover: &impl Mover, user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    mover.item(&mut packet, &mut user.first)?;
    mover.item(&mut packet, &mut user.second)?;
    mover.item(&mut packet, &mut user.third)?;
    let integers = user.integers()?;
    mover.count(&mut packet, integers.len())?;
    mover.items(&mut packet, integers)?;
    let records = user.records()?;
    mover.count(&mut packet, records.len())?;
    mover.records(&mut packet, records)?;
    mover.item(&mut packet, &mut user.label)?;
    mover.text(&mut packet, &mut user.text[..])?;
    Some(bytes - packet.left())
}

/// Moves the array item by item. The compiler knows the length of the array.
pub(crate) fn array_of_known_length<W: Way>(user: &mut User, packet: &mut [u8]) -> Used {
    let (bytes, mut packet) = (packet.len(), Packet::new(packet));
    let mover = InlineItem::<W>::new();
    mover.count(&mut packet, INTEGERS)?;
    mover.items(&mut packet, &mut user.array[..])?;
    Some(bytes - packet.left())
}
