//! `#[derive(Value)]`: sends the fields one after the other. Those of an enum follow the number of the
//! variant.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Fields, GenericParam, Generics, Member};

use crate::generated_at;
use crate::growth::{self, Growth};

pub(crate) fn expand(mut input: DeriveInput) -> syn::Result<TokenStream> {
    bound_parameters(&mut input.generics)?;
    let ident = &input.ident;
    let Codec { encode, decode, body } = match &input.data {
        Data::Struct(data) => of_struct(&data.fields)?,
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new_spanned(
                ident,
                "an enum without variants has no values: add a variant",
            ));
        }
        Data::Enum(data) => of_enum(data)?,
        Data::Union(data) => {
            return Err(Error::new_spanned(
                data.union_token,
                "a union cannot be sent, because it does not tell which field is valid: use an enum",
            ));
        }
    };
    let name = ident.unraw().to_string();
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::peregrine::__rt::Value for #ident #ty_generics #where_clause {
            const TYPE: ::peregrine::__rt::Type =
                ::peregrine::__rt::Type::Named(::peregrine::__rt::Named {
                    name: #name,
                    path: ::core::any::type_name::<Self>,
                    body: || #body,
                });

            #[inline]
            fn encode<__R: ::peregrine::__rt::Representation>(
                &self,
                __head: &mut ::peregrine::__rt::Writer<'_, __R>,
            ) -> ::core::result::Result<(), ::peregrine::__rt::Overflow> {
                #encode
                ::core::result::Result::Ok(())
            }

            #[inline]
            fn decode<__R: ::peregrine::__rt::Representation>(
                __head: &mut ::peregrine::__rt::Reader<'_, __R>,
            ) -> ::core::result::Result<Self, ::peregrine::__rt::Invalid> {
                #decode
            }
        }
    })
}

/// Requires every type parameter to be a value, and reports a lifetime parameter as an error.
fn bound_parameters(generics: &mut Generics) -> syn::Result<()> {
    for parameter in &mut generics.params {
        match parameter {
            GenericParam::Type(ty) => ty.bounds.push(syn::parse_quote!(::peregrine::__rt::Value)),
            GenericParam::Lifetime(lifetime) => {
                return Err(Error::new_spanned(
                    lifetime,
                    "a value cannot borrow, because its receiver owns it: use `String`, `Vec<T>` or `Box<T>`",
                ));
            }
            GenericParam::Const(_) => {}
        }
    }
    Ok(())
}

struct Codec {
    encode: TokenStream,
    decode: TokenStream,
    body: TokenStream,
}

fn of_struct(fields: &Fields) -> syn::Result<Codec> {
    let parts = Parts::new(fields)?;
    let Parts { pattern, encode, build, described } = &parts;
    Ok(Codec {
        encode: quote! {
            let Self { #pattern } = self;
            #encode
        },
        decode: quote!(::core::result::Result::Ok(Self { #build })),
        body: quote!(::peregrine::__rt::Body::Struct(const { &[#described] })),
    })
}

fn of_enum(data: &syn::DataEnum) -> syn::Result<Codec> {
    growth::one_other(&data.variants)?;
    let mut all = Vec::new();
    for (number, variant) in (0u32..).zip(&data.variants) {
        all.push((number, variant, Parts::new(&variant.fields)?, growth::was(&variant.attrs)?));
    }
    let encode = all.iter().map(|(number, variant, parts, _)| {
        let ident = &variant.ident;
        let Parts { pattern, encode, .. } = parts;
        quote! {
            Self::#ident { #pattern } => {
                __head.plain(&#number)?;
                #encode
            }
        }
    });
    let decode = all.iter().map(|(number, variant, parts, _)| {
        let (ident, build) = (&variant.ident, &parts.build);
        quote!(#number => Self::#ident { #build },)
    });
    let described = all.iter().map(|(_, variant, parts, was)| {
        let (name, described) = (variant.ident.unraw().to_string(), &parts.described);
        let is_other = variant.attrs.iter().any(|one| one.path().is_ident("other"));
        quote! {
            ::peregrine::__rt::Variant {
                name: #name,
                fields: &[#described],
                was: &[#(#was),*],
                is_other: #is_other,
            }
        }
    });
    Ok(Codec {
        encode: quote!(match self { #(#encode)* }),
        body: quote!(::peregrine::__rt::Body::Enum(const { &[#(#described),*] })),
        decode: quote! {
            ::core::result::Result::Ok(match __head.plain::<u32>()? {
                #(#decode)*
                _ => return ::core::result::Result::Err(::peregrine::__rt::Invalid::Bits),
            })
        },
    })
}

/// The fields of a struct or a variant, in each form that the code needs.
struct Parts {
    pattern: TokenStream,
    encode: TokenStream,
    build: TokenStream,
    described: TokenStream,
}

impl Parts {
    fn new(fields: &Fields) -> syn::Result<Self> {
        let mut parts = Self {
            pattern: TokenStream::new(),
            encode: TokenStream::new(),
            build: TokenStream::new(),
            described: TokenStream::new(),
        };
        for (member, field) in fields.members().zip(fields) {
            let ty = &field.ty;
            let (own, name): (Ident, String) = match &member {
                Member::Named(ident) => (format_ident!("__{}", ident), ident.unraw().to_string()),
                Member::Unnamed(index) => {
                    (format_ident!("__{}", index.index), index.index.to_string())
                }
            };
            let value = quote_spanned!(generated_at(ty.span())=> <#ty as ::peregrine::__rt::Value>);
            parts.pattern.extend(quote!(#member: #own,));
            parts.encode.extend(quote!(#value::encode(#own, __head)?;));
            parts.build.extend(quote!(#member: #value::decode(__head)?,));
            let growth = Growth::of(&field.attrs)?.described(ty);
            parts.described.extend(quote! {
                ::peregrine::__rt::Field { name: #name, ty: &#value::TYPE, growth: #growth },
            });
        }
        Ok(parts)
    }
}
