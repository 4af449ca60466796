//! Tests a client that changes its arguments in shared memory. It does so while the server copies them, and
//! while the procedure runs. A procedure must never see an argument change, except through `Lent`.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use peregrine::call::{Refusal, Reply, Request, Serve, Served};
use peregrine::interface::{Described, InterfaceRef};
use peregrine::value::align_up;
use peregrine::{
    BindOptions, Binding, Dynamic, GenericParameter, GenericServer, Lent, Out, Server, interface,
};
use support::wire::{self, RING, Session, request, words};

#[interface]
trait Look {
    /// Takes arguments that fit the cache line of the header. Such arguments are copied in registers.
    fn small(&self, a: u64, b: u64) -> peregrine::Result<()>;
    /// Takes one parameter of every kind and direction.
    #[allow(clippy::too_many_arguments)]
    fn all(
        &self,
        number: u64,
        text: &str,
        flags: &[bool],
        plain: &[u16],
        names: &[String],
        owned: Vec<u32>,
        words: &mut [u64],
        labels: &mut [String],
        lent: Lent<'_, u8>,
        into: Out<'_, u8>,
    ) -> peregrine::Result<()>;
}

/// The actions of a procedure that reads its arguments twice.
trait Pause: Send + Sync + 'static {
    /// Runs between the two reads.
    fn between(&self);
    /// Receives what the procedure read: `looks` has all arguments except the lent ones, and `lent` has the
    /// lent ones. The first element is from the first read, and the second element is from the second read.
    fn seen(&self, looks: [String; 2], lent: [Vec<u8>; 2]);
}

/// Reads the arguments twice.
fn look_twice(pause: &impl Pause, view: impl Fn() -> String, lent: impl Fn() -> Vec<u8>) {
    let first = (view(), lent());
    pause.between();
    let second = (view(), lent());
    pause.seen([first.0, second.0], [first.1, second.1]);
}

fn bytes_of(lent: &Lent<'_, u8>) -> Vec<u8> {
    let mut bytes = vec![0; lent.len()];
    // If the message is incomplete, this function returns no bytes.
    if lent.copy_to(0, &mut bytes).is_err() {
        bytes.clear();
    }
    bytes
}

/// Checks again that a text is UTF-8. This detects a `str` whose bytes have changed.
fn text(text: &str) -> String {
    core::str::from_utf8(text.as_bytes())
        .expect("text stays UTF-8 while a procedure uses it")
        .to_owned()
}

struct Compiled<P>(Arc<P>);

impl<P: Pause> Look for Compiled<P> {
    fn small(&self, a: u64, b: u64) -> peregrine::Result<()> {
        look_twice(&*self.0, || format!("{a} {b}"), Vec::new);
        Ok(())
    }

    fn all(
        &self,
        number: u64,
        string: &str,
        flags: &[bool],
        plain: &[u16],
        names: &[String],
        owned: Vec<u32>,
        words: &mut [u64],
        labels: &mut [String],
        lent: Lent<'_, u8>,
        mut into: Out<'_, u8>,
    ) -> peregrine::Result<()> {
        // The client must not be able to change the output that the procedure has written.
        words[0] = 77;
        into.put(&[5; 3]).expect("enough space");
        let view = || {
            let flags: Vec<u8> = flags.iter().map(|flag| u8::from(*flag)).collect();
            let string = text(string);
            let names: Vec<String> = names.iter().chain(&*labels).map(|name| text(name)).collect();
            let out = (into.capacity(), into.filled());
            format!("{number} {string} {flags:?} {plain:?} {names:?} {owned:?} {words:?} {out:?}")
        };
        look_twice(&*self.0, view, || bytes_of(&lent));
        Ok(())
    }
}

/// Makes a server of the interface `Look` with an interpreted stub.
fn interpreted(pause: Arc<impl Pause>) -> GenericServer {
    let described = Described::parse(&LookClient::INTERFACE.canonical_text()).unwrap();
    GenericServer::new(described, move |call| {
        for parameter in call.parameters() {
            if let GenericParameter::Out(into) = parameter {
                into.put(&[5; 3]).expect("enough space");
            }
        }
        let parameters = &*call.parameters();
        let view = || {
            let views = parameters.iter().map(|one| match one {
                GenericParameter::In(value) | GenericParameter::InOut(value) => {
                    format!("{value:?}")
                }
                GenericParameter::Out(into) => format!("{} {}", into.capacity(), into.filled()),
                GenericParameter::Lent(lent) => lent.len().to_string(),
                GenericParameter::Sink(_)
                | GenericParameter::Source(_)
                | GenericParameter::Callback(_) => {
                    unreachable!("the interface has no streams")
                }
            });
            views.collect::<Vec<_>>().join(" ")
        };
        let lent = || {
            let lent = parameters.iter().find_map(|one| match one {
                GenericParameter::Lent(lent) => Some(bytes_of(lent)),
                _ => None,
            });
            lent.unwrap_or_default()
        };
        look_twice(&*pause, view, lent);
        Ok(Ok(Dynamic::Unit))
    })
}

