//! Defines the interfaces that are measured, and the objects that implement them.
//!
//! An A-stack (the memory for the messages of one call) is as large as the largest message of its interface.
//! So each size of data has a separate interface, and small calls use small A-stacks.

use std::borrow::Cow;
use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Duration;

use peregrine::stats::{Moment, stamp, take_stamps};
use peregrine::{Lent, Out, Source, interface};

use crate::cases::LARGE;

/// The size of a cache line in bytes.
pub(crate) const LINE: usize = 64;

/// Procedures with at most 3000 bytes of data in each direction.
#[interface]
pub(crate) trait Small {
    /// Does nothing.
    fn null(&self) -> peregrine::Result<()>;
    /// Takes two numbers, and returns one.
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    /// Takes bytes.
    fn take(&self, #[max_len(3000)] bytes: &[u8]) -> peregrine::Result<()>;
    /// Takes bytes, and returns them.
    fn both(&self, #[max_len(3000)] bytes: &mut [u8]) -> peregrine::Result<()>;
    /// Returns bytes.
    fn give(&self, #[max_len(1440)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Sleeps for `ms` milliseconds.
    fn sleep(&self, ms: u32) -> peregrine::Result<()>;
}

/// Procedures with 16 bytes of data.
#[interface]
pub(crate) trait Events {
    /// Takes bytes. The caller does not wait.
    #[oneway]
    fn note(&self, bytes: &[u8; 16]) -> peregrine::Result<()>;
    /// Takes bytes.
    fn noted(&self, bytes: &[u8; 16]) -> peregrine::Result<()>;
}

/// Procedures that receive a stream of items.
#[interface]
pub(crate) trait Streams {
    /// Takes items of 16 bytes.
    fn small(&self, items: Source<'_, [u8; 16]>) -> peregrine::Result<()>;
    /// Takes items of 64 KiB. The procedure reads one word of each cache line.
    fn large(&self, items: Source<'_, Cow<'static, [u8]>>) -> peregrine::Result<()>;
}

/// Procedures with at most 48,000 bytes of data in each direction.
#[interface]
pub(crate) trait Middle {
    /// Takes bytes. The procedure reads one word of each cache line.
    fn take(&self, #[max_len(48_000)] bytes: &[u8]) -> peregrine::Result<()>;
    /// Takes bytes, and returns them. The procedure reads one word of each cache line.
    fn both(&self, #[max_len(48_000)] bytes: &mut [u8]) -> peregrine::Result<()>;
}

/// Procedures with at most 1 MiB of data.
#[interface]
pub(crate) trait Large {
    /// Takes bytes. The procedure reads one word of each cache line.
    fn take(&self, #[max_len(1 << 20)] bytes: &[u8]) -> peregrine::Result<()>;
    /// Takes bytes without a copy for the procedure. The procedure reads one word of each cache line.
    fn lend(&self, #[max_len(1 << 20)] bytes: Lent<'_, u8>) -> peregrine::Result<()>;
    /// Returns bytes.
    fn give(&self, #[max_len(1 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
}

/// A procedure with at most 16 MiB of data.
#[interface]
pub(crate) trait Huge {
    /// Takes bytes.
    fn take(&self, #[max_len(16 << 20)] bytes: &[u8]) -> peregrine::Result<()>;
}

/// Procedures that record when they run (for the experiment `account`), and a procedure that returns these
/// records (the *stamps*).
#[interface]
pub(crate) trait Accounted {
    /// Does nothing.
    fn null(&self) -> peregrine::Result<()>;
    /// Takes bytes.
    fn take(&self, #[max_len(3000)] bytes: &[u8]) -> peregrine::Result<()>;
    /// Takes bytes, and returns them.
    fn both(&self, #[max_len(3000)] bytes: &mut [u8]) -> peregrine::Result<()>;
    /// Returns the server's stamps since the previous call of this procedure.
    fn stamps(&self, #[max_len(1 << 14)] into: Out<'_, u64>) -> peregrine::Result<()>;
}

/// An object that copies or reads received data exactly as the limits do. (A limit is a minimal program with
/// which Peregrine is compared.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object;

/// The bytes that the procedure `give` of the interface [`Small`] returns.
static BYTES: [u8; 1440] = [0x5a; 1440];
/// The bytes that the procedure `give` of the interface [`Large`] returns.
static LARGE_BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0x5a; LARGE]);
/// The number of bytes of a lent argument that are read at a time. This part of the argument fits into the L1
/// cache.
const CHUNK: usize = 4096;

/// Returns the sum of the first words of all complete cache lines. To read these words, the processor must
/// fetch each of the lines.
pub(crate) fn sum_of_lines(bytes: &[u8]) -> u64 {
    let word = |line: &[u8]| line.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
    bytes.chunks_exact(LINE).map(word).fold(0, u64::wrapping_add)
}

// `#[inline(never)]` and `black_box` prevent the compiler from removing the calls of these procedures. The
// case `local-call` measures such a call without a stub.
impl Events for Object {
    #[inline(never)]
    fn note(&self, bytes: &[u8; 16]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }

    #[inline(never)]
    fn noted(&self, bytes: &[u8; 16]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }
}

impl Streams for Object {
    #[inline(never)]
    fn small(&self, mut items: Source<'_, [u8; 16]>) -> peregrine::Result<()> {
        while let Some(item) = items.next()? {
            black_box(&item);
        }
        Ok(())
    }

    #[inline(never)]
    fn large(&self, mut items: Source<'_, Cow<'static, [u8]>>) -> peregrine::Result<()> {
        while let Some(item) = items.next()? {
            black_box(sum_of_lines(black_box(&item)));
        }
        Ok(())
    }
}

impl Small for Object {
    #[inline(never)]
    fn null(&self) -> peregrine::Result<()> {
        black_box(());
        Ok(())
    }

    #[inline(never)]
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    #[inline(never)]
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }

    #[inline(never)]
    fn both(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }

    #[inline(never)]
    fn give(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = into.capacity().min(BYTES.len());
        // `put` does not fail, because the length is limited to the capacity of the buffer.
        let _ = into.put(&black_box(&BYTES)[..bytes]);
        Ok(())
    }

    fn sleep(&self, ms: u32) -> peregrine::Result<()> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(())
    }
}

impl Accounted for Object {
    #[inline(never)]
    fn null(&self) -> peregrine::Result<()> {
        stamp(Moment::Run);
        Ok(())
    }

    #[inline(never)]
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        stamp(Moment::Run);
        black_box(bytes);
        Ok(())
    }

    #[inline(never)]
    fn both(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        stamp(Moment::Run);
        black_box(bytes);
        Ok(())
    }

    fn stamps(&self, mut into: Out<'_, u64>) -> peregrine::Result<()> {
        let stamps = take_stamps().unwrap_or_default();
        let fit = stamps.len().min(into.capacity());
        // `put` does not fail, because the number is limited to the capacity of the buffer.
        let _ = into.put(&stamps[..fit]);
        Ok(())
    }
}

impl Middle for Object {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(sum_of_lines(bytes));
        Ok(())
    }

    fn both(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        black_box(sum_of_lines(bytes));
        Ok(())
    }
}

/// An object that ignores the bytes that it receives. The limits of calls across a network ignore them, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unread;

impl Huge for Unread {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }
}

impl Middle for Unread {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }

    fn both(&self, bytes: &mut [u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }
}

impl Large for Object {
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(sum_of_lines(bytes));
        Ok(())
    }

    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<()> {
        let (mut chunk, mut sum) = ([0; CHUNK], 0_u64);
        for at in (0..bytes.len()).step_by(CHUNK) {
            let part = &mut chunk[..CHUNK.min(bytes.len() - at)];
            // `copy_to` does not fail: the part is inside the argument, and every bit pattern is a valid
            // byte.
            let _ = bytes.copy_to(at, part);
            sum = sum.wrapping_add(sum_of_lines(black_box(part)));
        }
        black_box(sum);
        Ok(())
    }

    fn give(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = into.capacity().min(LARGE);
        // `put` does not fail, because the length is limited to the capacity of the buffer.
        let _ = into.put(&black_box(&LARGE_BYTES)[..bytes]);
        Ok(())
    }
}
