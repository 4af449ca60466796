//! [`Sink`]: a parameter whose items the procedure sends, and the caller receives.

use core::future::poll_fn;
use core::ops::ControlFlow;
use core::task::{Context, Poll, Waker};

use super::channel::{Items, QueueSender, channel};
use super::remote::{CHECK_EVERY, RemoteSink};
use crate::call::pending::park;
use crate::error::{CallError, Executed, Kind};

/// One end of a stream has stopped, for this reason.
#[derive(Clone, Debug)]
pub(crate) struct Stopped(pub(crate) String);

impl Stopped {
    /// Returns the error of a call whose source cannot make all items.
    #[cold]
    pub(crate) fn into_error(self) -> CallError {
        let text = format!("the items are not complete: {}", self.0);
        CallError::new(Kind::Stopped, Executed::Maybe, text)
    }
}

/// What receives the items of a sink at its caller.
pub(crate) trait Receive<T>: Send {
    /// Returns whether the next item can be received. If not, the waker of `context` is woken later.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Stopped>>;

    /// Receives an item. The caller has asked [`poll_ready`](Self::poll_ready).
    fn receive(&mut self, item: T) -> Result<(), Stopped>;

    /// Returns why no more items are wanted. If they are wanted, `waker` is woken when this changes.
    fn stopped(&self, waker: Option<&Waker>) -> Option<Stopped>;
}

/// A parameter of a procedure that sends items to its caller while the call runs.
///
/// The caller makes a sink from a [closure](Self::new), from a vector, or as a [channel](Self::channel),
/// whose other end is an iterator. The procedure [sends](Self::send) items. Each item arrives once, and in
/// order. The sink ends when the procedure drops it. The call returns after all items have been received,
/// also if the procedure returns an error or panics.
///
/// If [`STREAM_WINDOW`](crate::limits::STREAM_WINDOW) bytes of items were sent and not taken by the caller,
/// the procedure waits. An encoded item may have almost this size.
///
/// A procedure may pass its sink on to a call that it makes itself. If an object's method is called directly,
/// without a client, the receiver gets each item at once.
///
/// ```
/// use peregrine::{Sink, interface};
///
/// #[interface]
/// trait Numbers {
///     /// Sends all numbers below `end`.
///     fn count(&self, end: u32, numbers: Sink<'_, u32>) -> peregrine::Result<()>;
/// }
///
/// struct Counter;
/// impl Numbers for Counter {
///     fn count(&self, end: u32, mut numbers: Sink<'_, u32>) -> peregrine::Result<()> {
///         (0..end).try_for_each(|number| numbers.send(number))
///     }
/// }
///
/// let client = NumbersClient::in_process(Counter);
/// let mut sum = 0;
/// client.count(5, Sink::new(|number| sum += number))?;
/// assert_eq!(sum, 10);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Sink<'a, T>(End<'a, T>);

enum End<'a, T> {
    /// The caller's end.
    Caller(Box<dyn Receive<T> + 'a>),
    /// The procedure's end.
    Procedure(RemoteSink<T>),
}

/// Receives items with a closure.
struct Closure<F> {
    receive: F,
    has_enough: bool,
}

impl<T, F: FnMut(T) -> ControlFlow<()> + Send> Receive<T> for Closure<F> {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Stopped>> {
        Poll::Ready(Ok(()))
    }

    fn receive(&mut self, item: T) -> Result<(), Stopped> {
        self.has_enough = (self.receive)(item).is_break();
        self.stopped(None).map_or(Ok(()), Err)
    }

    fn stopped(&self, _: Option<&Waker>) -> Option<Stopped> {
        self.has_enough.then(|| Stopped("it has enough".into()))
    }
}

impl<'a, T> Sink<'a, T> {
    /// Makes a sink that calls `receive` with each item, on the thread that makes the call. While the closure
    /// runs, no other stream of this call moves. With an async client, the closure runs when the future is
    /// polled, and must not block. If the closure panics, the call is given up.
    pub fn new(mut receive: impl FnMut(T) + Send + 'a) -> Self {
        Self::until(move |item| {
            receive(item);
            ControlFlow::Continue(())
        })
    }

