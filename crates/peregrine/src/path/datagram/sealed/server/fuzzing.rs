//! What the fuzz targets for sealed packets need of the state of a server.

use std::sync::Arc;

use super::super::ConnectionNumber;
use super::{Handshakes, ServerSeal};
use crate::path::datagram::peer::moment;
use crate::protocol::exchange::bind::Nonce;
use crate::protocol::exchange::shake::{SHAKES_MAX, SHAKES_PER_HOST};
use crate::secure::packets::Channel;
use crate::sys::Address;

impl ServerSeal {
    /// Adds a connection that `make` makes for its number.
    ///
    /// # Panics
    /// If there is no place for the connection.
    pub(crate) fn adopt(
        &self,
        host: u64,
        random: [u8; 4],
        make: impl FnOnce(ConnectionNumber) -> Arc<Channel>,
    ) {
        let reserved = self.connections.reserve(host, random).expect("a place");
        let channel = make(reserved.number);
        reserved.put(moment(), channel);
    }

    /// Returns whether there is a connection with this number.
    pub(crate) fn has_connection(&self, number: &ConnectionNumber) -> bool {
        self.connections.find(number).is_some()
    }

    /// Returns whether the server has a handshake of this client.
    pub(crate) fn has_handshake(&self, from: Address, nonce: Nonce) -> bool {
        self.handshakes.lock().all.contains_key(&(from, nonce))
    }

    /// Returns the number of handshakes, and that of the places that handshakes and connections have.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> [usize; 2] {
        let handshakes = self.handshakes.lock().all.len();
        [handshakes, self.connections.in_use()]
    }

    /// Ends all handshakes and connections.
    ///
    /// # Panics
    /// If there were more of them than the bounds allow, or if a place is still reserved.
    pub(crate) fn clear(&self) {
        let Handshakes { all, order } = core::mem::take(&mut *self.handshakes.lock());
        assert_eq!(all.len(), order.len(), "a handshake is never given up");
        assert!(all.len() <= SHAKES_MAX);
        for (_, _, host) in &order {
            let of_host = order.iter().filter(|one| one.2 == *host).count();
            assert!(of_host <= SHAKES_PER_HOST, "a host has {of_host} handshakes");
        }
        drop(all);
        for one in self.connections.all() {
            self.connections.end(&one.number);
        }
        assert_eq!(self.connections.in_use(), 0, "a place is still reserved");
    }
}
