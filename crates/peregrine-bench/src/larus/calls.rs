//! The test programs of the paper: procedures that take nothing, a word or an array of words, and return
//! nothing or one integer. A server counts the calls that it runs, so that lost and repeated calls are
//! noticed.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use peregrine::{BindOptions, CallError, CourierForm, Insecure, Running, Server, interface};

use crate::cases::Waiting;
use crate::machine::own_cpu_time;
use crate::network::timed;
use crate::subject::Failure;

/// The number of calls of a run, as in the paper.
pub(crate) const CALLS: u32 = 2000;

/// How calls are carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Cooper's form of Courier over TCP, which the paper calls Courier.
    Courier,
    /// The messages of Courier's standard over TCP, as records.
    Records,
    /// Packet Courier over UDP, which the paper calls `PCourier`.
    Packet,
    /// Courier's messages over Peregrine's packet exchange. Its figures take the place of the paper's
    /// corrected figures, from which the waits for lost packets were subtracted.
    Exchange,
    /// Peregrine's own calls over UDP.
    Peregrine,
}

impl Carrier {
    pub(crate) const ALL: [Self; 5] =
        [Self::Courier, Self::Records, Self::Packet, Self::Exchange, Self::Peregrine];
    /// The carriers that the tables compare.
    pub(crate) const COMPARED: [Self; 4] =
        [Self::Courier, Self::Packet, Self::Exchange, Self::Peregrine];

    /// Returns the name of the carrier in tables and in commands.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Courier => "courier",
            Self::Records => "records",
            Self::Packet => "packet",
            Self::Exchange => "exchange",
            Self::Peregrine => "peregrine",
        }
    }

    const fn scheme(self) -> &'static str {
        match self {
            Self::Courier | Self::Records => "courier+tcp",
            Self::Packet => "courier+udp",
            Self::Exchange => "courier+exchange",
            Self::Peregrine => "udp",
        }
    }

    /// Returns the address of the server's export.
    fn address(self, at: SocketAddr) -> String {
        let name = if self == Self::Peregrine { "/words" } else { "" };
        format!("{}:{at}{name}", self.scheme())
    }

    fn options(self) -> BindOptions {
        let options = BindOptions::default().wait(Waiting::Block.wait());
        if self == Self::Courier { options.courier_form(CourierForm::Cooper) } else { options }
    }
}

/// One kind of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    /// The number of words in the argument. A word has four bytes.
    pub(crate) words: usize,
    /// Whether the procedure returns an integer. If not, the client does not wait for a reply.
    pub(crate) has_result: bool,
}

impl Test {
    /// The tests, in the order of the paper's tables.
    pub(crate) const ALL: [Self; 8] = [
        Self { words: 0, has_result: false },
        Self { words: 0, has_result: true },
        Self { words: 1, has_result: false },
        Self { words: 1, has_result: true },
        Self { words: 100, has_result: false },
        Self { words: 100, has_result: true },
        Self { words: 1000, has_result: false },
        Self { words: 1000, has_result: true },
    ];

    /// Returns the number of bytes of the argument.
    pub(crate) const fn bytes(self) -> usize {
        4 * self.words
    }
}

/// The procedures that are measured. An integer that a procedure returns is the number of earlier calls,
/// without calls of `null`.
#[interface(courier(program = 0x2000_0083, version = 1))]
trait Words {
    /// Takes nothing, and returns nothing.
    #[courier(0)]
    #[oneway]
    fn none(&self) -> peregrine::Result<()>;
    /// Takes nothing.
    #[courier(1)]
    fn none_counted(&self) -> peregrine::Result<u32>;
    /// Takes a word, and returns nothing.
    #[courier(2)]
    #[oneway]
    fn one(&self, word: u32) -> peregrine::Result<()>;
    /// Takes a word.
    #[courier(3)]
    fn one_counted(&self, word: u32) -> peregrine::Result<u32>;
    /// Takes 100 words, and returns nothing.
    #[courier(4)]
    #[oneway]
    fn hundred(&self, words: &[u32; 100]) -> peregrine::Result<()>;
    /// Takes 100 words.
    #[courier(5)]
    fn hundred_counted(&self, words: &[u32; 100]) -> peregrine::Result<u32>;
    /// Takes 1,000 words, and returns nothing.
    #[courier(6)]
    #[oneway]
    fn thousand(&self, words: &[u32; 1000]) -> peregrine::Result<()>;
    /// Takes 1,000 words.
    #[courier(7)]
    fn thousand_counted(&self, words: &[u32; 1000]) -> peregrine::Result<u32>;
    /// Takes nothing, and returns nothing. Clients wait for the reply.
    #[courier(8)]
    fn null(&self) -> peregrine::Result<()>;
}

