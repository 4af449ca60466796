//! Counts exactly what a call costs after the client has bound: allocations, copied bytes, and sleeps. Each
//! count includes client and server.

mod support;

use std::sync::Barrier;

use peregrine::interface::Described;
use peregrine::value::{Native, Reader, Window};
use peregrine::{
    BindOptions, Dynamic, EthernetDevice, GenericParameter, GenericServer, Insecure, Lent, Out,
    PathKind, Server, Value, Wait, interface, stats,
};
use support::heap::{Counting, allocations};
use support::link::{ENDS, Link, at_far_end, at_near_end};

#[global_allocator]
static COUNTING: Counting = Counting;

#[interface]
trait Counted {
    fn null(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn text(&self, text: &str) -> peregrine::Result<u64>;
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()>;
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()>;
    fn give(&self, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn fill(&self, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8>;
    fn owned(&self, text: String) -> peregrine::Result<String>;
}

struct Object;

impl Counted for Object {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn text(&self, text: &str) -> peregrine::Result<u64> {
        Ok(text.len() as u64)
    }
    fn take(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }
    fn both(&self, bytes: &mut [u64]) -> peregrine::Result<()> {
        bytes.reverse();
        Ok(())
    }
    fn give(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&[7; 100]).expect("enough space");
        Ok(())
    }
    fn fill(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        static ALL: [u8; 200_000] = [7; 200_000];
        let room = into.capacity();
        into.put(&ALL[..room]).expect("enough space");
        Ok(())
    }
    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8> {
        let mut last = [0];
        bytes.copy_to(bytes.len() - 1, &mut last).expect("a last byte");
        Ok(last[0])
    }
    fn owned(&self, text: String) -> peregrine::Result<String> {
        Ok(text)
    }
}

/// Makes a server of the interface `Counted` with an interpreted stub.
fn interpreted() -> GenericServer {
    let described = Described::parse(&CountedClient::INTERFACE.canonical_text()).unwrap();
    GenericServer::new(described, |call| {
        let result = match call.parameters() {
            [GenericParameter::In(Dynamic::I32(a)), GenericParameter::In(Dynamic::I32(b))] => {
                Dynamic::I32(*a + *b)
            }
            [GenericParameter::Lent(bytes)] => {
                let mut last = [0];
                bytes.copy_to(bytes.len() - 1, &mut last).expect("a last byte");
                Dynamic::U8(last[0])
            }
            [GenericParameter::Out(into)] => {
                into.put(&[7; 100]).expect("enough space");
                Dynamic::Unit
            }
            _ => Dynamic::Unit,
        };
        Ok(Ok(result))
    })
}

/// Checks that each call allocates `due` times, by comparing the allocations of 400 calls with those of 200
/// calls. Unrelated threads (the test runner's, or one that starts because the machine is slow) also
/// allocate, but far less often than once in two calls. So the result is rounded, and the count is repeated
/// until it matches.
#[track_caller]
fn allocates(due: u64, mut call: impl FnMut()) {
    const CALLS: u64 = 200;
    const TRIES: usize = 10;
    let mut count = |calls| {
        let before = allocations();
        (0..calls).for_each(|_| call());
        allocations() - before
    };
    // The first calls may enlarge an E-stack (the memory to which a server thread copies arguments).
    count(10);
    let mut tries = Vec::new();
    while !tries.contains(&due) {
        assert!(tries.len() < TRIES, "{tries:?} allocations per call instead of {due}");
        let more = count(2 * CALLS).saturating_sub(count(CALLS));
        tries.push((more + CALLS / 2) / CALLS);
    }
}

#[test]
fn call_allocates_only_for_its_owned_types() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let local = CountedClient::bind("counted").unwrap();
    let in_process = CountedClient::in_process(Object);
    let far = |index: usize, options: &BindOptions| {
        let address = format!("{}/counted", running.addresses()[index]);
        CountedClient::bind_with(&address, options).unwrap()
    };
    let (tcp, udp) = (far(0, &BindOptions::default()), far(1, &BindOptions::default()));
    let checked = far(1, &BindOptions::default().payload_check(true));
    for client in [&local, &in_process, &tcp, &udp, &checked] {
        allocates_for_owned_types_only(client);
    }
}

fn allocates_for_owned_types_only(client: &CountedClient) {
    let mut large = vec![0u8; 200_000];
    let mut buffer = [0u8; 200];
    let mut words = [1u64; 100];
    allocates(0, || client.null().unwrap());
    allocates(0, || assert_eq!(client.add(1, 2).unwrap(), 3));
    allocates(0, || assert_eq!(client.text("falcon").unwrap(), 6));
    for bytes in [1024, 1440, 3000, 200_000] {
        allocates(0, || client.take(&large[..bytes]).unwrap());
    }
    allocates(0, || client.give(Out::from(&mut large)).unwrap());
    allocates(0, || client.fill(Out::from(&mut large)).unwrap());
    allocates(0, || client.both(&mut words).unwrap());
    allocates(0, || client.give(Out::from(&mut buffer)).unwrap());
    allocates(0, || drop(client.lend(Lent::from(&[1u8; 64]))));
    let limited = client.with_timeout(std::time::Duration::from_secs(10));
    allocates(0, || limited.null().unwrap());
    // Only calls with metadata allocate memory for it.
    client.with_metadata("trace", "7").unwrap().null().unwrap();
    allocates(0, || client.null().unwrap());
    // One allocation is for the caller's argument, and one for the server's copy of the argument, which the
    // object returns. The third is for the client's copy of the result.
    allocates(3, || drop(client.owned("falcon".to_owned())));
}

/// The interface of a client (`old`), and the later version of this interface that a server exports (`new`).
mod grown {
    pub(crate) mod old {
        use peregrine::{Out, Plain, Result, Value, interface};

