//! Tests a UDP socket of a server that has several addresses and clients on several hosts. The server must
//! answer from the address to which the request was sent. Answers to hosts that do not exist must not delay
//! other clients.

// This program compiles the whole packet exchange into itself, but uses only a small part of it.
#[allow(dead_code)]
#[path = "../src/protocol/exchange/mod.rs"]
mod exchange;
mod services;
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use exchange::bind::{BIND_BYTES, BindExchange};
use exchange::time::Moment;
use peregrine::{BindOptions, Insecure, Out, PathKind, Running, Server, Wait};
use services::{Bytes, BytesClient, BytesServer, Object};
use support::link::{self, ENDS, Link, at_far_end};
use support::spoof::{Spoofer, shrink_send_buffer};
use support::{KeepGoing, Process, role};

/// Runs a test case at the near end of a link, with a separate runtime directory.
fn at_near_end(case: impl FnOnce(&Link) + Send) {
    let _alone = support::alone();
    let _directory = support::own_directory();
    link::at_near_end(Link::new(), case);
}

/// Runs a server as a child process whose role is the server's address. In the test run itself there is no
/// role, and this function does nothing.
#[test]
fn child() {
    let Some(at) = role() else { return };
    let server = Server::new().export("hosts", BytesServer::new(Object)).unwrap();
    let running = server
        .listen_beyond_this_machine(&at, Insecure::ITrustThisNetwork)
        .unwrap()
        .spawn()
        .unwrap();
    println!("\nat {}", running.addresses()[0]);
    running.wait();
}

/// Starts a server process at the far end of the link. Returns the process and its port.
fn start(link: &Link, directory: &Path, at: &str) -> (Process, u16) {
    let mut server = link.launch(1, "child", at, directory);
    let port = server.until("at ").rsplit_once(':').map(|(_, port)| port.trim().parse());
    (server, port.expect("an address").expect("its port"))
}

/// Starts a server of this process at the far end of the link. Returns the server and its port.
fn serve(at: &str) -> (Running, u16) {
    let server = Server::new().export("hosts", BytesServer::new(Object)).unwrap();
    let server = server.listen_beyond_this_machine(at, Insecure::ITrustThisNetwork).unwrap();
    let running = at_far_end(move || server.spawn().unwrap());
    let address = running.addresses()[0].to_string();
    let (_, port) = address.rsplit_once(':').unwrap();
    (running, port.parse().unwrap())
}

/// Binds to an address. Makes calls with small messages, and with large ones, which the kernel splits into
/// packets (GSO).
fn call_at(address: &str) {
    let hosts = BytesClient::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    assert_eq!(hosts.binding().path(), PathKind::Udp);
    hosts.null().unwrap();
    assert_eq!(hosts.sum(&[3; 300_000]).unwrap(), 900_000);
    let mut all = vec![0; 300_000];
    hosts.fill(7, Out::from(&mut all[..])).unwrap();
    assert!(all.iter().all(|one| *one == 7));
}

#[test]
fn server_answers_from_the_address_that_was_asked() {
    let directory = tempfile::tempdir().unwrap();
    at_near_end(|link| {
        link.add_address(1, "10.213.77.3/24");
        let (_server, port) = start(link, directory.path(), "udp:0.0.0.0:0");
        for ip in [ENDS[1], "10.213.77.3"] {
            call_at(&format!("udp:{ip}:{port}/hosts"));
        }
    });
}

#[test]
fn server_answers_from_the_address_that_was_asked_over_ipv6() {
    let directory = tempfile::tempdir().unwrap();
    at_near_end(|link| {
        link.add_address(0, "fd00:213:77::1/64 nodad");
        for ip in ["fd00:213:77::2", "fd00:213:77::3"] {
            link.add_address(1, &format!("{ip}/64 nodad"));
        }
        let (_server, port) = start(link, directory.path(), "udp:[::]:0");
        for ip in ["[fd00:213:77::2]", "[fd00:213:77::3]"] {
            call_at(&format!("udp:{ip}:{port}/hosts"));
        }
    });
}

