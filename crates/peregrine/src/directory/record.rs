//! The record of a server: one line of JSON, which directories keep.

use core::time::Duration;

use serde_json::{Value, json};

use super::Offer;
use crate::address::Address;

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offer: Offer,
    /// How long the line is valid after its file was modified. `None`: always.
    pub(super) lease: Option<Duration>,
}

impl Record {
    /// Returns the line.
    pub(super) fn to_line(&self) -> String {
        let addresses: Vec<_> = self.offer.addresses().iter().map(ToString::to_string).collect();
        let mut line = json!({ "server": self.offer.server(), "addresses": addresses });
        if self.offer.priority() > 0 {
            line["priority"] = self.offer.priority().into();
        }
        if let Some(lease) = self.lease {
            line["lease_s"] = lease.as_secs().into();
        }
        line.to_string()
    }

    /// Returns the line with the member `start`, which distinguishes registrations of the same server. No
    /// reader needs it.
    pub(super) fn to_line_of(&self, start: u64) -> String {
        let line = self.to_line();
        let members = line.strip_suffix('}').unwrap_or(&line);
        format!("{members},\"start\":\"{start:016x}\"}}")
    }

    /// Reads a line. Members with other names may be added in later versions, and are ignored.
    ///
    /// # Errors
    /// If the line is not valid. The text says why.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let server = value.get("server").and_then(text);
        let server = server.ok_or("the member `server` is missing, or is not a text")?;
        let addresses = value.get("addresses").and_then(Value::as_array);
        let addresses = addresses.ok_or("the member `addresses` is missing, or is not an array")?;
        let parsed = addresses.iter().map(|address| {
            let text = address.as_str().ok_or_else(|| format!("`{address}` is not a text"))?;
            text.parse::<Address>().map_err(|error| error.detail().to_owned())
        });
        let offer = Offer::at(&server, parsed.collect::<Result<_, _>>()?);
        let offer = offer.map_err(|error| error.detail().to_owned())?;
        let priority = match value.get("priority") {
            None => 0,
            Some(priority) => {
                let number = priority.as_u64().and_then(|number| u16::try_from(number).ok());
                number.ok_or("the member `priority` is not a number from 0 to 65535")?
            }
        };
        let offer = offer.with_priority(priority);
        let lease = match value.get("lease_s") {
            None => None,
            Some(lease) => {
                let seconds = lease.as_u64();
                let seconds = seconds.ok_or("the member `lease_s` is not a number of seconds")?;
                Some(Duration::from_secs(seconds))
            }
        };
        Ok(Self { offer, lease })
    }
}

impl Offer {
    /// Returns the offer as a JSON object without line breaks.
    ///
    /// ```
    /// use peregrine::directory::Offer;
    ///
    /// let offer = Offer::new("fs1", ["files@fs1:7000"])?;
    /// assert_eq!(offer.to_json(), r#"{"server":"fs1","addresses":["files@fs1:7000"]}"#);
    /// assert_eq!(Offer::from_json(&offer.to_json()), Ok(offer));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn to_json(&self) -> String {
        Record { offer: self.clone(), lease: None }.to_line()
    }

    /// Reads an offer that [`to_json`](Self::to_json) has written. Members with other names are ignored.
    ///
    /// # Errors
    /// If the text is not valid. The error is the reason, for people.
    pub fn from_json(text: &str) -> Result<Self, String> {
        Record::read(text).map(|record| record.offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_written() {
        let reserve = Offer::new("fs9", ["files@fs9:7000"]).unwrap().with_priority(10);
        let line = r#"{"server":"fs9","addresses":["files@fs9:7000"],"priority":10}"#;
        assert_eq!((&*reserve.to_json(), Offer::from_json(line)), (line, Ok(reserve)));
        let wrong = Offer::from_json(&line.replace("10}", "65536}")).unwrap_err();
        assert_eq!(wrong, "the member `priority` is not a number from 0 to 65535");
        let offer = Offer::new("fs1", ["files@fs1:7000", "tcp:files@[::1]:7001"]).unwrap();
        for lease in [None, Some(Duration::from_secs(30))] {
            let record = Record { offer: offer.clone(), lease };
            assert_eq!(Record::read(&record.to_line()).as_ref(), Ok(&record));
            assert_eq!(Record::read(&record.to_line_of(7)), Ok(record));
        }
        let later = r#"{"weight":3,"server":"a","addresses":["files@fs1"]}"#;
        assert_eq!(Record::read(later).unwrap().offer.server(), "a");
    }

    #[test]
    fn invalid_lines_are_refused_with_a_reason() {
        for (line, why) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[1]", "`server` is missing"),
            (r#"{"server":1,"addresses":["a@b"]}"#, "`server` is missing, or is not a text"),
            (r#"{"server":"../x","addresses":["a@b"]}"#, "`../x` cannot identify a server"),
            (r#"{"server":"x"}"#, "`addresses` is missing"),
            (r#"{"server":"x","addresses":[]}"#, "has no address"),
            (r#"{"server":"x","addresses":[7]}"#, "`7` is not a text"),
            (r#"{"server":"x","addresses":["a"]}"#, "`a` names no machine"),
            (r#"{"server":"x","addresses":["a@b c"]}"#, "a host without spaces"),
            (r#"{"server":"x","addresses":["a@b\u001b"]}"#, r"at `\u{1b}` (column 4)"),
            (r#"{"server":"x","addresses":["a@b"],"lease_s":-1}"#, "not a number of seconds"),
        ] {
            let refused = Record::read(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }
}