        #[derive(Clone, Copy, Debug, PartialEq, Value)]
        pub(crate) struct Item {
            pub(crate) price: u32,
            pub(crate) sizes: [u16; 4],
        }

        #[derive(Clone, Copy, Debug, PartialEq, Plain)]
        #[repr(C)]
        pub(crate) struct Point {
            pub(crate) x: u32,
            pub(crate) y: u32,
        }

        #[interface]
        pub(crate) trait Shop {
            fn put(&self, item: &Item, text: &str) -> Result<Item>;
            fn move_all(&self, points: &mut [Point]) -> Result<()>;
            fn all(&self, into: Out<'_, Point>) -> Result<u64>;
        }
    }

    pub(crate) mod new {
        use peregrine::{Out, Plain, Result, Value, interface};

        #[derive(Clone, Copy, Debug, PartialEq, Value)]
        pub(crate) struct Item {
            #[default(7)]
            unit: u8,
            price: u32,
            sizes: [u16; 4],
            again: Option<u64>,
        }

        #[derive(Clone, Copy, Debug, PartialEq, Plain)]
        #[repr(C)]
        pub(crate) struct Point {
            x: u32,
            #[default(9)]
            z: u32,
            y: u32,
        }

        #[interface]
        pub(crate) trait Shop {
            fn put(&self, item: &Item, text: &str, #[default(3)] times: u32) -> Result<Item>;
            fn move_all(&self, points: &mut [Point]) -> Result<()>;
            fn all(&self, into: Out<'_, Point>) -> Result<u64>;
        }

        pub(crate) struct Object;

        impl Shop for Object {
            fn put(&self, item: &Item, text: &str, times: u32) -> Result<Item> {
                assert_eq!((item.unit, text.len(), times), (7, 30, 3));
                Ok(Item { price: item.price + 1, ..*item })
            }
            fn move_all(&self, points: &mut [Point]) -> Result<()> {
                points.iter_mut().for_each(|one| one.x += one.z);
                Ok(())
            }
            fn all(&self, mut into: Out<'_, Point>) -> Result<u64> {
                into.put(&[Point { x: 1, z: 2, y: 3 }; 100]).expect("enough space");
                Ok(100)
            }
        }
    }
}

#[test]
fn converted_call_does_not_allocate() {
    use grown::{new, old, old::Shop as _};
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().export("shop", new::ShopServer::new(new::Object)).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let mut clients = vec![old::ShopClient::bind("shop").unwrap()];
    for address in running.addresses() {
        clients.push(old::ShopClient::bind(&format!("{address}/shop")).unwrap());
    }
    for client in &clients {
        let item = old::Item { price: 4, sizes: [1, 2, 3, 4] };
        let text = "as long as it is in the server";
        let mut points = [old::Point { x: 0, y: 5 }; 200];
        let mut into = [old::Point { x: 0, y: 0 }; 100];
        allocates(0, || assert_eq!(client.put(&item, text).unwrap().price, 5));
        allocates(0, || client.move_all(&mut points).unwrap());
        assert_eq!((points[0].x % 9, points[199].y), (0, 5));
        allocates(0, || assert_eq!(client.all(Out::from(&mut into[..])).unwrap(), 100));
        assert_eq!(into, [old::Point { x: 1, y: 3 }; 100]);
    }
}

/// `Bytes` and `BytesMut` take over the memory to which the received bytes are copied.
#[test]
fn received_bytes_are_allocated_and_copied_once() {
    fn decode<T: Value>(head: &[u8]) -> T {
        let mut reader = Reader::<Native>::represented(Window::from(head));
        T::decode(&mut reader).unwrap()
    }
    let _alone = support::alone();
    let head = [&1000u32.to_ne_bytes()[..], &[7; 1000]].concat();
    allocates(1, || assert_eq!(decode::<bytes::Bytes>(&head).len(), 1000));
    allocates(1, || assert_eq!(decode::<bytes::BytesMut>(&head).len(), 1000));
}

/// Checks both settings of the Ethernet device, each with payload checks (the default) and without.
#[test]
fn call_over_raw_ethernet_allocates_only_for_its_owned_types() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for device in [EthernetDevice::Any, EthernetDevice::Packet] {
        at_near_end(Link::new(), |_| {
            let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
            let server = server.ethernet_device(device);
            let server = server
                .listen_beyond_this_machine(
                    &format!("eth:{}:0", ENDS[1]),
                    Insecure::ITrustThisNetwork,
                )
                .unwrap();
            let running = at_far_end(move || server.spawn().unwrap());
            let address = format!("{}/counted", running.addresses()[0]);
            for check in [true, false] {
                let options = BindOptions::default().ethernet_device(device).payload_check(check);
                let client = CountedClient::bind_with(&address, &options).unwrap();
                allocates_for_owned_types_only(&client);
                println!("{}", client.binding().explain().summary());
                assert_eq!(client.binding().path(), PathKind::Ethernet);
            }
        });
    }
}

/// Makes calls over UDP from more threads than a client has sockets for one server. So some threads receive
/// the packets of other threads.
#[test]
fn call_on_a_shared_socket_does_not_allocate() {
    const CALLERS: usize = peregrine::limits::SOCKETS_PER_SERVER as usize + 8;
    const CALLS: u64 = 50;
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let options = BindOptions::default().astacks(CALLERS as u32).wait(Wait::Block);
    let address = format!("{}/counted", running.addresses()[0]);
    let client = CountedClient::bind_with(&address, &options).unwrap();
    let (begins, ends) = (Barrier::new(CALLERS + 1), Barrier::new(CALLERS + 1));
    std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                let mut large = vec![0; 100_000];
                for round in 0..16 {
                    begins.wait();
                    for _ in 0..CALLS * (1 + round % 2) {
                        client.null().unwrap();
                        client.give(Out::from(&mut large[..200])).unwrap();
                    }
                    client.fill(Out::from(&mut large)).unwrap();
                    ends.wait();
                }
            });
        }
        let rounds = [(); 16].map(|()| {
            begins.wait();
            let before = allocations();
            ends.wait();
            allocations() - before
        });
        println!("{rounds:?} allocations per round");
        // The number of calls with large results is the same in all rounds. Only the number of small calls
        // differs: it is twice as large in every second round. On a slow machine, calls that wait for a
        // thread add allocations. So the rounds with the fewest allocations are compared.
        let [single, double] = [0, 1].map(|first| {
            let some = rounds[4 + first..].iter().step_by(2);
            some.copied().min().expect("rounds")
        });
        assert!(double.saturating_sub(single) < CALLS, "{single} and {double} per round");
    });
}

