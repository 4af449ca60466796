//! The interface `Foreign`, which has every kind of parameter and of result. Also an implementation of the
//! interface, and checks of all its procedures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use peregrine::{CallError, Executed, Kind, Lent, Out, Plain, Value, interface};

/// A plain enum. Only two of all 16-bit patterns are valid.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(u16)]
pub(crate) enum Colour {
    Red = 1,
    DeepBlue = 0x0203,
}

/// A plain structure with fields of many widths.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Sample {
    id: u64,
    value: f64,
    at: [i16; 4],
    level: u32,
    colour: Colour,
    on: bool,
    pad: u8,
}

impl Sample {
    pub(crate) fn of(number: u32) -> Self {
        let n = number as i16;
        Self {
            id: u64::from(number) << 33 | 7,
            value: f64::from(number) * 0.5,
            at: [n, -n, 1, -2],
            level: number,
            colour: if number.is_multiple_of(2) { Colour::Red } else { Colour::DeepBlue },
            on: number.is_multiple_of(3),
            pad: 0,
        }
    }
}

/// A recursive structure that is not plain.
#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) struct Person {
    name: String,
    age: u8,
    friends: Vec<Self>,
    home: Option<Box<Place>>,
}

/// An enum with a variant of each kind.
#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) enum Place {
    Nowhere,
    Named(String),
    At { sample: Sample, letter: char },
}

/// A field of each primitive type.
#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) struct Primitives {
    flag: bool,
    unsigned: (u8, u16, u32, u64, u128),
    signed: (i8, i16, i32, i64, i128),
    single: f32,
    double: f64,
    letter: char,
}

/// The error of `fail`.
#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) enum Failure {
    Call(String),
    Code(u32),
    Said { text: String },
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

/// The result of `people`.
pub(crate) type Answered = (Option<Box<Person>>, Result<u16, String>, Vec<Place>);

/// Every kind of parameter and of result, for peers in other languages.
#[interface(version = 1)]
pub(crate) trait Foreign {
    /// Does nothing.
    fn nothing(&self) -> peregrine::Result<()>;
    /// Inverts the flag, increments unsigned numbers, negates signed ones, and doubles fractions.
    #[allow(clippy::too_many_arguments)]
    fn primitives(
        &self,
        flag: bool,
        a: u8,
        b: u16,
        c: u32,
        d: u64,
        e: u128,
        f: i8,
        g: i16,
        h: i32,
        i: i64,
        j: i128,
        single: f32,
        double: f64,
        letter: char,
    ) -> peregrine::Result<Primitives>;
    /// Returns all texts in order.
    fn texts(&self, first: &str, second: String, rest: &[String])
    -> peregrine::Result<Vec<String>>;
    /// Returns the wrapping sum of each slice; for samples, the sum of all values and levels.
    fn sums(
        &self,
        bytes: &[u8],
        shorts: &[u16],
        words: &[u32],
        longs: &[u64],
        samples: &[Sample],
    ) -> peregrine::Result<(u64, u64, u64, u64, f64)>;
    /// Returns the sum of all elements plus the length of the key.
    fn lend(&self, key: &str, bytes: Lent<'_, u8>, longs: Lent<'_, u64>) -> peregrine::Result<u64>;
    /// Fills up to `count` bytes, `count / 8` samples and `count` elements of `few`; returns the number of
    /// bytes.
    fn fill(
        &self,
        count: u32,
        bytes: Out<'_, u8>,
        samples: Out<'_, Sample>,
        #[max_len(24)] few: Out<'_, u16>,
    ) -> peregrine::Result<u32>;
    /// Increments the counter; negates, increments and reverses fields of the sample; reverses and
    /// increments the values; and makes all people a year older.
    fn change(
        &self,
        counter: &mut u128,
        sample: &mut Sample,
        values: &mut [u32],
        people: &mut [Person],
    ) -> peregrine::Result<String>;
    /// Returns three values: `one` with `many` as friends, a number that depends on `place`, and `place`
    /// followed by `Nowhere`.
    fn people(
        &self,
        one: &Person,
        many: &[Person],
        place: Option<Place>,
    ) -> peregrine::Result<Answered>;
    /// Returns an error unless `code` is 0.
    fn fail(&self, code: u32, into: Out<'_, u8>) -> Result<(), Failure>;
    /// Panics.
    fn stop(&self) -> peregrine::Result<()>;
    /// Returns the bytes in reverse order, and their sum.
    fn mirror(
        &self,
        #[max_len(1 << 20)] from: &[u8],
        #[max_len(1 << 20)] into: Out<'_, u8>,
    ) -> peregrine::Result<u32>;
    /// Sleeps.
    #[idempotent]
    fn pause(&self, ms: u32) -> peregrine::Result<u32>;
    /// Returns the number of calls with this key.
    fn bump(&self, key: u64) -> peregrine::Result<u64>;
}

/// An object that implements [`Foreign`].
#[derive(Default)]
pub(crate) struct Object {
    bumped: Mutex<BTreeMap<u64, u64>>,
}

fn sum<T: Copy + Into<u64>>(all: &[T]) -> u64 {
    all.iter().fold(0, |sum, &one| sum.wrapping_add(one.into()))
}

impl Foreign for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn primitives(
        &self,
        flag: bool,
        a: u8,
        b: u16,
        c: u32,
        d: u64,
        e: u128,
        f: i8,
        g: i16,
        h: i32,
        i: i64,
        j: i128,
        single: f32,
        double: f64,
        letter: char,
    ) -> peregrine::Result<Primitives> {
        Ok(Primitives {
            flag: !flag,
            unsigned: (
                a.wrapping_add(1),
                b.wrapping_add(1),
                c.wrapping_add(1),
                d.wrapping_add(1),
                e.wrapping_add(1),
            ),
            signed: (
                f.wrapping_neg(),
                g.wrapping_neg(),
                h.wrapping_neg(),
                i.wrapping_neg(),
                j.wrapping_neg(),
            ),
            single: single * 2.0,
            double: double * 2.0,
            letter,
        })
    }

