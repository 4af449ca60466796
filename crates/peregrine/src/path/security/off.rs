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

/// The clients that were refused. Without the feature, no client is refused.
#[derive(Default)]
pub(crate) struct Refusals;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecurityKey {}

pub(crate) enum SecureConnection {}

#[derive(Debug)]
pub(crate) enum AcceptedServer {}

impl AcceptedServer {
    pub(crate) fn in_words(&self) -> String {
        match *self {}
    }

    pub(crate) fn is_still_trusted(&self) -> bool {
        match *self {}
    }
}

impl ClientSecurity {
    pub(crate) fn key(&self, _: &Place) -> SecurityKey {
        match *self {}
    }

    pub(crate) fn connect(
        &self,
        _: Stream,
        _: &Place,
        _: Instant,
    ) -> Result<(Stream, AcceptedServer), CallError> {
        match *self {}
    }
}

impl ServerSecurity {
    pub(crate) fn accept(&self, _: &mut Stream) -> io::Result<SecureConnection> {
        match *self {}
    }

    pub(crate) fn changes(&self) -> u64 {
        match *self {}
    }
}

impl SecureConnection {
    pub(crate) fn peer(&self) -> Option<Identified> {
        match *self {}
    }

    pub(crate) fn ended(&self, _: SocketAddr) {
        match *self {}
    }

    pub(crate) fn is_trusted(&self) -> bool {
        match *self {}
    }
}

/// Returns the error for a connection that failed while its client bound.
pub(crate) fn explained(what: &str, error: io::Error) -> CallError {
    CallError::system(Phase::Bind, what.to_owned(), error)
}
