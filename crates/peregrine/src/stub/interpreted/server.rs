//! `GenericServer`: answers the calls of any interface with one closure, by means of the interface's
//! description.

use core::fmt;
use std::sync::Arc;

use super::callbacks::nested as interface_of;
use super::client::GenericClient;
use super::marshal::{Stopped, nested};
use super::program::{Form, Program, Routine, Unfit};
use super::streams::Items;
use crate::call::streams::{Opening, Sink, Source, open_sink, open_source};
use crate::call::{
    Answer, ForeignCall, RawRequest, Refusal, Reply, Request, Serve, Served, ServedForeign,
};
use crate::error::CallError;
use crate::interface::{Described, DescribedProcedure, Direction, InterfaceRef, System};
use crate::value::{
    Arriving, Departing, Dynamic, Invalid, Lent, Out, Overflow, Reader, Value, Writer, align_up,
};

/// The outcome of a procedure of a [`GenericServer`]: its result, its own error, or a failed call. The
/// caller gets a failed call as [`Relayed`](crate::Kind::Relayed).
pub type GenericOutcome = Result<Result<Dynamic, Dynamic>, CallError>;

type Procedures = dyn Fn(&mut GenericCall<'_>) -> GenericOutcome + Send + Sync;

/// A server of an interface that is known only at run time (the *generic server* of Chung et al.). One
/// closure answers all procedures. It is meant for [bridges](Self::passing_on), and for tests of clients.
///
/// It is exported like any other server, on every path. Its clients may be compiled or generic. Lent
/// buffers are not copied, and out buffers are filled in place.
///
/// ```
/// use peregrine::interface::Described;
/// use peregrine::{Dynamic, GenericParameter, GenericServer, Server, interface};
///
/// let text = "interface Add version 0\nadd(in a: i32, in b: i32) -> i32 or CallError#0\n\
///             CallError#0 = struct {chain: text}\n";
/// let adder = GenericServer::new(Described::parse(text)?, |call| {
///     let [GenericParameter::In(Dynamic::I32(a)), GenericParameter::In(Dynamic::I32(b))] =
///         call.parameters()
///     else {
///         unreachable!("they are as the interface says");
///     };
///     Ok(Ok(Dynamic::I32(*a + *b)))
/// });
/// # let name = format!("doc-generic-server-{}", std::process::id());
/// let running = Server::new().export(&name, adder)?.spawn()?;
///
/// #[interface]
/// trait Add {
///     fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
/// }
/// assert_eq!(AddClient::bind(&name)?.add(2, -5)?, -3);
/// # drop(running);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GenericServer {
    pub(super) known: InterfaceRef,
    pub(super) described: Described,
    pub(super) program: Arc<Program>,
    procedures: Box<Procedures>,
    /// Whether the caller learns the kind of a call that has failed within the procedure, and whether that
    /// call was executed.
    passes_on: bool,
}

impl fmt::Debug for GenericServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenericServer").field("interface", &self.known).finish_non_exhaustive()
    }
}

/// A call that a [`GenericServer`] answers.
#[derive(Debug)]
pub struct GenericCall<'a> {
    pub(super) number: u32,
    pub(super) procedure: &'a DescribedProcedure,
    pub(super) parameters: Vec<GenericParameter<'a>>,
}

