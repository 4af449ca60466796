//! Tests calls to servers with the other byte order, on each path. The client converts the values in both
//! directions.

mod contract;
mod support;

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use contract::Client;
use peregrine::call::{Refusal, Reply, Request, Serve, Served};
use peregrine::interface::{Described, Digest, Interface, InterfaceRef, Procedure, Type};
use peregrine::value::{ByteOrder, Native, Reader, Representation, Space, Swapped, Window, Writer};
use peregrine::{
    BindOptions, Binding, Executed, Insecure, Invalid, Kind, Lent, Out, PathKind, Plain, Running,
    Server, Value, interface,
};
use proptest::prelude::*;
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::swapped::SwappedServer;
use support::{Process, role};

// Servers on each path, and bindings to them.

/// The path that the calls of a test use.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    InProcess,
    Local,
    Tcp,
    Udp,
    /// Raw Ethernet. The thread of the client has entered the near end of a link, and the server is at the
    /// far end.
    Ethernet,
}

/// The paths that need no link.
const WAYS: [Way; 4] = [Way::InProcess, Way::Local, Way::Tcp, Way::Udp];

/// Servers that run while a test runs.
struct Servers {
    running: Mutex<Vec<Running>>,
    // The servers are dropped before this runtime directory, which no other test uses.
    _directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Servers {
    fn new() -> Self {
        let alone = support::alone();
        Self { running: Mutex::default(), _directory: support::own_directory(), _alone: alone }
    }

    /// Binds to a server whose values have the byte order of `serve`.
    fn bind(&self, way: Way, serve: impl Serve + 'static) -> Binding {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let interface = serve.interface();
        let options = BindOptions::default();
        if way == Way::InProcess {
            return Binding::in_process(Arc::new(serve), &options);
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("swapped-{}-{number}", std::process::id());
        let server = Server::new().export(&name, serve).expect("a free name");
        let server = match way {
            Way::Tcp => server.listen("tcp:127.0.0.1:0").expect("a port"),
            Way::Udp => server.listen("udp:127.0.0.1:0").expect("a port"),
            Way::Ethernet => {
                let at = format!("eth:{}:0", ENDS[1]);
                server.listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork).expect("a port")
            }
            _ => server,
        };
        let spawn = || server.spawn().expect("a running server");
        let running = if way == Way::Ethernet { at_far_end(spawn) } else { spawn() };
        let address = match way {
            Way::Tcp | Way::Udp | Way::Ethernet => format!("{}/{name}", running.addresses()[0]),
            _ => name,
        };
        self.running.lock().unwrap().push(running);
        let binding = Binding::bind(&address, interface, &options).expect("a binding");
        let path = match way {
            Way::Tcp => PathKind::Tcp,
            Way::Udp => PathKind::Udp,
            Way::Ethernet => PathKind::Ethernet,
            _ => PathKind::Local,
        };
        assert_eq!(binding.path(), path);
        binding
    }
}

/// Runs the contract tests, which every path must pass, over a path to servers with the other byte order.
fn keeps_the_contract(way: Way) {
    let servers = Servers::new();
    // A process cannot call itself over a raw Ethernet link, so the checks that need such calls are left out.
    let suite = if way == Way::Ethernet { contract::suite_of_one_call } else { contract::suite };
    let over = match way {
        Way::InProcess => "in process, swapped".to_owned(),
        way => format!("{way:?}, swapped"),
    };
    suite(&over, &|server, form| Client::over(form, servers.bind(way, SwappedServer::new(server))));
}

#[test]
fn contract_holds_in_process() {
    keeps_the_contract(Way::InProcess);
}

#[test]
fn contract_holds_on_the_local_path() {
    keeps_the_contract(Way::Local);
}

#[test]
fn contract_holds_over_tcp() {
    keeps_the_contract(Way::Tcp);
}

#[test]
fn contract_holds_over_udp() {
    keeps_the_contract(Way::Udp);
}

#[test]
fn contract_holds_over_raw_ethernet() {
    on_a_link("contract_holds_over_raw_ethernet", keeps_the_contract);
}

/// The line that a child process prints at the end of its case.
const ENDED: &str = "the case has ended";

/// Runs the case of the test `name` at the near end of a link, in another process. The library starts threads
/// that serve the whole process, and such a thread stays in the network namespace in which it was started. In
/// this process, a thread from the near end would later run procedures of other tests over UDP.
fn on_a_link(name: &str, case: fn(Way)) {
    if role().is_none() {
        let (_alone, directory) = (support::alone(), tempfile::tempdir().expect("a directory"));
        let mut child = Process::launch(name, "near end", directory.path());
        let lines = std::iter::repeat_with(|| child.line());
        return lines.take_while(|line| line != ENDED).for_each(|line| println!("{line}"));
    }
    at_near_end(Link::new(), |_| case(Way::Ethernet));
    println!("\n{ENDED}");
}

// Large messages.

const MOST: u32 = 8 << 20;

/// Numbers of different widths. The size, 24 bytes, divides no power of two. So some values cross the limits
/// of chunks and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(C)]
struct Mixed {
    long: u64,
    half: [u16; 2],
    word: u32,
    float: f32,
    bytes: [u8; 4],
}

/// A plain type for which some bit patterns are invalid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(C)]
struct Marked {
    number: u32,
    letter: char,
    mark: bool,
    pad: [u8; 3],
}

#[interface]
trait Large {
    fn take(
        &self,
        #[max_len(MOST)] words: &[u32],
        #[max_len(MOST)] mixed: &[Mixed],
        #[max_len(MOST)] lent: Lent<'_, u64>,
    ) -> peregrine::Result<u64>;
    fn give(
        &self,
        #[max_len(MOST)] words: Out<'_, u16>,
        #[max_len(MOST)] mixed: Out<'_, Mixed>,
        #[max_len(MOST)] marked: Out<'_, Marked>,
    ) -> peregrine::Result<()>;
    fn turn(
        &self,
        #[max_len(MOST)] mixed: &mut [Mixed],
        #[max_len(MOST)] huge: &mut [u128],
    ) -> peregrine::Result<()>;
    fn list(&self, values: Vec<f64>) -> peregrine::Result<Vec<f64>>;
}

struct Thing;

fn mixed(n: usize) -> Mixed {
    let n = n as u64;
    Mixed {
        long: n << 33 | 1,
        half: [n as u16, !n as u16],
        word: n as u32 * 77,
        float: n as f32,
        bytes: [n as u8, 1, 2, 3],
    }
}

fn marked(n: usize) -> Marked {
    let letter = char::from_u32(0x61 + n as u32 % 20).unwrap();
    Marked { number: n as u32, letter, mark: n.is_multiple_of(3), pad: [0; 3] }
}

fn sum(words: &[u32], many: &[Mixed], lent: &[u64]) -> u64 {
    let add = |sum: u64, one: u64| sum.rotate_left(7) ^ one;
    let words = words.iter().copied().map(u64::from);
    let many = many.iter().map(|one| one.long + u64::from(one.word) + u64::from(one.half[1]));
    words.chain(many).chain(lent.iter().copied()).fold(1, add)
}

impl Large for Thing {
    fn take(&self, words: &[u32], many: &[Mixed], lent: Lent<'_, u64>) -> peregrine::Result<u64> {
        let mut copy = vec![0; lent.len()];
        lent.copy_to(0, &mut copy).expect("the whole buffer arrives");
        assert!(many.iter().enumerate().all(|(i, one)| *one == mixed(i)));
        Ok(sum(words, many, &copy))
    }
    fn give(
        &self,
        mut words: Out<'_, u16>,
        mut many: Out<'_, Mixed>,
        mut some: Out<'_, Marked>,
    ) -> peregrine::Result<()> {
        let all: Vec<u16> = (0..words.capacity()).map(|n| n as u16).collect();
        words.put(&all).expect("enough space");
        (0..many.capacity()).for_each(|n| many.put(&[mixed(n)]).expect("enough space"));
        // Fill only half of the buffer.
        (0..some.capacity() / 2).for_each(|n| some.put(&[marked(n)]).expect("enough space"));
        Ok(())
    }
    fn turn(&self, many: &mut [Mixed], huge: &mut [u128]) -> peregrine::Result<()> {
        many.reverse();
        huge.iter_mut().for_each(|one| *one += 1);
        Ok(())
    }
    fn list(&self, mut values: Vec<f64>) -> peregrine::Result<Vec<f64>> {
        values.reverse();
        Ok(values)
    }
}

/// Numbers of elements. Buffers of these lengths have sizes near the limits of pieces, chunks and packets,
/// but their sizes are not multiples of these limits.
const LENGTHS: [usize; 6] = [0, 1, 341, 342, 5_001, 43_691];

fn large_messages(client: &LargeClient) {
    for length in LENGTHS {
        let words: Vec<u32> = (0..length as u32 * 2 + 1).map(|n| n * 0x0101).collect();
        let many: Vec<Mixed> = (0..length).map(mixed).collect();
        let lent: Vec<u64> = (0..length as u64).map(|n| n << 40 | n).collect();
        let taken = client.take(&words, &many, Lent::from(&lent[..])).unwrap();
        assert_eq!(taken, sum(&words, &many, &lent), "{length}");

        let (mut words, mut many) = (vec![7; length], Vec::with_capacity(length));
        let mut some = vec![Marked::default(); length];
        let mut out = Out::from(&mut some[..]);
        client.give(Out::from(&mut words[..]), Out::from(&mut many), out.by_ref()).unwrap();
        assert_eq!(out.filled(), length / 2);
        assert!(words.iter().enumerate().all(|(i, one)| *one == i as u16), "{length}");
        assert!(many.iter().enumerate().all(|(i, one)| *one == mixed(i)), "{length}");
        assert_eq!(many.len(), many.capacity());
        let given = some.iter().take(length / 2).enumerate();
        assert!(given.into_iter().all(|(i, one)| *one == marked(i)), "{length}");
        assert!(some[length / 2..].iter().all(|one| *one == Marked::default()));

        let mut many: Vec<Mixed> = (0..length).map(mixed).collect();
        let mut huge: Vec<u128> = (0..length as u128).map(|n| n << 70).collect();
        client.turn(&mut many, &mut huge).unwrap();
        assert!(many.iter().rev().enumerate().all(|(i, one)| *one == mixed(i)), "{length}");
        assert!(huge.iter().zip(0..).all(|(one, n)| *one == (n << 70) + 1), "{length}");

        let list: Vec<f64> = (0..length).map(|n| n as f64 / 3.0).collect();
        let turned = client.list(list.clone()).unwrap();
        assert!(turned.iter().rev().eq(&list), "{length}");
    }
}

#[test]
fn large_messages_are_converted() {
    WAYS.into_iter().for_each(converts_large_messages);
}

#[test]
fn large_messages_are_converted_over_raw_ethernet() {
    on_a_link("large_messages_are_converted_over_raw_ethernet", converts_large_messages);
}

fn converts_large_messages(way: Way) {
    let servers = Servers::new();
    let binding = servers.bind(way, SwappedServer::new(LargeServer::new(Thing)));
    // The calls are repeated, so that the local path uses each of its strategies to copy a message.
    for _ in 0..3 {
        large_messages(&LargeClient { binding: binding.clone() });
    }
}

// Invalid values that a server may send.

#[interface]
trait Odd {
    fn flag(&self) -> peregrine::Result<bool>;
    fn letters(&self, into: Out<'_, char>) -> peregrine::Result<()>;
    fn text(&self) -> peregrine::Result<String>;
}

/// A server with the other byte order. It sends the first field as the head of each reply. It sends the
/// second field, if there is one, as a block.
struct Saying(&'static [u8], Option<&'static [u8]>);

impl Serve for Saying {
    fn interface(&self) -> InterfaceRef {
        OddClient::INTERFACE.into()
    }
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::NATIVE.other()
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        request.raw();
        if let Some(bytes) = self.1 {
            reply.expect(1);
            let block = reply.block(bytes.len()).ok_or(Refusal::from(Invalid::TooLong))?;
            block.write(0, bytes).expect("enough space");
            reply.filled(0, bytes.len())?;
        }
        reply.raw(peregrine::call::Answer::Ok, self.0)
    }
}

fn odd(head: &'static [u8], block: Option<&'static [u8]>) -> OddClient {
    let serve = Arc::new(Saying(head, block));
    OddClient { binding: Binding::in_process(serve, &BindOptions::default()) }
}

fn bad_result<T: Debug>(result: peregrine::Result<T>) {
    let error = result.unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::BadResult, Executed::Maybe));
}

