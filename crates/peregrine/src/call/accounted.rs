//! Accounts of calls at the server. A client that makes an account of its calls *marks* them. The server
//! records at which times it passes the steps of a marked call, and the client fetches the records.
//!
//! A mark is two bits in the number of the procedure. Over the local path, the flags of the call have a mark,
//! too, so that the server sees the mark before it checks the call. There, calls without a mark are not slower
//! because of accounts: each test for a mark is part of a test that all calls need.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use super::{Call, CallerInfo, PING, Reply, Request, Serve, Served, caller};
use crate::error::Kind;
use crate::interface::HEALTH_NAME;
use crate::steps::{self, Recording, STEPS, Stamps, Step};
use crate::sync::Mutex;
use crate::sys;

use super::batch::BATCH;
use super::request::Refusal;
use super::streams::STREAMS;

/// Procedures with at least this number are built in, or marked.
pub(crate) const SPECIAL: u32 = 1 << 31;
/// Built-in procedures have this bit in addition to [`SPECIAL`]. Marked procedures do not.
const BUILT_IN: u32 = 1 << 30;

/// The number of the procedure that begins an account of the calling client.
pub(crate) const BEGIN: u32 = u32::MAX - 4;
/// The number of the procedure that returns the records of marked calls, and forgets them: for each call, the
/// stamps as little-endian `u64`.
pub(crate) const TAKE: u32 = u32::MAX - 5;
/// The number of the procedure that ends an account.
pub(crate) const END: u32 = u32::MAX - 6;
/// The number of the procedure that takes any bytes, and returns as many zeros as the caller wants. It first
/// occupies its thread for as long as the caller wants. Only clients that make an account may call it.
pub(crate) const ECHO: u32 = u32::MAX - 7;

/// The longest time for which an echo occupies its thread, in nanoseconds.
const BUSY_MAX: u64 = 1_000_000;
/// The largest number of records of one account. Further calls are not recorded.
pub(crate) const RECORDS_MAX: usize = 4096;
/// An account that was not used for this time, in nanoseconds, ends when another client begins one. Over
/// datagrams, a server does not know when a client has been killed.
const IDLE: u64 = 60_000_000_000;
/// The largest number of accounts in a process.
const ACCOUNTS_MAX: usize = 16;

/// The steps that a server records in one marked call, in the next one, and so on. Each other step is recorded
/// together with the arrival of the call.
const CHOICES: [&[Step]; 7] = [
    &[],
    &[Step::Received, Step::Admitted],
    &[Step::Received, Step::Called],
    &[],
    &[Step::Received, Step::Returned],
    &[Step::Received, Step::Sending],
    &[Step::Admitted, Step::AdmittedAgain],
];

/// Returns the number by which a client calls a procedure in an account.
pub(crate) const fn marked(procedure: u32) -> u32 {
    (procedure | SPECIAL) & !BUILT_IN
}

/// Marks a call of an account, which a path takes over.
#[inline]
pub(crate) fn enter(call: &mut Call<'_, '_, '_>) {
    call.procedure = marked(call.procedure);
    steps::note_sent(call.layout().total);
    steps::record(Step::Entered);
}

/// Returns the procedure of a marked number. `None`: the number has no mark.
pub(crate) const fn unmarked(number: u32) -> Option<u32> {
    if number & (SPECIAL | BUILT_IN) != SPECIAL {
        return None;
    }
    let low = number & !SPECIAL;
    // Marked numbers of built-in procedures are the highest ones.
    Some(if low >= (ECHO & !(SPECIAL | BUILT_IN)) { low | SPECIAL | BUILT_IN } else { low })
}

/// The accounts of this process.
static ACCOUNTS: [Mutex<Option<Records>>; ACCOUNTS_MAX] =
    [const { Mutex::new(None) }; ACCOUNTS_MAX];

/// The records of the marked calls of one client, while the client makes an account.
struct Records {
    /// The address of the [`ClientAccount`] of the client.
    client: usize,
    of_calls: Vec<Stamps>,
    /// When the client has last used the account, in nanoseconds since the machine was started.
    used: u64,
    /// For the paths that look whether an account is being made.
    _recording: Recording,
}

/// Which account a client makes: its place in [`ACCOUNTS`], plus 1. 0: none. It ends when this value is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClientAccount(AtomicU32);

impl Clone for ClientAccount {
    /// Returns no account: a client that is known in two ways still makes one.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Drop for ClientAccount {
    fn drop(&mut self) {
        self.end();
    }
}

