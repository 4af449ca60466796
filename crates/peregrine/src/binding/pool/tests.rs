//! Tests what a pool knows about its servers, without threads and at moments that the test chooses.

use std::collections::HashMap;

use super::members::{Choice, Member, Members, ROUND, Turns};
use super::servers::{GRACE, PAUSE_MAX, PAUSE_MIN, PROBATION, Servers, pause};
use super::*;
use crate::binding::BindOptions;
use crate::call::{Begun, Call, CallPath, OnExhausted, Returned, Wait};
use crate::interface::InterfaceRef;

fn bound() -> Bound {
    let asked = Asked::new("x", InterfaceRef::none(), None, &BindOptions::default());
    Pool::front(&asked).unwrap()
}

fn offers(servers: &[&str]) -> Offers {
    let offer = |server: &&str| Offer::new(server, [format!("x@{server}.example.org:1")]).unwrap();
    Offers::of(servers.iter().map(offer).collect())
}

fn unreachable() -> CallError {
    CallError::not_executed(Kind::Unreachable, Phase::Call, "no route")
}

/// Servers whose pauses are the longest possible.
struct Case {
    servers: Servers,
    now: Instant,
}

const LONGEST: fn() -> u32 = || u32::MAX;

impl Case {
    fn new(balance: &Balance, max: usize) -> Self {
        Self { servers: Servers::new(balance, true, max, 7), now: Instant::now() }
    }

    fn offered(&mut self, servers: &[&str]) -> usize {
        self.servers.offered(offers(servers), self.now, &mut { LONGEST }).len()
    }

    fn due(&mut self) -> Vec<(u64, String)> {
        let due = self.servers.due(self.now, 100).into_iter();
        due.map(|(id, offer)| (id, offer.map_or_else(String::new, |one| one.server().to_owned())))
            .collect()
    }

    /// Binds to all servers that are due. Returns their names.
    fn bind(&mut self) -> Vec<String> {
        let due = self.due();
        for (id, _) in &due {
            assert!(self.servers.bound(*id, Ok(bound()), self.now, &mut { LONGEST }).is_none());
        }
        due.into_iter().map(|one| one.1).collect()
    }

    /// Lets a call of a server fail. Returns whether the server is left out.
    fn fail(&mut self, name: &str, error: &CallError) -> bool {
        let named = self.servers.named();
        let gone = &named.iter().find(|one| one.0 == name).unwrap().1.bound;
        let gone = Arc::as_ptr(gone);
        drop(named);
        self.servers.call_failed(gone, error, self.now, &mut { LONGEST }).is_some()
    }

    fn used(&self) -> Vec<String> {
        let report = self.servers.report(&self.servers.members());
        let used = report.into_iter().filter(|one| one.standing == PoolStanding::Used);
        used.map(|one| one.server).collect()
    }
}

#[test]
fn pauses_double_are_bounded_and_differ() {
    for failures in 0..40 {
        let whole = (PAUSE_MIN * 2u32.pow(failures.min(10))).min(PAUSE_MAX);
        assert_eq!(pause(failures, u32::MAX), whole);
        assert_eq!(pause(failures, 0), whole / 2);
        let middle = pause(failures, u32::MAX / 2);
        assert!(middle > whole / 2 && middle < whole);
    }
}

#[test]
fn failed_server_is_left_out_for_a_growing_pause() {
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b"]);
    assert_eq!(case.bind().len(), 2);
    let mut whole = PAUSE_MIN;
    for _ in 0..4 {
        assert!(case.fail("a", &unreachable()));
        assert_eq!(case.used(), ["b"]);
        assert!(case.due().is_empty());
        assert_eq!(case.servers.next_due(true), Some(case.now + whole));
        case.now += whole;
        assert_eq!(case.bind(), ["a"]);
        assert_eq!(case.used(), ["a", "b"]);
        whole *= 2;
    }
    // After the probation, the pause is short again.
    case.now += PROBATION;
    assert!(case.fail("a", &unreachable()));
    assert_eq!(case.servers.next_due(true), Some(case.now + PAUSE_MIN));
}

/// An object that says which thread has dropped it.
struct Watched(std::sync::mpsc::Sender<Option<String>>);

impl Serve for Watched {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::none()
    }

    fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        Err(Refusal::new(Kind::ServerGone, ""))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.0.send(std::thread::current().name().map(ToOwned::to_owned));
    }
}

