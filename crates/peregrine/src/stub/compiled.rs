//! The runtime of compiled stubs: takes a frame, marshals, makes one virtual call, and unmarshals.
//!
//! These are Firefly's Starter, Transporter and Ender. The virtual call selects the path, so the stub does
//! not branch on the path. The generated code contains only what depends on types. Everything else is here.

use core::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::binding::{Binding, Bound, Picked};
use crate::call::{self, Answer, Call, CallTerms, FrameGuard, Frames, Refusal};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{System, Type};
use crate::value::{
    Block, Invalid, Lent, Native, Out, OutBlock, Overflow, Plain, Reader, Representation, Swap,
    Swapped, Value, Window, Writer,
};

/// A type that a method takes or returns: any [`Value`].
///
/// Generated code names each type by [`Is`](Self::Is), always in the same way and at the same place. If a
/// type is not a value, the compiler therefore reports it only once: the compiler suppresses equal messages.
pub trait Travels {
    /// The type that implements this trait.
    type Is: Value;
}

impl<T: Value> Travels for T {
    type Is = T;
}

/// Like [`Travels`], for the elements of an [`Out`] or a [`Lent`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain: it cannot be copied as one block",
    label = "needs a fixed layout without padding or pointers",
    note = "derive `peregrine::Plain` on it, or use `Vec<{Self}>` by value instead of a buffer"
)]
pub trait TravelsAsBlock {
    /// The type that implements this trait.
    type Is: Plain + Value;
}

#[diagnostic::do_not_recommend]
impl<T: Plain + Value> TravelsAsBlock for T {
    type Is = T;
}

/// The error of a method: a value that can hold a failed call.
#[diagnostic::on_unimplemented(
    message = "a method of an interface cannot fail with `{Self}`",
    label = "cannot hold a failed call",
    note = "every remote call can fail: the error of a method is a `peregrine::Value` that is `From<peregrine::CallError>`",
    note = "return `peregrine::Result<T>`, or derive `peregrine::Value` for `{Self}` and implement `From<peregrine::CallError>`",
    note = "an error of another crate can be neither: wrap it in an enum of your own"
)]
pub trait Failure: Value + From<CallError> {}

#[diagnostic::do_not_recommend]
impl<E: Value + From<CallError>> Failure for E {}

/// The result type of a method of an interface.
#[diagnostic::on_unimplemented(
    message = "a method of an interface cannot return `{Self}`",
    label = "must be a `Result` whose error is `From<CallError>`",
    note = "every remote call can fail: return `peregrine::Result<T>`, or `Result<T, E>` where `E: Value + From<peregrine::CallError>`",
    note = "`T` and `E` must be values: derive `peregrine::Plain` or `peregrine::Value` on types of your own"
)]
pub trait Outcome: Sized {
    /// The type that implements this trait, as in [`Travels`].
    type Is: Outcome<Ok = Self::Ok, Err = Self::Err>;
    /// The type of the value in `Ok`.
    type Ok: Value;
    /// The type of the value in `Err`.
    type Err: Failure;
    /// The description of the type in `Ok`.
    const OK_TYPE: Type = Self::Ok::TYPE;
    /// The description of the type in `Err`.
    const ERR_TYPE: Type = Self::Err::TYPE;
    /// Converts from a `Result`.
    fn from_result(result: Result<Self::Ok, Self::Err>) -> Self;
    /// Converts to a `Result`.
    fn as_result(&self) -> Result<&Self::Ok, &Self::Err>;
}

impl<T: Value, E: Failure> Outcome for Result<T, E> {
    type Is = Self;
    type Ok = T;
    type Err = E;
    #[inline]
    fn from_result(result: Self) -> Self {
        result
    }
    #[inline]
    fn as_result(&self) -> Result<&T, &E> {
        self.as_ref()
    }
}

/// A call that is being made: it has a frame, and its arguments are written to the head one by one.
#[derive(Debug)]
pub struct Stub<'a, R: Representation = Native> {
    bound: &'a Bound,
    terms: CallTerms<'a>,
    frame: FrameGuard<'a>,
    arguments: Arguments<'a, R>,
    /// The number of the procedure at the server.
    procedure: u32,
}

/// The arguments of a call, as they are written to the head one by one.
#[derive(Debug)]
pub struct Arguments<'a, R: Representation = Native> {
    pub(super) head: Writer<'a, R>,
}

