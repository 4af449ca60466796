//! Makes random interfaces, and changes them at random. The rules of docs/EVOLUTION.md allow these changes.
//!
//! Each part of an interface has a name that no other part ever has, such as `f12`. A part that gets another
//! name keeps the number: `f12_1`. So the reference conversion (`reference.rs`) finds corresponding parts by
//! their numbers, without the rules that the tests check.

use std::collections::HashMap;

use peregrine::Dynamic;
use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedGrowth, DescribedNamed, DescribedParameter,
    DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant, Direction, Shape,
};

use crate::reference::{bytes_of, integer};

/// Random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn is(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

const UNSIGNED: [DescribedType; 5] = [
    DescribedType::U8,
    DescribedType::U16,
    DescribedType::U32,
    DescribedType::U64,
    DescribedType::U128,
];

const SIGNED: [DescribedType; 5] = [
    DescribedType::I8,
    DescribedType::I16,
    DescribedType::I32,
    DescribedType::I64,
    DescribedType::I128,
];

const OTHERS: [DescribedType; 4] =
    [DescribedType::Bool, DescribedType::Char, DescribedType::F32, DescribedType::F64];

/// An interface as it is after zero or more changes.
#[derive(Clone, Debug)]
pub(crate) struct Age {
    pub(crate) whole: Described,
    /// The default of each field, and of each parameter that is a single value and not a buffer. The key is
    /// the name of the field or parameter.
    pub(crate) defaults: HashMap<String, Dynamic>,
    /// The number that was given last. Each new name, and each new value of a plain enum, gets the next
    /// number.
    names: usize,
}

/// Returns a random type without named parts.
fn unnamed(chance: &mut Chance, depth: usize) -> DescribedType {
    let inner = |chance: &mut Chance| Box::new(unnamed(chance, depth + 1));
    match chance.below(if depth > 2 { 4 } else { 8 }) {
        0 => chance.one(&UNSIGNED).clone(),
        1 => chance.one(&SIGNED).clone(),
        2 => chance.one(&OTHERS).clone(),
        3 => DescribedType::Text,
        4 => DescribedType::Sequence(inner(chance)),
        5 => DescribedType::Option(inner(chance)),
        6 => DescribedType::Tuple(vec![*inner(chance), *inner(chance)]),
        _ => DescribedType::Array(inner(chance), 1 + chance.below(3) as u64),
    }
}

