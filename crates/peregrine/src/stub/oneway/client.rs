//! The functions that generated stubs call to make one-way calls, to make other calls wait for earlier
//! one-way calls, and to flush. Each function has a blocking and an async form, with the same steps.

use core::cell::Cell;
use core::future::poll_fn;
use core::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;

use super::sleeper::block_on;
use super::state::{Appended, Place, State, Turn};
use super::{OneWay, Taken, Waiting};
use crate::binding::{Binding, Bound};
use crate::call::{CallTerms, Limit, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::foreign::Cells;
use crate::limits;
use crate::stub::compiled::{Arguments, CallTarget, Outcome, Stub, failed, forked, made, target};
use crate::value::{Block, Native, Space, Swapped, Value, Writer, bytes_of_blocks};

/// The size in 16-byte blocks of the memory on the stack in which arguments are first written.
const FEW_BLOCKS: usize = 32;
/// The size in bytes of the memory in which larger arguments are written. A call whose head does not fit this
/// memory is made in place, as an ordinary call.
const SCRATCH_BYTES: usize = 64 << 10;

thread_local! {
    /// Memory for the arguments of a one-way call.
    static SCRATCH: Cell<Vec<u128>> = const { Cell::new(Vec::new()) };
}

/// A one-way call whose arguments are written one by one.
#[derive(Debug)]
pub struct Queued<'a> {
    oneway: &'a OneWay,
    bound: &'a Bound,
    binding: &'a Binding,
    /// `bound`, if it belongs to a server of a pool.
    chosen: Option<&'a Arc<Bound>>,
    /// The number of the procedure at the server, and its number at the client.
    procedures: [u32; 2],
    deadline: Option<Instant>,
    arguments: Arguments<'a, Native>,
    taken: Option<Taken>,
}

impl<'a> Deref for Queued<'a> {
    type Target = Arguments<'a, Native>;
    #[inline(always)]
    fn deref(&self) -> &Arguments<'a, Native> {
        &self.arguments
    }
}

impl DerefMut for Queued<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.arguments
    }
}

impl Queued<'_> {
    /// Returns whether the arguments must be written in the representation `F`.
    #[cold]
    pub fn is_foreign<F: Cells>(&self) -> bool {
        self.bound.system() == Some(F::SYSTEM)
    }

    /// Queues the call with these blocks.
    #[inline]
    pub fn submit(&mut self, ins: &[Block<'_>]) {
        let head = &self.arguments.head;
        head.flush();
        let head = head.space().window().range(0, head.len());
        let Self { bound, procedures, deadline, .. } = *self;
        let call = Appended { bound, procedures, head, ins, deadline };
        self.taken = Some(self.oneway.take(&call, || match self.chosen {
            Some(chosen) => Arc::clone(chosen),
            None => self.binding.bound.share(),
        }));
    }
}

/// Makes a one-way call. `marshal` writes the arguments, and submits the call. If the call cannot be queued,
/// returns an [`InPlace`], by which the stub makes an ordinary call instead.
///
/// # Errors
/// If the call was not made, or earlier calls have failed.
#[inline]
pub fn call_oneway(
    binding: &Binding,
    procedure: u32,
    mut marshal: impl FnMut(&mut Queued<'_>) -> Result<(), CallError>,
) -> Result<Option<InPlace<'_>>, CallError> {
    let Some(oneway) = &binding.home.oneway else { return Ok(Some(InPlace::at_once(binding))) };
    let terms = binding.terms.begun();
    match attempt(binding, oneway, procedure, terms, &mut marshal) {
        Ok(Taken::Queued) => Ok(None),
        taken => call_slowly(binding, oneway, procedure, terms, taken, &mut marshal)
            .map_err(|error| failed(binding, procedure, error)),
    }
}

/// Writes the arguments of a call.
type Marshal<'a> = &'a mut dyn FnMut(&mut Queued<'_>) -> Result<(), CallError>;

#[cold]
#[inline(never)]
fn call_slowly<'b>(
    binding: &'b Binding,
    oneway: &Arc<OneWay>,
    procedure: u32,
    terms: CallTerms<'_>,
    mut taken: Result<Taken, CallError>,
    mut marshal: Marshal<'_>,
) -> Result<Option<InPlace<'b>>, CallError> {
    loop {
        match taken? {
            Taken::Queued => return Ok(None),
            Taken::Told(error) => return Err(error),
            Taken::InPlace => break,
            Taken::Full => wait(oneway, terms.deadline(), has_space)?,
            Taken::Again => {}
        }
        taken = attempt(binding, oneway, procedure, terms, &mut marshal);
    }
    take_turn(binding, oneway, terms.deadline()).map(Some)
}

