//! Registers the exports of a server in a directory, and withdraws them before the server stops.

use std::net::IpAddr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use super::{Running, Server};
use crate::address::{Address, Endpoint, Place};
use crate::directory::{Directory, Offer, Standing};
use crate::error::{CallError, Kind, Phase};
use crate::serving::export::Export;
use crate::sync::{Mutex, Rank};
use crate::{limits, sys};

/// How long a server waits until a directory has withdrawn its registrations. A directory that does not answer
/// must not delay the end of a server, which is often limited by a supervisor.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Where a server registers its exports.
#[derive(Default)]
pub(super) struct Registering {
    directory: Option<Arc<dyn Directory>>,
    /// The hosts by which clients reach the server, each with a port if another one than the server's own.
    /// Empty: the addresses at which the server listens.
    advertised: Vec<(String, Option<u16>)>,
    /// What distinguishes the server from other servers of its names. `None`: a random text.
    identity: Option<String>,
}

impl Registering {
    /// Returns a server that registers nowhere.
    pub(super) const fn nowhere() -> Self {
        Self { directory: None, advertised: Vec::new(), identity: None }
    }

    /// Registers the exports of a server that listens at these endpoints.
    ///
    /// # Errors
    /// If the directory does not accept an export, or clients could not reach the server.
    pub(super) fn register(
        self,
        exports: &[Arc<Export>],
        endpoints: &[Endpoint],
    ) -> Result<Option<Registered>, CallError> {
        let Some(directory) = self.directory else { return Ok(None) };
        let places = places(endpoints, &self.advertised)?;
        let server = self.identity.map_or_else(random_identity, Ok)?;
        let standing = Mutex::ranked(Rank::Registered, Vec::new());
        let process = std::process::id();
        let registered = Registered { directory, places, server, standing, process };
        let mut offered = exports.iter().filter(|export| export.is_registered());
        offered.try_for_each(|export| registered.add(&export.name))?;
        Ok(Some(registered))
    }
}

