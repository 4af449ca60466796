//! Tests that programs of Courier become Rust, that they are printed and read again, and that wrong texts are
//! refused at the right place, within bounds of time and memory.

use peregrine::interface::System;
use peregrine_idl::courier::*;
use peregrine_idl::{Diagnostics, export_traits};
use proptest::prelude::*;
use support::stored;

#[path = "courier/programs.rs"]
mod programs;
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

fn import(text: &str) -> Result<Imported, Diagnostics> {
    support::courier(text, "Test.cr")
}

/// Imports a program with the given declarations.
fn of(declarations: &str) -> Result<Imported, Diagnostics> {
    import(&format!("Test: PROGRAM 9 VERSION 1 =\nBEGIN\n{declarations}\nEND.\n"))
}

/// Returns the messages of the errors in a program with the given declarations.
fn errors(declarations: &str) -> Vec<String> {
    let found = of(declarations).expect_err("an error");
    found
        .iter()
        .map(|one| format!("{}:{} {}", one.line() - 2, one.column(), one.message()))
        .collect()
}

/// Asserts that a text is Rust, and that each type that it uses is declared or imported.
fn is_closed(rust: &str) {
    let file = syn::parse_file(rust).unwrap_or_else(|error| panic!("{error}\n{rust}"));
    programs::declared_types(&file);
}

/// The library is tested with a second implementation of Courier (docs/INTEROP.md). The Rust text of its
/// interface is stored. This test checks that the importer prints this text.
#[test]
fn stored_interface_of_another_implementation_is_as_printed() {
    let tests = support::tests("../../peregrine/tests");
    let text = std::fs::read_to_string(tests.join("interop/Interop.cr")).expect("a program");
    let imported = import(&text).unwrap_or_else(|error| panic!("{error}"));
    let path = tests.join("courier_interop/imported/interop.txt");
    if std::env::var_os("PEREGRINE_WRITE").is_some() {
        std::fs::write(&path, &imported.rust).expect("a file");
    }
    let stored = std::fs::read_to_string(&path).expect("the stored text");
    assert_eq!(imported.rust, stored, "PEREGRINE_WRITE=1 writes {}", path.display());
}

#[test]
fn programs_become_the_stored_rust() {
    let write = std::env::var_os("PEREGRINE_WRITE").is_some();
    for path in support::files_in(&support::tests("courier"), "cr") {
        let text = std::fs::read_to_string(&path).expect("a program");
        let imported = import(&text).unwrap_or_else(|error| panic!("{error}"));
        is_closed(&imported.rust);
        let rust = path.with_extension("txt");
        if write {
            std::fs::write(&rust, &imported.rust).expect("a file");
        }
        let stored = std::fs::read_to_string(&rust).unwrap_or_default();
        assert_eq!(
            imported.rust,
            stored,
            "{}: run with PEREGRINE_WRITE=1 to accept the change",
            path.display()
        );
        // The exported text is imported as the same program.
        let exported = export_courier(&imported.program);
        let again = import(&exported).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.program, imported.program, "{exported}");
        assert_eq!(again.rust, imported.rust);
        assert_eq!(export_courier(&again.program), exported);
        check_export(&imported.rust);
    }
}

/// Checks that a Rust text becomes a program, that importing the program leads to the same Rust text, and
/// that exporting this text leads to the same program.
fn check_export(rust: &str) {
    let export = |rust: &str| {
        export_traits(rust, "export.rs", System::Courier)
            .unwrap_or_else(|error| panic!("{error}\n{rust}"))
            .text
    };
    let program = export(rust);
    let again = import(&program).unwrap_or_else(|error| panic!("{error}\n{program}"));
    // In Rust, a procedure that is left out is only a comment, so the exported program does not have it.
    let kept = |rust: &str| -> Vec<String> {
        let is_kept = |line: &&str| !line.trim_start().starts_with("// Procedure ");
        rust.lines().filter(is_kept).map(str::to_owned).collect()
    };
    assert_eq!(kept(&again.rust), kept(rust), "{program}");
    assert_eq!(export(&again.rust), program);
}

