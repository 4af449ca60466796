//! Tests comparisons of interfaces: the rules and the places of differences, and which procedures are
//! converted.

use super::*;
use proptest::prelude::*;

fn parse(lines: &str) -> Described {
    let text = format!("interface I version 1\n{lines}");
    Described::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Compares two interfaces. If procedures have other numbers at the server, returns the server's numbers. The
/// error is the first difference that breaks a rule.
fn compare(ours: &str, theirs: &str) -> Result<Option<Vec<u32>>, String> {
    let all = super::compare(&parse(ours), &parse(theirs), Sides::BY_CLIENT);
    if let Some(misfit) = all.misfit() {
        return Err(misfit.to_string());
    }
    let equal = |one: &Counterpart| match one {
        Counterpart::Equal(number) => *number,
        other => panic!("{other:?} of {ours}{theirs}"),
    };
    let numbers: Vec<u32> = all.procedures.iter().map(equal).collect();
    let same = numbers.iter().zip(0..).all(|(theirs, ours)| *theirs == ours);
    Ok((!same).then_some(numbers))
}

/// Returns the rules of all differences, and whether the first procedure is converted.
fn rules(ours: &str, theirs: &str) -> (Vec<Rule>, bool) {
    let all = super::compare(&parse(ours), &parse(theirs), Sides::BY_CLIENT);
    let rules = all.differences.iter().map(|one| one.rule).collect();
    (rules, matches!(all.procedures[0], Counterpart::Converted(_)))
}

#[test]
fn a_client_that_needs_a_subset_fits() {
    let f = "f(in a: u32) -> unit or text\n";
    let g = "g() -> u8 or text\n";
    assert_eq!(compare(f, f), Ok(None));
    assert_eq!(compare(f, &format!("{f}{g}")), Ok(None));
    assert_eq!(compare(f, &format!("{g}{f}")), Ok(Some(vec![1])));
    assert_eq!(compare(&format!("{f}{g}"), &format!("{g}{f}")), Ok(Some(vec![1, 0])));
    assert_eq!(compare("", g), Ok(None));
}

#[test]
fn what_may_be_added_fits_and_never_the_other_way_round() {
    for (known, served) in [
        ("f(in a: [u8] max 5) -> unit or text\n", "f(in a: [u8] max 6) -> unit or text\n"),
        ("f(in a: str max 5) -> unit or text\n", "f(in a: str) -> unit or text\n"),
        ("f(inout a: [u8] max 5) -> unit or text\n", "f(inout a: [u8]) -> unit or text\n"),
        ("f() -> unit or text\n", "idempotent f() -> unit or text\n"),
        ("f() -> unit or text\n", "f() -> unit or text\ng() -> unit or text\n"),
    ] {
        assert_eq!(compare(known, served), Ok(None), "{known}{served}");
        if !served.contains("g()") {
            let error = compare(served, known).unwrap_err();
            assert!(error.contains("interface `I`, procedure `"), "{error}");
        }
    }
    let (small, large) =
        ("f(out a: [u8] max 5) -> unit or text\n", "f(out a: [u8] max 6) -> unit or text\n");
    assert_eq!((compare(small, large), compare(large, small)), (Ok(None), Ok(None)));
}

#[test]
fn differences_are_pointed_at() {
    let types = |body: &str| format!("f(in list: L#0) -> unit or text\nL#0 = {body}\n");
    for (ours, theirs, said) in [
        (
            "f(in a: u32) -> unit or text\n".to_owned(),
            "f(in a: u64) -> unit or text\n".to_owned(),
            "interface `I`, procedure `f`, parameter `a`: ours is `u32`, the server's is `u64`",
        ),
        (
            "f(in a: u32) -> unit or text\n".into(),
            "f(in b: u32) -> unit or text\n".into(),
            "parameter `a`: the server's has no such parameter, and it has no default",
        ),
        (
            "f(in a: u32) -> unit or text\n".into(),
            "f(inout a: u32) -> unit or text\n".into(),
            "ours is `in a: u32`, the server's is `inout a: u32`",
        ),
        (
            "f() -> option<u8> or text\n".into(),
            "f() -> option<i8> or text\n".into(),
            "procedure `f`, result: ours is `u8`, the server's is `i8`",
        ),
        (
            "f() -> unit or text\n".into(),
            "f() -> unit or unit\n".into(),
            "procedure `f`, error: ours is `text`, the server's is `unit`",
        ),
        (
            "f() -> unit or text\n".into(),
            "g() -> unit or text\n".into(),
            "interface `I`: ours has `f`; the server's has `g`",
        ),
        (
            "oneway f() -> unit or text\n".into(),
            "f() -> unit or text\n".into(),
            "ours is a one-way call (`#[oneway]`), the server's is not",
        ),
        (
            "f() -> unit or text\n".into(),
            "oneway f() -> unit or text\n".into(),
            "the server's is a one-way call (`#[oneway]`), ours is not",
        ),
        (
            types("struct {value: u32, next: option<L#0>}"),
            types("struct {value: u64, next: option<L#0>}"),
            "parameter `list`, in type `L`, field `value`: ours is `u32`, the server's is `u64`",
        ),
        (
            types("struct {x: u32, y: u32}"),
            types("struct {y: u32, x: u32}"),
            "in type `L`, field `y`: ours is `x, y`, the server's is `y, x`",
        ),
        (
            types("struct {x: u32}"),
            types("struct {x: u32, y: u32}"),
            "in type `L`, field `y`: ours has no such field, and it has no default",
        ),
        (
            types("enum A {} B {x: u8}"),
            types("enum A {} B {x: i8}"),
            "in type `L`, variant `B`, field `x`: ours is `u8`, the server's is `i8`",
        ),
        (types("enum A {} B {}"), types("enum A {}"), "in type `L`: the server's has no `B`"),
        (types("plain enum u8 A=1"), types("plain enum u8 A=2"), "A=1`, the server's is `A=2`"),
        (types("plain 4 align 4 {x: u32}"), types("struct {x: u32}"), "ours is `plain 4"),
    ] {
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(error.contains(said), "{error}\nrather than\n{said}");
    }
    let [a, b] = ["interface A version 0\n", "interface A version 1\n"]
        .map(|text| Described::parse(text).unwrap());
    let error = super::compare(&a, &b, Sides::BY_CLIENT).misfit().unwrap().to_string();
    assert_eq!(error, "ours is interface `A` version 0, the server's is `A` version 1");
}

#[test]
fn items_of_streams_are_the_same_type_on_both_sides() {
    use Rule::*;
    let f = |line: &str, types: &str| format!("f({line}) -> unit or text\n{types}");
    let same = [
        ("sink a: u8", ""),
        ("sink a: [tuple<u8, option<text>>; 3]", ""),
        ("source a: result<sequence<L#0>, char>", "L#0 = struct {x: u8, next: option<L#0>}\n"),
        (
            "source a: E#0",
            "E#0 = enum A {} B {x: P#1}\nP#1 = plain 4 align 4 {c: C#2, y: [u8; 3]}\n\
                           C#2 = plain enum u8 Red=1\n",
        ),
    ];
    for (line, types) in same {
        let one = f(line, types);
        assert_eq!(compare(&one, &one), Ok(None));
        // If another parameter differs, the procedure is converted, but the items of the stream are not.
        let more = f(&format!("{line}, in b: option<u8>"), types);
        assert_eq!(rules(&one, &more), (vec![Default], true));
        assert_eq!(rules(&more, &one), (vec![Default], true));
    }
    for (ours, theirs, rule) in [
        (f("sink a: u8", ""), f("source a: u8", ""), Passing),
        (f("sink a: u8", ""), f("out a: [u8]", ""), Passing),
        (f("source a: u8", ""), f("in a: u8", ""), Passing),
        (f("sink a: u8", ""), f("sink a: u16", ""), Type),
        (f("sink a: u8", ""), f("sink a: option<u8>", ""), Type),
        (f("sink a: [u8; 2]", ""), f("sink a: [u8; 3]", ""), Type),
        (f("sink a: tuple<u8, u8>", ""), f("sink a: tuple<u8, u8, u8>", ""), Type),
        (f("source a: result<u8, text>", ""), f("source a: result<u8, char>", ""), Type),
        // Most of the following changes are allowed outside of streams.
        (f("sink a: u8 widens", ""), f("sink a: u16 widens", ""), Type),
        (
            f("sink a: S#0", "S#0 = struct {x: u8}\n"),
            f("sink a: S#0", "S#0 = struct {x: u8, y: option<u8>}\n"),
            Type,
        ),
        (
            f("sink a: S#0", "S#0 = struct {x: u8}\n"),
            f("sink a: S#0", "S#0 = struct {y: u8 was x}\n"),
            Type,
        ),
        (
            f("source a: E#0", "E#0 = enum A {}\n"),
            f("source a: E#0", "E#0 = enum A {} B {}\n"),
            Type,
        ),
        (
            f("sink a: E#0", "E#0 = enum A {} other O {}\n"),
            f("sink a: E#0", "E#0 = enum A {} B {} other O {}\n"),
            Type,
        ),
        (
            f("sink a: E#0", "E#0 = plain enum u8 A=1\n"),
            f("sink a: E#0", "E#0 = plain enum u8 A=2\n"),
            Type,
        ),
        (
            f("sink a: P#0", "P#0 = plain 4 align 4 {x: u32}\n"),
            f("sink a: P#0", "P#0 = plain 4 align 2 {x: u32}\n"),
            Type,
        ),
        (
            f("sink a: option<S#0>", "S#0 = struct {x: T#1}\nT#1 = struct {y: u8}\n"),
            f("sink a: option<S#0>", "S#0 = struct {x: T#1}\nT#1 = struct {y: i8}\n"),
            Type,
        ),
    ] {
        assert_eq!(rules(&ours, &theirs).0, [rule], "{ours}{theirs}");
        assert_eq!(rules(&theirs, &ours).0, [rule], "{theirs}{ours}");
    }
    let error = compare(&f("sink a: u8", ""), &f("sink a: i8", "")).unwrap_err();
    let said = "procedure `f`, parameter `a`: ours is `sink a: u8`, the server's is `sink a: i8`";
    assert!(error.contains(said), "{error}");
    // A long chain of types must not overflow the stack.
    let mut chain = "f(sink a: T#0) -> unit or text\n".to_owned();
    for number in 0..30_000 {
        chain.push_str(&format!("T#{number} = struct {{x: T#{}}}\n", number + 1));
    }
    let other = format!("{chain}T#30000 = struct {{x: u8}}\n");
    chain.push_str("T#30000 = struct {x: i8}\n");
    assert_eq!(compare(&chain, &chain), Ok(None));
    assert_eq!(rules(&chain, &other).0, [Type]);
}

#[test]
fn interfaces_of_callbacks_are_the_same_on_both_sides() {
    use Rule::*;
    let f = |parameters: &str, types: &str| format!("f({parameters}) -> unit or text\n{types}");
    let of = |procedures: &str, types: &str| {
        f("callback a: L#0", &format!("L#0 = interface version 1 {{{procedures}}}\n{types}"))
    };
    let one = of(
        "g(in x: [S#1] max 3, callback back: L#0) -> unit or text; oneway h() -> unit or text",
        "S#1 = struct {x: u8, y: text}\n",
    );
    assert_eq!(compare(&one, &one), Ok(None));
    // The two sides may differ in earlier names and defaults, because these do not change the messages.
    let more = "g was e(in x: [S#1] max 3, callback back: L#0 was b) -> unit or text; \
                oneway h() -> unit or text";
    let more = of(more, "S#1 = struct {x: u8 was z = x01, y: text}\n");
    assert_eq!(compare(&one, &more), Ok(None));
    // If another parameter differs, the procedure is converted, but the calls of the callback are not.
    let added = one.replacen("callback a: L#0)", "callback a: L#0, in b: option<u8>)", 1);
    assert_eq!(rules(&one, &added), (vec![Default], true));
    assert_eq!(rules(&added, &one), (vec![Default], true));
    let (before, within) = ("procedure `f`, parameter `a`", "in interface `L`");
    let g = |line: &str, types: &str| of(&format!("g({line}) -> unit or text"), types);
    for (ours, theirs, rule, said) in [
        (
            f("callback a: L#0", "L#0 = interface version 1 {}\n"),
            f("sink a: u8", ""),
            Passing,
            "ours is `callback a: L#0`, the server's is `sink a: u8`".to_owned(),
        ),
        (
            f("callback a: L#0", "L#0 = interface version 1 {}\n"),
            f("callback a: M#0", "M#0 = interface version 1 {}\n"),
            Type,
            format!("{before}: ours is `L`, the server's is `M`"),
        ),
        (
            f("callback a: L#0", "L#0 = interface version 1 {}\n"),
            f("callback a: L#0", "L#0 = interface version 2 {}\n"),
            Type,
            format!("{before}, {within}: ours is `interface version 1 {{}}`, the server's is"),
        ),
        (
            g("", ""),
            of("g() -> unit or text; h() -> unit or text", ""),
            Type,
            format!(
                "{before}, {within}: ours is `interface version 1 {{g() -> unit or text}}`, the \
                 server's is `interface version 1 {{g() -> unit or text; h() -> unit or text}}`"
            ),
        ),
        (
            g("", ""),
            of("h() -> unit or text", ""),
            Type,
            format!(
                "{before}, {within}, procedure `g`: ours is `g() -> unit or text`, the server's is \
                 `h() -> unit or text`"
            ),
        ),
        (
            g("", ""),
            of("oneway g() -> unit or text", ""),
            Type,
            format!("{before}, {within}, procedure `g`: ours is `g()"),
        ),
        (
            g("in x: u8", ""),
            g("in x: u16", ""),
            Type,
            format!("{before}, {within}, procedure `g`: ours is `u8`, the server's is `u16`"),
        ),
        // Most of the following changes are allowed outside of the interfaces of callbacks.
        (
            g("in x: [u8] max 3", ""),
            g("in x: [u8] max 4", ""),
            Type,
            format!("{before}, {within}, procedure `g`: ours is `g(in x: [u8] max 3)"),
        ),
        (
            g("in x: u8", ""),
            g("in x: u8, in y: option<u8>", ""),
            Type,
            format!("{before}, {within}, procedure `g`: ours is `g(in x: u8)"),
        ),
        (
            g("in x: S#1", "S#1 = struct {x: u8}\n"),
            g("in x: S#1", "S#1 = struct {x: u8, y: option<u8>}\n"),
            Type,
            format!("{before}, {within}, procedure `g`, type `S`: ours is `struct {{x: u8}}`"),
        ),
        (
            g("callback x: M#1", "M#1 = interface version 0 {h() -> u8 or text}\n"),
            g("callback x: M#1", "M#1 = interface version 0 {h() -> u16 or text}\n"),
            Type,
            format!("{before}, in interface `M`, procedure `h`: ours is `u8`"),
        ),
    ] {
        assert_eq!(rules(&ours, &theirs).0, [rule], "{ours}{theirs}");
        assert_eq!(rules(&theirs, &ours).0, [rule], "{theirs}{ours}");
        let error = compare(&ours, &theirs).unwrap_err();
        assert!(error.contains(&said), "{error}\nrather than\n{said}");
    }
    // The first difference is in the callback's interface. The place of the second one must not name that
    // interface.
    let ours = f("callback a: L#0, in b: u8", "L#0 = interface version 1 {}\n");
    let theirs = f("callback a: L#0, in b: i8", "L#0 = interface version 2 {}\n");
    let all = super::compare(&parse(&ours), &parse(&theirs), Sides::BY_CLIENT);
    let insides: Vec<&str> = all.differences.iter().map(|one| &*one.inside).collect();
    assert_eq!(insides, ["in interface `L`", ""]);
}

#[test]
fn rules_of_growth() {
    use Rule::*;
    let types = |body: &str| format!("f(in a: L#0) -> unit or text\nL#0 = {body}\n");
    let result = |body: &str| format!("f() -> L#0 or text\nL#0 = {body}\n");
    let error = |body: &str| format!("f() -> unit or L#0\nL#0 = {body}\n");
    let f = |line: &str| format!("f({line}) -> unit or text\n");
    for (ours, theirs, expected, converts) in [
        (f("in a: u8"), f("in a: u8, in b: option<u8>"), vec![Default], true),
        (f("in a: u8"), f("in a: u8, in b: u8 = x07"), vec![Default], true),
        (f("in a: u8"), f("in a: u8, in b: u8"), vec![NoDefault], true),
        (f("in a: u8"), f("in b: u8 was a"), vec![Renamed], false),
        (f("in a: u8 widens"), f("in a: u16 widens"), vec![Widened], true),
        (f("in a: u8 widens"), f("in a: u16"), vec![Width], true),
        (f("in a: u8 widens"), f("in a: i16 widens"), vec![Type], true),
        (f("in a: [u8]"), f("in a: [u8], out b: [u8] = x00000000"), vec![Default], true),
        (
            types("struct {x: u8}"),
            types("struct {y: text = x00000000, x: u8}"),
            vec![Default],
            true,
        ),
        (types("struct {x: u8}"), types("struct {y: u8 was x}"), vec![Renamed], false),
        (
            types("plain 1 align 1 {x: u8}"),
            types("plain 2 align 1 {x: u8, y: u8 = x01}"),
            vec![Default],
            true,
        ),
        // Arguments are sent to the server, and results are sent to the client.
        (types("enum A {}"), types("enum A {} B {}"), vec![VariantNotSent], false),
        (types("enum A {} B {}"), types("enum A {}"), vec![ClosedEnum], true),
        (types("enum A {} B {}"), types("enum A {} other U {0: text}"), vec![OpenEnum], true),
        (result("enum A {}"), result("enum A {} B {}"), vec![ClosedEnum], true),
        (result("enum A {} B {}"), result("enum A {}"), vec![VariantNotSent], false),
        (result("enum A {} other U {}"), result("enum A {} B {}"), vec![OpenEnum], true),
        (error("enum A {}"), error("enum A {} B {}"), vec![UnknownError], true),
        (types("enum A {} B {}"), types("enum B {} A {}"), vec![], true),
        (types("enum A {} other U {0: text}"), types("enum A {} other V {}"), vec![], true),
        (types("enum A {} other U {0: text}"), types("enum A {} other U {}"), vec![], true),
        (types("enum A {} other U {0: text}"), types("enum A {} other V {x: text}"), vec![], false),
        (
            // The variant for unknown variants at the server may have the same name as an ordinary variant of
            // the client.
            result("enum A {} U {x: u32 = x00000000}"),
            result("enum A {} other U {}"),
            vec![Default],
            true,
        ),
        (result("enum A {} U {x: u32}"), result("enum A {} other U {}"), vec![NoDefault], true),
        (result("enum A {} other U {}"), result("enum A {} U {x: u32}"), vec![], true),
        (types("enum A {} B {}"), types("enum A {} C was B {}"), vec![Renamed], false),
        (result("plain enum u8 A=1"), result("plain enum u8 A=1 B=2"), vec![ClosedEnum], true),
        (
            result("plain enum u8 A=1 other U=255"),
            result("plain enum u8 A=1 B=2"),
            vec![OpenEnum],
            true,
        ),
    ] {
        assert_eq!(rules(&ours, &theirs), (expected, converts), "{ours}{theirs}");
    }
}

/// If a pair of types must be converted in one procedure, it must be converted in later procedures, too.
#[test]
fn procedures_with_common_types_are_all_converted() {
    let text = |body: &str| {
        format!("f() -> L#0 or text\ng() -> option<L#0> or text\nh() -> u8 or text\nL#0 = {body}\n")
    };
    let (ours, theirs) =
        (parse(&text("struct {x: u8}")), parse(&text("struct {x: u8, y: option<u8>}")));
    let all = super::compare(&ours, &theirs, Sides::BY_CLIENT);
    let (converted, equal) = (Counterpart::Converted, Counterpart::Equal);
    assert_eq!(all.procedures, [converted(0), converted(1), equal(2)]);
}

#[test]
fn recursive_types_are_the_same_whatever_they_are_called() {
    let ours = "f(in a: L#0) -> unit or text\nL#0 = struct {next: option<L#0>}\n";
    let theirs = "f(in a: One#0) -> unit or text\nOne#0 = struct {next: option<Two#1>}\n\
                  Two#1 = struct {next: option<One#0>}\n";
    assert_eq!(compare(ours, theirs), Ok(None));
    assert_eq!(compare(theirs, ours), Ok(None));
}

/// A server chooses how many fields its types have. Every procedure of the client may use these types, so the
/// number of differences could be very large.
#[test]
fn number_of_differences_is_bounded() {
    let procedures: String =
        (0..50).map(|i| format!("p{i}(in a: T#0) -> unit or text\n")).collect();
    let text = |fields: &str| format!("{procedures}T#0 = struct {{x: u8{fields}}}\n");
    let ours = text("");
    for (growth, fits) in [(" = x00", true), ("", false)] {
        let more: String = (0..20_000).map(|i| format!(", y{i}: u8{growth}")).collect();
        let all = super::compare(&parse(&ours), &parse(&text(&more)), Sides::BY_CLIENT);
        assert_eq!((all.fits(), all.procedures.len()), (fits, 50));
        assert_eq!(all.differences.len(), FOUND_MAX);
    }
    // The first difference that breaks a rule must be listed, although it comes after many other differences.
    let more: String = (0..20_000).map(|i| format!(", y{i}: u8 = x00")).collect();
    let theirs = text(&format!("{more}, z: u8"));
    let all = super::compare(&parse(&ours), &parse(&theirs), Sides::BY_CLIENT);
    assert_eq!(all.differences.len(), FOUND_MAX);
    assert_eq!(all.misfit().map(|one| one.rule), Some(Rule::NoDefault));
}

#[test]
fn a_long_chain_of_types_needs_no_stack() {
    let mut text = "f(in a: T#0) -> unit or text\n".to_owned();
    for number in 0..10_000 {
        text.push_str(&format!("T#{number} = struct {{next: option<T#{}>}}\n", number + 1));
    }
    text.push_str("T#10000 = struct {last: u8}\n");
    assert_eq!(compare(&text, &text), Ok(None));
    let other = text.replace("last: u8", "last: i8");
    assert!(compare(&text, &other).unwrap_err().contains("field `last`"));
}

proptest! {
    /// Every interface fits itself, also if the procedures are in another order.
    #[test]
    fn an_interface_fits_itself(order in Just((0..6_u32).collect::<Vec<_>>()).prop_shuffle()) {
        let lines: Vec<_> =
            (0..6).map(|i| format!("p{i}(in a: [u{}; 2]) -> unit or text\n", 8 << (i % 4))).collect();
        let served: String = order.iter().map(|i| lines[*i as usize].clone()).collect();
        let numbers = compare(&lines.concat(), &served).unwrap();
        let numbers = numbers.unwrap_or_else(|| (0..6).collect());
        for (ours, theirs) in (0..).zip(numbers) {
            prop_assert_eq!(order[theirs as usize], ours);
        }
    }
}
