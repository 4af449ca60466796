//! Tests clients and servers of random ages (versions) of an interface. If both sides have a part, its value
//! arrives unchanged or converted. After a forbidden change, the client is refused.

use std::sync::{Arc, Mutex};

use peregrine::interface::{
    DescribedParameter, DescribedType, Direction, InterfaceRef, Rule, Shape,
};
use peregrine::{
    Argument, BindOptions, Binding, CallError, Dynamic, Executed, GenericCall, GenericClient,
    GenericOutcome, GenericParameter, GenericServer, Kind, Out, Sink, Source,
};
use proptest::prelude::*;

use crate::evolve::{Age, Chance, id, value};
use crate::reference::{Conversion, Impossible, bytes_of, bytes_without_gaps, pack};
use crate::swapped::SwappedServer;

/// What a server received in one call, and what it answered.
#[derive(Debug, Default)]
struct Record {
    /// The bytes of each parameter that the server received. `None` for an out parameter.
    received: Vec<Option<Vec<u8>>>,
    /// The number of elements that fit into each out parameter. 0 for other parameters.
    room: Vec<usize>,
    /// The values that the server returned in each out or in-out parameter. A unit for other parameters.
    returned: Vec<Dynamic>,
    answer: Option<Result<Dynamic, Dynamic>>,
}

fn is_stream(one: &DescribedParameter) -> bool {
    matches!(one.direction, Direction::Sink | Direction::Source)
}

/// Returns the type of a whole parameter: for a buffer, a sequence of its elements.
fn type_of(one: &DescribedParameter) -> DescribedType {
    match one.shape {
        // The items of a stream are compared as one sequence.
        _ if is_stream(one) => DescribedType::Sequence(Box::new(one.ty.clone())),
        Shape::Buffer => DescribedType::Sequence(Box::new(one.ty.clone())),
        _ => one.ty.clone(),
    }
}

fn size_of(age: &Age, one: &DescribedParameter) -> usize {
    bytes_without_gaps(&age.whole, &one.ty)
}

/// Returns `count` random elements of a buffer.
fn elements(age: &Age, one: &DescribedParameter, count: usize, chance: &mut Chance) -> Dynamic {
    Dynamic::List((0..count).map(|_| value(&age.whole, &one.ty, chance, 3)).collect())
}

/// Writes the elements of a buffer to `out`.
fn fill(age: &Age, one: &DescribedParameter, values: &Dynamic, out: &mut Out<'_, u8>) {
    let Dynamic::List(values) = values else { panic!("{values:?} is not a list") };
    let mut block = Vec::new();
    values.iter().for_each(|value| pack(&age.whole, &one.ty, value, &mut block));
    out.put(&block).expect("enough space");
}

/// Serves a call at a server of the age `age`: notes what the server received, and answers with
/// random values.
fn answer(
    age: &Age,
    call: &mut GenericCall<'_>,
    seed: u64,
    record: &Mutex<Record>,
) -> GenericOutcome {
    let mut chance = Chance(seed);
    let mut noted = Record::default();
    let procedure = call.procedure();
    for (one, parameter) in procedure.parameters.iter().zip(call.parameters()) {
        let ty = type_of(one);
        let (mut received, mut room, mut returned) = (None, 0, Dynamic::Unit);
        match parameter {
            GenericParameter::In(value) => received = Some(bytes_of(&age.whole, &ty, value)),
            GenericParameter::Lent(lent) => {
                let mut block = vec![0; lent.len()];
                lent.copy_to(0, &mut block).expect("the whole buffer");
                let value = Dynamic::Plain(block);
                received = Some(bytes_of(&age.whole, &ty, &value));
            }
            GenericParameter::Out(out) => {
                room = out.capacity() / size_of(age, one);
                let count = chance.below(room + 1);
                returned = elements(age, one, count, &mut chance);
                fill(age, one, &returned, out);
            }
            GenericParameter::InOut(place) => {
                received = Some(bytes_of(&age.whole, &ty, place));
                returned = match (one.shape, &*place) {
                    (Shape::One, _) => value(&age.whole, &one.ty, &mut chance, 1),
                    // A buffer keeps its length.
                    (_, Dynamic::List(values)) => elements(age, one, values.len(), &mut chance),
                    (_, Dynamic::Units(count)) => elements(age, one, *count as usize, &mut chance),
                    (_, Dynamic::Plain(block)) => {
                        elements(age, one, block.len() / size_of(age, one), &mut chance)
                    }
                    (_, other) => panic!("{other:?} is not a buffer"),
                };
                *place = returned.clone();
            }
            GenericParameter::Sink(sink) => {
                let count = chance.below(40);
                returned = elements(age, one, count, &mut chance);
                let Dynamic::List(items) = &returned else { unreachable!() };
                items.iter().for_each(|item| sink.send(item.clone()).expect("a reader"));
            }
            GenericParameter::Source(source) => {
                let mut items = Vec::new();
                while let Some(item) = source.next().expect("all items") {
                    items.push(item);
                }
                received = Some(bytes_of(&age.whole, &ty, &Dynamic::List(items)));
            }
            GenericParameter::Callback(_) => {
                unreachable!("no made-up interface here has callbacks")
            }
        }
        noted.received.push(received);
        noted.room.push(room);
        noted.returned.push(returned);
    }
    let answer = match chance.is(3) {
        true => Err(value(&age.whole, &procedure.error, &mut chance, 1)),
        false => Ok(value(&age.whole, &procedure.result, &mut chance, 1)),
    };
    noted.answer = Some(answer.clone());
    *record.lock().unwrap() = noted;
    Ok(answer)
}

