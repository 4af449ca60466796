//! Tests linked lists so long that recursion over their nodes would overflow the stack. The tests use every
//! path and every kind of stub.
#![allow(clippy::use_self, reason = "some types must name themselves without `Self`")]

mod support;

use peregrine::interface::Described;
use peregrine::value::{Native, Reader, Representation, Space, Swapped, Window, Writer};
use peregrine::{
    Argument, BindOptions, Binding, Dynamic, Executed, GenericClient, Invalid, Kind, Server, Value,
    interface, limits,
};
use support::{alone, own_directory};

/// A list of limited length, because `next` has no attribute `#[list]`.
#[derive(Debug, PartialEq, Value)]
struct Node {
    name: String,
    number: u8,
    next: Option<Box<Self>>,
}

/// A list of any length.
#[derive(Debug, Value)]
struct Long<T> {
    value: T,
    #[list]
    next: Option<Box<Long<T>>>,
}

/// A list that is an enum.
#[derive(Debug, Value)]
enum Cons {
    Empty { reason: u16 },
    Pair(u32, Box<Self>),
    Broken,
}

/// A tree in which the right children form a list, and the left children are nested.
#[derive(Debug, Value)]
struct Tree {
    left: Option<Box<Tree>>,
    value: u16,
    right: Option<Box<Tree>>,
}

/// A tree. Two variants of the enum end with a box.
#[derive(Debug, Value)]
enum Term {
    Number(i64),
    Not(Box<Term>),
    Add(Box<Term>, Box<Term>),
}

fn node(nodes: usize) -> Node {
    let node = |number: usize, next| Node { name: format!("{number}"), number: number as u8, next };
    (1..nodes).rev().fold(node(nodes, None), |list, number| node(number, Some(Box::new(list))))
}

fn long(nodes: usize) -> Long<u16> {
    let end = Long { value: nodes as u16, next: None };
    (1..nodes)
        .rev()
        .fold(end, |list, number| Long { value: number as u16, next: Some(Box::new(list)) })
}

fn cons(pairs: usize) -> Cons {
    let end = Cons::Empty { reason: 7 };
    (0..pairs).rev().fold(end, |list, number| Cons::Pair(number as u32, Box::new(list)))
}

fn encoded<T: Value, R: Representation>(value: &T) -> Result<Vec<u8>, peregrine::value::Overflow> {
    let mut memory = vec![0xaa; 4 << 20];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory[..]));
    value.encode(&mut writer)?;
    writer.flush();
    let bytes = writer.len();
    memory.truncate(bytes);
    Ok(memory)
}

fn decoded<T: Value, R: Representation>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut reader)?;
    reader.finish().map(|()| value)
}

/// Encodes and decodes a value in both byte orders. Returns the decoded value. Checks that both byte orders
/// carry the same value, and that the bytes become invalid if they are truncated.
fn round_trip<T: Value>(value: &T) -> T {
    let swapped = encoded::<T, Swapped>(value).unwrap();
    let native = encoded::<T, Native>(&decoded::<T, Swapped>(&swapped).unwrap()).unwrap();
    assert_eq!(native, encoded::<T, Native>(value).unwrap());
    for short in (0..native.len()).step_by(native.len() / 50 + 1) {
        assert!(decoded::<T, Native>(&native[..short]).is_err());
    }
    decoded::<T, Native>(&native).unwrap()
}

#[test]
fn lists_have_the_bytes_of_nested_values() {
    let two = encoded::<_, Native>(&node(2)).unwrap();
    assert_eq!(two, [1, 0, 0, 0, b'1', 1, 1, 0, 1, 0, 0, 0, b'2', 2, 0]);
    let two = encoded::<_, Native>(&cons(1)).unwrap();
    let one = 1u32.to_ne_bytes();
    assert_eq!(two[..4], one);
    assert_eq!(two[4..12], [0; 8]);
    assert_eq!(two[12..], 7u16.to_ne_bytes());
    assert_eq!(round_trip(&node(5)), node(5));
    assert_eq!(round_trip(&Tree { left: None, value: 3, right: None }).value, 3);
}

#[test]
fn lists_of_ten_thousand_nodes_are_sent_and_longer_ones_are_refused() {
    let most = limits::LIST_NODES_MAX;
    assert_eq!(round_trip(&node(most)), node(most));
    let error = encoded::<_, Native>(&node(most + 1)).unwrap_err();
    assert!(error.to_string().contains("`#[list]`"), "{error}");
    // These are the bytes of a list that has one node too many. Without its first node, the list would have
    // the largest allowed length.
    let mut longer = encoded::<_, Native>(&Long { value: 1u8, next: None }).unwrap();
    longer = longer[..1].iter().copied().chain([1]).collect::<Vec<_>>().repeat(most);
    longer.extend([1, 0]);
    #[derive(Debug, Value)]
    struct Short {
        value: u8,
        next: Option<Box<Self>>,
    }
    assert_eq!(decoded::<Short, Native>(&longer).unwrap_err(), Invalid::LongList);
    let mut next = &decoded::<Long<u8>, Native>(&longer).unwrap();
    let mut nodes = 1;
    while let Some(node) = &next.next {
        assert_eq!(node.value, 1);
        (next, nodes) = (node, nodes + 1);
    }
    assert_eq!(nodes, most + 1);
    assert!(decoded::<Short, Native>(&longer[2..]).unwrap().next.is_some());
}

