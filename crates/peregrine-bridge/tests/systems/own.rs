//! What only clients and servers of Peregrine have: buffers, streams, callbacks and one-way calls.

use std::sync::{Condvar, Mutex};

use peregrine::{Callback, Executed, Kind, Lent, Out, Server, Sink, Source, interface};
use peregrine_bridge::Bridge;

use crate::{FRONTS, fresh};

#[interface]
trait Told {
    fn tell(&self, number: u32) -> peregrine::Result<u32>;
}

#[interface]
trait Own {
    /// Doubles the numbers, and fills a buffer with the bytes that are lent.
    fn fill(
        &self,
        numbers: &mut [u32],
        bytes: Lent<'_, u8>,
        into: Out<'_, u8>,
    ) -> peregrine::Result<u64>;
    /// Sends back each number that it receives.
    fn echo(&self, numbers: Source<'_, u32>, back: Sink<'_, u32>) -> peregrine::Result<u32>;
    /// Returns what the caller's object returns.
    fn ask(&self, told: Callback<'_, dyn Told>, number: u32) -> peregrine::Result<u32>;
    /// Fails if the text is empty.
    #[oneway]
    fn note(&self, text: &str) -> peregrine::Result<()>;
    /// Returns the metadata of the call.
    fn metadata(&self) -> peregrine::Result<Vec<String>>;
    /// Waits until `count` calls of `note` have succeeded.
    fn notes(&self, count: u32) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Object {
    notes: Mutex<u32>,
    noted: Condvar,
}

impl Own for Object {
    fn fill(
        &self,
        numbers: &mut [u32],
        bytes: Lent<'_, u8>,
        mut into: Out<'_, u8>,
    ) -> peregrine::Result<u64> {
        numbers.iter_mut().for_each(|number| *number *= 2);
        let mut copy = vec![0; bytes.len()];
        bytes.copy_to(0, &mut copy).expect("the bytes are complete");
        into.put(&copy).expect("there is room");
        Ok(copy.len() as u64)
    }

    fn echo(&self, numbers: Source<'_, u32>, mut back: Sink<'_, u32>) -> peregrine::Result<u32> {
        let mut count = 0;
        for number in numbers {
            back.send(number?)?;
            count += 1;
        }
        Ok(count)
    }

    fn ask(&self, told: Callback<'_, dyn Told>, number: u32) -> peregrine::Result<u32> {
        told.tell(number)
    }

    fn note(&self, text: &str) -> peregrine::Result<()> {
        assert!(!text.is_empty(), "there is no text");
        *self.notes.lock().unwrap() += 1;
        self.noted.notify_all();
        Ok(())
    }

    fn metadata(&self) -> peregrine::Result<Vec<String>> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        Ok(caller.metadata().iter().map(|(key, value)| format!("{key}={value}")).collect())
    }

    fn notes(&self, count: u32) -> peregrine::Result<()> {
        let notes = self.notes.lock().unwrap();
        drop(self.noted.wait_while(notes, |notes| *notes < count).unwrap());
        Ok(())
    }
}

struct Twice;

impl Told for Twice {
    fn tell(&self, number: u32) -> peregrine::Result<u32> {
        Ok(2 * number)
    }
}

#[test]
fn buffers_streams_callbacks_and_one_way_calls_are_passed_on() {
    let (name, front) = (fresh("own"), fresh("own-front"));
    let server = Server::new().export(&name, OwnServer::new(Object::default())).unwrap();
    let server = server.listen("tcp:127.0.0.1:0").unwrap().listen("udp:127.0.0.1:0").unwrap();
    let server = server.spawn().unwrap();
    for (target, count) in ["local", "tcp", "udp"].iter().zip([0, 3, 6]) {
        let target = crate::stock::address(target, &name, server.addresses());
        let bridge = Bridge::new().offer(&format!("{front}={target}")).unwrap();
        let bridge = bridge.export_at(&format!("local:{front}")).unwrap();
        let bridge = FRONTS[..2].iter().fold(bridge, |bridge, at| bridge.export_at(at).unwrap());
        let bridge = bridge.spawn().unwrap();
        for (scheme, count) in ["local", "tcp", "udp"].iter().zip(count + 1..) {
            let at = crate::stock::address(scheme, &front, bridge.endpoints());
            let pair = format!("{scheme} to {target}");
            let own = OwnClient::bind(&at).unwrap();
            let (mut numbers, mut room) = ([1, 2, 3], [0; 8]);
            let mut into = Out::from(&mut room);
            let filled = own.fill(&mut numbers, Lent::from(b"bytes"), into.by_ref()).unwrap();
            assert_eq!((filled, into.filled()), (5, 5), "{pair}");
            assert_eq!((numbers, &room[..5]), ([2, 4, 6], &b"bytes"[..]), "{pair}");
            let mut back = Vec::new();
            let echoed = own.echo(Source::new(0..1000), Sink::new(|number| back.push(number)));
            assert_eq!((echoed.unwrap(), back.len(), back[999]), (1000, 1000, 999), "{pair}");
            assert_eq!(own.ask(Callback::new(&Twice), 21).unwrap(), 42, "{pair}");
            let traced = own.with_metadata("tenant", "birds").unwrap();
            assert_eq!(traced.metadata().unwrap(), ["tenant=birds"], "{pair}");
            assert!(own.metadata().unwrap().is_empty(), "{pair}");
            own.note("a note").unwrap();
            own.notes(count).unwrap();
            // The failure of a one-way call is returned to its caller, and to no other.
            own.note("").unwrap();
            let failed = own.flush().unwrap_err();
            assert_eq!(
                (failed.kind(), failed.executed()),
                (Kind::OneWay, Executed::Maybe),
                "{pair}"
            );
            OwnClient::bind(&at).unwrap().notes(count).unwrap();
        }
    }
}
