//! Derives the equations of an interface from its description. An equation gives the cost of the work that a
//! stub does for a message.
//!
//! Chung, Lazowska, Notkin and Zahorjan (*Performance Implications of Design Alternatives for Remote
//! Procedure Call Stubs*, Table 5) give the equations of one data type. They state that the equations of
//! other types can be generated from the description of an interface. This file does so.
//!
//! A description may come from a peer. The work and the size of the result are bounded by [`TERMS_MAX`] and
//! [`DEPTH_MAX`](limits::DEPTH_MAX), and numbers saturate. A part beyond a bound, or a type that contains
//! itself, becomes a variable in the equation.

use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure,
    DescribedType, Direction, Shape,
};
use peregrine::limits;

use super::equation::{Control, Copying, Cost, Design, Length, Part, ProcedureCost, Symbol};

/// The largest number of values of a description that are examined. Further values become variables in the
/// equations.
pub(super) const TERMS_MAX: usize = 1 << 16;

/// Returns the cost of each procedure of an interface in a design, in the order of the procedures.
///
/// A sequence or a buffer costs its count and a loop over its elements. An array `[T; N]` has no count. A
/// choice (an option, a result, an enumeration) costs as much as its most expensive alternative. Text costs a
/// count and one move of a block in every design, because its bytes are never swapped.
pub(crate) fn costs(described: &Described, design: Design) -> Vec<ProcedureCost> {
    let mut deriving =
        Deriving { of: described, design, left: TERMS_MAX, depth: 0, within: vec![] };
    described.procedures.iter().map(|procedure| deriving.procedure(procedure)).collect()
}

/// The place of a value in a call: a chain of names from the parameter to the value.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    /// The place of the value that contains this value; `None` for a parameter or the result.
    pub(super) whole: Option<&'a Self>,
    /// The name of this value within the containing value; `None` for an element of an array or sequence.
    pub(super) name: Option<&'a str>,
}

impl<'a> Place<'a> {
    const fn of(name: &'a str) -> Self {
        Self { whole: None, name: Some(name) }
    }

    const fn part(&'a self, name: &'a str) -> Self {
        Self { whole: Some(self), name: Some(name) }
    }

    const fn element(&'a self) -> Self {
        Self { whole: Some(self), name: None }
    }
}

/// The cost of moving a value, and the additional cost in the interpreter.
#[derive(Default)]
struct Parts {
    moving: Cost,
    interpreting: Cost,
}

impl Parts {
    fn add(&mut self, other: Self) {
        self.moving.add(other.moving);
        self.interpreting.add(other.interpreting);
    }

    fn weight(&self) -> f64 {
        self.moving.weight() + self.interpreting.weight()
    }

    fn costlier(self, other: Self) -> Self {
        if other.weight() > self.weight() { other } else { self }
    }
}

/// Traverses types and writes equations.
struct Deriving<'a> {
    of: &'a Described,
    design: Design,
    /// The number of values that may still be examined.
    left: usize,
    depth: u32,
    /// The named types that contain the current one.
    within: Vec<usize>,
}

