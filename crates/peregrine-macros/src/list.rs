//! Linked lists: types whose last field is a box, or an optional box, with a value of the same type.
//!
//! They are encoded and decoded in a loop, so that the stack does not limit their length.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, Field, Fields, GenericArgument, Generics, Member, PathArguments, Type};

/// How the last field of a node holds the next node.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    /// `Box<Self>`, in an enum.
    Boxed,
    /// `Option<Box<Self>>`.
    Optional,
}

impl Link {
    /// Returns which kind of link the last of these fields is. Returns `None` if this field is not a link.
    pub(crate) fn of(ident: &Ident, fields: &Fields) -> Option<Self> {
        let ty = &fields.iter().last()?.ty;
        if boxes(ty, ident) {
            return Some(Self::Boxed);
        }
        argument(ty, "Option").filter(|inner| boxes(inner, ident)).map(|_| Self::Optional)
    }

    /// Returns code that encodes the link in the variable `last`. If the link has no next node, this code
    /// ends the loop.
    pub(crate) fn encode(self, last: &Ident) -> TokenStream {
        let has_next = match self {
            Self::Boxed => quote!(let __next = #last;),
            Self::Optional => quote! {
                __head.plain(&#last.is_some())?;
                let ::core::option::Option::Some(__next) = #last else { break };
            },
        };
        quote! {
            #has_next
            __nodes.encoded()?;
            __node = &**__next;
        }
    }

    /// Returns code that decodes whether the link has a next node. If not, this code ends the loop with the
    /// value `end`.
    pub(crate) fn decode(self, end: &TokenStream) -> TokenStream {
        match self {
            Self::Boxed => TokenStream::new(),
            Self::Optional => quote! {
                if !__head.plain::<bool>()? {
                    break #end;
                }
            },
        }
    }

    /// Returns code for the value of a link whose next node is in the variable `__list`.
    pub(crate) fn to_list(self) -> TokenStream {
        let boxed = quote!(::peregrine::__rt::std::boxed::Box::new(__list));
        match self {
            Self::Boxed => boxed,
            Self::Optional => quote!(::core::option::Option::Some(#boxed)),
        }
    }

    /// Returns code for the value of a link that has no next node.
    pub(crate) fn end(self) -> TokenStream {
        quote!(::core::option::Option::None)
    }
}

/// If the type has the form `name<T>`, such as `Option<T>`, returns `T`.
pub(crate) fn argument<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match (arguments.args.first(), arguments.args.len()) {
        (Some(GenericArgument::Type(ty)), 1) => Some(ty),
        _ => None,
    }
}

/// Returns whether a type is `Box<Self>`, or a box of the type whose name is `ident`.
fn boxes(ty: &Type, ident: &Ident) -> bool {
    let Some(Type::Path(path)) = argument(ty, "Box") else { return false };
    let single = path.path.get_ident().or_else(|| match &path.path.segments {
        segments if segments.len() == 1 => segments.first().map(|segment| &segment.ident),
        _ => None,
    });
    path.qself.is_none() && single.is_some_and(|single| single == "Self" || single == ident)
}

/// Returns whether a field has the attribute `#[list]`.
pub(crate) fn is_marked(field: &Field) -> bool {
    field.attrs.iter().any(|one| one.path().is_ident("list"))
}

/// Reports `#[list]` at a field that is not the link of a struct, because the attribute has no meaning there.
pub(crate) fn check_marks(fields: &Fields, link: Option<Link>) -> syn::Result<()> {
    let last = fields.len().saturating_sub(1);
    for (index, field) in fields.iter().enumerate() {
        let is_link = index == last && link == Some(Link::Optional);
        if is_marked(field) && !is_link {
            return Err(Error::new_spanned(
                field,
                "`#[list]` belongs to the last field of a struct, of type `Option<Box<Self>>`",
            ));
        }
    }
    Ok(())
}

/// Generates an implementation of `Drop` for a list, which frees the nodes in a loop. The compiler's own code
/// would recurse for each node, so a long list would overflow the stack.
pub(crate) fn drop_in_a_loop(ident: &Ident, generics: &Generics, link: &Member) -> TokenStream {
    let (impl_generics, ty_generics, where_clause) = generics.split_for_impl();
    quote! {
        impl #impl_generics ::core::ops::Drop for #ident #ty_generics #where_clause {
            fn drop(&mut self) {
                let mut __next = ::core::option::Option::take(&mut self.#link);
                while let ::core::option::Option::Some(mut __node) = __next {
                    __next = ::core::option::Option::take(&mut __node.#link);
                }
            }
        }
        impl #impl_generics ::peregrine::__rt::FreesInALoop for #ident #ty_generics #where_clause {}
    }
}
