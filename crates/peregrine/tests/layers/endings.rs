//! Tests what layers see when a call or an export ends early: calls that are given up, withdrawn exports, and
//! clients that bind again.

use std::pin::pin;
use std::task::{Context, Waker};

use peregrine::directory::Directory;
use peregrine::{Address, Rebind};

use super::*;

#[test]
fn call_that_is_given_up_has_timed_out() {
    let _alone = alone();
    let _directory = own_directory();
    let timed_out = "TimedOut may have executed";
    everywhere(true, |at, log| {
        let options = BindOptions::default().layer(writes("client", log));
        let limited = client(at, options.timeout(Duration::from_millis(50)));
        assert_eq!(limited.waits().unwrap_err().kind(), Kind::TimedOut);
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
        // The future of a call is dropped.
        let options = BindOptions::default().layer(writes("client", log));
        let awaited = WorkAsyncClient::from(client(at, options));
        {
            let mut call = pin!(WorkAsync::waits(&awaited));
            let context = &mut Context::from_waker(Waker::noop());
            until("the procedure has begun", || {
                assert!(call.as_mut().poll(context).is_pending());
                log.0.lock().unwrap().len() == 3
            });
        }
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
    });
}

/// Returns whether each call whose begin a layer has seen has ended. `name` is the name of the layer.
fn is_complete(lines: &[String], name: &str) -> bool {
    let begun = |verb: &str| lines.iter().filter(|line| line.starts_with(verb)).count();
    let (calls, serves) = (format!("{name} calls"), format!("{name} serves"));
    begun(&calls) + begun(&serves) == begun(&format!("{name} ended"))
}

/// Opens the gate of an object when dropped, so that its procedures end even if the test fails.
struct Opens<'a>(&'a Object);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[test]
fn layers_see_the_calls_of_a_withdrawn_export() {
    let _alone = alone();
    let _directory = own_directory();
    let withdrawn = "Withdrawn not executed";
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (log, object) = (Log::default(), Arc::new(Object::default()));
        let server = Server::new().layer(writes("server", &log));
        let options = ExportOptions::default().layer(writes("export", &log));
        let server = server.export_with("work", WorkServer::new(Arc::clone(&object)), options);
        let server = server.unwrap();
        let other = WorkServer::new(Object::default());
        let server = server.export("other", other).unwrap();
        let running = match path {
            "local" => server.spawn().unwrap(),
            _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
        };
        let at = address(&running);
        let options = BindOptions::default().rebind(Rebind::Never);
        let work = client(&at, options.layer(writes("client", &log)));
        let at = match path {
            "local" => "local:other".to_owned(),
            _ => at.replace("/work", "/other"),
        };
        let other = client(&at, BindOptions::default());
        std::thread::scope(|scope| {
            let opens = Opens(&object);
            let waits = scope.spawn(|| work.waits());
            assert_eq!(log.wait(3), nested("waits", "ok")[..3]);
            assert!(running.withdraw("work"));
            for _ in 0..20 {
                let error = work.add(1, 2).unwrap_err();
                assert_eq!(error.executed(), Executed::No, "{error}");
                // Over UDP, the client asks the server to renew the binding, and fails.
                let kinds = [Kind::Withdrawn, Kind::ServerGone];
                assert!(kinds.contains(&error.kind()), "{error}");
            }
            let lines = log.take();
            // A client that knows of the end refuses a call itself, perhaps before its layers see the call. The
            // server's layers see only the calls that arrive.
            let seen = count(&lines, "client calls", "add");
            assert!(seen >= 1, "{lines:?}");
            assert_eq!(count(&lines, "client ended add", "not executed"), seen, "{lines:?}");
            for name in ["server", "export"] {
                let begun = count(&lines, name, "serves add");
                assert!(is_complete(&lines, name), "{lines:?}");
                assert_eq!(count(&lines, name, withdrawn), begun, "{lines:?}");
            }
            // The layers of the server also see the calls of its other exports, as before.
            assert_eq!(other.add(1, 2).unwrap(), 3);
            assert_eq!(log.take(), ["server serves add", "server ended add ok"]);
            // The running call ends as usual, and all its layers see the end.
            drop(opens);
            waits.join().unwrap().unwrap();
            assert_eq!(log.wait(3), nested("waits", "ok")[3..]);
        });
        drop(work);
        running.stop();
        assert_eq!(log.take(), [""; 0]);
    }
}