/// Begins a one-way call that is made in place, as an ordinary call.
///
/// # Errors
/// If the call was not made, or earlier calls have failed.
pub(in crate::stub) fn in_place(
    binding: &Binding,
    procedure: u32,
) -> Result<InPlace<'_>, CallError> {
    let Some(oneway) = &binding.home.oneway else { return Ok(InPlace::at_once(binding)) };
    if oneway.is_forked() {
        return Err(failed(binding, procedure, forked()));
    }
    let deadline = binding.terms.begun().deadline();
    take_turn(binding, oneway, deadline).map_err(|error| failed(binding, procedure, error))
}

/// Begins a one-way call as [`in_place`] does, but waits without blocking the thread.
///
/// # Errors
/// As for [`in_place`].
pub(in crate::stub) async fn in_place_async(
    binding: &Binding,
    procedure: u32,
) -> Result<InPlace<'_>, CallError> {
    let Some(oneway) = &binding.home.oneway else { return Ok(InPlace::at_once(binding)) };
    if oneway.is_forked() {
        return Err(failed(binding, procedure, forked()));
    }
    let deadline = binding.terms.begun().deadline();
    let begun = take_turn_async(binding, oneway, deadline).await;
    begun.map_err(|error| failed(binding, procedure, error))
}

/// Waits for the turn of a call that is made in place.
fn take_turn<'b>(
    binding: &'b Binding,
    oneway: &Arc<OneWay>,
    deadline: Option<Instant>,
) -> Result<InPlace<'b>, CallError> {
    let turn = PlaceTurn::new(oneway);
    let place = turn.place;
    wait(oneway, deadline, move |_, state| has_turn(state, place))?;
    InPlace::begin(binding, turn, deadline)
}

/// Makes a one-way call as [`call_oneway`] does, but waits without blocking the thread.
///
/// # Errors
/// As for [`call_oneway`].
pub async fn call_oneway_async<'b>(
    binding: &'b Binding,
    procedure: u32,
    mut marshal: impl FnMut(&mut Queued<'_>) -> Result<(), CallError>,
) -> Result<Option<InPlace<'b>>, CallError> {
    let Some(oneway) = &binding.home.oneway else { return Ok(Some(InPlace::at_once(binding))) };
    let terms = binding.terms.begun();
    let deadline = terms.deadline();
    let explained = |error| failed(binding, procedure, error);
    loop {
        let taken = attempt(binding, oneway, procedure, terms, &mut marshal);
        match taken.map_err(explained)? {
            Taken::Queued => return Ok(None),
            Taken::Told(error) => return Err(explained(error)),
            Taken::InPlace => break,
            Taken::Full => wait_async(oneway, deadline, has_space).await.map_err(explained)?,
            Taken::Again => {}
        }
    }
    take_turn_async(binding, oneway, deadline).await.map(Some).map_err(explained)
}

/// Waits for the turn of a call that is made in place, without blocking the thread.
async fn take_turn_async<'b>(
    binding: &'b Binding,
    oneway: &Arc<OneWay>,
    deadline: Option<Instant>,
) -> Result<InPlace<'b>, CallError> {
    let turn = PlaceTurn::new(oneway);
    let place = turn.place;
    wait_async(oneway, deadline, move |_, state| has_turn(state, place)).await?;
    InPlace::begin(binding, turn, deadline)
}