/// Returns the first packet that a client sends to bind.
fn hello(number: u64) -> [u8; BIND_BYTES] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    let mut out = [0; BIND_BYTES];
    let mut binding = BindExchange::locating(Moment(0), nonce);
    binding.poll_send(Moment(0), &mut out).expect("a packet");
    out
}

/// A sender on the link sends the first packets of binds. Their source addresses are forged, and belong to
/// hosts that do not exist. The server's answers wait in its send buffer until the kernel gives up resolving
/// these addresses.
#[test]
fn answers_to_nonexistent_hosts_do_not_delay_calls() {
    const LONG: Duration = Duration::from_secs(5);
    /// A lost packet is retransmitted within 200 ms. An answer to a host that does not exist waits for
    /// seconds.
    const STUCK: Duration = Duration::from_secs(1);
    at_near_end(|_| {
        let far: Ipv4Addr = ENDS[1].parse().unwrap();
        let (running, port) = serve(&format!("udp:{far}:0"));
        shrink_send_buffer(port);
        let address = format!("udp:{far}:{port}/hosts");
        let options = BindOptions::default().wait(Wait::Block);
        let honest = BytesClient::bind_with(&address, &options).unwrap();
        honest.null().unwrap();
        let (going, spoofed) = (AtomicBool::new(true), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let keep_going = KeepGoing::new(&going);
            scope.spawn(|| {
                let spoofer = Spoofer::new();
                while going.load(Ordering::Relaxed) {
                    let number = spoofed.fetch_add(1, Ordering::Relaxed);
                    let from = Ipv4Addr::new(10, 213, 77, 100 + (number % 10) as u8);
                    let from = SocketAddrV4::new(from, 4000);
                    spoofer.send(from, SocketAddrV4::new(far, port), &hello(number));
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let (begun, mut waits, mut calls, mut binds) = (Instant::now(), Vec::new(), 0, 0);
            let mut large = vec![0; 300_000];
            while begun.elapsed() < LONG {
                for _ in 0..50 {
                    let call = Instant::now();
                    honest.null().unwrap();
                    waits.push(call.elapsed());
                    calls += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                let call = Instant::now();
                honest.fill(9, Out::from(&mut large[..])).unwrap();
                waits.push(call.elapsed());
                // A new client can bind, too.
                let bind = Instant::now();
                let another = BytesClient::bind_with(&address, &options).unwrap();
                another.null().unwrap();
                waits.push(bind.elapsed());
                binds += 1;
            }
            drop(keep_going);
            let worst = waits.iter().max().expect("a call");
            println!(
                "{calls} calls and {binds} binds during {} spoofed packets: at worst {worst:?}, {:?}",
                spoofed.load(Ordering::Relaxed),
                running.losses(),
            );
            // If answers to these hosts delayed others, the client would wait nearly all the time. A busy
            // machine can stop the client once for a second or two.
            let stuck: Duration = waits.iter().filter(|wait| **wait >= STUCK).sum();
            assert!(stuck < begun.elapsed() / 2, "a client waited for {stuck:?} in all");
        });
    });
}

#[test]
fn spoofed_packets_reach_the_server() {
    at_near_end(|_| {
        let far: Ipv4Addr = ENDS[1].parse().unwrap();
        let socket = at_far_end(|| std::net::UdpSocket::bind((far, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let from = SocketAddrV4::new(Ipv4Addr::new(10, 213, 77, 100), 4000);
        Spoofer::new().send(from, SocketAddrV4::new(far, port), &hello(1));
        let mut into = [0; 1024];
        let (bytes, who) = socket.recv_from(&mut into).unwrap();
        assert_eq!((bytes, who), (BIND_BYTES, SocketAddr::from(from)));
        assert_eq!(who.ip(), IpAddr::from([10, 213, 77, 100]));
    });
}
