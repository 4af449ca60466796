//! `CallError`: it says what failed, where, in which phase, why, whether the call was executed, and what to
//! do.

use core::fmt;
use std::borrow::Cow;
use std::error::Error;

/// The result of a procedure that has no error type of its own.
pub type Result<T, E = CallError> = core::result::Result<T, E>;

/// Whether a failed call was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executed {
    /// The call was not executed, because it was refused before the procedure began. It may be repeated.
    No,
    /// It is unknown whether the call was executed. If the call is repeated, the procedure may run twice.
    Maybe,
}

impl fmt::Display for Executed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::No => "not executed",
            Self::Maybe => "may have executed",
        })
    }
}

/// The phase in which a call or a binding failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// Looking up or publishing a name.
    Resolve,
    /// Creating the session and the binding.
    Bind,
    /// Exporting an interface under a name.
    Export,
    /// Writing the arguments to the message.
    Marshal,
    /// The time from sending the call until its result has arrived.
    Call,
    /// Reading the result from the message.
    Unmarshal,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving",
            Self::Bind => "binding",
            Self::Export => "exporting",
            Self::Marshal => "marshalling the arguments",
            Self::Call => "calling",
            Self::Unmarshal => "unmarshalling the result",
        })
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $text:literal, $advice:literal;)*) => {
        /// The kind of an error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// For a call that may have been executed: returns whether an error of this kind proves that the
            /// call has begun.
            pub(crate) const fn has_run(self) -> bool {
                matches!(self, Self::Panicked | Self::BadResult | Self::Relayed)
            }

            /// Returns what failed, in a few words.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns what to do about an error of this kind.
            pub const fn advice(self) -> &'static str {
                match self { $(Self::$name => $advice,)* }
            }

            /// Returns the number that represents the kind in messages. It never changes.
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// Returns the kind that this number represents in messages.
            ///
            /// ```
            /// use peregrine::Kind;
            ///
            /// assert_eq!(Kind::from_number(Kind::Denied.number()), Some(Kind::Denied));
            /// assert_eq!(Kind::from_number(0), None);
            /// ```
            pub const fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }

            #[cfg(test)]
            const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

kinds! {
    /// No server exports the name.
    NotFound = 1, "no such export",
        "start the server, check the name with `peregrine list`, and check that both sides use the same $PEREGRINE_DIR";
    /// A live server already exports the name.
    NameTaken = 2, "the name is taken",
        "stop the other server or export under another name";
    /// The name, address or option is invalid.
    BadName = 3, "invalid name, address or option",
        "write NAME, NAME@HOST or NAME@HOST:PORT, with local:, eth:, udp: or tcp: in front to ask for one path; a name has 1 to 64 letters, digits, '-', '_' or '.' and does not begin with a dot";
    /// This user may not use the export.
    Denied = 4, "permission denied",
        "run as the server's user, or have the server export the name to other users";
    /// The interface of the client does not fit the interface of the server.
    InterfaceMismatch = 5, "the interfaces differ",
        "change interfaces by the rules of docs/EVOLUTION.md, or export both under two names; \
         `peregrine compare` shows all differences";
    /// The peer uses another version of the protocol, or another protocol.
    ProtocolMismatch = 6, "the peer does not speak this protocol",
        "use the same release of Peregrine on both sides";
    /// No memory, descriptor, thread or session is left.
    Exhausted = 7, "a resource is exhausted",
        "close bindings, or raise the limit that the cause names";
    /// The operating system reported an error.
    System = 8, "the operating system refused",
        "see the cause, which the operating system gave";
    /// The interface has no such procedure.
    NoSuchProcedure = 9, "no such procedure",
        "`peregrine describe` shows the procedures of the server";
    /// The server could not read the arguments.
    BadArguments = 10, "the arguments are not valid",
        "this is a fault of the client's program or of Peregrine: please report it";
    /// The message does not fit the A-stack, which is the memory for the messages of one call.
    TooLarge = 11, "the message is too large",
        "declare #[max_len] on the parameter, or raise both BindOptions::message_bytes and ExportOptions::message_bytes_max";
    /// All threads of the server are busy, and the queue for calls is full.
    Overloaded = 12, "the server is overloaded",
        "try again later with a growing pause, or give the server more threads";
    /// The process or session of the server has ended.
    ServerGone = 13, "the server is gone",
        "restart the server: the binding binds again by itself; repeat the call if it was not executed or is idempotent";
    /// The procedure panicked. The server continues.
    Panicked = 14, "the procedure panicked",
        "see the server's standard error";
    /// The deadline passed.
    TimedOut = 15, "the deadline passed",
        "allow more time, or find out what keeps the server busy";
    /// The result cannot be read, or does not fit the memory of the caller.
    BadResult = 16, "the result is not readable",
        "this is a fault of the server's program, of Peregrine, or of a stray write to shared memory: please report it if the fault is in Peregrine";
    /// This process was forked from the process that created the binding.
    Forked = 17, "the binding belongs to the parent process",
        "bind again in the child";
    /// The export was withdrawn, or the server is stopping.
    Withdrawn = 18, "the export was withdrawn",
        "export the name again: the binding binds again by itself";
    /// The procedure failed, because a call that the procedure itself made failed.
    Relayed = 19, "the server's own call failed",
        "see the cause, which the server relayed as text";
    /// No server answers at the host and port of the address.
    Unreachable = 20, "the server cannot be reached",
        "check the host and the port, and that the server listens there";
    /// Earlier one-way calls failed. The call that returns this error was not executed.
    OneWay = 21, "earlier one-way calls failed",
        "see the first failure; the call that returned this error was not executed, and can be made again";
    /// The other end of a stream wants no more items, or has given up.
    Stopped = 22, "the stream was stopped",
        "end the procedure: nobody takes the rest of the items";
}

