//! The figures of the papers. The figures of the stub study and of Courier are in `stubs/paper.rs` and
//! `larus/paper.rs`.

pub(super) mod firefly;
pub(super) mod lampson;
pub(super) mod lrpc;
pub(super) mod peregrine;
