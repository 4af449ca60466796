//! Defines the interface by which the contract is tested, and the object that implements this interface. The
//! interface has every kind of parameter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, Lent, Out, Plain, Value, interface};

use super::{Yielding, interface_in_both_forms};
use crate::support::futures::yielded;

/// The longest time that a call may take. A call that takes longer is considered hung.
pub(super) const LONG: Duration = Duration::from_secs(20);

/// A pair of numbers without padding. Every bit pattern is a valid value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// A byte that has only three valid values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(u8)]
pub(crate) enum Colour {
    #[default]
    Red = 1,
    Green = 2,
    Blue = 40,
}

/// A plain type for which some bit patterns are not valid values.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Pixel {
    pub(crate) at: u32,
    pub(crate) colour: Colour,
    pub(crate) lit: bool,
    pub(crate) layer: u16,
}

/// A structured type: its values refer to memory outside themselves.
#[derive(Clone, Debug, Default, PartialEq, Value)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) age: u8,
    pub(crate) friends: Vec<Self>,
    pub(crate) home: Option<Box<Place>>,
}

/// An enum with a variant of each kind.
#[derive(Clone, Debug, Default, PartialEq, Value)]
pub(crate) enum Place {
    #[default]
    Nowhere,
    Named(String),
    At {
        point: Point,
        colour: Colour,
    },
}

/// A linked list.
#[derive(Clone, Debug, Default, PartialEq, Value)]
pub(crate) struct Chain {
    pub(crate) next: Option<Box<Self>>,
}

impl Chain {
    pub(crate) fn of(links: usize) -> Self {
        (0..links).fold(Self::default(), |next, _| Self { next: Some(Box::new(next)) })
    }
}

