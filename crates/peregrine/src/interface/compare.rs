//! Compares the interface that a client was compiled with and the interface that a server exports.
//!
//! If the identities are equal, nothing is compared. Otherwise each difference follows one of the rules of
//! docs/EVOLUTION.md, or breaks one. `rule.rs` lists all rules. The comparison also finds which procedures
//! have the same bytes on both sides: their calls need no conversion.
//!
//! Names of fields and variants are compared, because two fields that were exchanged may have the same
//! bytes.

use core::fmt;
use std::collections::HashSet;

use super::matching::{Index, Part, Step, steps, variant_of};
use super::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedPlainVariant,
    DescribedProcedure, DescribedType, DescribedVariant, Direction, Rule, Shape,
};

/// The largest number of pairs of named types that are compared. Interfaces that people write have fewer.
const PAIRS_MAX: usize = 1 << 18;

/// The largest number of differences that are listed. If none of them breaks a rule, the first later
/// difference that breaks a rule is listed, too.
const FOUND_MAX: usize = 1000;

/// A difference between two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that the difference follows or breaks.
    pub rule: Rule,
    /// The place in the interface, such as "procedure `get`, parameter `key`". Empty if the difference
    /// concerns the whole interface.
    pub place: String,
    /// The named type that contains the difference, and the place in it. Empty if no named type contains it.
    pub inside: String,
    /// The difference, as a sentence for people.
    pub text: String,
}

impl fmt::Display for Difference {
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
    /// The procedure with this number has the same messages.
    Equal(u32),
    /// The procedure with this number has other messages, which the client converts.
    Converted(u32),
    /// The server has no such procedure.
    Lacking,
}

/// The result of comparing a client's interface with a server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The counterpart of each procedure of the client, in the client's order. It is meaningful only if the
    /// client [fits](Self::fits).
    pub procedures: Vec<Counterpart>,
    /// The differences, at most 1001. If any difference breaks a rule, the list contains at least one such
    /// difference.
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
    /// The names for the error of a client that cannot bind.
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
        pairs: 0,
        converts: false,
        breaks: false,
        place: String::new(),
        inside: String::new(),
        differences: Vec::new(),
    };
    let procedures = pair.whole();
    Comparison { procedures, differences: pair.differences }
}

/// The directions in which values of a type are sent, and whether the type is an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    /// From the client to the server.
    call: bool,
    /// From the server to the client.
    reply: bool,
    /// The type is the error of a procedure.
    is_error: bool,
}

/// The numbers of a named type of the client and one of the server, and the directions in which their values
/// are sent.
type Named = (usize, usize, Flow);

/// Both interfaces, and the results of comparing their types.
struct Pair<'a> {
    ours: &'a Described,
    theirs: &'a Described,
    sides: Sides,
    /// Pairs of named types that are equal, and whose parts are all equal, too.
    clean: HashSet<Named>,
    /// The pairs that the current procedure contains.
    seen: HashSet<Named>,
    /// The pairs whose parts were not compared yet.
    open: Vec<Named>,
    /// The number of pairs that were compared.
    pairs: usize,
    /// Whether the messages of the current procedure differ.
    converts: bool,
    /// Whether a difference breaks a rule.
    breaks: bool,
    place: String,
    inside: String,
    differences: Vec<Difference>,
}

impl<'a> Pair<'a> {
    fn found(&mut self, rule: Rule, text: String) {
        let is_first = !rule.fits() && !core::mem::replace(&mut self.breaks, true);
        if self.differences.len() < FOUND_MAX || is_first {
            let (place, inside) = (self.place.clone(), self.inside.clone());
            self.differences.push(Difference { rule, place, inside, text });
        }
    }

    /// Returns whether the comparison can stop, because enough differences were found. A peer chooses how
    /// many differences its interface has.
    fn is_full(&self) -> bool {
        self.breaks && self.differences.len() >= FOUND_MAX
    }

    /// Notes a difference between two texts.
    fn differ(&mut self, rule: Rule, ours: &str, theirs: &str) {
        let Sides { ours: one, theirs: other } = self.sides;
        self.found(rule, format!("{one} is `{ours}`, {other} is `{theirs}`"));
    }

