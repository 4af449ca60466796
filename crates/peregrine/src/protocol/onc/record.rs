//! Record marking: how messages are divided on a stream. A record is a message, and is sent as one or more
//! fragments. Before each fragment comes a marker of four bytes. Its highest bit is set for the last fragment
//! of the record, and the other bits are the number of bytes of the fragment.

/// The number of bytes of a marker.
pub(crate) const MARKER_BYTES: usize = 4;
const LAST: u32 = 1 << 31;
/// The largest number of bytes in a fragment.
pub(crate) const FRAGMENT_BYTES_MAX: usize = LAST as usize - 1;

/// The largest number of fragments of a record. Fragments may be empty, so a limit on the bytes alone would
/// let a record go on without end.
pub(crate) const FRAGMENTS_MAX: u32 = 1 << 16;

/// Returns the marker of a record that is sent as one fragment, or `None` if the record is too long for that.
pub(crate) fn marker(bytes: usize) -> Option<[u8; MARKER_BYTES]> {
    (bytes <= FRAGMENT_BYTES_MAX).then(|| (LAST | bytes as u32).to_be_bytes())
}

/// Returns the largest amount of memory, in bytes, that `message` uses after `more` further bytes have
/// arrived.
pub(crate) fn memory_after(message: &Vec<u8>, more: usize) -> usize {
    let (all, memory) = (message.len() + more, message.capacity());
    // A vector that is full grows to at least twice its size.
    if all <= memory { memory } else { all.max(2 * memory) }
}

/// Uses `memory`, the memory of an earlier message, for the next message, which arrives in `message`. Does
/// nothing if a part of the next message has arrived already. Memory beyond `kept` bytes is released.
pub(crate) fn reuse(message: &mut Vec<u8>, mut memory: Vec<u8>, kept: usize) {
    if message.capacity() == 0 {
        memory.clear();
        memory.shrink_to(kept);
        *message = memory;
    }
}

/// Why a stream cannot be read any further. The receiver closes the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A record has more bytes than the receiver allows.
    TooLong,
    /// A record has more than [`FRAGMENTS_MAX`] fragments.
    TooManyFragments,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooLong => f.write_str("a record is longer than allowed"),
            Self::TooManyFragments => {
                write!(f, "a record has more than {FRAGMENTS_MAX} fragments")
            }
        }
    }
}

/// What the next byte of the stream belongs to.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A marker, and the number of its bytes that have arrived.
    Marker([u8; MARKER_BYTES], usize),
    /// A fragment. `missing` is the number of bytes that have not arrived.
    Fragment { missing: usize, is_last: bool },
}

const BETWEEN: Place = Place::Marker([0; MARKER_BYTES], 0);

/// Puts the records of a stream together. The fragments may be divided in any way, and the bytes may arrive
/// in pieces of any size.
///
/// A length in a marker is only compared with the limit. Memory is allocated for bytes that have arrived, so
/// a peer that announces much and sends little makes the receiver allocate little.
#[derive(Debug)]
pub(crate) struct Assembler {
    bytes_max: usize,
    place: Place,
    fragments: u32,
    record: Vec<u8>,
}

