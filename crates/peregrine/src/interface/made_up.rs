//! Generates random interfaces of every kind, for property tests. The tests of `peregrine-idl` also use this
//! file, so the file uses only public items of the module around it.

use proptest::prelude::*;

use super::{
    Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed, DescribedParameter,
    DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant, Direction, Shape,
};

/// The parts of a random interface. Its types are not yet numbered in the order in which the canonical text
/// mentions them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    procedures: Vec<DescribedProcedure>,
    bodies: Vec<DescribedBody>,
}

/// The number of named types of values in a [`Pool`].
const POOL: usize = 6;

/// The number of callback interfaces. They are numbered after the types.
const INTERFACES: usize = 3;

/// Unusual names: names that are not ASCII, that Rust does not allow, or that already have a meaning in Rust.
const ODD: &[&str] = &["größe", "str", "type", "get-size", "①", "_"];

fn name() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(ODD).prop_map(str::to_owned);
    prop_oneof![4 => "[a-z_][a-z0-9_]{0,6}", 1 => odd]
}

/// The integer types, each with its size in bytes.
const INTEGERS: &[(DescribedType, u64)] = &[
    (DescribedType::U8, 1),
    (DescribedType::U16, 2),
    (DescribedType::U32, 4),
    (DescribedType::U64, 8),
    (DescribedType::U128, 16),
    (DescribedType::I8, 1),
    (DescribedType::I16, 2),
    (DescribedType::I32, 4),
    (DescribedType::I64, 8),
    (DescribedType::I128, 16),
];

/// The types that contain no other types, except the integers.
const OTHERS: &[DescribedType] = &[
    DescribedType::Unit,
    DescribedType::Bool,
    DescribedType::Char,
    DescribedType::Text,
    DescribedType::F32,
    DescribedType::F64,
];

fn ty() -> impl Strategy<Value = DescribedType> {
    let simple: Vec<_> = INTEGERS.iter().map(|(ty, _)| ty).chain(OTHERS).cloned().collect();
    let leaf = prop_oneof![prop::sample::select(simple), (0..POOL).prop_map(DescribedType::Named)];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (boxed.clone(), any::<u64>()).prop_map(|(one, n)| DescribedType::Array(one, n)),
            boxed.clone().prop_map(DescribedType::Sequence),
            boxed.clone().prop_map(DescribedType::Option),
            (boxed.clone(), boxed).prop_map(|(ok, err)| DescribedType::Result(ok, err)),
            prop::collection::vec(inner, 1..4).prop_map(DescribedType::Tuple),
        ]
    })
}

fn was() -> impl Strategy<Value = Vec<String>> {
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(name(), 1..3)]
}

/// Generates random growth: earlier names, whether integers widen, and perhaps a default of 16 bytes.
/// [`fitting`] shortens the default to the size of its type.
fn growth() -> impl Strategy<Value = DescribedGrowth> {
    (was(), prop::bool::weighted(0.2), prop::option::weighted(0.2, any::<[u8; 16]>())).prop_map(
        |(was, widens, default)| {
            let default = default.map(|bytes| bytes.to_vec());
            DescribedGrowth { was, widens, default }
        },
    )
}

/// Returns the growth with a default that fits the type. The default is removed if the type is no integer.
fn fitting(mut growth: DescribedGrowth, ty: &DescribedType) -> DescribedGrowth {
    let bytes = INTEGERS.iter().find(|(one, _)| one == ty).map(|(_, bytes)| *bytes);
    growth.default = growth.default.zip(bytes).map(|(all, bytes)| all[..bytes as usize].to_vec());
    growth
}

fn field() -> impl Strategy<Value = DescribedField> {
    (name(), ty(), growth()).prop_map(|(name, ty, growth)| {
        let growth = fitting(growth, &ty);
        DescribedField { name, ty, growth, max: None }
    })
}

