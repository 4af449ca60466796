//! Control messages: what the kernel reports about a received datagram besides its bytes, and options of a
//! datagram that is sent.

use core::mem::{offset_of, size_of};

use libc::c_int;

/// The length in bytes of a buffer for all control messages of one datagram. There are at most two: the
/// segment size of a batch, and a local address.
const BYTES: usize = 96;

/// A buffer for the control messages of one system call.
#[repr(C, align(8))]
pub(super) struct Control {
    bytes: [u8; BYTES],
    used: usize,
}

impl Control {
    pub(super) const HEADER: usize = size_of::<libc::cmsghdr>();

    pub(super) const fn new() -> Self {
        Self { bytes: [0; BYTES], used: 0 }
    }

    /// Appends a message.
    pub(super) fn put(&mut self, level: c_int, name: c_int, value: &[u8]) {
        let at = self.used;
        let len = Self::HEADER + value.len();
        let mut write = |offset: usize, bytes: &[u8]| {
            let start = at + offset;
            self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        };
        write(0, &len.to_ne_bytes());
        write(offset_of!(libc::cmsghdr, cmsg_level), &level.to_ne_bytes());
        write(offset_of!(libc::cmsghdr, cmsg_type), &name.to_ne_bytes());
        write(Self::HEADER, value);
        self.used = at + len.next_multiple_of(size_of::<usize>());
    }

    /// Makes a message header point at the appended control messages, if there are any.
    pub(super) fn attach(&mut self, message: &mut libc::msghdr) {
        if self.used > 0 {
            message.msg_control = self.bytes.as_mut_ptr().cast();
            message.msg_controllen = self.used as _;
        }
    }

    /// Makes a message header point at the whole buffer, for the kernel to fill.
    pub(super) fn offer(&mut self, message: &mut libc::msghdr) {
        message.msg_control = self.bytes.as_mut_ptr().cast();
        message.msg_controllen = BYTES as _;
    }

    /// Records how much of the buffer the kernel filled.
    pub(super) fn filled(&mut self, message: &libc::msghdr) {
        self.used = BYTES.min(message.msg_controllen as _);
    }

    /// Returns the value of the control message with this level, name and length, if there is one.
    pub(super) fn value<const N: usize>(&self, level: c_int, name: c_int) -> Option<[u8; N]> {
        let mut rest = &self.bytes[..self.used];
        while rest.len() >= Self::HEADER {
            let len = usize::from_ne_bytes(*rest.first_chunk()?);
            let word = |at: usize| Some(c_int::from_ne_bytes(*rest[at..].first_chunk()?));
            let is_it = word(offset_of!(libc::cmsghdr, cmsg_level))? == level
                && word(offset_of!(libc::cmsghdr, cmsg_type))? == name;
            if is_it {
                return rest.get(Self::HEADER..len)?.try_into().ok();
            }
            // With a length below that of the header, the loop would make no progress.
            let next = len.max(Self::HEADER).next_multiple_of(size_of::<usize>());
            rest = rest.get(next..)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_are_written() {
        let mut control = Control::new();
        assert_eq!(control.value::<4>(17, 104), None);
        control.put(17, 103, &1472u16.to_ne_bytes());
        control.put(0, 8, &[5; 12]);
        assert_eq!(control.value(17, 103), Some(1472u16.to_ne_bytes()));
        assert_eq!(control.value(0, 8), Some([5; 12]));
        // A search for another length, name or level finds nothing.
        assert_eq!(control.value::<4>(17, 103), None);
        assert_eq!(control.value::<12>(0, 9), None);
        assert_eq!(control.value::<12>(1, 8), None);
        assert_eq!(control.used, 24 + 32);
    }

    #[test]
    fn false_lengths_end_the_search() {
        let mut control = Control::new();
        control.put(17, 103, &[1; 4]);
        control.put(0, 8, &[2; 4]);
        for len in [0, 3, usize::MAX / 2, BYTES] {
            control.bytes[..8].copy_from_slice(&usize::to_ne_bytes(len));
            let _ = control.value::<4>(0, 8);
            let _ = control.value::<4>(17, 103);
        }
    }
}
