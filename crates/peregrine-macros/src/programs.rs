//! Interfaces that are also programs of other RPC systems: the arguments `onc(...)` and `courier(...)` of
//! `#[interface]`, and the numbers `#[onc(N)]` and `#[courier(N)]` of procedures.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Ident, LitInt, Token};

use crate::check::{Form, Interface, Method, Parameter};
use crate::expand::limit;
use crate::parse::{self, Errors};

/// Another RPC system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    Onc,
    Courier,
}

/// The identity of an interface in another RPC system. A Courier program that is started by its name has the
/// number 0 and the version 0.
pub(crate) struct Program {
    system: System,
    number: u32,
    version: u32,
}

/// The numbers of a method in other RPC systems.
#[derive(Default)]
pub(crate) struct Numbers(Vec<(System, u32, Attribute)>);

impl System {
    pub(crate) const ALL: [Self; 2] = [Self::Onc, Self::Courier];

    /// Returns the name of the argument of `#[interface]`, which is also the name of the attribute of
    /// methods.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Onc => "onc",
            Self::Courier => "courier",
        }
    }

    /// Returns the largest version, and the smallest and the largest number of a procedure.
    const fn bounds(self) -> (u32, [u32; 2]) {
        match self {
            // Procedure 0 of every program does nothing, so no method can have this number.
            Self::Onc => (u32::MAX, [1, u32::MAX]),
            Self::Courier => (u16::MAX as u32, [0, u16::MAX as u32]),
        }
    }

    /// Returns the variant of `System` in the library.
    fn variant(self) -> TokenStream {
        match self {
            Self::Onc => quote!(::peregrine::__rt::System::Onc),
            Self::Courier => quote!(::peregrine::__rt::System::Courier),
        }
    }

    /// Returns the type of the representation in which the system sends values.
    fn representation(self) -> TokenStream {
        match self {
            Self::Onc => quote!(::peregrine::foreign::Xdr),
            Self::Courier => quote!(::peregrine::foreign::Courier),
        }
    }
}

impl Program {
    pub(crate) const fn system(&self) -> System {
        self.system
    }

    /// Reads the arguments of `onc(...)` or `courier(...)`. Only `courier` may have no arguments.
    pub(crate) fn read(
        system: System,
        at: Ident,
        tokens: Option<TokenStream>,
    ) -> syn::Result<Self> {
        let usage = || {
            let text = format!("write `{}(program = N, version = N)`", system.name());
            Error::new_spanned(&at, text)
        };
        let tokens = match tokens {
            Some(tokens) => tokens,
            None if system == System::Courier => {
                return Ok(Self { system, number: 0, version: 0 });
            }
            None => return Err(usage()),
        };
        let (mut number, mut version) = (None, None);
        let one = |input: syn::parse::ParseStream<'_>| {
            let name: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            Ok((name, input.parse::<LitInt>()?.base10_parse::<u32>()?))
        };
        let parser = |input: syn::parse::ParseStream<'_>| {
            Punctuated::<_, Token![,]>::parse_terminated_with(input, one)
        };
        for (name, value) in parser.parse2(tokens).map_err(|_| usage())? {
            let into = match &*name.to_string() {
                "program" => &mut number,
                "version" => &mut version,
                _ => return Err(usage()),
            };
            if into.replace(value).is_some() {
                return Err(Error::new_spanned(&name, format!("duplicate `{name}`: remove one")));
            }
        }
        let (Some(number), Some(version)) = (number, version) else { return Err(usage()) };
        if version > system.bounds().0 {
            let text = format!("the version is larger than {}", system.bounds().0);
            return Err(Error::new_spanned(&at, text));
        }
        Ok(Self { system, number, version })
    }
}

