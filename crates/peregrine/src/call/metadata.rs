//! `Metadata`: pairs of text that a client sends with its calls, in addition to the arguments.
//!
//! The bytes are the same in memory and on the wire. Each pair is the length of its key and the length of its
//! value (`u16` each, little-endian), the key, and the value. Nothing separates the pairs.

use core::fmt;
use std::sync::Arc;

use super::request::Refusal;
use crate::error::{CallError, Kind, Phase};
use crate::limits;
use crate::value::Window;

/// The size in bytes of the two lengths of a pair.
const LENGTHS_BYTES: usize = 4;

/// Pairs of a key and a value that a client sends with each of its calls. The server gets them from
/// [`Caller::metadata`](crate::Caller::metadata).
///
/// A key has 1 to [`METADATA_KEY_BYTES_MAX`](limits::METADATA_KEY_BYTES_MAX) characters: ASCII lower-case
/// letters, digits, `-`, `_` and `.`. A value is any text, and may be empty. No two pairs have the same key.
/// There are at most [`METADATA_PAIRS_MAX`](limits::METADATA_PAIRS_MAX) pairs. All pairs together have at
/// most [`METADATA_BYTES_MAX`](limits::METADATA_BYTES_MAX) bytes, of which each pair uses four for its
/// lengths. A clone shares the memory of the pairs.
///
/// Nothing proves what metadata says: a caller can send any pairs.
///
/// ```
/// # use peregrine::interface;
/// #[interface]
/// trait Who { fn tenant(&self) -> peregrine::Result<Option<String>>; }
///
/// struct Answer;
/// impl Who for Answer {
///     fn tenant(&self) -> peregrine::Result<Option<String>> {
///         let caller = peregrine::caller().expect("a procedure has a caller");
///         let metadata = caller.metadata();
///         assert_eq!(metadata.iter().count(), metadata.len());
///         Ok(metadata.get("tenant").map(str::to_owned))
///     }
/// }
///
/// let who = WhoClient::in_process(Answer);
/// assert_eq!(who.with_metadata("tenant", "birds")?.tenant()?.as_deref(), Some("birds"));
/// assert_eq!(who.tenant()?, None);
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The pairs, which were validated. `None` if there are no pairs.
    pairs: Option<Arc<[u8]>>,
}

/// Why pairs are not valid metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unfit {
    Pairs,
    Bytes(usize),
    KeyLength(usize),
    /// The key has other characters than those that are allowed.
    Key(String),
    Duplicate(String),
    /// The value of this key is not UTF-8.
    Value(String),
    /// The last pair is incomplete.
    Cut,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pairs, bytes) = (limits::METADATA_PAIRS_MAX, limits::METADATA_BYTES_MAX);
        let key_bytes = limits::METADATA_KEY_BYTES_MAX;
        match self {
            Self::Pairs => write!(f, "it has more than {pairs} pairs"),
            Self::Bytes(has) => {
                write!(f, "it has {has} bytes with four for each pair, and the limit is {bytes}")
            }
            Self::KeyLength(has) => {
                write!(f, "a key has {has} characters instead of 1 to {key_bytes}")
            }
            Self::Key(key) => write!(
                f,
                "the key {key:?} has characters other than lower-case ASCII letters, digits, '-', '_' \
                 and '.'"
            ),
            Self::Duplicate(key) => write!(f, "the key {key:?} occurs twice"),
            Self::Value(key) => write!(f, "the value of {key:?} is not UTF-8"),
            Self::Cut => f.write_str("its last pair is incomplete"),
        }
    }
}

