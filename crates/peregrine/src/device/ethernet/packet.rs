//! A raw Ethernet socket that uses AF_PACKET, an ordinary Linux socket with a shared receive ring.

use core::sync::atomic::{AtomicU32, Ordering};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};

use super::frame::{ETHER_TYPE, LINK_BYTES};
use super::{FrameSource, SocketUse, SpacesWriter};
use crate::device::gso::cut;
use crate::sync::{Mutex, Rank};
use crate::sys::{FRAMES_SENT_MAX, Filter, NetworkInterface, PacketRing, PacketSocket};
use crate::value::{Space, Window};

/// The size in bytes of a slot of the receive ring.
const SLOT: u32 = 2048;
/// The size in bytes of the longest frame that fits a slot. The kernel's own data takes the rest of the slot.
pub(super) const ROOM: usize = SLOT as usize - 128;

/// An AF_PACKET socket at an interface, with its receive ring.
#[derive(Debug)]
pub(super) struct AfPacketSocket {
    pub(super) inbox: Mutex<PacketRing>,
    /// The memory in which frames are built before they are sent.
    outbox: Mutex<Box<[u8]>>,
    socket: PacketSocket,
    frames: usize,
    dropped: AtomicU32,
}

impl AfPacketSocket {
    pub(super) fn new(
        interface: &NetworkInterface,
        endpoint: [u8; 2],
        what: SocketUse,
    ) -> io::Result<Self> {
        let filter = Filter { ether_type: ETHER_TYPE, endpoint };
        let frames = what.slots();
        let (socket, ring) = PacketSocket::new(interface.number, filter, SLOT, frames)?;
        Ok(Self {
            inbox: Mutex::ranked(Rank::Ring, ring),
            outbox: Mutex::ranked(
                Rank::Ring,
                vec![0; FRAMES_SENT_MAX * SLOT as usize].into_boxed_slice(),
            ),
            socket,
            frames: frames as usize,
            dropped: AtomicU32::new(0),
        })
    }

    pub(super) const fn frames(&self) -> usize {
        self.frames
    }

    pub(super) fn overflowed(&self) -> io::Result<u64> {
        // Each time, the kernel reports how many frames were dropped since its previous report.
        let more = self.socket.dropped()?;
        Ok(u64::from(self.dropped.fetch_add(more, Ordering::Relaxed).wrapping_add(more)))
    }

    pub(super) fn error(&self) -> io::Result<()> {
        self.socket.error()
    }

    #[inline]
    pub(super) fn has_arrived(&self) -> bool {
        self.inbox.try_lock().is_some_and(|inbox| inbox.has_frame())
    }

    /// Sends one frame.
    #[inline]
    pub(super) fn send(&self, header: &[u8; LINK_BYTES], parts: &[Window<'_>]) -> io::Result<()> {
        let mut outbox = self.outbox.lock();
        let frame = Space::of_mut(&mut outbox[..SLOT as usize]);
        let bytes = put(frame, header, parts)?;
        self.socket.send(frame.range(0, bytes).window())
    }

    /// Sends several packets, each in a frame. Each packet has `segment` bytes, but the last may be shorter.
    pub(super) fn send_batch(
        &self,
        header: &[u8; LINK_BYTES],
        parts: &[Window<'_>],
        segment: usize,
    ) -> io::Result<()> {
        let mut outbox = self.outbox.lock();
        let all = Space::of_mut(&mut outbox);
        let (mut frames, mut count) = ([Window::empty(); FRAMES_SENT_MAX], 0);
        cut(parts, segment, &mut |packet| {
            if count == frames.len() {
                self.socket.send_all(&frames)?;
                count = 0;
            }
            let slot = all.range(count * SLOT as usize, SLOT as usize);
            let bytes = put(slot, header, packet)?;
            frames[count] = slot.range(0, bytes).window();
            count += 1;
            Ok(())
        })?;
        self.socket.send_all(&frames[..count])
    }
}

/// Builds a frame from a header and the parts of a packet. Returns the length of the frame in bytes.
fn put(frame: Space<'_>, header: &[u8; LINK_BYTES], parts: &[Window<'_>]) -> io::Result<usize> {
    let into = [frame];
    let mut pen = SpacesWriter { into: &into, space: 0, at: 0 };
    let mut bytes = pen.put(Window::of(header));
    for part in parts {
        if pen.put(*part) < part.len() {
            return Err(ErrorKind::FileTooLarge.into());
        }
        bytes += part.len();
    }
    Ok(bytes)
}

impl FrameSource for PacketRing {
    #[inline]
    fn peek(&mut self) -> Option<Space<'_>> {
        Self::peek(self)
    }

    #[inline]
    fn consume(&mut self) {
        self.release();
    }
}

impl AsFd for AfPacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