/// Returns a text that no other server has.
fn random_identity() -> Result<String, CallError> {
    let random = sys::random::<8>()
        .map_err(|error| CallError::system(Phase::Export, "cannot obtain random numbers", error))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The registrations of a running server.
pub(super) struct Registered {
    directory: Arc<dyn Directory>,
    /// Where clients reach the server: a scheme, or none for all paths of Peregrine, and a host and a port.
    places: Vec<(&'static str, Place)>,
    /// What distinguishes this server from other servers of the same names.
    server: String,
    /// The names, with their registrations.
    standing: Mutex<Vec<(String, Standing)>>,
    /// A forked child withdraws nothing.
    process: u32,
}

impl Registered {
    /// Registers one name.
    pub(super) fn add(&self, name: &str) -> Result<(), CallError> {
        let addresses = self.places.iter().map(|(scheme, place)| {
            format!("{scheme}{name}@{place}").parse::<Address>().map_err(|error| error.at(name))
        });
        let offer = Offer::at(&self.server, addresses.collect::<Result<_, _>>()?)?;
        let standing = self.directory.register(name, &offer).map_err(|error| error.at(name))?;
        self.standing.lock().push((name.to_owned(), standing));
        Ok(())
    }

    /// Withdraws one name.
    pub(super) fn remove(&self, name: &str) {
        let mut standing = self.standing.lock();
        let removed = standing.iter().position(|one| one.0 == name).map(|at| standing.remove(at));
        drop(standing);
        self.leave(removed.into_iter().collect());
    }

    /// Withdraws names, on a thread of their own. Waits for it, but at most for [`LEAVE_LIMIT`]. The thread goes
    /// on after that.
    fn leave(&self, names: Vec<(String, Standing)>) {
        if names.is_empty() || self.process != std::process::id() {
            return;
        }
        let (done, is_done) = mpsc::channel();
        let leave = move || {
            drop(names);
            let _ = done.send(());
        };
        // If no thread can be started, this drops the names here.
        let thread = thread::Builder::new().name("peregrine-leave".to_owned()).spawn(leave);
        if thread.is_ok() {
            let _ = is_done.recv_timeout(LEAVE_LIMIT);
        }
    }

    /// Returns why the directory does not know of this server now, for each name that it does not know.
    fn problems(&self) -> Vec<String> {
        let standing = self.standing.lock();
        let told = standing.iter().filter_map(|(name, one)| Some((name, one.problem()?)));
        told.map(|(name, problem)| format!("`{name}`: {problem}")).collect()
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let all = core::mem::take(&mut *self.standing.lock());
        self.leave(all);
    }
}

/// Returns the places by which clients reach a server that listens at these endpoints.
///
/// # Errors
/// If there is none.
fn places(
    endpoints: &[Endpoint],
    advertised: &[(String, Option<u16>)],
) -> Result<Vec<(&'static str, Place)>, CallError> {
    let refused = |text: String| {
        CallError::not_executed(Kind::BadName, Phase::Export, text).with_advice(ADVERTISE)
    };
    // The paths over which the server listens at each place, in the order of `SCHEMES`.
    let mut reached: Vec<(Place, [bool; 3])> = Vec::new();
    for endpoint in endpoints {
        let listens = match endpoint {
            // Raw Ethernet begins with a question over UDP, and the endpoint takes calls over UDP, too.
            Endpoint::Ethernet(_) => [true, true, false],
            Endpoint::Udp(_) => [false, true, false],
            Endpoint::Tcp(_) => [false, false, true],
            Endpoint::All(_) => [true; 3],
            // Servers of other RPC systems have directories of their own.
            Endpoint::Foreign(..) => continue,
        };
        let own = endpoint.place();
        let mut hosts: Vec<Place> = advertised
            .iter()
            .map(|(host, port)| Place::new(host, port.unwrap_or(own.port())))
            .collect();
        if hosts.is_empty() {
            match own.host().parse::<IpAddr>() {
                // Other machines cannot reach these addresses, or only with the name of an interface.
                Ok(host) if host.is_loopback() || is_link_local(host) => continue,
                Ok(host) if host.is_unspecified() => {
                    let host = sys::machine_name();
                    if host.is_empty() || host == "localhost" || host == "(none)" {
                        return Err(refused("this machine has no name of its own".to_owned()));
                    }
                    hosts.push(Place::new(&host, own.port()));
                }
                _ => hosts.push(own.clone()),
            }
        }
        for place in hosts {
            match reached.iter_mut().find(|known| known.0 == place) {
                Some((_, known)) => (0..3).for_each(|n| known[n] |= listens[n]),
                None => reached.push((place, listens)),
            }
        }
    }
    let mut found: Vec<(&'static str, Place)> = Vec::new();
    for (place, listens) in reached {
        // Without a scheme, a client takes the fastest path that works. If the server listens over TCP and over
        // another path, this costs the client no attempt in vain that takes long.
        if listens[2] && (listens[0] || listens[1]) {
            found.push(("", place));
            continue;
        }
        let schemes = SCHEMES.into_iter().zip(listens).filter(|(_, listens)| *listens);
        found.extend(schemes.map(|(scheme, _)| (scheme, place.clone())));
    }
    if found.is_empty() {
        let listens: Vec<_> = endpoints.iter().map(ToString::to_string).collect();
        let text = match listens.is_empty() {
            true => "the server listens at no port".to_owned(),
            false => format!("other machines cannot reach {}", listens.join(", ")),
        };
        return Err(refused(text));
    }
    if found.len() > limits::ADDRESSES_MAX {
        let (all, most) = (found.len(), limits::ADDRESSES_MAX);
        let text = format!("the server has {all} addresses, and a directory keeps {most}");
        return Err(refused(text));
    }
    Ok(found)
}

/// The prefixes of addresses that lead over one path, the fastest first.
const SCHEMES: [&str; 3] = ["eth:", "udp:", "tcp:"];

fn is_link_local(host: IpAddr) -> bool {
    match host {
        IpAddr::V4(host) => host.is_link_local(),
        IpAddr::V6(host) => host.is_unicast_link_local(),
    }
}

/// The advice for a server that clients on other machines could not find.
const ADVERTISE: &str = "listen at a port that other machines reach, with `listen_beyond_this_machine`, or say \
     by `advertise` under which host they reach it";

impl Server {
    /// Registers the exports in a directory while the server runs, so that clients of other machines find
    /// them by their names. Several servers may register the same name: clients choose one of them. A server
    /// that stops withdraws its registrations before it refuses calls. It waits at most two seconds for a
    /// directory that does not answer.
    ///
    /// The directory gets the addresses at which the server listens. If the server listens at all addresses
    /// of the machine, it gets the name of the machine. [`advertise`](Self::advertise) sets another host.
    ///
    /// ```
    /// # use peregrine::{interface, BindOptions, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # #[cfg(feature = "json")] {
    /// use peregrine::directory::{Directory, Tree};
    ///
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let name = format!("doc-register-{}", std::process::id());
    /// let tree = Tree::at(dir.path());
    /// let server = Server::new().export(&name, EchoServer::new(Same))?.listen("127.0.0.1:0")?;
    /// let running = server.register_in(tree.clone()).advertise("127.0.0.1")?.spawn()?;
    /// assert_eq!(tree.look_up(&name)?.servers.len(), 1);
    /// let echo = EchoClient::bind_with(&name, &BindOptions::default().directory(tree.clone()))?;
    /// assert_eq!(echo.echo(7)?, 7);
    /// running.stop();
    /// assert!(tree.look_up(&name)?.servers.is_empty());
    /// # }
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// [`run`](Self::run) and [`spawn`](Self::spawn) fail if the directory does not answer or does not accept an
    /// export, or if the server listens only at addresses that other machines cannot reach. A registration
    /// that is lost later is made again, and does not end the server.
    pub fn register_in(mut self, directory: impl Directory + 'static) -> Self {
        self.registering.directory = Some(Arc::new(directory));
        self
    }

    /// Sets the host by which clients reach this server, for [`register_in`](Self::register_in): a host name
    /// or an address, as in `fs1.example.org`, or with a port that leads to the server, as in
    /// `gateway.example.org:7000`. May be called several times.
    ///
    /// # Errors
    /// If the text is not valid.
    pub fn advertise(mut self, host: &str) -> Result<Self, CallError> {
        let wrong = || {
            let text = format!("`{host}` is no host: write HOST or HOST:PORT");
            CallError::not_executed(Kind::BadName, Phase::Export, text)
        };
        let address: Address = format!("@{host}").parse().map_err(|_| wrong())?;
        let place = address.place().ok_or_else(wrong)?;
        if place.port() == 0 {
            return Err(wrong());
        }
        // Without a port in the text, clients use the ports at which the server listens.
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
            && !host.ends_with(']');
        let port = has_port.then_some(place.port());
        self.registering.advertised.push((place.host().to_owned(), port));
        Ok(self)
    }

    /// Sets what distinguishes this server from the other servers of its names in the
    /// [directory](Self::register_in), as in `fs-3`. By default this is a random text, another one at each
    /// start.
    ///
    /// With the same text at each start, a server that starts again has the same keys of
    /// [`Balance::Key`](crate::Balance::Key) as before. Only one running server may use it: if another server
    /// registers under the same text, clients find the later one.
    ///
    /// ```
    /// let server = peregrine::Server::new().registered_as("fs-3")?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Errors
    /// If the text has not the form of a name: at most [`NAME_BYTES_MAX`](limits::NAME_BYTES_MAX) letters,
    /// digits, `-`, `_` and `.`, and no dot at the beginning.
    pub fn registered_as(mut self, server: &str) -> Result<Self, CallError> {
        if !crate::interface::valid_name(server) {
            let text = format!("`{server}` cannot identify a server");
            return Err(CallError::not_executed(Kind::BadName, Phase::Export, text));
        }
        self.registering.identity = Some(server.to_owned());
        Ok(self)
    }
}

impl Running {
    /// Returns why the [directory](Server::register_in) does not know of this server's exports now, with one
    /// text for each of them. Empty if it knows them all, or if the server does not register. The server goes on
    /// trying.
    pub fn registration_problems(&self) -> Vec<String> {
        self.registered.as_ref().map_or_else(Vec::new, Registered::problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(
        endpoints: &[&str],
        advertised: &[(&str, Option<u16>)],
    ) -> Result<Vec<String>, String> {
        let endpoints: Vec<Endpoint> = endpoints.iter().map(|one| one.parse().unwrap()).collect();
        let advertised: Vec<_> =
            advertised.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        let found = places(&endpoints, &advertised).map_err(|error| error.to_string())?;
        Ok(found.iter().map(|(scheme, place)| format!("{scheme}{place}")).collect())
    }

    #[test]
    fn server_is_registered_where_others_reach_it() {
        let one = texts(&["tcp:192.0.2.1:7", "udp:192.0.2.1:7", "tcp:192.0.2.1:8"], &[]);
        assert_eq!(one.unwrap(), ["192.0.2.1:7", "tcp:192.0.2.1:8"]);
        let named = texts(&["tcp:0.0.0.0:7", "tcp:[::]:7"], &[]).unwrap();
        assert_eq!(named, [format!("tcp:{}:7", sys::machine_name())]);
        let hosts = [("fs1", None), ("gate", Some(70)), ("::1", None)];
        let told = texts(&["tcp:127.0.0.1:7", "eth:127.0.0.1:7"], &hosts).unwrap();
        assert_eq!(told, ["fs1:7", "gate:70", "[::1]:7"]);
        let ethernet = texts(&["eth:192.0.2.1:7"], &[]).unwrap();
        assert_eq!(ethernet, ["eth:192.0.2.1:7", "udp:192.0.2.1:7"], "it also serves UDP");
        let both = texts(&["eth:192.0.2.1:7", "udp:192.0.2.1:7"], &[]).unwrap();
        assert_eq!(both, ethernet);
        let foreign = texts(&["onc+udp:192.0.2.1:7", "udp:192.0.2.1:9"], &[]).unwrap();
        assert_eq!(foreign, ["udp:192.0.2.1:9"]);
    }

    #[test]
    fn server_that_others_cannot_reach_is_not_registered() {
        let here = texts(&["tcp:127.0.0.1:7"], &[]).unwrap_err();
        assert!(here.contains("other machines cannot reach tcp:127.0.0.1:7"), "{here}");
        assert!(here.contains("`advertise`"), "{here}");
        let none = texts(&["onc+udp:192.0.2.1:7"], &[]).unwrap_err();
        assert!(none.contains("other machines cannot reach onc+udp:192.0.2.1:7"), "{none}");
        assert!(texts(&[], &[]).unwrap_err().contains("listens at no port"));
        let some = texts(&["tcp:127.0.0.1:7", "tcp:192.0.2.1:7", "tcp:[fe80::1]:7"], &[]);
        assert_eq!(some.unwrap(), ["tcp:192.0.2.1:7"], "the others are left out");
    }
}
