//! `completions`: what makes a shell complete verbs, options and the names of exports.
//!
//! The shell asks this program for each completion, so that what is offered is what is there now.

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory as _, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use serde_json::json;

use crate::args::{Arguments, Format};
use crate::output::{self, During as _, Failure};

/// By this variable a shell says that it asks.
const VARIABLE: &str = "PEREGRINE_COMPLETE";

/// A shell that can ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// source <(peregrine completions bash)
    Bash,
    /// eval (peregrine completions elvish | slurp)
    Elvish,
    /// peregrine completions fish | source
    Fish,
    /// peregrine completions powershell | Out-String | Invoke-Expression
    Powershell,
    /// source <(peregrine completions zsh)
    Zsh,
}

impl Shell {
    const fn text(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Elvish => "elvish",
            Self::Fish => "fish",
            Self::Powershell => "powershell",
            Self::Zsh => "zsh",
        }
    }
}

/// Answers a shell, if it is one that asks, and ends the process.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}

/// Prints the shell's part.
pub(crate) fn run(shell: Shell, format: Format) -> Result<(), Failure> {
    let what = "making completions";
    let shells = Shells::builtins();
    let unknown = || Failure::local(what, "name another shell");
    let completer = shells.completer(shell.text()).ok_or_else(unknown)?;
    let mut script = Vec::new();
    let program = program();
    completer
        .write_registration(VARIABLE, "peregrine", "peregrine", &program, &mut script)
        .during(what)?;
    let script = String::from_utf8_lossy(&script);
    if format.is_json() {
        return output::print(json!({ "shell": shell.text(), "script": script }));
    }
    output::print(script.trim_end())
}

/// This program as the shell finds it: by its name if that was how it was called, or else by its
/// path.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let by_name = Path::new(&called).components().count() == 1;
    match std::env::current_exe() {
        Ok(path) if !by_name => path.to_string_lossy().into_owned(),
        _ => called.to_string_lossy().into_owned(),
    }
}

/// Exports of this machine that an address may mean.
pub(crate) fn addresses(begun: &OsStr) -> Vec<CompletionCandidate> {
    let begun = begun.to_str().unwrap_or_default();
    let (path, name) = match begun.split_once(':') {
        Some(("local", name)) => ("local:", name),
        _ => ("", begun),
    };
    let mut names: Vec<String> = peregrine::directory::list()
        .into_iter()
        .filter(|entry| entry.alive != Some(false) && entry.name.starts_with(name))
        .map(|entry| format!("{path}{}", entry.name))
        .collect();
    names.sort();
    names.dedup();
    names.into_iter().map(CompletionCandidate::new).collect()
}
