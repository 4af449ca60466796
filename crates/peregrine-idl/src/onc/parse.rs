//! The grammar: turns tokens into a tree, and continues after errors at the next `;` or `}`.
//!
//! Only the parsers of type bodies recurse, and the depth of these bodies has a limit.

use core::cell::{Cell, RefCell};
use core::fmt;

use winnow::combinator::{alt, delimited, opt, peek, preceded, repeat, separated, terminated};
use winnow::error::{ErrMode, ParserError};
use winnow::stream::TokenSlice;
use winnow::token::any;
use winnow::{ModalResult, Parser, Stateful};

use super::ast::*;
use super::scan::{Kind, Scanned, Token, number};
use super::source::Sources;
use super::text::unescaped;
use crate::scan::NESTING_MAX;

/// Keywords that cannot be used as a name.
const KEYWORDS: [&str; 8] =
    ["case", "const", "default", "program", "switch", "typedef", "version", "unsigned"];

/// What all parsers know.
struct Shared<'s> {
    tokens: &'s [Token],
    sources: RefCell<&'s mut Sources>,
    /// The number of type bodies around the current token.
    depth: Cell<usize>,
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

type Input<'t> = Stateful<TokenSlice<'t, Token>, &'t Shared<'t>>;
type Parsed<T> = ModalResult<T, Wrong>;

/// Why a parser failed.
#[derive(Debug)]
struct Wrong {
    place: Place,
    /// The number of tokens that were not parsed yet when the parser failed.
    left: usize,
    expected: Vec<&'static str>,
    /// A message that is shown instead of the list of what was expected.
    message: Option<String>,
}

impl<'t> ParserError<Input<'t>> for Wrong {
    type Inner = Self;

    fn from_input(input: &Input<'t>) -> Self {
        let place = first(input).place;
        Self { place, left: input.input.len(), expected: Vec::new(), message: None }
    }

    /// Keeps the error that is further in the file. If both errors are at the same place, the result lists
    /// what either of them expects.
    fn or(mut self, other: Self) -> Self {
        match self.left.cmp(&other.left) {
            core::cmp::Ordering::Less => self,
            core::cmp::Ordering::Greater => other,
            core::cmp::Ordering::Equal => {
                self.expected.extend(other.expected);
                self.message = self.message.or(other.message);
                self
            }
        }
    }

    fn into_inner(self) -> Result<Self, Self> {
        Ok(self)
    }
}

/// Parses a file. Errors are added to `sources`; a definition with an error is left out.
pub(super) fn specification(scanned: Scanned, sources: &mut Sources) -> Specification {
    let tokens = &*scanned.tokens;
    let shared = Shared { tokens, sources: RefCell::new(sources), depth: Cell::new(0) };
    let mut input = Stateful { input: TokenSlice::new(tokens), state: &shared };
    let constants = scanned.constants.into_iter().map(Definition::Constant);
    let mut definitions: Vec<Definition> = constants.collect();
    while !is_at(&input, Kind::End) {
        match definition(&mut input) {
            Ok(Some(definition)) => definitions.push(definition),
            Ok(None) => {}
            Err(wrong) => {
                report(&input, wrong);
                recover(&mut input);
                // If `recover` has stopped before the `}` of the wrong definition, this `}` is skipped.
                let semicolons = repeat::<_, _, (), _, _>(0.., symbol(b';', ""));
                let _ = (opt(symbol(b'}', "")), semicolons).parse_next(&mut input);
            }
        }
    }
    Specification { definitions }
}

/// Returns the next token. If no token is left, this is the last token of the file.
fn first(input: &Input<'_>) -> Token {
    let tokens = input.state.tokens;
    tokens[(tokens.len() - input.input.len()).min(tokens.len() - 1)]
}

/// Returns the token before the next one.
fn last(input: &Input<'_>) -> Token {
    let tokens = input.state.tokens;
    tokens[(tokens.len() - input.input.len()).saturating_sub(1)]
}

fn is_at(input: &Input<'_>, kind: Kind) -> bool {
    first(input).kind == kind
}

fn report(input: &Input<'_>, wrong: ErrMode<Wrong>) {
    let Ok(mut wrong) = wrong.into_inner() else { return };
    let mut sources = input.state.sources.borrow_mut();
    let message = wrong.message.take().unwrap_or_else(|| {
        wrong.expected.dedup();
        let expected = match &*wrong.expected {
            [] => "something else".to_owned(),
            [one] => (*one).to_owned(),
            [most @ .., last] => format!("{} or {last}", most.join(", ")),
        };
        match sources.text(wrong.place) {
            "" => format!("expected {expected}, found the end of the file"),
            found if found.len() > 40 => format!("expected {expected}"),
            found => format!("expected {expected}, found `{found}`"),
        }
    });
    sources.error(wrong.place, message);
}

