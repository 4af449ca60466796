//! Tests calls of interpreted clients that their callers give up, on every path.

mod support;

use core::future::{pending, poll_fn};
use core::task::{Poll, Waker};
use core::time::Duration;
use std::sync::{Arc, Mutex, mpsc};

use peregrine::{
    Argument, Dynamic, Executed, GenericClient, Kind, Server, Sink, caller, interface,
};
use support::{alone, own_directory};

/// Procedures, some of which wait until their callers give up.
#[interface]
trait Patience {
    fn wait(&self) -> peregrine::Result<()>;
    /// Sends a number before it waits.
    fn send(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    fn seven(&self) -> peregrine::Result<u8>;
    #[oneway]
    fn note(&self) -> peregrine::Result<()>;
}

/// What a procedure reports.
#[derive(Debug, PartialEq)]
enum Report {
    Begun,
    GivenUp,
}

struct Object(Mutex<mpsc::Sender<Report>>);

impl Object {
    fn report(&self, report: Report) {
        self.0.lock().unwrap().send(report).unwrap();
    }
}

impl Patience for Object {
    fn wait(&self) -> peregrine::Result<()> {
        self.report(Report::Begun);
        while !caller().is_some_and(|caller| caller.is_cancelled()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.report(Report::GivenUp);
        Ok(())
    }
    fn send(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(1)?;
        self.wait()
    }
    fn seven(&self) -> peregrine::Result<u8> {
        Ok(7)
    }
    fn note(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

/// A flag, and the waker of the task that waits for it.
#[derive(Default)]
struct Flag(Mutex<(bool, Option<Waker>)>);

impl Flag {
    fn set(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        state.1.take().into_iter().for_each(Waker::wake);
    }

    fn is_set(&self) -> impl Future<Output = ()> {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
    }
}

#[test]
fn procedure_learns_that_its_caller_gave_up() {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local:patience", "tcp:patience@127.0.0.1", "udp:patience@127.0.0.1"] {
        println!("{path}");
        let (reports, reported) = mpsc::channel();
        let object = PatienceServer::new(Object(Mutex::new(reports)));
        let server = Server::new().threads(2).export("patience", object).unwrap();
        let server = match path.starts_with("local") {
            true => server,
            false => server.listen("127.0.0.1:0").unwrap(),
        };
        let running = server.spawn().unwrap();
        let endpoint = running.addresses().first().map(ToString::to_string);
        let port = endpoint.as_deref().and_then(|endpoint| endpoint.rsplit(':').next());
        let address = port.map_or(path.to_owned(), |port| format!("{path}:{port}"));
        let client = GenericClient::bind(&address).unwrap();
        for procedure in [0, 1] {
            let flag = Arc::new(Flag::default());
            let calling = {
                let (client, flag) = (client.clone(), Arc::clone(&flag));
                std::thread::spawn(move || {
                    let mut sink = [Argument::Sink(Sink::new(drop))];
                    let arguments = if procedure == 0 { &mut [][..] } else { &mut sink };
                    client.call_unless(procedure, arguments, &mut Dynamic::Unit, flag.is_set())
                })
            };
            assert_eq!(reported.recv().unwrap(), Report::Begun);
            flag.set();
            let error = calling.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
            assert_eq!(reported.recv().unwrap(), Report::GivenUp);
        }
        let mut result = Dynamic::Unit;
        assert!(client.call_unless(3, &mut [], &mut result, pending()).unwrap());
        assert!(client.call_unless(2, &mut [], &mut result, pending()).unwrap());
        assert_eq!(result, Dynamic::U8(7));
        let unknown = client.call_unless(9, &mut [], &mut result, pending()).unwrap_err();
        assert_eq!(unknown.kind(), Kind::NoSuchProcedure);
        running.stop();
    }
}
