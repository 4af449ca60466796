//! Each system calls a server of each system.

use core::time::Duration;

use peregrine::{Executed, GenericClient, Kind};
use serde_json::json;

use crate::stock::{Item, Stock as _, StockClient, Stocked};
use crate::{World, until};

pub(crate) const SCHEMES: [&str; 5] = ["local", "tcp", "udp", "onc+udp", "onc+tcp"];

/// Calls the procedures of a server that has these paths at both sides of a bridge.
fn check(front: &str, target: &str, world: &World) {
    let pair = format!("{front} to {target}");
    let client = StockClient::bind(&world.address(front)).unwrap();
    assert_eq!(client.add(2, -5).unwrap(), -3, "{pair}");
    let found = client.find("hat", &[1, 0xffff]).unwrap();
    assert_eq!(found, Item { name: "hat".into(), counts: vec![1, 0xffff] }, "{pair}");
    for error in [client.find("hat", &[]).unwrap_err(), client.fail().unwrap_err()] {
        assert_eq!(error.executed(), Executed::Maybe, "{pair}: {error}");
    }
    // The bridge tells the target how long the caller waits, if both systems can.
    let left = client.with_timeout(Duration::from_secs(40)).left().unwrap();
    let knows = |scheme: &str| !scheme.contains('+');
    match (knows(front), knows(target)) {
        (true, true) => assert!(left <= 40_000, "{pair}: {left}"),
        // The limit of the bridge.
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
fn cancellation_is_passed_on_where_both_systems_have_it() {
    let server = Stocked::start();
    let direct = StockClient::bind(&server.address("local")).unwrap();
    let world = World::to(&server, "tcp");
    for (count, front) in (1..).zip(["local", "tcp", "udp"]) {
        let client = GenericClient::bind(&world.address(front)).unwrap();
        let (wait, _) = client.described().procedure("wait").unwrap();
        let given_up = async { until("the call runs", || direct.waiting().unwrap().run == 1) };
        let mut result = peregrine::Dynamic::Unit;
        let error = client.call_unless(wait, &mut [], &mut result, given_up).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
        until("the procedure knows it", || direct.waiting().unwrap().given_up == count);
    }
}

#[test]
fn call_of_another_system_can_be_given_up() {
    let server = Stocked::start();
    let direct = StockClient::bind(&server.address("local")).unwrap();
    for (count, target) in (1..).zip(["onc+udp", "onc+tcp"]) {
        let address = server.address(target);
        let options = peregrine::BindOptions::default();
        let client = GenericClient::bind_as(&address, crate::stock::described(), &options).unwrap();
        let (wait, _) = client.described().procedure("wait").unwrap();
        let given_up = async { until("the call runs", || direct.waiting().unwrap().run == count) };
        let mut result = peregrine::Dynamic::Unit;
        let error = client.call_unless(wait, &mut [], &mut result, given_up).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TimedOut, Executed::Maybe));
        // The binding is still of use.
        let (add, _) = client.described().procedure("add").unwrap();
        let (a, b) = (peregrine::Dynamic::I32(1), peregrine::Dynamic::I32(2));
        let mut arguments = [peregrine::Argument::In(&a), peregrine::Argument::In(&b)];
        let never = core::future::pending();
        assert!(client.call_unless(add, &mut arguments, &mut result, never).unwrap());
        assert_eq!(result, peregrine::Dynamic::I32(3));
    }
    direct.release().unwrap();
}
