//! Tests calls that a layer or the server refuses, and what the layers see of them.

use super::*;

/// Refuses the calls of one procedure.
struct Refuses(&'static str, fn(&'static str) -> LayerRefusal);

impl Layer for Refuses {
    type State = ();

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
        if call.procedure() == self.0 { Err(self.1("the layer's reason")) } else { Ok(()) }
    }

    fn end(&self, _: (), _: &LayerEnd<'_>) {}
}

#[test]
fn refused_call_is_not_executed() {
    let _alone = alone();
    let _directory = own_directory();
    everywhere(false, |at, log| {
        let options = BindOptions::default()
            .layer(writes("client", log))
            .layer(Refuses("add", LayerRefusal::exhausted))
            .layer(writes("inner", log));
        let work = client(at, options);
        let awaited = WorkAsyncClient::from(work.clone());
        for blocks in [true, false] {
            let result = match blocks {
                true => work.add(1, 2),
                false => block_on(WorkAsync::add(&awaited, 1, 2)),
            };
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Exhausted, Executed::No));
            assert!(error.to_string().contains("the layer's reason"), "{error}");
            let ended = "client ended add Exhausted not executed";
            assert_eq!(log.take(), ["client calls add", ended]);
        }
    });
    let log = Log::default();
    let server = Server::new().layer(writes("server", &log));
    let options = ExportOptions::default().layer(Refuses("add", LayerRefusal::denied));
    let blocking = server.export_with("work", WorkServer::new(Object::default()), options);
    let options = ExportOptions::default().layer(Refuses("add", LayerRefusal::denied));
    let both = blocking.unwrap();
    let both = both.export_with("awork", WorkAsyncServer::new(AsyncObject), options).unwrap();
    let running = both.spawn().unwrap();
    for name in ["local:work", "local:awork"] {
        let error = WorkClient::bind(name).unwrap().add(1, 2).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Denied, Executed::No), "{error}");
        assert!(error.to_string().contains("the layer's reason"), "{error}");
        assert_eq!(log.take(), ["server serves add", "server ended add Denied not executed"]);
    }
    running.stop();
}

#[test]
fn call_that_the_server_refuses_is_seen() {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (log, object) = (Log::default(), Arc::new(Object::default()));
        let server = Server::new().layer(writes("server", &log)).threads(1).queue(0);
        let server = server.export("work", WorkServer::new(Arc::clone(&object))).unwrap();
        let server = match path {
            "local" => server,
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap(),
        };
        let running = server.spawn().unwrap();
        let work = client(&address(&running), BindOptions::default());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| work.waits());
            assert_eq!(log.wait(1), ["server serves waits"]);
            let error = work.add(1, 2).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Overloaded, Executed::No));
            assert_eq!(
                log.wait(2),
                ["server serves add", "server ended add Overloaded not executed"]
            );
            object.open();
            waits.join().unwrap().unwrap();
        });
        running.stop();
    }
}

#[test]
fn layers_do_not_admit_callers_that_may_not_call() {
    #[interface]
    trait Guarded {
        #[callers("ops/*")]
        fn erase(&self) -> peregrine::Result<()>;
        fn list(&self) -> peregrine::Result<()>;
        fn read(&self) -> peregrine::Result<()>;
    }
    struct Disk;
    impl Guarded for Disk {
        fn erase(&self) -> peregrine::Result<()> {
            Ok(())
        }
        fn list(&self) -> peregrine::Result<()> {
            Ok(())
        }
        fn read(&self) -> peregrine::Result<()> {
            Ok(())
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let log = Log::default();
    for path in ["local", "tcp", "udp"] {
        for of_server in [true, false] {
            println!("{path}, {of_server}");
            let options = ExportOptions::default().allow("list", ["backup"]);
            let (server, options) = match of_server {
                true => (Server::new().layer(writes("layer", &log)), options),
                false => (Server::new(), options.layer(writes("layer", &log))),
            };
            let server = server.export_with("work", GuardedServer::new(Disk), options).unwrap();
            let running = match path {
                "local" => server.spawn().unwrap(),
                _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
            };
            let disk = GuardedClient::bind(&address(&running)).unwrap();
            disk.read().unwrap();
            assert_eq!(log.take(), ["layer serves read", "layer ended read ok"]);
            for (name, ended) in [("erase", disk.erase()), ("list", disk.list())] {
                if path == "local" {
                    // The server's own user may call all procedures on this machine.
                    ended.unwrap();
                    continue;
                }
                let error = ended.unwrap_err();
                assert_eq!(
                    (error.kind(), error.executed()),
                    (Kind::Denied, Executed::No),
                    "{name}"
                );
                let lines = log.take();
                assert_eq!(count(&lines, "layer ended", " ok"), 0, "{lines:?}");
            }
            log.take();
            running.stop();
        }
    }
}

#[test]
#[should_panic(expected = "more than 8 layers")]
fn too_many_layers_are_refused() {
    let log = Log::default();
    let _ = (0..9).fold(BindOptions::default(), |options, _| options.layer(writes("one", &log)));
}
