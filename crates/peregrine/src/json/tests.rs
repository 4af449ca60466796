//! Tests that JSON of every form is written and read again, and that errors name the place of an invalid
//! value.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{Bytes, NoSlots, Slots};
use crate::interface::made_up::pool;
use crate::interface::{Described, DescribedBody, DescribedField, DescribedType};
use crate::stub::made_up::{Chance, some_value};
use crate::value::Dynamic;

fn types(all: &Described) -> impl Iterator<Item = &DescribedType> {
    all.procedures.iter().flat_map(|one| [&one.result, &one.error])
}

/// Returns whether any fields or variants have equal names. JSON cannot distinguish such fields or variants.
fn has_twins(all: &Described) -> bool {
    let twins = |mut names: Vec<&str>| {
        names.sort_unstable();
        names.windows(2).any(|pair| pair[0] == pair[1])
    };
    let fields = |all: &[DescribedField]| twins(all.iter().map(|one| &*one.name).collect());
    all.types.iter().any(|named| match &named.body {
        DescribedBody::Plain { fields: all, .. } | DescribedBody::Struct(all) => fields(all),
        DescribedBody::PlainEnum { variants, .. } => {
            twins(variants.iter().map(|one| &*one.name).collect())
        }
        DescribedBody::Enum(variants) => {
            twins(variants.iter().map(|one| &*one.name).collect())
                || variants.iter().any(|one| fields(&one.fields))
        }
        DescribedBody::Interface { .. } => false,
    })
}

proptest! {
    #[test]
    fn descriptions_are_read_again(pool in pool(), docs in prop::collection::vec(".{0,8}", 0..4)) {
        let described = pool.described().with_docs(&docs);
        let text = described.to_json().to_string();
        let json: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(Described::from_json(&json), Ok(described));
    }

    #[test]
    fn values_are_read_again(pool in pool(), seed in any::<u64>()) {
        let all = pool.described();
        prop_assume!(!has_twins(&all));
        let mut chance = Chance(seed);
        for ty in types(&all) {
            let Some(value) = some_value(&all, ty, &mut chance, 0) else { continue };
            for bytes in [Bytes::Auto, Bytes::Hex, Bytes::Array] {
                let json = all.value_to_json(ty, &value, bytes);
                let text = json.to_string();
                let again: Value = serde_json::from_str(&text).unwrap();
                let read = all.value_from_json(ty, &again);
                prop_assert!(read.is_ok(), "{:?}: {} as {}", read, text, all.type_text(ty));
                let same = all.value_to_json(ty, &read.unwrap(), bytes);
                prop_assert_eq!(same.to_string(), &*text, "as {}", all.type_text(ty));
                let within = all.value_to_json_within(ty, &value, bytes, text.len());
                prop_assert_eq!(within, Some(json), "{} fits its size", text);
            }
        }
    }

    #[test]
    fn values_of_another_type_do_no_harm(pool in pool(), seed in any::<u64>()) {
        let all = pool.described();
        let mut chance = Chance(seed);
        for ty in types(&all) {
            let Some(value) = some_value(&all, ty, &mut chance, 0) else { continue };
            for other in types(&all) {
                let json = all.value_to_json(other, &value, Bytes::Auto);
                let _ = all.value_from_json(other, &json);
            }
        }
    }

    #[test]
    fn any_object_is_a_description_or_refused(
        pool in pool(),
        at in any::<prop::sample::Index>(),
        with in prop_oneof![Just("null"), Just("{}"), Just("[]"), Just("-1"), Just("\"u8\""), Just("1e300")],
    ) {
        // Here, `with` replaces the value of the member that `at` selects.
        let text = pool.described().to_json().to_string();
        let colons: Vec<_> = text.match_indices(':').map(|(at, _)| at + 1).collect();
        let at = colons[at.index(colons.len())];
        let end = text[at..].find([',', '}', ']']).map_or(text.len(), |end| at + end);
        let text = format!("{}{with}{}", &text[..at], &text[end..]);
        if let Ok(json) = serde_json::from_str::<Value>(&text) {
            let _ = Described::from_json(&json);
        }
    }
}

