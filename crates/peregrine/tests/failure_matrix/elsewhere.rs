//! Runs cases and calls of the failure matrix in other processes. These processes report the outcomes as
//! lines of text.

use std::io::BufRead as _;
use std::path::Path;

use peregrine::Callback;
use peregrine::Executed::{Maybe, No};

use super::cases::{LONG, all, plain};
use super::client::{Client, Form};
use super::document::Cell;
use super::subject::{Answer, Subject as _};
use super::support::{self, Process};
use super::world::{Way, World};

/// Returns an outcome as one line of text.
pub(crate) fn told(cell: &Cell) -> String {
    match cell {
        Cell::None => "cannot happen".to_owned(),
        Cell::Skipped => "skipped".to_owned(),
        Cell::Returned => "returned".to_owned(),
        Cell::Failed { executed, kind, text } => {
            let text = text.replace(['\n', '\t'], " ");
            format!("{executed:?}\t{kind}\t{text}")
        }
    }
}

/// Returns the outcome that a line describes. [`told`] made the line.
pub(crate) fn understood(line: &str) -> Cell {
    let parts: Vec<&str> = line.split('\t').collect();
    match parts[..] {
        ["cannot happen"] => Cell::None,
        ["skipped"] => Cell::Skipped,
        ["returned"] => Cell::Returned,
        [executed, kind, text] => Cell::Failed {
            executed: if executed == "No" { No } else { Maybe },
            kind: kind.to_owned(),
            text: text.to_owned(),
        },
        _ => panic!("not an outcome: {line}"),
    }
}

/// Returns the path, or the form of calls, that has this name.
fn named<T: ToString>(all: impl IntoIterator<Item = T>, name: &str) -> T {
    all.into_iter().find(|one| one.to_string() == name).expect("a name")
}

/// Runs every case on one path with one form of calls, and prints the outcomes. `part` has the names of the
/// path and of the form.
pub(crate) fn run_cases(part: &str) {
    let (way, form) = part.split_once(' ').expect("two names");
    let (way, form) = (named(Way::ALL, way), named(Form::ALL, form));
    let tell = |cell: &Cell| println!("\ncell {}", told(cell));
    match World::new(way, form) {
        Ok(world) => world.inside(|world| all().for_each(|case| tell(&case.run(world)))),
        Err(why) => {
            eprintln!("skipped: {way}: {why}");
            all().for_each(|_| tell(&Cell::Skipped));
        }
    }
    println!("\nended");
}

/// Runs every case on one path with one form of calls in a separate process, and returns the outcomes. So all
/// paths can be tested at the same time, and they share no resources of a process, such as connections.
pub(crate) fn outcomes_of(way: Way, form: Form, directory: &Path) -> Vec<Cell> {
    let directory = directory.join(format!("{way}-{form}"));
    std::fs::create_dir(&directory).expect("a directory");
    let mut process = Process::launch("child", &format!("way {way} {form}"), &directory);
    let cells = all().map(|_| understood(&process.until("cell "))).collect();
    process.until("ended");
    cells
}

/// Runs the role of a client process. The client binds, makes a call when a line arrives on its standard
/// input, and prints the outcome. If the line is `call back`, the procedure calls an object of the client.
/// `part` is the form of the call, and the address.
pub(crate) fn call(part: &str) {
    let (form, address) = part.split_once(' ').expect("a form and an address");
    let client = Client::bind(named(Form::ALL, form), address, &plain()).expect("a binding");
    assert_eq!(client.echo(7).expect("a result"), 7);
    println!("\nbound");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("a test");
    let cell = match line.trim_end() {
        "call back" => {
            let object = Answer::of(&support::directory());
            Cell::of(client.call_back(LONG, Callback::new(object)))
        }
        _ => Cell::of(client.wait(LONG)),
    };
    println!("\noutcome {}", told(&cell));
}

/// Returns the outcome of the call of a [client elsewhere](World::client_elsewhere).
pub(crate) fn outcome(client: &mut Process) -> Cell {
    understood(&client.until("outcome "))
}

/// Returns whether a TCP connection in a process's network namespace has bytes that were not received yet.
pub(crate) fn result_waits(client: &Process) -> bool {
    const ESTABLISHED: &str = "01";
    let connections = std::fs::read_to_string(format!("/proc/{}/net/tcp", client.id()));
    connections.expect("a kernel with TCP").lines().skip(1).any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let received = words.get(4).and_then(|queues| queues.split(':').nth(1));
        words.get(3) == Some(&ESTABLISHED) && received.is_some_and(|bytes| bytes != "00000000")
    })
}

/// Makes a call in a forked child, which reports the outcome as text.
pub(crate) fn in_a_child(world: &World, client: &Client) -> Cell {
    let file = world.home.path().join("child");
    // SAFETY: the child makes a call, writes a file, and ends without returning from this function.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let _ = std::fs::write(&file, told(&Cell::of(client.echo(1))));
        // SAFETY: this ends the child without running exit handlers of its parent.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `child` is our own child, and `status` is valid for writing.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    understood(&std::fs::read_to_string(&file).expect("what the child wrote"))
}
