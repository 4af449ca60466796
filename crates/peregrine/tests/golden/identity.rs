//! Checks the canonical text of an interface, and the digest of this text.

use std::net::IpAddr;
use std::path::Path;

use peregrine::interface::Described;
use peregrine::{CallError, Callback, Lent, Out, Plain, Value, interface};

use crate::values::{Colour, List, Point, Shape};

#[interface(version = 1)]
trait Pulse {
    #[idempotent]
    fn beat(&self, shape: &Shape, point: Point) -> peregrine::Result<Vec<Colour>>;
    fn copy(
        &self,
        #[max_len(8)] from: Lent<'_, u8>,
        into: Out<'_, [u16; 2]>,
        list: &mut List,
    ) -> Result<(), Shape>;
}

impl From<CallError> for Shape {
    fn from(_: CallError) -> Self {
        Self::Empty
    }
}

/// Returns the first block of a document that is marked with `kind`.
fn block(document: &str, kind: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
    let text = std::fs::read_to_string(path).expect("the document");
    let (_, rest) = text.split_once(&format!("```{kind}\n")).expect("the block");
    rest.split("```").next().expect("its end").to_owned()
}

#[test]
fn canonical_text_and_digest_match_the_document() {
    let text = block("REPRESENTATION.md", "canonical");
    assert_eq!(PulseClient::INTERFACE.canonical_text(), text);
    let digest = block("REPRESENTATION.md", "digest");
    assert_eq!(PulseClient::INTERFACE.digest().to_string(), digest.trim());
}

#[interface(version = 1)]
trait Shop {
    #[was("order", "get")]
    fn buy(
        &self,
        item: Item,
        #[default(1)] count: u32,
        #[default] note: &str,
    ) -> peregrine::Result<Drink>;
    fn size(&self, of: IpAddr) -> peregrine::Result<Size>;
}

#[derive(Value)]
struct Item {
    #[default("g")]
    unit: String,
    #[was("cost")]
    #[widens]
    price: u64,
}

#[derive(Value)]
enum Drink {
    Tea,
    #[was("Brew")]
    Coffee {
        #[default]
        milk: bool,
    },
    #[other]
    Unknown(String),
}

#[derive(Clone, Copy, Plain)]
#[repr(u8)]
enum Size {
    Small = 1,
    #[other]
    Other = 255,
}

#[test]
fn attributes_of_growth_are_in_the_text() {
    let text = block("REPRESENTATION.md", "grown");
    assert_eq!(ShopClient::INTERFACE.canonical_text(), text);
    let digest = block("REPRESENTATION.md", "grown-digest");
    assert_eq!(ShopClient::INTERFACE.digest().to_string(), digest.trim());
    let read = Described::parse(&text).unwrap();
    assert_eq!(read.to_string(), text);
}

#[interface]
trait Chat {
    fn join(&self, name: &str, listener: Callback<'static, dyn Listener>)
    -> peregrine::Result<u32>;
}

#[interface(name = "chat.listener", version = 2)]
trait Listener {
    fn said(&self, note: Note) -> peregrine::Result<()>;
    fn invited(&self, to: Callback<'_, dyn Chat>) -> peregrine::Result<bool>;
    #[oneway]
    fn bye(&self, reason: &str) -> peregrine::Result<()>;
}

#[derive(Value)]
struct Note {
    from: String,
    text: String,
}

#[test]
fn interfaces_of_callbacks_are_in_the_text() {
    let text = block("REPRESENTATION.md", "calls-back");
    assert_eq!(ChatClient::INTERFACE.canonical_text(), text);
    let digest = block("REPRESENTATION.md", "calls-back-digest");
    assert_eq!(ChatClient::INTERFACE.digest().to_string(), digest.trim());
    let read = Described::parse(&text).unwrap();
    assert_eq!(read.to_string(), text);
    let called = read.interface_of(&read.procedures[0].parameters[1].ty).unwrap();
    assert_eq!(called.to_string(), block("REPRESENTATION.md", "called-back"));
    assert_eq!(called.to_string(), ListenerClient::INTERFACE.canonical_text());
    assert_eq!(called.digest(), ListenerClient::INTERFACE.digest());
    assert_eq!(called.message_bytes(), ListenerClient::INTERFACE.message_bytes());
}

#[interface(name = "Word")]
trait WordAsBlock {
    fn say(&self, word: &str) -> peregrine::Result<()>;
}

#[interface(name = "Word")]
trait WordAsValue {
    fn say(&self, word: String) -> peregrine::Result<()>;
}

#[interface(name = "Word")]
trait Words {
    fn say(&self, word: &[String]) -> peregrine::Result<()>;
}

/// A `&str` travels as a block. A `String` and a `&[String]` travel in the head, and a `&[String]` begins
/// with an additional count. Their canonical texts differ, so that no client mistakes one for another.
#[test]
fn text_in_a_block_and_texts_in_the_head_are_distinguished() {
    let lines = block("REPRESENTATION.md", "words");
    let interfaces =
        [WordAsBlockClient::INTERFACE, WordAsValueClient::INTERFACE, WordsClient::INTERFACE];
    for (line, interface) in lines.lines().zip(interfaces) {
        assert_eq!(interface.canonical_text().lines().nth(1), Some(line));
    }
    assert_eq!(lines.lines().count(), interfaces.len());
}
