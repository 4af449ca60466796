//! Extensions: optional data that a call carries besides its message.
//!
//! The extensions of a call are a sequence of entries. An entry is a tag (`u32`), the length of its content
//! in bytes (`u32`), and the content. Numbers are little-endian on every path, whatever the byte order of
//! values. Entries with unknown tags are skipped. The sequence ends where a length reaches beyond the last
//! byte. If a tag occurs twice, the first entry counts. Everything after the 32nd entry is ignored.
//!
//! | tag | what |
//! |---|---|
//! | 0 | nothing: zeros may pad the sequence |
//! | 1 | the chain of nested calls: links of 16 bytes |
//! | 2 | deadline: microseconds (`u64`) that the caller had left when the call was sent |
//! | 3 | metadata: pairs, as in `metadata.rs` |

use core::time::Duration;
use std::time::Instant;

use super::caller::{set_due, set_metadata};
use super::chain::{self, LINK_BYTES};
use super::metadata::Metadata;
use super::request::Refusal;
use super::terms::CallTerms;
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::value::{Window, align_up};

const CHAIN: u32 = 1;
const DEADLINE: u32 = 2;
const METADATA: u32 = 3;

/// The size in bytes of an entry's tag and length.
const HEADER_BYTES: usize = 8;
/// The largest number of entries of one call that are examined. A peer may send thousands of entries.
const TAGS_MAX: usize = 32;
/// The largest size in bytes of the extensions that this process sends with a call without metadata: the
/// longest chain and a deadline.
pub(crate) const BYTES_MAX: usize =
    align_up(2 * HEADER_BYTES + limits::CHAIN_MAX * LINK_BYTES + size_of::<u64>());

/// The largest size in bytes of all extensions that this process sends with a call.
const ALL_BYTES_MAX: usize = align_up(BYTES_MAX + HEADER_BYTES + limits::METADATA_BYTES_MAX);
const _: () = assert!(ALL_BYTES_MAX <= limits::EXTENSION_BYTES_MAX as usize);

/// The extensions of one outgoing call.
pub(crate) struct Extensions {
    /// The buffer: the written bytes, and zeros after them.
    bytes: [u8; BYTES_MAX],
    /// The buffer of a call with metadata, which is used instead of `bytes`. Empty for other calls.
    large: Vec<u8>,
    /// The number of written bytes.
    length: usize,
}

/// The advice for calls that nest too deeply. No option raises the limit.
const TOO_NESTED: &str = "let procedures call each other less deeply";

impl Extensions {
    /// Makes the extensions of a call that is sent now. They contain the time until the deadline, if there is
    /// one, and the metadata. If a procedure makes the call, they also contain the chain. `inside` is then
    /// the ID of the process that called the procedure.
    ///
    /// # Errors
    /// Fails if calls nest too deeply, or if no time is left.
    #[cold]
    pub(crate) fn of(inside: Option<u32>, terms: CallTerms<'_>) -> Result<Self, CallError> {
        let mut extensions = Self { bytes: [0; BYTES_MAX], large: Vec::new(), length: 0 };
        if let Some(metadata) = terms.metadata() {
            extensions.metadata(metadata);
        }
        if let Some(caller) = inside {
            extensions.chain(caller)?;
        }
        if let Some(deadline) = terms.deadline() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(no_time_left());
            }
            // The time is rounded down, so that the server does not get more time than this process has. At
            // least 1 µs is sent.
            let left = u64::try_from(left.as_micros()).unwrap_or(u64::MAX).max(1);
            extensions.begin(DEADLINE, size_of::<u64>());
            extensions.put(&left.to_le_bytes());
        }
        Ok(extensions)
    }

    #[cold]
    fn metadata(&mut self, metadata: &Metadata) {
        let bytes = metadata.as_bytes();
        self.large = vec![0; align_up(BYTES_MAX + HEADER_BYTES + bytes.len())];
        self.begin(METADATA, bytes.len());
        self.put(bytes);
    }

    fn chain(&mut self, caller: u32) -> Result<(), CallError> {
        chain::with_links(caller, |before, own| {
            let links = before.len() + 1;
            if links > limits::CHAIN_MAX {
                let text = format!("more than {} nested calls", limits::CHAIN_MAX);
                let error = CallError::not_executed(Kind::Exhausted, Phase::Marshal, text);
                return Err(error.with_advice(TOO_NESTED));
            }
            self.begin(CHAIN, links * LINK_BYTES);
            for word in before.iter().chain([&own]).flatten() {
                self.put(&word.to_le_bytes());
            }
            Ok(())
        })
    }

    fn begin(&mut self, tag: u32, bytes: usize) {
        self.put(&tag.to_le_bytes());
        self.put(&(bytes as u32).to_le_bytes());
    }

    /// Appends bytes. The buffer is large enough for everything that is ever appended.
    fn put(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        let buffer = if self.large.is_empty() { &mut self.bytes[..] } else { &mut self.large };
        buffer[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    fn buffer(&self) -> &[u8] {
        if self.large.is_empty() { &self.bytes } else { &self.large }
    }

    /// Returns the written bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.buffer()[..self.length]
    }

    /// Returns the written bytes, padded with zeros to a multiple of 16.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.buffer()[..align_up(self.length)]
    }
}

