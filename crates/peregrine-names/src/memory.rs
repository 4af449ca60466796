//! [`is_compact`]: whether what a procedure returns needs little more memory than its message.

use peregrine::interface::{
    Described, DescribedBody, DescribedParameter, DescribedProcedure, DescribedType, Direction,
};

/// The largest number of values of which a compact result may consist. Texts and sequences of plain values
/// count as one.
const VALUES_MAX: u32 = 1000;

/// Returns whether what a procedure returns consists of a few texts, numbers and sequences of plain values,
/// whatever the server sends. A value that is interpreted needs some 60 bytes of memory, and one byte of a
/// message may contain four of them. So other results may need some 250 times as much memory as their message.
pub(crate) fn is_compact(described: &Described, procedure: &DescribedProcedure) -> bool {
    let mut left = VALUES_MAX;
    let back = |one: &&DescribedParameter| one.direction == Direction::InOut;
    let back = procedure.parameters.iter().filter(back).map(|one| &one.ty);
    let mut all = [&procedure.result, &procedure.error].into_iter().chain(back);
    all.all(|ty| has_few_values(described, ty, &mut left))
}

fn has_few_values(described: &Described, ty: &DescribedType, left: &mut u32) -> bool {
    let Some(less) = left.checked_sub(1) else { return false };
    *left = less;
    let is_plain = |ty: &DescribedType| described.plain_bytes(ty).is_some();
    let mut few = |ty: &DescribedType| has_few_values(described, ty, left);
    match ty {
        DescribedType::Sequence(one) | DescribedType::Array(one, _) => is_plain(one),
        DescribedType::Option(one) => few(one),
        DescribedType::Result(ok, err) => few(ok) && few(err),
        DescribedType::Tuple(parts) => parts.iter().all(few),
        DescribedType::Named(number) => match described.types.get(*number).map(|one| &one.body) {
            Some(DescribedBody::Plain { .. } | DescribedBody::PlainEnum { .. }) => true,
            Some(DescribedBody::Struct(fields)) => fields.iter().all(|field| few(&field.ty)),
            Some(DescribedBody::Enum(variants)) => {
                variants.iter().flat_map(|one| &one.fields).all(|field| few(&field.ty))
            }
            _ => false,
        },
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_of_structured_values_and_recursive_types_are_not_compact() {
        let all = Described::parse(
            "interface T version 0
numbers(in all: sequence<Struct#0>) -> sequence<u64> or Failed#1
points(out into: [u8]) -> sequence<Point#2> or text
parts() -> tuple<text, option<Struct#0>, [u8; 9]> or Failed#1
structs() -> sequence<Struct#0> or text
texts() -> [text; 9] or text
both(inout all: sequence<text>) -> unit or text
endless() -> Endless#3 or text
wide() -> Wide#4 or text
Struct#0 = struct {0: text}
Failed#1 = enum Call {0: Struct#0} None {}
Point#2 = plain 16 align 8 {x: f64, y: f64}
Endless#3 = struct {0: option<Endless#3>}
Wide#4 = struct {0: tuple<Wide5#5, Wide5#5, Wide5#5, Wide5#5>}
Wide5#5 = struct {0: tuple<Wide6#6, Wide6#6, Wide6#6, Wide6#6>}
Wide6#6 = struct {0: tuple<Wide7#7, Wide7#7, Wide7#7, Wide7#7>}
Wide7#7 = struct {0: tuple<Wide8#8, Wide8#8, Wide8#8, Wide8#8>}
Wide8#8 = struct {0: tuple<text, text, text, text>}
",
        )
        .unwrap();
        let compact = all.procedures.iter().filter(|one| is_compact(&all, one));
        let compact: Vec<_> = compact.map(|one| &*one.name).collect();
        assert_eq!(compact, ["numbers", "points", "parts"]);
    }
}