    fn whole(&mut self) -> Vec<Counterpart> {
        let (ours, theirs) = (self.ours, self.theirs);
        if (&ours.name, ours.version) != (&theirs.name, theirs.version) {
            let [a, b] =
                [ours, theirs].map(|one| format!("`{}` version {}", one.name, one.version));
            let Sides { ours, theirs } = self.sides;
            self.found(Rule::Interface, format!("{ours} is interface {a}, {theirs} is {b}"));
            return vec![Counterpart::Lacking; self.ours.procedures.len()];
        }
        let index = Index::new(&theirs.procedures);
        let mut used = HashSet::new();
        let mut procedures = Vec::with_capacity(ours.procedures.len());
        for procedure in &ours.procedures {
            if self.is_full() {
                procedures.push(Counterpart::Lacking);
                continue;
            }
            self.place = format!("interface `{}`, procedure `{}`", ours.name, procedure.name);
            let Some(number) = index.find(procedure) else {
                self.found(Rule::ProcedureRemoved, format!("{} has none", self.sides.theirs));
                procedures.push(Counterpart::Lacking);
                continue;
            };
            used.insert(number);
            let their = &theirs.procedures[number];
            if procedure.name != their.name {
                self.differ(Rule::Renamed, &procedure.name, &their.name);
            }
            let before = self.differences.len();
            self.converts = false;
            self.seen.clear();
            self.procedure(procedure, their);
            if !self.converts && self.differences.len() == before {
                self.clean.extend(self.seen.drain());
            }
            let number = number as u32;
            procedures.push(match self.converts {
                true => Counterpart::Converted(number),
                false => Counterpart::Equal(number),
            });
        }
        for (number, procedure) in theirs.procedures.iter().enumerate() {
            if !used.contains(&number) && !self.is_full() {
                self.place = format!("interface `{}`, procedure `{}`", ours.name, procedure.name);
                self.found(Rule::ProcedureAdded, format!("{} has none", self.sides.ours));
            }
        }
        if !procedures.is_empty() && used.is_empty() {
            self.place = format!("interface `{}`", ours.name);
            let names = |whole: &Described| {
                let names: Vec<_> =
                    whole.procedures.iter().take(20).map(|one| format!("`{}`", one.name)).collect();
                names.join(", ")
            };
            let Sides { ours: one, theirs: other } = self.sides;
            let text = format!("{one} has {}; {other} has {}", names(ours), names(theirs));
            self.found(Rule::NoProcedure, text);
        }
        procedures
    }

    fn procedure(&mut self, ours: &'a DescribedProcedure, theirs: &'a DescribedProcedure) {
        let place = self.place.clone();
        match (ours.idempotent, theirs.idempotent) {
            (true, false) => {
                let Sides { ours, theirs } = self.sides;
                let text = format!("{ours} may run twice (`#[idempotent]`), {theirs} may not");
                self.found(Rule::MayNotRunTwice, text);
            }
            (false, true) => {
                self.found(Rule::MayRunTwice, format!("{} may run twice", self.sides.theirs));
            }
            _ => {}
        }
        match steps(&ours.parameters, &theirs.parameters) {
            Ok(steps) => {
                for step in steps {
                    match step {
                        Step::Both(a, b) => {
                            let (a, b) = (&ours.parameters[a], &theirs.parameters[b]);
                            self.place = format!("{place}, parameter `{}`", a.name);
                            self.parameter(a, b);
                        }
                        Step::Ours(a) => {
                            let one = &ours.parameters[a];
                            self.place = format!("{place}, parameter `{}`", one.name);
                            let has_default = self.ours.parameter_default(one).is_some()
                                || one.direction == Direction::Out && one.growth.default.is_some();
                            self.one_sided(self.sides.theirs, "parameter", has_default);
                        }
                        Step::Theirs(b) => {
                            let one = &theirs.parameters[b];
                            self.place = format!("{place}, parameter `{}`", one.name);
                            let has_default = self.theirs.parameter_default(one).is_some();
                            self.one_sided(self.sides.ours, "parameter", has_default);
                        }
                    }
                }
            }
            Err((a, _)) => {
                self.place = format!("{place}, parameter `{}`", ours.parameters[a].name);
                let (ours, theirs) =
                    (self.ours.procedure_text(ours), self.theirs.procedure_text(theirs));
                self.differ(Rule::Order, &ours, &theirs);
            }
        }
        let reply = Flow { call: false, reply: true, is_error: false };
        self.place = format!("{place}, result");
        self.ty(&ours.result, &theirs.result, false, reply);
        self.place = format!("{place}, error");
        self.ty(&ours.error, &theirs.error, false, Flow { is_error: true, ..reply });
        self.place = place;
    }

    /// Notes a field or parameter that only one side has. `lacks` names the other side.
    fn one_sided(&mut self, lacks: &str, what: &str, has_default: bool) {
        self.converts = true;
        match has_default {
            true => self.found(Rule::Default, format!("{lacks} has no such {what}")),
            false => self.found(
                Rule::NoDefault,
                format!("{lacks} has no such {what}, and it has no default"),
            ),
        }
    }

