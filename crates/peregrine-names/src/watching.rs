//! [`Watched`]: the watches of a name service. A watch occupies no thread of the server.

use core::task::{Poll, Waker};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use peregrine::directory::Offers;
use peregrine::{CallError, Kind, Sink};

use crate::access::Access;
use crate::interface::{Failure, Known, NameWatchAsync, NamesError};
use crate::service::Shared;
use crate::shares::{Holder, Share};

/// What a directory knows about a name now. A watch takes it.
#[derive(Default)]
pub(crate) struct Latest(Mutex<State>);

#[derive(Default)]
struct State {
    /// What is known, and since when.
    known: Option<(Offers, Instant)>,
    /// Whether the watch has not taken it yet.
    is_new: bool,
    waker: Option<Waker>,
}

impl Latest {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a directory knows.
    pub(crate) fn put(&self, offers: Offers) {
        let mut state = self.state();
        let is_same = state.known.as_ref().is_some_and(|(known, _)| *known == offers);
        state.known = Some((offers, Instant::now()));
        if is_same {
            return;
        }
        state.is_new = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Notes that the directory cannot be read: what is known grows old.
    pub(crate) fn grow_old(&self, error: &CallError) {
        let Some((mut offers, since)) = self.state().known.clone() else { return };
        if offers.age.is_none() {
            offers.age = Some(since.elapsed());
            offers.remark(&error.chain());
            self.put(offers);
        }
    }

    fn take(&self, waker: &Waker) -> Option<Offers> {
        let mut state = self.state();
        if !core::mem::take(&mut state.is_new) {
            state.waker = Some(waker.clone());
            return None;
        }
        state.known.as_ref().map(|(offers, _)| offers.clone())
    }
}

/// The object of the export through which clients watch names.
pub(crate) struct Watched(pub(crate) Arc<Shared>);

impl Watched {
    fn place(&self, holder: Holder) -> Result<Share<'_>, Failure> {
        let text = "this name service follows no more names now, or no more for this caller: look the name \
                    up again when you need it";
        self.0.watches.take(holder).ok_or_else(|| Failure::new(Kind::Overloaded, text))
    }
}

impl NameWatchAsync for Watched {
    async fn watch(&self, name: &str, mut changes: Sink<'_, Known>) -> Result<(), NamesError> {
        let shared = &*self.0;
        shared.check(name)?;
        let caller = peregrine::caller();
        let _place = self.place(Holder::of(caller.as_ref()))?;
        let access = Access::of(caller.as_ref());
        let latest = Arc::<Latest>::default();
        let puts = Arc::clone(&latest);
        let watch = shared.directory.watch(name, Box::new(move |offers| puts.put(offers)));
        // The watch lasts until the caller gives up. Then this future is dropped.
        let _watch = match watch {
            Ok(watch) => Some(watch),
            Err(_) => {
                // The directory cannot watch, or does not answer. A look-up finds out which.
                let offers = shared.directory.look_up(name);
                latest.put(offers.map_err(|error| Failure::before(&error))?);
                shared.keeper.read(name, &latest);
                None
            }
        };
        loop {
            let next = {
                let mut stopped = core::pin::pin!(changes.stopped());
                poll_fn(|context| {
                    if stopped.as_mut().poll(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    latest
                        .take(context.waker())
                        .map_or(Poll::Pending, |next| Poll::Ready(Some(next)))
                })
                .await
            };
            let Some(offers) = next else { return Ok(()) };
            changes.send_async(shared.known(offers, access)).await?;
        }
    }
}
