//! Defines the cases of the failure matrix: how each failure is caused, and what the outcome of the call must
//! be.

use std::time::{Duration, Instant};

use peregrine::Executed::{Maybe, No};
use peregrine::{BindOptions, CallError, Executed, Kind, Out, Rebind};

use super::client::Client;
use super::document::Cell;
use super::elsewhere::{in_a_child, outcome, result_waits};
use super::subject::{FILLED_BYTES, Subject as _, filled};
use super::support::{self, Process};
use super::world::{Way, World};

/// A failure, and the outcomes that it must have.
pub(crate) struct Case {
    pub(crate) title: &'static str,
    /// What happens in this case, as the document says it.
    pub(crate) text: &'static str,
    /// The required outcomes of the call on the paths local, Ethernet, UDP and TCP, in this order.
    pub(crate) must: [Must; 4],
    pub(crate) run: fn(&World) -> Cell,
}

/// The required outcome of a call.
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
        // This line goes to the terminal, even if a child process runs the case.
        let (ms, World { way, form, .. }) = (begun.elapsed().as_millis(), world);
        eprintln!("{ms:>5} ms  {}, {way}, {form}: {cell:?}", self.title);
        cell
    }
}

/// A time in milliseconds that is longer than any case takes, so no case ends because this time has passed.
pub(crate) const LONG: u32 = 60_000;

/// Returns the default options, except that the time limit of a bind is longer.
pub(crate) fn plain() -> BindOptions {
    BindOptions::default().bind_timeout(Duration::from_secs(20))
}

/// Makes a call on a separate thread, and calls `happens` meanwhile. Returns the outcome of the call.
pub(crate) fn meanwhile<T: Send>(
    call: impl FnOnce() -> Result<T, CallError> + Send,
    happens: impl FnOnce(),
) -> Cell {
    std::thread::scope(|scope| {
        let caller = scope.spawn(call);
        happens();
        Cell::of(caller.join().expect("no panic"))
    })
}

/// Checks that a call did not run. `what` is the note that the procedure of the call would have left. Returns
/// `cell`, the outcome of the call.
fn did_not_run(world: &World, what: &str, cell: Cell) -> Cell {
    assert!(!world.notes().say(what), "{what}, but the outcome is {cell:?}");
    cell
}

/// Checks that a call of [`wait`](Subject::wait) ran once.
fn ran_once(world: &World, cell: Cell) -> Cell {
    assert_eq!(world.notes().times("wait ran"), 1, "{cell:?}");
    cell
}

/// Keeps one thread of the server busy with a call of [`wait`](Subject::wait) while `what` runs. Returns the
/// result of `what`.
fn with_one_running<T>(world: &World, client: &Client, what: impl FnOnce() -> T) -> T {
    // This call blocks. An async call could keep the call under test from being sent, because small
    // async calls share batches.
    let holder = client.blocking();
    std::thread::scope(|scope| {
        let until = Instant::now() + Duration::from_secs(10);
        let held = scope.spawn(move || {
            loop {
                match holder.wait(LONG) {
                    // The server's thread may not have finished the previous call.
                    Err(error) if error.kind() == Kind::Overloaded && Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    other => break other,
                }
            }
        });
        world.until("wait ran");
        let done = what();
        world.notes().write("end");
        let _ = held.join().expect("no panic");
        done
    })
}

/// Waits until the client knows that the server has gone. Returns at once on a path that does not notify a
/// client of the end of its server.
pub(crate) fn is_known_to_be_gone(world: &World, client: &Client) {
    // Over datagrams there is no notification.
    if matches!(world.way, Way::Local | Way::Tcp) {
        support::until("the client knows that the server has gone", || !client.is_alive());
    }
}

/// Waits until a thread of this process has slept for a while.
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

/// Fetches a large result over a network, and calls `happens` meanwhile. After an eighth of the result has
/// arrived, the network drops all packets.
fn cut_off(world: &World, client: &Client, happens: impl FnOnce()) -> Cell {
    let mut into = vec![0; FILLED_BYTES as usize];
    world.cut_after(into.len() / 8);
    let cell = meanwhile(|| client.fill(false, Out::from(&mut into[..])), happens);
    if matches!(cell, Cell::Returned) {
        assert!(into.iter().enumerate().all(|(at, byte)| *byte == filled(at)), "another result");
    }
    cell
}

/// Halts the server, makes a call, and kills the server.
fn killed_before_it_takes_the_call(world: &World) -> Cell {
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
}

/// Waits until a client over datagrams has received nothing for 32 round trips. Such a client probes before
/// it sends a call. If the server was restarted, the probe shows this, and the call is not sent.
pub(crate) fn has_heard_nothing_for_long() {
    std::thread::sleep(Duration::from_secs(1));
}

fn halt(server: &Process) {
    server.signal(libc::SIGSTOP);
}

/// Returns all cases, in the order of the document.
pub(crate) fn all() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(&super::kinds::CASES).chain(&super::callbacks::CASES)
}