/// A call message with the bytes that an honest client would send.
#[derive(Clone, Debug)]
struct Message {
    procedure: u32,
    bytes: Vec<u8>,
    head: usize,
    copied: usize,
}

/// A server that keeps the message that it receives, and refuses the call.
#[derive(Default)]
struct Keeps(Mutex<Option<Message>>);

impl Serve for Keeps {
    fn interface(&self) -> InterfaceRef {
        LookClient::INTERFACE.into()
    }

    fn serve(&self, request: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
        let procedure = request.procedure();
        let raw = request.raw();
        let mut bytes = vec![0; raw.head.len()];
        raw.head.read(0, &mut bytes).unwrap();
        let (head, mut copied) = (bytes.len(), bytes.len());
        if procedure == 1 {
            bytes.resize(align_up(bytes.len()), 0);
            bytes.extend(&*raw.copied);
            bytes.resize(align_up(bytes.len()), 0);
            copied = bytes.len();
            let mut lent = vec![0; raw.lent.len()];
            raw.lent.read(&mut lent)?;
            bytes.extend(lent);
        }
        *self.0.lock().unwrap() = Some(Message { procedure, bytes, head, copied });
        Err(Refusal::no_such_procedure(procedure))
    }
}

fn marshalled(call: impl FnOnce(&LookClient)) -> Message {
    let keeps = Arc::new(Keeps::default());
    let serve: Arc<dyn Serve> = Arc::<Keeps>::clone(&keeps);
    let binding = Binding::in_process(serve, &BindOptions::default());
    call(&LookClient { binding });
    let kept = keeps.0.lock().unwrap().take();
    kept.expect("a call was made")
}

fn small(n: u64) -> Message {
    marshalled(|client| client.small(n, !n).map_or((), |()| unreachable!("it is refused")))
}

/// Returns the message of a call of `all`. Its blocks have about `length` elements, whose values depend on
/// `n`. If the lengths of two calls are equal, their messages have the same size.
fn all(n: u8, length: usize) -> Message {
    let letter = char::from(b'a' + n % 26);
    let string: String = (0..length).map(|_| letter).collect();
    let flags: Vec<bool> = (0..length).map(|at| (at + usize::from(n)).is_multiple_of(2)).collect();
    let plain = vec![u16::from(n) * 257; length];
    let names = [string[..length.min(20)].to_owned(), letter.to_string()];
    let (mut words, mut labels) = (vec![u64::from(n); 1 + length / 8], names.clone());
    let (lent, mut buffer) = (vec![n; length], vec![0; length.max(8)]);
    marshalled(|client| {
        let owned = vec![u32::from(n); 5];
        let (lent, into) = (Lent::from(&*lent), Out::from(&mut buffer[..]));
        let number = u64::from(n) << 32;
        let refused = client.all(
            number,
            &string,
            &flags,
            &plain,
            &names,
            owned,
            &mut words,
            &mut labels,
            lent,
            into,
        );
        refused.expect_err("it is refused");
    })
}

/// A hand-written client with one A-stack.
struct Client {
    session: Session,
    sequence: AtomicU32,
}

const HEADER_BYTES: usize = 32;
/// The flag in the header that says that the message is still being written.
const ARRIVING: u32 = 0x8000;

impl Client {
    fn bind(directory: &std::path::Path, name: &str) -> Self {
        let session = Session::new(directory, name, 1).expect("a session");
        Self { session, sequence: AtomicU32::new(0) }
    }

    /// Returns the offset in the region at which the message of a call begins.
    fn message_at(&self) -> usize {
        self.session.region.call(0) + HEADER_BYTES
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        let space = &self.session.region.memory;
        space.write(self.message_at() + at, bytes).expect("inside the region");
    }

