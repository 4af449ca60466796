//! Tests that `rpcgen` reads exported files, and that C programs compile with its output.

use std::fs;
use std::path::Path;
use std::process::Command;

use peregrine::interface::System;
use peregrine_idl::export_traits;

/// A trait whose export must order the declarations differently, and must name types that have no names in
/// Rust.
const TRAIT: &str = "
    #[interface(name = \"tree\", onc(program = 536870990, version = 1))]
    trait Tree {
        #[onc(1)]
        fn find(&self, path: &[Name], depth: u8) -> peregrine::Result<Option<Node>>;
        #[onc(2)]
        fn all(&self, under: &Node, raw: Vec<u8>) -> peregrine::Result<Vec<Node>>;
        #[onc(3)]
        fn rename(&self, from: ByteString, to: &str, at: Option<Place>) -> peregrine::Result<()>;
    }
    struct Node { name: Name, kind: Kind, place: Place, children: Vec<Node>, parent: Option<Box<Node>> }
    #[foreign(switch = Kind)]
    enum Place { #[foreign(case = 0)] Leaf([i16; 3]), #[foreign(default)] Default(i32, Text) }
    #[derive(Foreign)]
    enum Kind { Leaf = 0, Branch = 4 }
    type Text = Name;
    struct Name(#[foreign(max = 64)] String);
";

#[test]
fn exported_files_are_those_of_rpcgen() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rpcgen");
    fs::create_dir_all(&directory).unwrap();
    let guide = include_str!("../../peregrine/examples/guide_foreign.rs");
    for text in [TRAIT, guide] {
        let exported = export_traits(text, "export.rs", System::Onc);
        let exported = exported.unwrap_or_else(|error| panic!("{error}\n{text}"));
        fs::write(directory.join("export.x"), &exported.text).unwrap();
        for (end, what) in [("export.h", "-h"), ("export_xdr.c", "-c"), ("export_clnt.c", "-l")] {
            let _ = fs::remove_file(directory.join(end));
            let arguments = ["-C", "-N", what, "-o", end, "export.x"];
            if !run("rpcgen", &arguments, &directory, &exported.text) {
                return;
            }
        }
        for file in ["export_xdr.c", "export_clnt.c"] {
            let arguments = ["-fsyntax-only", "-w", "-I/usr/include/tirpc", file];
            if !run("gcc", &arguments, &directory, &exported.text) {
                return;
            }
        }
    }
}

/// Runs a program, which must succeed. Returns whether it is on this machine.
fn run(program: &str, arguments: &[&str], directory: &Path, text: &str) -> bool {
    match Command::new(program).args(arguments).current_dir(directory).output() {
        Ok(output) => {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {arguments:?}: {errors}\n{text}");
            true
        }
        Err(error) => {
            eprintln!("skipped: cannot run {program}: {error}");
            false
        }
    }
}
