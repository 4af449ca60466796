//! Conformance cases by name. Their numbers are those of a list that systems of this family share:
//! loss (1 to 8), duplicates and delay (9 to 20), large messages (21 to 28), crashes of the server
//! (29 to 36) and of the client (38 to 43), partitions (44 to 48), long calls (49 to 53), abuse and
//! limits (54 to 56), chance (59, which is `seeds`).
//!
//! Some mean something else here, because the exchange has one mechanism for every loss and no server
//! timer; some do not exist:
//!
//! * 3: that nothing of a call arrived cannot be proven by silence: *maybe*, always.
//! * 4, 10, 28: a duplicate never makes the server send a result again; the client asks for it.
//! * 5: a server that answers nothing but lost results is dead after ten questions, like any other.
//! * 6 (stop and wait), 31 (repeating idempotent calls), 37 (exactly once), 42 (cancelling what
//!   orphans run), 57 and 58 (exceptions that resume, callbacks) are not of this protocol.
//! * 12, 13: records have no age; a packet of a forgotten handle is refused however late it is.
//! * 19, 25, 54: beside the code, in `header.rs`, `callee/tests.rs` and `caller/tests.rs` (there all
//!   numbers have just wrapped round); 19 and 54 here once more with both ends, 25 with chance.
//! * 35: to withdraw an export is to forget its handles: 13 and 56.
//! * 36: no clock is compared with that of another incarnation: 34.
//! * 40: a cloned client with an old number is never answered with an old result. One with the very
//!   number and shape of its twin's call cannot be told from it; a fork is seen by the driver.
//! * 43: a child binds for itself, as any process does: 39.

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

/// Nothing in, nothing out, at once.
const NULL: Plan =
    Plan { total: 0, result: 0, runs_for: Some(1000), quits_after: None, heeds: false };

const LASTING: ClientOptions = ClientOptions { bye: false, ..CLIENT_OPTIONS };

/// A world of one client with one activity, or two that make these calls.
fn world_of(plans: &[Vec<Plan>], server: ServerOptions, client: ClientOptions) -> World {
    let mut world = World::new(7, 2, server, client);
    world.log = Some(Vec::new());
    world.start(1, plans);
    world
}

fn world(plans: &[Plan]) -> World {
    world_of(&[plans.to_vec()], SERVER_OPTIONS, LASTING)
}

/// Runs until all calls have ended, and a little longer.
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

/// The first so many of a kind are lost.
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

/// How many packets of a kind were sent again.
fn resent(world: &World, kind: PacketKind) -> usize {
    let again =
        |one: &&crate::world::Sent| one.header.kind == kind && one.header.flags.has(Flags::RESENT);
    world.log.iter().flatten().filter(again).count()
}

const MAYBE_DEAD: Ending = Ending::Failed(Executed::Maybe, FailureReason::Dead);

#[test]
fn a_quiet_call_is_two_packets_and_nothing_is_sent_again() {
    let mut world = world(&[NULL; 100]);
    finish(&mut world);
    assert!(world.oracle.all_ok());
    assert_eq!((world.sent(PacketKind::Call), world.sent(PacketKind::Result)), (100, 100));
    // Two exchanges to bind, and the last acknowledgement.
    assert_eq!((world.oracle.packets, world.oracle.resent), (205, 0));
}

/// Long procedures and large messages, both ways, without any fault.
#[test]
fn without_faults_nothing_is_sent_again() {
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
