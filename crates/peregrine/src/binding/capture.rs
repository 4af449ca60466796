//! Captures the calls of a server of this machine as they happen.

use core::time::Duration;
use std::sync::Arc;
use std::time::SystemTime;

use super::BindOptions;
use crate::address::Address;
use crate::error::{CallError, Kind, Phase};
use crate::interface::{Described, System};
use crate::limits;
use crate::observe::{LayerOutcome, Wanted};
use crate::path::bind::until;
use crate::path::local::{CapturedRecord, Records};
use crate::stub::{CapturedArgument, CapturedMessage, Program};

/// Which calls a [`Capture`] has, and how much of them.
///
/// ```
/// use peregrine::CaptureOptions;
///
/// let options = CaptureOptions::default().procedure("greet").failed_only().argument_bytes(256);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CaptureOptions {
    procedure: Option<String>,
    failed_only: bool,
    bytes: usize,
    limit: Duration,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        let limit = BindOptions::default().bind_limit;
        Self { procedure: None, failed_only: false, bytes: limits::CAPTURE_BYTES, limit }
    }
}

impl CaptureOptions {
    /// Captures only calls of this procedure. By default, calls of all procedures are captured.
    pub fn procedure(mut self, name: impl Into<String>) -> Self {
        self.procedure = Some(name.into());
        self
    }

    /// Captures only calls that failed, that is, for which the procedure returned neither a result nor its
    /// own error.
    pub const fn failed_only(mut self) -> Self {
        self.failed_only = true;
        self
    }

    /// Sets how many bytes of the arguments of each call are captured. The default is
    /// [`limits::CAPTURE_BYTES`], and the maximum [`limits::CAPTURE_BYTES_MAX`].
    pub const fn argument_bytes(mut self, bytes: usize) -> Self {
        let most = limits::CAPTURE_BYTES_MAX;
        self.bytes = if bytes < most { bytes } else { most };
        self
    }

    /// Sets how long [`Capture::open_with`] waits for the server. The default is 5 seconds.
    pub const fn open_timeout(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}

/// The calls of an export of this machine, as they happen.
///
/// The server sends a record of each call that begins after the capture was opened, when the call has ended.
/// It does so for calls of all clients, over all paths. Only the user of the server and root may capture,
/// that is, those who may trace the process of the server. A server with
/// [`Disclosure::Nothing`](crate::Disclosure) refuses.
///
/// A capture never delays a call. If this program does not read as fast as calls end, the server [leaves
/// calls out](Self::left_out). Calls of an export without captures cost the same as if there were no
/// captures. At most [`limits::CAPTURES_MAX`] programs capture calls of one server at a time. The capture
/// ends when this value is dropped.
///
/// ```
/// # use peregrine::{interface, Server};
/// use peregrine::{Capture, CapturedArgument, Dynamic};
///
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let running = Server::new().export("capture-example", EchoServer::new(Same))?.spawn()?;
/// let mut capture = Capture::open("capture-example")?;
/// EchoClient::bind("capture-example")?.echo(7)?;
/// let call = capture.next().expect("a capture has no end")?;
/// assert_eq!((call.procedure(), call.result_bytes()), ("echo", 4));
/// let arguments = call.arguments()?;
/// assert_eq!(arguments, [("x".to_owned(), CapturedArgument::Value(Dynamic::U32(7)))]);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Capture {
    records: Records,
    address: String,
    interface: Arc<CapturedInterface>,
    left_out: u64,
    has_failed: bool,
}

/// The interface of captured calls.
struct CapturedInterface {
    described: Described,
    program: Program,
}

impl core::fmt::Debug for Capture {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Capture").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Capture {
    /// Captures all calls of the export with this name.
    ///
    /// # Errors
    /// * [`Kind::NotFound`]: no server of this machine has such an export.
    /// * [`Kind::BadName`]: the name is invalid, or the address names a host or a path.
    /// * [`Kind::Denied`]: the server belongs to another user, or discloses nothing.
    /// * [`Kind::Exhausted`]: too many programs capture calls of the server.
    /// * [`Kind::ProtocolMismatch`]: the server's version cannot show its calls.
    /// * [`Kind::TimedOut`]: the server does not answer in time.
    pub fn open(name: &str) -> Result<Self, CallError> {
        Self::open_with(name, &CaptureOptions::default())
    }

