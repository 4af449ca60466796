//! Generates the code of `#[derive(Value)]`. The generated code sends the fields one after the other. For an
//! enum, it sends the number of the variant before the fields.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Fields, GenericParam, Generics, Member};

use crate::derive_foreign::attributes::{Attributes, Place};
use crate::generated_at;
use crate::growth::{self, Growth};
use crate::list::{self, Link};

pub(crate) fn expand(mut input: DeriveInput) -> syn::Result<TokenStream> {
    let declared = input.generics.clone();
    bound_parameters(&mut input.generics)?;
    let ident = &input.ident;
    let mut drop = None;
    let Codec { encode, decode, body } = match &input.data {
        Data::Struct(data) => {
            let link = data.fields.members().zip(&data.fields).last();
            let link = link.filter(|(_, field)| list::is_marked(field));
            drop = link.map(|(member, _)| list::drop_in_a_loop(ident, &declared, &member));
            of_struct(ident, &data.fields)?
        }
        Data::Enum(data) if data.variants.is_empty() => {
            return Err(Error::new_spanned(
                ident,
                "an enum without variants has no values: add a variant",
            ));
        }
        Data::Enum(data) => of_enum(ident, data)?,
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
        #drop
    })
}

/// Requires that every type parameter is a value, and reports a lifetime parameter as an error.
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

