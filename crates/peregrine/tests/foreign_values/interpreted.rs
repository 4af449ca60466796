//! Tests that the interpreted server, which has only a description, answers with the same bytes as the
//! compiled types.

use std::sync::{Arc, Mutex};

use peregrine::__rt::{ForeignCall, Refusal, Serve as _};
use peregrine::call::ForeignAnswer;
use peregrine::foreign::System;
use peregrine::interface::{Described, DescribedType};
use peregrine::{Dynamic, Executed, GenericParameter, GenericServer, Kind, Server, interface};

use super::*;

#[interface(onc(program = 0x2000_0000, version = 1))]
trait Xdrs {
    #[onc(1)]
    fn all(&self, value: &All) -> peregrine::Result<All>;
    #[onc(2)]
    fn record(&self, value: &Record) -> peregrine::Result<Record>;
    #[onc(3)]
    fn node(&self, value: &Node) -> peregrine::Result<Node>;
    #[onc(4)]
    fn tree(&self, value: &Tree) -> peregrine::Result<Tree>;
    #[onc(5)]
    fn even(&self, value: &Even) -> peregrine::Result<Even>;
    #[onc(6)]
    fn units(&self, value: Vec<Vec<Vec<()>>>) -> peregrine::Result<Vec<Vec<Vec<()>>>>;
    #[onc(7)]
    fn unions(&self, value: &[Union]) -> peregrine::Result<Vec<Union>>;
    #[onc(8)]
    fn short(&self, value: &ShortNode) -> peregrine::Result<ShortNode>;
    #[onc(9)]
    fn text(&self, #[max_len(3)] value: &str) -> peregrine::Result<String>;
    #[onc(10)]
    fn words(&self, #[max_len(2)] value: &[u16]) -> peregrine::Result<Vec<u16>>;
}

#[interface(courier(program = 1, version = 1))]
trait Couriers {
    #[courier(1)]
    fn stream(&self, value: &StreamOf<u16>) -> peregrine::Result<StreamOf<u16>>;
    #[courier(2)]
    fn record(&self, value: &Record) -> peregrine::Result<Record>;
    #[courier(3)]
    fn fail(&self, seconds: u16) -> Result<(), TimeError>;
}

impl From<CallError> for TimeError {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

/// Returns a server whose procedures return their argument.
fn echo(described: Described) -> GenericServer {
    GenericServer::new(described, |call| match call.parameters() {
        [GenericParameter::In(value)] => Ok(Ok(core::mem::take(value))),
        _ => unreachable!("each procedure has one parameter"),
    })
}

fn xdrs() -> GenericServer {
    echo(XdrsClient::INTERFACE.described().unwrap())
}

fn couriers() -> GenericServer {
    echo(CouriersClient::INTERFACE.described().unwrap())
}

/// Calls a procedure with these arguments. Returns the results, or the kind of the refusal. Checks that a
/// refused call was not executed.
fn called(server: &GenericServer, procedure: u32, arguments: &[u8]) -> Result<Vec<u8>, Kind> {
    let is_onc = server.described().name == "Xdrs";
    let (system, program) = if is_onc { (System::Onc, 0x2000_0000) } else { (System::Courier, 1) };
    let call = ForeignCall { system, program, version: 1, procedure, arguments };
    let mut results = vec![];
    let answer = server.serve_foreign(&call, &mut results);
    match answer {
        Ok(answer) => assert_eq!(answer, ForeignAnswer::Returned),
        Err(refusal) => {
            assert_eq!(refusal.executed(), Executed::No);
            return Err(refusal.kind());
        }
    }
    Ok(results)
}

/// Compares the interpreted server with the compiled type: both accept the same bytes, and write the same
/// results. They refuse other bytes with the same kind of failure.
fn agree<R: Cells, T: Foreign<R>>(server: &GenericServer, procedure: u32, bytes: &[u8]) {
    let compiled = from_bytes::<R, T>(bytes).map(|value| to_bytes::<R>(&value).unwrap());
    match (called(server, procedure, bytes), compiled) {
        (Ok(interpreted), Ok(compiled)) => assert_eq!(interpreted, compiled),
        (Err(kind), Err(invalid)) => assert_eq!(kind, Refusal::from(invalid).kind(), "{bytes:?}"),
        (interpreted, compiled) => panic!("{interpreted:?}, but compiled {compiled:?}: {bytes:?}"),
    }
}

fn flipped(bytes: &[u8], flips: &[(usize, u8)]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for (at, mask) in flips {
        let at = at % bytes.len().max(1);
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= mask);
    }
    bytes
}

proptest! {
    #[test]
    fn interpreted_bytes_are_the_compiled_ones(all in all(), record in record()) {
        let (all, xdr) = (to_bytes::<Xdr>(&all).unwrap(), to_bytes::<Xdr>(&record).unwrap());
        let courier = to_bytes::<Courier>(&record).unwrap();
        prop_assert_eq!(called(&xdrs(), 1, &all), Ok(all));
        prop_assert_eq!(called(&xdrs(), 2, &xdr), Ok(xdr));
        prop_assert_eq!(called(&couriers(), 2, &courier), Ok(courier));
    }

    #[test]
    fn both_refuse_the_same_bytes(
        all in all(),
        record in record(),
        flips in prop::collection::vec(any::<(usize, u8)>(), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let (xdrs, couriers) = (xdrs(), couriers());
        let bytes = flipped(&to_bytes::<Xdr>(&all).unwrap(), &flips);
        agree::<Xdr, All>(&xdrs, 1, &bytes);
        agree::<Xdr, All>(&xdrs, 1, &bytes[..cut.index(bytes.len())]);
        agree::<Xdr, Record>(&xdrs, 2, &flipped(&to_bytes::<Xdr>(&record).unwrap(), &flips));
        let bytes = flipped(&to_bytes::<Courier>(&record).unwrap(), &flips);
        agree::<Courier, Record>(&couriers, 2, &bytes);
    }

    #[test]
    fn both_accept_the_same_of_any_bytes(bytes in prop::collection::vec(0u8..4, 0..200)) {
        let (xdrs, couriers) = (xdrs(), couriers());
        agree::<Xdr, All>(&xdrs, 1, &bytes);
        agree::<Xdr, Record>(&xdrs, 2, &bytes);
        agree::<Xdr, Node>(&xdrs, 3, &bytes);
        agree::<Xdr, Tree>(&xdrs, 4, &bytes);
        agree::<Xdr, Even>(&xdrs, 5, &bytes);
        agree::<Xdr, Vec<Vec<Vec<()>>>>(&xdrs, 6, &bytes);
        agree::<Xdr, Vec<Union>>(&xdrs, 7, &bytes);
        agree::<Xdr, ShortNode>(&xdrs, 8, &bytes);
        agree::<Courier, StreamOf<u16>>(&couriers, 1, &bytes);
        agree::<Courier, Record>(&couriers, 2, &bytes);
    }
}

#[test]
fn values_are_those_of_a_native_call() {
    let seen = Arc::new(Mutex::new(Vec::<Dynamic>::new()));
    let keep = Arc::clone(&seen);
    let server = || {
        let keep = Arc::clone(&keep);
        GenericServer::new(XdrsClient::INTERFACE.described().unwrap(), move |call| {
            let [GenericParameter::In(value)] = call.parameters() else { unreachable!() };
            keep.lock().unwrap().push(value.clone());
            Ok(Ok(core::mem::take(value)))
        })
    };
    let name = format!("foreign-dynamic-{}", std::process::id());
    let running = Server::new().export(&name, server()).unwrap().spawn().unwrap();
    let client = XdrsClient::bind(&name).unwrap();
    proptest!(ProptestConfig::with_cases(40), |(all in all(), record in record())| {
        seen.lock().unwrap().clear();
        prop_assert_eq!(&client.all(&all).unwrap(), &all);
        called(&server(), 1, &to_bytes::<Xdr>(&all).unwrap()).unwrap();
        prop_assert_eq!(&client.record(&record).unwrap(), &record);
        called(&server(), 2, &to_bytes::<Xdr>(&record).unwrap()).unwrap();
        let seen = seen.lock().unwrap();
        for (pair, ty) in seen.chunks(2).zip(0..) {
            prop_assert_eq!(&pair[0], &pair[1]);
            #[cfg(feature = "json")]
            has_a_json_form(ty, &pair[1]);
            let _: usize = ty;
        }
    });
    drop(running);
}

/// Checks that the JSON form of a value is read as the same value.
#[cfg(feature = "json")]
fn has_a_json_form(procedure: usize, value: &Dynamic) {
    use peregrine::json::Bytes;
    let described = XdrsClient::INTERFACE.described().unwrap();
    let ty = &described.procedures[procedure].result;
    let json = described.value_to_json(ty, value, Bytes::Auto);
    let again = described.value_from_json(ty, &json).unwrap();
    assert_eq!(described.value_to_json(ty, &again, Bytes::Auto), json);
}

#[test]
fn lengths_are_limited_by_the_interface() {
    let xdrs = xdrs();
    for (procedure, fits, long) in [
        (9, to_bytes::<Xdr>(&"abc".to_owned()), to_bytes::<Xdr>(&"abcd".to_owned())),
        (10, to_bytes::<Xdr>(&vec![1u16, 2]), to_bytes::<Xdr>(&vec![1u16, 2, 3])),
    ] {
        let (fits, long) = (fits.unwrap(), long.unwrap());
        assert_eq!(called(&xdrs, procedure, &fits), Ok(fits));
        assert_eq!(called(&xdrs, procedure, &long), Err(Kind::TooLarge));
    }
}

#[test]
fn deep_and_endless_values_need_little_stack() {
    let xdrs = xdrs();
    let deep = |cells: usize| called(&xdrs, 4, &[0, 0, 0, 1].repeat(cells));
    assert_eq!(deep(100_000), Err(Kind::BadArguments));
    assert_eq!(called(&xdrs, 8, &[0, 0, 0, 1].repeat(100_000)), Err(Kind::BadArguments));
    assert_eq!(called(&couriers(), 1, &vec![0; 1 << 16]), Err(Kind::BadArguments));
    let list = (0..200).fold(None, |next, value| Some(Box::new(Node { value, next })));
    let bytes = to_bytes::<Xdr>(&*list.unwrap()).unwrap();
    assert_eq!(called(&xdrs, 3, &bytes), Ok(bytes));
    let huge = [0xff; 12];
    assert_eq!(called(&xdrs, 6, &huge), Err(Kind::BadArguments));
    assert_eq!(called(&xdrs, 10, &huge), Err(Kind::TooLarge));
}

#[test]
fn errors_are_reported_with_their_numbers() {
    let described = CouriersClient::INTERFACE.described().unwrap();
    let busy = Dynamic::Variant(1, vec![Dynamic::U16(5), Dynamic::from("ab")]);
    for (error, expected) in [
        (Dynamic::Variant(0, vec![]), Ok((0, vec![]))),
        (busy, Ok((0xfffe, vec![0, 5, 0, 2, b'a', b'b']))),
        (
            Dynamic::Variant(2, vec![Dynamic::List(vec![Dynamic::from("it failed")])]),
            Err("the procedure failed with an error that it does not report"),
        ),
        (
            Dynamic::Variant(1, vec![Dynamic::U16(5), Dynamic::from("abc")]),
            Err("Busy.why: expected at most 2 elements, got 3"),
        ),
    ] {
        let server = GenericServer::new(described.clone(), move |_| Ok(Err(error.clone())));
        let system = System::Courier;
        let call = ForeignCall { system, program: 1, version: 1, procedure: 3, arguments: &[0, 1] };
        let mut results = Vec::new();
        match (server.serve_foreign(&call, &mut results), expected) {
            (Ok(answer), Ok((number, arguments))) => {
                assert_eq!((answer, results), (ForeignAnswer::Reported(number), arguments));
            }
            (Err(refusal), Err(text)) => {
                assert!(format!("{refusal:?}").contains(text), "{refusal:?}");
            }
            (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn description_over_the_wire_has_all_numbers() {
    let name = format!("foreign-described-{}", std::process::id());
    let running = Server::new().export(&name, couriers()).unwrap().spawn().unwrap();
    let said = peregrine::describe(&name).unwrap();
    let parsed = said.parsed().unwrap();
    assert_eq!(parsed.programs, CouriersClient::INTERFACE.programs);
    assert_eq!(parsed.foreign_text(), CouriersClient::INTERFACE.foreign_text());
    assert_eq!(parsed.digest(), CouriersClient::INTERFACE.digest());
    // A client that reads only the canonical text, without the texts for other RPC systems, gets the same
    // interface.
    assert_eq!(Described::parse(&said.text).unwrap().digest(), said.digest);
    #[cfg(feature = "json")]
    assert_eq!(Described::from_json(&parsed.to_json()).unwrap(), parsed);
    drop(running);
}

#[test]
fn types_without_a_form_are_named() {
    let text = "interface Xdrs version 0\n\
        f(in key: K#0) -> unit or CallError#1\n\
        K#0 = struct {inner: sequence<u128>}\nCallError#1 = struct {chain: text}\n";
    let foreign = "program onc 536870912 version 1 procedures 1\n";
    let described = Described::parse(text).unwrap().with_foreign_text(foreign).unwrap();
    assert!(matches!(described.procedures[0].parameters[0].ty, DescribedType::Named(0)));
    let (system, program) = (System::Onc, 0x2000_0000);
    let call = ForeignCall { system, program, version: 1, procedure: 1, arguments: &[] };
    let refusal = echo(described).serve_foreign(&call, &mut Vec::new()).unwrap_err();
    let text = format!("{refusal:?}");
    assert!(text.contains("key.inner[0]: u128 has no form in XDR"), "{text}");
}
