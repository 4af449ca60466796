//! A server with nothing to do costs nothing.

mod services;
mod support;

use std::time::Duration;

use peregrine::Server;
use services::{Nothing, Null, NullClient, NullServer};
use support::{Part, alone, part};

/// The server; in the test itself this does nothing.
#[test]
fn child() {
    if let Some(part) = part() {
        if part == "old" {
            support::without_system_call(libc::SYS_futex_waitv);
        }
        let running = Server::new().export("null", NullServer::new(Nothing)).unwrap().spawn();
        println!("\nready");
        running.unwrap().wait();
    }
}

/// Processor time of all threads of a process, and how often any of them was switched to.
fn ran(pid: u32) -> (Duration, u64) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let all = tasks.filter_map(|task| {
        // One that has ended meanwhile runs no more.
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().unwrap());
        let (ran, _waited, times) = (numbers.next(), numbers.next(), numbers.next());
        Some((ran?, times?))
    });
    let (ran, times) = all.fold((0, 0), |(ran, times), one| (ran + one.0, times + one.1));
    (Duration::from_nanos(ran), times)
}

#[test]
fn a_server_that_is_not_called_does_not_run() {
    let _alone = alone();
    does_not_run("new");
}

/// Before Linux 5.16 a thread can sleep on one word only.
#[test]
fn nor_does_it_where_threads_cannot_sleep_on_many_words() {
    let _alone = alone();
    does_not_run("old");
}

fn does_not_run(kernel: &str) {
    let directory = support::own_directory();
    let server = Part::start("child", kernel, directory.path());
    let clients: Vec<_> = (0..4).map(|_| NullClient::bind("null").unwrap()).collect();
    for _ in 0..1000 {
        clients.iter().for_each(|client| client.null().unwrap());
    }
    // It looks on for a moment, which is longer on a machine that is late; then it sleeps, bound though
    // it is. One that is woken again and again is so in each second.
    std::thread::sleep(Duration::from_millis(300));
    let mut seconds = Vec::new();
    while seconds.iter().all(|(times, _)| *times > 2) {
        assert!(seconds.len() < 6, "woken so often in a second, and ran so long: {seconds:?}");
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
