//! Calls that other processes make, and how what became of them is told here.

use std::io::BufRead as _;

use peregrine::CallError;
use peregrine::Executed::{Maybe, No};

use super::cases::{LONG, plain};
use super::document::{self, Cell};
use super::subject::{Subject as _, SubjectClient};
use super::support::Part;
use super::world::World;

/// What became of a call, in a line: `returned`, or whether it ran, the kind and the text.
fn told<T>(outcome: &Result<T, CallError>) -> String {
    match outcome {
        Ok(_) => "returned".to_owned(),
        Err(error) => {
            let text = error.chain().replace(['\n', '\t'], " ");
            format!("{:?}\t{:?}\t{text}", error.executed(), error.kind())
        }
    }
}

/// The other way round.
fn understood(line: &str) -> Cell {
    let parts: Vec<&str> = line.split('\t').collect();
    match parts[..] {
        ["returned"] => Cell::Returned,
        [executed, kind, text] => Cell::Failed {
            executed: if executed == "No" { No } else { Maybe },
            kind: kind.to_owned(),
            text: document::plain(text),
        },
        _ => panic!("a child has told nothing: {line}"),
    }
}

/// The client of this process: binds, calls when it is told to, and tells what became of that.
pub(crate) fn call(address: &str) {
    let client = SubjectClient::bind_with(address, &plain()).expect("a binding");
    assert_eq!(client.echo(7).expect("a result"), 7);
    println!("\nbound");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a test");
    println!("\noutcome {}", told(&client.wait(LONG)));
}

/// What became of the call of a [client elsewhere](World::client_elsewhere).
pub(crate) fn outcome(client: &mut Part) -> Cell {
    understood(&client.until("outcome "))
}

/// Whether a connection of a process, or of its network, has bytes that nobody has received yet.
pub(crate) fn result_waits(client: &Part) -> bool {
    const ESTABLISHED: &str = "01";
    let connections = std::fs::read_to_string(format!("/proc/{}/net/tcp", client.id()));
    connections.expect("a kernel with TCP").lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let received = words.get(4).and_then(|queues| queues.split(':').nth(1));
        words.get(3) == Some(&ESTABLISHED) && received.is_some_and(|bytes| bytes != "00000000")
    })
}

/// Makes a call in a forked child, whose outcome comes back as text.
pub(crate) fn in_a_child(world: &World, client: &SubjectClient) -> Cell {
    let file = world.home.path().join("child");
    // SAFETY: the child calls, writes a file, and ends without going back.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = std::fs::write(&file, told(&client.echo(1)));
        // SAFETY: ends the child without running anything of its parent's.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    understood(&std::fs::read_to_string(&file).expect("what the child wrote"))
}
