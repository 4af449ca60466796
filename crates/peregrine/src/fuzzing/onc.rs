//! Fuzz targets for ONC RPC: the messages that any peer can send, and the server's cache of replies.

use core::net::{Ipv4Addr, SocketAddr};
use std::collections::BTreeMap;

use crate::protocol::exchange::time::{Moment, SECOND};
use crate::protocol::onc::client::{CALL_TIME, DatagramCall, Pace, Step};
use crate::protocol::onc::message::{
    Auth, AuthSys, CALL_BYTES_MAX, Call, NoCall, REPLY_BYTES_MAX, Reply, replied_to,
};
use crate::protocol::onc::record::{Assembler, marker};
use crate::protocol::onc::replies::{Bounds, Peer, Replies, Ticket, Verdict};
use crate::protocol::onc::rpcbind::{Answer, Request};
use crate::protocol::onc::universal::{Network, Universal};
use crate::protocol::onc::xids::{Refused, Waiters};

const START: Moment = Moment(1000 * SECOND);
const RECORD_MAX: usize = 2000;

/// Reads any bytes as messages, as a stream of records, and as the arguments and results of rpcbind.
///
/// # Panics
/// Panics if a value differs after it was written and read again.
pub fn message(bytes: &[u8]) {
    call(bytes);
    reply(bytes);
    records(bytes);
    let Some(([version, procedure], body)) = bytes.split_first_chunk() else { return };
    rpcbind(u32::from(version % 6), u32::from(procedure % 14), body);
}

fn call(bytes: &[u8]) {
    match Call::parse(bytes) {
        Ok((call, offset)) => {
            let mut header = [0; CALL_BYTES_MAX];
            let length = call.emit(&mut header).expect("a header has at most that many bytes");
            assert_eq!((length, Call::parse(&header[..length])), (offset, Ok((call, offset))));
            if let Ok(sys) = AuthSys::parse(call.credential.body) {
                let mut body = [0; CALL_BYTES_MAX];
                let length = sys.emit(&mut body).expect("a body is shorter than the header");
                assert_eq!(AuthSys::parse(&body[..length]), Ok(sys));
            }
        }
        Err(NoCall::Deny(xid, denial)) => {
            let denied = Reply::denied(xid, denial);
            let mut header = [0; REPLY_BYTES_MAX];
            let length = denied.emit(&mut header).expect("room");
            assert_eq!(Reply::parse(&header[..length]), Ok((denied, length)));
        }
        Err(NoCall::Ignore(_)) => {}
    }
}

fn reply(bytes: &[u8]) {
    let xid = replied_to(bytes).unwrap_or_default();
    let mut pace = Pace::default();
    let mut call = DatagramCall::begin(xid, START, CALL_TIME, &pace);
    let received = call.receive(START.after(1), bytes, &mut pace);
    let Ok((reply, offset)) = Reply::parse(bytes) else {
        assert_eq!(received, None);
        assert!(matches!(call.step(START.after(CALL_TIME)), Step::GiveUp(_)));
        return;
    };
    assert_eq!(received, Some((reply, offset)));
    let mut header = [0; REPLY_BYTES_MAX];
    let length = reply.emit(&mut header).expect("a header has at most that many bytes");
    assert_eq!((length, Reply::parse(&header[..length])), (offset, Ok((reply, offset))));
}

/// Reads the stream in pieces of two sizes, which must give the same records.
fn records(bytes: &[u8]) {
    let records = |piece| {
        let (mut assembler, mut records) = (Assembler::new(RECORD_MAX), Vec::new());
        for mut bytes in bytes.chunks(piece) {
            loop {
                match assembler.take(&mut bytes) {
                    Ok(Some(record)) => records.push(record),
                    Ok(None) => break,
                    Err(broken) => return (records, Some(broken)),
                }
            }
        }
        (records, None)
    };
    let (all, broken) = records(1 << 20);
    assert!(all.iter().all(|record| record.len() <= RECORD_MAX));
    for record in &all {
        let again = [&marker(record.len()).expect("a short record")[..], record].concat();
        let taken = Assembler::new(RECORD_MAX).take(&mut &again[..]);
        assert_eq!(taken.as_ref().map(Option::as_ref), Ok(Some(record)));
    }
    assert_eq!(records(1), (all, broken));
}

