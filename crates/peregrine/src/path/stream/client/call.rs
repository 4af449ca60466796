//! `StreamPath`: the path of one binding over TCP. To make a call, this path sends the message from the
//! frame, which is the memory for a call and its reply. Then the path waits for the reply and reads it.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Instant;

use super::{Connection, Event};
use crate::call::accounted;
use crate::call::chain::WaitingInside;
use crate::call::extensions::Extensions;
use crate::call::{Answer, Begun, Call, CallPath, Layout, PathKind, Returned, Wait, inside};
use crate::error::{CallError, Executed, Kind, Phase};
use crate::limits;
use crate::protocol::stream::{self as wire, Header};
use crate::steps::{self, Step};
use crate::value::Window;

/// The path of one binding.
pub(crate) struct StreamPath {
    pub(crate) connection: Arc<Connection>,
    pub(crate) binding: u32,
    pub(crate) revoked: Arc<AtomicBool>,
    /// The size in bytes of the largest message that both the client and the server allow.
    pub(crate) message_bytes: usize,
    /// The size in bytes of the largest message that the client's options allow.
    pub(crate) own_bytes: usize,
    /// The size in bytes of the largest message that the server allows.
    pub(crate) granted: usize,
    pub(crate) wait: Wait,
}

impl CallPath for StreamPath {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let connection = &*self.connection;
        self.check_revoked()?;
        let layout = call.layout();
        if layout.total > self.message_bytes {
            return Err(self.too_large(layout.total));
        }
        let deadline = call.terms.deadline();
        // Blocks are sent from the caller's memory. If blocks must be converted, they are first converted
        // into the frame, and sent from there.
        let straight = call.is_unconverted();
        if !straight {
            call.put(self.message_bytes).ok_or_else(|| self.too_large(layout.total))?;
        }
        let there = if straight { layout.head } else { layout.total };
        call.head.flush();
        let (inside, carried) = (inside(), &mut None);
        let extensions: &[u8] = if inside.is_some() || !call.terms.are_none() {
            if call.terms.are_accounted() {
                accounted::enter(call);
            }
            carried.insert(Extensions::of(inside, call.terms)?).as_bytes()
        } else {
            &[]
        };
        let _waiting = inside.map(|_| WaitingInside::begin());
        let index = call.frame.index();
        let header = self.header(call, &layout, extensions, connection.end.begin(index));
        let header = header.to_bytes();
        let there = call.frame.call_space().range(0, there);
        let sent = connection.send(deadline, |sending| {
            sending.part(Window::from(&header[..]))?;
            sending.part(there.window())?;
            for block in call.ins.iter().chain(call.lent).filter(|_| straight) {
                sending.block(block.unconverted().expect("no block is converted"))?;
            }
            sending.block(Window::from(extensions))
        });
        if let Err(error) = sent {
            connection.slot(index).release();
            return Err(error);
        }
        match connection.wait(index, self.wait, deadline) {
            Event::Done => {}
            Event::Ended => return self.ended(index, call),
            Event::Late => return self.late(index, call),
        }
        self.take(index, call)
    }

    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.begin_pending(call)
    }

    fn poll(&self, call: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        self.poll_pending(call)
    }

    fn arm(&self, frame: u32, deadline: Option<Instant>) {
        self.connection.arm(frame, deadline);
    }

    fn give_up(&self, call: &mut Call<'_, '_, '_>) -> CallError {
        self.give_up_pending(call)
    }

    fn is_prepared(&self, _frame: u32) -> bool {
        true
    }

    fn prepare(&self, _frame: u32, _deadline: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }

    fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    fn retransmissions(&self, _frame: u32) -> u32 {
        0
    }

    fn server_cpu(&self, _frame: u32) -> Option<u32> {
        None
    }

    fn wait(&self) -> Wait {
        self.wait
    }

    fn kind(&self) -> PathKind {
        PathKind::Tcp
    }

    fn explain(&self) -> String {
        String::new()
    }

    fn is_alive(&self) -> bool {
        self.connection.listen();
        !self.connection.has_ended() && !self.revoked.load(Ordering::Acquire)
    }

    fn captures(&self, _frame: u32) -> bool {
        false
    }

    fn is_released(&self, frame: u32) -> bool {
        self.connection.is_released(frame)
    }
}

