//! Each system calls a server of each system.

use core::time::Duration;

use peregrine::foreign::Foreign;
use peregrine::{
    Argument, BindOptions, CallError, Dynamic, Executed, GenericClient, Kind, Server, Value,
    interface,
};
use peregrine_bridge::Bridge;
use serde_json::json;

use crate::stock::{Item, Stock as _, StockClient, Stocked};
use crate::{World, fresh, interface_file, until};

pub(crate) const SCHEMES: [&str; 8] =
    ["local", "tcp", "udp", "onc+udp", "onc+tcp", "courier+udp", "courier+tcp", "courier+exchange"];

/// The paths that pass on deadlines and cancellation.
const KNOWING: [&str; 4] = ["local", "tcp", "udp", "courier+exchange"];

/// Calls the procedures of a server through a bridge. `front` is the path from the client to the bridge, and
/// `target` is the path from the bridge to the server.
fn check(front: &str, target: &str, world: &World) {
    let pair = format!("{front} to {target}");
    let client = StockClient::bind(&world.address(front)).unwrap();
    assert_eq!(client.add(2, -5).unwrap(), -3, "{pair}");
    let found = client.find("hat", &[1, 0xffff]).unwrap();
    assert_eq!(found, Item { name: "hat".into(), counts: vec![1, 0xffff] }, "{pair}");
    for error in [client.find("hat", &[]).unwrap_err(), client.fail().unwrap_err()] {
        assert_eq!(error.executed(), Executed::Maybe, "{pair}: {error}");
    }
    // The bridge passes the caller's deadline to the target, if both systems can carry it.
    let left = client.with_timeout(Duration::from_secs(40)).left().unwrap();
    match (KNOWING.contains(&front), KNOWING.contains(&target)) {
        (true, true) => assert!(left <= 40_000, "{pair}: {left}"),
        // The caller's system carries no deadline, so the bridge sends its own time limit.
        (false, true) => assert!(left <= 60_000, "{pair}: {left}"),
        (_, false) => assert_eq!(left, u32::MAX, "{pair}"),
    }
}

fn check_target(target: &str) {
    let server = Stocked::start();
    let world = World::to(&server, target);
    for front in SCHEMES {
        check(front, target, &world);
    }
    let sum = world.http("add", r#"{"a": 2, "b": -5}"#);
    assert_eq!((sum.status, sum.json()), (200, json!({ "result": -3 })), "{target}");
    let found = world.http("find", r#"{"name": "hat", "counts": [1, 2]}"#);
    assert_eq!(found.json(), json!({ "result": { "name": "hat", "counts": [1, 2] } }));
    assert_eq!(world.http("fail", "{}").header("peregrine-executed"), Some("maybe"));
    let wrong = world.http("add", r#"{"a": 2, "b": 4294967296}"#);
    assert!(wrong.failure(400, "BadArguments", "no").starts_with("arguments.b: "));
}

#[test]
fn clients_of_each_system_call_a_local_server() {
    check_target("local");
}

#[test]
fn clients_of_each_system_call_a_server_over_tcp() {
    check_target("tcp");
}

#[test]
fn clients_of_each_system_call_a_server_over_udp() {
    check_target("udp");
}

#[test]
fn clients_of_each_system_call_a_server_of_onc_over_udp() {
    check_target("onc+udp");
}

#[test]
fn clients_of_each_system_call_a_server_of_onc_over_tcp() {
    check_target("onc+tcp");
}

#[test]
fn clients_of_each_system_call_a_server_of_courier_over_udp() {
    check_target("courier+udp");
}

#[test]
fn clients_of_each_system_call_a_server_of_courier_over_tcp() {
    check_target("courier+tcp");
}

#[test]
fn clients_of_each_system_call_a_server_of_courier_over_the_packet_exchange() {
    check_target("courier+exchange");
}

#[test]
fn client_of_another_system_refuses_metadata() {
    let server = Stocked::start();
    for target in ["onc+tcp", "courier+tcp", "courier+exchange"] {
        let world = World::to(&server, target);
        let client = StockClient::bind(&world.address("tcp")).unwrap();
        let error = client.with_metadata("tenant", "birds").unwrap().add(1, 1).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No), "{error}");
        assert!(error.to_string().contains("cannot carry metadata"), "{error}");
        assert_eq!(client.add(1, 1).unwrap(), 2);
        let headers = "Peregrine-Meta-Tenant: birds\r\n";
        let answer = world.http_with(headers, "add", r#"{"a": 1, "b": 1}"#);
        assert!(answer.failure(400, "BadArguments", "no").contains("cannot carry metadata"));
        let front = StockClient::bind(&world.address(target)).unwrap();
        let error = front.with_metadata("tenant", "birds").unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No), "{error}");
    }
}

