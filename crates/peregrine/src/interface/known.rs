//! `InterfaceRef`: the interface of a binding or an export. It was compiled into this program, or read at run
//! time.

use core::fmt;
use std::sync::Arc;

use super::{Described, DescribedType, Digest, Direction, Interface, Program, System, Type};

/// The interface with which a client binds, or which a server exports. It was either compiled into this
/// program, or [read](Described) at run time.
///
/// Bindings and servers treat both kinds in the same way. Cloning an `InterfaceRef` is cheap.
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

/// An interface that was read at run time. It also contains values that are often used, and therefore
/// computed only once.
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
    /// Returns an interface without procedures. A binding with this interface can only make the calls that
    /// all exports answer.
    pub(crate) const fn none() -> Self {
        const NONE: Interface = Interface {
            name: "",
            version: 0,
            docs: "",
            procedures: &[],
            programs: &[],
            digest: || Digest([0; 16]),
        };
        Self(Origin::Compiled(&NONE))
    }

    /// Returns the description as constant data. Returns `None` if the interface was read at run time.
    pub const fn compiled(&self) -> Option<&'static Interface> {
        match &self.0 {
            Origin::Compiled(interface) => Some(interface),
            Origin::Read(_) => None,
        }
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> &str {
        match &self.0 {
            Origin::Compiled(interface) => interface.name,
            Origin::Read(read) => &read.described.name,
        }
    }

    /// Returns the version of the interface.
    pub fn version(&self) -> u32 {
        match &self.0 {
            Origin::Compiled(interface) => interface.version,
            Origin::Read(read) => read.described.version,
        }
    }

    /// Returns the numbers by which the system `system` knows this interface. Returns `None` if the interface
    /// is not a program of this system.
    pub fn program(&self, system: System) -> Option<&Program> {
        self.programs().iter().find(|program| program.system == system)
    }

    /// Returns the programs of other RPC systems that the interface also represents.
    pub fn programs(&self) -> &[Program] {
        match &self.0 {
            Origin::Compiled(interface) => interface.programs,
            Origin::Read(read) => &read.described.programs,
        }
    }

    /// Returns whether the procedure with this index returns something when it succeeds.
    pub(crate) fn has_results(&self, procedure: usize) -> bool {
        match &self.0 {
            Origin::Compiled(interface) => {
                let procedure = interface.procedures.get(procedure);
                procedure.is_some_and(|procedure| !matches!(procedure.result, Type::Unit))
            }
            Origin::Read(read) => {
                let procedure = read.described.procedures.get(procedure);
                procedure.is_some_and(|procedure| procedure.result != DescribedType::Unit)
            }
        }
    }

    /// Returns whether a procedure of the interface can call objects of its caller.
    pub(crate) fn has_callbacks(&self) -> bool {
        match &self.0 {
            Origin::Compiled(interface) => {
                let mut parameters = interface.procedures.iter().flat_map(|one| one.parameters);
                parameters.any(|one| one.direction == Direction::Callback)
            }
            Origin::Read(read) => {
                let mut parameters =
                    read.described.procedures.iter().flat_map(|one| &one.parameters);
                parameters.any(|one| one.direction == Direction::Callback)
            }
        }
    }

    /// Returns the identity of the interface.
    pub fn digest(&self) -> Digest {
        match &self.0 {
            Origin::Compiled(interface) => interface.digest(),
            Origin::Read(read) => read.digest,
        }
    }

    /// Returns the canonical text of the interface. The identity is computed from the hash of this text.
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

    /// Returns the texts that a server sends beside the canonical text: the documentation, and the foreign
    /// text if the interface is a program of another RPC system. Older clients ignore the foreign text.
    pub(crate) fn sent_docs(&self) -> Vec<String> {
        let mut texts = self.docs();
        if !self.programs().is_empty() {
            texts.push(match &self.0 {
                Origin::Compiled(interface) => interface.foreign_text(),
                Origin::Read(read) => read.described.foreign_text(),
            });
        }
        texts
    }

    /// Returns the number of procedures of the interface.
    pub fn procedures(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.len(),
            Origin::Read(read) => read.described.procedures.len(),
        }
    }

    /// Returns the name of the procedure with this number. Returns `None` if there is no such procedure.
    pub fn procedure_name(&self, number: u32) -> Option<&str> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.get(number).map(|one| one.name),
            Origin::Read(read) => read.described.procedures.get(number).map(|one| &*one.name),
        }
    }

    /// Returns whether the procedure with this number may be executed twice. Returns `None` if there is no
    /// such procedure.
    pub(crate) fn is_idempotent(&self, number: u32) -> Option<bool> {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => {
                interface.procedures.get(number).map(|one| one.idempotent)
            }
            Origin::Read(read) => read.described.procedures.get(number).map(|one| one.idempotent),
        }
    }

    /// Returns whether the procedure with this number has streams or callbacks.
    pub(crate) fn has_streams(&self, number: u32) -> bool {
        let number = number as usize;
        match &self.0 {
            Origin::Compiled(interface) => {
                let procedure = interface.procedures.get(number);
                procedure
                    .is_some_and(|one| one.parameters.iter().any(|one| one.direction.is_live()))
            }
            Origin::Read(read) => {
                let procedure = read.described.procedures.get(number);
                procedure
                    .is_some_and(|one| one.parameters.iter().any(|one| one.direction.is_live()))
            }
        }
    }

    /// Returns whether the interface has a one-way procedure.
    pub(crate) fn has_oneway(&self) -> bool {
        match &self.0 {
            Origin::Compiled(interface) => interface.procedures.iter().any(|one| one.oneway),
            Origin::Read(read) => read.described.procedures.iter().any(|one| one.oneway),
        }
    }

    /// Returns a message size in bytes, computed in the same way as by [`Interface::message_bytes`].
    pub(crate) fn message_bytes(&self) -> usize {
        match &self.0 {
            Origin::Compiled(interface) => interface.message_bytes(),
            Origin::Read(read) => read.message_bytes,
        }
    }

    /// Returns the description that the server sends to clients.
    ///
    /// # Errors
    /// Fails if the interface has more types, or more deeply nested types, than a description may have.
    pub(crate) fn described(&self) -> Result<Described, super::TextError> {
        match &self.0 {
            Origin::Compiled(interface) => interface.described(),
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
    /// Returns whether both interfaces have the same identity.
    fn eq(&self, other: &Self) -> bool {
        self.digest() == other.digest()
    }
}

impl Eq for InterfaceRef {}