/// Returns how many bytes a call copies as copy A (to the A-stack), as copy E (to the E-stack) and as copy F
/// (to the caller). These names are those of LRPC's Table III.
fn copies(call: impl FnOnce()) -> [u64; 3] {
    let before = stats::copied().expect("a debug build");
    call();
    let after = stats::copied().expect("a debug build");
    [0, 1, 2].map(|copy| after[copy] - before[copy])
}

/// Checks LRPC's Table III, in bytes. Arguments by value are copied as A and E, lent arguments only as A, and
/// results only as F. Copy E includes the head, which here is a count of 4 bytes and padding up to the first
/// block.
#[test]
fn every_byte_is_copied_as_often_as_in_lrpc() {
    let _alone = support::alone();
    let Some(_) = stats::copied() else {
        println!("skipped: release builds do not count copies");
        return;
    };
    let _directory = support::own_directory();
    let server = Server::new().export("counted", CountedServer::new(Object)).unwrap();
    let server = server.export("interpreted", interpreted()).unwrap();
    let _running = server.spawn().unwrap();
    for name in ["counted", "interpreted"] {
        let client = CountedClient::bind(name).unwrap();
        let mut buffer = [0u8; 200];
        assert_eq!(copies(|| client.null().unwrap()), [0, 0, 0], "{name}");
        assert_eq!(copies(|| assert_eq!(client.add(1, 2).unwrap(), 3)), [0, 8, 0], "{name}");
        assert_eq!(copies(|| client.take(&[1; 1440]).unwrap()), [1440, 1456, 0], "{name}");
        // This argument is so large that the server copies it while the client is still writing it.
        let large = vec![1; 200_000];
        assert_eq!(copies(|| client.take(&large).unwrap()), [200_000, 200_016, 0], "{name}");
        assert_eq!(copies(|| drop(client.lend(Lent::from(&[1u8; 1000])))), [1000, 16, 0], "{name}");
        let give = copies(|| client.give(Out::from(&mut buffer)).unwrap());
        assert_eq!(give, [0, 4, 100], "{name}");
        assert_eq!(copies(|| client.both(&mut [1; 100]).unwrap()), [800, 816, 800], "{name}");
    }
    // Over TCP the kernel reads arguments from the caller's memory, and the procedure uses them where they
    // were received. There is no copy A. The kernel makes copy E, which is not counted.
    let server = Server::new().export("far", CountedServer::new(Object)).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let client = CountedClient::bind(&format!("{}/far", running.addresses()[0])).unwrap();
    let mut buffer = [0u8; 200];
    assert_eq!(copies(|| client.take(&[1; 1440]).unwrap()), [0, 0, 0]);
    assert_eq!(copies(|| drop(client.lend(Lent::from(&[1u8; 1000])))), [0, 0, 0]);
    assert_eq!(copies(|| client.give(Out::from(&mut buffer)).unwrap()), [0, 0, 100]);
}