/// The error type of a procedure.
#[derive(Debug, Value)]
pub(crate) enum Fault {
    Refused { code: u32, why: String },
    Call(CallError),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// The body of an async procedure. A procedure that makes nested calls or waits has its own async function.
macro_rules! procedure {
    ($self:ident through $text:ident) => {
        through(&$self.object, $text).await
    };
    ($self:ident innermost) => {
        innermost(&$self.object).await
    };
    ($self:ident innermost_metadata) => {
        innermost_metadata(&$self.object).await
    };
    ($self:ident outlive $into:ident) => {
        outlive($self, $into).await
    };
    ($self:ident meet $callers:ident) => {
        meet(&$self.object, $callers).await
    };
    ($self:ident $method:ident $($argument:ident)*) => {
        $self.run(|object| object.$method($($argument),*)).await
    };
}

interface_in_both_forms! {
    client: Client = ContractClient | ContractAsyncClient,
    server: Object = ContractServer | ContractAsyncServer,
    async form: ContractAsync by procedure!,

    /// An interface with every kind of parameter, alone and mixed.
    #[interface(name = "contract", version = 3)]
    pub(crate) trait Contract {
        fn nothing(&self) -> peregrine::Result<()>;
        /// Returns the number of calls that have run. Only some procedures count their calls. The number
        /// shows whether a refused call was executed.
        fn ran(&self) -> peregrine::Result<u32>;
        fn numbers(&self, a: u8, b: i64, c: u128, d: f32) -> peregrine::Result<(u8, i64, u128, f32)>;
        fn letters(&self, yes: bool, letter: char) -> peregrine::Result<(bool, char)>;
        fn point(&self, point: &Point) -> peregrine::Result<Point>;
        fn pixel(&self, pixel: Pixel) -> peregrine::Result<Pixel>;
        fn person(&self, person: &Person) -> peregrine::Result<Person>;
        fn place(&self, place: Place) -> peregrine::Result<Place>;
        fn chain(&self, chain: Chain) -> peregrine::Result<Chain>;
        fn array(&self, array: &[u16; 5], pairs: [Option<u32>; 2]) -> peregrine::Result<u32>;
        fn owned(&self, text: String, values: Vec<u64>) -> peregrine::Result<(Vec<u64>, String)>;

        #[idempotent]
        fn shout(&self, text: &str) -> peregrine::Result<String>;
        fn sum(&self, values: &[u32]) -> peregrine::Result<u64>;
        fn names(&self, people: &[Person]) -> peregrine::Result<Vec<String>>;
        fn count_bytes(&self, first: Lent<'_, u8>, second: Lent<'_, Point>) -> peregrine::Result<u64>;
        fn all_in(
            &self,
            text: &str,
            a: u8,
            words: &[u16],
            lent: Lent<'_, u8>,
            people: &[Person],
            last: &[u64],
        ) -> peregrine::Result<(u64, String)>;

        fn fill(&self, count: u32, into: Out<'_, u32>) -> peregrine::Result<u32>;
        fn colours(&self, into: Out<'_, Colour>, letters: Out<'_, char>) -> peregrine::Result<()>;

        fn double(&self, value: &mut u32) -> peregrine::Result<()>;
        fn rename(&self, person: &mut Person) -> peregrine::Result<()>;
        fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
        fn invert(&self, bits: &mut [bool], colours: &mut [Colour]) -> peregrine::Result<()>;
        fn birthday(&self, people: &mut [Person], years: u8) -> peregrine::Result<()>;

        /// Has out parameters and in-out parameters, both of plain types and of structured types. Adjacent
        /// parameters differ in type, so a wrong order is noticed.
        #[expect(clippy::too_many_arguments)]
        fn mixed(
            &self,
            first: Out<'_, u8>,
            values: &mut [u16],
            total: &mut u64,
            people: &mut [Person],
            second: Out<'_, Point>,
            person: &mut Person,
            bits: &mut [bool],
        ) -> peregrine::Result<String>;

        /// Changes or fills every out and in-out parameter. Then fails if `fail` is true.
        fn fails(
            &self,
            fail: bool,
            text: &str,
            into: Out<'_, u8>,
            value: &mut u32,
            values: &mut [u32],
            people: &mut [Person],
        ) -> Result<u32, Fault>;
        fn relays(&self) -> peregrine::Result<()>;
        fn panics(&self, values: &mut [u32]) -> peregrine::Result<()>;

        fn bounded(
            &self,
            #[max_len(4)] text: &str,
            #[max_len(2 + 1)] values: &[u32],
            #[max_len(3)] both: &mut [u8],
            #[max_len(2)] lent: Lent<'_, u8>,
        ) -> peregrine::Result<()>;
        fn bounded_out(&self, #[max_len(5)] into: Out<'_, u8>) -> peregrine::Result<u64>;
        /// Copies `data` to `back`. These two buffers have the largest bounds of the interface.
        fn large(
            &self,
            #[max_len(1 << 20)] data: &[u8],
            #[max_len(1 << 20)] back: Out<'_, u8>,
        ) -> peregrine::Result<()>;
        fn repeat(&self, text: &str, times: u32) -> peregrine::Result<String>;

        /// Returns the number of the caller's process, or `None` if the procedure runs without a caller.
        fn who(&self) -> peregrine::Result<Option<u32>>;
        /// Makes a nested call of `through` to [`Object::peer`], if there is one. Returns the text with a
        /// pair of angle brackets for each peer.
        fn through(&self, text: &str) -> peregrine::Result<String>;
        /// Returns how many milliseconds the call has left, if it has a limit, and whether it is cancelled.
        fn left(&self) -> peregrine::Result<(Option<u64>, bool)>;
        /// Runs until its call is cancelled, and for 60 ms more, so that its caller has stopped waiting.
        fn outlive(&self, into: &mut u32) -> peregrine::Result<u32>;

        /// Returns a list in which `links` nodes have a next node.
        fn lengthen(&self, links: u32) -> peregrine::Result<Chain>;
        /// Makes nested calls as `through` does. Returns what the innermost procedure knows of its caller:
        /// how many milliseconds the call has left, and the processes through which the call came.
        fn innermost(&self) -> peregrine::Result<(Option<u64>, Vec<u32>)>;
        /// Returns the metadata of the call, as `key=value`.
        fn metadata(&self) -> peregrine::Result<Vec<String>>;
        /// As `metadata`, with an argument of any length.
        fn metadata_of(&self, #[max_len(1 << 20)] data: &[u8]) -> peregrine::Result<Vec<String>>;
        /// Makes three nested calls of `metadata`, of which the second passes on the metadata of this call.
        fn innermost_metadata(&self) -> peregrine::Result<Vec<Vec<String>>>;
        /// Returns when `callers` calls are inside this procedure.
        fn meet(&self, callers: u32) -> peregrine::Result<()>;
    }
}

/// The object that implements the contract.
#[derive(Default)]
pub(crate) struct Object {
    pub(super) ran: Arc<AtomicU32>,
    /// The number of calls of `outlive` and `meet` that have begun.
    pub(super) entered: Arc<AtomicU32>,
    /// The client by which [`Contract::through`] makes its nested call.
    pub(crate) peer: Option<Client>,
}

impl Contract for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn ran(&self) -> peregrine::Result<u32> {
        Ok(self.ran.load(Ordering::SeqCst))
    }

    fn numbers(&self, a: u8, b: i64, c: u128, d: f32) -> peregrine::Result<(u8, i64, u128, f32)> {
        Ok((a, b, c, d))
    }

    fn letters(&self, yes: bool, letter: char) -> peregrine::Result<(bool, char)> {
        Ok((yes, letter))
    }

    fn point(&self, point: &Point) -> peregrine::Result<Point> {
        Ok(Point { x: point.y, y: point.x })
    }

    fn pixel(&self, pixel: Pixel) -> peregrine::Result<Pixel> {
        Ok(pixel)
    }

    fn person(&self, person: &Person) -> peregrine::Result<Person> {
        Ok(person.clone())
    }

    fn place(&self, place: Place) -> peregrine::Result<Place> {
        Ok(place)
    }

    fn chain(&self, chain: Chain) -> peregrine::Result<Chain> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(chain)
    }

    fn array(&self, array: &[u16; 5], pairs: [Option<u32>; 2]) -> peregrine::Result<u32> {
        let pairs: u32 = pairs.iter().flatten().sum();
        Ok(array.iter().copied().map(u32::from).sum::<u32>() + pairs)
    }

    fn owned(&self, text: String, values: Vec<u64>) -> peregrine::Result<(Vec<u64>, String)> {
        Ok((values, text))
    }

    fn shout(&self, text: &str) -> peregrine::Result<String> {
        Ok(text.to_uppercase())
    }

    fn sum(&self, values: &[u32]) -> peregrine::Result<u64> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(values.iter().copied().map(u64::from).sum())
    }

    fn names(&self, people: &[Person]) -> peregrine::Result<Vec<String>> {
        Ok(people.iter().map(|person| person.name.clone()).collect())
    }

    fn count_bytes(&self, first: Lent<'_, u8>, second: Lent<'_, Point>) -> peregrine::Result<u64> {
        let mut bytes = Vec::new();
        first.write_to(&mut bytes).unwrap();
        let mut points = vec![Point::default(); second.len()];
        second.copy_to(0, &mut points).unwrap();
        assert!(points.iter().all(|point| point.x == 1.0 && point.y == 2.0));
        Ok((bytes.len() + size_of_val(&points[..])) as u64)
    }

    fn all_in(
        &self,
        text: &str,
        a: u8,
        words: &[u16],
        lent: Lent<'_, u8>,
        people: &[Person],
        last: &[u64],
    ) -> peregrine::Result<(u64, String)> {
        let mut bytes = vec![0; lent.len()];
        lent.copy_to(0, &mut bytes).unwrap();
        let sum = u64::from(a)
            + words.iter().copied().map(u64::from).sum::<u64>()
            + bytes.iter().copied().map(u64::from).sum::<u64>()
            + last.iter().sum::<u64>();
        let names = people.iter().map(|person| &*person.name);
        Ok((sum, names.chain([text]).collect()))
    }

    fn fill(&self, count: u32, mut into: Out<'_, u32>) -> peregrine::Result<u32> {
        for i in 0..count.min(into.capacity() as u32) {
            into.put(&[i]).unwrap();
        }
        Ok(into.remaining() as u32)
    }

    fn colours(
        &self,
        mut into: Out<'_, Colour>,
        mut letters: Out<'_, char>,
    ) -> peregrine::Result<()> {
        for colour in [Colour::Blue, Colour::Green] {
            into.put(&[colour]).unwrap();
        }
        for letter in "aß水🦅".chars() {
            letters.put(&[letter]).unwrap();
        }
        Ok(())
    }

    fn double(&self, value: &mut u32) -> peregrine::Result<()> {
        *value *= 2;
        Ok(())
    }

    fn rename(&self, person: &mut Person) -> peregrine::Result<()> {
        person.name.push_str(" the Second");
        person.home = Some(Box::new(Place::Named("here".into())));
        Ok(())
    }

    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
        values.sort_unstable();
        Ok(())
    }

