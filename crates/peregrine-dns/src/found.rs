//! The servers that answers name, and the order in which a client tries them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use hickory_resolver::proto::rr::Name;
use peregrine::directory::{Offer, Offers};
use peregrine::limits;

use crate::answer::{Answer, Entry};
use crate::chance::fraction;
use crate::place::{Place, is_domain};

/// What the answers to all questions of a name say. Equal values mean that nothing has changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    servers: Vec<Ranked>,
    remarks: Vec<String>,
}

/// A server, and how often a client prefers it.
#[derive(Clone, Debug, PartialEq)]
struct Ranked {
    /// The share of the clients that try this server before others of the same priority.
    weight: u16,
    offer: Offer,
}

/// The answers for a service: over TCP, and over UDP.
pub(crate) type Services<'a> = [Option<&'a Answer>; 2];

/// Returns the addresses of a host.
pub(crate) type AddressesOf<'a> = &'a dyn Fn(&str) -> Vec<IpAddr>;

/// A server at a host and a port, with its priority and weight over TCP and over UDP.
type Rank = [Option<(u16, u16)>; 2];

impl Found {
    pub(crate) fn remark(&mut self, text: String) {
        if self.remarks.len() < limits::REMARKS_MAX && !self.remarks.contains(&text) {
            self.remarks.push(text);
        }
    }

    /// Adds a remark before all others, so that it is kept if there are many.
    pub(crate) fn remark_first(&mut self, text: String) {
        self.remarks.insert(0, text);
        self.remarks.truncate(limits::REMARKS_MAX);
    }

    /// Returns the servers for a client: by priority, and in a random order by weight within a priority, as
    /// RFC 2782 defines it.
    pub(crate) fn offers(&self) -> Offers {
        let mut servers: Vec<_> = self
            .servers
            .iter()
            .map(|one| (one.offer.priority(), late(one.weight), &one.offer))
            .collect();
        servers.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
        let mut offers =
            Offers::of(servers.into_iter().map(|(_, _, offer)| offer.clone()).collect());
        self.remarks.iter().for_each(|remark| offers.remark(remark));
        offers
    }

    /// Returns the servers of a service. `addresses` returns the addresses of a host. With `None`, clients
    /// find them.
    pub(crate) fn services(
        place: &Place,
        name: &str,
        answers: Services<'_>,
        addresses: Option<AddressesOf<'_>>,
    ) -> Self {
        let mut found = Self::default();
        let mut ranks: BTreeMap<(String, u16), Rank> = BTreeMap::new();
        for (path, answer) in answers.into_iter().enumerate() {
            for entry in answer.into_iter().flat_map(|answer| &answer.entries) {
                let Entry::Service { priority, weight, port, target } = entry else { continue };
                match usable(place, target, *port) {
                    Ok(host) => {
                        let rank = &mut ranks.entry((host, *port)).or_default()[path];
                        let new = (*priority, *weight);
                        *rank = Some(rank.map_or(new, |before| before.min(new)));
                    }
                    Err(why) => found.remark(why),
                }
            }
        }
        let mut ranked: Vec<_> = ranks
            .into_iter()
            .filter_map(|(at, rank)| Some((rank.into_iter().flatten().min()?, at, rank)))
            .collect();
        ranked.sort();
        let is_cut = answers.into_iter().flatten().any(|answer| answer.is_cut);
        if is_cut || ranked.len() > limits::SERVERS_MAX {
            found.remark(cut());
        }
        for ((priority, weight), (host, port), rank) in ranked.into_iter().take(limits::SERVERS_MAX)
        {
            let scheme = match rank {
                [Some(_), None] => "tcp:",
                [None, Some(_)] => "udp:",
                _ => "",
            };
            let hosts = match addresses {
                None => vec![host.clone()],
                Some(addresses) => found.allowed(place, addresses(&host)).map(written).collect(),
            };
            if hosts.is_empty() {
                found.remark(format!("the server {host}:{port} has no address"));
                continue;
            }
            let at = hosts.iter().take(limits::ADDRESSES_MAX);
            let at = at.map(|host| format!("{scheme}{name}@{host}:{port}"));
            found.add(priority, weight, &identity(&format!("{host}-{port}")), at.collect());
        }
        found
    }

