//! Implements `Value` for the collections and the shared pointers of the standard library.
//!
//! Collections are sent as sequences, and maps as sequences of pairs. So a program may use another collection
//! than its peer. Maps and sets without an order are sent sorted. Therefore equal values have equal bytes,
//! and their bytes can be compared.

use core::hash::{BuildHasher, Hash};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::interface::Type;

/// Takes `count` values from the head, and passes each to `add`. `add` returns false for a duplicate.
fn each<T: Value, R: Representation>(
    count: usize,
    head: &mut Reader<'_, R>,
    mut add: impl FnMut(T) -> bool,
) -> Result<(), Invalid> {
    for _ in 0..count {
        let before = head.remaining();
        if !add(T::decode(head)?) {
            return Err(Invalid::Duplicate);
        }
        if head.remaining() == before {
            head.empty()?;
        }
    }
    Ok(())
}

/// Appends the number of values, and then the values.
fn all<'v, T: Value + 'v, R: Representation>(
    values: impl ExactSizeIterator<Item = &'v T>,
    head: &mut Writer<'_, R>,
) -> Result<(), Overflow> {
    head.count(values.len())?;
    head.deeper(|head| {
        for value in values {
            value.encode(head)?;
        }
        Ok(())
    })
}

/// Appends the number of pairs, and then the pairs.
fn pairs<'v, K: Value + 'v, V: Value + 'v, R: Representation>(
    pairs: impl ExactSizeIterator<Item = (&'v K, &'v V)>,
    head: &mut Writer<'_, R>,
) -> Result<(), Overflow> {
    head.count(pairs.len())?;
    head.deeper(|head| {
        for (key, value) in pairs {
            key.encode(head)?;
            value.encode(head)?;
        }
        Ok(())
    })
}

impl<T: Value> Value for VecDeque<T> {
    const TYPE: Type = Type::Sequence(&T::TYPE);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.count(self.len())?;
        let (front, back) = self.as_slices();
        head.deeper(|head| {
            T::encode_all(front, head)?;
            T::encode_all(back, head)
        })
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Vec::decode(head).map(Self::from)
    }
}

impl<K: Value + Ord, V: Value> Value for BTreeMap<K, V> {
    const TYPE: Type = Type::Sequence(&<(K, V)>::TYPE);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        pairs(self.iter(), head)
    }

    /// Accepts the pairs in any order. The keys must differ.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        let mut map = Self::new();
        head.deeper_by(size_of::<(K, V)>(), |head| {
            each(count, head, |(key, value)| map.insert(key, value).is_none())
        })?;
        Ok(map)
    }
}

impl<T: Value + Ord> Value for BTreeSet<T> {
    const TYPE: Type = Type::Sequence(&T::TYPE);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        all(self.iter(), head)
    }

    /// Accepts the values in any order. The values must differ.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        let mut set = Self::new();
        head.deeper_by(size_of::<T>(), |head| each(count, head, |value| set.insert(value)))?;
        Ok(set)
    }
}

/// The pairs are sent in the order of their keys. Sorting needs memory for a reference to each pair.
impl<K, V, S> Value for HashMap<K, V, S>
where
    K: Value + Ord + Hash,
    V: Value,
    S: BuildHasher + Default,
{
    const TYPE: Type = Type::Sequence(&<(K, V)>::TYPE);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        let mut sorted: Vec<(&K, &V)> = self.iter().collect();
        sorted.sort_unstable_by_key(|&(key, _)| key);
        pairs(sorted.into_iter(), head)
    }

    /// Accepts the pairs in any order. The keys must differ.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        let mut map = Self::default();
        head.deeper_by(size_of::<(K, V)>(), |head| {
            each(count, head, |(key, value)| map.insert(key, value).is_none())
        })?;
        Ok(map)
    }
}

/// The values are sent in order. Sorting needs memory for a reference to each value.
impl<T, S> Value for HashSet<T, S>
where
    T: Value + Ord + Hash,
    S: BuildHasher + Default,
{
    const TYPE: Type = Type::Sequence(&T::TYPE);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        let mut sorted: Vec<&T> = self.iter().collect();
        sorted.sort_unstable();
        all(sorted.into_iter(), head)
    }

    /// Accepts the values in any order. The values must differ.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        let mut set = Self::default();
        head.deeper_by(size_of::<T>(), |head| each(count, head, |value| set.insert(value)))?;
        Ok(set)
    }
}

/// Implements `Value` for pointers to one value. A pointer is encoded as its value. A received pointer does
/// not share its value with other pointers.
macro_rules! pointers {
    ($($pointer:ident)*) => {$(
        impl<T: Value> Value for $pointer<T> {
            const TYPE: Type = T::TYPE;

            #[inline]
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                head.deeper(|head| T::encode(self, head))
            }

            #[inline]
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                head.deeper(T::decode).map(Self::new)
            }
        }
    )*};
}
pointers!(Arc Rc);

/// Implements `Value` for pointers to text or to a slice. They are encoded as `String` and `Vec`.
macro_rules! unsized_pointers {
    ($($pointer:ident)*) => {$(
        impl Value for $pointer<str> {
            const TYPE: Type = Type::Text;

            #[inline]
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                text(self, head)
            }

            #[inline]
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                String::decode(head).map(Self::from)
            }
        }

        impl<T: Value> Value for $pointer<[T]> {
            const TYPE: Type = Type::Sequence(&T::TYPE);

            #[inline]
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                slice(self, head)
            }

            #[inline]
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                Vec::decode(head).map(Self::from)
            }
        }
    )*};
}
unsized_pointers!(Box Arc Rc);

fn text<R: Representation>(text: &str, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
    head.count(text.len())?;
    head.plain_all(text.as_bytes())
}

