//! Replaces names of types by numbers, and computes the sizes of plain types.

use std::collections::HashMap;

use peregrine::interface::{
    Case, Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed,
    DescribedParameter, DescribedProcedure, DescribedType, DescribedVariant, Program, Shape,
};
use peregrine::limits::CANONICAL_DEPTH_MAX;
use proc_macro2::Span;
use syn::{Error, Result};

use crate::default::{self, Written};
use crate::syntax::{
    Align, Body, Definition, Field, Foreign, Growth, Method, Parameter, Source, Trait, Type,
    TypeName, Variant, name_of,
};
use crate::{library, syntax};

/// Returns the interface of a text whose trait has the path `root`.
pub(crate) fn described(source: &Source, root: &str) -> Result<Described> {
    let Some(Definition { span, body: Body::Interface(root), .. }) = source.types.get(root) else {
        return Err(Error::new(Span::call_site(), "there is no trait"));
    };
    let spans: Vec<Span> =
        core::iter::once(*span).chain(root.methods.iter().map(|method| method.span)).collect();
    let library = library::definitions();
    let mut resolver = Resolver {
        types: &source.types,
        library: &library,
        numbers: HashMap::new(),
        uses: Vec::new(),
        arguments: HashMap::new(),
        defaults: Vec::new(),
        aliases: 0,
        nested_aliases: 0,
    };
    let mut described = Described {
        name: root.name.clone(),
        version: root.version,
        docs: root.docs.clone(),
        procedures: resolver.procedures(&root.methods, Place::Parameter),
        types: Vec::new(),
        programs: programs(root)?,
    };
    for (procedure, method) in described.procedures.iter_mut().zip(&root.methods) {
        procedure.docs.clone_from(&method.docs);
    }
    let (mut alignments, mut defined) = (Vec::new(), Vec::new());
    while let Some(Use { path, span: used, is_trait, arguments }) =
        resolver.uses.get(described.types.len()).cloned()
    {
        let definition = source.types.get(&path).or_else(|| library.get(&path));
        let mut name = path.rsplit("::").next().unwrap_or(&path).to_owned();
        if let Some(Definition { body: Body::Interface(one), .. }) = definition {
            name.clone_from(&one.name);
        } else if is_trait {
            let what = format!("there is no trait `{path}` in this text; add it");
            return Err(Error::new(used, what));
        }
        let (body, align, span) = match definition {
            Some(Definition { body: Body::Alias(_), .. }) => {
                let what = format!(
                    "the aliases of types around `{path}` contain each other, or are too many"
                );
                return Err(Error::new(used, what));
            }
            Some(Definition { span, parameters, body, .. }) => {
                if parameters.len() != arguments.len() {
                    let (count, given) = (parameters.len(), arguments.len());
                    let what = format!("`{path}` has {count} type parameters, not {given}");
                    return Err(Error::new(used, what));
                }
                let number = described.types.len();
                resolver.arguments = parameters.iter().cloned().zip(arguments).collect();
                let (body, align) = resolver.body(number, body);
                (body, align, *span)
            }
            None if path == "CallError" => (call_error(), None, used),
            None => return Err(Error::new(used, resolver.unknown(&path))),
        };
        described.types.push(DescribedNamed { name, body });
        alignments.push(align);
        defined.push((path, span));
        if described.types.len() > TYPES_MAX {
            let what = format!(
                "more than {TYPES_MAX} types, where a generic type counts once for each list of arguments"
            );
            return Err(Error::new(used, what));
        }
    }
    let (types, defaults) = (&source.types, resolver.defaults);
    let states = vec![State::New; described.types.len()];
    let mut sizes = Sizes { described, types, alignments, defined, states };
    for number in 0..sizes.described.types.len() {
        sizes.find(number)?;
    }
    let Sizes { mut described, defined, .. } = sizes;
    for Pending { place, written, span } in defaults {
        let bytes = match place.of(&mut described).map(|(ty, _)| ty.clone()) {
            Some(Some(ty)) if described.interface_of(&ty).is_some() => {
                return Err(Error::new(span, "a callback cannot have a default"));
            }
            Some(Some(ty)) => default::bytes(&described, &ty, &written, span)?,
            // The parameter is a buffer. Its default is an empty buffer, which is encoded as a length of 0.
            _ => vec![0; 4],
        };
        if let Some((_, growth)) = place.of(&mut described) {
            growth.default = Some(bytes);
        }
    }
    let spans = spans.into_iter().chain(defined.into_iter().map(|(_, span)| span));
    checked(described, &spans.collect::<Vec<_>>())
}

