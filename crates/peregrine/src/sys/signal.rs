//! Handles the signals that ask a server to stop, for programs that opt in.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicI32, Ordering};
use std::io;
use std::os::fd::{BorrowedFd, IntoRawFd};

use rustix::event::{EventfdFlags, eventfd};

static EVENT: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(_: libc::c_int) {
    let event = EVENT.load(Ordering::Relaxed);
    let one = 1u64.to_ne_bytes();
    // SAFETY: the call takes no arguments, and returns the address of this thread's error number.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the address is valid for this thread. The interrupted code may still read the error number, so
    // the number is restored below.
    let number = unsafe { place.read() };
    // SAFETY: `write` may be called from a signal handler; the buffer is eight bytes long.
    unsafe { libc::write(event, one.as_ptr().cast(), one.len()) };
    // SAFETY: as above.
    unsafe { place.write(number) };
}

/// Makes SIGINT and SIGTERM write to the returned eventfd instead of ending the process. The eventfd is never
/// closed, and all later calls return the same eventfd.
pub(crate) fn on_stop_signals() -> io::Result<BorrowedFd<'static>> {
    if EVENT.load(Ordering::Acquire) < 0 {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?.into_raw_fd();
        let first = EVENT.compare_exchange(-1, event, Ordering::AcqRel, Ordering::Acquire);
        if first.is_ok() {
            for signal in [libc::SIGINT, libc::SIGTERM] {
                let handler = note as extern "C" fn(libc::c_int);
                // SAFETY: the handler only calls `write`, which is async-signal-safe.
                if unsafe { libc::signal(signal, handler as libc::sighandler_t) } == libc::SIG_ERR {
                    return Err(io::Error::last_os_error());
                }
            }
        }
    }
    // SAFETY: the eventfd was leaked above, so it stays open.
    Ok(unsafe { BorrowedFd::borrow_raw(EVENT.load(Ordering::Acquire)) })
}
