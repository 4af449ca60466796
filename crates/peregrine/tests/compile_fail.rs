//! The macros report each error with one clear message at the cause of the error. The code that the macros
//! generate passes strict lints.

#[test]
fn errors_say_what_is_wrong_and_what_to_write() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/compile-fail/*.rs");
    cases.pass("tests/compile-fail/quiet/*.rs");
}
