//! Compares the calls that client stubs write, and the replies that server stubs write, with the bytes in the
//! documents. Does this in both byte orders.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use peregrine::call::{Answer, EStack, Incoming, Ran, Reply, Request, Serve, Served, execute};
use peregrine::interface::InterfaceRef;
use peregrine::value::{ByteOrder, Space, Window};
use peregrine::{BindOptions, Binding, CallError, Executed, Kind, Lent, Out, Value, interface};

use crate::document::{bytes, check, pattern};

#[derive(Debug, PartialEq, Value)]
pub(crate) enum GoldenError {
    Call(String),
    Code(u16),
}

impl From<CallError> for GoldenError {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

#[interface]
pub(crate) trait Golden {
    fn nothing(&self) -> peregrine::Result<()>;
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    fn mixed(
        &self,
        flag: bool,
        path: &str,
        numbers: &[u16],
        names: &[String],
    ) -> peregrine::Result<u64>;
    fn lend(&self, key: &str, a: Lent<'_, u8>, b: Lent<'_, u16>) -> peregrine::Result<u32>;
    fn read(
        &self,
        offset: u64,
        #[max_len(24)] text: Out<'_, u8>,
        digits: Out<'_, u16>,
    ) -> peregrine::Result<u64>;
    fn change(
        &self,
        counter: &mut u32,
        values: &mut [u16],
        names: &mut [String],
    ) -> peregrine::Result<bool>;
    fn fail(&self, code: u16, into: Out<'_, u8>) -> Result<(), GoldenError>;
    fn wide(&self, into: Out<'_, u8>) -> peregrine::Result<String>;
    fn stop(&self) -> peregrine::Result<()>;
}

struct Object;

const WIDE: &str = "a result that is too long for the rest";

impl Golden for Object {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a + b)
    }
    fn mixed(
        &self,
        flag: bool,
        path: &str,
        numbers: &[u16],
        names: &[String],
    ) -> peregrine::Result<u64> {
        assert_eq!((flag, path, numbers), (true, "falcon", &[1, 2, 3][..]));
        assert_eq!(names, ["a", "bc"]);
        Ok(0x0102)
    }
    fn lend(&self, key: &str, a: Lent<'_, u8>, b: Lent<'_, u16>) -> peregrine::Result<u32> {
        let (mut first, mut second) = ([0; 3], [0; 2]);
        a.copy_to(0, &mut first).expect("three bytes");
        b.copy_to(0, &mut second).expect("two numbers");
        assert_eq!((key, first, second), ("k", [7, 8, 9], [0x0102, 0x0304]));
        Ok(5)
    }
    fn read(
        &self,
        offset: u64,
        mut text: Out<'_, u8>,
        mut digits: Out<'_, u16>,
    ) -> peregrine::Result<u64> {
        assert_eq!((offset, text.capacity(), digits.capacity()), (7, 24, 3));
        text.put(b"hello").expect("enough space");
        digits.put(&[1, 2]).expect("enough space");
        Ok(9)
    }
    fn change(
        &self,
        counter: &mut u32,
        values: &mut [u16],
        names: &mut [String],
    ) -> peregrine::Result<bool> {
        *counter += 1;
        values.reverse();
        names[0] = "q".into();
        Ok(true)
    }
    fn fail(&self, code: u16, mut into: Out<'_, u8>) -> Result<(), GoldenError> {
        into.put(&[1]).expect("enough space");
        Err(GoldenError::Code(code))
    }
    fn wide(&self, mut into: Out<'_, u8>) -> peregrine::Result<String> {
        into.put(&[1, 2]).expect("enough space");
        Ok(WIDE.into())
    }
    fn stop(&self) -> peregrine::Result<()> {
        panic!("stop")
    }
}

/// The names of the calls that a client makes, in this order.
pub(crate) const CASES: &[&str] =
    &["nothing", "add", "mixed", "lend", "read", "change", "fail", "wide", "stop", "ping"];
/// The names of calls that no client of Peregrine makes.
pub(crate) const SERVER_CASES: &[&str] = &["unknown", "unreadable", "overfull"];

/// Makes the call of a case and checks its outcome.
pub(crate) fn call(client: &GoldenClient, case: &str) {
    match case {
        "nothing" => client.nothing().unwrap(),
        "add" => assert_eq!(client.add(2, -5).unwrap(), -3),
        "mixed" => {
            let names = ["a".to_owned(), "bc".to_owned()];
            assert_eq!(client.mixed(true, "falcon", &[1, 2, 3], &names).unwrap(), 0x0102);
        }
        "lend" => {
            let (a, b) = (Lent::from(&[7, 8, 9]), Lent::from(&[0x0102, 0x0304]));
            assert_eq!(client.lend("k", a, b).unwrap(), 5);
        }
        "read" => {
            let (mut text, mut digits) = ([0; 100], [0; 3]);
            let (mut a, mut b) = (Out::from(&mut text), Out::from(&mut digits));
            assert_eq!(client.read(7, a.by_ref(), b.by_ref()).unwrap(), 9);
            assert_eq!((a.filled(), b.filled()), (5, 2));
            assert_eq!((&text[..5], &digits[..2]), (&b"hello"[..], &[1, 2][..]));
        }
        "change" => {
            let (mut counter, mut values, mut names) = (41, [1, 2], ["x".to_owned()]);
            assert!(client.change(&mut counter, &mut values, &mut names).unwrap());
            assert_eq!((counter, values, &*names[0]), (42, [2, 1], "q"));
        }
        "fail" => {
            let mut buffer = [0; 2];
            let failed = client.fail(0x0201, Out::from(&mut buffer));
            assert_eq!(failed, Err(GoldenError::Code(0x0201)));
        }
        "wide" => {
            let mut buffer = [0; 4];
            assert_eq!(client.wide(Out::from(&mut buffer)).unwrap(), WIDE);
            assert_eq!(buffer, [1, 2, 0, 0]);
        }
        "stop" => {
            let error = client.stop().unwrap_err();
            assert_eq!((error.kind(), error.executed()), (Kind::Panicked, Executed::Maybe));
            assert_eq!(error.detail(), "stop");
        }
        "ping" => client.binding().ping().unwrap(),
        // In a case of `SERVER_CASES`, the server of `foreign.rs` answers a call of `nothing` with the
        // refusal in the document.
        _ => {
            let error = client.nothing().unwrap_err();
            assert_eq!(error.executed(), Executed::No, "{case}");
            let kinds = [Kind::NoSuchProcedure, Kind::BadArguments, Kind::TooLarge];
            assert!(kinds.contains(&error.kind()), "{case}: {error}");
        }
    }
}

/// Returns the words of a header in the document.
fn words(name: &str) -> Vec<u32> {
    let bytes = bytes(name, 0);
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The cases for which the document also has the message that a big-endian server receives.
pub(crate) const BIG_CASES: &[&str] = &["add", "mixed", "lend", "read", "change", "fail", "stop"];

/// A big-endian server that answers with the vectors (named byte sequences) of the document.
struct Big;

impl Serve for Big {
    fn interface(&self) -> InterfaceRef {
        GoldenClient::INTERFACE.into()
    }
    fn byte_order(&self) -> ByteOrder {
        ByteOrder::Big
    }
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let case = BIG_CASES
            .iter()
            .find(|case| words(&format!("call {case} header"))[0] == request.procedure());
        let case = case.expect("a case of the document");
        let [_, head_bytes, copied, total] =
            words(&format!("call {case} header")).try_into().expect("four words");
        let raw = request.raw();
        let mut message = vec![0; total as usize];
        let (head, rest) = message.split_at_mut(head_bytes as usize);
        raw.head.read(0, head).expect("a head of the documented length");
        let blocks = rest.len() - raw.copied.len() - raw.lent.len();
        let rest = &mut rest[blocks..];
        rest[..raw.copied.len()].copy_from_slice(raw.copied);
        raw.lent.read(&mut rest[raw.copied.len()..])?;
        assert_eq!(total as usize - raw.lent.len(), copied as usize, "{case}");
        check(&format!("big call {case}"), &message);

        let [answer, _, head_at, head_bytes] = {
            let header = bytes(&format!("reply {case} header"), 0);
            let word = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("a word"));
            [0, 4, 8, 12].map(|at| word(at) as usize)
        };
        let message = bytes(&format!("big reply {case}"), 0);
        let capacities: &[usize] = match *case {
            "read" => &[24, 6],
            "change" => &[4, 0],
            "fail" => &[2],
            _ => &[],
        };
        reply.expect(capacities.len());
        let mut at = 32;
        for (index, capacity) in capacities.iter().enumerate() {
            let block = reply.block(*capacity).expect("enough space");
            if answer == 0 {
                let filled = message[4 * index..][..4].try_into().expect("the table's entry");
                let filled = u32::from_le_bytes(filled) as usize;
                block.write(0, message.get(at..at + filled).unwrap_or(&[])).expect("enough space");
                reply.filled(index, filled)?;
                at = (at + capacity).next_multiple_of(16);
            }
        }
        let answer = Answer::from_number(answer as u32).expect("an answer");
        reply.raw(answer, &message[head_at..head_at + head_bytes])
    }
}

