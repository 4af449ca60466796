//! Makes random values of random types, for property tests.

use crate::interface::{Described, DescribedBody, DescribedField, DescribedType};
use crate::value::Dynamic;

/// A generator of pseudo-random numbers from a seed.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // The generator is SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Builds a random value of a type from random parts. Returns `None` if the type has no small value.
pub(crate) fn some_value(
    all: &Described,
    ty: &DescribedType,
    chance: &mut Chance,
    depth: u32,
) -> Option<Dynamic> {
    if depth > 12 {
        return None;
    }
    let wide = |chance: &mut Chance| u128::from(chance.next()) << 64 | u128::from(chance.next());
    let many = |one: &DescribedType, count: u64, chance: &mut Chance| {
        (0..count).map(|_| some_value(all, one, chance, depth + 1)).collect::<Option<Vec<_>>>()
    };
    Some(match ty {
        DescribedType::Unit => Dynamic::Unit,
        DescribedType::Bool => Dynamic::Bool(chance.below(2) == 1),
        DescribedType::Char => {
            Dynamic::Char(char::from_u32(chance.below(0x11_0000) as u32).unwrap_or('ß'))
        }
        DescribedType::Text => {
            let letters =
                (0..chance.below(5)).map(|_| ['a', 'ß', '水', '🦅'][chance.below(4) as usize]);
            Dynamic::Text(letters.collect())
        }
        DescribedType::U8 => Dynamic::U8(chance.next() as u8),
        DescribedType::U16 => Dynamic::U16(chance.next() as u16),
        DescribedType::U32 => Dynamic::U32(chance.next() as u32),
        DescribedType::U64 => Dynamic::U64(chance.next()),
        DescribedType::U128 => Dynamic::U128(wide(chance)),
        DescribedType::I8 => Dynamic::I8(chance.next() as i8),
        DescribedType::I16 => Dynamic::I16(chance.next() as i16),
        DescribedType::I32 => Dynamic::I32(chance.next() as i32),
        DescribedType::I64 => Dynamic::I64(chance.next() as i64),
        DescribedType::I128 => Dynamic::I128(wide(chance) as i128),
        DescribedType::F32 => Dynamic::F32(chance.next() as i32 as f32),
        DescribedType::F64 => Dynamic::F64(chance.next() as f64),
        DescribedType::Array(_, count) if *count > 6 => return None,
        DescribedType::Array(one, count) => Dynamic::List(many(one, *count, chance)?),
        DescribedType::Sequence(one) => {
            let count = chance.below(4);
            Dynamic::List(many(one, count, chance).unwrap_or_default())
        }
        DescribedType::Option(one) => {
            let value = (chance.below(2) == 1).then(|| some_value(all, one, chance, depth + 1));
            Dynamic::Option(value.flatten().map(Box::new))
        }
        DescribedType::Result(ok, err) => {
            let (ok, err) =
                (some_value(all, ok, chance, depth + 1), some_value(all, err, chance, depth + 1));
            let first = chance.below(2) == 1;
            Dynamic::Result(match (ok, err) {
                (Some(ok), None) => Ok(Box::new(ok)),
                (Some(ok), _) if first => Ok(Box::new(ok)),
                (_, err) => Err(Box::new(err?)),
            })
        }
        DescribedType::Tuple(parts) => {
            let parts = parts.iter().map(|one| some_value(all, one, chance, depth + 1));
            Dynamic::List(parts.collect::<Option<_>>()?)
        }
        DescribedType::Named(number) => {
            let fields = |fields: &[DescribedField], chance: &mut Chance| {
                let values = fields.iter().map(|one| some_value(all, &one.ty, chance, depth + 1));
                values.collect::<Option<Vec<_>>>()
            };
            match &all.types[*number].body {
                DescribedBody::Plain { fields: all, .. } | DescribedBody::Struct(all) => {
                    Dynamic::List(fields(all, chance)?)
                }
                DescribedBody::PlainEnum { variants, .. } => {
                    let count = variants.len() as u64;
                    // All plain enums of these random interfaces have the integer type `i128`.
                    Dynamic::I128(variants.get(chance.below(count.max(1)) as usize)?.value)
                }
                DescribedBody::Interface { .. } => return None,
                DescribedBody::Enum(variants) => {
                    let number = chance.below(variants.len().max(1) as u64) as u32;
                    let variant = variants.get(number as usize)?;
                    Dynamic::Variant(number, fields(&variant.fields, chance)?)
                }
            }
        }
    })
}
