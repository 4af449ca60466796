//! What all paths of Courier share.
//!
//! * `answers`: what a server answers. `errors`: which errors a client reports for answers and failures.
//! * `program`: what a client must know about a program in order to bind to it.

pub(super) mod answers;
pub(super) mod errors;
pub(super) mod program;