impl<'a, R: Representation> Deref for Stub<'a, R> {
    type Target = Arguments<'a, R>;
    #[inline(always)]
    fn deref(&self) -> &Arguments<'a, R> {
        &self.arguments
    }
}

impl<R: Representation> DerefMut for Stub<'_, R> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

/// The destination of one call: the state of its binding, and whether the call must take the slow path. A
/// call reads both only once.
#[derive(Clone, Copy, Debug)]
pub struct CallTarget<'a> {
    binding: &'a Binding,
    bound: &'a Bound,
    is_special: bool,
}

/// Returns the destination of a call.
#[inline(always)]
pub fn target(binding: &Binding) -> CallTarget<'_> {
    let bound = binding.bound.get();
    CallTarget { binding, bound, is_special: bound.is_special() }
}

impl CallTarget<'_> {
    /// Returns the destination of a call that [`call_swapped`] or [`call_foreign`](super::call_foreign)
    /// makes. Both functions read the binding again. If their caller passed a target, the compiler would keep
    /// the target in memory on the fast path, too.
    pub(super) fn special(binding: &Binding) -> CallTarget<'_> {
        CallTarget { binding, bound: binding.bound.get(), is_special: true }
    }

    /// Returns whether to make the call of this procedure by [`call()`] instead of [`call_swapped`] or
    /// [`call_foreign`](super::call_foreign).
    #[inline(always)]
    pub fn is_native(self, procedure: u32) -> bool {
        !self.is_special || self.binding.is_native(procedure)
    }

    /// Returns the other RPC system whose protocol carries the call. `None`: Peregrine's own protocol does.
    #[cold]
    pub(super) fn system(self) -> Option<System> {
        self.binding.now().system()
    }

    /// Returns whether the call takes the fast path.
    #[cold]
    pub fn is_straight(self) -> bool {
        !self.is_special
    }
}

/// Makes a call. The result of the method is what `body` returns, or the error of the call.
///
/// # Errors
/// Any error of a call. The error names the procedure and the address.
#[inline]
pub fn call<O: Outcome>(
    target: CallTarget<'_>,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_>) -> Result<O, CallError>,
) -> O {
    make(target, procedure, body)
}

/// Makes a call like [`call()`], to a server whose values have the non-native byte order.
///
/// # Errors
/// Any error of a call.
#[cold]
#[inline(never)]
pub fn call_swapped<O: Outcome>(
    binding: &Binding,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_, Swapped>) -> Result<O, CallError>,
) -> O {
    make(CallTarget::special(binding), procedure, body)
}

#[inline(always)]
fn make<O: Outcome, R: Representation>(
    target: CallTarget<'_>,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> O {
    made(target, procedure, body).unwrap_or_else(|error| O::from_result(Err(error.into())))
}

