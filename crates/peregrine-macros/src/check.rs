//! Converts the syntax of a trait to a model of the interface, or reports all errors in the trait.

mod callback;
mod oneway;

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::{
    Attribute, Expr, FnArg, GenericArgument, ItemTrait, LitStr, Pat, PatType, Path, PathArguments,
    Receiver, ReceiverKind, ReturnType, Safety, TraitItem, TraitItemFn, Type, TypeParamBound,
    TypePath, TypeReference, Visibility,
};

use crate::callers;
use crate::descriptor::Descriptor;
use crate::growth::{self, Growth};
use crate::parse::{self, Arguments, Errors};
use crate::programs::{self, Numbers, Program};

/// The model of an interface, from which stubs are generated.
pub(crate) struct Interface {
    pub(crate) visibility: Visibility,
    pub(crate) ident: Ident,
    pub(crate) name: String,
    pub(crate) version: u32,
    pub(crate) docs: String,
    pub(crate) methods: Vec<Method>,
    /// The interface as a program of other RPC systems, with one entry for each system.
    pub(crate) programs: Vec<Program>,
}

/// A method. The index of the method in the trait is the number of the procedure.
pub(crate) struct Method {
    pub(crate) ident: Ident,
    pub(crate) docs: String,
    pub(crate) idempotent: bool,
    pub(crate) oneway: bool,
    /// The earlier names of the method.
    pub(crate) was: Vec<LitStr>,
    /// Patterns of which a caller must match one. `None`: any caller may call the procedure.
    pub(crate) allowed: Option<Vec<LitStr>>,
    /// What the server keeps for the procedure.
    pub(crate) descriptor: Descriptor,
    /// The numbers of the procedure in other RPC systems.
    pub(crate) numbers: Numbers,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) returns: Type,
    /// The return type, in the form that the stubs use (see `types`).
    pub(crate) outcome: Type,
}

impl Method {
    /// Returns whether the method has streams or callbacks.
    pub(crate) fn has_streams(&self) -> bool {
        self.parameters.iter().any(|one| one.form.is_live())
    }
}

/// A parameter of a method.
pub(crate) struct Parameter {
    pub(crate) ident: Ident,
    /// The whole type, as the trait contains it.
    pub(crate) written: Type,
    pub(crate) form: Form,
    /// The type of the value, or of an element of the buffer, in the form that the stubs use (see `types`).
    pub(crate) ty: Type,
    pub(crate) max_len: Option<Expr>,
    pub(crate) growth: Growth,
}

/// How the type of a parameter is written. The form determines the direction of the parameter.
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
    /// `Sink<'_, T>`
    Sink,
    /// `Source<'_, T>`
    Source,
    /// `Callback<'_, dyn T>`, or `Callback<'static, dyn T>`, which the procedure may keep after the call
    Callback { kept: bool },
}

impl Form {
    /// Returns whether the parameter is a buffer, whose length can be bounded.
    pub(crate) const fn is_buffer(self) -> bool {
        !matches!(self, Self::Value | Self::Borrowed | Self::InOut) && !self.is_live()
    }

    /// Returns whether both sides exchange messages for the parameter while the call runs.
    pub(crate) const fn is_live(self) -> bool {
        matches!(self, Self::Sink | Self::Source | Self::Callback { .. })
    }

    /// Returns whether the parameter is sent in both directions.
    pub(crate) const fn is_in_out(self) -> bool {
        matches!(self, Self::InOut | Self::InOutSlice)
    }
}

/// The names of the methods that every client has, including those from `Clone` and `Debug`. No procedure can
/// have one of these names.
const TAKEN: &[&str] = &[
    "bind",
    "bind_with",
    "in_process",
    "in_process_to",
    "in_process_with",
    "with_timeout",
    "with_deadline",
    "with_metadata",
    "with_metadata_of",
    "binding",
    "is_alive",
    "clone",
    "fmt",
];

/// The largest number of bytes in the name of an interface. The limit for the name of an export is the same.
const NAME_BYTES_MAX: usize = 64;

