//! The command `cost`: computes the cost of marshalling in each of ten stub designs, by an equation for every
//! procedure.
//!
//! | file | what |
//! |---|---|
//! | `equation` | designs, symbols, equations and their values |
//! | `derive` | the equations of an interface |
//! | `print` | equations as text |
//! | `show` | the results as tables, or as JSON |

mod derive;
mod equation;
mod print;
mod show;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use peregrine::interface::Described;
use peregrine::sys::pin_to;

use crate::row::Format;
use crate::subject::Failure;
use crate::{Progress, machine, stubs};

pub(crate) use derive::costs;
pub(crate) use equation::{Control, Copying, Cost, Design, Length, Parameters, Part, Symbol};

/// The interface, and the format of the result.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Name or address of an export, as `peregrine describe` takes it
    #[arg(required_unless_present = "interface")]
    address: Option<String>,
    /// Read the interface from a file instead: a trait, as `peregrine describe` prints it, or the
    /// canonical text
    #[arg(long, value_name = "FILE", conflicts_with = "address")]
    interface: Option<PathBuf>,
    /// How the result is shown
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// The number of rounds in which the parameters are measured.
const ROUNDS: usize = 7;
/// The time for which each parameter is measured in a round.
const SLICE: Duration = Duration::from_millis(1);

/// Derives the equations of an interface, measures their parameters, and shows both.
pub(crate) fn run(options: &Options, progress: &Progress) -> Result<(), Failure> {
    let described = match (&options.interface, &options.address) {
        (Some(path), _) => read(path)?,
        (None, Some(address)) => peregrine::describe(address)?.parsed()?,
        (None, None) => return Err("no interface is given: name an address or a file".into()),
    };
    if let Some(cpu) = machine::processors().last() {
        pin_to(*cpu)?;
    }
    progress.show("measuring the parameters");
    let measured = stubs::measured(ROUNDS, SLICE)?;
    progress.show("");
    show::show(&described, &measured.parameters(), options.format)?;
    Ok(())
}

/// Reads an interface from a file.
fn read(path: &Path) -> Result<Described, Failure> {
    let failed = |why: &dyn core::fmt::Display| {
        Failure::from(format!("cannot read an interface from {}: {why}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    match text.starts_with("interface ") {
        true => Described::parse(&text).map_err(|error| failed(&error)),
        false => peregrine_idl::parse_trait(&text).map_err(|error| failed(&error)),
    }
}
