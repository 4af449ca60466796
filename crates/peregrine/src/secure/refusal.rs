//! Why two peers do not talk: what this side found out about the other one, or was told by it.

use core::fmt;
use std::time::SystemTime;

use super::key::PublicKey;
use super::name::Expected;

/// Why this side refused its peer, or was refused by it, before any call.
///
/// Each reason has its own alert of TLS (RFC 8446, 6.2), so that the other side learns it, too. There it is
/// [`Refusal::RefusedByPeer`].
///
/// ```
/// use peregrine::secure::Refusal;
///
/// let text = Refusal::NoCertificate.to_string();
/// assert!(text.contains("shows no certificate"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The peer has proven its key, but the key is not in the list of trusted keys.
    UnknownKey {
        /// The key.
        key: PublicKey,
    },
    /// No trusted CA has signed the peer's certificate, and its key is not in the list of trusted keys.
    WrongAuthority {
        /// The key of the peer.
        key: PublicKey,
    },
    /// The certificate of the peer, or of a CA above it, has expired.
    Expired {
        /// The last moment at which it was valid.
        until: SystemTime,
    },
    /// The certificate of the peer, or of a CA above it, is not valid yet.
    NotYetValid {
        /// The first moment at which it is valid.
        from: SystemTime,
    },
    /// The key was in the list of trusted keys, and was removed while this process ran.
    Removed {
        /// The key.
        key: PublicKey,
    },
    /// The peer is trusted, but is another one than expected.
    WrongName {
        /// Which peer was expected.
        expected: Expected,
        /// The names that the peer has.
        presented: Vec<String>,
    },
    /// The peer shows no certificate.
    NoCertificate,
    /// The certificate is malformed, or its key or its signature is too weak or of an unknown kind.
    Unsupported {
        /// What is wrong.
        why: String,
    },
    /// The peer speaks another protocol, or no TLS 1.3.
    OtherProtocol {
        /// What it offered or sent.
        why: String,
    },
    /// The handshake was damaged or tampered with, or the peer does not have the private key.
    Broken {
        /// What was found.
        why: String,
    },
    /// The peer refused this side.
    RefusedByPeer(PeerReason),
}

/// Why the peer refused this side, by the alert that it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerReason {
    /// This side's key is not in the peer's list of trusted keys.
    UnknownKey,
    /// No CA that the peer trusts has signed this side's certificate.
    WrongAuthority,
    /// This side's certificate has expired, by the clock of the peer.
    Expired,
    /// This side's certificate is not valid yet, by the clock of the peer.
    NotYetValid,
    /// This side's key was removed from the peer's list of trusted keys.
    Removed,
    /// This side is another one than the peer expected.
    WrongName,
    /// This side showed no certificate.
    NoCertificate,
    /// The peer cannot use this side's certificate or key.
    Unsupported,
    /// The peer speaks another protocol or version.
    OtherProtocol,
    /// The peer sent an alert that has none of these meanings, with this number (RFC 8446, 6).
    Alert(u8),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key } => write!(
                f,
                "unknown key {}: if it is the right one, run `peregrine keys trust NAME {key}`",
                key.fingerprint()
            ),
            Self::WrongAuthority { key } => write!(
                f,
                "wrong CA: no trusted CA signed the certificate of the key {}; add the CA to authorities.pem, \
                 or run `peregrine keys trust NAME {key}`",
                key.fingerprint()
            ),
            Self::Expired { until } => {
                write!(f, "the certificate expired at {}: renew it, or set the clock", Utc(*until))
            }
            Self::NotYetValid { from } => write!(
                f,
                "the certificate is not valid before {}: wait, or set the clock",
                Utc(*from)
            ),
            Self::Removed { key } => {
                write!(f, "the key {} was removed from the list of trusted keys", key.fingerprint())
            }
            Self::WrongName { expected, presented } => {
                write!(f, "the peer is not `{expected}`, but ")?;
                match &**presented {
                    [] => f.write_str("has no name")?,
                    names => write!(f, "`{}`", names.join("`, `"))?,
                }
                f.write_str(": correct the address, or expect this name")
            }
            Self::NoCertificate => f.write_str(
                "the peer shows no certificate: give it an identity with `peregrine keys new`",
            ),
            Self::Unsupported { why } => write!(f, "the certificate cannot be used: {why}"),
            Self::OtherProtocol { why } => write!(f, "the peer speaks another protocol: {why}"),
            Self::Broken { why } => write!(f, "the handshake failed: {why}"),
            Self::RefusedByPeer(reason) => write!(f, "the peer refused: {reason}"),
        }
    }
}

impl core::error::Error for Refusal {}

impl fmt::Display for PeerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownKey => {
                "it does not know the key of this side; there, run `peregrine keys trust` with the line that \
                 `peregrine keys show` prints here"
            }
            Self::WrongAuthority => {
                "it trusts no CA that signed the certificate of this side; add the CA to its authorities.pem"
            }
            Self::Expired => "the certificate of this side has expired; renew it, or compare the clocks",
            Self::NotYetValid => "the certificate of this side is not valid yet; compare the clocks",
            Self::Removed => "the key of this side was removed from its list of trusted keys",
            Self::WrongName => "it expected a peer with another name; compare its address with the certificate",
            Self::NoCertificate => "this side showed no certificate; make one with `peregrine keys new`",
            Self::Unsupported => "it cannot use the certificate or the key of this side",
            Self::OtherProtocol => "it speaks another protocol or version",
            Self::Alert(number) => return write!(f, "it sent alert {number} of TLS"),
        })
    }
}

/// A moment in UTC, as RFC 3339 writes it, in whole seconds.
struct Utc(SystemTime);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (days, time) = (seconds / 86_400, seconds % 86_400);
        // The civil date of a day: years begin in March, so that a leap day is the last day of its year.
        let days = days + 719_468;
        let (era, day) = (days / 146_097, days % 146_097);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let date = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + u64::from(month <= 2);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        write!(f, "{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ] {
            let moment = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(Utc(moment).to_string(), text);
        }
    }
}