/// Checks the trait. Also removes the attributes that only this crate understands from the trait.
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
            report_item(one, &mut errors);
            continue;
        };
        let ident = &function.sig.ident;
        if methods.iter().any(|method| method.ident == *ident) {
            errors.at(ident, format!("duplicate method `{ident}`: rename one of them"));
        }
        methods.push(method(function, arguments.max_len.as_ref(), &mut errors));
    }
    oneway::flush(&methods, &mut errors);
    programs::check(&arguments.programs, &methods, &mut errors);
    foreign_errors(&methods, &mut errors);
    errors.or(Interface {
        visibility: item.vis.clone(),
        ident: item.ident.clone(),
        name,
        version: arguments.version.unwrap_or(0),
        docs: parse::docs(&item.attrs),
        methods,
        programs: arguments.programs,
    })
}

fn interface_name(name: &LitStr, errors: &mut Errors) {
    let text = name.value();
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > NAME_BYTES_MAX || !text.chars().all(allowed) {
        errors.at(name, "invalid name: use 1 to 64 letters, digits, `-`, `_` or `.`");
    }
}

fn trait_head(item: &ItemTrait, errors: &mut Errors) {
    if let Some(auto) = &item.modifiers.auto_token {
        errors.at(auto, "an interface cannot be an auto trait: remove `auto`");
    }
    if let Some(token) = &item.unsafety {
        errors.at(token, "an interface cannot be unsafe, because no caller can guarantee anything across a binding: remove `unsafe`");
    }
    if !item.generics.params.is_empty() {
        errors.at(
            &item.generics.params,
            "an interface cannot be generic, because both sides must know its types: write one trait per type",
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
                "the only supertraits of an interface are `Send`, `Sync` and `'static`, because its client implements no others: move the methods into this trait",
            );
        }
    }
}

fn report_item(item: &TraitItem, errors: &mut Errors) {
    let text = match item {
        TraitItem::Type(_) => {
            "an interface cannot have associated types: name the type in the methods"
        }
        TraitItem::Const(_) => {
            "an interface cannot have an associated constant: write a method that returns it"
        }
        TraitItem::Macro(_) => {
            "the methods of an interface cannot come from a macro, because their order gives their numbers: write them out"
        }
        _ => {
            "expected a method: an interface consists of methods `fn name(&self, ...) -> Result<...>;`"
        }
    };
    errors.at(item, text);
}

/// Reports conditional compilation as an error, because client and server could then have different
/// interfaces.
fn conditional(attributes: &[Attribute], advice: &str, errors: &mut Errors) {
    for attribute in attributes {
        if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
            errors.at(
                attribute,
                format!(
                    "an interface must be the same in every build of client and server: {advice}"
                ),
            );
        }
    }
}

fn method(function: &mut TraitItemFn, max_len: Option<&Expr>, errors: &mut Errors) -> Method {
    conditional(&function.attrs, "remove the condition, or write two traits", errors);
    for attribute in parse::take(&mut function.attrs, "max_len") {
        errors.at(attribute, "misplaced `#[max_len(N)]`: write it before a buffer parameter");
    }
    let idempotent = parse::take(&mut function.attrs, "idempotent");
    for attribute in &idempotent {
        if attribute.meta.require_path_only().is_err() {
            errors.at(attribute, "`#[idempotent]` takes no arguments: write `#[idempotent]`");
        }
    }
    let numbers = Numbers::take(&mut function.attrs, errors);
    let allowed = callers::take(&mut function.attrs, errors);
    let descriptor = Descriptor::take(&mut function.attrs, errors);
    let was = parse::take(&mut function.attrs, "was");
    let was = growth::was(&was).unwrap_or_else(|error| {
        errors.push(error);
        Vec::new()
    });
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
                "missing receiver: the first parameter of a method of an interface is `&self`",
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
                "an idempotent method cannot have the in-out parameter `{}`, because a second run would start from the result of the first: use an in parameter and an `Out`",
                both_ways.ident
            ),
        );
    }
    let returns = returns(function, errors);
    let oneway = oneway::method(function, &idempotent, &parameters, &returns, errors);
    Method {
        docs: parse::docs(&function.attrs),
        idempotent: !idempotent.is_empty(),
        oneway,
        was,
        allowed,
        descriptor,
        numbers,
        parameters,
        outcome: returns.clone(),
        returns,
        ident: function.sig.ident.clone(),
    }
}

