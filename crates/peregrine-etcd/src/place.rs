//! Where a directory is in an etcd cluster, and how to enter it: the text after `etcd:`.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use peregrine::{CallError, Executed, Kind, Phase};

/// The port of etcd's clients.
const PORT: u16 = 2379;
/// The prefix if the text has none.
const PREFIX: &str = "peregrine";
/// The lease of a server, unless the text has another one.
const LEASE: Duration = Duration::from_secs(10);
/// The longest time in the text: one day.
const SECONDS_MAX: u64 = 86_400;

/// The members of a cluster, and the prefix of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Hosts with ports, at least one.
    pub(crate) members: Vec<String>,
    /// Ends with a slash.
    pub(crate) prefix: String,
    /// How long the cluster keeps a server that has ended without a withdrawal.
    pub(crate) lease: Duration,
    /// How long a server stays known that a cluster without data does not have: three leases, unless the text
    /// has another time.
    pub(crate) grace: Duration,
}

/// A member that is silent is asked whether it runs after at most this time.
const CHECK_MAX: Duration = Duration::from_secs(30);

/// What the text says about entering the cluster. What it does not say may be in the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
    /// Whether a password may cross the network without TLS.
    pub(crate) trusts_network: bool,
}

/// Returns the error for a text that is not valid. `text` contains no password: see [`Place::read`].
pub(crate) fn wrong(text: &str) -> CallError {
    CallError::new(Kind::BadName, Executed::No, text).in_phase(Phase::Resolve)
}

