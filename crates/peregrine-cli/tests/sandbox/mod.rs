//! A sandbox for tests of the command: a runtime directory, a directory to serve, and a directory for
//! temporary files. Also processes that are killed when their test ends.

// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Time limit of every wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A runtime directory, a directory to serve, and one for temporary files.
pub(crate) struct Sandbox(pub(crate) TempDir);

impl Sandbox {
    pub(crate) fn new() -> Self {
        // The path does not depend on `TMPDIR`. So output that contains this path has the same length on
        // every machine.
        let dir = tempfile::Builder::new().prefix("pg").tempdir_in("/tmp").unwrap();
        for name in ["run", "files", "tmp"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        fs::write(dir.path().join("files/hello"), "hello").unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        command.args(arguments).stdin(Stdio::null());
        command.env("PEREGRINE_DIR", self.path("run")).env("TMPDIR", self.path("tmp"));
        // The environment of the test must not influence the command: exports, hosts files and preferences
        // are hidden.
        command.env("HOME", self.0.path()).current_dir(self.0.path());
        let others = ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "PEREGRINE_HOSTS", "PEREGRINE_KEYS"];
        for name in others.iter().chain(&["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS"]) {
            command.env_remove(name);
        }
        command.env_remove("PEREGRINE_KEY_LOG").env_remove("PEREGRINE_DIRECTORY");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        Done::of(&self.command(arguments).output().unwrap())
    }

    /// Runs the command with `--format json`, and checks that it prints exactly one JSON object.
    pub(crate) fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let done = self.run(&[arguments, &["--format", "json"]].concat());
        let value = serde_json::from_str(&done.out);
        (done.code, value.unwrap_or_else(|error| panic!("{error} in {done:?}")))
    }

    pub(crate) fn serve(&self, arguments: &[&str]) -> Process {
        self.serve_files(arguments).0
    }

    /// Starts a server that exports the files. Returns the process, and the object that it printed when it
    /// was ready.
    pub(crate) fn serve_files(&self, arguments: &[&str]) -> (Process, Value) {
        let files = self.path("files");
        let arguments = [&["serve", &files, "--format", "json"], arguments].concat();
        let mut process = Process::start(&mut self.command(&arguments));
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        assert_eq!(ready["ready"], true);
        assert_eq!(ready["process"], process.0.id());
        (process, ready)
    }

    /// Returns the exports in the runtime directory of this sandbox. The machine may have other exports.
    pub(crate) fn list(&self) -> Vec<Value> {
        let (code, listed) = self.json(&["list"]);
        assert_eq!(code, 0);
        let run = self.path("run");
        let here = |one: &&Value| one["socket"].as_str().unwrap().starts_with(&run);
        listed["exports"].as_array().unwrap().iter().filter(here).cloned().collect()
    }

    /// Returns whether no temporary files are left.
    pub(crate) fn is_tidy(&self) -> bool {
        let left = fs::read_dir(self.path("tmp")).unwrap().map(|one| one.unwrap().path());
        let left: Vec<_> = left.collect();
        left.iter().for_each(|one| eprintln!("left: {}", one.display()));
        left.is_empty()
    }
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            assert!(!text.contains('\u{1b}'), "colours in a pipe: {text:?}");
            text
        };
        let code = output.status.code().expect("the command should exit by itself");
        Self { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// A process that is killed when its test ends.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Reads the first line that the process prints to standard output, and then closes the pipe.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("the process ends", || {
            ended = self.0.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    pub(crate) fn children(&self) -> Vec<String> {
        let id = self.0.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
        children.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + TIMEOUT;
    while !done() {
        assert!(Instant::now() < limit, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
