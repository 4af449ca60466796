//! Checks the contract of a call: the behavior that every path must have.
//!
//! For each path, a test calls [`suite`] with a function. This function makes a client of a server over that
//! path. Each case runs with blocking and async clients, and with blocking and async servers.

// Each test program uses only some items of this module.
#![allow(dead_code)]

mod forms;
mod many;
mod object;
pub(crate) mod pressure;

use std::time::{Duration, Instant};

use peregrine::{Executed, Kind, Lent, Out, PathKind, limits};

pub(crate) use forms::*;
pub(crate) use object::*;

use crate::support::futures::join_all;

/// Makes a client of the given form, which calls the given server over the path under test.
pub(crate) type Connect<'a> = &'a dyn Fn(AnyServer, Form) -> Client;

/// Makes a client of an object over the path under test, in the forms under test.
type Make<'a> = &'a dyn Fn(Object) -> Client;

/// The name of a case, and the function that runs its checks.
type Case = (&'static str, fn(Make<'_>));

/// Makes a list of cases from the names of their functions.
macro_rules! cases {
    ($($case:path),* $(,)?) => { &[$((stringify!($case), $case)),*] };
}

/// The cases that hold on every path.
const CASES: &[Case] = cases![
    values,
    lists_are_bounded,
    buffers_in,
    buffers_out,
    in_out,
    all_directions_at_once,
    errors_of_the_procedure,
    panics_are_caught,
    bounds_hold,
    messages_that_do_not_fit,
    many_threads,
    calls_overlap,
    limits_hold,
    metadata_arrives,
];

/// The cases of async clients that hold on every path.
const FUTURES: &[Case] = cases![
    many::many_futures,
    many::futures_of_other_threads,
    many::deadlines_of_many_futures,
    many::dropped_future_cancels_its_call,
];

/// The cases whose procedures call their own process.
const NESTED: &[Case] = cases![callers_and_nesting, metadata_is_passed_on_if_told];

/// The cases that also hold for calls through any number of bridges (generic servers that forward calls).
const BRIDGED: &[Case] = cases![
    values,
    buffers_in,
    buffers_out,
    in_out,
    all_directions_at_once,
    errors_of_the_procedure,
    bounds_hold,
    many_threads,
];

/// The cases of async clients that also hold for calls through any number of bridges.
const BRIDGED_FUTURES: &[Case] = cases![many::many_bridged_futures];

/// A case that does not hold for some paths and forms, and the reason.
struct Exception {
    case: &'static str,
    applies: fn(over: &str, Forms) -> bool,
    reason: &'static str,
}

/// Returns whether a procedure runs on the thread that polls its call. Such a thread polls no other call
/// until the procedure ends.
fn waits_in_place(over: &str, forms: Forms) -> bool {
    let waits = forms.server == Form::Blocking || over.contains("swapped");
    over.starts_with("in process") && forms.client == Form::Async && waits
}

const IN_PLACE: &str =
    "within a process, a blocking procedure runs on the thread that polls the call";

fn waits_for_executor(over: &str, forms: Forms) -> bool {
    over == "in process, swapped" && forms.server == Form::Async
}

const FEW_THREADS: &str = "a server that converts results waits on the thread of its caller, which is one \
                           of the few threads of the executor";

/// All exceptions.
const EXCEPTIONS: &[Exception] = &[
    Exception { case: "calls_overlap", applies: waits_in_place, reason: IN_PLACE },
    Exception {
        case: "many::deadlines_of_many_futures",
        applies: waits_in_place,
        reason: IN_PLACE,
    },
    Exception {
        case: "many::dropped_future_cancels_its_call",
        applies: waits_in_place,
        reason: IN_PLACE,
    },
    Exception { case: "callers_and_nesting", applies: waits_for_executor, reason: FEW_THREADS },
    Exception {
        case: "metadata_is_passed_on_if_told",
        applies: waits_for_executor,
        reason: FEW_THREADS,
    },
];

/// Runs all checks that hold on every path. The checks need A-stacks (call frames) of the default size.
/// `over` names the path.
pub(crate) fn suite(over: &str, connect: Connect<'_>) {
    run(over, connect, &[CASES, NESTED], FUTURES);
}

/// Runs all checks except those whose procedures call their own process.
pub(crate) fn suite_of_one_call(over: &str, connect: Connect<'_>) {
    run(over, connect, &[CASES], FUTURES);
}

