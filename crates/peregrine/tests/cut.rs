//! A network that is cut, for a second and for good, under a call over TCP and one over UDP: two namespaces
//! joined by a pair of interfaces.

mod support;

use std::time::{Duration, Instant};

use peregrine::{Executed, Kind, Server, interface, limits};
use support::link::{ENDS, Link};
use support::part;

#[interface]
trait Sleeper {
    fn sleep(&self, ms: u32) -> peregrine::Result<u32>;
}

struct Bed;

impl Sleeper for Bed {
    fn sleep(&self, ms: u32) -> peregrine::Result<u32> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
}

const SERVER: &str = ENDS[0];

/// The parts that children play; in the test itself this does nothing.
#[test]
fn child() {
    match part().as_deref() {
        Some("server") => {
            let server = Server::new().export("sleeper", SleeperServer::new(Bed)).unwrap();
            let listens = |server: Server, scheme| {
                server.listen_beyond_this_machine(&format!("{scheme}:{SERVER}:7000")).unwrap()
            };
            let running = listens(listens(server, "tcp"), "udp").spawn().unwrap();
            println!("\nready");
            running.wait();
        }
        Some(scheme @ ("tcp" | "udp")) => {
            let sleeper = SleeperClient::bind(&format!("{scheme}:{SERVER}:7000/sleeper")).unwrap();
            println!("\nready");
            println!("first {:?}", sleeper.sleep(2500).ok());
            println!("second");
            let error = sleeper.sleep(3_600_000).unwrap_err();
            assert_eq!(error.executed(), Executed::Maybe, "{error}");
            assert_eq!(error.kind(), Kind::ServerGone, "{error}");
            println!("gone");
            if scheme == "tcp" {
                let error = sleeper.sleep(0).unwrap_err();
                assert_eq!(error.executed(), Executed::No, "{error}");
            }
            println!("end");
        }
        _ => {}
    }
}

fn a_short_cut_is_survived_and_a_long_one_noticed(scheme: &str) {
    let _alone = support::alone();
    let directory = support::own_directory();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: no namespaces: {why}"),
    };
    let _server = link.start(0, "child", "server", directory.path());
    let mut client = link.start(1, "child", scheme, directory.path());
    std::thread::sleep(Duration::from_millis(300));
    link.set("down");
    std::thread::sleep(Duration::from_secs(1));
    link.set("up");
    client.until("first Some(2500)");
    client.until("second");
    std::thread::sleep(Duration::from_millis(100));
    link.set("down");
    let cut = Instant::now();
    client.until("gone");
    // Some 2.3 s; how soon it is on a machine that has time is measured, not tested.
    let noticed = cut.elapsed();
    println!("{scheme}: noticed after {noticed:?}");
    assert!(noticed < 3 * limits::SILENCE, "{noticed:?}");
    client.until("end");
}

#[test]
fn a_short_cut_is_survived_and_a_long_one_noticed_over_tcp() {
    a_short_cut_is_survived_and_a_long_one_noticed("tcp");
}

#[test]
fn a_short_cut_is_survived_and_a_long_one_noticed_over_udp() {
    a_short_cut_is_survived_and_a_long_one_noticed("udp");
}
