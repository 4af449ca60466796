//! `man`: pages of the manual, made of what `--help` says.

use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man as Page;
use serde_json::json;

use crate::args::{Arguments, Format, Man};
use crate::output::{self, BOLD, During as _, Failure};

/// The command whose pages are made: `help` needs none.
fn whole() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// Prints the page of the whole command, or writes it and one for each verb.
pub(crate) fn run(man: &Man, format: Format) -> Result<(), Failure> {
    match &man.dir {
        None => print(format),
        Some(dir) => write(dir, format),
    }
}

/// A page: its file's name and its text.
struct Written {
    name: String,
    text: String,
}

fn print(format: Format) -> Result<(), Failure> {
    let Written { name, text } = page(whole())?;
    if format.is_json() {
        return output::print(json!({ "page": name, "text": text }));
    }
    output::print(text.trim_end())
}

fn write(dir: &Path, format: Format) -> Result<(), Failure> {
    let mut built = whole();
    // Options that stand before or behind any verb are of each of them.
    built.build();
    let verbs = built.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let pages: Vec<_> = [whole()].into_iter().chain(verbs).map(page).collect();
    std::fs::create_dir_all(dir).during(format_args!("making {}", dir.display()))?;
    let mut files = Vec::new();
    for one in pages {
        let Written { name, text } = one?;
        let file = dir.join(name);
        std::fs::write(&file, text).during(format_args!("writing {}", file.display()))?;
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

fn page(command: Command) -> Result<Written, Failure> {
    let page = Page::new(command);
    let mut text = Vec::new();
    page.render(&mut text).during("making a page of the manual")?;
    Ok(Written { name: page.get_filename(), text: String::from_utf8_lossy(&text).into_owned() })
}
