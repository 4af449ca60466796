//! Random interfaces that grow: clients and servers of all their ages call each other.

mod evolve;
mod forbidden;
mod noise;
mod properties;
mod reference;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/swapped.rs"]
mod swapped;