/// Makes a call with an outcome of any type. An error names the procedure and the address.
#[inline(always)]
pub(super) fn made<O, R: Representation>(
    target: CallTarget<'_>,
    procedure: u32,
    mut body: impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> Result<O, CallError> {
    let CallTarget { binding, bound, is_special } = target;
    // All waits of the call have the same deadline.
    let terms = binding.terms.begun();
    let mut chosen = None;
    // Generated code has just called `is_native`, and the compiler merges this test with the test there.
    let found = match is_special {
        true => choose(binding, procedure, R::SWAPPED, terms, &mut chosen),
        false => Ok((bound, procedure)),
    };
    let made = match found {
        Ok((at, number)) => attempt(at, terms, number, &mut body).or_else(|error| {
            let chosen = chosen.unwrap_or(Chosen::Known(bound));
            repeat(binding, chosen, terms, procedure, error, &mut body)
        }),
        Err(error) if is_lacking(&error) => match chosen {
            Some(chosen) => repeat(binding, chosen, terms, procedure, error, &mut body),
            None => Err(error),
        },
        Err(error) => Err(error),
    };
    made.map_err(|error| failed(binding, procedure, error))
}

/// Makes one attempt at a call, over the path to which the client is bound.
#[inline(always)]
fn attempt<'a, O, R: Representation>(
    bound: &'a Bound,
    terms: CallTerms<'a>,
    number: u32,
    body: &mut impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> Result<O, CallError> {
    let is_released = |frame| bound.path.is_released(frame);
    if bound.mark.wiped() {
        return Err(forked());
    }
    let Some(frame) = bound.frames.take(|| terms.deadline(), is_released, bound.on_exhausted)
    else {
        return Err(no_frame(&bound.frames));
    };
    let arguments = Arguments { head: Writer::represented(frame.call_space()) };
    let mut stub = Stub { bound, terms, frame, arguments, procedure: number };
    let made = body(&mut stub);
    if let Err(error) = &made
        && (error.executed() == Executed::Maybe || bound.path.captures(stub.frame.index()))
    {
        // The server may still use the frame. The server reports when it has released the frame.
        stub.frame.capture();
    }
    made
}

/// The state on which a call is made, and what keeps it.
enum Chosen<'a> {
    /// The state with which the binding began.
    Known(&'a Bound),
    /// The state of a binding that was bound again.
    Now(Arc<Bound>),
    /// The state of a server of a pool.
    Picked(Picked<'a>),
}

impl Chosen<'_> {
    #[inline(always)]
    fn bound(&self) -> &Bound {
        match self {
            Self::Known(bound) => bound,
            Self::Now(bound) => bound,
            Self::Picked(picked) => picked.bound(),
        }
    }
}

/// Chooses the state for a call over a binding of a pool, or over one that was bound again, or whose server has
/// another interface or the non-native byte order. Returns also the number of the procedure there.
///
/// `chosen` keeps the state. It is not a part of the result, because the result would be copied.
///
/// # Errors
/// If no server can be used, or the server chosen has no such procedure.
#[cold]
#[inline(never)]
fn choose<'c, 'a>(
    binding: &'a Binding,
    procedure: u32,
    is_swapped: bool,
    terms: CallTerms<'_>,
    chosen: &'c mut Option<Chosen<'a>>,
) -> Result<(&'c Bound, u32), CallError> {
    let bound = match binding.home.pool() {
        None => chosen.insert(Chosen::Now(binding.now())).bound(),
        Some(pool) => {
            let front = binding.bound.get();
            // A forked child does not look at the servers.
            if front.mark.wiped() {
                return Err(forked());
            }
            let picked = match pool.pick() {
                Some(picked) => picked,
                None => pool.again(front, procedure, none_serves(), terms.deadline())?,
            };
            chosen.insert(Chosen::Picked(picked)).bound()
        }
    };
    if bound.is_swapped(procedure) != is_swapped {
        return Err(turned_over());
    }
    bound.target(procedure)
}

/// Returns whether a call was not made because its server does not have the procedure. Another server of a pool
/// may have it.
#[cold]
fn is_lacking(error: &CallError) -> bool {
    error.kind() == Kind::NoSuchProcedure
}

/// Returns the error of a later attempt at a call. If an earlier attempt may have executed the call, the failure
/// of a later attempt does not rule out this execution.
#[cold]
pub(super) fn after(before: Executed, error: CallError) -> CallError {
    match before {
        Executed::No => error,
        Executed::Maybe => error.may_have_executed(),
    }
}

#[cold]
fn none_serves() -> CallError {
    CallError::not_executed(Kind::ServerGone, Phase::Call, "no server can be used")
}

/// The part of a stub that marshals the arguments and unmarshals the result.
type Body<'a, O, R> = &'a mut dyn FnMut(&mut Stub<'_, R>) -> Result<O, CallError>;

/// Makes a failed call again, if the policy allows it: at other servers of the pool, or once more after binding
/// again.
#[cold]
#[inline(never)]
fn repeat<'a, O, R: Representation>(
    binding: &'a Binding,
    mut gone: Chosen<'a>,
    terms: CallTerms<'_>,
    procedure: u32,
    mut error: CallError,
    mut body: Body<'_, O, R>,
) -> Result<O, CallError> {
    let home = &binding.home;
    for _ in 1..home.attempts_max() {
        let before = error.executed();
        gone = match home.pool() {
            Some(pool) => {
                Chosen::Picked(pool.again(gone.bound(), procedure, error, terms.deadline())?)
            }
            None => {
                let deadline = terms.deadline();
                Chosen::Now(home.again(&binding.bound, gone.bound(), procedure, error, deadline)?)
            }
        };
        let bound = gone.bound();
        if bound.is_swapped(procedure) != R::SWAPPED {
            return Err(after(before, turned_over()));
        }
        let made = bound
            .target(procedure)
            .and_then(|(target, number)| attempt(target, terms, number, &mut body));
        match made {
            Ok(made) => return Ok(made),
            Err(next) => error = after(before, next),
        }
    }
    home.fails(gone.bound(), &error);
    Err(error)
}

/// Returns the error of a call whose binding is now bound to a server of the other byte order. The next call
/// converts its values.
#[cold]
pub(super) fn turned_over() -> CallError {
    let text = "the binding is now bound to a server of the other byte order: make the call again";
    CallError::not_executed(Kind::ServerGone, Phase::Call, text)
}

#[cold]
pub(super) fn failed(binding: &Binding, procedure: u32, error: CallError) -> CallError {
    error.at(binding.address()).of(binding.bound.get().procedure_name(procedure).to_owned())
}

#[cold]
pub(super) fn forked() -> CallError {
    let detail = format!("this is process {}, forked after the bind", std::process::id());
    CallError::not_executed(Kind::Forked, Phase::Marshal, detail)
}

/// The advice for values that nest too deeply. No option raises the limit.
const TOO_DEEP: &str = "send values that nest less deeply, such as the nodes of a list in a `Vec`";

/// The advice for an argument with more elements than its parameter allows.
const TOO_LONG: &str =
    "pass fewer elements, or raise #[max_len] of the parameter in client and server";

/// The advice if all A-stacks are in use.
const NO_FRAME: &str = "allow more time, fewer calls at a time, or more A-stacks";

#[cold]
pub(super) fn no_frame(frames: &Frames) -> CallError {
    let (used, all) = (frames.active(), frames.layout().count);
    let text = format!(
        "no A-stack became free in time: {used} calls are in flight, of {all} that client and server \
         have room for (`BindOptions::astacks`, `ExportOptions::astacks_max`)"
    );
    CallError::not_executed(Kind::TimedOut, Phase::Marshal, text).with_advice(NO_FRAME)
}

#[cold]
pub(super) fn does_not_fit(overflow: Overflow) -> CallError {
    let error = CallError::not_executed(Kind::TooLarge, Phase::Marshal, overflow.to_string());
    match overflow {
        Overflow::TooDeep => error.with_advice(TOO_DEEP),
        _ => error,
    }
}

#[cold]
fn too_long(length: usize, max_len: usize) -> CallError {
    let detail = format!("{length} elements where the interface allows {max_len}");
    CallError::not_executed(Kind::TooLarge, Phase::Marshal, detail).with_advice(TOO_LONG)
}

/// Returns how a representation converts blocks of `T`, or `None` if the representation does not convert
/// blocks of `T`.
const fn swap_of<T: Plain, R: Representation>() -> Option<&'static Swap> {
    if R::SWAPPED { Swap::of::<T>() } else { None }
}

