//! The paths that calls take. The rest of the library sees a path only through three traits:
//! [`Connect`](bind::Connect) and [`CallPath`](crate::call::CallPath) on the client, and
//! [`ServerPath`](crate::serving::ServerPath) on the server.

pub(crate) mod auth_sys;
pub(crate) mod balance;
pub(crate) mod bind;
pub(crate) mod callback;
mod connections;
pub(crate) mod courier;
pub(crate) mod datagram;
mod foreign;
pub(crate) mod in_process;
mod leader;
pub(crate) mod local;
pub(crate) mod onc;
pub(crate) mod options;
mod receivers;
mod rings;
pub(crate) mod security;
mod slots;
pub(crate) mod stream;
mod tidying;
mod yielding;

pub(crate) use connections::table::ConnectionTerms;

use crate::error::Executed;
use crate::protocol::exchange::client_end;

impl From<client_end::Executed> for Executed {
    fn from(executed: client_end::Executed) -> Self {
        match executed {
            client_end::Executed::No => Self::No,
            client_end::Executed::Maybe => Self::Maybe,
        }
    }
}
