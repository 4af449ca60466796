//! Parses types, including the types that determine how parameters are passed.

use peregrine::interface::{DescribedType, Direction, Shape};
use peregrine::limits::CANONICAL_DEPTH_MAX;
use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Ident, Lifetime, LitStr, Result, Token, token};

use crate::syntax::{Type, TypeName};
use crate::tokens::{brackets, expected, keyword, list, name, number, parentheses, sign};

/// Types that contain no other types, by their names in Rust.
pub(super) const SIMPLE: &[(&str, DescribedType)] = &[
    ("bool", DescribedType::Bool),
    ("char", DescribedType::Char),
    ("u8", DescribedType::U8),
    ("u16", DescribedType::U16),
    ("u32", DescribedType::U32),
    ("u64", DescribedType::U64),
    ("u128", DescribedType::U128),
    ("i8", DescribedType::I8),
    ("i16", DescribedType::I16),
    ("i32", DescribedType::I32),
    ("i64", DescribedType::I64),
    ("i128", DescribedType::I128),
    ("f32", DescribedType::F32),
    ("f64", DescribedType::F64),
    ("String", DescribedType::Text),
    ("NonZeroU8", DescribedType::U8),
    ("NonZeroU16", DescribedType::U16),
    ("NonZeroU32", DescribedType::U32),
    ("NonZeroU64", DescribedType::U64),
    ("NonZeroU128", DescribedType::U128),
    ("NonZeroI8", DescribedType::I8),
    ("NonZeroI16", DescribedType::I16),
    ("NonZeroI32", DescribedType::I32),
    ("NonZeroI64", DescribedType::I64),
    ("NonZeroI128", DescribedType::I128),
];

/// Parses the type of a parameter. Returns its direction, its shape, and the type of its value or of its
/// elements.
pub(super) fn passed(
    input: ParseStream<'_>,
    module: Option<&str>,
) -> Result<(Direction, Shape, Type)> {
    if keyword::<Token![&]>(input) {
        return referenced(input, module);
    }
    let ahead = input.fork();
    let is_name = ahead.peek(Ident::peek_any) || ahead.peek(Token![::]);
    let outer = if is_name { path(&ahead)?.path } else { String::new() };
    let (direction, shape) = match &*outer {
        "Lent" => (Direction::Lent, Shape::Buffer),
        "Out" => (Direction::Out, Shape::Buffer),
        "Sink" => (Direction::Sink, Shape::One),
        "Source" => (Direction::Source, Shape::One),
        "Callback" => (Direction::Callback, Shape::One),
        _ => return Ok((Direction::In, Shape::One, ty(input, module, 0)?)),
    };
    path(input)?;
    sign::<Token![<]>(input, "`<`")?;
    if input.parse::<Option<Lifetime>>()?.is_some() {
        sign::<Token![,]>(input, "`,`")?;
    }
    let one = match direction {
        Direction::Callback => interface(input, module)?,
        _ => ty(input, module, 0)?,
    };
    keyword::<Token![,]>(input);
    sign::<Token![>]>(input, "`>`")?;
    Ok((direction, shape, one))
}

/// Parses the trait of a callback.
fn interface(input: ParseStream<'_>, module: Option<&str>) -> Result<Type> {
    sign::<Token![dyn]>(input, "`dyn` and a trait")?;
    let Path { path, span, is_above } = path(input)?;
    let module = module.filter(|_| !is_above).map(str::to_owned);
    Ok(Type::Interface(TypeName { path, span, module, arguments: Vec::new() }))
}

