//! Compares messages, streams and packets of Courier with the vectors of `docs/PROTOCOL.md`.

#[allow(dead_code)]
#[path = "../../../../peregrine/tests/golden/document.rs"]
mod document;

use crate::protocol::courier::cooper::{STARTED, activation, call_header, refusal, reply_header};
use crate::protocol::courier::frames::{END_FRAME, END_REPLY_FRAME};
use crate::protocol::courier::message::{Answer, CALL_BYTES, Call, Rejection, Reply, Versions};
use crate::protocol::courier::packet::{
    Arrivals, Body, Division, Name, PARTS_PROGRAM, PARTS_VERSION, Packet, Part, Report, WHOLE,
    payload,
};
use crate::protocol::courier::stream::{Event, Framing, Input};

/// The names of the vectors that were checked.
#[derive(Default)]
struct Held(Vec<&'static str>);

impl Held {
    fn check(&mut self, name: &'static str, found: &[u8]) {
        document::check(name, found);
        self.0.push(name);
    }

    fn reply(&mut self, name: &'static str, answer: Answer, rest: &[u8]) {
        let reply = Reply { transaction: 7, answer };
        let message = [&reply.to_vec(), rest].concat();
        self.check(name, &message);
        assert_eq!(Reply::parse(&message), Ok((reply, message.len() - rest.len())), "{name}");
    }

    fn packet(&mut self, name: &'static str, packet: Packet<'_>) {
        let bytes = packet.to_vec();
        self.check(name, &bytes);
        assert_eq!(Packet::parse(&bytes), Ok(packet), "{name}");
    }
}

/// Returns a call with one argument, a word.
fn call() -> Vec<u8> {
    let call = Call { transaction: 7, program: 0x0001_0002, version: 3, procedure: 4 };
    let mut message = vec![0; CALL_BYTES];
    call.emit(&mut message).expect("room");
    assert_eq!(Call::parse(&message), Ok((call, CALL_BYTES)));
    message.extend([0, 9]);
    message
}

fn stream(framing: Framing, messages: &[&[u8]]) -> Vec<u8> {
    let mut stream = Vec::new();
    for message in messages {
        for (before, range) in (0..).map_while(|index| framing.piece(message.len(), index)) {
            stream.extend(before);
            stream.extend(&message[range]);
        }
    }
    stream
}

#[test]
fn bytes_of_courier_are_the_documented_ones() {
    let held = &mut Held::default();
    held.check("Courier call", &call());
    held.reply("Courier return", Answer::Return, &[0, 1]);
    held.reply("Courier abort", Answer::Abort(1), &[0, 2]);
    let versions = Versions { low: 2, high: 5 };
    for (name, rejection) in [
        ("Courier noSuchProgramNumber", Rejection::NoSuchProgram),
        ("Courier noSuchVersionNumber", Rejection::NoSuchVersion(versions)),
        ("Courier noSuchProcedureValue", Rejection::NoSuchProcedure),
        ("Courier invalidArgument", Rejection::InvalidArgument),
        ("Courier unspecifiedError", Rejection::UNSPECIFIED),
    ] {
        held.reply(name, Answer::Reject(rejection), &[]);
    }
    let first = payload(&call());
    let ours = Versions::OURS.to_bytes();
    let results = Reply { transaction: 7, answer: Answer::Return }.to_vec();
    for (framing, names) in [
        (Framing::Records, ["Courier records to server", "Courier records to client"]),
        (Framing::Frames, ["Courier frames to server", "Courier frames to client"]),
    ] {
        let to_server = stream(framing, &[&first]);
        let to_client = stream(framing, &[&ours, &results]);
        for (name, bytes, message) in
            [(names[0], &to_server, call()), (names[1], &to_client, results.clone())]
        {
            held.check(name, bytes);
            let mut input = Input::new(framing, 100);
            assert_eq!(input.take(&mut &bytes[..]), Ok(Some(Event::Message(message))));
            assert_eq!(input.end(), Ok(()));
        }
    }
    held.check("Courier frame of the end", &END_FRAME);
    held.check("Courier frame of the answer", &END_REPLY_FRAME);
    cooper(held);
    packets(held);
    held.0.sort_unstable();
    let all = document::vectors().keys().map(|name| &**name);
    let own: Vec<_> = all.filter(|name| name.starts_with("Courier ")).collect();
    assert_eq!(held.0, own, "each vector is checked once");
}

fn cooper(held: &mut Held) {
    let name = activation("PasswordLookup").expect("a name");
    held.check("Courier Cooper activation", &name);
    held.check("Courier Cooper started", &STARTED);
    held.check("Courier Cooper refused", &refusal("no"));
    let call = [&call_header(1, 2).expect("a short call")[..], &[0, 100]].concat();
    held.check("Courier Cooper call", &call);
    let reply = [&reply_header(2).expect("short results")[..], &[0, 1]].concat();
    held.check("Courier Cooper reply", &reply);
}

fn packets(held: &mut Held) {
    let whole = payload(&call());
    held.packet("Courier whole call", Packet::Whole { id: 5, client: WHOLE, payload: &whole });
    let question =
        Call { transaction: 7, program: PARTS_PROGRAM, version: PARTS_VERSION, procedure: 0 };
    let mut message = [0; CALL_BYTES];
    question.emit(&mut message).expect("room");
    let question = Packet::Whole { id: 5, client: WHOLE, payload: &payload(&message) };
    held.packet("Courier question about parts", question);
    let name = Name { id: 5, conversation: 6, cookie: 0x0102_0304_0506_0708 };
    let greeting = Name { cookie: 0, ..name };
    held.packet("Courier HELLO", Packet::Parts(greeting, Body::Hello));
    held.packet("Courier WELCOME", Packet::Parts(name, Body::Welcome));
    held.packet("Courier WORKING", Packet::Parts(name, Body::Working));
    held.packet("Courier FORGOTTEN", Packet::Parts(name, Body::Forgotten));
    let division = Division::of(whole.len(), 1376).expect("a division");
    let part = Part { division, position: 0, asks: false, data: &whole };
    held.packet("Courier CALL", Packet::Parts(name, Body::Call(part)));
    let results = payload(&Reply { transaction: 7, answer: Answer::Return }.to_vec());
    let division = Division::of(results.len(), 1376).expect("a division");
    let part = Part { division, position: 0, asks: true, data: &results };
    held.packet("Courier REPLY", Packet::Parts(name, Body::Reply(part)));
    let division = Division::of(5000, 1376);
    let arrivals = Arrivals { next: 1, later: 0b110 };
    let report = Report { division, arrivals, window: 32 };
    held.packet("Courier HAVE_CALL", Packet::Parts(name, Body::HaveCall(report)));
    let report = Report { division: None, arrivals: Arrivals::default(), window: 1 };
    held.packet("Courier HAVE_REPLY", Packet::Parts(name, Body::HaveReply(report)));
}
