//! The paths that calls take. They meet only in [`CallPath`](crate::call::CallPath).

pub(crate) mod datagram;
pub(crate) mod in_process;
pub(crate) mod local;
pub(crate) mod rows;
pub(crate) mod serving;
pub(crate) mod stream;