#[interface]
trait Numbered {
    /// Returns the number of the server, after the server's door was opened.
    #[idempotent]
    fn number(&self) -> peregrine::Result<u32>;
    /// Returns the number of the server at once.
    fn now(&self) -> peregrine::Result<u32>;
}

/// An object that belongs to the server with a number.
struct OfServer(u32, Arc<Object>);

impl Numbered for OfServer {
    fn number(&self) -> peregrine::Result<u32> {
        let mut open = self.1.open.lock().unwrap();
        while !*open {
            open = self.1.opened.wait(open).unwrap();
        }
        Ok(self.0)
    }
    fn now(&self) -> peregrine::Result<u32> {
        Ok(self.0)
    }
}

/// A directory service whose only entry can change.
#[derive(Clone, Debug, Default)]
struct Moving(Arc<Mutex<String>>);

impl Directory for Moving {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        Ok(vec![self.0.lock().unwrap().parse()?])
    }
    fn describe(&self) -> String {
        "what moves".to_owned()
    }
}

#[test]
fn layers_see_each_attempt_of_a_client_that_binds_again() {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let (log, moving) = (Log::default(), Moving::default());
        let objects = [Arc::new(Object::default()), Arc::new(Object::default())];
        let serve = |number: usize, name| {
            let object = OfServer(number as u32, Arc::clone(&objects[number]));
            let server = Server::new().layer(writes(name, &log));
            let server = server.export("numbered", NumberedServer::new(object)).unwrap();
            let running = match path {
                "local" => server.spawn().unwrap(),
                _ => server.listen(&format!("{path}:127.0.0.1:0")).unwrap().spawn().unwrap(),
            };
            *moving.0.lock().unwrap() = match running.addresses().first() {
                None => "local:numbered".to_owned(),
                Some(at) => at.to_string().replacen(':', ":numbered@", 1),
            };
            running
        };
        let first = serve(0, "first");
        let options = BindOptions::default().directory(moving.clone()).rebind(Rebind::Idempotent);
        let at = if path == "local" { "local:numbered" } else { &format!("{path}:alias") };
        let options = options.layer(writes("client", &log));
        let numbered = NumberedClient::bind_with(at, &options).unwrap();
        let early = numbered.clone();
        assert_eq!(numbered.now().unwrap(), 0);
        log.take();
        let second = std::thread::scope(|scope| {
            let _opens = Opens(&objects[0]);
            let call = scope.spawn(|| numbered.number());
            assert_eq!(log.wait(2), ["client calls number", "first serves number"]);
            // The second server takes the name before the first one stops.
            first.withdraw("numbered");
            objects[1].open();
            let second = serve(1, "second");
            first.drain(Duration::from_millis(1));
            assert_eq!(call.join().unwrap().unwrap(), 1);
            second
        });
        let lines = log.wait(6);
        let attempts: Vec<_> = lines.iter().filter(|line| line.starts_with("client")).collect();
        assert_eq!(attempts.len(), 3, "{lines:?}");
        assert!(attempts[0].ends_with("may have executed"), "{lines:?}");
        assert_eq!(attempts[1..], ["client calls number", "client ended number ok"], "{lines:?}");
        let seen = ["second serves number", "second ended number ok"];
        for line in seen {
            assert_eq!(count(&lines, line, line), 1, "{lines:?}");
        }
        // The layers belong to the new binding, and to clones from before.
        for client in [&numbered, &early, &numbered.clone()] {
            assert_eq!(client.now().unwrap(), 1);
            let lines = log.take();
            let seen = ["client calls now", "second serves now"];
            let ended = ["second ended now ok", "client ended now ok"];
            assert_eq!(lines, [seen, ended].concat());
        }
        second.stop();
    }
}
