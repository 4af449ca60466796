//! Syntax to model: what an interface is, and every reason why a trait is none.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::{
    Attribute, Expr, FnArg, GenericArgument, ItemTrait, Pat, PatType, Path, PathArguments,
    Receiver, ReceiverKind, ReturnType, Safety, TraitItem, TraitItemFn, Type, TypeParamBound,
    TypePath, TypeReference, Visibility,
};

use crate::parse::{self, Arguments, Errors};

/// An interface, ready to be written out.
pub(crate) struct Interface {
    pub(crate) visibility: Visibility,
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) docs: String,
    pub(crate) methods: Vec<Method>,
}

/// A method; its position is its number.
pub(crate) struct Method {
    pub(crate) ident: Ident,
    pub(crate) docs: String,
    pub(crate) idempotent: bool,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Type,
}

/// A parameter.
pub(crate) struct Parameter {
    pub(crate) ident: Ident,
    /// The whole type, as written.
    pub(crate) written: Type,
    pub(crate) form: Form,
    /// The type of the value, or of an element of the buffer.
    pub(crate) ty: Type,
    pub(crate) max_len: Option<Expr>,
}

/// How a parameter is written, which says how it travels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `T`
    Value,
    /// `&T`
    Borrowed,
    /// `&str`
    Text,
    /// `&[T]`
    Slice,
    /// `Lent<'_, T>`
    Lent,
    /// `Out<'_, T>`
    Out,
    /// `&mut T`
    InOut,
    /// `&mut [T]`
    InOutSlice,
}

impl Form {
    /// Whether it is a buffer, whose length may be bounded.
    pub(crate) const fn is_buffer(self) -> bool {
        !matches!(self, Self::Value | Self::Borrowed | Self::InOut)
    }

    /// Whether it travels both ways.
    pub(crate) const fn is_in_out(self) -> bool {
        matches!(self, Self::InOut | Self::InOutSlice)
    }
}

/// The client has methods of these names itself, or gets them from `Clone` and `Debug`.
const TAKEN: &[&str] = &[
    "bind",
    "bind_with",
    "in_process",
    "in_process_with",
    "with_timeout",
    "with_deadline",
    "binding",
    "is_alive",
    "clone",
    "fmt",
];

/// Letters of a name, as for exports.
const NAME_BYTES_MAX: usize = 64;

/// Checks the trait, and takes from it the attributes that mean something to us alone.
pub(crate) fn interface(
    arguments: Arguments,
    item: &mut ItemTrait,
    mut errors: Errors,
) -> syn::Result<Interface> {
    trait_head(item, &mut errors);
    let name = match &arguments.name {
        Some(name) => {
            interface_name(name, &mut errors);
            name.value()
        }
        None => item.ident.unraw().to_string(),
    };
    let mut methods: Vec<Method> = Vec::new();
    for one in &mut item.items {
        let TraitItem::Fn(function) = one else {
            item_that_is_no_method(one, &mut errors);
            continue;
        };
        let ident = &function.sig.ident;
        if methods.iter().any(|method| method.ident == *ident) {
            errors.at(ident, format!("a second method `{ident}`: rename one of them"));
        }
        methods.push(method(function, arguments.max_len.as_ref(), &mut errors));
    }
    errors.or(Interface {
        visibility: item.vis.clone(),
        ident: item.ident.clone(),
        name,
        version: arguments.version.unwrap_or(0),
        docs: parse::docs(&item.attrs),
        methods,
    })
}

fn interface_name(name: &syn::LitStr, errors: &mut Errors) {
    let text = name.value();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(allowed) {
        errors.at(name, "no valid name: use 1 to 64 letters, digits, `-`, `_` or `.`");
    }
}

fn trait_head(item: &ItemTrait, errors: &mut Errors) {
    if let Some(auto) = &item.modifiers.auto_token {
        errors.at(auto, "an interface cannot be an auto trait: remove `auto`");
    }
    if let Some(token) = &item.unsafety {
        errors.at(token, "an interface cannot be unsafe, for no caller can vouch across a binding: remove `unsafe`");
    }
    if !item.generics.params.is_empty() {
        errors.at(
            &item.generics.params,
            "an interface cannot be generic, for its types must be known to both sides: write one trait per type",
        );
    }
    if let Some(clause) = &item.generics.where_clause {
        errors.at(clause, "an interface cannot have a where clause: remove it");
    }
    for bound in &item.supertraits {
        let allowed = match bound {
            TypeParamBound::Lifetime(lifetime) => lifetime.ident == "static",
            TypeParamBound::Trait(bound) => {
                let name = bound.path.segments.last().map(|last| last.ident.to_string());
                bound.maybe.is_none() && matches!(name.as_deref(), Some("Send" | "Sync"))
            }
            _ => false,
        };
        if !allowed {
            errors.at(
                bound,
                "an interface can have no supertraits but `Send`, `Sync` and `'static`, for its client implements nothing else: move the methods into this trait",
            );
        }
    }
}