/// Checks the error of a one-way call that was not executed. The call itself or `flush` has
/// returned this error.
fn did_not_run(error: Option<CallError>) {
    let error = error.expect("the call cannot run");
    assert_eq!(error.executed(), Executed::No, "{error}");
    if error.kind() == Kind::OneWay {
        assert_eq!((error.oneway_failed(), error.oneway_not_run()), (1, 1), "{error}");
    }
}

/// A client of one age and a server of another.
struct Pair<'a> {
    ours: &'a Age,
    theirs: &'a Age,
    client: GenericClient,
    record: Arc<Mutex<Record>>,
}

impl<'a> Pair<'a> {
    fn new(ours: &'a Age, theirs: &'a Age, swapped: bool, seed: u64) -> Result<Self, CallError> {
        let record = Arc::new(Mutex::new(Record::default()));
        let (served, noted) = (theirs.clone(), Arc::clone(&record));
        let server = GenericServer::new(theirs.whole.clone(), move |call| {
            answer(&served, call, seed, &noted)
        });
        let options = BindOptions::default().message_bytes(1 << 16);
        let interface = InterfaceRef::from(ours.whole.clone());
        let binding = match swapped {
            false => Binding::in_process_as(interface, Arc::new(server), &options)?,
            true => {
                Binding::in_process_as(interface, Arc::new(SwappedServer::new(server)), &options)?
            }
        };
        let client = GenericClient::over(binding, ours.whole.clone());
        Ok(Self { ours, theirs, client, record })
    }

