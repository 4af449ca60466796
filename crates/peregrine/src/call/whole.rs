//! Tests of whole calls: the server reads what the client writes, and the client reads what the server
//! writes. Also tests messages with inconsistent parts, the identity of callers, and waits.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::error::{Executed, Kind};
use crate::interface::InterfaceRef;
use crate::limits;
use crate::sys::Memory;
use crate::value::{Arrives, Arriving, Lent, Out, Reader, Space, Value, Writer};

const BYTES: usize = 16 << 10;
const TEXT_MAX: usize = 40;
const WORDS_MAX: usize = 2000;

/// A server stub like a compiled one, for a procedure with a parameter of each kind.
struct Echo {
    /// Text that the result has in addition to the echo.
    result: String,
    fails: bool,
}

impl Serve for Echo {
    fn interface(&self) -> InterfaceRef {
        unreachable!("no client binds")
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        if request.procedure() != 1 {
            return Err(Refusal::no_such_procedure(request.procedure()));
        }
        reply.expect(2);
        let number = request.value::<u64>()?;
        let text = request.text(TEXT_MAX)?;
        let words = request.slice::<u16>(WORDS_MAX)?;
        let names = request.slice::<String>(3)?;
        let mut both = request.in_out::<u32>(reply, WORDS_MAX)?;
        let mut filled = 0;
        let mut out = request.out::<u16>(reply, &mut filled, WORDS_MAX)?;
        let lent = request.lent::<u8>(WORDS_MAX)?;
        request.finish()?;
        both.reverse();
        let fits = words.len().min(out.capacity());
        out.put(&words[..fits]).expect("space");
        let mut last = [0];
        if !lent.is_empty() {
            lent.copy_to(lent.len() - 1, &mut last)?;
        }
        if self.fails {
            return reply.err(&format!("{number} {text}"));
        }
        reply.in_out(0, &both)?;
        reply.filled(1, filled * size_of::<u16>())?;
        let said = format!("{number} {text} {} {}{}", names.join(","), last[0], self.result);
        reply.ok(&said, |head| both.encode(head))
    }
}

fn frames(bytes: usize) -> Frames {
    let layout =
        FrameLayout { count: 1, first: 0, stride: 2 * bytes, call_at: 0, reply_at: bytes, bytes };
    Frames::new(Arc::new(Memory::private(2 * bytes).unwrap()), layout, 1)
}

/// The results that a caller has after a call.
#[derive(Debug, PartialEq)]
struct Gets {
    answer: Answer,
    head: Vec<u8>,
    both: Vec<u32>,
    out: Vec<u16>,
}

impl Gets {
    fn said(&self) -> String {
        String::decode(&mut Reader::new(Window::from(&*self.head))).expect("a text")
    }

    fn refusal(&self) -> (Kind, String) {
        let mut head = Reader::new(Window::from(&*self.head));
        let kind = Kind::from_number(head.plain().unwrap()).expect("a kind");
        (kind, String::decode(&mut head).expect("a text"))
    }
}

/// How the server receives the arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// The server copies the arguments from shared memory.
    Shared,
    /// The server runs the procedure on the arguments where it received them.
    InPlace,
}

/// The message that the client sends.
#[derive(Clone)]
struct Sends {
    number: u64,
    text: String,
    words: Vec<u16>,
    names: Vec<String>,
    both: Vec<u32>,
    room: usize,
    lent: Vec<u8>,
    /// Whether to send a value that no parameter reads.
    extra: bool,
    /// Changes the sizes of the head, the copied part and the message before the server sees them.
    lengths: fn([usize; 3]) -> [usize; 3],
}

impl Default for Sends {
    fn default() -> Self {
        Self {
            number: 7,
            text: "falcon".into(),
            words: vec![1, 2, 3],
            names: vec!["a".into(), "b".into()],
            both: vec![4, 5, 6],
            room: 10,
            lent: vec![9; 33],
            extra: false,
            lengths: |lengths| lengths,
        }
    }
}

