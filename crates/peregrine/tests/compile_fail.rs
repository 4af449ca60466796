//! Every refusal of the macros is one clear message at the place that is wrong.

#[test]
fn refusals_say_what_is_wrong_and_what_to_write() {
    trybuild::TestCases::new().compile_fail("tests/compile-fail/*.rs");
}
