//! Tests that valid texts of every form are read and printed again, and that other texts are refused without
//! a panic.

use proptest::prelude::*;

use super::*;
use crate::interface::made_up::pool;

proptest! {
    #[test]
    fn interfaces_of_callbacks_are_interfaces(pool in pool()) {
        let described = pool.described();
        for number in 0..described.types.len() {
            if let Some(one) = described.interface_of(&DescribedType::Named(number)) {
                prop_assert_eq!(Described::parse(&one.to_string()), Ok(one));
            }
        }
    }

    #[test]
    fn what_is_printed_is_read_again(pool in pool()) {
        let described = pool.described();
        let text = described.to_string();
        prop_assert_eq!(Described::parse(&text), Ok(described), "{}", text);
    }

    #[test]
    fn what_is_taken_prints_the_same_text(
        pool in pool(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        const LETTERS: &[u8] = b"abstru#=<>[](){}:;, -018\n";
        let mut text = pool.described().to_string().into_bytes();
        for (at, what) in edits {
            let at = at.index(text.len());
            match LETTERS.get(usize::from(what) % (LETTERS.len() + 1)) {
                Some(letter) if what < 128 => text[at] = *letter,
                Some(letter) => text.insert(at, *letter),
                None => drop(text.remove(at)),
            }
            prop_assume!(!text.is_empty());
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(described) = Described::parse(&text) {
            prop_assert_eq!(described.to_string(), text);
        }
    }
}

const HEAD: &str = "interface A version 0\n";

fn refused(rest: &str) -> String {
    Described::parse(&format!("{HEAD}{rest}")).expect_err(rest).to_string()
}

#[test]
fn refusals_say_where_and_why() {
    let texts = [
        ("f( -> unit or unit\n", "line 2", "a direction"),
        ("f() -> unit or unit \n", "line 2", "the line's end"),
        ("f() -> u9 or unit\n", "line 2", "expected a type, found `u9 or unit`"),
        ("f() -> tuple<> or unit\n", "line 2", "a type"),
        ("f() -> option<u8, u8> or unit\n", "line 2", "a type"),
        ("f() -> [u8; 01] or unit\n", "line 2", "a number"),
        ("f() -> [u8; 18446744073709551616] or unit\n", "line 2", "a number"),
        ("f(out x: u8) -> unit or unit\n", "line 2", "a slice"),
        ("f(inout x: str) -> unit or unit\n", "line 2", "a slice"),
        ("f(in x: u8 max 4294967296) -> unit or unit\n", "line 2", "a number"),
        ("f() -> A#0 or unit\n", "line 2", "`A#0` is described nowhere"),
        ("f() -> A#1 or unit\n", "line 2", "`A#1` has a number out of order"),
        ("f() -> A#0 or B#0\nA#0 = struct {}\n", "line 2", "`B#0`"),
        ("f() -> unit or unit\nA#0 = struct {}\n", "line 3", "was not mentioned"),
        ("f() -> A#0 or unit\nA#0 = struct {}\ng() -> unit or unit\n", "line 4", "`#`"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 4 {a: u16}\n", "line 3", "4 bytes has"),
        ("f() -> A#0 or unit\nA#0 = plain 0 align 1 {}\n", "line 3", "0 bytes"),
        ("f() -> A#0 or unit\nA#0 = plain 6 align 4 {a: [u16; 3]}\n", "line 3", "aligned"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 1 {a: text}\n", "line 3", "is not plain"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 4 {a: A#0}\n", "line 3", "contains itself"),
        (
            // The first type, which leads to the cycle, does not contain itself. The error must be about a
            // type in the cycle.
            "f() -> A#0 or unit\nA#0 = plain 4 align 4 {a: B#1}\nB#1 = plain 4 align 4 {a: [C#2; 1]}\n\
             C#2 = plain 4 align 4 {a: B#1}\n",
            "line 4",
            "the plain type `B` contains itself",
        ),
        (
            "f() -> B#0 or unit\nB#0 = plain 4 align 4 {a: A#1}\nA#1 = plain 4 align 4 {a: A#1}\n",
            "line 4",
            "the plain type `A` contains itself",
        ),
        ("f() -> A#0 or unit\nA#0 = plain enum u8 B=256\n", "line 3", "outside"),
        ("f() -> A#0 or unit\nA#0 = plain enum i8 B=-129\n", "line 3", "outside"),
        ("f() -> A#0 or unit\nA#0 = plain enum f32 B=1\n", "line 3", "an integer"),
        (
            "f() -> A#0 or unit\nA#0 = plain 8 align 1 {a: [[u8; 4294967296]; 4294967296]}\n",
            "line 3",
            "is not plain",
        ),
        ("f(callback x: text) -> unit or unit\n", "line 2", "the name of an interface"),
        ("f(callback x: [A#0]) -> unit or unit\n", "line 2", "the name of an interface"),
        ("f(callback x: option<A#0>) -> unit or unit\n", "line 2", "the name of an interface"),
        ("f(callback x: str) -> unit or unit\n", "line 2", "a slice"),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = struct {}\n",
            "line 2",
            "the type of the callback `x` is not an interface",
        ),
        (
            "f(callback x: A#0 max 3) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "`x` has a maximum length",
        ),
        (
            "f(callback x: A#0 widens) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "`x` has `widens`",
        ),
        (
            "f(callback x: A#0 = x00) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "`x` has a default",
        ),
        (
            "oneway f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "a one-way procedure does not allow",
        ),
        ("oneway f(sink x: u8) -> unit or unit\n", "line 2", "a one-way procedure does not allow"),
        (
            "f(in x: A#0) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "the interface `A` may only be the type of a callback",
        ),
        (
            "f(source x: A#0) -> unit or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "the interface `A` may only be",
        ),
        (
            "f() -> A#0 or unit\nA#0 = interface version 0 {}\n",
            "line 2",
            "the interface `A` may only be",
        ),
        (
            "f() -> unit or tuple<u8, A#0>\nA#0 = interface version 0 {}\n",
            "line 2",
            "the interface `A` may only be",
        ),
        (
            "f(callback x: A#0) -> B#1 or unit\nA#0 = interface version 0 {}\nB#1 = struct {x: sequence<A#0>}\n",
            "line 4",
            "the interface `A` may only be",
        ),
        (
            "f(callback x: A#0) -> B#1 or unit\nA#0 = interface version 0 {}\nB#1 = enum C {x: result<u8, A#0>}\n",
            "line 4",
            "the interface `A` may only be",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g() -> [A#0; 2] or unit}\n",
            "line 3",
            "the interface `A` may only be",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g(callback y: B#1) -> unit or unit}\nB#1 = struct {}\n",
            "line 3",
            "the type of the callback `y` is not an interface",
        ),
        // The procedures of a callback's interface obey the same rules as all procedures.
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {oneway g() -> u8 or unit}\n",
            "line 3",
            "a one-way procedure returns a value",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {oneway g() -> unit or unit; flush() -> unit or unit}\n",
            "line 3",
            "the name `flush` is reserved",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g(lent y: [text]) -> unit or unit}\n",
            "line 3",
            "values that are not plain",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {idempotent g(inout y: u8) -> unit or unit}\n",
            "line 3",
            "may run twice",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g(in y: u8 = x0000) -> unit or unit}\n",
            "line 3",
            "the default is not a value of its type",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 01 {}\n",
            "line 3",
            "a number",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g() -> unit or unit, h() -> unit or unit}\n",
            "line 3",
            "`; `",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g() -> unit or unit; }\n",
            "line 3",
            "a name",
        ),
        (
            "f(callback x: A#0) -> unit or unit\nA#0 = interface version 0 {g() -> unit or unit\n",
            "line 3",
            "`; `",
        ),
        ("f() -> \u{1b} or unit\n", "line 2", "`\\u{1b} or unit`"),
        ("f() -> unit or", "line 2", "line feed"),
    ];
    for (text, line, why) in texts {
        let said = refused(text);
        assert!(said.contains(line) && said.contains(why), "{text:?}: {said}");
    }
    assert!(Described::parse("").is_err() && Described::parse("\n").is_err());
}

