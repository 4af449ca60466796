//! [`Source`]: a parameter whose items the caller sends, and the procedure receives.

use core::future::poll_fn;
use core::task::{Context, Poll};

use super::channel::{QueueReceiver, Sender, channel};
use super::remote::{CHECK_EVERY, RemoteSource};
use crate::call::pending::park;
use crate::error::CallError;
use crate::value::Value;

/// What makes the items of a source at its caller.
pub(crate) trait Produce<T>: Send {
    /// Returns the next item, or `None` after the last one. If there is none yet, the waker of `context` is woken
    /// later.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<T>>;
}

/// A parameter of a procedure that receives items from its caller while the call runs.
///
/// The caller makes a source from an iterator, from a stream, or from a channel. The procedure [takes](Self::next)
/// the items. If the procedure is slow, the caller waits. Each item arrives once, and in order. The procedure may
/// end without taking all items.
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
    fn poll_next(&mut self, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

#[cfg(feature = "async")]
struct Streamed<S>(core::pin::Pin<Box<S>>);

#[cfg(feature = "async")]
impl<S: futures_core::Stream + Send> Produce<S::Item> for Streamed<S> {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<S::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl<'a, T> Source<'a, T> {
    /// Makes a source from an iterator. The iterator runs on the thread of the call. Over an async client, it must not
    /// block.
    pub fn new<I>(items: I) -> Self
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'a,
    {
        Self(End::Caller(Box::new(Iterated(items.into_iter()))))
    }

    /// Makes a source from a stream.
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
        T: Value + Send + 'a,
    {
        match self.0 {
            End::Caller(produce) => produce,
            End::Procedure(remote) => Box::new(remote),
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<T>, CallError>>
    where
        T: Value,
    {
        match &mut self.0 {
            End::Caller(produce) => produce.poll_next(context).map(Ok),
            End::Procedure(remote) => remote.poll_take(context),
        }
    }

    /// Takes the next item, or returns `None` after the last one. Blocks the thread while there is none.
    ///
    /// # Errors
    /// If the caller has given up the call or does not exist any more, or an item is invalid.
    #[expect(clippy::should_implement_trait, reason = "`?` can be used for each item")]
    pub fn next(&mut self) -> Result<Option<T>, CallError>
    where
        T: Value,
    {
        park(Some(CHECK_EVERY), |context| self.poll_next(context))
    }

    /// Takes the next item, as [`next`](Self::next) does, but does not block the thread.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub async fn next_async(&mut self) -> Result<Option<T>, CallError>
    where
        T: Value,
    {
        poll_fn(|context| self.poll_next(context)).await
    }
}

impl<T: Value> Iterator for Source<'_, T> {
    type Item = Result<T, CallError>;

    /// Takes the next item as [`next`](Source::next) does.
    fn next(&mut self) -> Option<Self::Item> {
        Source::next(self).transpose()
    }
}

impl<T: Send + 'static> Source<'static, T> {
    /// Makes a source, and a sender of its items for another thread or task. At most `capacity` items, and at least
    /// one, wait for the call.
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