impl Metadata {
    /// No pairs.
    pub(crate) const EMPTY: &'static Self = &Self { pairs: None };

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(one, _)| *one == key).map(|(_, value)| value)
    }

    /// Returns the pairs of key and value, in the order in which the client set them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let text = |bytes| str::from_utf8(bytes).unwrap_or_default();
        // The pairs were validated, so no pair is unfit.
        pairs(self.as_bytes())
            .map_while(Result::ok)
            .map(move |(key, value)| (text(key), text(value)))
    }

    /// Returns the number of pairs.
    pub fn len(&self) -> usize {
        pairs(self.as_bytes()).count()
    }

    /// Returns whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// Returns the pairs as they are sent.
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.pairs.as_deref().unwrap_or(&[])
    }

    /// Returns these pairs with those of `more`. A pair of `more` replaces a pair with the same key.
    ///
    /// # Errors
    /// If a key is invalid, or there are too many pairs or bytes.
    pub(crate) fn with<'a>(
        &self,
        more: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, CallError> {
        let mut all: Vec<(&str, &str)> = self.iter().collect();
        for (key, value) in more {
            match all.iter_mut().find(|(one, _)| *one == key) {
                Some(pair) => pair.1 = value,
                None => all.push((key, value)),
            }
        }
        let written = all.iter().map(|(key, value)| LENGTHS_BYTES + key.len() + value.len()).sum();
        let mut bytes = Vec::with_capacity(written);
        for (key, value) in &all {
            // A length that exceeds 16 bits also exceeds a limit, which `checked` tests before the pairs.
            bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
        Self::checked(bytes).map_err(|unfit| refused(&unfit.to_string()))
    }

    /// Reads the pairs that a caller has sent.
    ///
    /// # Errors
    /// If they are not valid metadata. The call must not run.
    pub(super) fn received(bytes: Window<'_>) -> Result<Self, Refusal> {
        let read = || {
            if bytes.len() > limits::METADATA_BYTES_MAX {
                return Err(Unfit::Bytes(bytes.len()));
            }
            // The caller may still write to these bytes, so a copy of them is validated.
            let mut copy = vec![0; bytes.len()];
            bytes.read(0, &mut copy).ok_or(Unfit::Cut)?;
            Self::checked(copy)
        };
        read().map_err(|unfit| {
            Refusal::new(
                Kind::BadArguments,
                format!("the metadata of the call is invalid: {unfit}"),
            )
        })
    }

    fn checked(bytes: Vec<u8>) -> Result<Self, Unfit> {
        if bytes.len() > limits::METADATA_BYTES_MAX {
            return Err(Unfit::Bytes(bytes.len()));
        }
        let mut keys = [&[][..]; limits::METADATA_PAIRS_MAX];
        for (at, pair) in pairs(&bytes).enumerate() {
            let (key, value) = pair?;
            let text = || String::from_utf8_lossy(key).into_owned();
            let known = keys.get(..at).ok_or(Unfit::Pairs)?;
            if !(1..=limits::METADATA_KEY_BYTES_MAX).contains(&key.len()) {
                return Err(Unfit::KeyLength(key.len()));
            }
            if !key.iter().all(|byte| is_of_key(*byte)) {
                return Err(Unfit::Key(text()));
            }
            if known.contains(&key) {
                return Err(Unfit::Duplicate(text()));
            }
            str::from_utf8(value).map_err(|_| Unfit::Value(text()))?;
            *keys.get_mut(at).ok_or(Unfit::Pairs)? = key;
        }
        Ok(Self { pairs: (!bytes.is_empty()).then(|| bytes.into()) })
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

const fn is_of_key(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.')
}

/// Returns the pairs in `bytes`. Ends after a pair that is incomplete.
fn pairs(mut bytes: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), Unfit>> {
    core::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let pair = split(&mut bytes);
        if pair.is_none() {
            bytes = &[];
        }
        Some(pair.ok_or(Unfit::Cut))
    })
}

/// Takes a pair from the front of `bytes`.
fn split<'a>(bytes: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (lengths, rest) = bytes.split_first_chunk::<LENGTHS_BYTES>()?;
    let [key, value] = [0, 2].map(|at| u16::from_le_bytes([lengths[at], lengths[at + 1]]).into());
    let (key, rest) = rest.split_at_checked(key)?;
    let (value, rest) = rest.split_at_checked(value)?;
    *bytes = rest;
    Some((key, value))
}

/// The advice for metadata that a client cannot send.
const ADVICE: &str = "send few and short pairs, whose keys are lower-case names, and other data as \
                      arguments of the call";

/// Returns the error of metadata that is not sent.
#[cold]
fn refused(why: &str) -> CallError {
    let text = format!("the metadata is not sent: {why}");
    CallError::not_executed(Kind::BadArguments, Phase::Marshal, text).with_advice(ADVICE)
}