/// Tries to queue a call.
#[inline]
fn attempt(
    binding: &Binding,
    oneway: &OneWay,
    procedure: u32,
    terms: CallTerms<'_>,
    marshal: &mut impl FnMut(&mut Queued<'_>) -> Result<(), CallError>,
) -> Result<Taken, CallError> {
    if oneway.is_forked() {
        return Err(forked());
    }
    // A call that a procedure makes carries the chain of its callers, and other calls may carry metadata. A
    // batch has no space for either.
    if inside().is_some() || terms.metadata().is_some() {
        return Ok(Taken::InPlace);
    }
    let chosen = match binding.home.pool() {
        None => None,
        Some(pool) => match pool.for_oneway() {
            // No server can be used. An ordinary call waits for one.
            None => return Ok(Taken::InPlace),
            chosen => chosen,
        },
    };
    let bound = chosen.as_deref().unwrap_or_else(|| binding.bound.get());
    let (own, mut number, deadline) = (procedure, procedure, terms.deadline());
    if bound.is_special_or_layered() {
        let now = chosen.as_ref().map_or_else(|| binding.now(), Arc::clone);
        if !core::ptr::eq(Arc::as_ptr(&now), bound) {
            return Ok(Taken::Again);
        }
        if now.is_layered() {
            return Ok(Taken::InPlace);
        }
        let (target, at_server) = now.target(procedure)?;
        if !core::ptr::eq(target, &raw const *now) || now.is_swapped(procedure) {
            return Ok(Taken::InPlace);
        }
        number = at_server;
    }
    let mut write = |memory: &mut [u8]| -> Result<Taken, CallError> {
        let arguments = Arguments { head: Writer::represented(Space::of_mut(memory)) };
        let (procedures, chosen) = ([number, own], chosen.as_ref());
        let mut queued =
            Queued { oneway, bound, binding, chosen, procedures, deadline, arguments, taken: None };
        marshal(&mut queued)?;
        Ok(queued.taken.unwrap_or(Taken::InPlace))
    };
    match write(bytes_of_blocks(&mut [0u128; FEW_BLOCKS])) {
        Err(error) if error.kind() == Kind::TooLarge => match with_scratch(write) {
            // The arguments do not fit the scratch memory. If they are too large for the path, too, the call
            // in place fails with the same error.
            Err(error) if error.kind() == Kind::TooLarge => Ok(Taken::InPlace),
            taken => taken,
        },
        taken => taken,
    }
}

/// Calls `with` with memory of [`SCRATCH_BYTES`] bytes.
#[cold]
fn with_scratch<T>(with: impl FnOnce(&mut [u8]) -> T) -> T {
    // Code that writes an argument may make another one-way call. That call gets memory of its own.
    let mut memory = SCRATCH.take();
    if memory.is_empty() {
        memory = vec![0; SCRATCH_BYTES / 16];
    }
    let done = with(bytes_of_blocks(&mut memory));
    SCRATCH.set(memory);
    done
}

fn has_space(_: &OneWay, state: &mut State) -> Option<()> {
    (state.bytes <= limits::ONEWAY_BYTES / 2).then_some(())
}

fn has_turn(state: &State, place: Place) -> Option<()> {
    matches!(state.turn, Turn::Place(turn) if turn == place).then_some(())
}

/// Waits until `ready` returns a value.
///
/// # Errors
/// If the deadline passes.
fn wait(
    oneway: &OneWay,
    deadline: Option<Instant>,
    ready: impl Fn(&OneWay, &mut State) -> Option<()>,
) -> Result<(), CallError> {
    let mut waiting = Waiting::default();
    block_on(deadline, |context| oneway.poll(context, &mut waiting, deadline, false, &ready))
}

async fn wait_async(
    oneway: &OneWay,
    deadline: Option<Instant>,
    ready: impl Fn(&OneWay, &mut State) -> Option<()>,
) -> Result<(), CallError> {
    let mut waiting = Waiting::default();
    poll_fn(|context| oneway.poll(context, &mut waiting, deadline, true, &ready)).await
}

/// A place in the order of calls. When this value is dropped, the next calls have their turn.
#[derive(Debug)]
struct PlaceTurn {
    oneway: Arc<OneWay>,
    place: Place,
}

impl PlaceTurn {
    fn new(oneway: &Arc<OneWay>) -> Self {
        Self { oneway: Arc::clone(oneway), place: oneway.place() }
    }
}

impl Drop for PlaceTurn {
    fn drop(&mut self) {
        if !self.oneway.is_forked() {
            self.oneway.with(|this, state| {
                state.leave_place(self.place);
                this.turn(state);
            });
        }
    }
}

/// A one-way call that is made in place: an ordinary call after all earlier one-way calls have ended.
#[derive(Debug)]
pub struct InPlace<'b> {
    turn: Option<PlaceTurn>,
    binding: Ordered<'b>,
}