/// Over datagrams, a procedure uses arguments of one packet where they were received. A small result is copied
/// once at the server, which keeps the copy and sends the original. It is not copied a second time to be sent.
#[test]
fn small_result_over_udp_is_copied_once_at_the_server() {
    let _alone = support::alone();
    let Some(_) = stats::copied() else {
        println!("skipped: release builds do not count copies");
        return;
    };
    let server = Server::new().export("far", CountedServer::new(Object)).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let client = CountedClient::bind(&format!("{}/far", running.addresses()[0])).unwrap();
    let copies = |call: &mut dyn FnMut()| {
        let before = stats::copied().expect("a debug build");
        call();
        let after = stats::copied().expect("a debug build");
        [0, 1, 2, 3].map(|copy| after[copy] - before[copy])
    };
    let mut buffer = [0u8; 200];
    assert_eq!(copies(&mut || client.null().unwrap()), [0, 0, 0, 0]);
    assert_eq!(copies(&mut || client.take(&[1; 1400]).unwrap()), [1400, 0, 0, 0]);
    assert_eq!(copies(&mut || drop(client.lend(Lent::from(&[1u8; 1000])))), [1000, 0, 0, 1]);
    // The packed result has 132 bytes: besides the 100 bytes, the head, its count, and padding.
    let give = copies(&mut || client.give(Out::from(&mut buffer)).unwrap());
    assert_eq!(give, [0, 0, 100, 132]);
}