fn signature(function: &TraitItemFn, errors: &mut Errors) {
    let sig = &function.sig;
    if TAKEN.iter().any(|name| sig.ident == name) {
        errors.at(
            &sig.ident,
            format!(
                "the generated client already has a method `{}`: choose another name",
                sig.ident
            ),
        );
    }
    if let Some(token) = &sig.constness {
        errors.at(token, "a remote call cannot be evaluated at compile time: remove `const`");
    }
    if let Some(token) = &sig.asyncness {
        errors.at(
            token,
            "a method of an interface cannot be `async`, because the calling thread waits: remove `async`",
        );
    }
    match &sig.safety {
        Safety::Unsafe(token) => {
            errors.at(token, "a method of an interface cannot be unsafe, because no caller can guarantee anything across a binding: remove `unsafe`");
        }
        Safety::Safe(token) => {
            errors.at(token, "every method of an interface is safe: remove `safe`")
        }
        _ => {}
    }
    if let Some(abi) = &sig.abi {
        errors.at(
            abi,
            "a method of an interface has the calling convention of Rust: remove `extern`",
        );
    }
    if !sig.generics.params.is_empty() {
        errors.at(
            &sig.generics.params,
            "a method of an interface cannot be generic, because both sides must know its types: name the types, and leave lifetimes out",
        );
    }
    if let Some(clause) = &sig.generics.where_clause {
        errors.at(clause, "a method of an interface cannot have a where clause: remove it");
    }
    if let Some(variadic) = &sig.variadic {
        errors.at(
            variadic,
            "a method of an interface cannot be variadic, because both sides must know its parameters: take a `&[T]` instead of `...`",
        );
    }
    if let Some(body) = &function.default {
        errors.at(
            body,
            "a method of an interface cannot have a body, because the client calls the method of the server: write `;`, and move the code into a function outside of the trait",
        );
    }
}

fn receiver(receiver: &Receiver, errors: &mut Errors) {
    conditional(&receiver.attrs, "remove the condition", errors);
    let plain = matches!(receiver.kind, ReceiverKind::Reference(_, None, None));
    if !plain || receiver.mutability.is_some() {
        errors.at(
            receiver,
            "a method of an interface takes `&self`, because many callers share the object: keep mutable state in a lock or an atomic",
        );
    }
}

fn returns(function: &TraitItemFn, errors: &mut Errors) -> Type {
    const ADVICE: &str = "every remote call can fail: return `peregrine::Result<T>`, or `Result<T, E>` where `E: From<CallError>`";
    let ReturnType::Type(_, returns) = &function.sig.output else {
        errors.at(&function.sig.ident, ADVICE);
        return Type::Verbatim(proc_macro2::TokenStream::new());
    };
    match bare(returns) {
        Type::Path(path) if last_is(path, "Result") => value_type(returns, Place::Result, errors),
        other => {
            let before = errors.count();
            value_type(other, Place::Result, errors);
            if errors.count() == before {
                errors.at(other, ADVICE);
            }
        }
    }
    (**returns).clone()
}

/// Reports methods whose error is a type of the standard library that cannot represent a failed call. Reports
/// each such type once.
///
/// Without this function, the trait bounds of the stubs would report such a type, but once for each method.
/// They would also give wrong advice: to implement a trait that only the standard library can implement for
/// this type.
fn foreign_errors(methods: &[Method], errors: &mut Errors) {
    let mut seen = Vec::new();
    for method in methods {
        let Some((error, name)) = foreign_error(&method.returns) else { continue };
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        errors.at(
            error,
            format!(
                "a method of an interface cannot fail with `{name}`, which cannot hold a failed call: wrap it in an enum of your own

#[derive(Debug, peregrine::Value)]
enum Error {{
    Refused(String), // such as the text of a `{name}`
    Call(peregrine::CallError),
}}

impl From<peregrine::CallError> for Error {{
    fn from(error: peregrine::CallError) -> Self {{
        Self::Call(error)
    }}
}}"
            ),
        );
    }
}

