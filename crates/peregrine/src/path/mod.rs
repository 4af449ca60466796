//! The paths that calls take. They meet only in [`CallPath`](crate::call::CallPath).

pub(crate) mod binding_table;
pub(crate) mod datagram;
pub(crate) mod in_process;
pub(crate) mod local;
pub(crate) mod serving;
pub(crate) mod stream;