#[test]
#[cfg(target_endian = "little")]
fn values_that_are_invalid_after_conversion_are_refused() {
    assert!(odd(&[1], None).flag().unwrap());
    bad_result(odd(&[2], None).flag());
    let mut letters = ['_'; 2];
    odd(&[], Some(&[0, 0, 0, b'a', 0, 0, 0, b'b'])).letters(Out::from(&mut letters)).unwrap();
    assert_eq!(letters, ['a', 'b']);
    // The first block begins with the code of a surrogate. The second block begins with a code that would be
    // valid only if the client did not convert it.
    bad_result(odd(&[], Some(&[0, 0, 0xd8, 0, 0, 0, 0, 9])).letters(Out::from(&mut letters)));
    bad_result(odd(&[], Some(&[b'a', 0, 0, 0, 0, 0, 0, 9])).letters(Out::from(&mut letters)));
    assert_eq!(odd(&[0, 0, 0, 1, b'x'], None).text().unwrap(), "x");
    // Three heads are refused: a count in the wrong byte order, text that is not UTF-8, and a head that is
    // one byte too long.
    bad_result(odd(&[1, 0, 0, 0, b'x'], None).text());
    bad_result(odd(&[0, 0, 0, 1, 0xff], None).text());
    bad_result(odd(&[0, 0, 0, 1, b'x', b'y'], None).text());
}

