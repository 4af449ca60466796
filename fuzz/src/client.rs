//! Passes any reply to a client stub. The stub returns a result whose values are all valid, or an error.

use std::cell::RefCell;
use std::sync::Arc;

use peregrine::fuzzing::{Script, scripted};
use peregrine::value::ByteOrder;
use peregrine::{Lent, Out};

use super::{Colour, Everything, EverythingClient, List, Point, Shade, Shape, Tree, over};

const BYTES: usize = 4096;

thread_local! {
    /// Two servers: one has this machine's byte order, the other one has the opposite byte order.
    static SERVERS: [(Arc<Script>, EverythingClient); 2] =
        [ByteOrder::NATIVE, ByteOrder::NATIVE.other()].map(|order| {
            let scripted = scripted(EverythingClient::INTERFACE, BYTES, order);
            let (script, binding) = scripted.expect("a script");
            (script, over(binding))
        });
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reads all bytes of a printed result, so that a sanitizer detects bytes that are not initialized.
fn look(text: String) {
    LAST.with_borrow_mut(|last| {
        last.clear();
        last.extend(text.bytes());
    });
}

fn failed(error: &peregrine::CallError) {
    // Printing an error must not fail, and must produce text.
    assert!(!error.to_string().is_empty());
}

const POINT: Point = Point {
    id: 1,
    at: [2, 3],
    visible: true,
    colour: Shade::Light,
    pad: [0; 2],
    letter: 'x',
    flags: [true; 4],
};

/// Makes a call. The first byte of the input selects the call, and its highest bit selects the server. The
/// next 16 bytes are the reply's header. The rest is the message of the reply.
pub fn run(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else { return };
    let Some((header, message)) = rest.split_at_checked(16) else { return };
    SERVERS.with(|servers| {
        let (script, client) = &servers[usize::from(which >> 7)];
        script.answer(header, message);
        match which % 11 {
            0 => client.nothing().unwrap_or_else(|error| failed(&error)),
            1 => client.add(1, 2).map_or_else(|error| failed(&error), |_| ()),
            2 => match client.text(true, "path", "key") {
                Ok(text) => look(text),
                Err(error) => failed(&error),
            },
            3 => {
                let slices = client.slices(&[POINT], &[3], &["a".into()]);
                slices.map_or_else(|error| failed(&error), |_| ());
            }
            4 => {
                let (a, b) = (Lent::from(&[1u8, 2]), Lent::from(&[Colour::Red]));
                let _ = client.lend(a, b).map_err(|error| failed(&error));
            }
            5 => {
                let (mut bytes, mut points) = ([0u8; 40], [POINT; 5]);
                let (mut a, mut b) = (Out::from(&mut bytes), Out::from(&mut points));
                let result = client.fill(7, a.by_ref(), b.by_ref());
                let filled = (a.filled(), b.filled());
                assert!(filled.0 <= 40 && filled.1 <= 5);
                look(format!("{result:?} {bytes:?} {points:?}"));
            }
            6 => {
                let (mut bytes, mut points) = (Vec::with_capacity(17), Vec::with_capacity(3));
                let result = client.fill(7, Out::from(&mut bytes), Out::from(&mut points));
                look(format!("{result:?} {bytes:?} {points:?}"));
            }
            7 => {
                let next = Some(Box::new(List { value: 2, next: None }));
                let mut list = List { value: 1, next };
                let (mut numbers, mut letters) = ([1, 2], ['a', 'b', 'c']);
                let mut shapes = [Shape::Empty, Shape::Circle(1.0)];
                let result = client.change(&mut list, &mut numbers, &mut letters, &mut shapes);
                look(format!("{result:?} {list:?} {numbers:?} {letters:?} {shapes:?}"));
            }
            8 => {
                let mut buffer = [0u16; 4];
                let result: Result<Tree, Shape> =
                    client.fail(&Shape::Circle(2.0), Out::from(&mut buffer));
                look(format!("{result:?} {buffer:?}"));
            }
            9 => {
                let result = client.odd(vec![], vec![], vec![], &[], None);
                look(format!("{result:?}"));
            }
            _ => client.binding().ping().unwrap_or_else(|error| failed(&error)),
        }
        // Every reply, even an invalid one, releases the A-stack. So the next call must succeed.
        script.answer(&[0; 16], &[]);
        client.nothing().expect("a valid reply");
    });
}