impl Sends {
    fn call(&self, serve: &dyn Serve, way: Way, bytes: usize) -> Gets {
        let frames = frames(bytes);
        let frame = frames.take(|| None, |_| true, OnExhausted::Wait).expect("a frame");
        let mut head = Writer::new(frame.call_space());
        head.plain(&self.number).unwrap();
        head.count(self.text.len()).unwrap();
        head.count(self.words.len()).unwrap();
        head.count(self.names.len()).unwrap();
        head.deeper(|head| String::encode_all(&self.names, head)).unwrap();
        head.count(self.both.len()).unwrap();
        head.count(self.room).unwrap();
        head.count(self.lent.len()).unwrap();
        if self.extra {
            head.plain(&1u8).unwrap();
        }
        let (mut both, mut out) = (self.both.clone(), Vec::with_capacity(self.room));
        let mut gets = Gets { answer: Answer::Ok, head: vec![], both: vec![], out: Vec::new() };
        {
            let mut into = Out::from(&mut out);
            let mut outs = [u32::as_block_mut(&mut both).unwrap(), into.block_of(self.room)];
            let ins = [
                Window::from(self.text.as_bytes()).into(),
                Block::new(Window::from(u16::as_block(&self.words).unwrap()), None),
                Block::empty(),
                outs[0].contents(),
            ];
            let lent = [Window::from(&*self.lent).into()];
            let terms = CallTerms::None;
            let mut call = Call {
                procedure: 1,
                frame: &frame,
                head: &mut head,
                ins: &ins,
                lent: &lent,
                outs: &mut outs,
                terms,
            };
            let layout = call.put(usize::MAX).expect("space");
            assert_eq!(call.layout(), layout);
            assert!(call.is_unconverted());
            assert!(call.put(layout.total - 1).is_none());
            call.head.flush();
            let space = call.frame.call_space().window();
            let [head_bytes, copied, total] =
                (self.lengths)([layout.head, layout.copied, layout.total]);
            let reply = call.frame.reply_to();
            let (mut estack, mut blocks) = (EStack::default(), Vec::new());
            let mut message = vec![0u128; total.min(bytes).div_ceil(16)];
            let ran = match way {
                Way::Shared => {
                    let incoming = Incoming {
                        procedure: 1,
                        space,
                        head_bytes,
                        copied,
                        total,
                        arrives: None,
                        departs: None,
                    };
                    execute(serve, &incoming, reply, &mut estack)
                }
                Way::InPlace => {
                    let message = crate::value::bytes_of_blocks(&mut message);
                    let message = &mut message[..total.min(bytes)];
                    space.read(0, message).unwrap();
                    let placed = Placed { procedure: 1, message, head_bytes, copied };
                    execute_in_place(serve, placed, reply, &mut blocks)
                }
            };
            let Ran { answer, head_at, head_bytes, .. } = ran;
            gets.answer = answer;
            let (at, length) = (head_at as usize, head_bytes as usize);
            let window = call.frame.reply_space().part(at, length).unwrap();
            gets.head = vec![0; length];
            window.read(0, &mut gets.head).unwrap();
            if answer == Answer::Ok {
                let taken = call.take_blocks(0);
                assert!(taken.is_ok(), "{taken:?}");
                if way == Way::InPlace {
                    assert_eq!(blocks.len(), 2);
                }
            }
        }
        (gets.both, gets.out) = (both, out);
        gets
    }
}

fn echo() -> Echo {
    Echo { result: String::new(), fails: false }
}