/// Runs the checks that also hold for calls through any number of bridges. A bridge is a generic server that
/// forwards its calls to another server. If a forwarded call fails, the bridge reports an error of its own.
pub(crate) fn suite_of_a_bridge(over: &str, connect: Connect<'_>) {
    run(over, connect, &[BRIDGED], BRIDGED_FUTURES);
}

/// Runs all checks with async clients, and with async servers whose procedures run on an executor of the
/// test.
pub(crate) fn suite_on_an_executor(over: &str, connect: Connect<'_>) {
    let forms = Forms { client: Form::Async, server: Form::Async };
    let make = |object: Object| connect(object.server_on(ThreadEach), forms.client);
    run_in(over, forms, &make, &[CASES, NESTED, FUTURES]);
}

/// Runs cases with each form of the client and each form of the server. `futures` are cases of async clients.
fn run(over: &str, connect: Connect<'_>, cases: &[&[Case]], futures: &[Case]) {
    for forms in Forms::ALL {
        let make = |object: Object| connect(object.server(forms.server), forms.client);
        run_in(over, forms, &make, cases);
        if forms.client == Form::Async {
            run_in(over, forms, &make, &[futures]);
        }
    }
}

fn run_in(over: &str, forms: Forms, make: Make<'_>, cases: &[&[Case]]) {
    for (name, case) in cases.iter().copied().flatten() {
        let applies = |one: &&Exception| one.case == *name && (one.applies)(over, forms);
        if let Some(exception) = EXCEPTIONS.iter().find(applies) {
            println!("{name}, {over}, {forms:?}: skipped: {}", exception.reason);
            continue;
        }
        // The test runner shows this line only if the case fails.
        println!("{name}, {over}, {forms:?}");
        let begun = Instant::now();
        case(make);
        println!("took {:?}", begun.elapsed());
    }
}

fn person(name: &str) -> Person {
    Person {
        name: name.into(),
        age: 40,
        friends: vec![Person::default()],
        home: Some(Box::new(Place::At {
            point: Point { x: -0.5, y: 2e300 },
            colour: Colour::Blue,
        })),
    }
}

fn values(make: Make<'_>) {
    let client = make(Object::default());
    client.nothing().unwrap();
    client.binding().ping().unwrap();
    assert!(client.is_alive());
    let numbers = (255, i64::MIN, u128::MAX - 1, -1.5);
    assert_eq!(client.numbers(255, i64::MIN, u128::MAX - 1, -1.5).unwrap(), numbers);
    assert_eq!(client.letters(true, '🦅').unwrap(), (true, '🦅'));
    assert_eq!(client.letters(false, '\0').unwrap(), (false, '\0'));
    let point = client.point(&Point { x: 1.0, y: 2.0 }).unwrap();
    assert_eq!(point, Point { x: 2.0, y: 1.0 });
    let pixel = Pixel { at: 7, colour: Colour::Green, lit: true, layer: 3 };
    assert_eq!(client.pixel(pixel).unwrap(), pixel);
    for one in [person(""), person("Ada ✈ Löwe"), Person::default()] {
        assert_eq!(client.person(&one).unwrap(), one);
    }
    for place in [Place::Nowhere, Place::Named("Ø".into())] {
        assert_eq!(client.place(place.clone()).unwrap(), place);
    }
    assert_eq!(client.array(&[1, 2, 3, 4, 5], [Some(10), None]).unwrap(), 25);
    let values = vec![u64::MAX, 0, 1];
    let owned = client.owned("text".into(), values.clone()).unwrap();
    assert_eq!(owned, (values, "text".into()));
    assert_eq!(client.owned(String::new(), vec![]).unwrap(), (vec![], String::new()));
}

fn lists_are_bounded(make: Make<'_>) {
    let client = make(Object::default());
    // Interpreted stubs allow lists of at most 256 nodes, and a bridge uses interpreted stubs.
    let long = Chain::of(250);
    assert_eq!(client.chain(long.clone()).unwrap(), long);
    let error = client.chain(Chain::of(limits::LIST_NODES_MAX)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
    assert_eq!(client.ran().unwrap(), 1);
    assert_eq!(client.lengthen(250).unwrap(), long);
    let error = client.lengthen(limits::LIST_NODES_MAX as u32).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::Maybe));
    assert_eq!(client.ran().unwrap(), 3);
}

