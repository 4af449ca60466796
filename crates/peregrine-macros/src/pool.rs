//! Generates pools: clients that call many servers of one name.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use crate::check::Interface;
use crate::{asynchronous, expand};

/// Generates the pool of blocking clients.
pub(crate) fn blocking(model: &Interface, client: &Ident) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let pool = format_ident!("{ident}Pool");
    let methods: TokenStream = model.methods.iter().map(expand::forwarded).collect();
    let bind = quote! {
        /// Binds to the servers of a name.
        ///
        /// # Errors
        /// Fails if no server of the name can be used.
        #visibility fn bind(
            address: &str,
        ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
            Self::bind_with(address, &::core::default::Default::default())
        }

        /// Binds with options, such as how servers are chosen.
        ///
        /// # Errors
        /// Fails in the same cases as `bind`.
        #visibility fn bind_with(
            address: &str,
            options: &::peregrine::__rt::BindOptions,
        ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
            let binding = ::peregrine::__rt::Binding::pool(address, #client::INTERFACE, options)?;
            ::core::result::Result::Ok(Self { client: #client { binding } })
        }
    };
    items(model, &pool, client, ident, &bind, &methods)
}

/// Generates the pool of clients whose calls are futures. `blocking` is the blocking client, which has the
/// description of the interface.
pub(crate) fn asynchronous(
    model: &Interface,
    client: &Ident,
    interface: &Ident,
    blocking: &Ident,
) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let pool = format_ident!("{ident}AsyncPool");
    let methods: TokenStream = model.methods.iter().map(asynchronous::forwarded).collect();
    let bind = quote! {
        /// Binds to the servers of a name.
        ///
        /// # Errors
        /// If no server of the name can be used.
        #visibility async fn bind(
            address: &str,
        ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
            Self::bind_with(address, &::core::default::Default::default()).await
        }

        /// Binds with options, such as how servers are chosen.
        ///
        /// # Errors
        /// As `bind`.
        #visibility async fn bind_with(
            address: &str,
            options: &::peregrine::__rt::BindOptions,
        ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
            let binding =
                ::peregrine::__rt::pool_async(address, #blocking::INTERFACE, options).await?;
            ::core::result::Result::Ok(Self { client: #client { binding } })
        }
    };
    items(model, &pool, client, interface, &bind, &methods)
}

fn items(
    model: &Interface,
    pool: &Ident,
    client: &Ident,
    interface: &Ident,
    bind: &TokenStream,
    methods: &TokenStream,
) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let what = format!(
        "A client of the servers of a name that export [`{ident}`]. Each call takes one of the servers. It is cheap \
         to clone, and has all functions of [`{client}`]."
    );
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #pool {
            client: #client,
        }

        #[allow(dead_code)]
        impl #pool {
            #bind

            /// Returns the servers of the name, and whether the pool uses them.
            #visibility fn servers(&self) -> ::std::vec::Vec<::peregrine::__rt::PoolServer> {
                self.client.binding.servers()
            }
        }

        impl ::core::ops::Deref for #pool {
            type Target = #client;

            fn deref(&self) -> &Self::Target {
                &self.client
            }
        }

        #[allow(deprecated)]
        impl #interface for #pool {
            #methods
        }
    }
}
