//! Compares the interface that a client was compiled with and the interface that a server exports.
//!
//! A client compares the interfaces only if their identities differ. Each difference either follows or breaks
//! one of the rules of docs/EVOLUTION.md, which `rule.rs` lists. The comparison also finds the procedures
//! whose messages have the same bytes on both sides. Calls of these procedures need no conversion.
//!
//! Names of fields and variants are compared, too. Without the names, a comparison could not detect that two
//! fields of the same type changed places.

mod items;
mod place;

use core::fmt::{self, Display};
use std::collections::HashSet;

use self::items::Unlike;
use self::place::{Names, Place, Portion};
use super::brief::Brief;
use super::matching::{Index, Part, Step, steps, variant_of};
use super::text::InDescription;
use super::{
    Described, DescribedBody, DescribedField, DescribedNamed, DescribedParameter,
    DescribedPlainVariant, DescribedProcedure, DescribedType, DescribedVariant, Direction, Rule,
    Shape,
};

/// The maximum number of parts (fields, variants, types in types) that are compared. A description has at
/// most 150,000 parts. But each type of one description may be compared with each type of the other
/// description, and this may be necessary for each procedure.
const WORK_MAX: usize = 1 << 22;

/// The maximum number of differences that a comparison lists.
const FOUND_MAX: usize = 1000;

/// A difference between two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that the difference follows or breaks.
    pub rule: Rule,
    /// The place in the interface, such as "procedure `get`, parameter `key`". It is empty if the difference
    /// is in the name or the version of the interface.
    pub place: String,
    /// The named type or the interface of a callback that contains the difference, and the place in it. It is
    /// empty if the difference is in neither.
    pub inside: String,
    /// The difference, as a sentence for users.
    pub text: String,
}

impl Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        for place in [&self.place, &self.inside].into_iter().filter(|one| !one.is_empty()) {
            write!(f, "{before}{place}")?;
            before = ", ";
        }
        write!(f, "{}{}", if before.is_empty() { "" } else { ": " }, self.text)
    }
}

/// The server's procedure that corresponds to a procedure of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// The server's procedure with this number. Its messages equal those of the client's procedure.
    Equal(u32),
    /// The server's procedure with this number. Its messages differ, and the client converts them.
    Converted(u32),
    /// The server has no procedure that corresponds to the client's procedure.
    Lacking,
}

/// The result of a comparison of a client's interface with a server's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// For each of the client's procedures, the corresponding procedure of the server. The list is meaningful
    /// only if the client [fits](Self::fits).
    pub procedures: Vec<Counterpart>,
    /// The differences. At most 1000 of them are listed.
    pub differences: Vec<Difference>,
}

impl Comparison {
    /// Returns whether the client can use the server.
    pub fn fits(&self) -> bool {
        self.misfit().is_none()
    }

    /// Returns the first difference that breaks a rule.
    pub fn misfit(&self) -> Option<&Difference> {
        self.differences.iter().find(|one| !one.rule.fits())
    }
}

/// The names of the two sides in the texts of differences.
#[derive(Clone, Copy, Debug)]
pub struct Sides {
    /// The name of the client's side, such as "ours".
    pub ours: &'static str,
    /// The name of the server's side, such as "the server's".
    pub theirs: &'static str,
}

impl Sides {
    /// The names in the error of a client that cannot bind.
    pub const BY_CLIENT: Self = Self { ours: "ours", theirs: "the server's" };
}

/// Compares the interface of a client with that of a server.
pub fn compare(ours: &Described, theirs: &Described, sides: Sides) -> Comparison {
    let mut pair = Pair {
        ours,
        theirs,
        sides,
        clean: HashSet::new(),
        seen: HashSet::new(),
        open: Vec::new(),
        weights: [ours, theirs].map(|one| one.types.iter().map(weight).collect()),
        work: 0,
        converts: false,
        place: Place::default(),
        found: 0,
        has_misfit: false,
        differences: Vec::new(),
    };
    let procedures = pair.whole();
    Comparison { procedures, differences: pair.differences }
}

