//! Tests hostile descriptions of interfaces. When a client binds, it receives the description of the server's
//! interface, and a hostile server may send any text. The client parses the description, compares it with its
//! own, and makes the program that converts messages. Each of these steps must end, and must use bounded
//! memory.

use std::sync::Arc;
use std::time::Instant;

use peregrine::interface::{Comparison, Described, InterfaceRef, Sides, compare};
use peregrine::limits::{CANONICAL_BYTES_MAX, CANONICAL_DEPTH_MAX};
use peregrine::{BindOptions, Binding, Dynamic, Executed, GenericServer, Kind};

use crate::heap::peak_of;

/// The largest number of bytes of memory that reading, comparing or binding may use at any time. A
/// description of 1 MiB may have 100,000 parts of 10 bytes. Each part takes up to 200 bytes once it is read.
const BYTES_MAX: i64 = 128 << 20;

/// The largest length in bytes of the text of one difference, and of the text of an error.
const TEXT_MAX: usize = 4096;

const HEAD: &str = "interface I version 1\n";

fn parse(text: &str) -> Described {
    let read = || Described::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let (described, peak) = peak_of(read);
    assert!(peak < BYTES_MAX, "reading took {peak} bytes");
    described
}

/// Returns why a text is refused.
fn refused(lines: &str) -> String {
    let (read, peak) = peak_of(|| Described::parse(&format!("{HEAD}{lines}")));
    assert!(peak < BYTES_MAX, "reading took {peak} bytes");
    let error = read.expect_err("a refusal").to_string();
    assert!(error.len() < TEXT_MAX, "an error of {} bytes", error.len());
    error
}

/// Compares two descriptions, and checks that the result is bounded.
fn compared(ours: &Described, theirs: &Described) -> Comparison {
    let (all, peak) = peak_of(|| compare(ours, theirs, Sides::BY_CLIENT));
    assert!(peak < BYTES_MAX, "comparing took {peak} bytes");
    assert!(all.differences.len() <= 1000, "{} differences", all.differences.len());
    for one in &all.differences {
        let bytes = one.to_string().len();
        assert!(bytes < TEXT_MAX, "a difference of {bytes} bytes");
    }
    all
}

/// Binds a client to a server. If the client is refused, returns the reason.
fn meet(ours: &str, theirs: &str) -> Result<(), String> {
    let begun = Instant::now();
    let (ours, theirs) = (parse(&format!("{HEAD}{ours}")), parse(&format!("{HEAD}{theirs}")));
    let count = compared(&ours, &theirs).differences.len();
    let compared = begun.elapsed();
    let server = Arc::new(GenericServer::new(theirs, |_| Ok(Ok(Dynamic::Unit))));
    let interface = InterfaceRef::from(ours);
    let options = BindOptions::default().message_bytes(1 << 16);
    let begun = Instant::now();
    let (bound, peak) = peak_of(|| Binding::in_process_as(interface, server, &options).map(drop));
    let bound_in = begun.elapsed();
    // The times are only printed: a test that checked them would fail on a busy machine.
    println!("{count} differences in {compared:?}; bound in {bound_in:?} with {} KiB", peak >> 10);
    assert!(peak < BYTES_MAX, "binding took {peak} bytes");
    bound.map_err(|error| {
        assert_eq!((error.kind(), error.executed()), (Kind::InterfaceMismatch, Executed::No));
        let text = error.to_string();
        assert!(text.len() < TEXT_MAX, "an error of {} bytes", text.len());
        text
    })
}

/// Checks that a client is bound.
#[track_caller]
fn is_bound(ours: &str, theirs: &str) {
    assert_eq!(meet(ours, theirs), Ok(()));
}

/// Checks that a client is refused, and why.
#[track_caller]
fn is_refused(ours: &str, theirs: &str, why: &str) {
    let error = meet(ours, theirs).expect_err("a refusal");
    assert!(error.contains(why), "{error}\nrather than\n{why}");
}

/// Returns the texts `one(0)`, `one(1)` and so on, as many as fit into `bytes` bytes.
fn filled(bytes: usize, one: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        let more = one(number);
        if text.len() + more.len() > bytes {
            break;
        }
        text += &more;
    }
    text
}

/// The number of bytes of a description that an attack may fill.
const ROOM: usize = CANONICAL_BYTES_MAX - 512;

fn fields(bytes: usize, one: impl Fn(usize) -> String) -> String {
    filled(bytes, |number| format!("{}{}", if number > 0 { ", " } else { "" }, one(number)))
}