#[test]
fn procedures_with_bulk_data_are_left_out_with_a_warning() {
    let directory = stored("Directory", 3).expect("a program");
    let imported = import(&directory.text).unwrap_or_else(|error| panic!("{error}"));
    let warnings: Vec<&str> = imported.warnings.iter().map(|one| one.message()).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("procedure `ListNames` is left out"), "{warnings:?}");
    assert!(!imported.rust.contains("fn list_names"));
    // The Rust text is the same if the text of `BulkData` is missing.
    let alone = import_courier(&directory.text, "Directory3.cr", &mut |one| {
        stored(&one.name.text, one.numbers.version).filter(|_| one.numbers.program != 0)
    });
    assert_eq!(alone.map(|one| one.rust).ok(), Some(imported.rust));
}

#[test]
fn several_errors_are_reported_at_their_places() {
    let text = "A: TYPE = RECORD [x: Nothing];\nB: TYPE = {a(0), b(0)};\nb: CARDINAL = 65536;\n\
                C: TYPE = CHOICE B OF {c => CARDINAL};";
    assert_eq!(
        errors(text),
        [
            "1:22 there is no type `Nothing`",
            "2:20 `b` and `a` have the same number 0",
            "3:15 65536 is not in the range 0 to 65535 of its type",
            "4:24 `c` is not a name of `B`",
        ]
    );
    let text =
        "A: TYPE = RECORD x];\nB: TYPE = CARDINAL\nC: TYPE = LONG STRING;\nD: TYPE = \u{e9};";
    assert_eq!(
        errors(text),
        [
            "4:11 `é` is not part of the language",
            "1:18 expected `[`, found `x`",
            "3:1 expected `;`, found `C`",
            "3:16 expected `CARDINAL`, `INTEGER` or `UNSPECIFIED` after `LONG`, found `STRING`",
            "4:12 expected a type, found `;`",
        ]
    );
    let shown = of("Name: TYPE = STRING; B: TYPE = name;").expect_err("an error").to_string();
    assert!(shown.contains("there is no type `name`; there is `Name`"), "{shown}");
    assert!(shown.contains("--> Test.cr:3:32\n"), "{shown}");
    assert!(shown.ends_with(&format!("| {:31}^^^^", "")), "{shown}");
}

#[test]
fn each_rule_has_a_message() {
    let cases = [
        ("A: TYPE = B; B: TYPE = A;", "defined by itself"),
        ("A: TYPE = RECORD [a: A];", "without end"),
        ("A: TYPE = RECORD [a: ARRAY 2 OF B]; B: TYPE = A;", "without end"),
        ("a: CARDINAL = b; b: CARDINAL = a;", "defined by itself"),
        ("A: TYPE = STRING; A: TYPE = STRING;", "declared twice"),
        ("A: TYPE = RECORD [x, x: STRING];", "two fields `x`"),
        ("A: TYPE = CHOICE OF {a => STRING};", "a number after `a`"),
        ("P: PROCEDURE = 1; Q: PROCEDURE = 1;", "procedures of the same number"),
        ("P: PROCEDURE REPORTS [E] = 1;", "no error `E`"),
        (
            "E: ERROR = 1; F: ERROR = 1; P: PROCEDURE REPORTS [E, F] = 1;",
            "errors of the same number",
        ),
        ("A: TYPE = ARRAY 70000 OF CARDINAL;", "at most 65535 elements"),
        ("A: TYPE = ARRAY n OF CARDINAL; n: STRING = \"\";", "not a number"),
        ("a: LONG CARDINAL = 4294967296;", "does not fit in 32 bits"),
        ("a: LONG CARDINAL = 9B;", "`9B` is not a number"),
        ("A: TYPE = Other.Type;", "no program in `Other` is depended upon"),
        ("P: TYPE = PROCEDURE; A: TYPE = SEQUENCE OF P;", "not data"),
        ("A: TYPE = SEQUENCE OF PROCEDURE;", "expected a type of data"),
        ("a: BOOLEAN = 1;", "not the value of a BOOLEAN"),
        ("a: ARRAY 2 OF CARDINAL = [1];", "1 elements for an array of 2"),
        ("a: SEQUENCE 1 OF CARDINAL = [1, 2];", "at most 1"),
        ("a: RECORD [x, y: CARDINAL] = [1];", "1 values for a record of 2 fields"),
        ("a: RECORD [x, y: CARDINAL] = [x: 1];", "the field `y` has no value"),
        ("a: CARDINAL = b; b: BOOLEAN = TRUE;", "another type"),
        ("a: STRING = \"", "no closing quote"),
    ];
    for (text, wanted) in cases {
        let found = errors(text);
        assert!(found.iter().any(|one| one.contains(wanted)), "{text}: {found:?}");
    }
    let text = "A: PROGRAM 1 VERSION 1 = BEGIN DEPENDS UPON B (2) VERSION 3; C: TYPE = B.C; END.";
    let found = import(text).expect_err("an error").to_string();
    assert!(
        found.contains("the text of program 2 version 3, which has the type `C`, is missing"),
        "{found}"
    );
    let wrong = |_: &Dependency| {
        Some(Source { name: "B.cr".into(), text: "B: PROGRAM 2 VERSION 4 = BEGIN END.".into() })
    };
    let found = import_courier(text, "A.cr", &mut { wrong }).expect_err("an error").to_string();
    assert!(found.contains("the text for `B` 2 version 3 is program `B` 2 version 4"), "{found}");
}

