//! Tests calls over TCP and UDP during which the network fails, for a second or permanently. The network
//! consists of two namespaces that a pair of interfaces connects.

mod support;

use std::time::{Duration, Instant};

use peregrine::{Executed, Insecure, Kind, Server, interface, limits};
use support::link::{ENDS, Link};
use support::role;

#[interface]
trait Sleeper {
    fn sleep(&self, ms: u32) -> peregrine::Result<u32>;
}

struct Object;

impl Sleeper for Object {
    fn sleep(&self, ms: u32) -> peregrine::Result<u32> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
}

const SERVER: &str = ENDS[0];

/// Runs in child processes with a role; in the test itself this does nothing.
#[test]
fn child() {
    match role().as_deref() {
        Some("server") => {
            let server = Server::new().export("sleeper", SleeperServer::new(Object)).unwrap();
            let listens = |server: Server, scheme| {
                server
                    .listen_beyond_this_machine(
                        &format!("{scheme}:{SERVER}:7000"),
                        Insecure::ITrustThisNetwork,
                    )
                    .unwrap()
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

fn calls_survive_short_outage_and_detect_long_one(scheme: &str) {
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
    // On an idle machine, the client detects the failure after about 2.3 s. The limit is larger, because this
    // machine may be busy.
    let detected_after = cut.elapsed();
    println!("{scheme}: detected after {detected_after:?}");
    assert!(detected_after < 3 * limits::SILENCE, "{detected_after:?}");
    client.until("end");
}

#[test]
fn calls_survive_short_outage_and_detect_long_one_over_tcp() {
    calls_survive_short_outage_and_detect_long_one("tcp");
}

#[test]
fn calls_survive_short_outage_and_detect_long_one_over_udp() {
    calls_survive_short_outage_and_detect_long_one("udp");
}