/// Returns how a representation converts slices of `T`, which need not be blocks. `None` if the
/// representation does not convert such slices.
const fn swap_of_values<T: Value, R: Representation>() -> Option<&'static Swap> {
    if R::SWAPPED { T::SWAP } else { None }
}

impl<'a, R: Representation> Arguments<'a, R> {
    /// Prefetches the cache line of the head, for a call without blocks. The line arrives while the head is
    /// written. For a call with blocks this would not help: while the blocks are copied, the polling side
    /// takes the line back.
    #[inline]
    pub fn head_only(&self) {
        self.head.space().prefetch_write();
    }

    /// Writes a value to the head.
    ///
    /// # Errors
    /// If the value does not fit the message.
    #[inline]
    pub fn value<T: Value>(&mut self, value: &T) -> Result<(), CallError> {
        value.encode(&mut self.head).map_err(does_not_fit)
    }

    /// Returns the writer of the call's head.
    #[inline]
    pub(super) const fn head(&mut self) -> &mut Writer<'a, R> {
        &mut self.head
    }

    #[inline]
    pub(super) fn count(&mut self, count: usize, max_len: usize) -> Result<(), CallError> {
        if count > max_len {
            return Err(too_long(count, max_len));
        }
        self.head.count(count).map_err(does_not_fit)
    }

    /// Writes the length of a text to the head, and returns its bytes as a block.
    ///
    /// # Errors
    /// If the text is longer than `max_len` bytes.
    #[inline]
    pub fn text<'b>(&mut self, text: &'b str, max_len: usize) -> Result<Block<'b>, CallError> {
        self.count(text.len(), max_len)?;
        Ok(Window::from(text.as_bytes()).into())
    }

    /// Writes the length of a slice to the head. Returns the values as a block if they are plain, and
    /// otherwise writes them to the head, too.
    ///
    /// # Errors
    /// If the slice is longer than `max_len`, or does not fit.
    #[inline]
    pub fn slice<'b, T: Value>(
        &mut self,
        values: &'b [T],
        max_len: usize,
    ) -> Result<Block<'b>, CallError> {
        self.count(values.len(), max_len)?;
        if let Some(block) = T::as_block(values) {
            return Ok(Block::new(Window::from(block), swap_of_values::<T, R>()));
        }
        let head = &mut self.head;
        head.deeper(|head| T::encode_all(values, head)).map_err(does_not_fit)?;
        Ok(Block::empty())
    }

    /// Writes the length of a lent buffer to the head, and returns its memory as a block.
    ///
    /// # Errors
    /// If the buffer is longer than `max_len`. Also if a procedure passes on a buffer that its own caller
    /// lent, and this buffer does not arrive completely.
    #[inline]
    pub fn lent<'b, T: Plain>(
        &mut self,
        lent: &Lent<'b, T>,
        max_len: usize,
    ) -> Result<Block<'b>, CallError> {
        self.count(lent.len(), max_len)?;
        let window = lent.window().map_err(|stopped| {
            CallError::not_executed(Kind::BadArguments, Phase::Marshal, stopped.to_string())
        })?;
        Ok(Block::new(window, swap_of::<T, R>()))
    }

    /// Writes to the head how many elements of an out buffer the procedure may fill.
    ///
    /// # Errors
    /// If the capacity exceeds 32 bits, or the number does not fit the head.
    #[inline]
    pub fn out<'b, T: Plain>(
        &mut self,
        out: &'b mut Out<'_, T>,
        max_len: usize,
    ) -> Result<OutBlock<'b>, CallError> {
        let capacity = out.capacity().min(max_len);
        self.head.count(capacity).map_err(does_not_fit)?;
        Ok(out.block_of(capacity).converted(swap_of::<T, R>()))
    }

    /// Writes an in-out slice like [`Stub::slice`], and returns the block for its new values.
    ///
    /// # Errors
    /// If the slice is longer than `max_len`, or does not fit.
    #[inline]
    pub fn in_out<'b, T: Value>(
        &mut self,
        values: &'b mut [T],
        max_len: usize,
    ) -> Result<OutBlock<'b>, CallError> {
        if T::PLAIN {
            self.count(values.len(), max_len)?;
        } else {
            self.slice(values, max_len)?;
        }
        let block = T::as_block_mut(values).unwrap_or_else(OutBlock::none);
        Ok(block.converted(swap_of_values::<T, R>()))
    }
}

