//! Interface files of ONC RPC: what is read, what is printed as Rust, and what is written again.

#[path = "onc/random.rs"]
mod random;
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use peregrine::interface::System;
use peregrine_idl::onc::{Imported, Onc, Type};
use peregrine_idl::{Diagnostics, NESTING_MAX, export_onc, export_traits, import_onc};
use syn::visit::Visit;

const SHOP: &str = include_str!("onc/shop.x");

/// The types of Rust and Peregrine that the text may use.
const KNOWN: &str = "Box ByteString Option Result Self Vec bool f32 f64 i16 i32 i64 i8 str u16 u32 u64 u8 \
                     i128";

/// The types that a text declares, and those that it uses.
#[derive(Default)]
struct Used {
    declared: Vec<String>,
    used: HashSet<String>,
}

impl<'a> Visit<'a> for Used {
    fn visit_item(&mut self, item: &'a syn::Item) {
        match item {
            syn::Item::Struct(one) => self.declared.push(one.ident.to_string()),
            syn::Item::Enum(one) => self.declared.push(one.ident.to_string()),
            syn::Item::Type(one) => self.declared.push(one.ident.to_string()),
            syn::Item::Trait(one) => self.declared.push(one.ident.to_string()),
            _ => {}
        }
        syn::visit::visit_item(self, item);
    }

    fn visit_type_path(&mut self, path: &'a syn::TypePath) {
        self.used.extend(path.path.segments.last().map(|last| last.ident.to_string()));
        syn::visit::visit_type_path(self, path);
    }
}

/// Checks that the Rust text is valid, and that it has exactly one declaration for each type that it uses.
fn check_rust(imported: &Imported) {
    let file = syn::parse_file(&imported.rust).expect(&imported.rust);
    let mut found = Used::default();
    found.visit_file(&file);
    let declared: HashSet<_> = found.declared.iter().cloned().collect();
    assert_eq!(declared.len(), found.declared.len(), "{}", imported.rust);
    let missing = |name: &&String| {
        !declared.contains(*name)
            && !KNOWN.split_whitespace().any(|known| known == *name)
            && !imported.rust.contains(&format!(" is declared nowhere: define the type `{name}`"))
    };
    let undeclared: Vec<_> = found.used.iter().filter(missing).collect();
    assert!(undeclared.is_empty(), "{undeclared:?}\n{}", imported.rust);
    for interface in &imported.interfaces {
        assert!(imported.rust.contains(&format!("pub trait {} {{", interface.name)));
    }
    for one in &imported.types {
        assert!(declared.contains(&one.rust), "{one:?}");
    }
}

/// Checks what holds for every file that can be imported.
fn check(imported: &Imported) {
    check_rust(imported);
    let written = export_onc(&imported.specification);
    let again = import_onc(&written, "again.x");
    let again = again.unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(again.specification, imported.specification, "{written}");
    let lines = |rust: &str| rust.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&again.rust), lines(&imported.rust), "{written}");
    assert_eq!(export_onc(&again.specification), written);
    check_export(imported);
}

/// Checks that the Rust text becomes a file, and that the import and the export of this file are stable.
/// Returns the Rust text of the file.
fn check_export(imported: &Imported) -> String {
    let export = |rust: &str| {
        export_traits(rust, "export.rs", System::Onc)
            .unwrap_or_else(|error| panic!("{error}\n{rust}"))
            .text
    };
    let import =
        |file: &str| import_onc(file, "a.x").unwrap_or_else(|error| panic!("{error}\n{file}")).rust;
    let file = export(&imported.rust);
    let rust = import(&file);
    let again = export(&rust);
    assert_eq!(import(&again), rust, "{file}\n{again}");
    assert_eq!(export(&import(&again)), again);
    rust
}

fn messages(found: &Diagnostics) -> Vec<String> {
    let one = |one: &peregrine_idl::Diagnostic| {
        format!("{}:{}: {}", one.line(), one.column(), one.message())
    };
    found.iter().map(one).collect()
}

fn errors(text: &str) -> Vec<String> {
    messages(&import_onc(text, "wrong.x").expect_err(text))
}

fn rust(text: &str) -> String {
    let imported = import_onc(text, "right.x").unwrap_or_else(|error| panic!("{error}"));
    check(&imported);
    imported.rust
}

