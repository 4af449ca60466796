//! `completions`: scripts that make a shell complete commands, options, exports, procedures and
//! parameters.
//!
//! The shell runs this program for each completion, so the candidates are those that exist now. For
//! procedures and parameters the program asks the server that the command line names.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory as _, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};
use clap_complete::env::Shells;
use peregrine::interface::{Described, DescribedParameter, DescribedProcedure, Direction};
use peregrine::{BindOptions, GenericClient};
use serde_json::json;

use crate::args::{Arguments, Format};
use crate::output::{self, Failure, OrFail as _};
use crate::{call, saved};

/// The environment variable by which a shell asks for completions.
const VARIABLE: &str = "PEREGRINE_COMPLETE";
/// How long a completion waits for a server to describe its interface.
const LIMIT: Duration = Duration::from_secs(1);

/// The completion script for bash. Bash splits words at `:`, `=` and `@`, but addresses and arguments contain
/// these characters. So the script joins the parts of a word again. Bash replaces only the last part, so the
/// script removes the preceding parts from each candidate.
const BASH: &str = r#"_peregrine_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" words=() piece rest i
    for (( i = 0; i <= COMP_CWORD; i++ )); do
        rest="${line#"${line%%[![:space:]]*}"}"
        piece="${COMP_WORDS[i]}"
        (( i == COMP_CWORD )) && piece="$rest"
        if (( i == 0 )) || [[ "$rest" != "$line" ]]; then
            words+=("$piece")
        else
            words[-1]+="$piece"
        fi
        line="${rest#"$piece"}"
    done
    local current="${words[-1]}"
    mapfile -d $'\v' -t COMPREPLY < <(
        VARIABLE=bash _CLAP_IFS=$'\v' _CLAP_COMPLETE_INDEX=$(( ${#words[@]} - 1 )) \
            PROGRAM -- "${words[@]}" 2> /dev/null
    )
    COMPREPLY=("${COMPREPLY[@]#"${current%"$2"}"}")
    if [[ "${#COMPREPLY[@]}" == 1 && "${COMPREPLY[0]}" == *[=/:] ]]; then
        compopt -o nospace
    fi
}
complete -o bashdefault -o nosort -F _peregrine_complete peregrine"#;

/// A shell for which completions are available.
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

/// If a shell requests completions, answers the request and ends the process. Otherwise does nothing.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}

/// Prints the script for a shell.
pub(crate) fn run(shell: Shell, format: Format) -> Result<(), Failure> {
    let script = match shell {
        Shell::Bash => {
            let quoted = format!("'{}'", program().replace('\'', r"'\''"));
            BASH.replace("VARIABLE", VARIABLE).replace("PROGRAM", &quoted)
        }
        shell => script(shell)?,
    };
    if format.is_json() {
        return output::print(json!({ "shell": shell.text(), "script": script }));
    }
    output::print(script.trim_end())
}

/// Returns the script that `clap_complete` generates.
fn script(shell: Shell) -> Result<String, Failure> {
    let what = "cannot generate completions";
    let shells = Shells::builtins();
    let unknown = || Failure::local(what, "name another shell");
    let completer = shells.completer(shell.text()).ok_or_else(unknown)?;
    let mut script = Vec::new();
    let program = program();
    completer
        .write_registration(VARIABLE, "peregrine", "peregrine", &program, &mut script)
        .or_fail(what)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Returns the word by which the shell runs this program: the program's name if the shell ran it by name,
/// otherwise its path.
fn program() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let by_name = Path::new(&called).components().count() == 1;
    match std::env::current_exe() {
        Ok(path) if !by_name => path.to_string_lossy().into_owned(),
        _ => called.to_string_lossy().into_owned(),
    }
}

/// Returns exports of this machine that match the typed text.
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

/// Returns the candidates for an argument of `compare`: exports of this machine, and files with interfaces.
pub(crate) fn interfaces(begun: &OsStr) -> Vec<CompletionCandidate> {
    let mut all = addresses(begun);
    all.extend(files(begun, &["rs", "json"]));
    all
}

/// Returns the interface files of ONC RPC and Courier.
pub(crate) fn interface_files(begun: &OsStr) -> Vec<CompletionCandidate> {
    files(begun, &["x", "cr"])
}

/// Returns the Rust files.
pub(crate) fn rust_files(begun: &OsStr) -> Vec<CompletionCandidate> {
    files(begun, &["rs"])
}

/// Returns the files whose names have one of the extensions `ends`, and the directories.
fn files(begun: &OsStr, ends: &'static [&'static str]) -> Vec<CompletionCandidate> {
    let is_wanted = |path: &Path| {
        let end = path.extension().and_then(OsStr::to_str);
        path.is_file() && end.is_some_and(|end| ends.contains(&end))
    };
    PathCompleter::any().filter(is_wanted).complete(begun)
}

/// Returns the procedures of the interface that the command line names.
pub(crate) fn procedures(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(described) = PartialCall::read().and_then(|called| called.described()) else {
        return Vec::new();
    };
    let procedures = described.procedures.iter();
    let named = procedures.map(|one| (one.name.clone(), one.docs.clone()));
    matching(begun, named)
}

/// Returns those parameters of the named procedure that have no value on the command line yet.
pub(crate) fn parameters(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(called) = PartialCall::read() else { return Vec::new() };
    let has_value = |one: &DescribedParameter| {
        let given = called.arguments.iter().filter(|word| OsStr::new(word) != begun);
        let mut names = given.filter_map(|word| word.split_once('='));
        names.any(|(name, _)| name.strip_suffix(':').unwrap_or(name) == one.name)
    };
    called.assignments(begun, |_, one| call::is_given(one.direction) && !has_value(one))
}

/// Returns the buffers that the named procedure returns.
pub(crate) fn out_buffers(begun: &OsStr) -> Vec<CompletionCandidate> {
    let Some(called) = PartialCall::read() else { return Vec::new() };
    called.assignments(begun, call::is_buffer_back)
}

/// Returns the candidates that start with the typed text, each with the first line of its help.
fn matching(
    begun: &OsStr,
    all: impl Iterator<Item = (String, String)>,
) -> Vec<CompletionCandidate> {
    let begun = begun.to_str().unwrap_or_default();
    let matching = all.filter(|(text, _)| text.starts_with(begun));
    let candidate = |(text, help): (String, String)| {
        let help = help.lines().next().map(|line| line.to_owned().into());
        CompletionCandidate::new(text).help(help)
    };
    matching.map(candidate).collect()
}

/// The command `call` or `capture` that is being completed.
#[derive(Default)]
struct PartialCall {
    address: Option<String>,
    interface: Option<PathBuf>,
    procedure: Option<String>,
    arguments: Vec<String>,
}

impl PartialCall {
    /// Reads the words that the shell passes after `--`. Returns `None` if these words are another
    /// command.
    fn read() -> Option<Self> {
        let words: Vec<OsString> = std::env::args_os().skip_while(|word| word != "--").collect();
        Self::of(words.get(1..)?)
    }

    fn of(words: &[OsString]) -> Option<Self> {
        let command = Arguments::command().ignore_errors(true);
        let matches = command.try_get_matches_from(words).ok()?;
        let (command, given) = matches.subcommand()?;
        let text = |name: &str| given.get_one::<String>(name).cloned();
        match command {
            "call" => Some(Self {
                address: text("address"),
                interface: given.get_one::<PathBuf>("interface").cloned(),
                procedure: text("procedure"),
                arguments: given.get_many("arguments").into_iter().flatten().cloned().collect(),
            }),
            "capture" => Some(Self { address: text("name"), ..Self::default() }),
            _ => None,
        }
    }

    /// Returns the interface from the saved file or from the server.
    fn described(&self) -> Option<Described> {
        if let Some(path) = &self.interface {
            return saved::read(path).ok();
        }
        let options = BindOptions::default().bind_timeout(LIMIT);
        let client = GenericClient::bind_with(self.address.as_ref()?, &options).ok()?;
        Some(client.described().clone())
    }

    /// Returns a completion `NAME=` for each parameter for which `is_offered` returns true.
    fn assignments(
        &self,
        begun: &OsStr,
        is_offered: impl Fn(&Described, &DescribedParameter) -> bool,
    ) -> Vec<CompletionCandidate> {
        let Some(described) = self.described() else { return Vec::new() };
        let name = self.procedure.as_deref().unwrap_or_default();
        let found = call::find_procedure(&described, name);
        let Some((_, DescribedProcedure { parameters, .. })) = found else { return Vec::new() };
        let offered = parameters.iter().filter(|one| is_offered(&described, one));
        // Parameters with arguments come before parameters that only need a capacity.
        let (back, given): (Vec<_>, Vec<_>) =
            offered.partition(|one| one.direction == Direction::Out);
        let named = given.into_iter().chain(back);
        let named = named.map(|one| (format!("{}=", one.name), described.parameter_text(one)));
        matching(begun, named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_call_is_read() {
        let called = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            PartialCall::of(&words)
        };
        assert!(called("peregrine ping files").is_none());
        let one = called("peregrine call --timeout 2s tcp:files@h:7 re").unwrap();
        assert_eq!(one.address.as_deref(), Some("tcp:files@h:7"));
        assert_eq!(one.procedure.as_deref(), Some("re"));
        let one = called("peregrine --format json call files read path=x off --out in").unwrap();
        assert_eq!(one.arguments, ["path=x", "off"]);
        let one = called("peregrine call --interface saved.rs files ").unwrap();
        assert_eq!(one.interface.as_deref(), Some(Path::new("saved.rs")));
    }
}
