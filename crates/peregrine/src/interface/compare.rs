//! Compares the interface that a client was compiled with and the interface that a server exports.
//!
//! If the identities are equal, nothing is compared. Otherwise each difference follows one of the rules of
//! docs/EVOLUTION.md, or breaks one. `rule.rs` has all of them. The comparison also finds which procedures
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

/// The largest number of differences that are listed. If none of them breaks a rule, the first one that does
/// is listed, too.
const FOUND_MAX: usize = 1000;

/// A difference between two interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule that the difference follows or breaks.
    pub rule: Rule,
    /// The place in the interface, such as "procedure `get`, parameter `key`". Empty for the whole.
    pub place: String,
    /// The named type in which the difference is, and the place in it. Empty if it is in none.
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

/// The server's procedure for one of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counterpart {
    /// The procedure with this number has the same messages.
    Equal(u32),
    /// The procedure with this number has other messages, which the client converts.
    Converted(u32),
    /// There is none.
    Lacking,
}

/// The result of comparing a client's interface with a server's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// For each of the client's procedures, that of the server. It is meaningful if the client
    /// [fits](Self::fits).
    pub procedures: Vec<Counterpart>,
    /// The differences, at most 1001. If any difference breaks a rule, at least one such is among them.
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
    /// The client's, such as "ours".
    pub ours: &'static str,
    /// The server's, such as "the server's".
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

/// Which way values of a type are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    /// From the client to the server.
    call: bool,
    /// From the server to the client.
    reply: bool,
    /// The type is the error of a procedure.
    is_error: bool,
}

/// Two named types, and which way their values are sent.
type Named = (usize, usize, Flow);

/// Both interfaces, and the results of comparing their types.
struct Pair<'a> {
    ours: &'a Described,
    theirs: &'a Described,
    sides: Sides,
    /// Pairs of named types that are equal, with everything in them.
    clean: HashSet<Named>,
    /// The pairs that this procedure contains.
    seen: HashSet<Named>,
    /// The pairs whose parts were not compared yet.
    open: Vec<Named>,
    /// The number of pairs that were compared.
    pairs: usize,
    /// Whether the messages of this procedure differ.
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

    /// Returns whether further differences are of no use. A peer chooses how many there are.
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

    /// Notes a field or parameter that only one side has. `lacks` is the other one.
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
        // Only the error itself may be unknown, not a value in it.
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

