//! Compares the types of a stream's items and the interfaces of callbacks, which are not converted.

use std::collections::HashSet;

use crate::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure, DescribedType,
};

/// The first difference of two types.
#[derive(Debug)]
pub(super) struct Unlike<'a> {
    /// The place of the difference.
    pub(super) within: Within<'a>,
    /// The texts of the parts that differ: ours, and theirs.
    pub(super) texts: [String; 2],
}

/// A place in the interface of a callback.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Within<'a> {
    pub(super) interface: Option<&'a str>,
    pub(super) procedure: Option<&'a str>,
    pub(super) ty: Option<&'a str>,
}

/// The pairs of types that are still to be compared, each with its place.
type Open<'a> = Vec<(&'a DescribedType, &'a DescribedType, Within<'a>)>;

/// Compares two types whose values must have the same bytes on both sides.
///
/// # Errors
/// Fails if the types differ.
pub(super) fn compare<'a>(
    (ours, one): (&'a Described, &'a DescribedType),
    (theirs, other): (&'a Described, &'a DescribedType),
) -> Result<(), Unlike<'a>> {
    let mut seen = HashSet::new();
    // This is a loop and not a recursion, because a peer chooses the length of a chain of types.
    let mut open: Open<'a> = vec![(one, other, Within::default())];
    while let Some((one, other, within)) = open.pop() {
        let unlike = |within, texts| Err(Unlike { within, texts });
        match (one, other) {
            (DescribedType::Array(a, m), DescribedType::Array(b, n)) if m == n => {
                open.push((a, b, within));
            }
            (DescribedType::Sequence(a), DescribedType::Sequence(b))
            | (DescribedType::Option(a), DescribedType::Option(b)) => open.push((a, b, within)),
            (DescribedType::Result(a, c), DescribedType::Result(b, d)) => {
                open.extend([(&**a, &**b, within), (&**c, &**d, within)]);
            }
            (DescribedType::Tuple(a), DescribedType::Tuple(b)) if a.len() == b.len() => {
                open.extend(a.iter().zip(b).map(|(a, b)| (a, b, within)));
            }
            (DescribedType::Named(a), DescribedType::Named(b)) => {
                if !seen.insert((*a, *b)) {
                    continue;
                }
                let named = (ours.types.get(*a), theirs.types.get(*b));
                let (Some(a), Some(b)) = named else {
                    return unlike(within, [ours.type_text(one), theirs.type_text(other)]);
                };
                if a.name != b.name {
                    return unlike(within, [a.name.clone(), b.name.clone()]);
                }
                let within = match &a.body {
                    DescribedBody::Interface { .. } => {
                        Within { interface: Some(&a.name), ..Within::default() }
                    }
                    _ => Within { ty: Some(&a.name), ..within },
                };
                match bodies(&a.body, &b.body, within, &mut open) {
                    Ok(()) => {}
                    Err(Part::Body) => {
                        return unlike(
                            within,
                            [ours.body_text(&a.body), theirs.body_text(&b.body)],
                        );
                    }
                    Err(Part::Procedure(a, b)) => {
                        let within = Within { procedure: Some(&a.name), ..within };
                        return unlike(within, [ours.procedure_text(a), theirs.procedure_text(b)]);
                    }
                }
            }
            (a, b) if a == b => {}
            _ => return unlike(within, [ours.type_text(one), theirs.type_text(other)]),
        }
    }
    Ok(())
}

/// The part of a named type that differs.
enum Part<'a> {
    Body,
    Procedure(&'a DescribedProcedure, &'a DescribedProcedure),
}

/// Succeeds if two bodies are the same, provided that the types that are added to `open` are the same.
fn bodies<'a>(
    one: &'a DescribedBody,
    other: &'a DescribedBody,
    within: Within<'a>,
    open: &mut Open<'a>,
) -> Result<(), Part<'a>> {
    let mut fields = |a: &'a [DescribedField], b: &'a [DescribedField]| {
        open.extend(a.iter().zip(b).map(|(a, b)| (&a.ty, &b.ty, within)));
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name)
    };
    let are_same = match (one, other) {
        (
            DescribedBody::Plain { size: m, align: k, fields: a },
            DescribedBody::Plain { size: n, align: l, fields: b },
        ) => (m, k) == (n, l) && fields(a, b),
        (DescribedBody::Struct(a), DescribedBody::Struct(b)) => fields(a, b),
        (
            DescribedBody::PlainEnum { repr: a, variants: c },
            DescribedBody::PlainEnum { repr: b, variants: d },
        ) => {
            let same = c.iter().zip(d).all(|(c, d)| (&c.name, c.value) == (&d.name, d.value));
            a == b && c.len() == d.len() && same
        }
        (DescribedBody::Enum(a), DescribedBody::Enum(b)) => {
            a.len() == b.len()
                && a.iter().zip(b).all(|(a, b)| a.name == b.name && fields(&a.fields, &b.fields))
        }
        (
            DescribedBody::Interface { version: m, procedures: a },
            DescribedBody::Interface { version: n, procedures: b },
        ) => {
            if let Some((a, b)) = a.iter().zip(b).find(|(a, b)| !are_passed_alike(a, b)) {
                return Err(Part::Procedure(a, b));
            }
            for (a, b) in a.iter().zip(b) {
                let within = Within { procedure: Some(&a.name), ..within };
                let parameters = a.parameters.iter().zip(&b.parameters);
                open.extend(parameters.map(|(a, b)| (&a.ty, &b.ty, within)));
                open.extend([(&a.result, &b.result, within), (&a.error, &b.error, within)]);
            }
            m == n && a.len() == b.len()
        }
        _ => false,
    };
    if are_same { Ok(()) } else { Err(Part::Body) }
}

/// Returns whether two procedures are the same, apart from their types.
fn are_passed_alike(one: &DescribedProcedure, other: &DescribedProcedure) -> bool {
    let parameter = |a: &DescribedParameter, b: &DescribedParameter| {
        (&a.name, a.direction, a.shape, a.max_len) == (&b.name, b.direction, b.shape, b.max_len)
    };
    (&one.name, one.idempotent, one.oneway) == (&other.name, other.idempotent, other.oneway)
        && one.parameters.len() == other.parameters.len()
        && one.parameters.iter().zip(&other.parameters).all(|(a, b)| parameter(a, b))
}