/// If the error type in a `Result` is `String` or `std::io::Error`, returns this type and its name.
fn foreign_error(returns: &Type) -> Option<(&Type, &'static str)> {
    let is = |path: &TypePath, names: [&str; 2]| {
        let segments: Vec<String> =
            path.path.segments.iter().map(|one| one.ident.to_string()).collect();
        names.iter().any(|name| segments.join("::") == *name)
    };
    let Type::Path(path) = bare(returns) else { return None };
    if is(path, ["io::Result", "std::io::Result"]) {
        return Some((returns, "std::io::Error"));
    }
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else {
        return None;
    };
    let Some(GenericArgument::Type(error)) = arguments.args.get(1) else { return None };
    match bare(error) {
        Type::Path(path) if is(path, ["String", "std::string::String"]) => Some((error, "String")),
        Type::Path(path) if is(path, ["io::Error", "std::io::Error"]) => {
            Some((error, "std::io::Error"))
        }
        _ => None,
    }
}

fn parameter(
    typed: &mut PatType,
    default_max_len: Option<&Expr>,
    errors: &mut Errors,
) -> Option<Parameter> {
    conditional(&typed.attrs, "remove the condition, or write two methods", errors);
    let bounds = parse::take(&mut typed.attrs, "max_len");
    let growth = Growth::take(&mut typed.attrs);
    let ident = match &*typed.pat {
        Pat::Ident(one)
            if one.by_ref.is_none() && one.mutability.is_none() && one.subpat.is_none() =>
        {
            Some(one.ident.clone())
        }
        other => {
            errors.at(other, "a parameter of an interface needs a name, which is part of the description: write `name: T`");
            None
        }
    };
    let (form, ty) = form(&typed.ty, errors)?;
    let mut max_len = default_max_len.filter(|_| form.is_buffer()).cloned();
    for attribute in &bounds {
        if !form.is_buffer() {
            errors.at(
                attribute,
                "`#[max_len(N)]` applies only to a buffer (`&str`, `&[T]`, `&mut [T]`, `Out` or `Lent`), and this parameter is a single value: remove it",
            );
            continue;
        }
        match parse::max_len(attribute) {
            Ok(bound) => max_len = Some(bound),
            Err(error) => errors.push(error),
        }
    }
    if let Some(second) = bounds.get(1) {
        errors.at(second, "duplicate `max_len`: remove one");
    }
    let growth = growth.and_then(|growth| match form {
        Form::InOut | Form::InOutSlice if growth.has_default() => Err(syn::Error::new_spanned(
            &*typed,
            "an in-out parameter cannot have a default, because the caller expects a value back: use an in parameter and an `Out`",
        )),
        Form::Sink | Form::Source if growth.has_default() => Err(syn::Error::new_spanned(
            &*typed,
            "a stream cannot have a default: add a method instead",
        )),
        Form::Callback { .. } if growth.has_default() => Err(syn::Error::new_spanned(
            &*typed,
            "a callback cannot have a default: add a method instead",
        )),
        Form::Callback { .. } if growth.widens() => Err(syn::Error::new_spanned(
            &*typed,
            "`#[widens]` applies only to integers, and this parameter is a callback: remove it",
        )),
        Form::Sink | Form::Source if growth.widens() => Err(syn::Error::new_spanned(
            &*typed,
            "a stream cannot have `#[widens]`, because its items are not converted: add a method instead",
        )),
        _ if form.is_buffer() => growth.of_buffer(),
        _ => Ok(growth),
    });
    let growth = growth.unwrap_or_else(|error| {
        errors.push(error);
        Growth::default()
    });
    Some(Parameter { ident: ident?, written: (*typed.ty).clone(), form, ty, max_len, growth })
}