/// Returns the lines of `count` types that form one cycle. Each type has the field `next`, and the text
/// `more` after this field.
fn cycle(count: usize, more: &str) -> String {
    let line = |number| {
        let next = (number + 1) % count;
        format!("T#{number} = struct {{next: option<T#{next}>{more}}}\n")
    };
    (0..count).map(line).collect()
}

// Tests of how descriptions are read.

#[test]
fn default_of_a_type_without_alignment_is_refused() {
    for align in [0, 3, 1 << 20, u64::MAX] {
        let error = refused(&format!(
            "f(in a: A#0 = x00) -> unit or text\nA#0 = plain 1 align {align} {{x: u8}}\n"
        ));
        assert!(
            error.contains("is not a value of its type") || error.contains("aligned"),
            "{error}"
        );
    }
}

#[test]
fn many_defaults_of_a_large_enum_are_read() {
    let variants = filled(ROOM / 2, |number| format!(" V{number}={}", number + 1));
    let last = variants.matches(' ').count() as u32;
    let values: String =
        (0..1023).map(|_| last.to_le_bytes().map(|b| format!("{b:02x}")).concat()).collect();
    let count = 1023u32.to_le_bytes().map(|byte| format!("{byte:02x}")).concat();
    let fields = fields(ROOM / 2, |number| format!("f{number}: sequence<E#1> = x{count}{values}"));
    parse(&format!(
        "{HEAD}f() -> A#0 or text\nA#0 = struct {{{fields}}}\nE#1 = plain enum u32{variants}\n"
    ));
}

#[test]
fn defaults_of_recursive_types_are_bounded() {
    let nested = |depth: usize| format!("x{}00", "01".repeat(depth));
    let lines = |ty: &str, body: &str, depth| {
        format!("f(in a: {ty} = {}) -> A#0 or text\nA#0 = {body}\n", nested(depth))
    };
    let list = |depth| lines("option<A#0>", "struct {next: option<A#0>}", depth);
    parse(&format!("{HEAD}{}", list(CANONICAL_DEPTH_MAX / 2 - 1)));
    assert!(refused(&list(4095)).contains("not a value of its type"));
    assert!(refused(&list(4096)).contains("at most 4096 bytes"));
    // Each of these types directly contains itself, so no value of the type exists. The last two types
    // contain themselves more than once.
    for body in ["struct {x: A#0}", "struct {x: A#0, y: A#0}", "struct {x: [A#0; 4294967295]}"] {
        let error = refused(&format!("f(in a: A#0 = x) -> unit or text\nA#0 = {body}\n"));
        assert!(error.contains("not a value of its type"), "{error}");
    }
    let error = refused("f(in a: [[unit; 4294967295]; 4294967295] = x) -> unit or text\n");
    assert!(error.contains("not a value of its type"), "{error}");
}

#[test]
fn plain_types_that_double_are_read_or_refused() {
    let doubled = |levels: usize| {
        let mut text = "f(in a: T#0) -> unit or text\n".to_owned();
        for level in 0..levels {
            let (size, next) = (1u64 << (levels - level), level + 1);
            text += &format!("T#{level} = plain {size} align 1 {{a: T#{next}, b: T#{next}}}\n");
        }
        text + &format!("T#{levels} = plain 1 align 1 {{x: u8}}\n")
    };
    let lines = doubled(63);
    assert_eq!(parse(&format!("{HEAD}{lines}")).types.len(), 64);
    // If a value has the same bytes on both sides, its conversion is one step, whatever its size is. With 12
    // levels the value is small enough for a message.
    let lines = doubled(12);
    is_bound(&lines, &lines.replace("in a: T#0", "in a: T#0, in b: option<u8>"));
    is_bound(&lines, &lines.replace("{x: u8}", "{y: u8 was x}"));
    // A difference in the innermost type needs steps at each place where this type occurs.
    let grown = |levels: usize| {
        let theirs = doubled(levels).replace("{x: u8}", "{x: u8, y: u8 = x00}");
        let sizes = (0..=levels).rev().map(|level| (level, 1u64 << (levels - level)));
        sizes.fold(theirs, |text, (level, size)| {
            let of = |size: u64| format!("T#{level} = plain {size} ");
            text.replace(&of(size), &of(2 * size))
        })
    };
    is_bound(&lines, &grown(12));
    is_refused(&doubled(22), &grown(22), "more than 1048576 steps");
    is_refused(&doubled(40), &grown(40), "more than 1048576 steps");
}