impl Assembler {
    /// Makes an assembler for records of at most `bytes_max` bytes.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, place: BETWEEN, fragments: 0, record: Vec::new() }
    }

    /// Returns whether no part of a record has arrived. If the peer closes the connection then, no data is
    /// lost.
    pub(crate) fn is_between_records(&self) -> bool {
        matches!(self.place, Place::Marker(_, 0)) && self.fragments == 0
    }

    /// Returns the memory of the record that has arrived in part.
    pub(crate) const fn message(&mut self) -> &mut Vec<u8> {
        &mut self.record
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a record. Returns the record, or
    /// `None` if more bytes are needed. Call it again until it returns `None`, because `bytes` may contain
    /// several records.
    ///
    /// # Errors
    /// Fails if a limit is exceeded. The stream is of no use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Vec<u8>>, Broken> {
        loop {
            match &mut self.place {
                Place::Marker(marker, have) => {
                    let wanted = &mut marker[*have..];
                    let taken = wanted.len().min(bytes.len());
                    let (now, later) = bytes.split_at(taken);
                    wanted[..taken].copy_from_slice(now);
                    *bytes = later;
                    *have += taken;
                    if *have < MARKER_BYTES {
                        return Ok(None);
                    }
                    let marker = u32::from_be_bytes(*marker);
                    self.begin((marker & !LAST) as usize, marker & LAST != 0)?;
                }
                Place::Fragment { missing, is_last } => {
                    let (now, later) = bytes.split_at((*missing).min(bytes.len()));
                    self.record.extend_from_slice(now);
                    *bytes = later;
                    *missing -= now.len();
                    if *missing > 0 {
                        return Ok(None);
                    }
                    let is_complete = *is_last;
                    self.place = BETWEEN;
                    if is_complete {
                        self.fragments = 0;
                        return Ok(Some(core::mem::take(&mut self.record)));
                    }
                }
            }
        }
    }

    /// Takes back the memory of a record, for the next record. Memory beyond `kept` bytes is released.
    pub(crate) fn reuse(&mut self, memory: Vec<u8>, kept: usize) {
        reuse(&mut self.record, memory, kept);
    }

    fn begin(&mut self, missing: usize, is_last: bool) -> Result<(), Broken> {
        if missing > self.bytes_max - self.record.len() {
            return Err(Broken::TooLong);
        }
        if self.fragments == FRAGMENTS_MAX {
            return Err(Broken::TooManyFragments);
        }
        self.fragments += 1;
        self.place = Place::Fragment { missing, is_last };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Appends a record in fragments of the given lengths. The last fragment has what is left.
    fn divided(stream: &mut Vec<u8>, record: &[u8], lengths: &[usize]) {
        let mut rest = record;
        for length in lengths {
            let (fragment, later) = rest.split_at(rest.len().min(*length));
            stream.extend((fragment.len() as u32).to_be_bytes());
            stream.extend(fragment);
            rest = later;
        }
        stream.extend(marker(rest.len()).expect("a short record"));
        stream.extend(rest);
    }

    /// Returns the records of a stream that arrives in pieces of the given length.
    fn received(
        assembler: &mut Assembler,
        stream: &[u8],
        piece: usize,
    ) -> Result<Vec<Vec<u8>>, Broken> {
        let mut records = Vec::new();
        for mut bytes in stream.chunks(piece) {
            while let Some(record) = assembler.take(&mut bytes)? {
                records.push(record);
            }
            assert!(bytes.is_empty());
        }
        Ok(records)
    }

    #[test]
    fn markers_are_those_of_the_standard() {
        assert_eq!(marker(40), Some([0x80, 0, 0, 0x28]));
        assert_eq!(marker(24), Some([0x80, 0, 0, 0x18]));
        assert_eq!(marker(FRAGMENT_BYTES_MAX), Some([0xff; 4]));
        assert_eq!(marker(FRAGMENT_BYTES_MAX + 1), None);
    }

    #[test]
    fn every_division_of_a_short_record_gives_the_record() {
        let record = b"peregrine";
        for cuts in 0_u32..1 << record.len() {
            let mut lengths = vec![0];
            for at in 0..record.len() {
                *lengths.last_mut().unwrap() += 1;
                if cuts & 1 << at != 0 {
                    lengths.extend([0, 0]);
                }
            }
            let mut stream = Vec::new();
            divided(&mut stream, record, &lengths);
            for piece in [1, 3, 4, 1000] {
                let mut assembler = Assembler::new(record.len());
                let records = received(&mut assembler, &stream, piece);
                assert_eq!(records.as_deref(), Ok(&[record.to_vec()][..]));
                assert!(assembler.is_between_records());
            }
        }
    }

    #[test]
    fn announced_bytes_are_not_allocated() {
        let mut assembler = Assembler::new(64 << 20);
        assert!(assembler.is_between_records());
        let mut bytes: &[u8] = &marker(64 << 20).unwrap();
        assert_eq!(assembler.take(&mut bytes), Ok(None));
        assert_eq!(assembler.record.capacity(), 0);
        assert!(!assembler.is_between_records());
        assert_eq!(assembler.take(&mut &[7; 1000][..]), Ok(None));
        assert!(assembler.record.capacity() <= 2000, "{}", assembler.record.capacity());
    }

    #[test]
    fn memory_of_a_record_is_used_again() {
        let mut stream = Vec::new();
        divided(&mut stream, &[7; 100], &[]);
        let mut assembler = Assembler::new(1000);
        let record = assembler.take(&mut &stream[..]).unwrap().unwrap();
        let memory = record.as_ptr();
        assembler.reuse(record, 1000);
        let record = assembler.take(&mut &stream[..]).unwrap().unwrap();
        assert_eq!((record.as_ptr(), &*record), (memory, &[7; 100][..]));
        // The next record has begun, so this memory is not needed.
        assert_eq!(assembler.take(&mut &stream[..50]), Ok(None));
        assembler.reuse(record, 1000);
        assert_eq!(assembler.take(&mut &stream[50..]), Ok(Some(vec![7; 100])));
    }

    #[test]
    fn too_long_record_is_refused_at_its_marker() {
        let too_long = Err(Broken::TooLong);
        assert_eq!(Assembler::new(40).take(&mut &marker(41).unwrap()[..]), too_long);
        assert_eq!(Assembler::new(40).take(&mut &[0xff; 4][..]), too_long);
        let mut stream = Vec::new();
        divided(&mut stream, &[7; 41], &[30, 5]);
        assert_eq!(received(&mut Assembler::new(40), &stream, 1000), Err(Broken::TooLong));
        assert_eq!(received(&mut Assembler::new(41), &stream, 1).map(|all| all.len()), Ok(1));
    }

    #[test]
    fn fragments_without_end_are_refused() {
        let endless = vec![0; MARKER_BYTES * FRAGMENTS_MAX as usize];
        let mut assembler = Assembler::new(40);
        assert_eq!(assembler.take(&mut &endless[..]), Ok(None));
        assert_eq!(assembler.take(&mut &[0; 3][..]), Ok(None));
        let broken = assembler.take(&mut &[0][..]).unwrap_err();
        assert_eq!(broken, Broken::TooManyFragments);
        assert!(broken.to_string().contains("65536"));
        assert!(Broken::TooLong.to_string().contains("longer"));
        assert_eq!(assembler.record.capacity(), 0);
    }

    proptest! {
        #[test]
        fn records_arrive_whole_and_in_order(
            records in proptest::collection::vec(
                (proptest::collection::vec(any::<u8>(), 0..60),
                 proptest::collection::vec(0_usize..20, 0..8)),
                0..6,
            ),
            piece in 1_usize..50,
        ) {
            let mut stream = Vec::new();
            for (record, lengths) in &records {
                divided(&mut stream, record, lengths);
            }
            let mut assembler = Assembler::new(60);
            let sent: Vec<_> = records.into_iter().map(|(record, _)| record).collect();
            prop_assert_eq!(received(&mut assembler, &stream, piece), Ok(sent));
            prop_assert!(assembler.is_between_records());
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut assembler = Assembler::new(100);
            if let Ok(records) = received(&mut assembler, &bytes, 7) {
                prop_assert!(records.iter().all(|record| record.len() <= 100));
            }
        }
    }
}
