//! Interfaces that change while the bridge runs, and setups that are refused.

use std::sync::{Arc, Mutex};

use peregrine::interface::Described;
use peregrine::{Insecure, Server, interface};
use peregrine_bridge::{Bridge, SetupError};
use serde_json::json;

use crate::stock::{Stock as _, StockClient, StockServer, Stocked, described};
use crate::{World, fresh, interface_file, until};

/// Replaces a description file atomically, as some editors do.
fn replace(path: &std::path::Path, text: &str) {
    let aside = path.with_extension("new");
    std::fs::write(&aside, text).unwrap();
    std::fs::rename(aside, path).unwrap();
}

#[test]
fn changed_interface_file_is_used_without_a_restart() {
    let server = Stocked::start();
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&said);
    let world = World::with(&server, "onc+udp", |bridge| {
        bridge.log(move |text| log.lock().unwrap().push(text.to_owned()))
    });
    let client = StockClient::bind(&world.address("onc+tcp")).unwrap();
    assert_eq!(client.add(1, 2).unwrap(), 3);

    // A broken file changes nothing, and the bridge reports the reason once.
    replace(server.file(), "{");
    for _ in 0..2 {
        assert_eq!(world.http("add", r#"{"a": 1, "b": 2}"#).json(), json!({ "result": 3 }));
    }
    let broken = said.lock().unwrap().clone();
    assert!(broken.len() == 1 && broken[0].contains("the earlier one stays in use"), "{broken:?}");

    // The procedure `add` gets another name, and the program gets another version.
    let mut changed = described();
    changed.procedures[0].name = "plus".into();
    changed.programs.iter_mut().for_each(|program| program.version = 3);
    let text = changed.to_json().to_string();
    replace(server.file(), &text);
    // The server has only version 2.
    let answer = world.http("plus", r#"{"a": 1, "b": 2}"#);
    answer.failure(502, "InterfaceMismatch", "no");

    changed.programs.iter_mut().for_each(|program| program.version = 2);
    replace(server.file(), &changed.to_json().to_string());
    assert_eq!(world.http("plus", r#"{"a": 1, "b": 2}"#).json(), json!({ "result": 3 }));
    world.http("add", "{}").failure(404, "NotFound", "no");
    // Peregrine's clients see the new interface, too.
    let address = world.address("tcp");
    until("the export is replaced", || {
        let said = peregrine::describe(&address);
        said.is_ok_and(|said| said.digest == changed.digest())
    });
    // The numbers of the program and of the procedures in ONC RPC are the same as before.
    assert_eq!(StockClient::bind(&world.address("onc+udp")).unwrap().add(4, 5).unwrap(), 9);
}

#[interface(name = "Stock", version = 1)]
trait Later {
    fn count(&self) -> peregrine::Result<u32>;
}

struct Counts;

impl Later for Counts {
    fn count(&self) -> peregrine::Result<u32> {
        Ok(7)
    }
}

#[test]
fn server_that_starts_later_and_changes_is_exported() {
    let (target, name) = (fresh("target"), fresh("later"));
    let bridge = Bridge::new().offer(&format!("{name}={target}")).unwrap();
    let bridge = bridge.export_at("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = format!("{}/{name}", bridge.endpoints()[0]);
    assert!(peregrine::describe(&address).is_err());
    let server = Stocked::start();
    let front = Server::new().export(&target, StockServer::new(server.object())).unwrap();
    let running = front.spawn().unwrap();
    until("the target is exported", || StockClient::bind(&address).is_ok());
    let client = StockClient::bind(&address).unwrap();
    assert_eq!(client.add(1, 2).unwrap(), 3);
    running.stop();
    let front = Server::new().export(&target, LaterServer::new(Counts)).unwrap();
    let _running = front.spawn().unwrap();
    until("the export is replaced", || LaterClient::bind(&address).is_ok());
    assert_eq!(LaterClient::bind(&address).unwrap().count().unwrap(), 7);
}

#[test]
fn interfaces_that_a_system_cannot_carry_are_refused_with_the_place() {
    let directory = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = directory.path().join("wide.json");
        std::fs::write(&path, Described::parse(text).unwrap().to_json().to_string()).unwrap();
        interface_file(&path).unwrap()
    };
    let end = "CallError#0 = struct {chain: text}\n";
    let wide =
        format!("interface Wide version 0\nf(in a: tuple<u8, u128>) -> unit or CallError#0\n{end}");
    let name = fresh("wide");
    let bridge = || Bridge::new().offer_as(&name, file(&wide)).unwrap();
    let onc = |bridge: Bridge| bridge.export_at("onc+tcp:127.0.0.1:0").unwrap().spawn();
    // The server need not run, because the file contains its interface.
    let text = |bridge: Bridge| match onc(bridge) {
        Err(error @ SetupError::Unfit(..)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let numbers = format!("{name}=onc:536870912.1");
    let place = text(bridge().program(&numbers).unwrap());
    assert!(place.ends_with("f.a.1: u128 has no form in XDR"), "{place}");
    assert!(text(bridge()).contains("give it numbers"));
    assert!(bridge().export_at("tcp:127.0.0.1:0").unwrap().spawn().is_ok());
}

#[test]
fn given_numbers_make_an_interface_a_program() {
    #[interface(onc(program = 0x2000_0555, version = 4))]
    trait Numbered {
        #[onc(1)]
        fn count(&self) -> peregrine::Result<u32>;
    }
    let target = fresh("numbers");
    let running = Server::new().export(&target, LaterServer::new(Counts)).unwrap().spawn().unwrap();
    let bridge = Bridge::new().offer(&format!("counts={target}")).unwrap();
    let bridge = bridge.program("counts=onc:536872277.4").unwrap();
    let bridge = bridge.export_at("onc+udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let client = NumberedClient::bind(&bridge.endpoints()[0].to_string()).unwrap();
    assert_eq!(client.count().unwrap(), 7);
    drop(running);
}

#[test]
fn wrong_setups_are_refused() {
    let error = |made: Result<Bridge, SetupError>| made.err().unwrap();
    let foreign = error(Bridge::new().offer("files=onc+tcp:127.0.0.1:1/100003.3"));
    assert!(matches!(foreign, SetupError::NoInterface(_)), "{foreign}");
    for text in ["a", "a=onc", "a=onc:1", "a=sun:1.2", "a=onc:x.1", "a=courier:1.65536"] {
        assert!(matches!(error(Bridge::new().program(text)), SetupError::Program(_)), "{text}");
    }
    assert!(matches!(error(Bridge::new().export_at("local:a/b")), SetupError::Address(_)));
    let one = || Bridge::new().offer("a@127.0.0.1:1").unwrap();
    let spawned = |bridge: Bridge| bridge.spawn().err().unwrap();
    let absent = spawned(one().export_at("local:b").unwrap());
    assert!(matches!(absent, SetupError::NoExport(_)), "{absent}");
    let absent = one().program("b=onc:1.1").unwrap().export_at("tcp:127.0.0.1:0").unwrap();
    assert!(matches!(spawned(absent), SetupError::NoExport(_)));
    for endpoint in ["tcp:0.0.0.0:0", "onc+udp:0.0.0.0:0", "nothing", "tcp:127.0.0.1"] {
        let refused = spawned(one().export_at(endpoint).unwrap());
        assert!(matches!(refused, SetupError::Front(_)), "{endpoint}");
    }
    let wide = one()
        .export_beyond_this_machine("tcp:0.0.0.0:0", Insecure::ITrustThisNetwork)
        .unwrap()
        .spawn();
    assert!(wide.is_ok());
}