    fn texts(
        &self,
        first: &str,
        second: String,
        rest: &[String],
    ) -> peregrine::Result<Vec<String>> {
        Ok([first.to_owned(), second].into_iter().chain(rest.iter().cloned()).collect())
    }

    fn sums(
        &self,
        bytes: &[u8],
        shorts: &[u16],
        words: &[u32],
        longs: &[u64],
        samples: &[Sample],
    ) -> peregrine::Result<(u64, u64, u64, u64, f64)> {
        let samples = samples.iter().map(|one| one.value + f64::from(one.level)).sum();
        Ok((sum(bytes), sum(shorts), sum(words), sum(longs), samples))
    }

    fn lend(&self, key: &str, bytes: Lent<'_, u8>, longs: Lent<'_, u64>) -> peregrine::Result<u64> {
        let (mut a, mut b) = (vec![0; bytes.len()], vec![0; longs.len()]);
        bytes.copy_to(0, &mut a).expect("the buffer has the right length");
        longs.copy_to(0, &mut b).expect("the buffer has the right length");
        Ok(sum(&a).wrapping_add(sum(&b)).wrapping_add(key.len() as u64))
    }

    fn fill(
        &self,
        count: u32,
        mut bytes: Out<'_, u8>,
        mut samples: Out<'_, Sample>,
        mut few: Out<'_, u16>,
    ) -> peregrine::Result<u32> {
        let filled = (count as usize).min(bytes.capacity());
        bytes.put(&(0..filled).map(|i| (7 * i) as u8).collect::<Vec<_>>()).expect("fits");
        let some = (count / 8).min(samples.capacity() as u32);
        samples.put(&(0..some).map(Sample::of).collect::<Vec<_>>()).expect("fits");
        let some = (count as usize).min(few.capacity()) as u16;
        few.put(&(0..some).map(|i| i * 257).collect::<Vec<_>>()).expect("fits");
        Ok(filled as u32)
    }

    fn change(
        &self,
        counter: &mut u128,
        sample: &mut Sample,
        values: &mut [u32],
        people: &mut [Person],
    ) -> peregrine::Result<String> {
        *counter = counter.wrapping_add(1);
        sample.value = -sample.value;
        sample.level += 1;
        sample.at.reverse();
        values.reverse();
        values.iter_mut().for_each(|one| *one = one.wrapping_add(1));
        for one in people {
            one.age = one.age.wrapping_add(1);
            one.name.push('!');
        }
        Ok("changed".into())
    }

    fn people(
        &self,
        one: &Person,
        many: &[Person],
        place: Option<Place>,
    ) -> peregrine::Result<Answered> {
        let measure = match &place {
            None => Err("no place".to_owned()),
            Some(Place::Nowhere) => Ok(0),
            Some(Place::Named(name)) => Ok(name.len() as u16),
            Some(Place::At { sample, .. }) => Ok(sample.level as u16),
        };
        let one = Person { friends: many.to_vec(), ..one.clone() };
        Ok((Some(Box::new(one)), measure, place.into_iter().chain([Place::Nowhere]).collect()))
    }

    fn fail(&self, code: u32, mut into: Out<'_, u8>) -> Result<(), Failure> {
        let _ = into.put(&[1]);
        match code {
            0 => Ok(()),
            1 => Err(Failure::Code(7)),
            _ => Err(Failure::Said { text: "no".into() }),
        }
    }

    fn stop(&self) -> peregrine::Result<()> {
        panic!("stop")
    }