/// Skips tokens up to and including the next `;`, but stops before the `}` that closes the enclosing braces.
/// Inner braces are skipped with their content.
fn recover(input: &mut Input<'_>) {
    let mut depth = 0_usize;
    loop {
        let token = first(input);
        match token.kind {
            Kind::End => return,
            Kind::Symbol(b'}') if depth == 0 => return,
            _ => {}
        }
        let _: Parsed<&Token> = any.parse_next(input);
        match token.kind {
            Kind::Symbol(b'{') => depth += 1,
            Kind::Symbol(b'}') => depth -= 1,
            Kind::Symbol(b';') if depth == 0 => return,
            _ => {}
        }
    }
}

/// Parses items between `{` and `}`. An item with an error is reported and skipped.
fn items<'t, T>(
    input: &mut Input<'t>,
    mut item: impl FnMut(&mut Input<'t>) -> Parsed<T>,
) -> Parsed<Vec<T>> {
    symbol(b'{', "`{`").parse_next(input)?;
    let mut all = Vec::new();
    while !is_at(input, Kind::Symbol(b'}')) && !is_at(input, Kind::End) {
        match item(input) {
            Ok(one) => all.push(one),
            Err(wrong) => {
                report(input, wrong);
                recover(input);
            }
        }
    }
    symbol(b'}', "`}`").parse_next(input)?;
    Ok(all)
}

/// Returns a parser for a token for which `accept` returns true.
fn token<'t>(
    expected: &'static str,
    accept: impl Fn(&Token, &Shared<'t>) -> bool,
) -> impl Parser<Input<'t>, &'t Token, ErrMode<Wrong>> {
    move |input: &mut Input<'t>| {
        let shared = input.state;
        let one = any.verify(|token: &&Token| accept(token, shared)).parse_next(input);
        one.map_err(|wrong: ErrMode<Wrong>| {
            wrong.map(|mut wrong| {
                wrong.expected.push(expected);
                wrong
            })
        })
    }
}

fn symbol<'t>(
    byte: u8,
    expected: &'static str,
) -> impl Parser<Input<'t>, &'t Token, ErrMode<Wrong>> {
    token(expected, move |token, _| token.kind == Kind::Symbol(byte))
}

fn keyword<'t>(
    word: &'static str,
    expected: &'static str,
) -> impl Parser<Input<'t>, &'t Token, ErrMode<Wrong>> {
    token(expected, move |token, shared| {
        token.kind == Kind::Word && shared.sources.borrow().text(token.place) == word
    })
}

fn end(input: &mut Input<'_>) -> Parsed<Place> {
    symbol(b';', "`;`").map(|token| token.after).parse_next(input)
}

fn name(input: &mut Input<'_>) -> Parsed<Name> {
    let shared = input.state;
    let word = token("a name", |token, shared| {
        token.kind == Kind::Word && !KEYWORDS.contains(&shared.sources.borrow().text(token.place))
    });
    word.map(|token| shared.sources.borrow().name(token.place)).parse_next(input)
}

fn value(input: &mut Input<'_>) -> Parsed<Value> {
    alt((digits.map(Value::Number), name.map(Value::Name))).parse_next(input)
}

fn digits(input: &mut Input<'_>) -> Parsed<i128> {
    let any = token("a number", |token, _| token.kind == Kind::Number).parse_next(input)?;
    let text = input.state.sources.borrow().text(any.place).to_owned();
    number(&text)
        .ok_or_else(|| wrong(input, any.place, format!("`{text}` is not a number of 64 bits")))
}

/// Returns an error at a place. After this error, the parser tries no alternative.
fn wrong(input: &Input<'_>, place: Place, message: impl Into<String>) -> ErrMode<Wrong> {
    let message = Some(message.into());
    ErrMode::Cut(Wrong { place, left: input.input.len(), expected: Vec::new(), message })
}

/// Returns the comment before a declaration that starts with the token `start`. Without a comment, returns
/// the comment `after` the end of the declaration.
fn docs(input: &Input<'_>, start: Token, after: Place) -> String {
    let sources = input.state.sources.borrow();
    match sources.comment(start.before) {
        docs if docs.is_empty() => sources.comment(after),
        docs => docs,
    }
}