/// In which directions values of a type are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    /// Whether values are sent from the client to the server.
    call: bool,
    /// Whether values are sent from the server to the client.
    reply: bool,
    /// Whether the type is the error of a procedure.
    is_error: bool,
}

/// A pair of named types: the number of the client's type, the number of the server's type, and the
/// directions in which values are sent.
type Named = (usize, usize, Flow);

/// Both interfaces, and the state of their comparison.
struct Pair<'a> {
    ours: &'a Described,
    theirs: &'a Described,
    sides: Sides,
    /// Pairs of named types that are equal, including all types that they contain.
    clean: HashSet<Named>,
    /// The pairs of named types that were found in the current procedure.
    seen: HashSet<Named>,
    /// The pairs of named types whose parts are not compared yet.
    open: Vec<Named>,
    /// The number of parts of each named type. The first list is for the client's types, the second for the
    /// server's types.
    weights: [Vec<usize>; 2],
    /// The number of parts that were already compared.
    work: usize,
    /// Whether the client must convert the messages of the current procedure.
    converts: bool,
    place: Place<'a>,
    /// The number of differences that were found, including those that are not listed.
    found: usize,
    has_misfit: bool,
    differences: Vec<Difference>,
}

impl<'a> Pair<'a> {
    fn found(&mut self, rule: Rule, text: fmt::Arguments<'_>) {
        self.found += 1;
        let is_first_misfit = !rule.fits() && !self.has_misfit;
        self.has_misfit |= is_first_misfit;
        if self.differences.len() >= FOUND_MAX {
            if !is_first_misfit {
                return;
            }
            self.differences.pop();
        }
        let (place, inside) = (self.place.text(&self.ours.name), self.place.inside_text());
        self.differences.push(Difference { rule, place, inside, text: text.to_string() });
    }

    /// Records a difference. `ours` and `theirs` are the texts that differ.
    fn differ(&mut self, rule: Rule, ours: impl Display, theirs: impl Display) {
        let Sides { ours: one, theirs: other } = self.sides;
        let (ours, theirs) = (Brief(ours), Brief(theirs));
        self.found(rule, format_args!("{one} is `{ours}`, {other} is `{theirs}`"));
    }

    fn whole(&mut self) -> Vec<Counterpart> {
        let (ours, theirs) = (self.ours, self.theirs);
        if (&ours.name, ours.version) != (&theirs.name, theirs.version) {
            let [a, b] =
                [ours, theirs].map(|one| format!("`{}` version {}", Brief(&one.name), one.version));
            let Sides { ours, theirs } = self.sides;
            self.found(Rule::Interface, format_args!("{ours} is interface {a}, {theirs} is {b}"));
            return vec![Counterpart::Lacking; self.ours.procedures.len()];
        }
        let index = Index::new(&theirs.procedures);
        let mut used = HashSet::new();
        let mut procedures = Vec::with_capacity(ours.procedures.len());
        for procedure in &ours.procedures {
            self.place = Place::procedure(&procedure.name);
            let Some(number) = index.find(procedure) else {
                let other = self.sides.theirs;
                self.found(Rule::ProcedureRemoved, format_args!("{other} has none"));
                procedures.push(Counterpart::Lacking);
                continue;
            };
            used.insert(number);
            let their = &theirs.procedures[number];
            if procedure.name != their.name {
                self.differ(Rule::Renamed, &procedure.name, &their.name);
            }
            let before = self.found;
            self.converts = false;
            self.seen.clear();
            self.procedure(procedure, their);
            if !self.converts && self.found == before {
                self.clean.extend(self.seen.drain());
            }
            let number = number as u32;
            procedures.push(match self.converts {
                true => Counterpart::Converted(number),
                false => Counterpart::Equal(number),
            });
        }
        for (number, procedure) in theirs.procedures.iter().enumerate() {
            if !used.contains(&number) {
                self.place = Place::procedure(&procedure.name);
                let one = self.sides.ours;
                self.found(Rule::ProcedureAdded, format_args!("{one} has none"));
            }
        }
        if !procedures.is_empty() && used.is_empty() {
            self.place = Place::interface();
            let Sides { ours: one, theirs: other } = self.sides;
            let (names, others) = (Names::of(&ours.procedures), Names::of(&theirs.procedures));
            let text = format_args!("{one} has {names}; {other} has {others}");
            self.found(Rule::NoProcedure, text);
        }
        procedures
    }

