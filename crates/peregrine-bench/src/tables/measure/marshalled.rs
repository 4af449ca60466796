//! The calls of Firefly's Tables II to V: arguments and results of several types. Also calls by stubs that are
//! written by hand, as those of Firefly's RPC Exerciser.

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Duration;

use peregrine::__rt::{call, target};
use peregrine::{BindOptions, CallError, Out, Running, Server, Wait, interface};

use super::census::{FilesServer, Tree};
use crate::cases::{Size, Waiting};
use crate::interfaces::{Small as _, SmallClient};
use crate::peer::Peer;
use crate::subject::{Failure, Sample, WARM_CALLS, per_call, quiet, timed};

/// Procedures with arguments and results of several types.
#[interface]
pub(crate) trait Marshalled {
    /// Does nothing.
    fn nothing(&self) -> peregrine::Result<()>;
    /// Takes an integer.
    fn one(&self, a: u32) -> peregrine::Result<()>;
    /// Takes two integers.
    fn two(&self, a: u32, b: u32) -> peregrine::Result<()>;
    /// Takes four integers.
    fn four(&self, a: u32, b: u32, c: u32, d: u32) -> peregrine::Result<()>;
    /// Returns an array of fixed length.
    fn fixed_small(&self) -> peregrine::Result<[u8; 4]>;
    /// Returns a longer array of fixed length.
    fn fixed_large(&self) -> peregrine::Result<[u8; 400]>;
    /// Returns an array of variable length.
    fn variable(&self, #[max_len(1440)] into: Out<'_, u8>) -> peregrine::Result<()>;
    /// Takes a text, or no text.
    fn text(&self, text: Option<Cow<'static, str>>) -> peregrine::Result<()>;
}

#[derive(Debug)]
struct Object;

static BYTES: [u8; 1440] = [0x5a; 1440];

impl Marshalled for Object {
    #[inline(never)]
    fn nothing(&self) -> peregrine::Result<()> {
        black_box(());
        Ok(())
    }

    #[inline(never)]
    fn one(&self, a: u32) -> peregrine::Result<()> {
        black_box(a);
        Ok(())
    }

    #[inline(never)]
    fn two(&self, a: u32, b: u32) -> peregrine::Result<()> {
        black_box((a, b));
        Ok(())
    }

    #[inline(never)]
    fn four(&self, a: u32, b: u32, c: u32, d: u32) -> peregrine::Result<()> {
        black_box((a, b, c, d));
        Ok(())
    }

    #[inline(never)]
    fn fixed_small(&self) -> peregrine::Result<[u8; 4]> {
        Ok(black_box([0x5a; 4]))
    }

    #[inline(never)]
    fn fixed_large(&self) -> peregrine::Result<[u8; 400]> {
        Ok(black_box([0x5a; 400]))
    }

    #[inline(never)]
    fn variable(&self, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let bytes = into.capacity().min(BYTES.len());
        // `put` does not fail, because the length is limited to the capacity of the buffer.
        let _ = into.put(&black_box(&BYTES)[..bytes]);
        Ok(())
    }

    #[inline(never)]
    fn text(&self, text: Option<Cow<'static, str>>) -> peregrine::Result<()> {
        black_box(text);
        Ok(())
    }
}

/// The beginning of the names of the exports that only this experiment has.
const EXPORT: &str = "marshalled";
/// The name of the export of the file service.
pub(crate) const FILES: &str = "files";

/// Starts a server of the procedures, and of the file service.
///
/// # Errors
/// If the names are taken.
pub(crate) fn serve(prefix: &str) -> Result<Running, CallError> {
    Server::new()
        .wait(Wait::Spin)
        .export(&format!("{prefix}{EXPORT}"), MarshalledServer::new(Object))?
        .export(&format!("{prefix}{FILES}"), FilesServer::new(Tree))?
        .spawn()
}

/// The names of the calls.
pub(crate) const NAMES: [&str; 11] = [
    "nothing",
    "integers-1",
    "integers-2",
    "integers-4",
    "fixed-4",
    "fixed-400",
    "variable-1",
    "variable-1440",
    "text-NIL",
    "text-1",
    "text-128",
];

/// Makes calls of one kind, and returns their time.
fn calls(client: &MarshalledClient, which: usize, calls: u32) -> peregrine::Result<Duration> {
    static TEXT: &str = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over \
        the lazy dog. The quick brown fox jumps over the lazy.";
    let mut bytes = [0; 1440];
    let text = |length| Some(Cow::Borrowed(&TEXT[..length]));
    match which {
        0 => timed(calls, || client.nothing()),
        1 => timed(calls, || client.one(black_box(1))),
        2 => timed(calls, || client.two(black_box(1), black_box(2))),
        3 => timed(calls, || client.four(black_box(1), black_box(2), black_box(3), black_box(4))),
        4 => timed(calls, || client.fixed_small().map(|bytes| _ = black_box(bytes))),
        5 => timed(calls, || client.fixed_large().map(|bytes| _ = black_box(bytes))),
        6 => timed(calls, || client.variable(Out::from(black_box(&mut bytes[..1])))),
        7 => timed(calls, || client.variable(Out::from(black_box(&mut bytes[..])))),
        8 => timed(calls, || client.text(black_box(None))),
        9 => timed(calls, || client.text(black_box(text(1)))),
        _ => timed(calls, || client.text(black_box(text(128)))),
    }
}

/// Makes calls to the other process.
pub(crate) fn between(peer: &mut Peer, which: usize, number: u32) -> Result<Sample, Failure> {
    let name = peer.named(EXPORT);
    let client = MarshalledClient::bind_with(&name, &BindOptions::default().wait(Wait::Spin))?;
    calls(&client, which, WARM_CALLS)?;
    let took = calls(&client, which, number)?;
    drop(client);
    quiet(&name)?;
    Ok(Sample { ns: per_call(took, number), cpu_ns: None })
}

/// Makes calls within this process.
pub(crate) fn within(_: &mut Peer, which: usize, number: u32) -> Result<Sample, Failure> {
    let client = MarshalledClient::in_process(Object);
    calls(&client, which, WARM_CALLS)?;
    Ok(Sample { ns: per_call(calls(&client, which, number)?, number), cpu_ns: None })
}

/// The keys of calls with generated stubs, with stubs that are written by hand, and without stubs.
pub(crate) const EXERCISED: [&str; 5] =
    ["generated/null", "by-hand/null", "generated/out-1440", "by-hand/out-1440", "no-stubs/null"];

/// The numbers of procedures of the interface [`Small`](crate::interfaces::Small).
const NULL: u32 = 0;
const GIVE: u32 = 4;

/// Calls `null` by a client stub that is written by hand. It knows that the server has this machine's
/// representation, and that nothing follows the result.
fn null_by_hand(client: &SmallClient) -> peregrine::Result<()> {
    call(target(client.binding()), NULL, |stub| {
        stub.head_only();
        stub.transport(&[], &[], &mut [])?.result()
    })
}

/// Calls `give` in the same way.
fn give_by_hand(client: &SmallClient, bytes: &mut [u8]) -> peregrine::Result<()> {
    call(target(client.binding()), GIVE, |stub| {
        let mut into = Out::from(&mut *bytes);
        let block = stub.out(&mut into, usize::MAX)?;
        stub.transport(&[], &[], &mut [block])?.result()
    })
}

/// Makes calls of one of [`EXERCISED`].
pub(crate) fn exercised(peer: &mut Peer, which: usize, number: u32) -> Result<Sample, Failure> {
    let name = peer.export(Waiting::Spin, Size::Small);
    let client = SmallClient::bind_with(&name, &BindOptions::default().wait(Wait::Spin))?;
    let mut bytes = [0; 1440];
    let mut run = |calls| match which {
        0 => timed(calls, || client.null()),
        1 => timed(calls, || null_by_hand(&client)),
        2 => timed(calls, || client.give(Out::from(black_box(&mut bytes[..])))),
        3 => timed(calls, || give_by_hand(&client, black_box(&mut bytes[..]))),
        _ => timed(calls, || client.binding().ping()),
    };
    run(WARM_CALLS)?;
    let took = run(number)?;
    drop(client);
    quiet(&name)?;
    Ok(Sample { ns: per_call(took, number), cpu_ns: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::Object;

    #[test]
    fn stubs_by_hand_call_the_same_procedures() {
        let client = SmallClient::in_process(Object);
        null_by_hand(&client).unwrap();
        let (mut by_hand, mut generated) = ([0; 1440], [0; 1440]);
        give_by_hand(&client, &mut by_hand).unwrap();
        client.give(Out::from(&mut generated[..])).unwrap();
        assert!(by_hand == generated && by_hand != [0; 1440]);
    }
}
