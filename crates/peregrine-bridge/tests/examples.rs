//! Runs the examples of this crate.

use std::process::Command;

#[test]
fn one_object_answers_clients_of_four_systems() {
    // Cargo builds examples next to the test programs.
    let program = std::env::current_exe().unwrap();
    let examples = program.parent().unwrap().parent().unwrap().join("examples");
    let directory = tempfile::tempdir().unwrap();
    let mut example = Command::new(examples.join("four_systems"));
    let output = example.env("PEREGRINE_DIR", directory.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    for visitor in ["tcp:127", "onc+udp:", "onc+tcp:", "courier+tcp:", "local:", "the web", "last"]
    {
        assert!(printed.contains(visitor), "{visitor} is missing: {printed}");
    }
}
