//! Tests one-way calls when a process ends, and in a forked child.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering;

use peregrine::{BindOptions, Executed, Kind, Rebind, Server, interface};

use crate::contract::{Form, Forms};
use crate::journal::{Journal as _, Way, World, until};
use crate::support::{self, Process, in_a_child, role};

#[interface]
trait Counted {
    /// Appends the number to a file, which outlives the process.
    #[oneway]
    fn count(&self, number: u32) -> peregrine::Result<()>;
}

struct ToFile(File);

impl Counted for ToFile {
    fn count(&self, number: u32) -> peregrine::Result<()> {
        (&self.0).write_all(&number.to_le_bytes()).expect("the file takes the number");
        Ok(())
    }
}

struct ToFileSoon(ToFile);

impl CountedAsync for ToFileSoon {
    async fn count(&self, number: u32) -> peregrine::Result<()> {
        if number % 3 == 1 {
            support::futures::yielded().await;
        }
        self.0.count(number)
    }
}

fn file(directory: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(directory.join(".ran")).unwrap()
}

/// Returns the numbers of the calls that ran.
fn ran(directory: &Path) -> Vec<u32> {
    let bytes = std::fs::read(directory.join(".ran")).unwrap_or_default();
    bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number)).collect()
}

/// Runs the server as a child process; in the test itself this does nothing.
#[test]
fn child() {
    let Some(role) = role() else { return };
    let file = ToFile(file(&support::directory()));
    let server = Server::new();
    let server = match &*role {
        "blocking" => server.export("counted", CountedServer::new(file)),
        _ => server.export("counted", CountedAsyncServer::new(ToFileSoon(file))),
    };
    let server = server.unwrap().listen("udp:127.0.0.1:0").unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let place = |at: usize| running.addresses()[at].place().to_string();
    println!("\nat {} {}", place(0), place(1));
    running.wait();
}

/// Kills a server in the middle of a sequence of one-way calls. Each call must run at most once,
/// and in order. The failures that the client reports must agree with the calls that ran.
#[test]
fn calls_run_at_most_once_when_the_server_is_killed() {
    let _alone = support::alone();
    for form in ["blocking", "async"] {
        for way in [Way::Local, Way::Udp, Way::Tcp] {
            let directory = support::own_directory();
            let mut server = Process::launch("processes::child", form, directory.path());
            let at = server.until("at ");
            let (udp, tcp) = at.split_once(' ').unwrap();
            let address = match way {
                Way::Udp => format!("udp:counted@{udp}"),
                Way::Tcp => format!("tcp:counted@{tcp}"),
                _ => "counted".to_owned(),
            };
            let options = BindOptions::default().rebind(Rebind::Never);
            let client = CountedClient::bind_with(&address, &options).unwrap();
            let (mut made, mut failed, mut not_run) = (0u32, 0, 0);
            let mut told = |error: peregrine::CallError| {
                failed += error.oneway_failed();
                not_run += error.oneway_not_run();
                error.kind() == Kind::OneWay
            };
            loop {
                match client.count(made) {
                    Ok(()) => made += 1,
                    Err(error) => {
                        assert!(told(error), "the first error should be about one-way calls");
                        break;
                    }
                }
                if made == 5000 {
                    until(|| !ran(directory.path()).is_empty());
                    server.kill();
                }
            }
            while let Err(error) = client.flush() {
                assert!(told(error), "{way:?}, {form}");
            }
            let ran = ran(directory.path());
            let what = format!("{way:?}, {form}: {made} made, {failed} failed, {not_run} not run");
            assert!(ran.is_sorted() && ran.iter().collect::<BTreeSet<_>>().len() == ran.len());
            let ran = ran.len() as u64;
            assert!(ran <= made.into() && failed >= not_run, "{ran} ran: {what}");
            assert!(ran >= u64::from(made) - not_run, "{ran} ran: {what}");
            assert!(failed <= made.into(), "{ran} ran: {what}");
        }
    }
}

#[test]
fn forked_child_makes_no_call_and_drops_the_queue_of_its_parent() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for way in [Way::Local, Way::Udp, Way::Tcp] {
        for forms in Forms::ALL {
            let mut world = World::new(way, forms.server);
            let client = world.client(forms.client);
            client.wait().unwrap();
            until(|| world.object.0.waiting.load(Ordering::SeqCst) == 1);
            client.note("queued").unwrap();
            let mut client = Some(client);
            let worked = in_a_child(|| {
                let client = client.take().unwrap();
                let forked = |error: peregrine::CallError| {
                    (error.kind(), error.executed()) == (Kind::Forked, Executed::No)
                };
                let refused = forked(client.note("never").unwrap_err())
                    && forked(client.flush().unwrap_err())
                    && forked(client.lines().unwrap_err());
                // The child drops only its copy of the client. The parent's client must still work.
                drop(client);
                refused
            });
            let client = client.unwrap();
            assert!(worked, "{way:?}, {forms:?}");
            world.object.open();
            client.flush().unwrap();
            assert_eq!(world.object.seen(), ["queued"], "{way:?}, {forms:?}");
        }
    }
}

/// The server counts the calls that share a message in the same way as calls with separate messages.
#[test]
fn thousand_calls_of_a_batch_are_counted_one_by_one() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for way in [Way::Local, Way::Udp, Way::Tcp] {
        for form in [Form::Blocking, Form::Async] {
            let mut world = World::new(way, form);
            let client = world.client(Form::Blocking);
            client.wait().unwrap();
            until(|| world.object.0.waiting.load(Ordering::SeqCst) == 1);
            (0..1000).for_each(|number| client.note(&number.to_string()).unwrap());
            world.object.open();
            client.flush().unwrap();
            assert_eq!(world.object.seen().len(), 1000);
            // The call of `wait` is also counted. The server counts a call only after it has sent the reply.
            let calls = || {
                let stat = peregrine::stat(&world.name).unwrap();
                stat.exports.iter().map(|export| export.counts.calls).sum::<u64>()
            };
            until(|| calls() >= 1001);
            assert_eq!(calls(), 1001, "{way:?}, {form:?}");
        }
    }
}
