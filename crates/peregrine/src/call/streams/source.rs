//! [`Source`]: a parameter whose items the caller sends, and the procedure receives.

use core::fmt::Display;
use core::future::poll_fn;
use core::task::{Context, Poll};

use super::Stopped;
use super::channel::{QueueReceiver, Sender, channel};
use super::remote::{CHECK_EVERY, RemoteSource};
use crate::call::pending::park;
use crate::error::CallError;
#[cfg(doc)]
use crate::error::Kind;

/// The caller's side of a source: makes the items.
pub(crate) trait Produce<T>: Send {
    /// Returns the next item, or `None` after the last one. If no item is ready, the waker of `context` is
    /// woken later. An error says why no more items come, although they are not complete.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, Stopped>>;
}

/// A parameter of a procedure that receives items from its caller while the call runs.
///
/// The caller makes a source from an [iterator](Self::new), from a stream of async code, or as a
/// [channel](Self::channel), whose other end sends items. The procedure takes items by [`next`](Self::next),
/// or as an iterator. Each item arrives once, and in order. The procedure may end without taking all items.
/// For the call this is no error.
///
/// If [`STREAM_WINDOW`](crate::limits::STREAM_WINDOW) bytes of items were sent and not taken by the
/// procedure, the caller waits. An encoded item may have almost this size. A larger item ends the call with
/// [`Kind::TooLarge`](crate::Kind::TooLarge).
///
/// A procedure may pass its source on to a call that it makes itself. If an object's method is called
/// directly, without a client, the method takes the items directly from the iterator.
///
/// ```
/// use peregrine::{Source, interface};
///
/// #[interface]
/// trait Sums {
///     /// Returns the sum of all numbers.
///     fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u64>;
/// }
///
/// struct Adder;
/// impl Sums for Adder {
///     fn sum(&self, mut numbers: Source<'_, u32>) -> peregrine::Result<u64> {
///         let mut sum = 0;
///         while let Some(number) = numbers.next()? {
///             sum += u64::from(number);
///         }
///         Ok(sum)
///     }
/// }
///
/// let client = SumsClient::in_process(Adder);
/// assert_eq!(client.sum(Source::new(0..100))?, 4950);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Source<'a, T>(End<'a, T>);

enum End<'a, T> {
    /// The caller's end.
    Caller(Box<dyn Produce<T> + 'a>),
    /// The procedure's end.
    Procedure(RemoteSource<T>),
}

/// Makes items with an iterator.
struct Iterated<I>(I);

impl<I: Iterator + Send> Produce<I::Item> for Iterated<I> {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<I::Item>, Stopped>> {
        Poll::Ready(Ok(self.0.next()))
    }
}

/// Makes items with an iterator that can fail.
struct Fallible<I>(I);

impl<T, E: Display, I: Iterator<Item = Result<T, E>> + Send> Produce<T> for Fallible<I> {
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Result<Option<T>, Stopped>> {
        Poll::Ready(self.0.next().transpose().map_err(|error| Stopped(error.to_string())))
    }
}

#[cfg(feature = "async")]
struct Streamed<S>(core::pin::Pin<Box<S>>);

#[cfg(feature = "async")]
impl<S: futures_core::Stream + Send> Produce<S::Item> for Streamed<S> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<S::Item>, Stopped>> {
        self.0.as_mut().poll_next(context).map(Ok)
    }
}

impl<'a, T> Source<'a, T> {
    /// Makes a source from an iterator, which runs on the thread that makes the call. While the iterator
    /// makes an item, no other stream of this call moves. With an async client, the iterator runs when the
    /// future is polled, and must not block. The iterator need not end. It may be asked for more items than
    /// the procedure takes. If the iterator panics, the call is given up.
    pub fn new<I>(items: I) -> Self
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'a,
    {
        Self(End::Caller(Box::new(Iterated(items.into_iter()))))
    }

    /// Makes a source from an iterator that can fail, such as one that reads a file. After the first error,
    /// the call fails with [`Kind::Stopped`] and the text of the error, and the procedure learns that the
    /// items are not complete.
    ///
    /// ```
    /// # use peregrine::interface;
    /// use peregrine::Source;
    ///
    /// # #[interface]
    /// # trait Sums { fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u64>; }
    /// # struct Adder;
    /// # impl Sums for Adder {
    /// #     fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u64> {
    /// #         numbers.map(|number| number.map(u64::from)).sum()
    /// #     }
    /// # }
    /// let client = SumsClient::in_process(Adder);
    /// let numbers = |text: &'static str| Source::fallible(text.lines().map(str::parse::<u32>));
    /// assert_eq!(client.sum(numbers("1\n2"))?, 3);
    /// let error = client.sum(numbers("1\ntwo")).unwrap_err();
    /// assert_eq!(error.kind(), peregrine::Kind::Stopped);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn fallible<I, E: Display>(items: I) -> Self
    where
        I: IntoIterator<Item = Result<T, E>>,
        I::IntoIter: Send + 'a,
    {
        Self(End::Caller(Box::new(Fallible(items.into_iter()))))
    }