#[test]
fn numbers_strings_and_comments_have_all_their_forms() {
    let text = "a: LONG CARDINAL = 17B; -- x -- b: LONG CARDINAL = FFH; -- to the end
        c: LONG CARDINAL = 0FFH; d: CARDINAL = 10D; ---- e: CARDINAL = d; ---------------- --
        -----------
        ABH: CARDINAL = 1; f: CARDINAL = ABH;\r g: STRING = \"a\"\"b\";\r\n h: INTEGER = - 5;";
    let rust = of(text).unwrap_or_else(|error| panic!("{error}")).rust;
    for wanted in ["A: u32 = 15;", "B: u32 = 255;", "C: u32 = 255;", "D: u16 = 10;", "E: u16 = D;"]
    {
        assert!(rust.contains(wanted), "{wanted}: {rust}");
    }
    for wanted in ["F: u16 = ABH;", "G: &str = \"a\\\"b\";", "H: i16 = -5;"] {
        assert!(rust.contains(wanted), "{wanted}: {rust}");
    }
}

#[test]
fn names_that_collide_are_numbered() {
    let text = "a_b: TYPE = {x_y(0), xY(1), Self(2)}; AB: TYPE = RECORD [a_b, aB: String, fn: Vec]; \
                String: TYPE = CARDINAL; Vec: TYPE = STRING; Test: TYPE = AB; self: PROCEDURE = 0;";
    let rust = of(text).unwrap_or_else(|error| panic!("{error}")).rust;
    is_closed(&rust);
    assert!(rust.contains("pub trait TestProgram {"), "{rust}");
    for wanted in
        ["XY = 0,", "XY2 = 1,", "Self_ = 2,", "a_b: String2,", "a_b2: String2,", "r#fn: Vec2,"]
    {
        assert!(rust.contains(wanted), "{wanted}: {rust}");
    }
}