fn of_struct(ident: &Ident, fields: &Fields) -> syn::Result<Codec> {
    let parts = Parts::new(fields)?;
    let link = Link::of(ident, fields).filter(|link| *link == Link::Optional);
    list::check_marks(fields, link)?;
    let Parts { pattern, encode, build, described, .. } = &parts;
    let body = quote!(::peregrine::__rt::Body::Struct(const { &[#described] }));
    let Some(link) = link else {
        return Ok(Codec {
            encode: quote! {
                let Self { #pattern } = self;
                #encode
            },
            decode: quote!(::core::result::Result::Ok(Self { #build })),
            body,
        });
    };
    let is_list = fields.iter().any(list::is_marked);
    let Node { encode, decode, again } = parts.node(&quote!(Self), link)?;
    Ok(Codec {
        encode: quote! {
            let mut __node = self;
            let mut __nodes = ::peregrine::__rt::Nodes::new(#is_list);
            loop {
                let Self { #pattern } = __node;
                #encode
            }
        },
        decode: quote! {
            let mut __nodes = ::peregrine::__rt::Nodes::new(#is_list);
            let mut __before = ::peregrine::__rt::std::vec::Vec::new();
            let mut __list = loop { #decode };
            #again
            ::core::result::Result::Ok(__list)
        },
        body,
    })
}

fn of_enum(ident: &Ident, data: &syn::DataEnum) -> syn::Result<Codec> {
    growth::one_other(&data.variants)?;
    let mut all = Vec::new();
    for (number, variant) in (0u32..).zip(&data.variants) {
        list::check_marks(&variant.fields, None)?;
        all.push((number, variant, Parts::new(&variant.fields)?, growth::was(&variant.attrs)?));
    }
    let mut links = all
        .iter()
        .filter_map(|(number, variant, ..)| Some((*number, Link::of(ident, &variant.fields)?)));
    // If several variants end with a link (a box with the next node), the values form a tree. Trees are
    // encoded by recursion.
    let link = links.next().filter(|_| links.next().is_none());
    let mut node = None;
    let (mut encode, mut decode) = (TokenStream::new(), TokenStream::new());
    for (number, variant, parts, _) in &all {
        let name = &variant.ident;
        let (Parts { pattern, build, .. }, variant) = (parts, quote!(Self::#name));
        let mut arm = parts.encode.clone();
        match link {
            Some((of, link)) if of == *number => {
                let own = parts.node(&variant, link)?;
                (arm, decode) = (own.encode, {
                    let own = own.decode;
                    quote!(#decode #number => { #own })
                });
                node = Some(own.again);
            }
            Some(_) => {
                arm.extend(quote!(break;));
                decode.extend(quote!(#number => break #variant { #build },));
            }
            None => decode.extend(quote!(#number => #variant { #build },)),
        }
        encode.extend(quote! {
            #variant { #pattern } => {
                __head.plain(&#number)?;
                #arm
            }
        });
    }
    let cases = cases(data);
    let described = all.iter().zip(&cases).map(|((_, variant, parts, was), case)| {
        let (name, described) = (variant.ident.unraw().to_string(), &parts.described);
        let is_other = variant.attrs.iter().any(|one| one.path().is_ident("other"));
        quote! {
            ::peregrine::__rt::Variant {
                name: #name,
                fields: &[#described],
                was: &[#(#was),*],
                is_other: #is_other,
                case: #case,
            }
        }
    });
    let body = quote!(::peregrine::__rt::Body::Enum(const { &[#(#described),*] }));
    let decode = quote! {
        match __head.plain::<u32>()? {
            #decode
            _ => return ::core::result::Result::Err(::peregrine::__rt::Invalid::Bits),
        }
    };
    let Some(again) = node else {
        return Ok(Codec {
            encode: quote!(match self { #encode }),
            decode: quote!(::core::result::Result::Ok(#decode)),
            body,
        });
    };
    Ok(Codec {
        encode: quote! {
            let mut __node = self;
            let mut __nodes = ::peregrine::__rt::Nodes::new(false);
            loop {
                match __node { #encode }
            }
        },
        decode: quote! {
            let mut __nodes = ::peregrine::__rt::Nodes::new(false);
            let mut __before = ::peregrine::__rt::std::vec::Vec::new();
            let mut __list = loop { #decode };
            #again
            ::core::result::Result::Ok(__list)
        },
        body,
    })
}

/// Returns the bound in `#[foreign(max = N)]`, as part of a description. `#[derive(Foreign)]` reports wrong
/// attributes.
fn max(field: &syn::Field) -> TokenStream {
    match Attributes::of(&field.attrs, Place::Field).unwrap_or_default().max {
        Some(max) => quote!(::core::option::Option::Some((#max) as u32)),
        None => quote!(::core::option::Option::None),
    }
}

/// Returns the numbers of the variants in other RPC systems, as parts of a description. The attributes
/// contain these numbers. For an enum without fields, they are the discriminants.
fn cases(data: &syn::DataEnum) -> Vec<TokenStream> {
    let all: Vec<_> = data
        .variants
        .iter()
        .map(|variant| Attributes::of(&variant.attrs, Place::Variant).unwrap_or_default())
        .collect();
    let has_numbers =
        all.iter().any(|one| one.case.is_some() || one.default || one.error.is_some());
    let is_plain = data.variants.iter().all(|one| matches!(one.fields, Fields::Unit));
    let case = quote!(::peregrine::__rt::Case);
    let some = quote!(::core::option::Option::Some);
    let one = |(index, (variant, own)): (usize, (&syn::Variant, &Attributes))| {
        let index = index as i64;
        let name = &variant.ident;
        if let Some(error) = &own.error {
            return quote!(#some(#case::Error((#error) as u16)));
        }
        match &own.case {
            Some(number) => quote!(const { #case::numbered(#index, (#number) as i64) }),
            None if own.default => quote!(#some(#case::Default)),
            None if is_plain && !has_numbers => {
                quote!(const { #case::numbered(#index, Self::#name as i64) })
            }
            None => quote!(::core::option::Option::None),
        }
    };
    data.variants.iter().zip(&all).enumerate().map(one).collect()
}

/// The generated code for the nodes of a linked list.
struct Node {
    /// Code that encodes the fields, whose values are in the variables that the pattern binds. Then the code
    /// continues with the next node, or ends the loop after the last node.
    encode: TokenStream,
    /// Code that decodes the fields. Then the code adds them to `__before`, or ends the loop with the last
    /// node.
    decode: TokenStream,
    /// Code that prepends the nodes in `__before` to `__list`, in reverse order.
    again: TokenStream,
}

/// The generated code for the fields of a struct or a variant: to match, encode, build and describe them.
struct Parts {
    pattern: TokenStream,
    encode: TokenStream,
    build: TokenStream,
    described: TokenStream,
    /// For each field: the member, the variable that contains the value of the field, and the type as `<T as
    /// Value>`.
    fields: Vec<(Member, Ident, TokenStream)>,
}

impl Parts {
    fn new(fields: &Fields) -> syn::Result<Self> {
        let mut parts = Self {
            pattern: TokenStream::new(),
            encode: TokenStream::new(),
            build: TokenStream::new(),
            described: TokenStream::new(),
            fields: Vec::new(),
        };
        for (member, field) in fields.members().zip(fields) {
            let ty = &field.ty;
            let (own, name): (Ident, String) = match &member {
                Member::Named(ident) => {
                    (format_ident!("__field_{}", ident), ident.unraw().to_string())
                }
                Member::Unnamed(index) => {
                    (format_ident!("__field_{}", index.index), index.index.to_string())
                }
            };
            let value = quote_spanned!(generated_at(ty.span())=> <#ty as ::peregrine::__rt::Value>);
            parts.pattern.extend(quote!(#member: #own,));
            parts.encode.extend(quote!(#value::encode(#own, __head)?;));
            parts.build.extend(quote!(#member: #value::decode(__head)?,));
            let growth = Growth::of(&field.attrs)?.described(ty);
            let max = max(field);
            parts.described.extend(quote! {
                ::peregrine::__rt::Field {
                    name: #name,
                    ty: &#value::TYPE,
                    growth: #growth,
                    max: #max,
                },
            });
            parts.fields.push((member, own, value));
        }
        Ok(parts)
    }

    /// Returns the code for the nodes of a linked list. A node is built by `node { ... }`, and `link` is its
    /// last field.
    fn node(&self, node: &TokenStream, link: Link) -> syn::Result<Node> {
        let Some(((member, last, _), others)) = self.fields.split_last() else {
            return Err(Error::new_spanned(node, "a node has a link"));
        };
        let encode = others.iter().map(|(_, own, value)| quote!(#value::encode(#own, __head)?;));
        let to_next = link.encode(last);
        let decoded = others.iter().map(|(_, _, value)| quote!(#value::decode(__head)?));
        let own: Vec<_> = others.iter().map(|(_, own, _)| own).collect();
        let fields: Vec<_> = others.iter().map(|(member, own, _)| quote!(#member: #own,)).collect();
        let (end, to_list) = (link.end(), link.to_list());
        let or_end = link.decode(&quote!({
            let (#(#own,)*) = __own;
            #node { #(#fields)* #member: #end }
        }));
        Ok(Node {
            encode: quote! {
                #(#encode)*
                #to_next
            },
            decode: quote! {
                let __own = (#(#decoded,)*);
                #or_end
                __nodes.decoded(__head)?;
                __before.push(__own);
            },
            again: quote! {
                while let ::core::option::Option::Some((#(#own,)*)) = __before.pop() {
                    __list = #node { #(#fields)* #member: #to_list };
                }
            },
        })
    }
}
