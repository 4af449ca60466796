//! Tests hostile servers that have another age (version) of the client's interface. They answer with random
//! bytes, and the client must read or refuse these results.

use std::sync::{Arc, Mutex};

use peregrine::call::{Answer, Refusal, Reply, Request, Serve, Served};
use peregrine::interface::{Described, Direction, InterfaceRef, Shape};
use peregrine::value::ByteOrder;
use peregrine::{Argument, BindOptions, Binding, Dynamic, GenericClient, Kind, Out, Sink, Source};
use proptest::prelude::*;

use crate::evolve::{Age, Chance, value};

/// A server that answers every call with random bytes.
struct Noise {
    whole: Described,
    order: ByteOrder,
    chance: Mutex<Chance>,
}

/// Returns random bytes. Most of them are small, so that they are often valid as counts, numbers of variants,
/// and flags.
fn noise(chance: &mut Chance, most: usize) -> Vec<u8> {
    let count = chance.below(most + 1);
    (0..count)
        .map(|_| match chance.below(8) {
            0 => chance.next() as u8,
            1 => 2,
            2 | 3 => 1,
            _ => 0,
        })
        .collect()
}

impl Serve for Noise {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::from(self.whole.clone())
    }
    fn byte_order(&self) -> ByteOrder {
        self.order
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let procedure = self.whole.procedures.get(request.procedure() as usize);
        let procedure = procedure.ok_or_else(|| Refusal::no_such_procedure(request.procedure()))?;
        let chance = &mut *self.chance.lock().expect("no panic");
        let answer = if chance.is(3) { Answer::Err } else { Answer::Ok };
        let returns = |direction| matches!(direction, Direction::Out | Direction::InOut);
        let blocks = procedure.parameters.iter();
        let blocks = blocks.filter(|one| one.shape != Shape::One && returns(one.direction));
        let count = blocks.count();
        if answer == Answer::Ok {
            reply.expect(count);
            for index in 0..count {
                let block = noise(chance, 64);
                if let Some(place) = reply.block(block.len()) {
                    let _ = place.write(0, &block);
                }
                let filled = if chance.is(4) { chance.below(1 << 16) } else { block.len() };
                reply.filled(index, filled)?;
            }
        }
        reply.raw(answer, &noise(chance, 200))
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn results_of_random_bytes_are_read_or_refused(seed: u64) {
        let mut chance = Chance(seed);
        let old = Age::first(&mut chance);
        let mut new = old.clone();
        new.grow(&mut chance);
        for (ours, theirs) in [(&old, &new), (&new, &old)] {
            for order in [ByteOrder::NATIVE, ByteOrder::NATIVE.other()] {
                let chance_of_server = Mutex::new(Chance(chance.next()));
                let server = Noise { whole: theirs.whole.clone(), order, chance: chance_of_server };
                let options = BindOptions::default().message_bytes(1 << 16);
                let interface = InterfaceRef::from(ours.whole.clone());
                let binding = Binding::in_process_as(interface, Arc::new(server), &options).unwrap();
                let client = GenericClient::over(binding, ours.whole.clone());
                for procedure in &ours.whole.procedures {
                    for _ in 0..8 {
                        call(&client, ours, &procedure.name, &mut chance);
                    }
                }
            }
        }
    }
}

/// Makes a call with random arguments. Any outcome is allowed except a panic or a wrong kind of error.
fn call(client: &GenericClient, ours: &Age, name: &str, chance: &mut Chance) {
    let (_, procedure) = client.described().procedure(name).expect("a procedure");
    let mut values = Vec::new();
    let mut spaces = Vec::new();
    for one in &procedure.parameters {
        let is_out = one.direction == Direction::Out;
        values.push(match (is_out, one.shape) {
            (true, _) => Dynamic::Unit,
            (_, Shape::Buffer) => {
                let count = chance.below(4);
                Dynamic::List((0..count).map(|_| value(&ours.whole, &one.ty, chance, 2)).collect())
            }
            _ => value(&ours.whole, &one.ty, chance, 2),
        });
        let size = ours.whole.plain_bytes(&one.ty).filter(|_| is_out).unwrap_or(0);
        spaces.push(Vec::with_capacity(chance.below(5) * size as usize));
    }
    let mut arguments = Vec::new();
    for ((one, value), space) in procedure.parameters.iter().zip(&mut values).zip(&mut spaces) {
        arguments.push(match one.direction {
            Direction::Out => Argument::Out(Out::from(space)),
            Direction::InOut => Argument::InOut(value),
            // The server opens no stream, so no item may arrive.
            Direction::Sink => Argument::Sink(Sink::new(|item| panic!("{item:?} arrives"))),
            Direction::Source => Argument::Source(Source::new([])),
            _ => Argument::In(value),
        });
    }
    let called = client.call(name, &mut arguments).map(drop);
    if let Err(error) = called.and_then(|()| client.flush()) {
        let expected = [
            Kind::BadResult,
            Kind::BadArguments,
            Kind::NoSuchProcedure,
            Kind::TooLarge,
            Kind::OneWay,
        ];
        assert!(expected.contains(&error.kind()), "{error}");
    }
}
