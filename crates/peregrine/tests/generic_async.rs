//! Tests calls of interpreted clients that are made as futures, on every path.

mod support;

use core::cell::Cell;
use core::future::poll_fn;
use core::pin::Pin;
use core::task::Poll;
use core::time::Duration;
use std::sync::{Barrier, Mutex, mpsc};

use peregrine::{
    Argument, Dynamic, GenericClient, Kind, Limit, Out, Running, Server, Sink, caller, interface,
};
use support::futures::{block_on, join_all};
use support::{alone, own_directory};

/// The number of calls that are pending at the same time.
const CALLS: usize = 8;

/// Why [`Desk::half`] fails.
#[derive(Clone, Debug, PartialEq, peregrine::Value)]
enum NoHalf {
    Odd(u64),
    Call(String),
}

impl From<peregrine::CallError> for NoHalf {
    fn from(error: peregrine::CallError) -> Self {
        Self::Call(error.to_string())
    }
}

/// Procedures of each kind. Each test finds them by their numbers.
#[interface]
trait Desk {
    /// Returns half of an even number.
    fn half(&self, whole: u64) -> Result<u64, NoHalf>;
    /// Doubles the numbers, and appends the count of them to `counts`.
    fn double(&self, numbers: &mut [u32], counts: Out<'_, u32>) -> peregrine::Result<()>;
    /// Returns after as many calls as [`CALLS`] have begun.
    fn meet(&self) -> peregrine::Result<()>;
    /// Waits until its caller gives up.
    fn wait(&self) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, text: &str) -> peregrine::Result<()>;
    /// Returns the notes.
    fn notes(&self) -> peregrine::Result<String>;
    fn count(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
}

struct Object {
    meeting: Barrier,
    notes: Mutex<String>,
    given_up: Mutex<mpsc::Sender<bool>>,
}

impl Desk for Object {
    fn half(&self, whole: u64) -> Result<u64, NoHalf> {
        if whole.is_multiple_of(2) { Ok(whole / 2) } else { Err(NoHalf::Odd(whole)) }
    }
    fn double(&self, numbers: &mut [u32], mut counts: Out<'_, u32>) -> peregrine::Result<()> {
        numbers.iter_mut().for_each(|number| *number *= 2);
        counts.put(&[numbers.len() as u32]).unwrap();
        Ok(())
    }
    fn meet(&self) -> peregrine::Result<()> {
        self.meeting.wait();
        Ok(())
    }
    fn wait(&self) -> peregrine::Result<()> {
        self.given_up.lock().unwrap().send(false).unwrap();
        while !caller().is_some_and(|caller| caller.is_cancelled()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.given_up.lock().unwrap().send(true).unwrap();
        Ok(())
    }
    fn note(&self, text: &str) -> peregrine::Result<()> {
        self.notes.lock().unwrap().push_str(text);
        Ok(())
    }
    fn notes(&self) -> peregrine::Result<String> {
        Ok(self.notes.lock().unwrap().clone())
    }
    fn count(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        (0..3).try_for_each(|number| numbers.send(number))?;
        Ok(())
    }
}

/// Runs `test` on every path. It gets a client, and what `wait` reports.
fn on_every_path(test: impl Fn(&GenericClient, &mpsc::Receiver<bool>)) {
    on_every_path_with(CALLS + 1, test);
}

/// Runs `test` as [`on_every_path`] does, with a server that has this number of threads.
fn on_every_path_with(threads: usize, test: impl Fn(&GenericClient, &mpsc::Receiver<bool>)) {
    let _alone = alone();
    let _directory = own_directory();
    for path in ["local:desk", "tcp:desk@127.0.0.1", "udp:desk@127.0.0.1"] {
        println!("{path}");
        let (sender, given_up) = mpsc::channel();
        let object = Object {
            meeting: Barrier::new(CALLS),
            notes: Mutex::default(),
            given_up: Mutex::new(sender),
        };
        let server = Server::new().threads(threads);
        let server = server.export("desk", DeskServer::new(object)).unwrap();
        let server = match path.starts_with("local") {
            true => server,
            false => server.listen("127.0.0.1:0").unwrap(),
        };
        let running = server.spawn().unwrap();
        test(&GenericClient::bind(&address(&running, path)).unwrap(), &given_up);
        running.stop();
    }
}

fn address(running: &Running, path: &str) -> String {
    let endpoint = running.addresses().first().map(ToString::to_string);
    let port = endpoint.as_deref().and_then(|endpoint| endpoint.rsplit(':').next());
    port.map_or(path.to_owned(), |port| format!("{path}:{port}"))
}

/// Makes a call whose arguments are values.
async fn call(
    client: &GenericClient,
    procedure: u32,
    values: &[Dynamic],
) -> Result<Result<Dynamic, Dynamic>, peregrine::CallError> {
    let mut arguments: Vec<Argument<'_>> = values.iter().map(Argument::In).collect();
    let mut result = Dynamic::Unit;
    let is_ok = client.call_async(procedure, &mut arguments, &mut result).await?;
    Ok(if is_ok { Ok(result) } else { Err(result) })
}

#[test]
fn results_and_errors_return() {
    on_every_path(|client, _| {
        let half = |whole| block_on(call(client, 0, &[Dynamic::U64(whole)])).unwrap();
        assert_eq!(half(6), Ok(Dynamic::U64(3)));
        assert_eq!(half(7), Err(Dynamic::Variant(0, vec![Dynamic::U64(7)])));
        let error = block_on(call(client, 0, &[])).unwrap_err();
        assert_eq!(error.kind(), Kind::BadArguments);
        let error = block_on(call(client, 99, &[])).unwrap_err();
        assert_eq!(error.kind(), Kind::NoSuchProcedure);
        let mut numbers = Dynamic::List(vec![Dynamic::U32(4), Dynamic::U32(5)]);
        let mut counts = [0; 8];
        let mut counts = Out::from(&mut counts[..]);
        let doubled = block_on(client.call_async(
            1,
            &mut [Argument::InOut(&mut numbers), Argument::Out(counts.by_ref())],
            &mut Dynamic::Unit,
        ));
        assert!(doubled.unwrap());
        assert_eq!(numbers, Dynamic::Plain([8_u32, 10].map(u32::to_ne_bytes).concat()));
        assert_eq!(counts.filled(), 4);
    });
}

#[test]
fn calls_of_one_thread_are_pending_at_the_same_time() {
    on_every_path(|client, _| {
        let meet = |_| async { call(client, 2, &[]).await.unwrap().unwrap() };
        assert_eq!(join_all((0..CALLS).map(meet)).len(), CALLS);
    });
}

/// Polls a call of [`Desk::wait`] until its procedure has begun.
fn until_begun<T>(mut waits: Pin<&mut impl Future<Output = T>>, reports: &mpsc::Receiver<bool>) {
    let begun = block_on(poll_fn(|context| {
        assert!(waits.as_mut().poll(context).is_pending());
        match reports.try_recv() {
            Ok(is_given_up) => Poll::Ready(is_given_up),
            Err(_) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }));
    assert!(!begun);
}

#[test]
fn call_is_given_up_when_its_future_is_dropped() {
    on_every_path(|client, reports| {
        let mut waits = Box::pin(call(client, 3, &[]));
        until_begun(waits.as_mut(), reports);
        drop(waits);
        assert!(reports.recv().unwrap());
    });
}

#[test]
fn call_that_is_given_up_before_it_begins_does_not_run() {
    on_every_path_with(1, |client, reports| {
        let mut waits = Box::pin(call(client, 3, &[]));
        until_begun(waits.as_mut(), reports);
        // The only thread of the server is in use, so this call waits there.
        let mut queued = Box::pin(call(client, 3, &[]));
        let polls = Cell::new(0);
        block_on(poll_fn(|context| {
            assert!(queued.as_mut().poll(context).is_pending());
            context.waker().wake_by_ref();
            polls.set(polls.get() + 1);
            if polls.get() < 1000 { Poll::Pending } else { Poll::Ready(()) }
        }));
        drop(queued);
        drop(waits);
        assert!(reports.recv().unwrap());
        let half = block_on(call(client, 0, &[Dynamic::U64(6)]));
        assert_eq!(half.unwrap(), Ok(Dynamic::U64(3)));
        assert!(reports.try_recv().is_err(), "the procedure has begun");
    });
}

#[test]
fn call_ends_at_its_time_limit() {
    on_every_path(|client, reports| {
        let client = client.with_limit(Limit::Within(Duration::from_millis(20)));
        // Without a limit, the call would never end. The procedure may notice the end of the time, and return,
        // before the client does.
        match block_on(call(&client, 3, &[])) {
            Err(error) => assert_eq!(error.kind(), Kind::TimedOut),
            Ok(returned) => assert_eq!(returned, Ok(Dynamic::Unit)),
        }
        // The procedure may not have begun.
        let reported: Vec<bool> = reports.try_iter().collect();
        if reported == [false] {
            assert!(reports.recv().unwrap());
        }
    });
}

#[test]
fn oneway_calls_run_before_later_calls() {
    on_every_path(|client, _| {
        let notes = block_on(async {
            for text in ["a", "b", "c"] {
                let noted = call(client, 4, &[Dynamic::Text(text.into())]).await;
                assert_eq!(noted.unwrap(), Ok(Dynamic::Unit));
            }
            call(client, 5, &[]).await.unwrap()
        });
        assert_eq!(notes, Ok(Dynamic::Text("abc".into())));
    });
}

#[test]
fn items_of_streams_arrive() {
    on_every_path(|client, _| {
        let mut items = Vec::new();
        let ended = block_on(client.call_async(
            6,
            &mut [Argument::Sink(Sink::new(|item| items.push(item)))],
            &mut Dynamic::Unit,
        ));
        assert!(ended.unwrap());
        assert_eq!(items, [0, 1, 2].map(Dynamic::U64));
    });
}

#[test]
fn future_may_move_to_another_thread() {
    const fn is_send<F: Send>(future: F) -> F {
        future
    }
    on_every_path(|client, _| {
        let client = client.clone();
        let half = is_send(async move { call(&client, 0, &[Dynamic::U64(8)]).await });
        let half = std::thread::spawn(|| block_on(half)).join().unwrap();
        assert_eq!(half.unwrap(), Ok(Dynamic::U64(4)));
    });
}
