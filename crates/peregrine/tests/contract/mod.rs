//! The contract of a call: what every path must do alike, whatever carries the bytes.
//!
//! A path's test hands [`suite`] a function that makes a client of an [`Object`] over that path.

#[allow(dead_code)] // not every test program that knows the contract has a path of its own
pub(crate) mod pressure;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::{CallError, Executed, Kind, Lent, Out, Plain, Value, interface};

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(20);

/// A pair without padding, every bit pattern of which is a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// A byte of which only three patterns are values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Plain)]
#[repr(u8)]
pub(crate) enum Colour {
    #[default]
    Red = 1,
    Green = 2,
    Blue = 40,
}

/// Plain, but not every bit pattern is a value.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Pixel {
    pub(crate) at: u32,
    pub(crate) colour: Colour,
    pub(crate) lit: bool,
    pub(crate) layer: u16,
}

/// Structured: what it holds is elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Value)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) age: u8,
    pub(crate) friends: Vec<Self>,
    pub(crate) home: Option<Box<Place>>,
}

/// A variant of each kind.
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

/// Links as deep as one wants.
#[derive(Clone, Debug, Default, PartialEq, Value)]
pub(crate) struct Chain {
    pub(crate) next: Option<Box<Self>>,
}

impl Chain {
    pub(crate) fn of(links: usize) -> Self {
        (0..links).fold(Self::default(), |next, _| Self { next: Some(Box::new(next)) })
    }
}

/// An error of the procedures' own.
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

/// Every kind of parameter, alone and mixed.
#[interface(name = "contract", version = 3)]
pub(crate) trait Contract {
    fn nothing(&self) -> peregrine::Result<()>;
    /// How many procedures ran that count: tells whether a refused call was executed.
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

    /// Out and in-out, plain and structured, in an order in which nothing fits by accident.
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

    /// Changes and fills everything, then fails if told to.
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
    /// A buffer that only an A-stack of its size can take.
    fn large(
        &self,
        #[max_len(1 << 20)] data: &[u8],
        #[max_len(1 << 20)] back: Out<'_, u8>,
    ) -> peregrine::Result<()>;
    fn repeat(&self, text: &str, times: u32) -> peregrine::Result<String>;

    /// The caller's process and whether a caller is known at all.
    fn who(&self) -> peregrine::Result<Option<u32>>;
    /// Calls the object's own peer, if it has one.
    fn through(&self, text: &str) -> peregrine::Result<String>;
    /// How many milliseconds the call has left, if it has a limit, and whether it is cancelled.
    fn left(&self) -> peregrine::Result<(Option<u64>, bool)>;
    /// Runs until it is cancelled, and then until its caller has given up.
    fn outlive(&self, into: &mut u32) -> peregrine::Result<u32>;
}

/// A client of a binding that a test has made by itself.
#[allow(dead_code)] // each test program uses its own part of this
pub(crate) const fn over(binding: peregrine::Binding) -> ContractClient {
    ContractClient { binding }
}

/// The object behind the contract.
#[derive(Default)]
pub(crate) struct Object {
    ran: Arc<AtomicU32>,
    /// Where [`Contract::through`] goes on.
    pub(crate) peer: Option<ContractClient>,
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
        let until = Instant::now() + LONG;
        while !caller.is_cancelled() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        *into += 1;
        self.ran.fetch_add(1, Ordering::SeqCst);
        Ok(7)
    }
}

/// How a test reaches an object over its path.
pub(crate) type Make<'a> = &'a dyn Fn(Object) -> ContractClient;

/// Everything that holds on every path. Needs A-stacks of the default size.
#[allow(dead_code)] // as above
pub(crate) fn suite(make: Make<'_>) {
    suite_of_one_call(make);
    callers_and_nesting(make);
}

