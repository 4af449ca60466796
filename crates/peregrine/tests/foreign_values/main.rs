//! Tests how values become bytes in XDR and Courier. A slow encoder in this file, which shares no code with
//! the library, makes the expected bytes. Hostile bytes are refused without a panic, in bounded memory.

mod interpreted;

use peregrine::foreign::{
    ByteString, Cells, Courier, Foreign, Input, Invalid, Output, Overflow, Reports, Xdr,
    from_bytes, to_bytes,
};
use peregrine::limits::{DEPTH_MAX, LIST_NODES_MAX};
use peregrine::{CallError, Value};
use proptest::prelude::*;

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
enum Kind {
    Text = 0,
    Data = 1,
    Exec = 2,
    Large = 70_000,
    Negative = -5,
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
struct Numbers {
    a: i32,
    b: (u32, i16),
    c: [u16; 3],
    kind: Kind,
    yes: bool,
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
#[foreign(switch = i32)]
enum Union {
    #[foreign(case = 0)]
    Nothing,
    #[foreign(case = -1)]
    Wide { hyper: i64, real: f64 },
    #[foreign(case = 7)]
    Names(#[foreign(max = 3)] Vec<String>),
    #[foreign(default)]
    Other(i32, u8),
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
struct All {
    numbers: Numbers,
    small: (i8, u8, i64, u64),
    real: (f32, f64),
    fixed: [u8; 5],
    #[foreign(max = 9)]
    opaque: Vec<u8>,
    text: String,
    #[foreign(max = 6)]
    bytes: ByteString,
    unions: Vec<Union>,
    maybe: Option<Box<Numbers>>,
    pairs: Vec<[i16; 2]>,
    rows: [Vec<u64>; 2],
    floats: Vec<f32>,
    nothing: (),
}

/// A record of types that both XDR and Courier have.
#[derive(Clone, Debug, PartialEq, Value, Foreign)]
struct Record {
    cardinal: u16,
    integer: i16,
    long: (u32, i32),
    flag: bool,
    words: Vec<u16>,
    array: [i32; 2],
    text: String,
    #[foreign(max = 6)]
    bytes: ByteString,
    shade: Shade,
    choice: Vec<Choice>,
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
enum Shade {
    Dark = 3,
    Light = 0xffff,
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
#[foreign(switch = Shade)]
enum Choice {
    #[foreign(case = Shade::Dark)]
    Dark { depth: u32 },
    #[foreign(case = 0xffff)]
    Light(Vec<Self>),
}

#[derive(Debug, PartialEq, Value, Foreign)]
struct Node {
    value: u32,
    #[list]
    next: Option<Box<Self>>,
}

#[derive(Debug, PartialEq, Value, Foreign)]
struct ShortNode {
    value: u16,
    next: Option<Box<Self>>,
}

/// A stream of segments: Courier's idiom for sequences of any length.
#[derive(Debug, PartialEq, Value, Foreign)]
enum StreamOf<T> {
    #[foreign(case = 0)]
    Next(Vec<T>, Box<Self>),
    #[foreign(case = 1)]
    Last(Vec<T>),
}

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
struct Tree {
    children: Vec<Self>,
    best: Option<Box<Self>>,
}

/// Two types that contain each other.
#[derive(Clone, Debug, PartialEq, Value, Foreign)]
#[foreign(xdr)]
struct Even(u64, Option<Box<Odd>>);

#[derive(Clone, Debug, PartialEq, Value, Foreign)]
#[foreign(xdr)]
struct Odd(Vec<Even>);

/// An independent, slow encoder. `cell` is the size of a cell in bytes.
struct Slow {
    cell: usize,
    bytes: Vec<u8>,
}

impl Slow {
    fn wide(&mut self, value: i128, bytes: usize) -> &mut Self {
        for i in (0..bytes).rev() {
            self.bytes.push((value >> (8 * i)) as u8);
        }
        self
    }
    fn cell(&mut self, value: i128) -> &mut Self {
        self.wide(value, self.cell)
    }
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend(bytes);
        while !self.bytes.len().is_multiple_of(self.cell) {
            self.bytes.push(0);
        }
        self
    }
    fn counted(&mut self, bytes: &[u8]) -> &mut Self {
        self.cell(bytes.len() as i128).raw(bytes)
    }
    fn numbers(&mut self, value: &Numbers) -> &mut Self {
        let kind = match value.kind {
            Kind::Text => 0,
            Kind::Data => 1,
            Kind::Exec => 2,
            Kind::Large => 70_000,
            Kind::Negative => -5,
        };
        self.wide(value.a.into(), 4).wide(value.b.0.into(), 4).cell(value.b.1.into());
        for one in &value.c {
            self.cell((*one).into());
        }
        self.cell(kind).cell(value.yes.into())
    }
    fn union(&mut self, value: &Union) {
        match value {
            Union::Nothing => self.cell(0),
            Union::Wide { hyper, real } => {
                self.cell(-1).wide((*hyper).into(), 8).wide(real.to_bits().into(), 8)
            }
            Union::Names(names) => {
                self.cell(7).cell(names.len() as i128);
                for name in names {
                    self.counted(name.as_bytes());
                }
                self
            }
            Union::Other(number, byte) => self.cell((*number).into()).cell((*byte).into()),
        };
    }
    fn all(value: &All) -> Vec<u8> {
        let mut to = Self { cell: 4, bytes: Vec::new() };
        to.numbers(&value.numbers);
        to.cell(value.small.0.into()).cell(value.small.1.into());
        to.wide(value.small.2.into(), 8).wide(value.small.3.into(), 8);
        to.wide(value.real.0.to_bits().into(), 4).wide(value.real.1.to_bits().into(), 8);
        to.raw(&value.fixed).counted(&value.opaque).counted(value.text.as_bytes());
        to.counted(&value.bytes).cell(value.unions.len() as i128);
        value.unions.iter().for_each(|one| to.union(one));
        to.cell(value.maybe.is_some().into());
        if let Some(one) = &value.maybe {
            to.numbers(one);
        }
        to.cell(value.pairs.len() as i128);
        for one in value.pairs.as_flattened() {
            to.cell((*one).into());
        }
        for row in &value.rows {
            to.cell(row.len() as i128);
            for one in row {
                to.wide((*one).into(), 8);
            }
        }
        to.cell(value.floats.len() as i128);
        for one in &value.floats {
            to.wide(one.to_bits().into(), 4);
        }
        to.bytes
    }
    fn choice(&mut self, value: &Choice) {
        match value {
            Choice::Dark { depth } => {
                self.cell(3).wide((*depth).into(), 4);
            }
            Choice::Light(all) => {
                self.cell(0xffff).cell(all.len() as i128);
                all.iter().for_each(|one| self.choice(one));
            }
        }
    }
    fn record(cell: usize, value: &Record) -> Vec<u8> {
        let mut to = Self { cell, bytes: Vec::new() };
        to.cell(value.cardinal.into()).cell(value.integer.into());
        to.wide(value.long.0.into(), 4).wide(value.long.1.into(), 4).cell(value.flag.into());
        to.cell(value.words.len() as i128);
        for one in &value.words {
            to.cell((*one).into());
        }
        for one in &value.array {
            to.wide((*one).into(), 4);
        }
        to.counted(value.text.as_bytes()).counted(&value.bytes);
        to.cell(if value.shade == Shade::Dark { 3 } else { 0xffff });
        to.cell(value.choice.len() as i128);
        value.choice.iter().for_each(|one| to.choice(one));
        to.bytes
    }
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let kind = prop_oneof![
        Just(Kind::Text),
        Just(Kind::Data),
        Just(Kind::Exec),
        Just(Kind::Large),
        Just(Kind::Negative)
    ];
    (any::<i32>(), any::<(u32, i16)>(), any::<[u16; 3]>(), kind, any::<bool>())
        .prop_map(|(a, b, c, kind, yes)| Numbers { a, b, c, kind, yes })
}

fn union() -> impl Strategy<Value = Union> {
    prop_oneof![
        Just(Union::Nothing),
        (any::<i64>(), -1e9..1e9).prop_map(|(hyper, real)| Union::Wide { hyper, real }),
        prop::collection::vec(".{0,5}", 0..=3).prop_map(Union::Names),
        (8..i32::MAX, any::<u8>()).prop_map(|(number, byte)| Union::Other(number, byte)),
    ]
}

fn all() -> impl Strategy<Value = All> {
    use prop::collection::vec;
    let numbers = (numbers(), any::<(i8, u8, i64, u64)>(), (-9f32..9f32, -1e9..1e9));
    let bytes = (any::<[u8; 5]>(), vec(any::<u8>(), 0..10), ".{0,9}", vec(any::<u8>(), 0..7));
    let more = (
        vec(union(), 0..4),
        prop::option::of(self::numbers().prop_map(Box::new)),
        vec(any::<[i16; 2]>(), 0..4),
        [vec(any::<u64>(), 0..4), vec(any::<u64>(), 0..4)],
        vec(-9f32..9f32, 0..99),
    );
    (numbers, bytes, more).prop_map(|((numbers, small, real), bytes, more)| All {
        numbers,
        small,
        real,
        fixed: bytes.0,
        opaque: bytes.1,
        text: bytes.2,
        bytes: bytes.3.into(),
        unions: more.0,
        maybe: more.1,
        pairs: more.2,
        rows: more.3,
        floats: more.4,
        nothing: (),
    })
}

fn choice() -> impl Strategy<Value = Choice> {
    let leaf = any::<u32>().prop_map(|depth| Choice::Dark { depth });
    leaf.prop_recursive(4, 20, 4, |inner| {
        prop::collection::vec(inner, 0..4).prop_map(Choice::Light)
    })
}

fn record() -> impl Strategy<Value = Record> {
    use prop::collection::vec;
    let numbers = any::<(u16, i16, u32, i32, bool)>();
    let shade = prop_oneof![Just(Shade::Dark), Just(Shade::Light)];
    let more = (vec(any::<u16>(), 0..99), any::<[i32; 2]>(), ".{0,9}", vec(any::<u8>(), 0..7));
    (numbers, more, shade, vec(choice(), 0..4)).prop_map(|(numbers, more, shade, choice)| Record {
        cardinal: numbers.0,
        integer: numbers.1,
        long: (numbers.2, numbers.3),
        flag: numbers.4,
        words: more.0,
        array: more.1,
        text: more.2,
        bytes: more.3.into(),
        shade,
        choice,
    })
}

/// Checks the bytes of a value, and that the value cannot be read from fewer or more bytes.
fn holds<R: Cells, T: Foreign<R> + PartialEq + std::fmt::Debug>(value: &T, bytes: &[u8]) {
    assert_eq!(to_bytes::<R>(value).expect("a value within all limits"), bytes);
    assert!(T::LEAST <= bytes.len());
    assert_eq!(from_bytes::<R, T>(bytes).as_ref(), Ok(value));
    for short in 0..bytes.len() {
        assert!(from_bytes::<R, T>(&bytes[..short]).is_err(), "{short} of {} bytes", bytes.len());
        let mut memory = vec![0xaa; short];
        assert_eq!(value.put(&mut Output::<R>::new(&mut memory)), Err(Overflow::Full));
    }
    let long = [bytes, &[0; 4][..R::CELL]].concat();
    assert_eq!(from_bytes::<R, T>(&long), Err(Invalid::Long));
}

/// Flips some bits of a copy of `bytes`, and reads a value from the copy. If the changed bytes are accepted,
/// checks that the value is written, and is then read again as the same value.
fn survives<R: Cells, T: Foreign<R> + std::fmt::Debug>(bytes: &[u8], flips: &[(usize, u8)]) {
    let mut bytes = bytes.to_vec();
    for (at, mask) in flips {
        let at = at % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= mask;
        }
    }
    if let Ok(value) = from_bytes::<R, T>(&bytes) {
        let again = to_bytes::<R>(&value).expect("a value that was taken can be put");
        assert_eq!(again.len(), bytes.len());
        let taken = from_bytes::<R, T>(&again).expect("bytes that were written can be taken");
        assert_eq!(format!("{taken:?}"), format!("{value:?}"));
    }
}

proptest! {
    #[test]
    fn bytes_are_those_of_the_slow_encoder(all in all(), record in record()) {
        holds::<Xdr, _>(&all, &Slow::all(&all));
        holds::<Xdr, _>(&record, &Slow::record(4, &record));
        holds::<Courier, _>(&record, &Slow::record(2, &record));
    }

    #[test]
    fn changed_bytes_do_no_harm(
        all in all(),
        record in record(),
        flips in prop::collection::vec(any::<(usize, u8)>(), 1..5),
    ) {
        survives::<Xdr, All>(&Slow::all(&all), &flips);
        survives::<Xdr, Record>(&Slow::record(4, &record), &flips);
        survives::<Courier, Record>(&Slow::record(2, &record), &flips);
    }

    #[test]
    fn any_bytes_do_no_harm(bytes in prop::collection::vec(0u8..4, 0..200)) {
        survives::<Xdr, All>(&bytes, &[]);
        survives::<Courier, Record>(&bytes, &[]);
        survives::<Xdr, Vec<Union>>(&bytes, &[]);
        survives::<Xdr, Node>(&bytes, &[]);
        survives::<Courier, StreamOf<u16>>(&bytes, &[]);
        survives::<Xdr, Tree>(&bytes, &[]);
        survives::<Xdr, Even>(&bytes, &[]);
        survives::<Xdr, Vec<Vec<Vec<()>>>>(&bytes, &[]);
    }
}

#[test]
fn counting_needs_no_memory_and_agrees_with_writing() {
    let values = (vec![7u32; 100], String::from("abc"), Some(Box::new(3i64)));
    let mut counted = Output::<Xdr>::counting(usize::MAX);
    values.put(&mut counted).unwrap();
    assert_eq!(counted.len(), 4 + 400 + 8 + 4 + 8);
    let mut limited = Output::<Xdr>::counting(423);
    assert_eq!(values.put(&mut limited), Err(Overflow::Full));
    let mut memory = [0; 424];
    let mut written = Output::<Xdr>::new(&mut memory);
    assert!(written.is_empty());
    values.put(&mut written).unwrap();
    assert_eq!(written.len(), 424);
    assert_eq!(0u16.put(&mut written), Err(Overflow::Full));
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    for cell in [0x7fff, -0x8000i32] {
        assert_eq!(from_bytes::<Xdr, i16>(&cell.to_be_bytes()), Ok(cell as i16));
    }
    for cell in [0x8000, -0x8001i32] {
        assert_eq!(from_bytes::<Xdr, i16>(&cell.to_be_bytes()), Err(Invalid::Bits));
    }
    assert_eq!(from_bytes::<Xdr, u16>(&[0, 1, 0, 0]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Xdr, i8>(&[0, 0, 0, 0x80]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Xdr, i8>(&[0xff, 0xff, 0xff, 0x80]), Ok(-128));
    assert_eq!(from_bytes::<Xdr, u8>(&[0, 0, 1, 0]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Xdr, bool>(&[0, 0, 0, 2]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Courier, bool>(&[1, 0]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Xdr, Kind>(&[0, 0, 0, 3]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Courier, Choice>(&[0, 4]), Err(Invalid::Bits));
    assert_eq!(from_bytes::<Xdr, String>(&[0, 0, 0, 1, 0xff, 0, 0, 0]), Err(Invalid::Utf8));
}

#[test]
fn padding_is_ignored_on_arrival() {
    assert_eq!(from_bytes::<Xdr, [u8; 1]>(&[7, 1, 2, 3]), Ok([7]));
    assert_eq!(from_bytes::<Courier, String>(&[0, 1, b'a', 9]), Ok("a".into()));
}

#[test]
fn default_variant_cannot_have_the_number_of_another_one() {
    assert_eq!(to_bytes::<Xdr>(&Union::Other(7, 1)), Err(Overflow::Case));
    assert_eq!(to_bytes::<Xdr>(&Union::Other(8, 1)).unwrap(), [0, 0, 0, 8, 0, 0, 0, 1]);
}

#[test]
fn fields_may_have_the_names_of_variables_in_the_generated_code() {
    #[derive(Clone, Debug, PartialEq, Foreign, Value)]
    struct Fixed {
        cells: u16,
        to: u16,
        from: u16,
    }
    #[derive(Clone, Debug, PartialEq, Foreign, Value)]
    struct List {
        to: Vec<u16>,
        from: Fixed,
        node: u16,
        nodes: u16,
        own: u16,
        before: u16,
        list: u16,
        head: u16,
        case: u16,
        next: Option<Box<Self>>,
    }
    let from = Fixed { cells: 1, to: 2, from: 3 };
    let one = List {
        to: vec![4],
        from,
        node: 5,
        nodes: 6,
        own: 7,
        before: 8,
        list: 9,
        head: 10,
        case: 11,
        next: None,
    };
    let two = List { next: Some(Box::new(one.clone())), ..one };
    let bytes = to_bytes::<Xdr>(&two).unwrap();
    assert_eq!(from_bytes::<Xdr, List>(&bytes), Ok(two));
}

#[test]
fn max_is_checked_in_both_directions() {
    #[derive(Debug, PartialEq, Foreign)]
    struct Bounded(#[foreign(max = 2)] Vec<u16>, #[foreign(max = LONGEST)] String);
    const LONGEST: u32 = 3;
    let fits = Bounded(vec![1, 2], "abc".into());
    holds::<Courier, _>(&fits, &[0, 2, 0, 1, 0, 2, 0, 3, b'a', b'b', b'c', 0]);
    let long = [Bounded(vec![1; 3], "".into()), Bounded(vec![], "abcd".into())];
    for long in &long {
        assert_eq!(to_bytes::<Courier>(long), Err(Overflow::TooLong));
        assert_eq!(to_bytes::<Xdr>(long), Err(Overflow::TooLong));
    }
    let bytes = [0, 3, 0, 1, 0, 1, 0, 1, 0, 0];
    assert_eq!(from_bytes::<Courier, Bounded>(&bytes), Err(Invalid::TooLong));
    assert_eq!(from_bytes::<Courier, Bounded>(&[0, 0, 0, 4]), Err(Invalid::TooLong));
}

#[test]
fn courier_counts_have_16_bits() {
    let longest = vec![1u16; 65535];
    let bytes = to_bytes::<Courier>(&longest).unwrap();
    assert_eq!(bytes.len(), 2 + 2 * 65535);
    assert_eq!(from_bytes::<Courier, Vec<u16>>(&bytes), Ok(longest));
    assert_eq!(to_bytes::<Courier>(&vec![1u16; 65536]), Err(Overflow::TooLong));
    assert_eq!(to_bytes::<Courier>(&"x".repeat(65536)), Err(Overflow::TooLong));
}

#[test]
fn claimed_counts_allocate_nothing() {
    let huge = [0xff; 12];
    assert_eq!(from_bytes::<Xdr, Vec<u64>>(&huge), Err(Invalid::Short));
    assert_eq!(from_bytes::<Xdr, Vec<u8>>(&huge), Err(Invalid::Short));
    assert_eq!(from_bytes::<Xdr, String>(&huge), Err(Invalid::Short));
    assert_eq!(from_bytes::<Xdr, Vec<String>>(&huge), Err(Invalid::Short));
    assert_eq!(from_bytes::<Xdr, Vec<Tree>>(&huge), Err(Invalid::Short));
    assert_eq!(from_bytes::<Courier, Vec<Choice>>(&huge), Err(Invalid::Short));
    // The number of elements is limited even if the elements have no bytes.
    assert_eq!(from_bytes::<Xdr, Vec<()>>(&huge[..4]), Err(Invalid::TooLong));
    assert_eq!(from_bytes::<Xdr, Vec<[u32; 0]>>(&huge[..4]), Err(Invalid::TooLong));
    assert_eq!(from_bytes::<Xdr, Vec<()>>(&[0, 0, 0, 3]), Ok(vec![(); 3]));
}

#[test]
fn lists_of_a_million_nodes_need_no_stack() {
    const NODES: u32 = 1_000_000;
    let list = (0..NODES).rev().fold(None, |next, value| Some(Box::new(Node { value, next })));
    let bytes = to_bytes::<Xdr>(&list).unwrap();
    assert_eq!(bytes.len(), 4 + 8 * NODES as usize);
    let taken = from_bytes::<Xdr, Option<Box<Node>>>(&bytes).unwrap();
    let mut expected = 0;
    let mut node = &taken;
    while let Some(one) = node {
        assert_eq!(one.value, expected);
        expected += 1;
        node = &one.next;
    }
    assert_eq!(expected, NODES);
    // A list without an end is refused, and the nodes that have arrived are freed.
    let open = &bytes[..bytes.len() - 4];
    assert!(matches!(from_bytes::<Xdr, Option<Box<Node>>>(open), Err(Invalid::Short)));
}

#[test]
fn lists_without_the_attribute_are_limited() {
    let list =
        |nodes| (0..nodes).fold(None, |next, _| Some(Box::new(ShortNode { value: 1, next })));
    let longest = list(LIST_NODES_MAX).unwrap();
    let bytes = to_bytes::<Xdr>(&*longest).unwrap();
    assert_eq!(from_bytes::<Xdr, ShortNode>(&bytes).as_ref(), Ok(&*longest));
    let too_long = list(LIST_NODES_MAX + 1).unwrap();
    assert_eq!(to_bytes::<Xdr>(&*too_long), Err(Overflow::LongList));
    let bytes = [0, 0, 0, 1].repeat(2 * LIST_NODES_MAX + 2);
    assert_eq!(from_bytes::<Xdr, ShortNode>(&bytes), Err(Invalid::LongList));
}

#[test]
fn streams_of_segments_are_read_in_a_loop() {
    let last = StreamOf::Last(vec![3u16]);
    let stream = (0..5000).fold(last, |rest, i| StreamOf::Next(vec![i], Box::new(rest)));
    let bytes = to_bytes::<Courier>(&stream).unwrap();
    assert_eq!(bytes.len(), 5001 * 6);
    assert_eq!(from_bytes::<Courier, StreamOf<u16>>(&bytes), Ok(stream));
    let endless = [0; 1 << 16];
    assert_eq!(from_bytes::<Courier, StreamOf<u16>>(&endless), Err(Invalid::LongList));
}

#[test]
fn depth_is_limited_in_both_directions() {
    let leaf = Tree { children: vec![], best: None };
    let deep = |levels| {
        (0..levels).fold(leaf.clone(), |tree, _| Tree { children: vec![tree], best: None })
    };
    let deepest = deep(DEPTH_MAX - 1);
    let bytes = to_bytes::<Xdr>(&deepest).unwrap();
    assert_eq!(from_bytes::<Xdr, Tree>(&bytes), Ok(deepest));
    assert_eq!(to_bytes::<Xdr>(&deep(DEPTH_MAX)), Err(Overflow::TooDeep));
    assert_eq!(from_bytes::<Xdr, Tree>(&[0, 0, 0, 1].repeat(100_000)), Err(Invalid::TooDeep));
    let odd = |even| Odd(vec![even]);
    let deep = (0..9).fold(Even(1, None), |even, i| Even(i, Some(Box::new(odd(even)))));
    holds::<Xdr, _>(&deep, &to_bytes::<Xdr>(&deep).unwrap());
}

/// Large values that are nested too deeply are refused before they overflow the stack of a thread with a
/// small stack.
#[test]
fn large_values_may_nest_less_deeply_than_small_ones() {
    #[derive(Debug, Foreign)]
    struct Page([[u64; 64]; 8], Vec<Self>);
    let take = |levels: usize| {
        let page = [&[0; 4096][..], &[0, 0, 0, 1]].concat();
        let bytes = [page.repeat(levels), vec![0; 4100]].concat();
        from_bytes::<Xdr, Page>(&bytes).map(|_| ())
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        assert_eq!(take(30), Ok(()));
        assert_eq!(take(33), Err(Invalid::TooDeep));
        assert_eq!(take(200), Err(Invalid::TooDeep));
    });
    thread.unwrap().join().unwrap();
}

#[derive(Debug, Value, Foreign)]
enum TimeError {
    #[foreign(error = 0)]
    Unset,
    #[foreign(error = 0xfffe)]
    Busy {
        seconds: u16,
        #[foreign(max = 2)]
        why: String,
    },
    Failed(CallError),
}

#[test]
fn errors_of_courier_have_a_number_and_arguments() {
    let busy = TimeError::Busy { seconds: 3, why: "ab".into() };
    assert_eq!(busy.number(), Some(0xfffe));
    let mut memory = [0; 6];
    busy.put_arguments(&mut Output::new(&mut memory)).unwrap();
    assert_eq!(memory, [0, 3, 0, 2, b'a', b'b']);
    let taken = |number, bytes| TimeError::take_error(number, &mut Input::new(bytes));
    assert!(matches!(taken(0xfffe, &memory), Ok(Some(TimeError::Busy { seconds: 3, .. }))));
    assert!(matches!(taken(0xfffe, &memory[..2]), Err(Invalid::Short)));
    assert!(matches!(taken(0, &[]), Ok(Some(TimeError::Unset))));
    assert!(matches!(taken(1, &[]), Ok(None)));
    assert_eq!(TimeError::Unset.number(), Some(0));
    let failed = CallError::new(peregrine::Kind::Relayed, peregrine::Executed::Maybe, "x");
    let failed = TimeError::Failed(failed);
    assert_eq!(failed.number(), None);
    assert!(matches!(failed, TimeError::Failed(error) if error.to_string().contains('x')));
}

#[test]
fn bits_of_floating_point_numbers_are_kept() {
    let nan = f32::from_bits(0xffa0_0001);
    let bytes = to_bytes::<Xdr>(&vec![nan]).unwrap();
    assert_eq!(bytes, [0, 0, 0, 1, 0xff, 0xa0, 0, 1]);
    assert_eq!(from_bytes::<Xdr, Vec<f32>>(&bytes).unwrap()[0].to_bits(), nan.to_bits());
}
