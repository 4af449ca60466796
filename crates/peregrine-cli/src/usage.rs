//! Parses the command line, and reports a usage error like any other failure.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};

use anstream::ColorChoice;
use clap::error::ContextKind as Part;
use clap::error::ContextValue as Said;
use clap::error::{Error, ErrorKind};
use clap::{CommandFactory as _, FromArgMatches as _};

use crate::args::{Arguments, Colour, Command, Format, FormatOption};
use crate::output::{self, Failure};

/// The result of parsing the command line.
pub(crate) enum Parsed {
    /// A valid command.
    Command(Box<Arguments>),
    /// Help, the version or an error was printed. The process must exit with this code.
    Exit(u8),
    /// A usage error, and the format in which to report it.
    Invalid(Failure, Format),
}

/// Reads the command line.
pub(crate) fn read() -> Parsed {
    let words: Vec<OsString> = std::env::args_os().collect();
    // `--format` and `--color` also apply to the report of a usage error, so they are read first.
    let format = match asked(&words, "--format").and_then(OsStr::to_str) {
        Some("json") => Format::Json,
        Some("ndjson") => Format::Ndjson,
        _ => Format::Human,
    };
    let colour = match asked(&words, "--color").and_then(OsStr::to_str) {
        Some("always") => Colour::Always,
        Some("never") => Colour::Never,
        // A dumb terminal never gets colours, even if a build tool forces colours with an environment
        // variable.
        _ if std::env::var_os("TERM").is_some_and(|term| term == "dumb") => Colour::Never,
        _ => Colour::Auto,
    };
    colour.choose();
    let mut command = Arguments::command().color(match colour {
        Colour::Auto => clap::ColorChoice::Auto,
        Colour::Always => clap::ColorChoice::Always,
        Colour::Never => clap::ColorChoice::Never,
    });
    let matches = command.try_get_matches_from_mut(words);
    let read = matches.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches));
    let error = match read.and_then(|arguments| sensible(arguments, &mut command)) {
        Ok(arguments) => return Parsed::Command(Box::new(arguments)),
        Err(error) => error,
    };
    if !error.use_stderr() {
        // A closed pipe is not reported as a failure here.
        let _ = output::say(error.render().ansi().to_string().trim_end());
        return Parsed::Exit(0);
    }
    let failure = failure(&error);
    if format.is_json() {
        return Parsed::Invalid(failure, format);
    }
    output::note(error.render().ansi().to_string().trim_end());
    Parsed::Exit(failure.code())
}

impl Colour {
    /// Applies the choice of colours to all output from now on.
    fn choose(self) {
        let choice = match self {
            Self::Auto => return,
            Self::Always => ColorChoice::Always,
            Self::Never => ColorChoice::Never,
        };
        choice.write_global();
    }
}

/// Finds the value of an option anywhere on the command line, without parsing the other words.
fn asked<'a>(words: &'a [OsString], option: &str) -> Option<&'a OsStr> {
    let mut words = words.iter().skip(1).take_while(|word| *word != "--");
    let mut value = None;
    while let Some(word) = words.next() {
        if word == option {
            value = words.next().map(OsString::as_os_str);
        } else if let Some(rest) = word.to_str().and_then(|word| word.strip_prefix(option))
            && let Some(rest) = rest.strip_prefix('=')
        {
            value = Some(OsStr::new(rest));
        }
    }
    value
}

/// Checks conditions that involve several options.
fn sensible(arguments: Arguments, command: &mut clap::Command) -> Result<Arguments, Error> {
    if arguments.format == FormatOption::C
        && !matches!(arguments.command, Some(Command::Describe(_)))
    {
        let only = "`--format c` prints the header of an interface: use it with `describe`";
        return Err(command.error(ErrorKind::ArgumentConflict, only));
    }
    Ok(arguments)
}

/// Converts an error of the argument parser to a failure.
fn failure(error: &Error) -> Failure {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    let words: Vec<&str> = first.split_whitespace().collect();
    let what = words.join(" ");
    let what = what.strip_prefix("error: ").unwrap_or(&what).to_owned();
    let mut suggestions = Vec::new();
    for part in [Part::SuggestedSubcommand, Part::SuggestedArg, Part::SuggestedValue] {
        match error.get(part) {
            Some(Said::String(one)) => suggestions.push(one.clone()),
            Some(Said::Strings(all)) => suggestions.extend(all.iter().cloned()),
            _ => {}
        }
    }
    let usage = match error.get(Part::Usage) {
        Some(Said::StyledStr(usage)) => usage.to_string(),
        _ => String::new(),
    };
    let usage: Vec<&str> = usage.split_whitespace().collect();
    let usage = usage.join(" ");
    let advice = match usage.strip_prefix("Usage: ") {
        Some(usage) => format!("usage: `{usage}`; see `--help`"),
        None => "see `--help`".to_owned(),
    };
    let causes = error.source().map(ToString::to_string).into_iter().collect();
    Failure::Usage { what, causes, advice, suggestions }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn option_is_found_anywhere_on_the_command_line() {
        for (text, found) in [
            ("peregrine --format json pong", Some("json")),
            ("peregrine pong --format=ndjson x", Some("ndjson")),
            ("peregrine pong --format json --format human", Some("human")),
            ("peregrine pong -- --format json", None),
            ("peregrine pong --format", None),
            ("peregrine pong --formatted json", None),
        ] {
            assert_eq!(asked(&words(text), "--format"), found.map(OsStr::new), "{text}");
        }
    }

    #[test]
    fn parser_error_becomes_usage_failure() {
        let wrong = |text: &str| {
            let error = Arguments::command().try_get_matches_from(words(text)).unwrap_err();
            match failure(&error) {
                Failure::Usage { what, causes, advice, suggestions } => {
                    (what, causes, advice, suggestions)
                }
                other => panic!("{other:?}"),
            }
        };
        let (what, _, advice, suggestions) = wrong("peregrine pign files");
        assert_eq!(what, "unrecognized subcommand 'pign'");
        assert_eq!(suggestions, ["ping"]);
        assert!(advice.starts_with("usage: `peregrine "), "{advice}");
        let (what, causes, ..) = wrong("peregrine ping files -c many");
        assert!(what.contains("'many'") && causes.len() == 1, "{what} {causes:?}");
        let (what, ..) = wrong("peregrine ping");
        assert!(what.contains("not provided: <") && !what.contains('\n'), "{what}");
        let (.., suggestions) = wrong("peregrine ping files --wait spni");
        assert_eq!(suggestions, ["spin"]);
        let (.., suggestions) = wrong("peregrine ping files --cuont 3");
        assert_eq!(suggestions, ["--count"]);
    }
}