#[test]
fn no_call_and_no_keeper_drops_a_server() {
    let asked = Asked::new("x", InterfaceRef::none(), None, &BindOptions::default());
    let pool = Pool::without_servers(Arc::new(asked), 7);
    let (send, dropped) = std::sync::mpsc::channel();
    let mut bound = bound();
    bound.path = Box::new(InProcess::new(Arc::new(Watched(send)), &bound.frames));
    {
        let mut state = pool.state();
        let _ = state.servers.offered(offers(&["a"]), Instant::now(), &mut { LONGEST });
        let due = state.servers.due(Instant::now(), 1);
        assert!(
            state.servers.bound(due[0].0, Ok(bound), Instant::now(), &mut { LONGEST }).is_none()
        );
        drop(pool.publish(&state));
    }
    let call = pool.pick().unwrap().share();
    keeping::keep(&pool).unwrap();
    pool.fails(&call, &unreachable());
    // The call still uses the server.
    assert!(dropped.try_recv().is_err());
    drop(call);
    assert_eq!(dropped.recv().unwrap().as_deref(), Some("peregrine-drop"));
}

/// A path whose session ends when the flag is set. No call is made over it.
struct Session(Arc<AtomicBool>);

impl CallPath for Session {
    fn transport(&self, _: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        unreachable!()
    }
    fn begin(&self, _: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        unreachable!()
    }
    fn poll(&self, _: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        unreachable!()
    }
    fn arm(&self, _: u32, _: Option<Instant>) {}
    fn give_up(&self, _: &mut Call<'_, '_, '_>) -> CallError {
        unreachable!()
    }
    fn is_prepared(&self, _: u32) -> bool {
        true
    }
    fn prepare(&self, _: u32, _: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }
    fn message_bytes(&self) -> usize {
        64
    }
    fn wait(&self) -> Wait {
        Wait::Adaptive
    }
    fn server_cpu(&self, _: u32) -> Option<u32> {
        None
    }
    fn kind(&self) -> PathKind {
        PathKind::InProcess
    }
    fn explain(&self) -> String {
        String::new()
    }
    fn retransmissions(&self, _: u32) -> u32 {
        0
    }
    fn is_alive(&self) -> bool {
        !self.0.load(Ordering::SeqCst)
    }
    fn captures(&self, _: u32) -> bool {
        false
    }
    fn is_released(&self, _: u32) -> bool {
        true
    }
}

/// The first server has ended, which is noticed only now, and the second one has just failed. The call must
/// go to the third one.
#[test]
fn call_is_repeated_neither_at_the_failed_server_nor_at_one_that_has_ended() {
    let options = BindOptions::default().balance(Balance::First);
    let asked = Asked::new("x", InterfaceRef::none(), None, &options);
    let pool = Pool::without_servers(Arc::new(asked), 7);
    let ended: [Arc<AtomicBool>; 3] = Default::default();
    {
        let mut state = pool.state();
        let at = |(priority, server): (u16, &str)| {
            let addresses = [format!("x@{server}.example.org:1")];
            Offer::new(server, addresses).unwrap().with_priority(priority)
        };
        let all = Offers::of([(1, "a"), (2, "b"), (3, "c")].map(at).into());
        let _ = state.servers.offered(all, Instant::now(), &mut { LONGEST });
        for (id, offer) in state.servers.due(Instant::now(), 3) {
            let at =
                ["a", "b", "c"].iter().position(|one| *one == offer.as_ref().unwrap().server());
            let mut bound = bound();
            bound.path = Box::new(Session(Arc::clone(&ended[at.unwrap()])));
            state.servers.bound(id, Ok(bound), Instant::now(), &mut { LONGEST });
        }
        drop(pool.publish(&state));
    }
    let all: Vec<_> = pool.members.read().all.iter().map(|one| Arc::clone(&one.bound)).collect();
    ended[0].store(true, Ordering::SeqCst);
    let picked = pool.pick_other(&all[1]).unwrap();
    assert!(core::ptr::eq(picked.bound(), &raw const *all[2]));
}

#[test]
fn all_own_calls_count_however_many_are_in_flight() {
    let mut bound = bound();
    let frames = Arc::new(Frames::private(256, 256, 64).unwrap());
    bound.frames = Arc::clone(&frames);
    let member = Member::new(bound, None);
    let frame = || frames.take(|| None, |_| false, OnExhausted::Wait).unwrap();
    let taken: Vec<_> = core::iter::repeat_with(frame).take(200).collect();
    assert_eq!(member.own_calls(), 200);
    drop(taken);
    assert_eq!(member.own_calls(), 0);
}

