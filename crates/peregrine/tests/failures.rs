//! Tests how calls fail: deadlines, overload, withdrawal, forks, incompatible interfaces.

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use peregrine::{
    BindOptions, Executed, Kind, OnExhausted, Phase, Running, Server, Wait, interface,
};

#[interface]
trait Gate {
    /// Returns at once.
    fn pass(&self, x: u32) -> peregrine::Result<u32>;
    /// Reports that it has begun, and waits until the test lets it return.
    fn wait(&self, x: u32) -> peregrine::Result<u32>;
}

/// A gate that the test opens.
struct Guarded {
    entered: Mutex<Sender<u32>>,
    open: Mutex<Receiver<()>>,
}

impl Gate for Guarded {
    fn pass(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
    fn wait(&self, x: u32) -> peregrine::Result<u32> {
        self.entered.lock().unwrap().send(x).unwrap();
        let _ = self.open.lock().unwrap().recv_timeout(3 * LIMIT);
        Ok(x)
    }
}

struct Test {
    entered: Receiver<u32>,
    open: Sender<()>,
    running: Running,
    _directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

const LIMIT: Duration = Duration::from_secs(10);

impl Test {
    fn start(configure: impl FnOnce(Server) -> Server) -> Self {
        let alone = support::alone();
        let directory = support::own_directory();
        let ((report, entered), (open, open_from)) = (channel(), channel());
        let gate = Guarded { entered: Mutex::new(report), open: Mutex::new(open_from) };
        let server = configure(Server::new()).export("gate", GateServer::new(gate)).unwrap();
        let running = server.spawn().unwrap();
        Self { entered, open, running, _directory: directory, _alone: alone }
    }

    /// Makes a call that is given up after `limit`, while its procedure runs. On a slow machine, the limit
    /// may pass before the procedure runs. The server then does not run the call, and the call is repeated.
    fn give_up_inside(&self, impatient: &GateClient, limit: Duration) {
        let until = Instant::now() + LIMIT;
        loop {
            let start = Instant::now();
            let error = impatient.wait(1).unwrap_err();
            assert!(start.elapsed() >= limit);
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
            if let Ok(number) = self.entered.recv_timeout(10 * limit) {
                assert_eq!((number, error.executed()), (1, Executed::Maybe), "{error}");
                return;
            }
            assert!(Instant::now() < until, "the call never ran");
        }
    }
}

#[test]
fn deadline_ends_the_wait_and_the_a_stack_is_released_later() {
    let test = Test::start(|server| server);
    for wait in [Wait::Adaptive, Wait::Block, Wait::Spin] {
        let options = BindOptions::default().astacks(1).wait(wait);
        let gate = GateClient::bind_with("gate", &options).unwrap();
        let impatient = gate.with_timeout(Duration::from_millis(30));
        test.give_up_inside(&impatient, Duration::from_millis(30));

        // The procedure of the earlier call still occupies the only A-stack (call frame), so no other call
        // can begin. The call `pass(2)` is reported as not executed.
        let error = impatient.pass(2).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        assert_eq!(error.phase(), Phase::Marshal);
        // When the procedure ends, the server releases the A-stack. The late answer is not given to another
        // call.
        test.open.send(()).unwrap();
        assert_eq!(gate.pass(3).unwrap(), 3);
        for x in 0..100 {
            assert_eq!(gate.pass(x).unwrap(), x);
        }
        // A call whose deadline has passed is not sent.
        let error = gate.with_deadline(Instant::now()).wait(4).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        assert_eq!(gate.pass(5).unwrap(), 5);
        assert!(test.entered.try_recv().is_err());
    }
}

#[test]
fn overload_is_refused_as_not_executed_and_is_temporary() {
    let test = Test::start(|server| server.threads(1).queue(1));
    let gate = GateClient::bind("gate").unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| gate.wait(1));
        assert_eq!(test.entered.recv_timeout(LIMIT), Ok(1));
        // The only thread is busy: one more call waits, and further calls are refused. If the call `pass(3)`
        // below takes the place in the queue, the call `wait(2)` is refused and repeated.
        let queued = scope.spawn(|| {
            loop {
                match gate.wait(2) {
                    Err(error) if error.kind() == Kind::Overloaded => {}
                    result => break result,
                }
            }
        });
        let until = Instant::now() + LIMIT;
        let refused = loop {
            match gate.with_timeout(Duration::from_millis(50)).pass(3) {
                Err(error) if error.kind() == Kind::Overloaded => break error,
                Err(error) => assert_eq!(error.kind(), Kind::TimedOut, "{error}"),
                Ok(_) => panic!("a call returned although the only thread is busy"),
            }
            assert!(Instant::now() < until, "no call was refused");
        };
        assert_eq!(refused.executed(), Executed::No);
        test.open.send(()).unwrap();
        test.open.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap(), 1);
        assert_eq!(queued.join().unwrap().unwrap(), 2);
    });
    let until = Instant::now() + LIMIT;
    while gate.pass(4).is_err() {
        assert!(Instant::now() < until, "the overload does not end");
    }
}

