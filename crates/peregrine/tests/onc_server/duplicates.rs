//! Tests retransmissions. A call runs once while the server remembers it, and each caller gets its own reply.

use crate::foreign::World;
use crate::support::until;
use crate::world::{
    SYSTEM_ERROR, Transport as _, accepted, call, count, opaque, over_both, success, words,
};

#[test]
fn copy_of_a_call_that_has_ended_gets_the_same_reply() {
    over_both("copies", |world, client| {
        for _ in 0..5 {
            assert_eq!(client.ask(&count(7)), success(7, &words(&[1])));
        }
        assert_eq!(world.runs(), 1);
        // A procedure that panicked is not run again, either.
        for _ in 0..3 {
            assert_eq!(client.ask(&call(8, 2, 5, &[])), accepted(8, &[SYSTEM_ERROR]));
        }
        // The next two calls also have the number 7, but other arguments or another version of the program.
        assert_eq!(client.ask(&call(7, 2, 1, &opaque(b"other"))), success(7, &words(&[2])));
        assert_eq!(client.ask(&call(7, 4, 1, &[])), success(7, &[]));
        assert_eq!(client.ask(&count(7)), success(7, &words(&[1])));
        assert_eq!(world.runs(), 2);
    });
}

#[test]
fn copies_of_a_running_call_are_dropped() {
    let world = World::new("running");
    let mut udp = world.udp();
    let wait = call(1, 2, 2, &[]);
    udp.send(&wait);
    world.begun.recv().unwrap();
    for _ in 0..1000 {
        udp.send(&wait);
    }
    // All copies arrive before call 2, so the reply to call 2 shows that the server has received them.
    assert_eq!(udp.ask(&call(2, 2, 0, &[])), success(2, &[]));
    world.go_on.send(()).unwrap();
    assert_eq!(udp.receive(), success(1, &words(&[1])));
    assert_eq!(udp.ask(&wait), success(1, &words(&[1])));
    assert_eq!(world.runs(), 1);
}

#[test]
fn storm_of_copies_runs_each_call_once() {
    const CALLS: u32 = 50;
    const COPIES: u32 = 40;
    let world = World::new("storm");
    std::thread::scope(|scope| {
        for client in 0..4 {
            let mut udp = world.udp();
            scope.spawn(move || {
                let mut replies = Vec::new();
                for xid in 0..CALLS {
                    let message = call(xid, 2, 1, &opaque(format!("{client}").as_bytes()));
                    for _ in 0..COPIES {
                        udp.send(&message);
                    }
                    // The server drops the other copies, or answers them with the same reply. Replies to
                    // copies of earlier calls may still arrive.
                    let reply = loop {
                        let reply = udp.receive();
                        if reply[..4] == words(&[xid]) {
                            break reply;
                        }
                        assert_eq!(Some(&reply), replies.get(reply[3] as usize));
                    };
                    assert_eq!(reply[..24], success(xid, &[]));
                    replies.push(reply);
                }
            });
        }
    });
    assert_eq!(world.runs(), 4 * CALLS);
}

#[test]
fn each_caller_gets_its_own_reply() {
    let world = World::new("own");
    let [mut one, mut other] = [world.udp(), world.udp()];
    assert_eq!(one.ask(&count(7)), success(7, &words(&[1])));
    assert_eq!(other.ask(&count(7)), success(7, &words(&[2])));
    assert_eq!(one.ask(&count(7)), success(7, &words(&[1])));
    // Over TCP, the same message is a different call.
    assert_eq!(world.tcp().ask(&count(7)), success(7, &words(&[3])));
    // The users of one machine are different callers, even over one connection.
    let with_user = |user: u32| {
        let header = words(&[7, 0, 2, crate::world::PROGRAM, 2, 1, 1]);
        let sys = [words(&[user * 11]), opaque(b"host"), words(&[user, 1, 0])].concat();
        [header, opaque(&sys), words(&[0, 0]), opaque(b"label")].concat()
    };
    let mut tcp = world.tcp();
    assert_eq!(tcp.ask(&with_user(1)), success(7, &words(&[4])));
    assert_eq!(tcp.ask(&with_user(2)), success(7, &words(&[5])));
    assert_eq!(tcp.ask(&with_user(1)), success(7, &words(&[4])));
    assert_eq!(world.runs(), 5);
}

#[test]
fn client_that_connects_again_gets_the_reply_to_its_call() {
    let world = World::new("again");
    let mut first = world.tcp();
    assert_eq!(first.ask(&count(1)), success(1, &words(&[1])));
    first.send(&call(2, 2, 2, &[]));
    world.begun.recv().unwrap();
    let mut second = world.tcp_again(first);
    assert_eq!(second.ask(&count(1)), success(1, &words(&[1])));
    second.send(&call(2, 2, 2, &[]));
    // The server takes the copy of call 2 before it takes call 3. So the reply to call 3 shows that the
    // server has the copy.
    assert_eq!(second.ask(&call(3, 2, 0, &[])), success(3, &[]));
    world.go_on.send(()).unwrap();
    assert_eq!(second.receive(), success(2, &words(&[2])));
    assert_eq!(world.runs(), 2);
}

#[test]
fn restarted_server_runs_a_copy_again() {
    let world = World::new("restart");
    let mut udp = world.udp();
    assert_eq!(udp.ask(&count(1)), success(1, &words(&[1])));
    let [udp_at, tcp_at] = ["onc+udp", "onc+tcp"].map(|scheme| world.at(scheme));
    world.server.stop();
    let world = World::at_ports("restart", udp_at, tcp_at);
    assert_eq!(udp.ask(&count(1)), success(1, &words(&[1])));
    assert_eq!(world.runs(), 1, "the new server does not remember the call");
}

#[test]
fn copies_that_wait_for_a_thread_run_once() {
    let world = World::with("queued", |server| server.threads(1));
    let mut udp = world.udp();
    udp.send(&call(1, 2, 2, &[]));
    world.begun.recv().unwrap();
    for xid in 2..10 {
        for _ in 0..10 {
            udp.send(&count(xid));
        }
    }
    assert_eq!(udp.ask(&call(20, 2, 0, &[])), success(20, &[]));
    world.go_on.send(()).unwrap();
    let mut replies: Vec<_> = (1..10).map(|_| udp.receive()).collect();
    replies.sort();
    let xids: Vec<_> = replies.iter().map(|reply| reply[3]).collect();
    assert_eq!(xids, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    until("all calls ran", || world.runs() == 9);
}

#[test]
fn call_beyond_the_queue_is_dropped_over_udp_and_its_copy_runs() {
    let world = World::with("dropped", |server| server.threads(1).queue(1));
    let mut udp = world.udp();
    udp.send(&call(1, 2, 2, &[]));
    world.begun.recv().unwrap();
    udp.send(&count(2));
    udp.send(&count(3));
    assert_eq!(udp.ask(&call(20, 2, 0, &[])), success(20, &[]));
    let mut tcp = world.tcp();
    world.go_on.send(()).unwrap();
    assert_eq!(udp.receive(), success(1, &words(&[1])));
    assert_eq!(udp.receive(), success(2, &words(&[2])));
    assert_eq!(udp.ask(&count(3)), success(3, &words(&[3])));
    assert_eq!(tcp.ask(&count(4)), success(4, &words(&[4])));
}
