//! `GenericClient`: calls any procedure of any interface, by means of the interface's description.

use core::ops::DerefMut;
use core::sync::atomic::AtomicBool;
use std::sync::Arc;

use super::copies::{Copies, filled, outs_of, truncated};
use super::marshal::Stopped;
use super::program::{Form, OpId, Program, Routine, Solid, Step, Unfit};
use super::server::GenericServer;
use super::solid::swap_of;
use crate::binding::{BindOptions, Binding, describe_with};
use crate::call::streams::{Opening, Sink, Source};
use crate::call::{Answer, Caller, Limit, Serve};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::interface::{Described, Direction};
use crate::stub::Accounting;
use crate::stub::compiled::{
    Arguments, CallTarget, Returned, Stub, does_not_fit, made, target, unreadable,
};
use crate::stub::few::Few;
use crate::stub::streams::wait_for;
use crate::value::{
    Block, Dynamic, Invalid, Lent, Native, Out, OutBlock, Representation, Swapped, Window,
    bytes_of_mut,
};

/// A client of any interface (the *generic client* of Chung et al.). No interface is compiled into the
/// program.
///
/// It binds like any client, on every path, and calls with [`Dynamic`] values. It sends the same bytes as a
/// compiled stub. A clone is cheap, and any number of threads can share one client.
///
/// ```
/// use peregrine::{Argument, Dynamic, GenericClient, Server, interface};
///
/// #[interface]
/// trait Add {
///     fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
/// }
/// # struct Adder;
/// # impl Add for Adder {
/// #     fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> { Ok(a + b) }
/// # }
/// # let name = format!("doc-generic-{}", std::process::id());
/// let running = Server::new().export(&name, AddServer::new(Adder))?.spawn()?;
///
/// // This program does not have the trait.
/// let client = GenericClient::bind(&name)?;
/// let (a, b) = (Dynamic::I32(2), Dynamic::I32(-5));
/// let sum = client.call("add", &mut [Argument::In(&a), Argument::In(&b)])?;
/// assert_eq!(sum, Ok(Dynamic::I32(-3)));
/// # drop(running);
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug)]
pub struct GenericClient {
    binding: Binding,
    shared: Arc<Shared>,
}

/// The parts that all clones of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    described: Described,
    program: Arc<Program>,
    has_oneway: bool,
}

impl Shared {
    pub(super) fn new(described: Described) -> Self {
        let program = Arc::new(Program::flatten(&described));
        let has_oneway = described.procedures.iter().any(|procedure| procedure.oneway);
        Self { described, program, has_oneway }
    }
}