fn rpcbind(version: u32, procedure: u32, body: &[u8]) {
    let Ok(request) = Request::parse(version, procedure, body) else { return };
    assert!(request.is_in(version) && request.procedure() == procedure);
    let mut again = Vec::new();
    request.push(&mut again);
    assert_eq!(Request::parse(version, procedure, &again), Ok(request));
    if let Request::Set(registration) = request
        && let Some(network) = Network::from_name(registration.network)
        && let Some(address) = Universal::parse(network, registration.address)
    {
        let text = address.to_string();
        assert_eq!(Universal::parse(network, &text), Some(address));
    }
    // The same bytes are also read as results, for requests whose results are lists and texts.
    for request in [Request::DumpMappings, Request::Dump, request] {
        if let Ok(answer) = Answer::parse(&request, body) {
            let mut again = Vec::new();
            answer.push(&mut again);
            assert_eq!(Answer::parse(&request, &again), Ok(answer));
        }
    }
}

/// Makes calls to a small cache. Each group of three bytes is a client, a call and an event.
///
/// # Panics
/// Panics if two runs of a call overlap, if a client gets the reply to another call, or if a limit is
/// exceeded.
pub fn replies(bytes: &[u8]) {
    callers(bytes);
    let bounds = Bounds { calls: 12, bytes: 200, ..Bounds::DEFAULT };
    let mut cache = Replies::new([5; 16], bounds);
    let (mut running, mut now) = (BTreeMap::<(u8, u8), Ticket>::new(), START);
    for &[client, xid, step] in bytes.as_chunks().0 {
        let (client, xid) = (client % 8, xid % 8);
        now = now.after(u64::from(step % 4) * 10 * SECOND);
        let source = SocketAddr::from((Ipv4Addr::new(10, 0, 0, client / 2), client.into()));
        let name = [client, xid];
        if step >= 128 {
            let call = Call {
                xid: xid.into(),
                program: 1,
                version: 1,
                procedure: 1,
                credential: Auth::NONE,
                verifier: Auth::NONE,
            };
            match cache.begin(now, Peer::datagram(source), step.into(), &call, b"") {
                Verdict::Execute(ticket) => {
                    let before = running.insert((client, xid), ticket);
                    assert!(before.is_none(), "two runs of a call overlap");
                }
                Verdict::Replay(reply) => assert_eq!(reply[..2], name),
                Verdict::InProgress => assert!(running.contains_key(&(client, xid))),
                Verdict::Forgotten => {}
                Verdict::Full => assert!(running.len() >= 3),
            }
        } else if let Some(ticket) = running.remove(&(client, xid)) {
            if step % 8 == 0 {
                cache.not_executed(ticket);
            } else {
                let mut reply = name.to_vec();
                reply.resize(2 + usize::from(step), 0);
                assert!(cache.end(now, ticket, &reply) >= 128);
            }
        }
        let (calls, bytes) = cache.size();
        assert!(calls <= bounds.calls && bytes <= bounds.bytes);
    }
}

/// Adds and removes callers, whose numbers must be unique.
fn callers(bytes: &[u8]) {
    let (mut waiters, mut waiting) = (Waiters::new(u32::MAX - 2, 4), BTreeMap::new());
    for (index, byte) in bytes.iter().enumerate() {
        match waiters.add(START, index) {
            Ok(xid) => assert_eq!(waiting.insert(xid, index), None, "a number is used twice"),
            Err(refused) => assert_eq!((refused, waiters.len()), (Refused::Full, 4)),
        }
        let xid = u32::from(*byte).wrapping_sub(8);
        assert_eq!(waiters.find(xid).copied(), waiting.get(&xid).copied());
        assert_eq!(waiters.remove(xid), waiting.remove(&xid));
    }
    assert!(waiters.iter().map(|(xid, index)| (xid, *index)).eq(waiting.clone()));
    assert!(waiters.drain().eq(waiting));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::onc::message::Outcome;

    #[test]
    fn targets_accept_what_this_side_sends() {
        let mut bytes = [0; 64];
        let length = Reply::accepted(7, Outcome::Success).emit(&mut bytes).expect("room");
        message(&bytes[..length]);
        replies(&[0, 1, 128, 0, 1, 128, 0, 1, 9, 0, 1, 130]);
    }
}