fn fields() -> impl Strategy<Value = Vec<DescribedField>> {
    (prop::collection::vec(field(), 0..4), any::<bool>()).prop_map(|(mut fields, are_numbered)| {
        if are_numbered {
            (0..).zip(&mut fields).for_each(|(i, field): (u32, _)| field.name = i.to_string());
        }
        fields
    })
}

fn plain() -> impl Strategy<Value = DescribedBody> {
    let field = (name(), prop::sample::select(INTEGERS), 1..5u64);
    prop::collection::vec(field, 1..4).prop_map(|parts| {
        let size = parts.iter().map(|(_, (_, bytes), count)| bytes * count).sum();
        let field = |(name, (ty, _), count)| {
            let ty = if count > 1 { DescribedType::Array(Box::new(ty), count) } else { ty };
            DescribedField { name, ty, growth: DescribedGrowth::default(), max: None }
        };
        DescribedBody::Plain { size, align: 1, fields: parts.into_iter().map(field).collect() }
    })
}

fn body() -> impl Strategy<Value = DescribedBody> {
    let discriminant = (name(), any::<i128>(), was())
        .prop_map(|(name, value, was)| DescribedPlainVariant { name, value, was, is_other: false });
    let discriminants = prop::collection::vec(discriminant, 0..4);
    let plain_enum = discriminants
        .prop_map(|variants| DescribedBody::PlainEnum { repr: DescribedType::I128, variants });
    let variant = (name(), fields(), was()).prop_map(|(name, fields, was)| {
        let is_other = fields.is_empty() && was.len() == 1;
        DescribedVariant { name, fields, was, is_other, case: None }
    });
    prop_oneof![
        plain(),
        plain_enum,
        fields().prop_map(DescribedBody::Struct),
        prop::collection::vec(variant, 0..4).prop_map(|mut variants| {
            // An enum may have at most one variant for unknown variants.
            let mut others = variants.iter_mut().filter(|one| one.is_other).skip(1);
            others.by_ref().for_each(|one| one.is_other = false);
            DescribedBody::Enum(variants)
        }),
    ]
}

fn parameter() -> impl Strategy<Value = DescribedParameter> {
    let shapes = vec![
        (Direction::In, Shape::One),
        (Direction::In, Shape::Buffer),
        (Direction::In, Shape::Text),
        (Direction::Lent, Shape::Buffer),
        (Direction::Out, Shape::Buffer),
        (Direction::InOut, Shape::One),
        (Direction::InOut, Shape::Buffer),
        (Direction::Sink, Shape::One),
        (Direction::Source, Shape::One),
        (Direction::Callback, Shape::One),
    ];
    let interface = (POOL..POOL + INTERFACES).prop_map(DescribedType::Named);
    let ty = (ty(), interface);
    (name(), prop::sample::select(shapes), ty, any::<Option<u32>>(), growth()).prop_map(
        |(name, (direction, shape), (ty, interface), max_len, growth)| {
            let ty = match (direction, shape) {
                (Direction::Callback, _) => interface,
                (_, Shape::Text) => DescribedType::Text,
                _ => ty,
            };
            let max_len = max_len.filter(|_| direction != Direction::Callback);
            let growth = match (direction, shape) {
                (Direction::Callback, _) => {
                    DescribedGrowth { was: growth.was, ..DescribedGrowth::default() }
                }
                (Direction::InOut | Direction::Sink | Direction::Source, _) => {
                    DescribedGrowth { default: None, ..growth }
                }
                (_, Shape::One) => fitting(growth, &ty),
                _ => DescribedGrowth { default: growth.default.map(|_| vec![0; 4]), ..growth },
            };
            DescribedParameter { name, direction, shape, ty, max_len, growth }
        },
    )
}

