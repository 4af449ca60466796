//! [`ConvertedPath`]: makes the calls whose messages the client converts, over the path to the server.

use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::sync::Arc;

use super::convert::{Done, Stopped, swap_of};
use super::program::{Blocks, Elements, OpId, Program, Routine};
use crate::call::{
    Answer, Begun, Call, CallPath, CallTerms, FrameGuard, Frames, Returned, pass_on,
};
use crate::error::{CallError, Kind, Phase};
use crate::interface::Direction;
use crate::stub::compiled::{does_not_fit, unreadable};
use crate::stub::few::Few;
use crate::value::{
    Block, ByteOrder, Invalid, Native, OutBlock, Overflow, Reader, Representation, Space, Swap,
    Swapped, Window, Writer, align_up,
};

/// A path that calls use in two ways: directly if their procedures are equal on both sides, and otherwise
/// through a [`ConvertedPath`].
pub(crate) struct SharedPath(pub(crate) Arc<dyn CallPath>);

impl CallPath for SharedPath {
    pass_on! {
        self => self.0;
        transport, begin, poll, arm, give_up, is_prepared, prepare, message_bytes, server_cpu,
        wait, kind, explain, is_alive, captures, is_released, retransmissions
    }
}

/// A path that converts messages. Its frames are those of the path to the server, with a second memory that
/// is private. The private memory holds messages of the client's interface. The memory of the path holds
/// messages of the server's interface. A caller that has a frame has both memories, so it never waits for a
/// second frame.
pub(crate) struct ConvertedPath {
    path: Arc<dyn CallPath>,
    /// The frames of the path to the server.
    frames: Arc<Frames>,
    order: ByteOrder,
    program: Program,
    /// For each frame, the procedure of its pending call.
    procedures: Box<[AtomicU32]>,
}

/// A call with at most this number of blocks is converted without an allocation.
const FEW: usize = 8;

/// A frame of the path to the server. Its drop does not release the frame, because the caller's guard for the
/// same frame releases it.
type ServerFrame<'a> = ManuallyDrop<FrameGuard<'a>>;

impl ConvertedPath {
    /// Returns the path for the converted procedures of a binding, and its frames. Stubs write values to
    /// these frames in the native representation.
    ///
    /// # Errors
    /// If there is no memory for the frames.
    pub(crate) fn over(
        path: &Arc<dyn CallPath>,
        frames: &Arc<Frames>,
        order: ByteOrder,
        program: Program,
    ) -> io::Result<(Self, Frames)> {
        let own = frames.with_own_memory()?;
        let procedures = (0..frames.layout().count).map(|_| AtomicU32::default()).collect();
        let (path, frames) = (Arc::clone(path), Arc::clone(frames));
        let converted = Self { path, frames, order, program, procedures };
        Ok((converted, own))
    }

