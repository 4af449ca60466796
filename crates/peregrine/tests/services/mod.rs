//! Small interfaces that several tests export, and the objects that implement them.

// Each test program uses only some of these items.
#![allow(dead_code)]

use peregrine::{Out, interface};

/// An interface with one procedure, which has no arguments.
#[interface]
pub(crate) trait Null {
    fn null(&self) -> peregrine::Result<()>;
}

pub(crate) struct Nothing;

impl Null for Nothing {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

/// An interface with arguments and results of any length.
#[interface]
pub(crate) trait Bytes {
    fn null(&self) -> peregrine::Result<()>;
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64>;
    fn fill(&self, with: u8, into: Out<'_, u8>) -> peregrine::Result<()>;
}

pub(crate) struct Object;

impl Bytes for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn sum(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        Ok(bytes.iter().copied().map(u64::from).sum())
    }
    fn fill(&self, with: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let all = vec![with; into.capacity()];
        into.put(&all).expect("enough space");
        Ok(())
    }
}
