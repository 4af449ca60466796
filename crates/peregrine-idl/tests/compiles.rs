//! Tests that the Rust text of imports compiles against `peregrine`. One crate contains the texts of all
//! files, each as a module.

#[path = "onc/random.rs"]
mod onc_random;
#[path = "courier/programs.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod programs;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use peregrine_idl::courier::export_courier;
use peregrine_idl::{export_onc, import_onc};
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, TestRunner};

/// The number of random files of each system.
const RANDOM: u32 = 12;

/// Returns the first values of a strategy, which are the same in each run.
fn some<T: core::fmt::Debug>(of: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    );
    (0..RANDOM).map(|_| of.new_tree(&mut runner).expect("a value").current()).collect()
}

/// Imports a file of ONC RPC, which must declare all types that it uses.
fn onc(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let imported = support::onc(&text, path).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(imported.missing, [""; 0], "{}", path.display());
    imported.rust
}

fn courier(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let imported = support::courier(&text, path.file_name().unwrap().to_str().unwrap());
    imported.unwrap_or_else(|error| panic!("{error}")).rust
}

/// Returns the Rust texts of all files, each with the name of its file.
fn texts() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut add = |path: &Path, rust: String| all.push((path.display().to_string(), rust));
    let stored = support::files_in(&support::tests("onc"), "x");
    for path in stored.iter().chain(&support::installed()) {
        add(path, onc(path));
    }
    for path in support::files_in(&support::tests("courier"), "cr") {
        add(&path, courier(&path));
    }
    // Of the names of this library, the Rust text of this program uses only `interface` and `ByteString`.
    let bare = "Bare: PROGRAM 9 VERSION 1 =\nBEGIN\nName: TYPE = STRING;\n\
                P: PROCEDURE [name: Name] = 1;\nEND.\n";
    let imported = support::courier(bare, "Bare.cr").unwrap_or_else(|error| panic!("{error}"));
    assert!(imported.rust.contains("use peregrine::interface;"), "{}", imported.rust);
    all.push((bare.to_owned(), imported.rust));
    for tree in some(onc_random::specification()) {
        let text = export_onc(&tree);
        let imported = import_onc(&text, "random.x").unwrap_or_else(|error| panic!("{error}"));
        all.push((text, imported.rust));
    }
    for program in some(programs::program()) {
        let text = export_courier(&program);
        let imported = support::courier(&text, "Random.cr");
        all.push((text, imported.unwrap_or_else(|error| panic!("{error}")).rust));
    }
    all
}

#[test]
fn imports_are_read_as_descriptions() {
    for (source, rust) in texts() {
        let traits = rust.matches("#[interface(").count();
        let interfaces = peregrine_idl::parse_traits(&rust);
        let interfaces = interfaces.unwrap_or_else(|error| panic!("{source}: {error}\n{rust}"));
        assert_eq!(interfaces.len(), traits, "{source}");
    }
}

#[test]
fn imports_are_formatted() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("formatted");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    // An empty file selects the default settings, even if a parent directory has other settings.
    fs::write(directory.join("rustfmt.toml"), "").unwrap();
    let mut check = Command::new("rustfmt");
    check.args(["--check", "--edition", "2024"]).current_dir(&directory);
    for (number, (_, rust)) in texts().into_iter().enumerate() {
        let file = directory.join(format!("file{number}.rs"));
        fs::write(&file, rust).unwrap();
        check.arg(file);
    }
    match check.output() {
        Ok(output) => {
            let (out, errors) = (output.stdout, output.stderr);
            let [out, errors] =
                [out, errors].map(|text| String::from_utf8_lossy(&text).into_owned());
            assert!(output.status.success(), "{out}{errors}");
        }
        Err(error) => eprintln!("skipped: cannot run rustfmt: {error}"),
    }
}

#[test]
fn imports_compile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let package = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("imported");
    let _ = fs::remove_dir_all(package.join("src"));
    fs::create_dir_all(package.join("src")).unwrap();
    let manifest = format!(
        "[package]\nname = \"imported\"\nedition = \"2024\"\npublish = false\n[dependencies]\n\
         peregrine = {{ path = {:?} }}\n[profile.dev]\ndebug = 0\n[workspace]\n",
        root.join("crates/peregrine").canonicalize().unwrap()
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The crate uses the same versions of its dependencies as this workspace, because these are on this
    // machine.
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    let mut modules = "#![allow(dead_code)]\n".to_owned();
    for (number, (source, rust)) in texts().into_iter().enumerate() {
        modules += &format!("mod file{number};\n");
        let source: String = source.lines().map(|line| format!("// {line}\n")).collect();
        let file = package.join("src").join(format!("file{number}.rs"));
        fs::write(file, format!("{rust}\n{source}")).unwrap();
    }
    fs::write(package.join("src/lib.rs"), modules).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut check = Command::new(cargo);
    check.args(["check", "--offline", "--quiet"]).current_dir(&package);
    check.env("CARGO_TARGET_DIR", package.join("target")).env_remove("RUSTFLAGS");
    let output = check.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
