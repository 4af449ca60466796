//! Checks of callbacks.

use syn::{GenericArgument, PathArguments, Type, TypeParamBound, TypePath, TypeTraitObject};

use super::{Form, bare};
use crate::parse::Errors;

/// Returns the form and the trait object of `Callback<'_, dyn Trait>`.
pub(super) fn callback(path: &TypePath, errors: &mut Errors) -> Option<(Form, Type)> {
    let before = errors.count();
    let (mut lifetimes, mut objects) = (Vec::new(), Vec::new());
    if let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments {
        for argument in &arguments.args {
            match argument {
                GenericArgument::Lifetime(lifetime) => lifetimes.push(lifetime),
                GenericArgument::Type(ty) => objects.push(ty),
                other => errors.at(other, "expected `dyn Trait`, where `Trait` is an interface"),
            }
        }
    }
    let ([lifetime], [object]) = (&lifetimes[..], &objects[..]) else {
        errors.at(
            path,
            "a callback has a lifetime and an interface: write `Callback<'_, dyn Trait>`, or `Callback<'static, dyn Trait>` if the procedure may keep it",
        );
        return None;
    };
    let kept = lifetime.ident == "static";
    if !kept && lifetime.ident != "_" {
        errors.at(
            lifetime,
            "a callback cannot have this lifetime: write `'_`, or `'static` if the procedure may keep it",
        );
    }
    match bare(object) {
        Type::TraitObject(object) => interface(object, errors),
        other => errors.at(
            other,
            "a callback calls an object through its interface: write `dyn Trait`, where `Trait` is an interface",
        ),
    }
    (errors.count() == before).then(|| (Form::Callback { kept }, bare(object).clone()))
}

/// Reports a trait object that does not consist of the path of one trait.
fn interface(object: &TypeTraitObject, errors: &mut Errors) {
    let mut bounds = object.bounds.iter();
    let trait_bound = match (bounds.next(), bounds.next()) {
        (Some(TypeParamBound::Trait(bound)), None) => bound,
        _ => {
            return errors.at(
                object,
                "a callback has one interface, and its objects are `Send` and `Sync`: write `dyn Trait` without other bounds",
            );
        }
    };
    let is_plain = trait_bound.lifetimes.is_none()
        && trait_bound.maybe.is_none()
        && trait_bound.path.segments.iter().all(|one| one.arguments.is_none());
    if !is_plain {
        errors.at(trait_bound, "an interface is not generic: write `dyn Trait`");
    }
}