/// Returns the programs of an interface, with the number of each procedure.
fn programs(root: &Trait) -> Result<Vec<Program>> {
    let program = |one: &syntax::Program| {
        let number = |method: &Method| {
            method.number(one.system).ok_or_else(|| {
                let name = name_of(one.system);
                let what = format!("write `#[{name}(N)]` before `{}`: its number", method.name);
                Error::new(method.span, what)
            })
        };
        let procedures = root.methods.iter().map(number).collect::<Result<_>>()?;
        // A Courier program that is started by its name gets zeros, which `#[interface]` gives to it, too.
        let (number, version) = one.numbers.unwrap_or((0, 0));
        Ok(Program { system: one.system, number, version, procedures })
    };
    root.programs.iter().map(program).collect()
}

/// The largest number of types. `Page<A>` and `Page<B>` count as two types. Without this limit, a type `T<A>`
/// that contains `T<Vec<A>>` would lead to an infinite number of types.
const TYPES_MAX: usize = 1 << 16;

/// A default, which is evaluated after all types are known.
struct Pending {
    place: Place,
    written: Written,
    span: Span,
}

/// The place of a parameter or of a field in the description. The first number is the number of the procedure
/// or of the type. The other numbers are indices within that procedure or type.
#[derive(Clone, Copy)]
enum Place {
    Parameter(usize, usize),
    Field(usize, usize),
    VariantField(usize, usize, usize),
    /// A parameter of a procedure of a callback's interface.
    NestedParameter(usize, usize, usize),
}

impl Place {
    /// Returns the type and the growth of the field or parameter. The growth says which changes are allowed.
    /// For a buffer, the type is `None`.
    fn of(self, all: &mut Described) -> Option<(Option<DescribedType>, &mut DescribedGrowth)> {
        fn parameter(
            one: &mut DescribedParameter,
        ) -> Option<(Option<DescribedType>, &mut DescribedGrowth)> {
            let is_one = one.shape == Shape::One;
            Some((is_one.then(|| one.ty.clone()), &mut one.growth))
        }
        fn field(
            one: &mut DescribedField,
        ) -> Option<(Option<DescribedType>, &mut DescribedGrowth)> {
            Some((Some(one.ty.clone()), &mut one.growth))
        }
        match self {
            Self::Parameter(procedure, number) => {
                parameter(all.procedures.get_mut(procedure)?.parameters.get_mut(number)?)
            }
            Self::NestedParameter(ty, procedure, number) => {
                match &mut all.types.get_mut(ty)?.body {
                    DescribedBody::Interface { procedures, .. } => {
                        parameter(procedures.get_mut(procedure)?.parameters.get_mut(number)?)
                    }
                    _ => None,
                }
            }
            Self::Field(ty, number) => match &mut all.types.get_mut(ty)?.body {
                DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                    field(fields.get_mut(number)?)
                }
                _ => None,
            },
            Self::VariantField(ty, variant, number) => match &mut all.types.get_mut(ty)?.body {
                DescribedBody::Enum(variants) => {
                    field(variants.get_mut(variant)?.fields.get_mut(number)?)
                }
                _ => None,
            },
        }
    }
}

/// Checks an interface against the rules of canonical texts. For each line of the canonical text, `spans`
/// contains the position of the corresponding part of the source.
fn checked(described: Described, spans: &[Span]) -> Result<Described> {
    let span = |line: usize| spans[line.saturating_sub(1).min(spans.len() - 1)];
    let read = Described::parse(&described.to_string())
        .and_then(|read| read.with_foreign_text(&described.foreign_text()))
        .map_err(|error| Error::new(span(error.line()), error.reason()))?;
    match read.with_docs(&described.docs()) == described {
        true => Ok(described),
        false => Err(Error::new(span(1), "this text has a name that a description cannot contain")),
    }
}

/// A named type that the interface uses: its path, the position of its first use, and its arguments.
#[derive(Clone)]
struct Use {
    path: String,
    span: Span,
    /// Whether the type is used as the trait of a callback.
    is_trait: bool,
    arguments: Vec<Type>,
}

