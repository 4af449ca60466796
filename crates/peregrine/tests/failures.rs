//! What a call says when it fails: deadlines, overload, withdrawal, forks, differing interfaces.

mod support;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use peregrine::{
    BindOptions, Executed, Kind, OnExhausted, Phase, Running, Server, Wait, interface,
};

#[interface]
trait Gate {
    /// Returns at once.
    fn pass(&self, x: u32) -> peregrine::Result<u32>;
    /// Says that it has come, and waits until it is let through.
    fn wait(&self, x: u32) -> peregrine::Result<u32>;
}

/// A gate whose keeper is the test.
struct Guarded {
    came: Mutex<Sender<u32>>,
    open: Mutex<Receiver<()>>,
}

impl Gate for Guarded {
    fn pass(&self, x: u32) -> peregrine::Result<u32> {
        Ok(x)
    }
    fn wait(&self, x: u32) -> peregrine::Result<u32> {
        self.came.lock().unwrap().send(x).unwrap();
        let _ = self.open.lock().unwrap().recv_timeout(3 * LIMIT);
        Ok(x)
    }
}

struct Test {
    came: Receiver<u32>,
    open: Sender<()>,
    running: Running,
    _directory: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

const LIMIT: Duration = Duration::from_secs(10);

impl Test {
    fn start(configure: impl FnOnce(Server) -> Server) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = support::own_directory();
        let ((came_to, came), (open, open_from)) = (channel(), channel());
        let gate = Guarded { came: Mutex::new(came_to), open: Mutex::new(open_from) };
        let server = configure(Server::new()).export("gate", GateServer::new(gate)).unwrap();
        let running = server.spawn().unwrap();
        Self { came, open, running, _directory: directory, _alone: alone }
    }

    /// Returns when a call has been given up, after `limit`, that runs. (On a machine that is late its
    /// time may be up before it begins; then it does not.)
    fn gives_up_inside(&self, hasty: &GateClient, limit: Duration) {
        let until = Instant::now() + LIMIT;
        loop {
            let start = Instant::now();
            let error = hasty.wait(1).unwrap_err();
            assert!(start.elapsed() >= limit);
            assert_eq!(error.kind(), Kind::TimedOut, "{error}");
            if let Ok(number) = self.came.recv_timeout(10 * limit) {
                assert_eq!((number, error.executed()), (1, Executed::Maybe), "{error}");
                return;
            }
            assert!(Instant::now() < until, "it never ran");
        }
    }
}

#[test]
fn a_deadline_ends_the_wait_and_the_a_stack_comes_back() {
    let test = Test::start(|server| server);
    for wait in [Wait::Adaptive, Wait::Block, Wait::Spin] {
        let options = BindOptions::default().astacks(1).wait(wait);
        let gate = GateClient::bind_with("gate", &options).unwrap();
        let hasty = gate.with_timeout(Duration::from_millis(30));
        test.gives_up_inside(&hasty, Duration::from_millis(30));

        // The only A-stack is captured: nobody else can call, and that is certain.
        let error = hasty.pass(2).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        assert_eq!(error.phase(), Phase::Marshal);
        // The server lets go, and its late answer is nobody else's.
        test.open.send(()).unwrap();
        assert_eq!(gate.pass(3).unwrap(), 3);
        for x in 0..100 {
            assert_eq!(gate.pass(x).unwrap(), x);
        }
        // What nobody would wait for is not sent.
        let error = gate.with_deadline(Instant::now()).wait(4).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::No), "{error}");
        assert_eq!(gate.pass(5).unwrap(), 5);
        assert!(test.came.try_recv().is_err());
    }
}

#[test]
fn overload_is_refused_as_not_executed_and_passes() {
    let test = Test::start(|server| server.threads(1).queue(1));
    let gate = GateClient::bind("gate").unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| gate.wait(1));
        assert_eq!(test.came.recv_timeout(LIMIT), Ok(1));
        // The only thread is busy: one more call waits, the next ones are refused.
        // (If the other caller is first in the queue, this one is refused, and tries again.)
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
                Ok(_) => panic!("a call went through one thread that is busy"),
            }
            assert!(Instant::now() < until, "nobody was refused");
        };
        assert_eq!(refused.executed(), Executed::No);
        test.open.send(()).unwrap();
        test.open.send(()).unwrap();
        assert_eq!(first.join().unwrap().unwrap(), 1);
        assert_eq!(queued.join().unwrap().unwrap(), 2);
    });
    let until = Instant::now() + LIMIT;
    while gate.pass(4).is_err() {
        assert!(Instant::now() < until, "the overload does not pass");
    }
}