// The conversion of single values.

#[derive(Clone, Debug, PartialEq, Value)]
enum Tree {
    Leaf,
    Plain(Mixed, u8),
    Named { name: String, number: i64 },
    Many(Vec<Self>),
    Both(Box<Self>, Option<Box<Self>>),
}

fn encoded<T: Value, R: Representation>(value: &T) -> Vec<u8> {
    let mut memory = vec![0xaa; 1 << 16];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    value.encode(&mut writer).expect("enough space");
    writer.flush();
    let bytes = writer.len();
    memory.truncate(bytes);
    memory
}

fn decoded<T: Value, R: Representation>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut reader)?;
    reader.finish()?;
    Ok(value)
}

/// Returns the description of an interface whose only procedure returns a value of type `T`.
fn described<T: Value>() -> Described {
    let (parameters, unit) = (&[], &Type::Unit);
    let (name, was) = ("get", &[]);
    let result = Box::leak(Box::new(T::TYPE));
    let (idempotent, oneway) = (true, false);
    let procedure =
        Procedure { name, docs: "", idempotent, oneway, was, parameters, result, error: unit };
    let procedures = Box::leak(Box::new([procedure]));
    let digest = || Digest([0; 16]);
    let all = Interface { name: "Values", version: 0, docs: "", procedures, programs: &[], digest };
    Described::parse(&all.canonical_text()).expect("a description")
}

