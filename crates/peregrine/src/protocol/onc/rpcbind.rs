//! The messages of rpcbind, the program through which clients find the ports of other programs: version 2
//! (portmap), which knows only IPv4, and versions 3 and 4 (RFC 1833). This module has only the requests that
//! Peregrine's clients and servers make. Peregrine's own rpcbind answers further requests: see
//! [`crate::rpcbind`].

use super::items::{Items, Unreadable, push_number, push_opaque};
#[cfg(any(test, fuzzing))]
use super::message::Outcome;
use super::message::Versions;

/// The number of the program rpcbind.
pub(crate) const PROGRAM: u32 = 100_000;
/// The port of rpcbind, over UDP and TCP.
pub(crate) const PORT: u16 = 111;
/// The versions of rpcbind that this module knows.
pub(crate) const VERSIONS: Versions = Versions { low: 2, high: 4 };
/// The number that TCP has in version 2 of rpcbind.
pub(crate) const PROTOCOL_TCP: u32 = 6;
/// The number that UDP has in version 2 of rpcbind.
pub(crate) const PROTOCOL_UDP: u32 = 17;

/// The largest number of bytes in a text.
pub(crate) const TEXT_BYTES_MAX: usize = 256;
/// The largest number of entries in a list.
pub(crate) const LISTED_MAX: usize = 4096;

/// The port of a program, in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// [`PROTOCOL_TCP`], [`PROTOCOL_UDP`] or another protocol over IPv4.
    pub(crate) protocol: u32,
    /// The port. A client that asks for the port sends 0.
    pub(crate) port: u32,
}

/// The address of a program, in versions 3 and 4. Each text has at most [`TEXT_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration<'a> {
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// The name of the network: see [`Network`](super::universal::Network).
    pub(crate) network: &'a str,
    /// The universal address: see [`Universal`](super::universal::Universal).
    pub(crate) address: &'a str,
    pub(crate) owner: &'a str,
}