fn item_that_is_no_method(item: &TraitItem, errors: &mut Errors) {
    let text = match item {
        TraitItem::Type(_) => {
            "an interface cannot have associated types: name the type in the methods"
        }
        TraitItem::Const(_) => {
            "an interface cannot have associated constants: write a method that returns it"
        }
        TraitItem::Macro(_) => {
            "an interface cannot have its methods from a macro: write them out, for their order is their number"
        }
        _ => "not a method: an interface consists of methods `fn name(&self, ...) -> Result<...>;`",
    };
    errors.at(item, text);
}

/// What is present on some builds only cannot be part of what both sides agree on.
fn conditional(attributes: &[Attribute], cure: &str, errors: &mut Errors) {
    for attribute in attributes {
        if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
            errors.at(
                attribute,
                format!(
                    "an interface must be the same in every build of client and server: {cure}"
                ),
            );
        }
    }
}

fn method(function: &mut TraitItemFn, max_len: Option<&Expr>, errors: &mut Errors) -> Method {
    conditional(&function.attrs, "remove the condition, or write two traits", errors);
    for attribute in parse::take(&mut function.attrs, "max_len") {
        errors.at(attribute, "`#[max_len(N)]` goes before a buffer parameter");
    }
    let idempotent = parse::take(&mut function.attrs, "idempotent");
    for attribute in &idempotent {
        if attribute.meta.require_path_only().is_err() {
            errors.at(attribute, "write `#[idempotent]`; it takes nothing");
        }
    }
    signature(function, errors);
    let mut inputs = function.sig.inputs.iter_mut();
    let first = match inputs.next() {
        Some(FnArg::Receiver(own)) => {
            receiver(own, errors);
            None
        }
        other => {
            errors.at(
                &function.sig.ident,
                "a method of an interface takes `&self` first: the object that is called",
            );
            other
        }
    };
    let typed = first.into_iter().chain(inputs).filter_map(|input| match input {
        FnArg::Typed(typed) => Some(typed),
        FnArg::Receiver(_) => None,
    });
    let parameters: Vec<_> = typed.filter_map(|typed| parameter(typed, max_len, errors)).collect();
    if let (Some(attribute), Some(both_ways)) =
        (idempotent.first(), parameters.iter().find(|one| one.form.is_in_out()))
    {
        errors.at(
            attribute,
            format!(
                "a second run would begin with what the first left in `{}`: an idempotent method takes no in-out parameters; use an in and an `Out`",
                both_ways.ident
            ),
        );
    }
    Method {
        docs: parse::docs(&function.attrs),
        idempotent: !idempotent.is_empty(),
        parameters,
        returns: returns(function, errors),
        ident: function.sig.ident.clone(),
    }
}

fn signature(function: &TraitItemFn, errors: &mut Errors) {
    let sig = &function.sig;
    if TAKEN.iter().any(|name| sig.ident == name) {
        errors.at(
            &sig.ident,
            format!("the client has a method `{}` of its own: choose another name", sig.ident),
        );
    }
    if let Some(token) = &sig.constness {
        errors.at(token, "a remote call does not happen when compiling: remove `const`");
    }
    if let Some(token) = &sig.asyncness {
        errors.at(
            token,
            "methods of an interface are not `async`: remove it; the caller's thread waits",
        );
    }
    match &sig.safety {
        Safety::Unsafe(token) => {
            errors.at(token, "no caller can vouch across a binding: remove `unsafe`");
        }
        Safety::Safe(token) => errors.at(token, "remove `safe`: every method of an interface is"),
        _ => {}
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, "methods of an interface have Rust's calling convention: remove `extern`");
    }
    if !sig.generics.params.is_empty() {
        errors.at(
            &sig.generics.params,
            "a method of an interface cannot be generic, for its types must be known to both sides: name the types, and leave lifetimes out",
        );
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(clause, "a method of an interface cannot have a where clause: remove it");
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(
            variadic,
            "the parameters must be known to both sides: take a `&[T]` instead of `...`",
        );
    }
    if let Some(body) = &function.default {
        errors.at(
            body,
            "a method of an interface has no body, for the client calls the server's: write `;`, and move the code into a function beside the trait",
        );
    }
}

