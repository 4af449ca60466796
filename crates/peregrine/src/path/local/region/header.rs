//! The headers of calls and replies. Each header follows the call word or the reply word of its A-stack.

use super::slots::SLOT_BYTES;
use crate::limits;

/// The header of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    pub(crate) binding: u32,
    pub(crate) procedure: u32,
    pub(crate) head_bytes: u32,
    /// The number of bytes that the server copies before it runs the procedure.
    pub(crate) copied: u32,
    pub(crate) total: u32,
    /// The processor on which the caller last ran, as far as the caller knows.
    pub(crate) cpu: u32,
    pub(crate) flags: CallFlags,
}

impl CallHeader {
    /// Returns the header as it is written to the region.
    #[inline]
    pub(crate) const fn words(self) -> [u32; 7] {
        let Self { binding, procedure, head_bytes, copied, total, cpu, flags } = self;
        [binding, procedure, head_bytes, copied, total, cpu, flags.0]
    }

    #[inline]
    pub(crate) const fn of(words: [u32; 7]) -> Self {
        let [binding, procedure, head_bytes, copied, total, cpu, flags] = words;
        Self { binding, procedure, head_bytes, copied, total, cpu, flags: CallFlags(flags) }
    }
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHeader {
    pub(crate) answer: u32,
    /// The processor on which the server's thread last ran, as far as the thread knows.
    pub(crate) cpu: u32,
    /// The offset at which the head begins in the message.
    pub(crate) head_at: u32,
    pub(crate) head_bytes: u32,
}

impl ReplyHeader {
    #[inline]
    pub(crate) const fn words(self) -> [u32; 4] {
        [self.answer, self.cpu, self.head_at, self.head_bytes]
    }

    #[inline]
    pub(crate) const fn of(words: [u32; 4]) -> Self {
        let [answer, cpu, head_at, head_bytes] = words;
        Self { answer, cpu, head_at, head_bytes }
    }
}

/// The last word of a call's header. It is zero for most calls. Every value is valid.
///
/// | bits | what |
/// |---|---|
/// | 0 to 13 | size in bytes of the extensions; they follow the message at the next multiple of 16 |
/// | 14 | the call belongs to an account: the server records its steps |
/// | 15 | the message is *arriving*: the client is still writing it |
/// | 16 to 23 | slot of the message |
/// | 24 to 31 | slot of the reply; if it is not 0, the client reads the reply while it is being written |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallFlags(u32);

const _: () = assert!(limits::EXTENSION_BYTES_MAX <= CallFlags::EXTENSIONS);

impl CallFlags {
    const EXTENSIONS: u32 = 0x3fff;
    const MARKED: u32 = 0x4000;
    const ARRIVING: u32 = 0x8000;

    /// The flags of a call without extensions whose message is complete. The message and the reply begin at
    /// the start of their spaces.
    pub(crate) const EMPTY: Self = Self(0);

    #[cfg(test)]
    pub(super) const fn of(bits: u32) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn with_extensions(self, bytes: u32) -> Self {
        Self(self.0 | bytes & Self::EXTENSIONS)
    }

    pub(crate) const fn with_arriving(self) -> Self {
        Self(self.0 | Self::ARRIVING)
    }

    pub(crate) const fn with_mark(self) -> Self {
        Self(self.0 | Self::MARKED)
    }

    pub(crate) const fn without_arriving(self) -> Self {
        Self(self.0 & !Self::ARRIVING)
    }

    pub(crate) const fn with_call_slot(self, slot: u32) -> Self {
        Self(self.0 | slot << 16)
    }

    pub(crate) const fn with_reply_slot(self, slot: u32) -> Self {
        Self(self.0 | slot << 24)
    }

    /// Returns the size in bytes of the call's extensions.
    pub(crate) const fn extensions(self) -> usize {
        (self.0 & Self::EXTENSIONS) as usize
    }

    pub(crate) const fn without_mark(self) -> Self {
        Self(self.0 & !Self::MARKED)
    }

    /// Returns whether the call belongs to an account.
    pub(crate) const fn is_marked(self) -> bool {
        self.0 & Self::MARKED != 0
    }

    #[inline]
    pub(crate) const fn is_arriving(self) -> bool {
        self.0 & Self::ARRIVING != 0
    }

    /// Returns the offset of the message in the call's space.
    pub(crate) const fn call_offset(self) -> usize {
        (self.0 >> 16 & 0xff) as usize * SLOT_BYTES
    }

    pub(crate) const fn reply_slot(self) -> u32 {
        self.0 >> 24
    }

    /// Returns the offset of the message in the reply's space.
    #[inline]
    pub(crate) const fn reply_offset(self) -> usize {
        self.reply_slot() as usize * SLOT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_flags_return_what_was_set() {
        let flags = CallFlags::EMPTY.with_extensions(520).with_arriving();
        let flags = flags.with_call_slot(255).with_reply_slot(7);
        assert_eq!((flags.extensions(), flags.is_arriving()), (520, true));
        assert_eq!((flags.call_offset(), flags.reply_offset()), (255 * SLOT_BYTES, 7 * SLOT_BYTES));
        assert_eq!(flags.without_arriving().extensions(), 520);
        assert!(!flags.without_arriving().is_arriving() && !flags.is_empty());
        assert!(CallFlags::EMPTY.is_empty());
        let marked = flags.with_mark();
        assert!(marked.is_marked() && !flags.is_marked() && marked.extensions() == 520);
    }
}