impl StreamPath {
    #[inline]
    pub(super) fn check_revoked(&self) -> Result<(), CallError> {
        if self.revoked.load(Ordering::Acquire) {
            let text = "the server has revoked the binding";
            return Err(CallError::not_executed(Kind::Withdrawn, Phase::Call, text));
        }
        Ok(())
    }

    #[cold]
    pub(super) fn too_large(&self, bytes: usize) -> CallError {
        CallError::too_large(bytes, self.own_bytes, Some(self.granted))
    }

    /// Returns the header of a call. `number` is the number of the call.
    #[inline]
    pub(super) const fn header(
        &self,
        call: &Call<'_, '_, '_>,
        layout: &Layout,
        extensions: &[u8],
        number: u32,
    ) -> Header {
        Header {
            body: layout.total as u32,
            binding: self.binding,
            procedure: call.procedure,
            head: layout.head as u32,
            split: layout.copied as u32,
            extensions: extensions.len() as u32,
            ..Header::new(wire::MessageKind::Call, number)
        }
    }

    /// Takes a reply that has arrived in the frame of its call.
    #[inline]
    pub(super) fn take(
        &self,
        index: u32,
        call: &mut Call<'_, '_, '_>,
    ) -> Result<Returned, CallError> {
        let slot = self.connection.slot(index);
        let [kind, answer, head_at, head_bytes, body] = slot.reply();
        slot.release();
        if body as usize > limits::ASTACK_BYTES_KEPT {
            self.connection.used();
        }
        let answer = match Answer::from_number(answer) {
            Some(Answer::PostAgain) | None => None,
            answer => answer.filter(|_| kind == wire::MessageKind::Reply as u32),
        };
        let Some(answer) = answer else {
            return Err(CallError::bad_result("unknown kind of answer"));
        };
        // Beyond the end of this message, the frame may still hold bytes of an earlier message. The head must
        // not include those bytes.
        if head_at.checked_add(head_bytes).is_none_or(|end| end > body) {
            return Err(CallError::bad_result("the head of the result lies outside the message"));
        }
        if answer == Answer::Ok {
            let taken = call.take_packed_blocks(body as usize);
            taken.map_err(|invalid| CallError::bad_result(invalid.to_string()))?;
        }
        steps::pass(Step::Taken);
        if steps::is_recording() {
            steps::note_received(body as usize);
        }
        Ok(Returned { answer, head_at, head_bytes })
    }

    #[cold]
    pub(super) fn ended(
        &self,
        index: u32,
        call: &mut Call<'_, '_, '_>,
    ) -> Result<Returned, CallError> {
        // A reply that arrived just before the end of the connection is valid.
        if self.connection.slot(index).is_done() {
            return self.take(index, call);
        }
        Err(self.connection.unanswered())
    }

    /// Cancels the call because the deadline of the call has passed. If the reply has already arrived, takes
    /// the reply instead. No other call can use the frame of a cancelled call until the reply arrives, or
    /// until the connection ends.
    #[cold]
    fn late(&self, index: u32, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let slot = self.connection.slot(index);
        if !slot.capture() {
            return self.take(index, call);
        }
        self.connection.cancel(index);
        Err(CallError::new(Kind::TimedOut, Executed::Maybe, "the server has not answered"))
    }

    /// Notifies the server that the client no longer needs the binding.
    pub(crate) fn unbind(&self) {
        self.connection.bindings().flags.remove(&self.binding);
        let header = Header { binding: self.binding, ..Header::new(wire::MessageKind::Unbind, 0) };
        self.connection.send_notice(header);
    }
}
