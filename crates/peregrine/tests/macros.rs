//! Tests what the macros generate for a trait and for a type: descriptions, identities, stubs and layouts.

use proptest::prelude::*;
use std::collections::HashSet;

use peregrine::{CallError, Kind, Lent, Out, Plain, Value, interface};

/// A list.
#[derive(Clone, Debug, PartialEq, Value)]
struct List {
    value: u32,
    next: Option<Box<Self>>,
}

#[derive(Clone, Debug, PartialEq, Value)]
struct Tree<T> {
    leaf: T,
    branches: Vec<Self>,
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
struct Header {
    length: u64,
    kind: HeaderKind,
    flags: [bool; 3],
    r#type: Tag,
}

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(transparent)]
struct Tag([u8; 4]);

#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(i8)]
enum HeaderKind {
    Below = -1,
    Zero,
    Above = 100,
}

#[derive(Clone, Debug, PartialEq, Value)]
enum Shape<T, const N: usize> {
    Empty,
    Pair(T, u8),
    Fields { r#type: T, rest: [u16; N] },
}

#[derive(Clone, Debug, PartialEq, Value)]
struct Nothing;

#[derive(Clone, Debug, PartialEq, Value)]
struct Numbered(Nothing, String, (u8, Nothing));

/// A remote *zoo*.
///
/// Second paragraph.
#[interface(version = 7, max_len = 1 << 4)]
#[allow(clippy::ptr_arg)]
trait Zoo: Send + Sync + 'static {
    /// Feeds
    /// everybody.
    #[idempotent]
    fn feed(&self, r#in: &List, tree: Tree<String>) -> peregrine::Result<Tree<u8>>;
    #[must_use = "the animals may have escaped"]
    fn r#move(
        &self,
        header: &mut Header,
        text: &str,
        #[max_len(u8::MAX as u32)] into: Out<'_, Header>,
        all: &mut [List],
        lent: Lent<'_, u8>,
    ) -> Result<(), ZooError>;
    fn shape(&self, shape: Shape<i16, 3>) -> peregrine::Result<Shape<i16, 3>>;
    fn numbered(&self, one: &Numbered) -> peregrine::Result<Numbered>;
    #[deprecated]
    fn old(&self) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, line: &str, r#in: List) -> Result<(), ZooError>;
}

#[derive(Debug, Value)]
enum ZooError {
    Escaped(List),
    Call(CallError),
}

impl From<CallError> for ZooError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

struct Keeper;

