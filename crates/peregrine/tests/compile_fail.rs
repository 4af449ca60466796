//! The macros report each error with one clear message at the cause of the error. `tests/quiet/` checks that
//! the code that the macros generate passes strict lints.

#[test]
fn errors_say_what_is_wrong_and_what_to_write() {
    let cases = trybuild::TestCases::new();
    // Without a case that must compile, `trybuild` compiles all cases by one run of Cargo, at the same time.
    // With such a case, it would run Cargo twice for each case, one after the other.
    cases.compile_fail("tests/compile-fail/*.rs");
}