/// Counts the calls that have run.
#[derive(Debug, Default)]
struct Counter(AtomicU32);

impl Counter {
    fn count(&self) -> u32 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Words for Counter {
    fn none(&self) -> peregrine::Result<()> {
        self.count();
        Ok(())
    }

    fn none_counted(&self) -> peregrine::Result<u32> {
        Ok(self.count())
    }

    fn one(&self, _: u32) -> peregrine::Result<()> {
        self.count();
        Ok(())
    }

    fn one_counted(&self, _: u32) -> peregrine::Result<u32> {
        Ok(self.count())
    }

    fn hundred(&self, _: &[u32; 100]) -> peregrine::Result<()> {
        self.count();
        Ok(())
    }

    fn hundred_counted(&self, _: &[u32; 100]) -> peregrine::Result<u32> {
        Ok(self.count())
    }

    fn thousand(&self, _: &[u32; 1000]) -> peregrine::Result<()> {
        self.count();
        Ok(())
    }

    fn thousand_counted(&self, _: &[u32; 1000]) -> peregrine::Result<u32> {
        Ok(self.count())
    }

    #[inline(never)]
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

/// Starts a server of the procedures.
///
/// # Errors
/// If the server cannot listen there.
pub(crate) fn serve(carrier: Carrier, at: IpAddr) -> Result<Running, CallError> {
    let server = Server::new().wait(Waiting::Block.wait()).threads(2);
    let server = server.export("words", WordsServer::new(Counter::default()))?;
    let endpoint = format!("{}:{at}:0", carrier.scheme());
    let server = match at.is_loopback() {
        true => server.listen(&endpoint)?,
        false => server.listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)?,
    };
    server.spawn()
}

/// The times of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) elapsed: Duration,
    /// The processor time of this process.
    pub(crate) cpu: Duration,
}

/// A client of the procedures.
pub(crate) struct Calls {
    client: WordsClient,
    hundred: Box<[u32; 100]>,
    thousand: Box<[u32; 1000]>,
}

impl Calls {
    /// Binds to a server.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) fn bind(carrier: Carrier, at: SocketAddr) -> Result<Self, CallError> {
        let client = WordsClient::bind_with(&carrier.address(at), &carrier.options())?;
        let (hundred, thousand) = (Box::new([0x0123_4567; 100]), Box::new([0x0123_4567; 1000]));
        Ok(Self { client, hundred, thousand })
    }

    fn call(&self, test: Test) -> Result<(), CallError> {
        let Self { client, hundred, thousand } = self;
        match (test.words, test.has_result) {
            (0, false) => client.none(),
            (0, true) => client.none_counted().map(drop),
            (1, false) => client.one(0x0123_4567),
            (1, true) => client.one_counted(0x0123_4567).map(drop),
            (100, false) => client.hundred(hundred),
            (100, true) => client.hundred_counted(hundred).map(drop),
            (_, false) => client.thousand(thousand),
            (_, true) => client.thousand_counted(thousand).map(drop),
        }
    }

    /// Makes null calls.
    ///
    /// # Errors
    /// If a call fails.
    pub(crate) fn nulls(&self, calls: u32) -> Result<Duration, Failure> {
        timed(calls, || Ok(self.client.null()?))
    }

    /// Makes [`CALLS`] calls, and waits until the last one has run.
    ///
    /// # Errors
    /// If a call fails, or if a call has not run exactly once.
    pub(crate) fn run(&self, test: Test) -> Result<Took, Failure> {
        let before = self.client.none_counted()?;
        let (start, ran) = (Instant::now(), own_cpu_time());
        for _ in 0..CALLS {
            self.call(test)?;
        }
        // The calls of a binding run in the order in which they were made, so this call runs after the
        // others.
        let counted = self.client.none_counted()?.wrapping_sub(before);
        let took = Took { elapsed: start.elapsed(), cpu: own_cpu_time().saturating_sub(ran) };
        if counted != CALLS + 1 {
            return Err(format!("{} of {CALLS} calls have run", counted - 1).into());
        }
        Ok(took)
    }
}