#[test]
fn names_in_errors_are_cut() {
    let long = "x".repeat(ROOM);
    for lines in [
        format!("f() -> {long}#0 or text\n"),
        format!("f(in a: {long}) -> unit or text\n"),
        format!("f(in {long}: u8 = x) -> unit or text\n"),
        format!("f() -> A#0 or text\nA#0 = enum other {long} {{a: u8}}\n"),
        format!("f() -> A#0 or text\nA#0 = plain enum u8 {long}=256\n"),
        format!("f() -> A#0 or text\nA#0 = plain 1 align 1 {{{long}: text}}\n"),
        format!("f() -> {long}#1 or text\n"),
        format!("f() -> unit or text\n{long}#0 = enum\n"),
        format!("idempotent f(inout {long}: u8) -> unit or text\n"),
    ] {
        assert!(refused(&lines).starts_with("line "));
    }
}

// Tests of how descriptions are compared.

/// Returns the description of a client. All its procedures use the same error type, and the same recursive
/// type.
fn client(procedures: usize) -> String {
    let line = |number| format!("p{number}(in list: T#0) -> T#0 or E#1\n");
    let lines: String = (0..procedures).map(line).collect();
    format!("{lines}T#0 = struct {{value: u8, next: option<T#0>}}\nE#1 = enum A {{}}\n")
}

/// Returns the description of a server with the procedures of [`client`]. In this description, the recursive
/// type has many more fields.
fn server(procedures: usize, field: impl Fn(usize) -> String) -> String {
    let line = |number| format!("p{number}(in list: T#0) -> T#0 or E#1\n");
    let lines: String = (0..procedures).map(line).collect();
    let more = fields(ROOM - lines.len(), field);
    format!("{lines}T#0 = struct {{value: u8, next: option<T#0>, {more}}}\nE#1 = enum A {{}}\n")
}

#[test]
fn common_types_with_many_new_fields_are_compared() {
    let option = |number| format!("f{number}: option<u8>");
    is_bound(&client(1), &server(1, option));
    is_bound(&client(10), &server(10, option));
    is_refused(&client(400), &server(400, option), "too intricate");
    is_refused(&client(400), &server(400, |number| format!("f{number}: u8")), "no default");
    let was = |number| format!("f{number}: option<T#0> was g{number}");
    is_bound(&client(10), &server(10, was));
    is_bound(
        &client(20),
        &client(20).replace("next: option<T#0>}", "next: option<T#0>, x: option<u8>}"),
    );
}

#[test]
fn cycles_of_different_lengths_are_compared() {
    let f = "f(in a: T#0) -> T#0 or text\n";
    let few =
        |bytes| fields(bytes, |number| format!(", f{number}: option<u8>")).replace(", , ", ", ");
    is_bound(&format!("{f}{}", cycle(3, "")), &format!("{f}{}", cycle(4, &few(250_000))));
    is_bound(&format!("{f}{}", cycle(10, "")), &format!("{f}{}", cycle(11, &few(20_000))));
    is_refused(
        &format!("{f}{}", cycle(100, "")),
        &format!("{f}{}", cycle(101, &few(9_000))),
        "too intricate",
    );
    // A complete comparison would compare each of 500 types with each of 499 types. Each description has
    // about a mebibyte.
    let ours = format!("{f}{}", cycle(500, &few(1900)));
    let theirs = format!("{f}{}", cycle(499, &few(1900)));
    is_refused(&ours, &theirs, "too intricate");
    let ours = format!("{f}{}", cycle(20_000, ""));
    let theirs = format!("{f}{}", cycle(19_999, ""));
    is_refused(&ours, &theirs, "too intricate");
    // These cycles go through variants and results.
    let ours = format!(
        "{f}T#0 = enum A {{x: result<T#0, [T#0; 3]>}} B {{y: tuple<T#0, sequence<T#0>>}}\n"
    );
    let theirs = format!(
        "{f}T#0 = enum A {{x: result<U#1, [T#0; 3]>}} B {{y: tuple<U#1, sequence<T#0>>, z: option<U#1>}}\n\
         U#1 = enum B {{y: tuple<T#0, sequence<U#1>>}} A {{x: result<U#1, [T#0; 3]>}}\n"
    );
    is_bound(&ours, &theirs);
}