/// An argument of a call by a [`GenericClient`].
#[derive(Debug)]
pub enum Argument<'a> {
    /// For a parameter that is sent with the call: a value, or the elements of a buffer.
    In(&'a Dynamic),
    /// For a buffer that is sent with the call, lent or not, and for text: plain values as they are in the
    /// memory of this machine. The values are neither copied nor checked before they are sent.
    Bytes(Lent<'a, u8>),
    /// For a parameter that is sent both ways. The new value is assigned if the call returns `Ok`.
    InOut(&'a mut Dynamic),
    /// For a buffer that is returned with the result. The capacity of the buffer is in bytes, whatever its
    /// elements are. The procedure may fill as many whole elements as fit.
    Out(Out<'a, u8>),
    /// For a stream that the procedure sends. A call moves the sink out of the argument, and leaves a sink
    /// there that drops all items.
    Sink(Sink<'a, Dynamic>),
    /// For a stream that the procedure receives. A call moves the source out of the argument, and leaves an
    /// empty source there. If an item is not of the declared type, the call ends with [`Kind::BadArguments`],
    /// and the detail names the item.
    Source(Source<'a, Dynamic>),
    /// For a callback: the server of its interface, such as a [`GenericServer`] or the server of a compiled
    /// interface. The procedure may keep the callback after the call, until one side drops it.
    Callback(Arc<dyn Serve>),
}

/// The largest number of block arguments for which no memory is allocated.
pub(super) const FEW: usize = 8;

impl GenericClient {
    /// Binds to the export of this name or address, with the description that the server sends.
    ///
    /// # Errors
    /// If no server exports the name, or the description is invalid.
    pub fn bind(address: &str) -> Result<Self, CallError> {
        Self::bind_with(address, &BindOptions::default())
    }

    /// Binds with options.
    ///
    /// # Errors
    /// Like [`bind`](Self::bind).
    pub fn bind_with(address: &str, options: &BindOptions) -> Result<Self, CallError> {
        let said = describe_with(address, options)?;
        let described = said.parsed().map_err(|error| {
            let text =
                format!("the server's description of its interface is not readable: {error}");
            CallError::not_executed(Kind::BadResult, Phase::Bind, text).at(address)
        })?;
        Self::bind_as(address, described, options)
    }

    /// Binds to an export of this interface, like a compiled client. The server's interface may differ by the
    /// rules of docs/EVOLUTION.md.
    ///
    /// # Errors
    /// If there is no such export, or the client cannot use its interface.
    pub fn bind_as(
        address: &str,
        described: Described,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let binding = Binding::bind(address, described.clone(), options)?;
        Ok(Self::over(binding, described))
    }

    /// Returns a client that calls a generic server in this process, for tests.
    ///
    /// # Panics
    /// If there is no memory for the client's A-stacks (call frames).
    pub fn in_process(server: GenericServer) -> Self {
        let described = server.described().clone();
        let binding = Binding::in_process(Arc::new(server), &BindOptions::default());
        Self::over(binding, described)
    }

    /// Returns a client that calls through `binding`. The interface of `binding` is `described`.
    #[doc(hidden)]
    pub fn over(binding: Binding, described: Described) -> Self {
        Self { binding, shared: Arc::new(Shared::new(described)) }
    }

    /// Returns a client that calls through `binding`, and shares the description in `shared` with other
    /// clients.
    pub(super) const fn sharing(binding: Binding, shared: Arc<Shared>) -> Self {
        Self { binding, shared }
    }

    /// Returns the description of the interface.
    pub fn described(&self) -> &Described {
        &self.shared.described
    }

    /// Returns the program that the client's calls execute.
    pub fn program(&self) -> &Program {
        &self.shared.program
    }

    pub(super) fn shared_program(&self) -> &Arc<Program> {
        &self.shared.program
    }

    pub(super) fn routine(&self, procedure: u32) -> Option<&Routine> {
        self.shared.program.routines.get(procedure as usize)
    }

    pub(super) fn has_oneway(&self) -> bool {
        self.shared.has_oneway
    }

    /// Returns the binding through which the client calls.
    pub const fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Returns a clone of the client whose calls are recorded, for an account of where their time goes.
    ///
    /// # Panics
    /// If the accounting was begun with the binding of another client.
    #[must_use]
    pub fn with_accounting(&self, accounting: &Accounting) -> Self {
        let binding = self.binding.with_accounting(accounting);
        Self { binding, shared: Arc::clone(&self.shared) }
    }

    /// Returns a clone of the client with another time limit for its calls.
    #[must_use]
    pub fn with_limit(&self, limit: Limit) -> Self {
        Self { binding: self.binding.with_limit(limit), shared: Arc::clone(&self.shared) }
    }

    /// Returns a clone of the client that sends a further pair of [metadata](crate::Metadata) with each of
    /// its calls.
    ///
    /// # Errors
    /// As for [`Binding::with_metadata`].
    pub fn with_metadata(&self, key: &str, value: &str) -> Result<Self, CallError> {
        let binding = self.binding.with_metadata(key, value)?;
        Ok(Self { binding, shared: Arc::clone(&self.shared) })
    }

    /// Returns a clone of the client that sends the metadata of a caller with each of its calls, in addition
    /// to its own.
    ///
    /// # Errors
    /// As for [`Binding::with_metadata`].
    pub fn with_metadata_of(&self, caller: &Caller) -> Result<Self, CallError> {
        let binding = self.binding.with_metadata_of(caller)?;
        Ok(Self { binding, shared: Arc::clone(&self.shared) })
    }

    /// Calls the procedure of this name. Returns the procedure's result, or the procedure's own error.
    ///
    /// # Errors
    /// If the call failed. If an argument does not have the type of its parameter, the kind is
    /// [`Kind::BadArguments`], the call was not executed, and the detail names the place: `entries[3].name:
    /// expected text, got a u8`.
    pub fn call(
        &self,
        procedure: &str,
        arguments: &mut [Argument<'_>],
    ) -> Result<Result<Dynamic, Dynamic>, CallError> {
        let known = self.shared.described.procedure(procedure);
        let (number, _) = known.ok_or_else(|| self.no_such(procedure))?;
        let mut result = Dynamic::Unit;
        Ok(match self.call_into(number, arguments, &mut result)? {
            true => Ok(result),
            false => Err(result),
        })
    }

    /// Calls the procedure of this number in [`described`](Self::described). Returns true if the procedure
    /// returned `Ok`. The result, or the procedure's own error, is stored in `result`. The memory of the old
    /// value in `result` is used again.
    ///
    /// # Errors
    /// Like [`call`](Self::call).
    #[inline]
    pub fn call_into(
        &self,
        procedure: u32,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let program = &self.shared.program;
        let Some(routine) = program.routines.get(procedure as usize) else {
            return Err(self.no_such(&format!("number {procedure}")));
        };
        if self.shared.has_oneway {
            return self.call_in_order(procedure, routine, arguments, result);
        }
        self.call_over(&self.binding, procedure, routine, arguments, result)
    }

    /// Makes a call over this binding.
    #[inline]
    pub(super) fn call_over(
        &self,
        binding: &Binding,
        procedure: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        if routine.has_streams {
            let begun = AtomicBool::new(false);
            let call = self.call_awaited(binding, procedure, routine, arguments, result, &begun);
            return wait_for(call);
        }
        let target = target(binding);
        match target.is_native(procedure) {
            true => made(target, procedure, |stub: &mut Stub<'_, Native>| {
                interpret(&self.shared.program, routine, stub, arguments, result)
            }),
            false => self.call_swapped(binding, procedure, routine, arguments, result),
        }
    }

    #[cold]
    #[inline(never)]
    fn call_swapped(
        &self,
        binding: &Binding,
        procedure: u32,
        routine: &Routine,
        arguments: &mut [Argument<'_>],
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        if let Some(system) = CallTarget::special(binding).system() {
            return self.call_foreign(system, binding, procedure, arguments, result);
        }
        made(CallTarget::special(binding), procedure, |stub: &mut Stub<'_, Swapped>| {
            interpret(&self.shared.program, routine, stub, arguments, result)
        })
    }

    #[cold]
    pub(super) fn no_such(&self, procedure: &str) -> CallError {
        let names: Vec<_> =
            self.shared.described.procedures.iter().map(|one| format!("`{}`", one.name)).collect();
        let text = format!("there is no `{procedure}`; there is {}", names.join(", "));
        CallError::not_executed(Kind::NoSuchProcedure, Phase::Call, text).at(self.binding.address())
    }
}

/// The advice for values that do not match the interface.
pub(super) const ADVICE: &str = "pass what the interface declares: `peregrine describe` prints it";

/// Makes the error of a call whose arguments do not match the interface. `text` says what is wrong.
#[cold]
fn wrong_arguments(text: String) -> CallError {
    CallError::not_executed(Kind::BadArguments, Phase::Marshal, text).with_advice(ADVICE)
}

#[cold]
pub(super) fn unfit(unfit: &Unfit) -> CallError {
    wrong_arguments(unfit.to_string())
}

#[cold]
pub(super) fn stopped(stopped: Stopped, step: &Step) -> CallError {
    match stopped {
        Stopped::Unfit(what) => unfit(&what.of(&step.name)),
        Stopped::Overflow(overflow) => does_not_fit(overflow),
    }
}

#[cold]
pub(super) fn another(step: &Step, wanted: &str) -> CallError {
    unfit(&Unfit::new(format!("expected {wanted}")).of(&step.name))
}

/// Sends one call, after the arguments were written to the head.
pub(super) trait Sender<'a, R: Representation>: DerefMut<Target = Arguments<'a, R>> {
    /// What sending returns.
    type Sent;

    /// Returns the words that the head of the call contains for the next stream or callback.
    fn opening(&mut self) -> Opening;

    /// Sends the call with these blocks.
    ///
    /// # Errors
    /// The error says whether the call was executed.
    fn send(
        &mut self,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<Self::Sent, CallError>;
}

/// A `Stub` sends the call, and then waits for its end. So [`send`](Sender::send) returns the result.
impl<'a, R: Representation> Sender<'a, R> for Stub<'a, R> {
    type Sent = Returned<'a, R>;

    /// Returns default words, which are not used: a `Stub` only makes calls without streams and callbacks.
    fn opening(&mut self) -> Opening {
        Opening::default()
    }

    #[inline]
    fn send(
        &mut self,
        ins: &[Block<'_>],
        lent: &[Block<'_>],
        outs: &mut [OutBlock<'_>],
    ) -> Result<Returned<'a, R>, CallError> {
        self.transport(ins, lent, outs)
    }
}

/// Makes one call. The lists of blocks are on the stack, except for procedures with many blocks.
#[inline]
fn interpret<R: Representation>(
    program: &Program,
    routine: &Routine,
    stub: &mut Stub<'_, R>,
    arguments: &mut [Argument<'_>],
    result: &mut Dynamic,
) -> Result<bool, CallError> {
    match (routine.ins.max(routine.lent), routine.outs) {
        (0, 0) => {
            stub.head_only();
            interpret_with::<R, 0, 0>(program, routine, stub, arguments, result)
        }
        (1..=2, 0) => interpret_with::<R, 2, 0>(program, routine, stub, arguments, result),
        (0..=2, 0..=2) => interpret_with::<R, 2, 2>(program, routine, stub, arguments, result),
        _ => interpret_with::<R, FEW, FEW>(program, routine, stub, arguments, result),
    }
}

/// Makes one call, with lists for `INS` and `OUTS` blocks on the stack.
#[inline]
fn interpret_with<R: Representation, const INS: usize, const OUTS: usize>(
    program: &Program,
    routine: &Routine,
    stub: &mut Stub<'_, R>,
    arguments: &mut [Argument<'_>],
    result: &mut Dynamic,
) -> Result<bool, CallError> {
    if arguments.len() != routine.parameters.len() {
        return Err(wrong_count(routine, arguments.len()));
    }
    let mut outs = Few::<_, OUTS>::new(routine.outs, OutBlock::none);
    if INS + OUTS == 0 {
        let to = (&mut *stub, &mut outs);
        let returned = send::<R, _, INS, OUTS>(program, routine, to, arguments, &[], &mut [])?;
        return conclude(program, routine, returned, arguments, Vec::new(), result);
    }
    let Copies { packed, mut apart } = Copies::of::<R>(program, routine, arguments)?;
    let mut apart_outs = outs_of(&mut apart);
    let to = (&mut *stub, &mut outs);
    let sent = send::<R, _, INS, OUTS>(program, routine, to, arguments, &packed, &mut apart_outs);
    drop(outs);
    let filled = filled(apart_outs);
    conclude(program, routine, sent?, arguments, truncated(apart, filled), result)
}

/// Writes the arguments, and sends the call. Adds the blocks of the result to `outs`.
#[inline]
pub(super) fn send<'a, 'v, R, T, const INS: usize, const OUTS: usize>(
    program: &Program,
    routine: &Routine,
    (stub, outs): (&mut T, &mut Few<OutBlock<'v>, OUTS>),
    arguments: &'v mut [Argument<'_>],
    packed: &[(usize, Vec<u8>)],
    apart_outs: &'v mut [(usize, Out<'_, u8>)],
) -> Result<T::Sent, CallError>
where
    R: Representation,
    T: Sender<'a, R>,
{
    let mut comes = apart_outs.iter_mut().peekable();
    let mut ins = Few::<_, INS>::new(routine.ins, Block::empty);
    let mut lent = Few::<_, INS>::new(routine.lent, Block::empty);
    let mut ready = packed.iter().peekable();
    for (i, (step, argument)) in routine.parameters.iter().zip(&mut *arguments).enumerate() {
        let packed = ready.next_if(|(at, _)| *at == i).map(|(_, block)| block);
        let apart = comes.next_if(|(at, _)| *at == i).map(|(_, out)| out);
        match step.form {
            Form::One(op) => {
                let value = value_of(step, argument)?;
                program.put(op, value, stub.head()).map_err(|error| stopped(error, step))?;
            }
            Form::Text => ins.push(text_block(step, stub, argument)?),
            Form::Stream(_) | Form::Callback => {
                let opening = stub.opening();
                stub.value(&opening)?;
            }
            Form::Head(one) => {
                let value = value_of(step, argument)?;
                let count =
                    program.count(one, value).map_err(|error| unfit(&error.of(&step.name)))?;
                stub.count(count, step.max_len)?;
                super::marshal::nested(stub.head(), |head| program.put_all(one, value, head, 0))
                    .map_err(|error| stopped(error, step))?;
                ins.push(Block::empty());
                if step.direction == Direction::InOut {
                    outs.push(OutBlock::none());
                }
            }
            Form::Block(solid, _) => {
                let size = solid.bytes as usize;
                // If all numbers of a block have the same size, their byte order is changed while the block
                // is copied. Other blocks are converted before they are sent, or after they are received.
                let swap = if R::SWAPPED { swap_of(solid.unit) } else { None };
                match argument {
                    Argument::Out(out) => {
                        let capacity = (out.capacity() / size).min(step.max_len);
                        stub.count(capacity, usize::MAX)?;
                        let block = match apart {
                            Some(out) => out.block_of(capacity * size),
                            None => out.block_of(capacity * size),
                        };
                        outs.push(block.converted(swap));
                    }
                    Argument::InOut(value) => {
                        let Dynamic::Plain(bytes) = &mut **value else {
                            return Err(another(step, "plain data"));
                        };
                        stub.count(bytes.len() / size, step.max_len)?;
                        let count = bytes.len();
                        let block = match apart {
                            Some(out) => {
                                let sent = packed.map_or(&bytes[..], |packed| &packed[..]);
                                ins.push(Block::new(Window::from(sent), swap));
                                out.block_of(count).converted(swap)
                            }
                            None => {
                                let block = bytes_of_mut(bytes).converted(swap);
                                ins.push(match packed {
                                    Some(packed) => Block::new(Window::from(&packed[..]), swap),
                                    None => block.contents(),
                                });
                                block
                            }
                        };
                        outs.push(block);
                    }
                    // Here the argument is a value or bytes to send. `pack` has refused all other arguments.
                    _ => {
                        let window = match (&packed, &*argument) {
                            (Some(packed), _) => Window::from(&packed[..]),
                            (_, Argument::In(Dynamic::Plain(bytes))) => Window::from(&bytes[..]),
                            (_, Argument::Bytes(lent)) => window_of(lent)?,
                            _ => Window::empty(),
                        };
                        stub.count(window.len() / size, step.max_len)?;
                        let turned = packed.is_some() && R::SWAPPED && solid.unit == 0;
                        let block = Block::new(window, if turned { None } else { swap });
                        if step.direction == Direction::Lent { &mut lent } else { &mut ins }
                            .push(block);
                    }
                }
            }
        }
    }
    stub.send(ins.all(), lent.all(), outs.all())
}

#[cold]
pub(super) fn wrong_count(routine: &Routine, given: usize) -> CallError {
    let names: Vec<_> = routine.parameters.iter().map(|step| &*step.name).collect();
    let count = names.len();
    let text = format!("expected {count} arguments ({}), got {given}", names.join(", "));
    wrong_arguments(text)
}

pub(super) fn value_of<'v>(
    step: &Step,
    argument: &'v Argument<'_>,
) -> Result<&'v Dynamic, CallError> {
    match (argument, step.direction) {
        (Argument::In(value), Direction::In) => Ok(value),
        (Argument::InOut(value), Direction::InOut) => Ok(value),
        (_, Direction::InOut) => Err(another(step, "an argument that travels both ways")),
        _ => Err(another(step, "a value")),
    }
}

pub(super) fn window_of<'v>(lent: &Lent<'v, u8>) -> Result<Window<'v>, CallError> {
    lent.window().map_err(|stopped| {
        CallError::not_executed(Kind::BadArguments, Phase::Marshal, stopped.to_string())
    })
}

fn text_block<'v, R: Representation>(
    step: &Step,
    head: &mut Arguments<'_, R>,
    argument: &'v Argument<'_>,
) -> Result<Block<'v>, CallError> {
    let window = match argument {
        Argument::In(Dynamic::Text(text)) => Window::from(text.as_bytes()),
        Argument::Bytes(lent) => window_of(lent)?,
        _ => return Err(another(step, "text")),
    };
    head.count(window.len(), step.max_len)?;
    Ok(window.into())
}

/// Reads the reply to a call. `apart` has the blocks that were received into separate memory.
#[inline]
pub(super) fn conclude<R: Representation>(
    program: &Program,
    routine: &Routine,
    mut returned: Returned<'_, R>,
    arguments: &mut [Argument<'_>],
    apart: Vec<(usize, Vec<u8>)>,
    result: &mut Dynamic,
) -> Result<bool, CallError> {
    match returned.answer() {
        Answer::Ok => {
            program.take(routine.result, returned.head(), result).map_err(unreadable)?;
            take_back(program, routine, &mut returned, arguments, apart)?;
            Ok(true)
        }
        Answer::Err => {
            program.take(routine.error, returned.head(), result).map_err(unreadable)?;
            returned.finish()?;
            if routine.fails_as_call {
                return Err(relayed(result));
            }
            Ok(false)
        }
        _ => Err(returned.refused()),
    }
}

/// Makes a `CallError` of the kind `Relayed` from `error`, the `CallError` that a procedure returned.
#[cold]
pub(super) fn relayed(error: &Dynamic) -> CallError {
    let text = match error {
        Dynamic::List(chain) => match chain.first() {
            Some(Dynamic::Text(text)) => text.clone(),
            _ => String::new(),
        },
        _ => String::new(),
    };
    CallError::new(Kind::Relayed, Executed::Maybe, text)
}

/// Reads the new in-out values, and checks the out buffers that the procedure filled.
fn take_back<R: Representation>(
    program: &Program,
    routine: &Routine,
    returned: &mut Returned<'_, R>,
    arguments: &mut [Argument<'_>],
    apart: Vec<(usize, Vec<u8>)>,
) -> Result<(), CallError> {
    if routine.outs == 0
        && !routine.parameters.iter().any(|step| step.direction == Direction::InOut)
    {
        return returned.finish();
    }
    // In-out values are assigned only after all of them were read.
    let mut values: Vec<(usize, Dynamic)> = Vec::new();
    let mut apart = apart.into_iter().peekable();
    for (i, (step, argument)) in routine.parameters.iter().zip(&mut *arguments).enumerate() {
        let apart = apart.next_if(|(at, _)| *at == i).map(|(_, bytes)| bytes);
        match (step.form, argument) {
            (Form::One(op), Argument::InOut(_)) => {
                let mut value = Dynamic::Unit;
                program.take(op, returned.head(), &mut value).map_err(unreadable)?;
                values.push((i, value));
            }
            (Form::Head(one), Argument::InOut(sent)) => {
                let head = returned.head();
                let count = head.count().map_err(unreadable)?;
                if program.count(one, sent).ok() != Some(count) {
                    return Err(unreadable(Invalid::Block));
                }
                let mut value = Dynamic::Unit;
                program.take_all(one, count, head, &mut value, 0).map_err(unreadable)?;
                values.push((i, value));
            }
            (Form::Block(solid, op), Argument::InOut(Dynamic::Plain(sent))) => {
                if let Some(mut bytes) = apart {
                    if bytes.len() != sent.len() {
                        return Err(unreadable(Invalid::Block));
                    }
                    convert_received::<R>(program, solid, op, &mut bytes)?;
                    values.push((i, Dynamic::Plain(bytes)));
                }
            }
            (Form::Block(solid, op), Argument::Out(out)) => {
                let filled = apart.as_ref().map_or_else(|| out.filled(), Vec::len);
                if !filled.is_multiple_of(solid.bytes as usize) {
                    return Err(unreadable(Invalid::Block));
                }
                match apart {
                    Some(mut bytes) => {
                        convert_received::<R>(program, solid, op, &mut bytes)?;
                        out.put(&bytes).map_err(|_| unreadable(Invalid::TooLong))?;
                    }
                    None if solid.checked || R::SWAPPED && solid.unit == 0 => {
                        convert_received::<R>(program, solid, op, out.filled_mut())?;
                    }
                    None => {}
                }
            }
            _ => {}
        }
    }
    returned.finish()?;
    for (i, value) in values {
        if let Some(Argument::InOut(place)) = arguments.get_mut(i) {
            **place = value;
        }
    }
    Ok(())
}

/// Converts a received block that could not be converted while it was copied, and checks its values.
fn convert_received<R: Representation>(
    program: &Program,
    solid: Solid,
    op: OpId,
    bytes: &mut [u8],
) -> Result<(), CallError> {
    if R::SWAPPED && solid.unit == 0 {
        program.turn(op, bytes);
    }
    let checked = program.check_all(op, solid.bytes as usize, bytes);
    checked.map_err(|_| unreadable(Invalid::Bits))
}
