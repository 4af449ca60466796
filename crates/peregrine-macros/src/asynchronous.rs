//! Generates the async form of an interface: the trait, its client, and its server.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{ItemTrait, ReturnType, TraitItem, parse_quote, parse_quote_spanned};

use crate::check::{Form, Interface, Method, Parameter};
use crate::expand::{Sent, as_result, limit, opener};
use crate::{descriptor, oneway, pool, programs};

/// Returns the async items of an interface. `client` is the name of the blocking client, which has the
/// description of the interface.
pub(crate) fn items(item_trait: &ItemTrait, model: &Interface, client: &Ident) -> TokenStream {
    let names = Names {
        interface: format_ident!("{}Async", model.ident),
        client: format_ident!("{}AsyncClient", model.ident),
        server: format_ident!("{}AsyncServer", model.ident),
        blocking: client.clone(),
    };
    let async_trait = async_trait(item_trait, model, &names);
    let pool = pool::asynchronous(model, &names.client, &names.interface, client);
    let client = client_items(model, &names);
    let server = server_items(model, &names);
    quote!(#async_trait #client #pool #server)
}

struct Names {
    interface: Ident,
    client: Ident,
    server: Ident,
    /// The blocking client.
    blocking: Ident,
}

/// Generates the async trait, with the methods of the blocking trait. Also generates implementations for
/// pointers to objects.
fn async_trait(item_trait: &ItemTrait, model: &Interface, names: &Names) -> TokenStream {
    let mut item = item_trait.clone();
    let Names { interface, .. } = names;
    item.ident = interface.clone();
    let what = format!("The async form of [`{}`]: the same interface.", model.ident);
    item.attrs.insert(0, parse_quote!(#[doc = #what]));
    item.attrs.insert(1, parse_quote!(#[doc = ""]));
    item.attrs.push(parse_quote!(#[allow(dead_code)]));
    for item in &mut item.items {
        let TraitItem::Fn(method) = item else { continue };
        let ReturnType::Type(_, returns) = &method.sig.output else { continue };
        let at = returns.span();
        method.sig.output = parse_quote_spanned! {at=>
            -> impl ::core::future::Future<Output = #returns> + ::core::marker::Send
        };
    }
    let methods: TokenStream = model.methods.iter().map(forwarded).collect();
    quote! {
        #item

        #[allow(deprecated)]
        impl<__Object: #interface + ::core::marker::Send + ::core::marker::Sync> #interface
            for ::std::sync::Arc<__Object>
        {
            #methods
        }

        #[allow(deprecated)]
        impl<__Object: #interface + ::core::marker::Send + ::core::marker::Sync> #interface
            for ::std::boxed::Box<__Object>
        {
            #methods
        }
    }
}

pub(crate) fn forwarded(method: &Method) -> TokenStream {
    let Method { ident, returns, parameters, .. } = method;
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.ident).collect();
    let types = parameters.iter().map(|parameter| &parameter.written);
    quote! {
        fn #ident(
            &self,
            #(#names: #types),*
        ) -> impl ::core::future::Future<Output = #returns> + ::core::marker::Send {
            (**self).#ident(#(#names),*)
        }
    }
}

fn client_items(model: &Interface, names: &Names) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let Names { interface, client, server, blocking } = names;
    let what = format!(
        "A client of [`{ident}`] whose calls are futures. It implements [`{interface}`] by calling a server. \
         It is cheap to clone, and any number of tasks can share one. A future that is dropped cancels its call."
    );
    let has_oneway = oneway::has_oneway(model);
    let methods = (0u32..)
        .zip(&model.methods)
        .map(|(number, method)| client_method(model, number, method, has_oneway));
    let flush = oneway::flush(model, true);
    let error = quote!(::peregrine::__rt::CallError);
    let result = quote!(::core::result::Result<Self, #error>);
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #[derive(::core::clone::Clone, ::core::fmt::Debug)]
        #visibility struct #client {
            binding: ::peregrine::__rt::Binding,
        }

        #[allow(dead_code)]
        impl #client {
            /// Binds to the export at a name or address.
            ///
            /// # Errors
            /// If there is no such export, or the client cannot use its interface.
            #visibility async fn bind(address: &str) -> #result {
                Self::bind_with(address, &::core::default::Default::default()).await
            }

            /// Binds with options.
            ///
            /// # Errors
            /// As `bind`.
            #visibility async fn bind_with(
                address: &str,
                options: &::peregrine::__rt::BindOptions,
            ) -> #result {
                let binding =
                    ::peregrine::__rt::bind_async(address, #blocking::INTERFACE, options).await?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client that calls an object of this process through the same stubs, for tests.
            ///
            /// # Panics
            /// If there is no memory for the client's A-stacks.
            #visibility fn in_process<__Object>(object: __Object) -> Self
            where
                __Object: #interface + ::core::marker::Send + ::core::marker::Sync + 'static,
            {
                Self::in_process_with(object, &::core::default::Default::default())
            }

            /// Returns a client as `in_process` does, with options.
            ///
            /// # Panics
            /// If there is no memory for the client's A-stacks.
            #visibility fn in_process_with<__Object>(
                object: __Object,
                options: &::peregrine::__rt::BindOptions,
            ) -> Self
            where
                __Object: #interface + ::core::marker::Send + ::core::marker::Sync + 'static,
            {
                let server = ::std::sync::Arc::new(#server::new(object));
                Self {
                    binding: ::peregrine::__rt::Binding::in_process(server, options),
                }
            }

            /// Returns a client that calls a server of this process through the same stubs, for tests. The
            /// server may be blocking, and its interface may be older or newer.
            ///
            /// # Errors
            /// If the client cannot use the server's interface.
            #visibility fn in_process_to(
                server: impl ::peregrine::__rt::Serve + 'static,
            ) -> #result {
                let binding = ::peregrine::__rt::Binding::in_process_as(
                    #blocking::INTERFACE,
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

            /// Returns a client whose calls end at the deadline `moment`.
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
            ) -> #result {
                let binding = self.binding.with_metadata(key, value)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns a client that sends the metadata of a caller with each of its calls.
            ///
            /// # Errors
            /// Fails if there would be too much metadata, or the server cannot take any.
            #visibility fn with_metadata_of(&self, caller: &::peregrine::__rt::Caller) -> #result {
                let binding = self.binding.with_metadata_of(caller)?;
                ::core::result::Result::Ok(Self { binding })
            }

            /// Returns the binding of the client.
            #visibility fn binding(&self) -> &::peregrine::__rt::Binding {
                &self.binding
            }

            /// Returns whether the connection to the server is open, as far as is known without a call.
            #visibility fn is_alive(&self) -> bool {
                self.binding.is_alive()
            }

            #flush
        }

        /// Returns an async client with the same binding.
        impl ::core::convert::From<#blocking> for #client {
            fn from(client: #blocking) -> Self {
                Self { binding: client.binding }
            }
        }

        /// Returns a blocking client with the same binding.
        impl ::core::convert::From<#client> for #blocking {
            fn from(client: #client) -> Self {
                Self { binding: client.binding }
            }
        }

        #[allow(deprecated)]
        impl #interface for #client {
            #(#methods)*
        }

        #[allow(deprecated)]
        impl ::peregrine::__rt::CallableAsync for dyn #ident + '_ {
            type AsyncClient = #client;

            fn async_client(client: &Self::Client) -> Self::AsyncClient {
                #client {
                    binding: client.binding.clone(),
                }
            }
        }
    }
}