impl<'b> InPlace<'b> {
    /// Returns a call of a binding whose interface has no one-way procedure. No generated stub makes such a
    /// call.
    #[cold]
    const fn at_once(binding: &'b Binding) -> Self {
        Self { turn: None, binding: Ordered(Which::Given(binding)) }
    }

    fn begin(
        binding: &'b Binding,
        turn: PlaceTurn,
        deadline: Option<Instant>,
    ) -> Result<Self, CallError> {
        let told = turn.oneway.with(|_, state| state.failures.tell());
        match told {
            Some(error) => Err(error),
            None => Ok(Self { turn: Some(turn), binding: Ordered::until(binding, deadline) }),
        }
    }

    /// Returns the binding over which to make the call.
    pub const fn binding(&self) -> &Binding {
        self.binding.binding()
    }

    /// Makes the call: by `native` in the native byte order, or by `swapped` in the other byte order.
    ///
    /// # Errors
    /// If the arguments could not be marshalled. The next call of the binding reports other failures.
    #[cold]
    #[inline(never)]
    pub fn make<O: Outcome<Ok = ()>>(
        self,
        procedure: u32,
        native: impl FnMut(&mut Stub<'_, Native>) -> Result<O, CallError>,
        swapped: impl FnMut(&mut Stub<'_, Swapped>) -> Result<O, CallError>,
    ) -> Result<(), CallError> {
        let binding = self.binding();
        let target = target(binding);
        let result = match target.is_native(procedure) {
            true => made(target, procedure, native),
            false => made(CallTarget::special(binding), procedure, swapped),
        };
        self.ended(procedure, result)
    }

    /// Returns whether to make the call by [`make_foreign`](Self::make_foreign), in the representation `F`.
    #[cold]
    pub fn is_foreign<F: Cells>(&self) -> bool {
        target(self.binding()).is_foreign::<F>()
    }

    /// Makes the call to a server of another RPC system.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    #[cold]
    pub fn make_foreign<O: Outcome<Ok = ()>>(
        self,
        procedure: u32,
        body: impl FnMut(&mut Stub<'_>) -> Result<O, CallError>,
    ) -> Result<(), CallError> {
        let result = made(CallTarget::special(self.binding()), procedure, body);
        self.ended(procedure, result)
    }

    /// Notes how the call has ended.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    #[cold]
    pub fn ended<O: Outcome<Ok = ()>>(
        self,
        procedure: u32,
        result: Result<O, CallError>,
    ) -> Result<(), CallError> {
        let own = match &result {
            Ok(outcome) => match outcome.as_result() {
                Ok(()) => return Ok(()),
                Err(error) => self.text_of(procedure, &bytes_of_value(error)),
            },
            Err(_) => None,
        };
        self.ended_with(procedure, result.map(|_| own))
    }

    fn text_of(&self, procedure: u32, own: &[u8]) -> Option<String> {
        let turn = self.turn.as_ref()?;
        turn.oneway.text_of(procedure, own).map(str::to_owned)
    }

    /// Notes that the call has failed. If the procedure has returned its own error, `failure` is `Ok` with
    /// the text of this error, if the text is known.
    ///
    /// # Errors
    /// As for [`make`](Self::make).
    pub(in crate::stub) fn ended_with(
        self,
        procedure: u32,
        failure: Result<Option<String>, CallError>,
    ) -> Result<(), CallError> {
        let failure = match failure {
            Err(error) if error.executed() == Executed::No && error.phase() == Phase::Marshal => {
                return Err(error);
            }
            failure => failure,
        };
        let Some(PlaceTurn { oneway, .. }) = &self.turn else { return failure.map(drop) };
        oneway.with(|this, state| match failure {
            Ok(own) => state.failures.note(1, 0, || this.own_error(procedure, own.as_deref())),
            Err(error) => state.failures.note_error(1, &error.nowhere()),
        });
        Ok(())
    }
}

/// Returns the encoded bytes of a value, or no bytes if they do not fit [`SCRATCH_BYTES`].
fn bytes_of_value<T: Value>(value: &T) -> Vec<u8> {
    with_scratch(|memory| {
        let mut head = Writer::<Native>::new(Space::of_mut(memory));
        let encoded = value.encode(&mut head).is_ok();
        head.flush();
        let length = if encoded { head.len() } else { 0 };
        memory[..length].to_vec()
    })
}

/// The binding of a call that is made after all earlier one-way calls have ended. If the call had to wait for
/// them, the binding has the deadline that the call had before the wait.
#[derive(Debug)]
pub struct Ordered<'b>(Which<'b>);

#[derive(Debug)]
enum Which<'b> {
    Given(&'b Binding),
    Until(Binding),
}

impl<'b> Ordered<'b> {
    fn until(binding: &'b Binding, deadline: Option<Instant>) -> Self {
        Self(match deadline {
            Some(deadline) => Which::Until(binding.with_limit(Limit::Until(deadline))),
            None => Which::Given(binding),
        })
    }

    /// Returns the binding.
    pub const fn binding(&self) -> &Binding {
        match &self.0 {
            Which::Given(binding) => binding,
            Which::Until(binding) => binding,
        }
    }
}

/// Waits, before a call of `procedure`, until all earlier one-way calls have ended.
///
/// # Errors
/// If the deadline passes, or an earlier call has failed. The call of `procedure` must not be made then.
#[inline]
pub fn after_oneway(binding: &Binding, procedure: u32) -> Result<Ordered<'_>, CallError> {
    match &binding.home.oneway {
        Some(oneway) if !oneway.is_idle() => {
            await_others(binding, oneway).map_err(|error| failed(binding, procedure, error))
        }
        _ => Ok(Ordered(Which::Given(binding))),
    }
}

#[cold]
#[inline(never)]
fn await_others<'b>(binding: &'b Binding, oneway: &OneWay) -> Result<Ordered<'b>, CallError> {
    let deadline = binding.terms.begun().deadline();
    let made = oneway.made()?;
    wait(oneway, deadline, move |_, state| (state.ended >= made).then_some(()))?;
    oneway.told()?;
    Ok(Ordered::until(binding, deadline))
}