static CASES: [Case; 26] = [
    Case {
        title: "No server",
        text: "No server exports the name, or listens at the address.",
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
        text: "The server is halted, the call is sent, and the server is killed. On the local path \
               the client sees in shared memory that the call was not taken. Over a network it \
               cannot know.",
        must: [
            Fail(No, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
            Fail(Maybe, Kind::ServerGone),
        ],
        run: |world| {
            let mut cell = killed_before_it_takes_the_call(world);
            // Over datagrams, a client that has received nothing for some milliseconds probes before it sends
            // a call. The halted server does not answer the probe, so the call is not sent. That outcome
            // belongs to another case, so this case is run again.
            for _ in 0..5 {
                let asked = matches!(world.way, Way::Ethernet | Way::Udp)
                    && matches!(cell, Cell::Failed { executed: No, .. });
                if asked {
                    cell = killed_before_it_takes_the_call(world);
                }
            }
            cell
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
        text: "The procedure has returned, and its process ends while it writes the result into the \
               message.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(world.client(&plain()).last())
        },
    },
    Case {
        title: "The server was killed and started again between two calls",
        text: "The binding notices, binds again, and makes the call at the new server. It looks up \
               the name, the path and the interface again.",
        must: [Return; 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            server.kill();
            let _server = world.server(2, 10);
            is_known_to_be_gone(world, &client);
            has_heard_nothing_for_long();
            Cell::of(client.echo(1))
        },
    },
    Case {
        title: "The same, with a binding that never binds again",
        text: "The option is `Rebind::Never`.",
        must: [Fail(No, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain().rebind(Rebind::Never));
            server.kill();
            let _server = world.server(2, 10);
            is_known_to_be_gone(world, &client);
            has_heard_nothing_for_long();
            let cell = Cell::of(client.echo(1));
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "The network is cut for a second",
        text: "The procedure runs. No packet arrives for a second, and then all do.",
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
        text: "The procedure runs, and no packet arrives any more. The client notices without a \
               deadline.",
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
        title: "The server dies in the middle of its result",
        text: "A part of a large result has arrived. On the local path the server dies while it \
               writes the result into shared memory. Over a network the rest is \
               lost, and the server is killed.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            if !world.is_network() {
                let mut into = vec![0; FILLED_BYTES as usize];
                return Cell::of(client.fill(true, Out::from(&mut into[..])));
            }
            let cell = cut_off(world, &client, || {
                world.until_cut();
                server.kill();
                world.cut(false);
            });
            // The client sees the end of the connection, or a reset if it has sent a probe before.
            cell.one_of([
                "the server closed the connection",
                "receiving failed: Connection reset by peer (os error N)",
            ])
        },
    },
    Case {
        title: "The network is cut for a second in the middle of a result",
        text: "A part of a large result has arrived, and then no packet arrives for a second. \
               The client keeps what it has, and the server sends the rest again.",
        must: [Nothing, Return, Return, Return],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            cut_off(world, &client, || {
                world.until_cut();
                std::thread::sleep(Duration::from_secs(1));
                world.cut(false);
            })
        },
    },
    Case {
        title: "The client is paused while its call runs",
        text: "The client's process is halted (SIGSTOP) for three seconds. A server over \
               datagrams takes it for dead after 2.5 seconds. The procedure \
               returns meanwhile.",
        must: [Return; 4],
        run: |world| {
            let _server = world.server(2, 10);
            let mut client = world.client_elsewhere();
            client.write_line("call");
            world.until("wait ran");
            client.signal(libc::SIGSTOP);
            std::thread::sleep(Duration::from_secs(3));
            world.notes().write("end");
            world.until("wait ended");
            client.signal(libc::SIGCONT);
            ran_once(world, outcome(&mut client))
        },
    },
    Case {
        title: "The same, and the server is restarted before the client resumes",
        text: "The procedure returns, and then the server is killed. Locally the result waits in \
               shared memory, and over TCP in the client's kernel. Over datagrams \
               the network is cut meanwhile, so the result is lost, and the new \
               server does not know the call. A client that is paused for so long \
               that the server has forgotten its lost result gets the same error.",
        must: [Return, Fail(Maybe, Kind::ServerGone), Fail(Maybe, Kind::ServerGone), Return],
        run: |world| {
            let mut server = world.server(1, 10);
            let mut client = world.client_elsewhere();
            let own = world.client(&plain());
            client.write_line("call");
            world.until("wait ran");
            client.signal(libc::SIGSTOP);
            let is_lost = matches!(world.way, Way::Ethernet | Way::Udp);
            if is_lost {
                world.cut(true);
            }
            world.notes().write("end");
            world.until("wait ended");
            match world.way {
                // When this call returns, the server's only thread has answered the earlier call.
                Way::Local => assert_eq!(own.echo(7).expect("a result"), 7),
                Way::Tcp => support::until("the result waits", || result_waits(&client)),
                // The server needs time to send the result, whose packets are lost.
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
            server.kill();
            // The notes are read now, because they are deleted when a server is started.
            let ran = world.notes().times("wait ran");
            let _server = world.server(1, 10);
            has_heard_nothing_for_long();
            if is_lost {
                world.cut(false);
            }
            client.signal(libc::SIGCONT);
            let cell = outcome(&mut client);
            assert_eq!((ran, world.notes().times("wait ran")), (1, 0), "{cell:?}");
            cell
        },
    },
    Case {
        title: "The client's address changed between two calls",
        text: "Over UDP the client cannot send from its old address any more. It binds again from \
               the new one, and makes the call. Raw Ethernet does not use these addresses. Over TCP \
               the connection ends after 2.3 s, and this call fails. The next call returns.",
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
        text: "A balancer leads each of the client's ports to one of two servers. The client binds \
               all handles of a binding over ports that lead to the same server, and uses each \
               handle over its own port only. A hundred calls from many threads return.",
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
        title: "A tunnel drops large packets",
        text: "A link takes packets of 1,400 bytes, but both ends assume 1,500, and the link \
               reports nothing. Over UDP and raw Ethernet the client makes the pieces of a large \
               call smaller until they arrive. Over UDP it remembers the size for the host. Over \
               TCP the kernel does this only if `net.ipv4.tcp_mtu_probing` is set. If it is not \
               set, the client can send only a part of the call.",
        must: [Nothing, Return, Return, Fail(No, Kind::ServerGone)],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.narrow(1400);
            // The network drops the large packets, so they are not acknowledged, and the client's socket
            // keeps them. The buffer of the socket is much smaller than this message.
            let cell = Cell::of(client.swallow(&vec![7; 4 << 20]));
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
        text: "Another call of the binding uses the only A-stack.",
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
        text: "The server's only thread runs another call. The server does not run the waiting call \
               when its turn comes. But the caller could not know that when it gave up.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(1, 10);
            let client = world.client(&plain());
            let cell = with_one_running(world, &client, || {
                let cell = Cell::of(client.with_timeout(Duration::from_millis(200)).echo(1));
                // Meanwhile the server receives all that the client has sent. Its thread is still busy,
                // because the other call ends only after this function.
                std::thread::sleep(Duration::from_millis(500));
                cell
            });
            // When this call returns, all earlier calls have ended.
            assert_eq!(client.wait(0).expect("a result"), 0);
            did_not_run(world, "echo ran", cell)
        },
    },
    Case {
        title: "Deadline while the procedure runs",
        text: "The caller gives the call up, and can use its binding again at once.",
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
        text: "As before. The procedure asks whether its caller still waits \
               (`Caller::is_cancelled`), and learns that it does not.",
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
        text: "The server catches the panic and continues.",
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
        text: "The server withdraws the export after the client has bound.",
        must: [Fail(No, Kind::Withdrawn); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.notes().write("withdraw");
            world.until("withdrawn");
            let cell = Cell::of(client.echo(1));
            let cell = did_not_run(world, "echo ran", cell);
            match world.way {
                // The text depends on whether the server's thread has served a call of this binding
                // before. Over TCP, the client may know already that the binding is revoked.
                Way::Local => cell.one_of(["`subject` was withdrawn", "no such binding"]),
                Way::Tcp => cell.one_of([
                    "`subject` was withdrawn",
                    "no such binding",
                    "the server has revoked the binding",
                ]),
                _ => cell,
            }
        },
    },
    Case {
        title: "Another interface",
        text: "The name exports another interface than the client was compiled with.",
        must: [Fail(No, Kind::InterfaceMismatch); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(Client::bind_other(world.form, &world.address(), &plain()))
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
        text: "The process that bound forks, and the child calls with the binding that it \
               inherited.",
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
        text: "The procedure calls a name that no server exports, and returns that error.",
        must: [Fail(Maybe, Kind::Relayed); 4],
        run: |world| {
            let _server = world.server(2, 10);
            Cell::of(world.client(&plain()).relay())
        },
    },
];

