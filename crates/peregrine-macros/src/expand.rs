//! Generates code from the model of an interface: a client that implements the trait, and a server that calls
//! an object.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ItemTrait, Type, TypeParamBound};

use crate::check::{self, Form, Interface, Method, Parameter};
use crate::oneway;
use crate::parse::{self, Errors};
use crate::{asynchronous, descriptor, pool};
use crate::{programs, types};

/// Returns the trait and its stubs. If the trait has errors, returns the trait and these errors.
pub(crate) fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::default();
    let arguments = parse::arguments(arguments, &mut errors);
    let mut item_trait = match parse::item_trait(item.clone()) {
        Ok(item_trait) => item_trait,
        Err(error) => {
            let error = error.into_compile_error();
            return quote!(#error #item);
        }
    };
    match check::interface(arguments, &mut item_trait, errors) {
        Ok(mut model) => {
            types::name(&mut model);
            stubs(&item_trait, &model)
        }
        Err(error) => {
            let error = error.into_compile_error();
            quote!(#error #item_trait)
        }
    }
}

fn stubs(item_trait: &ItemTrait, model: &Interface) -> TokenStream {
    let names = Names {
        client: format_ident!("{}Client", model.ident),
        server: format_ident!("{}Server", model.ident),
    };
    let pool = pool::blocking(model, &names.client);
    let client = client(model, &names);
    let server = server(model, &names);
    let shared = shared(item_trait, model);
    let asynchronous =
        cfg!(feature = "async").then(|| asynchronous::items(item_trait, model, &names.client));
    let callable = callable(model, &names);
    let programs = programs::items(model, &names.client);
    quote!(#item_trait #client #pool #server #shared #callable #programs #asynchronous)
}

/// Generates implementations of the trait for `Arc`, `Box` and `&` of an object that implements the trait.
/// With them, a server can export a shared object.
fn shared(item_trait: &ItemTrait, model: &Interface) -> TokenStream {
    let ident = &model.ident;
    let methods: TokenStream = model.methods.iter().map(forwarded).collect();
    let is_static = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Lifetime(lifetime) if lifetime.ident == "static");
    let (lifetime, borrowed) = match item_trait.supertraits.iter().any(is_static) {
        true => (None, quote!(&'static __Object)),
        false => (Some(quote!('__object,)), quote!(&'__object __Object)),
    };
    let owned = [quote!(::std::sync::Arc<__Object>), quote!(::std::boxed::Box<__Object>)];
    quote! {
        #(
            #[allow(deprecated)]
            impl<__Object: #ident + ?::core::marker::Sized> #ident for #owned {
                #methods
            }
        )*

        #[allow(deprecated)]
        impl<#lifetime __Object: #ident + ?::core::marker::Sized> #ident for #borrowed {
            #methods
        }
    }
}

/// Generates a method that calls the same method of the object to which `self` points.
pub(crate) fn forwarded(method: &Method) -> TokenStream {
    let Method { ident, returns, parameters, .. } = method;
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.ident).collect();
    let types = parameters.iter().map(|parameter| &parameter.written);
    // Here the name of the method gets another span, so that the compiler reports an error about a type only
    // in the trait.
    let mut called = ident.clone();
    called.set_span(Span::call_site());
    quote! {
        fn #ident(&self, #(#names: #types),*) -> #returns {
            (**self).#called(#(#names),*)
        }
    }
}

struct Names {
    client: Ident,
    server: Ident,
}

