//! Replaces names of types by numbers, and computes the sizes of plain types.

use std::collections::{HashMap, HashSet};

use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedNamed, DescribedParameter,
    DescribedProcedure, DescribedType, DescribedVariant,
};
use peregrine::limits::CANONICAL_DEPTH_MAX;
use proc_macro2::Span;
use syn::{Error, Result};

use crate::syntax::{Align, Body, Definition, Field, Method, Parameter, Source, Type, TypeName};

/// Returns the interface that a text describes.
pub(crate) fn described(source: Source) -> Result<Described> {
    let spans: Vec<Span> = core::iter::once(source.root.span)
        .chain(source.root.methods.iter().map(|method| method.span))
        .collect();
    let mut resolver = Resolver { types: &source.types, numbers: HashMap::new(), uses: Vec::new() };
    let mut described = Described {
        name: source.root.name,
        version: source.root.version,
        docs: source.root.docs,
        procedures: source.root.methods.into_iter().map(|one| resolver.procedure(one)).collect(),
        types: Vec::new(),
    };
    let (mut alignments, mut defined) = (Vec::new(), Vec::new());
    while let Some((path, used)) = resolver.uses.get(described.types.len()).cloned() {
        let (body, align, span) = match source.types.get(&path) {
            Some(Definition { span, body }) => {
                let (body, align) = resolver.body(body);
                (body, align, *span)
            }
            None if path == "CallError" => (call_error(), None, used),
            None => return Err(Error::new(used, resolver.unknown(&path))),
        };
        let name = path.rsplit("::").next().unwrap_or(&path).to_owned();
        described.types.push(DescribedNamed { name, body });
        alignments.push(align);
        defined.push((path, span));
    }
    let types = &source.types;
    let mut sizes = Sizes { described, types, alignments, defined, seen: HashSet::new() };
    for number in 0..sizes.described.types.len() {
        sizes.find(number, 0)?;
    }
    let Sizes { described, defined, .. } = sizes;
    let spans = spans.into_iter().chain(defined.into_iter().map(|(_, span)| span));
    checked(described, &spans.collect::<Vec<_>>())
}

/// Checks an interface against the rules of canonical texts. Each span is the source of a line of that
/// text.
fn checked(described: Described, spans: &[Span]) -> Result<Described> {
    let span = |line: usize| spans[line.saturating_sub(1).min(spans.len() - 1)];
    let read = Described::parse(&described.to_string())
        .map_err(|error| Error::new(span(error.line()), error.reason()))?;
    match read.with_docs(&described.docs()) == described {
        true => Ok(described),
        false => Err(Error::new(span(1), "a name in this text cannot be in a description")),
    }
}

/// Numbers types in the order in which a canonical text mentions them.
struct Resolver<'a> {
    types: &'a HashMap<String, Definition>,
    numbers: HashMap<String, usize>,
    /// The paths of types by their numbers, and the position of the first use of each.
    uses: Vec<(String, Span)>,
}

impl Resolver<'_> {
    fn procedure(&mut self, method: Method) -> DescribedProcedure {
        let mut parameters = Vec::new();
        for Parameter { name, direction, shape, ty, max_len } in method.parameters {
            let ty = self.ty(&ty);
            parameters.push(DescribedParameter { name, direction, shape, ty, max_len });
        }
        let (result, error) = (self.ty(&method.result), self.ty(&method.error));
        let Method { name, docs, idempotent, .. } = method;
        DescribedProcedure { name, docs, idempotent, parameters, result, error }
    }

    #[cold]
    fn unknown(&self, path: &str) -> String {
        let near = self.types.keys().filter(|known| {
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
            Type::Named(TypeName { path, span, module }) => {
                let within = module.as_ref().map(|module| format!("{module}::{path}"));
                let within = within.filter(|one| self.types.contains_key(one));
                let path = within.as_ref().unwrap_or(path);
                let known = self.numbers.get(path).copied();
                DescribedType::Named(known.unwrap_or_else(|| {
                    self.uses.push((path.clone(), *span));
                    self.numbers.insert(path.clone(), self.uses.len() - 1);
                    self.uses.len() - 1
                }))
            }
        }
    }

    fn fields(&mut self, fields: &[Field]) -> Vec<DescribedField> {
        let field =
            |field: &Field| DescribedField { name: field.name.clone(), ty: self.ty(&field.ty) };
        fields.iter().map(field).collect()
    }

    fn body(&mut self, body: &Body) -> (DescribedBody, Option<Align>) {
        let body = match body {
            Body::Plain { align, fields } => {
                let fields = self.fields(fields);
                return (DescribedBody::Plain { size: 0, align: 0, fields }, *align);
            }
            Body::PlainEnum { repr, variants } => {
                DescribedBody::PlainEnum { repr: repr.clone(), variants: variants.clone() }
            }
            Body::Struct(fields) => DescribedBody::Struct(self.fields(fields)),
            Body::Enum(variants) => {
                let variant = |(name, fields): &(String, Vec<Field>)| DescribedVariant {
                    name: name.clone(),
                    fields: self.fields(fields),
                };
                DescribedBody::Enum(variants.iter().map(variant).collect())
            }
        };
        (body, None)
    }
}

/// Returns the definition of `CallError`.
fn call_error() -> DescribedBody {
    let chain = DescribedField { name: "chain".into(), ty: DescribedType::Text };
    DescribedBody::Struct(vec![chain])
}

/// Computes the sizes of plain types, which the text does not contain.
struct Sizes<'a> {
    described: Described,
    types: &'a HashMap<String, Definition>,
    alignments: Vec<Option<Align>>,
    /// The path of each type, and the position of its definition.
    defined: Vec<(String, Span)>,
    seen: HashSet<usize>,
}

impl Sizes<'_> {
    /// Computes the size of a type that is inside of `depth` others, and first the sizes of its parts.
    fn find(&mut self, number: usize, depth: usize) -> Result<()> {
        let parts = match self.described.types.get(number).map(|named| &named.body) {
            Some(DescribedBody::Plain { size: 0, fields, .. }) => {
                fields.iter().filter_map(|field| plain_part(&field.ty)).collect::<Vec<_>>()
            }
            _ => return Ok(()),
        };
        if depth > CANONICAL_DEPTH_MAX || !self.seen.insert(number) {
            let name = &self.described.types[number].name;
            let what = format!("the plain type `{name}` contains itself, or too many others");
            return Err(Error::new(self.defined[number].1, what));
        }
        for part in parts {
            self.find(part, depth + 1)?;
        }
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

    /// Returns the position of a field of a plain type.
    fn field(&self, number: usize, place: usize) -> Span {
        let (path, span) = &self.defined[number];
        match self.types.get(path).map(|definition| &definition.body) {
            Some(Body::Plain { fields, .. }) => fields[place].span,
            _ => *span,
        }
    }
}

/// Returns the named type in an array of arrays.
fn plain_part(ty: &DescribedType) -> Option<usize> {
    match ty {
        DescribedType::Array(one, _) => plain_part(one),
        DescribedType::Named(number) => Some(*number),
        _ => None,
    }
}
