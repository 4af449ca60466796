//! Compares the types of a stream's items, which are not converted.

use std::collections::HashSet;

use crate::interface::{Described, DescribedBody, DescribedField, DescribedType};

/// Returns whether values of a type have the same bytes on both sides.
pub(super) fn are_same(
    (ours, one): (&Described, &DescribedType),
    (theirs, other): (&Described, &DescribedType),
) -> bool {
    let mut seen = HashSet::new();
    // This is a loop and not a recursion, because a peer chooses the length of a chain of types.
    let mut open = vec![(one, other)];
    while let Some(pair) = open.pop() {
        match pair {
            (DescribedType::Array(a, m), DescribedType::Array(b, n)) if m == n => {
                open.push((a, b));
            }
            (DescribedType::Sequence(a), DescribedType::Sequence(b))
            | (DescribedType::Option(a), DescribedType::Option(b)) => open.push((a, b)),
            (DescribedType::Result(a, c), DescribedType::Result(b, d)) => {
                open.extend([(&**a, &**b), (&**c, &**d)]);
            }
            (DescribedType::Tuple(a), DescribedType::Tuple(b)) if a.len() == b.len() => {
                open.extend(a.iter().zip(b));
            }
            (DescribedType::Named(a), DescribedType::Named(b)) => {
                if !seen.insert((*a, *b)) {
                    continue;
                }
                let (Some(a), Some(b)) = (ours.types.get(*a), theirs.types.get(*b)) else {
                    return false;
                };
                if a.name != b.name || !bodies(&a.body, &b.body, &mut open) {
                    return false;
                }
            }
            (a, b) if a == b => {}
            _ => return false,
        }
    }
    true
}

/// Returns whether two bodies are the same, if the types that are added to `open` are.
fn bodies<'a>(
    one: &'a DescribedBody,
    other: &'a DescribedBody,
    open: &mut Vec<(&'a DescribedType, &'a DescribedType)>,
) -> bool {
    let mut fields = |a: &'a [DescribedField], b: &'a [DescribedField]| {
        open.extend(a.iter().zip(b).map(|(a, b)| (&a.ty, &b.ty)));
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.name == b.name)
    };
    match (one, other) {
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
        _ => false,
    }
}