#[test]
fn call_and_result_arrive_unchanged() {
    for way in [Way::Shared, Way::InPlace] {
        for (words, both, lent) in [(3, 3, 33), (0, 0, 0), (1, 2, 0), (1000, 1000, 1000)] {
            let sends = Sends {
                words: (0..words).collect(),
                both: (0..both).collect(),
                room: 5,
                lent: vec![9; lent],
                ..Sends::default()
            };
            let gets = sends.call(&echo(), way, BYTES);
            assert_eq!(gets.answer, Answer::Ok, "{way:?}");
            let last = if lent == 0 { 0 } else { 9 };
            assert_eq!(gets.said(), format!("7 falcon a,b {last}"));
            assert_eq!(gets.both, (0..both).rev().collect::<Vec<_>>());
            assert_eq!(gets.out, (0..words.min(5)).collect::<Vec<_>>());
        }
        // The head of a result is placed after the blocks if it does not fit before them.
        let long = Echo { result: "x".repeat(200), fails: false };
        let gets = Sends::default().call(&long, way, BYTES);
        assert_eq!(gets.said().len(), "7 falcon a,b 9".len() + 200);
        assert_eq!((&*gets.both, &*gets.out), (&[6, 5, 4][..], &[1, 2, 3][..]));
        // If a procedure fails, only its error is sent.
        let gets = Sends::default().call(&Echo { fails: true, ..echo() }, way, BYTES);
        assert_eq!((gets.answer, gets.said()), (Answer::Err, "7 falcon".into()));
        assert_eq!((&*gets.both, gets.out.len()), (&[4, 5, 6][..], 0));
    }
}

#[test]
fn result_that_does_not_fit_is_reported_as_executed() {
    for bytes in [10_000, BYTES] {
        let gets = Sends::default().call(
            &Echo { result: "x".repeat(bytes), fails: false },
            Way::Shared,
            1024,
        );
        assert_eq!(gets.answer, Answer::MayHaveExecuted);
        let (kind, text) = gets.refusal();
        assert_eq!(kind, Kind::TooLarge);
        assert!(text.contains("the procedure ran"), "{text}");
    }
}

#[test]
fn arguments_beyond_the_limits_of_the_interface_are_refused() {
    let refused = |sends: &Sends| {
        let gets = sends.call(&echo(), Way::Shared, BYTES);
        assert_eq!(gets.answer, Answer::NotExecuted);
        gets.refusal().0
    };
    let text = |bytes| Sends { text: "x".repeat(bytes), ..Sends::default() };
    assert_eq!(text(TEXT_MAX).call(&echo(), Way::Shared, BYTES).answer, Answer::Ok);
    assert_eq!(refused(&text(TEXT_MAX + 1)), Kind::TooLarge);
    assert_eq!(
        refused(&Sends { words: vec![0; WORDS_MAX + 1], ..Sends::default() }),
        Kind::TooLarge
    );
    assert_eq!(
        refused(&Sends { lent: vec![0; WORDS_MAX + 1], ..Sends::default() }),
        Kind::TooLarge
    );
    let names = vec![String::new(); 4];
    assert_eq!(refused(&Sends { names, ..Sends::default() }), Kind::TooLarge);
    // A buffer must fit the A-stack, but it may be larger than the interface allows.
    assert_eq!(refused(&Sends { room: 9000, ..Sends::default() }), Kind::TooLarge);
    let room = Sends { room: WORDS_MAX + 1, words: vec![1; WORDS_MAX], ..Sends::default() };
    let gets = room.call(&echo(), Way::Shared, BYTES);
    assert_eq!((gets.answer, gets.out.len()), (Answer::Ok, WORDS_MAX));
}

#[test]
fn extra_value_is_refused() {
    let gets = Sends { extra: true, ..Sends::default() }.call(&echo(), Way::Shared, BYTES);
    assert_eq!((gets.answer, gets.refusal().0), (Answer::NotExecuted, Kind::BadArguments));
}