/// Returns the error of a call whose message of `bytes` bytes fits, but not together with its metadata.
#[cold]
pub(crate) fn no_space_for_metadata(bytes: usize) -> CallError {
    let text = format!("the message has {bytes} bytes, and its metadata does not fit in addition");
    CallError::not_executed(Kind::TooLarge, Phase::Marshal, text).with_advice(ADVICE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Executed;

    fn received(bytes: &[u8]) -> Result<Metadata, String> {
        Metadata::received(Window::from(bytes)).map_err(|refusal| {
            assert_eq!((refusal.kind, refusal.executed), (Kind::BadArguments, Executed::No));
            refusal.text
        })
    }

    fn pair(key: &[u8], value: &[u8]) -> Vec<u8> {
        let lengths = [key.len() as u16, value.len() as u16].map(u16::to_le_bytes);
        [&lengths.concat(), key, value].concat()
    }

    #[test]
    fn pairs_keep_their_order_and_the_last_value_of_a_key() {
        let metadata = Metadata::EMPTY.with([("b", "1"), ("a.x-y_2", ""), ("b", "é")]).unwrap();
        let all: Vec<_> = metadata.iter().collect();
        assert_eq!((all, metadata.len()), (vec![("b", "é"), ("a.x-y_2", "")], 2));
        assert_eq!((metadata.get("b"), metadata.get("c")), (Some("é"), None));
        assert_eq!(format!("{metadata:?}"), r#"{"b": "é", "a.x-y_2": ""}"#);
        assert_eq!(
            metadata.as_bytes(),
            [pair(b"b", "é".as_bytes()), pair(b"a.x-y_2", b"")].concat()
        );
        assert_eq!(received(metadata.as_bytes()), Ok(metadata));
        assert!(Metadata::EMPTY.is_empty() && received(b"").unwrap().is_empty());
    }

    #[test]
    fn metadata_reaches_its_limits_and_no_further() {
        let longest = "k".repeat(limits::METADATA_KEY_BYTES_MAX);
        assert!(Metadata::EMPTY.with([(&*longest, "")]).is_ok());
        let keys: Vec<_> = (0..=limits::METADATA_PAIRS_MAX).map(|n| format!("k{n}")).collect();
        let most = keys[1..].iter().map(|key| (&**key, "v"));
        let most = Metadata::EMPTY.with(most).unwrap();
        assert_eq!(most.len(), limits::METADATA_PAIRS_MAX);
        let value = "v".repeat(limits::METADATA_BYTES_MAX - LENGTHS_BYTES - 1);
        assert!(Metadata::EMPTY.with([("k", &*value)]).is_ok());
        let (more, huge) = (format!("{value}v"), "v".repeat(1 << 16));
        for (metadata, key, value, why) in [
            (&most, &*keys[0], "v", "more than 32 pairs"),
            (Metadata::EMPTY, "k", &*more, "3073 bytes"),
            (Metadata::EMPTY, "k", &*huge, "65541 bytes"),
            (Metadata::EMPTY, "", "v", "0 characters"),
            (Metadata::EMPTY, &*format!("{longest}k"), "v", "65 characters"),
            (Metadata::EMPTY, "Key", "v", "\"Key\" has characters"),
            (Metadata::EMPTY, "a b", "v", "\"a b\" has characters"),
            (Metadata::EMPTY, "ä", "v", "\"ä\" has characters"),
        ] {
            let error = metadata.with([(key, value)]).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No));
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn invalid_metadata_is_refused() {
        let many: Vec<u8> = (0..33).flat_map(|n| pair(format!("{n}").as_bytes(), b"")).collect();
        for (bytes, why) in [
            (many, "more than 32 pairs"),
            ([pair(b"k", b"1"), pair(b"k", b"2")].concat(), "\"k\" occurs twice"),
            (pair(b"k", &[0xff]), "the value of \"k\" is not UTF-8"),
            (pair(&[0xff], b"v"), "has characters"),
            (pair(b"K", b"v"), "\"K\" has characters"),
            (pair(b"", b"v"), "0 characters"),
            (pair(&[b'k'; 65], b"v"), "65 characters"),
            (pair(b"k", &[b'v'; 3068]), "3073 bytes"),
            (b"\x01".to_vec(), "incomplete"),
            (b"\x01\x00\x02\x00kv".to_vec(), "incomplete"),
            ([pair(b"k", b"v"), vec![0; 4]].concat(), "0 characters"),
        ] {
            let text = received(&bytes).unwrap_err();
            assert!(text.contains(why), "{text}: expected {why}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            given in proptest::collection::vec(("[a-z]{0,3}", ".{0,9}"), 0..40),
        ) {
            let given: Vec<u8> =
                given.iter().flat_map(|(key, value)| pair(key.as_bytes(), value.as_bytes())).collect();
            for bytes in [bytes, given] {
                if let Ok(metadata) = received(&bytes) {
                    prop_assert_eq!(Metadata::EMPTY.with(metadata.iter()).unwrap(), metadata.clone());
                    prop_assert_eq!(metadata.as_bytes(), bytes);
                }
            }
        }
    }
}
