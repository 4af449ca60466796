//! Compares the interface that a client was compiled with and the interface that a server exports.
//!
//! If the identities are equal, nothing is compared. Otherwise, a client fits if the server has each
//! procedure of the client in the same form. The server may have more.
//!
//! | difference of the server's interface | result |
//! |---|---|
//! | more procedures, in any order | fits: the binding maps the numbers |
//! | a larger `max_len`, or none, of a parameter that is sent with the call | fits |
//! | another `max_len` of an out parameter | fits: the smaller one applies |
//! | `#[idempotent]` added | fits |
//! | another name of a named type, other documentation | fits |
//! | a procedure missing, or renamed | differs |
//! | a parameter added, removed or renamed, or with another direction or type | differs |
//! | a smaller or added `max_len` of a parameter that is sent with the call | differs |
//! | `#[idempotent]` removed | differs |
//! | another type of result or error | differs |
//! | a field or variant added, removed, moved or renamed | differs |
//! | another name or version of the interface | differs |
//!
//! Names of fields and variants are compared, because two fields that were exchanged may have the same
//! bytes.

use std::collections::{HashMap, HashSet};

use super::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure,
    DescribedType, Direction,
};

/// The largest number of pairs of named types that are compared. Interfaces that people write have fewer.
const PAIRS_MAX: usize = 1 << 16;

/// Returns the server's number of each procedure of the client, in order, or `None` if all numbers are the
/// same.
///
/// # Errors
/// How they differ, as a sentence for people.
pub fn numbers(ours: &Described, theirs: &Described) -> Result<Option<Box<[u32]>>, String> {
    if (&ours.name, ours.version) != (&theirs.name, theirs.version) {
        let [a, b] = [ours, theirs].map(|one| format!("`{}` version {}", one.name, one.version));
        return Err(format!("ours is interface {a}, the server's is {b}"));
    }
    let known: HashMap<&str, usize> =
        theirs.procedures.iter().enumerate().map(|(i, one)| (&*one.name, i)).collect();
    let mut pair = Pair { ours, theirs, same: HashSet::new(), open: Vec::new() };
    let mut numbers = Vec::with_capacity(ours.procedures.len());
    for procedure in &ours.procedures {
        let place = format!("interface `{}`, procedure `{}`", ours.name, procedure.name);
        let Some(number) = known.get(&*procedure.name) else {
            let names: Vec<_> =
                theirs.procedures.iter().map(|one| format!("`{}`", one.name)).collect();
            return Err(format!("{place}: the server has none; it has {}", names.join(", ")));
        };
        pair.procedure(procedure, &theirs.procedures[*number])
            .map_err(|what| format!("{place}{what}"))?;
        numbers.push(*number as u32);
    }
    let same = numbers.iter().zip(0..).all(|(theirs, ours)| *theirs == ours);
    Ok((!same).then(|| numbers.into_boxed_slice()))
}

/// Both interfaces, and the results of comparing their types.
struct Pair<'a> {
    ours: &'a Described,
    theirs: &'a Described,
    /// Named types that are equal, unless an open pair shows a difference.
    same: HashSet<(usize, usize)>,
    /// The pairs whose parts were not compared yet.
    open: Vec<(usize, usize)>,
}

/// The place of the first difference, and the difference.
type Differs = Result<(), String>;