#[test]
fn other_errors_leave_no_server_out() {
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b"]);
    case.bind();
    for kind in [Kind::Overloaded, Kind::Denied, Kind::TooLarge, Kind::BadArguments] {
        let error = CallError::not_executed(kind, Phase::Call, "");
        (0..10).for_each(|_| assert!(!case.fail("a", &error), "{kind:?}"));
    }
    assert_eq!(case.used(), ["a", "b"]);
}

#[test]
fn server_whose_results_are_unreadable_is_left_out_unless_most_are() {
    let unreadable = CallError::new(Kind::BadResult, Executed::Maybe, "not text");
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b", "c", "d"]);
    case.bind();
    let fails =
        |case: &mut Case, name| (0..3).map(|_| case.fail(name, &unreadable)).collect::<Vec<_>>();
    assert_eq!(fails(&mut case, "a"), [false, false, true]);
    assert_eq!(fails(&mut case, "b"), [false, false, true]);
    // If all servers answer so, the fault is probably the client's.
    assert_eq!(fails(&mut case, "c"), [false; 3]);
    assert_eq!(case.used(), ["c", "d"]);
    // Faults that are far apart do not add up.
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b"]);
    case.bind();
    for _ in 0..10 {
        case.now += PROBATION;
        assert!(!case.fail("a", &unreadable));
    }
}

#[test]
fn server_that_hangs_or_panics_more_than_others_is_left_out() {
    let fault = |kind| CallError::new(kind, Executed::Maybe, "");
    for kind in [Kind::TimedOut, Kind::Panicked] {
        let fault = fault(kind);
        let fails = |case: &mut Case, name, calls| {
            (0..calls).map(|_| case.fail(name, &fault)).collect::<Vec<_>>()
        };
        let mut case = Case::new(&Balance::Random, 10);
        case.offered(&["a", "b", "c", "d"]);
        case.bind();
        assert_eq!(fails(&mut case, "a", 5), [false, false, false, false, true]);
        assert_eq!(case.used(), ["b", "c", "d"]);
        // After its pause, the first fault suffices, and the pause grows.
        for pause in [PAUSE_MIN, 2 * PAUSE_MIN] {
            case.now += pause;
            assert_eq!(case.bind(), ["a"]);
            assert_eq!(fails(&mut case, "a", 1), [true]);
        }
        case.now += 4 * PAUSE_MIN;
        assert_eq!(case.bind(), ["a"]);
        case.now += PROBATION;
        assert_eq!(fails(&mut case, "a", 4), [false; 4]);
        // Faults that are far apart do not add up.
        case.now += PROBATION;
        assert_eq!(fails(&mut case, "a", 4), [false; 4]);
    }
    // If all servers have such faults, the arguments or the client may be the reason.
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b", "c", "d"]);
    case.bind();
    for _ in 0..100 {
        for name in ["a", "b", "c", "d"] {
            assert!(!case.fail(name, &fault(Kind::Panicked)));
        }
    }
    // At most half of the servers are left out, and never the only one.
    let mut case = Case::new(&Balance::Random, 10);
    case.offered(&["a", "b"]);
    case.bind();
    assert!((0..5).any(|_| case.fail("a", &fault(Kind::TimedOut))));
    assert!((0..100).all(|_| !case.fail("b", &fault(Kind::TimedOut))));
    assert_eq!(case.used(), ["b"]);
}

#[test]
fn spare_servers_replace_those_that_fail() {
    let mut case = Case::new(&Balance::First, 2);
    case.offered(&["a", "b", "c", "d", "e", "f"]);
    assert_eq!(case.bind(), ["a", "b"]);
    assert!(case.fail("a", &unreachable()));
    assert_eq!(case.bind(), ["c"]);
    assert!(case.fail("b", &unreachable()) && case.fail("c", &unreachable()));
    // At a time, a pool tries twice as many servers as it uses, and no more.
    assert_eq!(case.bind(), ["d"]);
    assert!(case.fail("d", &unreachable()));
    assert_eq!(case.bind(), Vec::<String>::new());
    let report = case.servers.report(&case.servers.members());
    let spare = report.iter().filter(|one| one.standing == PoolStanding::Spare).count();
    assert_eq!((report.len(), spare), (6, 2));
}