#[test]
fn whole_language_is_printed_as_expected() {
    let imported = import_onc(SHOP, "shop.x").unwrap_or_else(|error| panic!("{error}"));
    check(&imported);
    assert!(imported.warnings.is_empty(), "{}", imported.warnings);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onc/shop.txt");
    if std::env::var_os("PEREGRINE_WRITE").is_some() {
        fs::write(&file, &imported.rust).unwrap();
    }
    let expected = fs::read_to_string(file).unwrap_or_default();
    assert_eq!(imported.rust, expected, "PEREGRINE_WRITE=1 writes tests/onc/shop.txt");
    let procedures = &imported.interfaces[1].procedures;
    assert_eq!((procedures[1].number, &*procedures[1].method), (3, "type"));
}

#[test]
fn files_of_this_machine_are_imported() {
    let import = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        support::onc(&text, path).unwrap_or_else(|error| panic!("{error}"))
    };
    for path in support::files_in(&support::tests("onc"), "x") {
        check(&import(&path));
    }
    // The definitions in these files already have the order that `rpcgen` needs, so importing their exports
    // leads to the same Rust text.
    for path in support::installed() {
        let imported = import(&path);
        check(&imported);
        let lines = |rust: &str| rust.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&check_export(&imported)), lines(&imported.rust), "{}", path.display());
    }
}

/// The library is tested with programs of other authors (docs/INTEROP.md). The Rust texts of their interfaces
/// are stored. This test checks that the importer prints these texts.
#[test]
fn stored_interfaces_of_other_programs_are_as_printed() {
    let directory = support::tests("../../peregrine/tests/onc_interop");
    let own = support::files_in(&directory, "x");
    let files: Vec<_> = own.into_iter().chain(support::installed()).collect();
    let stored = support::files_in(&directory.join("imported"), "txt");
    assert!(stored.len() > 10, "{stored:?}");
    for path in stored {
        let Some(file) = files.iter().find(|file| file.file_stem() == path.file_stem()) else {
            eprintln!("skipped: the interface file of {} is not installed", path.display());
            continue;
        };
        let text = fs::read_to_string(file).unwrap();
        let imported = support::onc(&text, file).unwrap_or_else(|error| panic!("{error}"));
        if std::env::var_os("PEREGRINE_WRITE").is_some() {
            fs::write(&path, &imported.rust).unwrap();
        }
        let stored = fs::read_to_string(&path).unwrap();
        assert_eq!(imported.rust, stored, "PEREGRINE_WRITE=1 writes {}", path.display());
    }
}

#[test]
fn several_errors_are_found_in_one_run() {
    let text = "\
const A = ;
struct b {
	int;
	int c d;
	int e;
};
enum f { G, G };
typedef string s[4];
program P {
	version V {
		void Q(void) = 1
		void R(void) = 2;
		int S(void) = 3;
	} = 1;
} = 1;
struct h { opaque i; };
";
    let expected = [
        "1:11: expected a number, a name or a text, found `;`",
        "3:5: expected a name, found `;`",
        "4:8: expected `;`, found `d`",
        "7:13: constant `G` is declared twice",
        "8:17: a string has a maximum length: `<` and `>`",
        "12:3: expected `;`, found `void`",
        "16:12: `opaque` needs a length: `[N]` or `<N>`",
    ];
    assert_eq!(errors(text), expected);
}

#[test]
fn meaning_is_checked() {
    for (text, expected) in [
        ("struct a { int x; }; struct a { int y; };", "1:29: type `a` is declared twice"),
        ("const A = B; const B = A;", "1:7: the value of `A` depends on itself"),
        ("const A = B;", "1:11: constant `B` is declared nowhere"),
        ("const A = \"b\"; typedef opaque b[A];", "1:33: `A` is a text, and not a number"),
        ("typedef a b; typedef b a;", "1:11: type `b` is defined by itself"),
        ("typedef a *a;", "1:12: type `a` is defined by itself"),
        ("struct a { a b; };", "1:8: type `a` contains itself; only a pointer to it can be there"),
        (
            "struct a { a b[2]; };",
            "1:8: type `a` contains itself; only a pointer to it can be there",
        ),
        ("struct a { int b; int b; };", "1:23: field `b` is declared twice"),
        (
            "enum a { B = 4294967296 };",
            "1:10: 4294967296 at `B` is not in the range -2147483648 to 4294967295",
        ),
        ("typedef opaque a[-1];", "1:16: -1 at `a` is not in the range 0 to 4294967295"),
        (
            "union a switch (hyper b) { default: void; };",
            "1:23: the type after `switch` must be an integer of at most 32 bits, a bool or an enum",
        ),
        ("union a switch (int b) { case 1: case 1: void; };", "1:7: union `a` has two cases of 1"),
        ("union a switch (int b) { };", "1:7: union `a` has no arm"),
        (
            "program P { version V { void A(void) = 1; void B(void) = 1; } = 1; } = 1;",
            "1:48: this version has another procedure of the same number or name",
        ),
        (
            "program P { version V { void A(void) = 1; } = 1; version W { } = 1; } = 1;",
            "1:58: program `P` has this version twice",
        ),
        ("#if 1\nconst A = 1;", "1:1: this conditional has no `#endif`"),
        ("#else", "1:1: `#else` without `#if`"),
        ("#if 1\n#else\n#else\n#endif", "3:1: `#else` after `#else`"),
        (
            "#if 1 +\n#endif",
            "1:1: this condition is not a comparison of numbers, names and `defined`",
        ),
        ("#include \"a.x\"", "1:1: cannot include `a.x`: includes are not allowed here"),
        ("/* open", "1:1: this comment has no `*/`"),
        (
            "const A = 99999999999999999999;",
            "1:11: `99999999999999999999` is not a number of 64 bits",
        ),
        ("const A = 1 $;", "1:13: `$` is not part of the language"),
    ] {
        assert_eq!(errors(text)[0], expected, "{text}");
    }
}

