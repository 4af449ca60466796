//! Tests that traits are printed and parsed again. Also tests that invalid texts are refused at the position
//! of the error, within bounds of time and memory.

use peregrine::interface::*;
use peregrine::limits::CANONICAL_BYTES_MAX;
use peregrine_idl::{NESTING_MAX, ParseError, parse_trait, to_trait};
use proptest::prelude::*;

#[path = "../../peregrine/src/interface/made_up.rs"]
mod made_up;

use made_up::pool;

proptest! {
    #[test]
    fn printed_trait_is_read_as_the_same_interface(
        pool in pool(),
        docs in prop::collection::vec("[ a-zß/*\"\n]{0,12}", 0..5),
    ) {
        let described = pool.described().with_docs(&docs);
        let text = to_trait(&described);
        prop_assert_eq!(parse_trait(&text), Ok(described), "{}", text);
    }

    #[test]
    fn edited_trait_is_read_or_refused(
        pool in pool(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        const LETTERS: &[u8] = b"fnau8#=<>[](){}:;,'&\"/* _-01\n";
        let mut text = to_trait(&pool.described()).into_bytes();
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
        match parse_trait(&text) {
            Ok(described) => {
                let again = to_trait(&described);
                prop_assert_eq!(parse_trait(&again), Ok(described), "{}", again);
            }
            Err(error) => is_inside(&text, &error),
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
        for text in [text.clone(), format!("trait A {{ {text} }}"), format!("#[{text}] trait A {{}}")] {
            if let Err(error) = parse_trait(&text) {
                is_inside(&text, &error);
            }
        }
    }
}

/// Asserts that the position of an error is in the text, or at the end of the text.
fn is_inside(text: &str, error: &ParseError) {
    let line = text.split('\n').nth(error.line() - 1);
    let line = line.unwrap_or_else(|| panic!("{error}: no such line in {text:?}"));
    assert!((1..=line.chars().count() + 1).contains(&error.column()), "{error}: {text:?}");
}

const SHAPES: &str = r#"/// What there is.
///
/// In two parts.
#[interface(name = "shapes.v2", version = 2)]
pub trait ShapesV2 {
    /// Draws it.
    #[idempotent]
    fn draw(&self, shape: &Shape, #[max_len(4096)] name: &str) -> peregrine::Result<u64>;
    fn sort(
        &self,
        values: &mut [u64],
        list: &mut List,
        #[max_len(65536)] lent: Lent<'_, Point>,
        out: Out<'_, Colour>,
        pair: (u8, String),
    ) -> Result<(), Failed>;
    fn r#type(&self, both: Option<Result<m5::List, [bool; 3]>>) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, line: &str) -> Result<(), Failed>;
    fn watch(&self, seen: Sink<'_, Shape>, wanted: Source<'_, Vec<u8>>) -> peregrine::Result<()>;
}

#[derive(Value)]
pub enum Shape {
    Empty,
    Circle(f32),
    Named { name: String, sides: u16 },
}

#[derive(Value)]
pub struct List {
    pub value: u32,
    pub next: Option<Box<List>>,
    pub more: Vec<List>,
}

#[derive(Clone, Copy, Plain)]
#[repr(C, align(16))]
pub struct Point {
    pub x: f64,
    pub y: f64,
}

#[derive(Clone, Copy, Plain)]
#[repr(u8)]
pub enum Colour {
    Red = 1,
    Green = 3,
}

pub mod m5 {
    use super::*;
    #[derive(Value)]
    pub struct List(pub super::List, pub u8);
}

#[derive(Value)]
pub enum Failed {
    Call(peregrine::CallError),
    No,
}
impl From<peregrine::CallError> for Failed {
    fn from(error: peregrine::CallError) -> Self {
        Self::Call(error)
    }
}
"#;

#[test]
fn trait_is_printed_as_in_the_source_of_the_server() {
    let described = parse_trait(SHAPES).unwrap();
    // Types are printed in the order of their first use. Their order in the source has no influence.
    let printed = to_trait(&described);
    let place = |text: &str, what: &str| text.find(what).unwrap();
    assert!(place(&printed, "pub enum Failed") < place(&printed, "pub mod m"));
    assert_eq!(parse_trait(&printed), Ok(described.clone()));
    let sorted = |text: &str| {
        let mut lines: Vec<String> =
            text.lines().filter(|line| !line.contains("mod m")).map(str::to_owned).collect();
        lines.iter_mut().for_each(|line| {
            if let Some(at) = line.find("Result<m") {
                line.truncate(at);
            }
        });
        lines.sort();
        lines
    };
    assert_eq!(sorted(&printed), sorted(SHAPES));
    assert_eq!(described.name, "shapes.v2");
    assert_eq!(described.docs, "What there is.\n\nIn two parts.");
    assert_eq!(described.procedures[2].name, "type");
    let canonical = described.to_string();
    assert!(canonical.contains("idempotent draw(in shape: Shape#0, in name: str max 4096)"));
    assert!(canonical.contains("Point#3 = plain 16 align 16 {x: f64, y: f64}"), "{canonical}");
    assert!(canonical.contains("CallError#"), "{canonical}");
    assert!(canonical.contains("\noneway note(in line: str) -> unit or "), "{canonical}");
}

#[test]
fn error_has_position_and_reason() {
    for (text, line, column, said) in [
        ("", 1, 1, "expected a trait, found the end of the text"),
        ("struct A;\n", 2, 1, "expected a trait, found the end of the text"),
        ("trait A {}\ntrait B {}", 2, 7, "more than one trait"),
        ("trait A {\n fn f(self) -> Result<(), E>;\n}", 2, 7, "expected `&self`, found `self`"),
        (
            "trait A {\n fn f(&self) -> u8;\n}",
            2,
            17,
            "expected `Result<T, E>` or `peregrine::Result<T>`, found `u8`",
        ),
        (
            "trait A {\n fn f(&self, x: usize) -> peregrine::Result<()>;\n}",
            2,
            17,
            "expected a type of the same size on every machine, such as `u64` or `u32`, found `usize`",
        ),
        (
            "trait A {\n fn f(&self, x: &point) -> peregrine::Result<()>;\n}\nstruct Point {}",
            2,
            18,
            "there is no type `point`; there is a type `Point`",
        ),
        (
            "trait A {\n fn f(&self, x: &Point) -> peregrine::Result<()>;\n}",
            2,
            18,
            "there is no type `Point` in this text; add the struct or the enum",
        ),
        (
            "trait A {\n fn f(&self, x: &mut str) -> peregrine::Result<()>;\n}",
            2,
            22,
            "`str` can only be a parameter, as `&str`",
        ),
        (
            "trait A {\n fn f(&self) -> Result<u8>;\n}",
            2,
            26,
            "expected `,` and the type of the error, found `>`",
        ),
        (
            "trait A {\n fn f(&self, x: Vec) -> Result<u8, E>;\n}",
            2,
            20,
            "expected `<` and a type, found `)`",
        ),
        ("trait A {}\nstruct B {}\nstruct B {}", 3, 8, "`B` is already defined in line 2"),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\nstruct P { x: String }",
            3,
            12,
            "the field `x` of the plain type `P` is not plain",
        ),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\nstruct P { x: P }",
            3,
            8,
            "the plain type `P` contains itself",
        ),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\nstruct P { x: Q, y: Q, z: u8 }\n#[derive(Plain)] struct Q {}",
            4,
            25,
            "a plain type of 0 bytes has fields of 0 bytes",
        ),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\n#[repr(align(3))] struct P { x: u8 }",
            3,
            26,
            "a type of 1 bytes is not aligned to 3",
        ),
        ("trait A { fn f(&self) -> peregrine::Result<()> }", 1, 48, "expected `;`, found `}`"),
        ("trait A { fn f(&self) -> peregrine::Result<()>", 1, 9, "this `{` is never closed"),
        ("trait A { fn f(&self) }}", 1, 24, "this `}` closes no bracket of its kind"),
        ("trait A { /* ", 1, 11, "this comment has no `*/`"),
        ("trait A {}\nstruct B \"", 2, 10, "this string has no closing quote"),
        ("trait A {}\nstruct B \u{3bb}\u{b7}\u{2192}", 2, 12, "`→` is not part of the language"),
        ("trait A", 1, 8, "expected `{`, found the end of the text"),
        ("trait A {}\nuse b", 2, 6, "expected `;`, found the end of the text"),
        (
            "trait A {}\nstatic B: u8 = 1;",
            2,
            1,
            "expected a trait, a struct, an enum or a module, found `static`",
        ),
        (
            "trait A {}\nmod b { mod c {} }",
            2,
            9,
            "expected a struct, an enum or a trait, found `mod`",
        ),
        (
            "#[interface(max_len = x)]\ntrait A {}",
            1,
            23,
            "expected a number of type `u32`, found `x`",
        ),
        (
            "#[interface(version = 4294967296)]\ntrait A {}",
            1,
            23,
            "expected a number of type `u32`, found `4294967296`",
        ),
        (
            "#[interface(nmae = 1)]\ntrait A {}",
            1,
            13,
            "expected `name`, `version`, `max_len`, `onc` or `courier`, found `nmae`",
        ),
        (
            "#[interface(name = \"a b\")]\ntrait A {}",
            1,
            20,
            "expected a name in quotes, of letters, digits, `_`, `-` and `.`, found `\"a b\"`",
        ),
        (
            "trait A { fn f(&self, #[max_len(N)] x: &str) -> peregrine::Result<()>; }",
            1,
            33,
            "expected a number of type `u32`, found `N`",
        ),
        (
            "trait A { fn f(&self, #[max_len] x: &str) -> peregrine::Result<()>; }",
            1,
            25,
            "`max_len` needs a number: `#[max_len(4096)]`",
        ),
        (
            "trait A {\n fn \"f() -> unit or text\\ng\"(&self) -> peregrine::Result<()>; }",
            2,
            5,
            "a name in quotes consists of letters, digits, `_`, `-` and `.`",
        ),
        (
            "trait A {\n fn g(&self) -> peregrine::Result<()>;\n #[idempotent] fn f(&self, x: &mut u8) -> peregrine::Result<()>; }",
            3,
            19,
            "`x` is sent both ways in a procedure that may run twice",
        ),
        (
            "trait A { #[oneway] fn f(&self, x: &mut u8) -> peregrine::Result<()>; }",
            1,
            24,
            "`x` is passed in a way that a one-way procedure does not allow",
        ),
        (
            "trait A { #[oneway] fn f(&self) -> peregrine::Result<u8>; }",
            1,
            24,
            "a one-way procedure returns a value",
        ),
        (
            "trait A { #[oneway] #[idempotent] fn f(&self) -> peregrine::Result<()>; }",
            1,
            38,
            "a one-way method is never repeated",
        ),
        (
            "trait A {\n fn flush(&self) -> peregrine::Result<()>;\n #[oneway] fn f(&self) -> peregrine::Result<()>; }",
            2,
            5,
            "the name `flush` is reserved in an interface with one-way procedures",
        ),
        (
            "trait A { fn f(&self, #[default] x: Sink<'_, u8>) -> peregrine::Result<()>; }",
            1,
            14,
            "stream cannot have a default",
        ),
        (
            "trait A { fn f(&self, x: Vec<Sink<'_, u8>>) -> peregrine::Result<()>; }",
            1,
            35,
            "expected",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, dyn B>) -> peregrine::Result<()>; }",
            1,
            43,
            "there is no trait `B` in this text; add it",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, dyn B>) -> peregrine::Result<()>; } struct B {}",
            1,
            43,
            "there is no trait `B` in this text; add it",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, B>) -> peregrine::Result<()>; } trait B {}",
            1,
            39,
            "expected `dyn` and a trait, found `B`",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, dyn B>, y: B) -> peregrine::Result<()>; } trait B {}",
            1,
            14,
            "the interface `B` may only be the type of a callback",
        ),
        (
            "trait A { fn f(&self, #[default] x: Callback<'_, dyn A>) -> peregrine::Result<()>; }",
            1,
            25,
            "a callback cannot have a default",
        ),
        (
            "trait A { fn f(&self, x: Vec<Callback<'_, dyn A>>) -> peregrine::Result<()>; }",
            1,
            39,
            "expected a type",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, dyn B>) -> peregrine::Result<()>; }\n\
             trait B {}\ntrait C {}",
            3,
            7,
            "more than one trait",
        ),
        (
            "trait A { fn f(&self, x: Callback<'_, dyn B>) -> peregrine::Result<()>; }\n\
             trait B { fn g(&self, x: Out<'_, String>) -> peregrine::Result<()>; }",
            2,
            7,
            "`x` is a buffer of values that are not plain",
        ),
        (
            "trait A { fn f(&self, x: Out<'_, String>) -> peregrine::Result<()>; }",
            1,
            14,
            "`x` is a buffer of values that are not plain",
        ),
        (
            "#[derive(Plain)]\nenum A { B }",
            2,
            6,
            "a plain enum needs `#[repr(u8)]`, or another integer type in `repr`",
        ),
        (
            "#[derive(Plain)] #[repr(u8)]\nenum A { B, C(u8) }",
            2,
            13,
            "the variant `C` of a plain enum cannot have fields",
        ),
    ] {
        let error = parse_trait(text).expect_err(text);
        let place = (error.line(), error.column());
        assert!(error.to_string().contains(said), "{error}: {text}");
        assert_eq!(place, (line, column), "{error}: {text}");
        is_inside(text, &error);
    }
}

