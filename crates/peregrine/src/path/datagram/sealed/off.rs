//! The types without values, for a library without the feature `secure`.

use std::sync::{Arc, Weak};
use std::time::Instant;

use super::{ClientChannel, ConnectionNumber, SealHost, Wants};
use crate::call::Identified;
use crate::device::sealed::PacketSeal;
use crate::device::{Route, Socket};
use crate::error::CallError;
use crate::path::security::ServerSecurity;
use crate::protocol::exchange::bind::{Cookie, Cookies, Nonce};
use crate::protocol::exchange::time::Moment;

pub(crate) fn shake_hands(
    wants: Wants<'_>,
    _: (&Socket, &Route),
    _: (Nonce, Cookie),
    _: Instant,
) -> Result<ClientChannel, CallError> {
    match *wants.security {}
}

pub(crate) enum ServerSeal {}

impl ServerSeal {
    pub(crate) fn new(security: ServerSecurity, _: Cookies, _: Weak<dyn SealHost>) -> Arc<Self> {
        match security {}
    }

    pub(crate) fn seal(self: &Arc<Self>) -> Arc<dyn PacketSeal> {
        match **self {}
    }

    pub(crate) fn rejected(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn peer(&self, _: &ConnectionNumber) -> Option<Identified> {
        match *self {}
    }

    pub(crate) fn note_handles(&self, _: &Nonce, _: i32) {
        match *self {}
    }

    pub(crate) fn check(&self, _: Moment) -> (Vec<ConnectionNumber>, bool) {
        match *self {}
    }
}