#[test]
fn enums_and_last_children_are_lists() {
    let mut list = &round_trip(&cons(9_000));
    let mut pairs = 0;
    while let Cons::Pair(number, next) = list {
        assert_eq!(*number, pairs);
        (list, pairs) = (next, pairs + 1);
    }
    assert!(matches!(list, Cons::Empty { reason: 7 }));
    assert!(matches!(round_trip(&Cons::Broken), Cons::Broken));
    let leaf = || Tree { left: None, value: 1, right: None };
    let right = (0..5000).fold(leaf(), |tree, _| Tree {
        left: Some(Box::new(leaf())),
        value: 2,
        right: Some(Box::new(tree)),
    });
    assert_eq!(round_trip(&right).value, 2);
    let left =
        (0..129).fold(leaf(), |tree, _| Tree { left: Some(Box::new(tree)), value: 2, right: None });
    let error = encoded::<_, Native>(&left).unwrap_err();
    assert!(error.to_string().contains("at most 256 levels"), "{error}");
    let term = (0..200).fold(Term::Number(4), |term, _| Term::Not(Box::new(term)));
    let sum = Term::Add(Box::new(term), Box::new(Term::Number(3)));
    assert!(matches!(round_trip(&sum), Term::Add(..)));
}

#[interface]
trait Lists {
    fn put(&self, list: Node) -> peregrine::Result<u32>;
    fn put_long(&self, list: &Long<u16>) -> peregrine::Result<u32>;
    fn get(&self, nodes: u32) -> peregrine::Result<Long<u16>>;
}

struct Counting;

impl Lists for Counting {
    fn put(&self, list: Node) -> peregrine::Result<u32> {
        let (mut next, mut nodes) = (&list, 1);
        while let Some(node) = &next.next {
            (next, nodes) = (node, nodes + 1);
        }
        Ok(nodes)
    }
    fn put_long(&self, list: &Long<u16>) -> peregrine::Result<u32> {
        let (mut next, mut nodes) = (list, 1);
        while let Some(node) = &next.next {
            (next, nodes) = (node, nodes + 1);
        }
        Ok(nodes)
    }
    fn get(&self, nodes: u32) -> peregrine::Result<Long<u16>> {
        Ok(long(nodes as usize))
    }
}

/// Returns a list of `nodes` nodes for an interpreted stub.
fn interpreted(nodes: usize) -> Dynamic {
    let node =
        |next| Dynamic::List(vec![Dynamic::from("n"), Dynamic::U8(1), Dynamic::Option(next)]);
    (1..nodes).fold(node(None), |list, _| node(Some(Box::new(list))))
}

#[test]
fn interpreted_stubs_send_lists_of_256_nodes() {
    let server = std::sync::Arc::new(ListsServer::new(Counting));
    let binding = Binding::in_process(server, &BindOptions::default());
    let described = ListsClient::INTERFACE.canonical_text();
    let described = Described::parse(&described).unwrap();
    let client = GenericClient::over(binding, described);
    let put = |nodes| client.call("put", &mut [Argument::In(&interpreted(nodes))]);
    assert_eq!(put(256).unwrap(), Ok(Dynamic::U32(256)));
    let error = put(257).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No), "{error}");
    // A list in a result may have at most 256 nodes, as in an argument.
    let get = |nodes| client.call("get", &mut [Argument::In(&Dynamic::U32(nodes))]);
    assert!(matches!(get(256).unwrap(), Ok(Dynamic::List(_))));
    assert_eq!(get(257).unwrap_err().kind(), Kind::BadResult);
}

#[test]
fn lists_of_a_million_nodes_are_arguments_and_results_on_every_path() {
    let _alone = alone();
    let _directory = own_directory();
    const NODES: usize = 1_000_000;
    let server = Server::new().export("lists", ListsServer::new(Counting)).unwrap();
    let running = server.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let port = running.addresses()[0].to_string();
    let port = port.rsplit(':').next().unwrap();
    let far = |path: &str| format!("{path}:lists@127.0.0.1:{port}");
    let list = long(NODES);
    for address in ["local:lists".to_owned(), far("udp"), far("tcp")] {
        let client = ListsClient::bind(&address).unwrap();
        assert_eq!(client.put_long(&list).unwrap() as usize, NODES, "{address}");
        let mut nodes = 0u32;
        let mut next = client.get(NODES as u32).unwrap().next.take();
        while let Some(mut node) = next {
            next = node.next.take();
            nodes += 1;
        }
        assert_eq!(nodes as usize + 1, NODES, "{address}");
        assert_eq!(client.put(node(limits::LIST_NODES_MAX)).unwrap(), 10_000);
        let error = client.put(node(limits::LIST_NODES_MAX + 1)).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::TooLarge, Executed::No));
    }
}