impl<'a, R: Representation> Stub<'a, R> {
    /// Makes the call with these blocks.
    ///
    /// # Errors
    /// If there is no result. The error says whether the call was executed.
    #[inline]
    pub fn transport(
        &mut self,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<Returned<'a, R>, CallError> {
        let mut call = Call {
            procedure: self.procedure,
            frame: &self.frame,
            head: &mut self.arguments.head,
            ins,
            lent,
            outs,
            terms: self.terms,
        };
        let returned = self.bound.path.transport(&mut call)?;
        Returned::of(&self.frame, returned)
    }
}

/// A result that is read from its frame. The frame is released when the stub is dropped.
#[derive(Debug)]
pub struct Returned<'a, R: Representation = Native> {
    head: Reader<'a, R>,
    answer: Answer,
}

#[cold]
pub(super) fn unreadable(invalid: Invalid) -> CallError {
    CallError::bad_result(invalid.to_string())
}

impl<'a, R: Representation> Returned<'a, R> {
    /// Returns a result that is in its frame.
    #[inline(always)]
    pub(super) fn of(frame: &FrameGuard<'a>, returned: call::Returned) -> Result<Self, CallError> {
        let call::Returned { answer, head_at, head_bytes } = returned;
        match frame.reply_space().part(head_at as usize, head_bytes as usize) {
            Some(head) => Ok(Self { answer, head: Reader::represented(head) }),
            None => Err(CallError::bad_result("the head of the result lies outside the message")),
        }
    }

    /// Returns the kind of the answer: a result, an error, or a refusal.
    #[inline]
    pub(super) const fn answer(&self) -> Answer {
        self.answer
    }