#[test]
fn inconsistent_lengths_are_refused() {
    let cases: [fn([usize; 3]) -> [usize; 3]; 11] = [
        |[head, copied, total]| [head - 4, copied, total],
        |[head, copied, total]| [head + 4, copied, total],
        |[_, copied, total]| [copied + 1, copied, total],
        |[_, copied, total]| [usize::MAX, copied, total],
        |[head, copied, total]| [head, copied - 16, total],
        |[head, copied, total]| [head, copied + 16, total],
        |[head, _, total]| [head, total + 1, total],
        |[head, copied, total]| [head, copied, total - 1],
        |[head, copied, total]| [head, copied, total + 16],
        |[head, copied, _]| [head, copied, copied - 1],
        |[_, _, _]| [0, 0, 0],
    ];
    for way in [Way::Shared, Way::InPlace] {
        for (case, lengths) in cases.into_iter().enumerate() {
            let gets = Sends { lengths, ..Sends::default() }.call(&echo(), way, BYTES);
            assert_eq!(gets.answer, Answer::NotExecuted, "case {case}, {way:?}");
            assert_eq!(gets.refusal().0, Kind::BadArguments, "case {case}, {way:?}");
        }
    }
    for lengths in [
        (|[head, _, _]: [usize; 3]| [head, usize::MAX, usize::MAX]) as fn([usize; 3]) -> _,
        |[head, _, _]| [head, BYTES + 1, BYTES + 1],
        |[head, copied, _]| [head, copied, usize::MAX],
        |[head, copied, _]| [head, copied, BYTES + 1],
    ] {
        let gets = Sends { lengths, ..Sends::default() }.call(&echo(), Way::Shared, BYTES);
        assert_eq!((gets.answer, gets.refusal().0), (Answer::NotExecuted, Kind::BadArguments));
    }
}

fn run(incoming: &Incoming<'_>, reply: &mut [u8]) -> (Answer, u32, u32) {
    let ran = execute(&echo(), incoming, Space::of_mut(reply), &mut EStack::default());
    (ran.answer, ran.head_at, ran.head_bytes)
}

/// A message whose copied part has arrived. `lends`: whether the procedure may run before the rest arrives.
struct There {
    lends: bool,
}

impl Arrives for There {
    fn wait(&self, _: usize) -> Option<usize> {
        Some(64)
    }
    fn lend(&self) -> bool {
        self.lends
    }
}

#[test]
fn procedure_begins_on_lent_bytes_only_if_they_may_be_waited_for() {
    let message = [0; 64];
    let answer = |copied, lends| {
        let incoming = Incoming {
            procedure: 99,
            space: Window::from(&message[..]),
            head_bytes: 16,
            copied,
            total: 64,
            arrives: Some(&There { lends }),
            departs: None,
        };
        run(&incoming, &mut [0; 64]).0
    };
    assert_eq!(answer(16, false), Answer::PostAgain);
    // No procedure has the number 99, so the call is not executed.
    assert_eq!(answer(16, true), Answer::NotExecuted);
    assert_eq!(answer(64, false), Answer::NotExecuted, "nothing is lent");
}

#[test]
fn every_export_answers_a_ping_without_arguments() {
    let empty = Incoming {
        procedure: PING,
        space: Window::empty(),
        head_bytes: 0,
        copied: 0,
        total: 0,
        arrives: None,
        departs: None,
    };
    let mut reply = [0; 64];
    assert_eq!(run(&empty, &mut reply), (Answer::Ok, 0, 0));
    let one = [1];
    let more = Incoming { space: Window::from(&one[..]), total: 1, ..empty };
    assert_eq!(run(&more, &mut reply).0, Answer::NotExecuted);
    let mut blocks = Vec::new();
    let mut in_place = |message: &mut [u8]| {
        let placed = Placed { procedure: PING, message, head_bytes: 0, copied: 0 };
        let mut reply = [0; 64];
        execute_in_place(&echo(), placed, Space::of_mut(&mut reply), &mut blocks).answer
    };
    assert_eq!(in_place(&mut []), Answer::Ok);
    assert_eq!(in_place(&mut [1]), Answer::NotExecuted);
}

/// A message of which only the first `.0` bytes arrive.
struct Stops(usize);

impl Arrives for Stops {
    fn wait(&self, bytes: usize) -> Option<usize> {
        (self.0 > bytes).then_some(self.0)
    }
}

