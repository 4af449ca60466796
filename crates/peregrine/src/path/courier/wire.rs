//! What all paths of Courier share.
//!
//! * `answers`: what a server answers. `errors`: what a client makes of answers and failures.
//! * `payload`: the start of the payload of a call.
//! * `program`: what a client needs to know of a program in order to bind to it.

pub(super) mod answers;
pub(super) mod errors;
pub(super) mod payload;
pub(super) mod program;
