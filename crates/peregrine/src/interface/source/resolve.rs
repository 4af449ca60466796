//! Types as they are written become types of a description, numbered and measured.

use std::collections::{HashMap, HashSet};

use super::parse::{Method, Reader, Shaped, Trait, Written};
use crate::interface::{
    Described, DescribedBody, DescribedField, DescribedNamed, DescribedParameter,
    DescribedProcedure, DescribedType, DescribedVariant, TextError,
};
use crate::limits;

type Parsed<T> = Result<T, TextError>;

/// Numbers types in the order in which a canonical text mentions them.
pub(super) struct Resolver<'a> {
    types: &'a HashMap<String, (usize, Shaped)>,
    numbers: HashMap<String, usize>,
    order: Vec<(String, usize)>,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(reader: &'a Reader) -> Self {
        Self { types: &reader.types, numbers: HashMap::new(), order: Vec::new() }
    }

    pub(super) fn whole(mut self, found: Trait) -> Parsed<Described> {
        let mut procedures = Vec::new();
        for method in found.methods {
            let mut parameters = Vec::new();
            for (name, direction, shape, ty, max_len) in method.parameters {
                let ty = self.ty(&ty);
                parameters.push(DescribedParameter { name, direction, shape, ty, max_len });
            }
            let Method { name, docs, idempotent, result, error, .. } = method;
            let (result, error) = (self.ty(&result), self.ty(&error));
            procedures.push(DescribedProcedure {
                name,
                docs,
                idempotent,
                parameters,
                result,
                error,
            });
        }
        let mut described = Described {
            name: found.name,
            version: found.version,
            docs: found.docs,
            procedures,
            types: Vec::new(),
        };
        let mut alignments = Vec::new();
        while let Some((path, line)) = self.order.get(described.types.len()).cloned() {
            let (body, align) = match self.types.get(&path) {
                Some((_, shaped)) => self.body(shaped),
                None if path == "CallError" => (call_error(), None),
                None => return Err(TextError::new(line, self.unknown(&path))),
            };
            let name = path.rsplit("::").next().unwrap_or(&path).to_owned();
            described.types.push(DescribedNamed { name, body });
            alignments.push(align);
        }
        let mut sizes = Sizes { described: &mut described, alignments, seen: HashSet::new() };
        for number in 0..sizes.described.types.len() {
            sizes.find(number, 0).map_err(|what| TextError::new(self.order[number].1, what))?;
        }
        Ok(described)
    }

    #[cold]
    fn unknown(&self, path: &str) -> String {
        let near = self.types.keys().filter(|known| {
            let name = known.rsplit("::").next().unwrap_or(known);
            name.eq_ignore_ascii_case(path)
        });
        match near.min() {
            Some(near) => format!("there is no type `{path}`; there is `{near}`"),
            None => format!("there is no type `{path}`"),
        }
    }

    fn ty(&mut self, written: &Written) -> DescribedType {
        match written {
            Written::Simple(ty) => ty.clone(),
            Written::Array(one, count) => DescribedType::Array(Box::new(self.ty(one)), *count),
            Written::Sequence(one) => DescribedType::Sequence(Box::new(self.ty(one))),
            Written::Option(one) => DescribedType::Option(Box::new(self.ty(one))),
            Written::Result(ok, err) => {
                let ok = Box::new(self.ty(ok));
                DescribedType::Result(ok, Box::new(self.ty(err)))
            }
            Written::Tuple(parts) => {
                DescribedType::Tuple(parts.iter().map(|part| self.ty(part)).collect())
            }
            Written::Named(path, line, module) => {
                let within = module.as_ref().map(|module| format!("{module}::{path}"));
                let within = within.filter(|one| self.types.contains_key(one));
                let path = &within.unwrap_or_else(|| path.clone());
                let number = self.numbers.get(path).copied().unwrap_or_else(|| {
                    self.order.push((path.clone(), *line));
                    self.numbers.insert(path.clone(), self.order.len() - 1);
                    self.order.len() - 1
                });
                DescribedType::Named(number)
            }
        }
    }

    fn fields(&mut self, fields: &[(String, Written)]) -> Vec<DescribedField> {
        let field =
            |(name, ty): &(String, Written)| DescribedField { name: name.clone(), ty: self.ty(ty) };
        fields.iter().map(field).collect()
    }

    fn body(&mut self, shaped: &Shaped) -> (DescribedBody, Option<(bool, u64)>) {
        match shaped {
            Shaped::Plain { align, fields } => {
                let fields = self.fields(fields);
                (DescribedBody::Plain { size: 0, align: 0, fields }, *align)
            }
            Shaped::PlainEnum { repr, variants } => {
                let (repr, variants) = (repr.clone(), variants.clone());
                (DescribedBody::PlainEnum { repr, variants }, None)
            }
            Shaped::Struct(fields) => (DescribedBody::Struct(self.fields(fields)), None),
            Shaped::Enum(variants) => {
                let variants = variants.iter().map(|(name, fields)| DescribedVariant {
                    name: name.clone(),
                    fields: self.fields(fields),
                });
                (DescribedBody::Enum(variants.collect()), None)
            }
        }
    }
}

fn call_error() -> DescribedBody {
    let chain = DescribedField { name: "chain".into(), ty: DescribedType::Text };
    DescribedBody::Struct(vec![chain])
}

/// Finds how large plain types are, which is nowhere written.
struct Sizes<'a> {
    described: &'a mut Described,
    alignments: Vec<Option<(bool, u64)>>,
    seen: HashSet<usize>,
}

impl Sizes<'_> {
    fn find(&mut self, number: usize, depth: usize) -> Result<(), String> {
        let parts = match self.described.types.get(number).map(|named| &named.body) {
            Some(DescribedBody::Plain { size: 0, fields, .. }) => {
                fields.iter().filter_map(|field| field.ty.plain_part()).collect::<Vec<_>>()
            }
            _ => return Ok(()),
        };
        if depth > limits::CANONICAL_DEPTH_MAX || !self.seen.insert(number) {
            let name = &self.described.types[number].name;
            return Err(format!("the plain type `{name}` contains itself, or too many others"));
        }
        for part in parts {
            self.find(part, depth + 1)?;
        }
        let named = &self.described.types[number];
        let DescribedBody::Plain { fields, .. } = &named.body else { return Ok(()) };
        let (mut bytes, mut natural) = (0u64, 1);
        for field in fields {
            let known = self.described.plain_bytes(&field.ty);
            let known = known.zip(self.described.plain_alignment(&field.ty));
            let Some((size, align)) = known else {
                return Err(format!(
                    "the field `{}` of the plain type `{}` is not plain",
                    field.name, named.name
                ));
            };
            bytes = bytes.saturating_add(size);
            natural = natural.max(align);
        }
        let align = match self.alignments.get(number).copied().flatten() {
            Some((true, more)) => natural.max(more),
            Some((false, less)) => natural.min(less),
            None => natural,
        };
        if let DescribedBody::Plain { size, align: of, .. } = &mut self.described.types[number].body
        {
            (*size, *of) = (bytes, align);
        }
        Ok(())
    }
}
