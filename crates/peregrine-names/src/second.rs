//! The second call: the name service calls a server of a name for its caller.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use peregrine::directory::Offer;
use peregrine::interface::{Described, DescribedProcedure, Direction};
use peregrine::json::{Bytes, Slots};
use peregrine::{CallError, Caller, Dynamic, Executed, GenericClient, Kind, Limit, Sink, caller};
use serde_json::Value;

use crate::access::{Access, LookUps};
use crate::interface::{Failure, Interface, Returned};
use crate::memory::is_compact;
use crate::service::Shared;
use crate::shares::{Holder, Share};

/// The number of servers that are tried for one call.
const SERVERS_MAX: usize = 3;
/// How long binding to a server may take.
const BIND_LIMIT: Duration = Duration::from_secs(3);
/// The same, if another address can be tried.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(1);

/// The caller for whom a second call is made.
struct Asked {
    caller: Option<Caller>,
    access: Access,
    /// When the call must have ended.
    until: Instant,
}

impl Asked {
    /// `limit` is the longest time that a call may take, also if its caller would wait longer.
    fn new(limit: Duration) -> Self {
        let caller = caller();
        let access = Access::of(caller.as_ref());
        let remaining = caller.as_ref().and_then(Caller::remaining);
        let limit = remaining.map_or(limit, |remaining| remaining.min(limit));
        Self { caller, access, until: Instant::now() + limit }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// # Errors
    /// If nothing waits for the call any more. It has not been made.
    fn check(&self) -> Result<(), Failure> {
        if self.left().is_zero() {
            let text = "no time was left to find a server that can be called";
            return Err(Failure::new(Kind::TimedOut, text));
        }
        match &self.caller {
            Some(caller) if caller.is_cancelled() => Err(Failure::new(
                Kind::TimedOut,
                "the caller has given up before the call was made",
            )),
            _ => Ok(()),
        }
    }
}

/// Returns whether another server may do better after this failure, which must be certain: the call was not
/// executed.
fn may_be_repeated(failure: &Failure) -> bool {
    let is_away = matches!(
        failure.kind(),
        Kind::ServerGone
            | Kind::Withdrawn
            | Kind::Unreachable
            | Kind::TimedOut
            | Kind::NotFound
            | Kind::ProtocolMismatch
    );
    failure.executed() == Executed::No && is_away
}

/// Returns whether a binding has become useless.
const fn is_gone(kind: Kind) -> bool {
    matches!(kind, Kind::ServerGone | Kind::Withdrawn | Kind::Unreachable)
}

/// Returns whether a failure may only say that the description of the server is an old one.
fn is_of_description(failure: &Failure) -> bool {
    !failure.may_have_executed
        && matches!(failure.kind(), Kind::NoSuchProcedure | Kind::BadArguments)
}

/// # Errors
/// If the server of a binding has ended. Another one, with another interface, may be at its address now. Over
/// UDP, nothing else shows this before a call is made.
fn check_server(asked: &Asked, client: &GenericClient) -> Result<(), Failure> {
    let until = asked.until.min(Instant::now() + ATTEMPT_LIMIT);
    let pinged = client.with_limit(Limit::Until(until)).binding().ping();
    pinged.map_err(|error| Failure::before(&error))
}

impl Shared {
    /// Calls a procedure of a server of a name.
    pub(crate) fn second_call(
        &self,
        name: &str,
        procedure: &str,
        arguments: &str,
    ) -> Result<Returned, Failure> {
        self.check_calls()?;
        let most = self.limits.arguments_bytes;
        if arguments.len() > most {
            let text = format!(
                "the arguments have more than {most} bytes as JSON: call the server directly"
            );
            return Err(Failure::new(Kind::TooLarge, text));
        }
        let asked = Asked::new(self.limits.time);
        let permit = self.permit(&asked)?;
        let given = serde_json::from_str(arguments);
        let Ok(Value::Object(given)) = given else {
            let why =
                given.err().map_or("another JSON value".to_owned(), |error| error.to_string());
            let text =
                format!("arguments: expected a JSON object with the names of arguments: {why}");
            return Err(Failure::new(Kind::BadArguments, text));
        };
        let made = self.at_servers(name, &asked, |client, address| {
            let made = self.attempt(&asked, client, address, procedure, &given);
            if made.as_ref().is_err_and(is_of_description) {
                check_server(&asked, client)?;
            }
            made
        });
        drop(permit);
        made
    }

    /// # Errors
    /// If the name service reaches no servers for its callers.
    fn check_calls(&self) -> Result<(), Failure> {
        if self.limits.has_calls {
            return Ok(());
        }
        let text = "this name service makes no calls: bind to the addresses that it finds";
        Err(Failure::new(Kind::Denied, text))
    }

