//! Runs `tshark` with the dissector, and reads what it prints.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::pcap::Frames;

/// What a packet must never cause: an error of the script, or an exception of Wireshark. Dissectors of other
/// protocols, which may take packets that are not Peregrine's, do have exceptions.
const FAILED: &str = "_ws.lua.error || ((peregrine || peregrine_eth || peregrine_tcp) && (_ws.short \
    || _ws.malformed.expert || _ws.malformed.dissector_bug || _ws.malformed.reassembly))";

/// A directory with the dissector, as a user has it: `tshark` reads its settings and plugins there.
pub(crate) struct Tshark {
    home: tempfile::TempDir,
    /// Arguments of every run.
    pub(crate) options: Vec<String>,
}

/// The dissector.
pub(crate) fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/wireshark/peregrine.lua")
}

impl Tshark {
    /// Installs the dissector in the plugin directory of a new user. Prints why the test is skipped if there
    /// is no `tshark`.
    pub(crate) fn new() -> Option<Self> {
        if let Err(error) = Command::new("tshark").arg("--version").output() {
            println!("skipped: cannot run `tshark`: {error}");
            return None;
        }
        let home = tempfile::tempdir().expect("a directory");
        let plugins = home.path().join(".local/lib/wireshark/plugins");
        std::fs::create_dir_all(&plugins).expect("a directory");
        std::fs::copy(script(), plugins.join("peregrine.lua")).expect("the dissector");
        Some(Self { home, options: Vec::new() })
    }

    /// Returns this with one more argument in every run.
    pub(crate) fn with(mut self, options: &[&str]) -> Self {
        self.options.extend(options.iter().map(|option| (*option).to_owned()));
        self
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("tshark");
        command.env("HOME", self.home.path()).env_remove("XDG_CONFIG_HOME");
        command.env_remove("WIRESHARK_CONFIG_DIR").env("TZ", "UTC");
        command.args(arguments).args(&self.options).output().expect("tshark runs")
    }

    /// Returns what `tshark` prints. It must not fail, and not complain about the script.
    pub(crate) fn print(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !errors.contains("Lua"), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Writes a capture, and returns its file.
    pub(crate) fn capture(&self, frames: &Frames) -> PathBuf {
        let file = self.home.path().join("capture.pcap");
        frames.write(&file).expect("a file");
        file
    }

    /// Dissects a capture in two passes, as Wireshark does. Returns the fields of the frames that the filter
    /// selects. Values of a frame that has a field several times are separated by commas.
    pub(crate) fn rows(&self, frames: &Frames, filter: &str, fields: &[&str]) -> Vec<Vec<String>> {
        let file = self.capture(frames);
        let mut arguments = vec!["-r", file.to_str().expect("text"), "-2", "-n", "-Y", filter];
        arguments.extend(["-T", "fields", "-E", "separator=/t", "-E", "occurrence=a"]);
        for field in fields {
            arguments.extend(["-e", field]);
        }
        let printed = self.print(&arguments);
        printed.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    }

    /// Returns all values of a field in the frames that the filter selects.
    pub(crate) fn values(&self, frames: &Frames, filter: &str, field: &str) -> Vec<String> {
        let rows = self.rows(frames, filter, &[field]);
        let values = rows.iter().flat_map(|row| row[0].split(','));
        values.filter(|value| !value.is_empty()).map(str::to_owned).collect()
    }

    /// Returns the texts in the column of information of the frames that the filter selects.
    pub(crate) fn summaries(&self, frames: &Frames, filter: &str) -> Vec<String> {
        let rows = self.rows(frames, filter, &["_ws.col.Info"]);
        rows.into_iter().flatten().collect()
    }

    /// Returns the frames in which the script failed.
    pub(crate) fn failures(&self, frames: &Frames) -> Vec<Vec<String>> {
        self.rows(
            frames,
            FAILED,
            &["frame.number", "_ws.lua.error", "_ws.expert.message", "frame.protocols"],
        )
    }
}