fn client(model: &Interface, names: &Names) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let Names { client, server } = names;
    let description = description(model, client);
    let what = format!(
        "A client of [`{ident}`], which implements the trait by calling a server. It is cheap to clone, \
         and any number of threads can share one."
    );
    let has_oneway = oneway::has_oneway(model);
    let methods = (0u32..)
        .zip(&model.methods)
        .map(|(number, method)| client_method(model, number, method, has_oneway));
    let flush = oneway::flush(model, false);
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #client {
            binding: ::peregrine::__rt::Binding,
        }

        #[allow(dead_code)]
        impl #client {
            /// The description of the interface, which client and server compare.
            #visibility const INTERFACE: &'static ::peregrine::__rt::Interface = #description;

            /// Binds to the export at a name or address.
            ///
            /// # Errors
            /// Fails if there is no such export, or if the client cannot use the interface of the export.
            #visibility fn bind(
                address: &str,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                Self::bind_with(address, &::core::default::Default::default())
            }

            /// Binds with options.
            ///
            /// # Errors
            /// Fails in the same cases as `bind`.
            #visibility fn bind_with(
                address: &str,
                options: &::peregrine::__rt::BindOptions,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                let binding = ::peregrine::__rt::Binding::bind(address, Self::INTERFACE, options)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client that calls an object of this process through the same stubs. It is for tests.
            ///
            /// # Panics
            /// Panics if there is no memory for the A-stacks, which hold the messages of the client's calls.
            #visibility fn in_process<__Object>(object: __Object) -> Self
            where
                __Object: #ident + ::core::marker::Send + ::core::marker::Sync + 'static,
            {
                Self::in_process_with(object, &::core::default::Default::default())
            }

            /// Returns a client as `in_process` does, with options.
            ///
            /// # Panics
            /// Panics if there is no memory for the A-stacks, which hold the messages of the client's calls.
            #visibility fn in_process_with<__Object>(
                object: __Object,
                options: &::peregrine::__rt::BindOptions,
            ) -> Self
            where
                __Object: #ident + ::core::marker::Send + ::core::marker::Sync + 'static,
            {
                let server = ::std::sync::Arc::new(#server::new(object));
                Self {
                    binding: ::peregrine::__rt::Binding::in_process(server, options),
                }
            }

            /// Returns a client that calls a server of this process through the same stubs. It is for tests.
            /// The interface of the server may be older or newer than that of the client.
            ///
            /// # Errors
            /// Fails if the client cannot use the server's interface.
            #visibility fn in_process_to(
                server: impl ::peregrine::__rt::Serve + 'static,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                let binding = ::peregrine::__rt::Binding::in_process_as(
                    Self::INTERFACE,
                    ::std::sync::Arc::new(server),
                    &::core::default::Default::default(),
                )?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client whose calls take at most `limit`.
            #[must_use]
            #visibility fn with_timeout(&self, limit: ::core::time::Duration) -> Self {
                let limit = ::peregrine::__rt::Limit::Within(limit);
                Self {
                    binding: self.binding.with_limit(limit),
                }
            }

            /// Returns a client whose calls have the deadline `moment`.
            #[must_use]
            #visibility fn with_deadline(&self, moment: ::std::time::Instant) -> Self {
                let limit = ::peregrine::__rt::Limit::Until(moment);
                Self {
                    binding: self.binding.with_limit(limit),
                }
            }

            /// Returns a client that sends a further pair of metadata with each of its calls. The pair
            /// replaces a pair with the same key.
            ///
            /// # Errors
            /// Fails if the key is invalid, there would be too much metadata, or the server cannot take any.
            #visibility fn with_metadata(
                &self,
                key: &::core::primitive::str,
                value: &::core::primitive::str,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                let binding = self.binding.with_metadata(key, value)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client that sends the metadata of a caller with each of its calls.
            ///
            /// # Errors
            /// Fails if there would be too much metadata, or the server cannot take any.
            #visibility fn with_metadata_of(&self, caller: &::peregrine::__rt::Caller) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                let binding = self.binding.with_metadata_of(caller)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client whose calls are recorded, for an account of where their time goes.
            ///
            /// # Panics
            /// If the accounting was begun with the binding of another client, or this client has metadata.
            #[must_use]
            #visibility fn with_accounting(&self, accounting: &::peregrine::__rt::Accounting) -> Self {
                Self {
                    binding: self.binding.with_accounting(accounting),
                }
            }

            /// Returns the binding of the client.
            #visibility fn binding(&self) -> &::peregrine::__rt::Binding {
                &self.binding
            }

            /// Returns whether the connection to the server is open. This is what the client knows without a
            /// call.
            #visibility fn is_alive(&self) -> bool {
                self.binding.is_alive()
            }

            #flush
        }

        #[allow(deprecated)]
        impl #ident for #client {
            #(#methods)*
        }
    }
}