impl Pair<'_> {
    fn differ(&self, ours: &DescribedType, theirs: &DescribedType) -> String {
        let (ours, theirs) = (self.ours.type_text(ours), self.theirs.type_text(theirs));
        format!(": ours is `{ours}`, the server's is `{theirs}`")
    }

    fn procedure(&mut self, ours: &DescribedProcedure, theirs: &DescribedProcedure) -> Differs {
        if ours.idempotent && !theirs.idempotent {
            return Err(": ours may run twice (`#[idempotent]`), the server's may not".into());
        }
        if ours.parameters.len() != theirs.parameters.len() {
            let (ours, theirs) =
                (self.ours.procedure_text(ours), self.theirs.procedure_text(theirs));
            return Err(format!(": ours is `{ours}`, the server's is `{theirs}`"));
        }
        for (ours, theirs) in ours.parameters.iter().zip(&theirs.parameters) {
            let place = |what: String| format!(", parameter `{}`{what}", ours.name);
            self.parameter(ours, theirs).map_err(place)?;
        }
        self.whole(&ours.result, &theirs.result).map_err(|what| format!(", result{what}"))?;
        self.whole(&ours.error, &theirs.error).map_err(|what| format!(", error{what}"))
    }

    fn parameter(&mut self, ours: &DescribedParameter, theirs: &DescribedParameter) -> Differs {
        let whole = |one: &DescribedParameter| (one.name.clone(), one.direction, one.shape);
        let narrower = match (ours.direction, ours.max_len, theirs.max_len) {
            (Direction::Out, ..) | (_, _, None) => false,
            (_, None, Some(_)) => true,
            (_, Some(ours), Some(theirs)) => ours > theirs,
        };
        if whole(ours) != whole(theirs) || narrower {
            let ours = self.ours.parameter_text(ours);
            let theirs = self.theirs.parameter_text(theirs);
            return Err(format!(": ours is `{ours}`, the server's is `{theirs}`"));
        }
        self.whole(&ours.ty, &theirs.ty)
    }

    /// Compares two types, including the named types that they contain.
    fn whole(&mut self, ours: &DescribedType, theirs: &DescribedType) -> Differs {
        self.types(ours, theirs)?;
        // A loop instead of recursion, because a peer chooses how long a chain of types is.
        while let Some((a, b)) = self.open.pop() {
            let (Some(one), Some(other)) = (self.ours.types.get(a), self.theirs.types.get(b))
            else {
                return Err(": a type is described nowhere".into());
            };
            let place = |what| format!(", in type `{}`{what}", one.name);
            self.bodies(&one.body, &other.body).map_err(place)?;
        }
        Ok(())
    }

    fn types(&mut self, ours: &DescribedType, theirs: &DescribedType) -> Differs {
        use DescribedType::{Array, Named, Option, Result, Sequence, Tuple};
        match (ours, theirs) {
            (Array(a, n), Array(b, m)) if n == m => self.types(a, b),
            (Sequence(a), Sequence(b)) | (Option(a), Option(b)) => self.types(a, b),
            (Result(ok, err), Result(other_ok, other_err)) => {
                self.types(ok, other_ok)?;
                self.types(err, other_err)
            }
            (Tuple(ours), Tuple(theirs)) if ours.len() == theirs.len() => {
                ours.iter().zip(theirs).try_for_each(|(a, b)| self.types(a, b))
            }
            (Named(a), Named(b)) => {
                if self.same.len() >= PAIRS_MAX {
                    return Err(": the types are too intricate to be compared".into());
                }
                if self.same.insert((*a, *b)) {
                    self.open.push((*a, *b));
                }
                Ok(())
            }
            (Array(..) | Sequence(_) | Option(_) | Result(..) | Tuple(_) | Named(_), _) => {
                Err(self.differ(ours, theirs))
            }
            _ if ours == theirs => Ok(()),
            _ => Err(self.differ(ours, theirs)),
        }
    }

    fn bodies(&mut self, ours: &DescribedBody, theirs: &DescribedBody) -> Differs {
        use DescribedBody::{Enum, Plain, PlainEnum, Struct};
        match (ours, theirs) {
            (
                Plain { size, align, fields },
                Plain { size: other_size, align: other_align, fields: others },
            ) if (size, align) == (other_size, other_align) => self.fields(fields, others),
            (PlainEnum { repr, variants }, PlainEnum { repr: other, variants: others })
                if repr == other && variants == others =>
            {
                Ok(())
            }
            (Struct(fields), Struct(others)) => self.fields(fields, others),
            (Enum(variants), Enum(others)) if variants.len() == others.len() => {
                for (ours, theirs) in variants.iter().zip(others) {
                    if ours.name != theirs.name {
                        let (ours, theirs) = (&ours.name, &theirs.name);
                        return Err(format!(
                            ": ours has `{ours}` where the server's has `{theirs}`"
                        ));
                    }
                    self.fields(&ours.fields, &theirs.fields)
                        .map_err(|what| format!(", variant `{}`{what}", ours.name))?;
                }
                Ok(())
            }
            _ => {
                let (ours, theirs) = (self.ours.body_text(ours), self.theirs.body_text(theirs));
                Err(format!(": ours is `{ours}`, the server's is `{theirs}`"))
            }
        }
    }

    fn fields(&mut self, ours: &[DescribedField], theirs: &[DescribedField]) -> Differs {
        for (ours, theirs) in ours.iter().zip(theirs) {
            if ours.name != theirs.name {
                let (ours, theirs) = (&ours.name, &theirs.name);
                return Err(format!(": ours has `{ours}` where the server's has `{theirs}`"));
            }
            self.types(&ours.ty, &theirs.ty)
                .map_err(|what| format!(", field `{}`{what}", ours.name))?;
        }
        match (ours.get(theirs.len()), theirs.get(ours.len())) {
            (None, None) => Ok(()),
            (Some(more), _) => Err(format!(": the server's has no field `{}`", more.name)),
            (_, Some(more)) => Err(format!(": the server's has one more field, `{}`", more.name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn compare(ours: &str, theirs: &str) -> Result<Option<Vec<u32>>, String> {
        let [ours, theirs] = [ours, theirs].map(|lines| {
            let text = format!("interface I version 1\n{lines}");
            Described::parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
        });
        numbers(&ours, &theirs).map(|numbers| numbers.map(Vec::from))
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
            let error = compare(served, known).unwrap_err();
            assert!(error.contains("interface `I`, procedure `"), "{error}");
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
                "parameter `a`: ours is `in a: u32`, the server's is `in b: u32`",
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
                "has none; it has `g`",
            ),
            (
                types("struct {value: u32, next: option<L#0>}"),
                types("struct {value: u64, next: option<L#0>}"),
                "parameter `list`, in type `L`, field `value`: ours is `u32`, the server's is `u64`",
            ),
            (
                types("struct {x: u32, y: u32}"),
                types("struct {y: u32, x: u32}"),
                "in type `L`: ours has `x` where the server's has `y`",
            ),
            (types("struct {x: u32}"), types("struct {x: u32, y: u32}"), "one more field, `y`"),
            (
                types("enum A {} B {x: u8}"),
                types("enum A {} B {x: i8}"),
                "in type `L`, variant `B`, field `x`: ours is `u8`, the server's is `i8`",
            ),
            (types("enum A {}"), types("enum A {} B {}"), "ours is `enum A {}`, the server's is"),
            (types("plain enum u8 A=1"), types("plain enum u8 A=2"), "A=1`, the server's is"),
            (types("plain 4 align 4 {x: u32}"), types("struct {x: u32}"), "ours is `plain 4"),
        ] {
            let error = compare(&ours, &theirs).unwrap_err();
            assert!(error.contains(said), "{error}\nrather than\n{said}");
        }
        let [a, b] = ["interface A version 0\n", "interface A version 1\n"]
            .map(|text| Described::parse(text).unwrap());
        let error = numbers(&a, &b).unwrap_err();
        assert_eq!(error, "ours is interface `A` version 0, the server's is `A` version 1");
    }

    #[test]
    fn recursive_types_are_the_same_whatever_they_are_called() {
        let ours = "f(in a: L#0) -> unit or text\nL#0 = struct {next: option<L#0>}\n";
        let theirs = "f(in a: One#0) -> unit or text\nOne#0 = struct {next: option<Two#1>}\n\
                      Two#1 = struct {next: option<One#0>}\n";
        assert_eq!(compare(ours, theirs), Ok(None));
        assert_eq!(compare(theirs, ours), Ok(None));
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