/// Parses the type after `&`.
fn referenced(input: ParseStream<'_>, module: Option<&str>) -> Result<(Direction, Shape, Type)> {
    input.parse::<Option<Lifetime>>()?;
    let direction = if keyword::<Token![mut]>(input) { Direction::InOut } else { Direction::In };
    let is_text = |one: Ident| one == "str";
    if direction == Direction::In && input.fork().call(Ident::parse_any).is_ok_and(is_text) {
        name(input)?;
        return Ok((direction, Shape::Text, Type::Simple(DescribedType::Text)));
    }
    if !input.peek(token::Bracket) {
        return Ok((direction, Shape::One, ty(input, module, 0)?));
    }
    let inside = brackets(input)?;
    let one = ty(&inside, module, 1)?;
    if inside.is_empty() {
        return Ok((direction, Shape::Buffer, one));
    }
    Ok((direction, Shape::One, array(&inside, one)?))
}

/// Parses the rest of an array type, which follows the type of its elements.
fn array(inside: ParseStream<'_>, one: Type) -> Result<Type> {
    sign::<Token![;]>(inside, "`;`")?;
    let count = number(inside, "u64")?;
    if !inside.is_empty() {
        return Err(expected(inside, "`]`"));
    }
    Ok(Type::Array(Box::new(one), count))
}

struct Path {
    /// The path of the type: its name, after the name of its module if the type is in a module.
    path: String,
    span: Span,
    /// Whether the path begins outside of the current module.
    is_above: bool,
}

/// Parses a path. If it begins with `super`, `crate`, `self` or the name of a crate, the result omits this
/// part.
fn path(input: ParseStream<'_>) -> Result<Path> {
    keyword::<Token![::]>(input);
    let (first, span) = name(input)?;
    let mut names = vec![first];
    while keyword::<Token![::]>(input) {
        names.push(name(input)?.0);
    }
    let is_above = ["super", "crate"].contains(&&*names[0]);
    const STD: [&str; 12] = [
        "alloc",
        "borrow",
        "collections",
        "core",
        "ffi",
        "net",
        "num",
        "path",
        "rc",
        "std",
        "sync",
        "time",
    ];
    let is_std = ["std", "core", "alloc"].contains(&&*names[0]);
    let skipped = |name: &&String| {
        ["super", "crate", "self", "peregrine", "std"].contains(&name.as_str())
            || is_std && STD.contains(&name.as_str())
    };
    let start = names[..names.len() - 1].iter().take_while(skipped).count();
    // `Result` with two parameters and `peregrine::Result` with one parameter are different types. So
    // `peregrine` is kept.
    let is_ours = start > 0 && names[start - 1] == "peregrine" && names[start..] == ["Result"];
    let start = if is_ours { start - 1 } else { start };
    Ok(Path { path: names[start..].join("::"), span, is_above })
}

