//! Model to code: the client that implements the trait, the server that answers with an object.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Expr, ItemTrait, TypeParamBound};

use crate::check::{self, Form, Interface, Method, Parameter};
use crate::generated_at;
use crate::parse::{self, Errors};

/// The trait with its stubs; or the trait with what is wrong with it.
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
        Ok(model) => stubs(&item_trait, &model),
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
    let client = client(model, &names);
    let server = server(model, &names);
    let shared = shared(item_trait, model);
    quote!(#item_trait #client #server #shared)
}

/// What refers to an object that implements the trait does so too: an object that is shared can be
/// served as it is.
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

/// A method that calls that of what `self` refers to.
fn forwarded(method: &Method) -> TokenStream {
    let Method { ident, returns, parameters, .. } = method;
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.ident).collect();
    let types = parameters.iter().map(|parameter| &parameter.written);
    // What is wrong with a type is said where it is written, and once.
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
        "A client of [`{ident}`]: implements it by calling a server. Cheap to clone; any number \
         of threads call through one."
    );
    let methods =
        (0u32..).zip(&model.methods).map(|(number, method)| client_method(number, method));
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #client {
            binding: ::peregrine::__rt::Binding,
        }

        #[allow(dead_code)]
        impl #client {
            /// What is served: the description that both sides compare.
            #visibility const INTERFACE: &'static ::peregrine::__rt::Interface = #description;

            /// Binds to the export of this name or address.
            ///
            /// # Errors
            /// If nobody exports it here, or what is exported is another interface.
            #visibility fn bind(
                address: &str,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                Self::bind_with(address, &::core::default::Default::default())
            }

            /// Binds with options.
            ///
            /// # Errors
            /// As `bind`.
            #visibility fn bind_with(
                address: &str,
                options: &::peregrine::__rt::BindOptions,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::CallError> {
                let binding = ::peregrine::__rt::Binding::bind(address, Self::INTERFACE, options)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Makes the same calls through the same stubs, inside this process: for tests.
            ///
            /// # Panics
            /// If there is no memory for its A-stacks.
            #visibility fn in_process<__Object>(object: __Object) -> Self
            where
                __Object: #ident + ::core::marker::Send + ::core::marker::Sync + 'static,
            {
                Self::in_process_with(object, &::core::default::Default::default())
            }

            /// As `in_process`, with options.
            ///
            /// # Panics
            /// If there is no memory for its A-stacks.
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

            /// The same client, whose calls each wait no longer than `limit` from their beginning.
            #[must_use]
            #visibility fn with_timeout(&self, limit: ::core::time::Duration) -> Self {
                let limit = ::peregrine::__rt::Limit::Within(limit);
                Self {
                    binding: self.binding.with_limit(limit),
                }
            }

            /// The same client, whose calls wait until `moment` and no longer.
            #[must_use]
            #visibility fn with_deadline(&self, moment: ::std::time::Instant) -> Self {
                let limit = ::peregrine::__rt::Limit::Until(moment);
                Self {
                    binding: self.binding.with_limit(limit),
                }
            }

            /// The binding that the calls go through.
            #visibility fn binding(&self) -> &::peregrine::__rt::Binding {
                &self.binding
            }

            /// Whether the server's session still stands, as far as is known without asking.
            #visibility fn is_alive(&self) -> bool {
                self.binding.is_alive()
            }
        }

        #[allow(deprecated)]
        impl #ident for #client {
            #(#methods)*
        }
    }
}

