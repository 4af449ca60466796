//! The attributes by which interfaces grow: `#[default]`, `#[was]`, `#[widens]` and `#[other]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::punctuated::Punctuated;
use syn::{Attribute, Error, Expr, ExprLit, Fields, Lit, LitStr, Meta, Token, Variant};

/// The names of the attributes that fields and parameters can have.
const NAMES: [&str; 3] = ["default", "was", "widens"];

/// How a field or a parameter may differ between client and server, according to its attributes.
#[derive(Default)]
pub(crate) struct Growth {
    was: Vec<LitStr>,
    widens: bool,
    default: Option<Default>,
}

/// The value that is used if the peer does not know the field or the parameter.
enum Default {
    /// The value of `Default::default()`.
    OfType,
    /// The value of this expression.
    Expression(Expr),
    /// A buffer without elements.
    Empty,
}

impl Growth {
    /// Reads the attributes of a field.
    pub(crate) fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut growth = Self { was: was(attributes)?, ..Self::default() };
        for attribute in attributes {
            if attribute.path().is_ident("widens") {
                flag(attribute)?;
                growth.widens = true;
            }
            if attribute.path().is_ident("default") {
                if growth.default.is_some() {
                    return Err(Error::new_spanned(attribute, "duplicate `default`: remove one"));
                }
                growth.default = Some(match &attribute.meta {
                    Meta::Path(_) => Default::OfType,
                    Meta::List(list) => Default::Expression(list.parse_args()?),
                    Meta::NameValue(_) => {
                        return Err(Error::new_spanned(
                            attribute,
                            "write `#[default]`, or `#[default(expression)]`",
                        ));
                    }
                });
            }
        }
        Ok(growth)
    }

    /// Reads the attributes of a parameter, and removes them from the trait.
    pub(crate) fn take(attributes: &mut Vec<Attribute>) -> syn::Result<Self> {
        let is_own = |one: &mut Attribute| NAMES.iter().any(|name| one.path().is_ident(name));
        let own: Vec<_> = attributes.extract_if(.., is_own).collect();
        Self::of(&own)
    }

    /// Returns the growth of a parameter that is a buffer. The default of a buffer can only be an empty
    /// buffer.
    pub(crate) fn of_buffer(mut self) -> syn::Result<Self> {
        match self.default {
            None => {}
            Some(Default::OfType | Default::Empty) => self.default = Some(Default::Empty),
            Some(Default::Expression(expression)) => {
                return Err(Error::new_spanned(
                    expression,
                    "the default of a buffer is always empty: write `#[default]`",
                ));
            }
        }
        Ok(self)
    }

    pub(crate) const fn widens(&self) -> bool {
        self.widens
    }

    pub(crate) const fn has_default(&self) -> bool {
        self.default.is_some()
    }

    /// Generates the growth of a field or parameter of type `ty` as constant data.
    pub(crate) fn described(&self, ty: &impl ToTokens) -> TokenStream {
        let Self { was, widens, default } = self;
        if was.is_empty() && !widens && default.is_none() {
            return quote!(::peregrine::__rt::Growth::NONE);
        }
        let default = match default {
            None => quote!(::core::option::Option::None),
            Some(default) => {
                let bytes = match default {
                    Default::OfType => quote! {
                        ::peregrine::__rt::default_bytes::<#ty>(&::core::default::Default::default())
                    },
                    Default::Expression(expression) => {
                        let value = match expression {
                            // A string literal is converted to a `String`, or to another type that implements
                            // `From<&str>`.
                            Expr::Lit(ExprLit { lit: Lit::Str(_), .. }) => {
                                quote!(::core::convert::From::from(#expression))
                            }
                            other => quote!(#other),
                        };
                        quote!(::peregrine::__rt::default_bytes::<#ty>(&#value))
                    }
                    Default::Empty => quote!(::std::vec![0u8; 4]),
                };
                quote!(::core::option::Option::Some(|| #bytes))
            }
        };
        quote! {
            ::peregrine::__rt::Growth { was: &[#(#was),*], widens: #widens, default: #default }
        }
    }
}

/// Returns the earlier names in `#[was("old", "older")]`.
pub(crate) fn was(attributes: &[Attribute]) -> syn::Result<Vec<LitStr>> {
    let mut all = Vec::new();
    for attribute in attributes.iter().filter(|one| one.path().is_ident("was")) {
        let names = match &attribute.meta {
            Meta::List(list) => {
                list.parse_args_with(Punctuated::<LitStr, Token![,]>::parse_terminated).ok()
            }
            _ => None,
        };
        let is_name = |name: &LitStr| {
            let text = name.value();
            let allowed = |c: char| c.is_alphanumeric() || c == '_';
            !text.is_empty() && text.chars().all(allowed)
        };
        match names.filter(|names| !names.is_empty() && names.iter().all(is_name)) {
            Some(names) => all.extend(names),
            None => {
                return Err(Error::new_spanned(
                    attribute,
                    "write `#[was(\"old\")]`, with the earlier name",
                ));
            }
        }
    }
    Ok(all)
}

/// Returns whether a variant has the attribute `#[other]`. Such a variant receives all variants that are not
/// known.
pub(crate) fn is_other(variant: &Variant) -> syn::Result<bool> {
    let mut found = variant.attrs.iter().filter(|one| one.path().is_ident("other"));
    let Some(attribute) = found.next() else { return Ok(false) };
    flag(attribute)?;
    let fits = match &variant.fields {
        Fields::Unit => true,
        Fields::Unnamed(fields) => fields.unnamed.len() == 1,
        Fields::Named(fields) => fields.named.is_empty(),
    };
    if !fits {
        return Err(Error::new_spanned(
            variant,
            "the variant for unknown variants has one field for their name, or no field: write `Unknown(String)` or `Unknown`",
        ));
    }
    Ok(true)
}

/// Reports an error if a second variant has the attribute `#[other]`.
pub(crate) fn one_other<'a>(variants: impl IntoIterator<Item = &'a Variant>) -> syn::Result<()> {
    let mut found = false;
    for variant in variants {
        if is_other(variant)? && core::mem::replace(&mut found, true) {
            return Err(Error::new_spanned(
                variant,
                "only one variant can be `#[other]`, because it receives all unknown ones",
            ));
        }
    }
    Ok(())
}

fn flag(attribute: &Attribute) -> syn::Result<()> {
    attribute
        .meta
        .require_path_only()
        .map(drop)
        .map_err(|_| Error::new_spanned(attribute, "this attribute takes no arguments"))
}