fn buffers_in(make: Make<'_>) {
    let client = make(Object::default());
    for text in ["", "a", "grüße, 世界", &"x".repeat(5000)] {
        assert_eq!(client.shout(text).unwrap(), text.to_uppercase());
    }
    for length in [0, 1, 3, 4, 5, 1000] {
        let values: Vec<u32> = (0..length).collect();
        let sum = values.iter().copied().map(u64::from).sum::<u64>();
        assert_eq!(client.sum(&values).unwrap(), sum);
    }
    let people: Vec<_> = ["a", "", "ccc"].map(person).into();
    assert_eq!(client.names(&people).unwrap(), ["a", "", "ccc"]);
    assert!(client.names(&[]).unwrap().is_empty());
    for (bytes, points) in [(0, 0), (1, 0), (0, 1), (17, 3), (4096, 2)] {
        let (first, second) = (vec![9; bytes], vec![Point { x: 1.0, y: 2.0 }; points]);
        let counted = client.count_bytes(Lent::from(&first[..]), Lent::from(&second[..]));
        assert_eq!(counted.unwrap(), (bytes + 16 * points) as u64);
    }
    // The lengths are chosen so that some blocks need padding before them, and some blocks are empty.
    for (text, words, lent, people, last) in [
        ("text", 3, 5, 2, 1),
        ("", 0, 0, 0, 0),
        ("odd", 0, 1, 1, 0),
        ("", 7, 0, 3, 2),
        ("x", 1, 16, 0, 5),
    ] {
        let (words, lent, last) = (vec![2u16; words], vec![3u8; lent], vec![5u64; last]);
        let people = vec![person("p"); people];
        let sum = 1 + 2 * words.len() + 3 * lent.len() + 5 * last.len();
        let all = client.all_in(text, 1, &words, Lent::from(&lent[..]), &people, &last);
        let names = "p".repeat(people.len()) + text;
        assert_eq!(all.unwrap(), (sum as u64, names));
    }
}

fn buffers_out(make: Make<'_>) {
    let client = make(Object::default());
    for (capacity, count) in [(0, 0), (0, 5), (1, 1), (5, 3), (7, 7), (1000, 999)] {
        let mut buffer = vec![u32::MAX; capacity];
        let mut out = Out::from(&mut buffer[..]);
        let remaining = client.fill(count, out.by_ref()).unwrap();
        let filled = capacity.min(count as usize);
        assert_eq!((out.filled(), remaining as usize), (filled, capacity - filled));
        assert!(buffer[..filled].iter().copied().eq(0..filled as u32));
        assert!(buffer[filled..].iter().all(|&rest| rest == u32::MAX));

        let mut vec = Vec::with_capacity(capacity);
        vec.extend(std::iter::repeat_n(9, capacity / 2));
        client.fill(count, Out::from(&mut vec)).unwrap();
        assert!(vec.iter().copied().eq(0..vec.len() as u32));
        assert!(vec.len() >= filled);
    }
    let (mut colours, mut letters) = (Vec::with_capacity(5), ['_'; 6]);
    client.colours(Out::from(&mut colours), Out::from(&mut letters)).unwrap();
    assert_eq!(colours, [Colour::Blue, Colour::Green]);
    assert_eq!(letters, ['a', 'ß', '水', '🦅', '_', '_']);
}

fn in_out(make: Make<'_>) {
    let client = make(Object::default());
    let mut value = 21;
    client.double(&mut value).unwrap();
    assert_eq!(value, 42);
    let mut someone = person("Elizabeth");
    client.rename(&mut someone).unwrap();
    assert_eq!(someone.name, "Elizabeth the Second");
    assert_eq!(someone.home.as_deref(), Some(&Place::Named("here".into())));
    for length in [0, 1, 2, 999] {
        let mut values: Vec<u64> = (0..length).rev().collect();
        client.sort(&mut values).unwrap();
        assert!(values.iter().copied().eq(0..length));
    }
    for length in [0, 1, 3, 17] {
        let (mut bits, mut colours) = (vec![true; length], vec![Colour::Red; length + 2]);
        bits.iter_mut().step_by(2).for_each(|bit| *bit = false);
        client.invert(&mut bits, &mut colours).unwrap();
        assert!(bits.iter().enumerate().all(|(i, &bit)| bit == (i % 2 == 0)));
        assert!(colours.iter().all(|&colour| colour == Colour::Green));
    }
    for length in [0, 1, 5] {
        let mut people = vec![person("x"); length];
        client.birthday(&mut people, 2).unwrap();
        assert!(people.iter().all(|one| one.age == 42 && one.name == "x"));
    }
}