fn all() -> Described {
    Described::parse(
        "interface T version 0
put(in entries: [Entry#0], in names: sequence<text>, in point: Point#1, in how: How#2, in at: tuple<u8, char>, \
in raw: [u8], in half: f32, in none: option<option<u8>>, in colour: Colour#3, in key: u128, in id: Id#4) \
-> result<u8, text> or Failed#5
Entry#0 = struct {name: text, size: option<u64>, tags: [i8; 2]}
Point#1 = plain 16 align 8 {x: f64, y: f64}
How#2 = enum Fast {} Slow {0: u32} Both {a: bool, b: unit} Two {0: u8, 1: u8}
Colour#3 = plain enum u8 Red=1 Green=7
Id#4 = struct {0: text}
Failed#5 = enum Call {0: CallError#6}
CallError#6 = struct {chain: text}
",
    )
    .unwrap()
}

#[test]
fn streams_are_read_again_and_their_items_are_values() {
    let text = "interface S version 0\n\
        f(sink items: tuple<u8, text>, source more: sequence<u8>) -> unit or text\n";
    let all = Described::parse(text).unwrap();
    let json = all.to_json();
    let parameters = &json["procedures"][0]["parameters"];
    assert_eq!(parameters[0]["direction"], "sink");
    assert_eq!(parameters[0]["shape"], "one");
    assert_eq!(parameters[1]["direction"], "source");
    assert_eq!(Described::from_json(&json), Ok(all.clone()));
    let items = &all.procedures[0].parameters[0];
    let item = Dynamic::List(vec![Dynamic::U8(7), "a".into()]);
    assert_eq!(all.argument_from_json(items, &json!([7, "a"])), Ok(item.clone()));
    assert_eq!(all.argument_to_json(items, &item, Bytes::Auto), json!([7, "a"]));
    let error = all.argument_from_json(items, &json!([7, 8])).unwrap_err();
    assert_eq!(error.to_string(), "items[1]: expected string, got number");
    let mut buffer = json.clone();
    buffer["procedures"][0]["parameters"][0]["shape"] = "buffer".into();
    buffer["digest"] = Value::Null;
    let error = Described::from_json(&buffer).unwrap_err().to_string();
    assert!(error.contains("the type of an item"), "{error}");
}

#[test]
fn values_look_as_serde_would_have_them() {
    let all = all();
    let parameters = &all.procedures[0].parameters;
    for (parameter, json) in parameters.iter().zip([
        json!([{ "name": "a", "size": null, "tags": [-1, 2] }, { "name": "b", "size": 9, "tags": [0, 0] }]),
        json!(["x", ""]),
        json!({ "x": 0.5, "y": -2e300 }),
        json!({ "Both": { "a": true, "b": null } }),
        json!([200, "水"]),
        json!("plain text\n"),
        json!(0.1),
        json!({ "some": null }),
        json!("Green"),
        json!("340282366920938463463374607431768211455"),
        json!("the id"),
    ]) {
        let value = all.argument_from_json(parameter, &json).unwrap();
        assert_eq!(all.argument_to_json(parameter, &value, Bytes::Auto), json);
    }
    let how = &parameters[3];
    for (json, value) in [
        (json!("Fast"), Dynamic::Variant(0, vec![])),
        (json!({ "Slow": 7 }), Dynamic::Variant(1, vec![Dynamic::U32(7)])),
        (json!({ "Two": [1, 2] }), Dynamic::Variant(3, vec![Dynamic::U8(1), Dynamic::U8(2)])),
    ] {
        assert_eq!(all.argument_from_json(how, &json), Ok(value.clone()));
        assert_eq!(all.argument_to_json(how, &value, Bytes::Auto), json);
    }
    // An object may omit members, and other forms of JSON may represent the same values.
    let read =
        |parameter: usize, json: Value| all.argument_from_json(&parameters[parameter], &json);
    let entry = read(0, json!([{ "name": "a", "tags": ["-1", 2] }])).unwrap();
    assert_eq!(entry, read(0, json!([{ "size": null, "tags": [-1, "2"], "name": "a" }])).unwrap());
    assert_eq!(read(5, json!({ "hex": "01 fF" })), Ok(Dynamic::Plain(vec![1, 255])));
    assert_eq!(read(6, json!("NaN")).map(|nan| format!("{nan:?}")), Ok("F32(NaN)".into()));
    assert_eq!(read(8, json!(7)), read(8, json!("Green")));
    let bytes = Dynamic::Plain(vec![0, 159]);
    assert_eq!(all.argument_to_json(&parameters[5], &bytes, Bytes::Auto), json!({ "hex": "009f" }));
}

#[test]
fn what_does_not_fit_is_told_where() {
    let all = all();
    let parameters = &all.procedures[0].parameters;
    for (parameter, json, said) in [
        (
            0,
            json!([{ "name": "a", "tags": [1, 2] }, { "name": 3, "tags": [] }]),
            "entries[1].name: expected string, got number",
        ),
        (0, json!([{ "name": "a", "tags": [1] }]), "entries[0].tags: expected 2 values, got 1"),
        (0, json!([{ "name": "a", "tags": [1, 128] }]), "entries[0].tags[1]: expected i8, got 128"),
        (0, json!([{ "tags": [1, 2] }]), "entries[0].name: it is missing"),
        (
            0,
            json!([{ "nmae": "a" }]),
            "entries[0].nmae: there is no such field; there is `name`, `size`, `tags`",
        ),
        (0, json!({}), "entries: expected array, got object"),
        (2, json!({ "x": "one", "y": 1 }), "point.x: expected f64, got \"one\""),
        (3, json!("Faster"), "how: expected one of `Fast`, `Slow`, `Both`, `Two`, got `Faster`"),
        (
            3,
            json!("Slow"),
            "how: expected {\"Slow\": ...} because `Slow` has fields, got only its name",
        ),
        (3, json!({ "Both": { "a": 1, "b": null } }), "how.Both.a: expected bool, got number"),
        (4, json!([1, "ab"]), "at[1]: expected one letter, got 2"),
        (4, json!([1]), "at: expected 2 values, got 1"),
        (
            5,
            json!({ "hex": "0g" }),
            "raw.hex: expected pairs of hexadecimal digits, got other letters",
        ),
        (5, json!(7), "raw: expected string, array or {\"hex\": ...}, got number"),
        (7, json!(7), "none: expected null or {\"some\": ...}, got number"),
        (8, json!("Blue"), "colour: expected one of `Red`, `Green`, got `Blue`"),
        (9, json!(-1), "key: expected u128, got -1"),
        (9, json!(1.5), "key: expected u128, got 1.5"),
    ] {
        let error = all.argument_from_json(&parameters[parameter], &json).expect_err(said);
        assert_eq!(error.to_string(), said);
    }
    for (json, said) in [
        (json!([]), "expected object, got array"),
        (json!({}), "there is no `interface`"),
        (json!({ "interface": "I", "version": -1 }), "version: expected number, got number"),
        (
            json!({ "interface": "I", "version": 0, "procedures": [{ "name": "f", "parameters": [
                { "name": "a", "direction": "up" }] }], "types": [] }),
            "procedures[0].parameters[0].direction: `up` is not one of in, lent, out, inout, sink, source",
        ),
        (
            json!({ "interface": "I", "version": 0, "procedures": [], "types": [
                { "name": "A", "kind": "union" }] }),
            "types[0].kind: `union` is no kind of type",
        ),
        (
            json!({ "interface": "I", "version": 0, "procedures": [], "types": [], "digest": "00" }),
            "digest: expected 11e14ac69ce3deb9ad4d123a1b37af5b for this description, got 00",
        ),
    ] {
        let error = Described::from_json(&json).expect_err(said).to_string();
        assert!(error.starts_with(said), "{error}\nrather than\n{said}");
    }
}

#[test]
fn types_without_end_take_no_stack_and_no_memory() {
    let endless = Described::parse(
        "interface I version 0\nf(in a: A#0) -> unit or unit\nA#0 = struct {0: A#0}\n",
    )
    .unwrap();
    let parameter = &endless.procedures[0].parameters[0];
    let error = endless.argument_from_json(parameter, &json!(0)).unwrap_err();
    assert!(error.to_string().ends_with("it is nested too deeply"), "{error}");
    let mut text = "interface I version 0\nf() -> T#0 or T#0\n".to_owned();
    for number in 0..30_000 {
        text.push_str(&format!("T#{number} = struct {{a: T#{}}}\n", number + 1));
    }
    text.push_str("T#30000 = struct {}\n");
    let chain = Described::parse(&text).unwrap();
    let _ = chain.value_to_json(&DescribedType::Named(0), &Dynamic::Unit, Bytes::Auto);
    let mut text = "interface I version 0\nf() -> T#0 or T#0\n".to_owned();
    for number in 0..60 {
        let next = number + 1;
        text.push_str(&format!("T#{number} = struct {{a: T#{next}, b: T#{next}}}\n"));
    }
    text.push_str("T#60 = struct {}\n");
    let doubled = Described::parse(&text).unwrap();
    let json = doubled.value_to_json(&DescribedType::Named(0), &Dynamic::Unit, Bytes::Auto);
    assert!(json.to_string().len() < 1 << 16);
    assert!(doubled.value_from_json(&DescribedType::Named(0), &json!({})).is_err());
}

#[test]
fn what_takes_no_bytes_is_told_from_what_is_absent() {
    let all = Described::parse("interface I version 0\n").unwrap();
    let unit = || Box::new(DescribedType::Unit);
    for ty in [
        DescribedType::Array(Box::new(DescribedType::U32), 0),
        DescribedType::Array(unit(), 3),
        DescribedType::Tuple(vec![DescribedType::Unit]),
    ] {
        assert_eq!(all.value_from_json(&ty, &Value::Null), Ok(Dynamic::Unit));
        let option = DescribedType::Option(Box::new(ty));
        for value in [Dynamic::Option(None), Dynamic::Option(Some(Box::new(Dynamic::Unit)))] {
            let json = all.value_to_json(&option, &value, Bytes::Auto);
            assert_eq!(all.value_from_json(&option, &json), Ok(value), "{json}");
        }
    }
    let units = DescribedType::Sequence(unit());
    for count in [0, 64, 65, 1 << 20] {
        let json = all.value_to_json(&units, &Dynamic::Units(count), Bytes::Auto);
        let read = all.value_from_json(&units, &json).unwrap();
        let count_of = |value: &Dynamic| match value {
            Dynamic::Units(count) => *count as usize,
            Dynamic::List(all) => all.len(),
            _ => usize::MAX,
        };
        assert_eq!(count_of(&read), count as usize);
    }
}

#[test]
fn floats_are_rounded_once() {
    let all = Described::parse("interface I version 0\n").unwrap();
    for bits in [0x15ae_43fd_u32, 1, 0x7f7f_ffff, 0x3dcc_cccd] {
        let value = Dynamic::F32(f32::from_bits(bits));
        let json = all.value_to_json(&DescribedType::F32, &value, Bytes::Auto).to_string();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(all.value_from_json(&DescribedType::F32, &json), Ok(value));
    }
    let error = all.value_from_json(&DescribedType::F32, &json!(1e39)).unwrap_err();
    assert_eq!(error.to_string(), "expected f32, got 1e+39");
}

/// The JSON of a struct with one numbered field is the JSON of this field. This also applies to any number of
/// nested structs of this kind.
#[test]
fn option_of_a_struct_with_one_field_is_marked_only_if_the_field_may_be_null() {
    let all = Described::parse(
        "interface I version 0
f() -> tuple<option<Id#0>, option<Inner#1>, option<Price#2>, option<Maybe#3>, option<Wrapped#4>> or unit
g() -> tuple<option<Empty#5>, option<Endless#6>, option<Choice#7>, option<Two#8>> or unit
Id#0 = struct {0: u32}
Inner#1 = struct {0: Id#0}
Price#2 = plain 8 align 8 {0: f64}
Maybe#3 = struct {0: option<u8>}
Wrapped#4 = struct {0: Maybe#3}
Empty#5 = struct {0: unit}
Endless#6 = struct {0: Endless#6}
Choice#7 = enum A {0: option<u8>}
Two#8 = struct {0: option<u8>, 1: unit}
",
    )
    .unwrap();
    let marked = json!({ "some": null });
    for (result, json) in [
        (0, json!([5, 6, 0.5, { "some": 3 }, marked])),
        (0, json!([null, null, null, marked, { "some": 4 }])),
        (1, json!([marked, null, { "A": null }, [null, null]])),
    ] {
        let ty = &all.procedures[result].result;
        let value = all.value_from_json(ty, &json).unwrap();
        assert_eq!(all.value_to_json(ty, &value, Bytes::Auto), json);
    }
    let error = all.value_from_json(&all.procedures[1].result, &json!([null, 1, null, null]));
    assert!(error.unwrap_err().to_string().starts_with("[1]: expected null or {\"some\": ...}"));
}

#[test]
fn conversion_of_a_value_that_is_too_large_ends_early() {
    let all = Described::parse(
        "interface T version 0
list() -> sequence<Item#0> or text
bytes() -> sequence<u8> or text
pairs() -> sequence<tuple<u8, u8>> or text
Item#0 = struct {first: text, second: option<u8>}
",
    )
    .unwrap();
    let item = Dynamic::List(vec![Dynamic::Text(String::new()), Dynamic::Option(None)]);
    let values = [
        Dynamic::List(vec![item; 1000]),
        Dynamic::Plain(vec![255; 1000]),
        Dynamic::Plain(vec![0; 2000]),
    ];
    for (procedure, value) in all.procedures.iter().zip(&values) {
        let ty = &procedure.result;
        let text = all.value_to_json(ty, value, Bytes::Auto).to_string();
        let within = |most| all.value_to_json_within(ty, value, Bytes::Auto, most);
        assert_eq!(within(text.len()).unwrap().to_string(), text);
        assert!(within(text.len() / 2).is_none() && within(0).is_none());
        let slots = Slots::read(&all, procedure, &Map::new()).unwrap();
        assert!(slots.returned_within(&all, procedure, value, text.len() / 2).is_none());
        let whole = slots.returned_within(&all, procedure, value, text.len());
        assert_eq!(whole, Some(slots.returned(&all, procedure, value)));
    }
}

#[test]
fn returned_buffers_are_not_larger_than_the_limit() {
    let all = Described::parse("interface T version 0\nfill(out into: [u32]) -> unit or text\n");
    let all = all.unwrap();
    let procedure = &all.procedures[0];
    let room = |given: Value| {
        let slots = Slots::read_within(&all, procedure, given.as_object().unwrap(), 1000)?;
        Ok::<_, NoSlots>(slots.back().map(|part| part.unwrap_err()).sum::<usize>())
    };
    assert_eq!(room(json!({})), Ok(1000));
    assert_eq!(room(json!({ "into": 250 })), Ok(1000));
    let refused = room(json!({ "into": 251 })).unwrap_err();
    assert_eq!(refused.to_string(), "arguments.into: the maximum is 250 elements");
}
