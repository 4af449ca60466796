//! Tests of generic clients over a path to a server of another RPC system.

use std::sync::Arc;
use std::time::Instant;

use super::{BindOptions, Binding, Verdict, explain_all};
use crate::call::{
    Answer, Begun, Call, CallPath, ForeignAnswer, ForeignCall, Frames, PathKind, Returned, Serve,
    Wait,
};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Described, Program};
use crate::path::bind::BoundPath;
use crate::stub::{Argument, GenericClient, GenericParameter, GenericServer};
use crate::value::{ByteOrder, Dynamic, bytes_of};

/// A path that passes each call to a server stub as a call of another system.
struct Passed {
    serve: GenericServer,
    kind: PathKind,
}

impl CallPath for Passed {
    fn transport(&self, call: &mut Call<'_, '_, '_>) -> Result<Returned, CallError> {
        let layout = call.put(usize::MAX).expect("a call without blocks");
        call.head.flush();
        let mut arguments = vec![0; layout.head];
        let space = call.frame.call_space();
        space.window().read(0, &mut arguments).expect("the head is in the frame");
        let system = self.kind.system().expect("another system");
        let interface = self.serve.interface();
        let program = interface.program(system).expect("a program");
        let procedure = program.procedures[call.procedure as usize];
        let mut results = Vec::new();
        let &Program { number, version, .. } = program;
        let arguments = &arguments;
        let call_of = ForeignCall { system, program: number, version, procedure, arguments };
        let answer = match self.serve.serve_foreign(&call_of, &mut results) {
            Ok(ForeignAnswer::Returned) => Answer::Ok,
            Ok(ForeignAnswer::Reported(number)) => {
                results.splice(0..0, number.to_be_bytes());
                Answer::Err
            }
            Err(refusal) => return Err(CallError::bad_result(format!("{refusal:?}"))),
        };
        call.frame.reply_to().write(0, &results).expect("the results fit");
        Ok(Returned { answer, head_at: 0, head_bytes: results.len() as u32 })
    }
    fn begin(&self, call: &mut Call<'_, '_, '_>) -> Result<Begun, CallError> {
        self.transport(call).map(Begun::Ended)
    }
    fn poll(&self, _: &mut Call<'_, '_, '_>) -> Option<Result<Returned, CallError>> {
        None
    }
    fn arm(&self, _: u32, _: Option<Instant>) {}
    fn give_up(&self, _: &mut Call<'_, '_, '_>) -> CallError {
        CallError::bad_result("no call is pending")
    }
    fn is_prepared(&self, _: u32) -> bool {
        true
    }
    fn prepare(&self, _: u32, _: Option<Instant>) -> Result<(), CallError> {
        Ok(())
    }
    fn message_bytes(&self) -> usize {
        1 << 16
    }
    fn retransmissions(&self, _: u32) -> u32 {
        0
    }
    fn server_cpu(&self, _: u32) -> Option<u32> {
        None
    }
    fn wait(&self) -> Wait {
        Wait::Block
    }
    fn kind(&self) -> PathKind {
        self.kind
    }
    fn explain(&self) -> String {
        String::new()
    }
    fn is_alive(&self) -> bool {
        true
    }
    fn captures(&self, _: u32) -> bool {
        false
    }
    fn is_released(&self, _: u32) -> bool {
        true
    }
}

const TEXT: &str = "interface Stock version 1\n\
    find(in name: str max 8, in words: [u16] max 3, in key: Key#0) -> tuple<text, sequence<u16>, Key#0> or \
    Lack#1\n\
    wide(in a: u64) -> u64 or CallError#2\n\
    Key#0 = struct {part: text, many: sequence<sequence<i16>>}\n\
    Lack#1 = enum Short {by: u16} Failed {0: CallError#2}\nCallError#2 = struct {chain: text}\n";

