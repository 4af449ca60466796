//! One direction of a simulated TCP connection. It carries ordered bytes in pieces of any size.

use std::collections::VecDeque;

use crate::random::Random;

/// Why an end can no longer use a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The other end closed the connection, and this end has read all bytes.
    Closed,
    /// The connection was reset.
    Reset,
}

/// One direction of a connection.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// The pieces in flight, each with its arrival time.
    in_flight: VecDeque<(u64, Vec<u8>)>,
    /// The bytes that the receiver's kernel holds and the receiver has not read.
    arrived: VecDeque<u8>,
    /// The number of bytes that both kernels together can hold.
    capacity: usize,
    is_closed: bool,
    is_reset: bool,
    /// The time since which the sender has waited for an acknowledgement of bytes in flight.
    waiting_since: Option<u64>,
}

impl Pipe {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            in_flight: VecDeque::new(),
            arrived: VecDeque::new(),
            capacity,
            is_closed: false,
            is_reset: false,
            waiting_since: None,
        }
    }

    /// Returns how many bytes can be written now.
    pub(crate) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.in_flight() + self.arrived.len())
    }

    /// Returns the number of bytes that the receiver's kernel has not acknowledged.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.iter().map(|(_, piece)| piece.len()).sum()
    }

    pub(crate) fn waiting_since(&self) -> Option<u64> {
        self.waiting_since
    }

    /// Returns whether the receiver's kernel can hold no more bytes.
    pub(crate) fn is_full(&self) -> bool {
        self.arrived.len() >= self.capacity
    }

    /// Writes as many of `bytes` as both kernels can still hold. Returns how many bytes were written, and
    /// when the last of them arrives.
    pub(crate) fn write(
        &mut self,
        now: u64,
        delay: u64,
        bytes: &[u8],
        random: &mut Random,
    ) -> Result<(usize, u64), Broken> {
        if self.is_reset || self.is_closed {
            return Err(Broken::Reset);
        }
        let taken = bytes.len().min(self.room());
        let mut at = self.in_flight.back().map_or(now + delay, |(due, _)| (*due).max(now + delay));
        let mut rest = &bytes[..taken];
        while !rest.is_empty() {
            let most = *random.pick(&[1, 16, 33, 500, 100_000]);
            let (piece, later) = rest.split_at(rest.len().min(1 + random.below(most) as usize));
            at += random.below(20_000);
            self.in_flight.push_back((at, piece.to_vec()));
            rest = later;
        }
        if taken > 0 {
            self.waiting_since.get_or_insert(now);
        }
        Ok((taken, at))
    }

    /// Delivers the pieces whose arrival time has come. Returns whether any piece was delivered.
    pub(crate) fn arrive(&mut self, now: u64) -> bool {
        let mut any = false;
        while let Some((_, piece)) = self.in_flight.pop_front_if(|(due, _)| *due <= now) {
            self.arrived.extend(piece);
            any = true;
        }
        if any {
            self.waiting_since = (!self.in_flight.is_empty()).then_some(now);
        }
        any
    }

    /// Returns when the next piece arrives.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.in_flight.front().map(|(due, _)| *due)
    }

    /// Reads at most `most` bytes. An empty result means that no bytes have arrived.
    pub(crate) fn read(&mut self, most: usize) -> Result<Vec<u8>, Broken> {
        if !self.arrived.is_empty() {
            let taken = most.min(self.arrived.len());
            return Ok(self.arrived.drain(..taken).collect());
        }
        if self.is_reset {
            return Err(Broken::Reset);
        }
        if self.is_closed && self.in_flight.is_empty() {
            return Err(Broken::Closed);
        }
        Ok(Vec::new())
    }

    /// Closes the sender's end. No more bytes follow.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Resets the connection. Bytes in flight are lost. If `loses_arrived` is true, bytes that have arrived
    /// but are still unread are lost, too.
    pub(crate) fn reset(&mut self, loses_arrived: bool) {
        self.is_reset = true;
        self.in_flight.clear();
        self.waiting_since = None;
        if loses_arrived {
            self.arrived.clear();
        }
    }
}
