//! Generates the code of `#[derive(Foreign)]`. The generated code sends the fields one after the other. For
//! an enum, it sends the number of the variant before the fields.

pub(crate) mod attributes;
mod bounds;
mod enums;
mod errors;

use attributes::{Attributes, Place};
use bounds::Bounds;
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DeriveInput, Error, Expr, Fields, GenericParam, Member, Type};

use crate::generated_at;
use crate::list::{self, Link};

pub(crate) fn expand(input: &DeriveInput) -> syn::Result<TokenStream> {
    let place = if matches!(input.data, Data::Enum(_)) { Place::Enum } else { Place::Struct };
    let of_type = Attributes::of(&input.attrs, place)?;
    for parameter in &input.generics.params {
        if let GenericParam::Lifetime(lifetime) = parameter {
            return Err(Error::new_spanned(
                lifetime,
                "a value cannot borrow, because its receiver owns it: use `String`, `Vec<T>` or `Box<T>`",
            ));
        }
    }
    match &input.data {
        Data::Struct(data) => of_struct(input, &of_type, &data.fields),
        Data::Enum(data) if data.variants.is_empty() => Err(Error::new_spanned(
            &input.ident,
            "an enum without variants has no values: add a variant",
        )),
        Data::Enum(data) => match errors::variants(data)? {
            Some(variants) => errors::expand(input, &of_type, &variants),
            None => enums::expand(input, &of_type, data),
        },
        Data::Union(data) => Err(Error::new_spanned(
            data.union_token,
            "a union cannot be sent, because it does not tell which field is valid: use an enum",
        )),
    }
}

/// The parts of a generated implementation of `Foreign`.
struct Codec {
    /// The constants `LEAST` and `FIXED`.
    constants: TokenStream,
    /// The body of `put`.
    put: TokenStream,
    /// The body of `take`.
    take: TokenStream,
    /// The methods `put_at` and `take_at`, for types of fixed size.
    at: TokenStream,
}