    fn procedure(&mut self, ours: &'a DescribedProcedure, theirs: &'a DescribedProcedure) {
        match (ours.idempotent, theirs.idempotent) {
            (true, false) => {
                let Sides { ours, theirs } = self.sides;
                let text = format_args!("{ours} may run twice (`#[idempotent]`), {theirs} may not");
                self.found(Rule::MayNotRunTwice, text);
            }
            (false, true) => {
                let other = self.sides.theirs;
                self.found(Rule::MayRunTwice, format_args!("{other} may run twice"));
            }
            _ => {}
        }
        if ours.oneway != theirs.oneway {
            let Sides { ours: one, theirs: other } = self.sides;
            let (with, without) = if ours.oneway { (one, other) } else { (other, one) };
            let text = format_args!("{with} is a one-way call (`#[oneway]`), {without} is not");
            self.found(Rule::OneWay, text);
        }
        match steps(&ours.parameters, &theirs.parameters) {
            Ok(steps) => {
                for step in steps {
                    match step {
                        Step::Both(a, b) => {
                            let (a, b) = (&ours.parameters[a], &theirs.parameters[b]);
                            self.place.portion = Portion::Parameter(&a.name);
                            self.parameter(a, b);
                        }
                        Step::Ours(a) => {
                            let one = &ours.parameters[a];
                            self.place.portion = Portion::Parameter(&one.name);
                            let has_default = self.ours.parameter_default(one).is_some()
                                || one.direction == Direction::Out && one.growth.default.is_some();
                            self.one_sided(self.sides.theirs, "parameter", has_default);
                        }
                        Step::Theirs(b) => {
                            let one = &theirs.parameters[b];
                            self.place.portion = Portion::Parameter(&one.name);
                            let has_default = self.theirs.parameter_default(one).is_some();
                            self.one_sided(self.sides.ours, "parameter", has_default);
                        }
                    }
                }
            }
            Err((a, _)) => {
                self.place.portion = Portion::Parameter(&ours.parameters[a].name);
                let (ours, theirs) =
                    (InDescription(self.ours, ours), InDescription(self.theirs, theirs));
                self.differ(Rule::Order, ours, theirs);
            }
        }
        let reply = Flow { call: false, reply: true, is_error: false };
        self.place.portion = Portion::Result;
        self.ty(&ours.result, &theirs.result, false, reply);
        self.place.portion = Portion::Error;
        self.ty(&ours.error, &theirs.error, false, Flow { is_error: true, ..reply });
    }

    /// Records a field or a parameter that only one side has. `lacks` is the name of the side that does not
    /// have it.
    fn one_sided(&mut self, lacks: &str, what: &str, has_default: bool) {
        self.converts = true;
        match has_default {
            true => self.found(Rule::Default, format_args!("{lacks} has no such {what}")),
            false => self.found(
                Rule::NoDefault,
                format_args!("{lacks} has no such {what}, and it has no default"),
            ),
        }
    }

    fn parameter(&mut self, ours: &'a DescribedParameter, theirs: &'a DescribedParameter) {
        if ours.name != theirs.name {
            self.differ(Rule::Renamed, &ours.name, &theirs.name);
        }
        let texts = (InDescription(self.ours, ours), InDescription(self.theirs, theirs));
        if (ours.direction, ours.shape) != (theirs.direction, theirs.shape) {
            return self.differ(Rule::Passing, texts.0, texts.1);
        }
        let room = match (ours.direction, ours.max_len, theirs.max_len) {
            (_, a, b) if a == b => None,
            (Direction::Out, ..) | (_, _, None) => Some(Rule::MoreRoom),
            (_, None, Some(_)) => Some(Rule::LessRoom),
            (_, Some(ours), Some(theirs)) => {
                Some(if ours > theirs { Rule::LessRoom } else { Rule::MoreRoom })
            }
        };
        if let Some(rule) = room {
            self.differ(rule, texts.0, texts.1);
        }
        if ours.direction.is_live() {
            match items::compare((self.ours, &ours.ty), (self.theirs, &theirs.ty)) {
                Err(Unlike { within, texts: [one, other] })
                    if ours.direction == Direction::Callback =>
                {
                    self.place.enter_callback(within);
                    self.differ(Rule::Type, one, other);
                    self.place.leave_callback();
                }
                Err(_) => {
                    let texts =
                        (InDescription(self.ours, ours), InDescription(self.theirs, theirs));
                    self.differ(Rule::Type, texts.0, texts.1);
                }
                Ok(()) => {}
            }
            return;
        }
        let flow = Flow {
            call: ours.direction != Direction::Out,
            reply: matches!(ours.direction, Direction::Out | Direction::InOut),
            is_error: false,
        };
        if ours.shape == Shape::Text {
            return;
        }
        self.ty(&ours.ty, &theirs.ty, ours.growth.widens && theirs.growth.widens, flow);
    }