fn client(kind: PathKind) -> GenericClient {
    let foreign = "program onc 536870912 version 1 procedures 4 5\n\
        program courier 3 version 1 procedures 0 9\ntype 0 field 0 max 4\ntype 1 variant 0 error 7\n";
    let described = Described::parse(TEXT).unwrap().with_foreign_text(foreign).unwrap();
    let serve = GenericServer::new(described.clone(), |call| {
        let mut all = call.parameters().iter().map(|one| match one {
            GenericParameter::In(value) => value.clone(),
            other => panic!("{other:?}"),
        });
        let first = all.next().unwrap();
        let rest: Vec<_> = all.collect();
        Ok(match &first {
            Dynamic::Text(text) if text == "lack" => {
                Err(Dynamic::Variant(0, vec![Dynamic::U16(5)]))
            }
            Dynamic::Text(_) => Ok(Dynamic::List([vec![first], rest].concat())),
            _ => Ok(first),
        })
    });
    let options = BindOptions::default();
    let frames = Arc::new(Frames::private(2, 2, 1 << 16).unwrap());
    let path = Box::new(Passed { serve, kind });
    let path = BoundPath { path, frames, order: ByteOrder::NATIVE };
    let explanation = explain_all("stock", Verdict::NotNeeded, "a test");
    let binding = Binding::of_path(path, None, described.clone().into(), explanation, &options);
    GenericClient::over(binding.unwrap(), described)
}

fn key(part: &str, many: Dynamic) -> Dynamic {
    Dynamic::List(vec![Dynamic::from(part), many])
}

/// Calls the procedure `find`.
fn find(
    client: &GenericClient,
    name: &str,
    words: &[u16],
    key: &Dynamic,
) -> Result<Result<Dynamic, Dynamic>, CallError> {
    let name = Dynamic::from(name);
    let words = Argument::Bytes(bytes_of(words).into());
    client.call("find", &mut [Argument::In(&name), words, Argument::In(key)])
}

fn both() -> [GenericClient; 2] {
    [client(PathKind::OncUdp), client(PathKind::CourierTcp)]
}

#[test]
fn values_pass_through_both_systems() {
    let rows = Dynamic::List(vec![Dynamic::plain(&[1i16, -2]), Dynamic::plain::<i16>(&[])]);
    let key = key("ab", rows);
    for client in both() {
        let parts = vec![Dynamic::from("hat"), Dynamic::plain(&[7u16, 8]), key.clone()];
        assert_eq!(find(&client, "hat", &[7, 8], &key).unwrap(), Ok(Dynamic::List(parts)));
    }
    let wide = Dynamic::U64(u64::MAX - 1);
    let answer = both()[0].call("wide", &mut [Argument::In(&wide)]);
    assert_eq!(answer.unwrap(), Ok(wide));
}

#[test]
fn errors_are_reported_in_courier_only() {
    let [onc, courier] = both();
    let key = key("", Dynamic::List(vec![]));
    let lack = Dynamic::Variant(0, vec![Dynamic::U16(5)]);
    assert_eq!(find(&courier, "lack", &[], &key).unwrap(), Err(lack));
    assert!(find(&onc, "lack", &[], &key).unwrap_err().detail().contains("does not report"));
}

#[test]
fn wrong_arguments_are_not_executed_and_the_place_is_named() {
    let rows = || Dynamic::List(vec![Dynamic::plain(&[1i16])]);
    let wrong = Dynamic::List(vec![Dynamic::List(vec![Dynamic::I16(1), Dynamic::U8(2)])]);
    for client in both() {
        let detail = |name: &str, words: &[u16], key: &Dynamic| {
            let error = find(&client, name, words, key).unwrap_err();
            assert_eq!(error.executed(), Executed::No);
            error.detail().to_owned()
        };
        assert_eq!(
            detail("a", &[], &key("a", wrong.clone())),
            "key.many[0][1]: expected i16, got a u8"
        );
        assert_eq!(
            detail("a", &[], &key("abcde", rows())),
            "key.part: expected at most 4 elements, got 5"
        );
        assert_eq!(
            detail("a", &[1, 2, 3, 4], &key("a", rows())),
            "words: expected at most 3 elements, got 4"
        );
        let error = find(&client, "long names", &[], &key("a", rows())).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
        assert!(client.call("find", &mut []).unwrap_err().detail().contains("3 arguments"));
    }
    let wide = Dynamic::U64(1);
    let error = both()[1].call("wide", &mut [Argument::In(&wide)]).unwrap_err();
    assert_eq!(error.detail(), "a: u64 has no form in Courier");
}