/// Returns the error for a call that is not sent, because its deadline has passed.
#[cold]
pub(crate) fn no_time_left() -> CallError {
    let text = "the deadline passed before the call was sent";
    CallError::not_executed(Kind::TimedOut, Phase::Call, text)
}

/// Returns the content of the first entry with the tag `tag`, in the extensions of a received call. Returns
/// `None` if there is no such entry, or if it is incomplete.
fn find(extensions: Window<'_>, tag: u32) -> Option<Window<'_>> {
    let mut at = 0;
    for _ in 0..TAGS_MAX {
        let header: [[u8; 4]; 2] = extensions.read_plain(at)?;
        let [one, bytes] = header.map(u32::from_le_bytes);
        let content = extensions.part(at + HEADER_BYTES, bytes as usize)?;
        if one == tag {
            return Some(content);
        }
        at += HEADER_BYTES + bytes as usize;
    }
    None
}

/// Returns the links of the chain in the extensions. Returns no links if the chain is missing or malformed.
fn links(extensions: Window<'_>) -> impl Iterator<Item = chain::Link> {
    let chain = find(extensions, CHAIN).unwrap_or(Window::empty());
    let count = if chain.len().is_multiple_of(LINK_BYTES) { chain.len() / LINK_BYTES } else { 0 };
    (0..count.min(limits::CHAIN_MAX)).map_while(move |i| {
        let link: [[u8; 4]; 4] = chain.read_plain(i * LINK_BYTES)?;
        Some(link.map(u32::from_le_bytes))
    })
}

/// Returns the metadata in the extensions, if there is any.
fn metadata_of(extensions: Window<'_>) -> Option<Result<Metadata, Refusal>> {
    find(extensions, METADATA).map(Metadata::received)
}

/// Applies the extensions of the call that this thread is about to run. `waited` returns how long ago the
/// call was received.
///
/// # Errors
/// Fails if the deadline has passed, or the metadata is invalid: the call must not run.
#[cold]
pub(crate) fn enter(
    extensions: Window<'_>,
    waited: impl FnOnce() -> Duration,
) -> Result<(), Refusal> {
    chain::enter(links(extensions));
    let metadata = metadata_of(extensions).transpose();
    set_metadata(metadata.as_ref().ok().and_then(Option::as_ref));
    let left = find(extensions, DEADLINE).filter(|left| left.len() == size_of::<u64>());
    let Some(left) = left.and_then(|left| left.read_plain(0)).map(u64::from_le_bytes) else {
        set_due(None);
        return metadata.map(drop);
    };
    let left = Duration::from_micros(left).saturating_sub(waited());
    // A deadline beyond the range of the clock counts as no deadline.
    set_due(Instant::now().checked_add(left));
    if left.is_zero() { Err(Refusal::late()) } else { metadata.map(drop) }
}

/// Removes what [`enter`] set for the call that this thread ran.
pub(crate) fn leave() {
    chain::leave();
    set_metadata(None);
    set_due(None);
}

/// Returns whether the extensions say that their call came through this process. This is a hint: any peer
/// that this process has called can make this claim.
pub(crate) fn is_from_inside(extensions: Window<'_>) -> bool {
    let own = chain::own_link();
    links(extensions).any(|link| link == own)
}

/// Reads any bytes as the extensions of a call.
///
/// # Panics
/// If metadata that was read differs after it was written and read again.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    let extensions = Window::from(bytes);
    let _ = enter(extensions, || Duration::ZERO);
    let _ = is_from_inside(extensions);
    leave();
    let Some(Ok(metadata)) = metadata_of(extensions) else { return };
    let again = Metadata::EMPTY.with(metadata.iter()).expect("metadata that was read is valid");
    let terms = CallTerms::Metadata { metadata: &again, deadline: None };
    let written = Extensions::of(None, terms).expect("the call has no deadline");
    let read = metadata_of(Window::from(written.padded()));
    assert!(read.is_some_and(|read| read.is_ok_and(|read| read == metadata)) || again.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::chain::processes;
    use crate::error::Executed;
    use proptest::prelude::*;

    const LONG: Duration = Duration::from_secs(60);

    fn entered(extensions: &[u8]) -> Result<(), Refusal> {
        enter(Window::from(extensions), || Duration::ZERO)
    }

    fn of(inside: Option<u32>, deadline: Option<Instant>) -> Vec<u8> {
        Extensions::of(inside, CallTerms::until(deadline)).unwrap().as_bytes().to_vec()
    }

    /// Returns the bytes of an entry: its tag, the length that it claims, and its content.
    fn one(tag: u32, length: u32, content: &[u8]) -> Vec<u8> {
        [&tag.to_le_bytes(), &length.to_le_bytes(), content].concat()
    }

    /// Returns the deadline of this thread, also while the thread runs no procedure.
    fn due() -> Option<Instant> {
        let due = set_due(None);
        set_due(due);
        due
    }

    #[test]
    fn call_that_came_through_this_process_is_from_inside() {
        let other = one(CHAIN, 16, &[7; 16]);
        assert!(!is_from_inside(Window::from(&other[..])));
        assert!(!is_from_inside(Window::empty()));
        leave();
        let own = of(Some(5), None);
        assert!(is_from_inside(Window::from(&own[..])));
    }

    fn left() -> Option<Duration> {
        due().map(|due| due.saturating_duration_since(Instant::now()))
    }

    #[test]
    fn chain_grows_link_by_link_up_to_its_limit() {
        let bytes = of(Some(77), None);
        assert_eq!(bytes.len(), HEADER_BYTES + 2 * LINK_BYTES);
        assert_eq!(bytes[..8], [1, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(bytes[16..20], [77, 0, 0, 0]);
        assert!(is_from_inside(Window::from(&bytes[..])));
        entered(&bytes).unwrap();
        assert_eq!(processes(), [77, std::process::id()]);
        let mut deep = 2;
        while let Ok(extensions) = Extensions::of(Some(1), CallTerms::None) {
            deep += 1;
            entered(extensions.as_bytes()).unwrap();
            assert_eq!(processes().len(), deep);
        }
        assert_eq!(deep, limits::CHAIN_MAX);
        // The extensions have space for the longest chain and a deadline together.
        let links = limits::CHAIN_MAX - 1;
        entered(&one(CHAIN, (links * LINK_BYTES) as u32, &vec![1; links * LINK_BYTES])).unwrap();
        let bytes = of(Some(1), Some(Instant::now() + LONG));
        assert_eq!(align_up(bytes.len()), BYTES_MAX);
        leave();
        assert_eq!((processes(), due()), (vec![], None));
    }

    #[test]
    fn time_left_arrives_without_the_time_waited() {
        let bytes = of(None, Some(Instant::now() + LONG));
        assert_eq!((bytes.len(), &bytes[..8]), (16, &[2, 0, 0, 0, 8, 0, 0, 0][..]));
        entered(&bytes).unwrap();
        assert!(left().unwrap() <= LONG && left() > Some(LONG / 2), "{:?}", left());
        enter(Window::from(&bytes[..]), || LONG / 2).unwrap();
        assert!(left().unwrap() <= LONG / 2, "{:?}", left());
        let refusal = enter(Window::from(&bytes[..]), || LONG).unwrap_err();
        assert_eq!((refusal.kind, refusal.executed), (Kind::TimedOut, Executed::No));
        entered(&[]).unwrap();
        assert_eq!(due(), None);
        let late = CallTerms::until(Some(Instant::now()));
        let error = Extensions::of(None, late).err().expect("no time is left");
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No));
        // A deadline that is far in the future does not overflow the clock.
        entered(&one(DEADLINE, 8, &[0xff; 8])).unwrap();
        assert!(left().is_none_or(|left| left > 1_000_000 * LONG));
    }

    #[test]
    fn malformed_extensions_are_ignored() {
        let deadline = one(DEADLINE, 8, &60_000_000_u64.to_le_bytes());
        let strange = one(9, 5, b"abcde");
        let chain = one(CHAIN, 16, &[3, 0, 0, 0].repeat(4));
        // The entries are read in any order, with unknown tags between them, and padded with zeros.
        for parts in [[&deadline, &strange, &chain], [&chain, &strange, &deadline]] {
            entered(&[&parts.map(|part| &part[..]).concat(), &[0; 16][..]].concat()).unwrap();
            assert!(left() > Some(LONG / 2) && processes() == [3], "{parts:?}");
        }
        // If a tag occurs twice, only its first entry counts.
        entered(&[&deadline[..], &one(DEADLINE, 8, &[1, 0, 0, 0, 0, 0, 0, 0])].concat()).unwrap();
        assert!(left() > Some(LONG / 2));
        for senseless in [
            &b""[..],
            b"\x01",
            &one(CHAIN, u32::MAX, &[7; 64]),
            &one(CHAIN, 24, &[7; 24]),
            &one(DEADLINE, 9, &[0; 8]),
            &one(DEADLINE, 4, &[0; 4]),
            &one(9, u32::MAX, &chain),
            &one(9, 0xffff_fff8, &deadline),
            &[0; 64],
        ] {
            entered(senseless).unwrap();
            assert_eq!((due(), processes()), (None, vec![]), "{senseless:?}");
            assert!(!is_from_inside(Window::from(senseless)));
        }
        leave();
    }

    #[test]
    fn tags_after_the_last_one_examined_are_ignored() {
        leave();
        let own = of(Some(5), None);
        let after = |tags: usize| [&one(9, 0, &[]).repeat(tags)[..], &own].concat();
        assert!(is_from_inside(Window::from(&after(TAGS_MAX - 1)[..])));
        assert!(!is_from_inside(Window::from(&after(TAGS_MAX)[..])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            tags in proptest::collection::vec((0_u32..5, 0_u32..40), 0..8),
        ) {
            let sequence = tags.iter().flat_map(|(tag, length)| one(*tag, *length, &bytes));
            for bytes in [bytes.clone(), sequence.collect()] {
                let _ = entered(&bytes);
                let _ = is_from_inside(Window::from(&bytes[..]));
                prop_assert!(processes().len() <= limits::CHAIN_MAX);
            }
            leave();
        }
    }
}
