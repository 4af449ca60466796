//! Interfaces with callbacks of each form compile, also if they contain each other.
#![deny(warnings)]
#![allow(
    missing_docs,
    unused_qualifications,
    reason = "lints of this workspace, which `strict.rs` denies"
)]

use peregrine::{Callback, Sink, interface};

mod other {
    #[peregrine::interface(name = "other.listener")]
    pub trait Listener: Send + Sync + 'static {
        fn end(&self) -> peregrine::Result<()>;
    }
}

#[interface(version = 3)]
pub trait Listener {
    fn notify(&self, text: &str) -> peregrine::Result<u32>;
    fn introduce(&self, chat: Callback<'_, dyn Chat>) -> peregrine::Result<()>;
    #[oneway]
    fn log(&self, line: &str) -> peregrine::Result<()>;
}

#[interface]
pub trait Chat {
    #[idempotent]
    fn join(&self, name: String, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32>;
    fn keep(
        &self,
        #[was("one")] listener: Callback<'static, dyn Listener>,
    ) -> peregrine::Result<()>;
    fn more(
        &self,
        seen: Sink<'_, u8>,
        ends: peregrine::Callback<'static, dyn other::Listener>,
        chat: Callback<'_, dyn Chat>,
    ) -> peregrine::Result<()>;
}

struct Printer<'a>(&'a std::sync::Mutex<String>);

impl Listener for Printer<'_> {
    fn notify(&self, text: &str) -> peregrine::Result<u32> {
        self.0.lock().unwrap().push_str(text);
        Ok(1)
    }
    fn introduce(&self, _: Callback<'_, dyn Chat>) -> peregrine::Result<()> {
        Ok(())
    }
    fn log(&self, _: &str) -> peregrine::Result<()> {
        Ok(())
    }
}

struct Room(std::sync::Mutex<Vec<Callback<'static, dyn Listener>>>);

impl Chat for Room {
    fn join(&self, name: String, listener: Callback<'_, dyn Listener>) -> peregrine::Result<u32> {
        listener.notify(&name)
    }
    fn keep(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()> {
        self.0.lock().unwrap().push(listener);
        Ok(())
    }
    fn more(
        &self,
        _: Sink<'_, u8>,
        ends: Callback<'static, dyn other::Listener>,
        chat: Callback<'_, dyn Chat>,
    ) -> peregrine::Result<()> {
        ends.end()?;
        let text = std::sync::Mutex::new(String::new());
        chat.join("Ann".into(), Callback::new(Printer(&text))).map(drop)
    }
}

fn main() {
    let room = Room(std::sync::Mutex::default());
    let text = std::sync::Mutex::new(String::new());
    let printer = Printer(&text);
    assert_eq!(room.join("Ann".into(), Callback::new(&printer)).unwrap(), 1);
    assert_eq!(*text.lock().unwrap(), "Ann");
    let text = ChatClient::INTERFACE.canonical_text();
    let expected = "\
interface Chat version 0
idempotent join(in name: text, callback listener: Listener#0) -> u32 or CallError#1
keep(callback listener: Listener#0 was one) -> unit or CallError#1
more(sink seen: u8, callback ends: other.listener#2, callback chat: Chat#3) -> unit or CallError#1
Listener#0 = interface version 3 {notify(in text: str) -> u32 or CallError#1; \
introduce(callback chat: Chat#3) -> unit or CallError#1; oneway log(in line: str) -> unit or CallError#1}
CallError#1 = struct {chain: text}
other.listener#2 = interface version 0 {end() -> unit or CallError#1}
Chat#3 = interface version 0 {idempotent join(in name: text, callback listener: Listener#0) -> u32 or \
CallError#1; keep(callback listener: Listener#0 was one) -> unit or CallError#1; more(sink seen: u8, \
callback ends: other.listener#2, callback chat: Chat#3) -> unit or CallError#1}
";
    assert_eq!(text, expected);
    let read = peregrine::interface::Described::parse(&text).unwrap();
    assert_eq!(read.to_string(), text);
    // Within this description, the interface of a callback has the same identity as on its own.
    let listener = &read.procedures[0].parameters[1].ty;
    let listener = read.interface_of(listener).unwrap();
    assert_eq!(listener.to_string(), ListenerClient::INTERFACE.canonical_text());
    assert_eq!(listener.digest(), ListenerClient::INTERFACE.digest());
}
