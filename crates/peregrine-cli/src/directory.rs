//! The directory that maps names to servers: `--directory`, or what the environment selects.

use std::sync::{Arc, OnceLock};

use clap::Args;
use peregrine::BindOptions;
use peregrine::directory::{self, Directory};

use crate::output::Failure;
use crate::security::bind_options;

/// The environment variable that selects the directory if there is no option.
const VARIABLE: &str = "PEREGRINE_DIRECTORY";

/// Which directory maps names to servers.
#[derive(Args, Debug)]
pub(crate) struct Chosen {
    /// Find the servers of names in this directory: file:PATH, hosts:PATH, dns:DOMAIN,
    /// etcd://HOST,HOST/PREFIX or peregrine://HOST/NAME [default: $PEREGRINE_DIRECTORY, or else the hosts
    /// files]
    #[arg(long, global = true, value_name = "SCHEME:WHERE")]
    pub(crate) directory: Option<String>,
}

/// Makes the directories of other crates known, so that the option and the environment can select them.
pub(crate) fn install() {
    // These fail only if another crate has the same scheme. No other crate of this program has it.
    #[cfg(feature = "dns")]
    let _ = peregrine_dns::install();
    #[cfg(feature = "etcd")]
    let _ = peregrine_etcd::install();
    let _ = peregrine_names::install_with(bind_options);
}

/// The directory of the option. It is not set if there is no option.
static CHOSEN: OnceLock<Arc<dyn Directory>> = OnceLock::new();

impl Chosen {
    /// Opens the directory of the option. From then on, all bindings of this process use it.
    pub(crate) fn choose(&self) -> Result<(), Failure> {
        if let Some(text) = &self.directory {
            let _ = CHOSEN.set(directory::open(text)?);
        }
        Ok(())
    }
}

/// Adds the directory of the option to the options of a binding.
pub(crate) fn add_to(options: BindOptions) -> BindOptions {
    match CHOSEN.get() {
        Some(chosen) => options.directory(Arc::clone(chosen)),
        None => options,
    }
}

/// Returns the directory of the option, or else the one that the environment selects.
pub(crate) fn chosen() -> Result<Arc<dyn Directory>, Failure> {
    match CHOSEN.get() {
        Some(chosen) => Ok(Arc::clone(chosen)),
        None => Ok(directory::of_environment()?),
    }
}

/// Returns whether the option or the environment selects a directory. Otherwise, names are those of the hosts
/// files and of this machine.
pub(crate) fn is_chosen() -> bool {
    let is_set = || std::env::var_os(VARIABLE).is_some_and(|text| !text.is_empty());
    CHOSEN.get().is_some() || is_set()
}