/// A call to rpcbind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// SET of version 2: registers a program. It fails if the program is registered already.
    SetMapping(Mapping),
    /// UNSET of version 2: removes a program. Protocol and port have no meaning.
    UnsetMapping(Mapping),
    /// GETPORT of version 2: the port of a program. Another version of the program may be at this port.
    Port(Mapping),
    /// DUMP of version 2: all programs over IPv4.
    DumpMappings,
    /// SET: registers a program.
    Set(Registration<'a>),
    /// UNSET: removes a program from one network, or from all if the network has no name.
    Unset(Registration<'a>),
    /// GETADDR: the address of a program. Another version of the program may be at this address.
    Address(Registration<'a>),
    /// DUMP: all programs.
    Dump,
}

impl Mapping {
    fn read(items: &mut Items<'_>) -> Result<Self, Unreadable> {
        let (program, version) = (items.number()?, items.number()?);
        Ok(Self { program, version, protocol: items.number()?, port: items.number()? })
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        let Self { program, version, protocol, port } = *self;
        for number in [program, version, protocol, port] {
            push_number(bytes, number);
        }
    }
}

impl<'a> Registration<'a> {
    fn read(items: &mut Items<'a>) -> Result<Self, Unreadable> {
        let (program, version) = (items.number()?, items.number()?);
        let network = items.text(TEXT_BYTES_MAX)?;
        let address = items.text(TEXT_BYTES_MAX)?;
        Ok(Self { program, version, network, address, owner: items.text(TEXT_BYTES_MAX)? })
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        push_number(bytes, self.program);
        push_number(bytes, self.version);
        for text in [self.network, self.address, self.owner] {
            push_opaque(bytes, text.as_bytes());
        }
    }
}

impl<'a> Request<'a> {
    /// Reads the arguments of a call to rpcbind.
    ///
    /// # Errors
    /// Returns the outcome that the server reports instead of results.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn parse(
        version: u32,
        procedure: u32,
        arguments: &'a [u8],
    ) -> Result<Self, Outcome> {
        if !(VERSIONS.low..=VERSIONS.high).contains(&version) {
            return Err(Outcome::ProgramMismatch(VERSIONS));
        }
        let mut items = Items::new(arguments);
        let request =
            Self::read(version, procedure, &mut items).ok_or(Outcome::ProcedureUnavailable)?;
        let complete = request.and_then(|request| items.end().map(|()| request));
        complete.map_err(|_| Outcome::GarbageArguments)
    }

    /// Reads the arguments. Returns `None` if the version has no such procedure.
    #[cfg(any(test, fuzzing))]
    fn read(
        version: u32,
        procedure: u32,
        items: &mut Items<'a>,
    ) -> Option<Result<Self, Unreadable>> {
        Some(match (version, procedure) {
            (2, 1) => Mapping::read(items).map(Self::SetMapping),
            (2, 2) => Mapping::read(items).map(Self::UnsetMapping),
            (2, 3) => Mapping::read(items).map(Self::Port),
            (2, 4) => Ok(Self::DumpMappings),
            (3 | 4, 1) => Registration::read(items).map(Self::Set),
            (3 | 4, 2) => Registration::read(items).map(Self::Unset),
            (3 | 4, 3) => Registration::read(items).map(Self::Address),
            (3 | 4, 4) => Ok(Self::Dump),
            _ => return None,
        })
    }

    /// Returns the number of the procedure. It is the same in all versions that have the procedure.
    pub(crate) const fn procedure(&self) -> u32 {
        match self {
            Self::SetMapping(_) | Self::Set(_) => 1,
            Self::UnsetMapping(_) | Self::Unset(_) => 2,
            Self::Port(_) | Self::Address(_) => 3,
            Self::DumpMappings | Self::Dump => 4,
        }
    }

    /// Returns whether a version of rpcbind has this request.
    pub(crate) const fn is_in(&self, version: u32) -> bool {
        match self {
            Self::SetMapping(_) | Self::UnsetMapping(_) | Self::Port(_) | Self::DumpMappings => {
                version == 2
            }
            Self::Set(_) | Self::Unset(_) | Self::Address(_) | Self::Dump => {
                matches!(version, 3 | 4)
            }
        }
    }

    /// Appends the arguments of the call.
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::DumpMappings | Self::Dump => {}
            Self::SetMapping(mapping) | Self::UnsetMapping(mapping) | Self::Port(mapping) => {
                mapping.push(bytes);
            }
            Self::Set(registration) | Self::Unset(registration) | Self::Address(registration) => {
                registration.push(bytes)
            }
        }
    }
}

/// The results of a call to rpcbind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// Whether the registration was changed.
    Changed(bool),
    /// The port, or 0 if the program is not registered.
    Port(u16),
    /// The universal address. It is empty if the program is not registered.
    Address(&'a str),
    Mappings(Vec<Mapping>),
    Registrations(Vec<Registration<'a>>),
}

impl<'a> Answer<'a> {
    /// Reads the results of a call with this request. Lists are read in a loop, not recursively. They have at
    /// most [`LISTED_MAX`] entries, and memory is allocated only for entries that have arrived.
    ///
    /// # Errors
    /// Fails if the results cannot be read.
    pub(crate) fn parse(request: &Request<'_>, results: &'a [u8]) -> Result<Self, Unreadable> {
        let mut items = Items::new(results);
        let answer = match request {
            Request::SetMapping(_)
            | Request::UnsetMapping(_)
            | Request::Set(_)
            | Request::Unset(_) => Self::Changed(items.flag()?),
            Request::Port(_) => {
                let port = u16::try_from(items.number()?).map_err(|_| Unreadable::Invalid)?;
                Self::Port(port)
            }
            Request::Address(_) => Self::Address(items.text(TEXT_BYTES_MAX)?),
            Request::DumpMappings => Self::Mappings(listed(&mut items, Mapping::read)?),
            Request::Dump => Self::Registrations(listed(&mut items, Registration::read)?),
        };
        items.end()?;
        Ok(answer)
    }

    /// Appends the results of the call.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Changed(changed) => push_number(bytes, u32::from(*changed)),
            Self::Port(port) => push_number(bytes, u32::from(*port)),
            Self::Address(address) => push_opaque(bytes, address.as_bytes()),
            Self::Mappings(all) => push_list(bytes, all, Mapping::push),
            Self::Registrations(all) => push_list(bytes, all, Registration::push),
        }
    }
}

