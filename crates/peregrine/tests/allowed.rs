//! Tests who may call what: exports and procedures that only some identities may use.

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{
    BindOptions, CallError, Callback, CallerIdentity, Dynamic, Executed, ExportOptions,
    GenericClient, GenericServer, Insecure, Kind, PathKind, Running, Security, Server, Sink,
    Source, interface,
};

const LIMIT: Duration = Duration::from_secs(10);

static ADA: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static EVE: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());
static BOB: LazyLock<Identity> = LazyLock::new(|| Identity::generate().unwrap());

fn home() -> (MutexGuard<'static, ()>, tempfile::TempDir) {
    (support::alone(), support::own_directory())
}

fn key(name: &str, peer: &Identity) -> TrustedKey {
    TrustedKey::new(name, peer.public_key(), "").unwrap()
}

/// Ada and Eve are both trusted. What they may do differs.
fn both() -> Trust {
    Trust::of_keys([key("ada", &ADA), key("eve", &EVE)]).unwrap()
}

fn of_bob() -> Security {
    (BOB.clone(), both()).into()
}

fn of(client: &Identity) -> BindOptions {
    let trust = Trust::of_keys([key("bob", &BOB)]).unwrap();
    BindOptions::default().secure(client.clone(), trust)
}

#[interface]
trait Listener {
    fn hears(&self, text: &str) -> peregrine::Result<()>;
}

#[interface]
trait Vault {
    /// Returns who the caller is.
    fn who(&self) -> peregrine::Result<Option<String>>;
    #[allow("ada")]
    fn take(&self, count: u32) -> peregrine::Result<u32>;
    #[oneway]
    #[allow("ada")]
    fn drop_in(&self, count: u32);
    #[allow("ada")]
    #[allow(clippy::too_many_arguments)]
    fn list(&self, items: Sink<'_, u32>) -> peregrine::Result<()>;
    #[allow("ada")]
    fn fill(&self, items: Source<'_, u32>) -> peregrine::Result<u32>;
    #[allow("ada")]
    fn tell(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()>;
}

/// Counts the procedures that ran, except `who`.
#[derive(Clone, Default)]
struct Room {
    ran: Arc<AtomicU32>,
}

impl Room {
    fn runs(&self) -> u32 {
        self.ran.load(Ordering::SeqCst)
    }
    fn run(&self) {
        self.ran.fetch_add(1, Ordering::SeqCst);
    }
}

fn own_name() -> Option<String> {
    peregrine::caller().unwrap().identity().map(|identity| identity.to_string())
}

impl Vault for Room {
    fn who(&self) -> peregrine::Result<Option<String>> {
        Ok(own_name())
    }
    fn take(&self, count: u32) -> peregrine::Result<u32> {
        self.run();
        Ok(count)
    }
    fn drop_in(&self, _: u32) {
        self.run();
    }
    fn list(&self, mut items: Sink<'_, u32>) -> peregrine::Result<()> {
        self.run();
        items.send(&7)
    }
    fn fill(&self, mut items: Source<'_, u32>) -> peregrine::Result<u32> {
        self.run();
        Ok(items.next().transpose()?.unwrap_or(0))
    }
    fn tell(&self, listener: Callback<'_, dyn Listener>) -> peregrine::Result<()> {
        self.run();
        listener.hears("news")
    }
}