/// The interface as constant data.
fn description(model: &Interface, client: &Ident) -> TokenStream {
    let Interface { name, version, docs, methods, .. } = model;
    let procedures = methods.iter().map(|method| {
        let Method { ident, docs, idempotent, parameters, returns } = method;
        let name = ident.unraw().to_string();
        let parameters = parameters.iter().map(described_parameter);
        let at = generated_at(returns.span());
        let outcome = quote_spanned!(at=> <#returns as ::peregrine::__rt::Outcome>);
        let result = quote_spanned!(at=> <#outcome::Ok as ::peregrine::__rt::Value>::TYPE);
        let error = quote_spanned!(at=> <#outcome::Err as ::peregrine::__rt::Value>::TYPE);
        quote! {
            ::peregrine::__rt::Procedure {
                name: #name,
                docs: #docs,
                idempotent: #idempotent,
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
    };
    let (direction, shape) = (format_ident!("{direction}"), format_ident!("{shape}"));
    let ty = match parameter.form {
        Form::Text => quote!(::peregrine::__rt::Type::Text),
        _ => {
            quote_spanned!(generated_at(ty.span())=> <#ty as ::peregrine::__rt::Value>::TYPE)
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
        }
    }
}

/// The bound as stubs take it.
fn limit(max_len: Option<&Expr>) -> TokenStream {
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

/// What a parameter adds to the client's stub.
#[derive(Default)]
struct Sent {
    marshal: TokenStream,
    ins: TokenStream,
    lent: TokenStream,
    outs: TokenStream,
    take: TokenStream,
    assign: TokenStream,
}

impl Sent {
    fn new(parameter: &Parameter) -> Self {
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
        }
    }
}

fn client_method(number: u32, method: &Method) -> TokenStream {
    let Method { ident, returns, .. } = method;
    let parameters = method.parameters.iter().map(|one| {
        let Parameter { ident, written, .. } = one;
        let mutable = (one.form == Form::Out).then(|| quote!(mut));
        quote!(#mutable #ident: #written)
    });
    let sent: Vec<_> = method.parameters.iter().map(Sent::new).collect();
    let marshal = sent.iter().map(|one| &one.marshal);
    let blocks = sent.iter().any(|one| !one.ins.is_empty() || !one.lent.is_empty());
    let head_only = (!blocks).then(|| quote!(__stub.head_only();));
    let (ins, lent) = (sent.iter().map(|one| &one.ins), sent.iter().map(|one| &one.lent));
    let outs = sent.iter().map(|one| &one.outs);
    let (take, assign) = (sent.iter().map(|one| &one.take), sent.iter().map(|one| &one.assign));
    // In-out values are assigned together, once all of them were readable.
    let finish = if method.parameters.iter().any(|one| one.form.is_in_out()) {
        quote! {
            if ::peregrine::__rt::Outcome::as_result(&__result).is_ok() {
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
    // The same for each representation, and borrowing only: it may be run again.
    let body = quote! {
        |__stub| {
            #head_only
            #(#marshal)*
            let mut __returned = __stub.transport(&[#(#ins)*], &[#(#lent)*], &mut [#(#outs)*])?;
            let __result = __returned.result::<#returns>()?;
            #finish
            ::core::result::Result::Ok(__result)
        }
    };
    quote! {
        #[inline]
        fn #ident(&self, #(#parameters),*) -> #returns {
            if ::peregrine::__rt::is_native(&self.binding) {
                ::peregrine::__rt::call(&self.binding, #number, #body)
            } else {
                ::peregrine::__rt::call_swapped(&self.binding, #number, #body)
            }
        }
    }
}

fn server(model: &Interface, names: &Names) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let Names { client, server } = names;
    let what = format!("Answers calls of [`{ident}`] with an object of this process.");
    let arms =
        (0u32..).zip(&model.methods).map(|(number, method)| server_arm(number, method, ident));
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
            /// Answers with `object`, which many callers use at the same time.
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

            #[inline]
            fn serve(
                &self,
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

/// What a parameter adds to the server's stub.
#[derive(Default)]
struct Received {
    take: TokenStream,
    pass: TokenStream,
    /// Notes or copies what goes back as a block.
    block: TokenStream,
    /// Appends to the head what goes back there.
    head: TokenStream,
}

impl Received {
    /// `out` counts the blocks of the reply.
    fn new(parameter: &Parameter, out: &mut usize) -> Self {
        let Parameter { ident, ty, .. } = parameter;
        let own = format_ident!("__arg_{}", ident);
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
                head: quote!(::peregrine::__rt::Value::encode(&#own, __head)?;),
                ..none
            },
            Form::InOutSlice => {
                *out += 1;
                Self {
                    take: quote!(let mut #own = __request.in_out::<#ty>(__reply, #limit)?;),
                    pass: quote!(&mut #own),
                    block: quote!(__reply.in_out(#index, &#own)?;),
                    head: quote!(#own.encode(__head)?;),
                }
            }
        }
    }
}

fn server_arm(number: u32, method: &Method, interface: &Ident) -> TokenStream {
    let Method { ident, returns, .. } = method;
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
    quote! {
        #number => {
            #expect
            #(#take)*
            __request.finish()?;
            #head_only
            let __result: #returns =
                <__Object as #interface>::#ident(&self.object, #(#pass),*);
            match ::peregrine::__rt::Outcome::as_result(&__result) {
                ::core::result::Result::Ok(__value) => {
                    #(#blocks)*
                    __reply.ok(__value, #more)
                }
                ::core::result::Result::Err(__error) => __reply.err(__error),
            }
        }
    }
}