/// Generates the description of the interface as constant data.
fn description(model: &Interface, client: &Ident) -> TokenStream {
    let Interface { name, version, docs, methods, .. } = model;
    let programs = programs::described(model);
    let procedures = methods.iter().map(|method| {
        let Method { ident, docs, idempotent, oneway, was, parameters, outcome, .. } = method;
        let name = ident.unraw().to_string();
        let parameters = parameters.iter().map(described_parameter);
        let at = outcome.span();
        let outcome = quote_spanned!(at=> <#outcome as ::peregrine::__rt::Outcome>);
        let result = quote_spanned!(at=> #outcome::OK_TYPE);
        let error = quote_spanned!(at=> #outcome::ERR_TYPE);
        quote! {
            ::peregrine::__rt::Procedure {
                name: #name,
                docs: #docs,
                idempotent: #idempotent,
                oneway: #oneway,
                was: &[#(#was),*],
                parameters: &[#(#parameters),*],
                result: &#result,
                error: &#error,
            }
        }
    });
    quote! {
        &::peregrine::__rt::Interface {
            name: #name,
            version: #version,
            docs: #docs,
            procedures: &[#(#procedures),*],
            programs: &[#(#programs),*],
            digest: || {
                static DIGEST: ::std::sync::OnceLock<::peregrine::__rt::Digest> =
                    ::std::sync::OnceLock::new();
                *DIGEST.get_or_init(|| #client::INTERFACE.compute_digest())
            },
        }
    }
}

fn described_parameter(parameter: &Parameter) -> TokenStream {
    let name = parameter.ident.unraw().to_string();
    let ty = &parameter.ty;
    let (direction, shape) = match parameter.form {
        Form::Value | Form::Borrowed => ("In", "One"),
        Form::Text => ("In", "Text"),
        Form::Slice => ("In", "Buffer"),
        Form::Lent => ("Lent", "Buffer"),
        Form::Out => ("Out", "Buffer"),
        Form::InOut => ("InOut", "One"),
        Form::InOutSlice => ("InOut", "Buffer"),
        Form::Sink => ("Sink", "One"),
        Form::Source => ("Source", "One"),
        Form::Callback { .. } => ("Callback", "One"),
    };
    let (direction, shape) = (format_ident!("{direction}"), format_ident!("{shape}"));
    let growth = parameter.growth.described(ty);
    let ty = match parameter.form {
        Form::Text => quote!(::peregrine::__rt::Type::Text),
        Form::Callback { .. } => {
            quote_spanned!(ty.span()=> <#ty as ::peregrine::__rt::Callable>::TYPE)
        }
        _ => {
            quote_spanned!(ty.span()=> <#ty as ::peregrine::__rt::Value>::TYPE)
        }
    };
    let max_len = match &parameter.max_len {
        Some(max_len) => quote! {
            ::core::option::Option::Some({
                let max_len: u32 = #max_len;
                max_len
            })
        },
        None => quote!(::core::option::Option::None),
    };
    quote! {
        ::peregrine::__rt::Parameter {
            name: #name,
            direction: ::peregrine::__rt::Direction::#direction,
            shape: ::peregrine::__rt::Shape::#shape,
            ty: &#ty,
            max_len: #max_len,
            growth: #growth,
        }
    }
}

/// Generates the maximum length of a buffer, as an argument for a function of the library.
pub(crate) fn limit(max_len: Option<&Expr>) -> TokenStream {
    match max_len {
        Some(max_len) => quote! {
            const {
                let max_len: u32 = #max_len;
                max_len as usize
            }
        },
        None => quote!(::core::primitive::usize::MAX),
    }
}

/// The generated code for a parameter in the client stub.
#[derive(Default)]
pub(crate) struct Sent {
    pub(crate) marshal: TokenStream,
    pub(crate) ins: TokenStream,
    pub(crate) lent: TokenStream,
    pub(crate) outs: TokenStream,
    pub(crate) take: TokenStream,
    pub(crate) assign: TokenStream,
}

impl Sent {
    pub(crate) fn new(parameter: &Parameter) -> Self {
        let Parameter { ident, ty, .. } = parameter;
        let block = format_ident!("__block_{}", ident);
        let back = format_ident!("__back_{}", ident);
        let limit = limit(parameter.max_len.as_ref());
        let none = Self::default();
        match parameter.form {
            Form::Value => Self { marshal: quote!(__stub.value::<#ty>(&#ident)?;), ..none },
            Form::Borrowed => Self { marshal: quote!(__stub.value::<#ty>(#ident)?;), ..none },
            Form::Text => Self {
                marshal: quote!(let #block = __stub.text(#ident, #limit)?;),
                ins: quote!(#block,),
                ..none
            },
            Form::Slice => Self {
                marshal: quote!(let #block = __stub.slice::<#ty>(#ident, #limit)?;),
                ins: quote!(#block,),
                ..none
            },
            Form::Lent => Self {
                marshal: quote!(let #block = __stub.lent::<#ty>(&#ident, #limit)?;),
                lent: quote!(#block,),
                ..none
            },
            Form::Out => Self {
                marshal: quote!(let #block = __stub.out::<#ty>(&mut #ident, #limit)?;),
                outs: quote!(#block,),
                ..none
            },
            Form::InOut => Self {
                marshal: quote!(__stub.value::<#ty>(&*#ident)?;),
                take: quote!(let #back = __returned.value::<#ty>()?;),
                assign: quote!(*#ident = #back;),
                ..none
            },
            Form::InOutSlice => Self {
                marshal: quote!(let #block = __stub.in_out::<#ty>(&mut *#ident, #limit)?;),
                ins: quote!(#block.contents(),),
                outs: quote!(#block,),
                take: quote!(let #back = __returned.values::<#ty>(#ident.len())?;),
                assign: quote!(::peregrine::__rt::assign(&mut *#ident, #back);),
                ..none
            },
            Form::Sink | Form::Source | Form::Callback { .. } => Self {
                marshal: quote!(__stub.value::<[u32; 8]>(&__streams.next_opening())?;),
                ..none
            },
        }
    }
}

fn client_method(model: &Interface, number: u32, method: &Method, has_oneway: bool) -> TokenStream {
    let Method { ident, returns, outcome, .. } = method;
    let parameters = method.parameters.iter().map(|one| {
        let Parameter { ident, written, .. } = one;
        let mutable = (one.form == Form::Out).then(|| quote!(mut));
        quote!(#mutable #ident: #written)
    });
    if method.has_streams() {
        // Items are moved while the call is pending, so the call is made as a future.
        let body = asynchronous::client_body(model, number, method, has_oneway);
        return quote! {
            fn #ident(&self, #(#parameters),*) -> #returns {
                ::peregrine::__rt::wait_for(async { #body })
            }
        };
    }
    let sent: Vec<_> = method.parameters.iter().map(Sent::new).collect();
    let marshal = sent.iter().map(|one| &one.marshal);
    let blocks = sent.iter().any(|one| !one.ins.is_empty() || !one.lent.is_empty());
    let head_only = (!blocks).then(|| quote!(__stub.head_only();));
    let (ins, lent) = (sent.iter().map(|one| &one.ins), sent.iter().map(|one| &one.lent));
    let outs = sent.iter().map(|one| &one.outs);
    let (take, assign) = (sent.iter().map(|one| &one.take), sent.iter().map(|one| &one.assign));
    let as_result = as_result(outcome);
    // In-out values are assigned only after all of them were read, so that a failed call changes none of
    // them.
    let finish = if method.parameters.iter().any(|one| one.form.is_in_out()) {
        quote! {
            if #as_result.is_ok() {
                #(#take)*
                __returned.finish()?;
                #(#assign)*
            } else {
                __returned.finish()?;
            }
        }
    } else {
        quote!(__returned.finish()?;)
    };
    // The closure only borrows the arguments, because it runs a second time if the call is repeated.
    let body = quote! {
        |__stub| {
            #head_only
            #(#marshal)*
            let mut __returned = __stub.transport(&[#(#ins)*], &[#(#lent)*], &mut [#(#outs)*])?;
            let __result = __returned.result::<#outcome>()?;
            #finish
            ::core::result::Result::Ok(__result)
        }
    };
    let code = if method.oneway {
        let foreign = programs::in_place(model, number, method);
        let in_place = quote!({ #foreign { __in_place.make::<#outcome>(#number, #body, #body) } });
        oneway::body(model, number, method, false, &in_place)
    } else {
        let (before, binding) = oneway::before(has_oneway, false, number, outcome);
        let foreign = programs::calls(model, number, method, &binding);
        quote! {
            #before
            let __target = ::peregrine::__rt::target(#binding);
            if __target.is_native(#number) {
                ::peregrine::__rt::call::<#outcome>(__target, #number, #body)
            } #foreign else {
                ::peregrine::__rt::call_swapped::<#outcome>(#binding, #number, #body)
            }
        }
    };
    quote! {
        #[inline]
        fn #ident(&self, #(#parameters),*) -> #returns {
            #code
        }
    }
}

/// Generates the conversion of a method's result to a `Result`.
pub(crate) fn as_result(outcome: &Type) -> TokenStream {
    quote_spanned! {outcome.span()=>
        <#outcome as ::peregrine::__rt::Outcome>::as_result(&__result)
    }
}

fn server(model: &Interface, names: &Names) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let Names { client, server } = names;
    let what =
        format!("A server of [`{ident}`], which answers calls with an object of this process.");
    let arms =
        (0u32..).zip(&model.methods).map(|(number, method)| server_arm(number, method, ident));
    let descriptors = descriptor::server_side(model);
    let foreign = programs::serves(model, |method, pass| {
        let method = &method.ident;
        quote!(<__Object as #ident>::#method(&self.object, #(#pass),*))
    });
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #[derive(::core::fmt::Debug)]
        #visibility struct #server<__Object> {
            object: __Object,
        }

        #[allow(dead_code)]
        impl<__Object> #server<__Object>
        where
            __Object: #ident + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            /// Returns a server that calls `object`. It may call the object from many threads at the same
            /// time.
            #visibility fn new(object: __Object) -> Self {
                Self { object }
            }
        }

        #[allow(deprecated)]
        impl<__Object> ::peregrine::__rt::Serve for #server<__Object>
        where
            __Object: #ident + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            fn interface(&self) -> ::peregrine::__rt::InterfaceRef {
                ::peregrine::__rt::InterfaceRef::from(#client::INTERFACE)
            }

            #descriptors

            #[inline]
            fn serve(
                &self,
                __request: &mut ::peregrine::__rt::Request<'_>,
                __reply: &mut ::peregrine::__rt::Reply<'_>,
            ) -> ::peregrine::__rt::Served {
                Self::__serve(&self.object, __request, __reply)
            }

            #foreign
        }

        #[allow(deprecated)]
        impl<__Object: #ident> #server<__Object> {
            /// Serves a call with an object that may belong to no server, such as the object of a callback.
            #[inline(always)]
            fn __serve(
                __object: &__Object,
                __request: &mut ::peregrine::__rt::Request<'_>,
                __reply: &mut ::peregrine::__rt::Reply<'_>,
            ) -> ::peregrine::__rt::Served {
                match __request.procedure() {
                    #(#arms)*
                    __number => ::core::result::Result::Err(
                        ::peregrine::__rt::Refusal::no_such_procedure(__number),
                    ),
                }
            }
        }
    }
}

/// Generates what callbacks of the interface need. Each interface is dyn-compatible, because `check` refuses
/// generic and async methods, `Self` in methods, and all supertraits but `Send`, `Sync` and `'static`.
fn callable(model: &Interface, names: &Names) -> TokenStream {
    let Interface { ident, name, .. } = model;
    let Names { client, server } = names;
    quote! {
        #[allow(deprecated)]
        #[diagnostic::do_not_recommend]
        impl ::peregrine::__rt::Callable for dyn #ident + '_ {
            type Is = Self;
            const INTERFACE: &'static ::peregrine::__rt::Interface = #client::INTERFACE;
            const TYPE: ::peregrine::__rt::Type =
                ::peregrine::__rt::Type::Named(::peregrine::__rt::Named {
                    name: #name,
                    path: ::core::any::type_name::<Self>,
                    body: || ::peregrine::__rt::Body::Interface(#client::INTERFACE),
                });
            type Client = #client;

            fn client(binding: ::peregrine::__rt::Binding) -> Self::Client {
                #client { binding }
            }

            fn of_client(client: &Self::Client) -> &Self {
                client
            }

            fn serve_client(
                client: &Self::Client,
                request: &mut ::peregrine::__rt::Request<'_>,
                reply: &mut ::peregrine::__rt::Reply<'_>,
            ) -> ::peregrine::__rt::Served {
                #server::<#client>::__serve(client, request, reply)
            }
        }

        #[allow(deprecated)]
        impl<'__object, __Object> ::peregrine::__rt::CallableBy<__Object> for dyn #ident + '__object
        where
            __Object: #ident + ::core::marker::Send + ::core::marker::Sync + '__object,
        {
            fn of(object: &__Object) -> &Self {
                object
            }

            fn serve(
                object: &__Object,
                request: &mut ::peregrine::__rt::Request<'_>,
                reply: &mut ::peregrine::__rt::Reply<'_>,
            ) -> ::peregrine::__rt::Served {
                #server::<__Object>::__serve(object, request, reply)
            }
        }
    }
}

/// The generated code for a parameter in the server stub.
#[derive(Default)]
struct Received {
    take: TokenStream,
    pass: TokenStream,
    /// Code that completes the block of the parameter in the reply. For an out parameter, it records how many
    /// bytes are filled. For an in-out parameter, it copies the values to the block.
    block: TokenStream,
    /// Code that appends an in-out value to the head of the reply.
    head: TokenStream,
}

impl Received {
    /// Generates the code for a parameter. `out` is the number of blocks of the reply before this parameter.
    fn new(parameter: &Parameter, out: &mut usize) -> Self {
        let Parameter { ident, ty, .. } = parameter;
        let own = format_ident!("__arg_{}", ident);
        // This is the same variable, but at the position of the type, so that the compiler reports errors at
        // the type.
        let mut here = own.clone();
        here.set_span(own.span().located_at(ty.span()));
        let limit = limit(parameter.max_len.as_ref());
        let index = *out;
        let none = Self::default();
        match parameter.form {
            Form::Value => Self {
                take: quote!(let #own = __request.value::<#ty>()?;),
                pass: quote!(#own),
                ..none
            },
            Form::Borrowed => Self {
                take: quote!(let #own = __request.value::<#ty>()?;),
                pass: quote!(&#own),
                ..none
            },
            Form::Text => Self {
                take: quote!(let #own = __request.text(#limit)?;),
                pass: quote!(#own),
                ..none
            },
            Form::Slice => Self {
                take: quote!(let #own = __request.slice::<#ty>(#limit)?;),
                pass: quote!(&#own),
                ..none
            },
            Form::Lent => Self {
                take: quote!(let #own = __request.lent::<#ty>(#limit)?;),
                pass: quote!(#own),
                ..none
            },
            Form::Out => {
                *out += 1;
                let filled = format_ident!("__filled_{}", ident);
                Self {
                    take: quote! {
                        let mut #filled = 0usize;
                        let #own = __request.out::<#ty>(__reply, &mut #filled, #limit)?;
                    },
                    pass: quote!(#own),
                    block: quote! {
                        __reply.filled(#index, #filled * ::core::mem::size_of::<#ty>())?;
                    },
                    ..none
                }
            }
            Form::InOut => Self {
                take: quote!(let mut #own = __request.value::<#ty>()?;),
                pass: quote!(&mut #own),
                head: quote_spanned! {ty.span()=>
                    <#ty as ::peregrine::__rt::Value>::encode(&#here, __head)?;
                },
                ..none
            },
            Form::InOutSlice => {
                *out += 1;
                Self {
                    take: quote!(let mut #own = __request.in_out::<#ty>(__reply, #limit)?;),
                    pass: quote!(&mut #own),
                    block: quote_spanned!(ty.span()=> __reply.in_out::<#ty>(#index, &#here)?;),
                    head: quote_spanned! {ty.span()=>
                        <::peregrine::__rt::InOut<'_, '_, #ty>>::encode(&#here, __head)?;
                    },
                }
            }
            Form::Sink => Self {
                take: quote!(let #own = __request.sink::<#ty>()?;),
                pass: quote!(#own),
                ..none
            },
            Form::Source => Self {
                take: quote!(let #own = __request.source::<#ty>()?;),
                pass: quote!(#own),
                ..none
            },
            Form::Callback { kept } => {
                let open = opener(kept, ty);
                Self { take: quote!(let #own = #open(__request)?;), pass: quote!(#own), ..none }
            }
        }
    }
}

/// Returns the path of the function with which the server stub reads a callback from a request. `kept` is
/// whether the procedure may keep the callback after the call.
pub(crate) fn opener(kept: bool, ty: &Type) -> TokenStream {
    let name = format_ident!("{}", if kept { "open_kept" } else { "open" });
    quote_spanned!(ty.span()=> <#ty as ::peregrine::__rt::Callable>::#name)
}

fn server_arm(number: u32, method: &Method, interface: &Ident) -> TokenStream {
    let Method { ident, outcome, .. } = method;
    let as_result = as_result(outcome);
    let mut outs = 0;
    let received: Vec<_> =
        method.parameters.iter().map(|one| Received::new(one, &mut outs)).collect();
    let expect = (outs > 0).then(|| quote!(__reply.expect(#outs);));
    let head_only = (outs == 0).then(|| quote!(__reply.head_only();));
    let (take, pass) = (received.iter().map(|one| &one.take), received.iter().map(|one| &one.pass));
    let blocks = received.iter().map(|one| &one.block);
    let heads: TokenStream = received.iter().map(|one| one.head.to_token_stream()).collect();
    let more = if heads.is_empty() {
        quote!(|_| ::core::result::Result::Ok(()))
    } else {
        quote!(|__head| { #heads ::core::result::Result::Ok(()) })
    };
    let at = outcome.span();
    let ok = quote_spanned!(at=> __reply.ok(__value, #more));
    let err = quote_spanned!(at=> __reply.err(__error));
    quote! {
        #number => {
            #expect
            #(#take)*
            __request.finish()?;
            #head_only
            let __result: #outcome =
                <__Object as #interface>::#ident(__object, #(#pass),*);
            match #as_result {
                ::core::result::Result::Ok(__value) => {
                    #(#blocks)*
                    #ok
                }
                ::core::result::Result::Err(__error) => #err,
            }
        }
    }
}