/// Gives each type its number. Types are numbered in the order in which a canonical text mentions them.
struct Resolver<'a> {
    types: &'a HashMap<String, Definition>,
    library: &'a HashMap<String, Definition>,
    /// The numbers of types, by their paths and arguments.
    numbers: HashMap<String, usize>,
    uses: Vec<Use>,
    /// The arguments of the type that is being resolved, by the names of the type parameters.
    arguments: HashMap<String, Type>,
    defaults: Vec<Pending>,
    /// The number of aliases that were replaced by their types.
    aliases: usize,
    /// The number of aliases that are being replaced, and that contain the current type.
    nested_aliases: usize,
}

impl Resolver<'_> {
    /// Returns the procedures, with empty documentation. `place` converts the number of a procedure and the
    /// number of its parameter to a `Place`.
    fn procedures(
        &mut self,
        methods: &[Method],
        place: impl Fn(usize, usize) -> Place,
    ) -> Vec<DescribedProcedure> {
        let one = |(number, method): (usize, &Method)| {
            self.procedure(method, |parameter| place(number, parameter))
        };
        methods.iter().enumerate().map(one).collect()
    }

    fn procedure(&mut self, method: &Method, place: impl Fn(usize) -> Place) -> DescribedProcedure {
        let mut parameters = Vec::new();
        for Parameter { name, direction, shape, ty, max_len, growth, .. } in &method.parameters {
            let growth = self.growth(place(parameters.len()), growth);
            parameters.push(DescribedParameter {
                name: name.clone(),
                direction: *direction,
                shape: *shape,
                ty: self.ty(ty),
                max_len: *max_len,
                growth,
            });
        }
        DescribedProcedure {
            name: method.name.clone(),
            docs: String::new(),
            idempotent: method.idempotent,
            oneway: method.oneway,
            was: method.was.clone(),
            parameters,
            result: self.ty(&method.result),
            error: self.ty(&method.error),
        }
    }

    fn growth(&mut self, place: Place, growth: &Growth) -> DescribedGrowth {
        let Growth { was, widens, default } = growth;
        if let Some((written, span)) = default {
            self.defaults.push(Pending { place, written: written.clone(), span: *span });
        }
        DescribedGrowth { was: was.clone(), widens: *widens, default: None }
    }

    /// Returns a type in which the arguments replace the type parameters.
    fn closed(&self, ty: &Type) -> Type {
        let boxed = |one: &Type| Box::new(self.closed(one));
        match ty {
            Type::Simple(simple) => Type::Simple(simple.clone()),
            Type::Array(one, count) => Type::Array(boxed(one), *count),
            Type::Sequence(one) => Type::Sequence(boxed(one)),
            Type::Option(one) => Type::Option(boxed(one)),
            Type::Result(ok, error) => Type::Result(boxed(ok), boxed(error)),
            Type::Tuple(parts) => Type::Tuple(parts.iter().map(|one| self.closed(one)).collect()),
            Type::Interface(name) => Type::Interface(name.clone()),
            Type::Named(name) => match self.arguments.get(&name.path) {
                Some(argument) if name.arguments.is_empty() => argument.clone(),
                _ => Type::Named(TypeName {
                    path: name.path_in(self.types),
                    span: name.span,
                    module: None,
                    arguments: name.arguments.iter().map(|one| self.closed(one)).collect(),
                }),
            },
        }
    }

    #[cold]
    fn unknown(&self, path: &str) -> String {
        let near = self.types.keys().chain(self.library.keys()).filter(|known| {
            let name = known.rsplit("::").next().unwrap_or(known);
            name.eq_ignore_ascii_case(path)
        });
        match near.min() {
            Some(near) => format!("there is no type `{path}`; there is a type `{near}`"),
            None if path == "str" => "`str` can only be a parameter, as `&str`".to_owned(),
            None => format!("there is no type `{path}` in this text; add the struct or the enum"),
        }
    }

    fn boxed(&mut self, written: &Type) -> Box<DescribedType> {
        Box::new(self.ty(written))
    }

    fn ty(&mut self, written: &Type) -> DescribedType {
        match written {
            Type::Simple(ty) => ty.clone(),
            Type::Array(one, count) => DescribedType::Array(self.boxed(one), *count),
            Type::Sequence(one) => DescribedType::Sequence(self.boxed(one)),
            Type::Option(one) => DescribedType::Option(self.boxed(one)),
            Type::Result(ok, error) => {
                let ok = self.boxed(ok);
                DescribedType::Result(ok, self.boxed(error))
            }
            Type::Tuple(parts) => {
                DescribedType::Tuple(parts.iter().map(|part| self.ty(part)).collect())
            }
            Type::Named(name) => {
                let closed = self.closed(written);
                let Type::Named(closed) = closed else { return self.ty_of(&closed) };
                let is_defined = self.types.contains_key(&closed.path);
                if let Some(other) = library::other(&closed).filter(|_| !is_defined) {
                    return self.ty_of(&other);
                }
                let types = self.types;
                if let Some(Definition { body: Body::Alias(ty), .. }) = types.get(&closed.path)
                    && self.aliases < TYPES_MAX
                    && self.nested_aliases < CANONICAL_DEPTH_MAX
                {
                    self.aliases += 1;
                    self.nested_aliases += 1;
                    let ty = self.ty_of(ty);
                    self.nested_aliases -= 1;
                    return ty;
                }
                self.used(closed, name.span, false)
            }
            Type::Interface(name) => {
                let path = name.path_in(self.types);
                self.used(TypeName { path, ..name.clone() }, name.span, true)
            }
        }
    }

    /// Returns the type that refers to a named type by its number. Assigns the number if this is the first
    /// use.
    fn used(&mut self, name: TypeName, span: Span, is_trait: bool) -> DescribedType {
        let key = key(&name);
        let known = self.numbers.get(&key).copied();
        DescribedType::Named(known.unwrap_or_else(|| {
            let TypeName { path, arguments, .. } = name;
            self.uses.push(Use { path, span, is_trait, arguments });
            self.numbers.insert(key, self.uses.len() - 1);
            self.uses.len() - 1
        }))
    }

    /// Resolves a type that was an argument. Such a type contains no type parameters.
    fn ty_of(&mut self, closed: &Type) -> DescribedType {
        let arguments = core::mem::take(&mut self.arguments);
        let ty = self.ty(closed);
        self.arguments = arguments;
        ty
    }

    fn fields(&mut self, fields: &[Field], place: impl Fn(usize) -> Place) -> Vec<DescribedField> {
        let field = |(number, field): (usize, &Field)| DescribedField {
            name: field.name.clone(),
            ty: self.ty(&field.ty),
            growth: self.growth(place(number), &field.growth),
            max: field.foreign.max,
        };
        fields.iter().enumerate().map(field).collect()
    }

    fn body(&mut self, number: usize, body: &Body) -> (DescribedBody, Option<Align>) {
        let of_struct = |field| Place::Field(number, field);
        let body = match body {
            Body::Plain { align, fields } => {
                let fields = self.fields(fields, of_struct);
                return (DescribedBody::Plain { size: 0, align: 0, fields }, *align);
            }
            Body::PlainEnum { repr, variants } => {
                DescribedBody::PlainEnum { repr: repr.clone(), variants: variants.clone() }
            }
            Body::Struct(fields) => DescribedBody::Struct(self.fields(fields, of_struct)),
            Body::Enum(variants) => {
                let variant = |((place, one), case): ((usize, &Variant), _)| DescribedVariant {
                    name: one.name.clone(),
                    fields: self
                        .fields(&one.fields, |field| Place::VariantField(number, place, field)),
                    was: one.was.clone(),
                    is_other: one.is_other,
                    case,
                };
                let all = variants.iter().enumerate().zip(cases(variants));
                DescribedBody::Enum(all.map(variant).collect())
            }
            // Uses of an alias were replaced by its type, so no part of the description refers to this body.
            Body::Alias(_) => DescribedBody::Struct(Vec::new()),
            Body::Interface(one) => {
                let place =
                    |procedure, parameter| Place::NestedParameter(number, procedure, parameter);
                let procedures = self.procedures(&one.methods, place);
                DescribedBody::Interface { version: one.version, procedures }
            }
        };
        (body, None)
    }
}