/// Waits as [`after_oneway`] does, without blocking the thread.
///
/// # Errors
/// As for [`after_oneway`].
pub async fn after_oneway_async(
    binding: &Binding,
    procedure: u32,
) -> Result<Ordered<'_>, CallError> {
    match &binding.home.oneway {
        Some(oneway) if !oneway.is_idle() => await_others_async(binding, oneway)
            .await
            .map_err(|error| failed(binding, procedure, error)),
        _ => Ok(Ordered(Which::Given(binding))),
    }
}

async fn await_others_async<'b>(
    binding: &'b Binding,
    oneway: &OneWay,
) -> Result<Ordered<'b>, CallError> {
    let deadline = binding.terms.begun().deadline();
    let made = oneway.made()?;
    let ended = move |_: &OneWay, state: &mut State| (state.ended >= made).then_some(());
    wait_async(oneway, deadline, ended).await?;
    oneway.told()?;
    Ok(Ordered::until(binding, deadline))
}

/// Waits until all one-way calls that were made before have ended.
///
/// # Errors
/// If the deadline passes, or one of these calls has failed. The error then says whether the calls that failed
/// may have been executed.
pub fn flush(binding: &Binding) -> Result<(), CallError> {
    match &binding.home.oneway {
        Some(oneway) if !oneway.is_idle() => {
            await_others(binding, oneway).map(drop).map_err(|error| of_flush(binding, error))
        }
        _ => Ok(()),
    }
}

/// Waits as [`flush`] does, without blocking the thread.
///
/// # Errors
/// As for [`flush`].
pub async fn flush_async(binding: &Binding) -> Result<(), CallError> {
    match &binding.home.oneway {
        Some(oneway) if !oneway.is_idle() => await_others_async(binding, oneway)
            .await
            .map(drop)
            .map_err(|error| of_flush(binding, error)),
        _ => Ok(()),
    }
}

#[cold]
fn of_flush(binding: &Binding, error: CallError) -> CallError {
    error.at(binding.address()).of("flush").of_oneway()
}