/// A parameter of a call: its value, or the place for its value.
#[derive(Debug)]
pub enum GenericParameter<'a> {
    /// A value, or a copy of a buffer.
    In(Dynamic),
    /// A buffer that is not copied: bytes, whatever its elements are.
    Lent(Lent<'a, u8>),
    /// A buffer that the procedure fills with whole elements. Its capacity is in bytes.
    Out(Out<'a, u8>),
    /// A value that the procedure may change. The value is returned after the procedure has run. A buffer
    /// must keep its length.
    InOut(Dynamic),
    /// A stream that the procedure sends. The stream ends when the procedure ends.
    Sink(Sink<'a, Dynamic>),
    /// A stream that the procedure receives.
    Source(Source<'a, Dynamic>),
    /// A callback: a client that calls the caller's object. The procedure may keep a clone after the call if
    /// the caller allows it.
    Callback(GenericClient),
}

impl<'a> GenericCall<'a> {
    /// Returns the number of the procedure.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Returns the description of the procedure.
    pub const fn procedure(&self) -> &'a DescribedProcedure {
        self.procedure
    }

    /// Returns the parameters in order. The direction of a parameter determines its variant of
    /// [`GenericParameter`].
    pub fn parameters(&mut self) -> &mut [GenericParameter<'a>] {
        &mut self.parameters
    }
}

impl GenericServer {
    /// Returns a server that answers calls with `procedures`. Many threads may run `procedures` at the same
    /// time.
    pub fn new(
        described: Described,
        procedures: impl Fn(&mut GenericCall<'_>) -> GenericOutcome + Send + Sync + 'static,
    ) -> Self {
        let program = Arc::new(Program::flatten(&described));
        let known = InterfaceRef::from(described.clone());
        Self { known, described, program, procedures: Box::new(procedures), passes_on: false }
    }

    /// Returns a server that passes each call on to another server, as a bridge does: `procedures` makes the
    /// call, and returns its outcome. If the call fails, the caller learns whether the other server has
    /// executed it. A kind that concerns the call itself, such as `Kind::BadArguments` or
    /// `Kind::TimedOut`, is passed on. A kind that concerns the other server, such as
    /// `Kind::ServerGone`, becomes `Kind::Relayed`, because the caller's own server still runs.
    ///
    /// ONC RPC can express only for some of these kinds that a call was not executed. For the other kinds, a
    /// client of ONC RPC must assume that the call may have been executed.
    ///
    /// ```
    /// use peregrine::interface::Described;
    /// use peregrine::{CallError, Executed, GenericClient, GenericServer, Kind};
    ///
    /// let text = "interface Stop version 0\nstop() -> unit or CallError#0\n\
    ///             CallError#0 = struct {chain: text}\n";
    /// let server = GenericServer::passing_on(Described::parse(text)?, |_call| {
    ///     Err(CallError::new(Kind::ServerGone, Executed::No, "no process"))
    /// });
    /// let error = GenericClient::in_process(server).call("stop", &mut []).unwrap_err();
    /// assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::No));
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn passing_on(
        described: Described,
        procedures: impl Fn(&mut GenericCall<'_>) -> GenericOutcome + Send + Sync + 'static,
    ) -> Self {
        Self { passes_on: true, ..Self::new(described, procedures) }
    }

    /// Makes the refusal for a procedure that ended with the error of a call that it made itself.
    #[cold]
    pub(super) fn failed(&self, error: &CallError) -> Refusal {
        if self.passes_on { Refusal::passed_on(error) } else { Refusal::relayed(error) }
    }

    /// Returns the description of the interface.
    pub const fn described(&self) -> &Described {
        &self.described
    }

    /// Returns a text about a part of the interface that another RPC system cannot carry, if there is such a
    /// part. The text begins with the place of the part. If a procedure has such a part, the server refuses
    /// calls of this procedure by clients of `system`.
    ///
    /// ```
    /// use peregrine::GenericServer;
    /// use peregrine::interface::{Described, System};
    ///
    /// let text = "interface Wide version 0\nwide(in a: u64) -> unit or CallError#0\n\
    ///             CallError#0 = struct {chain: text}\n";
    /// let server = GenericServer::new(Described::parse(text)?, |_call| unreachable!());
    /// assert_eq!(server.missing_in(System::Onc), None);
    /// let missing = server.missing_in(System::Courier);
    /// assert_eq!(missing.as_deref(), Some("wide.a: u64 has no form in Courier"));
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn missing_in(&self, system: System) -> Option<String> {
        self.program.missing_in(system).map(|unfit| unfit.to_string())
    }

    /// Runs a procedure. Returns its outcome, and one value for each parameter, which is `Unit` unless the
    /// parameter is in-out. The streams of the call end before this function returns.
    pub(super) fn run(&self, mut call: GenericCall<'_>) -> (GenericOutcome, Vec<Dynamic>) {
        let outcome = (self.procedures)(&mut call);
        let values = call.parameters.into_iter().map(|one| match one {
            GenericParameter::InOut(value) => value,
            _ => Dynamic::Unit,
        });
        (outcome, values.collect())
    }
}

/// The blocks of a call, which are read one after the other.
struct Blocks<'a> {
    copied: &'a mut [u8],
    at: usize,
    lent: Arriving<'a>,
}

impl<'a> Blocks<'a> {
    fn copied(&mut self, bytes: usize) -> Result<&[u8], Invalid> {
        let rest = self.copied.get(self.at..).ok_or(Invalid::Short)?;
        let block = rest.get(..bytes).ok_or(Invalid::Short)?;
        self.at = (self.at + align_up(bytes)).min(self.copied.len());
        Ok(block)
    }

    fn lent(&mut self, bytes: usize) -> Result<Lent<'a, u8>, Invalid> {
        let block = self.lent.part(0, bytes)?;
        let next = align_up(bytes).min(self.lent.len());
        self.lent = self.lent.part(next, self.lent.len() - next)?;
        Ok(Lent::of_bytes(block))
    }

    fn finish(&self) -> Result<(), Invalid> {
        let left = self.at < self.copied.len() || !self.lent.is_empty();
        if left { Err(Invalid::Long) } else { Ok(()) }
    }
}

impl Serve for GenericServer {
    fn interface(&self) -> InterfaceRef {
        self.known.clone()
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        self.answer_foreign(call, results)
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let number = request.procedure();
        let program = &self.program;
        let place = number as usize;
        let (Some(routine), Some(procedure)) =
            (program.routines.get(place), self.described.procedures.get(place))
        else {
            return Err(Refusal::no_such_procedure(number));
        };
        let RawRequest { head, copied, lent } = request.raw();
        let mut head = Reader::new(head);
        let mut blocks = Blocks { copied, at: 0, lent };
        reply.expect(routine.outs);
        // The number of filled bytes of each out block. The blocks of in-out slices are filled after the
        // procedure has run, so these blocks are kept in `spaces`.
        let mut filled = vec![0usize; routine.outs];
        let mut spaces: Vec<(Option<Departing<'_>>, usize)> = Vec::with_capacity(routine.outs);
        let mut parameters = Vec::with_capacity(routine.parameters.len());
        let mut counters = filled.iter_mut();
        for (index, step) in routine.parameters.iter().enumerate() {
            let mut count = || {
                let count = head.count()?;
                let within = count <= step.max_len || step.direction == Direction::Out;
                if within { Ok(count) } else { Err(Invalid::TooLong) }
            };
            let value = match step.form {
                Form::One(op) => {
                    let mut value = Dynamic::Unit;
                    program.take(op, &mut head, &mut value)?;
                    value
                }
                Form::Stream(op) => {
                    let opening = Opening::decode(&mut head)?;
                    let items = Items::new(program, step, op);
                    parameters.push(match step.direction {
                        Direction::Sink => {
                            GenericParameter::Sink(open_sink(&opening, true, items)?)
                        }
                        _ => GenericParameter::Source(open_source(&opening, true, items)?),
                    });
                    continue;
                }
                Form::Callback => {
                    let opening = Opening::decode(&mut head)?;
                    let nested = interface_of(&self.described, number, index, step);
                    parameters.push(GenericParameter::Callback(nested.open(&opening)?));
                    continue;
                }
                Form::Text => {
                    let bytes = count()?;
                    let text = core::str::from_utf8(blocks.copied(bytes)?);
                    Dynamic::from(text.map_err(|_| Invalid::Utf8)?)
                }
                Form::Head(one) => {
                    let count = count()?;
                    let mut value = Dynamic::Unit;
                    program.take_all(one, count, &mut head, &mut value, 0)?;
                    blocks.copied(0)?;
                    if step.direction == Direction::InOut {
                        let block = reply.block(0).ok_or_else(|| Refusal::no_room(0, reply))?;
                        spaces.push((Some(block), 0));
                        counters.next();
                    }
                    value
                }
                Form::Block(solid, op) => {
                    let size = solid.bytes as usize;
                    let count = count()?;
                    let bytes = count.checked_mul(size).ok_or(Invalid::TooLong)?;
                    match step.direction {
                        Direction::Lent => {
                            parameters.push(GenericParameter::Lent(blocks.lent(bytes)?));
                            continue;
                        }
                        Direction::Out => {
                            let block =
                                reply.block(bytes).ok_or_else(|| Refusal::no_room(bytes, reply))?;
                            // The procedure may not fill more than the interface allows.
                            let usable = bytes.min(step.max_len.saturating_mul(size));
                            let usable = block.beginning(usable).ok_or(Invalid::TooLong)?;
                            let filled = counters.next().ok_or(Invalid::TooLong)?;
                            spaces.push((None, size));
                            parameters.push(GenericParameter::Out(Out::of_space(usable, filled)));
                            continue;
                        }
                        _ => {}
                    }
                    let block = blocks.copied(bytes)?;
                    program.check_all(op, size, block).map_err(|_| Invalid::Bits)?;
                    let value = Dynamic::Plain(block.to_vec());
                    if step.direction == Direction::InOut {
                        let block =
                            reply.block(bytes).ok_or_else(|| Refusal::no_room(bytes, reply))?;
                        spaces.push((Some(block), bytes));
                        counters.next();
                    }
                    value
                }
            };
            parameters.push(match step.direction {
                Direction::InOut => GenericParameter::InOut(value),
                _ => GenericParameter::In(value),
            });
        }
        head.finish()?;
        blocks.finish()?;
        let (outcome, parameters) = self.run(GenericCall { number, procedure, parameters });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) if routine.fails_as_call && !self.passes_on => {
                Err(Dynamic::List(vec![Dynamic::Text(error.relayed_text())]))
            }
            Err(error) => return Err(self.failed(&error)),
        };
        match outcome {
            Ok(result) => {
                let sent = Sent { program, routine, parameters: &parameters, result: &result };
                sent.blocks(&spaces, &filled, reply)?;
                sent.head(reply)
            }
            Err(error) => {
                put_head(reply, Answer::Err, |head| program.put(routine.error, &error, head))
            }
        }
    }
}

/// The values that are sent if the procedure returned `Ok`.
struct Sent<'a> {
    program: &'a Program,
    routine: &'a Routine,
    parameters: &'a [Dynamic],
    result: &'a Dynamic,
}

