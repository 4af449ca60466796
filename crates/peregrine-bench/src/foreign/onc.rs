//! Measures calls by ONC RPC across loopback. The server is in the far process, and exists only while one
//! sample is measured.

use std::hint::black_box;
use std::net::IpAddr;

use peregrine::{BindOptions, CallError, Running, Server, interface};

use crate::cases::Waiting;
use crate::network::far::{Far, Order};
use crate::network::{Exchanged, Streamed, Subject, measured, timed};
use crate::subject::{Failure, Sample};

/// The protocol that carries messages of ONC RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Udp,
    Tcp,
}

impl Protocol {
    pub(crate) const ALL: [Self; 2] = [Self::Udp, Self::Tcp];

    /// Returns the name of the path in the rows of this protocol.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "onc-udp",
            Self::Tcp => "onc-tcp",
        }
    }

    /// Returns the prefix of addresses with this protocol.
    const fn scheme(self) -> &'static str {
        match self {
            Self::Udp => "onc+udp",
            Self::Tcp => "onc+tcp",
        }
    }

    /// Returns the limit of a null call: an exchange without RPC. Its messages have the same numbers of bytes
    /// as the call and the reply.
    pub(crate) fn pingpong(self, wait: Waiting) -> Box<dyn Subject> {
        let spin = wait == Waiting::Spin;
        match self {
            Self::Udp => Box::new(Exchanged::pingpong(spin, CALL_BYTES, REPLY_BYTES)),
            Self::Tcp => {
                let (there, back) = (RECORD_BYTES + CALL_BYTES, RECORD_BYTES + REPLY_BYTES);
                Box::new(Streamed { spin, there, back })
            }
        }
    }
}

/// The number of bytes of a null call without credentials (RFC 5531, section 9).
const CALL_BYTES: usize = 40;
/// The number of bytes of the reply to a null call.
const REPLY_BYTES: usize = 24;
/// The number of bytes of the record marker, which precedes each message on a TCP connection.
const RECORD_BYTES: usize = 4;

/// The largest number of bytes that `take` takes.
pub(crate) const LARGE: u32 = 48_000;

/// The procedures that are measured.
#[interface(onc(program = 0x2000_0078, version = 1))]
pub(crate) trait Program {
    /// Does nothing.
    #[onc(1)]
    fn null(&self) -> peregrine::Result<()>;
    /// Takes bytes.
    #[onc(2)]
    fn take(&self, #[max_len(LARGE)] bytes: &[u8]) -> peregrine::Result<()>;
}

#[derive(Debug)]
pub(crate) struct Object;

impl Program for Object {
    #[inline(never)]
    fn null(&self) -> peregrine::Result<()> {
        black_box(());
        Ok(())
    }

    #[inline(never)]
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()> {
        black_box(bytes);
        Ok(())
    }
}

/// Starts a server that listens at an address.
///
/// # Errors
/// If the server cannot listen there.
pub(crate) fn serve(protocol: Protocol, wait: Waiting, at: IpAddr) -> Result<Running, CallError> {
    let server = Server::new().wait(wait.wait()).threads(2);
    let server = server.export("onc-program", ProgramServer::new(Object))?;
    server.listen(&format!("{}:{at}:0", protocol.scheme()))?.spawn()
}

/// The subject that makes Peregrine's calls by ONC RPC.
pub(crate) struct Calls {
    pub(crate) protocol: Protocol,
    pub(crate) wait: Waiting,
    /// The number of bytes of arguments. With 0, the calls are null calls.
    pub(crate) bytes: u32,
}

impl Subject for Calls {
    fn name(&self) -> &'static str {
        "peregrine"
    }

    fn run(&mut self, far: &mut Far, warm: u32, calls: u32) -> Result<Sample, Failure> {
        let &mut Self { protocol, wait, bytes } = self;
        let at = far.order(Order::Onc(protocol, wait))?;
        let address = format!("{}:{}", protocol.scheme(), at[0]);
        let client = ProgramClient::bind_with(&address, &BindOptions::default().wait(wait.wait()))?;
        let bytes = vec![0xa5; bytes as usize];
        let call = || match &bytes[..] {
            [] => Ok(client.null()?),
            bytes => Ok(client.take(black_box(bytes))?),
        };
        let sample = measured(far, warm, calls, |calls| timed(calls, call))?;
        drop(client);
        far.end_order()?;
        Ok(sample)
    }
}