#[test]
fn many_procedures_with_a_common_type_are_compared() {
    let half = ROOM / 2;
    let lines = filled(half, |number| format!("p{number}() -> T#0 or unit\n"));
    let ours =
        format!("{lines}T#0 = struct {{{}}}\n", fields(half, |number| format!("f{number}: u8")));
    is_refused(&ours, &ours.replace("f0: u8", "f0: u8, g: option<u8>"), "too intricate");
    is_bound(&ours, &ours);
    is_refused(&ours, &ours.replace("f0: u8", "f0: i8"), "ours is `u8`");
    // The client and the server have no procedure name in common.
    let theirs = filled(ROOM, |number| format!("q{number}() -> unit or unit\n"));
    is_refused(&lines.replace("T#0", "unit"), &theirs, "the server's has `q0`, `q1`");
}

#[test]
fn many_types_are_compared() {
    let mentioned = fields(ROOM * 9 / 31, |number| format!("T#{number}"));
    let count = mentioned.matches('#').count();
    let types: String = (0..count).map(|number| format!("T#{number} = enum\n")).collect();
    let ours = format!("f(in a: tuple<{mentioned}>) -> unit or text\n{types}");
    assert!(count > 33_000 && ours.len() < CANONICAL_BYTES_MAX, "{count} types");
    let theirs = ours.replace(") -> unit", ", in b: option<u8>) -> unit");
    is_bound(&ours, &theirs);
    is_bound(&ours, &theirs.replace(" = enum\n", " = enum A {}\n"));
    is_refused(&ours, &theirs.replace(" = enum\n", " = struct {}\n"), "ours is `enum`");
}

#[test]
fn many_parameters_and_earlier_names_are_compared() {
    let all = |name: &str| fields(ROOM, |number| format!("in {name}{number}: u8"));
    let lines = |parameters: &str| format!("f({parameters}) -> unit or text\n");
    let ours = lines(&all("a"));
    let changed = ours.replace("a0: u8", "a0: u8, in b: option<u8>");
    is_bound(&ours, &changed);
    is_refused(&ours, &lines(&all("b")), "no default");
    let optional = lines(&fields(ROOM, |number| format!("in b{number}: option<u8>")));
    is_bound("f() -> unit or text\n", &optional);
    is_bound(&optional, "f() -> unit or text\n");
    // Each field or variant has many earlier names, which are compared with the names on the other side.
    let was = |name: &str| filled(ROOM / 3, |number| format!(" was {name}{number}"));
    let with = |was: &str| {
        let fields = format!("x: u8{was}, y: u8{was}");
        format!("f(in a: A#0) -> E#1 or text\nA#0 = struct {{{fields}}}\nE#1 = enum V{was} {{}}\n")
    };
    is_bound(&with(&was("a")), &with(&was("b")));
    is_bound(&with(&was("a")), &with(""));
    let many = |name: &str, names: &str| {
        let variants = filled(ROOM, |number| format!(" {name}{number}{names} {{}}"));
        format!("f() -> A#0 or text\nA#0 = enum other Z {{}}{variants}\n")
    };
    is_bound(&many("a", ""), &many("b", ""));
    is_bound(&many("a", " was c"), &many("b", " was d"));
    let closed = |text: String| text.replace(" other Z {}", "");
    is_refused(&closed(many("a", "")), &closed(many("b", "")), "has no `b0`, `b1`");
}

#[test]
fn texts_of_differences_are_cut() {
    let long = "x".repeat(ROOM / 2);
    let procedures = |ty: &str| -> String {
        (0..200).map(|number| format!("p{number}() -> {ty} or unit\n")).collect()
    };
    let types = |body: &str| format!("{}T#0 = {body}\n", procedures("T#0"));
    let wide = fields(ROOM / 2, |_| "u8".to_owned());
    is_refused(
        &types("struct {x: u8}"),
        &types(&format!("struct {{x: tuple<{wide}>}}")),
        "ours is `u8`",
    );
    is_refused(
        &types("struct {x: u8}"),
        &types(&format!("enum {long} {{}}")),
        "ours is `struct {x: u8}`",
    );
    is_refused(
        &types("struct {x: u8}"),
        &types(&format!("struct {{x: u8, {long}: u8}}")),
        "no default",
    );
    is_refused(
        &procedures("u8"),
        &procedures("u8").replace("p0", &format!("{long} was p0")).replace("u8", "i8"),
        "ours is `u8`",
    );
    let named = types("struct {x: u8}").replace("T#0", &format!("{}#0", &long[..4000]));
    is_bound(&named, &named.replace("{x: u8}", "{x: u8, y: option<u8>}"));
    let field = format!("struct {{x: u8, {long}: option<u8>}}");
    is_bound(&types("struct {x: u8}"), &types(&field));
    let name = |name: &str| Described::parse(&format!("interface {name} version 1\n")).unwrap();
    compared(&name("I"), &name(&long));
}

