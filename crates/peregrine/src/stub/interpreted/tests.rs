//! Tests programs against a simple reference implementation, with random interfaces and values.
//!
//! The reference implements REPRESENTATION.md without blocks: it writes each value at its own alignment, in
//! either byte order.

use std::sync::Arc;

use proptest::prelude::*;

use super::made_up::{Chance, some_value};
use super::marshal::Stopped;
use super::program::{Form, Op, Program, Step};
use super::streams::Items;
use crate::call::streams::{Coding, Flow, HEADER_BYTES, Left, Received, Record, Taken};
use crate::interface::made_up::pool;
use crate::interface::{Described, DescribedBody, DescribedField, DescribedType, Direction};
use crate::value::{
    Dynamic, Invalid, Native, Overflow, Reader, Representation, Space, Swapped, Window, Writer,
};

/// The reference implementation.
struct Twin<'a> {
    all: &'a Described,
    head: Vec<u8>,
    swapped: bool,
}

impl Twin<'_> {
    fn number(&mut self, align: usize, bytes: &[u8]) {
        self.head.resize(self.head.len().next_multiple_of(align), 0);
        let mut bytes = bytes.to_vec();
        if self.swapped {
            bytes.reverse();
        }
        self.head.extend(bytes);
    }

    fn count(&mut self, count: usize) {
        self.number(4, &(count as u32).to_ne_bytes());
    }

    fn each(&mut self, ty: &DescribedType, values: &[Dynamic]) {
        values.iter().for_each(|value| self.value(ty, value));
    }

    fn fields(&mut self, fields: &[DescribedField], values: &[Dynamic]) {
        assert_eq!(fields.len(), values.len());
        fields.iter().zip(values).for_each(|(field, value)| self.value(&field.ty, value));
    }

    fn value(&mut self, ty: &DescribedType, value: &Dynamic) {
        macro_rules! numbers {
            ($($variant:ident $bytes:literal)*) => {
                match value {
                    $(Dynamic::$variant(number) => {
                        return self.number($bytes, &number.to_ne_bytes());
                    })*
                    _ => {}
                }
            };
        }
        numbers!(U8 1 U16 2 U32 4 U64 8 U128 16 I8 1 I16 2 I32 4 I64 8 I128 16 F32 4 F64 8);
        match (ty, value) {
            (_, Dynamic::Unit) => {}
            (_, Dynamic::Bool(value)) => self.number(1, &[u8::from(*value)]),
            (_, Dynamic::Char(value)) => self.number(4, &u32::from(*value).to_ne_bytes()),
            (_, Dynamic::Text(text)) => {
                self.count(text.len());
                self.head.extend(text.as_bytes());
            }
            (DescribedType::Array(one, _), Dynamic::List(values)) => self.each(one, values),
            (DescribedType::Sequence(one), Dynamic::List(values)) => {
                self.count(values.len());
                self.each(one, values);
            }
            (DescribedType::Option(one), Dynamic::Option(value)) => {
                self.number(1, &[u8::from(value.is_some())]);
                value.iter().for_each(|value| self.value(one, value));
            }
            (DescribedType::Result(ok, err), Dynamic::Result(value)) => {
                self.number(1, &[u8::from(value.is_err())]);
                match value {
                    Ok(value) => self.value(ok, value),
                    Err(value) => self.value(err, value),
                }
            }
            (DescribedType::Tuple(parts), Dynamic::List(values)) => {
                parts.iter().zip(values).for_each(|(one, value)| self.value(one, value));
            }
            (DescribedType::Named(number), value) => {
                match (&self.all.types[*number].body, value) {
                    // A plain type has the alignment that it declares, not the one that its fields would
                    // need.
                    (DescribedBody::Plain { fields, align, .. }, Dynamic::List(values)) => {
                        self.head.resize(self.head.len().next_multiple_of(*align as usize), 0);
                        let before = core::mem::take(&mut self.head);
                        for (field, value) in fields.iter().zip(values) {
                            let mut inner = Twin { all: self.all, head: Vec::new(), ..*self };
                            inner.value(&field.ty, value);
                            self.head.extend(inner.head);
                        }
                        self.head.splice(..0, before);
                    }
                    (DescribedBody::Struct(fields), Dynamic::List(values)) => {
                        self.fields(fields, values);
                    }
                    (DescribedBody::Enum(variants), Dynamic::Variant(number, values)) => {
                        self.number(4, &number.to_ne_bytes());
                        self.fields(&variants[*number as usize].fields, values);
                    }
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn twin(all: &Described, ty: &DescribedType, value: &Dynamic, swapped: bool) -> Vec<u8> {
    // The head begins with one byte, so that no value is aligned by chance.
    let mut twin = Twin { all, head: vec![7], swapped };
    twin.value(ty, value);
    twin.head
}

fn put<R: Representation>(program: &Program, op: u32, value: &Dynamic) -> Result<Vec<u8>, Stopped> {
    let mut memory = vec![0xaa; 1 << 16];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    writer.plain(&7u8)?;
    let done = program.put(op, value, &mut writer);
    writer.flush();
    let bytes = writer.len();
    done?;
    memory.truncate(bytes);
    Ok(memory)
}

fn take<R: Representation>(
    program: &Program,
    op: u32,
    head: &[u8],
    into: &mut Dynamic,
) -> Result<(), Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(head));
    reader.plain::<u8>()?;
    program.take(op, &mut reader, into)?;
    reader.finish()
}

/// Returns the types of all results and errors, each with its step.
fn each_type(all: &Described, program: &Program) -> Vec<(DescribedType, u32)> {
    let of = |(procedure, routine): (
        &crate::interface::DescribedProcedure,
        &super::program::Routine,
    )| {
        [(procedure.result.clone(), routine.result), (procedure.error.clone(), routine.error)]
    };
    all.procedures.iter().zip(&program.routines).flat_map(of).collect()
}

fn round_trip<R: Representation>(
    all: &Described,
    program: &Program,
    ty: &DescribedType,
    op: u32,
    value: &Dynamic,
) -> Result<(), TestCaseError> {
    let expected = twin(all, ty, value, R::SWAPPED);
    let head = put::<R>(program, op, value).map_err(|stopped| {
        TestCaseError::fail(format!("{stopped:?}: {value:?} as {}", all.type_text(ty)))
    })?;
    prop_assert_eq!(&head, &expected, "{:?} as {}", value, all.type_text(ty));
    // Reading keeps a value without gaps as one block of bytes. So the value that is read may differ from
    // `value`, but it is marshalled to the same bytes.
    let mut taken = Dynamic::Unit;
    prop_assert_eq!(take::<R>(program, op, &head, &mut taken), Ok(()));
    prop_assert_eq!(put::<R>(program, op, &taken).unwrap(), head.clone());
    let first = taken.clone();
    // Reads the head again, into the existing value.
    prop_assert_eq!(take::<R>(program, op, &head, &mut taken), Ok(()));
    prop_assert_eq!(format!("{taken:?}"), format!("{first:?}"));
    for short in 1..head.len() {
        prop_assert!(take::<R>(program, op, &head[..short], &mut taken).is_err());
    }
    Ok(())
}

/// Sends items from one end of a stream to the other. The sent bytes must equal the bytes that the reference
/// implementation writes.
fn stream<R: Representation>(
    all: &Described,
    program: &Arc<Program>,
    ty: &DescribedType,
    op: u32,
    items: &[Dynamic],
) -> Result<(), TestCaseError> {
    let (name, direction) = ("items".into(), Direction::Sink);
    let (form, max_len, nested) = (Form::Stream(op), usize::MAX, Default::default());
    let step = Step { name, direction, form, max_len, nested };
    let mut coding = Items::new(program, &step, op);
    let sender = Flow::new(1, 1 << 20, u64::MAX, 0, 0);
    for item in items {
        let encode = &mut |head: &mut Writer<'_, R>| coding.encode(item, head);
        sender.add(encode).map_err(|error| TestCaseError::fail(error.to_string()))?;
    }
    let mut message = vec![0; HEADER_BYTES];
    prop_assert_eq!(sender.collect(1 << 21, &mut message), Left::Nothing);
    let receiver = Flow::new(1, 1 << 20, 0, 1 << 30, 1 << 30);
    let mut records = Vec::new();
    Record::all(&message, |record, bytes| {
        records.push((record.count as usize, bytes.to_vec()));
        receiver.take(&record, bytes);
        Some(())
    });
    // Few bytes are sent in one record. More are sent in several. Each record is a head of its own.
    let whole: usize = records.iter().map(|(_, bytes)| bytes.len()).sum();
    prop_assert!(records.len() == 1 || whole > 8 << 10, "{} records", records.len());
    let mut rest = items;
    for (count, bytes) in records {
        prop_assert!(0 < count && count <= rest.len());
        let (sent, later) = rest.split_at(count);
        let mut twin = Twin { all, head: Vec::new(), swapped: R::SWAPPED };
        twin.each(ty, sent);
        prop_assert_eq!(bytes, twin.head);
        rest = later;
    }
    prop_assert!(rest.is_empty(), "{} items were not sent", rest.len());
    let mut taken = Taken::default();
    for item in items {
        if taken.is_empty() {
            let Received::Items(chunk) = receiver.receive(None) else {
                panic!("no record arrived")
            };
            prop_assert_eq!(taken.fill::<R>(&chunk, &mut coding), Ok(()));
        }
        let (taken, _) = taken.take(&receiver).expect("as many items as were sent");
        prop_assert_eq!(
            put::<R>(program, op, &taken).unwrap(),
            put::<R>(program, op, item).unwrap()
        );
    }
    prop_assert!(taken.is_empty());
    Ok(())
}

proptest! {
    #[test]
    fn items_of_a_stream_are_values_of_one_head(pool in pool(), seed in any::<u64>()) {
        let all = pool.described();
        let program = Arc::new(Program::flatten(&all));
        let mut chance = Chance(seed);
        for (ty, op) in each_type(&all, &program) {
            let item = |_| some_value(&all, &ty, &mut chance, 0);
            let items: Vec<Dynamic> = (0..4).map_while(item).collect();
            if !items.is_empty() {
                stream::<Native>(&all, &program, &ty, op, &items)?;
                stream::<Swapped>(&all, &program, &ty, op, &items)?;
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_plain_twin(pool in pool(), seed in any::<u64>()) {
        let all = pool.described();
        let program = Program::flatten(&all);
        let mut chance = Chance(seed);
        for (ty, op) in each_type(&all, &program) {
            for _ in 0..4 {
                let Some(value) = some_value(&all, &ty, &mut chance, 0) else { break };
                round_trip::<Native>(&all, &program, &ty, op, &value)?;
                round_trip::<Swapped>(&all, &program, &ty, op, &value)?;
            }
        }
    }

    #[test]
    fn whatever_comes_is_taken_or_refused(
        pool in pool(),
        head in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 1..200),
    ) {
        let all = pool.described();
        let program = Program::flatten(&all);
        for (_, op) in each_type(&all, &program) {
            let mut taken = Dynamic::Unit;
            if take::<Native>(&program, op, &head, &mut taken).is_ok() {
                // The padding may differ, but the values are equal.
                let again = put::<Native>(&program, op, &taken).unwrap();
                let mut other = Dynamic::Unit;
                take::<Native>(&program, op, &again, &mut other).unwrap();
                prop_assert_eq!(format!("{other:?}"), format!("{taken:?}"));
            }
            let _ = take::<Swapped>(&program, op, &head, &mut taken);
        }
    }

    #[test]
    fn values_of_another_type_are_refused(pool in pool(), seed in any::<u64>()) {
        let all = pool.described();
        let program = Program::flatten(&all);
        let mut chance = Chance(seed);
        let types = each_type(&all, &program);
        for (ty, _) in &types {
            let Some(value) = some_value(&all, ty, &mut chance, 0) else { continue };
            for (_, op) in &types {
                if let Ok(head) = put::<Native>(&program, *op, &value) {
                    let mut taken = Dynamic::Unit;
                    prop_assert_eq!(take::<Native>(&program, *op, &head, &mut taken), Ok(()));
                }
            }
        }
    }
}

fn program(types: &str) -> (Described, Program) {
    let all = Described::parse(&format!("interface I version 0\n{types}")).unwrap();
    let program = Program::flatten(&all);
    (all, program)
}

#[test]
fn data_without_gaps_is_one_step() {
    let (_, program) = program(
        "f() -> tuple<u32, u32, u32> or [tuple<u32, u32>; 5]\n\
         g() -> tuple<u8, u32> or sequence<tuple<u64, u32>>\n\
         h() -> R#0 or tuple<u32, u8>\n\
         R#0 = struct {a: u64, b: [P#1; 3], c: u16}\n\
         P#1 = plain 8 align 4 {x: u32, y: [u8; 4]}\n",
    );
    assert_eq!(
        program.to_string(),
        "f: -> solid(12 bytes) or solid(40 bytes)\n\
         g: -> record(u8, u32) or sequence(solid(12 bytes))\n\
         h: -> solid(34 bytes) or solid(5 bytes)\n"
    );
    // The size of an element is not a multiple of its alignment. So there are gaps between adjacent elements,
    // which are not one block.
    let Op::Sequence(one) = program.op(program.routines[1].error) else { panic!() };
    assert_eq!(program.solid_run(one), None);
}

#[test]
fn recursive_types_and_types_without_bytes_are_flattened() {
    let (_, program) = program(
        "f() -> A#0 or E#1\n\
         A#0 = struct {a: A#0}\n\
         E#1 = struct {a: unit, b: [unit; 18446744073709551615], c: tuple<unit>}\n",
    );
    let mut taken = Dynamic::Unit;
    let refused = take::<Native>(&program, program.routines[0].result, &[7; 9], &mut taken);
    assert_eq!(refused, Err(Invalid::TooDeep));
    let deep = (0..2000).fold(Dynamic::Unit, |inner, _| Dynamic::List(vec![inner]));
    let put_deep = put::<Native>(&program, program.routines[0].result, &deep);
    assert!(matches!(put_deep, Err(Stopped::Overflow(Overflow::TooDeep))), "{put_deep:?}");
    take::<Native>(&program, program.routines[0].error, &[7], &mut taken).unwrap();
    assert_eq!(taken, Dynamic::Unit);
}

#[test]
fn large_claimed_count_allocates_nothing() {
    let (_, program) = program(
        "f() -> sequence<text> or sequence<u64>\n\
         g() -> [text; 18446744073709551615] or [u64; 18446744073709551615]\n\
         h() -> sequence<unit> or [option<u8>; 4294967295]\n",
    );
    let head = [7, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let mut taken = Dynamic::Unit;
    for routine in &program.routines[..2] {
        for op in [routine.result, routine.error] {
            assert!(take::<Native>(&program, op, &head, &mut taken).is_err());
        }
    }
    let units = take::<Native>(&program, program.routines[2].result, &head[..8], &mut taken);
    assert_eq!((units, taken), (Ok(()), Dynamic::Units(u32::MAX)));
}

#[test]
fn long_chain_of_types_does_not_overflow_the_stack() {
    for (body, plain) in [("struct", ""), ("plain 1 align 1", "")] {
        let mut text = format!("f(in a: [T#0]) -> T#0 or text{plain}\n");
        for number in 0..10_000 {
            text.push_str(&format!("T#{number} = {body} {{next: T#{}}}\n", number + 1));
        }
        text.push_str(&format!("T#10000 = {body} {{last: u8}}\n"));
        let (all, program) = program(&text);
        assert!(program.ops.len() < 50_000);
        let op = program.routines[0].result;
        let mut taken = Dynamic::Unit;
        assert_eq!(take::<Native>(&program, op, &[7, 8], &mut taken), Err(Invalid::TooDeep));
        assert!(all.message_bytes() > 0);
    }
}

#[test]
fn error_names_the_place_of_a_wrong_value() {
    let (_, program) = program(
        "f() -> struct_of#0 or text\n\
         struct_of#0 = struct {entries: sequence<E#1>, sizes: [u16; 2], kind: K#2}\n\
         E#1 = struct {name: text, flags: sequence<bool>}\n\
         K#2 = enum Nothing {} Some {what: option<u8>}\n",
    );
    let text = |text: &str| Dynamic::from(text);
    let entry = |name: Dynamic, flags: Dynamic| Dynamic::List(vec![name, flags]);
    let value = |entry: Dynamic, sizes: Dynamic, kind: Dynamic| {
        Dynamic::List(vec![Dynamic::List(vec![entry]), sizes, kind])
    };
    let flags = || Dynamic::plain(&[true, false]);
    let sizes = || Dynamic::plain(&[1u16, 2]);
    let kind = || Dynamic::Variant(0, Vec::new());
    let good = value(entry(text("a"), flags()), sizes(), kind());
    let op = program.routines[0].result;
    put::<Native>(&program, op, &good).unwrap();
    let some = |what: Dynamic| Dynamic::Variant(1, vec![Dynamic::Option(Some(Box::new(what)))]);
    for (bad, said) in [
        (
            value(entry(Dynamic::U8(1), flags()), sizes(), kind()),
            "entries[0].name: expected text, got a u8",
        ),
        (
            value(entry(text(""), Dynamic::Plain(vec![1, 2])), sizes(), kind()),
            "entries[0].flags[1]: expected bool, got other bits",
        ),
        (
            value(entry(text(""), flags()), Dynamic::Plain(vec![1; 3]), kind()),
            "sizes: expected an array of 2 of 4 bytes, got 3 bytes",
        ),
        (
            value(
                entry(text(""), flags()),
                Dynamic::List(vec![Dynamic::U16(1), Dynamic::U32(1)]),
                kind(),
            ),
            "sizes[1]: expected u16, got a u32",
        ),
        (
            value(entry(text(""), flags()), sizes(), Dynamic::Variant(2, Vec::new())),
            "kind: expected a variant below 2, got 2",
        ),
        (
            value(entry(text(""), flags()), sizes(), some(text("x"))),
            "kind.Some.what: expected u8, got text",
        ),
        (
            value(entry(text(""), flags()), sizes(), Dynamic::Unit),
            "kind: expected a variant, got nothing",
        ),
    ] {
        match put::<Native>(&program, op, &bad) {
            Err(Stopped::Unfit(unfit)) => assert_eq!(unfit.to_string(), said),
            other => panic!("{other:?} rather than {said}"),
        }
    }
}
