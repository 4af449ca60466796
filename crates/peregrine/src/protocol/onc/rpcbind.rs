//! The messages of rpcbind, the program through which clients find the ports of other programs: version 2
//! (portmap), which knows only IPv4, and versions 3 and 4 (RFC 1833).
//!
//! Procedures by which a server asks rpcbind to make a call on its behalf (CALLIT, BCAST, INDIRECT) are read
//! and refused. Through them, anybody could make the server send packets to others.

use super::items::{Items, Unreadable, push_number, push_opaque};
use super::message::{Outcome, Versions};

/// The number of the program.
pub(crate) const PROGRAM: u32 = 100_000;
/// The port of rpcbind, over UDP and TCP.
pub(crate) const PORT: u16 = 111;
/// The versions that are known here.
pub(crate) const VERSIONS: Versions = Versions { low: 2, high: 4 };
/// TCP as version 2 names it.
pub(crate) const PROTOCOL_TCP: u32 = 6;
/// UDP as version 2 names it.
pub(crate) const PROTOCOL_UDP: u32 = 17;

/// The largest number of bytes in a text.
pub(crate) const TEXT_BYTES_MAX: usize = 256;
/// The largest number of entries in a list.
pub(crate) const LISTED_MAX: usize = 4096;
/// The largest number of bytes in the arguments of a call that rpcbind is asked to make.
const INDIRECT_BYTES_MAX: usize = 8800;

/// Which port a program has, in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) program: u32,
    pub(crate) version: u32,
    /// [`PROTOCOL_TCP`], [`PROTOCOL_UDP`] or another protocol over IPv4.
    pub(crate) protocol: u32,
    /// The port. A client that asks for the port sends 0.
    pub(crate) port: u32,
}

/// Which address a program has, in versions 3 and 4. Each text has at most [`TEXT_BYTES_MAX`] bytes.
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

/// One address of a program, with the properties of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    pub(crate) address: &'a str,
    pub(crate) network: &'a str,
    /// 1 for datagrams, 2 for connections, 3 for connections that end in order.
    pub(crate) semantics: u32,
    /// The family of protocols, for example `inet6`.
    pub(crate) family: &'a str,
    /// The protocol within the family, for example `tcp`.
    pub(crate) protocol: &'a str,
}

/// A call that rpcbind is asked to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Indirect<'a> {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) procedure: u32,
    pub(crate) arguments: &'a [u8],
}

