//! Remote procedure calls that cost what the distance costs, and nothing more.
#![deny(unsafe_code)]

pub mod digest;
