//! Peregrine's calls to a server that requires encryption, and binding to it.

use std::hint::black_box;

use peregrine::BindOptions;

use super::keys::Keys;
use crate::cases::{Case, Size, Waiting};
use crate::interfaces::SmallClient;
use crate::network::far::{Far, Order};
use crate::network::path::Path;
use crate::network::{Subject, measured, own, timed};
use crate::subject::{Client, Failure, Sample};

/// Returns the address of the server's export for data of the given size. Starts the server.
fn address(far: &mut Far, path: Path, wait: Waiting, size: Size) -> Result<String, Failure> {
    let at = far.order(Order::Secure(path, wait))?;
    Ok(format!("{}:{}/{}", path.scheme(), at[0], own::name(size)))
}

fn options(wait: Waiting, keys: &Keys) -> BindOptions {
    BindOptions::default().wait(wait.wait()).secure(keys.identity.clone(), keys.trust.clone())
}

/// The subject that makes encrypted calls of one case on one path.
pub(super) struct Calls {
    pub(super) path: Path,
    pub(super) case: Case,
    pub(super) wait: Waiting,
    pub(super) keys: Keys,
}

impl Calls {
    fn bind(&self, far: &mut Far) -> Result<Client, Failure> {
        let size = self.case.size;
        let address = address(far, self.path, self.wait, size)?;
        match Client::bind_with(&address, size, &options(self.wait, &self.keys)) {
            Ok(client) => Ok(client),
            Err(error) => {
                far.end_order()?;
                Err(error.into())
            }
        }
    }

    /// Returns why Peregrine does not encrypt calls on this path, or `None` if it does.
    pub(super) fn missing(&mut self, far: &mut Far) -> Result<Option<String>, Failure> {
        match self.bind(far) {
            Err(error) => Ok(Some(error.to_string())),
            Ok(client) => {
                drop(client);
                far.end_order()?;
                Ok(None)
            }
        }
    }
}

impl Subject for Calls {
    fn name(&self) -> &'static str {
        "peregrine"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let (case, client) = (self.case, self.bind(far)?);
        let mut buffer = vec![0xa5; case.in_bytes.max(case.out_bytes)];
        let run = |calls| Ok(client.run(case, &mut buffer, calls)?);
        let sample = measured(far, warm, calls, run)?;
        drop(client);
        far.end_order()?;
        Ok(sample)
    }
}

/// The subject that binds and drops the binding.
pub(super) struct Bindings {
    pub(super) path: Path,
    /// Whether handshakes resume the session of an earlier one.
    pub(super) resumed: bool,
    pub(super) keys: Keys,
}

impl Subject for Bindings {
    fn name(&self) -> &'static str {
        "peregrine"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let wait = Waiting::Block;
        let address = address(far, self.path, wait, Size::Small)?;
        // Sessions belong to the options: a binding with new options makes a full handshake.
        let kept = options(wait, &self.keys);
        let bind = || {
            let client = match self.resumed {
                true => SmallClient::bind_with(&address, &kept)?,
                false => SmallClient::bind_with(&address, &options(wait, &self.keys))?,
            };
            drop(black_box(client));
            Ok(())
        };
        bind()?;
        let sample = measured(far, warm, calls, |calls| timed(calls, bind))?;
        far.end_order()?;
        Ok(sample)
    }
}
