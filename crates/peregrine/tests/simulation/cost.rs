//! What the core's part of a null call costs, both sides together: to be run in a release build.

use std::hint::black_box;
use std::time::Instant;

use crate::exchange::bind::Lease;
use crate::exchange::callee::{self, Callee, Then};
use crate::exchange::caller::{self, Caller, Handled, Outcome};
use crate::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Handle, Header};
use crate::exchange::message::Shape;
use crate::exchange::time::Moment;
use crate::server::Shared;

const CALLS: u32 = 200_000;

/// Both ends of a handle.
pub(crate) fn pair(secret: [u8; 12]) -> (Caller, Callee, Shared) {
    let terms = caller::Terms {
        piece: 1408,
        credits: 64,
        credits_here: 64,
        call_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
        table: 1,
    };
    let mut callee = Callee::vacant(0);
    let granted = callee::Terms { piece: 1408, credits: 64, credits_here: 64, bytes_max: 1 << 20 };
    callee.occupy(Moment(0), secret, 5, &granted);
    let lease = Lease { handle: Handle { place: 0, secret }, generation: 0 };
    let mut caller = Caller::new(lease, terms, 50_000, 3);
    caller.heard_at(Moment(0));
    (caller, callee, Shared::new(None))
}

fn parse(packet: &[u8; CONTROL_BYTES_MAX]) -> Header {
    let header = black_box(packet).first_chunk::<HEADER_BYTES>().expect("a header");
    Header::parse(header, 0).expect("a header that is whole")
}

/// One null call: begin, call packet, execute, result packet, outcome.
pub(crate) fn call(
    caller: &mut Caller,
    callee: &mut Callee,
    flow: &Shared,
    out: &mut [u8; CONTROL_BYTES_MAX],
    now: u64,
) {
    let now = Moment(now);
    caller.begin(Shape { what: 1, ..Shape::default() }).expect("it can begin");
    caller.poll_send(now, flow, out).expect("the call");
    let header = parse(out);
    assert!(callee.knows(&header, 5));
    let received = callee.handle(now, flow, &header, &[]);
    assert!(matches!(received.then, Then::Execute(_)));
    callee.replied(Shape::default());
    callee.poll_send(now, flow, out).expect("the result");
    let header = parse(out);
    let handled = caller.handle(now, flow, &header, &[]);
    assert!(matches!(handled, Handled::Place(_)));
    assert!(matches!(caller.outcome(), Some(Outcome::Returned(_))));
}

#[test]
#[ignore = "a measurement: run it in a release build, on a machine that does nothing else"]
fn cost_of_a_null_call() {
    let ((mut caller, mut callee, flow), mut out) = (pair([7; 12]), [0; CONTROL_BYTES_MAX]);
    let mut rounds = Vec::new();
    for round in 0..31 {
        let start = Instant::now();
        for i in 0..CALLS {
            call(&mut caller, &mut callee, &flow, &mut out, u64::from(round * CALLS + i) * 1000);
        }
        rounds.push(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    rounds.sort_by(f64::total_cmp);
    println!("{:.1} ns a null call (best {:.1})", rounds[15], rounds[0]);
    println!("{} bytes a record, {} a caller", size_of::<Callee>(), size_of::<Caller>());
}