#[test]
fn each_server_is_tried_however_many_are_down() {
    let names: Vec<_> = (0..20).map(|number| format!("s{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let mut case = Case::new(&Balance::First, 2);
    case.offered(&names);
    let mut attempts: HashMap<String, u32> = HashMap::new();
    let begun = case.now;
    while case.used().is_empty() {
        case.now = case.servers.next_due(true).unwrap();
        for (id, name) in case.due() {
            *attempts.entry(name.clone()).or_default() += 1;
            let result = if name == "s19" { Ok(bound()) } else { Err(unreachable()) };
            case.servers.bound(id, result, case.now, &mut { LONGEST });
        }
        assert!(case.now < begun + Duration::from_secs(60), "{attempts:?}");
    }
    assert_eq!(case.used(), ["s19"]);
    // Servers that are down are tried less and less often, also if others were used meanwhile.
    assert!(attempts.values().all(|one| *one < 10), "{attempts:?}");
    // The server stays when the directory reports again, until one of the first ones serves.
    assert_eq!(case.offered(&names), 0);
    assert_eq!(case.used(), ["s19"]);
}

#[test]
fn servers_that_were_not_tried_come_first() {
    let mut case = Case::new(&Balance::First, 2);
    case.offered(&["a", "b", "c"]);
    let due = case.due();
    case.servers.bound(due[0].0, Err(unreachable()), case.now, &mut { LONGEST });
    case.now += PAUSE_MAX;
    let next = case.servers.due(case.now, 1);
    assert_eq!(next[0].1.as_ref().unwrap().server(), "c");
}

#[test]
fn servers_of_one_place_count_once_and_this_is_reported() {
    let mut case = Case::new(&Balance::First, 10);
    let at = |server| Offer::new(server, ["x@h.example.org:1"]).unwrap();
    case.servers.offered(Offers::of(vec![at("a"), at("b")]), case.now, &mut { LONGEST });
    assert_eq!(case.bind(), ["a"]);
    assert_eq!(
        case.servers.remarks,
        ["`b` is left out: `a` has the same addresses: x@h.example.org:1"]
    );
}

#[test]
fn forgotten_servers_are_used_until_they_fail() {
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&["a", "b"]);
    case.bind();
    assert_eq!(case.offered(&[]), 0);
    assert_eq!(case.used(), ["a", "b"]);
    assert!(case.fail("a", &unreachable()));
    assert_eq!(case.used(), ["b"]);
    assert!(case.fail("b", &unreachable()));
    // Now only the name itself can be tried.
    assert_eq!(case.due().iter().map(|one| &*one.1).collect::<Vec<_>>(), [""]);
    // If the directory knows some servers, the others are dropped at once.
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&["a", "b"]);
    case.bind();
    assert_eq!(case.offered(&["b"]), 1);
    assert_eq!(case.used(), ["b"]);
}

#[test]
fn forgotten_servers_are_dropped_after_a_time() {
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&["a", "b"]);
    case.bind();
    case.offered(&[]);
    let end = case.now + GRACE;
    assert_eq!(case.servers.next_due(true), Some(end));
    assert!(case.servers.expire(case.now).is_empty());
    // Another empty report does not make the time longer, and a server that is known again ends it.
    case.now += GRACE / 2;
    case.offered(&[]);
    assert_eq!(case.servers.next_due(true), Some(end));
    case.offered(&["a"]);
    assert_eq!(case.servers.next_due(true), None);
    assert!(case.servers.expire(end).is_empty());
    case.offered(&[]);
    case.now += GRACE;
    assert_eq!(case.servers.expire(case.now).len(), 1);
    // Now only the name itself can be tried.
    assert_eq!(case.due().iter().map(|one| &*one.1).collect::<Vec<_>>(), [""]);
    assert_eq!(case.servers.next_due(true), None);
}

#[test]
fn calls_that_wait_hurry_an_attempt_within_bounds() {
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&["a"]);
    let mut whole = PAUSE_MIN;
    for _ in 0..10 {
        let due = case.due();
        assert_eq!(due.len(), 1);
        let failed = Err(unreachable());
        case.servers.bound(due[0].0, failed, case.now, &mut { LONGEST });
        assert!(!case.servers.hurry(case.now, case.now), "an attempt has failed just now");
        let later = case.now + Duration::from_nanos(1);
        assert!(case.servers.hurry(later, later));
        assert_eq!(case.servers.next_due(true), Some(case.now + whole / 8));
        case.now += whole / 8;
        whole = (2 * whole).min(PAUSE_MAX);
    }
}

