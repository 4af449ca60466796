//! The experiment `stubs`: measures the costs of ten designs of stubs, and of Peregrine's own stubs. It
//! repeats the study of Chung, Lazowska, Notkin and Zahorjan. In this directory, *the paper* is the paper
//! about that study.
//!
//! | file | what |
//! |---|---|
//! | `user`, `packet` | the three data types; a message |
//! | `copying`, `compiled`, `interpreted` | the ten designs |
//! | `parameters`, `model` | measurements of the paper's parameters; predictions by the paper's equations |
//! | `effects` | what the model misses |
//! | `shipped` | Peregrine's own stubs |
//! | `encodings` | the same types in other encodings, for the experiment `peers` |
//! | `repeated`, `study` | the method of measurement |
//! | `paper`, `marks`, `report`, `plot` | what the results are compared with, and how they are shown |

mod compiled;
mod copying;
mod effects;
#[cfg(feature = "peers")]
pub(crate) mod encodings;
mod interpreted;
mod marks;
pub(crate) mod model;
mod packet;
pub(crate) mod paper;
mod parameters;
mod plot;
mod repeated;
mod report;
mod shipped;
mod study;
mod user;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
pub(crate) use parameters::Measured;
use peregrine::sys::pin_to;
use user::User;

use crate::subject::Failure;
use crate::{Progress, Selection, machine};

/// The number of bytes of the message that were used. This is `None` if the message is too short or invalid.
pub(crate) type Used = Option<usize>;

/// A function that moves the arguments of one procedure between the user's memory and a message.
type Stub = fn(&mut User, &mut [u8]) -> Used;

/// The option that this experiment has in addition to the common ones.
#[derive(Clone, Debug, Args)]
pub(crate) struct Picture {
    /// Write a picture of the designs and of the paper's figures to this file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) use plot::{FAINT, HERE, INK, THERE, svg};
pub(crate) use repeated::Repeated;
pub(crate) use report::{control, copying, excess, ns, rounded};
pub(crate) use shipped::{Calling, Labelled, ThreeClient, Triple, equal_server};
pub(crate) use study::Study;
pub(crate) use user::{Data, INTEGERS, MIDDLE, PACKET, Placed};

/// Measures only the model's parameters for marshalling.
pub(crate) fn measured(rounds: usize, slice: Duration) -> Result<Measured, Failure> {
    parameters::measure(rounds, slice)
}

/// Measures the whole study. Afterwards, this thread runs on one processor only.
pub(crate) fn study(selection: &Selection, progress: &Progress) -> Result<Study, Failure> {
    // Everything runs on one processor. It is the last processor, because the first processors often handle
    // the machine's interrupts.
    if let Some(cpu) = machine::processors().last() {
        pin_to(*cpu)?;
    }
    study::measure(selection, progress)
}

/// Measures and shows the whole study.
pub(crate) fn run(
    selection: &Selection,
    picture: &Picture,
    progress: &Progress,
) -> Result<(), Failure> {
    let machine = machine::description();
    let study = study(selection, progress)?;
    progress.show("");
    if let Some(path) = &picture.svg {
        std::fs::write(path, svg(&study))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    report::show(&study, machine, selection.format)?;
    Ok(())
}
