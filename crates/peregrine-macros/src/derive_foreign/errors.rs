//! Generates the code for enums of the errors that Courier procedures report.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{DataEnum, DeriveInput, Error, Expr, Variant};

use super::attributes::{Attributes, Place};
use super::enums::checks;
use super::{Parts, bounds};

/// A variant with `#[foreign(error = N)]`.
pub(super) struct Reported<'a> {
    variant: &'a Variant,
    number: Expr,
    parts: Parts,
}

/// Returns the variants with `#[foreign(error = N)]`, or `None` if no variant has `error`. Fails if the enum
/// has both `error` and `case` or `default`.
pub(super) fn variants(data: &DataEnum) -> syn::Result<Option<Vec<Reported<'_>>>> {
    let mut reported = Vec::new();
    let mut other = None;
    for variant in &data.variants {
        let attributes = Attributes::of(&variant.attrs, Place::Variant)?;
        if attributes.case.is_some() || attributes.default {
            other = Some(variant);
        }
        if let Some(number) = attributes.error {
            reported.push(Reported { variant, number, parts: Parts::new(&variant.fields)? });
        }
    }
    match other {
        _ if reported.is_empty() => Ok(None),
        None => Ok(Some(reported)),
        Some(variant) => Err(Error::new_spanned(
            variant,
            "an enum with `#[foreign(error = N)]` has no `case` and no `default`: variants without `error` \
             are failures that the procedure does not report",
        )),
    }
}

pub(super) fn expand(
    input: &DeriveInput,
    of_type: &Attributes,
    reported: &[Reported<'_>],
) -> syn::Result<TokenStream> {
    if of_type.xdr || of_type.switch.is_some() {
        return Err(Error::new_spanned(
            &input.ident,
            "an enum with `#[foreign(error = N)]` has the errors of Courier procedures: it takes neither \
             `xdr` nor `switch`",
        ));
    }
    let courier = quote!(::peregrine::foreign::Courier);
    let numbers: Vec<_> = reported.iter().map(|one| &one.number).collect();
    let checks = checks(&numbers, Some(&syn::parse_quote!(u16)));
    let (mut number, mut put, mut take) =
        (TokenStream::new(), TokenStream::new(), TokenStream::new());
    for (index, Reported { variant, parts, .. }) in reported.iter().enumerate() {
        let name = &variant.ident;
        let own = quote! {
            const { ::peregrine::foreign::error_number(__NUMBERS, #index) }
        };
        number.extend(quote!(Self::#name { .. } => ::core::option::Option::Some(#own),));
        let (pattern, own_put, own_take) =
            (parts.pattern(), parts.put(&courier), parts.take(&courier));
        put.extend(quote!(Self::#name { #pattern } => { #own_put }));
        take.extend(quote! {
            if __number == #own {
                return ::core::result::Result::Ok(::core::option::Option::Some(Self::#name { #own_take }));
            }
        });
    }
    let is_all = match &input.data {
        syn::Data::Enum(data) => data.variants.len() == reported.len(),
        _ => false,
    };
    let no_number = (!is_all).then(|| quote!(_ => ::core::option::Option::None,));
    let no_arguments = (!is_all).then(|| quote!(_ => {}));
    let ident = &input.ident;
    let generics = bounds::of_parameters(&input.generics, &courier);
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #checks
        const _: () = {
            const __NUMBERS: &[i64] = &[#((#numbers) as i64),*];

            impl #impl_generics ::peregrine::foreign::Reports for #ident #ty_generics #where_clause {
                fn number(&self) -> ::core::option::Option<u16> {
                    match self { #number #no_number }
                }

                fn put_arguments(
                    &self,
                    __to: &mut ::peregrine::foreign::Output<'_, #courier>,
                ) -> ::core::result::Result<(), ::peregrine::foreign::Overflow> {
                    match self { #put #no_arguments }
                    ::core::result::Result::Ok(())
                }

                fn take_error(
                    __number: u16,
                    __from: &mut ::peregrine::foreign::Input<'_, #courier>,
                ) -> ::core::result::Result<
                    ::core::option::Option<Self>,
                    ::peregrine::foreign::Invalid,
                > {
                    #take
                    ::core::result::Result::Ok(::core::option::Option::None)
                }
            }
        };
    })
}