impl Numbers {
    /// Removes the attributes with numbers from the attributes of a method, and returns their numbers.
    pub(crate) fn take(attributes: &mut Vec<Attribute>, errors: &mut Errors) -> Self {
        let mut numbers = Self::default();
        for system in System::ALL {
            for attribute in parse::take(attributes, system.name()) {
                match attribute.parse_args::<LitInt>().and_then(|number| number.base10_parse()) {
                    Ok(_) if numbers.of(system).is_some() => {
                        errors.at(&attribute, "a procedure has one number: remove the other");
                    }
                    Ok(number) => numbers.0.push((system, number, attribute)),
                    Err(_) => errors.at(
                        &attribute,
                        format!("write `#[{}(N)]`, the number of the procedure", system.name()),
                    ),
                }
            }
        }
        numbers
    }

    fn of(&self, system: System) -> Option<(u32, &Attribute)> {
        let found = self.0.iter().find(|(of, ..)| *of == system);
        found.map(|(_, number, attribute)| (*number, attribute))
    }
}

/// Checks the numbers of the methods, and the kinds of their parameters.
pub(crate) fn check(programs: &[Program], methods: &[Method], errors: &mut Errors) {
    for system in System::ALL {
        let name = system.name();
        let Some(program) = programs.iter().find(|program| program.system == system) else {
            for (_, attribute) in methods.iter().filter_map(|method| method.numbers.of(system)) {
                let text =
                    format!("write `{name}(program = N, version = N)` in `#[interface]`, too");
                errors.at(attribute, text);
            }
            continue;
        };
        let mut seen = Vec::new();
        for method in methods {
            check_method(program, method, &mut seen, errors);
        }
    }
}

fn check_method(program: &Program, method: &Method, seen: &mut Vec<u32>, errors: &mut Errors) {
    let (system, ident) = (program.system, &method.ident);
    let (name, [least, most]) = (system.name(), system.bounds().1);
    match method.numbers.of(system) {
        None => errors.at(ident, format!("write `#[{name}(N)]` before `{ident}`: its number")),
        Some((number, attribute)) if number < least || number > most => {
            let text = format!("the numbers of procedures are between {least} and {most}");
            errors.at(attribute, text);
        }
        Some((number, attribute)) if seen.contains(&number) => {
            errors.at(attribute, "two procedures cannot have the same number");
        }
        Some((number, _)) => seen.push(number),
    }
    if method.oneway && system == System::Onc {
        errors.at(ident, "an ONC procedure always has a result: remove `#[oneway]`, or `onc(...)`");
    }
    for parameter in &method.parameters {
        if !matches!(parameter.form, Form::Value | Form::Borrowed | Form::Text | Form::Slice) {
            let text = format!(
                "a parameter of a procedure with `#[{name}(N)]` is a value, `&T`, `&str` or `&[T]`: other systems send nothing else"
            );
            errors.at(&parameter.ident, text);
        }
    }
}

/// Generates the identities of an interface in other systems. Also generates code that fails to compile if a
/// type has no form in the representation of such a system.
pub(crate) fn items(model: &Interface, client: &Ident) -> TokenStream {
    model.programs.iter().map(|program| item(program, model, client)).collect()
}

