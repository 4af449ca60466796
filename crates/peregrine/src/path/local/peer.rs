//! What a client keeps for each server process. All bindings to that process share it.

pub(crate) mod session;