/// Returns the form of a parameter, and the type of its value or element.
fn form(written: &Type, errors: &mut Errors) -> Option<(Form, Type)> {
    match bare(written) {
        Type::Reference(reference) => borrowed(reference, errors),
        Type::Path(path) if last_is(path, "Out") => buffer(path, Form::Out, errors),
        Type::Path(path) if last_is(path, "Lent") => buffer(path, Form::Lent, errors),
        Type::Path(path) if last_is(path, "Sink") => buffer(path, Form::Sink, errors),
        Type::Path(path) if last_is(path, "Source") => buffer(path, Form::Source, errors),
        Type::Path(path) if last_is(path, "Callback") => callback::callback(path, errors),
        other => {
            value_type(other, Place::Parameter, errors);
            Some((Form::Value, other.clone()))
        }
    }
}

fn borrowed(reference: &TypeReference, errors: &mut Errors) -> Option<(Form, Type)> {
    if let Some(lifetime) = &reference.lifetime {
        errors.at(
            lifetime,
            "a parameter is borrowed for the duration of the call: leave the lifetime out",
        );
    }
    let mutable = reference.mutability.is_some();
    let (form, ty) = match bare(&reference.elem) {
        Type::Path(path) if path.path.is_ident("str") => {
            if mutable {
                errors.at(reference, "a `str` cannot change its length: take `&mut String`");
                return None;
            }
            return Some((Form::Text, (*reference.elem).clone()));
        }
        Type::Path(path) if last_is(path, "Out") || last_is(path, "Lent") => {
            errors.at(reference, "`Out` and `Lent` are references already: remove the `&`");
            return None;
        }
        Type::Path(path) if last_is(path, "Sink") || last_is(path, "Source") => {
            errors.at(reference, "a stream is passed on to the procedure: remove the `&`");
            return None;
        }
        Type::Path(path) if last_is(path, "Callback") => {
            errors.at(reference, "a callback is passed on to the procedure: remove the `&`");
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

/// Returns the form and the element type of `Out<'_, T>`, `Lent<'_, T>`, `Sink<'_, T>` or `Source<'_, T>`.
fn buffer(path: &TypePath, form: Form, errors: &mut Errors) -> Option<(Form, Type)> {
    let last = path.path.segments.last()?;
    let mut elements = Vec::new();
    if let PathArguments::AngleBracketed(arguments) = &last.arguments {
        for argument in &arguments.args {
            match argument {
                GenericArgument::Type(ty) => elements.push(ty),
                GenericArgument::Lifetime(lifetime) if lifetime.ident == "_" => {}
                GenericArgument::Lifetime(lifetime) => {
                    errors.at(
                        lifetime,
                        "a parameter is borrowed for the duration of the call: write `'_`",
                    );
                }
                other => errors.at(other, "expected the element type"),
            }
        }
    }
    let [element] = elements[..] else {
        errors.at(path, format!("missing element type: write `{}<'_, T>`", last.ident));
        return None;
    };
    value_type(element, Place::Parameter, errors);
    Some((form, element.clone()))
}

/// Where a type is used. The advice for a borrowed type depends on the place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Parameter,
    Result,
}

/// Reports the parts of a type that cannot be sent. A value must own all of its parts.
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
                Place::Parameter => "a reference inside a type cannot be sent: borrow the whole parameter, and use owned types within it (`String`, `Vec<T>`)",
                Place::Result => "a result cannot be a reference: return an owned value (`String`, `Vec<T>`), or take an `Out` parameter",
            },
        ),
        Type::Slice(slice) => errors.at(
            slice,
            "a slice is unsized: write `Vec<T>`, or `&[T]` as the whole parameter",
        ),
        Type::ImplTrait(_) => errors.at(
            ty,
            "`impl Trait` cannot be sent, because both sides must know the type: name the type",
        ),
        Type::TraitObject(_) => errors.at(
            ty,
            "`dyn Trait` cannot be sent, because both sides must know the type: name the type, or an enum of the possible types",
        ),
        Type::FnPtr(_) => errors.at(ty, "a function cannot be sent, because its code exists on one side only"),
        Type::Ptr(_) => errors.at(
            ty,
            "a raw pointer has no meaning on the other side: send the value, or take an `Out` or a `Lent`",
        ),
        Type::Never(_) => errors.at(ty, "`!` has no value to send: write `()`"),
        Type::Infer(_) => errors.at(ty, "both sides must know the type: name it"),
        Type::Macro(_) => errors.at(ty, "both sides must know the type: write it without a macro"),
        _ => errors.at(ty, "this type cannot be sent: name a type that implements `peregrine::Value`"),
    }
}

