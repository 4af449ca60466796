//! The cases: how each is brought about, and what must become of the call.

use std::time::{Duration, Instant};

use peregrine::Executed::{Maybe, No};
use peregrine::{BindOptions, CallError, Executed, Kind, Rebind};

use super::document::Cell;
use super::subject::{Subject as _, SubjectClient, other};
use super::support::{self, Part};
use super::world::{Way, World};

/// One thing that can go wrong.
pub(crate) struct Case {
    pub(crate) title: &'static str,
    /// What happens.
    pub(crate) text: &'static str,
    /// What must become of the call: local, ethernet, udp, tcp.
    pub(crate) must: [Must; 4],
    run: fn(&World) -> Cell,
}

/// What must become of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Must {
    Nothing,
    Return,
    Fail(Executed, Kind),
}

use Must::{Fail, Nothing, Return};

impl Case {
    pub(crate) fn run(&self, world: &World) -> Cell {
        let begun = Instant::now();
        world.notes().forget();
        let cell = (self.run)(world);
        println!("{:>5} ms  {}, {}: {cell:?}", begun.elapsed().as_millis(), self.title, world.way);
        cell
    }
}

/// Longer than anything here takes: nothing is ended by it.
const LONG: u32 = 60_000;

/// Options without anything particular.
fn plain() -> BindOptions {
    BindOptions::default().bind_timeout(Duration::from_secs(20))
}

/// A call on a thread of its own, something that happens meanwhile, and what became of the call.
fn meanwhile<T: Send>(
    call: impl FnOnce() -> Result<T, CallError> + Send,
    happens: impl FnOnce(),
) -> Cell {
    std::thread::scope(|scope| {
        let caller = scope.spawn(call);
        happens();
        Cell::of(caller.join().expect("no panic"))
    })
}

/// The calls that ran left notes, and this one did not: what was said to be not executed was not.
fn did_not_run(world: &World, what: &str, cell: Cell) -> Cell {
    assert!(!world.notes().say(what), "{what}, and it was said: {cell:?}");
    cell
}

/// Holds a server at its first procedure for as long as this lives.
fn with_one_running<T>(world: &World, client: &SubjectClient, what: impl FnOnce() -> T) -> T {
    let holder = client.clone();
    std::thread::scope(|scope| {
        let held = scope.spawn(move || holder.wait(LONG));
        world.until("wait ran");
        let done = what();
        world.notes().write("end");
        let _ = held.join().expect("no panic");
        done
    })
}

/// Waits until it has been told, or would have been told, that the server has gone.
fn is_known_to_be_gone(world: &World, client: &SubjectClient) {
    // Over datagrams nobody tells.
    if matches!(world.way, Way::Local | Way::Tcp) {
        support::until("its end is known", || !client.is_alive());
    }
}

/// Waits until a thread of this process has been asleep for a while.
fn asleep(thread: u32) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
        stat.unwrap_or_default().rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    let mut times = 0;
    support::until("the caller waits", || {
        times = if state() == Some('S') { times + 1 } else { 0 };
        times > 50
    });
}

fn own_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Over datagrams a server vouches for nothing of the first two milliseconds in which it listens.
fn has_listened() {
    std::thread::sleep(Duration::from_millis(50));
}

fn halt(server: &Part) {
    server.signal(libc::SIGSTOP);
}