    fn server_frame(&self, frame: u32) -> ServerFrame<'_> {
        ManuallyDrop::new(self.frames.kept(frame))
    }

    fn routine(&self, procedure: u32) -> Result<&Routine, CallError> {
        self.program.routine(procedure).ok_or_else(|| {
            let text = "the call of this procedure is not converted";
            CallError::not_executed(Kind::NoSuchProcedure, Phase::Marshal, text)
        })
    }

    /// Converts the call and sends it by `send`. If the call has ended, converts the result back.
    fn send(
        &self,
        call: &mut Call<'_, '_, '_>,
        send: impl FnOnce(&mut Call<'_, '_, '_>) -> Result<Begun, CallError>,
    ) -> Result<Begun, CallError> {
        let routine = self.routine(call.procedure)?;
        if self.order.is_native() {
            self.send_as::<Native>(routine, call, send)
        } else {
            self.send_as::<Swapped>(routine, call, send)
        }
    }

    fn send_as<R: Representation>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
        send: impl FnOnce(&mut Call<'_, '_, '_>) -> Result<Begun, CallError>,
    ) -> Result<Begun, CallError> {
        // Making a list of blocks takes time in proportion to its capacity, so calls with few blocks use
        // short lists.
        match (routine.ins.max(routine.lent), routine.outs) {
            (0..=2, 0) => self.send_with::<R, 2, 0>(routine, call, send),
            (0..=2, 1..=2) => self.send_with::<R, 2, 2>(routine, call, send),
            _ => self.send_with::<R, FEW, FEW>(routine, call, send),
        }
    }

    fn send_with<R: Representation, const INS: usize, const OUTS: usize>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
        send: impl FnOnce(&mut Call<'_, '_, '_>) -> Result<Begun, CallError>,
    ) -> Result<Begun, CallError> {
        let frame = self.server_frame(call.frame.index());
        let mut ins = Few::<_, INS>::new(routine.ins, Block::empty);
        let mut lent = Few::<_, INS>::new(routine.lent, Block::empty);
        let mut outs = Few::<_, OUTS>::new(routine.outs, OutBlock::none);
        let mut filled = Few::<_, OUTS>::filled(routine.outs, || 0usize);
        call.head.flush();
        let call_space = call.frame.call_space();
        let head = call_space.window().range(0, call.head.len());
        // The call space of the caller's frame has the head, and then the converted blocks.
        let mut sent = Scratch::new(call_space, head.len());
        let mut writer = Writer::<R>::represented(frame.call_space());
        let mut reader = Reader::<Native>::represented(head);
        let (mut our_ins, mut our_lent) = (call.ins.iter(), call.lent.iter());
        for argument in &routine.arguments {
            self.program
                .part(argument.head, &mut reader, &mut writer, 0)
                .map_err(|stopped| self.not_sent(stopped))?;
            let Some(Blocks { direction, ours, theirs, elements }) = argument.blocks else {
                continue;
            };
            if direction == Direction::Out {
                continue;
            }
            let lends = direction == Direction::Lent;
            let passed = if lends { &mut our_lent } else { &mut our_ins };
            let block = if ours { passed.next() } else { None };
            let block = match (block, elements) {
                (Some(block), Some(elements)) => self.sent::<R>(block, &elements, &mut sent)?,
                (Some(block), None) => *block,
                (None, _) => Block::empty(),
            };
            if theirs {
                if lends { lent.push(block) } else { ins.push(block) }
            }
        }
        reader.finish().map_err(|invalid| self.not_sent(invalid.into()))?;
        let mut received = Scratch::new(call.frame.reply_to(), 0);
        offer::<R, OUTS>(routine, call.outs, &mut received, &mut outs, filled.all())?;
        let begun = send(&mut Call {
            procedure: routine.number,
            frame: &frame,
            head: &mut writer,
            ins: ins.all(),
            lent: lent.all(),
            outs: outs.all(),
            terms: call.terms,
        })?;
        drop((ins, lent, outs));
        let Begun::Ended(returned) = begun else { return Ok(Begun::Pending) };
        self.take::<R>(routine, call, returned, received, filled.all()).map(Begun::Ended)
    }

    /// Looks for the result of a pending call, and converts it back.
    fn poll_as<R: Representation>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        match routine.outs {
            0 => self.poll_with::<R, 0>(routine, call),
            1..=2 => self.poll_with::<R, 2>(routine, call),
            _ => self.poll_with::<R, FEW>(routine, call),
        }
    }

    fn poll_with<R: Representation, const OUTS: usize>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Result<Returned, CallError>> {
        let mut outs = Few::<_, OUTS>::new(routine.outs, OutBlock::none);
        let mut filled = Few::<_, OUTS>::filled(routine.outs, || 0usize);
        let mut received = Scratch::new(call.frame.reply_to(), 0);
        // The same blocks were offered when the call began, so they fit.
        let offered = offer::<R, OUTS>(routine, call.outs, &mut received, &mut outs, filled.all());
        if let Err(error) = offered {
            return Some(Err(error.may_have_executed()));
        }
        let (frame, terms) = (call.frame.index(), call.terms);
        let ended = self.of_server(frame, outs.all(), terms, |call| self.path.poll(call))?;
        drop(outs);
        Some(
            ended.and_then(|returned| {
                self.take::<R>(routine, call, returned, received, filled.all())
            }),
        )
    }

    /// Calls `with` with the pending call of a frame, as the path to the server knows it.
    fn of_server<T>(
        &self,
        frame: u32,
        outs: &mut [OutBlock<'_>],
        terms: CallTerms<'_>,
        with: impl FnOnce(&mut Call<'_, '_, '_>) -> T,
    ) -> T {
        let frame = self.server_frame(frame);
        let head = &mut Writer::<Native>::represented(frame.call_space());
        with(&mut Call { procedure: 0, frame: &frame, head, ins: &[], lent: &[], outs, terms })
    }

    /// Converts a result back. The head of the client's result is written after the blocks in `received`.
    fn take<R: Representation>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
        returned: Returned,
        received: Scratch<'_>,
        filled: &[usize],
    ) -> Result<Returned, CallError> {
        let Returned { answer, head_at, head_bytes } = returned;
        let frame = self.server_frame(call.frame.index());
        let head = frame.reply_space().part(head_at as usize, head_bytes as usize);
        let head = head.ok_or_else(|| unreadable(Invalid::Short))?;
        if answer == Answer::Ok {
            self.take_blocks::<R>(routine, call, filled)?;
        }
        let at = align_up(received.at);
        let mut writer = Writer::<Native>::represented(received.rest());
        let mut reader = Reader::<R>::represented(head);
        let converted = match answer {
            Answer::Ok => self.result(routine, &mut reader, &mut writer),
            Answer::Err => self.program.convert(routine.error, &mut reader, &mut writer, 0),
            // A refusal has the same bytes in all interfaces and representations.
            _ => copy(head, &mut writer),
        };
        let whole = match answer {
            Answer::Ok | Answer::Err => converted.and_then(|()| Ok(reader.finish()?)),
            _ => converted,
        };
        whole.map_err(|stopped| self.not_received(stopped))?;
        writer.flush();
        Ok(Returned { answer, head_at: at as u32, head_bytes: writer.len() as u32 })
    }

    fn result<R: Representation>(
        &self,
        routine: &Routine,
        from: &mut Reader<'_, R>,
        to: &mut Writer<'_, Native>,
    ) -> Done {
        self.program.convert(routine.result, from, to, 0)?;
        routine.back.iter().try_for_each(|op| self.program.convert(*op, from, to, 0))
    }

    /// Returns a block of the client as the server expects it.
    fn sent<'b, R: Representation>(
        &self,
        block: &Block<'b>,
        elements: &Elements,
        scratch: &mut Scratch<'b>,
    ) -> Result<Block<'b>, CallError> {
        // A native stub passes blocks as they are in memory.
        let window = block.unconverted().unwrap_or(Window::empty());
        if elements.is_straight::<R>() {
            return Ok(Block::new(window, elements.swap::<R>()));
        }
        let converted = self
            .elements::<Native, R>(elements.call, window, elements.our_bytes, scratch)
            .map_err(|stopped| self.not_sent(stopped))?;
        Ok(Block::new(converted, None))
    }

    /// Converts the elements of one block into the next free part of `scratch`.
    fn elements<'b, A: Representation, B: Representation>(
        &self,
        op: OpId,
        window: Window<'_>,
        bytes: u32,
        scratch: &mut Scratch<'b>,
    ) -> Result<Window<'b>, Stopped> {
        let mut writer = Writer::<B>::represented(scratch.rest());
        let mut reader = Reader::<A>::represented(window);
        let count = window.len() / (bytes as usize).max(1);
        self.program.values(op, count as u64, &mut reader, &mut writer, 0)?;
        reader.finish()?;
        writer.flush();
        let taken = scratch.take(writer.len());
        taken.map(|space| space.window()).ok_or(Stopped::Overflow(Overflow::Full))
    }

    /// Converts the out blocks that the server filled, and fills those of the client.
    fn take_blocks<R: Representation>(
        &self,
        routine: &Routine,
        call: &mut Call<'_, '_, '_>,
        filled: &[usize],
    ) -> Result<(), CallError> {
        let reply_space = call.frame.reply_to();
        let call_space = call.frame.call_space();
        let (mut at, mut outs) = (0, call.outs.iter_mut());
        let mut filled = filled.iter();
        for Blocks { direction, ours, theirs, elements } in routine.blocks() {
            if !matches!(direction, Direction::Out | Direction::InOut) {
                continue;
            }
            let Some(filled) = filled.next() else { continue };
            if !ours {
                continue;
            }
            let Some(out) = outs.next() else { continue };
            let Some(elements) = elements.filter(|_| theirs) else {
                if direction == Direction::Out {
                    out.fill(Window::empty()).map_err(unreadable)?;
                }
                continue;
            };
            if elements.is_straight::<R>() {
                continue;
            }
            // The offsets are those that `offer` reserved before the call.
            let count = out.capacity() / elements.our_bytes.max(1) as usize;
            let part = reply_space.part(at, *filled).ok_or_else(|| unreadable(Invalid::Short))?;
            at = align_up(at.saturating_add(count.saturating_mul(elements.their_bytes as usize)));
            // The call has ended, so the call space of the frame is free.
            let mut scratch = Scratch::new(call_space, 0);
            let window = part.window();
            let bytes = elements.their_bytes;
            let converted = self
                .elements::<R, Native>(elements.reply, window, bytes, &mut scratch)
                .map_err(|stopped| self.not_received(stopped))?;
            out.fill(converted).map_err(unreadable)?;
        }
        Ok(())
    }

    #[cold]
    fn not_sent(&self, stopped: Stopped) -> CallError {
        const ADVICE: &str = "use values that the server knows, or a newer server";
        let text = match stopped {
            Stopped::Overflow(overflow) => return does_not_fit(overflow),
            Stopped::Invalid(invalid) => invalid.to_string(),
            Stopped::OutOfRange { value, signed, bytes } => {
                out_of_range(value, signed, bytes, "server")
            }
            Stopped::Unknown { ty, variant } => {
                let (ty, variant) = (self.program.name(ty), self.program.name(variant));
                format!("the server does not know the variant `{variant}` of `{ty}`")
            }
        };
        CallError::not_executed(Kind::BadArguments, Phase::Marshal, text).with_advice(ADVICE)
    }

    #[cold]
    fn not_received(&self, stopped: Stopped) -> CallError {
        const ADVICE: &str = "use a newer client, or an `#[other]` variant in the enum";
        CallError::bad_result(match stopped {
            Stopped::Overflow(overflow) => overflow.to_string(),
            Stopped::Invalid(invalid) => invalid.to_string(),
            Stopped::OutOfRange { value, signed, bytes } => {
                out_of_range(value, signed, bytes, "client")
            }
            Stopped::Unknown { ty, variant } => {
                let (ty, variant) = (self.program.name(ty), self.program.name(variant));
                let text = format!("this client does not know the variant `{variant}` of `{ty}`");
                return CallError::bad_result(text).with_advice(ADVICE);
            }
        })
    }
}

