//! Tests random interfaces that change step by step. The interface after each step is an *age*. Clients and
//! servers of all ages call each other. Clients read or refuse hostile descriptions and hostile results.

mod evolve;
mod forbidden;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/heap.rs"]
mod heap;
mod hostile;
mod noise;
mod properties;
mod reference;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../support/swapped.rs"]
mod swapped;

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;
