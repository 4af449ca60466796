//! Hostile hosts between the ends of encrypted paths: handshakes and sealed packets over datagrams, and TLS
//! on a connection. No end takes what the other has not sent.

use std::cell::RefCell;
use std::sync::Arc;

use peregrine::fuzzing::{Handshakes, SealedPackets, TlsStreams};

use super::{EverythingServer, Object};

fn server() -> Arc<EverythingServer<Object>> {
    Arc::new(EverythingServer::new(Object))
}

thread_local! {
    static HANDSHAKES: RefCell<Handshakes> =
        RefCell::new(Handshakes::new(server()).expect("sockets and keys"));
    static PACKETS: RefCell<SealedPackets> =
        RefCell::new(SealedPackets::new(server()).expect("sockets and keys"));
    static STREAMS: TlsStreams = TlsStreams::new().expect("keys");
}

/// Lets an input disturb a handshake over datagrams.
pub fn handshakes(bytes: &[u8]) {
    HANDSHAKES.with_borrow_mut(|ends| ends.take(bytes));
}

/// Lets an input disturb the sealed packets of two clients and a server.
pub fn packets(bytes: &[u8]) {
    PACKETS.with_borrow_mut(|ends| ends.take(bytes));
}

/// Passes an input to a server of TLS, or lets it disturb a connection.
pub fn streams(bytes: &[u8]) {
    STREAMS.with(|ends| ends.take(bytes));
}
