//! [`Bindings`]: the bindings of a name service to servers. Their number is bounded, and idle ones end.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use peregrine::directory::Directory;
use peregrine::{
    Address, BindOptions, CallError, Executed, GenericClient, Kind, Phase, Rebind, limits,
};

use crate::access::Access;
use crate::interface::INTERFACE;

/// How long a binding stays without calls.
const IDLE: Duration = Duration::from_secs(60);

/// Which bindings calls can share: those to one address, for callers with equal rights.
type Key = (Access, String);

/// The bindings of a name service.
pub(crate) struct Bindings {
    /// The maximum number of bindings.
    pub(crate) most: usize,
    /// The size of the largest message, unless the interface of a server declares larger ones.
    pub(crate) message_bytes: usize,
    kept: Mutex<HashMap<Key, (Arc<GenericClient>, Instant)>>,
}

impl Bindings {
    pub(crate) fn new(most: usize, message_bytes: usize) -> Self {
        Self { most, message_bytes, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<Key, (Arc<GenericClient>, Instant)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the binding to an address, and whether it existed before.
    ///
    /// # Errors
    /// If the server cannot be bound, or if the second call may not be made there.
    pub(crate) fn at(
        &self,
        access: Access,
        address: &str,
        limit: Duration,
    ) -> Result<(Arc<GenericClient>, bool), CallError> {
        let key = (access, address.to_owned());
        let mut kept = self.kept();
        if let Some((client, used)) = kept.get_mut(&key)
            && client.binding().is_alive()
        {
            *used = Instant::now();
            return Ok((Arc::clone(client), true));
        }
        let dead = kept.remove(&key);
        drop(kept);
        // The last reference to a binding may end threads and sockets, so no lock is held.
        drop(dead);
        let client = Arc::new(self.bind(address, limit)?);
        let mut kept = self.kept();
        let mut ended = Vec::new();
        while kept.len() >= self.most.max(1) {
            let oldest = kept.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| key.clone());
            ended.extend(oldest.and_then(|oldest| kept.remove(&oldest)));
        }
        ended.extend(kept.insert(key, (Arc::clone(&client), Instant::now())));
        drop(kept);
        drop(ended);
        Ok((client, false))
    }

    /// Makes a binding that no other call uses.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub(crate) fn bind(&self, address: &str, limit: Duration) -> Result<GenericClient, CallError> {
        let options = BindOptions::default().directory(Nowhere).rebind(Rebind::Never);
        let options = options.bind_timeout(limit).message_bytes(self.message_bytes);
        let client = GenericClient::bind_with(address, &options)?;
        let described = client.described();
        let refused = |kind, text: String| {
            Err(CallError::new(kind, Executed::No, text).in_phase(Phase::Bind))
        };
        if described.name == INTERFACE {
            let text = format!("{address} is a name service: call it directly");
            return refused(Kind::Denied, text);
        }
        // An interface may declare messages that are larger than those for which a binding asks.
        let most = self.message_bytes.max(limits::MESSAGE_BYTES);
        if described.message_bytes() > most {
            let text =
                format!("the interface at {address} needs messages of more than {most} bytes");
            return refused(Kind::TooLarge, text);
        }
        Ok(client)
    }

    /// Forgets a binding whose server has ended.
    pub(crate) fn forget(&self, access: Access, address: &str) {
        let gone = self.kept().remove(&(access, address.to_owned()));
        drop(gone);
    }

    /// Ends the bindings without calls. Returns whether there are others.
    pub(crate) fn expire(&self) -> bool {
        let mut idle = Vec::new();
        let mut kept = self.kept();
        kept.retain(|_, (client, used)| {
            let stays = used.elapsed() < IDLE && client.binding().is_alive();
            if !stays {
                idle.push(Arc::clone(client));
            }
            stays
        });
        let has_more = !kept.is_empty();
        drop(kept);
        drop(idle);
        has_more
    }
}

/// A directory without names: a binding of a name service is only to the address that it has chosen.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Directory for Nowhere {
    fn offers(&self, _: &str) -> Result<Vec<Address>, CallError> {
        Ok(Vec::new())
    }
    fn describe(&self) -> String {
        "no directory".to_owned()
    }
}
