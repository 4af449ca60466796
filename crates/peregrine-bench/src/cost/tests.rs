//! Tests that the equations agree with those of the paper, and that hostile descriptions are harmless. *The
//! paper* is that of Chung, Lazowska, Notkin and Zahorjan, which `derive.rs` cites.

use peregrine::interface::Described;

use super::derive::TERMS_MAX;
use super::{Control, Copying, Cost, Design, Parameters, Part, costs};

/// The three data types of the paper, as the parameters of three procedures. The text `s` has no bound `max`,
/// because it is a field, and only parameters can have a bound.
const THREE: &str = "\
interface Three version 0
one(in i: i32) -> unit or text
array(in a: [i32] max 256) -> unit or text
structure(in a: i32, in b: i32, in c: i32, in d: [i32] max 256, in e: [Triple#0] max 86, in f: Labelled#1) -> unit or text
Triple#0 = plain 12 align 4 {a: i32, b: i32, c: i32}
Labelled#1 = struct {n: i32, s: text}
";

/// The time in microseconds in which the paper's stub finds the end of the text (footnote in the paper's
/// section 3.2). Peregrine's texts have a length, so its equations do not contain this time.
const STRLEN_1024: f64 = 2700.0;

fn equations(text: &str, design: Design) -> Vec<String> {
    let described = Described::parse(text).unwrap();
    costs(&described, design).iter().map(|cost| cost.call.to_string()).collect()
}

#[test]
fn equations_are_those_of_table_5() {
    let moving = [
        "L_b + 256 × (L_b + f)",
        "L_i + 256 × (L_i + f)",
        "L_b + p + 256 × (L_b + p + f)",
        "L_i + p + 256 × (L_i + p + f)",
        "L_i + b(1024) + α",
    ];
    for (copying, compiled) in Copying::ALL.into_iter().zip(moving) {
        let of = |control| equations(THREE, Design { control, copying }).swap_remove(1);
        assert_eq!(of(Control::Compiled), compiled);
        assert_eq!(of(Control::Interpreted), format!("{compiled} + B + A + e"));
    }
}

#[test]
fn equations_of_one_item_and_of_the_structure() {
    let one = ["L_b", "L_i", "L_b + p", "L_i + p", "L_i"];
    let structure = [
        "7 L_b + 256 × (L_b + f) + 86 × (3 L_b + f) + b(f.s)",
        "7 L_i + 256 × (L_i + f) + 86 × (3 L_i + f) + b(f.s)",
        "7 L_b + 7 p + 256 × (L_b + p + f) + 86 × (3 L_b + 4 p + f) + b(f.s)",
        "7 L_i + 7 p + 256 × (L_i + p + f) + 86 × (3 L_i + 4 p + f) + b(f.s)",
        "7 L_i + b(1024) + b(1032) + b(f.s) + α",
    ];
    for (i, copying) in Copying::ALL.into_iter().enumerate() {
        let compiled = equations(THREE, Design { control: Control::Compiled, copying });
        assert_eq!((&*compiled[0], &*compiled[2]), (one[i], structure[i]));
        let interpreted = equations(THREE, Design { control: Control::Interpreted, copying });
        assert_eq!(interpreted[0], format!("{} + B + e", one[i]));
    }
    // The interpreter calls itself for every record.
    let copying = Copying::InlineItem;
    let interpreted = equations(THREE, Design { control: Control::Interpreted, copying });
    assert_eq!(
        interpreted[2],
        "7 L_i + 256 × (L_i + f) + 86 × (3 L_i + f) + b(f.s) + 86 × (B + 3 e) + 2 B + 2 A + 6 e"
    );
    let copying = Copying::Block;
    let interpreted = equations(THREE, Design { control: Control::Interpreted, copying });
    assert_eq!(
        interpreted[2],
        "7 L_i + b(1024) + 86 × (b(12) + f) + b(f.s) + 86 × (B + 3 e) + α + 2 B + 2 A + 6 e"
    );
}

/// The paper's own estimates from its Table 2, in milliseconds. Our copy of the paper has no figure for the
/// structure with compiled inline stubs that copy bytes.
const ESTIMATES: [[f64; 3]; 10] = [
    [0.083, 4.82, 23.9],
    [0.078, 3.53, 21.3],
    [0.108, 11.2, 36.9],
    [0.103, 9.96, 34.3],
    [0.079, 0.628, 16.0],
    [0.015, 4.62, f64::NAN],
    [0.010, 3.34, 9.32],
    [0.040, 11.0, 27.1],
    [0.035, 9.73, 24.5],
    // Our copy of the paper has 0.035 here, which cannot be right. The interpreted design with the same
    // copying takes 0.079. The interpreter (B + e) takes 0.068 of that, so 0.011 remains.
    [0.011, 0.432, 3.87],
];

#[test]
fn equations_with_the_papers_parameters_give_the_papers_estimates() {
    let three = Described::parse(THREE).unwrap();
    for (design, estimates) in Design::ALL.into_iter().zip(ESTIMATES) {
        for (i, (cost, estimate)) in costs(&three, design).iter().zip(estimates).enumerate() {
            let mut us = cost.call.evaluate(&Parameters::MICROVAX, &|name| {
                assert_eq!(name, "f.s");
                1024.0
            });
            if i == 2 {
                us += STRLEN_1024;
            }
            if estimate.is_nan() {
                continue;
            }
            // The tolerance is the rounding error of the printed digits. The paper does not explain its
            // estimates for blocks of one item, for several blocks and for an interpreter that calls itself.
            // For these estimates, the tolerance is the difference between the estimates and the measurements
            // of the paper.
            let is_documented = i < 2 || design.control == Control::Compiled;
            let exact = is_documented && (design.copying != Copying::Block || i == 1);
            let within = if exact { 0.007 } else { 0.10 };
            let off = us / 1000.0 / estimate - 1.0;
            assert!(off.abs() < within, "{design:?} {i}: {us} us, {off:.3}");
        }
    }
}

#[test]
fn costs_of_a_sum_on_the_papers_machine() {
    let text = "interface Sum version 0\nsum(in all: [i32] max 256) -> i64 or text\n";
    let sum = Described::parse(text).unwrap();
    let design = Design { control: Control::Compiled, copying: Copying::InlineItem };
    let call = &costs(&sum, design)[0].call;
    assert_eq!(call.to_string(), "L_i + 256 × (L_i + f)");
    // The time is in microseconds.
    assert_eq!(call.evaluate(&Parameters::MICROVAX, &|_| 0.0), 3338.0);
}

#[test]
fn directions_decide_what_each_message_costs() {
    let text = "\
interface Ways version 0
read(in path: str, out into: [u8], lent from: [u16] max 8, inout list: [text], inout n: u64) -> u32 or text
";
    let described = Described::parse(text).unwrap();
    let design = Design { control: Control::Compiled, copying: Copying::Block };
    let cost = &costs(&described, design)[0];
    assert_eq!(cost.call.to_string(), "5 L_i + b(path) + b(16) + list × (L_i + b(list[]) + f) + α");
    assert_eq!(cost.result.to_string(), "2 L_i + b(into) + list × (L_i + b(list[]) + f) + α");
    let design = Design { control: Control::Compiled, copying: Copying::InlineByte };
    let result = costs(&described, design).swap_remove(0).result;
    assert_eq!(result.to_string(), "3 L_b + into × (1/4 L_b + f) + list × (L_b + b(list[]) + f)");
}

#[test]
fn most_expensive_alternative_of_a_choice_is_taken() {
    let text = "\
interface Choice version 0
a(in x: option<u64>, in y: result<u8, tuple<u32, u32>>, in z: Any#0) -> unit or text
Any#0 = enum None {} One {0: u8} Three {a: u32, b: u16, c: [u64; 4]}
";
    let design = Design { control: Control::Compiled, copying: Copying::InlineItem };
    assert_eq!(equations(text, design), ["8 L_i + 4 × (L_i + f)"]);
}

#[test]
fn type_that_contains_itself_is_a_variable() {
    let text = "\
interface Lists version 0
a(in list: List#0) -> unit or text
List#0 = struct {value: u32, next: option<List#0>}
";
    let design = Design { control: Control::Compiled, copying: Copying::InlineItem };
    assert_eq!(equations(text, design), ["2 L_i + cost(list.next)"]);
    let described = Described::parse(text).unwrap();
    let call = costs(&described, design).swap_remove(0).call;
    let us = call.evaluate(&Parameters::MICROVAX, &|name| {
        assert_eq!(name, "list.next");
        7.0
    });
    assert_eq!(us, 27.0);
}

/// Returns the number of terms of a cost. Asserts that the names of unknown parts are short.
fn size(cost: &Cost) -> usize {
    let parts = cost.parts().iter().map(|part| match part {
        Part::Times(_, one) => 1 + size(one),
        Part::Unknown(name) => {
            assert!(name.chars().count() <= 60);
            1
        }
        Part::Block(..) => 1,
    });
    1 + parts.sum::<usize>()
}

#[test]
fn hostile_descriptions_have_bounded_equations() {
    let name = "n".repeat(1000);
    // Each type contains the next one eight times. So there are 8^60 values in total.
    let mut wide = String::from("interface Wide version 0\na(in x: T0#0) -> T0#0 or text\n");
    for i in 0..60 {
        let fields: Vec<_> = (0..8).map(|f| format!("{name}{f}: T{0}#{0}", i + 1)).collect();
        wide += &format!("T{i}#{i} = struct {{{}}}\n", fields.join(", "));
    }
    wide += "T60#60 = struct {s: text}\n";
    // Types are nested ten thousand deep, in many procedures.
    let mut deep = String::from("interface Deep version 0\n");
    deep += &"a(in x: sequence<T0#0>) -> unit or text\n".repeat(5000);
    for i in 0..10_000 {
        deep += &format!("T{i}#{i} = struct {{a: text, b: T{0}#{0}}}\n", i + 1);
    }
    deep += "T10000#10000 = struct {s: text}\n";
    // Many procedures have many fields, and numbers exceed all bounds.
    let mut long = String::from("interface Long version 0\n");
    long += &"a(in x: T#0) -> unit or text\n".repeat(10_000);
    let fields: Vec<_> = (0..20_000).map(|f| format!("f{f}: [u8; 18446744073709551615]")).collect();
    long += &format!("T#0 = struct {{{}}}\n", fields.join(", "));
    for text in [wide, deep, long] {
        let described = Described::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        for design in [Design::ALL[3], Design::ALL[4], Design::ALL[8]] {
            let costs = costs(&described, design);
            assert_eq!(costs.len(), described.procedures.len());
            let sizes = costs.iter().map(|cost| size(&cost.call) + size(&cost.result));
            let sum: usize = sizes.sum();
            assert!(sum < 5 * TERMS_MAX, "{} {design:?}: {sum}", described.name);
            let first = &costs[0].call;
            assert!(!first.evaluate(&Parameters::MICROVAX, &|_| 1e30).is_nan());
            assert!(first.to_string().len() < 200 * TERMS_MAX);
        }
    }
}

#[test]
fn blocks_are_interpolated_between_measured_ones() {
    let blocks = [(16, 4.0), (32, 8.0), (64, 10.0)];
    let parameters = Parameters { symbols: [0.0; 8], blocks: &blocks };
    for (bytes, time) in [(16.0, 4.0), (24.0, 6.0), (32.0, 8.0), (48.0, 9.0), (64.0, 10.0)] {
        assert_eq!(parameters.block(bytes), time, "{bytes}");
    }
    assert_eq!(parameters.block(128.0), 14.0);
    assert_eq!(parameters.block(8.0), 2.0);
    let none = Parameters { blocks: &[], ..parameters };
    assert_eq!(none.block(8.0), 0.0);
    let one = Parameters { blocks: &[(8, 3.0)], ..parameters };
    assert_eq!((one.block(2.0), one.block(100.0)), (3.0, 3.0));
}