#[test]
fn what_is_declared_nowhere_is_named_and_the_rest_is_read() {
    let text = "struct a { netobject b; string c<MAX>; netobject d; };\nconst E = 1;";
    let imported = import_onc(text, "a.x").unwrap();
    check_rust(&imported);
    let expected = [
        "1:12: type `netobject` is declared nowhere; the Rust text needs a type `Netobject`",
        "1:34: constant `MAX` is declared nowhere; `c` has no maximum length",
    ];
    assert_eq!(messages(&imported.warnings), expected);
    assert_eq!(imported.missing, ["netobject"]);
    assert!(imported.rust.contains("pub const E: u32 = 1;"), "{}", imported.rust);
}

#[test]
fn conditions_are_those_of_the_client() {
    for (condition, is_true) in [
        ("ifdef RPC_CLNT", true),
        ("ifdef RPC_HDR", false),
        ("ifndef RPC_HDR", true),
        ("if RPC_HDR", false),
        ("if RPC_CLNT", true),
        ("if !defined(RPC_SVC) && (RPC_CLNT == 1 || X)", true),
        ("if X >= 1 /* none */", false),
        ("if SEVEN > 6 && SEVEN <= 0x7", true),
    ] {
        let text =
            format!("#define SEVEN 7\n# {condition}\nconst A = 1;\n#else\nconst A = 2;\n# endif");
        let expected = format!("const A: u32 = {};", if is_true { 1 } else { 2 });
        assert!(rust(&text).contains(&expected), "{text}");
    }
    let text = "#if 0\n$\n#if 1\n#endif\n'\n#elif 1\nconst A = 1;\n#elif 1\n$\n#else\n$\n#endif";
    assert!(rust(text).contains("const A: u32 = 1;"));
}

#[test]
fn names_that_collide_get_numbers() {
    let text = "struct a_b { int x_y; int xY; }; struct aB { int self; }; struct Vec { int fn; };
        program A_B { version V { void A(a_b, a_b) = 1; void a(void) = 2; } = 1; } = 1;
        enum result { some_one, SomeOne, SOME_ONE }; const x = 1; const X = 2;";
    let rust = rust(text);
    for expected in [
        "pub struct AB {\n    pub x_y: i32,\n    pub x_y2: i32,\n}",
        "pub struct AB2 {\n    pub self_: i32,\n}",
        "pub struct Vec2 {\n    pub r#fn: i32,\n}",
        "pub trait AB3 {",
        "fn a(&self, a_b: AB, a_b2: AB) -> peregrine::Result<()>;",
        "fn a2(&self) -> peregrine::Result<()>;",
        "pub enum Result2 {\n    SomeOne = 0,\n    SomeOne2 = 1,\n    SomeOne3 = 2,\n}",
        "pub const X: u32 = 1;",
        "pub const X2: u32 = 2;",
    ] {
        assert!(rust.contains(expected), "{expected}\n{rust}");
    }
}

#[test]
fn comments_become_documentation() {
    let text = "/* Licence. */\n\n/* Not this. */\n\nstruct a {\n\t/* One\n\t * two. */\n\tint b;\n\tint c; /* Three. */\n};\n";
    let rust = rust(text);
    assert!(
        rust.contains("    /// One\n    /// two.\n    pub b: i32,\n    /// Three.\n    pub c"),
        "{rust}"
    );
    assert!(!rust.contains("Licence") && !rust.contains("Not this"), "{rust}");
}

