//! The server's half of packet Courier: from the arrival of a call to its reply.
//! [`packet_server`](crate::protocol::courier::packet_server) decides which calls run, and how each packet is
//! answered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::call::{Calls, PathKind, Refusal};
use crate::interface::System;
use crate::path::courier::wire::answers::{
    HEADER_BYTES_MAX, foreign_call, payload_of, put_answer, put_rejection, rejection_of,
    rejection_of_missing,
};
use crate::path::foreign::callers::{Caller, CallerRow, Callers};
use crate::path::foreign::datagrams::{
    Answer, DatagramService, Datagrams, Message, Received, Thread,
};
use crate::path::foreign::exported::exported;
use crate::path::foreign::moment;
use crate::path::foreign::serving::{
    ArrivedCall, NeverGivenUp, ReplyBuffer, Served, row_of, serve,
};
use crate::protocol::courier::message::{Call, Rejection, VERSIONS_BYTES};
use crate::protocol::courier::packet::Packet;
use crate::protocol::courier::packet_server::{Arguments, PacketServer, Running, Work};
use crate::protocol::replies::Bounds;
use crate::serving::ServerCore;
use crate::sync::Mutex;
use crate::sys;

/// The sockets of a server for packet Courier.
pub(crate) type CourierDatagrams = Datagrams<Desk>;

/// What all calls of one socket share.
pub(crate) struct Desk {
    core: Arc<ServerCore>,
    server: Arc<Mutex<PacketServer>>,
    calls: Arc<NeverGivenUp>,
}

/// A call that is to be run. If this value is dropped, the call counts as failed.
pub(crate) struct AcceptedCall {
    server: Arc<Mutex<PacketServer>>,
    row: Arc<CallerRow>,
    header: Call,
    /// The largest number of bytes of the payload of the reply.
    payload_max: usize,
    /// `None` after the call has ended.
    running: Option<Running>,
}

impl DatagramService for Desk {
    type Call = AcceptedCall;

    fn new(core: &Arc<ServerCore>) -> io::Result<Self> {
        let server = PacketServer::new(sys::random()?, Bounds::DEFAULT);
        let (core, server) = (Arc::clone(core), Arc::new(Mutex::new(server)));
        Ok(Self { core, server, calls: Arc::new(NeverGivenUp) })
    }

    fn receive(
        &self,
        from: SocketAddr,
        callers: &Callers,
        datagram: &[u8],
        Thread { serving, reply }: &mut Thread,
        answer: &Answer<'_>,
    ) -> Received<AcceptedCall> {
        let send = &mut |parts: [&[u8]; 2]| answer.send(parts);
        let mut server = self.server.lock();
        let Some(work) = server.receive(moment(), from, datagram, send) else {
            return Received::Settled { is_foreign: Packet::parse(datagram).is_err() };
        };
        let payload_max = server.payload_max(&work.running);
        drop(server);
        let Work { call: header, arguments, running } = work;
        let Call { program, version, .. } = header;
        let find = |exports: &[_]| exported(exports, System::Courier, program, version.into());
        let caller = Caller { from, program, version: version.into(), flavour: 0, credential: &[] };
        match row_of(&self.core, PathKind::CourierUdp, callers, &caller, || None, find) {
            Ok(row) => {
                let (server, running) = (Arc::clone(&self.server), Some(running));
                let call = AcceptedCall { server, row, header, payload_max, running };
                Received::Call(
                    call,
                    match arguments {
                        Arguments::Received(at) => Message::Received(at..datagram.len()),
                        Arguments::Assembled(bytes) => Message::Own(bytes, None),
                    },
                )
            }
            Err(missing) => {
                serving.counting.refused(None);
                put_rejection(reply, header.transaction, rejection_of_missing(missing));
                self.server.lock().refuse(moment(), running, Some(payload_of(reply)), send);
                Received::Settled { is_foreign: false }
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
        let transaction = call.header.transaction;
        let arrived = ArrivedCall {
            number: transaction.into(),
            call: foreign_call(&call.header, message),
            results_max: call.payload_max - VERSIONS_BYTES - HEADER_BYTES_MAX,
            header_bytes_max: HEADER_BYTES_MAX,
        };
        let calls = || Arc::clone(&self.calls) as Arc<dyn Calls>;
        let served = serve(&arrived, &call.row, serving, calls, reply);
        let ended = sys::boot_ns();
        match served {
            Served::Answered(answered) => put_answer(reply, transaction, answered),
            Served::NotExecuted(refusal) => {
                call.refused(&refusal, reply, answer);
                return ended;
            }
            Served::Failed => put_rejection(reply, transaction, Rejection::UNSPECIFIED),
        }
        call.end(payload_of(reply), &mut |parts| answer.send(parts));
        ended
    }

    fn refuse(
        &self,
        call: AcceptedCall,
        refusal: &Refusal,
        Thread { reply, .. }: &mut Thread,
        answer: &Answer<'_>,
    ) {
        call.refused(refusal, reply, answer);
    }
}

impl AcceptedCall {
    /// Answers a call that was not executed. If the call was sent in one datagram, a retransmission of it may
    /// run.
    fn refused(mut self, refusal: &Refusal, reply: &mut ReplyBuffer, answer: &Answer<'_>) {
        let Some(running) = self.running.take() else { return };
        let payload = rejection_of(refusal).map(|rejection| {
            put_rejection(reply, self.header.transaction, rejection);
            payload_of(reply)
        });
        let send = &mut |parts: [&[u8]; 2]| answer.send(parts);
        self.server.lock().refuse(moment(), running, payload, send);
    }

    /// Notes that the call has ended, and sends `payload` as its reply.
    fn end(mut self, payload: &[u8], send: &mut impl FnMut([&[u8]; 2])) {
        if let Some(running) = self.running.take() {
            self.server.lock().end(moment(), running, payload, send);
        }
    }
}

impl Drop for AcceptedCall {
    fn drop(&mut self) {
        // If the call has not ended, its thread has panicked. The call may have run, so it must not run
        // again.
        if let Some(running) = self.running.take() {
            let mut reply = ReplyBuffer::default();
            put_rejection(&mut reply, self.header.transaction, Rejection::UNSPECIFIED);
            self.server.lock().end(moment(), running, payload_of(&mut reply), &mut |_| {});
        }
    }
}
