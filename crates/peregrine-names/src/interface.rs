//! The interfaces of a name service, and their values.

use core::fmt;
use core::time::Duration;

use peregrine::directory::{Offer, Offers};
use peregrine::{CallError, Executed, Kind, Phase, Sink, Value, interface};

/// The name under which a name service is exported by default.
pub const NAME: &str = "names";

/// The name of the interface. A name service makes no second call to another name service: two of them could
/// call each other without end.
pub(crate) const INTERFACE: &str = "NameService";

/// The largest answer about one name in bytes. It fits the credit of a stream.
const KNOWN_BYTES_MAX: usize = 192 << 10;

/// Returns the name of the export through which clients watch the names of the name service `name`.
pub fn watch_name(name: &str) -> String {
    format!("{name}.watch")
}

/// The interface of a name service.
#[interface(name = "NameService")]
pub trait Lookup {
    /// Returns the servers of a name.
    #[idempotent]
    fn resolve(&self, name: &str) -> Result<Known, NamesError>;

    /// Returns the names that are greater than `after`, in order: at most `most`, and at most 1,000.
    #[idempotent]
    fn names(&self, after: &str, most: u32) -> Result<Page, NamesError>;

    /// Returns the interface of a name.
    #[idempotent]
    fn describe(&self, name: &str) -> Result<Interface, NamesError>;

    /// Calls a procedure of a server of this name. `arguments` is a JSON object with the names of the
    /// arguments, in the form of `peregrine::json`. The call has the rights of the caller at most, its
    /// metadata, and the time that its caller waits.
    fn call(&self, name: &str, procedure: &str, arguments: &str) -> Result<Returned, NamesError>;
}

/// The interface through which clients watch the names of a name service. It is an interface of its own,
/// because the items of a stream are not converted between versions of an interface.
#[interface(name = "NameServiceWatch")]
pub trait NameWatch {
    /// Sends what is known about a name: at once, and after each change.
    fn watch(&self, name: &str, changes: Sink<'_, Known>) -> Result<(), NamesError>;
}

/// A server of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct NamedServer {
    /// What distinguishes the server from the others of the name.
    pub server: String,
    /// Where the server can be reached.
    pub addresses: Vec<String>,
    /// The priority of the server: a lower number is a higher priority.
    pub priority: u16,
}

/// What a name service knows about a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct Known {
    /// The servers of the name.
    pub servers: Vec<NamedServer>,
    /// How old the knowledge is in milliseconds, if the directory of the name service does not answer now.
    pub age_ms: Option<u64>,
    /// What the directory contains and cannot be used, and why. For people.
    pub remarks: Vec<String>,
    /// Whether the order of the servers says which of them clients should prefer.
    pub is_ordered: bool,
}

impl Known {
    /// Returns what `offers` says, without the servers for which there is no space.
    pub(crate) fn new(offers: &Offers, is_ordered: bool) -> Self {
        let mut known = Self {
            servers: Vec::new(),
            age_ms: offers.age.map(|age| age.as_millis().try_into().unwrap_or(u64::MAX)),
            remarks: offers.remarks.clone(),
            is_ordered,
        };
        let mut left = KNOWN_BYTES_MAX;
        for (number, offer) in offers.servers.iter().enumerate() {
            let addresses: Vec<_> = offer.addresses().iter().map(ToString::to_string).collect();
            let bytes = addresses.iter().map(|address| address.len() + 16).sum::<usize>();
            let Some(rest) = left.checked_sub(bytes + offer.server().len() + 32) else {
                let more = offers.servers.len() - number;
                known.remarks.push(format!("{more} servers are left out: the answer is too long"));
                break;
            };
            left = rest;
            let (server, priority) = (offer.server().to_owned(), offer.priority());
            known.servers.push(NamedServer { server, addresses, priority });
        }
        known
    }

    /// Returns the same as a directory says it. What is not valid is left out, with a remark.
    pub(crate) fn to_offers(&self) -> Offers {
        let mut invalid = Vec::new();
        let offers = self.servers.iter().filter_map(|one| {
            let offer = Offer::new(&one.server, &one.addresses);
            let offer = offer.map_err(|error| invalid.push(error.detail().to_owned())).ok()?;
            Some(offer.with_priority(one.priority))
        });
        let mut found = Offers::distinct(offers);
        found.age = self.age_ms.map(Duration::from_millis);
        self.remarks.iter().chain(&invalid).for_each(|remark| found.remark(remark));
        found
    }
}

/// Some of the names that a directory knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct Page {
    /// The names, in order.
    pub names: Vec<String>,
    /// Whether there are more names after these.
    pub has_more: bool,
}

/// The interface of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct Interface {
    /// The address at which the name service has asked.
    pub address: String,
    /// The interface as JSON, which `peregrine::interface::Described::from_json` reads.
    pub json: String,
}

/// What a procedure has returned to the name service: the second call has run to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct Returned {
    /// The address of the server.
    pub address: String,
    /// Whether the procedure returned its own error.
    pub is_error: bool,
    /// The procedure's own error as JSON; or else an object with the member `result`, and, if parameters are
    /// returned, the member `out`.
    pub json: String,
}

/// Why a name service has not done what it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Value)]
pub struct Failure {
    /// Whether the second call may have run. If not, it certainly did not run.
    pub may_have_executed: bool,
    /// The number of the [`Kind`].
    pub kind: u32,
    /// Why, for people.
    pub text: String,
}

impl Failure {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self { may_have_executed: false, kind: kind.number(), text: text.into() }
    }

    /// Returns the failure of a step before the second call, such as a look-up. The second call was not made,
    /// whatever the error says of this step.
    pub(crate) fn before(error: &CallError) -> Self {
        Self::new(error.kind(), error.chain())
    }

    /// Returns the kind of the failure. A kind of a later release is [`Kind::Relayed`].
    pub fn kind(&self) -> Kind {
        Kind::from_number(self.kind).unwrap_or(Kind::Relayed)
    }

    /// Returns whether the second call was executed.
    pub const fn executed(&self) -> Executed {
        if self.may_have_executed { Executed::Maybe } else { Executed::No }
    }
}

impl From<&CallError> for Failure {
    /// Returns the failure of a call of the name service.
    fn from(error: &CallError) -> Self {
        let may_have_executed = error.executed() == Executed::Maybe;
        Self { may_have_executed, ..Self::new(error.kind(), error.chain()) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Others may have written the text.
        self.text.chars().filter(|c| !c.is_control()).try_for_each(|c| write!(f, "{c}"))
    }
}

/// The errors of a name service.
#[derive(Debug, Value)]
pub enum NamesError {
    /// The name service has answered, and has not done what it was asked for.
    Failed(Failure),
    /// The call of the name service has failed.
    Call(CallError),
}

impl NamesError {
    /// Returns whether the second call was executed.
    pub fn executed(&self) -> Executed {
        match self {
            Self::Failed(failure) => failure.executed(),
            Self::Call(error) => error.executed(),
        }
    }

    /// Returns the error as that of a call: its kind, and whether the second call was executed.
    pub fn into_call_error(self) -> CallError {
        match self {
            Self::Failed(failure) => {
                let text = format!("the name service answers: {failure}");
                CallError::new(failure.kind(), failure.executed(), text).in_phase(Phase::Resolve)
            }
            Self::Call(error) => error,
        }
    }
}

impl fmt::Display for NamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => {
                write!(f, "{}: {failure} ({})", failure.kind().text(), failure.executed())
            }
            Self::Call(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for NamesError {}

impl From<CallError> for NamesError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl From<Failure> for NamesError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}
