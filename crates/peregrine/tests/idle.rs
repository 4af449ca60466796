//! Checks that an idle server uses no processor time.

mod services;
mod support;

use std::time::Duration;

use peregrine::{Server, sys};
use services::{Nothing, Null, NullClient, NullServer};
use support::{Process, alone, role};

/// Runs the server as a child process. In the test run itself, this function does nothing.
#[test]
fn child() {
    if let Some(role) = role() {
        if role == "old" {
            support::without_system_call(libc::SYS_futex_waitv);
        }
        let running = Server::new().export("null", NullServer::new(Nothing)).unwrap().spawn();
        println!("\nready");
        running.unwrap().wait();
    }
}

/// Returns the total processor time of all threads of a process, and how often these threads were scheduled.
fn ran(pid: u32) -> (Duration, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all = tasks.filter_map(|task| {
        // A thread may have ended meanwhile. Such a thread is not counted.
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap());
        let (ran, _waited, times) = (numbers.next(), numbers.next(), numbers.next());
        Some((ran?, times?))
    });
    let (ran, times) = all.fold((0, 0), |(ran, times), one| (ran + one.0, times + one.1));
    (Duration::from_nanos(ran), times)
}

#[test]
fn idle_server_does_not_run() {
    let _alone = alone();
    check_idle("new");
}

/// Before Linux 5.16, a thread can wait on only one futex word. There, too, an idle server must sleep.
#[test]
fn idle_server_does_not_run_where_threads_wait_on_one_word_only() {
    let _alone = alone();
    check_idle("old");
}

/// If the server shares its only processor with its callers, it gives the processor up while it waits for a call.
/// It must not do so for ever.
#[test]
fn idle_server_on_the_processor_of_its_callers_does_not_run() {
    let _alone = alone();
    let shared = std::thread::spawn(|| {
        // The child inherits the processor.
        sys::pin_to(sys::current_cpu()).unwrap();
        check_idle("shared");
    });
    shared.join().unwrap();
}

fn check_idle(kernel: &str) {
    let directory = support::own_directory();
    let server = Process::start("child", kernel, directory.path());
    let clients: Vec<_> = (0..4).map(|_| NullClient::bind("null").unwrap()).collect();
    for _ in 0..1000 {
        clients.iter().for_each(|client| client.null().unwrap());
    }
    // At first, the server polls for a moment, or for longer on a slow machine. Then the server sleeps,
    // although clients are bound. If something woke the server without need, it would do so every second. So
    // one second without a wake-up suffices.
    std::thread::sleep(Duration::from_millis(300));
    let mut seconds = Vec::new();
    while seconds.iter().all(|(times, _)| *times > 2) {
        assert!(
            seconds.len() < 6,
            "the idle server ran too often: (times, processor time) per second: {seconds:?}"
        );
        let (before, times_before) = ran(server.id());
        std::thread::sleep(Duration::from_millis(1000));
        let (after, times_after) = ran(server.id());
        seconds.push((times_after.saturating_sub(times_before), after.saturating_sub(before)));
    }
    clients.iter().for_each(|client| client.null().unwrap());
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| (0..1000).for_each(|_| client.null().unwrap()));
        }
    });
}