pub(crate) static CASES: [Case; 22] = [
    Case {
        title: "No server",
        text: "Nobody exports the name; nobody listens at the place.",
        must: [
            Fail(No, Kind::NotFound),
            Fail(No, Kind::Unreachable),
            Fail(No, Kind::Unreachable),
            Fail(No, Kind::Unreachable),
        ],
        run: |world| Cell::of(world.bind(&plain())),
    },
    Case {
        title: "The server dies before it takes the call",
        text: "The server is halted, the call is sent, and the server is killed. On the local path the \
               client sees in memory that both share what was taken; over a network nobody can know.",
        must: [
            Fail(No, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
        ],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain().astacks(1));
            halt(&server);
            let (tell, told) = std::sync::mpsc::channel();
            let call = || {
                tell.send(own_thread()).expect("a test");
                client.echo(1)
            };
            let cell = meanwhile(call, || {
                asleep(told.recv().expect("a caller"));
                server.kill();
            });
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "The server dies while it executes the call",
        text: "The procedure has begun, and its process is killed.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            meanwhile(
                || client.wait(LONG),
                || {
                    world.until("wait ran");
                    server.kill();
                },
            )
        },
    },
    Case {
        title: "The server dies after executing the call, before its result is sent",
        text: "The procedure has returned, and its process ends while the result is put into its message.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(world.client(&plain()).last())
        },
    },
    Case {
        title: "The server was killed and started again between two calls",
        text: "The binding finds out, binds again, and makes the call there: the name, the path and the \
               interface are looked at anew.",
        must: [Return; 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            server.kill();
            let _server = world.server(2, 10);
            is_known_to_be_gone(world, &client);
            has_listened();
            Cell::of(client.echo(1))
        },
    },
    Case {
        title: "The same, and the binding is never bound again",
        text: "With `Rebind::Never`.",
        must: [Fail(No, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain().rebind(Rebind::Never));
            server.kill();
            let _server = world.server(2, 10);
            is_known_to_be_gone(world, &client);
            has_listened();
            let cell = Cell::of(client.echo(1));
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "The network is cut for a second",
        text: "The procedure runs; nothing gets through for a second, and then everything does.",
        must: [Nothing, Return, Return, Return],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            meanwhile(
                || client.wait(LONG),
                || {
                    world.until("wait ran");
                    world.cut(true);
                    std::thread::sleep(Duration::from_secs(1));
                    world.cut(false);
                    world.notes().write("end");
                },
            )
        },
    },
    Case {
        title: "The network is cut for good",
        text: "The procedure runs, and nothing gets through any more. No deadline is needed to find out.",
        must: [
            Nothing,
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
        ],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = meanwhile(
                || client.wait(LONG),
                || {
                    world.until("wait ran");
                    world.cut(true);
                },
            );
            world.cut(false);
            cell
        },
    },
    Case {
        title: "The client's address changed between two calls",
        text: "Over UDP the client finds that it cannot send from its old address, binds again from the new \
               one, and makes the call. Raw Ethernet has other addresses. A TCP connection ends after 2.3 s; \
               the call after that one returns.",
        must: [Nothing, Return, Return, Fail(Maybe, Kind::ServerGone)],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.change_address(true);
            let cell = Cell::of(client.echo(1));
            assert_eq!(client.echo(7).expect("a result"), 7);
            world.change_address(false);
            cell
        },
    },
    Case {
        title: "Two servers behind one address",
        text: "A balancer leads each of the client's ports to one of two servers. All handles of a binding \
               are bound over ports that lead to the same server, and none is used over another port: a \
               hundred calls from many threads return.",
        must: [Nothing, Nothing, Return, Nothing],
        run: |world| {
            if world.way != Way::Udp {
                return Cell::None;
            }
            let _servers = (world.server(2, 1000), world.server_beside());
            let (_balancer, client) = world.balanced(&plain().astacks(24));
            std::thread::scope(|scope| {
                let call = || (0..5).try_for_each(|x| client.echo(x).map(drop));
                let callers: Vec<_> = (0..20).map(|_| scope.spawn(call)).collect();
                let cells = callers.into_iter().map(|one| Cell::of(one.join().expect("no panic")));
                cells.max_by_key(|cell| !matches!(cell, Cell::Returned)).expect("callers")
            })
        },
    },
    Case {
        title: "A tunnel on the way swallows large packets",
        text: "A link takes packets of 1,400 bytes, while both ends believe in 1,500, and says nothing of \
               those that it drops. Over UDP and raw Ethernet the client makes the pieces of a large call \
               smaller until they get through; over UDP it remembers that for the host. TCP leaves it to the \
               kernel, which does that only if told to (`net.ipv4.tcp_mtu_probing`).",
        must: [Nothing, Return, Return, Fail(Maybe, Kind::ServerGone)],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.narrow(1400);
            let cell = Cell::of(client.swallow(&vec![7; 100_000]));
            world.narrow(0);
            cell
        },
    },
    Case {
        title: "Deadline while binding",
        text: "The server is halted, and binding may take 300 ms.",
        must: [Fail(No, Kind::TimedOut); 4],
        run: |world| {
            let server = world.server(2, 10);
            halt(&server);
            Cell::of(world.bind(&plain().bind_timeout(Duration::from_millis(300))))
        },
    },
    Case {
        title: "Deadline while waiting for an A-stack",
        text: "Another call of the binding has the only one.",
        must: [Fail(No, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain().astacks(1));
            with_one_running(world, &client, || {
                let cell = Cell::of(client.with_timeout(Duration::from_millis(200)).echo(1));
                did_not_run(world, "echo ran", cell)
            })
        },
    },
    Case {
        title: "Deadline while the call waits for a thread of the server",
        text: "The server's only thread runs another call. The one that waits is not run when its turn \
               comes; but the caller could not know that when it gave up.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(1, 10);
            let client = world.client(&plain());
            let cell = with_one_running(world, &client, || {
                let cell = Cell::of(client.with_timeout(Duration::from_millis(200)).echo(1));
                // What the client said then is heard before a thread is free.
                std::thread::sleep(Duration::from_millis(500));
                cell
            });
            // Whatever was before it has come to its end.
            assert_eq!(client.wait(0).expect("a result"), 0);
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "Deadline while the procedure runs",
        text: "The caller gives the call up, and its binding can be used at once.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = Cell::of(client.with_timeout(Duration::from_millis(200)).wait(LONG));
            assert_eq!(client.echo(7).expect("a result"), 7);
            world.notes().write("end");
            cell
        },
    },
    Case {
        title: "The client abandons the call",
        text: "As before; the procedure asks whether anybody waits for it (`Caller::is_cancelled`), and \
               learns that nobody does.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = Cell::of(client.with_timeout(Duration::from_millis(200)).outlive());
            world.until("outlive was cancelled");
            cell
        },
    },
    Case {
        title: "The procedure panics",
        text: "The server lives on.",
        must: [Fail(Maybe, Kind::Panicked); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = Cell::of(client.panic());
            assert_eq!(client.echo(7).expect("a result"), 7);
            cell
        },
    },
    Case {
        title: "The export was withdrawn",
        text: "After the client had bound.",
        must: [Fail(No, Kind::Withdrawn); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.notes().write("withdraw");
            world.until("withdrawn");
            let cell = Cell::of(client.echo(1));
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "Another interface",
        text: "The name exports something else than what the client was compiled with.",
        must: [Fail(No, Kind::InterfaceMismatch); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(other::SubjectClient::bind_with(&world.address(), &plain()))
        },
    },
    Case {
        title: "Overload",
        text: "The server's only thread runs another call, and no call may wait for it.",
        must: [Fail(No, Kind::Overloaded); 4],
        run: |world| {
            let _server = world.server(1, 0);
            let client = world.client(&plain());
            with_one_running(world, &client, || {
                let cell = Cell::of(client.echo(1));
                did_not_run(world, "echo ran", cell)
            })
        },
    },
    Case {
        title: "A forked child",
        text: "The process that bound forks, and the child calls by the binding that it inherited.",
        must: [Fail(No, Kind::Forked); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = in_a_child(world, &client);
            assert_eq!(client.echo(7).expect("a result"), 7);
            cell
        },
    },
    Case {
        title: "The server's own call fails",
        text: "The procedure calls somebody else, who is not there, and returns that error.",
        must: [Fail(Maybe, Kind::Relayed); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(world.client(&plain()).relay())
        },
    },
];

/// Makes a call in a forked child, whose outcome comes back as text.
fn in_a_child(world: &World, client: &SubjectClient) -> Cell {
    let file = world.home.path().join("child");
    // SAFETY: the child calls, writes a file, and ends without going back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let text = match client.echo(1) {
            Ok(_) => String::new(),
            Err(error) => {
                format!("{:?}\n{:?}\n{}", error.executed(), error.kind(), error.chain())
            }
        };
        let _ = std::fs::write(&file, text);
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    let text = std::fs::read_to_string(&file).expect("what the child wrote");
    let lines: Vec<&str> = text.lines().collect();
    match lines[..] {
        [executed, kind, text] => Cell::Failed {
            executed: if executed == "No" { No } else { Maybe },
            kind: kind.to_owned(),
            text: super::document::plain(text),
        },
        _ => Cell::Returned,
    }
}