/// A call to rpcbind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    /// NULL: does nothing.
    Null,
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
    /// GETVERSADDR of version 4: the address of exactly this version of a program.
    ExactAddress(Registration<'a>),
    /// GETADDRLIST of version 4: all addresses of a program.
    AllAddresses(Registration<'a>),
    /// DUMP: all programs.
    Dump,
    /// GETTIME: the seconds since 1970.
    Time,
    /// CALLIT and BCAST: rpcbind makes a call, and is silent if the call fails.
    CallIt(Indirect<'a>),
    /// INDIRECT of version 4: rpcbind makes a call, and reports if the call fails.
    Indirect(Indirect<'a>),
}

/// How a server refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server sends nothing.
    Silence,
    Answer(Outcome),
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

impl<'a> Place<'a> {
    fn read(items: &mut Items<'a>) -> Result<Self, Unreadable> {
        let (address, network) = (items.text(TEXT_BYTES_MAX)?, items.text(TEXT_BYTES_MAX)?);
        let semantics = items.number()?;
        let family = items.text(TEXT_BYTES_MAX)?;
        Ok(Self { address, network, semantics, family, protocol: items.text(TEXT_BYTES_MAX)? })
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        push_opaque(bytes, self.address.as_bytes());
        push_opaque(bytes, self.network.as_bytes());
        push_number(bytes, self.semantics);
        push_opaque(bytes, self.family.as_bytes());
        push_opaque(bytes, self.protocol.as_bytes());
    }
}

impl<'a> Indirect<'a> {
    fn read(items: &mut Items<'a>) -> Result<Self, Unreadable> {
        let (program, version) = (items.number()?, items.number()?);
        let procedure = items.number()?;
        Ok(Self { program, version, procedure, arguments: items.opaque(INDIRECT_BYTES_MAX)? })
    }

    fn push(&self, bytes: &mut Vec<u8>) {
        for number in [self.program, self.version, self.procedure] {
            push_number(bytes, number);
        }
        push_opaque(bytes, self.arguments);
    }
}

impl<'a> Request<'a> {
    /// Reads the arguments of a call to rpcbind.
    ///
    /// # Errors
    /// Returns the outcome that the server reports instead of results.
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
    fn read(
        version: u32,
        procedure: u32,
        items: &mut Items<'a>,
    ) -> Option<Result<Self, Unreadable>> {
        Some(match (version, procedure) {
            (_, 0) => Ok(Self::Null),
            (2, 1) => Mapping::read(items).map(Self::SetMapping),
            (2, 2) => Mapping::read(items).map(Self::UnsetMapping),
            (2, 3) => Mapping::read(items).map(Self::Port),
            (2, 4) => Ok(Self::DumpMappings),
            (3 | 4, 1) => Registration::read(items).map(Self::Set),
            (3 | 4, 2) => Registration::read(items).map(Self::Unset),
            (3 | 4, 3) => Registration::read(items).map(Self::Address),
            (3 | 4, 4) => Ok(Self::Dump),
            (_, 5) => Indirect::read(items).map(Self::CallIt),
            (3 | 4, 6) => Ok(Self::Time),
            (4, 9) => Registration::read(items).map(Self::ExactAddress),
            (4, 10) => Indirect::read(items).map(Self::Indirect),
            (4, 11) => Registration::read(items).map(Self::AllAddresses),
            _ => return None,
        })
    }

    /// Returns the number of the procedure. It is the same in all versions that have the procedure.
    pub(crate) const fn procedure(&self) -> u32 {
        match self {
            Self::Null => 0,
            Self::SetMapping(_) | Self::Set(_) => 1,
            Self::UnsetMapping(_) | Self::Unset(_) => 2,
            Self::Port(_) | Self::Address(_) => 3,
            Self::DumpMappings | Self::Dump => 4,
            Self::CallIt(_) => 5,
            Self::Time => 6,
            Self::ExactAddress(_) => 9,
            Self::Indirect(_) => 10,
            Self::AllAddresses(_) => 11,
        }
    }

    /// Returns whether a version of rpcbind has this request.
    pub(crate) const fn is_in(&self, version: u32) -> bool {
        match self {
            Self::Null | Self::CallIt(_) => matches!(version, 2..=4),
            Self::SetMapping(_) | Self::UnsetMapping(_) | Self::Port(_) | Self::DumpMappings => {
                version == 2
            }
            Self::Set(_) | Self::Unset(_) | Self::Address(_) | Self::Dump | Self::Time => {
                matches!(version, 3 | 4)
            }
            Self::ExactAddress(_) | Self::Indirect(_) | Self::AllAddresses(_) => version == 4,
        }
    }

    /// Appends the arguments of the call.
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Null | Self::DumpMappings | Self::Dump | Self::Time => {}
            Self::SetMapping(mapping) | Self::UnsetMapping(mapping) | Self::Port(mapping) => {
                mapping.push(bytes);
            }
            Self::Set(registration)
            | Self::Unset(registration)
            | Self::Address(registration)
            | Self::ExactAddress(registration)
            | Self::AllAddresses(registration) => registration.push(bytes),
            Self::CallIt(call) | Self::Indirect(call) => call.push(bytes),
        }
    }

    /// Returns how a server refuses this request, or `None` if the server answers it.
    pub(crate) const fn refusal(&self) -> Option<Refusal> {
        match self {
            // Clients send this to all machines of a network, so only machines with results answer.
            Self::CallIt(_) => Some(Refusal::Silence),
            Self::Indirect(_) => Some(Refusal::Answer(Outcome::ProcedureUnavailable)),
            _ => None,
        }
    }
}

/// The results of a call to rpcbind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    Nothing,
    /// Whether the registration was changed.
    Changed(bool),
    /// The port, or 0 if the program is not registered.
    Port(u16),
    /// The universal address. It is empty if the program is not registered.
    Address(&'a str),
    Mappings(Vec<Mapping>),
    Registrations(Vec<Registration<'a>>),
    Places(Vec<Place<'a>>),
    Time(u32),
}

impl<'a> Answer<'a> {
    /// Reads the results of a call with this request. Lists are read in a loop. They have at most
    /// [`LISTED_MAX`] entries, and memory is allocated only for entries that have arrived.
    ///
    /// # Errors
    /// Fails if the results cannot be read. That includes all results of the requests that are refused.
    pub(crate) fn parse(request: &Request<'_>, results: &'a [u8]) -> Result<Self, Unreadable> {
        let mut items = Items::new(results);
        let answer = match request {
            Request::Null => Self::Nothing,
            Request::SetMapping(_)
            | Request::UnsetMapping(_)
            | Request::Set(_)
            | Request::Unset(_) => Self::Changed(items.flag()?),
            Request::Port(_) => {
                let port = u16::try_from(items.number()?).map_err(|_| Unreadable::Invalid)?;
                Self::Port(port)
            }
            Request::Address(_) | Request::ExactAddress(_) => {
                Self::Address(items.text(TEXT_BYTES_MAX)?)
            }
            Request::DumpMappings => Self::Mappings(listed(&mut items, Mapping::read)?),
            Request::Dump => Self::Registrations(listed(&mut items, Registration::read)?),
            Request::AllAddresses(_) => Self::Places(listed(&mut items, Place::read)?),
            Request::Time => Self::Time(items.number()?),
            Request::CallIt(_) | Request::Indirect(_) => return Err(Unreadable::Invalid),
        };
        items.end()?;
        Ok(answer)
    }

    /// Appends the results of the call.
    pub(crate) fn push(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Nothing => {}
            Self::Changed(changed) => push_number(bytes, u32::from(*changed)),
            Self::Port(port) => push_number(bytes, u32::from(*port)),
            Self::Address(address) => push_opaque(bytes, address.as_bytes()),
            Self::Mappings(all) => push_list(bytes, all, Mapping::push),
            Self::Registrations(all) => push_list(bytes, all, Registration::push),
            Self::Places(all) => push_list(bytes, all, Place::push),
            Self::Time(seconds) => push_number(bytes, *seconds),
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

    fn requests<'a>(of: Registration<'a>, arguments: &'a [u8]) -> [Request<'a>; 14] {
        let call = Indirect { program: 1, version: 2, procedure: 3, arguments };
        let other = Mapping { protocol: PROTOCOL_UDP, port: 2049, ..NFS };
        [
            Request::Null,
            Request::SetMapping(other),
            Request::UnsetMapping(NFS),
            Request::Port(NFS),
            Request::DumpMappings,
            Request::Set(of),
            Request::Unset(of),
            Request::Address(of),
            Request::ExactAddress(of),
            Request::AllAddresses(of),
            Request::Dump,
            Request::Time,
            Request::CallIt(call),
            Request::Indirect(call),
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
            for request in requests(of, b"abc").into_iter().filter(|it| it.is_in(version)) {
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
        assert!(requests(of, b"").iter().all(|request| !request.is_in(1) && !request.is_in(5)));
    }

    #[test]
    fn calls_for_others_are_refused() {
        let of = registration(["", "", ""], [0, 0]);
        let refused = requests(of, b"").map(|request| request.refusal());
        assert!(refused[..12].iter().all(Option::is_none));
        assert_eq!(refused[12], Some(Refusal::Silence));
        let answer = Refusal::Answer(Outcome::ProcedureUnavailable);
        assert_eq!(refused[13], Some(answer));
        for request in &requests(of, b"")[12..] {
            assert_eq!(Answer::parse(request, &[0; 8]), Err(Unreadable::Invalid));
        }
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
            bytes in vec(any::<u8>(), 0..50), count in 0_usize..5,
        ) {
            let one = registration(texts.each_ref().map(|text| &**text), numbers);
            let place = Place {
                address: one.address,
                network: one.network,
                semantics: numbers[0],
                family: one.owner,
                protocol: "tcp",
            };
            for request in requests(one, &bytes) {
                let written = pushed(|to| request.push(to));
                let version = if request.is_in(4) { 4 } else { 2 };
                prop_assert_eq!(Request::parse(version, request.procedure(), &written), Ok(request));
                let answer = match request {
                    Request::Null => Answer::Nothing,
                    Request::Port(_) => Answer::Port(numbers[0] as u16),
                    Request::Address(_) | Request::ExactAddress(_) => Answer::Address(one.address),
                    Request::DumpMappings => Answer::Mappings(vec![NFS; count]),
                    Request::Dump => Answer::Registrations(vec![one; count]),
                    Request::AllAddresses(_) => Answer::Places(vec![place; count]),
                    Request::Time => Answer::Time(numbers[1]),
                    Request::CallIt(_) | Request::Indirect(_) => continue,
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