/// The interface as an old client knows it.
mod old {
    use super::*;

    #[derive(Debug, Value)]
    pub(crate) struct Link {
        pub(crate) value: u32,
        #[list]
        pub(crate) next: Option<Box<Self>>,
    }

    #[derive(Debug, Value)]
    pub(crate) enum List {
        Nil,
        Cons { value: u32, next: Box<Self> },
    }

    #[interface]
    pub(crate) trait Chains {
        fn put(&self, list: &Link) -> peregrine::Result<u64>;
        fn put_enum(&self, list: &List) -> peregrine::Result<u64>;
        fn get(&self, nodes: u32) -> peregrine::Result<Link>;
        fn get_enum(&self, nodes: u32) -> peregrine::Result<List>;
    }
}

/// The interface of a newer server: nodes have more fields, and the variants have another order.
mod grown {
    use super::*;

    #[derive(Debug, Value)]
    pub(crate) struct Link {
        #[default(String::from("n"))]
        pub(crate) name: String,
        pub(crate) value: u32,
        #[list]
        pub(crate) next: Option<Box<Self>>,
    }

    #[derive(Debug, Value)]
    pub(crate) enum List {
        Cons {
            value: u32,
            #[default(7)]
            weight: u8,
            next: Box<Self>,
        },
        Nil,
    }

    #[interface]
    pub(crate) trait Chains {
        fn put(&self, list: &Link) -> peregrine::Result<u64>;
        fn put_enum(&self, list: &List) -> peregrine::Result<u64>;
        fn get(&self, nodes: u32) -> peregrine::Result<Link>;
        fn get_enum(&self, nodes: u32) -> peregrine::Result<List>;
    }

    pub(crate) struct Adding;

    impl Chains for Adding {
        fn put(&self, list: &Link) -> peregrine::Result<u64> {
            let (mut next, mut sum) = (Some(list), 0);
            while let Some(node) = next {
                assert_eq!(node.name, "n");
                sum += u64::from(node.value);
                next = node.next.as_deref();
            }
            Ok(sum)
        }
        fn put_enum(&self, list: &List) -> peregrine::Result<u64> {
            let (mut list, mut sum) = (list, 0);
            while let List::Cons { value, weight: 7, next } = list {
                sum += u64::from(*value);
                list = next;
            }
            assert!(matches!(list, List::Nil));
            Ok(sum)
        }
        fn get(&self, nodes: u32) -> peregrine::Result<Link> {
            let link = |value, next| Link { name: "unknown".into(), value, next };
            let end = link(nodes, None);
            Ok((1..nodes).rev().fold(end, |list, value| link(value, Some(Box::new(list)))))
        }
        fn get_enum(&self, nodes: u32) -> peregrine::Result<List> {
            let cons = |list, value| List::Cons { value, weight: 9, next: Box::new(list) };
            Ok((1..=nodes).rev().fold(List::Nil, cons))
        }
    }
}

#[test]
fn lists_are_converted_for_a_server_that_grew() {
    use old::{Chains, ChainsClient, Link, List};

    let _alone = alone();
    let _directory = own_directory();
    let server = Server::new().export("chains", grown::ChainsServer::new(grown::Adding)).unwrap();
    let running = server.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let place = running.addresses()[0].place().clone();
    let sum = |nodes: u32| u64::from(nodes) * u64::from(nodes + 1) / 2;
    // The list of `Link` has the attribute `#[list]`, so it may have any length. The enum `List` has no such
    // attribute, so the usual limit applies.
    let (many, most) = (30_000, limits::LIST_NODES_MAX as u32 - 1);
    for address in ["local:chains".to_owned(), format!("udp:chains@{place}")] {
        let client = ChainsClient::bind(&address).unwrap();
        let link = |next, value| Link { value, next };
        let list =
            (1..many).rev().fold(link(None, many), |list, value| link(Some(Box::new(list)), value));
        assert_eq!(client.put(&list).unwrap(), sum(many), "{address}");
        let (mut node, mut found) = (&client.get(many).unwrap(), 0);
        loop {
            found += u64::from(node.value);
            let Some(next) = &node.next else { break };
            node = next;
        }
        assert_eq!(found, sum(many), "{address}");
        let cons = |list, value| List::Cons { value, next: Box::new(list) };
        let list = (1..=most).rev().fold(List::Nil, cons);
        assert_eq!(client.put_enum(&list).unwrap(), sum(most), "{address}");
        let (mut list, mut found) = (&client.get_enum(most).unwrap(), 0);
        while let List::Cons { value, next } = list {
            (list, found) = (next, found + u64::from(*value));
        }
        assert_eq!(found, sum(most), "{address}");
    }
}
