//! A queue of items between a stream and another thread or task.

use core::fmt::Display;
use core::future::poll_fn;
use core::task::{Context, Poll, Waker, ready};
use std::collections::VecDeque;
use std::sync::Arc;

use super::{Produce, Receive, Stopped};
use crate::call::pending::park;
#[cfg(doc)]
use crate::error::Kind;
use crate::sync::Mutex;

/// A queue with one sender and one receiver.
struct Queue<T>(Mutex<State<T>>);

struct State<T> {
    items: VecDeque<T>,
    /// The number of items at which the queue is full.
    capacity: usize,
    /// Whether the sender exists.
    has_sender: bool,
    /// Whether the receiver exists.
    has_receiver: bool,
    /// Why the sender has ended the items before they were complete. `None` if it has not done so.
    failure: Option<Stopped>,
    /// The waker of the receiver, if it waits for an item.
    receives: Option<Waker>,
    /// The waker of the sender, if it waits until the queue is not full.
    sends: Option<Waker>,
    /// The waker of a sender that waits until the receiver is dropped.
    stops: Option<Waker>,
}

/// Returns both ends of a queue that has room for `capacity` items, or for one item if `capacity` is 0.
pub(super) fn channel<T>(capacity: usize) -> (QueueSender<T>, QueueReceiver<T>) {
    let queue = Arc::new(Queue(Mutex::new(State {
        items: VecDeque::new(),
        capacity: capacity.max(1),
        has_sender: true,
        has_receiver: true,
        failure: None,
        receives: None,
        sends: None,
        stops: None,
    })));
    (QueueSender(Arc::clone(&queue)), QueueReceiver(queue))
}

pub(super) struct QueueSender<T>(Arc<Queue<T>>);

pub(super) struct QueueReceiver<T>(Arc<Queue<T>>);

fn register(known: &mut Option<Waker>, waker: &Waker) {
    match known {
        Some(known) => known.clone_from(waker),
        none => *none = Some(waker.clone()),
    }
}

#[cold]
fn dropped() -> Stopped {
    Stopped("the receiver of the items was dropped".into())
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> QueueSender<T> {
    /// Returns whether there is room for an item. Fails if there is no receiver.
    fn poll_room(&self, context: &Context<'_>) -> Poll<Result<(), Stopped>> {
        let mut state = self.0.0.lock();
        if !state.has_receiver {
            return Poll::Ready(Err(dropped()));
        }
        if state.items.len() < state.capacity {
            return Poll::Ready(Ok(()));
        }
        register(&mut state.sends, context.waker());
        Poll::Pending
    }

    fn push(&self, item: T) {
        let mut state = self.0.0.lock();
        state.items.push_back(item);
        let waker = state.receives.take();
        drop(state);
        wake(waker);
    }
}

impl<T> Drop for QueueSender<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.has_sender = false;
        let waker = state.receives.take();
        drop(state);
        wake(waker);
    }
}

impl<T> QueueReceiver<T> {
    fn poll_next(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.0.lock();
        if let Some(item) = state.items.pop_front() {
            let waker = state.sends.take();
            drop(state);
            wake(waker);
            return Poll::Ready(Some(item));
        }
        if !state.has_sender {
            return Poll::Ready(None);
        }
        register(&mut state.receives, context.waker());
        Poll::Pending
    }
}

impl<T> Drop for QueueReceiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.has_receiver = false;
        let items = core::mem::take(&mut state.items);
        let wakers = [state.sends.take(), state.stops.take()];
        drop(state);
        drop(items);
        wakers.into_iter().for_each(wake);
    }
}

impl<T: Send> Receive<T> for QueueSender<T> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        self.poll_room(context)
    }

    fn receive(&mut self, item: T) -> Result<(), Stopped> {
        self.push(item);
        Ok(())
    }

    fn stopped(&self, waker: Option<&Waker>) -> Option<Stopped> {
        let mut state = self.0.0.lock();
        if let Some(waker) = waker.filter(|_| state.has_receiver) {
            register(&mut state.stops, waker);
        }
        (!state.has_receiver).then(dropped)
    }
}