/// Pauses the client for so long that a server over datagrams forgets the result. Over datagrams, the network
/// also loses the packets of the result.
pub(crate) fn paused_for_long(world: &World) {
    /// The pause after which the server presumes the client dead.
    const GONE: Duration = Duration::from_secs(4);
    /// The further pause after which the server has forgotten the result.
    const FORGOTTEN: Duration = Duration::from_secs(75);
    let _server = world.server(1, 10);
    let mut client = world.client_elsewhere();
    client.write_line("call");
    world.until("wait ran");
    client.signal(libc::SIGSTOP);
    let is_lost = matches!(world.way, Way::Ethernet | Way::Udp);
    if is_lost {
        world.cut(true);
    }
    std::thread::sleep(GONE);
    world.notes().write("end");
    world.until("wait ended");
    std::thread::sleep(FORGOTTEN);
    if is_lost {
        world.cut(false);
    }
    client.signal(libc::SIGCONT);
    let cell = ran_once(world, outcome(&mut client));
    println!("paused for long, {}: {cell:?}", world.way);
    let is_right = match &cell {
        Cell::Returned => !is_lost,
        Cell::Failed { executed, kind, .. } => {
            is_lost && *executed == Maybe && kind == "ServerGone"
        }
        _ => false,
    };
    assert!(is_right, "{}: {cell:?}", world.way);
}
