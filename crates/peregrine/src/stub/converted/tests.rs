//! Tests of conversion programs: each step converts valid bytes, in both byte orders, and refuses invalid
//! bytes.

use core::fmt::Debug;
use std::sync::Arc;

use super::Program;
use super::convert::Stopped;
use super::program::Part;
use crate::binding::{BindOptions, Binding};
use crate::interface::{Described, InterfaceRef, Sides, compare};
use crate::limits;
use crate::stub::{Argument, GenericClient, GenericServer};
use crate::value::{Dynamic, Native, Reader, Representation, Space, Swapped, Window, Writer};

/// A number in a message: its size, its alignment, and its value.
#[derive(Clone, Copy, Debug)]
struct Number(usize, usize, u128);

/// Returns a number at its natural alignment.
const fn n(bytes: usize, value: u128) -> Number {
    Number(bytes, bytes, value)
}

/// Returns a number within a plain value, where nothing is aligned.
const fn p(bytes: usize, value: u128) -> Number {
    Number(bytes, 1, value)
}

/// Returns a signed number at its natural alignment.
const fn i(bytes: usize, value: i128) -> Number {
    Number(bytes, bytes, value as u128)
}

fn text(text: &str) -> Vec<Number> {
    let letters = text.bytes().map(|byte| n(1, byte.into()));
    core::iter::once(n(4, text.len() as u128)).chain(letters).collect()
}

fn bytes<R: Representation>(numbers: &[Number]) -> Vec<u8> {
    let mut all = Vec::new();
    for &Number(bytes, align, value) in numbers {
        all.resize(all.len().next_multiple_of(align), 0);
        let mut number = value.to_le_bytes()[..bytes].to_vec();
        if cfg!(target_endian = "big") != R::SWAPPED {
            number.reverse();
        }
        all.extend(number);
    }
    all
}