/// Makes the out blocks of a call at the server. Blocks that must be converted are received in `received`.
fn offer<'o, 's: 'o, R: Representation, const OUTS: usize>(
    routine: &Routine,
    our_outs: &'o mut [OutBlock<'_>],
    received: &mut Scratch<'s>,
    outs: &mut Few<OutBlock<'o>, OUTS>,
    filled: &'o mut [usize],
) -> Result<(), CallError> {
    let (mut our_outs, mut filled) = (our_outs.iter_mut(), filled.iter_mut());
    for Blocks { direction, ours, theirs, elements } in routine.blocks() {
        if !matches!(direction, Direction::Out | Direction::InOut) {
            continue;
        }
        let Some(filled) = filled.next() else { continue };
        let out = if ours { our_outs.next() } else { None };
        let block = match (out, elements) {
            (Some(out), Some(elements)) if elements.is_straight::<R>() => {
                out.reborrowed().converted(elements.swap::<R>())
            }
            (Some(out), Some(elements)) => {
                let count = out.capacity() / elements.our_bytes.max(1) as usize;
                let bytes = count.checked_mul(elements.their_bytes as usize);
                let space = bytes.and_then(|bytes| received.take(bytes));
                OutBlock::bytes(space.ok_or_else(|| does_not_fit(Overflow::Full))?, filled)
            }
            _ => OutBlock::none(),
        };
        if theirs {
            outs.push(block);
        }
    }
    Ok(())
}

