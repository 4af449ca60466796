//! Finds which parts of two interfaces correspond to each other, by their present and earlier names.

use std::collections::HashMap;

use super::{
    DescribedField, DescribedParameter, DescribedPlainVariant, DescribedProcedure, DescribedVariant,
};

/// A part of an interface that has a name, and may have had other names earlier.
pub(crate) trait Part {
    fn names(&self) -> (&str, &[String]);
}

macro_rules! parts {
    ($($part:ty: $($was:ident).+),*) => {$(
        impl Part for $part {
            fn names(&self) -> (&str, &[String]) {
                (&self.name, &self.$($was).+)
            }
        }
    )*};
}
parts! {
    DescribedProcedure: was, DescribedParameter: growth.was, DescribedField: growth.was,
    DescribedVariant: was, DescribedPlainVariant: was
}

/// A step in a walk through the fields or parameters of both sides at the same time. The numbers are indices
/// of fields or parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Both(usize, usize),
    Ours(usize),
    Theirs(usize),
}

/// The indices of the parts of one side, by the names of these parts.
pub(crate) struct Index<'a> {
    names: HashMap<&'a str, usize>,
    earlier: HashMap<&'a str, usize>,
}

impl<'a> Index<'a> {
    pub(crate) fn new<P: Part>(parts: &'a [P]) -> Self {
        let (mut names, mut earlier) = (HashMap::new(), HashMap::new());
        for (number, part) in parts.iter().enumerate() {
            let (name, was) = part.names();
            names.entry(name).or_insert(number);
            for was in was {
                earlier.entry(&**was).or_insert(number);
            }
        }
        Self { names, earlier }
    }

    /// Returns the index of the part that corresponds to `part`, a part of the other side. A part that has
    /// the name now is preferred to a part that had the name earlier.
    pub(crate) fn find<P: Part>(&self, part: &P) -> Option<usize> {
        let (name, was) = part.names();
        let known = |name: &str| self.names.get(name).copied();
        known(name)
            .or_else(|| was.iter().find_map(|was| known(was)))
            .or_else(|| self.earlier.get(name).copied())
    }
}

/// Returns the steps of a walk through two lists of fields or parameters.
///
/// # Errors
/// Fails if the order of the parts differs between the two sides. The error has two indices of a part that is
/// not in order: its index in `ours`, and its index in `theirs`.
pub(crate) fn steps<P: Part>(ours: &[P], theirs: &[P]) -> Result<Vec<Step>, (usize, usize)> {
    let index = Index::new(theirs);
    let mut steps = Vec::with_capacity(ours.len().max(theirs.len()));
    let mut next = 0;
    for (number, part) in ours.iter().enumerate() {
        match index.find(part) {
            Some(found) if found >= next => {
                steps.extend((next..found).map(Step::Theirs));
                steps.push(Step::Both(number, found));
                next = found + 1;
            }
            Some(found) => return Err((number, found)),
            None => steps.push(Step::Ours(number)),
        }
    }
    steps.extend((next..theirs.len()).map(Step::Theirs));
    Ok(steps)
}

/// Returns the index of the receiver's variant for a variant of the sender. This is the variant with the same
/// name, or otherwise the variant for unknown variants.
pub(crate) fn variant_of<P: Part>(
    sent: &P,
    is_other: bool,
    index: &Index<'_>,
    other: Option<usize>,
) -> Option<usize> {
    // If the sender sends its variant for unknown variants, the receiver gets its own variant for unknown
    // variants. This applies even if the names of these two variants differ.
    if is_other && other.is_some() { other } else { index.find(sent).or(other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{DescribedGrowth, DescribedType};

    fn fields(names: &[&str]) -> Vec<DescribedField> {
        let field = |names: &&str| {
            let mut names = names.split('<').map(str::to_owned);
            let name = names.next().unwrap();
            let growth = DescribedGrowth { was: names.collect(), ..Default::default() };
            DescribedField { name, ty: DescribedType::U8, growth, max: None }
        };
        names.iter().map(field).collect()
    }

    #[test]
    fn parts_correspond_by_their_names_in_order() {
        use Step::{Both, Ours, Theirs};
        let matched = |ours: &[&str], theirs: &[&str]| steps(&fields(ours), &fields(theirs));
        assert_eq!(matched(&["a", "b"], &["a", "b"]), Ok(vec![Both(0, 0), Both(1, 1)]));
        assert_eq!(matched(&["a", "b"], &["b"]), Ok(vec![Ours(0), Both(1, 0)]));
        assert_eq!(matched(&["b"], &["a", "b", "c"]), Ok(vec![Theirs(0), Both(0, 1), Theirs(2)]));
        assert_eq!(matched(&["x"], &["y<x"]), Ok(vec![Both(0, 0)]));
        assert_eq!(matched(&["y<z<x"], &["x"]), Ok(vec![Both(0, 0)]));
        assert_eq!(matched(&["a", "b"], &["b", "a"]), Err((1, 0)));
        // A new field may have a name that another field had earlier.
        assert_eq!(matched(&["b<a"], &["b", "a"]), Ok(vec![Both(0, 0), Theirs(1)]));
    }
}