/// Parses a definition. The result is `None` if the definition has no effect.
fn definition(input: &mut Input<'_>) -> Parsed<Option<Definition>> {
    let start = first(input);
    let any_of = "`const`, `enum`, `struct`, `union`, `typedef` or `program`";
    let word = peek(token(any_of, |token, _| token.kind == Kind::Word)).parse_next(input)?;
    let word = input.state.sources.borrow().text(word.place).to_owned();
    let named = |input: &mut Input<'_>, body: Body, name: Name| {
        let after = end(input)?;
        let docs = docs(input, start, after);
        Ok(Some(Definition::Type(TypeDefinition { docs, name, body })))
    };
    match &*word {
        "const" => {
            let _ = any.parse_next(input)?;
            let shared = input.state;
            let text = token("a text", |token, _| token.kind == Kind::Text).map(|token| {
                let text = shared.sources.borrow().text(token.place).to_owned();
                ConstantValue::Text(unescaped(&text[1..text.len() - 1]))
            });
            let value = alt((value.map(ConstantValue::Number), text));
            let (name, value) = (terminated(name, symbol(b'=', "`=`")), value).parse_next(input)?;
            let after = end(input)?;
            let docs = docs(input, start, after);
            Ok(Some(Definition::Constant(Constant { docs, name, value })))
        }
        "enum" => {
            let name = preceded(any, name).parse_next(input)?;
            let body = members.parse_next(input)?;
            named(input, body, name)
        }
        "struct" => {
            let name = preceded(any, name).parse_next(input)?;
            let body = fields.parse_next(input)?;
            named(input, body, name)
        }
        "union" => {
            let name = preceded(any, name).parse_next(input)?;
            let body = union.parse_next(input)?;
            named(input, body, name)
        }
        "typedef" => {
            let _ = any.parse_next(input)?;
            let Declaration { name, ty, .. } = declaration(input)?;
            // `typedef struct a a;`, which C programs need, has no effect here.
            if matches!(&ty, Type::Named(other) if *other == name) {
                return end(input).map(|_| None);
            }
            let body = match ty {
                Type::Inline(body) => *body,
                ty => Body::Alias(ty),
            };
            named(input, body, name)
        }
        "program" => program(input, start).map(|program| Some(Definition::Program(program))),
        _ => Err(wrong(input, start.place, format!("expected {any_of}, found `{word}`"))),
    }
}

fn members(input: &mut Input<'_>) -> Parsed<Body> {
    let member = |input: &mut Input<'_>| {
        let start = first(input);
        let name = name(input)?;
        let value = opt(preceded(symbol(b'=', "`=`"), value)).parse_next(input)?;
        // The comment is after the comma, or after the last token of the last member.
        let after = match first(input) {
            comma if comma.kind == Kind::Symbol(b',') => comma.after,
            _ => last(input).after,
        };
        Ok(Member { docs: docs(input, start, after), name, value })
    };
    let comma = || symbol(b',', "`,`");
    let all = separated(1.., member, comma());
    delimited(symbol(b'{', "`{`"), terminated(all, opt(comma())), symbol(b'}', "`}`"))
        .map(Body::Enum)
        .parse_next(input)
}

fn fields(input: &mut Input<'_>) -> Parsed<Body> {
    deeper(input, |input| items(input, field).map(Body::Struct))
}

/// Parses a body, unless it is nested too deeply.
fn deeper<'t>(
    input: &mut Input<'t>,
    body: impl FnOnce(&mut Input<'t>) -> Parsed<Body>,
) -> Parsed<Body> {
    let depth = &input.state.depth;
    if depth.get() == NESTING_MAX {
        let place = first(input).place;
        let message = format!("types are nested more than {NESTING_MAX} levels deep");
        return Err(wrong(input, place, message));
    }
    depth.set(depth.get() + 1);
    let body = body(input);
    depth.set(depth.get() - 1);
    body
}

/// Parses a field of a struct, with the `;`.
fn field(input: &mut Input<'_>) -> Parsed<Declaration> {
    let start = first(input);
    let declared = declaration(input)?;
    let after = end(input)?;
    Ok(Declaration { docs: docs(input, start, after), ..declared })
}

fn union(input: &mut Input<'_>) -> Parsed<Body> {
    deeper(input, |input| {
        let open = (keyword("switch", "`switch`"), symbol(b'(', "`(`"));
        let switch = delimited(open, declaration, symbol(b')', "`)`")).parse_next(input)?;
        let mut default = None;
        let arms = items(input, |input| arm(input, &mut default))?;
        let arms = arms.into_iter().flatten().collect();
        Ok(Body::Union(Box::new(Union { switch, arms, default })))
    })
}