/// Returns the numbers of variants in other RPC systems. These are the discriminants, if no variant has
/// fields or an attribute with a number. A number that is the index of the variant is left out.
fn cases(variants: &[Variant]) -> Vec<Option<Case>> {
    let is_plain = syntax::is_enumeration(variants);
    let one = |(index, variant): (i64, &Variant)| match variant.foreign {
        _ if is_plain => Case::numbered(index, variant.number as i64),
        Foreign { error: Some(error), .. } => Some(Case::Error(error)),
        Foreign { is_default: true, .. } => Some(Case::Default),
        Foreign { case: Some(case), .. } => Case::numbered(index, case),
        Foreign { .. } => None,
    };
    (0..).zip(variants).map(one).collect()
}

/// Returns a text that is unique for a named type and its arguments.
fn key(name: &TypeName) -> String {
    fn of(ty: &Type) -> String {
        match ty {
            Type::Simple(simple) => format!("{simple:?}"),
            Type::Array(one, count) => format!("[{}; {count}]", of(one)),
            Type::Sequence(one) => format!("[{}]", of(one)),
            Type::Option(one) => format!("?{}", of(one)),
            Type::Result(ok, error) => format!("!({}, {})", of(ok), of(error)),
            Type::Tuple(parts) => {
                format!("({})", parts.iter().map(of).collect::<Vec<_>>().join(", "))
            }
            Type::Named(name) | Type::Interface(name) => key(name),
        }
    }
    let arguments: Vec<_> = name.arguments.iter().map(of).collect();
    format!("{}<{}>", name.path, arguments.join(", "))
}