impl Zoo for Keeper {
    fn feed(&self, r#in: &List, tree: Tree<String>) -> peregrine::Result<Tree<u8>> {
        let branches = tree.branches.into_iter().map(|branch| self.feed(r#in, branch));
        Ok(Tree {
            leaf: tree.leaf.len() as u8 + r#in.value as u8,
            branches: branches.collect::<Result<_, _>>()?,
        })
    }

    fn r#move(
        &self,
        header: &mut Header,
        text: &str,
        mut into: Out<'_, Header>,
        all: &mut [List],
        lent: Lent<'_, u8>,
    ) -> Result<(), ZooError> {
        if text == "escape" {
            return Err(ZooError::Escaped(all[0].clone()));
        }
        header.length += (text.len() + lent.len()) as u64;
        all.iter_mut().for_each(|list| list.value += 1);
        into.put(&[*header; 2]).unwrap();
        Ok(())
    }

    fn shape(&self, shape: Shape<i16, 3>) -> peregrine::Result<Shape<i16, 3>> {
        Ok(shape)
    }

    fn numbered(&self, one: &Numbered) -> peregrine::Result<Numbered> {
        Ok(one.clone())
    }

    fn old(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn note(&self, _: &str, _: List) -> Result<(), ZooError> {
        Ok(())
    }
}

const HEADER: Header = Header {
    length: 1,
    kind: HeaderKind::Below,
    flags: [true, false, true],
    r#type: Tag(*b"abcd"),
};

#[test]
fn description_matches_the_trait() {
    let zoo = ZooClient::INTERFACE;
    assert_eq!((zoo.name, zoo.version), ("Zoo", 7));
    assert_eq!(zoo.docs, "A remote *zoo*.\n\nSecond paragraph.");
    assert_eq!(zoo.procedures[0].docs, "Feeds\neverybody.");
    assert!(zoo.procedures[0].idempotent && !zoo.procedures[1].idempotent);
    assert!(zoo.procedures[5].oneway && !zoo.procedures[4].oneway);
    assert_eq!(zoo.procedures[1].parameters[2].max_len, Some(255));
    assert_eq!(
        zoo.canonical_text(),
        "interface Zoo version 7\n\
         idempotent feed(in in: List#0, in tree: Tree#1) -> Tree#2 or CallError#3\n\
         move(inout header: Header#4, in text: str max 16, out into: [Header#4] max 255, \
         inout all: [List#0] max 16, lent lent: [u8] max 16) -> unit or ZooError#5\n\
         shape(in shape: Shape#6) -> Shape#6 or CallError#3\n\
         numbered(in one: Numbered#7) -> Numbered#7 or CallError#3\n\
         old() -> unit or CallError#3\n\
         oneway note(in line: str max 16, in in: List#0) -> unit or ZooError#5\n\
         List#0 = struct {value: u32, next: option<List#0>}\n\
         Tree#1 = struct {leaf: text, branches: sequence<Tree#1>}\n\
         Tree#2 = struct {leaf: u8, branches: sequence<Tree#2>}\n\
         CallError#3 = struct {chain: text}\n\
         Header#4 = plain 16 align 8 {length: u64, kind: HeaderKind#8, flags: [bool; 3], type: Tag#9}\n\
         ZooError#5 = enum Escaped {0: List#0} Call {0: CallError#3}\n\
         Shape#6 = enum Empty {} Pair {0: i16, 1: u8} Fields {type: i16, rest: [u16; 3]}\n\
         Numbered#7 = struct {0: Nothing#10, 1: text, 2: tuple<u8, Nothing#10>}\n\
         HeaderKind#8 = plain enum i8 Below=-1 Zero=0 Above=100\n\
         Tag#9 = plain 4 align 1 {0: [u8; 4]}\n\
         Nothing#10 = struct {}\n"
    );
}

#[test]
fn identity_depends_on_neither_documentation_nor_module() {
    mod documented {
        /// Documentation.
        #[peregrine::interface]
        pub(super) trait Pair {
            /// More of it.
            fn swap(&self, a: u8, b: &str) -> peregrine::Result<(String, u8)>;
        }
    }
    mod bare {
        #[peregrine::interface]
        pub(super) trait Pair {
            fn swap(&self, a: u8, b: &str) -> peregrine::Result<(String, u8)>;
        }
    }
    mod other {
        #[peregrine::interface]
        pub(super) trait Pair {
            fn swap(&self, b: u8, a: &str) -> peregrine::Result<(String, u8)>;
        }
    }
    mod renamed {
        #[peregrine::interface(name = "Pair")]
        pub(super) trait Couple {
            fn swap(&self, a: u8, b: &str) -> peregrine::Result<(String, u8)>;
        }
    }
    let pair = bare::PairClient::INTERFACE.digest();
    assert_eq!(documented::PairClient::INTERFACE.digest(), pair);
    assert_eq!(renamed::CoupleClient::INTERFACE.digest(), pair);
    assert_ne!(other::PairClient::INTERFACE.digest(), pair);
    // The identity of an interface must never change, because client and server may be built years apart.
    assert_eq!(pair.to_string(), "723fc96e0f9eb0e7d42b5db108f5a4c3");
}

#[test]
fn clients_are_sync_clone_and_debug() {
    fn shared<T: Send + Sync + Clone + std::fmt::Debug + 'static>(_: &T) {}
    let client = ZooClient::in_process(Keeper);
    shared(&client);
    assert!(format!("{client:?}").contains("Zoo"));
    let zoo: Box<dyn Zoo> = Box::new(client.clone());
    zoo.numbered(&Numbered(Nothing, "n".into(), (3, Nothing))).unwrap();
    let limited = client.with_timeout(std::time::Duration::from_secs(5));
    limited.shape(Shape::Empty).unwrap();
    let options = peregrine::BindOptions::default().astacks(1);
    let single = ZooClient::in_process_with(Keeper, &options);
    single.shape(Shape::Pair(1, 2)).unwrap();
}

#[test]
fn recursive_and_generic_values_arrive_intact() {
    let client = ZooClient::in_process(Keeper);
    let list = List { value: 1, next: Some(Box::new(List { value: 2, next: None })) };
    let leaf = |text: &str| Tree { leaf: text.to_owned(), branches: vec![] };
    let tree = Tree { leaf: "a".to_owned(), branches: vec![leaf(""), leaf("bcd")] };
    let fed = client.feed(&list, tree).unwrap();
    assert_eq!(fed.branches.iter().map(|one| one.leaf).collect::<Vec<_>>(), [1, 4]);

    let (mut header, mut into) = (HEADER, Vec::with_capacity(3));
    let mut all = [list.clone(), list];
    let lent = Lent::from(&[1u8; 3]);
    client.r#move(&mut header, "ab", Out::from(&mut into), &mut all, lent).unwrap();
    assert_eq!((header.length, &into[..]), (6, &[header; 2][..]));
    assert_eq!((all[0].value, all[1].value), (2, 2));
    let lent = Lent::from(&[1u8; 3]);
    let error = client.r#move(&mut header, "escape", Out::from(&mut into), &mut all, lent);
    assert!(matches!(error, Err(ZooError::Escaped(list)) if list == all[0]));
    let long = [0u8; 17];
    let error = client.r#move(&mut header, "", Out::from(&mut into), &mut [], Lent::from(&long));
    assert!(matches!(error, Err(ZooError::Call(error)) if error.kind() == Kind::TooLarge));
}

#[test]
fn plain_types_describe_their_bits() {
    let bytes = |header: &Header| peregrine::value::bytes_of(std::slice::from_ref(header)).to_vec();
    let good = bytes(&HEADER);
    const { assert!(!Header::ANY_BITS && Tag::ANY_BITS && !HeaderKind::ANY_BITS) };
    assert!(<Header as Plain>::valid(&good));
    for (at, bits) in [(8, 1), (8, 99), (9, 2), (11, 255)] {
        let mut bad = good.clone();
        bad[at] = bits;
        assert!(!<Header as Plain>::valid(&bad), "byte {at} = {bits}");
    }
    for kind in -128..=127i8 {
        let known = HashSet::from([-1, 0, 100]).contains(&kind);
        assert_eq!(HeaderKind::valid(&kind.to_ne_bytes()), known);
    }
}

/// An interface that receives values of each kind and returns them.
#[interface]
trait Echo {
    fn shapes(&self, shapes: Vec<Shape<i16, 3>>) -> peregrine::Result<Vec<Shape<i16, 3>>>;
    fn lists(&self, lists: &mut [List]) -> peregrine::Result<()>;
    fn headers(&self, headers: &[Header], into: Out<'_, Header>) -> peregrine::Result<()>;
    fn tuple(&self, tuple: &Mixed) -> peregrine::Result<Mixed>;
}

type Mixed = (u8, Option<char>, Result<i128, String>, Vec<(bool, f64)>, [Vec<u16>; 2]);

struct Same;

impl Echo for Same {
    fn shapes(&self, shapes: Vec<Shape<i16, 3>>) -> peregrine::Result<Vec<Shape<i16, 3>>> {
        Ok(shapes)
    }

    fn lists(&self, lists: &mut [List]) -> peregrine::Result<()> {
        lists.reverse();
        Ok(())
    }

    fn headers(&self, headers: &[Header], mut into: Out<'_, Header>) -> peregrine::Result<()> {
        into.put(headers).unwrap();
        Ok(())
    }

    fn tuple(&self, tuple: &Mixed) -> peregrine::Result<Mixed> {
        Ok(tuple.clone())
    }
}

fn shapes() -> impl Strategy<Value = Shape<i16, 3>> {
    prop_oneof![
        Just(Shape::Empty),
        (any::<i16>(), any::<u8>()).prop_map(|(a, b)| Shape::Pair(a, b)),
        (any::<i16>(), any::<[u16; 3]>()).prop_map(|(r#type, rest)| Shape::Fields { r#type, rest }),
    ]
}

fn lists() -> impl Strategy<Value = List> {
    prop::collection::vec(any::<u32>(), 1..20).prop_map(|values| {
        let list =
            values.into_iter().fold(None, |next, value| Some(Box::new(List { value, next })));
        *list.expect("there is one value at least")
    })
}

fn headers() -> impl Strategy<Value = Header> {
    let kinds = vec![HeaderKind::Below, HeaderKind::Zero, HeaderKind::Above];
    let parts = (any::<u64>(), prop::sample::select(kinds), any::<[bool; 3]>(), any::<[u8; 4]>());
    parts.prop_map(|(length, kind, flags, tag)| Header { length, kind, flags, r#type: Tag(tag) })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sent_values_are_returned_unchanged(
        shapes in prop::collection::vec(shapes(), 0..20),
        lists in prop::collection::vec(lists(), 0..5),
        headers in prop::collection::vec(headers(), 0..20),
        tuple in any::<Mixed>().prop_filter("equal to itself", |one| one == one),
    ) {
        let client = EchoClient::in_process(Same);
        prop_assert_eq!(&client.shapes(shapes.clone()).unwrap(), &shapes);
        let mut back = lists.clone();
        client.lists(&mut back).unwrap();
        back.reverse();
        prop_assert_eq!(back, lists);
        let mut into = Vec::with_capacity(headers.len());
        client.headers(&headers, Out::from(&mut into)).unwrap();
        prop_assert_eq!(into, headers);
        // If a value does not fit the A-stack, the call fails. The value is never truncated.
        match client.tuple(&tuple) {
            Ok(back) => prop_assert_eq!(back, tuple),
            Err(error) => prop_assert_eq!(error.kind(), Kind::TooLarge),
        }
    }
}

#[interface]
trait Tally: Send + Sync + 'static {
    fn add(&self, more: u64, names: &[String], mut_copy: &mut u64) -> peregrine::Result<u64>;
}

#[derive(Default)]
struct Sum(std::sync::atomic::AtomicU64);

impl Tally for Sum {
    fn add(&self, more: u64, names: &[String], mut_copy: &mut u64) -> peregrine::Result<u64> {
        *mut_copy = names.len() as u64;
        Ok(more + self.0.fetch_add(more, std::sync::atomic::Ordering::Relaxed))
    }
}

/// A program that keeps an object can serve it, and call it directly.
#[test]
fn shared_objects_implement_the_trait() {
    let shared = std::sync::Arc::new(Sum::default());
    let client = TallyClient::in_process(std::sync::Arc::clone(&shared));
    let mut count = 0;
    assert_eq!(client.add(3, &["a".into(), "b".into()], &mut count).unwrap(), 3);
    assert_eq!(count, 2);
    assert_eq!(shared.add(4, &[], &mut count).unwrap(), 7);
    let boxed: Box<dyn Tally> = Box::new(shared);
    assert_eq!(TallyClient::in_process(boxed).add(1, &[], &mut count).unwrap(), 8);
    static GLOBAL: Sum = Sum(std::sync::atomic::AtomicU64::new(10));
    assert_eq!(TallyClient::in_process(&GLOBAL).add(1, &[], &mut count).unwrap(), 11);
}
