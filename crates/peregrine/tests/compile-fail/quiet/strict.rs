//! What the macros write passes under lints that users may have, and among names they may use.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, unreachable_pub, unused_qualifications)]
#![deny(single_use_lifetimes, elided_lifetimes_in_paths, unused_lifetimes, trivial_casts)]
#![deny(missing_debug_implementations, unused_results, let_underscore_drop)]
#![allow(non_camel_case_types)]

/// Names that the generated code must not take for its own.
pub mod names {
    /// A module of the user's.
    pub mod core {}
    /// Another.
    pub mod std {}
    /// Not the prelude's.
    #[derive(Clone, Copy, Debug, peregrine::Plain)]
    #[repr(C)]
    pub struct T {
        /// A field that is also a name of ours.
        pub bytes: u8,
        /// Another.
        pub head: Flag,
    }
    /// Not the prelude's either.
    #[derive(Clone, Debug, peregrine::Value)]
    pub enum Option<Some> {
        /// Something.
        Ok(Some),
        /// Nothing.
        Err,
    }
    /// A flag.
    #[derive(Clone, Copy, Debug, peregrine::Plain)]
    #[repr(u8)]
    pub enum Flag {
        /// Not set.
        Down,
        /// Set.
        Up,
    }
    /// A function that looks like a variant.
    #[allow(non_snake_case)]
    pub fn Ok() {}
    /// Another.
    #[allow(non_snake_case)]
    pub fn Err() {}
    /// A type of the user's.
    #[derive(Clone, Debug, peregrine::Value)]
    pub struct Vec;

    /// An interface.
    #[peregrine::interface]
    pub trait Names {
        /// A procedure.
        #[allow(clippy::too_many_arguments)]
        fn call(
            &self,
            address: &str,
            options: &T,
            object: peregrine::Out<'_, T>,
            binding: &mut Vec,
            request: &mut [Vec],
            reply: &mut [T],
            number: peregrine::Lent<'_, Flag>,
            value: Option<u8>,
        ) -> peregrine::Result<Option<Vec>>;
    }
}

/// An interface without procedures.
#[peregrine::interface]
pub trait Empty {}

#[peregrine::interface]
trait Private {
    fn call(&self) -> peregrine::Result<()>;
}

struct Object;

impl Private for Object {
    fn call(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

fn main() {
    PrivateClient::in_process(Object).call().unwrap();
}
