//! The runtime under compiled stubs: take a frame, marshal, one virtual call, unmarshal.
//!
//! Firefly's Starter, Transporter and Ender in one straight line. The generated code is thin and
//! typed; everything that does not depend on a type stands here, once.

use std::sync::Arc;

use crate::binding::{Binding, Bound};
use crate::call::{self, Answer, Call, FrameGuard, Limit};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::Type;
use crate::value::{
    Block, Invalid, Lent, Native, Out, OutBlock, Overflow, Plain, Reader, Representation, Swap,
    Swapped, Value, Window, Writer,
};

/// A type that a method takes or returns: any [`Value`].
///
/// Generated code names each type by [`Is`](Self::Is), always in the same way and at the same place.
/// The compiler reports a type that is no value once, since all further reports are the same.
pub trait Travels {
    /// The type itself.
    type Is: Value;
}

impl<T: Value> Travels for T {
    type Is = T;
}

/// As [`Travels`], for the elements of an [`Out`] or a [`Lent`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not plain: it cannot be copied as one block",
    label = "needs a fixed layout without padding or pointers",
    note = "derive `peregrine::Plain` on it, or use `Vec<{Self}>` by value instead of a buffer"
)]
pub trait TravelsAsBlock {
    /// The type itself.
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
    /// The type itself, as of [`Travels`].
    type Is: Outcome<Ok = Self::Ok, Err = Self::Err>;
    /// What `Ok` carries.
    type Ok: Value;
    /// What `Err` carries.
    type Err: Failure;
    /// How the interface describes what `Ok` carries.
    const OK_TYPE: Type = Self::Ok::TYPE;
    /// How the interface describes what `Err` carries.
    const ERR_TYPE: Type = Self::Err::TYPE;
    /// From the plain result.
    fn from_result(result: Result<Self::Ok, Self::Err>) -> Self;
    /// As the plain result.
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

/// A call in the making: its frame is taken, its arguments go into the head one by one.
#[derive(Debug)]
pub struct Stub<'a, R: Representation = Native> {
    bound: &'a Bound,
    limit: Limit,
    frame: FrameGuard<'a>,
    head: Writer<'a, R>,
    /// As the server numbers it.
    procedure: u32,
}

/// Whether the calls of a binding are for [`call()`], not for [`call_swapped`]: the one question of a
/// call about its binding's flags, which are zero for most.
#[inline]
pub fn is_native(binding: &Binding) -> bool {
    !binding.bound.is_special() || !binding.now().is_swapped()
}

/// Makes a call; what `body` returns, or why it failed, becomes the method's result.
///
/// # Errors
/// Those of the call, with the procedure and the address filled in.
#[inline]
pub fn call<O: Outcome>(
    binding: &Binding,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_>) -> Result<O, CallError>,
) -> O {
    make(binding, procedure, body)
}

/// As [`call()`], to a server whose values are of the other byte order.
///
/// # Errors
/// Those of the call.
#[cold]
#[inline(never)]
pub fn call_swapped<O: Outcome>(
    binding: &Binding,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_, Swapped>) -> Result<O, CallError>,
) -> O {
    make(binding, procedure, body)
}