/// The same without procedures that call their own process.
pub(crate) fn suite_of_one_call(make: Make<'_>) {
    values(make);
    depth_is_bounded(make);
    buffers_in(make);
    buffers_out(make);
    in_out(make);
    all_directions_at_once(make);
    errors_of_the_procedure(make);
    panics_are_caught(make);
    bounds_hold(make);
    messages_that_do_not_fit(make);
    many_threads(make);
    limits_hold(make);
}

/// What holds however many bridges lie between: those tell errors of calls as their own.
#[allow(dead_code)] // as above
pub(crate) fn suite_of_a_bridge(make: Make<'_>) {
    values(make);
    buffers_in(make);
    buffers_out(make);
    in_out(make);
    all_directions_at_once(make);
    errors_of_the_procedure(make);
    bounds_hold(make);
    many_threads(make);
}

fn person(name: &str) -> Person {
    Person {
        name: name.into(),
        age: 40,
        friends: vec![Person::default()],
        home: Some(Box::new(Place::At {
            point: Point { x: -0.5, y: 2e300 },
            colour: Colour::Blue,
        })),
    }
}

fn values(make: Make<'_>) {
    let client = make(Object::default());
    client.nothing().unwrap();
    client.binding().ping().unwrap();
    assert!(client.is_alive());
    let numbers = (255, i64::MIN, u128::MAX - 1, -1.5);
    assert_eq!(client.numbers(255, i64::MIN, u128::MAX - 1, -1.5).unwrap(), numbers);
    assert_eq!(client.letters(true, '🦅').unwrap(), (true, '🦅'));
    assert_eq!(client.letters(false, '\0').unwrap(), (false, '\0'));
    let point = client.point(&Point { x: 1.0, y: 2.0 }).unwrap();
    assert_eq!(point, Point { x: 2.0, y: 1.0 });
    let pixel = Pixel { at: 7, colour: Colour::Green, lit: true, layer: 3 };
    assert_eq!(client.pixel(pixel).unwrap(), pixel);
    for one in [person(""), person("Ada ✈ Löwe"), Person::default()] {
        assert_eq!(client.person(&one).unwrap(), one);
    }
    for place in [Place::Nowhere, Place::Named("Ø".into())] {
        assert_eq!(client.place(place.clone()).unwrap(), place);
    }
    assert_eq!(client.array(&[1, 2, 3, 4, 5], [Some(10), None]).unwrap(), 25);
    let values = vec![u64::MAX, 0, 1];
    let owned = client.owned("text".into(), values.clone()).unwrap();
    assert_eq!(owned, (values, "text".into()));
    assert_eq!(client.owned(String::new(), vec![]).unwrap(), (vec![], String::new()));
}

fn depth_is_bounded(make: Make<'_>) {
    let client = make(Object::default());
    // Each link is an option and a box.
    let deepest = Chain::of(128);
    assert_eq!(client.chain(deepest.clone()).unwrap(), deepest);
    let error = client.chain(Chain::of(129)).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
    assert_eq!(client.ran().unwrap(), 1);
}