fn client_method(model: &Interface, number: u32, method: &Method, has_oneway: bool) -> TokenStream {
    let Method { ident, returns, .. } = method;
    let parameters = method.parameters.iter().map(|one| {
        let Parameter { ident, written, .. } = one;
        let mutable = (one.form == Form::Out).then(|| quote!(mut));
        quote!(#mutable #ident: #written)
    });
    let body = client_body(model, number, method, has_oneway);
    quote! {
        async fn #ident(&self, #(#parameters),*) -> #returns {
            #body
        }
    }
}

/// Generates the code that makes a call in an async function.
pub(crate) fn client_body(
    model: &Interface,
    number: u32,
    method: &Method,
    has_oneway: bool,
) -> TokenStream {
    let outcome = &method.outcome;
    let native = attempt(method, &quote!(arguments), &quote!(Native));
    let foreign = programs::attempts(model, method);
    let swapped = attempt(method, &quote!(swapped_arguments), &quote!(Swapped));
    let streams = method.parameters.iter().filter_map(|one| {
        let (ident, stream) = (&one.ident, format_ident!("__stream_{}", one.ident));
        let (drive, new, with) = match one.form {
            Form::Sink => ("SinkDrive", "new", "with_sink"),
            Form::Source => ("SourceDrive", "new", "with_source"),
            Form::Callback { kept: false } => ("CallbackDrive", "new", "with_callback"),
            Form::Callback { kept: true } => ("CallbackDrive", "kept", "with_callback"),
            _ => return None,
        };
        let [drive, new, with] = [drive, new, with].map(|name| format_ident!("{name}"));
        let made = quote!(let mut #stream = ::peregrine::__rt::#drive::#new(#ident););
        Some((made, quote!(.#with(&mut #stream))))
    });
    let (made, with): (Vec<_>, Vec<_>) = streams.unzip();
    let (streams, frame, again) = if made.is_empty() {
        (None, quote!(frame()), quote!(again(__error)))
    } else {
        let streams = quote! {
            #(#made)*
            let mut __streams = ::peregrine::__rt::Streams::new() #(#with)*;
        };
        let again = quote!(again_unless(__streams.have_moved(), __error));
        (Some(streams), quote!(frame_with(&mut __streams)), again)
    };
    // Generates the code that makes the call over a binding. The call is repeated until it has a result, or a
    // repetition is not allowed.
    let make = |binding: &TokenStream| {
        quote! {{
            #streams
            let mut __call = ::peregrine::__rt::AsyncCall::new(#binding, #number);
            loop {
                let __made: ::core::result::Result<#outcome, ::peregrine::__rt::CallError> = async {
                    let mut __frame = __call.#frame.await?;
                    if __call.is_native() {
                        #native
                    } #foreign else {
                        #swapped
                    }
                }
                .await;
                let __error = match __made {
                    ::core::result::Result::Ok(__result) => {
                        break ::core::result::Result::Ok(__result);
                    }
                    ::core::result::Result::Err(__error) => __error,
                };
                if let ::core::result::Result::Err(__error) = __call.#again.await {
                    break ::core::result::Result::Err(__error);
                }
            }
        }}
    };
    if method.oneway {
        let make = make(&quote!(__in_place.binding()));
        let in_place = quote! {{
            let __result: ::core::result::Result<#outcome, ::peregrine::__rt::CallError> = #make;
            __in_place.ended::<#outcome>(#number, __result)
        }};
        return oneway::body(model, number, method, true, &in_place);
    }
    let (before, binding) = oneway::before(has_oneway, true, number, outcome);
    let make = make(&binding);
    quote! {
        #before
        let __made: ::core::result::Result<#outcome, ::peregrine::__rt::CallError> = #make;
        match __made {
            ::core::result::Result::Ok(__result) => __result,
            ::core::result::Result::Err(__error) => {
                ::peregrine::__rt::outcome_of::<#outcome>(__error)
            }
        }
    }
}

/// Generates one attempt to make the call. `arguments` is the function that returns the writer of the
/// arguments, and `representation` is the byte order of the server.
fn attempt(method: &Method, arguments: &TokenStream, representation: &TokenStream) -> TokenStream {
    let outcome = &method.outcome;
    let sent: Vec<_> = method.parameters.iter().map(Sent::new).collect();
    let marshal = sent.iter().map(|one| &one.marshal);
    let blocks = sent.iter().any(|one| !one.ins.is_empty() || !one.lent.is_empty());
    let head_only = (!blocks).then(|| quote!(__stub.head_only();));
    let count =
        |part: fn(&Sent) -> &TokenStream| sent.iter().filter(|one| !part(one).is_empty()).count();
    let (ins_count, outs_count) = (count(|one| &one.ins), count(|one| &one.outs));
    let (ins, lent) = (sent.iter().map(|one| &one.ins), sent.iter().map(|one| &one.lent));
    let outs = sent.iter().map(|one| &one.outs);
    let (take, assign) = (sent.iter().map(|one| &one.take), sent.iter().map(|one| &one.assign));
    let as_result = as_result(outcome);
    // In-out values are assigned only after all of them were read.
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
    let ended = match method.has_streams() {
        true => quote!(ended_with(&mut __outs, &mut __streams)),
        false => quote!(ended(&mut __outs)),
    };
    quote! {
        // The writer of the arguments is not `Send`, so it is dropped before the `await`. Otherwise the
        // future would not be `Send` either.
        let mut __outs: [::peregrine::__rt::OutBlock<'_>; #outs_count] = {
            #[allow(unused_mut)]
            let mut __scratch = ::peregrine::__rt::Scratch::new();
            let mut __stub = __frame.#arguments(&mut __scratch);
            #head_only
            #(#marshal)*
            let __ins: [::peregrine::__rt::Block<'_>; #ins_count] = [#(#ins)*];
            let mut __outs: [::peregrine::__rt::OutBlock<'_>; #outs_count] = [#(#outs)*];
            __frame.begin(__stub, &__ins, &[#(#lent)*], &mut __outs)?;
            __outs
        };
        __frame.#ended.await?;
        let mut __returned = __frame.returned::<::peregrine::__rt::#representation>()?;
        let __result = __returned.result::<#outcome>()?;
        #finish
        ::core::result::Result::Ok(__result)
    }
}

fn server_items(model: &Interface, names: &Names) -> TokenStream {
    let Interface { visibility, ident, .. } = model;
    let Names { interface, server, blocking, .. } = names;
    let what = format!(
        "A server of [`{ident}`], which answers calls with an object of this process whose methods are async."
    );
    let arms =
        (0u32..).zip(&model.methods).map(|(number, method)| server_arm(number, method, interface));
    let count = model.methods.len() as u32;
    let descriptors = descriptor::server_side(model);
    let foreign = programs::serves(model, |method, pass| {
        let method = &method.ident;
        let call = quote!(<__Object as #interface>::#method(&*self.object, #(#pass),*));
        quote!(::peregrine::__rt::wait_for(#call))
    });
    quote! {
        #[doc = #what]
        #[allow(dead_code)]
        #visibility struct #server<__Object> {
            object: ::std::sync::Arc<__Object>,
            executor: ::core::option::Option<::peregrine::__rt::ServerExecutor>,
        }

        #[allow(dead_code)]
        impl<__Object> #server<__Object>
        where
            __Object: #interface + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            /// Returns a server that calls `object`. Any number of methods of the object run at the same
            /// time.
            #visibility fn new(object: __Object) -> Self {
                Self {
                    object: ::std::sync::Arc::new(object),
                    executor: ::core::option::Option::None,
                }
            }

            /// Returns a server whose methods run on an executor, such as the handle of an async runtime.
            #[must_use]
            #visibility fn with_executor(
                self,
                executor: impl ::peregrine::__rt::Executor,
            ) -> Self {
                let executor = ::peregrine::__rt::ServerExecutor::new(executor);
                Self {
                    object: self.object,
                    executor: ::core::option::Option::Some(executor),
                }
            }
        }

        impl<__Object> ::core::fmt::Debug for #server<__Object> {
            fn fmt(
                &self,
                formatter: &mut ::core::fmt::Formatter<'_>,
            ) -> ::core::fmt::Result {
                formatter.debug_struct(::core::stringify!(#server)).finish_non_exhaustive()
            }
        }

        #[allow(deprecated)]
        impl<__Object> ::peregrine::__rt::Serve for #server<__Object>
        where
            __Object: #interface + ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            fn interface(&self) -> ::peregrine::__rt::InterfaceRef {
                ::peregrine::__rt::InterfaceRef::from(#blocking::INTERFACE)
            }

            fn is_async(&self) -> bool {
                true
            }

            #descriptors

            fn shared(
                &self,
            ) -> ::core::option::Option<::std::sync::Arc<dyn ::peregrine::__rt::Serve>> {
                let shared = Self {
                    object: ::std::sync::Arc::clone(&self.object),
                    executor: self.executor.clone(),
                };
                ::core::option::Option::Some(::std::sync::Arc::new(shared))
            }

            fn serve(
                &self,
                __request: &mut ::peregrine::__rt::Request<'_>,
                __reply: &mut ::peregrine::__rt::Reply<'_>,
            ) -> ::peregrine::__rt::Served {
                // The built-in procedures of every export have higher numbers. The stub does not serve them.
                if __request.procedure() >= #count {
                    return ::core::result::Result::Err(
                        ::peregrine::__rt::Refusal::no_such_procedure(__request.procedure()),
                    );
                }
                let __object = ::std::sync::Arc::clone(&self.object);
                let __serve = move |mut __call: ::peregrine::__rt::OwnedCall| async move {
                    let __served: ::core::result::Result<
                        ::peregrine::__rt::Answered,
                        ::peregrine::__rt::Refusal,
                    > = async {
                        match __call.procedure() {
                            #(#arms)*
                            __number => ::core::result::Result::Err(
                                ::peregrine::__rt::Refusal::no_such_procedure(__number),
                            ),
                        }
                    }
                    .await;
                    __served.unwrap_or_else(::core::convert::From::from)
                };
                ::peregrine::__rt::serve_async(
                    self.executor.as_ref(),
                    __request,
                    __reply,
                    __serve,
                )
            }

            #foreign
        }
    }
}

/// The code of a parameter in the async server stub.
#[derive(Default)]
struct Received {
    /// The variable that has the argument.
    own: TokenStream,
    take: TokenStream,
    pass: TokenStream,
    /// Code that appends the block of the result.
    block: TokenStream,
    /// Code that appends an in-out value to the head.
    head: TokenStream,
}

impl Received {
    fn new(parameter: &Parameter) -> Self {
        let Parameter { ident, ty, .. } = parameter;
        let own = format_ident!("__arg_{}", ident);
        let limit = limit(parameter.max_len.as_ref());
        let value = quote!(__request.value::<#ty>()?);
        let slice = quote!(__request.slice::<#ty>(#limit)?);
        let immutable = Self { own: quote!(#own), ..Self::default() };
        let mutable = Self { own: quote!(mut #own), ..Self::default() };
        match parameter.form {
            Form::Value => Self { take: value, pass: quote!(#own), ..immutable },
            Form::Borrowed => Self { take: value, pass: quote!(&#own), ..immutable },
            Form::Text => {
                Self { take: quote!(__request.text(#limit)?), pass: quote!(#own), ..immutable }
            }
            Form::Slice => Self { take: slice, pass: quote!(&#own), ..immutable },
            Form::Lent => Self {
                take: quote!(__request.lent::<#ty>(#limit)?),
                pass: quote!(#own),
                ..immutable
            },
            Form::Out => Self {
                take: quote!(__request.out_vec::<#ty>(&mut __room, #limit)?),
                pass: quote!(::peregrine::__rt::Answered::out::<#ty>(&mut #own.0)),
                block: quote! {
                    __blocks.push((::peregrine::__rt::Answered::block::<#ty>(&#own.0), #own.1));
                },
                ..mutable
            },
            Form::InOut => Self {
                take: value,
                pass: quote!(&mut #own),
                head: quote_spanned! {ty.span()=>
                    <#ty as ::peregrine::__rt::Value>::encode(&#own, __head)?;
                },
                ..mutable
            },
            Form::InOutSlice => Self {
                take: quote!(__request.in_out_slice::<#ty>(&mut __room, #limit)?),
                pass: quote!(&mut #own),
                block: quote! {
                    __blocks.push(::peregrine::__rt::Answered::in_out::<#ty>(&#own));
                },
                head: quote! {
                    ::peregrine::__rt::Answered::in_out_head::<#ty>(&#own, __head)?;
                },
                ..mutable
            },
            Form::Sink => Self {
                take: quote!(__request.sink_async::<#ty>()?),
                pass: quote!(#own),
                ..immutable
            },
            Form::Source => Self {
                take: quote!(__request.source_async::<#ty>()?),
                pass: quote!(#own),
                ..immutable
            },
            Form::Callback { kept } => {
                let open = opener(kept, ty);
                Self { take: quote!(#open(&mut __request)?), pass: quote!(#own), ..immutable }
            }
        }
    }
}

fn server_arm(number: u32, method: &Method, interface: &Ident) -> TokenStream {
    let Method { ident, outcome, .. } = method;
    let as_result = as_result(outcome);
    let received: Vec<_> = method.parameters.iter().map(Received::new).collect();
    let outs = received.iter().filter(|one| !one.block.is_empty()).count();
    let room = (outs > 0).then(|| quote!(let mut __room = __call.room(#outs);));
    let names: Vec<_> =
        method.parameters.iter().map(|one| format_ident!("__arg_{}", one.ident)).collect();
    let own = received.iter().map(|one| &one.own);
    let (take, pass) = (received.iter().map(|one| &one.take), received.iter().map(|one| &one.pass));
    let blocks = received.iter().map(|one| &one.block);
    let heads: TokenStream = received.iter().map(|one| one.head.to_token_stream()).collect();
    let more = if heads.is_empty() {
        quote!(|_| ::core::result::Result::Ok(()))
    } else {
        quote!(|__head| { #heads ::core::result::Result::Ok(()) })
    };
    let mutable = (outs > 0).then(|| quote!(mut));
    let at = outcome.span();
    let ok = quote_spanned!(at=> ::peregrine::__rt::Answered::ok(__value, __blocks, #more));
    let err = quote_spanned!(at=> ::peregrine::__rt::Answered::err(__error));
    // A request is not `Send`, so it is dropped before the procedure begins. Otherwise the future would not
    // be `Send` either.
    let arguments = if names.is_empty() {
        quote!(__call.request()?.finish()?;)
    } else {
        quote! {
            let (#(#own,)*) = {
                let mut __request = __call.request()?;
                #(let #names = #take;)*
                __request.finish()?;
                (#(#names,)*)
            };
        }
    };
    quote! {
        #number => {
            #room
            #arguments
            let __result: #outcome =
                <__Object as #interface>::#ident(&*__object, #(#pass),*).await;
            ::core::result::Result::Ok(match #as_result {
                ::core::result::Result::Ok(__value) => {
                    let #mutable __blocks = ::std::vec::Vec::new();
                    #(#blocks)*
                    #ok
                }
                ::core::result::Result::Err(__error) => #err,
            })
        }
    }
}