    /// Compares two types, including the named types that they contain.
    fn ty(&mut self, ours: &'a DescribedType, theirs: &'a DescribedType, widens: bool, flow: Flow) {
        self.types(ours, theirs, widens, flow);
        let (all_ours, all_theirs) = (self.ours, self.theirs);
        // This is a loop and not a recursion, because a peer chooses the length of a chain of types.
        while let Some((a, b, flow)) = self.open.pop() {
            let (Some(one), Some(other)) = (all_ours.types.get(a), all_theirs.types.get(b)) else {
                self.found(Rule::Description, format_args!("a type is described nowhere"));
                continue;
            };
            if self.work > WORK_MAX {
                continue;
            }
            self.work += self.weights[0][a] + self.weights[1][b];
            if self.work > WORK_MAX {
                let text = format_args!("the types are too intricate to be compared");
                self.found(Rule::Description, text);
                continue;
            }
            self.bodies(one, other, flow);
            self.place.leave_type();
        }
    }

    fn types(
        &mut self,
        ours: &'a DescribedType,
        theirs: &'a DescribedType,
        widens: bool,
        flow: Flow,
    ) {
        use DescribedType::{Array, Named, Option, Result, Sequence, Tuple};
        // The rule for unknown errors applies only to the error itself, not to values in the error.
        let is_error = flow.is_error;
        let flow = Flow { is_error: false, ..flow };
        match (ours, theirs) {
            (Array(a, n), Array(b, m)) if n == m => self.types(a, b, widens, flow),
            (Sequence(a), Sequence(b)) | (Option(a), Option(b)) => self.types(a, b, widens, flow),
            (Result(ok, err), Result(other_ok, other_err)) => {
                self.types(ok, other_ok, widens, flow);
                self.types(err, other_err, widens, flow);
            }
            (Tuple(ours), Tuple(theirs)) if ours.len() == theirs.len() => {
                ours.iter().zip(theirs).for_each(|(a, b)| self.types(a, b, widens, flow));
            }
            (Named(a), Named(b)) => {
                let pair = (*a, *b, Flow { is_error, ..flow });
                if self.clean.contains(&pair) || !self.seen.insert(pair) {
                    return;
                }
                self.open.push(pair);
            }
            _ if ours == theirs && !matches!(ours, Array(..) | Named(_) | Tuple(_)) => {}
            _ => {
                let rule = match widens_to(ours, theirs) {
                    true if widens => Rule::Widened,
                    true => Rule::Width,
                    false => Rule::Type,
                };
                self.converts = true;
                let (ours, theirs) =
                    (InDescription(self.ours, ours), InDescription(self.theirs, theirs));
                self.differ(rule, ours, theirs);
            }
        }
    }