fn buffers_in(make: Make<'_>) {
    let client = make(Object::default());
    for text in ["", "a", "grüße, 世界", &"x".repeat(5000)] {
        assert_eq!(client.shout(text).unwrap(), text.to_uppercase());
    }
    for length in [0, 1, 3, 4, 5, 1000] {
        let values: Vec<u32> = (0..length).collect();
        let sum = values.iter().copied().map(u64::from).sum::<u64>();
        assert_eq!(client.sum(&values).unwrap(), sum);
    }
    let people: Vec<_> = ["a", "", "ccc"].map(person).into();
    assert_eq!(client.names(&people).unwrap(), ["a", "", "ccc"]);
    assert!(client.names(&[]).unwrap().is_empty());
    for (bytes, points) in [(0, 0), (1, 0), (0, 1), (17, 3), (4096, 2)] {
        let (first, second) = (vec![9; bytes], vec![Point { x: 1.0, y: 2.0 }; points]);
        let counted = client.count_bytes(Lent::from(&first[..]), Lent::from(&second[..]));
        assert_eq!(counted.unwrap(), (bytes + 16 * points) as u64);
    }
    // Lengths that leave no block aligned by itself, and empty blocks among them.
    for (text, words, lent, people, last) in [
        ("text", 3, 5, 2, 1),
        ("", 0, 0, 0, 0),
        ("odd", 0, 1, 1, 0),
        ("", 7, 0, 3, 2),
        ("x", 1, 16, 0, 5),
    ] {
        let (words, lent, last) = (vec![2u16; words], vec![3u8; lent], vec![5u64; last]);
        let people = vec![person("p"); people];
        let sum = 1 + 2 * words.len() + 3 * lent.len() + 5 * last.len();
        let all = client.all_in(text, 1, &words, Lent::from(&lent[..]), &people, &last);
        let names = "p".repeat(people.len()) + text;
        assert_eq!(all.unwrap(), (sum as u64, names));
    }
}

fn buffers_out(make: Make<'_>) {
    let client = make(Object::default());
    for (capacity, count) in [(0, 0), (0, 5), (1, 1), (5, 3), (7, 7), (1000, 999)] {
        let mut buffer = vec![u32::MAX; capacity];
        let mut out = Out::from(&mut buffer[..]);
        let remaining = client.fill(count, out.by_ref()).unwrap();
        let filled = capacity.min(count as usize);
        assert_eq!((out.filled(), remaining as usize), (filled, capacity - filled));
        assert!(buffer[..filled].iter().copied().eq(0..filled as u32));
        assert!(buffer[filled..].iter().all(|&rest| rest == u32::MAX));

        let mut vec = Vec::with_capacity(capacity);
        vec.extend(std::iter::repeat_n(9, capacity / 2));
        client.fill(count, Out::from(&mut vec)).unwrap();
        assert!(vec.iter().copied().eq(0..vec.len() as u32));
        assert!(vec.len() >= filled);
    }
    let (mut colours, mut letters) = (Vec::with_capacity(5), ['_'; 6]);
    client.colours(Out::from(&mut colours), Out::from(&mut letters)).unwrap();
    assert_eq!(colours, [Colour::Blue, Colour::Green]);
    assert_eq!(letters, ['a', 'ß', '水', '🦅', '_', '_']);
}

fn in_out(make: Make<'_>) {
    let client = make(Object::default());
    let mut value = 21;
    client.double(&mut value).unwrap();
    assert_eq!(value, 42);
    let mut someone = person("Elizabeth");
    client.rename(&mut someone).unwrap();
    assert_eq!(someone.name, "Elizabeth the Second");
    assert_eq!(someone.home.as_deref(), Some(&Place::Named("here".into())));
    for length in [0, 1, 2, 999] {
        let mut values: Vec<u64> = (0..length).rev().collect();
        client.sort(&mut values).unwrap();
        assert!(values.iter().copied().eq(0..length));
    }
    for length in [0, 1, 3, 17] {
        let (mut bits, mut colours) = (vec![true; length], vec![Colour::Red; length + 2]);
        bits.iter_mut().step_by(2).for_each(|bit| *bit = false);
        client.invert(&mut bits, &mut colours).unwrap();
        assert!(bits.iter().enumerate().all(|(i, &bit)| bit == (i % 2 == 0)));
        assert!(colours.iter().all(|&colour| colour == Colour::Green));
    }
    for length in [0, 1, 5] {
        let mut people = vec![person("x"); length];
        client.birthday(&mut people, 2).unwrap();
        assert!(people.iter().all(|one| one.age == 42 && one.name == "x"));
    }
}

