//! The conformance cases of the packet exchange, by name. RPC systems with such an exchange share a list of
//! cases, and the numbers here are those of the list:
//!
//! * 1 to 8: loss; 9 to 20: duplicates and delay; 21 to 28: large messages
//! * 29 to 36: crashes of the server; 38 to 43: crashes of the client; 44 to 48: partitions
//! * 49 to 53: long calls; 54 to 56: abuse and limits; 59: random faults (in `seeds`)
//!
//! Some cases have another meaning here, because the exchange has one mechanism for every loss and no server
//! timer. The following cases are missing, are different, or are also tested elsewhere:
//!
//! * 3: silence cannot prove that no packet of a call arrived, so the outcome is always *maybe executed*.
//! * 4, 10, 28: a duplicate never makes the server send a result again; the client requests the result.
//! * 5: a server whose results are all lost is presumed dead after ten probes, like any silent server.
//! * 6 (stop and wait), 31 (repeating idempotent calls), 37 (exactly once), 42 (cancelling calls of crashed
//!   clients), 57 and 58 (exceptions that resume, callbacks) do not belong to this protocol.
//! * 12, 13: records have no age. A packet of a forgotten handle is refused however late it is.
//! * 19, 25, 54: are also tested next to the code, in `header.rs`, `server_end/tests.rs` and
//!   `client_end/tests.rs`. In those tests, all numbers have just wrapped around. The tests here repeat 19
//!   and 54 with both ends, and 25 with random losses.
//! * 35: withdrawing an export forgets its handles, see 13 and 56.
//! * 36: no clock is compared with the clock of another incarnation (run) of the server, see 34.
//! * 40: a clone of a client never gets an old result for an old call number. If the number and the shape
//!   (message sizes) equal those of the original client's call, the server cannot distinguish the two calls.
//!   The driver detects a fork of the client's process.
//! * 43: a forked child binds like any other process, see 39.

mod abuse;
mod crashes;
mod delay;
mod goodput;
mod large;
mod long;
mod loss;
mod partitions;

use crate::client::ClientOptions;
use crate::exchange::client_end::{Executed, FailureReason};
use crate::exchange::header::{Flags, Header, PacketKind};
use crate::exchange::time::SECOND;
use crate::network::Fate;
use crate::oracle::{Ending, Plan};
use crate::server::ServerOptions;
use crate::world::{CLIENT_OPTIONS, SERVER_OPTIONS, World};

/// A call without argument and result bytes, whose procedure ends at once.
const NULL: Plan = Plan {
    total: 0,
    result: 0,
    runs_for: Some(1000),
    cancels_after: None,
    checks_cancellation: false,
};

const LASTING: ClientOptions = ClientOptions { bye: false, ..CLIENT_OPTIONS };

/// Makes a world with two clients. The first client makes the calls of `plans`, which has one list of calls
/// for each activity (thread) of the client.
fn world_of(plans: &[Vec<Plan>], server: ServerOptions, client: ClientOptions) -> World {
    let mut world = World::new(7, 2, server, client);
    world.log = Some(Vec::new());
    world.start(1, plans);
    world
}

fn world(plans: &[Plan]) -> World {
    world_of(&[plans.to_vec()], SERVER_OPTIONS, LASTING)
}

/// Runs the world until all calls have ended, and then for a little longer.
fn finish(world: &mut World) {
    let end = world.now + 20_000 * SECOND;
    while !world.is_done() && world.now < end {
        if world.run_until(world.now + SECOND / 10) {
            break;
        }
    }
    world.run_until(world.now + SECOND);
    check(world);
    assert!(world.is_done(), "a call has not ended");
}

fn check(world: &World) {
    let violations = &world.oracle.violations;
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn ending(world: &World, call: usize) -> Option<Ending> {
    world.oracle.calls[call].ended.map(|(_, ending)| ending)
}

fn executions(world: &World, call: usize) -> u32 {
    world.oracle.calls[call].executions
}

fn script(world: &mut World, mut script: impl FnMut(u64, &Header) -> Fate + 'static) {
    world.script = Some(Box::new(move |now, _, header| script(now, header)));
}

/// Drops the first `count` packets of a kind.
fn lose(world: &mut World, kind: PacketKind, count: u32) {
    let mut left = count;
    script(world, move |_, header| {
        if header.kind == kind && left > 0 {
            left -= 1;
            return Fate::Drop;
        }
        Fate::Pass
    });
}

/// Returns how many packets of a kind were retransmitted.
fn resent(world: &World, kind: PacketKind) -> usize {
    let again =
        |one: &&crate::world::Sent| one.header.kind == kind && one.header.flags.has(Flags::RESENT);
    world.log.iter().flatten().filter(again).count()
}

const MAYBE_DEAD: Ending = Ending::Failed(Executed::Maybe, FailureReason::Dead);

#[test]
fn short_call_is_two_packets_and_nothing_is_retransmitted() {
    let mut world = world(&[NULL; 100]);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!((world.sent(PacketKind::Call), world.sent(PacketKind::Result)), (100, 100));
    // Besides the calls and results, there are five packets: four to bind, in two exchanges, and the last
    // acknowledgement.
    assert_eq!((world.oracle.packets, world.oracle.resent), (205, 0));
}

/// Makes calls with long procedures and large messages in both directions, without faults.
#[test]
fn without_faults_nothing_is_retransmitted() {
    let plan =
        |total, result, ms: u64| Plan { total, result, runs_for: Some(ms * 1_000_000), ..NULL };
    let plans = [
        plan(100_000, 0, 0),
        plan(0, 300_000, 7),
        plan(3_000_000, 3_000_000, 30),
        plan(0, 0, 12_000),
        plan(48_000, 48_000, 1),
    ];
    let mut world = world(&plans);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!(world.oracle.resent, 0);
}
