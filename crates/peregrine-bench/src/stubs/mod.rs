//! The experiment `stubs`: what designs of stubs cost, after Chung, Lazowska, Notkin and Zahorjan.
//!
//! | file | what |
//! |---|---|
//! | `user`, `packet` | the three data types; a message |
//! | `copying`, `compiled`, `interpreted` | the ten designs |
//! | `parameters`, `model` | the paper's parameters, measured; its equations with them |
//! | `effects` | what the model misses |
//! | `shipped` | Peregrine's own stubs |
//! | `encodings` | the same types in the encodings of others, for the experiment `peers` |
//! | `programs`, `study` | how all of it is measured |
//! | `paper`, `marks`, `report`, `plot` | what it is held against, and how it is shown |

mod compiled;
mod copying;
mod effects;
#[cfg(feature = "peers")]
pub(crate) mod encodings;
mod interpreted;
mod marks;
mod model;
mod packet;
mod paper;
mod parameters;
mod plot;
mod programs;
mod report;
mod shipped;
mod study;
mod user;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use parameters::Measured;
use peregrine::sys::pin_to;
use user::User;

use crate::subject::Failure;
use crate::{Progress, Selection, machine};

/// How many bytes of the message were used; none if it had no room, or is no such message.
type Used = Option<usize>;

/// Moves one procedure's arguments.
type Stub = fn(&mut User, &mut [u8]) -> Used;

/// What this experiment can do besides.
#[derive(Clone, Debug, Args)]
pub(crate) struct Picture {
    /// Draw the designs beside the paper's, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) use report::{control, copying, ns, rounded};

/// Measures the model's parameters alone, those of marshalling.
pub(crate) fn measured(rounds: usize, slice: Duration) -> Result<Measured, Failure> {
    parameters::measure(rounds, slice)
}

/// Measures and shows all of it.
pub(crate) fn run(
    selection: &Selection,
    picture: &Picture,
    progress: &Progress,
) -> Result<(), Failure> {
    let machine = machine::description();
    // One processor, and not the one that takes the machine's interrupts, if there is a choice.
    if let Some(cpu) = machine::processors().last() {
        pin_to(*cpu)?;
    }
    let study = study::measure(selection, progress)?;
    progress.say("");
    if let Some(path) = &picture.svg {
        std::fs::write(path, plot::svg(&study))
            .map_err(|error| format!("writing {}: {error}", path.display()))?;
    }
    report::show(&study, machine, selection.format)?;
    Ok(())
}