    fn invert(&self, bits: &mut [bool], colours: &mut [Colour]) -> peregrine::Result<()> {
        bits.iter_mut().for_each(|bit| *bit = !*bit);
        colours.fill(Colour::Green);
        Ok(())
    }

    fn birthday(&self, people: &mut [Person], years: u8) -> peregrine::Result<()> {
        people.iter_mut().for_each(|person| person.age += years);
        Ok(())
    }

    fn mixed(
        &self,
        mut first: Out<'_, u8>,
        values: &mut [u16],
        total: &mut u64,
        people: &mut [Person],
        mut second: Out<'_, Point>,
        person: &mut Person,
        bits: &mut [bool],
    ) -> peregrine::Result<String> {
        first.put(b"first").unwrap();
        values.reverse();
        *total += values.iter().copied().map(u64::from).sum::<u64>();
        people.iter_mut().for_each(|one| one.name = "x".repeat(40));
        for i in 0..second.capacity() {
            second.put(&[Point { x: i as f64, y: 0.5 }]).unwrap();
        }
        person.age = 99;
        bits.iter_mut().for_each(|bit| *bit = !*bit);
        Ok("mixed".into())
    }

    fn fails(
        &self,
        fail: bool,
        text: &str,
        mut into: Out<'_, u8>,
        value: &mut u32,
        values: &mut [u32],
        people: &mut [Person],
    ) -> Result<u32, Fault> {
        into.put(text.as_bytes()).unwrap();
        *value += 1;
        values.fill(7);
        people.fill(Person::default());
        if fail {
            return Err(Fault::Refused { code: 404, why: text.into() });
        }
        Ok(*value)
    }