impl Place {
    /// Reads `//[USER@]HOST[:PORT],HOST[:PORT]...[/PREFIX][?OPTION=VALUE&...]`.
    pub(crate) fn read(text: &str) -> Result<(Self, Options), CallError> {
        let (rest, query) = text.split_once('?').unwrap_or((text, ""));
        // An error must not repeat a password that somebody has written in front of the hosts. It may contain
        // any characters.
        let shown = match text.rsplit_once('@') {
            Some((_, hosts)) => format!("//...@{}", hosts.split('?').next().unwrap_or_default()),
            None => rest.to_owned(),
        };
        let wrong = |what: &str| {
            wrong(&format!(
                "`etcd:{shown}`: {what}; write etcd://HOST,HOST/PREFIX or etcd://USER@HOST/PREFIX"
            ))
        };
        let rest = rest.strip_prefix("//").ok_or_else(|| wrong("`//` is missing"))?;
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some(("", _)) => return Err(wrong("the user is missing")),
            Some((user, _)) if user.contains(':') => {
                return Err(wrong("a password belongs into a file: set `password_file`"));
            }
            Some((user, hosts)) => (Some(user.to_owned()), hosts),
        };
        let members = hosts.split(',').map(|host| {
            let is_host = |c: char| c.is_ascii_alphanumeric() || "-._:[]%".contains(c);
            if host.is_empty() || !host.chars().all(is_host) {
                return Err(wrong("a host is missing or not valid"));
            }
            // Only a bracket ends an IPv6 address, which has colons itself.
            let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
            match port {
                None => Ok(format!("{host}:{PORT}")),
                Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => {
                    Ok(host.to_owned())
                }
                Some(_) => Err(wrong("a port is not valid")),
            }
        });
        let members = members.collect::<Result<Vec<_>, _>>()?;
        let prefix = prefix.trim_end_matches('/');
        let prefix = format!("/{}/", if prefix.is_empty() { PREFIX } else { prefix });
        let (mut lease, mut grace) = (LEASE, None);
        let mut options = Options { user, ..Options::default() };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = percent_decode_str(value).decode_utf8().unwrap_or_default();
            if value.is_empty() {
                return Err(wrong("an option has no value"));
            }
            let path = || Some(PathBuf::from(&*value));
            let seconds = || match value.parse() {
                Ok(seconds @ 1..=SECONDS_MAX) => Ok(Duration::from_secs(seconds)),
                _ => Err(wrong("a time is not a number of seconds between 1 and 86400")),
            };
            match name {
                "ca" => options.ca = path(),
                "cert" => options.cert = path(),
                "key" => options.key = path(),
                "password_file" => options.password_file = path(),
                "trust_network" if value == "true" => options.trusts_network = true,
                "trust_network" => return Err(wrong("`trust_network` can only be `true`")),
                "lease_s" => lease = seconds()?,
                "grace_s" => grace = Some(seconds()?),
                "password" => {
                    return Err(wrong("a password belongs into a file: set `password_file`"));
                }
                _ => return Err(wrong("an option is not known")),
            }
        }
        let grace = grace.unwrap_or(lease * 3);
        Ok((Self { members, prefix, lease, grace }, options))
    }

    /// Returns after which time a member that is silent is asked whether it runs.
    pub(crate) fn check_after(&self) -> Duration {
        (self.lease * 3).min(CHECK_MAX)
    }

    /// Returns the key of a server of a name. This is the inverse of [`name_of`](Self::name_of).
    pub(crate) fn key(&self, name: &str, server: &str) -> String {
        let slash = if server.is_empty() || server.starts_with('/') { "" } else { "/" };
        format!("{}{name}{slash}{server}", self.prefix)
    }

    /// Returns the name and the server of a key. The server is empty if the key has none. It begins with a
    /// slash if there is nothing between two slashes, or after the last one: no two keys have the same name
    /// and server. `None`: the key is not one of the directory.
    pub(crate) fn name_of<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let rest = key.strip_prefix(&*self.prefix)?;
        Some(match rest.split_once('/') {
            None => (rest, ""),
            Some((name, server)) if server.is_empty() || server.starts_with('/') => {
                (name, &rest[name.len()..])
            }
            Some(divided) => divided,
        })
    }

    /// Returns the first key after all keys of the directory.
    pub(crate) fn end(&self) -> String {
        let without_slash = &self.prefix[..self.prefix.len() - 1];
        // `0` follows `/` in ASCII.
        format!("{without_slash}0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let read = |text| {
            let (place, options) = Place::read(text).unwrap();
            (place.members.join(" "), place.prefix, options.user)
        };
        let own = |members: &str, prefix: &str, user: Option<&str>| {
            (members.to_owned(), prefix.to_owned(), user.map(str::to_owned))
        };
        assert_eq!(read("//a"), own("a:2379", "/peregrine/", None));
        assert_eq!(read("//a:1,[::1],[::1]:7/p/q/"), own("a:1 [::1]:2379 [::1]:7", "/p/q/", None));
        assert_eq!(read("//me@a,b/p"), own("a:2379 b:2379", "/p/", Some("me")));
        assert_eq!(read("//me@a,b?lease_s=3"), own("a:2379 b:2379", "/peregrine/", Some("me")));
    }

    #[test]
    fn options_are_read() {
        let text = "//me@a/p?ca=/c/a%26b&cert=c.pem&key=k.pem&password_file=/p&lease_s=3&grace_s=60&trust_network=true";
        let (place, options) = Place::read(text).unwrap();
        assert_eq!((place.lease, place.grace), (Duration::from_secs(3), Duration::from_secs(60)));
        let path = |text: &str| Some(PathBuf::from(text));
        let expected = Options {
            ca: path("/c/a&b"),
            cert: path("c.pem"),
            key: path("k.pem"),
            user: Some("me".to_owned()),
            password_file: path("/p"),
            trusts_network: true,
        };
        assert_eq!(options, expected);
        let (place, options) = Place::read("//a").unwrap();
        assert_eq!((place.lease, place.grace), (LEASE, LEASE * 3));
        assert_eq!(options, Options::default());
    }

    #[test]
    fn wrong_places_are_explained() {
        for (text, what) in [
            ("a", "`//` is missing"),
            ("//", "a host is missing"),
            ("//a,,b", "a host is missing"),
            ("//a b", "a host is missing or not valid"),
            ("//a:x", "a port is not valid"),
            ("//a:0", "a port is not valid"),
            ("//@a", "the user is missing"),
            ("//me:secret@a", "a password belongs into a file"),
            ("//me:secret?x@a", "a port is not valid"),
            ("//me:secret/x@a?y", "a port is not valid"),
            ("me:secret@a", "`//` is missing"),
            ("//a?password=secret", "a password belongs into a file"),
            ("//a?ca", "an option has no value"),
            ("//a?ca=%FF", "an option has no value"),
            ("//a?lease_s=0", "a time is not a number of seconds"),
            ("//a?lease=5", "an option is not known"),
            ("//a?trust_network=no", "`trust_network` can only be `true`"),
        ] {
            let error = Place::read(text).unwrap_err();
            assert_eq!((error.kind(), error.phase()), (Kind::BadName, Phase::Resolve));
            assert!(error.to_string().contains(what), "{error}");
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn keys_are_divided_as_they_are_made() {
        let (place, _) = Place::read("//a/p").unwrap();
        let key = place.key("files", "fs1");
        assert_eq!(key, "/p/files/fs1");
        assert_eq!(place.name_of(&key), Some(("files", "fs1")));
        assert_eq!(place.name_of("/p/files"), Some(("files", "")));
        let odd =
            ["/p/", "/p/files", "/p/files/", "/p/files//", "/p/files//x", "/p/files/x/", "/p//"];
        let divided = odd.map(|key| place.name_of(key).unwrap());
        assert_eq!(divided.map(|(name, server)| place.key(name, server)), odd);
        assert_eq!(place.name_of("/q/files/fs1"), None);
        assert_eq!(place.end(), "/p0");
    }
}