    /// Returns the servers of machines: each address is one server.
    pub(crate) fn machines(place: &Place, name: &str, answers: [Option<&Answer>; 2]) -> Self {
        let mut found = Self::default();
        let entries = answers.into_iter().flatten().flat_map(|answer| &answer.entries);
        let addresses = entries.filter_map(|entry| match entry {
            Entry::Machine(address) => Some(*address),
            Entry::Service { .. } => None,
        });
        let mut allowed: Vec<_> = found.allowed(place, addresses.collect()).collect();
        let is_cut = answers.into_iter().flatten().any(|answer| answer.is_cut);
        if is_cut || allowed.len() > limits::SERVERS_MAX {
            found.remark(cut());
        }
        allowed.truncate(limits::SERVERS_MAX);
        for address in allowed {
            let at = format!("{name}@{}:{}", written(address), place.port);
            found.add(0, 0, &identity(&address.to_string()), vec![at]);
        }
        found
    }

    fn add(&mut self, priority: u16, weight: u16, server: &str, addresses: Vec<String>) {
        match Offer::new(server, addresses) {
            Ok(offer) => {
                let offer = offer.with_priority(priority);
                self.servers.push(Ranked { weight, offer });
            }
            Err(error) => self.remark(error.detail().to_owned()),
        }
    }

    /// Returns those addresses that a server may have, each once and in order. The others become remarks.
    fn allowed(
        &mut self,
        place: &Place,
        addresses: Vec<IpAddr>,
    ) -> impl Iterator<Item = IpAddr> + use<> {
        let mut addresses: Vec<_> = addresses.iter().map(IpAddr::to_canonical).collect();
        addresses.sort();
        addresses.dedup();
        addresses.retain(|address| {
            let why = refused(place, *address);
            if let Some(why) = why {
                self.remark(format!("the address {address} is not used: {why}"));
            }
            why.is_none()
        });
        addresses.into_iter()
    }
}

fn cut() -> String {
    format!("there are more than {} servers: the others are left out", limits::SERVERS_MAX)
}

/// Returns why no server may have an address. Otherwise the author of records could let clients call other
/// programs of their own machines, or send to many machines at once.
fn refused(place: &Place, address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address.is_unspecified() => Some("it is no address of a machine"),
        _ if address.is_multicast() => Some("it is the address of a group"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("it is the address of a group"),
        _ if address.is_loopback() && !place.is_on_this_machine() => {
            Some("it is an address of the machine that uses it")
        }
        IpAddr::V6(address) if address.is_unicast_link_local() => {
            Some("it does not say which network it belongs to")
        }
        _ => None,
    }
}

/// Returns the host of a service, or why the record cannot be used.
fn usable(place: &Place, target: &Name, port: u16) -> Result<String, String> {
    if target.is_root() {
        return Err("the domain says that no server offers the name".to_owned());
    }
    let host = target.to_lowercase().to_ascii();
    let host = host.strip_suffix('.').unwrap_or(&host);
    // The system would read a host such as `127.1` as an address.
    let last = host.rsplit('.').next().unwrap_or_default();
    if !is_domain(host) || last.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("the server `{host}` is not used: it is no name of a host"));
    }
    if last == "localhost" && !place.is_on_this_machine() {
        return Err(format!("the server `{host}` is not used: it is the machine that uses it"));
    }
    if port == 0 {
        return Err(format!("the server `{host}` is not used: its port is 0"));
    }
    Ok(host.to_owned())
}