#[test]
fn names_and_bounds_are_found_where_the_compiler_finds_them() {
    let text = "#[interface(max_len = 16)]
        trait A {
            fn f(&self, a: &[u8], #[max_len(4)] b: &str, c: u8, y: &a::Y) -> peregrine::Result<()>;
        }
        struct X { outer: u8 }
        mod a { struct X { inner: u16 } struct Y { x: X, up: super::X } }
        #[derive(Plain)] #[repr(u16)] enum C { A = 0x0203 }";
    let read = parse_trait(text).unwrap();
    assert_eq!(
        read.to_string(),
        "interface A version 0\n\
         f(in a: [u8] max 16, in b: str max 4, in c: u8, in y: Y#0) -> unit or CallError#1\n\
         Y#0 = struct {x: X#2, up: X#3}\n\
         CallError#1 = struct {chain: text}\n\
         X#2 = struct {inner: u16}\n\
         X#3 = struct {outer: u8}\n"
    );
    // If a type has the name of a type that `#[interface]` generates, it is printed in a separate module.
    let text = "interface A version 0\nf() -> AClient#0 or unit\nAClient#0 = struct {}\n";
    assert!(to_trait(&Described::parse(text).unwrap()).contains("pub mod m0 {"));
}

#[test]
fn streams_are_read_in_each_way_to_write_them() {
    let described = |ty: &str| {
        parse_trait(&format!("trait A {{ fn f(&self, x: {ty}) -> peregrine::Result<()>; }}"))
    };
    let sink = described("Sink<'_, u8>").unwrap();
    assert_eq!(sink.procedures[0].parameters[0].direction, Direction::Sink);
    assert!(sink.to_string().contains("f(sink x: u8) ->"), "{sink}");
    for ty in ["peregrine::Sink<'_, u8>", "::peregrine::Sink<'_, u8,>", "Sink<u8>", "Sink<'a, u8>"]
    {
        assert_eq!(described(ty), Ok(sink.clone()), "{ty}");
    }
    let source = described("Source<'_, String>").unwrap();
    assert!(source.to_string().contains("f(source x: text) ->"), "{source}");
}

#[test]
fn callbacks_are_read_in_each_way_to_write_them() {
    let described = |ty: &str| {
        let text = "trait B { fn g(&self, x: S) -> peregrine::Result<()>; } struct S { x: u8 }";
        parse_trait(&format!("{text} trait A {{ fn f(&self, x: {ty}) -> peregrine::Result<()>; }}"))
    };
    let one = described("Callback<'_, dyn B>").unwrap();
    assert_eq!(
        one.to_string(),
        "interface A version 0\n\
         f(callback x: B#0) -> unit or CallError#1\n\
         B#0 = interface version 0 {g(in x: S#2) -> unit or CallError#1}\n\
         CallError#1 = struct {chain: text}\n\
         S#2 = struct {x: u8}\n"
    );
    for ty in [
        "peregrine::Callback<'static, dyn B>",
        "::peregrine::Callback<'_, dyn crate::B,>",
        "Callback<dyn B>",
    ] {
        assert_eq!(described(ty), Ok(one.clone()), "{ty}");
    }
}

const ROOM: &str = r#"#[interface(name = "chat.room", version = 1)]
pub trait ChatRoom {
    fn join(&self, name: &str, #[was("one")] listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    fn all(&self, rooms: Callback<'_, dyn ChatRoom>, other: Callback<'_, dyn m3::Listener>) -> Result<(), Failed>;
}

/// Not kept.
#[interface(name = "listener", version = 2)]
pub trait Listener {
    /// Nor this.
    #[idempotent]
    fn said(&self, #[default("?")] text: String, entry: &Entry) -> peregrine::Result<()>;
    #[oneway]
    fn bye(&self) -> Result<(), Failed>;
}

pub mod m3 {
    use super::*;
    #[interface]
    pub trait Listener {
        #[was("before")]
        fn introduce(
            &self,
            room: Callback<'_, dyn super::ChatRoom>,
            more: Callback<'_, dyn m3::Listener>,
            first: Callback<'_, dyn super::Listener>,
        ) -> Result<super::Entry, super::Failed>;
    }
}

#[derive(Value)]
pub enum Failed {
    Call(peregrine::CallError),
}
impl From<peregrine::CallError> for Failed {
    fn from(error: peregrine::CallError) -> Self {
        Self::Call(error)
    }
}

#[derive(Value)]
pub struct Entry {
    pub name: String,
    pub more: Vec<Entry>,
}
"#;

#[test]
fn traits_of_callbacks_are_printed_after_the_trait() {
    let read = parse_trait(ROOM).unwrap();
    assert_eq!(
        read.to_string(),
        "interface chat.room version 1\n\
         join(in name: str, callback listener: listener#0 was one) -> u32 or CallError#1\n\
         all(callback rooms: chat.room#2, callback other: Listener#3) -> unit or Failed#4\n\
         listener#0 = interface version 2 {idempotent said(in text: text = x010000003f, in entry: Entry#5) \
         -> unit or CallError#1; oneway bye() -> unit or Failed#4}\n\
         CallError#1 = struct {chain: text}\n\
         chat.room#2 = interface version 1 {join(in name: str, callback listener: listener#0 was one) -> u32 \
         or CallError#1; all(callback rooms: chat.room#2, callback other: Listener#3) -> unit or Failed#4}\n\
         Listener#3 = interface version 0 {introduce was before(callback room: chat.room#2, callback more: \
         Listener#3, callback first: listener#0) -> Entry#5 or Failed#4}\n\
         Failed#4 = enum Call {0: CallError#1}\n\
         Entry#5 = struct {name: text, more: sequence<Entry#5>}\n"
    );
    let text = to_trait(&read);
    assert_eq!(parse_trait(&text), Ok(read), "{text}");
    let expected = r#"#[interface(name = "chat.room", version = 1)]
pub trait ChatRoom {
    fn join(
        &self,
        name: &str,
        #[was("one")] listener: Callback<'_, dyn Listener>,
    ) -> peregrine::Result<u32>;
    fn all(
        &self,
        rooms: Callback<'_, dyn ChatRoom>,
        other: Callback<'_, dyn m3::Listener>,
    ) -> Result<(), Failed>;
}

#[interface(name = "listener", version = 2)]
pub trait Listener {
    #[idempotent]
    fn said(&self, #[default("?".to_owned())] text: String, entry: &Entry)
    -> peregrine::Result<()>;
    #[oneway]
    fn bye(&self) -> Result<(), Failed>;
}

pub mod m3 {
    use super::*;
    pub trait Listener {
        #[was("before")]
        fn introduce(
            &self,
            room: Callback<'_, dyn super::ChatRoom>,
            more: Callback<'_, dyn super::m3::Listener>,
            first: Callback<'_, dyn super::Listener>,
        ) -> Result<super::Entry, super::Failed>;
    }
}
"#;
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn source_file_with_comments_and_other_attributes_is_read() {
    let text = r##"//! A module's own documentation.
#![allow(missing_docs)]
use std::sync::Arc;

/** Adds. */
#[peregrine::interface(version = 0x10)]
#[doc = " Twice."]
pub(crate) trait Add {
    /* /* nested */ */
    #[doc(hidden)]
    fn add(&self, wide: [u16; 1_0], pair: &Pair, r#type: ::std::Option<Box<u8>>,) -> peregrine::Result<i32>;
}
/// Of any two.
#[derive(Debug, peregrine::Value)]
pub struct Pair(pub (u8, u16), #[serde(skip)] pub(super) [i8; 2],);
impl<'a> From<&'a [u8; { 3 }]> for Pair where Pair: Sized {
    fn from(_: &'a [u8; 3]) -> Self { "}" ; '}' ; r#"}"# }
}
"##;
    let read = parse_trait(text).unwrap();
    assert_eq!(
        read.to_string(),
        "interface Add version 16\n\
         add(in wide: [u16; 10], in pair: Pair#0, in type: option<u8>) -> i32 or CallError#1\n\
         Pair#0 = struct {0: tuple<u8, u16>, 1: [i8; 2]}\n\
         CallError#1 = struct {chain: text}\n"
    );
    assert_eq!(read.docs, "Adds. \nTwice.");
}

#[test]
fn numbers_are_read_up_to_their_bounds() {
    let (least, most) = (i128::MIN, i128::MAX);
    let text = format!(
        "trait A {{ fn f(&self, a: [u8; {}], e: &E) -> peregrine::Result<()>; }}
         #[derive(Plain)] #[repr(i128)] enum E {{ A = {least}, B, C = 0b11, D = -0o7, E = {most}, F }}",
        u64::MAX
    );
    let canonical = parse_trait(&text).unwrap().to_string();
    assert!(canonical.contains("[u8; 18446744073709551615]"), "{canonical}");
    let second = least + 1;
    let values = format!("A={least} B={second} C=3 D=-7 E={most} F={least}");
    assert!(canonical.contains(&values), "{canonical}");
    let error = parse_trait(&text.replace(&u64::MAX.to_string(), "18446744073709551616"));
    assert!(error.unwrap_err().to_string().contains("number of type `u64`"));
}

#[test]
fn long_chain_of_types_does_not_overflow_the_stack() {
    let mut text = String::from("trait A { fn f(&self, x: &T0) -> peregrine::Result<()>; }\n");
    for number in 0..8000 {
        text.push_str(&format!("struct T{number} {{ next: Option<Box<T{}>> }}\n", number + 1));
    }
    text.push_str("struct T8000 { first: Option<Box<T0>> }\n");
    let described = parse_trait(&text).unwrap();
    assert_eq!(described.types.len(), 8002);
    assert_eq!(parse_trait(&to_trait(&described)), Ok(described));
    let mut text = String::from("trait A { fn f(&self, x: &P0) -> peregrine::Result<()>; }\n");
    for number in 0..8000 {
        text += &format!("#[derive(Plain)] struct P{number} {{ inner: P{} }}\n", number + 1);
    }
    let described =
        parse_trait(&format!("{text}#[derive(Plain)] struct P8000 {{ x: u8 }}")).unwrap();
    assert_eq!(parse_trait(&to_trait(&described)), Ok(described));
    let error = parse_trait(&format!("{text}#[derive(Plain)] struct P8000 {{ x: P7999 }}"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("`P7999` contains itself"), "{error}");
    // Each type must be visited only once, although each type contains the next one twice.
    let mut text = String::from("trait A { fn f(&self, x: &P0) -> peregrine::Result<()>; }\n");
    for number in 0..100 {
        let next = number + 1;
        text += &format!("#[derive(Plain)] struct P{number} {{ a: P{next}, b: P{next} }}\n");
    }
    let error = parse_trait(&format!("{text}#[derive(Plain)] struct P100 {{}}")).unwrap_err();
    assert!(error.to_string().contains("a plain type of 0 bytes"), "{error}");
}

/// Returns a text of about `bytes` bytes. It consists of `start`, repetitions of `again`, and `end`.
fn filled(bytes: usize, start: &str, again: &str, end: &str) -> String {
    let count = (bytes - start.len() - end.len()) / again.len();
    format!("{start}{}{end}", again.repeat(count))
}

#[test]
fn deep_nesting_is_refused_without_stack_overflow() {
    let method = "trait A { fn f(&self, x: ";
    for (start, again, end, said) in [
        ("", "(", "", "is never closed"),
        (method, "(", "", "is never closed"),
        (method, ")", "", "closes no bracket"),
        (method, "Vec<", "", "is never closed"),
        (method, "Vec<", "}", "closes no bracket"),
        ("trait A {} struct B(", "Vec<", ");", "at most 64 levels deep"),
        ("trait A {} struct B(", "Result<u8,", ");", "at most 64 levels deep"),
        ("trait A {} struct B(", "&", ");", "expected a type, found `&`"),
        ("trait A {} struct B(", "*const ", ");", "expected a type, found `*`"),
        ("trait A {} enum B { C = ", "-", "}", "expected a number of type `i128`, found `-`"),
        ("#[a = ", "!", "] trait A {}", ""),
        ("trait A {} impl ", "&&", "{}", ""),
        ("trait A {} impl B { const C: u8 = ", "-", "1; }", ""),
        ("trait A {} ", "mod m {", "", "is never closed"),
        ("trait A {} ", "#[a]", "", ""),
        ("trait A {} ", "use b;", "", ""),
        ("trait A {} enum B { C = ", "9", "}", "this number has 131"),
        ("trait A {} enum B { C = 0x", "f", "}", "this number has 131"),
        ("trait A { fn ", "f", "", "is never closed"),
        ("/*", "/*", "", "this comment has no `*/`"),
        ("", "\"", "", "expected a"),
    ] {
        // The text is so long that parsing it would overflow the stack if the recursion had no bound.
        let text = filled(CANONICAL_BYTES_MAX / 8, start, again, end);
        match parse_trait(&text) {
            Ok(_) => assert_eq!(said, "", "{start}{again}...{end} is read"),
            Err(error) => {
                assert!(error.to_string().contains(said) && !said.is_empty(), "{start}: {error}");
                is_inside(&text, &error);
            }
        }
    }
    let nested = |open: &str, close: &str, depth| {
        let (open, close) = (open.repeat(depth), close.repeat(depth));
        parse_trait(&format!("trait A {{}} impl B {{ {open}{close} }}"))
    };
    for (open, close) in [("(", ")"), ("[", "]"), ("{", "}")] {
        assert!(nested(open, close, NESTING_MAX - 1).is_ok());
        for depth in [NESTING_MAX, 400_000] {
            let error = nested(open, close, depth).unwrap_err();
            assert!(error.to_string().contains("nested more than 128 levels deep"), "{error}");
        }
    }
}

#[test]
fn types_nest_as_deep_as_in_canonical_texts() {
    let method = |ty: &str| format!("trait A {{ fn f(&self, x: {ty}) -> peregrine::Result<()>; }}");
    for (open, close) in [("Vec<", ">"), ("(", ",)"), ("[", "; 2]"), ("Option<", ",>")] {
        let nested = |depth| method(&format!("{}u8{}", open.repeat(depth), close.repeat(depth)));
        let deepest = parse_trait(&nested(64)).unwrap();
        assert_eq!(parse_trait(&to_trait(&deepest)), Ok(deepest));
        let error = parse_trait(&nested(65)).unwrap_err();
        assert!(error.to_string().contains("at most 64 levels deep"), "{error}");
    }
}

#[test]
fn text_that_is_too_long_is_refused() {
    let comment = filled(CANONICAL_BYTES_MAX, "trait A {} //", "x", "");
    assert_eq!(comment.len(), CANONICAL_BYTES_MAX);
    assert!(parse_trait(&comment).is_ok());
    let error = parse_trait(&format!("{comment}x")).unwrap_err();
    assert!(error.to_string().contains("1048577 bytes are more than 1048576"), "{error}");
}

#[test]
fn error_shows_no_control_characters_and_no_long_tokens() {
    let text = format!("trait A {{ fn \"\u{1b}[31m\"(&self); }} // {}", "x".repeat(100));
    let error = parse_trait(&text).unwrap_err().to_string();
    assert!(!error.contains(char::is_control), "{error:?}");
    let error = parse_trait(&format!("trait {}! {{}}", "x".repeat(100_000))).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
    let error = parse_trait(&format!("{} {{}}", "x".repeat(100_000))).unwrap_err();
    assert!(error.to_string().ends_with("x...`") && error.to_string().len() < 200, "{error}");
}
