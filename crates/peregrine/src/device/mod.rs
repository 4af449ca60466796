//! What moves bytes between machines, with no knowledge of what they mean.

pub(crate) mod tcp;
pub(crate) mod udp;
