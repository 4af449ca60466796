//! The `#[interface]` attribute and the derives of Peregrine; use them through `peregrine`.
