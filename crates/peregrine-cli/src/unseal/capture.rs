//! Captures of packets: reads the formats pcap and pcapng, one frame at a time, and writes pcap. A file may be
//! malicious, so its lengths are checked before memory is allocated.

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
                Some(()) if !reader.is_cut => Ok(reader),
                _ => invalid("it ends within its header"),
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
            let Some(length) = self.rest::<4>()? else { return Ok(None) };
            let length = self.word(&length, 0);
            if length < 12 || !length.is_multiple_of(4) {
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
        let Some(head) = self.rest::<8>()? else { return Ok(None) };
        let order = [head[4], head[5], head[6], head[7]];
        self.is_big_endian = match (u32::from_le_bytes(order), u32::from_be_bytes(order)) {
            (ORDER, _) => false,
            (_, ORDER) => true,
            _ => return invalid("a section has no byte order"),
        };
        let length = self.word(&head, 0);
        if length < 28 || !length.is_multiple_of(4) {
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
        let Some(head) = self.rest::<20>()? else { return Ok(None) };
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
        let Some(head) = self.rest::<4>()? else { return Ok(None) };
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

    /// Reads `N` bytes of a frame or block that has begun.
    fn rest<const N: usize>(&mut self) -> Result<Option<[u8; N]>, Unreadable> {
        let bytes = self.take()?;
        self.is_cut |= bytes.is_none();
        Ok(bytes)
    }

    /// Reads a number of bytes. Returns `false` if the file ends before.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes numbers in one of the two byte orders.
    #[derive(Clone, Copy)]
    struct Order {
        is_big_endian: bool,
    }

    const ORDERS: [Order; 2] = [Order { is_big_endian: false }, Order { is_big_endian: true }];
    const LITTLE: Order = ORDERS[0];

    impl Order {
        fn words(self, words: &[u32]) -> Vec<u8> {
            let bytes = |word: &u32| {
                if self.is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() }
            };
            words.iter().flat_map(bytes).collect()
        }

        fn halves(self, first: u16, second: u16) -> Vec<u8> {
            let [first, second] = [first, second].map(u32::from);
            let word = if self.is_big_endian { first << 16 | second } else { second << 16 | first };
            self.words(&[word])
        }

        /// A block of pcapng.
        fn block(self, kind: u32, parts: &[&[u8]]) -> Vec<u8> {
            let mut body = parts.concat();
            body.resize(body.len().next_multiple_of(4), 0);
            let length = 12 + body.len() as u32;
            [self.words(&[kind, length]), body, self.words(&[length])].concat()
        }

        fn section(self) -> Vec<u8> {
            let rest = self.words(&[u32::MAX, u32::MAX]);
            self.block(SECTION, &[&self.words(&[ORDER]), &self.halves(1, 0), &rest])
        }

        fn interface(self, link: u16, options: &[(u16, &[u8])]) -> Vec<u8> {
            let mut body = [self.halves(link, 0), self.words(&[0])].concat();
            for (code, value) in options {
                body.extend(self.halves(*code, value.len() as u16));
                body.extend(*value);
                body.resize(body.len().next_multiple_of(4), 0);
            }
            self.block(INTERFACE, &[&body])
        }

        /// A frame that had 10 bytes more than were captured.
        fn frame(self, interface: u32, time: u64, bytes: &[u8]) -> Vec<u8> {
            let length = bytes.len() as u32;
            let head = [interface, (time >> 32) as u32, time as u32, length, length + 10];
            let mut padded = bytes.to_vec();
            padded.resize(bytes.len().next_multiple_of(4), 0);
            // A comment, which is an option.
            let comment = [self.halves(1, 2), b"hi\0\0".to_vec(), self.words(&[0])].concat();
            self.block(PACKET, &[&self.words(&head), &padded, &comment])
        }
    }

    type Frames = Vec<(Frame, Vec<u8>)>;

    /// Returns the frames of a capture with their bytes, and whether it is cut.
    fn read(file: &[u8]) -> Result<(Frames, bool), Unreadable> {
        let mut reader = Reader::new(file)?;
        let (mut all, mut bytes) = (Vec::new(), Vec::new());
        while let Some(frame) = reader.next(&mut bytes)? {
            all.push((frame, bytes.clone()));
        }
        Ok((all, reader.is_cut()))
    }

    fn problem(file: &[u8]) -> String {
        match read(file) {
            Err(Unreadable::Invalid(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    /// A file of two sections. The second one has the other byte order, and another link.
    fn sections(order: Order) -> Vec<u8> {
        let other = Order { is_big_endian: !order.is_big_endian };
        let offset = match order.is_big_endian {
            true => 100_i64.to_be_bytes(),
            false => 100_i64.to_le_bytes(),
        };
        [
            order.section(),
            order.interface(1, &[]),
            order.interface(113, &[(2, b"eth"), (RESOLUTION, &[9]), (OFFSET, &offset), (0, b"")]),
            order.interface(101, &[(RESOLUTION, &[128 | 10])]),
            order.frame(0, 5_000_007, b"of link 1"),
            order.block(0xbad, &[b"a block that is not known"]),
            order.frame(1, 5_000_000_007, b"of link 113"),
            order.frame(2, 1536, b"of link 101"),
            order.block(SIMPLE_PACKET, &[&order.words(&[6]), b"simple"]),
            other.section(),
            other.interface(276, &[]),
            other.frame(0, 1, b""),
        ]
        .concat()
    }

    #[test]
    fn pcapng_of_both_byte_orders_is_read() {
        for order in ORDERS {
            let (all, is_cut) = read(&sections(order)).unwrap();
            let frame =
                |time, length, link, bytes: &[u8]| (Frame { time, length, link }, bytes.to_vec());
            assert_eq!(
                all,
                [
                    frame(5_000_007_000, 19, 1, b"of link 1"),
                    frame(105_000_000_007, 21, 113, b"of link 113"),
                    frame(1_500_000_000, 21, 101, b"of link 101"),
                    frame(0, 6, 1, b"simple"),
                    frame(1000, 10, 276, b""),
                ]
            );
            assert!(!is_cut);
        }
        let file = sections(LITTLE);
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.link(), ETHERNET);
        while reader.next(&mut Vec::new()).unwrap().is_some() {}
        assert_eq!(reader.link(), 276);
    }

    #[test]
    fn pcap_of_each_resolution_and_byte_order_is_read() {
        for order in ORDERS {
            for (magic, unit) in [(MICROSECONDS, 1000), (NANOSECONDS, 1)] {
                // The upper bits of the link say that frames end with a check of 4 bytes.
                let link = 0x2400_0000 | 113;
                let head = [magic, 0, 0, 0, 1 << 18, link];
                let mut file = order.words(&head);
                file.extend(order.words(&[3, 7, 5, 50]));
                file.extend(b"frame");
                let (all, is_cut) = read(&file).unwrap();
                let frame = Frame { time: 3 * SECOND + 7 * unit, length: 50, link: 113 };
                assert_eq!(all, [(frame, b"frame".to_vec())]);
                assert!(!is_cut);
                assert_eq!(read(&file[..24]).unwrap(), (Vec::new(), false));
                assert!(problem(&file[..23]).contains("within its header"));
                for cut in 25..file.len() {
                    assert_eq!(read(&file[..cut]).unwrap(), (Vec::new(), true));
                }
            }
        }
    }

    #[test]
    fn capture_that_ends_within_a_frame_has_the_frames_before() {
        let file = sections(LITTLE);
        let (whole, _) = read(&file).unwrap();
        // Where a block ends, no frame is cut.
        let mut ends = Vec::new();
        let mut at = 0;
        while at < file.len() {
            // The length of both byte orders is less than 256.
            at += usize::from(file[at + 4].max(file[at + 7]));
            ends.push(at);
        }
        for cut in 28..file.len() {
            let (frames, is_cut) = read(&file[..cut]).unwrap();
            assert!(whole.starts_with(&frames), "{cut}");
            assert_eq!(is_cut, !ends.contains(&cut), "{cut}");
        }
        for cut in 4..28 {
            assert!(problem(&file[..cut]).contains("within its header"), "{cut}");
        }
        for cut in 0..4 {
            assert_eq!(problem(&file[..cut]), NO_CAPTURE);
        }
    }

    #[test]
    fn damaged_captures_are_refused() {
        let begin = [LITTLE.section(), LITTLE.interface(1, &[])].concat();
        let with = |block: Vec<u8>| problem(&[&begin[..], &block].concat());
        let words = |words: &[u32]| LITTLE.words(words);
        let pcap = words(&[MICROSECONDS, 0, 0, 0, 0, 1]);
        let frame = words(&[0, 0, FRAME_BYTES_MAX + 1, 0]);
        let many = LITTLE.interface(1, &[]).repeat(INTERFACES_MAX);
        let power = |power: u8| LITTLE.interface(1, &[(RESOLUTION, &[power])]);
        let packet = |words: &[u32]| LITTLE.block(PACKET, &[&LITTLE.words(words)]);
        let long = [words(&[SECTION, 24]), words(&[ORDER, 0, 0, 0])].concat();
        for (found, why) in [
            (problem(b"GET / HTTP/1.1\r\n\r\n"), NO_CAPTURE),
            (problem(&[pcap, frame].concat()), "a frame has 262145 bytes, more than 262144"),
            (problem(&words(&[SECTION, 28, 7, 0, 0, 0, 28])), "a section has no byte order"),
            (problem(&long), "the header of a section has 24 bytes"),
            (with(words(&[PACKET, 11])), "a block has 11 bytes"),
            (with(words(&[PACKET, 33])), "a block has 33 bytes"),
            (with(words(&[INTERFACE, 16, 0])), "the description of an interface has 4 bytes"),
            (with(words(&[INTERFACE, u32::MAX - 3])), "has 4294967280 bytes"),
            (with(many), "more than 1024 interfaces"),
            (with(power(20)), "times of too many digits"),
            (with(power(255)), "times of too many digits"),
            (with(packet(&[0; 4])), "the block of a frame is too short"),
            (with(packet(&[1, 0, 0, 0, 0])), "interface 1, which is not described"),
            (with(packet(&[0, 0, 0, 1, 1])), "a frame is longer than its block"),
            (with(LITTLE.block(SIMPLE_PACKET, &[])), "the block of a frame is too short"),
        ] {
            assert!(found.contains(why), "{why}: {found}");
        }
        let mut large = packet(&[0, 0, 0, FRAME_BYTES_MAX + 1, 0]);
        large.extend(vec![0; FRAME_BYTES_MAX as usize + 4]);
        let length = large.len() as u32;
        large[4..8].copy_from_slice(&length.to_le_bytes());
        assert!(with(large).contains("a frame has 262145 bytes"));
        // A time that is too large for a capture in the format pcap is not shown.
        let (frames, _) = read(&[&begin[..], &LITTLE.frame(0, u64::MAX, b"")].concat()).unwrap();
        assert_eq!(frames[0].0.time, 0);
    }

    #[test]
    fn any_changed_byte_is_survived() {
        let file = sections(LITTLE);
        for at in 0..file.len() {
            for change in [1, 2, 0x80, 0xff] {
                let mut changed = file.clone();
                changed[at] ^= change;
                let _ = read(&changed);
            }
        }
    }

    #[test]
    fn written_frames_are_read_back() {
        let (frames, _) = read(&sections(LITTLE)).unwrap();
        let mut writer = Writer::new(Vec::new());
        let (first, bytes) = &frames[0];
        writer.write(first, 0, bytes).unwrap();
        writer.write(first, 4, &bytes[4..]).unwrap();
        // All frames of a file in the format pcap have the same type of link.
        let (other, bytes_of_other) = &frames[1];
        let refused = writer.write(other, 0, bytes_of_other).unwrap_err();
        assert!(matches!(refused, Unwritten::Links(why) if why.ends_with("the types 1 and 113")));
        let (again, is_cut) = read(&writer.finish(9).unwrap()).unwrap();
        let shorter = Frame { length: first.length - 4, ..*first };
        assert_eq!(again, [(*first, bytes.clone()), (shorter, bytes[4..].to_vec())]);
        assert!(!is_cut);
        let empty = Writer::new(Vec::new()).finish(113).unwrap();
        assert_eq!(Reader::new(&empty[..]).unwrap().link(), 113);
    }
}
