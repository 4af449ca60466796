//! Measures the time that both ends of the protocol together take for a null call. The result is meaningful
//! only in a release build.

use std::hint::black_box;
use std::time::Instant;

use crate::exchange::bind::GrantedHandle;
use crate::exchange::client_end::{self, ClientEnd, Handled, Outcome};
use crate::exchange::header::{CONTROL_BYTES_MAX, HEADER_BYTES, Handle, Header};
use crate::exchange::message::Shape;
use crate::exchange::server_end::{self, Action, ServerEnd};
use crate::exchange::time::Moment;
use crate::server::Shared;

const CALLS: u32 = 200_000;

/// Makes both ends of a handle.
pub(crate) fn pair(secret: [u8; 12]) -> (ClientEnd, ServerEnd, Shared) {
    let terms = client_end::ClientTerms {
        piece: 1408,
        credits: 64,
        credits_here: 64,
        call_bytes_max: 1 << 20,
        result_bytes_max: 1 << 20,
        table: 1,
    };
    let mut server_end = ServerEnd::vacant(0);
    let granted =
        server_end::ServerTerms { piece: 1408, credits: 64, credits_here: 64, bytes_max: 1 << 20 };
    server_end.assign(Moment(0), secret, 5, &granted);
    let granted = GrantedHandle { handle: Handle { place: 0, secret }, generation: 0 };
    let mut client_end = ClientEnd::new(granted, terms, 50_000, 3);
    client_end.set_last_heard(Moment(0));
    (client_end, server_end, Shared::new(None))
}

fn parse(packet: &[u8; CONTROL_BYTES_MAX]) -> Header {
    let header = black_box(packet).first_chunk::<HEADER_BYTES>().expect("a header");
    Header::parse(header, 0).expect("a valid header")
}

/// Makes one null call: begin, call packet, execution, result packet, outcome.
pub(crate) fn call(
    client_end: &mut ClientEnd,
    server_end: &mut ServerEnd,
    flow: &Shared,
    out: &mut [u8; CONTROL_BYTES_MAX],
    now: u64,
) {
    let now = Moment(now);
    client_end.begin(Shape { what: 1, ..Shape::default() }).expect("the client end is free");
    client_end.poll_send(now, flow, out).expect("a call packet is due");
    let header = parse(out);
    assert!(server_end.accepts(&header, 5));
    let effect = server_end.handle(now, flow, &header, &[]);
    assert!(matches!(effect.action, Action::Execute(_)));
    server_end.complete(Shape::default());
    server_end.poll_send(now, flow, out).expect("a result packet is due");
    let header = parse(out);
    let handled = client_end.handle(now, flow, &header, &[]);
    assert!(matches!(handled, Handled::Place(_)));
    assert!(matches!(client_end.outcome(), Some(Outcome::Returned(_))));
}

#[test]
#[ignore = "a measurement: run it in a release build, on a machine that does nothing else"]
fn cost_of_a_null_call() {
    let ((mut client_end, mut server_end, flow), mut out) = (pair([7; 12]), [0; CONTROL_BYTES_MAX]);
    let mut rounds = Vec::new();
    for round in 0..31 {
        let start = Instant::now();
        for i in 0..CALLS {
            call(
                &mut client_end,
                &mut server_end,
                &flow,
                &mut out,
                u64::from(round * CALLS + i) * 1000,
            );
        }
        rounds.push(start.elapsed().as_nanos() as f64 / f64::from(CALLS));
    }
    rounds.sort_by(f64::total_cmp);
    println!("{:.1} ns per null call (best {:.1})", rounds[15], rounds[0]);
    println!(
        "{} bytes per record, {} per client end",
        size_of::<ServerEnd>(),
        size_of::<ClientEnd>()
    );
}