fn all_directions_at_once(make: Make<'_>) {
    let client = make(Object::default());
    for (bytes, words, many, points, flags) in [
        (5, 0, 0, 0, 0),
        (5, 3, 2, 0, 3),
        (64, 1, 0, 3, 17),
        (17, 333, 3, 5, 1),
        (4000, 1000, 1, 100, 1000),
    ] {
        let mut first = vec![0; bytes];
        let mut values: Vec<u16> = (0..words).collect();
        let mut total = 1;
        let mut people = vec![person("p"); many];
        let mut second = vec![Point::default(); points];
        let mut someone = person("someone");
        let mut bits = vec![false; flags];
        let mut out = Out::from(&mut first[..]);
        let text = client
            .mixed(
                out.by_ref(),
                &mut values,
                &mut total,
                &mut people,
                Out::from(&mut second[..]),
                &mut someone,
                &mut bits,
            )
            .unwrap();
        assert_eq!((&*text, out.filled()), ("mixed", 5));
        assert_eq!(&first[..5], b"first");
        assert!(values.iter().copied().eq((0..words).rev()));
        assert_eq!(total, 1 + (0..words).map(u64::from).sum::<u64>());
        assert!(people.iter().all(|one| one.name.len() == 40 && one.age == 40));
        assert!((0..points).all(|i| second[i] == Point { x: i as f64, y: 0.5 }));
        assert_eq!((someone.age, &*someone.name), (99, "someone"));
        assert!(bits.iter().all(|&bit| bit));
    }
}

fn errors_of_the_procedure(make: Make<'_>) {
    let client = make(Object::default());
    let (mut buffer, mut value, mut values) = ([0; 8], 1, [1; 3]);
    let mut people = [person("p")];
    let mut call = |fail, text| {
        let out = Out::from(&mut buffer);
        let result = client.fails(fail, text, out, &mut value, &mut values, &mut people);
        (result, value, people[0].name.len())
    };
    match call(true, "why") {
        (Err(Fault::Refused { code: 404, why }), 1, 1) => assert_eq!(why, "why"),
        other => panic!("{other:?}: an error, and nothing assigned"),
    }
    assert!(matches!(call(false, "fine"), (Ok(2), 2, 0)));
    assert_eq!((&buffer[..4], values), (&b"fine"[..], [7; 3]));

    // A call that fails becomes the method's own error.
    let long = "x".repeat(2 << 20);
    let result = client.fails(false, &long, Out::from(&mut buffer), &mut 1, &mut [], &mut []);
    match result {
        Err(Fault::Call(error)) => {
            assert_eq!((error.kind(), error.procedure()), (Kind::TooLarge, "fails"));
        }
        other => panic!("{other:?}: a call error"),
    }
    let error = client.relays().unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Relayed, Executed::Maybe));
    assert!(error.to_string().contains("the disk did not turn"), "{error}");
}

fn panics_are_caught(make: Make<'_>) {
    let client = make(Object::default());
    for length in [0, 3, 100] {
        let mut values = vec![1; length];
        let error = client.panics(&mut values).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
        assert!(error.to_string().contains(&format!("own words: {length}")), "{error}");
        client.nothing().unwrap();
    }
}

/// The kind of an error that says that nothing ran.
fn refused<T: std::fmt::Debug>(result: peregrine::Result<T>) -> Kind {
    let error = result.unwrap_err();
    assert_eq!(error.executed(), Executed::No, "{error}");
    error.kind()
}

fn bounds_hold(make: Make<'_>) {
    let client = make(Object::default());
    let mut both = [1, 2, 3];
    let bounded = |text: &str, values: &[u32], both: &mut [u8], lent: &[u8]| {
        client.bounded(text, values, both, Lent::from(lent))
    };
    bounded("four", &[1, 2, 3], &mut both, &[1, 2]).unwrap();
    assert_eq!((both, client.ran().unwrap()), ([3, 2, 1], 1));
    assert_eq!(refused(bounded("fifth", &[], &mut [], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[1; 4], &mut [], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[], &mut [1; 4], &[])), Kind::TooLarge);
    assert_eq!(refused(bounded("", &[], &mut [], &[1; 3])), Kind::TooLarge);
    assert_eq!(client.ran().unwrap(), 1);
    let mut buffer = [0; 9];
    let mut out = Out::from(&mut buffer);
    assert_eq!(client.bounded_out(out.by_ref()).unwrap(), 5);
    assert_eq!(out.filled(), 5);
    assert_eq!(buffer, [1, 1, 1, 1, 1, 0, 0, 0, 0]);
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 7) as u8).collect();
    let mut back = vec![0; 1 << 20];
    client.large(&data, Out::from(&mut back[..])).unwrap();
    assert!(data == back, "the largest buffer travels both ways");
}

