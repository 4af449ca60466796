//! Generates the code of `#[derive(Plain)]`. Constant assertions in this code prove that the type has no
//! padding.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, Member, Type};

use crate::generated_at;
use crate::growth::{self, Growth};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics.params,
            "a plain type cannot be generic, because its layout must be known here: name the types of its fields",
        ));
    }
    match &input.data {
        Data::Struct(data) => of_struct(input, &data.fields),
        Data::Enum(data) => of_enum(input, data),
        Data::Union(data) => Err(Error::new_spanned(
            data.union_token,
            "a union cannot be plain, because it does not tell which field is valid: use a struct, or an enum with `#[derive(Value)]`",
        )),
    }
}

/// Returns all arguments of `#[repr(...)]`.
fn representations(input: &DeriveInput) -> syn::Result<Vec<String>> {
    let mut found = Vec::new();
    for attribute in input.attrs.iter().filter(|one| one.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            found.extend(meta.path.get_ident().map(Ident::to_string));
            // The numbers in `align(16)` and `packed(2)` are skipped, because the generated assertions check
            // the resulting layout.
            if meta.input.peek(syn::token::Paren) {
                let inner;
                syn::parenthesized!(inner in meta.input);
                inner.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    Ok(found)
}

struct PlainField<'a> {
    member: Member,
    name: String,
    ty: &'a Type,
    growth: Growth,
}

fn of_struct(input: &DeriveInput, fields: &Fields) -> syn::Result<TokenStream> {
    let ident = &input.ident;
    if !representations(input)?.iter().any(|one| one == "C" || one == "transparent") {
        return Err(Error::new_spanned(
            ident,
            "a plain struct needs a defined layout: add `#[repr(C)]`, or `#[repr(transparent)]` if it has one field",
        ));
    }
    let mut all = Vec::new();
    for (member, field) in fields.members().zip(fields) {
        let growth = Growth::of(&field.attrs)?;
        all.push(PlainField { name: member_name(&member), member, ty: &field.ty, growth });
    }
    let fields = all;
    if fields.is_empty() {
        return Err(Error::new_spanned(
            ident,
            "a plain type cannot be empty: derive `Value` instead",
        ));
    }
    let proof = layout_proof(ident, &fields);
    let any_bits = fields
        .iter()
        .map(|PlainField { ty, .. }| quote!(<#ty as ::peregrine::__rt::Plain>::ANY_BITS));
    let valid = fields.iter().map(|PlainField { member, ty, .. }| {
        quote! {
            (<#ty as ::peregrine::__rt::Plain>::ANY_BITS || {
                const AT: usize = ::core::mem::offset_of!(#ident, #member);
                const END: usize = AT + ::core::mem::size_of::<#ty>();
                <#ty as ::peregrine::__rt::Plain>::valid(&bytes[AT..END])
            })
        }
    });
    let units =
        fields.iter().map(|PlainField { ty, .. }| quote!(<#ty as ::peregrine::__rt::Plain>::UNIT));
    let swap = fields.iter().map(|PlainField { member, ty, .. }| {
        quote! {
            {
                const AT: usize = ::core::mem::offset_of!(#ident, #member);
                const END: usize = AT + ::core::mem::size_of::<#ty>();
                <#ty as ::peregrine::__rt::Plain>::swap(&mut bytes[AT..END]);
            }
        }
    });
    let described = fields.iter().map(|PlainField { name, ty, growth, .. }| {
        let growth = growth.described(ty);
        quote! {
            ::peregrine::__rt::Field {
                name: #name,
                ty: &<#ty as ::peregrine::__rt::Value>::TYPE,
                growth: #growth,
                max: ::core::option::Option::None,
            }
        }
    });
    let body = quote! {
        ::peregrine::__rt::Body::Plain {
            size: ::core::mem::size_of::<#ident>(),
            align: ::core::mem::align_of::<#ident>(),
            fields: const { &[#(#described),*] },
        }
    };
    let value = value(ident, &body);
    Ok(quote! {
        #proof

        unsafe impl ::peregrine::__rt::Plain for #ident {
            const ANY_BITS: bool = #(#any_bits)&&*;
            const UNIT: usize = ::peregrine::__rt::common_unit(&[#(#units),*]);

            #[inline]
            fn valid(bytes: &[u8]) -> bool {
                #(#valid)&&*
            }

            #[inline]
            fn swap(bytes: &mut [u8]) {
                // The slice is converted to an array, so that the compiler removes the bounds checks below.
                let bytes = bytes.first_chunk_mut::<{ ::core::mem::size_of::<#ident>() }>();
                let ::core::option::Option::Some(bytes) = bytes else { return };
                #(#swap)*
            }
        }

        #value
    })
}

/// Generates assertions that all fields are plain, and that there is no padding between them or at the end.
fn layout_proof(ident: &Ident, fields: &[PlainField<'_>]) -> TokenStream {
    let plain = fields
        .iter()
        .map(|PlainField { ty, .. }| quote_spanned!(generated_at(ty.span())=> __plain::<#ty>();));
    let gaps = fields.windows(2).map(|pair| {
        let [PlainField { member: a, ty, .. }, PlainField { member: b, name, ty: next, .. }] = pair
        else {
            return TokenStream::new();
        };
        let text = format!(
            "padding before field `{name}` of `{ident}` would send uninitialized memory: order \
             the fields by size, or fill the gap with a `[u8; N]` field"
        );
        quote_spanned! {generated_at(next.span())=>
            const _: () = ::core::assert!(
                ::core::mem::offset_of!(#ident, #b)
                    == ::core::mem::offset_of!(#ident, #a) + ::core::mem::size_of::<#ty>(),
                #text
            );
        }
    });
    let end = fields.last().map(|PlainField { member, name, ty, .. }| {
        let text = format!(
            "padding after the last field `{name}` of `{ident}` would send uninitialized memory: \
             order the fields by size, or fill the gap with a `[u8; N]` field"
        );
        quote_spanned! {generated_at(ty.span())=>
            const _: () = ::core::assert!(
                ::core::mem::size_of::<#ident>()
                    == ::core::mem::offset_of!(#ident, #member) + ::core::mem::size_of::<#ty>(),
                #text
            );
        }
    });
    let empty = format!("`{ident}` is empty: derive `Value` instead");
    let aligned =
        format!("the alignment of `{ident}` is more than 16 bytes, the alignment of messages");
    quote_spanned! {generated_at(ident.span())=>
        const _: () = {
            const fn __plain<__T: ::peregrine::__rt::Plain>() {}
            #(#plain)*
        };
        #(#gaps)*
        #end
        const _: () = ::core::assert!(::core::mem::size_of::<#ident>() > 0, #empty);
        const _: () = ::core::assert!(::core::mem::align_of::<#ident>() <= 16, #aligned);
    }
}

fn of_enum(input: &DeriveInput, data: &DataEnum) -> syn::Result<TokenStream> {
    const INTEGERS: &[&str] = &["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];
    let ident = &input.ident;
    if let Some(variant) = data.variants.iter().find(|one| !one.fields.is_empty()) {
        return Err(Error::new_spanned(
            variant,
            "the variants of a plain enum cannot have fields: derive `Value` instead",
        ));
    }
    if data.variants.is_empty() {
        return Err(Error::new_spanned(
            ident,
            "an enum without variants has no values: add a variant",
        ));
    }
    let found = representations(input)?;
    let Some(repr) = found.iter().find(|one| INTEGERS.contains(&one.as_str())) else {
        return Err(Error::new_spanned(
            ident,
            "a plain enum needs a defined integer type: add `#[repr(u8)]`, or `u16`, `u32`, `u64`, `i8`, `i16`, `i32`, `i64`",
        ));
    };
    let tag = format_ident!("{}", repr.to_uppercase());
    let repr = format_ident!("{}", repr);
    let repr = quote!(::core::primitive::#repr);
    let variants: Vec<_> = data.variants.iter().map(|one| &one.ident).collect();
    growth::one_other(&data.variants)?;
    let mut described = Vec::new();
    for variant in &data.variants {
        let (one, name) = (&variant.ident, variant.ident.unraw().to_string());
        let (was, is_other) = (growth::was(&variant.attrs)?, growth::is_other(variant)?);
        described.push(quote! {
            ::peregrine::__rt::PlainVariant {
                name: #name,
                value: #ident::#one as #repr as i128,
                was: &[#(#was),*],
                is_other: #is_other,
            }
        });
    }
    let body = quote! {
        ::peregrine::__rt::Body::PlainEnum {
            repr: &::peregrine::__rt::Type::#tag,
            variants: const { &[#(#described),*] },
        }
    };
    let value = value(ident, &body);
    Ok(quote! {
        unsafe impl ::peregrine::__rt::Plain for #ident {
            const ANY_BITS: bool = false;
            const UNIT: usize = ::core::mem::size_of::<#repr>();

            #[inline]
            fn swap(bytes: &mut [u8]) {
                <#repr as ::peregrine::__rt::Plain>::swap(bytes);
            }

            #[inline]
            fn valid(bytes: &[u8]) -> bool {
                let ::core::result::Result::Ok(bytes) = ::core::convert::TryFrom::try_from(bytes) else {
                    return false;
                };
                let bits = #repr::from_ne_bytes(bytes);
                #(bits == #ident::#variants as #repr)||*
            }
        }

        #value
    })
}

/// Generates the implementation of `Value` for a plain type.
fn value(ident: &Ident, body: &TokenStream) -> TokenStream {
    let name = ident.unraw().to_string();
    quote! {
        impl ::peregrine::__rt::Value for #ident {
            const TYPE: ::peregrine::__rt::Type =
                ::peregrine::__rt::Type::Named(::peregrine::__rt::Named {
                    name: #name,
                    path: ::core::any::type_name::<Self>,
                    body: || #body,
                });
            ::peregrine::__plain_value!();
        }
    }
}

fn member_name(member: &Member) -> String {
    match member {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}