    /// Captures calls of the export with this name.
    ///
    /// ```
    /// use peregrine::{Capture, CaptureOptions, Kind};
    ///
    /// let opened = Capture::open_with("no-such-files", &CaptureOptions::default().failed_only());
    /// assert_eq!(opened.unwrap_err().kind(), Kind::NotFound);
    /// ```
    ///
    /// # Errors
    /// Those of [`open`](Self::open), and [`Kind::NoSuchProcedure`] if the interface does not have the
    /// procedure of the options.
    pub fn open_with(name: &str, options: &CaptureOptions) -> Result<Self, CallError> {
        Self::opened(name, options).map_err(|error| error.at(name))
    }

    fn opened(name: &str, options: &CaptureOptions) -> Result<Self, CallError> {
        let bad = |kind, text: String| CallError::not_executed(kind, Phase::Bind, text);
        let address: Address = name.parse()?;
        if address.place().is_some()
            || address.path().is_some_and(|path| !path.is_on_this_machine())
        {
            let text = "only servers of this machine show their calls".to_owned();
            return Err(bad(Kind::BadName, text).with_advice("write the name of an export"));
        }
        let until = until(options.limit);
        let asked = BindOptions::default().bind_timeout(options.limit);
        let local = format!("local:{}", address.name());
        let description = super::describe_with(&local, &asked).map_err(CallError::nowhere)?;
        let described = Described::parse(&description.text).map_err(|error| {
            let text = format!("cannot read the server's interface: {error}");
            bad(Kind::InterfaceMismatch, text)
        })?;
        let procedure = match &options.procedure {
            None => None,
            Some(name) => {
                Some(described.procedure(name).map(|(number, _)| number).ok_or_else(|| {
                    let text = format!("`{}` has no procedure `{name}`", described.name);
                    bad(Kind::NoSuchProcedure, text)
                })?)
            }
        };
        let bytes = options.bytes as u32;
        let wanted = Wanted { procedure, failed_only: options.failed_only, bytes };
        let records = Records::open(address.name(), wanted, until).map_err(|error| {
            if error.kind() != Kind::ProtocolMismatch {
                return error;
            }
            let text = format!("the server's version cannot show its calls ({})", error.detail());
            bad(Kind::ProtocolMismatch, text)
                .with_advice("use a newer release of Peregrine for the server")
        })?;
        let program = Program::flatten(&described);
        Ok(Self {
            records,
            address: name.to_owned(),
            interface: Arc::new(CapturedInterface { described, program }),
            left_out: 0,
            has_failed: false,
        })
    }

    /// Returns the description of the export's interface.
    pub fn described(&self) -> &Described {
        &self.interface.described
    }

    /// Waits up to `limit` for the end of the next call. Returns `None` if no call has ended.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # fn shown(capture: &mut peregrine::Capture) -> peregrine::Result<()> {
    /// while let Some(call) = capture.next_within(Duration::from_secs(1))? {
    ///     println!("{} took {:?}", call.procedure(), call.took());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// * [`Kind::Withdrawn`]: the server has stopped, or has withdrawn the export.
    /// * [`Kind::ServerGone`]: the process of the server has ended.
    /// * [`Kind::ProtocolMismatch`]: the server violates the protocol.
    pub fn next_within(&mut self, limit: Duration) -> Result<Option<Captured>, CallError> {
        let next = self.records.next_within(limit).map_err(|error| error.at(&self.address))?;
        let Some(received) = next else { return Ok(None) };
        let procedures = self.interface.described.procedures.len();
        if received.record.procedure as usize >= procedures {
            let text = "the server reports a procedure that its interface does not have";
            let error = CallError::not_executed(Kind::ProtocolMismatch, Phase::Call, text);
            return Err(error.at(&self.address));
        }
        self.left_out = received.left_out;
        Ok(Some(Captured { received, interface: Arc::clone(&self.interface) }))
    }