    /// Returns the reader of the reply's head.
    #[inline]
    pub(super) const fn head(&mut self) -> &mut Reader<'a, R> {
        &mut self.head
    }

    /// Returns a result whose head is in `reply`.
    pub(super) fn within(
        answer: Answer,
        head_at: u32,
        head_bytes: u32,
        reply: &'a [u8],
    ) -> Result<Self, CallError> {
        match Window::from(reply).part(head_at as usize, head_bytes as usize) {
            Some(head) => Ok(Self { answer, head: Reader::represented(head) }),
            None => Err(CallError::bad_result("the head of the result lies outside the message")),
        }
    }

    /// Reads the method's result. The in-out values follow the value of `Ok`.
    ///
    /// # Errors
    /// If the server sent no result, or an invalid one.
    #[inline]
    pub fn result<O: Outcome>(&mut self) -> Result<O, CallError> {
        match self.answer {
            Answer::Ok => match O::Ok::decode(&mut self.head) {
                Ok(value) => Ok(O::from_result(Ok(value))),
                Err(invalid) => Err(unreadable(invalid)),
            },
            _ => self.no_value(),
        }
    }

    #[cold]
    fn no_value<O: Outcome>(&mut self) -> Result<O, CallError> {
        if self.answer == Answer::Err {
            let error = O::Err::decode(&mut self.head).map_err(unreadable)?;
            return Ok(O::from_result(Err(error)));
        }
        Err(self.refused())
    }

    /// Reads why the server sent no result.
    pub(super) fn refused(&mut self) -> CallError {
        match Refusal::read(self.answer, &mut self.head) {
            Some(Refusal { kind, executed, text }) => CallError::new(kind, executed, text),
            None => CallError::bad_result("the refusal is invalid"),
        }
    }

    /// Reads an in-out value.
    ///
    /// # Errors
    /// If it is invalid.
    #[inline]
    pub fn value<T: Value>(&mut self) -> Result<T, CallError> {
        T::decode(&mut self.head).map_err(unreadable)
    }

    /// Reads the values of an in-out slice from the head. Returns an empty vector if the values were a block.
    ///
    /// # Errors
    /// If they are invalid, or their number has changed.
    #[inline]
    pub fn values<T: Value>(&mut self, count: usize) -> Result<Vec<T>, CallError> {
        if T::PLAIN {
            return Ok(Vec::new());
        }
        let decode = |head: &mut Reader<'_, R>| {
            if head.count()? != count {
                return Err(Invalid::Block);
            }
            head.deeper(|head| T::decode_all(count, head))
        };
        decode(&mut self.head).map_err(unreadable)
    }

    /// Checks that the whole head was read.
    ///
    /// # Errors
    /// If bytes are left.
    #[inline]
    pub fn finish(&self) -> Result<(), CallError> {
        self.head.finish().map_err(unreadable)
    }

    /// Returns all bytes of the head.
    #[cold]
    pub(crate) fn bytes(mut self) -> Result<Result<Vec<u8>, CallError>, CallError> {
        match self.answer {
            Answer::Ok => {
                let bytes = self.head.remaining();
                Ok(Ok(self.head.plain_vec(bytes).map_err(unreadable)?))
            }
            _ => Err(self.refused()),
        }
    }

    pub(crate) fn ping(mut self) -> Result<Result<(), CallError>, CallError> {
        match self.answer {
            Answer::Ok => Ok(Ok(())),
            _ => Err(self.refused()),
        }
    }
}

/// Calls a procedure that has no arguments and returns bytes.
///
/// # Errors
/// Any error of a call.
#[cold]
pub(crate) fn ask(binding: &Binding, procedure: u32) -> Result<Vec<u8>, CallError> {
    let target = target(binding);
    match target.is_native(procedure) {
        true => call(target, procedure, |stub| stub.transport(&[], &[], &mut [])?.bytes()),
        false => {
            call_swapped(binding, procedure, |stub| stub.transport(&[], &[], &mut [])?.bytes())
        }
    }
}

/// Calls the procedure that does nothing.
///
/// # Errors
/// Any error of a call.
pub(crate) fn ping(binding: &Binding) -> Result<(), CallError> {
    fn body<R: Representation>(stub: &mut Stub<'_, R>) -> Result<Result<(), CallError>, CallError> {
        stub.head_only();
        stub.transport(&[], &[], &mut [])?.ping()
    }
    let target = target(binding);
    match target.is_native(call::PING) {
        true => call(target, call::PING, body),
        false => call_swapped(binding, call::PING, body),
    }
}

/// Assigns the new values of an in-out slice to the caller's elements.
#[inline]
pub fn assign<T>(to: &mut [T], from: Vec<T>) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
}
