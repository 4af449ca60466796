//! Implements `Value` for the structured built-in types: text, sequences, options, results, boxes, tuples.

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::interface::Type;

impl Value for () {
    const TYPE: Type = Type::Unit;
    const FIXED_BYTES: Option<usize> = Some(0);

    #[inline]
    fn encode<R: Representation>(&self, _: &mut Writer<'_, R>) -> Result<(), Overflow> {
        Ok(())
    }

    #[inline]
    fn decode<R: Representation>(_: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(())
    }

    /// Does nothing, because a unit has no bytes. A loop over billions of units would take long.
    #[inline]
    fn encode_all<R: Representation>(_: &[Self], _: &mut Writer<'_, R>) -> Result<(), Overflow> {
        Ok(())
    }

    /// Does not read the head. Units have no bytes and need no memory, so any count is harmless.
    fn decode_all<R: Representation>(
        count: usize,
        _: &mut Reader<'_, R>,
    ) -> Result<Vec<Self>, Invalid> {
        Ok(vec![(); count])
    }
}

impl Value for String {
    const TYPE: Type = Type::Text;

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.count(self.len())?;
        head.plain_all(self.as_bytes())
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let bytes = head.count()?;
        Self::from_utf8(head.plain_vec(bytes)?).map_err(|_| Invalid::Utf8)
    }
}

impl<T: Value> Value for Vec<T> {
    const TYPE: Type = Type::Sequence(&T::TYPE);

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.count(self.len())?;
        head.deeper(|head| T::encode_all(self, head))
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        head.deeper_by(size_of::<T>(), |head| T::decode_all(count, head))
    }
}

impl<T: Value> Value for Option<T> {
    const TYPE: Type = Type::Option(&T::TYPE);

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.plain(&self.is_some())?;
        match self {
            Some(value) => head.deeper(|head| value.encode(head)),
            None => Ok(()),
        }
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let some = head.plain()?;
        if some { head.deeper(T::decode).map(Some) } else { Ok(None) }
    }
}

impl<T: Value, E: Value> Value for Result<T, E> {
    const TYPE: Type = Type::Result(&T::TYPE, &E::TYPE);

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.plain(&self.is_err())?;
        head.deeper(|head| match self {
            Ok(value) => value.encode(head),
            Err(error) => error.encode(head),
        })
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let error = head.plain()?;
        head.deeper(|head| if error { E::decode(head).map(Err) } else { T::decode(head).map(Ok) })
    }
}

/// A box is encoded as its content. With boxes, types can be recursive. Both sides limit the depth of
/// nesting.
impl<T: Value> Value for Box<T> {
    const TYPE: Type = T::TYPE;
    const FIXED_BYTES: Option<usize> = None;

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.deeper(|head| T::encode(self, head))
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        head.deeper(T::decode).map(Self::new)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: Value),+> Value for ($($name,)+) {
            const TYPE: Type = Type::Tuple(&[$(&$name::TYPE),+]);

            #[inline]
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                $(self.$index.encode(head)?;)+
                Ok(())
            }

            #[inline]
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                Ok(($($name::decode(head)?,)+))
            }
        }
    )*};
}
tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

#[cfg(test)]
mod tests {
    use super::super::{Native, Reader, Representation, Space, Swapped, Value, Window, Writer};
    use super::{Invalid, Overflow};

    fn round_trip<T: Value + PartialEq + core::fmt::Debug>(value: T) -> Vec<u8> {
        let mut memory = [0xaau8; 4096];
        let mut writer = Writer::new(Space::of_mut(&mut memory));
        value.encode(&mut writer).unwrap();
        writer.flush();
        let bytes = writer.len();
        let head = memory[..bytes].to_vec();
        let mut reader = Reader::new(Window::from(&head[..]));
        assert_eq!(T::decode(&mut reader).unwrap(), value);
        reader.finish().unwrap();
        for short in 0..bytes {
            let mut reader = Reader::new(Window::from(&head[..short]));
            let taken = T::decode(&mut reader);
            assert!(taken.is_err(), "{short} of {bytes} bytes gave {taken:?}");
        }
        head
    }

