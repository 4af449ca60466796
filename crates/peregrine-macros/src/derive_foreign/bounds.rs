//! Determines the conditions under which a type has a form in a representation: each of its fields must have
//! a form in it.
//!
//! The type of a field may contain the derived type itself, as in `Option<Box<Self>>`. Such a type cannot be
//! a condition, because the compiler would need the implementation to check the implementation's own
//! condition. Instead, the conditions are for the other types that the type of the field contains.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{GenericParam, Generics, Type, WherePredicate};

use super::Part;
use crate::generated_at;
use crate::list::argument;

/// The conditions of an implementation of `Foreign` that has the representation as its parameter `__R`.
pub(super) struct Bounds {
    ident: Ident,
    all: Vec<WherePredicate>,
}

impl Bounds {
    pub(super) fn new(ident: &Ident) -> Self {
        Self { ident: ident.clone(), all: Vec::new() }
    }

    /// Adds the condition for a field.
    pub(super) fn field(&mut self, part: &Part) {
        if self.mentions_itself(&part.ty) {
            self.around(&part.ty);
        } else {
            self.add(&part.ty, part.form.bound());
        }
    }

    /// Adds the condition that the representation has optional values.
    pub(super) fn optional(&mut self) {
        self.all.push(syn::parse_quote!(__R: ::peregrine::foreign::Optional));
    }

    fn add(&mut self, ty: &Type, bound: &str) {
        let bound = quote::format_ident!("{bound}");
        let predicate = quote_spanned! {generated_at(ty.span())=>
            #ty: ::peregrine::foreign::#bound<__R>
        };
        self.all.push(syn::parse_quote!(#predicate));
    }

    /// Adds the conditions for a type that contains the derived type. They are for the types that surround
    /// the derived type, such as `Option`, and for types next to it, such as the other elements of a tuple.
    fn around(&mut self, ty: &Type) {
        if !self.mentions_itself(ty) {
            return self.add(ty, "Foreign");
        }
        match ty {
            Type::Paren(inner) => self.around(&inner.elem),
            Type::Group(inner) => self.around(&inner.elem),
            Type::Array(array) => self.around(&array.elem),
            Type::Tuple(tuple) => tuple.elems.iter().for_each(|ty| self.around(ty)),
            _ => {
                if let Some(inner) = argument(ty, "Option") {
                    self.optional();
                    self.around(inner);
                } else if let Some(inner) = argument(ty, "Vec").or_else(|| argument(ty, "Box")) {
                    self.around(inner);
                }
            }
        }
    }

    fn mentions_itself(&self, ty: &Type) -> bool {
        self.is_among(ty.to_token_stream())
    }

    fn is_among(&self, tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(ident) => ident == "Self" || ident == self.ident,
            TokenTree::Group(group) => self.is_among(group.stream()),
            _ => false,
        })
    }

    /// Returns the generics of the type with all conditions.
    pub(super) fn of_fields(&self, generics: &Generics) -> Generics {
        let mut generics = generics.clone();
        generics.make_where_clause().predicates.extend(self.all.iter().cloned());
        generics
    }
}

/// Returns the generics of the type with a condition for each type parameter. This is for an implementation
/// for one representation.
pub(super) fn of_parameters(generics: &Generics, representation: &TokenStream) -> Generics {
    let mut generics = generics.clone();
    for parameter in &mut generics.params {
        if let GenericParam::Type(ty) = parameter {
            ty.bounds.push(syn::parse_quote!(::peregrine::foreign::Foreign<#representation>));
        }
    }
    generics
}