impl<T: Send> Produce<T> for QueueReceiver<T> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, Stopped>> {
        let next = ready!(Self::poll_next(self, context));
        // The receiver gets all items that were sent before the failure, and then the failure.
        let failure = if next.is_none() { self.0.0.lock().failure.clone() } else { None };
        Poll::Ready(failure.map_or(Ok(next), Err))
    }
}

/// The items that a caller receives from a [`Sink`](crate::Sink) on any thread or task, as an iterator. With
/// the feature `async` it is also a stream. [`Sink::channel`](crate::Sink::channel) has an example.
///
/// The iterator ends after the last item, and also if the call fails or is never made. The result of the call
/// says whether the procedure has sent all items. If this value is dropped, the procedure learns that its
/// caller wants no more items.
///
/// ```
/// use futures_lite::future::{block_on, zip};
/// use peregrine::Sink;
///
/// # use peregrine::interface;
/// # #[interface]
/// # trait Numbers { fn count(&self, end: u32, numbers: Sink<'_, u32>) -> peregrine::Result<()>; }
/// # struct Counter;
/// # impl Numbers for Counter {
/// #     fn count(&self, end: u32, mut numbers: Sink<'_, u32>) -> peregrine::Result<()> {
/// #         let _ = (0..end).try_for_each(|number| numbers.send(number));
/// #         Ok(())
/// #     }
/// # }
/// let client = NumbersAsyncClient::from(NumbersClient::in_process(Counter));
/// let (sink, mut numbers) = Sink::channel(16);
/// let sum = async {
///     let mut sum = 0;
///     while let Some(number) = numbers.next_async().await {
///         sum += number;
///     }
///     sum
/// };
/// let (counted, sum) = block_on(zip(client.count(100, sink), sum));
/// counted?;
/// assert_eq!(sum, 4950);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Items<T>(pub(super) QueueReceiver<T>);

impl<T> Items<T> {
    /// Waits for the next item without blocking the thread. Returns `None` after the last one. If the future
    /// is dropped before it completes, no item is lost.
    pub async fn next_async(&mut self) -> Option<T> {
        poll_fn(|context| self.0.poll_next(context)).await
    }
}

impl<T> Iterator for Items<T> {
    type Item = T;

    /// Waits for the next item, and blocks the thread meanwhile. Returns `None` after the last one.
    fn next(&mut self) -> Option<T> {
        park(None, |context| self.0.poll_next(context))
    }
}

#[cfg(feature = "async")]
impl<T> futures_core::Stream for Items<T> {
    type Item = T;

    fn poll_next(self: core::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_next(context)
    }
}

impl<T> core::fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Items").finish_non_exhaustive()
    }
}

/// Sends items to a [`Source`](crate::Source) from any thread or task. The source ends when this value is
/// dropped.
/// [`Source::channel`](crate::Source::channel) has an example.
pub struct Sender<T>(pub(super) QueueSender<T>);

impl<T> Sender<T> {
    /// Sends an item. Blocks the thread while the queue is full. Returns before the procedure has taken the
    /// item.
    ///
    /// # Errors
    /// Returns the item if the procedure wants no more items, or the call has ended or is never made. In
    /// these cases, items that were sent earlier may not have arrived.
    pub fn send(&mut self, item: T) -> Result<(), T> {
        match park(None, |context| self.0.poll_room(context)) {
            Ok(()) => {
                self.0.push(item);
                Ok(())
            }
            Err(Stopped(_)) => Err(item),
        }
    }

    /// Sends an item as [`send`](Self::send) does, but waits without blocking the thread. If the future is
    /// dropped before it completes, the item is not sent.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_async(&mut self, item: T) -> Result<(), T> {
        match poll_fn(|context| self.0.poll_room(context)).await {
            Ok(()) => {
                self.0.push(item);
                Ok(())
            }
            Err(Stopped(_)) => Err(item),
        }
    }

    /// Ends the source although its items are not complete. The call fails with [`Kind::Stopped`] and
    /// `reason`. The procedure learns that the items are not complete.
    pub fn fail(self, reason: impl Display) {
        self.0.0.0.lock().failure = Some(Stopped(reason.to_string()));
    }
}

impl<T> core::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