/// Parses a type. `depth` is the number of types that contain it. `module` is the module in which it is
/// written.
pub(crate) fn ty(input: ParseStream<'_>, module: Option<&str>, depth: usize) -> Result<Type> {
    if depth > CANONICAL_DEPTH_MAX {
        let wanted =
            format_args!("a type that is nested at most {CANONICAL_DEPTH_MAX} levels deep");
        return Err(expected(input, wanted));
    }
    if input.peek(token::Bracket) {
        let inside = brackets(input)?;
        let one = ty(&inside, module, depth + 1)?;
        return array(&inside, one);
    }
    if input.peek(token::Paren) {
        let parts = list(&parentheses(input)?, |input| ty(input, module, depth + 1))?;
        return Ok(match parts.is_empty() {
            true => Type::Simple(DescribedType::Unit),
            false => Type::Tuple(parts),
        });
    }
    let before = input.fork();
    let is_quoted = input.peek(LitStr);
    if !is_quoted && !input.peek(Ident::peek_any) && !input.peek(Token![::]) {
        return Err(expected(input, "a type"));
    }
    let Path { path, span, is_above } = path(input)?;
    let named = |path: String, module: Option<&str>| {
        Type::Named(TypeName {
            path,
            span,
            module: module.map(str::to_owned),
            arguments: Vec::new(),
        })
    };
    if is_quoted {
        return Ok(named(path, None));
    }
    if let Some((_, simple)) = SIMPLE.iter().find(|(name, _)| *name == path) {
        return Ok(Type::Simple(simple.clone()));
    }
    let boxed = |input: ParseStream<'_>| ty(input, module, depth + 1).map(Box::new);
    Ok(match &*path {
        "usize" | "isize" => {
            let wanted = "a type of the same size on every machine, such as `u64` or `u32`";
            return Err(expected(&before, wanted));
        }
        "Vec" | "VecDeque" => Type::Sequence(one_part(input, boxed)?),
        "HashSet" | "BTreeSet" => {
            sign::<Token![<]>(input, "`<` and a type")?;
            let one = boxed(input)?;
            rest_of_arguments(input)?;
            Type::Sequence(one)
        }
        "HashMap" | "BTreeMap" => {
            sign::<Token![<]>(input, "`<` and two types")?;
            let key = *boxed(input)?;
            sign::<Token![,]>(input, "`,` and the type of the values")?;
            let value = *boxed(input)?;
            rest_of_arguments(input)?;
            Type::Sequence(Box::new(Type::Tuple(vec![key, value])))
        }
        "NonZero" => *one_part(input, boxed)?,
        "Option" => Type::Option(one_part(input, boxed)?),
        "Box" | "Arc" | "Rc" | "Cow" => {
            sign::<Token![<]>(input, "`<` and a type")?;
            if input.parse::<Option<Lifetime>>()?.is_some() {
                sign::<Token![,]>(input, "`,`")?;
            }
            let one = pointed(input, module, depth + 1)?;
            close(input)?;
            one
        }
        "Result" => {
            sign::<Token![<]>(input, "`<` and two types")?;
            let ok = boxed(input)?;
            sign::<Token![,]>(input, "`,` and the type of the error")?;
            let error = boxed(input)?;
            close(input)?;
            Type::Result(ok, error)
        }
        "peregrine::Result" => {
            let failed = named("CallError".to_owned(), None);
            Type::Result(one_part(input, boxed)?, Box::new(failed))
        }
        _ => {
            let one = named(path, module.filter(|_| !is_above));
            match one {
                Type::Named(mut one) if keyword::<Token![<]>(input) => {
                    while !input.peek(Token![>]) {
                        one.arguments.push(ty(input, module, depth + 1)?);
                        if !input.peek(Token![>]) {
                            sign::<Token![,]>(input, "`,` or `>`")?;
                        }
                    }
                    sign::<Token![>]>(input, "`>`")?;
                    Type::Named(one)
                }
                one => one,
            }
        }
    })
}

/// Parses the type to which a reference or a smart pointer points. This type may also be `str` or `[T]`.
fn pointed(input: ParseStream<'_>, module: Option<&str>, depth: usize) -> Result<Type> {
    if input.fork().call(Ident::parse_any).is_ok_and(|one| one == "str") {
        name(input)?;
        return Ok(Type::Simple(DescribedType::Text));
    }
    if !input.peek(token::Bracket) {
        return ty(input, module, depth);
    }
    let inside = brackets(input)?;
    let one = ty(&inside, module, depth + 1)?;
    match inside.is_empty() {
        true => Ok(Type::Sequence(Box::new(one))),
        false => array(&inside, one),
    }
}

/// Skips the arguments of a collection that do not matter here, such as its hasher.
fn rest_of_arguments(input: ParseStream<'_>) -> Result<()> {
    while keyword::<Token![,]>(input) && !input.peek(Token![>]) {
        path(input)?;
    }
    sign::<Token![>]>(input, "`>`")
}

/// Parses `<T>`, where `part` parses `T`.
fn one_part<T>(input: ParseStream<'_>, part: impl Fn(ParseStream<'_>) -> Result<T>) -> Result<T> {
    sign::<Token![<]>(input, "`<` and a type")?;
    let one = part(input)?;
    close(input)?;
    Ok(one)
}

fn close(input: ParseStream<'_>) -> Result<()> {
    keyword::<Token![,]>(input);
    sign::<Token![>]>(input, "`>`")
}
