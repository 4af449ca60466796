//! Tests sealed packets over raw Ethernet: the contract of all paths, who calls, what can be read on the link,
//! and the change to UDP when the link falls silent. Client and server are in two network namespaces.

mod contract;
mod room;
mod support;

use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    BindOptions, EthernetDevice, Insecure, Kind, Out, PathKind, Security, Server, interface,
};
use room::{Carrier, SECURITY};
use support::bridge::Bridge;
use support::impairments::Impairments;
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::tap::{PEREGRINE_TYPE, Tap};

const ETHERNET: Carrier = Carrier { scheme: "eth", path: PathKind::Ethernet };

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static OF_ADA: LazyLock<Trust> = LazyLock::new(|| trusts("bob", &BOB));
static OF_BOB: LazyLock<Trust> = LazyLock::new(|| trusts("ada", &ADA));

fn trusts(name: &str, peer: &Identity) -> Trust {
    Trust::of_keys([TrustedKey::new(name, peer.public_key(), "").unwrap()]).unwrap()
}

macro_rules! contract_over_a_sealed_link {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            SECURITY.get_or_init(|| room::Security {
                server: || (BOB.clone(), OF_BOB.clone()).into(),
                client: |options| options.secure(ADA.clone(), OF_ADA.clone()),
            });
            at_near_end(Link::new(), |_| room::$name(ETHERNET));
        }
    )*};
}

contract_over_a_sealed_link! {
    contract_holds
    contract_holds_when_threads_sleep
    each_thread_gets_its_own_replies
    large_messages_arrive_intact_in_both_directions
    calls_of_withdrawn_export_fail_and_others_succeed
    stopping_server_finishes_calls_and_refuses_new_ones
    binding_error_gives_the_reason
    messages_of_boundary_sizes_arrive_intact
    callers_are_served_concurrently
    unknown_export_and_stopped_server_are_reported
}

#[interface]
trait Desk {
    /// Returns the name of the caller.
    fn who(&self) -> peregrine::Result<Option<String>>;
    /// Returns the bytes.
    fn echo(
        &self,
        #[max_len(1 << 20)] bytes: &[u8],
        #[max_len(1 << 20)] out: Out<'_, u8>,
    ) -> peregrine::Result<()>;
}

struct Clerk;

impl Desk for Clerk {
    fn who(&self) -> peregrine::Result<Option<String>> {
        let caller = peregrine::caller().expect("a caller");
        let identity = caller.identity();
        Ok(identity.as_ref().and_then(|identity| identity.peer()).map(ToString::to_string))
    }
    fn echo(&self, bytes: &[u8], mut out: Out<'_, u8>) -> peregrine::Result<()> {
        out.put(bytes).expect("the caller has room");
        Ok(())
    }
}

fn echo(desk: &DeskClient, bytes: &[u8]) {
    let mut out = vec![0; bytes.len()];
    desk.echo(bytes, Out::from(&mut out[..])).unwrap();
    assert!(out == bytes);
}

/// Returns whether the taps have received a frame that contains these bytes.
fn have_seen(taps: &[Tap], what: &[u8]) -> [bool; 2] {
    let (mut any, mut found) = (false, false);
    let mut memory = vec![0; 1 << 16];
    for tap in taps {
        while let Some(bytes) = tap.receive(&mut memory) {
            any = true;
            found |= memory[..bytes].windows(what.len()).any(|part| part == what);
        }
    }
    [any, found]
}

#[test]
fn nothing_can_be_read_on_the_link_by_either_device() {
    let _alone = support::alone();
    let secret = b"meet me at the old mill at midnight";
    for device in [EthernetDevice::Packet, EthernetDevice::Any] {
        for is_secure in [false, true] {
            at_near_end(Link::new(), |link| {
                let _directory = support::own_directory();
                let server = Server::new().export("desk", DeskServer::new(Clerk)).unwrap();
                let security = match is_secure {
                    true => Security::from((BOB.clone(), OF_BOB.clone())),
                    false => Insecure::ITrustThisNetwork.into(),
                };
                let at = format!("eth:{}:0", ENDS[1]);
                let server = server
                    .ethernet_device(device)
                    .listen_beyond_this_machine(&at, security)
                    .unwrap();
                let running = at_far_end(move || server.spawn().unwrap());
                let address = format!("{}/desk", running.addresses()[0]);
                // With AF_XDP, frames bypass the tap of the receiving end.
                let tapped = device == EthernetDevice::Packet;
                let taps = [Tap::at(link.interface(0), PEREGRINE_TYPE).unwrap()];
                let mut options = BindOptions::default().ethernet_device(device);
                if is_secure {
                    options = options.secure(ADA.clone(), OF_ADA.clone());
                }
                let desk = DeskClient::bind_with(&address, &options).unwrap();
                assert_eq!(desk.binding().path(), PathKind::Ethernet);
                assert_eq!(desk.who().unwrap().as_deref(), is_secure.then_some("ada"));
                echo(&desk, secret);
                echo(&desk, &vec![7; 300_000]);
                let explained = desk.binding().explain().summary();
                assert_eq!(explained.contains("encrypted by TLS 1.3"), is_secure, "{explained}");
                if tapped {
                    assert_eq!(have_seen(&taps, secret), [true, !is_secure]);
                }
            });
        }
    }
}

/// A client of a secure server never goes on in clear when the link falls silent.
#[test]
fn silent_link_is_replaced_by_sealed_packets_of_udp() {
    let _alone = support::alone();
    at_near_end(Link::with_middle(), |link| {
        let bridge = Bridge::new(link, Impairments::default(), 1, |_, _| ());
        let _directory = support::own_directory();
        let server = Server::new().export("desk", DeskServer::new(Clerk)).unwrap();
        let own = (BOB.clone(), OF_BOB.clone());
        let server = server.ethernet_device(EthernetDevice::Packet);
        let at = format!("eth:{}:0", ENDS[1]);
        let server = server.listen_beyond_this_machine(&at, own).unwrap();
        let running = at_far_end(move || server.spawn().unwrap());
        let options = BindOptions::default().secure(ADA.clone(), OF_ADA.clone());
        let options = options.ethernet_device(EthernetDevice::Packet);
        let address = format!("{}/desk", running.addresses()[0]);
        let desk = DeskClient::bind_with(&address, &options).unwrap();
        echo(&desk, b"over the link");
        bridge.seen.cut.store(true, Ordering::SeqCst);
        support::until("calls go over UDP", || match desk.who() {
            Ok(_) => desk.binding().path() == PathKind::Udp,
            Err(error) => {
                assert!(matches!(error.kind(), Kind::ServerGone | Kind::TimedOut), "{error}");
                false
            }
        });
        assert_eq!(desk.who().unwrap().as_deref(), Some("ada"));
        echo(&desk, &vec![3; 100_000]);
        let explained = desk.binding().explain().to_string();
        assert!(explained.contains("replaced by UDP"), "{explained}");
        assert!(explained.contains("encrypted by TLS 1.3"), "{explained}");
    });
}