#[test]
fn two_threads_serve_sixteen_a_stacks() {
    let test = Test::start(|server| server.threads(2));
    let gate = GateClient::bind_with("gate", &BindOptions::default().astacks(16)).unwrap();
    let start = Barrier::new(16);
    std::thread::scope(|scope| {
        for thread in 0..16u32 {
            let (gate, start) = (&gate, &start);
            scope.spawn(move || {
                start.wait();
                for x in 0..300 {
                    assert_eq!(gate.pass(thread << 16 | x).unwrap(), thread << 16 | x);
                }
            });
        }
    });
    assert!(test.running.threads() <= 2);
}

#[test]
fn eight_threads_share_two_a_stacks() {
    let _test = Test::start(|server| server);
    let gate = GateClient::bind_with("gate", &BindOptions::default().astacks(2)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u32 {
            let gate = &gate;
            scope.spawn(move || {
                for x in 0..500 {
                    assert_eq!(gate.pass(thread << 16 | x).unwrap(), thread << 16 | x);
                }
            });
        }
    });
}

#[test]
fn call_without_free_a_stack_waits_or_makes_more() {
    let test = Test::start(|server| server);
    for exhausted in [OnExhausted::Wait, OnExhausted::More] {
        let options = BindOptions::default().astacks(1).on_exhausted(exhausted);
        let gate = GateClient::bind_with("gate", &options).unwrap();
        let impatient = gate.with_timeout(Duration::from_millis(30));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| gate.wait(1));
            assert_eq!(test.entered.recv_timeout(LIMIT), Ok(1));
            // The only A-stack is in use.
            match exhausted {
                OnExhausted::More => assert_eq!(gate.pass(2).unwrap(), 2),
                _ => assert_eq!(impatient.pass(2).unwrap_err().executed(), Executed::No),
            }
            test.open.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), 1);
        });
        // Calls that are given up keep their A-stacks until their procedures end.
        for x in [3, 4, 5].into_iter().filter(|_| exhausted == OnExhausted::More) {
            assert_eq!(impatient.wait(x).unwrap_err().executed(), Executed::Maybe);
            assert_eq!(gate.pass(x).unwrap(), x);
        }
    }
    (0..3).for_each(|_| test.open.send(()).unwrap());
}

#[test]
fn stopped_server_notifies_its_clients() {
    let Test { running, _directory, _alone, .. } = Test::start(|server| server);
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    running.stop();
    let until = Instant::now() + LIMIT;
    loop {
        let error = gate.pass(2).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No), "{error}");
        if !gate.is_alive() {
            break;
        }
        assert!(Instant::now() < until, "the client is not notified");
    }
    let error = GateClient::bind("gate").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[test]
fn stopping_server_waits_for_running_calls_and_refuses_waiting_ones() {
    let Test { entered, open, running, _directory, _alone } =
        Test::start(|server| server.threads(1));
    let gate = Arc::new(GateClient::bind("gate").unwrap());
    let inside = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.wait(1)
    });
    assert_eq!(entered.recv_timeout(LIMIT), Ok(1));
    let waits = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.pass(2)
    });
    std::thread::sleep(Duration::from_millis(20));
    let stopping = std::thread::spawn(move || running.stop());
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No), "{error}");
    // A stopping server first removes the names of its exports, so a new client does not wait for the
    // running call.
    let error = GateClient::bind("gate").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    open.send(()).unwrap();
    assert_eq!(inside.join().unwrap().unwrap(), 1);
    stopping.join().unwrap();
}

