//! `InterfaceRef`: an interface as bindings and exports hold it, compiled or read.

use core::fmt;
use std::sync::Arc;

use super::{Described, Digest, Interface};

/// An interface that a client binds with, or that a server exports: one that was compiled into this
/// program, or one that was [read](Described) while it ran.
///
/// Both are the same to whoever binds, compares and answers. Cheap to clone.
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

/// What is asked for often is found out once.
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
    /// No interface at all: what is bound by it calls nothing but what every export has.
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

    /// The description as constant data, if it was compiled into this program.
    pub const fn compiled(&self) -> Option<&'static Interface> {
        match &self.0 {
            Origin::Compiled(interface) => Some(interface),
            Origin::Read(_) => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Origin::Compiled(interface) => interface.name,
            Origin::Read(read) => &read.described.name,
        }
    }

    /// Its version.
    pub fn version(&self) -> u32 {
        match &self.0 {
            Origin::Compiled(interface) => interface.version,
            Origin::Read(read) => read.described.version,
        }
    }

    /// Its identity.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Origin::Compiled(interface) => interface.digest(),
            Origin::Read(read) => read.digest,
        }
    }

    /// The text whose hash is the identity.
    pub fn canonical_text(&self) -> String {
        match &self.0 {
            Origin::Compiled(interface) => interface.canonical_text(),
            Origin::Read(read) => read.described.to_string(),
        }
    }

    /// The documentation of the interface and of its procedures, in order.
    pub fn docs(&self) -> Vec<String> {
        match &self.0 {
            Origin::Compiled(interface) => {
                let procedures = interface.procedures.iter().map(|one| one.docs);
                core::iter::once(interface.docs).chain(procedures).map(str::to_owned).collect()
            }
            Origin::Read(read) => read.described.docs(),
        }
    }

    /// How many procedures it has.
    pub fn procedures(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.len(),
            Origin::Read(read) => read.described.procedures.len(),
        }
    }

    /// The name of the procedure of that number, if there is one.
    pub fn procedure_name(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.get(number).map(|one| one.name),
            Origin::Read(read) => read.described.procedures.get(number).map(|one| &*one.name),
        }
    }

    /// Whether the procedure of that number may safely run twice.
    pub(crate) fn is_idempotent(&self, number: u32) -> Option<bool> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => {
                interface.procedures.get(number).map(|one| one.idempotent)
            }
            Origin::Read(read) => read.described.procedures.get(number).map(|one| one.idempotent),
        }
    }

    /// As [`Interface::message_bytes`].
    pub(crate) fn message_bytes(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.message_bytes(),
            Origin::Read(read) => read.message_bytes,
        }
    }

    /// As it is told to others, and read by them.
    ///
    /// # Errors
    /// If it has more or deeper types than any description may have.
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
    /// Whether both have one identity.
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for InterfaceRef {}