#[cold]
fn out_of_range(value: i128, signed: bool, bytes: u8, side: &str) -> String {
    // An unsigned integer of 128 bits that exceeds the range of `i128` appears as a negative `value`.
    let value = if signed { value.to_string() } else { (value as u128).to_string() };
    format!("the integer {value} does not fit the {} bits of the {side}", u32::from(bytes) * 8)
}

/// Copies bytes as they are.
#[cold]
fn copy(head: Window<'_>, to: &mut Writer<'_, Native>) -> Done {
    Ok(to.block(1, &Block::new(head, None))?)
}

impl Elements {
    /// Returns whether a block of these elements is sent directly from the caller's memory, and received
    /// directly into this memory.
    fn is_straight<R: Representation>(&self) -> bool {
        self.is_equal && (!R::SWAPPED || self.unit != 0)
    }

    /// Returns how a straight block is converted while it is copied.
    fn swap<R: Representation>(&self) -> Option<&'static Swap> {
        if R::SWAPPED { swap_of(self.unit) } else { None }
    }
}

/// A part of a frame's memory, from which converted blocks take their space one after the other. The free
/// space begins at the offset `at`, and each block is aligned.
struct Scratch<'a> {
    space: Space<'a>,
    at: usize,
}

impl<'a> Scratch<'a> {
    fn new(space: Space<'a>, at: usize) -> Self {
        Self { space, at }
    }

