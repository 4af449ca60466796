//! What a message of a name server says about a question.
//!
//! A name server may be another program than expected, or its answer may be forged. So a record counts only
//! if it is of the sort and the name that were asked for, or of an alias of this name.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, Record};
use peregrine::limits;

use crate::question::Question;

/// An answer is used at most this long, even if its time to live is longer.
const TTL_MAX: Duration = Duration::from_secs(24 * 3600);
/// An answer is used for at least this time, even if its time to live is shorter.
pub(crate) const TTL_MIN: Duration = Duration::from_secs(1);
/// The statement that there are no records is used at most this long, so that a client soon notices the first
/// server.
const NEGATIVE_TTL_MAX: Duration = Duration::from_secs(60);
/// How long the statement that there are no records is used if the name server does not say how long.
const NEGATIVE_TTL: Duration = Duration::from_secs(5);
/// The maximum number of aliases between a name and its records.
const ALIASES_MAX: usize = 8;

/// A record of one of the sorts that are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Service { priority: u16, weight: u16, port: u16, target: Name },
    Machine(IpAddr),
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) entries: Vec<Entry>,
    /// Whether there were more records than a directory returns.
    pub(crate) is_cut: bool,
    /// Addresses of the targets of `entries`, which the name server has added.
    pub(crate) added: Vec<(Name, IpAddr)>,
    /// How long the answer is used.
    pub(crate) ttl: Duration,
}

impl Answer {
    /// Returns the answer that there are no records. `ttl` is what the name server says about its validity.
    pub(crate) fn nothing(ttl: Option<u32>) -> Self {
        let ttl = ttl.map_or(NEGATIVE_TTL, seconds).clamp(TTL_MIN, NEGATIVE_TTL_MAX);
        Self { entries: Vec::new(), is_cut: false, added: Vec::new(), ttl }
    }

    /// Shortens the time for which the answer is used.
    pub(crate) fn limit(&mut self, ttl: Duration) {
        self.ttl = self.ttl.min(ttl).max(TTL_MIN);
    }
}

/// What a message says about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Answer(Answer),
    /// The name is an alias of another one, which must be asked for. The alias is valid for this time.
    Alias(Name, Duration),
}

/// Reads a message. `aliases` is the number of aliases that were followed before, and is counted on.
///
/// # Errors
/// Why the message is no answer.
pub(crate) fn read(
    question: &Question,
    message: &Message,
    aliases: &mut usize,
) -> Result<Said, String> {
    let code = message.metadata.response_code;
    if !matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) {
        return Err(format!("the name server answers `{code}`"));
    }
    let (mut owner, mut ttl) = (&question.name, TTL_MAX);
    loop {
        let own = || message.answers.iter().filter(|record| record.name == *owner);
        let mut found: Vec<&Record> =
            own().filter(|record| record.record_type() == question.sort).collect();
        if !found.is_empty() {
            let is_cut = found.len() > limits::SERVERS_MAX;
            // Servers with a low priority value are preferred, wherever they are in the message.
            found.sort_by_key(|record| match &record.data {
                RData::SRV(service) => service.priority,
                _ => 0,
            });
            found.truncate(limits::SERVERS_MAX);
            let entries = found.iter().filter_map(|record| entry(&record.data)).collect();
            let shortest = found.iter().map(|record| seconds(record.ttl)).min().unwrap_or(ttl);
            let mut answer = Answer { entries, is_cut, added: added(message), ttl };
            let of_added = message.additionals.iter().filter(|record| is_address(record));
            let of_added = of_added.map(|record| seconds(record.ttl)).min().unwrap_or(TTL_MAX);
            answer.limit(shortest.min(of_added));
            return Ok(Said::Answer(answer));
        }
        let alias = own().find_map(|record| match &record.data {
            RData::CNAME(alias) => Some((&alias.0, record.ttl)),
            _ => None,
        });
        let Some((next, alias_ttl)) = alias else { break };
        *aliases += 1;
        if *aliases > ALIASES_MAX {
            return Err(format!("`{}` has more than {ALIASES_MAX} aliases", question.name));
        }
        (owner, ttl) = (next, ttl.min(seconds(alias_ttl)));
    }
    let validity = message.authorities.iter().find_map(|record| match &record.data {
        RData::SOA(zone) => Some(record.ttl.min(zone.minimum)),
        _ => None,
    });
    if *owner != question.name && code == ResponseCode::NoError && validity.is_none() {
        return Ok(Said::Alias(owner.clone(), ttl));
    }
    let mut answer = Answer::nothing(validity);
    answer.limit(ttl);
    Ok(Said::Answer(answer))
}

/// Returns a time to live. Values with the highest bit mean 0 (RFC 2181).
fn seconds(ttl: u32) -> Duration {
    let ttl = if ttl > i32::MAX as u32 { 0 } else { ttl };
    Duration::from_secs(ttl.into()).min(TTL_MAX)
}

fn entry(data: &RData) -> Option<Entry> {
    match data {
        RData::SRV(service) => Some(Entry::Service {
            priority: service.priority,
            weight: service.weight,
            port: service.port,
            target: service.target.clone(),
        }),
        data => address(data).map(Entry::Machine),
    }
}

fn address(data: &RData) -> Option<IpAddr> {
    match data {
        RData::A(address) => Some(IpAddr::V4(address.0)),
        RData::AAAA(address) => Some(IpAddr::V6(address.0)),
        _ => None,
    }
}