pub(super) fn slice<T: Value, R: Representation>(
    values: &[T],
    head: &mut Writer<'_, R>,
) -> Result<(), Overflow> {
    head.count(values.len())?;
    head.deeper(|head| T::encode_all(values, head))
}

/// A received `Cow` owns its value.
impl Value for Cow<'static, str> {
    const TYPE: Type = Type::Text;

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        text(self, head)
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        String::decode(head).map(Cow::Owned)
    }
}

/// A received `Cow` owns its values.
impl<T: Value + Clone> Value for Cow<'static, [T]> {
    const TYPE: Type = Type::Sequence(&T::TYPE);

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        slice(self, head)
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Vec::decode(head).map(Cow::Owned)
    }
}

/// A received `Cow` owns its value.
impl<T: Value + Clone> Value for Cow<'static, T> {
    const TYPE: Type = T::TYPE;

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.deeper(|head| T::encode(self, head))
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        head.deeper(T::decode).map(Cow::Owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Native, Space, Swapped, Window};

    fn head<T: Value, R: Representation>(value: &T) -> Vec<u8> {
        let mut memory = [0xaau8; 4096];
        let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
        value.encode(&mut writer).unwrap();
        writer.flush();
        let bytes = writer.len();
        memory[..bytes].to_vec()
    }

    fn taken<T: Value, R: Representation>(head: &[u8]) -> Result<T, Invalid> {
        let mut reader = Reader::<R>::represented(Window::from(head));
        let value = T::decode(&mut reader)?;
        reader.finish().map(|()| value)
    }

    /// Checks that `value` has the same bytes as `basic`, which is a value of a basic type, and that `value`
    /// can be read from these bytes.
    fn equals<T: Value + PartialEq + core::fmt::Debug, U: Value>(value: T, basic: U) {
        fn one<T: Value + PartialEq + core::fmt::Debug, U: Value, R: Representation>(
            value: &T,
            basic: &U,
        ) {
            let bytes = head::<U, R>(basic);
            assert_eq!(head::<T, R>(value), bytes);
            assert_eq!(taken::<T, R>(&bytes).as_ref(), Ok(value));
            for short in 0..bytes.len() {
                assert!(taken::<T, R>(&bytes[..short]).is_err());
            }
        }
        one::<T, U, Native>(&value, &basic);
        one::<T, U, Swapped>(&value, &basic);
        assert_eq!(format!("{:?}", T::TYPE), format!("{:?}", U::TYPE));
    }

    #[test]
    fn collections_have_the_bytes_of_sorted_sequences() {
        let pairs = || (0..40u32).map(|i| (format!("{i:02}"), u64::from(i)));
        let sorted: Vec<_> = pairs().collect();
        equals(pairs().collect::<BTreeMap<_, _>>(), sorted.clone());
        equals(pairs().rev().collect::<HashMap<_, _>>(), sorted);
        let numbers: Vec<u16> = (0..50).collect();
        equals(numbers.iter().copied().collect::<BTreeSet<_>>(), numbers.clone());
        equals(numbers.iter().copied().rev().collect::<HashSet<_>>(), numbers.clone());
        let mut turned: VecDeque<u16> = (25..50).collect();
        (0..25).rev().for_each(|one| turned.push_front(one));
        equals(turned, numbers);
    }

    #[test]
    fn pointers_have_the_bytes_of_their_values() {
        equals(Arc::new(7u32), 7u32);
        equals(Rc::new((1u8, String::from("a"))), (1u8, String::from("a")));
        equals(Arc::<str>::from("falcon"), String::from("falcon"));
        equals(Box::<str>::from("falcon"), String::from("falcon"));
        equals(Rc::<[u32]>::from([1, 2, 3]), vec![1u32, 2, 3]);
        equals(Box::<[Option<u8>]>::from([None, Some(2)]), vec![None, Some(2u8)]);
        equals(Cow::Borrowed("falcon"), String::from("falcon"));
        equals(Cow::<'static, [u16]>::Owned(vec![1, 2]), vec![1u16, 2]);
        equals(Cow::<'static, u64>::Owned(3), 3u64);
    }

    #[test]
    fn keys_may_come_in_any_order_but_only_once() {
        let turned = head::<_, Native>(&vec![(2u8, 'b'), (1, 'a')]);
        let map = taken::<BTreeMap<u8, char>, Native>(&turned).unwrap();
        assert_eq!(map, BTreeMap::from([(1, 'a'), (2, 'b')]));
        let twice = head::<_, Native>(&vec![(1u8, 'b'), (1, 'a')]);
        assert_eq!(taken::<BTreeMap<u8, char>, Native>(&twice), Err(Invalid::Duplicate));
        assert_eq!(taken::<HashMap<u8, char>, Native>(&twice), Err(Invalid::Duplicate));
        let twice = head::<_, Native>(&vec![1u8, 1]);
        assert_eq!(taken::<BTreeSet<u8>, Native>(&twice), Err(Invalid::Duplicate));
        assert_eq!(taken::<HashSet<u8>, Native>(&twice), Err(Invalid::Duplicate));
    }

    #[test]
    fn claimed_count_allocates_nothing() {
        let head = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        assert_eq!(taken::<VecDeque<u64>, Native>(&head), Err(Invalid::Short));
        assert_eq!(taken::<HashMap<u64, u64>, Native>(&head), Err(Invalid::Short));
        assert_eq!(taken::<Arc<[u64]>, Native>(&head), Err(Invalid::Short));
        // All values without bytes are equal, so a set can contain at most one of them.
        assert_eq!(taken::<BTreeSet<[u8; 0]>, Native>(&head), Err(Invalid::Duplicate));
    }
}