fn item(program: &Program, model: &Interface, client: &Ident) -> TokenStream {
    let Program { system, number, version, .. } = program;
    let representation = system.representation();
    let numbers = numbers(model, *system);
    let carried = model.methods.iter().flat_map(|method| &method.parameters).map(|parameter| {
        let ty = carried(parameter);
        quote_spanned!(parameter.ty.span()=> __carries::<#ty>();)
    });
    let ended = model.methods.iter().map(|method| {
        let outcome = &method.outcome;
        quote_spanned!(outcome.span()=> __ends::<#outcome>();)
    });
    quote! {
        const _: () = {
            const fn __carries<__Value: ::peregrine::foreign::Foreign<#representation>>() {}
            const fn __ends<__Outcome: ::peregrine::foreign::Ends<#representation>>() {}
            #(#carried)*
            #(#ended)*
        };

        impl ::peregrine::foreign::Program<#representation> for #client {
            const NUMBER: u32 = #number;
            const VERSION: u32 = #version;
            const PROCEDURES: &'static [u32] = &[#(#numbers),*];
        }
    }
}

/// Returns the number of each procedure in the system `system`, in the order of the methods.
fn numbers(model: &Interface, system: System) -> impl Iterator<Item = u32> {
    model.methods.iter().filter_map(move |method| Some(method.numbers.of(system)?.0))
}

/// Returns the type of the value that a server reads for a parameter.
fn carried(parameter: &Parameter) -> TokenStream {
    match parameter.form {
        Form::Text => quote!(::std::string::String),
        Form::Slice => {
            let element = &parameter.ty;
            quote!(::std::vec::Vec<#element>)
        }
        _ => parameter.ty.to_token_stream(),
    }
}

/// Generates the descriptions of the programs, for the description of the interface.
pub(crate) fn described(model: &Interface) -> Vec<TokenStream> {
    let described = model.programs.iter().map(|Program { system, number, version }| {
        let numbers = numbers(model, *system);
        let variant = system.variant();
        quote! {
            ::peregrine::__rt::Program {
                system: #variant,
                number: #number,
                version: #version,
                procedures: ::std::borrow::Cow::Borrowed(&[#(#numbers),*]),
            }
        }
    });
    described.collect()
}

/// Generates code that appends the arguments of a call in a representation.
fn put(method: &Method, representation: &TokenStream) -> TokenStream {
    let puts = method.parameters.iter().map(|Parameter { ident, ty, max_len, form, .. }| {
        let check = match (form, max_len) {
            (Form::Text | Form::Slice, Some(_)) => {
                let limit = limit(max_len.as_ref());
                quote!(::peregrine::__rt::check_put(#ident.len(), #limit)?;)
            }
            _ => TokenStream::new(),
        };
        let value = quote!(<#ty as ::peregrine::foreign::Foreign<#representation>>::put);
        let put = match form {
            Form::Text => quote!(__to.text(#ident)?;),
            Form::Slice => quote!(__to.sequence::<#ty>(#ident)?;),
            Form::Borrowed => quote!(#value(#ident, __to)?;),
            _ => quote!(#value(&#ident, __to)?;),
        };
        quote!(#check #put)
    });
    quote! {
        __stub.foreign::<#representation>(|__to| {
            let _ = &__to;
            #(#puts)*
            ::core::result::Result::Ok(())
        })?;
    }
}

/// Generates the branches of a client's method that call servers of other systems.
pub(crate) fn calls(
    model: &Interface,
    number: u32,
    method: &Method,
    binding: &TokenStream,
) -> TokenStream {
    let outcome = &method.outcome;
    let branches = model.programs.iter().map(|program| {
        let representation = program.system.representation();
        let put = put(method, &representation);
        quote! {
            else if __target.is_foreign::<#representation>() {
                ::peregrine::__rt::call_foreign::<#outcome>(#binding, #number, |__stub| {
                    #put
                    __stub
                        .transport(&[], &[], &mut [])?
                        .foreign::<#representation, #outcome>()
                })
            }
        }
    });
    branches.collect()
}

/// Generates the code that writes the arguments of a one-way call for servers of other systems. This code
/// runs in a closure, and returns from the closure when the arguments are written.
pub(crate) fn queued(model: &Interface, method: &Method) -> TokenStream {
    let branches = model.programs.iter().map(|program| {
        let representation = program.system.representation();
        let put = put(method, &representation);
        quote! {
            if __stub.is_foreign::<#representation>() {
                #put
                __stub.submit(&[]);
                return ::core::result::Result::Ok(());
            }
        }
    });
    branches.collect()
}

/// Generates the branches for a one-way call that cannot be queued. They call servers of other systems.
pub(crate) fn in_place(model: &Interface, number: u32, method: &Method) -> TokenStream {
    let outcome = &method.outcome;
    let branches = model.programs.iter().map(|program| {
        let representation = program.system.representation();
        let put = put(method, &representation);
        quote! {
            if __in_place.is_foreign::<#representation>() {
                __in_place.make_foreign::<#outcome>(#number, |__stub| {
                    #put
                    __stub
                        .transport(&[], &[], &mut [])?
                        .foreign::<#representation, #outcome>()
                })
            } else
        }
    });
    branches.collect()
}

/// Generates the branches of an async client's method that call servers of other systems.
pub(crate) fn attempts(model: &Interface, method: &Method) -> TokenStream {
    let outcome = &method.outcome;
    let branches = model.programs.iter().map(|program| {
        let representation = program.system.representation();
        let put = put(method, &representation);
        quote! {
            else if __call.is_foreign::<#representation>() {
                {
                    let mut __scratch = ::peregrine::__rt::Scratch::new();
                    let mut __stub = __frame.arguments(&mut __scratch);
                    #put
                    __frame.begin(__stub, &[], &[], &mut [])?;
                }
                __frame.ended(&mut []).await?;
                __frame
                    .returned::<::peregrine::__rt::Native>()?
                    .foreign::<#representation, #outcome>()
            }
        }
    });
    branches.collect()
}

/// Generates the method of a server that serves clients of other systems. `call` returns the code that calls
/// a given method with given arguments.
pub(crate) fn serves(
    model: &Interface,
    call: impl Fn(&Method, &[TokenStream]) -> TokenStream,
) -> Option<TokenStream> {
    if model.programs.is_empty() {
        return None;
    }
    let systems = model.programs.iter().map(|Program { system, .. }| {
        let (variant, representation) = (system.variant(), system.representation());
        let arms = model.methods.iter().filter_map(|method| {
            let (number, _) = method.numbers.of(*system)?;
            let outcome = &method.outcome;
            let (takes, passes): (Vec<_>, Vec<_>) =
                method.parameters.iter().map(|one| take(one, &representation)).unzip();
            let call = call(method, &passes);
            Some(quote! {
                #number => {
                    #(#takes)*
                    __input.finish()?;
                    let __outcome: #outcome = #call;
                    ::peregrine::__rt::answer_foreign::<#representation, #outcome>(
                        &__outcome,
                        __results,
                    )
                }
            })
        });
        quote! {
            #variant => {
                #[allow(unused_mut)]
                let mut __input =
                    ::peregrine::foreign::Input::<#representation>::new(__call.arguments);
                match __call.procedure {
                    #(#arms)*
                    __number => ::core::result::Result::Err(
                        ::peregrine::__rt::Refusal::no_such_procedure(__number),
                    ),
                }
            }
        }
    });
    Some(quote! {
        fn serve_foreign(
            &self,
            __call: &::peregrine::__rt::ForeignCall<'_>,
            __results: &mut ::std::vec::Vec<u8>,
        ) -> ::peregrine::__rt::ServedForeign {
            match __call.system {
                #(#systems)*
                _ => ::core::result::Result::Err(
                    ::peregrine::__rt::Refusal::no_such_program(__call.system),
                ),
            }
        }
    })
}

/// Generates code that takes an argument, and code that passes the argument to the method. Texts and bytes
/// are borrowed from the message.
fn take(parameter: &Parameter, representation: &TokenStream) -> (TokenStream, TokenStream) {
    let own = format_ident!("__arg_{}", parameter.ident);
    let ty = &parameter.ty;
    let limit = limit(parameter.max_len.as_ref());
    let take = match parameter.form {
        Form::Text => quote!(let #own = __input.text(#limit)?;),
        Form::Slice => quote!(let #own = __input.elements::<#ty>(#limit)?;),
        _ => {
            let foreign = quote!(<#ty as ::peregrine::foreign::Foreign<#representation>>);
            quote! {
                let #own = match __input.cells_of::<#ty>()? {
                    ::core::option::Option::Some(__cells) => #foreign::of_cells(__cells),
                    ::core::option::Option::None => #foreign::take(&mut __input)?,
                };
            }
        }
    };
    let pass = match parameter.form {
        Form::Value | Form::Text => quote!(#own),
        _ => quote!(&#own),
    };
    (take, pass)
}