    fn rest(&self) -> Space<'a> {
        let at = align_up(self.at);
        let bytes = self.space.window().len().saturating_sub(at);
        self.space.part(at, bytes).unwrap_or(Space::none())
    }

    fn take(&mut self, bytes: usize) -> Option<Space<'a>> {
        let taken = self.rest().part(0, bytes)?;
        self.at = align_up(self.at) + bytes;
        Some(taken)
    }
}

impl CallPath for ConvertedPath {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        match self.send(call, |call| self.path.transport(call).map(Begun::Ended))? {
            Begun::Ended(returned) => Ok(returned),
            Begun::Pending => unreachable!("`transport` waits for the result"),
        }
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.procedures[call.frame.index() as usize].store(call.procedure, Ordering::Relaxed);
        self.send(call, |call| self.path.begin(call))
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        // Only the holder of a frame reads and writes the frame's entry in `procedures`.
        let procedure = self.procedures[call.frame.index() as usize].load(Ordering::Relaxed);
        let routine = match self.routine(procedure) {
            Ok(routine) => routine,
            Err(error) => return Some(Err(error)),
        };
        if self.order.is_native() {
            self.poll_as::<Native>(routine, call)
        } else {
            self.poll_as::<Swapped>(routine, call)
        }
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        self.of_server(call.frame.index(), &mut [], call.terms, |call| self.path.give_up(call))
    }

    pass_on! {
        self => self.path;
        arm, is_prepared, prepare, message_bytes, server_cpu, wait, kind, explain, is_alive,
        captures, is_released, retransmissions
    }
}
