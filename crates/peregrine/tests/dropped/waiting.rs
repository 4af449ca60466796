//! Tests futures that wait for a frame. Some of them are dropped while they wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};

use super::*;
use crate::polls::{Woken, poll_once};

/// A call whose future is polled by hand.
pub(crate) struct Pending {
    call: BoxFuture<'static, peregrine::Result<()>>,
    woken: Arc<Woken>,
}

impl Pending {
    /// Begins a call of `wait`. Polls it until it is pending and was not woken again.
    pub(crate) fn new(client: &FormsAsyncClient, latch: u32, ballast: &'static [u8]) -> Self {
        let client = client.clone();
        let call = async move { client.wait(latch, ballast).await }.boxed();
        let mut pending = Self { call, woken: Woken::new() };
        assert!(!pending.poll(), "the call ended too early");
        while pending.woken.is_woken() {
            assert!(!pending.poll(), "the call ended too early");
        }
        pending
    }

    fn poll(&mut self) -> bool {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.woken.forget();
        poll_once(self.call.as_mut(), &waker).map(Result::unwrap).is_ready()
    }

    /// Polls the call if it was woken. Panics if the call has ended.
    fn poll_if_woken(&mut self) {
        if self.woken.is_woken() {
            assert!(!self.poll(), "the call ended too early");
        }
    }

    pub(crate) fn poll_to_end(&mut self) {
        until("the call ends", || self.woken.is_woken() && self.poll());
    }
}

/// Polls the calls that were woken, until `count` procedures run.
fn runs(pair: &Pair, calls: &mut [Pending], count: u32) {
    until("the procedures run", || {
        calls.iter_mut().for_each(Pending::poll_if_woken);
        pair.seen.running() == count
    });
}

/// Returns a server and its client over the local path. The client has `frames` frames, and its callers do
/// not spin.
fn local(is_async: bool, frames: u32) -> Pair {
    Pair::new("local", is_async, &Pair::options(frames).wait(Wait::Block))
}

#[test]
fn each_waiting_future_gets_a_frame_that_the_server_releases_silently() {
    let _alone = alone();
    let _directory = support::own_directory();
    let pair = local(false, 2);
    let (client, seen) = (&pair.client, &pair.seen);
    let mut dropped = [1, 2].map(|latch| Pending::new(client, latch, ALONE));
    runs(&pair, &mut dropped, 2);
    drop(dropped);
    // The dropped calls' procedures still run, so the server keeps both frames.
    let mut waiting = [3, 4].map(|latch| Pending::new(client, latch, ALONE));
    let mut begins = |latch| {
        until("a waiting future gets a frame", || {
            waiting.iter_mut().for_each(Pending::poll_if_woken);
            seen.state.lock().unwrap().begun.contains(&latch)
        });
    };
    seen.open(1);
    begins(3);
    // Call 3 keeps its frame, so call 4 needs the frame of call 2.
    seen.open(2);
    begins(4);
    seen.open(3);
    seen.open(4);
    block_on(join_all(waiting.map(|pending| pending.call))).into_iter().for_each(Result::unwrap);
    pair.check();
}

#[test]
fn futures_that_are_dropped_in_the_queue_keep_no_frame() {
    Pair::each(|pair, is_async| {
        if !is_async && pair.running.is_none() {
            // A blocking procedure within the process would block the thread of the test.
            return;
        }
        let (client, seen) = (&pair.client, &pair.seen);
        for round in 0..30 {
            let latch = 10 * round;
            let new = |latch| Pending::new(client, latch, ALONE);
            let mut held: Vec<_> = (0..FRAMES).map(|_| new(latch)).collect();
            runs(pair, &mut held, FRAMES);
            let mut queue: Vec<_> = (0..6).map(|_| Some(new(latch + 1))).collect();
            // Some futures are dropped while they wait, and some after they were woken.
            let dropped = [round % 6, (round / 2) % 6, (round / 3) % 6];
            queue[dropped[0] as usize] = None;
            seen.open(latch);
            block_on(join_all(held.into_iter().map(|held| held.call)));
            queue[dropped[1] as usize] = None;
            queue[dropped[2] as usize] = None;
            seen.open(latch + 1);
            let left = queue.into_iter().flatten().map(|pending| pending.call);
            block_on(join_all(left)).into_iter().for_each(Result::unwrap);
            pair.runs(0);
        }
        pair.check();
    });
}

#[test]
fn neither_threads_nor_futures_keep_all_frames_to_themselves() {
    Pair::each(|pair, _| {
        let (client, ends) = (&pair.client.with_timeout(LONG), &AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                let blocking = FormsClient::from(client.clone());
                scope.spawn(move || {
                    while !ends.load(Ordering::Relaxed) {
                        blocking.values(1, &2).expect("a thread gets a frame");
                    }
                });
            }
            let tasks: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        block_on(async {
                            for _ in 0..20 {
                                let calls = (0..4).map(|_| client.values(3, &4));
                                for sum in join_all(calls).await {
                                    assert_eq!(sum.expect("a future gets a frame"), 7);
                                }
                            }
                        });
                    })
                })
                .collect();
            let ended: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
            ends.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|ended| ended.expect("the futures end"));
        });
    });
}

#[test]
fn calls_that_procedures_make_do_not_wait_for_their_callers() {
    let _alone = alone();
    let _directory = support::own_directory();
    for path in ["in process", "local"] {
        let options = BindOptions::default().astacks(FRAMES);
        let pair = Pair::new(path, true, &options.on_exhausted(OnExhausted::More));
        pair.seen.change(|state| state.client = Some(pair.client.clone()));
        let depth = 3 * FRAMES;
        let nested = block_on(pair.client.with_timeout(LONG).nest(depth));
        pair.seen.change(|state| state.client = None);
        assert_eq!(nested.expect("nested calls have frames"), depth);
    }
}

#[test]
fn procedures_of_a_thousand_calls_that_are_dropped_at_once_are_dropped() {
    const CALLS: u32 = 1000;
    let _alone = alone();
    let _directory = support::own_directory();
    for (path, ballast) in [("in process", &[][..]), ("local", ALONE), ("local", &[])] {
        println!("{path}, {} bytes", ballast.len());
        let pair = Pair::new(path, true, &Pair::options(CALLS));
        for round in 0..2 {
            let new = |_| Pending::new(&pair.client, round, ballast);
            let mut calls: Vec<_> = (0..CALLS).map(new).collect();
            runs(&pair, &mut calls, CALLS);
            drop(calls);
            pair.runs(0);
        }
        pair.check();
    }
}