    /// Calls one procedure with random arguments. Compares what the server and the client receive with what
    /// the reference conversion returns.
    fn call(&self, number: usize, chance: &mut Chance) {
        let (ours, theirs) = (self.ours, self.theirs);
        let procedure = &ours.whole.procedures[number];
        let served =
            theirs.whole.procedures.iter().find(|one| id(&one.name) == id(&procedure.name));
        let (there, back) =
            (Conversion { from: ours, to: theirs }, Conversion { from: theirs, to: ours });

        // The arguments.
        let mut values: Vec<Dynamic> = Vec::new();
        let mut memory: Vec<Vec<u8>> = Vec::new();
        for one in &procedure.parameters {
            let is_out = one.direction == Direction::Out;
            let room = if is_out { chance.below(5) * size_of(ours, one) } else { 0 };
            memory.push(vec![0xee; room]);
            values.push(match one.direction {
                Direction::Out | Direction::Sink => Dynamic::Unit,
                Direction::Source => {
                    let count = chance.below(40);
                    elements(ours, one, count, chance)
                }
                _ => value(&ours.whole, &type_of(one), chance, 1),
            });
        }
        let sent = values.clone();
        let mut outs: Vec<usize> = vec![0; values.len()];
        let mut filled: Vec<Option<Vec<u8>>> = Vec::new();
        let mut spaces: Vec<Vec<u8>> =
            memory.iter().map(|one| Vec::with_capacity(one.len())).collect();
        let mut sunk: Vec<Vec<Dynamic>> = vec![Vec::new(); values.len()];
        let mut arguments: Vec<Argument<'_>> = Vec::new();
        let places = procedure.parameters.iter().zip(&mut values).zip(&mut spaces).zip(&mut sunk);
        for (((one, value), space), sunk) in places {
            arguments.push(match one.direction {
                Direction::Sink => Argument::Sink(Sink::from(sunk)),
                Direction::Source => {
                    let Dynamic::List(items) = value else { unreachable!() };
                    Argument::Source(Source::new(items.iter().cloned()))
                }
                Direction::Out => Argument::Out(Out::from(space)),
                Direction::InOut => Argument::InOut(value),
                _ => Argument::In(value),
            });
        }
        *self.record.lock().unwrap() = Record::default();
        let mut called = self.client.call(&procedure.name, &mut arguments);
        drop(arguments);
        let mut told = Ok(());
        if procedure.oneway {
            assert!(matches!(called, Ok(Ok(Dynamic::Unit)) | Err(_)), "{called:?}");
            told = self.client.flush();
            // A one-way call returns before it has run. So `flush` may return the error of the call
            // itself.
            if let Err(error) = &told
                && error.kind() != Kind::OneWay
            {
                called = Err(told.expect_err("as before"));
                told = Ok(());
            }
        }
        for (one, space) in procedure.parameters.iter().zip(&spaces) {
            filled.push((one.direction == Direction::Out).then(|| space.clone()));
        }
        let record = std::mem::take(&mut *self.record.lock().unwrap());

        let Some(served) = served else {
            if procedure.oneway {
                return did_not_run(called.err().or(told.err()));
            }
            let error = called.expect_err("the server has no such procedure");
            assert_eq!((error.kind(), error.executed()), (Kind::NoSuchProcedure, Executed::No));
            assert!(error.to_string().contains(&procedure.name), "{error}");
            assert!(self.client.binding().lacks().contains(&procedure.name));
            return;
        };
        // What the server must have received.
        let mut expected = Vec::new();
        for one in &served.parameters {
            let ours = procedure.parameters.iter().position(|our| id(&our.name) == id(&one.name));
            expected.push(match (one.direction, ours) {
                (Direction::Out, Some(our)) => {
                    let size = size_of(self.ours, &procedure.parameters[our]);
                    outs[our] = memory[our].len() / size;
                    Ok(None)
                }
                (Direction::Out, None) | (Direction::Sink, _) => Ok(None),
                (_, Some(our)) => {
                    let from = type_of(&procedure.parameters[our]);
                    there.value(&from, &type_of(one), &sent[our]).map(Some)
                }
                (_, None) if one.shape == Shape::One => Ok(Some(there.missing(&one.name))),
                (_, None) if one.shape == Shape::Text => Ok(Some(Dynamic::Text(String::new()))),
                (_, None) => Ok(Some(Dynamic::List(Vec::new()))),
            });
        }
        if expected.contains(&Err(Impossible)) {
            assert!(record.answer.is_none(), "the server was called with an impossible argument");
            if procedure.oneway {
                return did_not_run(called.err().or(told.err()));
            }
            let error = called.expect_err("an argument cannot be converted");
            assert_eq!(error.kind(), Kind::BadArguments, "{error}");
            assert_eq!(error.executed(), Executed::No, "{error}");
            return;
        }
        assert_eq!(record.received.len(), served.parameters.len(), "{called:?}");
        for ((one, received), expected) in
            served.parameters.iter().zip(&record.received).zip(expected)
        {
            let expected = expected.expect("checked before");
            let bytes = expected.map(|value| bytes_of(&theirs.whole, &type_of(one), &value));
            assert_eq!(received, &bytes, "parameter {}", one.name);
        }
        for (our, sunk) in procedure.parameters.iter().zip(sunk) {
            if our.direction == Direction::Sink {
                let their = served.parameters.iter().position(|one| id(&one.name) == id(&our.name));
                let sent = &record.returned[their.expect("a stream is never removed")];
                let Dynamic::List(mut sent) = sent.clone() else { unreachable!() };
                if called.is_err() {
                    // The result cannot be converted, so the client takes no more items.
                    sent.truncate(sunk.len());
                }
                let [got, sent] = [sunk, sent]
                    .map(|items| bytes_of(&ours.whole, &type_of(our), &Dynamic::List(items)));
                assert_eq!(got, sent, "{}", our.name);
            }
        }
        // What the client must have received.
        let answer = record.answer.expect("an answer");
        if procedure.oneway {
            let failed = told.map_err(|error| (error.oneway_failed(), error.oneway_not_run()));
            assert_eq!(failed, if answer.is_ok() { Ok(()) } else { Err((1, 0)) });
            return;
        }
        let (from, to, value) = match &answer {
            Ok(value) => (&served.result, &procedure.result, value),
            Err(value) => (&served.error, &procedure.error, value),
        };
        let mut returned = vec![back.value(from, to, value)];
        for our in &procedure.parameters {
            let their = served.parameters.iter().position(|one| id(&one.name) == id(&our.name));
            let is_returned = matches!(our.direction, Direction::Out | Direction::InOut);
            if let (Some(their), true, true) = (their, is_returned, answer.is_ok()) {
                let from = type_of(&served.parameters[their]);
                returned.push(back.value(&from, &type_of(our), &record.returned[their]));
            }
        }
        if returned.contains(&Err(Impossible)) {
            let error = called.expect_err("the result cannot be converted");
            assert_eq!(error.kind(), Kind::BadResult, "{error}");
            assert_eq!(error.executed(), Executed::Maybe, "{error}");
            return;
        }
        let mut returned = returned.into_iter().map(|one| one.expect("checked before"));
        let result = returned.next().expect("the converted result");
        let got = match (&called, &answer) {
            (Ok(Ok(got)), Ok(_)) | (Ok(Err(got)), Err(_)) => got,
            other => panic!("the client got {other:?}"),
        };
        assert_eq!(bytes_of(&ours.whole, to, got), bytes_of(&ours.whole, to, &result));
        if answer.is_err() {
            return;
        }
        for (place, our) in procedure.parameters.iter().enumerate() {
            let their = served.parameters.iter().position(|one| id(&one.name) == id(&our.name));
            match our.direction {
                Direction::Out => {
                    let got = filled[place].clone().expect("an out parameter");
                    let expected = match their {
                        Some(their) => {
                            assert_eq!(record.room[their], outs[place], "{}", our.name);
                            returned.next().expect("a returned buffer")
                        }
                        None => Dynamic::List(Vec::new()),
                    };
                    let got = bytes_of(&ours.whole, &type_of(our), &Dynamic::Plain(got));
                    assert_eq!(
                        got,
                        bytes_of(&ours.whole, &type_of(our), &expected),
                        "{}",
                        our.name
                    );
                }
                Direction::InOut => {
                    let expected = returned.next().expect("a returned value");
                    let got = bytes_of(&ours.whole, &type_of(our), &values[place]);
                    assert_eq!(
                        got,
                        bytes_of(&ours.whole, &type_of(our), &expected),
                        "{}",
                        our.name
                    );
                }
                _ => {}
            }
        }
    }
}

