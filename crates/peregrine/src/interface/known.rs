//! `InterfaceRef`: the interface of a binding or an export, compiled or read at run time.

use core::fmt;
use std::sync::Arc;

use super::{Described, Digest, Interface};

/// The interface that a client binds with or a server exports. It was either compiled into this program, or
/// [read](Described) at run time.
///
/// Bindings and servers treat both kinds alike. An `InterfaceRef` is cheap to clone.
///
/// ```
/// use peregrine::interface::{Described, InterfaceRef};
///
/// let text = "interface Add version 3\nadd(in a: i32, in b: i32) -> i32 or text\n";
/// let known = InterfaceRef::from(Described::parse(text)?);
/// assert_eq!((known.name(), known.version()), ("Add", 3));
/// assert_eq!(known.canonical_text(), text);
/// # Ok::<(), peregrine::interface::TextError>(())
/// ```
#[derive(Clone)]
pub struct InterfaceRef(Origin);

#[derive(Clone)]
enum Origin {
    Compiled(&'static Interface),
    Read(Arc<Read>),
}

/// An interface that was read at run time, and values that are computed once because they are often used.
struct Read {
    described: Described,
    digest: Digest,
    message_bytes: usize,
}

impl From<&'static Interface> for InterfaceRef {
    fn from(interface: &'static Interface) -> Self {
        Self(Origin::Compiled(interface))
    }
}

impl From<Described> for InterfaceRef {
    fn from(described: Described) -> Self {
        let (digest, message_bytes) = (described.digest(), described.message_bytes());
        Self(Origin::Read(Arc::new(Read { described, digest, message_bytes })))
    }
}

impl InterfaceRef {
    /// Returns an interface without procedures. A binding with it can only make the calls that all exports
    /// answer.
    pub(crate) const fn none() -> Self {
        const NONE: Interface = Interface {
            name: "",
            version: 0,
            docs: "",
            procedures: &[],
            digest: || Digest([0; 16]),
        };
        Self(Origin::Compiled(&NONE))
    }

    /// Returns the description as constant data, if it was compiled into this program.
    pub const fn compiled(&self) -> Option<&'static Interface> {
        match &self.0 {
            Origin::Compiled(interface) => Some(interface),
            Origin::Read(_) => None,
        }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Origin::Compiled(interface) => interface.name,
            Origin::Read(read) => &read.described.name,
        }
    }

    /// Returns its version.
    pub fn version(&self) -> u32 {
        match &self.0 {
            Origin::Compiled(interface) => interface.version,
            Origin::Read(read) => read.described.version,
        }
    }

    /// Returns its identity.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Origin::Compiled(interface) => interface.digest(),
            Origin::Read(read) => read.digest,
        }
    }

    /// Returns the text whose hash is the identity.
    pub fn canonical_text(&self) -> String {
        match &self.0 {
            Origin::Compiled(interface) => interface.canonical_text(),
            Origin::Read(read) => read.described.to_string(),
        }
    }

    /// Returns the documentation of the interface and of its procedures, in order.
    pub fn docs(&self) -> Vec<String> {
        match &self.0 {
            Origin::Compiled(interface) => {
                let procedures = interface.procedures.iter().map(|one| one.docs);
                core::iter::once(interface.docs).chain(procedures).map(str::to_owned).collect()
            }
            Origin::Read(read) => read.described.docs(),
        }
    }

    /// Returns the number of its procedures.
    pub fn procedures(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.len(),
            Origin::Read(read) => read.described.procedures.len(),
        }
    }

    /// Returns the name of the procedure with this number, if it exists.
    pub fn procedure_name(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.get(number).map(|one| one.name),
            Origin::Read(read) => read.described.procedures.get(number).map(|one| &*one.name),
        }
    }

    /// Returns whether the procedure with this number may be executed twice.
    pub(crate) fn is_idempotent(&self, number: u32) -> Option<bool> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => {
                interface.procedures.get(number).map(|one| one.idempotent)
            }
            Origin::Read(read) => read.described.procedures.get(number).map(|one| one.idempotent),
        }
    }

    /// Returns a message size in bytes, as [`Interface::message_bytes`] does.
    pub(crate) fn message_bytes(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.message_bytes(),
            Origin::Read(read) => read.message_bytes,
        }
    }

    /// Returns the description that is sent to clients.
    ///
    /// # Errors
    /// If the interface has more types, or more deeply nested types, than a description may have.
    pub(crate) fn described(&self) -> Result<Described, super::TextError> {
        match &self.0 {
            Origin::Compiled(interface) => Described::parse(&interface.canonical_text()),
            Origin::Read(read) => Ok(read.described.clone()),
        }
    }
}

impl fmt::Debug for InterfaceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InterfaceRef({} version {}, {})", self.name(), self.version(), self.digest())
    }
}

impl PartialEq for InterfaceRef {
    /// Returns whether both have the same identity.
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for InterfaceRef {}
