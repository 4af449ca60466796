//! Which questions find the servers of a name.
//!
//! | order | questions | what |
//! |---|---|---|
//! | 1 | `SRV _NAME._tcp.DOMAIN`, `SRV _NAME._udp.DOMAIN` | the servers of a service (RFC 2782) |
//! | 2 | `SRV _peregrine._tcp.NAME.DOMAIN`, `SRV _peregrine._udp.NAME.DOMAIN` | a port of a service |
//! | 3 | `A NAME.DOMAIN`, `AAAA NAME.DOMAIN` | machines, at the default port |
//!
//! Line 2 finds the port `peregrine` of the service `NAME` of Kubernetes. The questions of a line are only
//! asked if there are no records for the line before. A name with dots consists of several labels in the
//! lines 2 and 3. Line 1 is left out for such a name.

use hickory_resolver::proto::rr::{Name, RecordType};

use crate::place::{LABEL_BYTES_MAX, Place, is_domain};

/// A question to a name server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) name: Name,
    pub(crate) sort: RecordType,
}

impl Question {
    /// Returns the question for records of a domain, which has no dot at its end. `None`: the domain is not
    /// valid.
    fn of(domain: &str, sort: RecordType) -> Option<Self> {
        // The dot makes the name absolute.
        let name = Name::from_ascii(format!("{domain}.")).ok().filter(|_| is_domain(domain))?;
        Some(Self { name, sort })
    }
}

/// Two questions whose answers belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The servers that accept calls over TCP, and those over UDP.
    Services([Question; 2]),
    /// The IPv4 addresses, and the IPv6 addresses.
    Machines([Question; 2]),
}

/// Returns the questions for a name, in order. There are none if the name is not possible in DNS.
pub(crate) fn steps(place: &Place, name: &str) -> Vec<Step> {
    let domain = &place.domain;
    let services = |service: &str, domain: &str| {
        let over = |path| Question::of(&format!("{service}.{path}.{domain}"), RecordType::SRV);
        Some(Step::Services([over("_tcp")?, over("_udp")?]))
    };
    let is_label = !name.contains('.') && name.len() < LABEL_BYTES_MAX;
    let below = format!("{name}.{domain}");
    let own = is_label.then(|| services(&format!("_{name}"), domain)).flatten();
    let port = services("_peregrine", &below);
    let [first, second] = addresses(&below);
    let machines = first.zip(second).map(|(first, second)| Step::Machines([first, second]));
    own.into_iter().chain(port).chain(machines).collect()
}

/// Returns the questions for the addresses of a host.
pub(crate) fn addresses(host: &str) -> [Option<Question>; 2] {
    [RecordType::A, RecordType::AAAA].map(|sort| Question::of(host, sort))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str) -> Vec<String> {
        let place = Place::read("example.org").unwrap();
        let text = |step| {
            let (Step::Services([one, other]) | Step::Machines([one, other])) = step;
            [one, other].map(|question: Question| format!("{} {}", question.sort, question.name))
        };
        steps(&place, name).into_iter().flat_map(text).collect()
    }

    #[test]
    fn services_are_asked_for_before_machines() {
        let expected = [
            "SRV _files._tcp.example.org.",
            "SRV _files._udp.example.org.",
            "SRV _peregrine._tcp.files.example.org.",
            "SRV _peregrine._udp.files.example.org.",
            "A files.example.org.",
            "AAAA files.example.org.",
        ];
        assert_eq!(asked("files"), expected);
    }

    #[test]
    fn dots_of_a_name_separate_labels() {
        let expected = [
            "SRV _peregrine._tcp.a.b.example.org.",
            "SRV _peregrine._udp.a.b.example.org.",
            "A a.b.example.org.",
            "AAAA a.b.example.org.",
        ];
        assert_eq!(asked("a.b"), expected);
        assert_eq!(asked("a..b").len(), 0);
        assert_eq!(asked("a.").len(), 0);
        assert_eq!(asked("é").len(), 0);
    }

    #[test]
    fn long_names_are_only_asked_for_where_they_fit() {
        assert_eq!(asked(&"a".repeat(62)).len(), 6);
        assert_eq!(asked(&"a".repeat(63)).len(), 4, "with `_`, the label would be too long");
        assert_eq!(asked(&"a".repeat(64)).len(), 0);
    }
}