    /// Posts a call. If `there` is given, announces that only the first `there` bytes of the message have
    /// been written. Otherwise announces the whole message.
    fn post(&self, message: &Message, there: Option<usize>) -> u32 {
        let Self { session, sequence } = self;
        let posted = (sequence.fetch_add(1, Ordering::Relaxed) + 1) << 3 | 1;
        let region = &session.region;
        let lengths = [message.head, message.copied, message.bytes.len()].map(|one| one as u32);
        let manner = there.map_or(0, |_| ARRIVING);
        let [progress, _] = region.progress(0);
        region.word(progress).store(there.unwrap_or(0) as u32, Ordering::Release);
        let header = words(&[
            session.binding,
            message.procedure,
            lengths[0],
            lengths[1],
            lengths[2],
            u32::MAX,
            manner,
        ]);
        region.memory.write(region.call(0) + 4, &header).expect("inside the region");
        let word = region.word(region.call(0));
        if word.swap(posted, Ordering::AcqRel) == 0 {
            session.line.send(&request(RING, 0)).expect("a server that listens");
        } else {
            peregrine::sys::futex_wake(word);
        }
        posted
    }

    /// Inverts each byte of the header, of the whole space for messages, and of the reply.
    fn change_everything(&self) {
        let region = &self.session.region;
        let (call, reply, taken) = (region.call(0), region.reply(0), region.taken(0));
        let space = &region.memory;
        let mut bytes = vec![0; 64 << 10];
        for (from, to) in [(call + 4, reply), (reply + 4, taken)] {
            for at in (from..to).step_by(bytes.len()) {
                let bytes = &mut bytes[..(to - at).min(64 << 10)];
                space.read(at, bytes).expect("inside the region");
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                space.write(at, bytes).expect("inside the region");
            }
        }
    }
}

/// What a procedure saw in its two reads: all arguments except the lent ones, and the lent arguments.
type Seen = ([String; 2], [Vec<u8>; 2]);

/// Lets a procedure wait between its two reads until the client has changed everything.
#[derive(Default)]
struct Waits {
    stage: Mutex<u32>,
    changed: Condvar,
    all_seen: Mutex<Vec<Seen>>,
}

const LOOKED: u32 = 1;
const CHANGED: u32 = 2;

impl Waits {
    fn set(&self, stage: u32) {
        *self.stage.lock().unwrap() = stage;
        self.changed.notify_all();
    }

    fn wait_for(&self, stage: u32) {
        let limit = Duration::from_secs(20);
        let other = |now: &mut u32| *now != stage;
        let now = self.stage.lock().unwrap();
        let (_now, late) = self.changed.wait_timeout_while(now, limit, other).unwrap();
        assert!(!late.timed_out(), "stage {stage} was not reached");
    }
}

impl Pause for Waits {
    fn between(&self) {
        self.set(LOOKED);
        self.wait_for(CHANGED);
    }

    fn seen(&self, looks: [String; 2], lent: [Vec<u8>; 2]) {
        self.all_seen.lock().unwrap().push((looks, lent));
    }
}

fn serve<P: Pause + Default>() -> (Server, Arc<P>) {
    let pause = Arc::new(P::default());
    let compiled = LookServer::new(Compiled(Arc::clone(&pause)));
    let server = Server::new().export("compiled", compiled).unwrap();
    (server.export("interpreted", interpreted(Arc::clone(&pause))).unwrap(), pause)
}

#[test]
fn running_procedure_sees_only_lent_arguments_change() {
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, waits) = serve::<Waits>();
    let _running = server.spawn().unwrap();
    // The server copies the last message while the client is still writing it.
    let cases = [
        (small(3), None),
        (all(1, 10), None),
        (all(2, 3000), None),
        (all(3, 12_000), None),
        (all(4, 12_000), Some(8 << 10)),
    ];
    for name in ["compiled", "interpreted"] {
        let client = Client::bind(directory.path(), name);
        for (message, there) in &cases {
            waits.set(0);
            let whole = message.bytes.len();
            client.put(0, &message.bytes[..there.unwrap_or(whole)]);
            let posted = client.post(message, *there);
            if let Some(there) = *there {
                assert!(there < whole, "{whole} bytes are not large");
                client.put(there, &message.bytes[there..]);
                let [progress, _] = client.session.region.progress(0);
                let word = client.session.region.word(progress);
                word.store(whole as u32, Ordering::Release);
            }
            waits.wait_for(LOOKED);
            client.change_everything();
            waits.set(CHANGED);
            let answer = client.session.reply_to(posted, 0, wire::LIMIT);
            assert_eq!(answer, Some(0), "{name}: a call of {whole} bytes");
            let seen = waits.all_seen.lock().unwrap().pop();
            let (looks, lent) = seen.expect("the procedure ran");
            assert_eq!(looks[0], looks[1], "{name}: a call of {whole} bytes");
            assert_eq!(lent[0].len(), whole - message.copied, "{name}");
            // This check proves that the client really changed the memory that the procedure received.
            let lent_changed = lent[0].iter().zip(&lent[1]).all(|(one, other)| *one == !*other);
            assert!(lent_changed && lent[0].len() == lent[1].len(), "{name}: {whole} bytes");
        }
    }
}