#[test]
fn included_files_are_read_and_named_in_errors() {
    let mut onc = Onc::new();
    onc.include(|name| match name {
        "self.x" => Ok("#include \"self.x\"".to_owned()),
        _ => Ok("const A = 1;\nconst B = ;".to_owned()),
    });
    let found = onc.import("#include \"b.x\"\nconst C = A;", "a.x").unwrap_err();
    assert_eq!(found.iter().next().map(|one| one.file()), Some("b.x"));
    assert!(
        onc.import("#include \"self.x\"", "a.x")
            .unwrap_err()
            .to_string()
            .contains("include each other")
    );
}

#[test]
fn what_a_file_lacks_comes_from_headers() {
    let text = "\
%#include <rpc/xdr.h>
#ifdef RPC_HDR
%#include <local/kinds.h>
#endif
%#define LONGEST 9 /* letters */
struct entry { string name<LONGEST>; netobj owner; kind what; };
";
    let kinds = "%#include \"sizes.h\"
enum kind { PLAIN, WIDE = WIDTH };
typedef kind unused[MANY];
program KINDS { version V { kind GET(void) = 1; } = 1; } = 7;";
    let mut onc = Onc::new();
    onc.include(|name| match name {
        "kinds.x" => Ok(kinds.to_owned()),
        "sizes.x" => Ok("%#include <kinds.h>\nconst WIDTH = 4;".to_owned()),
        name => Err(std::io::Error::other(name.to_owned())),
    });
    let imported = onc.import(text, "entry.x").unwrap_or_else(|error| panic!("{error}"));
    assert!(imported.warnings.is_empty(), "{}", imported.warnings);
    assert_eq!(imported.missing, [""; 0]);
    check(&imported);
    let names: Vec<&str> = imported.types.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["netobj", "kind", "entry"]);
    for expected in [
        "pub const LONGEST: u32 = 9;\n",
        "pub struct Netobj(#[foreign(max = 1024)] pub Vec<u8>);\n",
        "    Plain = 0,\n    Wide = 4,\n",
        "    #[foreign(max = 9)]\n    pub name: ByteString,\n    pub owner: Netobj,\n    pub what: Kind,\n",
    ] {
        assert!(imported.rust.contains(expected), "{expected}\n{}", imported.rust);
    }
    assert!(imported.interfaces.is_empty());
    // A name that the file itself declares is not taken from a header.
    let own = format!("{text}\ntypedef opaque netobj[4]; const PLAIN = 3;");
    let imported = onc.import(&own, "entry.x").unwrap();
    assert!(imported.rust.contains("pub type Netobj = [u8; 4];"), "{}", imported.rust);
    assert_eq!(imported.missing, ["kind"]);
    // Each header includes another one, without end. The import ends nevertheless.
    let mut endless = Onc::new();
    endless.include(|name| Ok(format!("%#include <{}>", name.replace(".x", "x.h"))));
    assert_eq!(endless.import("%#include <a.h>\ntypedef b c;", "b.x").unwrap().missing, ["b"]);
}

#[test]
fn hostile_files_are_refused_in_bounded_time_and_stack() {
    const MANY: usize = 100_000;
    let deep = NESTING_MAX + 1;
    for text in [
        "struct {".repeat(MANY),
        format!("struct a {{ {} int x; {} }};", "struct { ".repeat(deep), "} y;".repeat(deep)),
        format!("struct a {}", "{".repeat(MANY)),
        "typedef ".repeat(MANY),
        "(".repeat(MANY),
        format!("#if {}1{}\n#endif", "(".repeat(30), ")".repeat(29)),
        format!("#if {}1{}\n#endif", "(".repeat(MANY), ")".repeat(MANY)),
        "#if 1\n".repeat(MANY),
        "program P { version V { void A(".repeat(10_000),
        "union a switch (".repeat(MANY / 2),
        "\"\\".repeat(MANY),
        "/*".repeat(MANY),
        "enum a {".repeat(MANY),
        "x;".repeat(MANY),
    ] {
        let found = import_onc(&text, "hostile.x").expect_err(&text[..40]);
        assert!(found.to_string().len() < 100_000);
    }
    // These files are correct, and their imports must not take quadratic time.
    let mut chain = String::from("typedef int t0;\n");
    let mut values = String::from("const C0 = 1;\n");
    let mut structs = String::from("struct s0 { int x; };\n");
    for number in 1..20_000 {
        chain += &format!("typedef t{} t{number};\n", number - 1);
        values += &format!("const C{number} = C{};\n", number - 1);
        structs += &format!("struct s{number} {{ s{} x; }};\n", number - 1);
    }
    let names = format!(
        "enum a {{ {} }};",
        (0..9_000).map(|n| format!("A{}{n}", "_".repeat(n % 9))).collect::<Vec<_>>().join(", ")
    );
    for text in [chain, values, structs, names] {
        let imported = import_onc(&text, "long.x").unwrap_or_else(|error| panic!("{error}"));
        assert!(imported.rust.len() > 9_000);
    }
    // A file of arbitrary bytes is refused.
    let bytes: Vec<u8> = (0..=u16::MAX).map(|n| (n.wrapping_mul(40_503) >> 7) as u8).collect();
    assert!(import_onc(&String::from_utf8_lossy(&bytes), "binary.x").is_err());
}