    fn bodies(&mut self, ours: &'a DescribedNamed, theirs: &'a DescribedNamed, flow: Flow) {
        use DescribedBody::{Enum, Plain, PlainEnum, Struct};
        self.place.enter_type(&ours.name);
        let (ours, theirs) = (&ours.body, &theirs.body);
        match (ours, theirs) {
            (Plain { align, fields, .. }, Plain { align: other, fields: others, .. }) => {
                // If the alignments differ, the values are at different offsets of a message, so they must be
                // converted.
                self.converts |= align != other;
                self.fields(fields, others, flow);
            }
            (PlainEnum { repr, variants }, PlainEnum { repr: other, variants: others })
                if repr == other =>
            {
                self.plain_variants(variants, others, flow);
            }
            (Struct(fields), Struct(others)) => self.fields(fields, others, flow),
            (Enum(variants), Enum(others)) => {
                self.variants(variants, others, flow);
            }
            // A pair with the interface of a callback also comes here, because such an interface is not the
            // type of values.
            _ => {
                let (ours, theirs) =
                    (InDescription(self.ours, ours), InDescription(self.theirs, theirs));
                self.differ(Rule::Type, ours, theirs);
            }
        }
    }

    fn fields(&mut self, ours: &'a [DescribedField], theirs: &'a [DescribedField], flow: Flow) {
        let flow = Flow { is_error: false, ..flow };
        let steps = match steps(ours, theirs) {
            Ok(steps) => steps,
            Err((a, _)) => {
                self.place.field = Some(&ours[a].name);
                return self.differ(
                    Rule::Order,
                    Names::of(ours).plain(),
                    Names::of(theirs).plain(),
                );
            }
        };
        for step in steps {
            let (Step::Ours(place) | Step::Theirs(place) | Step::Both(place, _)) = step;
            let name = if matches!(step, Step::Theirs(_)) { &theirs[place] } else { &ours[place] };
            self.place.field = Some(&name.name);
            match step {
                Step::Both(a, b) => {
                    let (a, b) = (&ours[a], &theirs[b]);
                    if a.name != b.name {
                        self.differ(Rule::Renamed, &a.name, &b.name);
                    }
                    self.types(&a.ty, &b.ty, a.growth.widens && b.growth.widens, flow);
                }
                Step::Ours(a) => {
                    let has_default = self.ours.default_of(&ours[a].ty, &ours[a].growth).is_some();
                    self.one_sided(self.sides.theirs, "field", has_default);
                }
                Step::Theirs(b) => {
                    let one = &theirs[b];
                    let has_default = self.theirs.default_of(&one.ty, &one.growth).is_some();
                    self.one_sided(self.sides.ours, "field", has_default);
                }
            }
        }
        self.place.field = None;
    }

    fn variants(
        &mut self,
        ours: &'a [DescribedVariant],
        theirs: &'a [DescribedVariant],
        flow: Flow,
    ) {
        if flow.call {
            self.sent(ours, theirs, self.sides.theirs, false);
        }
        if flow.reply {
            self.sent(theirs, ours, self.sides.ours, flow.is_error);
        }
        let index = Index::new(theirs);
        let has_other = |all: &[DescribedVariant]| all.iter().any(|one| one.is_other);
        let (ours_other, theirs_other) = (has_other(ours), has_other(theirs));
        // If the received variant is the one for unknown variants, it contains at most the name of the sent
        // variant. None of the sent variant's fields are received, so the fields need not fit.
        let is_whole = |sent: &DescribedVariant, received: &DescribedVariant, other: bool| {
            !(received.is_other || sent.is_other && other)
        };
        for variant in ours {
            let Some(their) = index.find(variant).map(|number| &theirs[number]) else { continue };
            self.place.enter_variant(&variant.name);
            if variant.name != their.name {
                self.differ(Rule::Renamed, &variant.name, &their.name);
            }
            if flow.call && is_whole(variant, their, theirs_other)
                || flow.reply && is_whole(their, variant, ours_other)
            {
                self.fields(&variant.fields, &their.fields, flow);
            }
        }
    }

    fn plain_variants(
        &mut self,
        ours: &'a [DescribedPlainVariant],
        theirs: &'a [DescribedPlainVariant],
        flow: Flow,
    ) {
        let index = Index::new(theirs);
        for variant in ours {
            let Some(their) = index.find(variant).map(|number| &theirs[number]) else { continue };
            if variant.name != their.name {
                self.differ(Rule::Renamed, &variant.name, &their.name);
            }
            if variant.value != their.value {
                let text = |one: &DescribedPlainVariant| format!("{}={}", one.name, one.value);
                let (ours, theirs) = (text(variant), text(their));
                self.differ(Rule::Type, &ours, &theirs);
            }
        }
        if flow.call {
            self.sent(ours, theirs, self.sides.theirs, false);
        }
        if flow.reply {
            self.sent(theirs, ours, self.sides.ours, false);
        }
    }