impl Sent<'_> {
    fn blocks(
        &self,
        spaces: &[(Option<Departing<'_>>, usize)],
        filled: &[usize],
        reply: &mut Reply<'_>,
    ) -> Served {
        let outs = self.routine.parameters.iter().zip(self.parameters);
        let outs = outs.filter(|(step, _)| {
            !matches!(step.form, Form::One(_))
                && matches!(step.direction, Direction::Out | Direction::InOut)
        });
        for (index, ((step, value), (space, bytes))) in outs.zip(spaces).enumerate() {
            let unfit = |unfit: Unfit| wrong(&unfit.of(&step.name));
            match (space, step.form) {
                (Some(space), Form::Block(solid, op)) => {
                    let packed;
                    let block = match value {
                        Dynamic::Plain(block) => {
                            self.program
                                .check_all(op, solid.bytes as usize, block)
                                .map_err(unfit)?;
                            block
                        }
                        Dynamic::List(values) => {
                            let mut block = Vec::with_capacity(*bytes);
                            for (i, value) in values.iter().enumerate() {
                                self.program
                                    .pack(op, value, &mut block)
                                    .map_err(|error| unfit(error.at(i)))?;
                            }
                            packed = block;
                            &packed
                        }
                        other => return Err(unfit(Unfit::expected("a buffer", other.kind()))),
                    };
                    if block.len() != *bytes {
                        let got = format!("{} bytes", block.len());
                        return Err(unfit(Unfit::expected(&format!("{bytes} bytes"), &got)));
                    }
                    let lost = || {
                        Refusal::bad_result("the procedure ran, and its result does not fit".into())
                    };
                    space.write(0, block).ok_or_else(lost)?;
                    reply.filled(index, block.len())?;
                }
                (Some(_), _) => reply.filled(index, 0)?,
                (None, _) => {
                    let filled = filled.get(index).copied().unwrap_or(0);
                    if !filled.is_multiple_of((*bytes).max(1)) {
                        let got = format!("{filled} bytes");
                        let wanted = format!("elements of {bytes} bytes");
                        return Err(unfit(Unfit::expected(&wanted, &got)));
                    }
                    reply.filled(index, filled)?;
                }
            }
        }
        Ok(())
    }

    fn head(&self, reply: &mut Reply<'_>) -> Served {
        put_head(reply, Answer::Ok, |head| {
            self.program.put(self.routine.result, self.result, head).map_err(|stopped| {
                match stopped {
                    Stopped::Unfit(unfit) => Stopped::Unfit(unfit.of("result")),
                    overflow => overflow,
                }
            })?;
            for (step, value) in self.routine.parameters.iter().zip(self.parameters) {
                let located = |stopped| match stopped {
                    Stopped::Unfit(unfit) => Stopped::Unfit(unfit.of(&step.name)),
                    overflow => overflow,
                };
                match (step.direction, step.form) {
                    (Direction::InOut, Form::One(op)) => {
                        self.program.put(op, value, head).map_err(located)?;
                    }
                    (Direction::InOut, Form::Head(one)) => {
                        let count = self.program.count(one, value);
                        head.count(count.map_err(|unfit| located(unfit.into()))?)?;
                        nested(head, |head| self.program.put_all(one, value, head, 0))
                            .map_err(located)?;
                    }
                    _ => {}
                }
            }
            Ok(())
        })
    }
}

/// Writes a head. If the head does not fit, [`Reply::head`] calls `put` again, with more memory.
fn put_head(
    reply: &mut Reply<'_>,
    answer: Answer,
    put: impl Fn(&mut Writer<'_>) -> Result<(), Stopped>,
) -> Served {
    let unfit = core::cell::Cell::new(None);
    let done = reply.head(answer, |head| {
        put(head).map_err(|stopped| match stopped {
            Stopped::Overflow(overflow) => overflow,
            Stopped::Unfit(what) => {
                unfit.set(Some(what));
                Overflow::Full
            }
        })
    });
    match unfit.into_inner() {
        Some(what) => Err(wrong(&what)),
        None => done,
    }
}

/// Returns the refusal of a call whose result does not match the interface. The procedure was executed.
#[cold]
pub(super) fn wrong(unfit: &Unfit) -> Refusal {
    Refusal::bad_result(format!("the procedure's results do not match the interface: {unfit}"))
}