/// A little-endian client sends the bytes of the document to a big-endian server, and reads the server's
/// replies.
#[test]
fn client_sends_documented_bytes_to_big_endian_server() {
    let binding = Binding::in_process(Arc::new(Big), &BindOptions::default());
    let client = GoldenClient { binding };
    for case in BIG_CASES {
        call(&client, case);
    }
}

/// The stub of a server answers the calls of the document with the replies of the document.
#[test]
fn server_stub_answers_with_documented_bytes() {
    for case in CASES.iter().chain(SERVER_CASES) {
        let words = words(&format!("call {case} header"));
        let message = bytes(&format!("call {case}"), 0);
        assert_eq!(message.len(), words[3] as usize, "{case}");
        let mut space = [0u128; 256];
        for (place, chunk) in space.iter_mut().zip(message.chunks(16)) {
            let mut whole = [0; 16];
            whole[..chunk.len()].copy_from_slice(chunk);
            *place = u128::from_le_bytes(whole);
        }
        let image: Vec<u8> = space.iter().flat_map(|part| part.to_le_bytes()).collect();
        let incoming = Incoming {
            procedure: words[0],
            space: Window::from(&image[..]),
            head_bytes: words[1] as usize,
            copied: words[2] as usize,
            total: words[3] as usize,
            arrives: None,
            departs: None,
        };
        let mut reply = [0xaa; 4096];
        let server = GoldenServer::new(Object);
        let mut estack = EStack::default();
        let run = || execute(&server, &incoming, Space::of_mut(&mut reply), &mut estack);
        let ran = catch_unwind(AssertUnwindSafe(run));
        let Ok(Ran { answer, head_at, head_bytes, .. }) = ran else {
            // Paths catch the panic and report it in the reply. `foreign.rs` tests how a client reads that
            // reply.
            assert_eq!(*case, "stop");
            continue;
        };
        let mut header = Vec::new();
        for word in [answer as u32, 0, head_at, head_bytes] {
            header.extend(word.to_le_bytes());
        }
        check(&format!("reply {case} header"), &header);
        let name = format!("reply {case}");
        check(&name, &reply[..pattern(&name).len()]);
        assert!(head_at as usize + head_bytes as usize <= pattern(&name).len(), "{case}");
        assert_eq!(Answer::from_number(answer as u32), Some(answer));
    }
}