    /// Returns one of the permits of calls that may run at the same time.
    fn permit(&self, asked: &Asked) -> Result<Share<'_>, Failure> {
        let permit = self.running.take(Holder::of(asked.caller.as_ref()));
        permit.ok_or_else(|| {
            let text = "the name service makes no more calls at the same time, or no more for this \
                        caller: repeat the call after a pause";
            Failure::new(Kind::Overloaded, text)
        })
    }

    /// Returns the interface of a server of a name. To read it, the name service calls the server.
    pub(crate) fn interface_of(&self, name: &str) -> Result<Interface, Failure> {
        self.check_calls()?;
        let asked = Asked::new(self.limits.time);
        let _permit = self.permit(&asked)?;
        self.at_servers(name, &asked, |client, address| {
            check_server(&asked, client)?;
            let json = client.described().to_json().to_string();
            let most = self.limits.result_bytes;
            if json.len() > most {
                let text = format!("the interface of `{name}` has more than {most} bytes as JSON");
                return Err(Failure::new(Kind::TooLarge, text));
            }
            Ok(Interface { address: address.to_owned(), json })
        })
    }

    /// Runs `attempt` at a server of a name. Tries other servers only if `attempt` was certainly not
    /// executed.
    fn at_servers<T>(
        &self,
        name: &str,
        asked: &Asked,
        attempt: impl Fn(&GenericClient, &str) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut offers = self.directory.look_up(name).map_err(|error| Failure::before(&error))?;
        let count = offers.servers.len();
        offers.servers.rotate_left(self.first_of(count));
        offers.servers.sort_by_key(Offer::priority);
        let mut reasons: Vec<String> = Vec::new();
        let mut last: Option<Kind> = None;
        let mut refused: Option<Kind> = None;
        let mut look_ups = LookUps::default();
        'servers: for offer in offers.servers.iter().take(SERVERS_MAX) {
            for (number, listed) in offer.addresses().iter().enumerate() {
                if let Err(failure) = asked.check() {
                    last = Some(failure.kind());
                    reasons.insert(0, failure.text);
                    break 'servers;
                }
                let allowed = match asked.access.allowed(listed, &mut look_ups) {
                    Ok(allowed) => allowed,
                    Err(failure) => {
                        // A host that was not found may be a server that could be called.
                        if refused.is_none() || failure.kind() == Kind::Unreachable {
                            refused = Some(failure.kind());
                        }
                        reasons.push(failure.text);
                        continue;
                    }
                };
                let has_more = number + 1 < offer.addresses().len();
                for (number, address) in allowed.iter().enumerate() {
                    let is_last = number + 1 == allowed.len() && !has_more;
                    let limit = if is_last { BIND_LIMIT } else { ATTEMPT_LIMIT };
                    match self.at(asked, address, limit, &attempt) {
                        Ok(made) => return Ok(made),
                        Err(failure) if may_be_repeated(&failure) && !asked.left().is_zero() => {
                            reasons.push(format!("{address}: {failure}"));
                            last = Some(failure.kind());
                        }
                        Err(failure) => return Err(failure),
                    }
                }
            }
        }
        let describe = self.directory.describe();
        let kind = match last.or(refused) {
            Some(kind) => kind,
            None if count == 0 => Kind::NotFound,
            None => Kind::Denied,
        };
        reasons.extend(offers.remarks);
        reasons.truncate(8);
        let why =
            if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
        Err(Failure::new(
            kind,
            match count {
                0 => format!("no server of `{name}` is in {describe}{why}"),
                _ => format!("no server of `{name}` can be called from here{why}"),
            },
        ))
    }

    /// Runs `attempt` at one address. If the binding is an old one, and its server has ended, binds again.
    fn at<T>(
        &self,
        asked: &Asked,
        address: &str,
        limit: Duration,
        attempt: impl Fn(&GenericClient, &str) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        loop {
            asked.check()?;
            let limit = limit.min(asked.left());
            let bound = self.bindings.at(asked.access, address, limit);
            let (client, was_bound): (Arc<GenericClient>, bool) =
                bound.map_err(|error| Failure::before(&error))?;
            self.keeper.end_idle();
            asked.check()?;
            let made = attempt(&client, address);
            let Err(failure) = &made else { return made };
            if is_gone(failure.kind()) {
                self.bindings.forget(asked.access, address);
                if was_bound && may_be_repeated(failure) {
                    continue;
                }
            }
            return made;
        }
    }

    /// Makes the call once.
    fn attempt(
        &self,
        asked: &Asked,
        client: &GenericClient,
        address: &str,
        procedure: &str,
        given: &serde_json::Map<String, Value>,
    ) -> Result<Returned, Failure> {
        let described = client.described();
        let Some((number, procedure)) = described.procedure(procedure) else {
            let shown: String = procedure.chars().take(64).collect();
            let names = described.procedures.iter().map(|one| &*one.name).take(32);
            let names: Vec<_> = names.collect();
            let (shown, interface) = (shown.escape_default(), &described.name);
            let text =
                format!("`{interface}` has no procedure `{shown}`; it has {}", names.join(", "));
            return Err(Failure::new(Kind::NoSuchProcedure, text));
        };
        refuse_streams(procedure)?;
        let most = self.bindings.message_bytes;
        if described.message_bytes() > most && !is_compact(described, procedure) {
            let text = format!(
                "`{}` returns many values, and messages of its interface may have more than {most} bytes: \
                 call the server directly",
                procedure.name
            );
            return Err(Failure::new(Kind::TooLarge, text));
        }
        let slots = Slots::read_within(described, procedure, given, self.limits.result_bytes);
        let mut slots =
            slots.map_err(|error| Failure::new(Kind::BadArguments, error.to_string()))?;
        // The failure of a one-way call is reported to a later call of the same binding. So one-way calls
        // share no binding.
        let own;
        let client = if procedure.oneway {
            let bound = self.bindings.bind(address, BIND_LIMIT.min(asked.left()));
            own = bound.map_err(|error| Failure::before(&error))?;
            if own.described() != described {
                let text = format!("the server at {address} was replaced: repeat the call");
                return Err(Failure::new(Kind::ServerGone, text));
            }
            &own
        } else {
            client
        };
        let mut result = Dynamic::Unit;
        let made = self.make(asked, client, (number, procedure), &mut slots, &mut result);
        let is_ok = made.map_err(|error| Failure::from(&error))?;
        self.returned(described, procedure, (is_ok, &slots, &result), address)
    }

    fn make(
        &self,
        asked: &Asked,
        client: &GenericClient,
        (number, procedure): (u32, &DescribedProcedure),
        slots: &mut Slots,
        result: &mut Dynamic,
    ) -> Result<bool, CallError> {
        let client = client.with_limit(Limit::Until(asked.until));
        let client = match asked.caller.as_ref().filter(|caller| !caller.metadata().is_empty()) {
            Some(caller) => client.with_metadata_of(caller)?,
            None => client,
        };
        let mut arguments = slots.arguments(procedure, |_| Sink::new(drop));
        let given_up = self.keeper.given_up(asked.caller.clone());
        let made = client.call_unless(number, &mut arguments, result, given_up);
        let filled = Slots::filled(&arguments);
        drop(arguments);
        slots.truncate(filled);
        let is_ok = made?;
        if procedure.oneway {
            client.flush()?;
        }
        Ok(is_ok)
    }

    /// Returns what the procedure has returned, as JSON.
    fn returned(
        &self,
        described: &Described,
        procedure: &DescribedProcedure,
        (is_ok, slots, result): (bool, &Slots, &Dynamic),
        address: &str,
    ) -> Result<Returned, Failure> {
        let most = self.limits.result_bytes;
        let json = match is_ok {
            true => slots.returned_within(described, procedure, result, most),
            false => described.value_to_json_within(&procedure.error, result, Bytes::Auto, most),
        };
        let json = json.map(|json| json.to_string()).filter(|json| json.len() <= most);
        let Some(json) = json else {
            let text = format!(
                "`{}` has run, but its result has more than {most} bytes as JSON: call the server directly",
                procedure.name
            );
            return Err(Failure { may_have_executed: true, ..Failure::new(Kind::TooLarge, text) });
        };
        Ok(Returned { address: address.to_owned(), is_error: !is_ok, json })
    }
}

/// # Errors
/// If a procedure has streams or callbacks. The second call carries values only.
fn refuse_streams(procedure: &DescribedProcedure) -> Result<(), Failure> {
    let is_other = |direction: Direction| direction.is_stream() || direction == Direction::Callback;
    match procedure.parameters.iter().find(|one| is_other(one.direction)) {
        None => Ok(()),
        Some(parameter) => {
            let (name, other) = (&procedure.name, &parameter.name);
            let text = format!(
                "`{name}` has the stream or callback `{other}`, which a name service does not carry: call \
                 the server directly"
            );
            Err(Failure::new(Kind::BadArguments, text))
        }
    }
}