#[test]
fn message_that_stops_is_not_executed() {
    let message = [0; 4096];
    for (come, answer) in [(4096, Answer::NotExecuted), (4095, Answer::PostAgain)] {
        let stops = Stops(come);
        let incoming = Incoming {
            procedure: 2,
            space: Window::from(&message[..]),
            head_bytes: 8,
            copied: 4096,
            total: 4096,
            arrives: Some(&stops),
            departs: None,
        };
        let mut reply = [0; 4096];
        assert_eq!(run(&incoming, &mut reply).0, answer, "{come} bytes arrive");
        if answer == Answer::NotExecuted {
            let kind = Window::from(&reply[..]).read_plain(0);
            assert_eq!(kind, Some(Kind::NoSuchProcedure as u32));
        }
    }
    // A lent buffer may still be arriving when the procedure runs, so the procedure gets the error.
    let stops = Stops(100);
    let lent = Lent::<u8>::of_bytes(Arriving::new(Window::from(&message[..]), 16, Some(&stops)));
    let mut some = [1; 10];
    assert_eq!(lent.copy_to(0, &mut some), Ok(()));
    assert_eq!(lent.copy_to(80, &mut some), Err(Invalid::Stopped));
}

#[test]
fn refusal_fits_every_reply() {
    let text = "é".repeat(limits::TEXT_BYTES_MAX);
    for bytes in [64, 67, BYTES] {
        for executed in [Executed::No, Executed::Maybe] {
            let mut reply = vec![0; bytes];
            let refusal = Refusal { kind: Kind::Panicked, executed, text: text.clone() };
            let Ran { answer, head_at: at, head_bytes: length, .. } =
                refuse(Space::of_mut(&mut reply), &refusal);
            let expected = match executed {
                Executed::No => Answer::NotExecuted,
                Executed::Maybe => Answer::MayHaveExecuted,
            };
            assert_eq!((answer, at), (expected, 0));
            let room = (bytes - 8).min(limits::TEXT_BYTES_MAX);
            assert_eq!(length as usize, 8 + room / 2 * 2, "{bytes}");
            let head = Window::from(&reply[..length as usize]);
            let mut head = Reader::new(head);
            assert_eq!(head.plain(), Ok(Kind::Panicked as u32));
            assert_eq!(String::decode(&mut head).as_deref(), Ok(&text[..room / 2 * 2]));
        }
    }
    for number in 0..10 {
        let answer = Answer::from_number(number);
        assert_eq!(answer.map(|answer| answer as u32), (number < 5).then_some(number));
    }
}

#[test]
fn estack_keeps_memory_for_most_messages() {
    let mut estack = EStack::default();
    for bytes in [0, 1, 33, 1000, limits::ESTACK_BYTES_KEPT + 1000] {
        assert!(estack.reserve(bytes));
        assert!(estack.memory().len() >= bytes.max(FIRST_BYTES));
    }
    estack.trim();
    assert_eq!(estack.memory().len(), limits::ESTACK_BYTES_KEPT);
    assert!(!estack.reserve(usize::MAX / 2), "no machine has this much memory");
    assert_eq!(estack.memory().len(), limits::ESTACK_BYTES_KEPT);
}

/// A source of calls. Its call number `.0` is given up once `.1` is true.
struct GivenUp(u64, AtomicBool);

impl Calls for GivenUp {
    fn is_given_up(&self, call: u64) -> bool {
        call == self.0 && self.1.load(Ordering::Relaxed)
    }
}

fn info(path: PathKind, process: u32) -> Arc<CallerInfo> {
    Arc::new(CallerInfo {
        path,
        export: "name".into(),
        process,
        user: 5,
        group: 6,
        from: Some(([127, 0, 0, 1], 7).into()),
        hardware: Some([1, 2, 3, 4, 5, 6]),
        claimed: None,
        identity: None,
        ending: None,
        carried: None,
        account: Default::default(),
    })
}