/// Returns a host as addresses contain it.
fn written(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Returns what identifies a server: its place in the form of a name. A long text is cut, and gets a digest
/// so that it differs from others.
fn identity(text: &str) -> String {
    let text = text.replace(':', "-");
    if text.len() <= limits::NAME_BYTES_MAX {
        return text;
    }
    // FNV-1a. The digest must be the same in all processes, but nothing depends on its strength: servers with
    // equal identities are used all the same.
    let digest = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
        (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{}-{digest:016x}", &text[..limits::NAME_BYTES_MAX - 17])
}

/// Returns how late a server of this weight is in the order of one client. The server with the smallest of
/// such random numbers comes first, with a probability in proportion to its weight (Efraimidis and Spirakis,
/// *Weighted random sampling with a reservoir*, 2006). A server of the weight 0 has a very small chance.
fn late(weight: u16) -> f64 {
    const OF_NOTHING: f64 = 1.0 / 65_536.0;
    let weight = if weight == 0 { OF_NOTHING } else { f64::from(weight) };
    -(1.0 - fraction()).ln() / weight
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn elsewhere() -> Place {
        Place::read("example.org").unwrap()
    }

    fn here() -> Place {
        Place::read("//127.0.0.1/example.org:7000").unwrap()
    }

    fn service(priority: u16, weight: u16, port: u16, target: &str) -> Entry {
        Entry::Service { priority, weight, port, target: Name::from_ascii(target).unwrap() }
    }

    fn answer(entries: impl IntoIterator<Item = Entry>) -> Answer {
        let ttl = Duration::from_secs(1);
        Answer { entries: entries.into_iter().collect(), is_cut: false, added: Vec::new(), ttl }
    }

    fn texts(found: &Found) -> Vec<String> {
        found.servers.iter().map(|one| one.offer.to_string()).collect()
    }

    #[test]
    fn service_is_called_over_the_paths_that_have_it() {
        let tcp = answer([service(0, 0, 1, "A.example.org."), service(0, 0, 2, "b.example.org.")]);
        let udp = answer([service(0, 0, 2, "b.example.org."), service(0, 0, 3, "c.example.org.")]);
        let found = Found::services(&elsewhere(), "files", [Some(&tcp), Some(&udp)], None);
        let expected = [
            "a.example.org-1 at tcp:files@a.example.org:1",
            "b.example.org-2 at files@b.example.org:2",
            "c.example.org-3 at udp:files@c.example.org:3",
        ];
        assert_eq!(texts(&found), expected);
        assert_eq!(found.remarks, [""; 0]);
    }

    #[test]
    fn unusable_services_become_remarks() {
        let raw = |label: &[u8]| {
            let target = Name::from_labels([label, b"org"]).unwrap();
            Entry::Service { priority: 0, weight: 0, port: 1, target }
        };
        let long = format!("{}.example.org.", "a".repeat(63));
        let tcp = answer([
            service(0, 0, 1, "good.example.org."),
            service(0, 0, 0, "no-port.example.org."),
            service(0, 0, 1, "."),
            service(0, 0, 1, "127.0.0.1."),
            service(0, 0, 1, "127.1."),
            service(0, 0, 1, "localhost."),
            service(0, 0, 1, "x.localhost."),
            raw(b"a@b"),
            raw(b"a\n"),
            service(0, 0, 1, &long),
        ]);
        let found = Found::services(&elsewhere(), "files", [Some(&tcp), None], None);
        assert_eq!(found.servers.len(), 2, "{found:?}");
        assert!(found.servers.iter().all(|one| one.offer.server().len() <= limits::NAME_BYTES_MAX));
        assert_eq!(found.remarks.len(), 8, "{:?}", found.remarks);
        assert!(found.remarks[1].contains("no server offers the name"), "{:?}", found.remarks);
    }

    #[test]
    fn unusable_addresses_become_remarks() {
        let texts = [
            "192.0.2.1",
            "::ffff:192.0.2.1",
            "2001:db8::1",
            "0.0.0.0",
            "::",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
            "fe80::1",
        ];
        let all = answer(texts.map(|text| Entry::Machine(text.parse().unwrap())));
        let found = Found::machines(&elsewhere(), "files", [Some(&all), None]);
        let expected =
            ["192.0.2.1 at files@192.0.2.1:7193", "2001-db8--1 at files@[2001:db8::1]:7193"];
        assert_eq!(self::texts(&found), expected);
        assert_eq!(found.remarks.len(), 8, "{:?}", found.remarks);
        let found = Found::machines(&here(), "files", [Some(&all), None]);
        assert_eq!(found.servers.len(), 4);
        assert_eq!(found.servers[0].offer.to_string(), "127.0.0.1 at files@127.0.0.1:7000");
    }

    #[test]
    fn hosts_of_services_become_their_addresses() {
        let tcp = answer([service(0, 0, 1, "a.example.org."), service(0, 0, 2, "b.example.org.")]);
        let many = |host: &str| match host {
            "a.example.org" => (1..20).map(|last| IpAddr::from([192, 0, 2, last])).collect(),
            _ => vec![IpAddr::from([0, 0, 0, 0])],
        };
        let found = Found::services(&here(), "files", [Some(&tcp), None], Some(&many));
        assert_eq!(found.servers.len(), 1);
        let offer = &found.servers[0].offer;
        assert_eq!(offer.addresses().len(), limits::ADDRESSES_MAX);
        assert_eq!(offer.addresses()[0].to_string(), "tcp:files@192.0.2.1:1");
        assert!(found.remarks.iter().any(|one| one.contains("b.example.org:2 has no address")));
    }

    #[test]
    fn servers_are_bounded() {
        let all = answer(
            (0..1500).map(|n: u32| Entry::Machine(IpAddr::from((n + (10 << 24)).to_be_bytes()))),
        );
        let found = Found::machines(&elsewhere(), "files", [Some(&all), None]);
        assert_eq!(found.servers.len(), limits::SERVERS_MAX);
        assert_eq!(found.remarks, ["there are more than 1024 servers: the others are left out"]);
        let services = answer((0..1500).map(|n| service(n, 0, 1 + n, "a.example.org.")));
        let found = Found::services(&elsewhere(), "files", [Some(&services), None], None);
        assert_eq!(found.servers.len(), limits::SERVERS_MAX);
        assert_eq!(found.servers[0].offer.priority(), 0);
        assert_eq!(found.remarks.len(), 1);
    }

    #[test]
    fn order_is_by_priority_and_then_by_weight() {
        let tcp = answer([
            service(2, 0, 1, "last.example.org."),
            service(1, 10, 1, "one.example.org."),
            service(1, 30, 1, "three.example.org."),
            service(1, 0, 1, "zero.example.org."),
            service(0, 0, 1, "first.example.org."),
        ]);
        let found = Found::services(&elsewhere(), "files", [Some(&tcp), None], None);
        let mut seconds: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..4000 {
            let offers = found.offers();
            let order: Vec<_> = offers.servers.iter().map(Offer::server).collect();
            assert_eq!((order[0], order[4]), ("first.example.org-1", "last.example.org-1"));
            *seconds.entry(order[1].to_owned()).or_default() += 1;
        }
        // 1,000 and 3,000 are expected. The bounds are more than ten standard deviations away.
        let of = |server: &str| seconds.get(server).copied().unwrap_or_default();
        assert!((700..1300).contains(&of("one.example.org-1")), "{seconds:?}");
        assert!((2700..3300).contains(&of("three.example.org-1")), "{seconds:?}");
        assert!(of("zero.example.org-1") < 100, "{seconds:?}");
    }

    #[test]
    fn servers_without_weights_are_in_random_order() {
        let all = answer([1, 2].map(|last| Entry::Machine(IpAddr::from([192, 0, 2, last]))));
        let found = Found::machines(&elsewhere(), "files", [Some(&all), None]);
        let firsts =
            (0..1000).filter(|_| found.offers().servers[0].server() == "192.0.2.1").count();
        assert!((300..700).contains(&firsts), "{firsts}");
    }

    #[test]
    fn long_identities_differ() {
        let host = "a".repeat(63);
        let (one, other) = (identity(&format!("{host}.b-1")), identity(&format!("{host}.c-1")));
        assert_ne!(one, other);
        assert_eq!((one.len(), other.len()), (limits::NAME_BYTES_MAX, limits::NAME_BYTES_MAX));
    }
}
