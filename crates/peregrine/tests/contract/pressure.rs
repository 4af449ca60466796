//! Makes calls that must wait for each other, and that must all succeed. Each call is within the bounds that
//! the interface declares. But together, the calls need more memory than a server has for one client at a
//! time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

use peregrine::{CallError, Out, interface};

use super::{AnyServer, Form, Forms, interface_in_both_forms};
use crate::support::futures::join_all;

/// The size in bytes of the largest argument and of the largest result.
pub(crate) const BYTES: usize = 8 << 20;
const CALLERS: usize = 10;
const CALLS: usize = 2;

/// The body of an async procedure.
macro_rules! procedure {
    ($self:ident $method:ident $($argument:ident)*) => {
        $self.run(|object| object.$method($($argument),*)).await
    };
}

interface_in_both_forms! {
    client: Client = PressureClient | PressureAsyncClient,
    server: Store = PressureServer | PressureAsyncServer,
    async form: PressureAsync by procedure!,

    #[interface]
    pub(crate) trait Pressure {
        fn put(&self, #[max_len(8 << 20)] bytes: &[u8]) -> peregrine::Result<u64>;
        fn get(&self, with: u8, #[max_len(8 << 20)] into: Out<'_, u8>) -> peregrine::Result<()>;
    }
}

/// An object that counts the calls that ran.
#[derive(Default)]
pub(crate) struct Store(AtomicU64);

impl Pressure for Store {
    fn put(&self, bytes: &[u8]) -> peregrine::Result<u64> {
        assert_eq!(bytes.len(), BYTES);
        assert!([0, BYTES / 2, BYTES - 1].iter().all(|at| bytes[*at] == bytes[1]));
        Ok(self.0.fetch_add(1, Ordering::SeqCst))
    }
    fn get(&self, with: u8, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        let piece = vec![with; 1 << 20];
        while into.remaining() > 0 {
            into.put(&piece).expect("enough space");
        }
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Makes calls from ten threads at once, with the largest messages that the interface allows. An async client
/// also makes the calls as ten futures on one thread. On every path, all calls must succeed, and each call
/// must run once. `connect` makes a client of the given form, which calls the given server over the path
/// under test.
pub(crate) fn calls_within_their_bounds_wait_for_each_other(
    connect: &dyn Fn(AnyServer, Form) -> Client,
) {
    for forms in Forms::ALL {
        println!("{forms:?}");
        calls_wait_for_each_other(&connect(Store::default().server(forms.server), forms.client));
    }
}

/// Makes the calls of [`calls_within_their_bounds_wait_for_each_other`] with one client. No other client may
/// call the object meanwhile.
pub(crate) fn calls_wait_for_each_other(client: &Client) {
    let before = client.put(&vec![1; BYTES]).unwrap() + 1;
    from_threads(client);
    let after = client.put(&vec![1; BYTES]).unwrap();
    assert_eq!(after - before, (2 * CALLERS * CALLS) as u64);
    if let Client::Async(client) = client {
        as_futures(client);
        let ran = join_all([client.put(&vec![1; BYTES])]).remove(0).unwrap() - after - 1;
        assert_eq!(ran, (2 * CALLERS * CALLS) as u64);
    }
}

fn from_threads(client: &Client) {
    let (together, failed) = (Barrier::new(CALLERS), Mutex::new(Vec::new()));
    let calls = &|caller: usize| {
        let with = caller as u8;
        let note = |what: &str, error: CallError| {
            failed.lock().expect("no panic").push(format!("{what}: {error}"));
        };
        let mut bytes = vec![with; BYTES];
        for _ in 0..CALLS {
            together.wait();
            client.put(&bytes).err().into_iter().for_each(|error| note("put", error));
        }
        for _ in 0..CALLS {
            together.wait();
            bytes.fill(0xff);
            let mut into = Out::from(&mut bytes[..]);
            match client.get(with, into.by_ref()) {
                Ok(()) => assert_eq!(into.filled(), BYTES),
                Err(error) => note("get", error),
            }
        }
        bytes == vec![with; BYTES]
    };
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|n| scope.spawn(move || calls(n))).collect();
        let whole = callers.into_iter().all(|caller| caller.join().expect("no panic"));
        let failed = failed.lock().expect("no panic");
        assert!(failed.is_empty(), "{} calls failed: {:#?}", failed.len(), failed.first());
        assert!(whole, "a result differs from its argument");
    });
}

fn as_futures(client: &PressureAsyncClient) {
    let mut buffers: Vec<_> = (0..CALLERS).map(|caller| vec![caller as u8; BYTES]).collect();
    for _ in 0..CALLS {
        let puts = buffers.iter().map(|bytes| client.put(bytes));
        join_all(puts).into_iter().for_each(|ran| assert!(ran.is_ok(), "{ran:?}"));
    }
    for _ in 0..CALLS {
        let gets = (0..).zip(&mut buffers).map(|(with, bytes)| async move {
            bytes.fill(0xff);
            let mut into = Out::from(&mut bytes[..]);
            client.get(with, into.by_ref()).await?;
            assert_eq!(into.filled(), BYTES);
            Ok::<_, CallError>(())
        });
        join_all(gets).into_iter().for_each(|ran| ran.unwrap());
    }
    let whole = |(with, bytes): (u8, &Vec<u8>)| *bytes == vec![with; BYTES];
    assert!((0..).zip(&buffers).all(whole), "a result differs from its argument");
}
