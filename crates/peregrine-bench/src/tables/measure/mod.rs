//! Measures what the tables show, with the subjects of the other experiments.

pub(super) mod accounts;
pub(crate) mod census;
pub(super) mod hardware;
pub(super) mod local;
pub(crate) mod marshalled;
pub(super) mod network;
pub(super) mod processors;
pub(super) mod versions;

pub(super) mod routine;