    fn parameter(&mut self, ours: &'a DescribedParameter, theirs: &'a DescribedParameter) {
        if ours.name != theirs.name {
            self.differ(Rule::Renamed, &ours.name, &theirs.name);
        }
        let texts = (self.ours.parameter_text(ours), self.theirs.parameter_text(theirs));
        if (ours.direction, ours.shape) != (theirs.direction, theirs.shape) {
            return self.differ(Rule::Passing, &texts.0, &texts.1);
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
            self.differ(rule, &texts.0, &texts.1);
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
    fn ty(&mut self, ours: &DescribedType, theirs: &DescribedType, widens: bool, flow: Flow) {
        self.types(ours, theirs, widens, flow);
        let (all_ours, all_theirs) = (self.ours, self.theirs);
        // A loop instead of recursion, because a peer chooses how long a chain of types is.
        while let Some((a, b, flow)) = self.open.pop() {
            if self.is_full() {
                self.open.clear();
                return;
            }
            let (Some(one), Some(other)) = (all_ours.types.get(a), all_theirs.types.get(b)) else {
                self.found(Rule::Description, "a type is described nowhere".into());
                continue;
            };
            self.bodies(&one.name, &one.body, &other.body, flow);
            self.inside.clear();
        }
    }

    fn types(&mut self, ours: &DescribedType, theirs: &DescribedType, widens: bool, flow: Flow) {
        use DescribedType::{Array, Named, Option, Result, Sequence, Tuple};
        // Only variants of the error type itself may be unknown, not those of the types that it contains.
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
                self.pairs += 1;
                if self.pairs == PAIRS_MAX {
                    self.found(
                        Rule::Description,
                        "the types are too intricate to be compared".into(),
                    );
                }
                if self.pairs < PAIRS_MAX {
                    self.open.push(pair);
                }
            }
            _ if ours == theirs && !matches!(ours, Array(..) | Named(_) | Tuple(_)) => {}
            _ => {
                let rule = match widens_to(ours, theirs) {
                    true if widens => Rule::Widened,
                    true => Rule::Width,
                    false => Rule::Type,
                };
                self.converts = true;
                let (ours, theirs) = (self.ours.type_text(ours), self.theirs.type_text(theirs));
                self.differ(rule, &ours, &theirs);
            }
        }
    }

    fn bodies(
        &mut self,
        name: &str,
        ours: &'a DescribedBody,
        theirs: &'a DescribedBody,
        flow: Flow,
    ) {
        use DescribedBody::{Enum, Plain, PlainEnum, Struct};
        self.inside = format!("in type `{name}`");
        match (ours, theirs) {
            (Plain { align, fields, .. }, Plain { align: other, fields: others, .. }) => {
                // Values with another alignment are at other places of a message.
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
                self.variants(name, variants, others, flow);
            }
            _ => {
                let (ours, theirs) = (self.ours.body_text(ours), self.theirs.body_text(theirs));
                self.differ(Rule::Type, &ours, &theirs);
            }
        }
    }

    fn fields(&mut self, ours: &'a [DescribedField], theirs: &'a [DescribedField], flow: Flow) {
        let inside = self.inside.clone();
        let flow = Flow { is_error: false, ..flow };
        let steps = match steps(ours, theirs) {
            Ok(steps) => steps,
            Err((a, _)) => {
                let names = |fields: &[DescribedField]| {
                    let names: Vec<_> = fields.iter().map(|one| &*one.name).take(20).collect();
                    names.join(", ")
                };
                self.inside = format!("{inside}, field `{}`", ours[a].name);
                return self.differ(Rule::Order, &names(ours), &names(theirs));
            }
        };
        for step in steps {
            if self.is_full() {
                break;
            }
            let (Step::Ours(place) | Step::Theirs(place) | Step::Both(place, _)) = step;
            let name = if matches!(step, Step::Theirs(_)) { &theirs[place] } else { &ours[place] };
            self.inside = format!("{inside}, field `{}`", name.name);
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
        self.inside = inside;
    }

    fn variants(
        &mut self,
        name: &str,
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
        for variant in ours {
            if let Some(number) = index.find(variant) {
                self.inside = format!("in type `{name}`, variant `{}`", variant.name);
                if variant.name != theirs[number].name {
                    self.differ(Rule::Renamed, &variant.name, &theirs[number].name);
                }
                self.fields(&variant.fields, &theirs[number].fields, flow);
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

    /// Compares the variants of a sender with those of the receiver.
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
                unknown.push(format!("`{}`", variant.names().0));
            }
        }
        if !unknown.is_empty() {
            let rule = match other {
                Some(_) => Rule::OpenEnum,
                None if is_error => Rule::UnknownError,
                None => Rule::ClosedEnum,
            };
            self.found(rule, format!("{receiver} has no {}", unknown.join(", ")));
        } else if known.len() > sent.len() {
            let index = Index::new(sent);
            let more = known.iter().filter(|one| index.find(*one).is_none());
            let more: Vec<_> = more.map(|one| format!("`{}`", one.names().0)).collect();
            if !more.is_empty() {
                self.found(
                    Rule::VariantNotSent,
                    format!("{receiver} also has {}", more.join(", ")),
                );
            }
        }
    }
}

/// A variant of an enum or of a plain enum.
trait Variant: Part {
    fn is_other(&self) -> bool;
    /// Returns whether this variant and `other` have the same bytes in a message. `number` and `other_number`
    /// are their positions in their enums.
    fn is_same(&self, number: usize, other: &Self, other_number: usize) -> bool;
}

impl Variant for DescribedVariant {
    fn is_other(&self) -> bool {
        self.is_other
    }

    fn is_same(&self, number: usize, other: &Self, other_number: usize) -> bool {
        number == other_number && self.is_other == other.is_other
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

/// Returns whether both types are integers that differ only in their widths.
fn widens_to(ours: &DescribedType, theirs: &DescribedType) -> bool {
    ours != theirs && ours.is_integer() && ours.signs() == theirs.signs()
}

#[cfg(test)]
mod tests;