/// Returns a description with one procedure. The first line of `lines` is the type of the first parameter,
/// and the other lines are named types. `more` follows the first parameter.
fn described(lines: &str, more: &str) -> Described {
    let (first, types) = lines.split_once('\n').unwrap_or((lines, ""));
    let end = if types.is_empty() { "" } else { "\n" };
    let text =
        format!("interface I version 1\nf(in a: {first}{more}) -> unit or text\n{types}{end}");
    Described::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the program that converts between two descriptions with one procedure. Also returns the part of
/// the program that converts the parameter `number` of this procedure.
fn program(ours: &Described, theirs: &Described, number: usize) -> (Program, Part) {
    let all = compare(ours, theirs, Sides::BY_CLIENT);
    assert_eq!(all.misfit(), None, "\n{ours}{theirs}");
    let program = Program::new(ours, theirs, &all.procedures).unwrap().expect("a difference");
    let part = program.routine(0).expect("a converted procedure").arguments[number].head;
    (program, part)
}

/// Runs a part on bytes. The result may have at most `room` bytes. Returns the result and the number of bytes
/// that were not read.
fn run<A: Representation, B: Representation>(
    (program, part): &(Program, Part),
    sent: &[u8],
    room: usize,
) -> Result<(Vec<u8>, usize), Stopped> {
    let mut memory = vec![0xaa; room];
    let mut reader = Reader::<A>::represented(Window::from(sent));
    let mut writer = Writer::<B>::represented(Space::of_mut(&mut memory[..]));
    program.part(*part, &mut reader, &mut writer, 0)?;
    writer.flush();
    let (bytes, left) = (writer.len(), reader.remaining());
    memory.truncate(bytes);
    Ok((memory, left))
}

fn said<T: Debug>(outcome: &Result<T, Stopped>) -> String {
    format!("{outcome:?}")
}

/// Checks that a part converts the value `sent` to the value `received`, and refuses a shorter message and a
/// smaller buffer.
fn converts_as<A: Representation, B: Representation>(
    program: &(Program, Part),
    sent: &[Number],
    received: &[Number],
) {
    let (sent, received) = (bytes::<A>(sent), bytes::<B>(received));
    let room = received.len();
    assert_eq!(run::<A, B>(program, &sent, room).unwrap(), (received, 0), "{sent:?}");
    for short in 0..sent.len() {
        let refused = said(&run::<A, B>(program, &sent[..short], room));
        assert_eq!(refused, "Err(Invalid(Short))", "{short} bytes of {sent:?}");
    }
    for less in 0..room {
        let refused = said(&run::<A, B>(program, &sent, less));
        assert_eq!(refused, "Err(Overflow(Full))", "{less} bytes of space for {sent:?}");
    }
}

fn converts_part(program: &(Program, Part), sent: &[Number], received: &[Number]) {
    converts_as::<Native, Native>(program, sent, received);
    converts_as::<Native, Swapped>(program, sent, received);
    converts_as::<Swapped, Native>(program, sent, received);
    converts_as::<Swapped, Swapped>(program, sent, received);
}

/// Checks how values of `ours` arrive as `theirs`. The server's procedure has one more parameter, so that the
/// procedures differ even if the two types are equal.
fn converts(ours: &str, theirs: &str, values: &[(&[Number], &[Number])]) {
    let program = program(&described(ours, ""), &described(theirs, ", in z: option<u8>"), 0);
    for (sent, received) in values {
        converts_part(&program, sent, received);
    }
}

/// Checks that values of a type arrive as they are, and are skipped by a server that does not know the
/// parameter.
fn keeps(ty: &str, values: &[&[Number]]) {
    let same: Vec<_> = values.iter().map(|value| (*value, *value)).collect();
    converts(ty, ty, &same);
    let (first, types) = ty.split_once('\n').unwrap_or((ty, ""));
    let optional = described(&format!("u8, in b: option<{first}>\n{types}"), "");
    let program = program(&optional, &described("u8", ""), 1);
    for value in values {
        let some: Vec<_> = core::iter::once(n(1, 1)).chain(value.iter().copied()).collect();
        converts_part(&program, &some, &[]);
        converts_part(&program, &[n(1, 0)], &[]);
    }
}

/// Checks the error for values of `ours` that cannot arrive as `theirs`.
fn refuses(ours: &str, theirs: &str, values: &[(&[Number], &str)]) {
    let program = program(&described(ours, ""), &described(theirs, ", in z: option<u8>"), 0);
    for (sent, error) in values {
        let native = said(&run::<Native, Swapped>(&program, &bytes::<Native>(sent), 4096));
        let swapped = said(&run::<Swapped, Native>(&program, &bytes::<Swapped>(sent), 4096));
        assert_eq!((&*native, &*swapped), (*error, *error), "{sent:?} of {ours}");
    }
}

/// Checks that a server gets a default for a parameter that the client does not know.
fn fills(ty: &str, default: &str, received: &[Number]) {
    let (first, types) = ty.split_once('\n').unwrap_or((ty, ""));
    let theirs = described(&format!("u8, in b: {first}{default}\n{types}"), "");
    converts_part(&program(&described("u8", ""), &theirs, 1), &[], received);
}

#[test]
fn values_without_bytes_stay_nothing() {
    for ty in ["unit", "[u64; 0]", "[unit; 18446744073709551615]", "tuple<unit, [u8; 0]>"] {
        keeps(ty, &[&[]]);
    }
    keeps("A#0\nA#0 = struct {}", &[&[]]);
    keeps("A#0\nA#0 = struct {a: B#1, b: [B#1; 4294967296]}\nB#1 = struct {x: unit}", &[&[]]);
    keeps("sequence<unit>", &[&[n(4, 4_294_967_295)]]);
}

#[test]
fn numbers_keep_their_values() {
    for (ty, bytes) in [("bool", 1), ("u8", 1), ("i16", 2), ("f32", 4), ("u64", 8), ("u128", 16)] {
        keeps(ty, &[&[n(bytes, 1)], &[n(bytes, 0)]]);
    }
    keeps("char", &[&[n(4, 0x6c34)]]);
    keeps("[u16; 3]", &[&[n(2, 1), n(2, 2), n(2, 0xfff3)]]);
    keeps("[[u32; 2]; 2]", &[&[n(4, 1), n(4, 2), n(4, 3), n(4, 4)]]);
    // Numbers of one size are one step, and numbers of several sizes are aligned.
    keeps(
        "tuple<u16, i16, [u16; 2], u8, u32>",
        &[&[n(2, 1), n(2, 2), n(2, 3), n(2, 4), n(1, 5), n(4, 6)]],
    );
}

#[test]
fn integers_change_their_width_if_they_fit() {
    let (u, s) = ([1, 2, 4, 8, 16], [1, 2, 4, 8, 16]);
    for (from, to) in u.into_iter().flat_map(|from| s.map(|to| (from, to))).filter(|(a, b)| a != b)
    {
        let (ours, theirs) = (8 * from, 8 * to);
        let least = from.min(to);
        let most = u128::MAX >> (128 - 8 * least);
        let unsigned = (format!("u{ours} widens"), format!("u{theirs} widens"));
        converts(
            &unsigned.0,
            &unsigned.1,
            &[0, 1, most]
                .map(|value| ([n(from, value)], [n(to, value)]))
                .each_ref()
                .map(|(sent, received)| (&sent[..], &received[..])),
        );
        let signed = (format!("i{ours} widens"), format!("i{theirs} widens"));
        let (lowest, highest) = (-1 - (most >> 1) as i128, (most >> 1) as i128);
        converts(
            &signed.0,
            &signed.1,
            &[lowest, -1, 0, highest]
                .map(|value| ([i(from, value)], [i(to, value)]))
                .each_ref()
                .map(|(sent, received)| (&sent[..], &received[..])),
        );
        if from < to {
            continue;
        }
        let beyond = |value: String, is_signed: bool| {
            format!("Err(OutOfRange {{ value: {value}, signed: {is_signed}, bytes: {to} }})")
        };
        let largest = u128::MAX >> (128 - 8 * from);
        let (next, last) = (beyond((most + 1).to_string(), false), largest as i128);
        let last = beyond(last.to_string(), false);
        refuses(
            &unsigned.0,
            &unsigned.1,
            &[(&[n(from, most + 1)], &next), (&[n(from, largest)], &last)],
        );
        let (less, more) =
            (beyond((lowest - 1).to_string(), true), beyond((highest + 1).to_string(), true));
        refuses(
            &signed.0,
            &signed.1,
            &[(&[i(from, lowest - 1)], &less), (&[i(from, highest + 1)], &more)],
        );
    }
}

#[test]
fn errors_show_integers_as_their_sender_has_them() {
    let text = |own: &str| {
        format!(
            "interface I version 1\nf(in a: {own} widens) -> A#0 or text\nA#0 = struct {{0: {own} widens}}\n"
        )
    };
    let most = "340282366920938463463374607431768211455";
    for (wide, narrow, value, written) in [
        ("u128", "u64", Dynamic::U128(u128::MAX), most),
        ("u128", "u8", Dynamic::U128(256), "256"),
        ("i128", "i64", Dynamic::I128(-1 << 100), "-1267650600228229401496703205376"),
    ] {
        let [wide, narrow] = [wide, narrow].map(|own| Described::parse(&text(own)).unwrap());
        let call = |ours: &Described, theirs: &Described, argument: &Dynamic, result: &Dynamic| {
            let result = Dynamic::List(vec![result.clone()]);
            let server = GenericServer::new(theirs.clone(), move |_| Ok(Ok(result.clone())));
            let interface = InterfaceRef::from(ours.clone());
            let options = BindOptions::default();
            let binding = Binding::in_process_as(interface, Arc::new(server), &options).unwrap();
            let client = GenericClient::over(binding, ours.clone());
            client.call("f", &mut [Argument::In(argument)]).unwrap_err().to_string()
        };
        let small = if written.starts_with('-') { Dynamic::I64(1) } else { Dynamic::U64(1) };
        let small = if written == "256" { Dynamic::U8(1) } else { small };
        let sent = call(&wide, &narrow, &value, &small);
        assert!(sent.contains(&format!("the integer {written} does not fit the ")), "{sent}");
        assert!(sent.contains("bits of the server"), "{sent}");
        let received = call(&narrow, &wide, &small, &value);
        assert!(
            received.contains(&format!("the integer {written} does not fit the ")),
            "{received}"
        );
        assert!(received.contains("bits of the client"), "{received}");
    }
}

#[test]
fn sequences_keep_their_counts() {
    keeps("text", &[&text("falcon"), &text("")]);
    keeps("sequence<u16>", &[&[n(4, 2), n(2, 1), n(2, 2)], &[n(4, 0)]]);
    let pair = "sequence<A#0>\nA#0 = struct {name: text, size: u16}";
    let two = [&[n(4, 2)], &text("a")[..], &[n(2, 1)], &text("bc"), &[n(2, 2)]].concat();
    keeps(pair, &[&two, &[n(4, 0)]]);
    converts(
        "sequence<u8> widens",
        "sequence<u32> widens",
        &[(&[n(4, 3), n(1, 1), n(1, 2), n(1, 255)], &[n(4, 3), n(4, 1), n(4, 2), n(4, 255)])],
    );
    // A count that is larger than the message allocates nothing.
    let short = "Err(Invalid(Short))";
    refuses("sequence<u64>", "sequence<u64>", &[(&[n(4, 4_294_967_295), n(8, 1)], short)]);
    refuses("sequence<text>", "sequence<text>", &[(&[n(4, 4_294_967_295), n(4, 0)], short)]);
}

#[test]
fn arrays_options_and_results_keep_their_parts() {
    keeps("[option<u16>; 3]", &[&[n(1, 1), n(2, 7), n(1, 0), n(1, 1), n(2, 8)]]);
    keeps("[A#0; 2]\nA#0 = struct {x: u8, y: u32}", &[&[n(1, 1), n(4, 2), n(1, 3), n(4, 4)]]);
    keeps("option<option<u32>>", &[&[n(1, 1), n(1, 1), n(4, 9)], &[n(1, 1), n(1, 0)], &[n(1, 0)]]);
    keeps("result<u32, text>", &[&[n(1, 0), n(4, 5)], &[&[n(1, 1)], &text("no")[..]].concat()]);
    converts(
        "option<[u8; 2]> widens",
        "option<[u16; 2]> widens",
        &[(&[n(1, 1), n(1, 1), n(1, 2)], &[n(1, 1), n(2, 1), n(2, 2)]), (&[n(1, 0)], &[n(1, 0)])],
    );
    let bits = "Err(Invalid(Bits))";
    refuses("option<u8>", "option<u8>", &[(&[n(1, 2), n(1, 0)], bits)]);
    refuses("result<u8, u8>", "result<u8, u8>", &[(&[n(1, 2), n(1, 0)], bits)]);
}

#[test]
fn defaults_are_filled_in_and_unknown_fields_are_skipped() {
    let old = "A#0\nA#0 = struct {x: u8, y: u32}";
    let new = "A#0\nA#0 = struct {v: u64 = x0500000000000000, x: u8, w: text = x0100000061, y: u32, \
               z: option<A#0>}";
    let known = [n(1, 1), n(4, 2)];
    let whole = |last: &[Number]| [&[n(8, 5), n(1, 1)], &text("a")[..], &[n(4, 2)], last].concat();
    converts(old, new, &[(&known, &whole(&[n(1, 0)]))]);
    let inner = whole(&[n(1, 0)]);
    let nested = [&[n(1, 1)], &inner[..]].concat();
    converts(new, old, &[(&whole(&[n(1, 0)]), &known), (&whole(&nested), &known)]);
    converts(
        "A#0\nA#0 = struct {x: u8}",
        "B#0\nB#0 = struct {y: u8 was x}",
        &[(&[n(1, 3)], &[n(1, 3)])],
    );

    fills("u32", " = x01000000", &[n(4, 1)]);
    fills("option<u8>", "", &[n(1, 0)]);
    fills("str", " = x00000000", &[n(4, 0)]);
    fills("[u64]", " = x00000000", &[n(4, 0)]);
    fills("sequence<u16>", " = x0200000001000200", &[n(4, 2), n(2, 1), n(2, 2)]);
    fills("tuple<u8, u32>", " = x0100000002000000", &[n(1, 1), n(4, 2)]);
    fills(
        "[A#0; 2]\nA#0 = struct {x: u8, y: u16}",
        " = x0100020003000400",
        &[n(1, 1), n(2, 2), n(1, 3), n(2, 4)],
    );
    fills(
        "A#0\nA#0 = enum B {} C {x: text}",
        " = x010000000100000062",
        &[n(4, 1), n(4, 1), n(1, 98)],
    );
    fills(
        "A#0\nA#0 = plain 4 align 2 {x: u8, y: [u8; 1], z: u16}",
        " = x01020304",
        &[Number(1, 2, 1), n(1, 2), p(2, 0x0403)],
    );
    fills("A#0\nA#0 = plain enum u16 B=1 C=515", " = x0302", &[n(2, 515)]);
}

#[test]
fn variants_correspond_by_their_names() {
    converts(
        "A#0\nA#0 = enum A {} B {x: u8}",
        "A#0\nA#0 = enum B {x: u8} C {} A {}",
        &[(&[n(4, 0)], &[n(4, 2)]), (&[n(4, 1), n(1, 7)], &[n(4, 0), n(1, 7)])],
    );
    // A variant may get fields, and lose them.
    let old = "A#0\nA#0 = enum A {x: u16} B {}";
    let new = "A#0\nA#0 = enum A {v: u8 = x05, x: u16, w: u8 = x06} B {y: option<u8>}";
    let (few, many) = ([n(4, 0), n(2, 1)], [n(4, 0), n(1, 5), n(2, 1), n(1, 6)]);
    converts(old, new, &[(&few, &many), (&[n(4, 1)], &[n(4, 1), n(1, 0)])]);
    converts(new, old, &[(&many, &few), (&[n(4, 1), n(1, 1), n(1, 9)], &[n(4, 1)])]);
    keeps("A#0\nA#0 = enum A {x: u8, y: u8} B {}", &[&[n(4, 0), n(1, 1), n(1, 2)], &[n(4, 1)]]);
    let bits = "Err(Invalid(Bits))";
    refuses(old, new, &[(&[n(4, 2)], bits), (&[n(4, 4_294_967_295)], bits)]);
}

#[test]
fn unknown_variants_become_the_one_for_them() {
    let new = "A#0\nA#0 = enum A {} New {x: text, y: u64}";
    let sent = [&[n(4, 1)], &text("ab")[..], &[n(8, 3)]].concat();
    let named = [&[n(4, 1)], &text("New")[..]].concat();
    converts(
        new,
        "A#0\nA#0 = enum A {} other U {0: text}",
        &[(&sent, &named), (&[n(4, 0)], &[n(4, 0)])],
    );
    converts(
        new,
        "A#0\nA#0 = enum other U {} A {}",
        &[(&sent, &[n(4, 0)]), (&[n(4, 0)], &[n(4, 1)])],
    );
    // The sender may itself not know the variant that it sends. The variant keeps its name, if the receiver
    // has a field for the name.
    let known = "A#0\nA#0 = enum A {} other U {0: text}";
    let far = [&[n(4, 1)], &text("Far")[..]].concat();
    let farther = [&[n(4, 2)], &text("Far")[..]].concat();
    converts(known, "A#0\nA#0 = enum A {} B {} other V {0: text}", &[(&far, &farther)]);
    converts(known, "A#0\nA#0 = enum A {} other V {}", &[(&far, &[n(4, 1)])]);
    let name = [&[n(4, 1)], &text("U")[..]].concat();
    converts("A#0\nA#0 = enum A {} other U {}", known, &[(&[n(4, 1)], &name)]);
    converts(known, "A#0\nA#0 = enum A {} other U {}", &[(&far, &[n(4, 1)])]);
    converts(
        known,
        "A#0\nA#0 = enum other V {name: text} A {}",
        &[(&far, &[&[n(4, 0)], &text("Far")[..]].concat())],
    );
    keeps(known, &[&far, &[n(4, 0)]]);

    // An enum without an `other` variant is the error of the procedure here. The server may have variants that
    // such an enum lacks. In other places this is not allowed.
    let result = |ours: &str, theirs: &str| {
        let [ours, theirs] = [ours, theirs].map(|body| {
            let text = format!("interface I version 1\nf() -> unit or E#0\nE#0 = enum {body}\n");
            Described::parse(&text).unwrap()
        });
        let all = compare(&ours, &theirs, Sides::BY_CLIENT);
        assert_eq!(all.misfit(), None, "\n{ours}{theirs}");
        let program = Program::new(&ours, &theirs, &all.procedures).unwrap().unwrap();
        let part = Part::Convert(program.routine(0).unwrap().error);
        (program, part)
    };
    let program = result("A {}", "A {} New {x: u8}");
    converts_part(&program, &[n(4, 0)], &[n(4, 0)]);
    let Err(Stopped::Unknown { ty, variant }) =
        run::<Native, Native>(&program, &bytes::<Native>(&[n(4, 1), n(1, 0)]), 99)
    else {
        panic!("the variant is known");
    };
    assert_eq!((program.0.name(ty), program.0.name(variant)), ("E", "New"));
    // The sender's `other` variant `U` is an ordinary variant at the receiver. The variant is converted by
    // its name, and its new field gets the default.
    let program = result("A {} U {x: u32 = x05000000}", "other U {} A {}");
    converts_part(&program, &[n(4, 0)], &[n(4, 1), n(4, 5)]);
}

#[test]
fn plain_values_are_moved() {
    // In the first cases, a `u8` precedes the plain value. So the offset of the plain value in the received
    // message shows whether the conversion aligned it as the receiver's type requires.
    let old = "tuple<u8, A#0>\nA#0 = plain 8 align 4 {x: u32, y: u16, z: u16}";
    let new = "tuple<u8, A#0>\nA#0 = plain 16 align 8 {w: [u16; 2] = x05000600, x: u32, y: u16, v: u32 = x07000000, \
               z: u16}";
    let few = [n(1, 1), n(4, 2), n(2, 3), n(2, 4)];
    let many = [n(1, 1), Number(2, 8, 5), n(2, 6), n(4, 2), n(2, 3), p(4, 7), p(2, 4)];
    converts(old, new, &[(&few, &many)]);
    converts(new, old, &[(&many, &few)]);
    let packed = "tuple<u8, A#0>\nA#0 = plain 8 align 1 {x: u32, y: u16, z: u16}";
    converts(old, packed, &[(&few, &[n(1, 1), p(4, 2), p(2, 3), p(2, 4)])]);
    keeps(packed, &[&[n(1, 1), p(4, 2), p(2, 3), p(2, 4)]]);
    // Integers change their width where they are not aligned, in arrays, and in plain values within plain
    // values.
    let narrow = "sequence<A#0>\nA#0 = plain 6 align 1 {a: u8, b: [B#1; 2], c: u8}\n\
                  B#1 = plain 2 align 1 {x: u8, y: u8 widens}";
    let wide = "sequence<A#0>\nA#0 = plain 8 align 1 {a: u8, b: [B#1; 2], c: u8}\n\
                B#1 = plain 3 align 1 {x: u8, y: u16 widens}";
    let one = |size| [p(1, 1), p(1, 2), p(size, 3), p(1, 4), p(size, 5), p(1, 6)];
    let two = |size| [&[n(4, 2)], &one(size)[..], &one(size)].concat();
    converts(narrow, wide, &[(&two(1), &two(2)), (&[n(4, 0)], &[n(4, 0)])]);
    converts(wide, narrow, &[(&two(2), &two(1))]);
    let large = "Err(OutOfRange { value: 256, signed: false, bytes: 1 })";
    let value = [n(4, 1), p(1, 1), p(1, 2), p(2, 256), p(1, 4), p(2, 5), p(1, 6)];
    refuses(wide, narrow, &[(&value, large)]);
    // A default may be plain itself, or an array of plain values.
    converts(
        "A#0\nA#0 = plain 1 align 1 {x: u8}",
        "A#0\nA#0 = plain 7 align 1 {x: u8, y: [B#1; 2] = x010002030004}\nB#1 = plain 3 align 1 {x: u16, y: u8}",
        &[(&[n(1, 9)], &[n(1, 9), p(2, 1), p(1, 2), p(2, 3), p(1, 4)])],
    );
}

#[test]
fn discriminants_are_chosen() {
    let new = "A#0\nA#0 = plain enum i16 A=-300 New=7 B=500";
    let old = "A#0\nA#0 = plain enum i16 other Z=9 B=500 A=-300";
    let values: [(&[Number], &[Number]); 3] =
        [(&[i(2, -300)], &[i(2, -300)]), (&[n(2, 7)], &[n(2, 9)]), (&[n(2, 500)], &[n(2, 500)])];
    converts(new, old, &values);
    refuses(new, old, &[(&[n(2, 8)], "Err(Invalid(Bits))")]);
    // The enum is also converted in a plain value, where it is not aligned.
    let within = |of: &str| {
        let (name, body) = of.split_once('\n').unwrap();
        let body = body.replace("A#0", "A#1");
        format!("B#0\nB#0 = plain 5 align 1 {{x: u8, y: [{}; 2]}}\n{body}", name.replace('0', "1"))
    };
    converts(
        &within(new),
        &within(old),
        &[(&[p(1, 1), p(2, 7), p(2, 500)], &[p(1, 1), p(2, 9), p(2, 500)])],
    );
    refuses(&within(new), &within(old), &[(&[p(1, 1), p(2, 7), p(2, 8)], "Err(Invalid(Bits))")]);
}

/// The number of nodes of a list that would overflow the stack of a thread if each node needed stack.
const NODES: usize = 20_000;

/// Checks that lists of 0, 3 and many nodes are converted, and that a message or buffer that is too short is
/// refused.
fn converts_list(ours: &str, theirs: &str, node: [&[Number]; 2], end: [&[Number]; 2]) {
    let whole = |side: usize, nodes: usize| [node[side].repeat(nodes), end[side].to_vec()].concat();
    converts(ours, theirs, &[(&whole(0, 3), &whole(1, 3)), (&whole(0, 0), &whole(1, 0))]);
    let program = program(&described(ours, ""), &described(theirs, ", in z: option<u8>"), 0);
    let (sent, received) = (bytes::<Native>(&whole(0, NODES)), bytes::<Swapped>(&whole(1, NODES)));
    let room = received.len();
    assert_eq!(run::<Native, Swapped>(&program, &sent, room).unwrap(), (received, 0));
    for short in (0..sent.len()).step_by(sent.len() / 10) {
        let refused = said(&run::<Native, Swapped>(&program, &sent[..short], room));
        assert_eq!(refused, "Err(Invalid(Short))");
        let refused = said(&run::<Native, Swapped>(&program, &sent, short.min(room - 1)));
        assert_eq!(refused, "Err(Overflow(Full))");
    }
    // A server that does not know the parameter skips the list.
    let (first, types) = ours.split_once('\n').unwrap();
    let optional = described(&format!("u8, in b: option<{first}>\n{types}"), "");
    let program = self::program(&optional, &described("u8", ""), 1);
    let sent = bytes::<Native>(&[&[n(1, 1)], &whole(0, NODES)[..]].concat());
    assert_eq!(run::<Native, Native>(&program, &sent, 0).unwrap(), (Vec::new(), 0));
}

#[test]
fn lists_of_structs_need_no_stack() {
    let old = "L#0\nL#0 = struct {value: u8, next: option<L#0>}";
    let new = "L#0\nL#0 = struct {value: u8, new: u16 = x0700, next: option<L#0>}";
    let (few, many) = ([n(1, 5), n(1, 1)], [n(1, 5), n(2, 7), n(1, 1)]);
    let (few_end, many_end) = ([n(1, 6), n(1, 0)], [n(1, 6), n(2, 7), n(1, 0)]);
    converts_list(old, new, [&few, &many], [&few_end, &many_end]);
    converts_list(new, old, [&many, &few], [&many_end, &few_end]);
}

#[test]
fn lists_of_enums_need_no_stack() {
    let old = "L#0\nL#0 = enum Nil {} Cons {0: u32, 1: L#0}";
    let new = "L#0\nL#0 = enum End {} Cons {0: u32, 1: L#0} Nil {}";
    converts_list(old, new, [&[n(4, 1), n(4, 5)], &[n(4, 1), n(4, 5)]], [&[n(4, 0)], &[n(4, 2)]]);
    // The receiver does not know `Cons`. The first node becomes `U`, and the nodes in it are skipped.
    let cons = "L#0\nL#0 = enum Nil {} Cons {0: u32, 1: L#0}";
    let other = "L#0\nL#0 = enum Nil {} other U {}";
    let program = program(&described(cons, ""), &described(other, ""), 0);
    let sent = [[n(4, 1), n(4, 5)].repeat(NODES), vec![n(4, 0)]].concat();
    converts_part(&program, &[n(4, 1), n(4, 5), n(4, 0)], &[n(4, 1)]);
    let taken = run::<Native, Native>(&program, &bytes::<Native>(&sent), 4).unwrap();
    assert_eq!(taken, (bytes::<Native>(&[n(4, 1)]), 0));
    // An enum of one variant that contains itself through an option.
    let old = "L#0\nL#0 = enum Cons {0: u8, 1: option<L#0>}";
    let new = "L#0\nL#0 = enum New {} Cons {0: u8, 1: option<L#0>}";
    let (node, end) = ([n(4, 0), n(1, 1), n(1, 1)], [n(4, 0), n(1, 1), n(1, 0)]);
    let (new_node, new_end) = ([n(4, 1), n(1, 1), n(1, 1)], [n(4, 1), n(1, 1), n(1, 0)]);
    converts_list(old, new, [&node, &new_node], [&end, &new_end]);
}

/// Returns a nested value: `open` `depth` times, `end` once, and `close` `depth` times.
fn nested(depth: usize, open: &[Number], end: &[Number], close: &[Number]) -> Vec<Number> {
    [open.repeat(depth), end.to_vec(), close.repeat(depth)].concat()
}

/// Values that nest deeply must not overflow a small stack, even in a program that is built without
/// optimization.
#[test]
fn other_values_nest_up_to_a_limit() {
    let most = limits::INTERPRETED_DEPTH_MAX as usize - 2;
    let all = move || {
        let list = |parts: &str| format!("T#0\nT#0 = {parts}");
        let (one, none) = (n(1, 1), n(1, 0));
        let shapes: [(String, [&[Number]; 3]); 6] = [
            (list("struct {a: option<T#0>, b: u8}"), [&[one], &[none, one], &[one]]),
            (list("struct {a: sequence<T#0>, b: u8}"), [&[n(4, 1)], &[n(4, 0), one], &[one]]),
            (list("struct {a: result<u8, T#0>, b: u8}"), [&[one], &[none, one, one], &[one]]),
            (list("struct {a: [option<T#0>; 1], b: u8}"), [&[one], &[none, one], &[one]]),
            (list("enum A {} B {a: T#0, b: u8}"), [&[n(4, 1)], &[n(4, 0)], &[one]]),
            (
                list("struct {a: option<tuple<T#0, u8>>, b: u8}"),
                [&[one], &[none, one], &[one, one]],
            ),
        ];
        for (shape, [open, end, close]) in shapes {
            let shape = &*shape;
            keeps(shape, &[&nested(2, open, end, close)]);
            let program =
                program(&described(shape, ""), &described(shape, ", in z: option<u8>"), 0);
            let optional = shape.replace("T#0\n", "u8, in b: option<T#0>\n");
            let skipped = self::program(&described(&optional, ""), &described("u8", ""), 1);
            let is_two =
                shape.contains("tuple") || shape.contains("sequence") || shape.contains('[');
            let depth = if is_two { most / 2 } else { most };
            let deep = bytes::<Native>(&nested(depth, open, end, close));
            assert_eq!(
                run::<Native, Swapped>(&program, &deep, deep.len()).unwrap().1,
                0,
                "{shape}"
            );
            let skip = |depth| {
                let value = nested(depth, open, end, close);
                let some = [&[one], &value[..]].concat();
                said(&run::<Native, Swapped>(&skipped, &bytes::<Native>(&some), 0))
            };
            assert_eq!(skip(depth - 1), "Ok(([], 0))", "{shape}");
            let deeper = bytes::<Native>(&nested(most + 3, open, end, close));
            let refused = said(&run::<Native, Swapped>(&program, &deeper, deeper.len()));
            assert_eq!(
                (&*refused, &*skip(most + 3)),
                ("Err(Invalid(TooDeep))", "Err(Invalid(TooDeep))")
            );
        }
    };
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(all).unwrap();
    small.join().unwrap();
    // A type that contains itself has no value.
    for endless in
        ["struct {x: T#0}", "struct {x: T#0, y: T#0}", "struct {x: [T#0; 4294967295], y: u8}"]
    {
        let endless = format!("T#0\nT#0 = {endless}");
        refuses(&endless, &endless, &[(&[n(1, 1)], "Err(Invalid(TooDeep))")]);
    }
}

#[test]
fn values_without_bytes_take_no_time() {
    keeps("[[[[E#0; 4294967295]; 65536]; 65536]; 65536]\nE#0 = struct {}", &[&[]]);
    let mut doubled = "tuple<T#0, u8>".to_owned();
    for number in 0..60 {
        let next = number + 1;
        doubled += &format!("\nT#{number} = struct {{a: T#{next}, b: T#{next}}}");
    }
    keeps(&format!("{doubled}\nT#60 = struct {{}}"), &[&[n(1, 1)]]);
    // The elements have bytes on one side only.
    let (old, new) =
        ("sequence<A#0>\nA#0 = struct {}", "sequence<A#0>\nA#0 = struct {x: u8 = x05}");
    converts(old, new, &[(&[n(4, 2)], &[n(4, 2), n(1, 5), n(1, 5)])]);
    converts(new, old, &[(&[n(4, 2), n(1, 1), n(1, 2)], &[n(4, 2)])]);
    refuses(old, new, &[(&[n(4, 4_294_967_295)], "Err(Overflow(Full))")]);
}
