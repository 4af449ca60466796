//! Generates the code for enums: enumerations, whose variants have no fields, and unions (`CHOICE` in
//! Courier).

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{DataEnum, DeriveInput, Error, Expr, Variant};

use super::attributes::{Attributes, Place};
use super::bounds::Bounds;
use super::{Codec, Form, Parts, implementations};
use crate::generated_at;
use crate::list::{self, Link};

/// A variant of a union. One number selects it. All numbers that select no other variant select the variant
/// with `#[foreign(default)]`.
struct Arm<'a> {
    variant: &'a Variant,
    parts: Parts,
    /// The index of the variant's number in the list of all numbers. `None` for the variant with
    /// `#[foreign(default)]`.
    case: Option<usize>,
}

pub(super) fn expand(
    input: &DeriveInput,
    of_type: &Attributes,
    data: &DataEnum,
) -> syn::Result<TokenStream> {
    let mut attributes = Vec::new();
    for variant in &data.variants {
        list::check_marks(&variant.fields, None)?;
        attributes.push(Attributes::of(&variant.attrs, Place::Variant)?);
    }
    let has_case = attributes.iter().any(|one| one.case.is_some() || one.default);
    let has_fields = data.variants.iter().any(|variant| !variant.fields.is_empty());
    if !has_case && !has_fields {
        return enumeration(input, of_type, data);
    }
    let mut numbers: Vec<&Expr> = Vec::new();
    let mut arms = Vec::new();
    for (variant, own) in data.variants.iter().zip(&attributes) {
        let case = match (&own.case, own.default) {
            (Some(number), false) => {
                numbers.push(number);
                Some(numbers.len() - 1)
            }
            (None, true) => None,
            (Some(_), true) => {
                return Err(Error::new_spanned(
                    variant,
                    "`case` and `default` exclude each other: remove one",
                ));
            }
            (None, false) => {
                return Err(Error::new_spanned(
                    variant,
                    "a variant of an enum with fields needs its number: write `#[foreign(case = N)]`, \
                     or `#[foreign(default)]` on the variant for all other numbers",
                ));
            }
        };
        let mut parts = Parts::new(&variant.fields)?;
        if case.is_none() {
            mark_number(variant, &mut parts)?;
        }
        arms.push(Arm { variant, parts, case });
    }
    let mut defaults = arms.iter().filter(|arm| arm.case.is_none());
    if let (Some(_), Some(second)) = (defaults.next(), defaults.next()) {
        return Err(Error::new_spanned(second.variant, "only one variant can be the `default`"));
    }
    union(input, of_type, &arms, &numbers)
}

/// Marks the first field of the `default` variant as the number that selects the variant.
fn mark_number(variant: &Variant, parts: &mut Parts) -> syn::Result<()> {
    match parts.0.first_mut() {
        Some(number) if matches!(number.form, Form::Value) => {
            number.form = Form::Number;
            Ok(())
        }
        _ => Err(Error::new_spanned(
            variant,
            "the first field of the `default` variant is the number: an `i32` or `u32` in XDR, a `u16` in Courier",
        )),
    }
}