/// Parses an arm. Stores the arm with the keyword `default` in the argument `default`.
fn arm(input: &mut Input<'_>, default: &mut Option<DefaultArm>) -> Parsed<Option<Arm>> {
    let start = first(input);
    let colon = || symbol(b':', "`:`");
    let case = delimited(keyword("case", "`case`"), value, colon());
    let cases: Vec<Value> = repeat(0.., case).parse_next(input)?;
    let is_default = cases.is_empty();
    if is_default {
        let mut word = (keyword("default", "`case`, `default`"), colon());
        let (word, _) = word.parse_next(input)?;
        if default.is_some() {
            return Err(wrong(input, word.place, "a second `default`"));
        }
    }
    let mut data = alt((
        terminated(keyword("void", "`void`"), peek(symbol(b';', "`;`"))).map(|_| None),
        declaration.map(Some),
    ));
    let data = data.parse_next(input)?;
    let after = end(input)?;
    let docs = docs(input, start, after);
    if is_default {
        *default = Some(DefaultArm { docs, data });
        return Ok(None);
    }
    Ok(Some(Arm { docs, cases, data }))
}

/// Parses a type and a name, with the `*` before the name, and `[N]` or `<N>` after it.
fn declaration(input: &mut Input<'_>) -> Parsed<Declaration> {
    let start = first(input).place;
    let of = specifier(input)?;
    let star = opt(symbol(b'*', "`*`")).parse_next(input)?;
    let name = name(input)?;
    let ty = shaped(input, of, star.is_some(), start)?;
    Ok(Declaration { docs: String::new(), name, ty })
}

/// The part of a type that is written before the declared name.
enum Specifier {
    String,
    Opaque,
    Whole(Type),
}

/// Parses what follows the name of a declaration: `[N]`, `<N>`, `<>` or nothing.
fn shaped(input: &mut Input<'_>, of: Specifier, is_pointer: bool, start: Place) -> Parsed<Type> {
    enum Shape {
        Fixed(Value),
        UpTo(Option<Value>),
    }
    let fixed = delimited(symbol(b'[', "`[`"), value, symbol(b']', "`]`")).map(Shape::Fixed);
    let up_to = delimited(symbol(b'<', "`<`"), opt(value), symbol(b'>', "`>`")).map(Shape::UpTo);
    let after = first(input).place;
    let shape = match is_at(input, Kind::Symbol(b'[')) || is_at(input, Kind::Symbol(b'<')) {
        true => Some(alt((fixed, up_to)).parse_next(input)?),
        false => None,
    };
    if is_pointer && shape.is_some() {
        let message = "a pointer cannot be an array: give one of them a name with `typedef`";
        return Err(wrong(input, after, message));
    }
    let ty = match (of, shape) {
        (Specifier::String, None) => Type::String(None),
        (Specifier::String, Some(Shape::UpTo(max))) => Type::String(max),
        (Specifier::String, Some(Shape::Fixed(_))) => {
            return Err(wrong(input, after, "a string has a maximum length: `<` and `>`"));
        }
        (Specifier::Opaque, Some(Shape::Fixed(count))) => Type::Opaque(count),
        (Specifier::Opaque, Some(Shape::UpTo(max))) => Type::Bytes(max),
        (Specifier::Opaque, None) => {
            return Err(wrong(input, start, "`opaque` needs a length: `[N]` or `<N>`"));
        }
        (Specifier::Whole(Type::Void), _) => {
            return Err(wrong(input, start, "`void` cannot have a name"));
        }
        (Specifier::Whole(ty), None) => ty,
        (Specifier::Whole(ty), Some(Shape::Fixed(count))) => Type::Array(Box::new(ty), count),
        (Specifier::Whole(ty), Some(Shape::UpTo(max))) => Type::Sequence(Box::new(ty), max),
    };
    Ok(if is_pointer { Type::Pointer(Box::new(ty)) } else { ty })
}