/// Returns how often the threads that make and serve calls have slept so far.
fn sleeps() -> u64 {
    let mut sleeps = 0;
    for task in std::fs::read_dir("/proc/self/task").expect("threads of this process").flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = read("comm");
        // The keeper is a background thread. Its sleeps are not part of a call.
        if name.starts_with("peregrine-recei") || name.starts_with("calls") {
            let status = read("status");
            let line =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            sleeps += line.map_or(0, |number| number.trim().parse::<u64>().expect("a number"));
        }
    }
    sleeps
}

/// The average number of sleeps per call that a slow machine may add. A client that has waited long for its
/// result sends a probe, and then sleeps once more. A regression would add a whole sleep to every call.
const SLACK: f64 = 0.5;

/// Checks that client and server together sleep at most `most` times per call over UDP, on average.
fn sleeps_at_most(most: f64, wait: Wait) {
    const CALLS: u64 = 500;
    const TRIES: usize = 20;
    let _directory = support::own_directory();
    let server = Server::new().wait(wait).export("counted", CountedServer::new(Object));
    let running = server.unwrap().listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/counted", running.addresses()[0]);
    let options = BindOptions::default().wait(wait);
    let client = CountedClient::bind_with(&address, &options).unwrap();
    let calls = || {
        let round = |calls: u64| {
            let before = sleeps();
            (0..calls).for_each(|_| client.null().unwrap());
            // The count of a thread that has ended is lost, so the sum may become smaller.
            sleeps().saturating_sub(before)
        };
        round(100);
        let mut all = Vec::new();
        while all.iter().all(|sleeps| *sleeps > most + SLACK) {
            assert!(all.len() < TRIES, "{all:?} sleeps per call instead of {most}, {wait:?}");
            all.push(round(2 * CALLS).saturating_sub(round(CALLS)) as f64 / CALLS as f64);
        }
        println!("{all:?} sleeps per call of two packets, {wait:?}");
    };
    let calling = std::thread::Builder::new().name("calls".into());
    std::thread::scope(|scope| calling.spawn_scoped(scope, calls).unwrap().join()).unwrap();
}

/// Each packet wakes one thread, and each woken thread sleeps once more. If all threads poll, the only thread
/// that sleeps is the server's *deputy* (`path/receivers.rs`). The deputy wakes every few
/// milliseconds, and checks whether the polling thread is in a long procedure.
#[test]
fn packet_wakes_at_most_one_thread() {
    let _alone = support::alone();
    sleeps_at_most(2.0, Wait::Block);
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        println!("skipped in part: needs two processors");
        return;
    }
    sleeps_at_most(0.0, Wait::Spin);
}