fn all_directions_at_once(make: Make<'_>) {
    let client = make(Object::default());
    for (bytes, words, many, points, flags) in [
        (5, 0, 0, 0, 0),
        (5, 3, 2, 0, 3),
        (64, 1, 0, 3, 17),
        (17, 333, 3, 5, 1),
        (4000, 1000, 1, 100, 1000),
    ] {
        let mut first = vec![0; bytes];
        let mut values: Vec<u16> = (0..words).collect();
        let mut total = 1;
        let mut people = vec![person("p"); many];
        let mut second = vec![Point::default(); points];
        let mut someone = person("someone");
        let mut bits = vec![false; flags];
        let mut out = Out::from(&mut first[..]);
        let text = client
            .mixed(
                out.by_ref(),
                &mut values,
                &mut total,
                &mut people,
                Out::from(&mut second[..]),
                &mut someone,
                &mut bits,
            )
            .unwrap();
        assert_eq!((&*text, out.filled()), ("mixed", 5));
        assert_eq!(&first[..5], b"first");
        assert!(values.iter().copied().eq((0..words).rev()));
        assert_eq!(total, 1 + (0..words).map(u64::from).sum::<u64>());
        assert!(people.iter().all(|one| one.name.len() == 40 && one.age == 40));
        assert!((0..points).all(|i| second[i] == Point { x: i as f64, y: 0.5 }));
        assert_eq!((someone.age, &*someone.name), (99, "someone"));
        assert!(bits.iter().all(|&bit| bit));
    }
}

fn errors_of_the_procedure(make: Make<'_>) {
    let client = make(Object::default());
    let (mut buffer, mut value, mut values) = ([0; 8], 1, [1; 3]);
    let mut people = [person("p")];
    let mut call = |fail, text| {
        let out = Out::from(&mut buffer);
        let result = client.fails(fail, text, out, &mut value, &mut values, &mut people);
        (result, value, people[0].name.len())
    };
    match call(true, "why") {
        (Err(Fault::Refused { code: 404, why }), 1, 1) => assert_eq!(why, "why"),
        other => panic!("{other:?}: expected an error, and no assigned parameter"),
    }
    assert!(matches!(call(false, "fine"), (Ok(2), 2, 0)));
    assert_eq!((&buffer[..4], values), (&b"fine"[..], [7; 3]));

    // The error of a failed call is converted to the error type of the method.
    let long = "x".repeat(32 << 20);
    let result = client.fails(false, &long, Out::from(&mut buffer), &mut 1, &mut [], &mut []);
    match result {
        Err(Fault::Call(error)) => {
            assert_eq!((error.kind(), error.procedure()), (Kind::TooLarge, "fails"));
        }
        other => panic!("{other:?}: expected a call error"),
    }
    let error = client.relays().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe));
    assert!(error.to_string().contains("the disk did not turn"), "{error}");
}

fn panics_are_caught(make: Make<'_>) {
    let client = make(Object::default());
    for length in [0, 3, 100] {
        let mut values = vec![1; length];
        let error = client.panics(&mut values).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
        assert!(error.to_string().contains(&format!("own words: {length}")), "{error}");
        assert!(
            values.iter().all(|&value| value == 1),
            "nothing is assigned by a call that failed"
        );
        client.nothing().unwrap();
    }
}

/// Checks that a call failed, and that it is reported as not executed. Returns the kind of the error.
fn refused<T: std::fmt::Debug>(result: peregrine::Result<T>) -> Kind {
    let error = result.unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    error.kind()
}

fn bounds_hold(make: Make<'_>) {
    let client = make(Object::default());
    let mut both = [1, 2, 3];
    let bounded = |text: &str, values: &[u32], both: &mut [u8], lent: &[u8]| {
        client.bounded(text, values, both, Lent::from(lent))
    };
    bounded("four", &[1, 2, 3], &mut both, &[1, 2]).unwrap();
    assert_eq!((both, client.ran().unwrap()), ([3, 2, 1], 1));
    assert_eq!(refused(bounded("fifth", &[], &mut [], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[1; 4], &mut [], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[], &mut [1; 4], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[], &mut [], &[1; 3])), Kind::TooLarge);
    assert_eq!(client.ran().unwrap(), 1);
    let mut buffer = [0; 9];
    let mut out = Out::from(&mut buffer);
    assert_eq!(client.bounded_out(out.by_ref()).unwrap(), 5);
    assert_eq!(out.filled(), 5);
    assert_eq!(buffer, [1, 1, 1, 1, 1, 0, 0, 0, 0]);
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 7) as u8).collect();
    let mut back = vec![0; 1 << 20];
    client.large(&data, Out::from(&mut back[..])).unwrap();
    assert!(data == back, "the largest buffer is transferred in both directions");
}