impl ClientAccount {
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Calls `with` with the records of the account, if the client makes one.
    fn with<T>(&self, with: impl FnOnce(&mut Records) -> T) -> Option<T> {
        let place = self.0.load(Ordering::Acquire).checked_sub(1)?;
        let mut records = ACCOUNTS.get(place as usize)?.lock();
        // The account may have ended, and the place may belong to another client.
        let records = records.as_mut().filter(|records| records.client == self.address())?;
        records.used = sys::boot_ns();
        Some(with(records))
    }

    fn is_begun(&self) -> bool {
        self.with(|_| ()).is_some()
    }

    fn begin(&self) -> Served {
        if self.with(|records| records.of_calls.clear()).is_some() {
            return Ok(());
        }
        for (place, records) in (1..).zip(&ACCOUNTS) {
            let mut records = records.lock();
            let now = sys::boot_ns();
            let is_idle = |records: &Records| now.saturating_sub(records.used) > IDLE;
            if records.as_ref().is_none_or(is_idle) {
                let begun = self.0.compare_exchange(0, place, Ordering::AcqRel, Ordering::Relaxed);
                if begun.is_ok() {
                    let of_calls = Vec::with_capacity(RECORDS_MAX);
                    let (client, _recording) = (self.address(), Recording::begin());
                    *records = Some(Records { client, of_calls, used: now, _recording });
                }
                // Otherwise another thread begins this account.
                return Ok(());
            }
        }
        let text = format!("{ACCOUNTS_MAX} accounts are being made at this server");
        Err(Refusal::new(Kind::Exhausted, text))
    }

    pub(crate) fn end(&self) {
        let place = self.0.swap(0, Ordering::AcqRel).checked_sub(1);
        if let Some(records) = place.and_then(|place| ACCOUNTS.get(place as usize)) {
            let ended = records.lock().take_if(|records| records.client == self.address());
            drop(ended);
        }
    }

    /// Adds the record of a call. Its times count from 1 at its first step, so that they do not tell how long the
    /// machine runs.
    fn add(&self, mut stamps: Stamps) {
        let first = stamps.iter().copied().filter(|stamp| *stamp != 0).min().unwrap_or(1);
        stamps.iter_mut().filter(|stamp| **stamp != 0).for_each(|stamp| *stamp -= first - 1);
        self.with(|records| {
            if records.of_calls.len() < RECORDS_MAX {
                records.of_calls.push(stamps);
            }
        });
    }

    /// Returns the bytes of at most `most` records, and forgets these records.
    fn take(&self, most: usize) -> Vec<u8> {
        let taken = self.with(|records| {
            let taken = records.of_calls.drain(..most.min(records.of_calls.len()));
            taken.flatten().flat_map(u64::to_le_bytes).collect()
        });
        taken.unwrap_or_default()
    }
}

/// Serves a marked call. `procedure` is its number without the mark.
pub(super) fn serve(
    serve: &dyn Serve,
    request: &mut Request<'_>,
    reply: &mut Reply<'_>,
    procedure: u32,
) -> Served {
    request.set_procedure(procedure);
    steps::record(Step::Called);
    // The procedure may make calls itself.
    let pause = steps::Pause::begin();
    let served = match procedure {
        0..SPECIAL => serve.serve(request, reply),
        PING => Ok(()),
        BATCH | STREAMS => Err(Refusal::no_such_procedure(procedure)),
        _ => built_in(request, reply, procedure),
    };
    drop(pause);
    steps::record(Step::Returned);
    served
}

/// Serves a call of a procedure by which clients make accounts. The export of the server's health has no accounts,
/// because its calls need no permit, and must never wait.
pub(super) fn built_in(request: &mut Request<'_>, reply: &mut Reply<'_>, number: u32) -> Served {
    let caller = caller().filter(|caller| caller.export() != HEALTH_NAME);
    let Some(caller) = caller else { return Err(Refusal::no_such_procedure(number)) };
    let account = caller.account();
    match number {
        BEGIN => account.begin(),
        TAKE => {
            let most = reply.bytes() / (STEPS * size_of::<u64>());
            reply.raw(super::Answer::Ok, &account.take(most))
        }
        END => {
            account.end();
            Ok(())
        }
        ECHO if account.is_begun() => echo(request, reply),
        number => Err(Refusal::no_such_procedure(number)),
    }
}

