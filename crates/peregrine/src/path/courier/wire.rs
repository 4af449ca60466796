//! What all paths of Courier share.
//!
//! * `answers`: what a server answers. `errors`: which errors a client reports for answers and failures.
//! * `payload`: the start of the payload of a call.
//! * `program`: what a client must know about a program in order to bind to it.

pub(super) mod answers;
pub(super) mod errors;
pub(super) mod payload;
pub(super) mod program;