#[inline(always)]
fn make<O: Outcome, R: Representation>(
    binding: &Binding,
    procedure: u32,
    body: impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> O {
    made(binding, procedure, body).unwrap_or_else(|error| O::from_result(Err(error.into())))
}

/// Makes a call whose outcome is of any kind; an error tells which procedure failed, and where.
#[inline(always)]
pub(super) fn made<O, R: Representation>(
    binding: &Binding,
    procedure: u32,
    mut body: impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> Result<O, CallError> {
    let bound = &*binding.bound;
    // One moment for all that the call waits for.
    let limit = binding.limit.begun();
    let made = if bound.is_special() {
        make_special(binding, limit, procedure, &mut body)
    } else {
        attempt(bound, limit, procedure, &mut body)
            .or_else(|error| repeat(binding, &binding.bound, limit, procedure, error, &mut body))
    };
    made.map_err(|error| failed(binding, procedure, error))
}

/// Tries to make a call by what was bound.
#[inline(always)]
fn attempt<O, R: Representation>(
    bound: &Bound,
    limit: Limit,
    number: u32,
    body: &mut impl FnMut(&mut Stub<'_, R>) -> Result<O, CallError>,
) -> Result<O, CallError> {
    let is_released = |frame| bound.path.is_released(frame);
    if bound.mark.wiped() {
        return Err(forked());
    }
    let Some(frame) = bound.frames.take(|| limit.deadline(), is_released, bound.on_exhausted)
    else {
        return Err(no_frame(bound));
    };
    let head = Writer::represented(frame.call_space());
    let mut stub = Stub { bound, limit, frame, head, procedure: number };
    let made = body(&mut stub);
    if let Err(error) = &made
        && (error.executed() == Executed::Maybe || bound.path.captures(stub.frame.index()))
    {
        // It is not known whether the server still uses the frame: the server says so itself.
        stub.frame.capture();
    }
    made
}

/// What a stub does with its arguments and its result, whatever these are.
type Body<'a, O, R> = &'a mut dyn FnMut(&mut Stub<'_, R>) -> Result<O, CallError>;

/// A call by a binding that was bound again, whose server numbers its procedures otherwise, or whose
/// values are of the other byte order.
#[cold]
#[inline(never)]
fn make_special<O, R: Representation>(
    binding: &Binding,
    limit: Limit,
    procedure: u32,
    mut body: Body<'_, O, R>,
) -> Result<O, CallError> {
    let bound = binding.now();
    if bound.is_swapped() != R::SWAPPED {
        return Err(turned_over());
    }
    attempt(&bound, limit, bound.number(procedure), &mut body)
        .or_else(|error| repeat(binding, &bound, limit, procedure, error, body))
}

/// A call failed: if it may be, and its server has gone, it is made once more by what can be bound now.
#[cold]
#[inline(never)]
fn repeat<O, R: Representation>(
    binding: &Binding,
    gone: &Arc<Bound>,
    limit: Limit,
    procedure: u32,
    error: CallError,
    mut body: Body<'_, O, R>,
) -> Result<O, CallError> {
    let before = error.executed();
    let bound = binding.home.again(&binding.bound, gone, procedure, error, limit.deadline())?;
    let made = if bound.is_swapped() == R::SWAPPED {
        attempt(&bound, limit, bound.number(procedure), &mut body)
    } else {
        Err(turned_over())
    };
    // What the first attempt left open, no other one closes but by a result.
    made.map_err(|error| match before {
        Executed::No => error,
        Executed::Maybe => error.may_have_executed(),
    })
}

/// Another machine serves now, of the other byte order: the call after this one knows.
#[cold]
fn turned_over() -> CallError {
    let text = "the binding is now with a server of the other byte order: make the call again";
    CallError::not_executed(Kind::ServerGone, Phase::Call, text)
}

#[cold]
fn failed(binding: &Binding, procedure: u32, error: CallError) -> CallError {
    error.at(binding.address()).of(binding.bound.procedure_name(procedure).to_owned())
}

#[cold]
fn forked() -> CallError {
    let detail = format!("this is process {}, forked after the bind", std::process::id());
    CallError::not_executed(Kind::Forked, Phase::Marshal, detail)
}

/// The advice for values that nest too deeply. No option raises the limit.
const TOO_DEEP: &str = "send values that nest less deeply, such as the nodes of a list in a `Vec`";

/// The advice for more elements than a parameter allows.
const TOO_LONG: &str =
    "pass fewer elements, or raise #[max_len] of the parameter in client and server";

/// The advice if all A-stacks are in use.
const NO_FRAME: &str = "allow more time, fewer calls at a time, or more A-stacks";

#[cold]
fn no_frame(bound: &Bound) -> CallError {
    let (used, all) = (bound.frames.active(), bound.frames.layout().count);
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

/// How blocks of `T` are turned in a representation.
const fn swap_of<T: Plain, R: Representation>() -> Option<&'static Swap> {
    if R::SWAPPED { Swap::of::<T>() } else { None }
}

/// The same of values that perhaps are no blocks.
const fn swap_of_values<T: Value, R: Representation>() -> Option<&'static Swap> {
    if R::SWAPPED { T::SWAP } else { None }
}

impl<'a, R: Representation> Stub<'a, R> {
    /// Says that nothing but a head will be sent: the line in which it travels is asked for now,
    /// and comes over while the head is made. (With blocks to copy first, the side that looks at
    /// the line would have taken it back by then.)
    #[inline]
    pub fn head_only(&self) {
        self.head.space().prefetch_write();
    }

    /// A value, into the head.
    ///
    /// # Errors
    /// If it does not fit.
    #[inline]
    pub fn value<T: Value>(&mut self, value: &T) -> Result<(), CallError> {
        value.encode(&mut self.head).map_err(does_not_fit)
    }

    /// Where values go.
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

    /// Text: its length into the head, its bytes as a block.
    ///
    /// # Errors
    /// If it is longer than `max_len` bytes.
    #[inline]
    pub fn text<'b>(&mut self, text: &'b str, max_len: usize) -> Result<Block<'b>, CallError> {
        self.count(text.len(), max_len)?;
        Ok(Window::from(text.as_bytes()).into())
    }

    /// A slice: its length into the head; as a block if it is plain, otherwise into the head too.
    ///
    /// # Errors
    /// If it is longer than `max_len`, or does not fit.
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

    /// A lent buffer: its length into the head, its memory as a block.
    ///
    /// # Errors
    /// If it is longer than `max_len`, or was lent to this procedure and stopped coming.
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

    /// An out buffer: how much of it the procedure may fill, into the head.
    ///
    /// # Errors
    /// If its capacity cannot be said in 32 bits.
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

    /// An in-out slice: as [`Stub::slice`], and a block for its way back.
    ///
    /// # Errors
    /// If it is longer than `max_len`, or does not fit.
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

    /// Makes the call with these blocks.
    ///
    /// # Errors
    /// If there is no result; the error says whether the call ran.
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
            head: &mut self.head,
            ins,
            lent,
            outs,
            limit: self.limit,
        };
        let returned = self.bound.path.transport(&mut call)?;
        let call::Returned { answer, head_at, head_bytes } = returned;
        match self.frame.reply_space().part(head_at as usize, head_bytes as usize) {
            Some(head) => Ok(Returned { answer, head: Reader::represented(head) }),
            None => Err(CallError::bad_result("the head of the result lies outside the message")),
        }
    }
}