impl Deriving<'_> {
    fn procedure(&mut self, procedure: &DescribedProcedure) -> ProcedureCost {
        let call = self.message(|this, parts| {
            for parameter in &procedure.parameters {
                parts.add(this.with_call(parameter));
            }
        });
        let result = self.message(|this, parts| {
            parts.add(this.value(&procedure.result, &Place::of("result")));
            for parameter in &procedure.parameters {
                parts.add(this.with_result(parameter));
            }
        });
        ProcedureCost { call, result }
    }

    /// Returns the cost of a whole message. This includes the work that a stub does once per message.
    fn message(&mut self, values: impl FnOnce(&mut Self, &mut Parts)) -> Cost {
        let mut parts = Parts::default();
        values(self, &mut parts);
        let Parts { moving: mut cost, interpreting } = parts;
        if self.design.copying == Copying::Block && has_block(&cost) {
            cost.add(Cost::symbol(Symbol::BlockStart));
        }
        if self.design.control == Control::Interpreted {
            cost.add(Cost::symbol(Symbol::Setup));
            cost.add(interpreting);
        }
        cost
    }

    fn with_call(&mut self, parameter: &DescribedParameter) -> Parts {
        match parameter.direction {
            // The call contains only the capacity of the buffer.
            Direction::Out => self.item(4),
            _ if parameter.shape == Shape::One => {
                self.value(&parameter.ty, &Place::of(&parameter.name))
            }
            _ => self.buffer(parameter, true),
        }
    }

    fn with_result(&mut self, parameter: &DescribedParameter) -> Parts {
        match (parameter.direction, parameter.shape) {
            (Direction::In | Direction::Lent, _) => Parts::default(),
            (_, Shape::One) => self.value(&parameter.ty, &Place::of(&parameter.name)),
            _ => self.buffer(parameter, false),
        }
    }

    fn buffer(&mut self, parameter: &DescribedParameter, counted: bool) -> Parts {
        let place = Place::of(&parameter.name);
        let length = match parameter.max_len {
            Some(most) => Length::Fixed(most.into()),
            None => Length::Variable(place.to_string()),
        };
        if parameter.shape == Shape::Text {
            return self.text(length);
        }
        self.elements(&parameter.ty, length, counted, &place)
    }

    /// Returns the cost of a single item of `bytes` bytes.
    fn item(&self, bytes: u64) -> Parts {
        Parts { moving: self.moved(bytes), interpreting: Cost::symbol(Symbol::Code) }
    }

    fn moved(&self, bytes: u64) -> Cost {
        let mut cost = match self.design.copying {
            Copying::InlineByte | Copying::ProceduralByte => {
                Cost::symbol_times(Symbol::ByteCopy, bytes)
            }
            _ => Cost::symbol(Symbol::ItemCopy),
        };
        if self.design.copying.is_procedural() {
            cost.add(Cost::symbol(Symbol::Call));
        }
        cost
    }

    fn text(&self, length: Length) -> Parts {
        let mut parts = self.item(4);
        parts.moving.add(Cost::part(Part::Block(length, 1)));
        parts
    }

    /// Returns the cost of several consecutive values. If the values are `counted`, a count precedes them,
    /// and its cost is included.
    fn elements(
        &mut self,
        ty: &DescribedType,
        length: Length,
        counted: bool,
        place: &Place<'_>,
    ) -> Parts {
        let mut all = Parts::default();
        if counted {
            all.moving.add(self.moved(4));
        }
        all.interpreting.add(Cost::symbol(Symbol::ArraySetup));
        let bytes = self.of.plain_bytes(ty);
        let Parts { mut moving, interpreting } = self.value(ty, &place.element());
        let record = self.is_record(ty);
        if let (Copying::Block, Some(bytes)) = (self.design.copying, bytes) {
            // An interpreter handles records (values with several parts) one by one, so it cannot move
            // several of them as one block.
            if !(record && self.design.control == Control::Interpreted) {
                all.moving.add(Cost::part(Part::Block(length.clone(), bytes)));
                moving = Cost::default();
            }
        } else if record
            && self.design.copying.is_procedural()
            && self.design.control == Control::Compiled
        {
            // If there are several records, a compiled stub calls a procedure to marshal each of them. (An
            // interpreter calls itself instead.)
            moving.add(Cost::symbol(Symbol::Call));
        }
        if !moving.is_nothing() {
            moving.add(Cost::symbol(Symbol::Step));
        }
        all.moving.add(moving.times(length.clone()));
        // The interpreter examines the code of an elementary type (a part of the description) once for all
        // elements.
        let once = if record { interpreting.times(length) } else { interpreting };
        all.interpreting.add(once);
        all
    }

    /// Returns whether the type is a record: a type with several values. An interpreter calls itself for each
    /// record.
    fn is_record(&self, ty: &DescribedType) -> bool {
        match ty {
            DescribedType::Tuple(_) => true,
            DescribedType::Array(one, _) => self.is_record(one),
            DescribedType::Named(number) => {
                let named = self.of.types.get(*number);
                named.is_some_and(|named| !matches!(named.body, DescribedBody::PlainEnum { .. }))
            }
            DescribedType::Sequence(_) | DescribedType::Option(_) | DescribedType::Result(..) => {
                true
            }
            _ => false,
        }
    }

    /// Returns the cost of one value.
    fn value(&mut self, ty: &DescribedType, place: &Place<'_>) -> Parts {
        if self.left == 0 || self.depth >= limits::DEPTH_MAX {
            return unknown(place);
        }
        self.left -= 1;
        self.depth += 1;
        let parts = self.value_within(ty, place);
        self.depth -= 1;
        parts
    }

    fn value_within(&mut self, ty: &DescribedType, place: &Place<'_>) -> Parts {
        match ty {
            DescribedType::Unit => Parts::default(),
            DescribedType::Text => self.text(Length::Variable(place.to_string())),
            DescribedType::Array(one, count) => {
                self.elements(one, Length::Fixed(*count), false, place)
            }
            DescribedType::Sequence(one) => {
                self.elements(one, Length::Variable(place.to_string()), true, place)
            }
            DescribedType::Option(one) => {
                let mut parts = self.item(1);
                parts.add(self.value(one, place));
                parts
            }
            DescribedType::Result(ok, err) => {
                let mut parts = self.item(1);
                let ok = self.value(ok, &place.part("ok"));
                parts.add(ok.costlier(self.value(err, &place.part("err"))));
                parts
            }
            DescribedType::Tuple(all) => {
                self.record(all.iter().map(|one| ("", one)), place, self.of.plain_bytes(ty))
            }
            DescribedType::Named(number) => self.named(*number, place),
            primitive => self.item(self.of.plain_bytes(primitive).unwrap_or(0)),
        }
    }

    /// Returns the cost of a record, for which an interpreter calls itself. `plain` is the size of the record
    /// in bytes if the record can be moved as one block.
    fn record<'b>(
        &mut self,
        all: impl Iterator<Item = (&'b str, &'b DescribedType)>,
        place: &Place<'_>,
        plain: Option<u64>,
    ) -> Parts {
        let mut parts = Parts::default();
        parts.interpreting.add(Cost::symbol(Symbol::Setup));
        let mut count = 0;
        for (i, (name, ty)) in all.enumerate() {
            if self.left == 0 {
                parts.add(unknown(place));
                break;
            }
            let number = i.to_string();
            let name = if name.is_empty() { &number } else { name };
            parts.add(self.value(ty, &place.part(name)));
            count += 1;
        }
        if let (Copying::Block, Some(bytes), 2..) = (self.design.copying, plain, count) {
            parts.moving = Cost::part(Part::Block(Length::Fixed(1), bytes));
        }
        parts
    }

    fn named(&mut self, number: usize, place: &Place<'_>) -> Parts {
        let Some(named) = self.of.types.get(number) else { return unknown(place) };
        if self.within.contains(&number) {
            return unknown(place);
        }
        self.within.push(number);
        let fields = |fields: &'_ [DescribedField]| fields.len();
        let parts = match &named.body {
            DescribedBody::PlainEnum { repr, .. } => {
                self.item(self.of.plain_bytes(repr).unwrap_or(0))
            }
            DescribedBody::Plain { size, fields, .. } => {
                let fields = fields.iter().map(|field| (&*field.name, &field.ty));
                self.record(fields, place, Some(*size))
            }
            DescribedBody::Struct(all) if fields(all) == 0 => Parts::default(),
            DescribedBody::Struct(all) => {
                self.record(all.iter().map(|field| (&*field.name, &field.ty)), place, None)
            }
            DescribedBody::Enum(variants) => {
                let mut parts = self.item(4);
                let mut costliest = Parts::default();
                for variant in variants.iter().filter(|variant| !variant.fields.is_empty()) {
                    if self.left == 0 {
                        costliest = costliest.costlier(unknown(place));
                        break;
                    }
                    let place = place.part(&variant.name);
                    let fields = variant.fields.iter().map(|field| (&*field.name, &field.ty));
                    costliest = costliest.costlier(self.record(fields, &place, None));
                }
                parts.add(costliest);
                parts
            }
            // A later version of the library may add variants.
            _ => unknown(place),
        };
        self.within.pop();
        parts
    }
}

fn unknown(place: &Place<'_>) -> Parts {
    let moving = Cost::part(Part::Unknown(place.to_string()));
    Parts { moving, interpreting: Cost::default() }
}

fn has_block(cost: &Cost) -> bool {
    cost.parts.iter().any(|part| match part {
        Part::Block(..) => true,
        Part::Times(_, one) => has_block(one),
        Part::Unknown(_) => false,
    })
}
