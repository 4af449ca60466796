//! Defines the cases of one-way calls, and of calls with streams.

use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::Duration;

use peregrine::Executed::{Maybe, No};
use peregrine::{Kind, Sink, Source};

use super::cases::Must::{Fail, Nothing, Return};
use super::cases::{Case, LONG, has_heard_nothing_for_long, is_known_to_be_gone, meanwhile, plain};
use super::client::Client;
use super::document::Cell;
use super::subject::{ITEMS, Subject as _};
use super::world::World;

/// Receives the items of [`send`](super::subject::Subject::send). Calls `happens` when half of the
/// items have arrived. Returns the outcome of the call, and the number of items that have arrived.
fn items_while(client: &Client, happens: impl FnOnce() + Send) -> (Cell, u32) {
    let (tell, told) = std::sync::mpsc::channel();
    let received = Mutex::new(0);
    let receive = |number| {
        let mut received = received.lock().expect("no panic");
        assert_eq!(number, *received, "an item is lost or came twice");
        *received += 1;
        if *received == ITEMS / 2 {
            let _ = tell.send(());
        }
    };
    let cell = meanwhile(
        || client.send(false, Sink::new(receive)),
        || {
            told.recv().expect("half of the items");
            happens();
        },
    );
    let received = *received.lock().expect("no panic");
    (cell, received)
}

/// Makes a one-way call, and calls `happens` when its procedure has begun. Returns the outcome of `flush`.
fn flushed_after(world: &World, client: &Client, happens: impl FnOnce()) -> Cell {
    client.note(LONG).expect("a call that is handed over");
    world.until("note ran");
    happens();
    Cell::of(client.flush())
}

pub(crate) static CASES: [Case; 11] = [
    Case {
        title: "One-way: the server dies while it executes the call",
        text: "The procedure has begun, and its process is killed. The next call of the binding, \
               or `flush`, reports it. Here it is `flush`.",
        must: [Fail(Maybe, Kind::OneWay); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            flushed_after(world, &client, || server.kill())
        },
    },
    Case {
        title: "One-way: the procedure panics",
        text: "The server catches the panic, and runs the calls after it.",
        must: [Fail(Maybe, Kind::OneWay); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.notes().write("end");
            for ms in [0, u32::MAX, 0] {
                client.note(ms).expect("a call that is handed over");
            }
            let cell = Cell::of(client.flush());
            assert_eq!(world.notes().times("note ran"), 3, "{cell:?}");
            client.flush().expect("the failure was already reported");
            cell
        },
    },
    Case {
        title: "One-way: the export was withdrawn",
        text: "The server withdraws the export after the client has bound.",
        must: [Fail(No, Kind::OneWay); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            world.notes().write("withdraw");
            world.until("withdrawn");
            client.note(0).expect("a call that is handed over");
            let cell = Cell::of(client.flush());
            assert!(!world.notes().say("note ran"), "{cell:?}");
            match cell {
                Cell::Failed { executed, kind, .. } => {
                    // The text of the error depends on what the client and the server's thread already know
                    // of the withdrawal. The document has this fixed text instead.
                    let text = "N earlier one-way call failed".to_owned();
                    Cell::Failed { executed, kind, text }
                }
                other => other,
            }
        },
    },
    Case {
        title: "One-way: the deadline passes before the call begins",
        text: "An earlier one-way call of the binding runs meanwhile.",
        must: [Fail(No, Kind::OneWay); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            flushed_after(world, &client, || {
                let hurried = client.with_timeout(Duration::from_millis(100));
                hurried.note(0).expect("a call that is handed over");
                std::thread::sleep(Duration::from_millis(300));
                world.notes().write("end");
            })
        },
    },
    Case {
        title: "One-way: the network is cut for a second",
        text: "The procedure runs, and another call is queued. No packet arrives for a second, and \
               then all do. Each call runs once.",
        must: [Nothing, Return, Return, Return],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = flushed_after(world, &client, || {
                world.cut(true);
                client.note(0).expect("a call that is handed over");
                std::thread::sleep(Duration::from_secs(1));
                world.cut(false);
                world.notes().write("end");
            });
            assert_eq!(world.notes().times("note ran"), 2, "{cell:?}");
            cell
        },
    },
    Case {
        title: "Streams: the server dies between two items",
        text: "Half of the items have arrived, and the process of the procedure is killed.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            let (cell, received) = items_while(&client, || server.kill());
            assert_eq!(received, ITEMS / 2, "{cell:?}");
            // Over TCP, the kernel resets the connection of the killed server if the server has not read
            // all bytes that the client sent.
            cell.one_of([
                "the server closed the connection",
                "receiving failed: Connection reset by peer (os error N)",
            ])
        },
    },
    Case {
        title: "Streams: the server was killed and started again before the call",
        text: "No item has moved, so the binding binds again, and makes the call at the new server.",
        must: [Return; 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            server.kill();
            let _server = world.server(2, 10);
            is_known_to_be_gone(world, &client);
            has_heard_nothing_for_long();
            let (cell, received) = items_while(&client, || world.notes().write("end"));
            assert_eq!(received, ITEMS, "{cell:?}");
            cell
        },
    },
    Case {
        title: "Streams: the network is cut for a second",
        text: "Half of the items have arrived. No packet arrives for a second, and then all do. Each \
               item arrives once.",
        must: [Nothing, Return, Return, Return],
        run: |world| {
            if !world.is_network() {
                return Cell::None;
            }
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let (cell, received) = items_while(&client, || {
                world.cut(true);
                world.notes().write("end");
                std::thread::sleep(Duration::from_secs(1));
                world.cut(false);
            });
            assert_eq!(received, ITEMS, "{cell:?}");
            cell
        },
    },
    Case {
        title: "Streams: deadline while the procedure waits for an item",
        text: "The caller makes no item. In the procedure, the source fails.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let (source, _sender) = Source::channel(1);
            let cell = Cell::of(client.with_timeout(Duration::from_millis(300)).take(source));
            world.until("take failed");
            assert_eq!(client.echo(7).expect("a result"), 7);
            cell
        },
    },
    Case {
        title: "Streams: the procedure panics",
        text: "The items that it sent before the panic arrive.",
        must: [Fail(Maybe, Kind::Panicked); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let mut received = Vec::new();
            let cell = Cell::of(client.send(true, Sink::from(&mut received)));
            assert!(received.into_iter().eq(0..ITEMS / 2), "{cell:?}");
            cell
        },
    },
    Case {
        title: "Streams: the caller wants no more items",
        text: "The procedure learns of this while it sends nothing (`Sink::is_stopped`), and ends.",
        must: [Return; 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let receive = |number| match number == ITEMS / 2 - 1 {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            };
            let cell = Cell::of(client.send(false, Sink::until(receive)));
            assert!(world.notes().say("send was stopped"), "{cell:?}");
            cell
        },
    },
];
