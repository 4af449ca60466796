//! Hostile texts of all languages are refused, or imported, within bounds of memory and stack.

use peregrine::interface::System;
use peregrine_idl::courier::import_courier;
use peregrine_idl::{export_traits, import_onc, parse_traits};
use proptest::prelude::*;

#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/exports.rs"]
mod exports;

const MANY: usize = 100_000;

/// Imports a text as ONC RPC and as Courier, and exports it to both systems. Returns the errors of each
/// attempt, if there are any.
fn errors(text: &str) -> [Option<String>; 4] {
    let export = |system| export_traits(text, "hostile.rs", system).err();
    [
        import_onc(text, "hostile.x").err(),
        import_courier(text, "hostile.cr", &mut |_| None).err(),
        export(System::Onc),
        export(System::Courier),
    ]
    .map(|found| found.map(|found| found.to_string()))
}

#[test]
fn text_of_100_megabytes_is_refused_before_it_is_read() {
    let text = "struct a { int b; };\n".repeat(5_000_000);
    for error in errors(&text) {
        let error = error.expect("an error");
        assert!(error.contains("bytes are"), "{error}");
    }
}

#[test]
fn binary_text_is_refused() {
    let bytes: Vec<u8> = (0..=u16::MAX).map(|n| (n.wrapping_mul(40_503) >> 7) as u8).collect();
    let zeros = "\0".repeat(MANY);
    for text in [&*String::from_utf8_lossy(&bytes), &zeros, "\u{feff}\u{202e}", "\u{1f600}"] {
        for error in errors(text) {
            assert!(error.is_some_and(|error| error.len() < 100_000));
        }
    }
}

#[test]
fn deep_types_are_refused() {
    let (open, close) = ("Option<".repeat(MANY), ">".repeat(MANY));
    for text in [
        format!("struct A {{ a: {open}u32{close} }}"),
        format!("struct A {{ a: {}u32{} }}", "[".repeat(MANY), "; 1]".repeat(MANY)),
        format!("struct A {{ a: {}u32 }}", "&".repeat(MANY)),
        format!("const A: u32 = {}1;", "-".repeat(MANY)),
        "mod a {".repeat(MANY),
        format!("struct a {}int b;{}", "{ struct ".repeat(MANY), "} c;".repeat(MANY)),
        format!("A: PROGRAM = BEGIN B: TYPE = {}CARDINAL; END.", "ARRAY 1 OF ".repeat(MANY / 2)),
    ] {
        let found = errors(&text);
        // Some exports succeed, because a constant that is not a number is left out with a warning.
        assert!(found.iter().filter(|error| error.is_some()).count() >= 2, "{}", &text[..40]);
    }
}

#[test]
fn many_types_are_read() {
    let xdr: String = (0..MANY / 4).map(|n| format!("typedef int t{n};\n")).collect();
    let imported = import_onc(&xdr, "many.x").unwrap_or_else(|error| panic!("{error}"));
    let again = export_traits(&imported.rust, "many.rs", System::Onc);
    assert_eq!(again.map(|file| file.text.matches("typedef").count()).ok(), Some(MANY / 4));
    let all: String = (0..MANY).map(|n| format!("typedef int t{n};")).collect();
    assert!(all.len() > peregrine_idl::onc::ONC_BYTES_MAX);
    assert!(import_onc(&all, "many.x").is_err());
    let courier: String = (0..MANY / 4).map(|n| format!("T{n}: TYPE = CARDINAL;\n")).collect();
    let courier = format!("Many: PROGRAM = BEGIN\n{courier}END.");
    assert!(import_courier(&courier, "many.cr", &mut |_| None).is_ok());
}

#[test]
fn aliases_of_each_other_have_no_description() {
    let method = "trait T { fn f(&self) -> peregrine::Result<A0>; }";
    assert!(parse_traits(&format!("{method} type A0 = A1; type A1 = A0;")).is_err());
    // Each alias uses the next one twice.
    let twice: String = (0..60).map(|n| format!("type A{n} = (A{0}, A{0});", n + 1)).collect();
    assert!(parse_traits(&format!("{method} {twice} type A60 = u32;")).is_err());
    let chain: String = (0..40).map(|n| format!("type A{n} = A{};", n + 1)).collect();
    assert!(parse_traits(&format!("{method} {chain} type A40 = u32;")).is_ok());
}

#[test]
fn several_problems_of_a_trait_are_found_in_one_run() {
    let text = "\
#[interface(onc(program = 1, version = 1))]
trait A {
    #[onc(1)]
    fn a(&self, wide: u128) -> peregrine::Result<char>;
    fn b(&self) -> Result<(), String>;
    #[onc(0)]
    fn c(&self) -> peregrine::Result<u32>;
}
#[derive(Foreign)]
enum U { X(u8) }
#[derive(Foreign)]
struct Loop { again: Loop }
struct Private { none: Mutex<u32> }
fn main() {}
";
    let found = export_traits(text, "a.rs", System::Onc).expect_err("errors");
    let found: Vec<String> = found
        .iter()
        .map(|one| format!("{}:{} {}", one.line(), one.column(), one.message()))
        .collect();
    let expected = [
        "4:8 `char` has no form in XDR",
        "4:17 `u128` has no form in XDR",
        "5:8 write `#[onc(N)]` before this method: its number",
        "7:8 procedure 0 of every program does nothing: give this method another number",
        "10:10 write `#[foreign(case = N)]` before this variant: its number",
        "12:8 type `loop` contains itself; only a pointer to it can be there",
    ];
    assert_eq!(found, expected);
    let text = text.replace("onc(", "courier(").replace("u8", "u16");
    let found = export_traits(&text, "a.rs", System::Courier).expect_err("errors").to_string();
    for message in ["`u128` has no form in Courier", "a CHOICE has a number for each arm"] {
        assert!(found.contains(message), "{found}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Moves, repeats and removes words of traits that are exported.
    #[test]
    fn edited_traits_are_exported_or_refused(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index, u8)>(), 0..4),
    ) {
        let texts = [
            include_str!("onc/shop.txt"),
            include_str!("courier/Storage5.txt"),
            include_str!("../../../fuzz/corpus/exports/weather"),
            include_str!("../../../fuzz/corpus/exports/unions"),
        ];
        let text = which.get(&texts).trim_start_matches(['0', '1']);
        // Each piece is a word with the character after it.
        let mut words: Vec<&str> = text.split_inclusive(|c: char| !c.is_alphanumeric()).collect();
        for (from, to, edit) in edits {
            let (from, to) = (from.index(words.len()), to.index(words.len()));
            match edit % 4 {
                0 => words.swap(from, to),
                1 => words.insert(to, words[from]),
                2 => words[to] = words[from],
                _ => drop(words.remove(from)),
            }
        }
        for system in ["0", "1"] {
            exports::run(format!("{system}{}", words.concat()).as_bytes());
        }
    }
}