/// Returns the configuration of a property test. It has `usual` cases, or as many as the
/// environment variable `PEREGRINE_CASES` says.
fn cases(usual: u32) -> ProptestConfig {
    let cases = std::env::var("PEREGRINE_CASES").ok().and_then(|text| text.parse().ok());
    let cases = cases.unwrap_or(usual);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 0, ..Default::default() }
}

proptest! {
    #![proptest_config(cases(120))]

    /// A client of each age calls a server of each age. If both sides have a part, its value arrives. A part
    /// that only the receiver has gets its default.
    #[test]
    fn values_are_converted_between_all_ages(seed: u64) {
        let mut chance = Chance(seed);
        let mut ages = vec![Age::first(&mut chance)];
        for _ in 0..2 {
            let mut next = ages.last().expect("the first").clone();
            next.grow(&mut chance);
            ages.push(next);
        }
        for (ours, theirs) in ages.iter().flat_map(|one| ages.iter().map(move |other| (one, other))) {
            for swapped in [false, true] {
                let pair = Pair::new(ours, theirs, swapped, chance.next());
                let pair = pair.unwrap_or_else(|error| {
                    panic!("{error}\nclient:\n{}\nserver:\n{}", ours.whole, theirs.whole)
                });
                for (number, procedure) in ours.whole.procedures.iter().enumerate() {
                    // The server that swaps bytes does not swap the items of streams, so it gets no calls
                    // with streams.
                    if swapped && procedure.parameters.iter().any(is_stream) {
                        continue;
                    }
                    for _ in 0..3 {
                        pair.call(number, &mut chance);
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn forbidden_changes_are_refused(seed: u64) {
        let mut chance = Chance(seed);
        let old = Age::first(&mut chance);
        let mut new = old.clone();
        let Some(rule) = new.break_a_rule(&mut chance) else { return Ok(()) };
        let found: Vec<Rule> = [(&old, &new), (&new, &old)]
            .into_iter()
            .flat_map(|(ours, theirs)| {
                use peregrine::interface::{Sides, compare};
                compare(&ours.whole, &theirs.whole, Sides::BY_CLIENT).differences
            })
            .map(|difference| difference.rule)
            .filter(|rule| !rule.fits())
            .collect();
        // If no value of this interface contains the changed type, the description does not contain the type
        // either, and the change has no effect.
        if old.whole.to_string() == new.whole.to_string() {
            return Ok(());
        }
        prop_assert!(found.contains(&rule), "{rule:?}, not {found:?}\n{}\n{}", old.whole, new.whole);
        let refused = |ours: &Age, theirs: &Age| {
            let bound = Pair::new(ours, theirs, false, 0).map(drop);
            bound.err().filter(|error| error.to_string().contains(rule.text()))
        };
        let refused = refused(&old, &new).or_else(|| refused(&new, &old));
        let error = refused.expect("one of the clients is refused by this rule");
        prop_assert_eq!((error.kind(), error.executed()), (Kind::InterfaceMismatch, Executed::No));
    }
}