/// Returns the definition of `CallError`.
fn call_error() -> DescribedBody {
    let growth = DescribedGrowth::default();
    let chain = DescribedField { name: "chain".into(), ty: DescribedType::Text, growth, max: None };
    DescribedBody::Struct(vec![chain])
}

/// Computes the sizes of plain types. The source text does not contain these sizes.
struct Sizes<'a> {
    described: Described,
    types: &'a HashMap<String, Definition>,
    alignments: Vec<Option<Align>>,
    /// The path of each type, and the position of its definition.
    defined: Vec<(String, Span)>,
    states: Vec<State>,
}

/// How much is known about the size of a type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    /// The sizes of the types that this type contains are being computed.
    Open,
    Done,
}

impl Sizes<'_> {
    /// Returns the numbers of the named types that a plain type contains directly.
    fn parts(&self, number: usize) -> Vec<usize> {
        match self.described.types.get(number).map(|named| &named.body) {
            Some(DescribedBody::Plain { fields, .. }) => {
                fields.iter().filter_map(|field| plain_part(&field.ty)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Computes the size of a type, after the sizes of the types that it contains. The function is not
    /// recursive, because a description may contain a long chain of types.
    fn find(&mut self, number: usize) -> Result<()> {
        if self.states[number] == State::Done {
            return Ok(());
        }
        let mut todo = vec![(number, self.parts(number))];
        while let Some((number, parts)) = todo.last_mut() {
            let number = *number;
            let Some(part) = parts.pop() else {
                self.compute(number)?;
                self.states[number] = State::Done;
                todo.pop();
                continue;
            };
            self.states[number] = State::Open;
            match self.states[part] {
                State::New => todo.push((part, self.parts(part))),
                State::Done => {}
                State::Open => {
                    let name = &self.described.types[part].name;
                    let what = format!("the plain type `{name}` contains itself");
                    return Err(Error::new(self.defined[part].1, what));
                }
            }
        }
        Ok(())
    }

    /// Computes the size of a type from the sizes of the types that it contains.
    fn compute(&mut self, number: usize) -> Result<()> {
        let named = &self.described.types[number];
        let DescribedBody::Plain { fields, .. } = &named.body else { return Ok(()) };
        let (mut bytes, mut natural) = (0u64, 1);
        for (place, field) in fields.iter().enumerate() {
            let size = self.described.plain_bytes(&field.ty);
            let Some((size, align)) = size.zip(self.described.plain_alignment(&field.ty)) else {
                let (field, name) = (&field.name, &named.name);
                let what = format!("the field `{field}` of the plain type `{name}` is not plain");
                return Err(Error::new(self.field(number, place), what));
            };
            bytes = bytes.saturating_add(size);
            natural = natural.max(align);
        }
        let alignment = match self.alignments[number] {
            Some(Align::AtLeast(more)) => natural.max(more),
            Some(Align::AtMost(less)) => natural.min(less),
            None => natural,
        };
        let body = &mut self.described.types[number].body;
        if let DescribedBody::Plain { size, align, .. } = body {
            (*size, *align) = (bytes, alignment);
        }
        Ok(())
    }

    /// Returns the position of a field of a plain type in the source.
    fn field(&self, number: usize, place: usize) -> Span {
        let (path, span) = &self.defined[number];
        match self.types.get(path).map(|definition| &definition.body) {
            Some(Body::Plain { fields, .. }) => fields[place].span,
            _ => *span,
        }
    }
}

/// If `ty` is a named type, or an array of a named type, returns the number of the named type.
fn plain_part(ty: &DescribedType) -> Option<usize> {
    match ty {
        DescribedType::Array(one, _) => plain_part(one),
        DescribedType::Named(number) => Some(*number),
        _ => None,
    }
}