/// A result to be taken from its frame, which is given back when the stub is done.
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
    /// What the head holds.
    #[inline]
    pub(super) const fn answer(&self) -> Answer {
        self.answer
    }

    /// Where values come from.
    #[inline]
    pub(super) const fn head(&mut self) -> &mut Reader<'a, R> {
        &mut self.head
    }

    /// The method's result. Behind the value of `Ok` stand the in-out values.
    ///
    /// # Errors
    /// If the server answered without a result, or with one that is not readable.
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

    /// Why the server answered without a result: little-endian whatever its values are.
    pub(super) fn refused(&mut self) -> CallError {
        let executed = match self.answer {
            Answer::NotExecuted => Executed::No,
            _ => Executed::Maybe,
        };
        let head = &mut self.head;
        let kind = head.plain().map(u32::from_le_bytes).ok().and_then(Kind::from_number);
        let bytes = head.plain().map(u32::from_le_bytes);
        let text = bytes.and_then(|bytes| head.plain_vec(bytes as usize)).ok();
        match (kind, text.and_then(|text| String::from_utf8(text).ok())) {
            (Some(kind), Some(text)) => CallError::new(kind, executed, text),
            _ => CallError::bad_result("the refusal itself is not readable"),
        }
    }

    /// An in-out value.
    ///
    /// # Errors
    /// If it is not readable.
    #[inline]
    pub fn value<T: Value>(&mut self) -> Result<T, CallError> {
        T::decode(&mut self.head).map_err(unreadable)
    }

    /// The values of an in-out slice that came back in the head; nothing if it was a block.
    ///
    /// # Errors
    /// If they are not readable, or not as many as were sent.
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

    /// Checks that the whole head was taken.
    ///
    /// # Errors
    /// If something is left.
    #[inline]
    pub fn finish(&self) -> Result<(), CallError> {
        self.head.finish().map_err(unreadable)
    }

    /// The whole head, as it is.
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

/// Calls a procedure without arguments that answers with bytes.
///
/// # Errors
/// Those of any call.
#[cold]
pub(crate) fn ask(binding: &Binding, procedure: u32) -> Result<Vec<u8>, CallError> {
    match is_native(binding) {
        true => call(binding, procedure, |stub| stub.transport(&[], &[], &mut [])?.bytes()),
        false => {
            call_swapped(binding, procedure, |stub| stub.transport(&[], &[], &mut [])?.bytes())
        }
    }
}

/// Calls the procedure that does nothing.
///
/// # Errors
/// Those of any call.
pub(crate) fn ping(binding: &Binding) -> Result<(), CallError> {
    fn body<R: Representation>(stub: &mut Stub<'_, R>) -> Result<Result<(), CallError>, CallError> {
        stub.head_only();
        stub.transport(&[], &[], &mut [])?.ping()
    }
    match is_native(binding) {
        true => call(binding, call::PING, body),
        false => call_swapped(binding, call::PING, body),
    }
}

/// Puts rebuilt values where the caller wants them: part of an in-out slice's way back.
#[inline]
pub fn assign<T>(to: &mut [T], from: Vec<T>) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from);
}
