//! Hostile clients on the local path, as real processes, each with one trick. Honest clients are
//! answered promptly while it goes on.

mod attack;
mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attack::trickle::{What, trickle};
use attack::vault::{Honest, VaultClient, VaultServer, check};
use attack::wire::Session;
use attack::{no_longer_than, stop, stopped};
use peregrine::Server;
use support::{Part, part};

/// A call that takes longer was kept waiting. Generous: tests run on busy machines.
const PROMPT: Duration = Duration::from_secs(2);
/// How long the clients trickle.
const ATTACK: Duration = Duration::from_secs(5);

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    let Some(part) = part() else { return };
    no_longer_than(Duration::from_secs(50));
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").expect("set by the test"));
    let words: Vec<&str> = part.split(' ').collect();
    match words[0] {
        "server" => {
            let server = Server::new().export("vault", VaultServer::new(Honest)).unwrap();
            let running = server.spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        // Calls until the test says stop; prints how many calls there were, and the longest in ms.
        "client" => {
            let vault = VaultClient::bind("vault").unwrap();
            println!("\nready");
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while !stopped(&directory) {
                let begun = Instant::now();
                check(&vault, calls).expect("an honest call to an honest server");
                longest = longest.max(begun.elapsed());
                calls += 1;
            }
            println!("\ncalls {calls}\nlongest {}", longest.as_millis());
        }
        "trickle" => {
            println!("\nready");
            let what = if words[1] == "lent" { What::Lent } else { What::Copied };
            let until = Instant::now() + ATTACK;
            let [answered, run] = trickle(&directory, 70, what, until);
            println!("\nanswered {answered}\nrun {run}");
        }
        other => panic!("nobody knows how to play `{other}`"),
    }
}

fn number(part: &mut Part, what: &str) -> u64 {
    part.until(what).parse().expect("a number")
}

/// 70 sessions of one process, a byte every 3 ms in each: more than the server has threads.
fn trickling(what: &str) -> [u64; 2] {
    let directory = tempfile::tempdir().unwrap();
    let start = |what: &str| Part::start("child", what, directory.path());
    let _server = start("server");
    let mut honest = start("client");
    let mut canary = Session::new(directory.path(), "vault", 1).expect("a session");
    let mut hostile = start(&format!("trickle {what}"));
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    while begun.elapsed() < ATTACK {
        let begun = Instant::now();
        assert_eq!(canary.ping(0, PROMPT), Some(0), "no thread answers an honest client");
        longest = longest.max(begun.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    let counts = ["answered", "run"].map(|what| number(&mut hostile, what));
    stop(directory.path());
    let (calls, worst) = (number(&mut honest, "calls"), number(&mut honest, "longest"));
    println!("{counts:?} hostile calls; {calls} honest calls took {worst} ms, pings {longest:?}");
    assert!(u128::from(worst) < PROMPT.as_millis(), "an honest call took {worst} ms");
    counts
}

#[test]
fn trickled_arguments_hold_no_threads() {
    let [answered, run] = trickling("copied");
    assert!(answered > 0, "the server never gave up waiting");
    assert_eq!(run, 0, "a call ran whose arguments had not come");
}

#[test]
fn trickled_buffers_hold_no_procedures() {
    let [answered, _] = trickling("lent");
    assert!(answered > 0, "no procedure ever gave up waiting");
}