/// Generates the implementations for all representations that the attributes of the type ask for. Without
/// such attributes, generates one implementation for every representation that fulfils the bounds.
fn implementations(
    input: &DeriveInput,
    of_type: &Attributes,
    bounds: Bounds,
    codec: impl Fn(&TokenStream) -> syn::Result<Codec>,
) -> syn::Result<TokenStream> {
    let xdr = of_type.xdr.then(|| quote!(::peregrine::foreign::Xdr));
    let courier = of_type.courier.then(|| quote!(::peregrine::foreign::Courier));
    let chosen: Vec<_> = xdr.into_iter().chain(courier).collect();
    if chosen.is_empty() {
        let mut generics = bounds.of_fields(&input.generics);
        let (_, ty_generics, _) = input.generics.split_for_impl();
        generics.params.push(syn::parse_quote!(__R: ::peregrine::foreign::Cells));
        let (impl_generics, _, where_clause) = generics.split_for_impl();
        let codec = codec(&quote!(__R))?;
        return Ok(implementation(
            &quote!(impl #impl_generics),
            &quote!(__R),
            &input.ident,
            &quote!(#ty_generics),
            &quote!(#where_clause),
            &codec,
        ));
    }
    let mut all = TokenStream::new();
    for representation in &chosen {
        let generics = bounds::of_parameters(&input.generics, representation);
        let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
        all.extend(implementation(
            &quote!(impl #impl_generics),
            representation,
            &input.ident,
            &quote!(#ty_generics),
            &quote!(#where_clause),
            &codec(representation)?,
        ));
    }
    Ok(all)
}

fn implementation(
    header: &TokenStream,
    representation: &TokenStream,
    ident: &Ident,
    ty_generics: &TokenStream,
    where_clause: &TokenStream,
    codec: &Codec,
) -> TokenStream {
    let Codec { constants, put, take, at } = codec;
    quote! {
        #header ::peregrine::foreign::Foreign<#representation> for #ident #ty_generics #where_clause {
            #constants

            #[inline]
            fn put(
                &self,
                __to: &mut ::peregrine::foreign::Output<'_, #representation>,
            ) -> ::core::result::Result<(), ::peregrine::foreign::Overflow> {
                #put
            }

            #[inline]
            fn take(
                __from: &mut ::peregrine::foreign::Input<'_, #representation>,
            ) -> ::core::result::Result<Self, ::peregrine::foreign::Invalid> {
                #take
            }

            #at
        }
    }
}

fn of_struct(
    input: &DeriveInput,
    of_type: &Attributes,
    fields: &Fields,
) -> syn::Result<TokenStream> {
    let parts = Parts::new(fields)?;
    let link = Link::of(&input.ident, fields).filter(|link| *link == Link::Optional);
    list::check_marks(fields, link)?;
    let mut bounds = Bounds::new(&input.ident);
    parts.bound(&mut bounds, link);
    implementations(input, of_type, bounds, |representation| {
        Ok(match link {
            Some(link) => of_list(&parts, link, fields.iter().any(list::is_marked), representation),
            None => of_record(&parts, representation),
        })
    })
}

/// Generates the code for a struct that is not a linked list.
fn of_record(parts: &Parts, representation: &TokenStream) -> Codec {
    let (mut least, mut fixed) = (quote!(0), quote!(true));
    let (mut put_at, mut take_at) = (TokenStream::new(), TokenStream::new());
    for part in &parts.0 {
        let (value, own, ty) = (part.value(representation), &part.own, &part.ty);
        least.extend(quote!(+ #value::LEAST));
        fixed.extend(match part.form {
            Form::Value => quote!(&& #value::FIXED),
            _ => quote!(&&false),
        });
        put_at.extend(quote! {
            #value::put_at(#own, ::peregrine::foreign::cells_of_mut::<#representation, #ty>(&mut __cells));
        });
        let member = &part.member;
        take_at.extend(quote! {
            #member: #value::take_at(::peregrine::foreign::cells_of::<#representation, #ty>(&mut __cells))?,
        });
    }
    let (pattern, put, take) =
        (parts.pattern(), parts.put(representation), parts.take(representation));
    let this = quote!(<Self as ::peregrine::foreign::Foreign<#representation>>);
    // An empty struct has no cells. If `__cells` were `mut`, the compiler would warn that it does not change.
    let cells = if parts.0.is_empty() {
        quote!(let _ = __cells;)
    } else {
        quote!(let mut __cells = __cells;)
    };
    Codec {
        constants: quote! {
            const LEAST: usize = #least;
            const FIXED: bool = #fixed;
        },
        put: quote! {
            if #this::FIXED {
                return __to.fixed(self);
            }
            let Self { #pattern } = self;
            #put
            ::core::result::Result::Ok(())
        },
        take: quote! {
            if #this::FIXED {
                return __from.fixed();
            }
            ::core::result::Result::Ok(Self { #take })
        },
        at: quote! {
            #[inline]
            fn put_at(&self, __cells: &mut [u8]) {
                #cells
                let Self { #pattern } = self;
                #put_at
            }

            #[inline]
            fn take_at(
                __cells: &[u8],
            ) -> ::core::result::Result<Self, ::peregrine::foreign::Invalid> {
                #cells
                ::core::result::Result::Ok(Self { #take_at })
            }
        },
    }
}

/// Generates the code for a struct whose last field is the optional next node. The generated code is a loop,
/// so that long lists do not overflow the stack.
fn of_list(parts: &Parts, link: Link, is_marked: bool, representation: &TokenStream) -> Codec {
    let mut least = quote!(<#representation as ::peregrine::foreign::Cells>::CELL);
    for part in parts.others() {
        let value = part.value(representation);
        least.extend(quote!(+ #value::LEAST));
    }
    let pattern = parts.pattern();
    let Node { put, take, again } = parts.node(&quote!(Self), link, representation);
    let check = is_marked.then(|| {
        quote! {
            const fn __frees_in_a_loop<__T: ::peregrine::foreign::FreesInALoop>() {}
            __frees_in_a_loop::<Self>();
        }
    });
    Codec {
        constants: quote!(const LEAST: usize = #least;),
        put: quote! {
            let mut __node = self;
            let mut __nodes = ::peregrine::foreign::Nodes::new(#is_marked);
            loop {
                let Self { #pattern } = __node;
                #put
            }
        },
        take: quote! {
            #check
            let mut __nodes = ::peregrine::foreign::Nodes::new(#is_marked);
            let mut __before = ::peregrine::__rt::std::vec::Vec::new();
            let mut __list = loop { #take };
            #again
            ::core::result::Result::Ok(__list)
        },
        at: TokenStream::new(),
    }
}

/// One field: the member, the variable that contains the value of the field, its type and its form.
struct Part {
    member: Member,
    own: Ident,
    ty: Type,
    form: Form,
}

/// How the value of a field is sent.
enum Form {
    /// By the trait `Foreign`.
    Value,
    /// By the trait `Bounded`. The expression is the `max` of the field.
    Bounded(Expr),
    /// By the trait `CaseNumber`. The field is the number of the variant, which is the first cell.
    Number,
}

impl Part {
    /// Returns `<T as TRAIT<R>>`, where `T` is the type, and `TRAIT` is the trait that the form of the field
    /// needs.
    fn bound(&self, representation: &TokenStream) -> TokenStream {
        let (ty, name) = (&self.ty, format_ident!("{}", self.form.bound()));
        quote_spanned! {generated_at(ty.span())=>
            <#ty as ::peregrine::foreign::#name<#representation>>
        }
    }

    /// Returns `<T as Foreign<R>>`, where `T` is the type.
    fn value(&self, representation: &TokenStream) -> TokenStream {
        let ty = &self.ty;
        quote_spanned! {generated_at(ty.span())=>
            <#ty as ::peregrine::foreign::Foreign<#representation>>
        }
    }

    fn put(&self, representation: &TokenStream) -> TokenStream {
        let (bound, own) = (self.bound(representation), &self.own);
        match &self.form {
            Form::Value => quote!(#bound::put(#own, __to)?;),
            Form::Bounded(max) => quote! {
                #bound::put_at_most(#own, const { (#max) as usize }, __to)?;
            },
            Form::Number => quote! {
                let __case = #bound::cell(*#own);
                if ::peregrine::foreign::is_one_of::<Self>(__case) {
                    return ::core::result::Result::Err(::peregrine::foreign::Overflow::Case);
                }
                __to.cell(__case)?;
            },
        }
    }

    fn take(&self, representation: &TokenStream) -> TokenStream {
        let bound = self.bound(representation);
        match &self.form {
            Form::Value => quote!(#bound::take(__from)?),
            Form::Bounded(max) => {
                quote!(#bound::take_at_most(const { (#max) as usize }, __from)?)
            }
            Form::Number => quote!(#bound::of(__case)),
        }
    }
}

impl Form {
    /// Returns the name of the trait that the type of the field must implement.
    const fn bound(&self) -> &'static str {
        match self {
            Self::Value => "Foreign",
            Self::Bounded(_) => "Bounded",
            Self::Number => "CaseNumber",
        }
    }
}

/// The fields of a struct or a variant.
struct Parts(Vec<Part>);

/// The generated code for the nodes of a linked list.
struct Node {
    /// Code that appends the fields, whose values are in the variables of `Part::own`. Then the code
    /// continues with the next node, or returns after the last node.
    put: TokenStream,
    /// Code that takes the fields. Then the code adds them to `__before`, or ends the loop with the last
    /// node.
    take: TokenStream,
    /// Code that prepends the nodes in `__before` to `__list`, in reverse order.
    again: TokenStream,
}

impl Parts {
    fn new(fields: &Fields) -> syn::Result<Self> {
        let part = |(member, field): (Member, &syn::Field)| {
            let own = match &member {
                Member::Named(ident) => format_ident!("__field_{}", ident),
                Member::Unnamed(index) => format_ident!("__field_{}", index.index),
            };
            let max = Attributes::of(&field.attrs, Place::Field)?.max;
            let form = max.map_or(Form::Value, Form::Bounded);
            Ok(Part { member, own, ty: field.ty.clone(), form })
        };
        fields.members().zip(fields).map(part).collect::<syn::Result<_>>().map(Self)
    }

    fn pattern(&self) -> TokenStream {
        self.0.iter().map(|Part { member, own, .. }| quote!(#member: #own,)).collect()
    }

    fn put(&self, representation: &TokenStream) -> TokenStream {
        self.0.iter().map(|part| part.put(representation)).collect()
    }

    fn take(&self, representation: &TokenStream) -> TokenStream {
        let field = |part: &Part| {
            let (member, take) = (&part.member, part.take(representation));
            quote!(#member: #take,)
        };
        self.0.iter().map(field).collect()
    }

    /// Adds the bounds that the fields need. The code for a list needs no bound for the link.
    fn bound(&self, bounds: &mut Bounds, link: Option<Link>) {
        let parts = if link.is_some() { self.others() } else { &self.0 };
        parts.iter().for_each(|part| bounds.field(part));
        if link == Some(Link::Optional) {
            bounds.optional();
        }
    }

    /// Returns all fields but the last one, which is the link of a list.
    fn others(&self) -> &[Part] {
        self.0.split_last().map_or(&[], |(_, others)| others)
    }

    /// Returns the code for the nodes of a linked list. A node is built by `node { ... }`, and `link` is its
    /// last field.
    fn node(&self, node: &TokenStream, link: Link, representation: &TokenStream) -> Node {
        let (last, others) = self.0.split_last().expect("a node has a link");
        let (last, member) = (&last.own, &last.member);
        let put = others.iter().map(|part| part.put(representation));
        let take = others.iter().map(|part| part.take(representation));
        let own: Vec<_> = others.iter().map(|part| &part.own).collect();
        let fields: Vec<_> =
            others.iter().map(|Part { member, own, .. }| quote!(#member: #own,)).collect();
        let cell = quote!(<bool as ::peregrine::foreign::Foreign<#representation>>);
        let (put_link, take_link) = match link {
            Link::Boxed => (quote!(let __next = #last;), TokenStream::new()),
            Link::Optional => {
                let end = link.end();
                let put = quote! {
                    #cell::put(&#last.is_some(), __to)?;
                    let ::core::option::Option::Some(__next) = #last else {
                        return ::core::result::Result::Ok(());
                    };
                };
                let take = quote! {
                    if !#cell::take(__from)? {
                        let (#(#own,)*) = __own;
                        break #node { #(#fields)* #member: #end };
                    }
                };
                (put, take)
            }
        };
        let to_list = link.to_list();
        Node {
            put: quote! {
                #(#put)*
                #put_link
                __nodes.encoded()?;
                __node = &**__next;
            },
            take: quote! {
                let __own = (#(#take,)*);
                #take_link
                __nodes.taken()?;
                __before.push(__own);
            },
            again: quote! {
                while let ::core::option::Option::Some((#(#own,)*)) = __before.pop() {
                    __list = #node { #(#fields)* #member: #to_list };
                }
            },
        }
    }
}