    /// Makes a source from a stream, which is polled on the thread that makes the call. Needs the feature
    /// `async`.
    ///
    /// ```
    /// use peregrine::Source;
    ///
    /// # use peregrine::interface;
    /// # #[interface]
    /// # trait Sums { fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u32>; }
    /// # struct Adder;
    /// # impl Sums for Adder {
    /// #     fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u32> {
    /// #         numbers.sum()
    /// #     }
    /// # }
    /// let client = SumsClient::in_process(Adder);
    /// let numbers = futures_lite::stream::iter([1, 2, 3]);
    /// assert_eq!(client.sum(Source::stream(numbers))?, 6);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    #[cfg(feature = "async")]
    pub fn stream(items: impl futures_core::Stream<Item = T> + Send + 'a) -> Self {
        Self(End::Caller(Box::new(Streamed(Box::pin(items)))))
    }

    pub(super) fn of_procedure(end: RemoteSource<T>) -> Self {
        Self(End::Procedure(end))
    }

    /// Returns what makes the items of a call to which this source is passed.
    pub(crate) fn into_produce(self) -> Box<dyn Produce<T> + 'a>
    where
        T: Send + 'a,
    {
        match self.0 {
            End::Caller(produce) => produce,
            End::Procedure(remote) => Box::new(remote),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, CallError>> {
        match &mut self.0 {
            End::Caller(produce) => produce.poll_next(context).map_err(Stopped::into_error),
            End::Procedure(remote) => remote.poll_take(context),
        }
    }

    /// Takes the next item, or returns `None` after the last one. Blocks the thread while no item has
    /// arrived.
    ///
    /// # Errors
    /// * [`Kind::Stopped`](crate::Kind::Stopped) if the caller has given up the call before its last item.
    /// * [`Kind::BadArguments`](crate::Kind::BadArguments) if an item is invalid. Compiled clients never send
    ///   such items.
    /// * Other kinds if the caller is gone, or the server stops.
    #[expect(clippy::should_implement_trait, reason = "`?` can be used for each item")]
    pub fn next(&mut self) -> Result<Option<T>, CallError> {
        park(Some(CHECK_EVERY), |context| self.poll_next(context))
    }

    /// Takes the next item as [`next`](Self::next) does, but waits without blocking the thread. If the future
    /// is dropped before it completes, no item is lost.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<Option<T>, CallError> {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl<T> Iterator for Source<'_, T> {
    type Item = Result<T, CallError>;

    /// Takes the next item as [`next`](Source::next) does. The iterator does not end after an error.
    fn next(&mut self) -> Option<Self::Item> {
        Source::next(self).transpose()
    }
}

impl<T: Send + 'static> Source<'static, T> {
    /// Makes a source, and a sender of its items for another thread or task. At most `capacity` items wait to
    /// be encoded for the call, or one if `capacity` is 0. The source ends when the sender is dropped.
    ///
    /// ```
    /// use peregrine::Source;
    ///
    /// # use peregrine::interface;
    /// # #[interface]
    /// # trait Sums { fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u32>; }
    /// # struct Adder;
    /// # impl Sums for Adder {
    /// #     fn sum(&self, numbers: Source<'_, u32>) -> peregrine::Result<u32> {
    /// #         numbers.sum()
    /// #     }
    /// # }
    /// let client = SumsClient::in_process(Adder);
    /// let (numbers, mut sender) = Source::channel(16);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(move || (0..100).try_for_each(|number| sender.send(number)));
    ///     assert_eq!(client.sum(numbers)?, 4950);
    ///     Ok::<(), peregrine::CallError>(())
    /// })?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn channel(capacity: usize) -> (Self, Sender<T>) {
        let (sender, receiver) = channel(capacity);
        let receiver: QueueReceiver<T> = receiver;
        (Self(End::Caller(Box::new(receiver))), Sender(sender))
    }
}

impl<T> core::fmt::Debug for Source<'_, T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}