fn path_type(path: &TypePath, place: Place, errors: &mut Errors) {
    if let Some(own) = &path.qself {
        value_type(&own.ty, place, errors);
    }
    for (name, fixed) in [("usize", "u64"), ("isize", "i64")] {
        if path.path.is_ident(name) || is_primitive(&path.path, name) {
            let narrow = fixed.replace("64", "32");
            errors.at(
                path,
                format!(
                    "the size of `{name}` differs between machines: use `{fixed}` or `{narrow}`"
                ),
            );
            return;
        }
    }
    if path.path.segments.first().is_some_and(|first| first.ident == "Self") {
        errors.at(path, "`Self` is a different type on each side: name the type");
        return;
    }
    if last_is(path, "Out") || last_is(path, "Lent") {
        errors.at(
            path,
            "`Out` and `Lent` can only be whole parameters, not results or parts of another type",
        );
        return;
    }
    if last_is(path, "Sink") || last_is(path, "Source") {
        errors.at(
            path,
            "`Sink` and `Source` can only be whole parameters, not results or parts of another type",
        );
        return;
    }
    if last_is(path, "Callback") {
        errors.at(
            path,
            "`Callback` can only be a whole parameter, not a result or a part of another type",
        );
        return;
    }
    const POINTERS: [&str; 4] = ["Arc", "Box", "Cow", "Rc"];
    for segment in &path.path.segments {
        let is_pointer = POINTERS.iter().any(|name| segment.ident == name);
        match &segment.arguments {
            PathArguments::None => {}
            PathArguments::AngleBracketed(arguments) => {
                for argument in &arguments.args {
                    match argument {
                        GenericArgument::Type(ty) => match bare(ty) {
                            Type::Slice(slice) if is_pointer => {
                                value_type(&slice.elem, place, errors);
                            }
                            _ => value_type(ty, place, errors),
                        },
                        // A `Cow<'static, str>` that was received owns its value, so this lifetime is
                        // allowed.
                        GenericArgument::Lifetime(lifetime) if lifetime.ident == "static" => {}
                        GenericArgument::Lifetime(lifetime) => errors.at(
                            lifetime,
                            "a type with a lifetime cannot be sent: use a type that owns its parts",
                        ),
                        _ => {}
                    }
                }
            }
            PathArguments::Parenthesized(_) => {
                errors.at(
                    path,
                    "a function cannot be sent, because its code exists on one side only",
                );
            }
        }
    }
}

/// Returns whether a path names the primitive type `name` within the module `primitive`, such as
/// `core::primitive::usize`.
fn is_primitive(path: &Path, name: &str) -> bool {
    let mut last = path.segments.iter().rev();
    last.next().is_some_and(|one| one.ident == name)
        && last.next().is_some_and(|one| one.ident == "primitive")
}

fn last_is(path: &TypePath, name: &str) -> bool {
    path.path.segments.last().is_some_and(|last| last.ident == name)
}

/// Returns a type without the parentheses and the invisible groups around it.
fn bare(ty: &Type) -> &Type {
    match ty {
        Type::Paren(paren) => bare(&paren.elem),
        Type::Group(group) => bare(&group.elem),
        other => other,
    }
}