/// Lets a procedure pause for a moment between its two reads. The client changes the arguments all the time.
#[derive(Default)]
struct Races {
    calls: AtomicU32,
    differ: Mutex<Vec<[String; 2]>>,
}

impl Pause for Races {
    fn between(&self) {
        // The pause is long enough for the client to write the message a few times.
        let until = Instant::now() + Duration::from_micros(20);
        while Instant::now() < until {
            core::hint::spin_loop();
        }
    }

    fn seen(&self, looks: [String; 2], _: [Vec<u8>; 2]) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if looks[0] != looks[1] {
            self.differ.lock().unwrap().push(looks);
        }
    }
}

/// Writes two messages alternately, and changes some bytes (noise) in between. The procedure must get the
/// bytes that the server checked.
fn keep_changing(client: &Client, messages: &[Message], going: &AtomicBool) -> u64 {
    let mut noise: Vec<u8> = messages[0].bytes.clone();
    noise.iter_mut().step_by(7).for_each(|byte| *byte ^= 0xc3);
    let mut rounds = 0;
    while going.load(Ordering::Relaxed) {
        for message in messages {
            client.put(0, &message.bytes);
        }
        // The noise overwrites at most 64 bytes of the message. So the lengths in the message sometimes stay
        // valid.
        let (from, to) = (rounds as usize % noise.len(), noise.len());
        client.put(from, &noise[from..to.min(from + 64)]);
        rounds += 1;
    }
    rounds
}

#[test]
fn procedure_gets_the_bytes_that_were_checked() {
    const CALLS: u32 = 300;
    let _alone = support::alone();
    let directory = support::own_directory();
    let (server, races) = serve::<Races>();
    let _running = server.spawn().unwrap();
    let cases = [
        [small(3), small(400)],
        [all(1, 10), all(2, 10)],
        [all(3, 700), all(4, 700)],
        [all(5, 6000), all(6, 6000)],
    ];
    for name in ["compiled", "interpreted"] {
        let client = Client::bind(directory.path(), name);
        for messages in &cases {
            assert_eq!(messages[0].bytes.len(), messages[1].bytes.len());
            races.calls.store(0, Ordering::Relaxed);
            let going = AtomicBool::new(true);
            let mut answers = [0u32; 4];
            let rounds = std::thread::scope(|scope| {
                let goes_on = support::KeepGoing::new(&going);
                let rounds = scope.spawn(|| keep_changing(&client, messages, &going));
                let until = Instant::now() + Duration::from_secs(10);
                let enough = |answers: &[u32; 4]| answers[0] >= CALLS || Instant::now() > until;
                while !enough(&answers) {
                    let posted = client.post(&messages[0], None);
                    let answer = client.session.reply_to(posted, 0, wire::LIMIT);
                    let answer = answer.expect("an answer") as usize;
                    assert!(answer < answers.len(), "answer {answer}");
                    answers[answer] += 1;
                }
                drop(goes_on);
                rounds.join().unwrap()
            });
            let calls = races.calls.load(Ordering::Relaxed);
            println!("{name}: {calls} calls, answers {answers:?}, changed {rounds} times");
            let differ = races.differ.lock().unwrap();
            assert!(differ.is_empty(), "{name}: {:?}", differ.first());
            // A panic of the procedure would be reported as answer 3, "may have executed".
            assert_eq!(answers[3], 0, "{name}: a procedure failed");
            assert!(answers[0] > 0 && calls == answers[0], "{name}: {calls} of {answers:?}");
        }
    }
}

#[test]
fn two_reads_that_differ_are_detected() {
    let races = Races::default();
    let next = AtomicU32::new(0);
    look_twice(&races, || next.fetch_add(1, Ordering::Relaxed).to_string(), Vec::new);
    assert_eq!(*races.differ.lock().unwrap(), [["0".to_owned(), "1".to_owned()]]);
}