    #[test]
    fn padding_is_zero_and_positions_are_natural() {
        let head = round_trip((1u8, 2u32, 3u16, 4u64));
        assert_eq!(head[..8], [1, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(head[8..], [3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn structures_round_trip_and_never_decode_from_fewer_bytes() {
        round_trip(String::from("falcon"));
        round_trip(vec![Some(3u16), None, Some(4)]);
        round_trip((Ok::<u8, String>(1), Err::<u8, String>("no".into())));
        round_trip(vec![vec![1u64, 2], vec![], vec![3]]);
        round_trip([vec![true, false], vec![]]);
        round_trip(Box::new((1i128, 'x', -1.5f64)));
        assert_eq!(round_trip([7u16, 8]), [7, 0, 8, 0]);
    }

    /// Arrays of plain elements are read at once. The result is the same as if they were read one by one.
    #[test]
    fn arrays_equal_their_elements_one_by_one() {
        fn both_orders<T: Value + PartialEq + core::fmt::Debug, const N: usize>(values: [T; N]) {
            fn head<T: Value, R: Representation>(values: &[T]) -> Vec<u8> {
                let mut memory = [0xaa; 8192];
                let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
                values.iter().for_each(|one| one.encode(&mut writer).unwrap());
                writer.flush();
                let bytes = writer.len();
                memory[..bytes].to_vec()
            }
            fn taken<R: Representation, A: Value>(head: &[u8]) -> Result<A, Invalid> {
                let mut reader = Reader::<R>::represented(Window::from(head));
                let value = A::decode(&mut reader)?;
                reader.finish().map(|()| value)
            }
            let native = head::<T, Native>(&values);
            assert_eq!(taken::<Native, [T; N]>(&native).as_ref(), Ok(&values));
            let swapped = head::<T, Swapped>(&values);
            assert_eq!(taken::<Swapped, [T; N]>(&swapped).as_ref(), Ok(&values));
            for short in 0..native.len() {
                assert_eq!(taken::<Native, [T; N]>(&native[..short]), Err(Invalid::Short));
            }
        }
        both_orders(core::array::from_fn::<_, 256, _>(|i| (i as i32).wrapping_mul(0x0102_0305)));
        both_orders::<_, 86>([[1i32, -2, 3]; 86]);
        both_orders([[[1u16, 2], [3, 4]], [[5, 6], [7, 8]]]);
        both_orders([true, false, true]);
        both_orders(['x', 'é']);
        both_orders([u128::MAX >> 3; 3]);
        both_orders::<u64, 0>([]);
        both_orders::<[u64; 0], 2>([[], []]);
        both_orders([vec![1u8], vec![], vec![2, 3]]);
        both_orders([String::from("a"), String::new()].map(|one| [one]));
        let bad = [1, 0, 2, 1];
        let mut reader = Reader::new(Window::from(&bad[..]));
        assert_eq!(<[[bool; 2]; 2]>::decode(&mut reader), Err(Invalid::Bits));
    }

    #[test]
    fn claimed_count_allocates_nothing() {
        let head = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
        let reader = || Reader::new(Window::from(&head[..]));
        assert_eq!(Vec::<u64>::decode(&mut reader()), Err(Invalid::Short));
        assert_eq!(Vec::<String>::decode(&mut reader()), Err(Invalid::Short));
        assert_eq!(String::decode(&mut reader()), Err(Invalid::Short));
    }

    #[test]
    fn number_of_values_without_bytes_is_limited() {
        round_trip(vec![Box::new(()), Box::new(())]);
        round_trip(vec![(); 1 << 20]);
        let head = 0xffff_ffffu32.to_ne_bytes();
        let mut reader = Reader::new(Window::from(&head[..]));
        assert_eq!(Vec::<Box<()>>::decode(&mut reader), Err(Invalid::TooLong));
        let mut reader = Reader::new(Window::from(&head[..]));
        assert_eq!(Vec::<((),)>::decode(&mut reader), Err(Invalid::TooLong));
        // The limit applies to all sequences of a head together.
        let mut head = vec![0; 1 << 10];
        head[..4].copy_from_slice(&200u32.to_ne_bytes());
        head[4..].as_chunks_mut::<4>().0.fill(65536u32.to_ne_bytes());
        let mut reader = Reader::new(Window::from(&head[..]));
        assert_eq!(Vec::<Vec<Box<()>>>::decode(&mut reader), Err(Invalid::TooLong));
        // Units need no memory, so any number of them is allowed, in both directions.
        head[4..].fill(0xff);
        let mut reader = Reader::new(Window::from(&head[..]));
        let units = Vec::<Vec<()>>::decode(&mut reader).unwrap();
        assert_eq!(units[199].len(), u32::MAX as usize);
        let mut memory = [0; 1024];
        units.encode(&mut Writer::new(Space::of_mut(&mut memory))).unwrap();
    }

    #[test]
    fn depth_is_limited_on_both_sides() {
        #[derive(Debug)]
        struct List(Option<Box<Self>>);
        impl Value for List {
            const TYPE: crate::interface::Type = crate::interface::Type::Unit;
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                self.0.encode(head)
            }
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                Option::decode(head).map(Self)
            }
        }
        let list = (0..1000).fold(List(None), |list, _| List(Some(Box::new(list))));
        let mut memory = [1u8; 4096];
        let mut writer = Writer::new(Space::of_mut(&mut memory));
        assert_eq!(list.encode(&mut writer), Err(Overflow::TooDeep));
        let memory = [1u8; 4096];
        let mut reader = Reader::new(Window::from(&memory[..]));
        assert_eq!(List::decode(&mut reader).unwrap_err(), Invalid::TooDeep);
    }

    /// The deepest allowed list of large elements fits the smallest stack of a thread. A deeper list is
    /// refused before the stack overflows.
    #[test]
    fn large_values_may_nest_less_deeply_than_small_ones() {
        #[derive(Debug)]
        struct Pages([[u64; 64]; 8], Option<Box<Self>>);
        impl Value for Pages {
            const TYPE: crate::interface::Type = crate::interface::Type::Unit;
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                self.0.encode(head)?;
                self.1.encode(head)
            }
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                Ok(Self(Value::decode(head)?, Value::decode(head)?))
            }
        }
        #[derive(Debug)]
        struct Tree([u8; 4096], Vec<Self>);
        impl Value for Tree {
            const TYPE: crate::interface::Type = crate::interface::Type::Unit;
            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                self.0.encode(head)?;
                self.1.encode(head)
            }
            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                Ok(Self(Value::decode(head)?, Value::decode(head)?))
            }
        }
        let decode = |levels: usize| {
            let page = [&[0; 4096][..], &[1], &[0; 7]].concat();
            let mut head = page.repeat(levels);
            head.extend([0; 4097]);
            let mut reader = Reader::new(Window::from(&head[..]));
            Pages::decode(&mut reader).map(|_| ())
        };
        let small = std::thread::Builder::new().stack_size(2 << 20);
        // The same test for trees in which each node has one child.
        let decode_tree = |levels: usize| {
            let page = [&[0; 4096][..], &[1, 0, 0, 0]].concat();
            let mut head = page.repeat(levels);
            head.extend([0; 4100]);
            let mut reader = Reader::new(Window::from(&head[..]));
            Tree::decode(&mut reader).map(|_| ())
        };
        small
            .spawn(move || {
                for decode in [&decode as &dyn Fn(usize) -> _, &decode_tree] {
                    assert_eq!(decode(31), Ok(()));
                    assert_eq!(decode(33), Err(Invalid::TooDeep));
                    assert_eq!(decode(120), Err(Invalid::TooDeep));
                }
            })
            .unwrap()
            .join()
            .unwrap();
    }
}