    /// Returns the number of calls that were left out, because this program did not read as fast as calls
    /// ended. It is known with the next call that is not left out.
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Waits for calls, without limit. After an error, there is no further item.
impl Iterator for Capture {
    type Item = Result<Captured, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        const LONG: Duration = Duration::from_secs(3600);
        while !self.has_failed {
            match self.next_within(LONG) {
                Ok(None) => {}
                Ok(Some(call)) => return Some(Ok(call)),
                Err(error) => {
                    self.has_failed = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// A call that has ended. See [`Capture`].
pub struct Captured {
    received: CapturedRecord,
    interface: Arc<CapturedInterface>,
}

impl core::fmt::Debug for Captured {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut shown = f.debug_struct("Captured");
        shown.field("procedure", &self.procedure()).field("outcome", &self.outcome());
        shown.finish_non_exhaustive()
    }
}

impl Captured {
    /// Returns the number of the call among those of this capture, in the order in which they ended, from 0.
    /// Calls that were left out have numbers, too.
    pub const fn number(&self) -> u64 {
        self.received.number
    }

    /// Returns the name of the procedure.
    pub fn procedure(&self) -> &str {
        &self.interface.described.procedures[self.received.record.procedure as usize].name
    }

    /// Returns the number of the procedure: its index in the interface.
    pub const fn procedure_number(&self) -> u32 {
        self.received.record.procedure
    }

    /// Returns the time at which the server began the call, by the clock of its machine.
    pub fn begun(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.received.record.begun_ns)
    }

    /// Returns the time from the begin of the call to its end, in the server.
    pub const fn took(&self) -> Duration {
        Duration::from_nanos(self.received.record.took_ns)
    }

    /// Returns the name of the path that carried the call, such as `local` or `tcp`.
    pub fn path(&self) -> &str {
        &self.received.record.path
    }

    /// Returns the number of the caller's process. Over a network, it is the caller's own claim.
    pub const fn process(&self) -> u32 {
        self.received.record.process
    }

    /// Returns the caller's user number. Over a network, the number is [`u32::MAX`].
    pub const fn user(&self) -> u32 {
        self.received.record.user
    }

    /// Returns the caller's group number. Over a network, the number is [`u32::MAX`].
    pub const fn group(&self) -> u32 {
        self.received.record.group
    }

    /// Returns the address from which the call came over a network: an address and a port, or an Ethernet
    /// address.
    pub fn from(&self) -> Option<&str> {
        Some(&*self.received.record.from).filter(|from| !from.is_empty())
    }

    /// Returns the name that the caller has proven to have over an encrypted connection, or the fingerprint
    /// of its key.
    pub fn identity(&self) -> Option<&str> {
        Some(&*self.received.record.identity).filter(|identity| !identity.is_empty())
    }

    /// Returns how the call has ended.
    pub fn outcome(&self) -> LayerOutcome<'_> {
        self.received.record.outcome()
    }

    /// Returns the size in bytes of the arguments as they were sent, also if they were cut.
    pub const fn argument_bytes(&self) -> u64 {
        self.received.record.argument_bytes
    }

    /// Returns the size in bytes of the result as it was sent. Zero if the call has failed.
    pub const fn result_bytes(&self) -> u64 {
        self.received.record.result_bytes
    }

    /// Returns the arguments, with the names of their parameters. Empty if the call failed before its message
    /// had arrived, or if the procedure has no parameters.
    ///
    /// # Errors
    /// [`Kind::BadArguments`] if the arguments do not fit the interface. The server refused the call.
    pub fn arguments(&self) -> Result<Vec<(String, CapturedArgument)>, CallError> {
        let record = &self.received.record;
        let CapturedInterface { described, program } = &*self.interface;
        if record.head_bytes == 0 && record.block_bytes == 0 {
            // A parameter can have no bytes. So without parameters, the arguments may be complete.
            let procedure = &described.procedures[record.procedure as usize];
            if record.argument_bytes > 0 || procedure.parameters.is_empty() {
                return Ok(Vec::new());
            }
        }
        let message = CapturedMessage {
            system: match record.representation {
                0 => None,
                1 => Some(System::Onc),
                _ => Some(System::Courier),
            },
            head: &record.head,
            is_head_cut: (record.head.len() as u64) < record.head_bytes,
            blocks: &record.blocks,
            block_bytes: usize::try_from(record.block_bytes).unwrap_or(usize::MAX),
        };
        let values = program
            .captured(record.procedure, &message)
            .map_err(|text| CallError::not_executed(Kind::BadArguments, Phase::Unmarshal, text))?;
        let parameters = &described.procedures[record.procedure as usize].parameters;
        Ok(parameters.iter().map(|one| one.name.clone()).zip(values).collect())
    }
}
