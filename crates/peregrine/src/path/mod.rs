//! The paths that calls take. They meet only in [`CallPath`](crate::call::CallPath), its client half,
//! and [`ServerPath`](crate::serving::ServerPath), its server half.

pub(crate) mod bind;
pub(crate) mod datagram;
pub(crate) mod in_process;
pub(crate) mod local;
pub(crate) mod options;
pub(crate) mod stream;