/// Returns the first name of a part, such as `f12` for `f12_1`. The first name stays the same when the part
/// gets another name.
pub(crate) fn id(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

impl Age {
    /// Makes a random interface.
    pub(crate) fn first(chance: &mut Chance) -> Self {
        let whole = Described {
            name: "Growing".into(),
            version: 3,
            docs: String::new(),
            procedures: Vec::new(),
            types: Vec::new(),
            programs: Vec::new(),
        };
        let mut age = Self { whole, defaults: HashMap::new(), names: 0 };
        for _ in 0..2 + chance.below(3) {
            let procedure = age.procedure(chance);
            age.whole.procedures.push(procedure);
        }
        age.settle(chance);
        age
    }

    pub(crate) fn name(&mut self, kind: char) -> String {
        self.names += 1;
        format!("{kind}{}", self.names)
    }

    pub(crate) fn procedure(&mut self, chance: &mut Chance) -> DescribedProcedure {
        let name = self.name('p');
        let mut parameters: Vec<_> =
            (0..chance.below(5)).map(|_| self.parameter(chance, false)).collect();
        // The caller of a one-way call gets nothing back. So a procedure can be one-way only if each
        // parameter has the direction `in`.
        let takes_in = |one: &DescribedParameter| one.direction == Direction::In;
        let oneway = parameters.iter().all(takes_in) && chance.is(3);
        for _ in 0..if oneway || !chance.is(4) { 0 } else { 1 + chance.below(2) } {
            let stream = self.stream(chance);
            parameters.insert(chance.below(parameters.len() + 1), stream);
        }
        let result = if oneway { DescribedType::Unit } else { self.ty(chance, 0) };
        let error = self.error(chance);
        let (idempotent, docs, was) = (false, String::new(), Vec::new());
        DescribedProcedure { name, docs, idempotent, oneway, was, parameters, result, error }
    }

    /// Makes the type of an error. This type is used for errors only, because only enums of errors may grow
    /// without an `#[other]` variant.
    fn error(&mut self, chance: &mut Chance) -> DescribedType {
        let variants = self.variants(chance, 0);
        self.named(DescribedBody::Enum(variants))
    }

    fn parameter(&mut self, chance: &mut Chance, is_new: bool) -> DescribedParameter {
        use Direction::{In, InOut, Lent, Out};
        let ways = [
            (In, Shape::One),
            (In, Shape::One),
            (In, Shape::Buffer),
            (In, Shape::Text),
            (Lent, Shape::Buffer),
            (Out, Shape::Buffer),
            (InOut, Shape::One),
            (InOut, Shape::Buffer),
        ];
        // An in-out parameter cannot be added.
        let (direction, shape) = *chance.one(if is_new { &ways[..6] } else { &ways });
        let ty = match (direction, shape) {
            (_, Shape::Text) => DescribedType::Text,
            (Lent | Out, _) => self.plain_ty(chance, 0),
            _ => self.ty(chance, 0),
        };
        let has_default = direction != InOut && (is_new || chance.is(2));
        let growth = self.growth(chance, has_default);
        DescribedParameter { name: self.name('a'), direction, shape, ty, max_len: None, growth }
    }

    /// Makes a parameter that is a stream. The type of its items never changes.
    fn stream(&mut self, chance: &mut Chance) -> DescribedParameter {
        let direction = if chance.is(2) { Direction::Sink } else { Direction::Source };
        let (ty, growth) = (unnamed(chance, 0), DescribedGrowth::default());
        let shape = Shape::One;
        DescribedParameter { name: self.name('a'), direction, shape, ty, max_len: None, growth }
    }

    /// Returns random attributes. If there is a default, [`settle`](Self::settle) gives it a value later.
    fn growth(&self, chance: &mut Chance, has_default: bool) -> DescribedGrowth {
        let default = has_default.then(Vec::new);
        DescribedGrowth { was: Vec::new(), widens: chance.is(2), default }
    }

    fn named(&mut self, body: DescribedBody) -> DescribedType {
        let name = self.name('T');
        self.whole.types.push(DescribedNamed { name, body });
        DescribedType::Named(self.whole.types.len() - 1)
    }

    /// Returns a random type that has at least one value.
    pub(crate) fn ty(&mut self, chance: &mut Chance, depth: usize) -> DescribedType {
        if depth > 3 {
            return chance.one(&UNSIGNED).clone();
        }
        let inner = |age: &mut Self, chance: &mut Chance| Box::new(age.ty(chance, depth + 1));
        match chance.below(17) {
            0 | 1 => chance.one(&UNSIGNED).clone(),
            2 | 3 => chance.one(&SIGNED).clone(),
            4 => chance.one(&OTHERS).clone(),
            5 => DescribedType::Text,
            6 => DescribedType::Unit,
            7 => DescribedType::Array(inner(self, chance), chance.below(4) as u64),
            8 => DescribedType::Sequence(inner(self, chance)),
            9 => DescribedType::Option(inner(self, chance)),
            10 => DescribedType::Result(inner(self, chance), inner(self, chance)),
            11 => DescribedType::Tuple(vec![*inner(self, chance), *inner(self, chance)]),
            12 => self.plain_ty(chance, depth),
            // A type may contain itself through an option.
            13 if !self.whole.types.is_empty() => {
                DescribedType::Option(Box::new(self.known(chance)))
            }
            14 | 15 => {
                let mut fields = self.fields(chance, depth);
                let own = self.named(DescribedBody::Struct(Vec::new()));
                if chance.is(3) {
                    // The struct becomes a list or a tree.
                    let ty = match chance.is(2) {
                        true => DescribedType::Option(Box::new(own.clone())),
                        false => DescribedType::Sequence(Box::new(own.clone())),
                    };
                    let has_default = chance.is(2);
                    let growth = self.growth(chance, has_default);
                    fields.push(DescribedField { name: self.name('f'), ty, growth, max: None });
                }
                let DescribedType::Named(number) = own else { unreachable!() };
                self.whole.types[number].body = DescribedBody::Struct(fields);
                own
            }
            _ => {
                let variants = self.variants(chance, depth);
                self.named(DescribedBody::Enum(variants))
            }
        }
    }

    /// Returns a random one of the named types, or `char` if that type may be an error type.
    fn known(&self, chance: &mut Chance) -> DescribedType {
        let number = chance.below(self.whole.types.len());
        let is_error =
            self.whole.procedures.iter().any(|one| one.error == DescribedType::Named(number));
        // `is_error` misses the error type of the procedure that is being made, because the list does not
        // contain that procedure yet. Error types are enums with fields, so this function returns no enum
        // with fields.
        let is_struct = matches!(
            self.whole.types[number].body,
            DescribedBody::Struct(_)
                | DescribedBody::Plain { .. }
                | DescribedBody::PlainEnum { .. }
        );
        if is_error || !is_struct { DescribedType::Char } else { DescribedType::Named(number) }
    }

    pub(crate) fn field(
        &mut self,
        chance: &mut Chance,
        ty: DescribedType,
        is_new: bool,
    ) -> DescribedField {
        let has_default = is_new || chance.is(2);
        let growth = self.growth(chance, has_default);
        DescribedField { name: self.name('f'), ty, growth, max: None }
    }

    fn fields(&mut self, chance: &mut Chance, depth: usize) -> Vec<DescribedField> {
        let count = chance.below(4);
        let mut fields = Vec::new();
        for _ in 0..count {
            let ty = self.ty(chance, depth + 1);
            fields.push(self.field(chance, ty, false));
        }
        fields
    }

    fn variants(&mut self, chance: &mut Chance, depth: usize) -> Vec<DescribedVariant> {
        let mut variants = Vec::new();
        for _ in 0..1 + chance.below(3) {
            variants.push(self.variant(chance, depth));
        }
        if chance.is(2) {
            let name = self.name('v');
            let mut fields = Vec::new();
            if chance.is(2) {
                let growth = DescribedGrowth::default();
                fields.push(DescribedField {
                    name: self.name('f'),
                    ty: DescribedType::Text,
                    growth,
                    max: None,
                });
            }
            let other =
                DescribedVariant { name, fields, was: Vec::new(), is_other: true, case: None };
            variants.insert(chance.below(variants.len() + 1), other);
        }
        variants
    }

    fn variant(&mut self, chance: &mut Chance, depth: usize) -> DescribedVariant {
        let (name, fields) = (self.name('v'), self.fields(chance, depth));
        DescribedVariant { name, fields, was: Vec::new(), is_other: false, case: None }
    }

    /// Returns a type whose values are plain.
    fn plain_ty(&mut self, chance: &mut Chance, depth: usize) -> DescribedType {
        match chance.below(if depth > 2 { 4 } else { 8 }) {
            0 | 1 => chance.one(&UNSIGNED).clone(),
            2 => chance.one(&SIGNED).clone(),
            3 => chance.one(&OTHERS).clone(),
            4 => {
                let one = Box::new(self.plain_ty(chance, depth + 1));
                DescribedType::Array(one, 1 + chance.below(3) as u64)
            }
            5 => {
                let repr = match chance.is(2) {
                    true => chance.one(&UNSIGNED[..4]).clone(),
                    false => chance.one(&SIGNED[..4]).clone(),
                };
                let mut variants = Vec::new();
                for _ in 0..2 + chance.below(3) {
                    let new = self.plain_variant(chance, &repr, &variants);
                    variants.push(new);
                }
                if chance.is(2) {
                    let other = chance.below(variants.len());
                    variants[other].is_other = true;
                }
                self.named(DescribedBody::PlainEnum { repr, variants })
            }
            _ => {
                let mut fields = Vec::new();
                for _ in 0..1 + chance.below(3) {
                    let ty = self.plain_ty(chance, depth + 1);
                    fields.push(self.field(chance, ty, false));
                }
                // `settle` computes the size and the alignment later.
                self.named(DescribedBody::Plain { size: 0, align: 1, fields })
            }
        }
    }

    fn plain_variant(
        &mut self,
        chance: &mut Chance,
        repr: &DescribedType,
        others: &[DescribedPlainVariant],
    ) -> DescribedPlainVariant {
        let lowest = if SIGNED.contains(repr) { -100 } else { 0 };
        let mut value = lowest + chance.below(100) as i128;
        while others.iter().any(|one| one.value == value) {
            value += 1;
        }
        DescribedPlainVariant { name: self.name('v'), value, was: Vec::new(), is_other: false }
    }

    /// Numbers the types in the order of the canonical text, computes the sizes of plain types, and gives
    /// every default a value of its type.
    pub(crate) fn settle(&mut self, chance: &mut Chance) {
        let old = std::mem::take(&mut self.whole.types);
        let mut order = Vec::new();
        for procedure in &mut self.whole.procedures {
            for parameter in &mut procedure.parameters {
                number(&mut parameter.ty, &mut order);
            }
            number(&mut procedure.result, &mut order);
            number(&mut procedure.error, &mut order);
        }
        while let Some(&one) = order.get(self.whole.types.len()) {
            let mut named: DescribedNamed = old[one].clone();
            for fields in all_fields(&mut named.body) {
                fields.iter_mut().for_each(|field| number(&mut field.ty, &mut order));
            }
            self.whole.types.push(named);
        }
        for number in 0..self.whole.types.len() {
            self.settle_size(number);
        }
        let mut named = self.whole.types.clone();
        for one in &mut named {
            for field in all_fields(&mut one.body).into_iter().flatten() {
                self.settle_default(&field.name, &field.ty, &mut field.growth, chance);
            }
        }
        self.whole.types = named;
        let mut procedures = self.whole.procedures.clone();
        for one in procedures.iter_mut().flat_map(|one| &mut one.parameters) {
            match (&one.growth.default, one.shape) {
                (None, _) => {}
                (_, Shape::One) => {
                    self.settle_default(&one.name, &one.ty, &mut one.growth, chance);
                }
                _ => one.growth.default = Some(vec![0; 4]),
            }
        }
        self.whole.procedures = procedures;
    }

    fn settle_default(
        &mut self,
        name: &str,
        ty: &DescribedType,
        growth: &mut DescribedGrowth,
        chance: &mut Chance,
    ) {
        if growth.default.is_some() {
            let value = value(&self.whole, ty, chance, 3);
            growth.default = Some(bytes_of(&self.whole, ty, &value));
            self.defaults.insert(name.into(), value);
        }
    }

    /// Computes the size and the alignment of a plain type. The sizes and the alignments of its parts are
    /// computed first.
    fn settle_size(&mut self, number: usize) {
        let DescribedBody::Plain { fields, .. } = self.whole.types[number].body.clone() else {
            return;
        };
        let (mut sum, mut most) = (0, 1);
        for field in &fields {
            if let Some(part) = named_part(&field.ty) {
                self.settle_size(part);
            }
            sum += self.whole.plain_bytes(&field.ty).expect("a plain field");
            most = most.max(self.whole.plain_alignment(&field.ty).expect("a plain field"));
        }
        while sum % most != 0 {
            most /= 2;
        }
        self.whole.types[number].body = DescribedBody::Plain { size: sum, align: most, fields };
    }

    /// Makes random changes that the rules allow.
    pub(crate) fn grow(&mut self, chance: &mut Chance) {
        for _ in 0..1 + chance.below(4) {
            // If the chosen change is not possible in this interface, another one is tried.
            let _ = (0..50).any(|_| match chance.below(4) {
                0 => self.change_procedures(chance),
                1 => self.change_parameters(chance),
                _ => self.change_type(chance),
            });
        }
        self.settle(chance);
    }

    fn change_procedures(&mut self, chance: &mut Chance) -> bool {
        match chance.below(3) {
            0 => {
                let new = self.procedure(chance);
                self.whole.procedures.insert(chance.below(self.whole.procedures.len() + 1), new);
            }
            1 => {
                // The oldest procedure, which has the smallest number, always remains.
                let oldest = self.whole.procedures.iter().map(|one| age_of(&one.name)).min();
                let place = chance.below(self.whole.procedures.len());
                if Some(age_of(&self.whole.procedures[place].name)) == oldest {
                    return false;
                }
                self.whole.procedures.remove(place);
            }
            _ => {
                let place = chance.below(self.whole.procedures.len());
                let one = &mut self.whole.procedures[place];
                rename(&mut one.name, &mut one.was);
            }
        }
        true
    }

    fn change_parameters(&mut self, chance: &mut Chance) -> bool {
        let procedure = chance.below(self.whole.procedures.len());
        let count = self.whole.procedures[procedure].parameters.len();
        let place = chance.below(count);
        if chance.is(3) {
            let new = self.parameter(chance, true);
            if self.whole.procedures[procedure].oneway && new.direction != Direction::In {
                return false;
            }
            let all = &mut self.whole.procedures[procedure].parameters;
            all.insert(chance.below(count + 1), new);
            return true;
        }
        let all = &mut self.whole.procedures[procedure].parameters;
        let Some(one) = all.get_mut(place) else { return false };
        match chance.below(3) {
            0 => {
                let is_option = one.shape == Shape::One
                    && one.direction == Direction::In
                    && matches!(one.ty, DescribedType::Option(_));
                if one.growth.default.is_none() && !is_option {
                    return false;
                }
                all.remove(place);
                true
            }
            1 => {
                rename(&mut one.name, &mut one.growth.was);
                true
            }
            _ => one.growth.widens && widen(&mut one.ty, chance),
        }
    }

    fn change_type(&mut self, chance: &mut Chance) -> bool {
        let Some(number) =
            (!self.whole.types.is_empty()).then(|| chance.below(self.whole.types.len()))
        else {
            return false;
        };
        match self.whole.types[number].body.clone() {
            DescribedBody::Struct(mut fields) => {
                let done = self.change_fields(&mut fields, false, chance);
                self.whole.types[number].body = DescribedBody::Struct(fields);
                done
            }
            DescribedBody::Plain { size, align, mut fields } => {
                let done = self.change_fields(&mut fields, true, chance);
                self.whole.types[number].body = DescribedBody::Plain { size, align, fields };
                done
            }
            DescribedBody::Enum(mut variants) => {
                let is_error = self
                    .whole
                    .procedures
                    .iter()
                    .any(|one| one.error == DescribedType::Named(number));
                let is_open = is_error || variants.iter().any(|one| one.is_other);
                let place = chance.below(variants.len());
                match chance.below(4) {
                    0 if is_open => {
                        let new = self.variant(chance, 2);
                        variants.insert(chance.below(variants.len() + 1), new);
                    }
                    1 if is_open && variants.len() > 1 && !variants[place].is_other => {
                        variants.remove(place);
                    }
                    2 => {
                        let one = &mut variants[place];
                        rename(&mut one.name, &mut one.was);
                    }
                    3 if !variants[place].is_other => {
                        let mut fields = std::mem::take(&mut variants[place].fields);
                        let done = self.change_fields(&mut fields, false, chance);
                        variants[place].fields = fields;
                        if !done {
                            return false;
                        }
                    }
                    _ => return false,
                }
                self.whole.types[number].body = DescribedBody::Enum(variants);
                true
            }
            DescribedBody::PlainEnum { repr, mut variants } => {
                let is_open = variants.iter().any(|one| one.is_other);
                let place = chance.below(variants.len());
                match chance.below(3) {
                    0 if is_open => {
                        // The value must differ from the values of all variants, including removed variants.
                        let mut new = self.plain_variant(chance, &repr, &variants);
                        new.value = 100 + self.plain_values();
                        if new.value > 127 && matches!(repr, DescribedType::U8 | DescribedType::I8)
                        {
                            return false;
                        }
                        variants.insert(chance.below(variants.len() + 1), new);
                    }
                    1 if is_open && variants.len() > 1 && !variants[place].is_other => {
                        variants.remove(place);
                    }
                    2 => {
                        let one = &mut variants[place];
                        rename(&mut one.name, &mut one.was);
                    }
                    _ => return false,
                }
                self.whole.types[number].body = DescribedBody::PlainEnum { repr, variants };
                true
            }
            _ => false,
        }
    }

    /// Returns a number that this function has not returned before.
    fn plain_values(&mut self) -> i128 {
        self.names += 1;
        self.names as i128
    }

    fn change_fields(
        &mut self,
        fields: &mut Vec<DescribedField>,
        is_plain: bool,
        chance: &mut Chance,
    ) -> bool {
        if chance.is(3) {
            let ty = if is_plain { self.plain_ty(chance, 2) } else { self.ty(chance, 2) };
            let new = self.field(chance, ty, true);
            fields.insert(chance.below(fields.len() + 1), new);
            return true;
        }
        let (place, count) = (chance.below(fields.len()), fields.len());
        let Some(one) = fields.get_mut(place) else { return false };
        let is_option = matches!(one.ty, DescribedType::Option(_));
        match chance.below(3) {
            // A plain type has at least one field.
            0 if is_plain && count == 1 => false,
            0 if one.growth.default.is_some() || is_option => {
                fields.remove(place);
                true
            }
            1 => {
                rename(&mut one.name, &mut one.growth.was);
                true
            }
            2 => one.growth.widens && widen(&mut one.ty, chance),
            _ => false,
        }
    }
}

fn age_of(name: &str) -> usize {
    id(name)[1..].parse().expect("the number of a procedure")
}

fn rename(name: &mut String, was: &mut Vec<String>) {
    let new = format!("{}_{}", id(name), was.len() + 1);
    was.insert(0, std::mem::replace(name, new));
}

/// Gives an integer in the type `ty` a random width, if `ty` has an integer that can be widened. Returns
/// whether the type has changed.
pub(crate) fn widen(ty: &mut DescribedType, chance: &mut Chance) -> bool {
    match ty {
        DescribedType::Array(one, count) if *count > 0 => widen(one, chance),
        DescribedType::Sequence(one) | DescribedType::Option(one) => widen(one, chance),
        DescribedType::Tuple(parts) => parts.iter_mut().any(|one| widen(one, chance)),
        _ => {
            let Some(all) = [&UNSIGNED, &SIGNED].into_iter().find(|all| all.contains(ty)) else {
                return false;
            };
            let new = chance.one(all).clone();
            let differs = new != *ty;
            *ty = new;
            differs
        }
    }
}

fn named_part(ty: &DescribedType) -> Option<usize> {
    match ty {
        DescribedType::Array(one, _) => named_part(one),
        DescribedType::Named(number) => Some(*number),
        _ => None,
    }
}

fn all_fields(body: &mut DescribedBody) -> Vec<&mut Vec<DescribedField>> {
    match body {
        DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => vec![fields],
        DescribedBody::Enum(variants) => variants.iter_mut().map(|one| &mut one.fields).collect(),
        _ => Vec::new(),
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
        DescribedType::Result(ok, error) => {
            number(ok, order);
            number(error, order);
        }
        DescribedType::Tuple(parts) => parts.iter_mut().for_each(|one| number(one, order)),
        _ => {}
    }
}

/// Returns a random value of a type. The larger `depth` is, the fewer parts the value has.
pub(crate) fn value(
    whole: &Described,
    ty: &DescribedType,
    chance: &mut Chance,
    depth: usize,
) -> Dynamic {
    let inner = |ty: &DescribedType, chance: &mut Chance| value(whole, ty, chance, depth + 1);
    let fields = |fields: &[DescribedField], chance: &mut Chance| {
        fields.iter().map(|one| inner(&one.ty, chance)).collect()
    };
    match ty {
        DescribedType::Unit => Dynamic::Unit,
        DescribedType::Bool => Dynamic::Bool(chance.is(2)),
        DescribedType::Char => Dynamic::Char(*chance.one(&['a', 'ß', '水', '🦅'])),
        DescribedType::F32 => Dynamic::F32(chance.next() as i32 as f32),
        DescribedType::F64 => Dynamic::F64(chance.next() as i64 as f64),
        DescribedType::Text => {
            let letters = (0..chance.below(5)).map(|_| *chance.one(&['a', 'ß', '水', '🦅']));
            Dynamic::Text(letters.collect())
        }
        DescribedType::Array(one, count) => {
            Dynamic::List((0..*count).map(|_| inner(one, chance)).collect())
        }
        DescribedType::Sequence(one) => {
            let count = if depth > 5 { 0 } else { chance.below(4) };
            Dynamic::List((0..count).map(|_| inner(one, chance)).collect())
        }
        DescribedType::Option(one) => {
            let is_some = depth <= 5 && chance.is(2);
            Dynamic::Option(is_some.then(|| Box::new(inner(one, chance))))
        }
        DescribedType::Result(ok, error) => Dynamic::Result(match chance.is(2) {
            true => Ok(Box::new(inner(ok, chance))),
            false => Err(Box::new(inner(error, chance))),
        }),
        DescribedType::Tuple(parts) => {
            Dynamic::List(parts.iter().map(|one| inner(one, chance)).collect())
        }
        DescribedType::Named(number) => match &whole.types[*number].body {
            DescribedBody::Plain { fields: all, .. } | DescribedBody::Struct(all) => {
                Dynamic::List(fields(all, chance))
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let value = chance.one(variants).value;
                integer(repr, value as u128).expect("the value of a variant")
            }
            DescribedBody::Enum(variants) => {
                let number = chance.below(variants.len());
                Dynamic::Variant(number as u32, fields(&variants[number].fields, chance))
            }
            body => panic!("{body:?} is not known here"),
        },
        number => {
            // Most numbers are small, so that they fit all widths.
            let bits = u128::from(chance.next()) << 64 | u128::from(chance.next());
            let value = if chance.is(4) { bits } else { bits % 100 };
            let unsigned = integer(number, value);
            let negative = || integer(number, (value as i128 % 100).wrapping_neg() as u128);
            unsigned.or_else(negative).or_else(|| integer(number, value % 100)).expect("a number")
        }
    }
}
