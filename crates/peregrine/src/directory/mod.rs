//! Directories: they return the servers that export a name. A name may have several servers.
//!
//! [`Directory`] is the trait that each directory implements. [`Hosts`] reads static files. In
//! a [`Tree`](struct@Tree) of files, servers also register themselves. Other crates have further directories.
//! [`open`] opens each of them by a text, and the environment variable `PEREGRINE_DIRECTORY` chooses one for
//! a whole program.
//!
//! On one machine, an exported name is a socket in a runtime directory:
//!
//! | directory | when |
//! |---|---|
//! | `$PEREGRINE_DIR` | if set |
//! | `$XDG_RUNTIME_DIR/peregrine` | if `$XDG_RUNTIME_DIR` is set |
//! | `/tmp/peregrine-UID` | not for root; only if the user owns it and no other user may write there |
//! | `/run/peregrine` | always; only root may export there |
//!
//! A server exports in the first of these directories. A client searches all of them in this order. A program
//! may have more rights than its user (set-user-id, file capabilities). Such a program ignores both
//! variables, because the user must not choose which server the program trusts.

mod chosen;
mod hosts;
mod leftovers;
mod offers;
#[cfg(feature = "json")]
mod record;
mod runtime;
mod sockets;
mod standing;
#[cfg(feature = "json")]
mod tree;

pub use chosen::{OpenDirectory, add_scheme, of_environment, open, trusted_variable};
pub use hosts::Hosts;
pub use leftovers::{Leftover, leftovers};
pub use offers::{Offer, Offers};
pub use runtime::search_path;
pub(crate) use sockets::{
    Audience, Published, check_name, publish, resolve, resolve_draining, shared_words,
};
pub use sockets::{Entry, list};
pub use standing::Standing;
#[cfg(feature = "json")]
pub use tree::Tree;

use core::fmt;
use std::sync::Arc;

use crate::address::Address;
use crate::error::{CallError, Kind, Phase};

/// A directory. It returns the servers that export a name.
///
/// ```
/// use peregrine::directory::Directory;
/// use peregrine::{Address, CallError};
///
/// /// Everything is served by one machine.
/// #[derive(Debug)]
/// struct Central(&'static str);
///
/// impl Directory for Central {
///     fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
///         Ok(vec![format!("{name}@{}", self.0).parse()?])
///     }
///
///     fn describe(&self) -> String {
///         format!("central machine {}", self.0)
///     }
/// }
///
/// let offers = Central("fs.example.org").offers("files")?;
/// assert_eq!(offers[0].name(), "files");
/// // Each address counts as a server of its own, unless the directory says more.
/// let servers = Central("fs.example.org").look_up("files")?.servers;
/// assert_eq!(servers[0].to_string(), "1 at files@fs.example.org:7193");
/// # Ok::<(), CallError>(())
/// ```
pub trait Directory: fmt::Debug + Send + Sync {
    /// Returns the addresses at which servers export a name. Each address contains a machine, unless it is on
    /// this machine. The list is empty if the directory does not know the name.
    ///
    /// # Errors
    /// Fails if the directory cannot be read or asked, or if its data are invalid.
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError>;

    /// Returns a text that describes the directory to users.
    fn describe(&self) -> String;

    /// Returns which servers export a name, and how well the directory knows this. By default, each address
    /// that [`offers`](Self::offers) returns counts as a server of its own, and the servers are numbered.
    ///
    /// # Errors
    /// As [`offers`](Self::offers).
    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        let numbered = (1..).zip(self.offers(name)?);
        let servers = numbered.map(|(n, address)| Offer::anywhere(&n.to_string(), vec![address]));
        servers.collect::<Result<_, _>>().map(Offers::of)
    }

    /// Returns whether the order of a name's servers says which of them clients should prefer. True by
    /// default. If it is false, a client that binds takes a server at random, unless its options say
    /// otherwise ([`BindOptions::balance`](crate::BindOptions::balance)).
    fn is_ordered(&self) -> bool {
        true
    }

    /// Returns the names that the directory knows, in order.
    ///
    /// # Errors
    /// As [`offers`](Self::offers). Also if the directory cannot be listed, which is the default.
    fn names(&self) -> Result<Vec<String>, CallError> {
        Err(cannot(self, "list its names"))
    }

    /// Registers a server of a name. The registration lasts until the returned value is dropped, or until
    /// this process ends: then it is removed after a time that the directory knows (its *lease*). If the
    /// directory loses the registration before, it is made again.
    ///
    /// # Errors
    /// If the directory does not answer, or does not accept the offer. Also if servers cannot register in
    /// this directory, which is the default.
    fn register(&self, name: &str, offer: &Offer) -> Result<Standing, CallError> {
        let _ = (name, offer);
        Err(cannot(self, "register servers"))
    }

    /// Watches a name. Calls `watcher` with what is known now, on the calling thread, before this function
    /// returns. Then calls it after each change, on a thread of the directory, until the returned value is
    /// dropped. The calls come one after the other.
    ///
    /// A watcher may wait, but delays itself and other watchers of the directory. It does not delay
    /// registrations. If a name changes several times meanwhile, the watcher is called once, with the last
    /// state. If it panics, the directory reports that by [`Standing::problem`], and calls it again after the
    /// next change, or earlier. To drop the returned value takes up to a second if the watcher runs at that
    /// time, and a watcher may drop the value of its own watch.
    ///
    /// # Errors
    /// As [`look_up`](Self::look_up). Also if the directory cannot watch names, which is the default.
    fn watch(&self, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
        let _ = (name, watcher);
        Err(cannot(self, "watch names"))
    }
}

/// A function that [`Directory::watch`] calls with what the directory knows about a name.
pub type Watcher = Box<dyn FnMut(Offers) + Send>;

/// Returns the error for something that a directory cannot do.
#[cold]
fn cannot(directory: &(impl Directory + ?Sized), what: &str) -> CallError {
    let text = format!("{} cannot {what}", directory.describe());
    CallError::not_executed(Kind::BadName, Phase::Resolve, text).with_advice(OTHER_DIRECTORY)
}

/// The advice for something that a directory cannot do.
const OTHER_DIRECTORY: &str =
    "use a directory in which servers register themselves, such as `file:PATH`";

impl<D: Directory + ?Sized> Directory for Arc<D> {
    fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
        (**self).offers(name)
    }

    fn describe(&self) -> String {
        (**self).describe()
    }

    fn look_up(&self, name: &str) -> Result<Offers, CallError> {
        (**self).look_up(name)
    }

    fn is_ordered(&self) -> bool {
        (**self).is_ordered()
    }

    fn names(&self) -> Result<Vec<String>, CallError> {
        (**self).names()
    }

    fn register(&self, name: &str, offer: &Offer) -> Result<Standing, CallError> {
        (**self).register(name, offer)
    }

    fn watch(&self, name: &str, watcher: Watcher) -> Result<Standing, CallError> {
        (**self).watch(name, watcher)
    }
}