#[test]
fn few_threads_serve_many_a_stacks_in_turn() {
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
fn more_threads_than_a_stacks_take_turns() {
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
fn who_finds_no_a_stack_waits_or_makes_more() {
    let test = Test::start(|server| server);
    for short in [OnExhausted::Wait, OnExhausted::More] {
        let options = BindOptions::default().astacks(1).on_exhausted(short);
        let gate = GateClient::bind_with("gate", &options).unwrap();
        let hasty = gate.with_timeout(Duration::from_millis(30));
        std::thread::scope(|scope| {
            let first = scope.spawn(|| gate.wait(1));
            assert_eq!(test.came.recv_timeout(LIMIT), Ok(1));
            // The only A-stack is taken.
            match short {
                OnExhausted::More => assert_eq!(gate.pass(2).unwrap(), 2),
                _ => assert_eq!(hasty.pass(2).unwrap_err().executed(), Executed::No),
            }
            test.open.send(()).unwrap();
            assert_eq!(first.join().unwrap().unwrap(), 1);
        });
        // Calls that are given up keep theirs until they end.
        for x in [3, 4, 5].into_iter().filter(|_| short == OnExhausted::More) {
            assert_eq!(hasty.wait(x).unwrap_err().executed(), Executed::Maybe);
            assert_eq!(gate.pass(x).unwrap(), x);
        }
    }
    (0..3).for_each(|_| test.open.send(()).unwrap());
}

#[test]
fn a_stopped_server_says_goodbye() {
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
        assert!(Instant::now() < until, "the goodbye never came");
    }
    let error = GateClient::bind("gate").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
}

#[test]
fn stopping_waits_for_what_runs_and_refuses_what_waits() {
    let Test { came, open, running, _directory, _alone } = Test::start(|server| server.threads(1));
    let gate = Arc::new(GateClient::bind("gate").unwrap());
    let inside = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.wait(1)
    });
    assert_eq!(came.recv_timeout(LIMIT), Ok(1));
    let waits = std::thread::spawn({
        let gate = Arc::clone(&gate);
        move || gate.pass(2)
    });
    std::thread::sleep(Duration::from_millis(20));
    let stopping = std::thread::spawn(move || running.stop());
    let error = waits.join().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Withdrawn, Executed::No), "{error}");
    // The name goes first, and whoever comes now need not wait for those inside.
    let error = GateClient::bind("gate").unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound, "{error}");
    open.send(()).unwrap();
    assert_eq!(inside.join().unwrap().unwrap(), 1);
    stopping.join().unwrap();
}

#[test]
fn a_forked_child_does_not_execute() {
    let _test = Test::start(|server| server);
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    // SAFETY: the child only calls, which fails before it could touch anything, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = gate
            .pass(2)
            .is_err_and(|error| error.kind() == Kind::Forked && error.executed() == Executed::No);
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(if forked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
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
fn differing_interfaces_are_told_apart_at_bind_time() {
    let _test = Test::start(|server| server);
    let error = other::GateClient::bind("gate").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::InterfaceMismatch, Phase::Bind), "{error}");
    let text = error.to_string();
    let said = "procedure `pass`, parameter `x`: ours is `u64`, the server's is `u32`";
    assert!(text.contains(said), "{text}");
    let error = GateClient::bind("nobody").unwrap_err();
    assert_eq!((error.kind(), error.phase()), (Kind::NotFound, Phase::Resolve), "{error}");
    assert!(error.to_string().contains("nobody"), "{error}");
    let error = GateClient::bind("../gate").unwrap_err();
    assert_eq!(error.kind(), Kind::BadName, "{error}");
}

#[test]
fn a_forked_child_may_do_as_the_error_advises() {
    let test = Test::start(|server| server);
    let mut gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
    // SAFETY: the child uses nothing that another thread of its parent may have locked.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // What is bound now may lie where the inherited binding's memory was.
        let new: Result<Vec<_>, _> = (0..8).map(|_| GateClient::bind("gate")).collect();
        let worked = new.is_ok_and(|new| {
            drop(core::mem::replace(&mut gate, new[0].clone()));
            new.iter().all(|gate| gate.pass(2).is_ok_and(|x| x == 2))
        });
        // A child that drops its parent's server takes nothing from it.
        drop(test);
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(if worked { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child could not bind again");
    assert_eq!(gate.pass(3).unwrap(), 3);
}

#[test]
fn two_calls_that_ring_at_once_get_two_threads() {
    for round in 0..12 {
        let test = Test::start(|server| server);
        // One thread comes, and is idle again.
        GateClient::bind("gate").unwrap().pass(0).unwrap();
        let until = Instant::now() + LIMIT;
        while peregrine::describe("gate").unwrap().bindings > 0 {
            assert!(Instant::now() < until, "the first session stays");
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
            // Both must be inside before either is let out.
            let came = [(); 2].map(|()| test.came.recv_timeout(LIMIT));
            test.open.send(()).unwrap();
            test.open.send(()).unwrap();
            for call in calls {
                call.join().unwrap().unwrap();
            }
            assert!(came.iter().all(Result::is_ok), "one of two calls was stranded, round {round}");
        });
    }
}

#[test]
fn a_result_that_was_posted_before_the_goodbye_is_a_result() {
    for _ in 0..40 {
        let Test { came, open, running, _directory, _alone } = Test::start(|server| server);
        let gate = GateClient::bind("gate").unwrap();
        let call = std::thread::spawn(move || gate.wait(5));
        assert_eq!(came.recv_timeout(LIMIT), Ok(5));
        let stopping = std::thread::spawn(move || running.stop());
        open.send(()).unwrap();
        assert_eq!(call.join().unwrap().expect("the procedure ran and answered"), 5);
        stopping.join().unwrap();
    }
}

#[test]
fn a_queue_of_none_still_serves_what_threads_can() {
    let _test = Test::start(|server| server.queue(0).threads(2));
    let gate = GateClient::bind("gate").unwrap();
    assert_eq!(gate.pass(1).unwrap(), 1);
}

#[test]
fn limits_beyond_the_clock_are_limits() {
    let _test = Test::start(|server| server);
    let options = BindOptions::default().bind_timeout(Duration::MAX).timeout(Duration::MAX);
    assert_eq!(GateClient::bind_with("gate", &options).unwrap().pass(1).unwrap(), 1);
}

#[test]
fn a_client_cannot_take_more_memory_than_the_interface_needs() {
    let _test = Test::start(|server| server);
    let options = BindOptions::default().message_bytes(256 << 20);
    let error = GateClient::bind_with("gate", &options).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No), "{error}");
}