/// Each test has its own thread, so the thread-local state that this test sets does not affect other tests.
#[test]
fn procedure_knows_its_caller() {
    assert!(caller().is_none() && inside().is_none() && due().is_none());
    tell_caller(Some(info(PathKind::Local, 77)));
    let given_up = Arc::new(GivenUp(3, AtomicBool::new(false)));
    serve_calls_of(Some(given_up.clone()));
    assert!(caller().is_none(), "no call runs yet");
    serve_call(3, 77);
    let one = caller().expect("a caller");
    assert_eq!((one.process(), one.user(), one.group(), one.export()), (77, 5, 6, "name"));
    assert_eq!(
        (one.from(), one.hardware()),
        (Some(([127, 0, 0, 1], 7).into()), Some([1, 2, 3, 4, 5, 6]))
    );
    assert_eq!((one.path(), one.chain(), one.remaining()), (PathKind::Local, vec![77], None));
    assert_eq!((inside(), one.is_cancelled()), (Some(77), false));
    given_up.1.store(true, Ordering::Relaxed);
    assert!(one.is_cancelled());
    // Another call of the same caller is not cancelled.
    serve_call(4, 77);
    assert!(!caller().expect("a caller").is_cancelled() && one.is_cancelled());
    let (soon, late) = (Duration::from_secs(100), Instant::now());
    {
        let _limited = Nested::of(&info(PathKind::Local, 77), Some(Instant::now() + soon));
        let limited = caller().expect("a caller");
        assert!(due().is_some() && !limited.is_cancelled());
        assert!(limited.remaining().is_some_and(|left| left > soon / 2 && left <= soon));
        let _late = Nested::of(&info(PathKind::Local, 77), Some(late));
        let late = caller().expect("a caller");
        assert_eq!(late.remaining(), Some(Duration::ZERO));
        assert!(late.is_cancelled());
    }
    assert!(due().is_none() && caller().is_some());
    // The outer call is cancelled, but the nested call within the process is not.
    serve_call(3, 77);
    let nested = Nested::of(&info(PathKind::InProcess, 78), None);
    assert!(inside() == Some(78) && !caller().expect("a caller").is_cancelled());
    drop(nested);
    assert!(inside() == Some(77) && caller().expect("a caller").is_cancelled());
    // A caller over a network may claim any process number, even the largest one.
    serve_call(3, u32::MAX);
    assert_eq!(inside(), Some(u32::MAX - 1));
    serve_call(3, 0);
    assert_eq!(inside(), Some(0));
    leave_call();
    assert!(inside().is_none() && due().is_none() && caller().is_none());
}

#[test]
fn a_chain_ends_with_the_caller() {
    let chain_of = |links: &[u32], process| {
        chain::enter(links.iter().map(|process| [1, 2, *process, 0]));
        let _call = Nested::of(&info(PathKind::Udp, process), None);
        caller().expect("a caller").chain()
    };
    assert_eq!(chain_of(&[], 5), [5]);
    assert_eq!(chain_of(&[], 0), [0]);
    assert_eq!(chain_of(&[3, 4], 5), [3, 4, 5]);
    assert_eq!(chain_of(&[3, 5], 5), [3, 5]);
    // Process 0 means that the kernel does not confirm the caller. So only the message determines the chain.
    assert_eq!(chain_of(&[3, 4], 0), [3, 4]);
    chain::leave();
    assert_eq!(chain_of(&[], 0), [0]);
}

#[test]
fn thread_that_waits_in_a_procedure_is_counted() {
    assert!(!chain::has_waited());
    let before = chain::waiting_inside();
    let waits = chain::WaitingInside::begin();
    assert!(chain::waiting_inside() > before);
    drop(waits);
    // Threads of other tests may wait meanwhile.
    let until = Instant::now() + Duration::from_secs(10);
    while chain::waiting_inside() != before && Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(chain::waiting_inside(), before);
    // The flag is reset when it is read.
    assert!(chain::has_waited() && !chain::has_waited());
}

#[test]
fn each_process_has_its_own_number_in_a_chain() {
    let own = chain::own_link();
    assert_eq!(own[2..], [std::process::id(), 0]);
    assert_eq!(own, chain::own_link());
    // Each word is half of a random number, so it is not zero.
    assert!(own[0] != 0 && own[1] != 0, "{own:?}");
    chain::leave();
    chain::with_links(9, |links, last| assert_eq!((links, last), (&[[0, 0, 9, 0]][..], own)));
    chain::enter([[1, 2, 3, 0]].into_iter());
    chain::with_links(9, |links, last| assert_eq!((links, last), (&[[1, 2, 3, 0]][..], own)));
    chain::leave();
}