/// The interface's largest bounded procedure decides the size of an A-stack: twice that is too
/// much for any.
fn messages_that_do_not_fit(make: Make<'_>) {
    let client = make(Object::default());
    let long = vec![1u32; 1 << 20];
    assert_eq!(refused(client.sum(&long)), Kind::TooLarge);
    assert_eq!(refused(client.shout(&"x".repeat(4 << 20))), Kind::TooLarge);
    let mut buffer = vec![0; 1 << 20];
    assert_eq!(refused(client.fill(1, Out::from(&mut buffer[..]))), Kind::TooLarge);
    assert_eq!(client.ran().unwrap(), 0);
    let error = client.repeat(&"x".repeat(1024), 4096).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::Maybe));
    assert_eq!(client.ran().unwrap(), 1);
    client.nothing().unwrap();
}

/// A limit means the same on every path, also within one process: no call begins after it, and none
/// returns a result after it.
fn limits_hold(make: Make<'_>) {
    let client = make(Object::default());
    assert_eq!(client.left().unwrap(), (None, false));
    let (left, cancelled) = client.with_timeout(LONG).left().unwrap();
    let most = LONG.as_millis() as u64;
    assert!(left.is_some_and(|left| left > most / 2 && left <= most), "{left:?}");
    assert!(!cancelled);
    assert_eq!(client.ran().unwrap(), 2);
    assert_eq!(refused(client.with_timeout(Duration::ZERO).left()), Kind::TimedOut);
    assert_eq!(client.ran().unwrap(), 2);
    for round in 1..=2 {
        let mut value = 5;
        let limit = Duration::from_millis(150);
        let error = client.with_timeout(limit).outlive(&mut value).unwrap_err();
        let said = (error.kind(), error.executed());
        assert_eq!(said, (Kind::TimedOut, Executed::Maybe), "{error}");
        assert_eq!(value, 5, "nothing is assigned by a call that failed");
        let until = Instant::now() + LONG;
        while client.ran().unwrap() < 2 + round {
            assert!(Instant::now() < until, "the procedure did not learn that it is cancelled");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn callers_and_nesting(make: Make<'_>) {
    let inner = make(Object::default());
    assert!(inner.who().unwrap().is_some());
    assert!(peregrine::caller().is_none());
    let middle = make(Object { peer: Some(inner.clone()), ..Object::default() });
    let outer = make(Object { peer: Some(middle), ..Object::default() });
    assert_eq!(outer.through("falcon").unwrap(), "<<falcon>>");
    // The same code runs on an object and on a client.
    let both: [&dyn Contract; 2] = [&Object::default(), &inner];
    assert!(both.iter().all(|one| one.shout("a").unwrap() == "A"));
}

fn many_threads(make: Make<'_>) {
    let client = make(Object::default());
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..50 {
                    let mut values: Vec<u64> = (0..round).map(|i| (i * 7 + thread) % 31).collect();
                    let mut sorted = values.clone();
                    sorted.sort_unstable();
                    client.sort(&mut values).unwrap();
                    assert_eq!(values, sorted);
                    let text = format!("thread {thread} round {round}");
                    assert_eq!(client.shout(&text).unwrap(), text.to_uppercase());
                }
            });
        }
    });
}