fn receiver(receiver: &Receiver, errors: &mut Errors) {
    conditional(&receiver.attrs, "remove the condition", errors);
    let plain = matches!(receiver.kind, ReceiverKind::Reference(_, None, None));
    if !plain || receiver.mutability.is_some() {
        errors.at(
            receiver,
            "a method of an interface takes `&self`, for many callers share the object: keep what changes in a lock or an atomic",
        );
    }
}

fn returns(function: &TraitItemFn, errors: &mut Errors) -> Type {
    const CURE: &str = "a remote call can fail: return `peregrine::Result<T>`, or `Result<T, E>` where `E: From<CallError>`";
    let ReturnType::Type(_, returns) = &function.sig.output else {
        errors.at(&function.sig.ident, CURE);
        return Type::Verbatim(proc_macro2::TokenStream::new());
    };
    match bare(returns) {
        Type::Path(path) if last_is(path, "Result") => value_type(returns, Place::Result, errors),
        other => {
            let before = errors.count();
            value_type(other, Place::Result, errors);
            if errors.count() == before {
                errors.at(other, CURE);
            }
        }
    }
    (**returns).clone()
}

fn parameter(
    typed: &mut PatType,
    default_max_len: Option<&Expr>,
    errors: &mut Errors,
) -> Option<Parameter> {
    conditional(&typed.attrs, "remove the condition, or write two methods", errors);
    let bounds = parse::take(&mut typed.attrs, "max_len");
    let ident = match &*typed.pat {
        Pat::Ident(one)
            if one.by_ref.is_none() && one.mutability.is_none() && one.subpat.is_none() =>
        {
            Some(one.ident.clone())
        }
        other => {
            errors.at(other, "a parameter of an interface has a name, for it is described by it: write `name: T`");
            None
        }
    };
    let (form, ty) = form(&typed.ty, errors)?;
    let mut max_len = default_max_len.filter(|_| form.is_buffer()).cloned();
    for attribute in &bounds {
        if !form.is_buffer() {
            errors.at(
                attribute,
                "`#[max_len(N)]` bounds a buffer: `&str`, `&[T]`, `&mut [T]`, `Out` or `Lent`; this is one value, remove it",
            );
            continue;
        }
        match parse::max_len(attribute) {
            Ok(bound) => max_len = Some(bound),
            Err(error) => errors.push(error),
        }
    }
    if let Some(second) = bounds.get(1) {
        errors.at(second, "`max_len` is given twice: keep one");
    }
    Some(Parameter { ident: ident?, written: (*typed.ty).clone(), form, ty, max_len })
}

/// How the parameter travels, and the type of its value or element.
fn form(written: &Type, errors: &mut Errors) -> Option<(Form, Type)> {
    match bare(written) {
        Type::Reference(reference) => borrowed(reference, errors),
        Type::Path(path) if last_is(path, "Out") => buffer(path, Form::Out, errors),
        Type::Path(path) if last_is(path, "Lent") => buffer(path, Form::Lent, errors),
        other => {
            value_type(other, Place::Parameter, errors);
            Some((Form::Value, other.clone()))
        }
    }
}

fn borrowed(reference: &TypeReference, errors: &mut Errors) -> Option<(Form, Type)> {
    if let Some(lifetime) = &reference.lifetime {
        errors.at(lifetime, "a parameter is borrowed for the call only: leave the lifetime out");
    }
    let mutable = reference.mutability.is_some();
    let (form, ty) = match bare(&reference.elem) {
        Type::Path(path) if path.path.is_ident("str") => {
            if mutable {
                errors.at(reference, "text cannot travel both ways in place: take `&mut String`");
                return None;
            }
            return Some((Form::Text, (*reference.elem).clone()));
        }
        Type::Path(path) if last_is(path, "Out") || last_is(path, "Lent") => {
            errors.at(
                reference,
                "take the buffer by value, for it is a reference already: remove the `&`",
            );
            return None;
        }
        Type::Slice(slice) if mutable => (Form::InOutSlice, &*slice.elem),
        Type::Slice(slice) => (Form::Slice, &*slice.elem),
        other if mutable => (Form::InOut, other),
        other => (Form::Borrowed, other),
    };
    value_type(ty, Place::Parameter, errors);
    Some((form, ty.clone()))
}

