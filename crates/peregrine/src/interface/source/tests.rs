//! Traits are printed and read back; what is none is refused, and nothing panics.

use proptest::prelude::*;

use super::super::made_up::pool;
use super::*;

proptest! {
    #[test]
    fn what_is_printed_is_read_again(
        pool in pool(),
        docs in prop::collection::vec("[ a-zß/*\"\n]{0,12}", 0..5),
    ) {
        let described = pool.described().with_docs(&docs);
        let text = described.to_trait();
        prop_assert_eq!(Described::parse_trait(&text), Ok(described), "{}", text);
    }

    #[test]
    fn nothing_else_does_harm(
        pool in pool(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        const LETTERS: &[u8] = b"fnau8#=<>[](){}:;,'&\"/* _-01\n";
        let mut text = pool.described().to_trait().into_bytes();
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
        if let Ok(described) = Described::parse_trait(&text) {
            let again = described.to_trait();
            prop_assert_eq!(Described::parse_trait(&again), Ok(described), "{}", again);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,80}") {
        let _ = Described::parse_trait(&text);
        let _ = Described::parse_trait(&format!("trait A {{ {text} }}"));
    }
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
fn a_trait_is_printed_as_one_writes_it() {
    let described = Described::parse_trait(SHAPES).unwrap();
    // Types stand in the order of their mention; whoever writes puts them as he likes.
    let printed = described.to_trait();
    let place = |text: &str, what: &str| text.find(what).unwrap();
    assert!(place(&printed, "pub enum Failed") < place(&printed, "pub mod m"));
    assert_eq!(Described::parse_trait(&printed), Ok(described.clone()));
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
}

#[test]
fn refusals_say_where_and_why() {
    for (text, line, said) in [
        ("", 1, "there is no trait"),
        ("trait A {}\ntrait B {}", 2, "there is more than one trait"),
        ("trait A {\n fn f(self) -> Result<(), E>;\n}", 2, "`self` stands where `&` should"),
        ("trait A {\n fn f(&self) -> u8;\n}", 2, "`u8` stands where a `Result` should"),
        (
            "trait A {\n fn f(&self, x: usize) -> peregrine::Result<()>;\n}",
            2,
            "`usize` stands where a type that is the same on every machine",
        ),
        (
            "trait A {\n fn f(&self, x: &point) -> peregrine::Result<()>;\n}\nstruct Point {}",
            2,
            "there is no type `point`; there is `Point`",
        ),
        ("trait A {\n fn f(&self) -> Result<u8>;\n}", 2, "a type of 2 parts should"),
        ("trait A {}\nstruct B {}\nstruct B {}", 3, "`B` was described in line 2 already"),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\nstruct P { x: String }",
            1,
            "the field `x` of the plain type `P` is not plain",
        ),
        (
            "trait A { fn f(&self, x: &P) -> peregrine::Result<()>; }\n#[derive(Plain)]\nstruct P { x: P }",
            1,
            "contains itself",
        ),
        ("trait A { fn f(&self) -> peregrine::Result<()>", 1, "the end stands where `;` should"),
        ("trait A { /* ", 1, "a comment without an end"),
        ("#[interface(max_len = x)]\ntrait A {}", 1, "`x` is no bound"),
        ("#[interface(nmae = 1)]\ntrait A {}", 1, "`nmae` is unknown to interfaces"),
        (
            "trait A { fn \"f() -> unit or text\\ng\"(&self) -> peregrine::Result<()>; }",
            1,
            "it has names that no interface can have",
        ),
        (
            "trait A { #[idempotent] fn f(&self, x: &mut u8) -> peregrine::Result<()>; }",
            1,
            "`x` goes both ways in a procedure that may run twice",
        ),
        (
            "trait A { fn f(&self, x: Out<'_, String>) -> peregrine::Result<()>; }",
            1,
            "`x` is a buffer of what is not plain",
        ),
        ("#[derive(Plain)] enum A { B }", 1, "an enum with `#[repr(u8)]`"),
    ] {
        let error = Described::parse_trait(text).expect_err(text);
        assert_eq!(error.line(), line, "{error}: {text}");
        assert!(error.to_string().contains(said), "{error}: {text}");
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
    let read = Described::parse_trait(text).unwrap();
    assert_eq!(
        read.to_string(),
        "interface A version 0\n\
         f(in a: [u8] max 16, in b: str max 4, in c: u8, in y: Y#0) -> unit or CallError#1\n\
         Y#0 = struct {x: X#2, up: X#3}\n\
         CallError#1 = struct {chain: text}\n\
         X#2 = struct {inner: u16}\n\
         X#3 = struct {outer: u8}\n"
    );
    // A type with the name of what the macro makes stands in a module of its own.
    let text = "interface A version 0\nf() -> AClient#0 or unit\nAClient#0 = struct {}\n";
    assert!(Described::parse(text).unwrap().to_trait().contains("pub mod m0 {"));
}

#[test]
fn a_long_chain_of_types_needs_no_stack() {
    let mut text = String::from("trait A { fn f(&self, x: &T0) -> peregrine::Result<()>; }\n");
    for number in 0..8000 {
        text.push_str(&format!("struct T{number} {{ next: Option<Box<T{}>> }}\n", number + 1));
    }
    text.push_str("struct T8000 { first: Option<Box<T0>> }\n");
    let described = Described::parse_trait(&text).unwrap();
    assert_eq!(described.types.len(), 8002);
    assert_eq!(Described::parse_trait(&described.to_trait()), Ok(described));
}
