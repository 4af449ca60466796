//! Where a directory is in an etcd cluster: the text after `etcd:`.

use peregrine::{CallError, Executed, Kind};

/// The port of etcd's clients.
const PORT: u16 = 2379;
/// The prefix if the text has none.
const PREFIX: &str = "peregrine";

/// The members of a cluster, and the prefix of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Hosts with ports, at least one.
    pub(crate) members: Vec<String>,
    /// Ends with a slash.
    pub(crate) prefix: String,
    /// The user whose password is in the environment.
    pub(crate) user: Option<String>,
}

impl Place {
    /// Reads `//[USER@]HOST[:PORT],HOST[:PORT]...[/PREFIX]`.
    pub(crate) fn read(text: &str) -> Result<Self, CallError> {
        let wrong = |what: &str| {
            let text = format!(
                "`etcd:{text}`: {what}; write etcd://HOST,HOST/PREFIX or etcd://USER@HOST/PREFIX"
            );
            CallError::new(Kind::BadName, Executed::No, text)
        };
        let rest = text.strip_prefix("//").ok_or_else(|| wrong("`//` is missing"))?;
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some(("", _)) => return Err(wrong("the user is missing")),
            Some((user, _)) if user.contains(':') => {
                return Err(wrong("a password belongs into the environment"));
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
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        Ok(Self { members, prefix: format!("/{prefix}/"), user })
    }

    /// Returns the key of a server of a name.
    pub(crate) fn key(&self, name: &str, server: &str) -> String {
        format!("{}{name}/{server}", self.prefix)
    }

    /// Returns the name and the server of a key. `None`: the key is not one of a directory.
    pub(crate) fn name_of<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        key.strip_prefix(&*self.prefix)?.split_once('/')
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
            let place = Place::read(text).unwrap();
            (place.members.join(" "), place.prefix, place.user)
        };
        let own = |members: &str, prefix: &str, user: Option<&str>| {
            (members.to_owned(), prefix.to_owned(), user.map(str::to_owned))
        };
        assert_eq!(read("//a"), own("a:2379", "/peregrine/", None));
        assert_eq!(read("//a:1,[::1],[::1]:7/p/q/"), own("a:1 [::1]:2379 [::1]:7", "/p/q/", None));
        assert_eq!(read("//me@a,b/p"), own("a:2379 b:2379", "/p/", Some("me")));
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
            ("//me:secret@a", "a password belongs into the environment"),
        ] {
            let error = Place::read(text).unwrap_err();
            assert_eq!(error.kind(), Kind::BadName);
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn keys_are_divided_as_they_are_made() {
        let place = Place::read("//a/p").unwrap();
        let key = place.key("files", "fs1");
        assert_eq!(key, "/p/files/fs1");
        assert_eq!(place.name_of(&key), Some(("files", "fs1")));
        assert_eq!(place.name_of("/p/files"), None);
        assert_eq!(place.name_of("/q/files/fs1"), None);
        assert_eq!(place.end(), "/p0");
    }
}