/// `Out<'_, T>` or `Lent<'_, T>`.
fn buffer(path: &TypePath, form: Form, errors: &mut Errors) -> Option<(Form, Type)> {
    let last = path.path.segments.last()?;
    let mut elements = Vec::new();
    if let PathArguments::AngleBracketed(arguments) = &last.arguments {
        for argument in &arguments.args {
            match argument {
                GenericArgument::Type(ty) => elements.push(ty),
                GenericArgument::Lifetime(lifetime) if lifetime.ident == "_" => {}
                GenericArgument::Lifetime(lifetime) => {
                    errors.at(lifetime, "a parameter is borrowed for the call only: write `'_`");
                }
                other => errors.at(other, "expected the type of an element"),
            }
        }
    }
    let [element] = elements[..] else {
        errors.at(path, format!("name the type of the elements: `{}<'_, T>`", last.ident));
        return None;
    };
    value_type(element, Place::Parameter, errors);
    Some((form, element.clone()))
}

/// Where a type stands; the cure for a borrow depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Parameter,
    Result,
}

/// Notes what a type that must own its parts cannot have in it.
fn value_type(ty: &Type, place: Place, errors: &mut Errors) {
    match ty {
        Type::Array(array) => value_type(&array.elem, place, errors),
        Type::Group(group) => value_type(&group.elem, place, errors),
        Type::Paren(paren) => value_type(&paren.elem, place, errors),
        Type::Tuple(tuple) => tuple.elems.iter().for_each(|one| value_type(one, place, errors)),
        Type::Path(path) => path_type(path, place, errors),
        Type::Reference(reference) => errors.at(
            reference,
            match place {
                Place::Parameter => "a borrow inside a type cannot travel: borrow the whole parameter, and own what is in it (`String`, `Vec<T>`)",
                Place::Result => "a result cannot borrow: return an owned value (`String`, `Vec<T>`), or take an `Out` parameter",
            },
        ),
        Type::Slice(slice) => errors.at(
            slice,
            "a slice has no size: write `Vec<T>`, or `&[T]` as the whole parameter",
        ),
        Type::ImplTrait(_) => errors.at(
            ty,
            "`impl Trait` cannot travel, for its type must be known to both sides: name the type",
        ),
        Type::TraitObject(_) => errors.at(
            ty,
            "`dyn Trait` cannot travel, for its type must be known to both sides: name the type, or an enum of those that may come",
        ),
        Type::FnPtr(_) => errors.at(ty, "a function cannot travel: its code is on one side only"),
        Type::Ptr(_) => errors.at(
            ty,
            "a raw pointer means nothing on the other side: send the value, or take an `Out` or a `Lent`",
        ),
        Type::Never(_) => errors.at(ty, "`!` has no value to send: write `()`"),
        Type::Infer(_) => errors.at(ty, "the type must be known to both sides: name it"),
        Type::Macro(_) => errors.at(ty, "the type must be known to both sides: write it without a macro"),
        _ => errors.at(ty, "this type cannot travel: name a type that is a `peregrine::Value`"),
    }
}

fn path_type(path: &TypePath, place: Place, errors: &mut Errors) {
    if let Some(own) = &path.qself {
        value_type(&own.ty, place, errors);
    }
    for (name, cure) in [("usize", "u64"), ("isize", "i64")] {
        if path.path.is_ident(name) || is_primitive(&path.path, name) {
            let narrow = cure.replace("64", "32");
            errors
                .at(path, format!("`{name}` differs between machines: use `{cure}` or `{narrow}`"));
            return;
        }
    }
    if path.path.segments.first().is_some_and(|first| first.ident == "Self") {
        errors.at(path, "`Self` is another type on each side: name the type");
        return;
    }
    if last_is(path, "Out") || last_is(path, "Lent") {
        errors.at(
            path,
            "a buffer is a parameter of its own, neither a part of another type nor a result",
        );
        return;
    }
    for segment in &path.path.segments {
        match &segment.arguments {
            PathArguments::None => {}
            PathArguments::AngleBracketed(arguments) => {
                for argument in &arguments.args {
                    match argument {
                        GenericArgument::Type(ty) => value_type(ty, place, errors),
                        GenericArgument::Lifetime(lifetime) => errors.at(
                            lifetime,
                            "a type that borrows cannot travel: use one that owns its parts",
                        ),
                        _ => {}
                    }
                }
            }
            PathArguments::Parenthesized(_) => {
                errors.at(path, "a function cannot travel: its code is on one side only");
            }
        }
    }
}

/// `core::primitive::usize` and the like.
fn is_primitive(path: &Path, name: &str) -> bool {
    let mut last = path.segments.iter().rev();
    last.next().is_some_and(|one| one.ident == name)
        && last.next().is_some_and(|one| one.ident == "primitive")
}

fn last_is(path: &TypePath, name: &str) -> bool {
    path.path.segments.last().is_some_and(|last| last.ident == name)
}

/// The type without the parentheses and invisible groups around it.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Paren(paren) => bare(&paren.elem),
        Type::Group(group) => bare(&group.elem),
        other => other,
    }
}