#[test]
fn cancellation_is_passed_on_where_both_systems_have_it() {
    let server = Stocked::start();
    let direct = StockClient::bind(&server.address("local")).unwrap();
    let (mut count, options) = (0, BindOptions::default());
    for target in ["tcp", "courier+exchange"] {
        let world = World::to(&server, target);
        for front in KNOWING {
            let (address, described) = (world.address(front), crate::stock::described());
            let client = GenericClient::bind_as(&address, described, &options).unwrap();
            let (wait, _) = client.described().procedure("wait").unwrap();
            let given_up = async { until("the call runs", || direct.waiting().unwrap().run == 1) };
            let mut result = Dynamic::Unit;
            let error = client.call_unless(wait, &mut [], &mut result, given_up).unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
            count += 1;
            until("the procedure knows it", || direct.waiting().unwrap().given_up == count);
        }
    }
}

#[test]
fn call_of_another_system_can_be_given_up() {
    let server = Stocked::start();
    let direct = StockClient::bind(&server.address("local")).unwrap();
    let mut clients = Vec::new();
    for (count, target) in (1..).zip(["onc+udp", "onc+tcp", "courier+udp", "courier+tcp"]) {
        let (address, options) = (server.address(target), BindOptions::default());
        let client = GenericClient::bind_as(&address, crate::stock::described(), &options).unwrap();
        let (wait, _) = client.described().procedure("wait").unwrap();
        let given_up = async { until("the call runs", || direct.waiting().unwrap().run == count) };
        let mut result = Dynamic::Unit;
        let error = client.call_unless(wait, &mut [], &mut result, given_up).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
        clients.push(client);
    }
    // A connection of Courier carries a call until its procedure ends, even if the caller has given up. So
    // the procedures must end before the next calls.
    direct.release().unwrap();
    let (a, b) = (Dynamic::I32(1), Dynamic::I32(2));
    for client in clients {
        let (add, _) = client.described().procedure("add").unwrap();
        let (mut arguments, mut sum) = ([Argument::In(&a), Argument::In(&b)], Dynamic::Unit);
        let never = core::future::pending();
        assert!(client.call_unless(add, &mut arguments, &mut sum, never).unwrap());
        assert_eq!(sum, Dynamic::I32(3));
    }
}

/// Why there is no item.
#[derive(Debug, Value, Foreign)]
enum Lack {
    #[foreign(error = 7)]
    Short {
        by: u16,
    },
    Failed(CallError),
}

impl From<CallError> for Lack {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

#[interface(courier(program = 778, version = 1))]
trait Shelf {
    #[courier(0)]
    fn take(&self, count: u16) -> Result<u16, Lack>;
}

struct Three;

impl Shelf for Three {
    fn take(&self, count: u16) -> Result<u16, Lack> {
        match count {
            0..=3 => Ok(3 - count),
            4..=9 => Err(Lack::Short { by: count - 3 }),
            _ => Err(CallError::new(Kind::Relayed, Executed::Maybe, "it fell down").into()),
        }
    }
}

#[test]
fn reported_errors_are_passed_on_between_peregrine_and_courier() {
    let name = fresh("shelf");
    let server = Server::new().export(&name, ShelfServer::new(Three)).unwrap();
    let server = server.listen("courier+tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let described = ShelfClient::INTERFACE.described().unwrap();
    std::fs::write(file.path(), described.to_json().to_string()).unwrap();
    let front = fresh("shelf");
    for target in [format!("local:{name}"), server.addresses()[0].to_string()] {
        let offer = format!("{front}={target}");
        let bridge = Bridge::new().offer_as(&offer, interface_file(file.path()).unwrap()).unwrap();
        let bridge = bridge.export_at(&format!("local:{front}")).unwrap();
        let bridge = bridge.export_at("courier+tcp:127.0.0.1:0").unwrap().spawn().unwrap();
        for address in [format!("local:{front}"), bridge.endpoints()[0].to_string()] {
            let shelf = ShelfClient::bind(&address).unwrap();
            assert_eq!(shelf.take(2).unwrap(), 1, "{address} to {target}");
            let short = shelf.take(8).unwrap_err();
            assert!(matches!(short, Lack::Short { by: 5 }), "{address} to {target}: {short:?}");
            match shelf.take(10).unwrap_err() {
                Lack::Failed(error) => assert_eq!(error.executed(), Executed::Maybe),
                short => panic!("{address} to {target}: {short:?}"),
            }
        }
    }
}
