//! The types without values, for a library without the feature `secure`.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use crate::address::Place;
use crate::call::Identified;
use crate::device::tcp::Stream;
use crate::error::{CallError, Phase};

#[derive(Clone, Debug)]
pub(crate) enum ClientSecurity {}

#[derive(Clone)]
pub(crate) enum ServerSecurity {}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecurityKey {}

pub(crate) enum SecureConnection {}

impl ClientSecurity {
    pub(crate) fn key(&self, _: &Place) -> SecurityKey {
        match *self {}
    }

    pub(crate) fn connect(
        &self,
        _: Stream,
        _: &Place,
        _: Instant,
    ) -> Result<(Stream, String), CallError> {
        match *self {}
    }
}

impl ServerSecurity {
    pub(crate) fn accept(&self, _: &mut Stream) -> io::Result<SecureConnection> {
        match *self {}
    }

    pub(crate) fn refused(&self, _: SocketAddr, _: &SecureConnection) {
        match *self {}
    }

    pub(crate) fn changes(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn still_trusts(&self, _: &SecureConnection) -> bool {
        match *self {}
    }
}

impl SecureConnection {
    pub(crate) fn peer(&self) -> Option<Identified> {
        match *self {}
    }
}

/// Returns the error for a connection that failed while its client bound.
pub(crate) fn explained(what: &str, error: io::Error) -> CallError {
    CallError::system(Phase::Bind, what.to_owned(), error)
}