fn is_address(record: &Record) -> bool {
    address(&record.data).is_some()
}

/// Returns the addresses that the name server has added to the answer.
fn added(message: &Message) -> Vec<(Name, IpAddr)> {
    let added = message.additionals.iter();
    let added = added.filter_map(|record| Some((record.name.clone(), address(&record.data)?)));
    added.take(limits::SERVERS_MAX * limits::ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use hickory_resolver::proto::op::OpCode;
    use hickory_resolver::proto::rr::RecordType;
    use hickory_resolver::proto::rr::rdata::{A, CNAME, SOA, SRV};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    fn asked(sort: RecordType) -> Question {
        Question { name: name("files.example.org."), sort }
    }

    fn a(owner: &str, ttl: u32, last: u8) -> Record {
        Record::from_rdata(name(owner), ttl, RData::A(A::new(192, 0, 2, last)))
    }

    fn alias(owner: &str, ttl: u32, target: &str) -> Record {
        Record::from_rdata(name(owner), ttl, RData::CNAME(CNAME(name(target))))
    }

    fn soa(ttl: u32, minimum: u32) -> Record {
        let zone = SOA::new(name("ns."), name("admin."), 1, 1, 1, 1, minimum);
        Record::from_rdata(name("example.org."), ttl, RData::SOA(zone))
    }

    fn with(answers: impl IntoIterator<Item = Record>) -> Message {
        let mut message = Message::response(1, OpCode::Query);
        message.add_answers(answers);
        message
    }

    fn machine(last: u8) -> Entry {
        Entry::Machine(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns the entries, and the time to live in seconds.
    fn answer(message: &Message) -> (Vec<Entry>, u64) {
        match read(&asked(RecordType::A), message, &mut 0) {
            Ok(Said::Answer(answer)) => (answer.entries, answer.ttl.as_secs()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_of_other_names_and_sorts_do_not_count() {
        let text = RData::SRV(SRV::new(0, 0, 1, name("x.")));
        let other_sort = Record::from_rdata(name("files.example.org."), 1, text);
        let message =
            with([a("evil.example.org.", 9, 66), a("FILES.example.org.", 300, 1), other_sort]);
        assert_eq!(answer(&message), (vec![machine(1)], 300));
        assert_eq!(answer(&with([a("evil.example.org.", 9, 66)])), (vec![], 5));
    }

    #[test]
    fn aliases_are_followed_and_shorten_the_time_to_live() {
        let records = [
            a("c.example.net.", 300, 1),
            alias("b.example.org.", 20, "c.example.net."),
            alias("files.example.org.", 100, "b.example.org."),
        ];
        assert_eq!(answer(&with(records)), (vec![machine(1)], 20));
        let only = with([alias("files.example.org.", 100, "b.example.org.")]);
        let said = read(&asked(RecordType::A), &only, &mut 0);
        assert_eq!(said, Ok(Said::Alias(name("b.example.org."), Duration::from_secs(100))));
    }

    #[test]
    fn loop_of_aliases_ends() {
        let records = [
            alias("files.example.org.", 1, "b.example.org."),
            alias("b.example.org.", 1, "files.example.org."),
        ];
        let said = read(&asked(RecordType::A), &with(records), &mut 0);
        assert!(said.unwrap_err().contains("more than 8 aliases"));
    }

    #[test]
    fn times_to_live_are_bounded() {
        let ttl = |ttl| answer(&with([a("files.example.org.", ttl, 1)])).1;
        assert_eq!(
            (ttl(0), ttl(1), ttl(86_400), ttl(1 << 30), ttl(1 << 31)),
            (1, 1, 86_400, 86_400, 1)
        );
        let nothing = |record: Option<Record>| {
            let mut message = with([]);
            message.metadata.response_code = ResponseCode::NXDomain;
            message.add_authorities(record);
            answer(&message)
        };
        assert_eq!(nothing(None), (vec![], 5));
        assert_eq!(nothing(Some(soa(30, 10))), (vec![], 10));
        assert_eq!(nothing(Some(soa(10, 30))), (vec![], 10));
        assert_eq!(nothing(Some(soa(0, 0))), (vec![], 1));
        assert_eq!(nothing(Some(soa(9999, 9999))), (vec![], 60));
    }

    #[test]
    fn refusals_are_no_answers() {
        let mut message = with([a("files.example.org.", 9, 1)]);
        message.metadata.response_code = ResponseCode::ServFail;
        assert!(read(&asked(RecordType::A), &message, &mut 0).is_err());
    }

    #[test]
    fn too_many_records_are_cut_after_those_of_low_priority() {
        let service = |number: u16| {
            let data = RData::SRV(SRV::new(9999 - number, 0, 1, name("x.")));
            Record::from_rdata(name("files.example.org."), 1, data)
        };
        let said = read(&asked(RecordType::SRV), &with((0..1100).map(service)), &mut 0);
        let Ok(Said::Answer(answer)) = said else { panic!("{said:?}") };
        assert!(answer.is_cut);
        assert_eq!(answer.entries.len(), limits::SERVERS_MAX);
        let most = answer.entries.iter().map(|entry| match entry {
            Entry::Service { priority, .. } => *priority,
            Entry::Machine(_) => panic!("no service"),
        });
        assert_eq!(most.max(), Some(9999 - 1100 + limits::SERVERS_MAX as u16));
    }
}
