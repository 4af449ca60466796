//! ONC RPC over UDP: each datagram is one message.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{AcceptedCall, Desk};
use crate::call::{PathKind, Refusal};
use crate::device::BYTES_MAX;
use crate::path::foreign::callers::Callers;
use crate::path::foreign::datagrams::{
    Answer, DatagramService, Datagrams, Message, Received, Thread,
};
use crate::path::foreign::service::{self, Source};
use crate::serving::ServerCore;
use crate::sys;

/// The sockets of a server for ONC RPC over UDP.
pub(crate) type OncDatagrams = Datagrams<Arc<Desk>>;

impl DatagramService for Arc<Desk> {
    type Call = AcceptedCall;

    fn new(core: &Arc<ServerCore>) -> io::Result<Self> {
        Desk::new(core, PathKind::OncUdp)
    }

    fn receive(
        &self,
        from: SocketAddr,
        callers: &Callers,
        datagram: &[u8],
        Thread { serving, reply }: &mut Thread,
        answer: &Answer<'_>,
    ) -> Received<AcceptedCall> {
        let source = Source { from, connection: 0, callers, session: &() };
        match self.take(source, datagram, serving, reply) {
            service::Received::Nothing => Received::Settled { is_foreign: false },
            service::Received::Foreign => Received::Settled { is_foreign: true },
            service::Received::Answered | service::Received::Greeted | service::Received::Last => {
                answer.send([reply.message(), &[]]);
                Received::Settled { is_foreign: false }
            }
            service::Received::Call(call) => {
                Received::Call(call, Message::Received(0..datagram.len()))
            }
        }
    }

    fn run(
        &self,
        call: AcceptedCall,
        message: &[u8],
        Thread { serving, reply }: &mut Thread,
        answer: &Answer<'_>,
    ) -> u64 {
        let ran = call.run(message, BYTES_MAX, serving, reply);
        let ended = sys::boot_ns();
        if ran.is_some() {
            answer.send([reply.message(), &[]]);
        }
        ended
    }

    fn refuse(
        &self,
        call: AcceptedCall,
        refusal: &Refusal,
        Thread { reply, .. }: &mut Thread,
        answer: &Answer<'_>,
    ) {
        if call.refused(refusal, reply).is_some() {
            answer.send([reply.message(), &[]]);
        }
    }
}
