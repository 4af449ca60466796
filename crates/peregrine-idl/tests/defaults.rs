//! Tests that printed defaults compile, and that parsing them returns the same values.

use peregrine::interface::Described;
use peregrine::value::default_bytes;
use peregrine_idl::{parse_trait, to_trait};
use proptest::prelude::*;

/// The interface in [`PRINTED`], as compiled code.
#[allow(dead_code, missing_docs, non_camel_case_types, unreachable_pub, unused_qualifications)]
#[allow(clippy::use_self, clippy::ptr_arg, reason = "a description has the names of types")]
mod printed {
    use peregrine::{Plain, Value, interface};

    include!("defaults/printed.txt");
}

const PRINTED: &str = include_str!("defaults/printed.txt");

#[test]
fn printed_defaults_compile_and_are_read() {
    let described = Described::parse(&printed::OddClient::INTERFACE.canonical_text()).unwrap();
    assert_eq!(to_trait(&described), PRINTED);
    assert_eq!(parse_trait(PRINTED), Ok(described));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns an interface with one procedure. The procedure has a parameter of the type `ty` with the default
/// `default`. `types` contains the definitions of the named types.
fn with_default(ty: &str, default: &[u8], types: &str) -> Described {
    let text = format!(
        "interface I version 0\nf(in a: {ty} = x{}) -> unit or unit\n{types}",
        hex(default)
    );
    Described::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asserts that the default in `described` is printed as `expression`, and that parsing the printed trait
/// returns `described`.
fn is_printed(described: &Described, expression: &str) {
    let text = to_trait(described);
    assert!(text.contains(&format!("#[default({expression})]")), "{text}\nlacks\n{expression}");
    assert_eq!(parse_trait(&text).as_ref(), Ok(described), "{text}");
}

#[test]
fn floats_without_literals_are_printed_as_constants() {
    for (value, expression) in [
        (f64::NAN, "f64::NAN"),
        (-f64::NAN, "f64::from_bits(0xfff8000000000000)"),
        (f64::from_bits(0x7ff0_0000_0000_0001), "f64::from_bits(0x7ff0000000000001)"),
        (f64::INFINITY, "f64::INFINITY"),
        (f64::NEG_INFINITY, "f64::NEG_INFINITY"),
        (-0.0, "-0.0"),
        (f64::MIN_POSITIVE / 2.0, "1.1125369292536007e-308"),
    ] {
        is_printed(&with_default("f64", &default_bytes(&value), ""), expression);
    }
    for (value, expression) in [
        (f32::NAN, "f32::NAN"),
        (f32::from_bits(0x7f80_0001), "f32::from_bits(0x7f800001)"),
        (f32::INFINITY, "f32::INFINITY"),
        (f32::NEG_INFINITY, "f32::NEG_INFINITY"),
        (0.1, "0.1"),
        (f32::MAX, "3.4028235e38"),
    ] {
        is_printed(&with_default("f32", &default_bytes(&value), ""), expression);
    }
}

#[test]
fn names_that_are_not_names_in_rust_are_quoted() {
    let plain = "A#0 = plain enum u8 type=1 get-size=2 _=3 größe=4 self=5\n";
    for (value, name) in (1u8..).zip(["r#type", "\"get-size\"", "\"_\"", "größe", "self"]) {
        is_printed(&with_default("A#0", &[value], plain), &format!("A::{name}"));
    }
    let variants = "A#0 = enum fn {} ① {0: u8} in {x-y: u8, where: u8}\n";
    is_printed(&with_default("A#0", &default_bytes(&0u32), variants), "A::r#fn");
    is_printed(&with_default("A#0", &default_bytes(&(1u32, 7u8)), variants), "A::\"①\"(7)");
    is_printed(
        &with_default("A#0", &default_bytes(&(2u32, 7u8, 8u8)), variants),
        "A::r#in { \"x-y\": 7, r#where: 8 }",
    );
}

#[test]
fn other_expressions_are_read() {
    let f = |default: &str, ty: &str| {
        let text = format!(
            "trait A {{ fn f(&self, #[default({default})] a: {ty}) -> peregrine::Result<()>; }}"
        );
        parse_trait(&text)
            .map(|all| all.procedures[0].parameters[0].growth.default.clone().unwrap())
    };
    let bytes = |default: &str, ty: &str| f(default, ty).unwrap();
    assert_eq!(bytes("std::f64::NAN", "f64"), default_bytes(&f64::NAN));
    assert_eq!(bytes("core::f32::INFINITY", "f32"), default_bytes(&f32::INFINITY));
    assert_eq!(bytes("vec![1; 3]", "Vec<u16>"), default_bytes(&vec![1u16; 3]));
    assert_eq!(bytes("vec![1; 0]", "Vec<u16>"), default_bytes(&Vec::<u16>::new()));
    assert_eq!(bytes("vec![vec![2]; 2]", "Vec<Vec<u8>>"), default_bytes(&vec![vec![2u8]; 2]));
    assert_eq!(bytes("[0; 4096]", "&[u8; 4096]"), [0; 4096]);
    assert_eq!(bytes("Box::new(5)", "Box<u8>"), [5]);
    let path = std::path::PathBuf::from("a");
    assert_eq!(bytes("PathBuf::from(\"a\")", "&PathBuf"), default_bytes(&path));
    assert_eq!(bytes("PathBuf { bytes: vec![97] }", "&PathBuf"), default_bytes(&path));
    for (default, ty, said) in [
        ("f32::NAN", "f64", "expected a literal, `f64::NAN`"),
        ("f64::MAX", "f64", "expected a literal, `f64::NAN`"),
        ("f32::from_bits(0x100000000)", "f32", "number too large"),
        ("-f64::NAN", "f64", "expected a literal"),
        ("vec![1; 70000]", "Vec<u8>", "a default has at most 65536 values"),
        ("vec![1; 2, 3]", "Vec<u8>", "expected no further value"),
        ("vec![1; -1]", "Vec<u8>", "expected a number of type `u32`"),
        ("Box::new(5, 6)", "Box<u8>", "expected no further value"),
    ] {
        let error = f(default, ty).unwrap_err().to_string();
        assert!(error.contains(said), "{default}: {error}");
    }
}

proptest! {
    #[test]
    fn any_float_is_read_again(wide: u64, narrow: u32) {
        for described in [
            with_default("f64", &wide.to_le_bytes(), ""),
            with_default("f32", &narrow.to_le_bytes(), ""),
            with_default("f64", &(wide | 0x7ff0 << 48).to_le_bytes(), ""),
            with_default("f32", &(narrow | 0x7f80 << 16).to_le_bytes(), ""),
        ] {
            let text = to_trait(&described);
            prop_assert_eq!(parse_trait(&text), Ok(described), "{}", text);
        }
    }
}