#[test]
fn call_in_a_forked_child_is_not_executed() {
    let _test = Test::start(|server| server);
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    // SAFETY: the child makes one call, which fails before it uses anything that another thread may have
    // locked. Then the child exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = gate
            .pass(2)
            .is_err_and(|error| error.kind() == Kind::Forked && error.executed() == Executed::No);
        // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
        unsafe { libc::_exit(if forked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the kernel writes one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's call was not refused as forked");
    assert_eq!(gate.pass(3).unwrap(), 3);
}

mod other {
    use super::interface;

    #[interface]
    pub(crate) trait Gate {
        fn pass(&self, x: u64) -> peregrine::Result<u64>;
        fn wait(&self, x: u32) -> peregrine::Result<u32>;
    }
}

#[test]
fn incompatible_interface_is_reported_at_bind_time() {
    let _test = Test::start(|server| server);
    let error = other::GateClient::bind("gate").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::InterfaceMismatch, Phase::Bind), "{error}");
    let text = error.to_string();
    let difference = "procedure `pass`, parameter `x`: ours is `u64`, the server's is `u32`";
    assert!(text.contains(difference), "{text}");
    let error = GateClient::bind("unknown").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::NotFound, Phase::Resolve), "{error}");
    assert!(error.to_string().contains("unknown"), "{error}");
    let error = GateClient::bind("../gate").unwrap_err();
    assert_eq!(error.kind(), Kind::BadName, "{error}");
}

#[test]
fn forked_child_can_bind_anew() {
    let test = Test::start(|server| server);
    let mut gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    // SAFETY: the child uses nothing that another thread of its parent may have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // The memory of a new binding may be mapped at the addresses at which the inherited binding's memory
        // was mapped. Dropping the inherited binding must not harm the new one.
        let new: Result<Vec<_>, _> = (0..8).map(|_| GateClient::bind("gate")).collect();
        let worked = new.is_ok_and(|new| {
            drop(core::mem::replace(&mut gate, new[0].clone()));
            new.iter().all(|gate| gate.pass(2).is_ok_and(|x| x == 2))
        });
        // Dropping the inherited server in the child does not stop the parent's server.
        drop(test);
        // SAFETY: `_exit` ends the child at once, and runs no exit handlers or destructors.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and the kernel writes one status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could not bind again");
    assert_eq!(gate.pass(3).unwrap(), 3);
}

#[test]
fn two_calls_that_ring_at_once_get_two_threads() {
    for round in 0..12 {
        let test = Test::start(|server| server);
        // This call starts one thread of the server, which becomes idle again.
        GateClient::bind("gate").unwrap().pass(0).unwrap();
        let until = Instant::now() + LIMIT;
        while peregrine::describe("gate").unwrap().bindings > 0 {
            assert!(Instant::now() < until, "the first session remains");
        }
        let gate = GateClient::bind("gate").unwrap();
        let together = Barrier::new(2);
        std::thread::scope(|scope| {
            let calls = [1, 2].map(|x| {
                let (gate, together) = (&gate, &together);
                scope.spawn(move || {
                    together.wait();
                    gate.wait(x)
                })
            });
            // Both procedures must run before either call returns.
            let entered = [(); 2].map(|()| test.entered.recv_timeout(LIMIT));
            test.open.send(()).unwrap();
            test.open.send(()).unwrap();
            for call in calls {
                call.join().unwrap().unwrap();
            }
            assert!(
                entered.iter().all(Result::is_ok),
                "one of two calls did not run, round {round}"
            );
        });
    }
}

#[test]
fn result_posted_before_the_server_stops_is_returned() {
    for _ in 0..40 {
        let Test { entered, open, running, _directory, _alone } = Test::start(|server| server);
        let gate = GateClient::bind("gate").unwrap();
        let call = std::thread::spawn(move || gate.wait(5));
        assert_eq!(entered.recv_timeout(LIMIT), Ok(5));
        let stopping = std::thread::spawn(move || running.stop());
        open.send(()).unwrap();
        assert_eq!(call.join().unwrap().expect("the procedure ran and answered"), 5);
        stopping.join().unwrap();
    }
}

#[test]
fn server_without_a_queue_serves_calls_up_to_its_threads() {
    let _test = Test::start(|server| server.queue(0).threads(2));
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
}

#[test]
fn timeouts_beyond_the_range_of_the_clock_are_accepted() {
    let _test = Test::start(|server| server);
    let options = BindOptions::default().bind_timeout(Duration::MAX).timeout(Duration::MAX);
    assert_eq!(GateClient::bind_with("gate", &options).unwrap().pass(1).unwrap(), 1);
}

#[test]
fn client_cannot_take_more_memory_than_the_interface_needs() {
    let _test = Test::start(|server| server);
    let options = BindOptions::default().message_bytes(256 << 20);
    let error = GateClient::bind_with("gate", &options).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No), "{error}");
}