/// Generates the code for an enum whose variants have no fields. The number of a variant is its discriminant.
fn enumeration(
    input: &DeriveInput,
    of_type: &Attributes,
    data: &DataEnum,
) -> syn::Result<TokenStream> {
    if let Some(switch) = &of_type.switch {
        return Err(Error::new_spanned(
            switch,
            "`switch` is for an enum whose variants have `#[foreign(case = N)]`",
        ));
    }
    let names: Vec<_> = data.variants.iter().map(|variant| &variant.ident).collect();
    let numbers = names.iter().map(|name| quote!(Self::#name as i64));
    let cases = cases(input, numbers);
    let index = 0..names.len();
    let implementations =
        implementations(input, of_type, Bounds::new(&input.ident), |representation| {
            let case = index.clone().map(|index| {
                quote! {
                    const { ::peregrine::foreign::case::<#representation, Self>(#index) }
                }
            });
            let again = case.clone();
            let cell = quote!(<#representation as ::peregrine::foreign::Cells>::CELL);
            Ok(Codec {
                constants: quote! {
                    const LEAST: usize = #cell;
                    const FIXED: bool = true;
                },
                put: quote!(__to.fixed(self)),
                take: quote!(__from.fixed()),
                at: quote! {
                    #[inline]
                    fn put_at(&self, __cells: &mut [u8]) {
                        let __case = match self { #(Self::#names { .. } => #case,)* };
                        ::peregrine::foreign::put_cell::<#representation>(__case, __cells);
                    }

                    #[inline]
                    fn take_at(
                        __cells: &[u8],
                    ) -> ::core::result::Result<Self, ::peregrine::foreign::Invalid> {
                        let __case = ::peregrine::foreign::cell_at::<#representation>(__cells);
                        #(if __case == #again {
                            return ::core::result::Result::Ok(Self::#names {});
                        })*
                        ::core::result::Result::Err(::peregrine::foreign::Invalid::Bits)
                    }
                },
            })
        })?;
    Ok(quote!(#cases #implementations))
}

/// Generates the implementation of `Cases`, which has the numbers of all variants.
fn cases(input: &DeriveInput, numbers: impl Iterator<Item = TokenStream>) -> TokenStream {
    let ident = &input.ident;
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    quote! {
        impl #impl_generics ::peregrine::foreign::Cases for #ident #ty_generics #where_clause {
            const NUMBERS: ::core::option::Option<&'static [i64]> =
                ::core::option::Option::Some(&[#(#numbers),*]);
        }
    }
}

/// Generates code that checks the number of each case at compile time, and reports errors at the number.
pub(super) fn checks(numbers: &[&Expr], switch: Option<&syn::Type>) -> TokenStream {
    let values = numbers.iter().map(|number| quote!((#number) as i64));
    let of_switch = match switch {
        None => quote!(::core::option::Option::None),
        Some(switch) => quote_spanned! {generated_at(switch.span())=>
            <#switch as ::peregrine::foreign::Cases>::NUMBERS
        },
    };
    let checks = numbers.iter().enumerate().map(|(index, number)| {
        quote_spanned! {generated_at(number.span())=>
            const _: () = ::peregrine::foreign::check_case(__NUMBERS, #index, __SWITCH);
        }
    });
    quote! {
        const _: () = {
            const __NUMBERS: &[i64] = &[#(#values),*];
            const __SWITCH: ::core::option::Option<&[i64]> = #of_switch;
            #(#checks)*
        };
    }
}

/// Generates the code for an enum whose variants have `#[foreign(case = N)]` or `#[foreign(default)]`.
fn union(
    input: &DeriveInput,
    of_type: &Attributes,
    arms: &[Arm<'_>],
    numbers: &[&Expr],
) -> syn::Result<TokenStream> {
    // If several variants end with a link (a box with the next node), the values form a tree. Trees are
    // encoded by recursion.
    let mut links = arms.iter().enumerate().filter_map(|(index, arm)| {
        let link = Link::of(&input.ident, &arm.variant.fields)?;
        // In a default variant, the first field is the number, so it cannot be the link.
        (arm.case.is_some() || arm.parts.0.len() > 1).then_some((index, link))
    });
    let link = links.next().filter(|_| links.next().is_none());
    let mut bounds = Bounds::new(&input.ident);
    for (index, arm) in arms.iter().enumerate() {
        let link = link.filter(|(of, _)| *of == index).map(|(_, link)| link);
        arm.parts.bound(&mut bounds, link);
    }
    let values = numbers.iter().map(|number| quote!((#number) as i64));
    let (cases, checks) = (cases(input, values), checks(numbers, of_type.switch.as_ref()));
    let implementations = implementations(input, of_type, bounds, |representation| {
        Ok(codec(arms, link, representation))
    })?;
    Ok(quote!(#cases #checks #implementations))
}

fn codec(arms: &[Arm<'_>], link: Option<(usize, Link)>, representation: &TokenStream) -> Codec {
    let (mut put, mut take) = (TokenStream::new(), TokenStream::new());
    let mut otherwise = quote! {
        return ::core::result::Result::Err(::peregrine::foreign::Invalid::Bits);
    };
    let mut again = None;
    for (index, arm) in arms.iter().enumerate() {
        let (parts, name) = (&arm.parts, &arm.variant.ident);
        let (pattern, variant) = (parts.pattern(), quote!(Self::#name));
        let (own_put, own_take) = match link {
            Some((of, link)) if of == index => {
                let node = parts.node(&variant, link, representation);
                again = Some(node.again);
                let take = node.take;
                (node.put, quote!(#take continue;))
            }
            _ => {
                let (put, take) = (parts.put(representation), parts.take(representation));
                let end = link.map(|_| quote!(return ::core::result::Result::Ok(());));
                let whole = match link {
                    Some(_) => quote!(break #variant { #take };),
                    None => quote!(return ::core::result::Result::Ok(#variant { #take });),
                };
                (quote!(#put #end), whole)
            }
        };
        let case = arm.case.map(
            |index| quote!(const { ::peregrine::foreign::case::<#representation, Self>(#index) }),
        );
        let number = case.as_ref().map(|case| quote!(__to.cell(#case)?;));
        put.extend(quote! {
            #variant { #pattern } => {
                #number
                #own_put
            }
        });
        match case {
            Some(case) => take.extend(quote!(if __case == #case { #own_take })),
            None => otherwise = own_take,
        }
    }
    let take = quote! {
        let __case = __from.cell()?;
        #take
        #otherwise
    };
    let (put, take) = match again {
        None => (quote!(match self { #put } ::core::result::Result::Ok(())), take),
        Some(again) => (
            quote! {
                let mut __node = self;
                let mut __nodes = ::peregrine::foreign::Nodes::new(false);
                loop {
                    match __node { #put }
                }
            },
            quote! {
                let mut __nodes = ::peregrine::foreign::Nodes::new(false);
                let mut __before = ::peregrine::__rt::std::vec::Vec::new();
                let mut __list = loop { #take };
                #again
                ::core::result::Result::Ok(__list)
            },
        ),
    };
    let cell = quote!(<#representation as ::peregrine::foreign::Cells>::CELL);
    Codec { constants: quote!(const LEAST: usize = #cell;), put, take, at: TokenStream::new() }
}
