//! Changes of an interface after which calls still work in at least one direction: from a new client to an
//! old server, or from an old client to a new server. In each module, `old` is the interface before the
//! change, and `new` is the interface after it. Each of the two is an *age* of the interface.

use std::sync::Arc;

use peregrine::call::Serve;
use peregrine::interface::{Interface, Rule};
use peregrine::{Binding, CallError, Lent, Out, Plain, Result, Value, interface};

use crate::forbidden;
use crate::interpreted::{Call, told};

/// A change of an interface, and the outcomes of calls between a client and a server of different ages.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// The outcome for a new client and an old server, in words.
    pub(crate) forwards: &'static str,
    /// The outcome for an old client and a new server, in words.
    pub(crate) backwards: &'static str,
    pub(crate) old: Age,
    pub(crate) new: Age,
}

/// An interface as it is before or after a change.
pub(crate) struct Age {
    pub(crate) interface: &'static Interface,
    pub(crate) server: fn() -> Arc<dyn Serve>,
    /// Makes the test's calls over a binding with compiled stubs, and returns the outcomes of the calls.
    pub(crate) compiled: fn(Binding) -> Vec<String>,
    /// The calls that interpreted stubs make, with arguments in JSON.
    pub(crate) calls: &'static [Call],
    /// The outcomes that a client of this age must get from a server of the other age.
    pub(crate) expected: Expected,
}

pub(crate) enum Expected {
    /// The client is refused when it binds, because of this rule.
    Refused(Rule),
    /// The client can bind, and its calls have these outcomes: one text for each call.
    Calls { compiled: &'static [&'static str], interpreted: &'static [&'static str] },
}

/// Makes an [`Age`] of the trait `Shop` in the module `$module`. The function `compiled` of this age makes
/// the calls `$call` with the client `$client`.
macro_rules! age {
    ($module:ident, |$client:ident| [$($call:expr),* $(,)?], $calls:expr, $expected:expr) => {
        Age {
            interface: $module::ShopClient::INTERFACE,
            server: || Arc::new($module::ShopServer::new($module::Object)),
            compiled: |binding| {
                use $module::Shop as _;
                let $client = $module::over(binding);
                vec![$(told($call)),*]
            },
            calls: $calls,
            expected: $expected,
        }
    };
}

/// Defines the items that the module of each age needs.
macro_rules! shop {
    () => {
        use super::super::*;

        pub(crate) struct Object;

        pub(crate) fn over(binding: Binding) -> ShopClient {
            ShopClient { binding }
        }
    };
}

mod enums;
mod structs;

pub(crate) fn all() -> Vec<Change> {
    let mut all = vec![
        structs::procedures::change(),
        structs::fields::change(),
        structs::options::change(),
        structs::plain_fields::change(),
        structs::parameters::change(),
        structs::buffers::change(),
        enums::open_enums::change(),
        enums::nameless::change(),
        enums::errors::change(),
        enums::names::change(),
        enums::widths::change(),
        enums::narrow::change(),
        enums::receivers::change(),
        enums::room::change(),
        enums::twice::change(),
    ];
    all.extend(forbidden::all());
    all
}