/// Interfaces of callbacks may contain each other. The extracted interface must nevertheless have a finite
/// text.
#[test]
fn interfaces_of_callbacks_are_extracted() {
    let text = format!(
        "{HEAD}join(in a: E#0, callback l: Listener#1) -> unit or E#0\n\
         E#0 = struct {{chain: text}}\n\
         Listener#1 = interface version 3 {{idempotent said was told(in x: [S#2] max 4) -> E#0 or text; \
         oneway oneway(in a: [u8; 3], in b: u8 = x01) -> unit or E#0; \
         join(callback room: A#3) -> unit or [unit; 2]}}\n\
         S#2 = struct {{more: sequence<S#2>}}\n\
         A#3 = interface version 0 {{join(in a: E#0, callback l: Listener#1) -> unit or E#0}}\n"
    );
    let whole = Described::parse(&text).unwrap();
    assert_eq!(whole.to_string(), text);
    let listener = whole.interface_of(&DescribedType::Named(1)).unwrap();
    assert_eq!(
        listener.to_string(),
        "interface Listener version 3\n\
         idempotent said was told(in x: [S#0] max 4) -> E#1 or text\n\
         oneway oneway(in a: [u8; 3], in b: u8 = x01) -> unit or E#1\n\
         join(callback room: A#2) -> unit or [unit; 2]\n\
         S#0 = struct {more: sequence<S#0>}\n\
         E#1 = struct {chain: text}\n\
         A#2 = interface version 0 {join(in a: E#1, callback l: Listener#3) -> unit or E#1}\n\
         Listener#3 = interface version 3 {idempotent said was told(in x: [S#0] max 4) -> E#1 or text; \
         oneway oneway(in a: [u8; 3], in b: u8 = x01) -> unit or E#1; \
         join(callback room: A#2) -> unit or [unit; 2]}\n"
    );
    assert_eq!(Described::parse(&listener.to_string()), Ok(listener.clone()));
    // `room` is a callback with the interface of the whole text.
    let room = &listener.procedures[2].parameters[0].ty;
    assert_eq!(listener.interface_of(room).map(|one| one.digest()), Some(whole.digest()));
    assert_eq!(whole.interface_of(&DescribedType::Named(0)), None);
    assert_eq!(whole.interface_of(&DescribedType::Named(5)), None);
    assert_eq!(whole.interface_of(&DescribedType::Text), None);
    assert!(whole.message_bytes() >= 128);
    assert_eq!(whole.bytes_max(&DescribedType::Named(1)), None);
    assert_eq!(whole.plain_bytes(&DescribedType::Named(1)), None);
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| {
        let (open, close) = ("option<".repeat(depth), ">".repeat(depth));
        format!("{HEAD}f() -> {open}u8{close} or unit\n")
    };
    assert!(Described::parse(&nested(limits::CANONICAL_DEPTH_MAX)).is_ok());
    assert!(Described::parse(&nested(limits::CANONICAL_DEPTH_MAX + 1)).is_err());
    assert!(Described::parse(&nested(100_000)).is_err());
    let long = format!("{HEAD}{}\n", "x".repeat(limits::CANONICAL_BYTES_MAX));
    assert!(Described::parse(&long).is_err());
}

#[test]
fn plain_types_in_a_long_row_are_read() {
    let mut text = format!("{HEAD}f() -> A#0 or unit\n");
    for number in 0..2000 {
        text += &format!("A#{number} = plain 1 align 1 {{a: A#{}}}\n", number + 1);
    }
    text += "A#2000 = plain enum u8 One=1\n";
    let described = Described::parse(&text).unwrap();
    assert_eq!(described.plain_bytes(&DescribedType::Named(0)), Some(1));
    assert_eq!(described.plain_alignment(&described.procedures[0].result), Some(1));
}

#[test]
fn a_sequence_of_texts_is_no_text() {
    let text =
        "interface A version 0\nf(in a: str, in b: [text], inout c: [text]) -> unit or unit\n";
    let described = Described::parse(text).unwrap();
    let shapes: Vec<Shape> =
        described.procedures[0].parameters.iter().map(|one| one.shape).collect();
    assert_eq!(shapes, [Shape::Text, Shape::Buffer, Shape::Buffer]);
    assert_eq!(described.to_string(), text);
}