/// Answers with as many zeros as the caller wants, and after the time that it wants.
fn echo(request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
    if request.bytes() == 0 {
        return Ok(());
    }
    let busy = u64::from(request.value::<u32>()?).min(BUSY_MAX);
    reply.expect(1);
    let _ = request.slice::<u8>(usize::MAX)?;
    let mut filled = 0;
    let mut back = request.out::<u8>(reply, &mut filled, usize::MAX)?;
    request.finish()?;
    if busy > 0 {
        let until = sys::boot_ns() + busy;
        while sys::boot_ns() < until {
            core::hint::spin_loop();
        }
    }
    let zeros = [0; 4096];
    while back.capacity() > back.filled() {
        let bytes = zeros.len().min(back.capacity() - back.filled());
        let put = back.put(&zeros[..bytes]);
        put.map_err(|_| Refusal::new(Kind::TooLarge, "the result does not fit"))?;
    }
    reply.filled(0, filled)?;
    reply.ok(&(), |_| Ok(()))
}

/// Adds the stamps of the call that this thread has served to the account of its caller. `number` is the
/// number of the procedure, as it was received. Called after the reply was sent.
#[inline(always)]
pub(crate) fn pass_end_of_call(number: u32, caller: &CallerInfo) {
    if steps::is_recording() && unmarked(number).is_some() {
        end_of_call(caller);
    }
}

/// Does the same as [`pass_end_of_call`] for a marked call.
#[cold]
pub(crate) fn end_of_call(caller: &CallerInfo) {
    thread_local! {
        /// The number of marked calls of this thread.
        static CALLS: Cell<usize> = const { Cell::new(0) };
    }
    let account = caller.account();
    if account.is_begun() {
        account.add(steps::take());
        let calls = CALLS.get();
        CALLS.set(calls.wrapping_add(1));
        steps::choose(CHOICES[calls % CHOICES.len()]);
    }
    steps::forget();
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{PathKind, leave_call, serve_call, tell_caller};
    use super::*;
    use crate::value::{Space, Window};

    #[test]
    fn marks_are_reversible_and_differ_from_other_numbers() {
        for procedure in [0, 1, 2, 4711, BUILT_IN - 100, PING, ECHO, BATCH] {
            let number = marked(procedure);
            assert_eq!(unmarked(number), Some(procedure), "{procedure:x}");
            assert!(number >= SPECIAL && unmarked(procedure).is_none());
        }
        for number in [STREAMS, BATCH, PING, BEGIN, TAKE, END, ECHO, 0, BUILT_IN] {
            assert_eq!(unmarked(number), None, "{number:x}");
        }
    }

    #[test]
    fn only_clients_that_make_accounts_get_echoes_and_none_of_health() {
        let serve = |export: &str, number, head: &mut [u8]| {
            let _ = export;
            let mut space = [0_u8; 64];
            let bytes = head.len();
            let lent = Window::empty().into();
            let mut request = Request::new(number, head, bytes, lent).expect("a request");
            let mut reply = Reply::new(Space::of_mut(&mut space), None);
            built_in(&mut request, &mut reply, number).map_err(|refusal| refusal.kind)
        };
        let refused = Err(Kind::NoSuchProcedure);
        assert_eq!(serve("none", BEGIN, &mut []), refused, "no call is running");
        for (export, served) in [(HEALTH_NAME, refused), ("files", Ok(()))] {
            let info = Arc::new(CallerInfo::stranger(PathKind::Udp, export));
            tell_caller(Some(Arc::clone(&info)));
            serve_call(1, 1);
            assert_eq!(serve(export, ECHO, &mut []), refused, "the account has not begun");
            for number in [BEGIN, TAKE, ECHO, END] {
                assert_eq!(serve(export, number, &mut []), served, "{export}: {number:x}");
            }
            assert_eq!(serve(export, ECHO, &mut []), refused, "the account has ended");
            leave_call();
            tell_caller(None);
        }
    }

    #[test]
    fn records_are_bounded_and_taken_once() {
        let account = ClientAccount::default();
        account.add([1; STEPS]);
        assert!(account.take(9).is_empty(), "no account has begun");
        account.begin().unwrap();
        let record = |at| {
            let mut stamps = [0; STEPS];
            (stamps[1], stamps[4]) = (7000, 7000 + at);
            stamps
        };
        (0..RECORDS_MAX as u64 + 3).for_each(|at| account.add(record(at)));
        let bytes = STEPS * 8;
        assert_eq!(account.take(2).len(), 2 * bytes);
        let rest = account.take(usize::MAX);
        assert_eq!(rest.len(), (RECORDS_MAX - 2) * bytes);
        let third: Vec<_> = rest[..bytes].chunks(8).map(|word| word[0]).collect();
        assert_eq!(third, [0, 1, 0, 0, 3, 0, 0, 0, 0, 0], "times count from the first step");
        account.begin().unwrap();
        assert!(account.take(9).is_empty());
        account.add([1; STEPS]);
        account.end();
        assert!(account.take(9).is_empty() && !account.is_begun());
    }
}