#[test]
fn servers_of_a_low_priority_are_used_only_without_others() {
    for balance in [Balance::Random, Balance::First, Balance::Key("k".to_owned())] {
        let mut case = Case::new(&balance, 10);
        let at = |server: &str, priority| {
            let addresses = [format!("x@{server}.example.org:1")];
            Offer::new(server, addresses).unwrap().with_priority(priority)
        };
        let all = vec![at("spare", 20), at("a", 10), at("last", 30), at("b", 10)];
        case.servers.offered(Offers::of(all), case.now, &mut { LONGEST });
        assert_eq!(case.bind().len(), 4);
        assert_eq!(case.used(), ["a", "b"], "{balance:?}");
        assert!(case.fail("a", &unreachable()));
        assert_eq!(case.used(), ["b"]);
        assert!(case.fail("b", &unreachable()));
        assert_eq!(case.used(), ["spare"]);
        case.now += PAUSE_MAX;
        case.bind();
        assert_eq!(case.used(), ["a", "b"]);
    }
}

#[test]
fn attempts_are_short_only_while_others_are_untried() {
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&["a", "b", "c"]);
    assert!(case.servers.are_many_untried(2) && !case.servers.are_many_untried(3));
    case.bind();
    assert!(!case.servers.are_many_untried(2), "a server serves");
}

#[test]
fn order_is_that_of_the_directory_or_of_the_key() {
    let names = ["c", "a", "b"];
    let order = |case: &Case| {
        let named = case.servers.named();
        let name = |member: &Arc<Member>| {
            named.iter().find(|one| Arc::ptr_eq(&one.1, member)).unwrap().0.to_owned()
        };
        case.servers.members().all.iter().map(name).collect::<Vec<_>>()
    };
    let mut case = Case::new(&Balance::First, 10);
    case.offered(&names);
    case.bind();
    assert_eq!(order(&case), names);
    case.offered(&["b", "c", "a"]);
    assert_eq!(order(&case), ["b", "c", "a"]);
    let mut case = Case::new(&Balance::Key("k".to_owned()), 10);
    case.offered(&names);
    case.bind();
    let mut expected = names;
    expected.sort_by_key(|name| core::cmp::Reverse(Balance::weight(b"k", name)));
    assert_eq!(order(&case), expected);
}

fn members(count: u32) -> Members {
    let all: Box<[_]> = (0..count).map(|_| Arc::new(Member::new(bound(), None))).collect();
    Members { all, preferred: count }
}

#[test]
fn random_choices_are_spread() {
    let members = members(5);
    let mut counts = [0; 5];
    (0..10_000).for_each(|turn| counts[Choice::Random.choose(&members, turn)] += 1);
    assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    let in_turn: Vec<_> = (0..10).map(|turn| Choice::InTurn.choose(&members, turn)).collect();
    assert_eq!(in_turn, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn less_loaded_of_two_is_chosen() {
    let members = members(5);
    // One server runs calls of this pool, and one runs calls of others.
    let bound = &members.all[1].bound;
    let frames: Vec<_> =
        (0..4).map(|_| bound.frames.take(|| None, |_| false, OnExhausted::More).unwrap()).collect();
    assert_eq!(members.all[1].own_calls(), 4);
    members.all[3].others.store(20, Ordering::Relaxed);
    let mut counts = [0; 5];
    (0..10_000).for_each(|turn| counts[Choice::LessLoaded.choose(&members, turn)] += 1);
    // A loaded server is chosen only if both choices are loaded servers: once in 10 times.
    assert!(counts[1] + counts[3] < 1200, "{counts:?}");
    assert!([0, 2, 4].iter().all(|idle| counts[*idle] > 2500), "{counts:?}");
    drop(frames);
    assert_eq!(members.all[1].own_calls(), 0);
}

#[test]
fn turns_say_when_a_round_is_complete() {
    let turns = Turns::new(|| 100);
    let rounds = (0..10 * ROUND).filter(|_| turns.next(3).1).count();
    assert_eq!(rounds, 10);
}

#[test]
fn new_servers_of_a_higher_rank_take_the_place_of_others() {
    let mut case = Case::new(&Balance::First, 2);
    case.offered(&["b", "c", "d"]);
    assert_eq!(case.bind(), ["b", "c"]);
    assert_eq!(case.offered(&["a", "b", "c", "d"]), 1, "c is not among the first two any more");
    assert_eq!(case.bind(), ["a"]);
    assert_eq!(case.used(), ["a", "b"]);
    // A server in place of one that fails stays.
    assert!(case.fail("a", &unreachable()));
    assert_eq!(case.bind(), ["c"]);
    assert_eq!(case.offered(&["a", "b", "c", "d", "e"]), 0);
    assert_eq!(case.used(), ["b", "c"]);
}
