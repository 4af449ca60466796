//! Captures: reads the formats pcap and pcapng, one frame at a time, and writes pcap. A file may have been
//! made to do harm, so its lengths are checked before memory is taken.

use std::io::{self, Read, Write};

/// The length in bytes of the largest frame that is read. Wireshark has the same bound.
const FRAME_BYTES_MAX: u32 = 256 << 10;
/// The length in bytes of the longest description of an interface in a pcapng file.
const INTERFACE_BYTES_MAX: u32 = 64 << 10;
const INTERFACES_MAX: usize = 1024;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const ORDER: u32 = 0x1a2b_3c4d;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const PACKET: u32 = 6;
const RESOLUTION: u16 = 9;
const OFFSET: u16 = 14;

const SECOND: u64 = 1_000_000_000;
/// The link type of Ethernet.
pub(super) const ETHERNET: u32 = 1;

/// Why a capture cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    Io(io::Error),
    /// What is wrong with the content.
    Invalid(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn invalid<T>(why: impl Into<String>) -> Result<T, Unreadable> {
    Err(Unreadable::Invalid(why.into()))
}

/// A frame of a capture, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The time in nanoseconds since 1970.
    time: u64,
    /// The length in bytes that the frame had on the link.
    length: u32,
    /// The type of the link, which says what the frame begins with.
    pub(super) link: u32,
}

/// An interface of a pcapng file.
struct Interface {
    link: u32,
    bytes_max: u32,
    /// How many units of time a second has.
    units: u128,
    /// Seconds that are added to each time.
    offset: i64,
}

enum Kind {
    Pcap {
        link: u32,
        /// How many nanoseconds the fraction of a second counts.
        unit: u64,
    },
    Pcapng(Vec<Interface>),
}

/// Reads the frames of a capture, one after the other.
pub(super) struct Reader<R> {
    input: R,
    is_big_endian: bool,
    kind: Kind,
    is_cut: bool,
}

impl<R: Read> Reader<R> {
    pub(super) fn new(input: R) -> Result<Self, Unreadable> {
        let kind = Kind::Pcapng(Vec::new());
        let mut reader = Self { input, is_big_endian: false, kind, is_cut: false };
        let Some(first) = reader.take::<4>()? else { return invalid(NO_CAPTURE) };
        if u32::from_le_bytes(first) == SECTION {
            return match reader.begin_section()? {
                Some(()) => Ok(reader),
                None => invalid("it ends within its header"),
            };
        }
        let unit = match (u32::from_le_bytes(first), u32::from_be_bytes(first)) {
            (MICROSECONDS, _) => 1000,
            (NANOSECONDS, _) => 1,
            (_, MICROSECONDS | NANOSECONDS) => {
                reader.is_big_endian = true;
                if u32::from_be_bytes(first) == NANOSECONDS { 1 } else { 1000 }
            }
            _ => return invalid(NO_CAPTURE),
        };
        let Some(rest) = reader.take::<20>()? else { return invalid("it ends within its header") };
        // The upper bits say how long a check at the end of frames is.
        let link = reader.word(&rest, 16) & 0xffff;
        reader.kind = Kind::Pcap { link, unit };
        Ok(reader)
    }

    /// Returns the type of the link, of a capture without frames too.
    pub(super) fn link(&self) -> u32 {
        match &self.kind {
            Kind::Pcap { link, .. } => *link,
            Kind::Pcapng(interfaces) => interfaces.first().map_or(ETHERNET, |first| first.link),
        }
    }