fn procedures() -> impl Strategy<Value = Vec<DescribedProcedure>> {
    let parameters = prop::collection::vec(parameter(), 0..4);
    let procedure = (name(), any::<bool>(), parameters, ty(), ty(), was()).prop_map(
        |(name, idempotent, parameters, result, error, was)| DescribedProcedure {
            was,
            docs: String::new(),
            name,
            oneway: !idempotent && result == DescribedType::Unit,
            idempotent,
            parameters,
            result,
            error,
        },
    );
    prop::collection::vec(procedure, 0..4)
}

pub(crate) fn pool() -> impl Strategy<Value = Pool> {
    let interface = (0..3u32, procedures())
        .prop_map(|(version, procedures)| DescribedBody::Interface { version, procedures });
    let bodies = prop::collection::vec(body(), POOL);
    let interfaces = prop::collection::vec(interface, INTERFACES);
    (procedures(), bodies, interfaces).prop_map(|(procedures, mut bodies, interfaces)| {
        bodies.extend(interfaces);
        Pool { procedures, bodies }
    })
}

impl Pool {
    /// Returns the interface. Its types are numbered in the order in which the canonical text mentions them.
    pub(crate) fn described(mut self) -> Described {
        let mut order = Vec::new();
        number_procedures(&mut self.procedures, &mut order);
        let mut types = Vec::new();
        while let Some(&one) = order.get(types.len()) {
            let mut body = self.bodies[one].clone();
            if let DescribedBody::Interface { procedures, .. } = &mut body {
                number_procedures(procedures, &mut order);
            }
            let all: Vec<&mut DescribedField> = match &mut body {
                DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                    fields.iter_mut().collect()
                }
                DescribedBody::Enum(variants) => {
                    variants.iter_mut().flat_map(|variant| &mut variant.fields).collect()
                }
                _ => Vec::new(),
            };
            all.into_iter().for_each(|field| number(&mut field.ty, &mut order));
            types.push(DescribedNamed { name: format!("T{}", one / 2), body });
        }
        let mut all = Described {
            name: "Made-up".into(),
            version: 7,
            docs: String::new(),
            procedures: self.procedures,
            types,
            programs: Vec::new(),
        };
        // If no Rust trait can contain a procedure, the procedure is changed so that a trait can contain it.
        let mut procedures = core::mem::take(&mut all.procedures);
        procedures.iter_mut().for_each(|one| possible(one, &all));
        all.procedures = procedures;
        for number in 0..all.types.len() {
            let mut body = all.types[number].body.clone();
            if let DescribedBody::Interface { procedures, .. } = &mut body {
                procedures.iter_mut().for_each(|one| possible(one, &all));
            }
            all.types[number].body = body;
        }
        all
    }
}

/// Changes a procedure so that a Rust trait can contain it.
fn possible(procedure: &mut DescribedProcedure, all: &Described) {
    for one in &mut procedure.parameters {
        let plain = all.plain_bytes(&one.ty).is_some();
        if matches!(one.direction, Direction::Lent | Direction::Out) && !plain {
            one.direction = Direction::In;
        }
        procedure.idempotent &= one.direction != Direction::InOut;
        procedure.oneway &= one.direction == Direction::In;
    }
}

fn number_procedures(procedures: &mut [DescribedProcedure], order: &mut Vec<usize>) {
    for procedure in procedures {
        for parameter in &mut procedure.parameters {
            number(&mut parameter.ty, order);
        }
        number(&mut procedure.result, order);
        number(&mut procedure.error, order);
    }
}

fn number(ty: &mut DescribedType, order: &mut Vec<usize>) {
    match ty {
        DescribedType::Named(one) => {
            let known = order.iter().position(|known| known == one);
            *one = known.unwrap_or_else(|| {
                order.push(*one);
                order.len() - 1
            });
        }
        DescribedType::Array(one, _)
        | DescribedType::Sequence(one)
        | DescribedType::Option(one) => number(one, order),
        DescribedType::Result(ok, err) => {
            number(ok, order);
            number(err, order);
        }
        DescribedType::Tuple(parts) => parts.iter_mut().for_each(|one| number(one, order)),
        _ => {}
    }
}