/// Why a call, a binding or an export failed, and whether the call was executed.
///
/// The error's text says what failed, for which address, in which phase, why, and what to do.
///
/// ```
/// use peregrine::{Executed, Kind};
///
/// # use peregrine::{interface, CallError};
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// let error = EchoClient::bind("surely-nobody-exports-this").err().unwrap();
/// assert_eq!(error.kind(), Kind::NotFound);
/// assert_eq!(error.executed(), Executed::No);
/// assert!(error.to_string().contains("surely-nobody-exports-this"));
/// ```
///
/// `{:?}` prints the same text, so that `unwrap` and `main` show users what happened. `{:#?}` prints the
/// fields.
pub struct CallError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    executed: Executed,
    phase: Phase,
    address: String,
    procedure: Cow<'static, str>,
    detail: String,
    /// The advice for this error, if it differs from the advice for the error's kind.
    advice: Option<&'static str>,
    /// The numbers of one-way calls that failed, that may not have run, and that certainly have not run. Each
    /// number includes the next one.
    oneway: [u64; 3],
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The advice for a result that is too large. `#[max_len]` cannot be the advice, because a result has no such
/// attribute.
const RESULT_TOO_LARGE: &str = "return a smaller or less deeply nested result, or raise both \
     BindOptions::message_bytes and ExportOptions::message_bytes_max";

/// The advice for a failed connection.
pub(crate) const NO_CONNECTION: &str = "check that the server runs and listens there, and that \
     firewalls let connections to that port through";

/// The advice if no answer to datagrams arrives.
pub(crate) const NO_DATAGRAMS: &str = "check that the server runs and listens there, and that \
     firewalls let UDP to that port and the answers from it through; tcp: may work where UDP is \
     filtered";

/// The advice for a process that may not use raw Ethernet.
pub(crate) const NO_RAW_ETHERNET: &str = "give the program CAP_NET_RAW, for example by \
     `setcap cap_net_raw+ep PROGRAM`, or use udp: in place of eth:";

