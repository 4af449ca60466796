//! Tests clients and servers that were built from different traits. Compatible traits work on every path, and
//! incompatible traits are reported.

mod support;

use peregrine::{BindOptions, Executed, Kind, Out, Phase, Server, Value, interface};
use support::{alone, own_directory};

/// The client's interface.
mod old {
    use super::*;

    #[derive(Value, Debug, PartialEq)]
    pub(crate) struct Note {
        pub(crate) title: String,
        pub(crate) next: Option<Box<Self>>,
    }

    #[interface]
    pub(crate) trait Notes {
        fn count(&self) -> peregrine::Result<u32>;
        fn add(&self, note: &Note) -> peregrine::Result<u32>;
        fn read(&self, #[max_len(64)] into: Out<'_, u8>) -> peregrine::Result<u32>;
        fn sum(&self, #[max_len(4)] values: &mut [u32]) -> peregrine::Result<u32>;
    }
}

/// An interface that is compatible with `old`. It has an additional procedure, another order of procedures,
/// other bounds, and another name of a type.
mod new {
    use super::*;

    #[derive(Value, Debug)]
    pub(crate) struct Memo {
        pub(crate) title: String,
        pub(crate) next: Option<Box<Self>>,
    }

    #[interface]
    pub(crate) trait Notes {
        /// The client's interface does not have this procedure.
        fn remove(&self, title: &str) -> peregrine::Result<()>;
        fn sum(&self, #[max_len(400)] values: &mut [u32]) -> peregrine::Result<u32>;
        fn read(&self, #[max_len(32)] into: Out<'_, u8>) -> peregrine::Result<u32>;
        fn add(&self, note: &Memo) -> peregrine::Result<u32>;
        #[idempotent]
        fn count(&self) -> peregrine::Result<u32>;
    }

    pub(crate) struct Book;

    impl Notes for Book {
        fn remove(&self, _: &str) -> peregrine::Result<()> {
            panic!("the client does not know this procedure")
        }
        fn sum(&self, values: &mut [u32]) -> peregrine::Result<u32> {
            values.reverse();
            Ok(values.iter().sum())
        }
        fn read(&self, mut into: Out<'_, u8>) -> peregrine::Result<u32> {
            let capacity = into.capacity();
            into.put(&vec![7; capacity]).unwrap();
            Ok(3)
        }
        fn add(&self, note: &Memo) -> peregrine::Result<u32> {
            Ok(1 + note.next.as_ref().map_or(0, |next| next.title.len() as u32))
        }
        fn count(&self) -> peregrine::Result<u32> {
            Ok(5)
        }
    }
}

/// An incompatible interface of the same name.
mod other {
    use super::*;

    #[derive(Value, Debug)]
    pub(crate) struct Note {
        pub(crate) title: String,
        pub(crate) next: Option<Vec<Self>>,
    }

    #[interface]
    pub(crate) trait Notes {
        fn count(&self) -> peregrine::Result<u32>;
        fn add(&self, note: &Note) -> peregrine::Result<u32>;
        fn read(&self, #[max_len(64)] into: Out<'_, u8>) -> peregrine::Result<u32>;
        fn sum(&self, #[max_len(4)] values: &mut [u32]) -> peregrine::Result<u32>;
    }

    pub(crate) struct Never;

    impl Notes for Never {
        fn count(&self) -> peregrine::Result<u32> {
            panic!("called, although no client can bind")
        }
        fn add(&self, _: &Note) -> peregrine::Result<u32> {
            panic!("called, although no client can bind")
        }
        fn read(&self, _: Out<'_, u8>) -> peregrine::Result<u32> {
            panic!("called, although no client can bind")
        }
        fn sum(&self, _: &mut [u32]) -> peregrine::Result<u32> {
            panic!("called, although no client can bind")
        }
    }
}

#[test]
fn compatible_interfaces_work_and_others_are_reported_on_every_path() {
    use old::{Note, Notes as _, NotesClient};

    let _alone = alone();
    let _directory = own_directory();
    let running = Server::new()
        .export("notes", new::NotesServer::new(new::Book))
        .unwrap()
        .export("others", other::NotesServer::new(other::Never))
        .unwrap()
        .listen("127.0.0.1:0")
        .unwrap()
        .spawn()
        .unwrap();
    let place = running.addresses()[0].place().clone();
    for scheme in
        ["local:NAME".to_owned(), format!("udp:NAME@{place}"), format!("tcp:NAME@{place}")]
    {
        let address = |name| scheme.replace("NAME", name);
        let notes = NotesClient::bind(&address("notes")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(notes.count().unwrap(), 5, "{scheme}");
        let next = Some(Box::new(Note { title: "four".into(), next: None }));
        assert_eq!(notes.add(&Note { title: "x".into(), next }).unwrap(), 5);
        let mut buffer = Vec::with_capacity(100);
        assert_eq!(notes.read(Out::from(&mut buffer)).unwrap(), 3);
        // The server's bound of 32 bytes applies, because it is smaller than the client's bound of 64 bytes.
        assert_eq!(buffer, [7; 32]);
        let mut values = [1, 2, 3];
        assert_eq!(notes.sum(&mut values).unwrap(), 6);
        assert_eq!(values, [3, 2, 1]);
        // The client's bound applies to what the client sends.
        assert_eq!(notes.sum(&mut [0; 5]).unwrap_err().kind(), Kind::TooLarge);
        notes.binding().ping().unwrap();
        assert_eq!(notes.clone().count().unwrap(), 5);

        let error = NotesClient::bind(&address("others")).unwrap_err();
        assert_eq!(error.kind(), Kind::InterfaceMismatch);
        assert_eq!((error.executed(), error.phase()), (Executed::No, Phase::Bind));
        let difference = "interface `Notes`, procedure `add`, parameter `note`, in type `Note`, field `next`: \
                    ours is `Note#1`, the server's is `sequence<Note#1>`";
        assert!(error.to_string().contains(difference), "{error}");
        assert_eq!(error.address(), address("others"));
        // A client without an interface binds to any export.
        let (explanation, bound) = peregrine::explain(&address("others"), &BindOptions::default());
        assert!(bound.is_ok(), "{explanation}");
    }
}