    /// Returns whether the capture ended within a frame, as one does whose program was killed.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Reads the next frame. `bytes` has its content then. Returns `None` at the end.
    pub(super) fn next(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Frame>, Unreadable> {
        if self.is_cut {
            return Ok(None);
        }
        match self.kind {
            Kind::Pcap { link, unit } => self.next_of_pcap(link, unit, bytes),
            Kind::Pcapng(_) => self.next_of_pcapng(bytes),
        }
    }

    fn next_of_pcap(
        &mut self,
        link: u32,
        unit: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Frame>, Unreadable> {
        let Some(head) = self.take::<16>()? else { return Ok(None) };
        let [second, fraction, there, length] = [0, 4, 8, 12].map(|at| self.word(&head, at));
        if !self.fill(bytes, there)? {
            return Ok(None);
        }
        let time = u64::from(second) * SECOND + u64::from(fraction) * unit;
        Ok(Some(Frame { time, length, link }))
    }

    fn next_of_pcapng(&mut self, bytes: &mut Vec<u8>) -> Result<Option<Frame>, Unreadable> {
        loop {
            let Some(kind) = self.take::<4>()? else { return Ok(None) };
            let kind = self.word(&kind, 0);
            if kind == SECTION {
                if self.begin_section()?.is_none() {
                    return Ok(None);
                }
                continue;
            }
            let Some(length) = self.take::<4>()? else { return Ok(None) };
            let length = self.word(&length, 0);
            if length < 12 || length % 4 != 0 {
                return invalid(format!("a block has {length} bytes"));
            }
            // Without the kind, and the length at both ends.
            let body = length - 12;
            let frame = match kind {
                INTERFACE => {
                    self.add_interface(body, bytes)?;
                    None
                }
                PACKET => match self.packet(body, bytes)? {
                    Some(frame) => Some(frame),
                    None => return Ok(None),
                },
                SIMPLE_PACKET => match self.simple_packet(body, bytes)? {
                    Some(frame) => Some(frame),
                    None => return Ok(None),
                },
                _ => {
                    self.skip(body)?;
                    None
                }
            };
            // The length again, after a packet that is complete.
            self.skip(4)?;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }

    /// Reads the rest of the header of a section. Returns `None` if the file ends within it.
    fn begin_section(&mut self) -> Result<Option<()>, Unreadable> {
        let Some(head) = self.take::<8>()? else { return Ok(None) };
        let order = [head[4], head[5], head[6], head[7]];
        self.is_big_endian = match (u32::from_le_bytes(order), u32::from_be_bytes(order)) {
            (ORDER, _) => false,
            (_, ORDER) => true,
            _ => return invalid("a section has no byte order"),
        };
        let length = self.word(&head, 0);
        if length < 28 || length % 4 != 0 {
            return invalid(format!("the header of a section has {length} bytes"));
        }
        self.kind = Kind::Pcapng(Vec::new());
        self.skip(length - 12)?;
        Ok(Some(()))
    }

    fn add_interface(&mut self, body: u32, bytes: &mut Vec<u8>) -> Result<(), Unreadable> {
        if !(8..=INTERFACE_BYTES_MAX).contains(&body) {
            return invalid(format!("the description of an interface has {body} bytes"));
        }
        if !self.fill(bytes, body)? {
            return Ok(());
        }
        let link = u32::from(self.half(bytes, 0));
        let bytes_max = match self.word(bytes, 4) {
            0 => u32::MAX,
            some => some,
        };
        let mut interface = Interface { link, bytes_max, units: 1_000_000, offset: 0 };
        let mut at = 8;
        while at + 4 <= bytes.len() {
            let (code, length) = (self.half(bytes, at), usize::from(self.half(bytes, at + 2)));
            let Some(value) = bytes.get(at + 4..at + 4 + length) else { break };
            match (code, value) {
                (0, _) => break,
                (RESOLUTION, [unit]) => {
                    let (base, power) = if unit & 128 == 0 { (10, *unit) } else { (2, unit & 127) };
                    let units = u128::checked_pow(base, u32::from(power));
                    let Some(units) = units.filter(|units| *units < 1 << 64) else {
                        return invalid("an interface has times of too many digits");
                    };
                    interface.units = units;
                }
                (OFFSET, value) => {
                    if let Ok(value) = value.try_into() {
                        interface.offset = match self.is_big_endian {
                            true => i64::from_be_bytes(value),
                            false => i64::from_le_bytes(value),
                        };
                    }
                }
                _ => {}
            }
            at += 4 + length.next_multiple_of(4);
        }
        let Kind::Pcapng(interfaces) = &mut self.kind else { return Ok(()) };
        if interfaces.len() == INTERFACES_MAX {
            return invalid(format!("it has more than {INTERFACES_MAX} interfaces"));
        }
        interfaces.push(interface);
        Ok(())
    }

    fn interface(&self, number: u32) -> Result<&Interface, Unreadable> {
        let Kind::Pcapng(interfaces) = &self.kind else { return invalid(NO_CAPTURE) };
        match interfaces.get(number as usize) {
            Some(interface) => Ok(interface),
            None => invalid(format!("a frame is of interface {number}, which is not described")),
        }
    }

    fn packet(&mut self, body: u32, bytes: &mut Vec<u8>) -> Result<Option<Frame>, Unreadable> {
        if body < 20 {
            return invalid("the block of a frame is too short");
        }
        let Some(head) = self.take::<20>()? else { return Ok(None) };
        let [number, high, low, there, length] = [0, 4, 8, 12, 16].map(|at| self.word(&head, at));
        let interface = self.interface(number)?;
        let time = u128::from(high) << 32 | u128::from(low);
        let time = i128::try_from(time * u128::from(SECOND) / interface.units);
        let offset = i128::from(interface.offset) * i128::from(SECOND);
        let time = u64::try_from(time.unwrap_or_default() + offset).unwrap_or_default();
        let link = interface.link;
        if there > body - 20 {
            return invalid("a frame is longer than its block");
        }
        if !self.fill(bytes, there)? {
            return Ok(None);
        }
        self.skip(body - 20 - there)?;
        Ok(Some(Frame { time, length, link }))
    }

    fn simple_packet(
        &mut self,
        body: u32,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<Frame>, Unreadable> {
        if body < 4 {
            return invalid("the block of a frame is too short");
        }
        let Some(head) = self.take::<4>()? else { return Ok(None) };
        let length = self.word(&head, 0);
        let interface = self.interface(0)?;
        let (link, there) = (interface.link, length.min(interface.bytes_max).min(body - 4));
        if !self.fill(bytes, there)? {
            return Ok(None);
        }
        self.skip(body - 4 - there)?;
        Ok(Some(Frame { time: 0, length, link }))
    }

    /// Reads `N` bytes. Returns `None` at the end of the file.
    fn take<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Unreadable> {
        let (mut bytes, mut len) = ([0; N], 0);
        while len < N {
            match self.input.read(&mut bytes[len..]) {
                Ok(0) => {
                    self.is_cut |= len > 0;
                    return Ok(None);
                }
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(bytes))
    }

    /// Reads a number of bytes. Returns whether the file has so many.
    fn fill(&mut self, bytes: &mut Vec<u8>, length: u32) -> Result<bool, Unreadable> {
        if length > FRAME_BYTES_MAX {
            return invalid(format!("a frame has {length} bytes, more than {FRAME_BYTES_MAX}"));
        }
        bytes.clear();
        (&mut self.input).take(u64::from(length)).read_to_end(bytes)?;
        self.is_cut |= bytes.len() < length as usize;
        Ok(!self.is_cut)
    }

    fn skip(&mut self, length: u32) -> Result<(), Unreadable> {
        let length = u64::from(length);
        let skipped = io::copy(&mut (&mut self.input).take(length), &mut io::sink())?;
        self.is_cut |= skipped < length;
        Ok(())
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        if self.is_big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = [bytes[at], bytes[at + 1]];
        if self.is_big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) }
    }
}

const NO_CAPTURE: &str = "it is no capture in the format pcap or pcapng";

/// Why a frame cannot be written.
#[derive(Debug)]
pub(super) enum Unwritten {
    Io(io::Error),
    /// The file has one type of link, and the capture has several.
    Links(String),
}

impl From<io::Error> for Unwritten {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes a capture in the format pcap, with times in nanoseconds.
pub(super) struct Writer<W> {
    output: W,
    /// The type of the link, after the first frame.
    link: Option<u32>,
}

impl<W: Write> Writer<W> {
    pub(super) const fn new(output: W) -> Self {
        Self { output, link: None }
    }

    fn begin(&mut self, link: u32) -> io::Result<()> {
        self.link = Some(link);
        // Version 2.4, no time zone, and no statement about accuracy.
        let words = [NANOSECONDS, 4 << 16 | 2, 0, 0, FRAME_BYTES_MAX, link];
        words.iter().try_for_each(|word| self.output.write_all(&word.to_le_bytes()))
    }

    /// Writes a frame that has become shorter by `removed` bytes.
    pub(super) fn write(
        &mut self,
        frame: &Frame,
        removed: usize,
        bytes: &[u8],
    ) -> Result<(), Unwritten> {
        let link = match self.link {
            Some(link) => link,
            None => {
                self.begin(frame.link)?;
                frame.link
            }
        };
        if link != frame.link {
            let links = format!("it has links of the types {link} and {}", frame.link);
            return Err(Unwritten::Links(links));
        }
        let second = u32::try_from(frame.time / SECOND).unwrap_or(u32::MAX);
        let length = frame.length.saturating_sub(removed as u32).max(bytes.len() as u32);
        let words = [second, (frame.time % SECOND) as u32, bytes.len() as u32, length];
        words.iter().try_for_each(|word| self.output.write_all(&word.to_le_bytes()))?;
        Ok(self.output.write_all(bytes)?)
    }

    /// Ends the file, whose links have the type `link` if it has no frames.
    pub(super) fn finish(mut self, link: u32) -> io::Result<W> {
        if self.link.is_none() {
            self.begin(link)?;
        }
        Ok(self.output)
    }
}