    /// Compares the variants that the sender may send with the variants that the receiver knows.
    fn sent<V: Variant>(&mut self, sent: &[V], known: &[V], receiver: &str, is_error: bool) {
        let index = Index::new(known);
        let other = known.iter().position(V::is_other);
        let mut unknown = Vec::new();
        for (number, variant) in sent.iter().enumerate() {
            let found = variant_of(variant, variant.is_other(), &index, other);
            self.converts |= match found {
                Some(found) => !variant.is_same(number, &known[found], found),
                None => true,
            };
            if index.find(variant).is_none() && !(variant.is_other() && other.is_some()) {
                unknown.push(variant);
            }
        }
        if !unknown.is_empty() {
            let rule = match other {
                Some(_) => Rule::OpenEnum,
                None if is_error => Rule::UnknownError,
                None => Rule::ClosedEnum,
            };
            self.found(rule, format_args!("{receiver} has no {}", Names::of(unknown)));
        } else if known.len() > sent.len() {
            let index = Index::new(sent);
            let more = known.iter().filter(|one| index.find(*one).is_none());
            let more = Names::of(more);
            if !more.is_empty() {
                self.found(Rule::VariantNotSent, format_args!("{receiver} also has {more}"));
            }
        }
    }
}

/// A variant of an enum, which may be plain or structured.
trait Variant: Part {
    fn is_other(&self) -> bool;
    /// Returns whether this variant and `other` have equal bytes, apart from fields. `number` is the index
    /// of this variant in its enum, and `other_number` is the index of `other` in its enum.
    fn is_same(&self, number: usize, other: &Self, other_number: usize) -> bool;
}

impl Variant for DescribedVariant {
    fn is_other(&self) -> bool {
        self.is_other
    }

    fn is_same(&self, number: usize, other: &Self, other_number: usize) -> bool {
        let has_name = |one: &Self| one.is_other && !one.fields.is_empty();
        number == other_number
            && self.is_other == other.is_other
            && has_name(self) == has_name(other)
    }
}

impl Variant for DescribedPlainVariant {
    fn is_other(&self) -> bool {
        self.is_other
    }

    fn is_same(&self, _: usize, other: &Self, _: usize) -> bool {
        self.value == other.value
    }
}

/// Returns the number of parts that a named type has. A long name counts as several parts.
fn weight(named: &DescribedNamed) -> usize {
    fn of_type(ty: &DescribedType) -> usize {
        1 + match ty {
            DescribedType::Array(one, _)
            | DescribedType::Sequence(one)
            | DescribedType::Option(one) => of_type(one),
            DescribedType::Result(ok, error) => of_type(ok) + of_type(error),
            DescribedType::Tuple(parts) => parts.iter().map(of_type).sum(),
            _ => 0,
        }
    }
    fn of_names(part: &impl Part) -> usize {
        let (name, was) = part.names();
        1 + name.len() / 32 + was.iter().map(|was| 1 + was.len() / 32).sum::<usize>()
    }
    fn of_fields(fields: &[DescribedField]) -> usize {
        fields.iter().map(|one| of_names(one) + of_type(&one.ty)).sum()
    }
    1 + match &named.body {
        DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => of_fields(fields),
        DescribedBody::PlainEnum { variants, .. } => variants.iter().map(of_names).sum(),
        DescribedBody::Enum(variants) => {
            variants.iter().map(|one| of_names(one) + of_fields(&one.fields)).sum()
        }
        // The interfaces of callbacks are not compared as the types of values are.
        DescribedBody::Interface { .. } => 0,
    }
}

/// Returns whether both types are integers of different widths that are both signed or both unsigned.
fn widens_to(ours: &DescribedType, theirs: &DescribedType) -> bool {
    ours != theirs && ours.is_integer() && ours.signs() == theirs.signs()
}

#[cfg(test)]
mod tests;