/// Reads a list. A 1 precedes each entry, and a 0 ends the list.
fn listed<'a, T>(
    items: &mut Items<'a>,
    read: impl Fn(&mut Items<'a>) -> Result<T, Unreadable>,
) -> Result<Vec<T>, Unreadable> {
    let mut all = Vec::new();
    while items.flag()? {
        if all.len() == LISTED_MAX {
            return Err(Unreadable::TooLong);
        }
        all.push(read(items)?);
    }
    Ok(all)
}

#[cfg(any(test, fuzzing))]
fn push_list<T>(bytes: &mut Vec<u8>, all: &[T], push: impl Fn(&T, &mut Vec<u8>)) {
    for one in all {
        push_number(bytes, 1);
        push(one, bytes);
    }
    push_number(bytes, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const NFS: Mapping = Mapping { program: 100_003, version: 3, protocol: PROTOCOL_TCP, port: 0 };

    fn registration<'a>(texts: [&'a str; 3], [program, version]: [u32; 2]) -> Registration<'a> {
        let [network, address, owner] = texts;
        Registration { program, version, network, address, owner }
    }

    fn pushed(push: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        push(&mut bytes);
        bytes
    }

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn requests(of: Registration<'_>) -> [Request<'_>; 8] {
        let other = Mapping { protocol: PROTOCOL_UDP, port: 2049, ..NFS };
        [
            Request::SetMapping(other),
            Request::UnsetMapping(NFS),
            Request::Port(NFS),
            Request::DumpMappings,
            Request::Set(of),
            Request::Unset(of),
            Request::Address(of),
            Request::Dump,
        ]
    }

    #[test]
    fn question_for_a_port_has_the_bytes_of_the_standard() {
        let request = Request::Port(NFS);
        let arguments = words(&[0x0001_86a3, 3, 6, 0]);
        assert_eq!((pushed(|to| request.push(to)), request.procedure()), (arguments.clone(), 3));
        assert_eq!(Request::parse(2, 3, &arguments), Ok(request));
        let results = words(&[0x801]);
        assert_eq!(Answer::parse(&request, &results), Ok(Answer::Port(2049)));
        assert_eq!(pushed(|to| Answer::Port(2049).push(to)), results);
        assert_eq!(Answer::parse(&request, &words(&[0x1_0000])), Err(Unreadable::Invalid));
        assert_eq!((PROGRAM, PORT), (0x186a0, 111));
    }

    #[test]
    fn each_version_has_its_procedures() {
        let of = registration(["tcp", "127.0.0.1.8.1", "root"], [100_003, 3]);
        for version in 2..=4 {
            let mut known = Vec::new();
            for request in requests(of).into_iter().filter(|it| it.is_in(version)) {
                let (procedure, arguments) = (request.procedure(), pushed(|to| request.push(to)));
                assert_eq!(Request::parse(version, procedure, &arguments), Ok(request));
                let longer = [&*arguments, &[0; 4]].concat();
                let garbage = Err(Outcome::GarbageArguments);
                assert_eq!(Request::parse(version, procedure, &longer), garbage);
                for end in 0..arguments.len() {
                    assert_eq!(Request::parse(version, procedure, &arguments[..end]), garbage);
                }
                known.push(procedure);
            }
            for procedure in (0..100).filter(|procedure| !known.contains(procedure)) {
                let unavailable = Err(Outcome::ProcedureUnavailable);
                assert_eq!(Request::parse(version, procedure, &[]), unavailable);
            }
        }
        let mismatch = Err(Outcome::ProgramMismatch(VERSIONS));
        assert_eq!(Request::parse(1, 0, &[]), mismatch);
        assert_eq!(Request::parse(5, 0, &[]), mismatch);
        assert!(requests(of).iter().all(|request| !request.is_in(1) && !request.is_in(5)));
    }

    #[test]
    fn list_has_the_bytes_of_the_standard() {
        let all = vec![Mapping { port: 2049, ..NFS }, Mapping { port: 111, version: 2, ..NFS }];
        let bytes = words(&[1, 100_003, 3, 6, 2049, 1, 100_003, 2, 6, 111, 0]);
        assert_eq!(pushed(|to| Answer::Mappings(all.clone()).push(to)), bytes);
        assert_eq!(Answer::parse(&Request::DumpMappings, &bytes), Ok(Answer::Mappings(all)));
        assert_eq!(Answer::parse(&Request::DumpMappings, &[]), Err(Unreadable::Truncated));
    }

    #[test]
    fn lists_without_end_are_refused() {
        let entry = words(&[1, 100_003, 3, 6, 2049]);
        let longest = [entry.repeat(LISTED_MAX), words(&[0])].concat();
        let answer = Answer::parse(&Request::DumpMappings, &longest).expect("a list");
        assert!(matches!(answer, Answer::Mappings(all) if all.len() == LISTED_MAX));
        let endless = entry.repeat(LISTED_MAX + 1);
        assert_eq!(Answer::parse(&Request::DumpMappings, &endless), Err(Unreadable::TooLong));
        let other = [words(&[2]), entry].concat();
        assert_eq!(Answer::parse(&Request::DumpMappings, &other), Err(Unreadable::Invalid));
        // Each entry announces a text that does not follow.
        let hostile = words(&[1, 1, 1, u32::MAX]);
        assert_eq!(Answer::parse(&Request::Dump, &hostile), Err(Unreadable::TooLong));
        let hostile = words(&[1, 1, 1, TEXT_BYTES_MAX as u32]);
        assert_eq!(Answer::parse(&Request::Dump, &hostile), Err(Unreadable::Truncated));
    }

    proptest! {
        #[test]
        fn requests_and_answers_are_read_as_they_were_written(
            texts in ["\\PC{0,30}", "\\PC{0,30}", "\\PC{0,30}"], numbers in any::<[u32; 2]>(),
            count in 0_usize..5,
        ) {
            let one = registration(texts.each_ref().map(|text| &**text), numbers);
            for request in requests(one) {
                let written = pushed(|to| request.push(to));
                let version = if request.is_in(4) { 4 } else { 2 };
                prop_assert_eq!(Request::parse(version, request.procedure(), &written), Ok(request));
                let answer = match request {
                    Request::Port(_) => Answer::Port(numbers[0] as u16),
                    Request::Address(_) => Answer::Address(one.address),
                    Request::DumpMappings => Answer::Mappings(vec![NFS; count]),
                    Request::Dump => Answer::Registrations(vec![one; count]),
                    _ => Answer::Changed(count == 0),
                };
                let written = pushed(|to| answer.push(to));
                prop_assert_eq!(Answer::parse(&request, &written), Ok(answer));
            }
        }

        #[test]
        fn any_bytes_are_read_without_harm(
            version in 2_u32..5, procedure in 0_u32..13, bytes in vec(any::<u8>(), 0..200),
        ) {
            if let Ok(request) = Request::parse(version, procedure, &bytes) {
                prop_assert!(request.is_in(version) && request.procedure() == procedure);
                let _ = Answer::parse(&request, &bytes);
            }
        }
    }
}
