//! Packets of other protocol versions. With these packets, a client and a server of different versions find
//! out why they cannot communicate.
//!
//! Some properties of packets are the same in every version. A packet that serves to bind has 512 bytes.
//! Magic, version, kind, check and secret are at the offsets that [`header`](super::header) defines. The
//! kinds `HELLO`, `COOKIE`, `BIND` and `UNBOUND` keep their numbers, and the body of `UNBOUND` keeps the
//! layout that [`bind`](super::bind) defines.
//!
//! So a server answers a client of any version with an `UNBOUND` of the client's version. The text of this
//! answer names both versions. Servers before version 3 do not answer packets of other versions. Therefore a
//! client that gets no answer also asks in the version before its own.

use super::bind::{BIND_BYTES, BindMessage, BindRefusal};
use super::header::{
    HEADER_BYTES, Header, HeaderError, PacketKind, VERSION, checksum, set_version,
};

/// The fields of a packet that serves to bind, but has another version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) version: u8,
    pub(crate) kind: PacketKind,
    pub(crate) nonce: [u8; 12],
    pub(crate) serial: u16,
}

/// Reads a packet that serves to bind, but has another version of the protocol. Returns `None` for all other
/// packets, and for damaged packets.
pub(crate) fn read(packet: &[u8]) -> Option<Other> {
    let packet: &[u8; BIND_BYTES] = packet.try_into().ok()?;
    let (header, body) = packet.split_first_chunk::<HEADER_BYTES>()?;
    if Header::parse(header, body.len()) != Err(HeaderError::Version) {
        return None;
    }
    let version = header[2];
    // The check of a header covers the version. So this function computes the check again with the version of
    // the packet, and compares the two checks. Then it reads the header as a header of the version `VERSION`.
    let mut ours = *header;
    set_version(&mut ours, version);
    let parsed = (ours == *header).then(|| {
        set_version(&mut ours, VERSION);
        Header::parse(&ours, body.len())
    });
    let parsed = parsed?.ok().filter(|parsed| parsed.kind.binds())?;
    (checksum(body) == parsed.check).then_some(Other {
        version,
        kind: parsed.kind,
        nonce: parsed.handle.secret,
        serial: parsed.serial,
    })
}

/// Returns the answer to a client of another version. Returns `None` if the packet is not a request of such a
/// client. The answer is as long as the request. `kind` is the number that stands for the kind of error.
pub(crate) fn refuse(packet: &[u8], kind: u32) -> Option<[u8; BIND_BYTES]> {
    let other =
        read(packet).filter(|other| matches!(other.kind, PacketKind::Hello | PacketKind::Bind))?;
    let mut text = Text::default();
    let _ = core::fmt::Write::write_fmt(
        &mut text,
        format_args!(
            "the server speaks version {VERSION} of the packet protocol, this client version {}: \
             use the same release on both sides",
            other.version
        ),
    );
    let mut out = [0; BIND_BYTES];
    BindMessage::Unbound(BindRefusal::new(kind, text.as_str())).emit(
        other.nonce,
        0,
        other.serial,
        &mut out,
    );
    set_version(out.first_chunk_mut()?, other.version);
    Some(out)
}

/// Writes a packet that asks whether the server speaks the previous version.
pub(crate) fn ask(nonce: [u8; 12], out: &mut [u8; BIND_BYTES]) {
    BindMessage::Hello(false).emit(nonce, 0, 0, out);
    set_version(out.first_chunk_mut().expect("a packet has a header"), VERSION - 1);
}

/// A short text that needs no allocated memory.
struct Text {
    bytes: [u8; 160],
    length: usize,
}

impl Default for Text {
    fn default() -> Self {
        Self { bytes: [0; 160], length: 0 }
    }
}

impl Text {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes.get_mut(self.length..end).ok_or(core::fmt::Error)?;
        place.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
