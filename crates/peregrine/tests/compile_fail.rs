//! Every refusal of the macros is one clear message at the place that is wrong; and what they
//! write passes under strict lints.

#[test]
fn refusals_say_what_is_wrong_and_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile-fail/*.rs");
    cases.pass("tests/compile-fail/quiet/*.rs");
}