#[test]
fn deep_and_long_texts_are_read_in_bounded_time() {
    const MANY: usize = 100_000;
    let found = errors(&format!("A: TYPE = {}CARDINAL;", "ARRAY 1 OF ".repeat(MANY / 2)));
    assert!(found[0].contains("nested more than 128 levels deep"), "{found:?}");
    let found = errors(&format!("a: CARDINAL = {};", "[".repeat(MANY)));
    assert!(found[0].contains("nested more than 128 levels deep"), "{found:?}");
    // Long chains are imported. Circles of types are refused, unless they contain a sequence.
    let chain = |last: &str| -> String {
        let link = |number: usize| format!("T{number}:TYPE=T{};", number + 1);
        (0..MANY / 4).map(link).collect::<String>() + &format!("T{}:TYPE={last};", MANY / 4)
    };
    assert!(of(&chain("CARDINAL")).is_ok());
    assert_eq!(errors(&chain("T0")).len(), peregrine_idl::DIAGNOSTICS_MAX);
    let link =
        |number: usize| format!("T{number}:TYPE=RECORD[n:SEQUENCE OF T{}];", (number + 1) % 20_000);
    assert!(of(&(0..20_000).map(link).collect::<String>()).is_ok());
    let link = |number: usize| format!("c{number}:CARDINAL=c{};", number + 1);
    let constants =
        (0..MANY / 4).map(link).collect::<String>() + &format!("c{}:CARDINAL=7;", MANY / 4);
    assert!(of(&format!("{constants}A:TYPE=ARRAY c0 OF CARDINAL;")).is_ok());
    // A short text can describe a value of 2^60 numbers, because each type contains the next type twice.
    let types: String =
        (0..60).map(|one| format!("R{one}: TYPE = RECORD [a, b: R{}];", one + 1)).collect();
    let value = format!("{}1{}", "[a, b: ".repeat(60), "]".repeat(60));
    let found = errors(&format!("{types} R60: TYPE = CARDINAL; a: R0 = {value};"));
    assert!(found[0].contains("too long"), "{found:?}");
    for text in
        ["-".repeat(1 << 19), "\"\"".repeat(1 << 18), "?a".repeat(1 << 18), "(".repeat(1 << 19)]
    {
        assert!(import(&text).is_err());
    }
    assert!(import(&format!("{}x", "-".repeat(1 << 19))).is_err());
    assert!(import(&"x".repeat(COURIER_BYTES_MAX + 1)).is_err());
}

#[test]
fn programs_that_depend_upon_ever_more_programs_are_refused() {
    let program = |number: u32| {
        format!(
            "P{number}: PROGRAM {number} VERSION 1 = BEGIN DEPENDS UPON P{0} ({0}) VERSION 1; END.",
            number + 1
        )
    };
    let mut files = |one: &Dependency| {
        Some(Source { name: one.name.text.clone(), text: program(one.numbers.program) })
    };
    let found = import_courier(&program(1), "P1.cr", &mut files).expect_err("an error").to_string();
    assert!(found.contains("more than 64 programs"), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn exported_program_is_imported_as_the_same(program in programs::program()) {
        let text = export_courier(&program);
        let imported = import(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        prop_assert_eq!(&imported.program, &program, "{}", text);
        prop_assert_eq!(export_courier(&imported.program), text);
        is_closed(&imported.rust);
        // The export adds declarations for types without a name, so uses of these types may then be in a box.
        // After this first export, the text is stable.
        let once = export_traits(&imported.rust, "once.rs", System::Courier);
        let once = once.unwrap_or_else(|error| panic!("{error}\n{}", imported.rust));
        check_export(&import(&once.text).unwrap_or_else(|error| panic!("{error}\n{}", once.text)).rust);
    }

    #[test]
    fn edited_program_is_imported_or_refused(
        program in programs::program(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        const LETTERS: &[u8] = b"aT09H:;,=>[](){}.-\" \n";
        let mut text = export_courier(&program).into_bytes();
        for (at, what) in edits {
            let at = at.index(text.len());
            match LETTERS.get(usize::from(what) % (LETTERS.len() + 1)) {
                Some(letter) if what < 128 => text[at] = *letter,
                Some(letter) => text.insert(at, *letter),
                None => drop(text.remove(at)),
            }
        }
        read_or_refuse(&String::from_utf8_lossy(&text));
    }

    #[test]
    fn any_text_is_imported_or_refused(text in "\\PC{0,80}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_or_refuse(&text);
        read_or_refuse(&String::from_utf8_lossy(&bytes));
        read_or_refuse(&format!("A: PROGRAM 1 VERSION 1 = BEGIN {text} END."));
    }
}

fn read_or_refuse(text: &str) {
    match import(text) {
        Ok(imported) => {
            is_closed(&imported.rust);
            let exported = export_courier(&imported.program);
            let again = import(&exported).unwrap_or_else(|error| panic!("{error}\n{exported}"));
            assert_eq!(again.program, imported.program, "{exported}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