    fn mirror(&self, from: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<u32> {
        let turned: Vec<u8> = from.iter().rev().copied().take(into.capacity()).collect();
        into.put(&turned).expect("fits");
        Ok(sum(from) as u32)
    }

    fn pause(&self, ms: u32) -> peregrine::Result<u32> {
        std::thread::sleep(Duration::from_millis(u64::from(ms)));
        Ok(ms)
    }

    fn bump(&self, key: u64) -> peregrine::Result<u64> {
        let mut bumped = self.bumped.lock().unwrap_or_else(PoisonError::into_inner);
        let count = bumped.entry(key).or_default();
        *count += 1;
        Ok(*count)
    }
}

fn people() -> Vec<Person> {
    let bob = Person { name: "Bob".into(), age: 40, friends: vec![], home: None };
    let home = Place::At { sample: Sample::of(3), letter: 'é' };
    vec![
        Person { name: "Ada".into(), age: 36, friends: vec![bob], home: Some(Box::new(home)) },
        Person { name: "Cid".into(), age: 255, friends: vec![], home: None },
    ]
}

/// Calls the procedures of `far` and of an object in this process, and compares the results.
pub(crate) fn check(far: &impl Foreign) {
    let near = Object::default();
    far.nothing().unwrap();
    let primitives = |one: &dyn Foreign| {
        let wide = 0x0123_4567_89ab_cdef_ffff_ffff_ffff_ffff_u128;
        one.primitives(
            true,
            255,
            513,
            7,
            1 << 40,
            wide,
            -3,
            300,
            -70_000,
            1 << 50,
            -5,
            1.5,
            -2.5,
            '\u{1d11e}',
        )
    };
    assert_eq!(primitives(far).unwrap(), primitives(&near).unwrap());
    let texts = |one: &dyn Foreign| one.texts("falcon", "größ".into(), &["".into(), "x".into()]);
    assert_eq!(texts(far).unwrap(), texts(&near).unwrap());
    let samples: Vec<Sample> = (0..50).map(Sample::of).collect();
    let sums = |one: &dyn Foreign| {
        one.sums(&[1, 255], &[2, 60_000], &[u32::MAX; 1000], &[u64::MAX, 5], &samples)
    };
    assert_eq!(sums(far).unwrap(), sums(&near).unwrap());
    let lent: Vec<u8> = (0..200_000).map(|i| i as u8).collect();
    let lend =
        |one: &dyn Foreign| one.lend("key", Lent::from(&lent[..]), Lent::from(&[1 << 40, 3]));
    assert_eq!(lend(far).unwrap(), lend(&near).unwrap());
    for (count, room) in [(0, 0), (10, 100), (20_000, 30_000), (30_000, 20_000)] {
        let fill = |one: &dyn Foreign| {
            let (mut bytes, mut samples, mut few) =
                (vec![0; room], vec![Sample::of(0); 1500], vec![9; 24]);
            let mut outs =
                (Out::from(&mut bytes[..]), Out::from(&mut samples[..]), Out::from(&mut few[..]));
            let filled =
                one.fill(count, outs.0.by_ref(), outs.1.by_ref(), outs.2.by_ref()).unwrap();
            let (a, b, c) = (outs.0.filled(), outs.1.filled(), outs.2.filled());
            bytes.truncate(a);
            samples.truncate(b);
            few.truncate(c);
            (filled, bytes, samples, few)
        };
        assert!(fill(far) == fill(&near), "{count} of {room}");
    }
    let change = |one: &dyn Foreign| {
        let (mut counter, mut sample) = (u128::from(u64::MAX), Sample::of(4));
        let (mut values, mut people) = ([1, 2, 3 << 20], people());
        let text = one.change(&mut counter, &mut sample, &mut values, &mut people).unwrap();
        (text, counter, sample, values, people)
    };
    assert_eq!(change(far), change(&near));
    let places = [
        None,
        Some(Place::Nowhere),
        Some(Place::Named("falcon".into())),
        Some(Place::At { sample: Sample::of(77), letter: 'q' }),
    ];
    for place in places {
        let met = |one: &dyn Foreign| one.people(&people()[1], &people(), place.clone());
        assert_eq!(met(far).unwrap(), met(&near).unwrap());
    }
    let fail = |code| far.fail(code, Out::from(&mut [0; 4][..]));
    assert_eq!(fail(0), Ok(()));
    assert_eq!(fail(1), Err(Failure::Code(7)));
    assert_eq!(fail(2), Err(Failure::Said { text: "no".into() }));
    let stopped = far.stop().unwrap_err();
    assert_eq!((stopped.kind(), stopped.executed()), (Kind::Panicked, Executed::Maybe));
    for bytes in [0, 1, 1400, 1440, 5000, 1 << 20] {
        let from: Vec<u8> = (0..bytes).map(|i: usize| ((i * i) >> 5) as u8).collect();
        let mut into = vec![0; bytes];
        assert_eq!(far.mirror(&from, Out::from(&mut into[..])).unwrap(), sum(&from) as u32);
        assert!(into.iter().rev().eq(&from), "{bytes}");
    }
    static KEYS: AtomicU64 = AtomicU64::new(0);
    let key = KEYS.fetch_add(1, Ordering::Relaxed);
    for count in 1..=50 {
        assert_eq!(far.bump(key).unwrap(), count);
    }
}
