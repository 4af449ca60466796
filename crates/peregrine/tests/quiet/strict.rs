//! Generated code passes lints that users may enable, even if user items have the names of standard items.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused, unreachable_pub, unused_qualifications)]
#![deny(single_use_lifetimes, elided_lifetimes_in_paths, unused_lifetimes, trivial_casts)]
#![deny(missing_debug_implementations, unused_results, let_underscore_drop)]
#![allow(non_camel_case_types)]

/// The generated code must not mistake these items for the standard items or its own items of the same names.
pub mod names {
    /// A module with the name of the crate `core`.
    pub mod core {}
    /// A module with the name of the crate `std`.
    pub mod std {}
    /// A type with the name of a common type parameter.
    #[derive(Clone, Copy, Debug, peregrine::Plain)]
    #[repr(C)]
    pub struct T {
        /// A field with a name that the generated code also uses.
        pub bytes: u8,
        /// Another field with a name that the generated code also uses.
        pub head: Flag,
    }
    /// A type and a type parameter with names of the prelude.
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
    /// A function with the name of a variant of the prelude.
    #[allow(non_snake_case)]
    pub fn Ok() {}
    /// Another function with the name of a variant of the prelude.
    #[allow(non_snake_case)]
    pub fn Err() {}
    /// A type with a name of the prelude.
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