#[test]
fn deep_types_are_compared() {
    for (open, close) in
        [("option<", ">"), ("sequence<", ">"), ("[", "; 2]"), ("tuple<", ">"), ("result<u8, ", ">")]
    {
        let deep = |one: &str| {
            let (open, close) =
                (open.repeat(CANONICAL_DEPTH_MAX), close.repeat(CANONICAL_DEPTH_MAX));
            fields(ROOM / 2, |number| format!("in a{number}: {open}{one}{close} widens"))
        };
        let f = |parameters: &str| format!("f({parameters}) -> unit or text\n");
        is_bound(&f(&deep("u16")), &f(&deep("u32")));
        is_refused(&f(&deep("u8")), &f(&deep("i8")), "ours is `u8`");
    }
}

// Tests of how the conversion program is made.

#[test]
fn arrays_of_plain_values_that_grew_are_compiled_once() {
    let with = |ty: &str, count: &str, size: u64, body: &str| {
        let whole = size * count.split('x').map(|one| one.parse::<u64>().unwrap()).product::<u64>();
        let nested = count.split('x').fold(ty.to_owned(), |ty, one| format!("[{ty}; {one}]"));
        format!(
            "f(in a: A#0) -> A#0 or text\nA#0 = plain {whole} align 1 {{all: {nested}}}\nP#1 = {body}\n"
        )
    };
    let point = |count: &str, more: &str| {
        let size = 1 + more.matches(':').count() as u64;
        let body = format!(
            "plain {size} align 1 {{x: u8{}{more}}}",
            if more.is_empty() { "" } else { ", " }
        );
        with("P#1", count, size, &body)
    };
    let numbers = fields(ROOM, |number| format!("f{number}: u8 = x00"));
    let some = numbers[..24_000].rsplit_once(", ").expect("many").0;
    let other = fields(ROOM / 2, |number| format!("f{number}: Q#2 = x00"));
    let other = |count: &str| point(count, &other) + "Q#2 = plain 1 align 1 {x: u8}\n";
    is_bound(&point("1", ""), &point("1", &numbers));
    is_bound(&point("1", &numbers), &point("1", ""));
    is_bound(&point("1", ""), &other("1"));
    is_bound(
        &point("1000x1000", ""),
        &point("1000x1000", "").replace("in a: A#0", "in a: A#0, in b: [u8] = x00000000"),
    );
    for count in ["1000", "1000x1000", "65536x65536x65536"] {
        for more in [some, &numbers] {
            is_refused(&point(count, ""), &point(count, more), "more than 1048576 steps");
            is_refused(&point(count, more), &point(count, ""), "more than 1048576 steps");
        }
        is_refused(&point(count, ""), &other(count), "more than 1048576 steps");
    }
    let choice = |count: &str, more: &str| {
        with("P#1", count, 4, &format!("plain enum u32 other A=4294967295 B=4294967294{more}"))
    };
    let variants = filled(ROOM, |number| format!(" V{number}={number}"));
    is_bound(&choice("1", ""), &choice("1", &variants));
    is_bound(&choice("1000", ""), &choice("1000", &variants));
    is_refused(
        &choice("1000x2000", ""),
        &choice("1000x2000", &variants),
        "more than 1048576 steps",
    );
}

#[test]
fn large_defaults_are_stored_once() {
    let default = format!("x{}{}", "fc0f0000", "61".repeat(4092));
    let f = "f(in a: T#0) -> T#0 or text\n";
    let ours = format!("{f}{}", cycle(100, ""));
    let theirs = format!("{f}{}", cycle(101, &format!(", big: text = {default}")));
    is_bound(&ours, &theirs);
    is_bound(&theirs, &ours);
}

#[test]
fn types_that_double_are_compiled_once() {
    let doubled = |last: &str| {
        let mut text = "f(in a: T#0) -> T#0 or text\n".to_owned();
        for level in 0..1000 {
            let next = level + 1;
            text += &format!(
                "T#{level} = struct {{a: T#{next}, b: option<T#{next}>, c: sequence<T#{next}>}}\n"
            );
        }
        text + &format!("T#1000 = {last}\n")
    };
    is_bound(&doubled("struct {}"), &doubled("struct {x: option<u8>}"));
    is_refused(&doubled("struct {}"), &doubled("struct {x: u8}"), "no default");
}