#[test]
fn lists_are_marked_as_lists() {
    let rust = rust(
        "typedef struct node *list; struct node { int value; list next; };
         struct tree { tree *left; tree *right; tree *child<>; };"
            .replace("tree *child<>; ", "")
            .as_str(),
    );
    assert!(rust.contains("    #[list]\n    pub next: Option<Box<Node>>,"), "{rust}");
    assert!(rust.contains("pub left: Option<Box<Tree>>,\n    #[list]\n"), "{rust}");
    assert!(rust.contains("pub type List = Option<Box<Node>>;"), "{rust}");
}

#[test]
fn diagnostics_show_a_part_of_a_long_line() {
    let text = format!("const A = {}$;\r\n", " ".repeat(10_000));
    let found = import_onc(&text, "long.x").unwrap_err().to_string();
    assert!(
        found.contains("long.x:1:10011") && found.lines().all(|line| line.len() < 130),
        "{found}"
    );
}

#[test]
fn wide_values_do_not_change_the_cells() {
    let rust = rust("typedef unsigned char b; struct a { b c[8]; b d<4>; opaque e[8]; b f; };");
    for expected in [
        "pub c: [UnsignedChar; 8]",
        "Vec<UnsignedChar>",
        "pub e: [u8; 8]",
        "pub f: B",
        "UnsignedChar(pub u8);",
    ] {
        assert!(rust.contains(expected), "{expected}\n{rust}");
    }
}

proptest::proptest! {
    #[test]
    fn written_files_are_read_as_the_same(tree in random::specification()) {
        let written = export_onc(&tree);
        let imported = import_onc(&written, "random.x");
        let imported = imported.unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(imported.specification, tree, "{written}");
        check(&imported);
    }

    #[test]
    fn any_change_of_a_file_is_read_or_refused(at in 0..SHOP.len(), length in 0..200_usize, put in "[ -~\n]{0,20}") {
        let mut text = SHOP.to_owned();
        text.replace_range(at..(at + length).min(SHOP.len()), &put);
        if let Ok(imported) = import_onc(&text, "changed.x") {
            check_rust(&imported);
        }
    }
}

#[test]
fn tree_has_places_that_do_not_matter() {
    let one = import_onc("typedef  a  b; struct a { int c; };", "a.x").unwrap().specification;
    let other = import_onc("typedef a b; struct a { int c; };", "a.x").unwrap().specification;
    assert_eq!(one, other);
    assert_ne!(Type::Named("a".into()), Type::Named("b".into()));
}

#[test]
fn second_names_of_variants_are_exported_although_the_block_has_other_items() {
    let rust = "use peregrine::{Value, interface};\n\
        #[derive(Value)]\n#[repr(u32)]\npub enum Colour { Red = 1, Blue = 2 }\n\
        impl Colour {\n\
            pub const fn is_red(self) -> bool { matches!(self, Self::Red) }\n\
            pub const COUNT: u32 = 2;\n\
            /// The same as red.\n\
            pub const SCARLET: Self = Self::Red;\n\
        }\n\
        #[interface(onc(program = 0x20000001, version = 1))]\n\
        pub trait Paints { #[onc(1)] fn mix(&self, colour: Colour) -> peregrine::Result<Colour>; }\n";
    let exported = export_traits(rust, "paints.rs", System::Onc);
    let text = exported.unwrap_or_else(|error| panic!("{error}")).text;
    assert!(text.contains("SCARLET = 1"), "{text}");
}
