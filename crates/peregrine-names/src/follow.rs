//! The watches of a client of a name service. Each has a thread, which follows one name.

use core::ops::ControlFlow;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, Thread, ThreadId};

use peregrine::directory::{Offers, Standing, Watcher};
use peregrine::{Address, BindOptions, CallError, Executed, Kind, Phase, Sink};

use crate::client::{self, HOPS, Names, hops};
use crate::interface::{NameWatchAsync, NameWatchAsyncClient, NameWatchClient, watch_name};

/// The pauses after attempts without an answer.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// How long the end of a watch waits for a watcher that runs.
const END_LIMIT: Duration = Duration::from_secs(1);

/// A watch, as both sides see it.
#[derive(Default)]
struct Watch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_ended: bool,
    has_stopped: bool,
    thread: Option<ThreadId>,
    waker: Option<Waker>,
    problem: Option<String>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the watch. Waits for a while for the end of a watcher that runs on another thread.
    fn end(&self) {
        let mut state = self.state();
        state.is_ended = true;
        let waker = state.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
        self.changed.notify_all();
        if state.thread == Some(thread::current().id()) {
            return;
        }
        let stopped = self.changed.wait_timeout_while(state, END_LIMIT, |state| !state.has_stopped);
        drop(stopped);
    }

    fn is_ended(&self) -> bool {
        self.state().is_ended
    }

    /// Waits, unless the watch ends.
    fn pause(&self, time: Duration) {
        let state = self.state();
        drop(self.changed.wait_timeout_while(state, time, |state| !state.is_ended));
    }

    fn poll_end(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.is_ended {
            return Poll::Ready(());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Where a watch finds the name service.
struct Place {
    address: String,
    options: BindOptions,
    hops: Option<String>,
    name: String,
    /// Where the client keeps what is known.
    state: Arc<Mutex<client::State>>,
}

/// Returns the address of the watches of the name service at `address`.
fn watch_address(address: &Address) -> String {
    let (export, text) = (watch_name(address.name()), address.to_string());
    let scheme = address.path().and_then(|_| text.split_once(':'));
    let scheme = scheme.map_or_else(String::new, |(scheme, _)| format!("{scheme}:"));
    match address.place() {
        Some(place) => format!("{scheme}{export}@{place}"),
        None => format!("{scheme}{export}"),
    }
}

/// Begins to follow a name.
///
/// # Errors
/// If no thread can be started.
pub(crate) fn begin(names: &Names, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
    let address = watch_address(&names.address.parse()?);
    let (options, name) = (names.options.clone(), name.to_owned());
    let place = Place { address, options, hops: hops(), name, state: Arc::clone(&names.state) };
    let watch = Arc::<Watch>::default();
    let own = Arc::clone(&watch);
    let thread = thread::Builder::new().name("peregrine-watch".to_owned());
    let started = thread.spawn(move || {
        own.state().thread = Some(thread::current().id());
        follow(&own, &place, watcher);
        own.state().has_stopped = true;
        own.changed.notify_all();
    });
    started.map_err(|error| {
        let text = format!("cannot start the thread of a watch: {error}");
        CallError::new(Kind::Exhausted, Executed::No, text).in_phase(Phase::Resolve)
    })?;
    let ends = Arc::clone(&watch);
    Ok(Standing::new(move || ends.end(), move || watch.state().problem.clone()))
}

/// Follows a name until the watch ends.
fn follow(watch: &Watch, place: &Place, mut watcher: Watcher) {
    let mut pause = PAUSES[0];
    while !watch.is_ended() {
        let mut has_answered = false;
        let mut seen = |offers: Offers| {
            has_answered = true;
            let called = catch_unwind(AssertUnwindSafe(|| watcher(offers)));
            let panicked = called.is_err().then(|| "the watcher panicked".to_owned());
            watch.state().problem = panicked;
        };
        let why = match attempt(watch, place, &mut seen) {
            Ok(()) => "the name service has ended the watch".to_owned(),
            Err(error) => error.chain(),
        };
        watch.state().problem = Some(why);
        pause = if has_answered { PAUSES[0] } else { (pause * 2).min(PAUSES[1]) };
        watch.pause(pause);
    }
}

/// Follows a name until the name service ends the call, or the watch ends.
fn attempt(
    watch: &Watch,
    place: &Place,
    seen: &mut (impl FnMut(Offers) + Send),
) -> Result<(), CallError> {
    let client = NameWatchClient::bind_with(&place.address, &place.options)?;
    let client = match &place.hops {
        Some(hops) => client.with_metadata(HOPS, hops)?,
        None => client,
    };
    let client = NameWatchAsyncClient::from(client);
    let sink = Sink::until(|known: crate::interface::Known| {
        if watch.is_ended() {
            return ControlFlow::Break(());
        }
        let offers = known.to_offers();
        client::keep(&place.state, &place.name, &offers, known.is_ordered);
        seen(offers);
        ControlFlow::Continue(())
    });
    let mut call = pin!(client.watch(&place.name, sink));
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(made) = call.as_mut().poll(&mut context) {
            return made.map_err(|error| error.into_call_error());
        }
        // The call is given up when it is dropped.
        if watch.poll_end(&context).is_ready() {
            return Ok(());
        }
        thread::park();
    }
}

/// Wakes the thread of a watch.
struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_are_at_the_place_of_the_name_service() {
        for (address, watches) in [
            ("names", "names.watch"),
            ("local:names", "local:names.watch"),
            ("names@names.example.org", "names.watch@names.example.org:7193"),
            ("tcp:names@names.example.org:7000", "tcp:names.watch@names.example.org:7000"),
            ("tcp:names.example.org:7000/names", "tcp:names.watch@names.example.org:7000"),
            ("udp:[::1]:7000/udp", "udp:udp.watch@[::1]:7000"),
        ] {
            let found = watch_address(&address.parse().unwrap());
            assert_eq!(found.parse::<Address>().unwrap(), watches.parse().unwrap(), "{address}");
        }
    }
}
