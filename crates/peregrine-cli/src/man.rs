//! `man`: manual pages, generated from the help texts.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Renderer;
use serde_json::json;

use crate::args::{Arguments, Format, Man};
use crate::output::{self, BOLD, Failure, OrFail as _};

/// Returns the whole command line, without the command `help`, which needs no manual page.
fn whole() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// Prints the manual page of the program. With `--dir`, writes this page and one page per command to files,
/// and prints only a summary.
pub(crate) fn run(man: &Man, format: Format) -> Result<(), Failure> {
    match &man.dir {
        None => print(format),
        Some(dir) => write(dir, format),
    }
}

/// A manual page: the name of its file, and its text.
struct Page {
    name: String,
    text: String,
}

fn print(format: Format) -> Result<(), Failure> {
    let Page { name, text } = page(whole())?;
    if format.is_json() {
        return output::print(json!({ "page": name, "text": text }));
    }
    output::print(text.trim_end())
}

fn write(dir: &Path, format: Format) -> Result<(), Failure> {
    let mut built = whole();
    // `build` adds the global options to each command.
    built.build();
    let mut commands = vec![whole()];
    add_commands(&built, &mut commands);
    let pages: Vec<_> = commands.into_iter().map(page).collect();
    std::fs::create_dir_all(dir).or_fail(format_args!("cannot create {}", dir.display()))?;
    let mut files = Vec::new();
    for one in pages {
        let Page { name, text } = one?;
        let file = dir.join(name);
        std::fs::write(&file, text).or_fail(format_args!("cannot write {}", file.display()))?;
        files.push(file.display().to_string());
    }
    if format.is_json() {
        return output::print(json!({ "dir": dir.display().to_string(), "files": files }));
    }
    output::say(format_args!(
        "{} pages in {BOLD}{}{BOLD:#}: `man -l {}` shows the first",
        files.len(),
        dir.display(),
        files[0]
    ))
}

/// Adds the commands below a command, each followed by those below it.
fn add_commands(above: &Command, commands: &mut Vec<Command>) {
    let is_shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    for one in above.get_subcommands().filter(is_shown) {
        commands.push(one.clone());
        add_commands(one, commands);
    }
}

fn page(command: Command) -> Result<Page, Failure> {
    let page = Renderer::new(command);
    let mut text = Vec::new();
    page.render(&mut text).or_fail("cannot generate a manual page")?;
    Ok(Page { name: page.get_filename(), text: String::from_utf8_lossy(&text).into_owned() })
}