/// Encodes a value in both byte orders. Checks that `swap_value` turns the native bytes into the swapped
/// bytes. Also checks that the swapped bytes can be decoded, and that no truncated copy of them can be
/// decoded.
fn swaps<T: Value + PartialEq + Debug>(value: &T) {
    let native = encoded::<T, Native>(value);
    let swapped = encoded::<T, Swapped>(value);
    let mut turned = native.clone();
    let whole = described::<T>();
    let ty = &whole.procedures[0].result;
    support::swapped::swap_value(&whole, ty, &mut turned).expect("a value of its type");
    assert_eq!(swapped, turned, "{value:?}");
    assert_eq!(decoded::<T, Swapped>(&swapped).as_ref(), Ok(value));
    for short in 0..swapped.len().min(200) {
        assert!(
            decoded::<T, Swapped>(&swapped[..short]).is_err(),
            "decoded {short} bytes of {value:?}"
        );
    }
}

fn some_mixed() -> impl Strategy<Value = Mixed> {
    let parts = (any::<u64>(), any::<[u16; 2]>(), any::<u32>(), -1e9f32..1e9, any::<[u8; 4]>());
    parts.prop_map(|(long, half, word, float, bytes)| Mixed { long, half, word, float, bytes })
}

fn some_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        Just(Tree::Leaf),
        (some_mixed(), any::<u8>()).prop_map(|(mixed, byte)| Tree::Plain(mixed, byte)),
        (".{0,9}", any::<i64>()).prop_map(|(name, number)| Tree::Named { name, number }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::Many),
            (inner.clone(), prop::option::of(inner))
                .prop_map(|(one, other)| Tree::Both(Box::new(one), other.map(Box::new))),
        ]
    })
}

proptest! {
    #[test]
    fn numbers_swap(value: (u8, i16, u32, i64, (u128, i128), bool, char)) {
        swaps(&value);
    }

    #[test]
    fn floats_keep_every_pattern(one: u32, other: u64) {
        let bits = |bytes: &[u8]| decoded::<(u32, u64), Swapped>(bytes).unwrap();
        let value = (f32::from_bits(one), f64::from_bits(other));
        prop_assert_eq!(bits(&encoded::<_, Swapped>(&value)), (one, other));
    }

    #[test]
    fn sequences_swap(
        words: Vec<u16>, pairs: Vec<(u8, u64)>, letters: Vec<char>, texts: Vec<String>,
        options: Vec<Option<u32>>, results: Vec<Result<i8, String>>,
    ) {
        swaps(&(words, pairs, letters));
        swaps(&(texts, options, results));
    }

    #[test]
    fn structures_swap(tree in some_tree(), many in prop::collection::vec(some_mixed(), 0..40)) {
        swaps(&tree);
        swaps(&(7u8, many));
    }

    #[test]
    fn arrays_swap(words: [u32; 9], nested: [[u16; 3]; 4], flags: [bool; 5]) {
        swaps(&(words, nested, flags, [(); 3], [0u64; 0], 1u8));
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = decoded::<Tree, Swapped>(&bytes);
        let _ = decoded::<(Vec<Mixed>, Vec<char>, String), Swapped>(&bytes);
    }
}