#[test]
fn limit_becomes_a_deadline_when_it_begins() {
    let (second, now) = (Duration::from_secs(1), Instant::now());
    assert_eq!(Limit::None.deadline(), None);
    assert_eq!(Limit::Until(now).deadline(), Some(now));
    let within = Limit::Within(second).deadline().expect("a deadline");
    assert!(within >= now + second && within <= Instant::now() + second);
    // A limit beyond the range of the clock never passes.
    assert_eq!(Limit::Within(Duration::MAX).deadline(), None);
}

/// The out blocks of a reply begin after the table of their sizes, but not within the first 32 bytes. Most
/// heads fit into these bytes.
#[test]
fn blocks_begin_after_the_table_and_the_first_line() {
    let first = [(0, 0), (1, 32), (4, 32), (5, 32), (8, 32), (9, 48), (12, 48), (13, 64)];
    for (outs, at) in first {
        assert_eq!(blocks_at(outs), at, "{outs} blocks");
    }
}

/// Calls `body` with a call of two out blocks, on a frame whose reply is `reply`.
fn with_reply<T>(
    reply: &[u8],
    outs: [&mut Vec<u8>; 2],
    body: impl FnOnce(&mut Call<'_, '_, '_>) -> T,
) -> T {
    let frames = frames(BYTES);
    let frame = frames.take(|| None, |_| true, OnExhausted::Wait).expect("a frame");
    frame.reply_to().write(0, reply).expect("space");
    let mut head = Writer::new(frame.call_space());
    let [mut one, mut other] = outs.map(Out::from);
    let mut outs = [one.block(), other.block()];
    let (head, terms) = (&mut head, CallTerms::None);
    let (ins, lent) = (&[], &[]);
    body(&mut Call { procedure: 1, frame: &frame, head, ins, lent, outs: &mut outs, terms })
}

#[test]
fn adjacent_blocks_are_read_to_the_last_byte() {
    let mut reply = vec![0; 32];
    reply[0] = 5;
    reply[4] = 3;
    reply.extend([1; 5]);
    reply.resize(48, 0);
    reply.extend([2; 3]);
    for (bytes, ends) in
        [(51, Ok(51)), (60, Ok(51)), (50, Err(Invalid::Short)), (7, Err(Invalid::Short))]
    {
        let (mut one, mut other) = (Vec::with_capacity(100), Vec::with_capacity(100));
        let taken =
            with_reply(&reply, [&mut one, &mut other], |call| call.take_packed_blocks(bytes));
        assert_eq!(taken, ends, "of {bytes} bytes");
        if taken.is_ok() {
            assert_eq!((&*one, &*other), (&[1; 5][..], &[2; 3][..]));
        }
    }
    // The server claims more than the offered length, and more than the length of the space.
    for filled in [101, u32::MAX] {
        reply[..4].copy_from_slice(&filled.to_le_bytes());
        let (mut one, mut other) = (Vec::with_capacity(100), Vec::with_capacity(100));
        let taken = with_reply(&reply, [&mut one, &mut other], |call| call.take_blocks(0));
        assert_eq!(taken, Err(Invalid::TooLong));
    }
}

#[test]
fn invalid_early_values_are_read_again() {
    for forget in [false, true] {
        let mut reply = vec![0; 32];
        reply[..4].copy_from_slice(&8000u32.to_le_bytes());
        reply.extend(vec![1; 8000]);
        let (mut one, mut other) = (Vec::with_capacity(8000), Vec::with_capacity(10));
        let taken = with_reply(&reply, [&mut one, &mut other], |call| {
            call.take_early(0, 32 + 6000);
            call.frame.reply_to().write(32, &[2; 8000]).expect("space");
            if forget {
                call.forget_early();
            }
            call.take_blocks(0)
        });
        assert_eq!(taken, Ok(32 + 8000));
        let early = if forget { 2 } else { 1 };
        assert!(one[..6000].iter().all(|byte| *byte == early));
        assert!(one[6000..].iter().all(|byte| *byte == 2));
    }
}

/// The first bytes of a message are collected in private memory. If the head is short, these bytes include
/// the start of the first block.
#[test]
fn message_written_in_parts_is_equal_for_every_split() {
    let source: Vec<u8> = (1..=200).collect();
    let put = |parts: &[usize]| {
        let frames = frames(BYTES);
        let frame = frames.take(|| None, |_| true, OnExhausted::Wait).expect("a frame");
        frame.call_space().write(0, &[0xaa; 512]).expect("space");
        let mut head = Writer::new(frame.call_space());
        head.plain(&7u8).unwrap();
        let ins = [Window::from(&source[..37]).into(), Window::from(&source[37..60]).into()];
        let lent = [Window::from(&source[60..]).into()];
        let (head, outs, terms) = (&mut head, &mut [], CallTerms::None);
        let mut call =
            Call { procedure: 1, frame: &frame, head, ins: &ins, lent: &lent, outs, terms };
        let layout = call.layout();
        if parts.is_empty() {
            assert_eq!(call.put(layout.total), Some(layout));
        }
        for ends in parts.windows(2) {
            call.put_part(ends[0], ends[1].min(layout.total), &Straight).expect("space");
        }
        call.head.flush();
        let mut message = vec![0; layout.total];
        call.frame.call_space().read(0, &mut message).unwrap();
        message
    };
    let whole = put(&[]);
    for border in 1..whole.len() {
        assert!(put(&[0, border, usize::MAX]) == whole, "parts that meet at {border}");
    }
}

/// Writes each part without announcing it.
#[derive(Debug)]
struct Straight;

impl Departs for Straight {
    fn write(&self, _: usize, to: Space<'_>, block: &Block<'_>, from: usize) {
        block.copy_to(from, to, crate::value::CopyMethod::Short);
    }
    fn there(&self, _: usize) {}
    fn changed(&self) {}
}

/// A server that returns a head that was made before, as an interpreted stub does.
struct Raw(Answer, Vec<u8>);

impl Serve for Raw {
    fn interface(&self) -> InterfaceRef {
        unreachable!("no client binds")
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        assert_eq!(request.procedure(), 1);
        let raw = request.raw();
        assert!(!raw.head.is_empty() && raw.lent.len() == 33);
        request.finish()?;
        reply.expect(2);
        reply.block(12).expect("space");
        reply.filled(0, 12)?;
        reply.raw(self.0, &self.1)
    }
}

#[test]
fn finished_head_is_sent_unchanged() {
    for (answer, bytes) in
        [(Answer::Ok, 5), (Answer::Ok, 300), (Answer::Err, 5), (Answer::Err, 300)]
    {
        let head = vec![3; bytes];
        let gets = Sends::default().call(&Raw(answer, head.clone()), Way::Shared, BYTES);
        assert_eq!((gets.answer, gets.head), (answer, head));
        assert!(gets.out.is_empty());
    }
}

#[test]
fn only_structured_in_out_values_return_in_the_head() {
    let mut memory = [0u8; 256];
    let mut head = Writer::new(Space::of_mut(&mut memory));
    head.count(1).unwrap();
    head.deeper(|head| String::encode_all(&["name".to_owned()], head)).unwrap();
    let length = head.len();
    head.flush();
    let mut request =
        Request::new(1, &mut memory[..length], length, Window::empty().into()).expect("a request");
    let mut space = [0u8; 256];
    let mut reply = Reply::new(Space::of_mut(&mut space), None);
    reply.expect(1);
    let names = request.in_out::<String>(&mut reply, 4).unwrap();
    let mut back = [0u8; 64];
    let mut head = Writer::new(Space::of_mut(&mut back));
    names.encode(&mut head).unwrap();
    assert_eq!(head.len(), length, "a count, and the name");
}