/// A variant of either kind of enumeration.
trait Variant: Part {
    fn is_other(&self) -> bool;
    /// Returns whether its message has the same bytes as another one, by the numbers of both.
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

/// Returns whether both are integers with the same sign and different widths.
fn widens_to(ours: &DescribedType, theirs: &DescribedType) -> bool {
    ours != theirs && ours.is_integer() && ours.signs() == theirs.signs()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(lines: &str) -> Described {
        let text = format!("interface I version 1\n{lines}");
        Described::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Returns the server's numbers if they differ, or the first difference that breaks a rule.
    fn compare(ours: &str, theirs: &str) -> Result<Option<Vec<u32>>, String> {
        let all = super::compare(&parse(ours), &parse(theirs), Sides::BY_CLIENT);
        if let Some(misfit) = all.misfit() {
            return Err(misfit.to_string());
        }
        let equal = |one: &Counterpart| match one {
            Counterpart::Equal(number) => *number,
            other => panic!("{other:?} of {ours}{theirs}"),
        };
        let numbers: Vec<u32> = all.procedures.iter().map(equal).collect();
        let same = numbers.iter().zip(0..).all(|(theirs, ours)| *theirs == ours);
        Ok((!same).then_some(numbers))
    }

    /// Returns the rules of all differences, and whether the first procedure is converted.
    fn rules(ours: &str, theirs: &str) -> (Vec<Rule>, bool) {
        let all = super::compare(&parse(ours), &parse(theirs), Sides::BY_CLIENT);
        let rules = all.differences.iter().map(|one| one.rule).collect();
        (rules, matches!(all.procedures[0], Counterpart::Converted(_)))
    }

    #[test]
    fn a_client_that_needs_a_subset_fits() {
        let f = "f(in a: u32) -> unit or text\n";
        let g = "g() -> u8 or text\n";
        assert_eq!(compare(f, f), Ok(None));
        assert_eq!(compare(f, &format!("{f}{g}")), Ok(None));
        assert_eq!(compare(f, &format!("{g}{f}")), Ok(Some(vec![1])));
        assert_eq!(compare(&format!("{f}{g}"), &format!("{g}{f}")), Ok(Some(vec![1, 0])));
        assert_eq!(compare("", g), Ok(None));
    }

    #[test]
    fn what_may_be_added_fits_and_never_the_other_way_round() {
        for (known, served) in [
            ("f(in a: [u8] max 5) -> unit or text\n", "f(in a: [u8] max 6) -> unit or text\n"),
            ("f(in a: str max 5) -> unit or text\n", "f(in a: str) -> unit or text\n"),
            ("f(inout a: [u8] max 5) -> unit or text\n", "f(inout a: [u8]) -> unit or text\n"),
            ("f() -> unit or text\n", "idempotent f() -> unit or text\n"),
            ("f() -> unit or text\n", "f() -> unit or text\ng() -> unit or text\n"),
        ] {
            assert_eq!(compare(known, served), Ok(None), "{known}{served}");
            if !served.contains("g()") {
                let error = compare(served, known).unwrap_err();
                assert!(error.contains("interface `I`, procedure `"), "{error}");
            }
        }
        let (small, large) =
            ("f(out a: [u8] max 5) -> unit or text\n", "f(out a: [u8] max 6) -> unit or text\n");
        assert_eq!((compare(small, large), compare(large, small)), (Ok(None), Ok(None)));
    }

    #[test]
    fn differences_are_pointed_at() {
        let types = |body: &str| format!("f(in list: L#0) -> unit or text\nL#0 = {body}\n");
        for (ours, theirs, said) in [
            (
                "f(in a: u32) -> unit or text\n".to_owned(),
                "f(in a: u64) -> unit or text\n".to_owned(),
                "interface `I`, procedure `f`, parameter `a`: ours is `u32`, the server's is `u64`",
            ),
            (
                "f(in a: u32) -> unit or text\n".into(),
                "f(in b: u32) -> unit or text\n".into(),
                "parameter `a`: the server's has no such parameter, and it has no default",
            ),
            (
                "f(in a: u32) -> unit or text\n".into(),
                "f(inout a: u32) -> unit or text\n".into(),
                "ours is `in a: u32`, the server's is `inout a: u32`",
            ),
            (
                "f() -> option<u8> or text\n".into(),
                "f() -> option<i8> or text\n".into(),
                "procedure `f`, result: ours is `u8`, the server's is `i8`",
            ),
            (
                "f() -> unit or text\n".into(),
                "f() -> unit or unit\n".into(),
                "procedure `f`, error: ours is `text`, the server's is `unit`",
            ),
            (
                "f() -> unit or text\n".into(),
                "g() -> unit or text\n".into(),
                "interface `I`: ours has `f`; the server's has `g`",
            ),
            (
                types("struct {value: u32, next: option<L#0>}"),
                types("struct {value: u64, next: option<L#0>}"),
                "parameter `list`, in type `L`, field `value`: ours is `u32`, the server's is `u64`",
            ),
            (
                types("struct {x: u32, y: u32}"),
                types("struct {y: u32, x: u32}"),
                "in type `L`, field `y`: ours is `x, y`, the server's is `y, x`",
            ),
            (
                types("struct {x: u32}"),
                types("struct {x: u32, y: u32}"),
                "in type `L`, field `y`: ours has no such field, and it has no default",
            ),
            (
                types("enum A {} B {x: u8}"),
                types("enum A {} B {x: i8}"),
                "in type `L`, variant `B`, field `x`: ours is `u8`, the server's is `i8`",
            ),
            (types("enum A {} B {}"), types("enum A {}"), "in type `L`: the server's has no `B`"),
            (types("plain enum u8 A=1"), types("plain enum u8 A=2"), "A=1`, the server's is `A=2`"),
            (types("plain 4 align 4 {x: u32}"), types("struct {x: u32}"), "ours is `plain 4"),
        ] {
            let error = compare(&ours, &theirs).unwrap_err();
            assert!(error.contains(said), "{error}\nrather than\n{said}");
        }
        let [a, b] = ["interface A version 0\n", "interface A version 1\n"]
            .map(|text| Described::parse(text).unwrap());
        let error = super::compare(&a, &b, Sides::BY_CLIENT).misfit().unwrap().to_string();
        assert_eq!(error, "ours is interface `A` version 0, the server's is `A` version 1");
    }

    #[test]
    fn rules_of_growth() {
        use Rule::*;
        let types = |body: &str| format!("f(in a: L#0) -> unit or text\nL#0 = {body}\n");
        let result = |body: &str| format!("f() -> L#0 or text\nL#0 = {body}\n");
        let error = |body: &str| format!("f() -> unit or L#0\nL#0 = {body}\n");
        let f = |line: &str| format!("f({line}) -> unit or text\n");
        for (ours, theirs, expected, converts) in [
            (f("in a: u8"), f("in a: u8, in b: option<u8>"), vec![Default], true),
            (f("in a: u8"), f("in a: u8, in b: u8 = x07"), vec![Default], true),
            (f("in a: u8"), f("in a: u8, in b: u8"), vec![NoDefault], true),
            (f("in a: u8"), f("in b: u8 was a"), vec![Renamed], false),
            (f("in a: u8 widens"), f("in a: u16 widens"), vec![Widened], true),
            (f("in a: u8 widens"), f("in a: u16"), vec![Width], true),
            (f("in a: u8 widens"), f("in a: i16 widens"), vec![Type], true),
            (f("in a: [u8]"), f("in a: [u8], out b: [u8] = x00000000"), vec![Default], true),
            (
                types("struct {x: u8}"),
                types("struct {y: text = x00000000, x: u8}"),
                vec![Default],
                true,
            ),
            (types("struct {x: u8}"), types("struct {y: u8 was x}"), vec![Renamed], false),
            (
                types("plain 1 align 1 {x: u8}"),
                types("plain 2 align 1 {x: u8, y: u8 = x01}"),
                vec![Default],
                true,
            ),
            // Arguments flow to the server, results to the client.
            (types("enum A {}"), types("enum A {} B {}"), vec![VariantNotSent], false),
            (types("enum A {} B {}"), types("enum A {}"), vec![ClosedEnum], true),
            (types("enum A {} B {}"), types("enum A {} other U {0: text}"), vec![OpenEnum], true),
            (result("enum A {}"), result("enum A {} B {}"), vec![ClosedEnum], true),
            (result("enum A {} B {}"), result("enum A {}"), vec![VariantNotSent], false),
            (result("enum A {} other U {}"), result("enum A {} B {}"), vec![OpenEnum], true),
            (error("enum A {}"), error("enum A {} B {}"), vec![UnknownError], true),
            (types("enum A {} B {}"), types("enum B {} A {}"), vec![], true),
            (types("enum A {} B {}"), types("enum A {} C was B {}"), vec![Renamed], false),
            (result("plain enum u8 A=1"), result("plain enum u8 A=1 B=2"), vec![ClosedEnum], true),
            (
                result("plain enum u8 A=1 other U=255"),
                result("plain enum u8 A=1 B=2"),
                vec![OpenEnum],
                true,
            ),
        ] {
            assert_eq!(rules(&ours, &theirs), (expected, converts), "{ours}{theirs}");
        }
    }

    /// A pair of types that an earlier procedure converts is converted in later ones, too.
    #[test]
    fn procedures_with_common_types_are_all_converted() {
        let text = |body: &str| {
            format!(
                "f() -> L#0 or text\ng() -> option<L#0> or text\nh() -> u8 or text\nL#0 = {body}\n"
            )
        };
        let (ours, theirs) =
            (parse(&text("struct {x: u8}")), parse(&text("struct {x: u8, y: option<u8>}")));
        let all = super::compare(&ours, &theirs, Sides::BY_CLIENT);
        let (converted, equal) = (Counterpart::Converted, Counterpart::Equal);
        assert_eq!(all.procedures, [converted(0), converted(1), equal(2)]);
    }

    #[test]
    fn recursive_types_are_the_same_whatever_they_are_called() {
        let ours = "f(in a: L#0) -> unit or text\nL#0 = struct {next: option<L#0>}\n";
        let theirs = "f(in a: One#0) -> unit or text\nOne#0 = struct {next: option<Two#1>}\n\
                      Two#1 = struct {next: option<One#0>}\n";
        assert_eq!(compare(ours, theirs), Ok(None));
        assert_eq!(compare(theirs, ours), Ok(None));
    }

    /// A server chooses how many fields its types have, and every procedure of the client may have them.
    #[test]
    fn number_of_differences_is_bounded() {
        let procedures: String =
            (0..50).map(|i| format!("p{i}(in a: T#0) -> unit or text\n")).collect();
        let text = |fields: &str| format!("{procedures}T#0 = struct {{x: u8{fields}}}\n");
        let ours = text("");
        for (growth, fits) in [(" = x00", true), ("", false)] {
            let more: String = (0..20_000).map(|i| format!(", y{i}: u8{growth}")).collect();
            let all = super::compare(&parse(&ours), &parse(&text(&more)), Sides::BY_CLIENT);
            assert_eq!((all.fits(), all.procedures.len()), (fits, 50));
            assert_eq!(all.differences.len(), FOUND_MAX);
        }
        // The first difference that breaks a rule is listed although it follows many others.
        let more: String = (0..20_000).map(|i| format!(", y{i}: u8 = x00")).collect();
        let theirs = text(&format!("{more}, z: u8"));
        let all = super::compare(&parse(&ours), &parse(&theirs), Sides::BY_CLIENT);
        assert_eq!(all.differences.len(), FOUND_MAX + 1);
        assert_eq!(all.misfit().map(|one| one.rule), Some(Rule::NoDefault));
    }

    #[test]
    fn a_long_chain_of_types_needs_no_stack() {
        let mut text = "f(in a: T#0) -> unit or text\n".to_owned();
        for number in 0..10_000 {
            text.push_str(&format!("T#{number} = struct {{next: option<T#{}>}}\n", number + 1));
        }
        text.push_str("T#10000 = struct {last: u8}\n");
        assert_eq!(compare(&text, &text), Ok(None));
        let other = text.replace("last: u8", "last: i8");
        assert!(compare(&text, &other).unwrap_err().contains("field `last`"));
    }

    proptest! {
        /// Every interface fits itself with its procedures in any order.
        #[test]
        fn an_interface_fits_itself(order in Just((0..6_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let lines: Vec<_> =
                (0..6).map(|i| format!("p{i}(in a: [u{}; 2]) -> unit or text\n", 8 << (i % 4))).collect();
            let served: String = order.iter().map(|i| lines[*i as usize].clone()).collect();
            let numbers = compare(&lines.concat(), &served).unwrap();
            let numbers = numbers.unwrap_or_else(|| (0..6).collect());
            for (ours, theirs) in (0..).zip(numbers) {
                prop_assert_eq!(order[theirs as usize], ours);
            }
        }
    }
}
