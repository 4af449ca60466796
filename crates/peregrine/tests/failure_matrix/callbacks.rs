//! Defines the cases of callbacks. In these cases, a procedure calls an object of its caller. The outcome of
//! a case is the one that the procedure gets from this call, except where the case says otherwise.

use std::time::Duration;

use peregrine::Executed::{Maybe, No};
use peregrine::{Callback, Kind};

use super::cases::Must::Fail;
use super::cases::{Case, LONG, meanwhile, plain};
use super::document::Cell;
use super::subject::Subject as _;

pub(crate) static CASES: [Case; 6] = [
    Case {
        title: "Callbacks: the object panics",
        text: "The caller catches the panic. The table shows the outcome of the procedure's call. \
               The procedure continues.",
        must: [Fail(Maybe, Kind::Panicked); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            client.call_back(u32::MAX, Callback::new(world.object())).expect("a result");
            assert_eq!(client.echo(7).expect("a result"), 7);
            world.told()
        },
    },
    Case {
        title: "Callbacks: the caller dies while its object runs",
        text: "The process of the caller is killed. The table shows the outcome of the procedure's \
               call.",
        must: [Fail(Maybe, Kind::Stopped); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let mut caller = world.client_elsewhere();
            caller.write_line("call back");
            world.until("object ran");
            caller.kill();
            // The procedure may learn first that its own call was given up, or that its callback has ended.
            world.told().one_of([
                "the caller has given up the call that brought the callback",
                "the client has gone, or the server stops",
            ])
        },
    },
    Case {
        title: "Callbacks: the server dies while the object runs",
        text: "The object of the caller returns after the server was killed. The table shows the \
               outcome of the caller's call.",
        must: [Fail(Maybe, Kind::ServerGone); 4],
        run: |world| {
            let mut server = world.server(2, 10);
            let client = world.client(&plain());
            let cell = meanwhile(
                || client.call_back(LONG, Callback::new(world.object())),
                || {
                    world.until("object ran");
                    server.kill();
                    world.notes().write("end");
                },
            );
            // Over TCP, the server's kernel resets the connection if the server has not received all bytes.
            cell.one_of([
                "the server closed the connection",
                "receiving failed: Connection reset by peer (os error N)",
            ])
        },
    },
    Case {
        title: "Callbacks: the deadline of the call passes while the object runs",
        text: "The table shows the outcome of the caller's call. The call fails when the object \
               has returned. The procedure's call of the object has failed as `TimedOut`, too.",
        must: [Fail(Maybe, Kind::TimedOut); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let hurried = client.with_timeout(Duration::from_millis(300));
            let call = || {
                let called = hurried.call_back(LONG, Callback::new(world.object()));
                world.notes().write("given up");
                called
            };
            let cell = meanwhile(call, || {
                let Cell::Failed { executed, kind, .. } = world.told() else { panic!("no error") };
                assert_eq!((executed, &*kind), (Maybe, "TimedOut"));
                world.notes().write("end");
            });
            assert_eq!(client.echo(7).expect("a result"), 7);
            cell
        },
    },
    Case {
        title: "Callbacks: the caller has revoked the callback",
        text: "The procedure has kept the callback, and calls it after the caller has dropped its \
               `Registration`. The table shows the outcome of this call.",
        must: [Fail(No, Kind::Stopped); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            let (callback, registration) = Callback::registered(world.object());
            client.keep(callback).expect("a result");
            world.until("object ran");
            drop(registration);
            world.told()
        },
    },
    Case {
        title: "Callbacks: the last client of the binding was dropped",
        text: "The procedure has kept the callback, and calls it after the caller has dropped its \
               clients. The table shows the outcome of this call.",
        must: [Fail(No, Kind::Stopped); 4],
        run: |world| {
            let _server = world.server(2, 10);
            let client = world.client(&plain());
            client.keep(Callback::new(world.object())).expect("a result");
            world.until("object ran");
            drop(client);
            world.told()
        },
    },
];
