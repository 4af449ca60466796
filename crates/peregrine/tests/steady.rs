//! Makes many calls over datagrams with client and server on one processor. No packet may be retransmitted.
//! Almost every call must need only two packets, each of which wakes one thread.
//!
//! Normally, a client probes if it gets no answer for 5 ms. On one processor, each preemption would then look
//! like a lost packet. In this test, a client probes only after ten seconds. No preemption takes that long,
//! so a retransmission shows that a packet was lost.
//!
//! `PEREGRINE_CALLS=1000000 cargo test -p peregrine --test steady -- --nocapture` makes more calls.

mod services;
mod support;

use std::time::{Duration, Instant};

use peregrine::{BindOptions, EthernetDevice, Insecure, Out, PathKind, Server, Wait, stat, sys};
use services::{Bytes, BytesClient, BytesServer, Object};
use support::link::{ENDS, Link, at_far_end};

/// The default number of calls on each path.
const CALLS: u64 = 6_000;
/// How long a client waits for an answer before it probes. On a busy machine, a thread may wait for its
/// processor for more than a second.
const ASK_AFTER: Duration = Duration::from_secs(10);

fn calls() -> u64 {
    let given = std::env::var("PEREGRINE_CALLS").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(CALLS)
}

/// What the calls of this process have cost so far.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// How often the threads that serve calls have gone to sleep.
    sleeps: u64,
    /// How many packets the server retransmitted, and how many duplicate packets it received.
    again: [u64; 2],
    /// The number of datagrams that the two network namespaces have received together.
    datagrams: u64,
    /// The number of datagrams that the two network namespaces have discarded together.
    overflowed: u64,
}

impl Costs {
    fn now() -> Self {
        let server = stat("bytes").unwrap().server;
        let [near, far] = [datagrams(), at_far_end(datagrams)];
        Self {
            sleeps: sleeps(),
            again: [server.resent, server.came_again],
            datagrams: near[0] + far[0],
            overflowed: near[1] + far[1],
        }
    }
}

/// Returns two numbers for this thread's network namespace: the received datagrams, and the discarded ones.
fn datagrams() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    ["InDatagrams", "InErrors"].map(|wanted| {
        let at = names.split(' ').position(|name| name == wanted).unwrap();
        values.split(' ').nth(at).unwrap().parse().unwrap()
    })
}

fn sleeps() -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = read("comm");
        if name.starts_with("peregrine-recei") {
            let status = read("status");
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += line.map_or(0, |number| number.trim().parse::<u64>().unwrap());
        }
    }
    sleeps
}

/// Makes calls over one path. The client is in the network namespace at the near end of a link, and the
/// server is in the namespace at the far end.
fn steady(scheme: &str, device: EthernetDevice, kind: PathKind) {
    let calls = calls();
    // All threads that are started from here on run on processor 0.
    sys::pin_to(0).unwrap();
    let server = Server::new().wait(Wait::Block).ethernet_device(device);
    let server = server.export("bytes", BytesServer::new(Object)).unwrap();
    let at = format!("{scheme}:{}:0", ENDS[1]);
    let server = server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).unwrap();
    let running = at_far_end(move || server.spawn().unwrap());
    let options = BindOptions::default().wait(Wait::Block).ethernet_device(device);
    let options = options.ask_after(ASK_AFTER).rebind(peregrine::Rebind::Never);
    let address = format!("{}/bytes", running.addresses()[0]);
    let client = BytesClient::bind_with(&address, &options).unwrap();
    assert_eq!(client.binding().path(), kind);
    let (sent, mut into) = ([1; 1000], [0; 1000]);
    let mut call = |n: u64| match n % 4 {
        0 | 1 => client.null().unwrap(),
        2 => assert_eq!(client.sum(&sent).unwrap(), 1000),
        _ => client.fill(3, Out::from(&mut into)).unwrap(),
    };
    (0..100).for_each(&mut call);
    let before = Costs::now();
    let (mut slowest, mut woken_more) = (Duration::ZERO, 0);
    for n in 0..calls {
        let (begun, slept) = (Instant::now(), support::own_sleeps());
        call(n);
        slowest = slowest.max(begun.elapsed());
        woken_more += u64::from(support::own_sleeps() - slept > 1);
    }
    let after = Costs::now();
    let of = |cost: fn(&Costs) -> u64| cost(&after) - cost(&before);
    let (sleeps, datagrams) = (of(|costs| costs.sleeps), of(|costs| costs.datagrams));
    let again = [of(|costs| costs.again[0]), of(|costs| costs.again[1])];
    println!(
        "{scheme}, {device:?}: {calls} calls, {sleeps} sleeps of the server, {datagrams} datagrams, \
        {again:?} again, the slowest call {slowest:?}"
    );
    assert_eq!(again, [0, 0], "retransmitted packets, and duplicate packets");
    assert_eq!((of(|costs| costs.overflowed), running.losses().overflowed), (0, 0));
    // If a packet is lost, the client requests it again with a probe, and the server does not count a
    // retransmission. But such a call takes at least as long as the client waits before it probes.
    assert!(slowest < ASK_AFTER, "a call took {slowest:?}");
    // A call takes the fast path if three things hold. The call needs two packets. The thread that receives
    // the first packet runs the call. The caller sleeps at most once. Any other call adds a packet or a sleep
    // to these counts.
    let packets = if kind == PathKind::Udp { datagrams } else { 2 * calls };
    let others = woken_more + sleeps.saturating_sub(calls) + packets.saturating_sub(2 * calls);
    let fast = 1.0 - others as f64 / calls as f64;
    println!("{scheme}, {device:?}: at least {:.3} % take the fast path", 100.0 * fast);
    assert!(fast >= 0.95, "{woken_more} callers slept more than once, the server {sleeps} times");
}

fn on_a_link(scheme: &str, device: EthernetDevice, kind: PathKind) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let calling = std::thread::Builder::new().name("calls".into());
    std::thread::scope(|scope| {
        let calls = calling.spawn_scoped(scope, || {
            link.enter();
            steady(scheme, device, kind);
        });
        calls.unwrap().join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn nothing_is_retransmitted_over_udp() {
    on_a_link("udp", EthernetDevice::Any, PathKind::Udp);
}

#[test]
fn nothing_is_retransmitted_over_raw_ethernet() {
    on_a_link("eth", EthernetDevice::Any, PathKind::Ethernet);
}

#[test]
fn nothing_is_retransmitted_over_raw_ethernet_by_af_packet() {
    on_a_link("eth", EthernetDevice::Packet, PathKind::Ethernet);
}