impl CallError {
    /// Returns an error in [`Phase::Call`].
    #[cold]
    pub fn new(kind: Kind, executed: Executed, detail: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            executed,
            phase: Phase::Call,
            address: String::new(),
            procedure: Cow::Borrowed(""),
            detail: detail.into(),
            advice: None,
            oneway: [0; 3],
            source: None,
        }))
    }

    /// Returns an error of a call that was not executed.
    #[cold]
    pub(crate) fn not_executed(kind: Kind, phase: Phase, detail: impl Into<String>) -> Self {
        Self::new(kind, Executed::No, detail).in_phase(phase)
    }

    /// Returns the error for a system call that failed in the given phase, before any call was sent to a
    /// server.
    #[cold]
    pub(crate) fn system(phase: Phase, what: impl Into<String>, error: std::io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Kind::Denied,
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN) => Kind::Exhausted,
            _ => Kind::System,
        };
        let what = match limit_reached(&error) {
            Some(limit) => format!("{}: {limit}", what.into()),
            None => what.into(),
        };
        Self::not_executed(kind, phase, what).because(error)
    }

    /// Sets the phase. Directories of other crates use it: a name is looked up in [`Phase::Resolve`], and
    /// a server registers in [`Phase::Export`].
    ///
    /// ```
    /// use peregrine::{CallError, Executed, Kind, Phase};
    ///
    /// let error = CallError::new(Kind::Unreachable, Executed::No, "no member answers");
    /// assert_eq!(error.in_phase(Phase::Resolve).phase(), Phase::Resolve);
    /// ```
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.0.phase = phase;
        self
    }

    /// Marks the error as not executed: the failed request executes nothing, and may be repeated.
    pub(crate) fn not_executed_after_all(mut self, phase: Phase) -> Self {
        (self.0.executed, self.0.phase) = (Executed::No, phase);
        self
    }

    /// Returns an error with the same text, for another call that failed for the same reason.
    pub(crate) fn copy(&self) -> Self {
        let Inner { kind, executed, phase, advice, .. } = &*self.0;
        let error = Self::new(*kind, *executed, self.cause()).in_phase(*phase);
        match advice {
            Some(advice) => error.with_advice(advice),
            None => error,
        }
    }

    /// Marks the error as possibly executed, because an earlier attempt of the call may have been executed.
    pub(crate) fn may_have_executed(mut self) -> Self {
        self.0.executed = Executed::Maybe;
        self
    }

    /// Adds the numbers of one-way calls that failed, that may not have run, and that certainly have not run.
    /// Each number includes the next one.
    pub(crate) fn with_oneway(mut self, counts: [u64; 3]) -> Self {
        self.0.oneway = counts;
        self
    }

    /// Makes [`executed`](Self::executed) refer to the one-way calls that failed, instead of the call that
    /// reports these failures.
    pub(crate) fn of_oneway(self) -> Self {
        let [failed, _, certain] = self.0.oneway;
        if certain < failed { self.may_have_executed() } else { self }
    }

    /// Replaces the advice for the error's kind by this advice.
    pub(crate) fn with_advice(mut self, advice: &'static str) -> Self {
        self.0.advice = Some(advice);
        self
    }

    /// If the operating system denied the operation, replaces the advice of the error by `advice`.
    pub(crate) fn denied_means(self, advice: &'static str) -> Self {
        if self.kind() == Kind::Denied { self.with_advice(advice) } else { self }
    }

    /// Replaces the advice of this error by the advice of another error.
    pub(crate) fn advised_like(mut self, other: &Self) -> Self {
        self.0.advice = other.0.advice;
        self
    }

    pub(crate) fn at(mut self, address: &str) -> Self {
        if self.0.address.is_empty() {
            self.0.address = address.to_owned();
        }
        self
    }

    /// Removes the address.
    pub(crate) fn nowhere(mut self) -> Self {
        self.0.address = String::new();
        self
    }

    pub(crate) fn of(mut self, procedure: impl Into<Cow<'static, str>>) -> Self {
        self.0.procedure = procedure.into();
        self
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns whether the failed call was executed.
    pub fn executed(&self) -> Executed {
        self.0.executed
    }

    /// Returns the phase in which the call, binding or export failed.
    pub fn phase(&self) -> Phase {
        self.0.phase
    }

    /// Returns the address or the name of the server. The text is empty if neither is known.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Returns the name of the called procedure. The text is empty for bindings and exports.
    pub fn procedure(&self) -> &str {
        &self.0.procedure
    }

    /// Returns how many earlier one-way calls of the binding failed, if the kind is [`Kind::OneWay`], and
    /// otherwise 0.
    pub fn oneway_failed(&self) -> u64 {
        self.0.oneway[0]
    }

    /// Returns how many of the [failed](Self::oneway_failed) one-way calls may not have run: it is certain
    /// that they did not, or it is not known.
    pub fn oneway_not_run(&self) -> u64 {
        self.0.oneway[1]
    }

    /// Returns the details of the failure. The text may be empty.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Returns what to do about the error.
    pub fn advice(&self) -> &'static str {
        match (self.0.advice, self.0.kind, self.0.executed) {
            (Some(advice), ..) => advice,
            (None, Kind::TooLarge, Executed::Maybe) => RESULT_TOO_LARGE,
            (None, kind, _) => kind.advice(),
        }
    }

    /// Returns the error and its causes in one line, without advice. Servers send this text to clients.
    pub fn chain(&self) -> String {
        let mut text = self.summary();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// Returns the details and the causes.
    pub(crate) fn cause(&self) -> String {
        let mut text = self.detail().to_owned();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(if text.is_empty() { "" } else { ": " });
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    fn summary(&self) -> String {
        let inner = &*self.0;
        let mut text = inner.phase.to_string();
        if !inner.procedure.is_empty() {
            text = format!("{text} `{}`", inner.procedure);
        }
        if !inner.address.is_empty() {
            text = format!("{text} at `{}`", inner.address);
        }
        text = format!("{text}: {}", inner.kind.text());
        if !inner.detail.is_empty() {
            text = format!("{text}: {}", inner.detail);
        }
        text
    }
}

/// The detail of the error if the keeper's thread cannot be started. The text names the limits that may be
/// the reason.
pub(crate) const NO_THREAD: &str =
    "cannot start the keeper's thread (check RLIMIT_NPROC, RLIMIT_AS and pids.max)";

/// Returns the error for shared memory of a peer. Either this memory differs from what the peer announced, or
/// this process cannot map it.
#[cold]
pub(crate) fn unusable_memory(what: &'static str, error: std::io::Error) -> CallError {
    if error.kind() == std::io::ErrorKind::InvalidData {
        return CallError::not_executed(Kind::ProtocolMismatch, Phase::Bind, what).because(error);
    }
    CallError::system(Phase::Bind, format!("mapping {what}"), error)
}

/// If the error of the operating system means that a limit was reached, returns a text with the name of this
/// limit. Users then know which limit to raise.
#[cold]
pub(crate) fn limit_reached(error: &std::io::Error) -> Option<String> {
    let process = std::process::id();
    match error.raw_os_error() {
        Some(libc::EMFILE) => {
            Some(format!("process {process} has no descriptor left (RLIMIT_NOFILE)"))
        }
        Some(libc::ENFILE) => Some("the machine has no descriptor left (fs.file-max)".to_owned()),
        Some(libc::ENOMEM) => Some(format!(
            "process {process} cannot map more memory (RLIMIT_AS, vm.max_map_count, vm.overcommit_memory)"
        )),
        _ => None,
    }
}

impl fmt::Debug for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.debug_tuple("CallError").field(&self.0).finish();
        }
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.chain(), self.executed())?;
        write!(f, "; {}", self.advice())
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|error| error as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_where_when_why_and_what_to_do() {
        let error = CallError::new(Kind::ServerGone, Executed::Maybe, "process 77 ended")
            .at("files")
            .of("read")
            .because(std::io::Error::other("hung up"));
        let text = error.to_string();
        for part in [
            "calling `read`",
            "`files`",
            "gone",
            "process 77",
            "hung up",
            "may have",
            "binds again",
        ] {
            assert!(text.contains(part), "{part:?} is missing in {text:?}");
        }
    }

    #[test]
    fn debug_shows_the_text_and_in_full_the_fields() {
        let error =
            CallError::new(Kind::NotFound, Executed::No, "no server exports it").at("files");
        assert_eq!(format!("{error:?}"), error.to_string());
        let fields = format!("{error:#?}");
        for part in ["CallError", "kind: NotFound", "executed: No", "address: \"files\""] {
            assert!(fields.contains(part), "{part:?} is missing in {fields}");
        }
    }

    #[test]
    fn copy_has_the_text_of_the_error() {
        let error = CallError::not_executed(Kind::ServerGone, Phase::Call, "no new handle");
        let error = error.because("the server does not answer").with_advice("wait");
        assert!(error.to_string().contains("the server does not answer"));
        assert_eq!(error.copy().to_string(), error.to_string());
    }

    #[test]
    fn kinds_keep_their_numbers() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(*kind as u32), Some(*kind));
            assert!(!kind.text().is_empty() && !kind.advice().is_empty());
        }
        assert_eq!(Kind::from_number(0), None);
        assert_eq!(Kind::from_number(23), None);
    }
}
