//! Checks of one-way methods.

use syn::{Attribute, GenericArgument, PathArguments, TraitItemFn, Type};

use super::{Form, Method, Parameter, bare};
use crate::parse::{self, Errors};

/// Returns whether a method is marked as one-way. Reports an error if it cannot be one-way.
pub(super) fn method(
    function: &mut TraitItemFn,
    idempotent: &[Attribute],
    parameters: &[Parameter],
    returns: &Type,
    errors: &mut Errors,
) -> bool {
    let marks = parse::take(&mut function.attrs, "oneway");
    for mark in &marks {
        if mark.meta.require_path_only().is_err() {
            errors.at(mark, "`#[oneway]` takes no arguments: write `#[oneway]`");
        }
    }
    let Some(mark) = marks.first() else { return false };
    if let Some(second) = marks.get(1) {
        errors.at(second, "duplicate `#[oneway]`: remove one");
    }
    if !idempotent.is_empty() {
        errors.at(
            mark,
            "a one-way method cannot be idempotent, because a one-way call is never repeated: remove `#[oneway]` or `#[idempotent]`",
        );
    }
    for one in parameters {
        let why = match one.form {
            Form::Value | Form::Borrowed | Form::Text | Form::Slice => continue,
            Form::Out | Form::InOut | Form::InOutSlice => {
                "because the caller does not wait for its value: remove `#[oneway]`, or use an in parameter"
            }
            Form::Lent => {
                "because the caller does not wait while the procedure uses its memory: take `&[T]`"
            }
            Form::Sink | Form::Source => {
                "because the caller does not wait while its items move: remove `#[oneway]`"
            }
            Form::Callback { .. } => {
                "because the caller does not wait while its object is called: remove `#[oneway]`"
            }
        };
        let name = &one.ident;
        errors.at(
            &one.written,
            format!("a one-way method cannot have the parameter `{name}` of this type, {why}"),
        );
    }
    if returns_a_value(returns) {
        errors.at(
            returns,
            "a one-way method has no result, because the caller does not wait for it: return `peregrine::Result<()>`, or `Result<(), E>`",
        );
    }
    true
}

/// Reports methods with the name `flush`: the client of an interface with one-way methods has a method of
/// this name.
pub(super) fn flush(methods: &[Method], errors: &mut Errors) {
    if !methods.iter().any(|method| method.oneway) {
        return;
    }
    for method in methods.iter().filter(|method| method.ident == "flush") {
        errors.at(
            &method.ident,
            "the client of an interface with one-way methods already has a method `flush`, which waits for them: choose another name",
        );
    }
}

/// Returns whether `T` in the type `Result<T, E>` is not `()`.
fn returns_a_value(returns: &Type) -> bool {
    let Type::Path(path) = bare(returns) else { return false };
    let Some(last) = path.path.segments.last() else { return false };
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return false };
    match arguments.args.first() {
        Some(GenericArgument::Type(ok)) => {
            !matches!(bare(ok), Type::Tuple(tuple) if tuple.elems.is_empty())
        }
        _ => false,
    }
}
