//! Reads `#[foreign(...)]` of types, variants and fields.

use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Expr, Type};

/// The arguments of all `#[foreign(...)]` attributes of one type, variant or field.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) xdr: bool,
    pub(crate) courier: bool,
    pub(crate) switch: Option<Type>,
    pub(crate) case: Option<Expr>,
    pub(crate) default: bool,
    pub(crate) error: Option<Expr>,
    pub(crate) max: Option<Expr>,
}

/// The kind of item that has an attribute.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Struct,
    Enum,
    Variant,
    Field,
}

impl Place {
    /// Returns the arguments that `#[foreign(...)]` may have on this kind of item, and the text of the error
    /// for another argument.
    const fn names(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Struct => {
                (&["xdr", "courier"], "a struct takes `#[foreign(xdr)]` and `#[foreign(courier)]`")
            }
            Self::Enum => (
                &["xdr", "courier", "switch"],
                "an enum takes `#[foreign(switch = T)]`, `#[foreign(xdr)]` and `#[foreign(courier)]`",
            ),
            Self::Variant => (
                &["case", "default", "error"],
                "a variant takes `#[foreign(case = N)]`, `#[foreign(default)]` or `#[foreign(error = N)]`",
            ),
            Self::Field => (&["max"], "a field takes `#[foreign(max = N)]`"),
        }
    }
}

impl Attributes {
    /// Reads all attributes with the name `foreign`.
    pub(crate) fn of(attributes: &[Attribute], place: Place) -> syn::Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|one| one.path().is_ident("foreign")) {
            attribute.parse_nested_meta(|meta| {
                let (names, advice) = place.names();
                let Some(name) = names.iter().find(|name| meta.path.is_ident(name)) else {
                    return Err(Error::new(meta.path.span(), advice));
                };
                let twice = match *name {
                    "xdr" => core::mem::replace(&mut found.xdr, true),
                    "courier" => core::mem::replace(&mut found.courier, true),
                    "default" => core::mem::replace(&mut found.default, true),
                    "switch" => found.switch.replace(meta.value()?.parse()?).is_some(),
                    "case" => found.case.replace(meta.value()?.parse()?).is_some(),
                    "error" => found.error.replace(meta.value()?.parse()?).is_some(),
                    _ => found.max.replace(meta.value()?.parse()?).is_some(),
                };
                match twice {
                    true => Err(meta.error(format!("duplicate `{name}`: remove one"))),
                    false => Ok(()),
                }
            })?;
        }
        Ok(found)
    }
}