    /// Makes a sink as [`new`](Self::new) does, but stops when `receive` returns [`ControlFlow::Break`]. Soon
    /// after, [`send`](Self::send) fails with [`Kind::Stopped`] in the procedure. When the procedure has
    /// ended, the call returns the result of the procedure.
    ///
    /// ```
    /// use std::ops::ControlFlow;
    ///
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
    /// let client = NumbersClient::in_process(Counter);
    /// let mut first = Vec::new();
    /// client.count(
    ///     1_000_000_000,
    ///     Sink::until(|number| {
    ///         first.push(number);
    ///         if first.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    ///     }),
    /// )?;
    /// assert_eq!(first, [0, 1, 2]);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn until(receive: impl FnMut(T) -> ControlFlow<()> + Send + 'a) -> Self {
        Self(End::Caller(Box::new(Closure { receive, has_enough: false })))
    }

    pub(super) fn of_procedure(end: RemoteSink<T>) -> Self {
        Self(End::Procedure(end))
    }

    /// Returns what receives the items of a call to which this sink is passed.
    pub(crate) fn into_receive(self) -> Box<dyn Receive<T> + 'a>
    where
        T: Send + 'a,
    {
        match self.0 {
            End::Caller(receive) => receive,
            End::Procedure(remote) => Box::new(remote),
        }
    }

    fn poll_send(
        &mut self,
        item: &mut Option<T>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CallError>> {
        match &mut self.0 {
            End::Caller(receive) => receive.poll_ready(context).map(|ready| {
                let item = item.take().expect("an item is sent once");
                ready.and_then(|()| receive.receive(item)).map_err(|Stopped(reason)| {
                    let text = format!("the receiver wants no more items: {reason}");
                    CallError::new(Kind::Stopped, Executed::Maybe, text)
                })
            }),
            End::Procedure(remote) => remote.poll_room(context).map(|room| {
                room?;
                remote.add(&item.take().expect("an item is sent once"))
            }),
        }
    }

    /// Sends an item. Blocks the thread while the caller has not taken enough of the earlier items. Returns
    /// before the caller has taken the item.
    ///
    /// # Errors
    /// * [`Kind::Stopped`] if the caller wants no more items, or has given up the call. The text says how
    ///   many items the caller has taken at least.
    /// * [`Kind::TooLarge`] if the item does not fit a message. Further items may be sent.
    /// * Other kinds if the caller is gone, or the server stops.
    pub fn send(&mut self, item: T) -> Result<(), CallError> {
        let mut item = Some(item);
        park(Some(CHECK_EVERY), |context| self.poll_send(&mut item, context))
    }

    /// Sends an item as [`send`](Self::send) does, but waits without blocking the thread. If the future is
    /// dropped before it completes, the item is not sent.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub async fn send_async(&mut self, item: T) -> Result<(), CallError> {
        let mut item = Some(item);
        poll_fn(|context| self.poll_send(&mut item, context)).await
    }

    fn has_stopped(&self, waker: Option<&Waker>) -> bool {
        match &self.0 {
            End::Caller(receive) => receive.stopped(waker).is_some(),
            End::Procedure(remote) => remote.stopped(waker).is_some(),
        }
    }

    /// Returns whether items would not reach the caller, because the caller wants no more of them, has given
    /// up the call, or is gone. A procedure that waits long for its next item calls this function meanwhile.
    ///
    /// ```
    /// use std::sync::mpsc::{Receiver, RecvTimeoutError};
    /// use std::time::Duration;
    ///
    /// use peregrine::Sink;
    ///
    /// /// Sends what arrives in `news` until the reader has gone.
    /// fn relay(news: &Receiver<u32>, mut sink: Sink<'_, u32>) -> peregrine::Result<()> {
    ///     while !sink.is_stopped() {
    ///         match news.recv_timeout(Duration::from_millis(100)) {
    ///             Ok(number) => sink.send(number)?,
    ///             Err(RecvTimeoutError::Timeout) => {}
    ///             Err(RecvTimeoutError::Disconnected) => break,
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let (_sender, news) = std::sync::mpsc::channel();
    /// let (sink, reader) = Sink::channel(1);
    /// std::thread::scope(|scope| {
    ///     let relay = scope.spawn(move || relay(&news, sink));
    ///     drop(reader);
    ///     relay.join().unwrap()
    /// })?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn is_stopped(&self) -> bool {
        self.has_stopped(None)
    }

    /// Waits until [`is_stopped`](Self::is_stopped) returns true, without blocking the thread.
    ///
    /// ```
    /// use futures_lite::FutureExt;
    /// use peregrine::Sink;
    ///
    /// /// Sends what arrives in `news` until the reader has gone.
    /// async fn relay(
    ///     news: impl Fn() -> std::pin::Pin<Box<dyn Future<Output = Option<u32>>>>,
    ///     mut sink: Sink<'_, u32>,
    /// ) -> peregrine::Result<()> {
    ///     let gone = async |sink: &mut Sink<'_, u32>| {
    ///         sink.stopped().await;
    ///         None
    ///     };
    ///     while let Some(number) = news().or(gone(&mut sink)).await {
    ///         sink.send_async(number).await?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let (sink, reader) = Sink::channel(1);
    /// drop(reader);
    /// futures_lite::future::block_on(relay(|| Box::pin(std::future::pending()), sink))?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub async fn stopped(&mut self) {
        let sink = self;
        // The closure has the only reference to the sink, so the future can be sent to other threads.
        poll_fn(move |context| match sink.has_stopped(Some(context.waker())) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

impl<T: Send + 'static> Sink<'static, T> {
    /// Makes a sink, and an iterator over its items for another thread or task. With the feature `async`, the
    /// iterator is also a stream. At most `capacity` items wait for the iterator, or one if `capacity` is 0.
    /// The call returns when all other items were taken, or when the iterator is dropped.
    ///
    /// ```
    /// # use peregrine::interface;
    /// use peregrine::Sink;
    ///
    /// # #[interface]
    /// # trait Numbers { fn count(&self, end: u32, numbers: Sink<'_, u32>) -> peregrine::Result<()>; }
    /// # struct Counter;
    /// # impl Numbers for Counter {
    /// #     fn count(&self, end: u32, mut numbers: Sink<'_, u32>) -> peregrine::Result<()> {
    /// #         (0..end).try_for_each(|number| numbers.send(number))
    /// #     }
    /// # }
    /// let client = NumbersClient::in_process(Counter);
    /// let (sink, numbers) = Sink::channel(16);
    /// std::thread::scope(|scope| {
    ///     let call = scope.spawn(|| client.count(100, sink));
    ///     assert_eq!(numbers.sum::<u32>(), 4950);
    ///     call.join().unwrap()
    /// })?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn channel(capacity: usize) -> (Self, Items<T>) {
        let (sender, receiver) = channel(capacity);
        let sender: QueueSender<T> = sender;
        (Self(End::Caller(Box::new(sender))), Items(receiver))
    }
}

impl<'a, T: Send> From<&'a mut Vec<T>> for Sink<'a, T> {
    /// Makes a sink that appends the items to a vector.
    ///
    /// ```
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
    /// let client = NumbersClient::in_process(Counter);
    /// let mut numbers = Vec::new();
    /// client.count(3, Sink::from(&mut numbers))?;
    /// assert_eq!(numbers, [0, 1, 2]);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    fn from(items: &'a mut Vec<T>) -> Self {
        Self::new(|item| items.push(item))
    }
}

impl<T> core::fmt::Debug for Sink<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sink").finish_non_exhaustive()
    }
}