/// Checks that messages of 32 MiB and more fail. The default maximum is 16 MiB (`limits::MESSAGE_BYTES`), and
/// no procedure declares more.
fn messages_that_do_not_fit(make: Make<'_>) {
    let client = make(Object::default());
    let long = vec![1u32; 1 << 23];
    assert_eq!(refused(client.sum(&long)), Kind::TooLarge);
    assert_eq!(refused(client.shout(&"x".repeat(32 << 20))), Kind::TooLarge);
    let mut buffer = vec![0; 1 << 24];
    assert_eq!(refused(client.fill(1, Out::from(&mut buffer[..]))), Kind::TooLarge);
    assert_eq!(client.ran().unwrap(), 0);
    let error = client.repeat(&"x".repeat(1024), 1 << 15).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::Maybe));
    assert_eq!(client.ran().unwrap(), 1);
    client.nothing().unwrap();
}

/// Checks that a time limit has the same effect on every path, also within one process. No call begins after
/// its limit, and no call returns a result after its limit.
fn limits_hold(make: Make<'_>) {
    let client = make(Object::default());
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    let most = LONG.as_millis() as u64;
    assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
    assert!(!cancelled);
    assert_eq!(client.ran().unwrap(), 2);
    assert_eq!(refused(client.with_timeout(Duration::ZERO).left()), Kind::TimedOut);
    assert_eq!(client.ran().unwrap(), 2);
    for round in 1..=2 {
        let mut value = 5;
        let limit = Duration::from_millis(150);
        let error = client.with_timeout(limit).outlive(&mut value).unwrap_err();
        let said = (error.kind(), error.executed());
        assert_eq!(said, (Kind::TimedOut, Executed::Maybe), "{error}");
        assert_eq!(value, 5, "nothing is assigned by a call that failed");
        let until = Instant::now() + LONG;
        while client.ran().unwrap() < 2 + round {
            assert!(Instant::now() < until, "the procedure did not learn that it is cancelled");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Checks that metadata arrives with each call of its client, and only with these calls.
fn metadata_arrives(make: Make<'_>) {
    let client = make(Object::default());
    assert!(client.metadata().unwrap().is_empty());
    let one = client.with_metadata("tenant", "birds").unwrap();
    let two = one.with_metadata("trace.id", "7f \u{e9}").unwrap();
    for _ in 0..3 {
        assert_eq!(one.metadata().unwrap(), ["tenant=birds"]);
        assert!(client.metadata().unwrap().is_empty());
        assert_eq!(two.metadata().unwrap(), ["tenant=birds", "trace.id=7f \u{e9}"]);
    }
    // A limit and metadata hold together, whichever is set first.
    for limited in
        [two.with_timeout(LONG), two.with_timeout(LONG).with_metadata("tenant", "birds").unwrap()]
    {
        assert_eq!(limited.metadata().unwrap().len(), 2);
        assert!(limited.left().unwrap().0.is_some());
    }
    assert!(client.left().unwrap().0.is_none());
    // As much as is allowed arrives, with messages of all sizes.
    let keys = (1..limits::METADATA_PAIRS_MAX).map(|n| format!("{n:0>64}"));
    let full = keys.fold(client.clone(), |client, key| client.with_metadata(&key, "v").unwrap());
    let left = limits::METADATA_BYTES_MAX - (limits::METADATA_PAIRS_MAX - 1) * (4 + 64 + 1);
    let full = full.with_metadata("last", &"v".repeat(left - 4 - 4)).unwrap();
    let sent: Vec<_> =
        full.binding().metadata().iter().map(|(key, value)| format!("{key}={value}")).collect();
    for bytes in [0, 1, 1000, 1400, 9000, 100_000, 1 << 20] {
        let data = vec![7; bytes];
        assert_eq!(full.metadata_of(&data).unwrap(), sent, "{bytes} bytes");
        assert_eq!(full.with_timeout(LONG).metadata_of(&data).unwrap(), sent, "{bytes} bytes");
        assert!(client.metadata_of(&data).unwrap().is_empty());
    }
    let ran = client.ran().unwrap();
    let shared = client.to_async();
    let traced = two.to_async();
    let calls = (0..20).map(|n| if n % 2 == 0 { shared.clone() } else { traced.clone() });
    let calls = calls.map(|client| async move { client.metadata().await });
    for (n, seen) in join_all(calls).into_iter().enumerate() {
        assert_eq!(seen.unwrap().len(), n % 2 * 2);
    }
    assert_eq!(client.ran().unwrap(), ran + 20);
    for (key, value) in [("Key", "v"), ("", "v"), ("k", &*"v".repeat(limits::METADATA_BYTES_MAX))] {
        assert_eq!(refused(client.with_metadata(key, value)), Kind::BadArguments);
    }
    assert_eq!(refused(full.with_metadata("k", "")), Kind::BadArguments);
}

/// Checks that the calls of a procedure carry the metadata of its caller only if the procedure says so.
fn metadata_is_passed_on_if_told(make: Make<'_>) {
    let inner = make(Object::default());
    let outer = make(Object { peer: Some(inner), ..Object::default() });
    let traced = outer.with_metadata("trace", "7").unwrap();
    assert_eq!(traced.innermost_metadata().unwrap(), [&[][..], &["trace=7"], &["own=1"]]);
    assert_eq!(outer.innermost_metadata().unwrap(), [&[][..], &[], &["own=1"]]);
}

fn callers_and_nesting(make: Make<'_>) {
    let inner = make(Object::default());
    assert!(inner.who().unwrap().is_some());
    assert!(peregrine::caller().is_none());
    let middle = make(Object { peer: Some(inner.clone()), ..Object::default() });
    let outer = make(Object { peer: Some(middle), ..Object::default() });
    assert_eq!(outer.through("falcon").unwrap(), "<<falcon>>");
    // The innermost procedure knows all processes through which its call came. Its time limit is that of the
    // first call.
    let (left, chain) = outer.innermost().unwrap();
    assert!(left.is_none());
    // The chain has one link if all calls stay in one process, and otherwise one for each of the three calls.
    // Over datagrams the server does not learn the first caller's process ID, so `chain[0]` may be 0.
    let links = if outer.binding().path() == PathKind::InProcess { 1 } else { 3 };
    let own = std::process::id();
    assert_eq!(chain.len(), links, "{chain:?}");
    assert!(chain[1..].iter().all(|&process| process == own), "{chain:?}");
    assert!([0, own].contains(&chain[0]), "{chain:?}");
    let (left, same) = outer.with_timeout(LONG).innermost().unwrap();
    assert_eq!(same, chain);
    let most = LONG.as_millis() as u64;
    assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
    assert_eq!(refused(outer.with_timeout(Duration::ZERO).innermost()), Kind::TimedOut);
    // The object and its client implement the same trait, so the same code can call both.
    let both: [&dyn Contract; 2] = [&Object::default(), &inner];
    assert!(both.iter().all(|one| one.shout("a").unwrap() == "A"));
}

fn many_threads(make: Make<'_>) {
    let client = make(Object::default());
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..50 {
                    let mut values: Vec<u64> = (0..round).map(|i| (i * 7 + thread) % 31).collect();
                    let mut sorted = values.clone();
                    sorted.sort_unstable();
                    client.sort(&mut values).unwrap();
                    assert_eq!(values, sorted);
                    let text = format!("thread {thread} round {round}");
                    assert_eq!(client.shout(&text).unwrap(), text.to_uppercase());
                }
            });
        }
    });
}

/// Checks that a call begins while other calls of the same client wait. An async client makes all calls on
/// one thread.
fn calls_overlap(make: Make<'_>) {
    const CALLERS: u32 = 5;
    let client = make(Object::default());
    match &client {
        Client::Blocking(client) => std::thread::scope(|scope| {
            for _ in 0..CALLERS {
                scope.spawn(|| client.meet(CALLERS).unwrap());
            }
        }),
        Client::Async(client) => {
            let met = join_all((0..CALLERS).map(|_| client.meet(CALLERS)));
            met.into_iter().for_each(|met| met.unwrap());
        }
    }
}