fn specifier(input: &mut Input<'_>) -> Parsed<Specifier> {
    let mut word = token("a type", |token, shared| {
        let text = shared.sources.borrow();
        let text = text.text(token.place);
        token.kind == Kind::Word && (text == "unsigned" || !KEYWORDS.contains(&text))
    });
    let word = word.parse_next(input)?;
    let text = input.state.sources.borrow().text(word.place).to_owned();
    let whole = match &*text {
        "string" => return Ok(Specifier::String),
        "opaque" => return Ok(Specifier::Opaque),
        "void" => Type::Void,
        "bool" | "bool_t" => Type::Bool,
        "float" => Type::Float,
        "double" => Type::Double,
        "quadruple" => Type::Quadruple,
        "unsigned" => match integer(input)? {
            Some(Type::Char) => Type::UnsignedChar,
            Some(Type::Short) => Type::UnsignedShort,
            Some(Type::Hyper) => Type::UnsignedHyper,
            _ => Type::UnsignedInt,
        },
        "signed" => integer(input)?.unwrap_or(Type::Int),
        "char" | "short" | "int" | "long" | "hyper" => rest_of_integer(input, &text)?,
        "enum" if is_at(input, Kind::Symbol(b'{')) => inline(members(input)?),
        "struct" if is_at(input, Kind::Symbol(b'{')) => inline(fields(input)?),
        "union" if peek(keyword("switch", "")).parse_next(input).is_ok() => inline(union(input)?),
        "enum" | "struct" | "union" => Type::Named(name(input)?),
        _ => Type::Named(input.state.sources.borrow().name(word.place)),
    };
    Ok(Specifier::Whole(whole))
}

fn inline(body: Body) -> Type {
    Type::Inline(Box::new(body))
}

/// Parses the integer type after `unsigned` or `signed`, if there is one.
fn integer(input: &mut Input<'_>) -> Parsed<Option<Type>> {
    for word in ["char", "short", "int", "long", "hyper"] {
        if opt(keyword(word, "")).parse_next(input)?.is_some() {
            return rest_of_integer(input, word).map(Some);
        }
    }
    Ok(None)
}

/// Parses what may follow the first word of an integer type.
fn rest_of_integer(input: &mut Input<'_>, first: &str) -> Parsed<Type> {
    if first == "char" || first == "int" {
        return Ok(if first == "char" { Type::Char } else { Type::Int });
    }
    let is_long = first == "long" && opt(keyword("long", "")).parse_next(input)?.is_some();
    let _ = opt(keyword("int", "")).parse_next(input)?;
    Ok(match first {
        "short" => Type::Short,
        "long" if !is_long => Type::Int,
        _ => Type::Hyper,
    })
}

fn program(input: &mut Input<'_>, start: Token) -> Parsed<Program> {
    let name = preceded(any, name).parse_next(input)?;
    let versions = items(input, version)?;
    let (number, after) = (preceded(symbol(b'=', "`=`"), value), end).parse_next(input)?;
    Ok(Program { docs: docs(input, start, after), name, number, versions })
}

fn version(input: &mut Input<'_>) -> Parsed<Version> {
    let start = first(input);
    let name = preceded(keyword("version", "`version`"), name).parse_next(input)?;
    let procedures = items(input, procedure)?;
    let (number, after) = (preceded(symbol(b'=', "`=`"), value), end).parse_next(input)?;
    Ok(Version { docs: docs(input, start, after), name, number, procedures })
}

fn procedure(input: &mut Input<'_>) -> Parsed<Procedure> {
    let start = first(input);
    let place = first(input).place;
    let result = match specifier(input)? {
        Specifier::Whole(Type::Void) => Type::Void,
        of => {
            let star = opt(symbol(b'*', "`*`")).parse_next(input)?;
            shaped(input, of, star.is_some(), place)?
        }
    };
    let name = name(input)?;
    let mut arguments = delimited(symbol(b'(', "`(`"), arguments, symbol(b')', "`)`"));
    let arguments = arguments.parse_next(input)?;
    let (number, after) = (preceded(symbol(b'=', "`=`"), value), end).parse_next(input)?;
    Ok(Procedure { docs: docs(input, start, after), name, number, arguments, result })
}

fn arguments(input: &mut Input<'_>) -> Parsed<Vec<Argument>> {
    let is_end = |input: &Input<'_>| is_at(input, Kind::Symbol(b')'));
    let void = terminated(keyword("void", ""), peek(symbol(b')', "")));
    if is_end(input) || opt(void).parse_next(input)?.is_some() {
        return Ok(Vec::new());
    }
    separated(1.., argument, symbol(b',', "`,`")).parse_next(input)
}

fn argument(input: &mut Input<'_>) -> Parsed<Argument> {
    let start = first(input).place;
    let of = specifier(input)?;
    let star = opt(symbol(b'*', "`*`")).parse_next(input)?;
    let name = opt(name).parse_next(input)?;
    let ty = match of {
        Specifier::Whole(Type::Void) => {
            return Err(wrong(input, start, "`void` must be the only argument"));
        }
        of => shaped(input, of, star.is_some(), start)?,
    };
    Ok(Argument { name, ty })
}