    fn relays(&self) -> peregrine::Result<()> {
        let error = CallError::new(Kind::TimedOut, Executed::No, "the disk did not turn");
        Err(error)
    }

    fn panics(&self, values: &mut [u32]) -> peregrine::Result<()> {
        values.fill(13);
        panic!("the procedure's own words: {}", values.len());
    }

    fn bounded(
        &self,
        _: &str,
        _: &[u32],
        both: &mut [u8],
        _: Lent<'_, u8>,
    ) -> peregrine::Result<()> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        both.reverse();
        Ok(())
    }

    fn bounded_out(&self, mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        while into.put(&[1]).is_ok() {}
        Ok(into.filled() as u64)
    }

    fn large(&self, data: &[u8], mut back: Out<'_, u8>) -> peregrine::Result<()> {
        back.put(data).unwrap();
        Ok(())
    }

    fn repeat(&self, text: &str, times: u32) -> peregrine::Result<String> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(text.repeat(times as usize))
    }

    fn who(&self) -> peregrine::Result<Option<u32>> {
        Ok(peregrine::caller().map(|caller| caller.process()))
    }

    fn through(&self, text: &str) -> peregrine::Result<String> {
        match &self.peer {
            Some(peer) => {
                let before = self.who()?;
                let inner = peer.through(text)?;
                assert_eq!(self.who()?, before, "a nested call leaves the caller as it was");
                Ok(format!("<{inner}>"))
            }
            None => Ok(text.into()),
        }
    }

    fn left(&self) -> peregrine::Result<(Option<u64>, bool)> {
        let caller = peregrine::caller().expect("a caller");
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok((caller.remaining().map(|left| left.as_millis() as u64), caller.is_cancelled()))
    }

    fn outlive(&self, into: &mut u32) -> peregrine::Result<u32> {
        let caller = peregrine::caller().expect("a caller");
        self.entered.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + LONG;
        while !caller.is_cancelled() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(60));
        *into += 1;
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(7)
    }

    fn lengthen(&self, links: u32) -> peregrine::Result<Chain> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(Chain::of(links as usize))
    }

    fn innermost(&self) -> peregrine::Result<(Option<u64>, Vec<u32>)> {
        match &self.peer {
            Some(peer) => peer.innermost(),
            None => Ok(peregrine::caller().map_or((None, Vec::new()), |caller| {
                (caller.remaining().map(|left| left.as_millis() as u64), caller.chain())
            })),
        }
    }

    fn metadata(&self) -> peregrine::Result<Vec<String>> {
        self.ran.fetch_add(1, Ordering::SeqCst);
        let caller = peregrine::caller().expect("a caller");
        Ok(caller.metadata().iter().map(|(key, value)| format!("{key}={value}")).collect())
    }

    fn metadata_of(&self, _: &[u8]) -> peregrine::Result<Vec<String>> {
        self.metadata()
    }

    fn innermost_metadata(&self) -> peregrine::Result<Vec<Vec<String>>> {
        let peer = self.peer.as_ref().expect("a peer");
        let caller = peregrine::caller().expect("a caller");
        let before = self.metadata()?;
        let all = [
            peer.metadata()?,
            peer.with_metadata_of(&caller)?.metadata()?,
            peer.with_metadata("own", "1")?.metadata()?,
        ];
        assert_eq!(self.metadata()?, before, "a nested call leaves the metadata as it was");
        Ok(all.into())
    }

    fn meet(&self, callers: u32) -> peregrine::Result<()> {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + LONG;
        while self.entered.load(Ordering::SeqCst) < callers {
            assert!(Instant::now() < until, "the other calls do not begin");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// Does what [`Object::through`] does, but awaits the nested call.
async fn through(object: &Object, text: &str) -> peregrine::Result<String> {
    yielded().await;
    let Some(peer) = &object.peer else { return object.through(text) };
    let before = object.who()?;
    let inner = peer.to_async().through(text).await?;
    assert_eq!(object.who()?, before, "a nested call leaves the caller as it was");
    yielded().await;
    Ok(format!("<{inner}>"))
}

/// Does what [`Object::innermost`] does, but awaits the nested call.
async fn innermost(object: &Object) -> peregrine::Result<(Option<u64>, Vec<u32>)> {
    yielded().await;
    match &object.peer {
        Some(peer) => peer.to_async().innermost().await,
        None => object.innermost(),
    }
}

/// Does what [`Object::innermost_metadata`] does, but awaits the nested calls.
async fn innermost_metadata(object: &Object) -> peregrine::Result<Vec<Vec<String>>> {
    yielded().await;
    let peer = object.peer.as_ref().expect("a peer");
    let caller = peregrine::caller().expect("a caller");
    let before = object.metadata()?;
    let all = [
        peer.to_async().metadata().await?,
        peer.to_async().with_metadata_of(&caller)?.metadata().await?,
        peer.to_async().with_metadata("own", "1")?.metadata().await?,
    ];
    assert_eq!(object.metadata()?, before, "a nested call leaves the metadata as it was");
    Ok(all.into())
}

/// Does what [`Object::meet`] does, but yields while it waits, so that the executor's thread can run other
/// procedures.
async fn meet(object: &Object, callers: u32) -> peregrine::Result<()> {
    object.entered.fetch_add(1, Ordering::SeqCst);
    let until = Instant::now() + LONG;
    while object.entered.load(Ordering::SeqCst) < callers {
        assert!(Instant::now() < until, "the other calls do not begin");
        std::thread::sleep(Duration::from_millis(1));
        yielded().await;
    }
    Ok(())
}

/// Outlives its call in one of two ways. Half of the calls wait for a future that never ends, and are dropped
/// when they are cancelled. The other half block their threads, as a blocking procedure does.
async fn outlive(yielding: &Yielding<Object>, into: &mut u32) -> peregrine::Result<u32> {
    struct Counts<'a>(&'a AtomicU32);
    impl Drop for Counts<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let object = &yielding.object;
    yielded().await;
    if yielding.begin().is_multiple_of(2) {
        let _counts = Counts(&object.ran);
        object.entered.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<()>().await;
    }
    object.outlive(into)
}
