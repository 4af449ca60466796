//! [`Shares`]: things of which a name service has a bounded number, such as permits of calls. One caller gets
//! only a share of them, so that it cannot shut out all others.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use peregrine::Caller;

/// A caller, as far as shares are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A process of this machine, by its number. Code of this process has the number 0.
    Process(u32),
    /// A host of an IP network. For IPv6 this is its /64 network, because one host can use all its addresses.
    Host(IpAddr),
    /// A host on an Ethernet link.
    Link([u8; 6]),
}

impl Holder {
    /// Returns the holder that a caller is. `None` is code of this process.
    pub(crate) fn of(caller: Option<&Caller>) -> Self {
        let Some(caller) = caller else { return Self::Process(0) };
        let host = caller.from().map(|from| Self::Host(host_of(from.ip())));
        host.or_else(|| caller.hardware().map(Self::Link))
            .unwrap_or_else(|| Self::Process(caller.process()))
    }
}

fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A bounded number of things, which callers hold for a time.
pub(crate) struct Shares {
    most: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    /// The number that each holder has. There are at most `most` entries.
    each: HashMap<Holder, usize>,
}

impl Shares {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, held: Mutex::default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one of the things for a holder, if there is one, and if the holder has less than its share. The
    /// share is the half of what the other holders leave, and at least one.
    pub(crate) fn take(&self, holder: Holder) -> Option<Share<'_>> {
        let mut held = self.held();
        let own = held.each.get(&holder).copied().unwrap_or(0);
        let share = (self.most.saturating_sub(held.all - own) / 2).max(1);
        if held.all >= self.most || own >= share {
            return None;
        }
        held.all += 1;
        held.each.insert(holder, own + 1);
        Some(Share { shares: self, holder })
    }
}

/// One of the things. It is given back when this is dropped.
pub(crate) struct Share<'a> {
    shares: &'a Shares,
    holder: Holder,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut held = self.shares.held();
        held.all -= 1;
        if let Some(own) = held.each.get_mut(&self.holder) {
            *own -= 1;
            if *own == 0 {
                held.each.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn host(last: u8) -> Holder {
        Holder::Host(IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last)))
    }

    #[test]
    fn holder_gets_at_most_half_of_what_others_leave() {
        let shares = Shares::new(8);
        let takes = |holder: Holder| {
            let mut taken = Vec::new();
            while let Some(share) = shares.take(holder) {
                taken.push(share);
            }
            taken
        };
        let first = takes(host(1));
        let (second, third) = (takes(host(2)), takes(Holder::Process(7)));
        assert_eq!([first.len(), second.len(), third.len()], [4, 2, 1]);
        let fourth = takes(host(4));
        assert_eq!((fourth.len(), takes(host(5)).len()), (1, 0));
        drop(first);
        assert_eq!(takes(host(5)).len(), 2);
        drop((second, third, fourth));
        assert!(shares.held().each.is_empty() && shares.held().all == 0);
    }

    #[test]
    fn one_thing_can_be_taken_by_anyone_and_no_thing_by_none() {
        assert!(Shares::new(1).take(host(1)).is_some());
        assert!(Shares::new(0).take(host(1)).is_none());
    }

    #[test]
    fn addresses_of_one_host_are_one_holder() {
        let text = |text: &str| host_of(text.parse().unwrap());
        assert_eq!(text("2001:db8::1"), text("2001:db8::ffff:2"));
        assert_ne!(text("2001:db8::1"), text("2001:db8:0:1::1"));
        assert_eq!(text("::ffff:192.0.2.1"), text("192.0.2.1"));
    }
}
