//! Implements `Value` for types of the standard library that are not numbers: times, addresses, paths.
//!
//! Each type is described as a struct or an enum with the name of the type. So a description, JSON and other
//! languages show which type it is. The modules `bytes`, `chrono`, `time` and `uuid` implement `Value` for
//! types of the crates that have these names. Each module needs the feature of the same name.

#[cfg(feature = "bytes")]
mod bytes;
#[cfg(any(feature = "chrono", feature = "time"))]
mod calendar;
#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "time")]
mod time;
#[cfg(feature = "uuid")]
mod uuid;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use core::time::Duration;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;
use std::time::SystemTime;

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::interface::{Body, Field, Growth, Named, Type, Variant};

const NANOS: u32 = 1_000_000_000;

/// Describes a struct of the standard library by its name and fields.
macro_rules! described {
    ($name:literal, $($field:literal: $type:ty),*) => {
        const TYPE: Type = Type::Named(Named {
            name: $name,
            path: core::any::type_name::<Self>,
            body: || Body::Struct(const { &[$(Field { name: $field, ty: &<$type>::TYPE, growth: Growth::NONE, max: None }),*] }),
        });
    };
}

/// A duration is sent as whole seconds and the remaining nanoseconds.
impl Value for Duration {
    described!("Duration", "secs": u64, "nanos": u32);

    #[inline]
    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.plain(&self.as_secs())?;
        head.plain(&self.subsec_nanos())
    }

    #[inline]
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let (secs, nanos) = (head.plain()?, head.plain()?);
        if nanos < NANOS { Ok(Self::new(secs, nanos)) } else { Err(Invalid::Bits) }
    }
}

/// A time is sent as whole seconds since the beginning of 1970 (UTC), rounded down, and the remaining
/// nanoseconds.
impl Value for SystemTime {
    described!("SystemTime", "secs": i64, "nanos": u32);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        let (secs, nanos) = match self.duration_since(Self::UNIX_EPOCH) {
            Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
            Err(before) => {
                let before = before.duration();
                let secs = -i128::from(before.as_secs());
                match before.subsec_nanos() {
                    0 => (secs, 0),
                    nanos => (secs - 1, NANOS - nanos),
                }
            }
        };
        head.plain(&i64::try_from(secs).map_err(|_| Overflow::TooLong)?)?;
        head.plain(&nanos)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let (secs, nanos): (i64, u32) = (head.plain()?, head.plain()?);
        if nanos >= NANOS {
            return Err(Invalid::Bits);
        }
        let whole = Duration::from_secs(secs.unsigned_abs());
        let at = match secs {
            0.. => Self::UNIX_EPOCH.checked_add(whole),
            _ => Self::UNIX_EPOCH.checked_sub(whole),
        };
        at.and_then(|at| at.checked_add(Duration::new(0, nanos))).ok_or(Invalid::Bits)
    }
}

impl Value for Ipv4Addr {
    described!("Ipv4Addr", "octets": [u8; 4]);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.octets().encode(head)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        <[u8; 4]>::decode(head).map(Self::from)
    }
}

impl Value for Ipv6Addr {
    described!("Ipv6Addr", "octets": [u8; 16]);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.octets().encode(head)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        <[u8; 16]>::decode(head).map(Self::from)
    }
}

impl Value for SocketAddrV4 {
    described!("SocketAddrV4", "ip": Ipv4Addr, "port": u16);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.ip().encode(head)?;
        head.plain(&self.port())
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self::new(Value::decode(head)?, head.plain()?))
    }
}

impl Value for SocketAddrV6 {
    described!("SocketAddrV6", "ip": Ipv6Addr, "port": u16, "flowinfo": u32, "scope_id": u32);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.ip().encode(head)?;
        head.plain(&self.port())?;
        head.plain(&self.flowinfo())?;
        head.plain(&self.scope_id())
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self::new(Value::decode(head)?, head.plain()?, head.plain()?, head.plain()?))
    }
}

const fn field(ty: &'static Type) -> Field {
    Field { name: "0", ty, growth: Growth::NONE, max: None }
}

const fn variant(name: &'static str, fields: &'static [Field]) -> Variant {
    Variant { name, fields, was: &[], is_other: false, case: None }
}

/// Implements [`Value`] for an address that is described as an enum with the variants `V4` and `V6`.
macro_rules! versions {
    ($($type:ident of $v4:ty, $v6:ty: $name:literal)*) => {$(
        impl Value for $type {
            const TYPE: Type = Type::Named(Named {
                name: $name,
                path: core::any::type_name::<Self>,
                body: || Body::Enum(const {
                    &[
                        variant("V4", const { &[field(&<$v4>::TYPE)] }),
                        variant("V6", const { &[field(&<$v6>::TYPE)] }),
                    ]
                }),
            });

            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                match self {
                    Self::V4(address) => {
                        head.plain(&0u32)?;
                        address.encode(head)
                    }
                    Self::V6(address) => {
                        head.plain(&1u32)?;
                        address.encode(head)
                    }
                }
            }

            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                match head.plain::<u32>()? {
                    0 => <$v4>::decode(head).map(Self::V4),
                    1 => <$v6>::decode(head).map(Self::V6),
                    _ => Err(Invalid::Bits),
                }
            }
        }
    )*};
}
versions! {
    IpAddr of Ipv4Addr, Ipv6Addr: "IpAddr"
    SocketAddr of SocketAddrV4, SocketAddrV6: "SocketAddr"
}

/// A string is sent as its bytes, which on Unix need not be UTF-8.
impl Value for OsString {
    described!("OsString", "bytes": Vec<u8>);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.count(self.len())?;
        head.plain_all(self.as_bytes())
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let count = head.count()?;
        head.plain_vec(count).map(Self::from_vec)
    }
}

/// A path is sent as its bytes, like an [`OsString`].
impl Value for PathBuf {
    described!("PathBuf", "bytes": Vec<u8>);

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        let bytes = self.as_os_str().as_bytes();
        head.count(bytes.len())?;
        head.plain_all(bytes)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        OsString::decode(head).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Native, Space, Swapped, Window};

    fn head<T: Value, R: Representation>(value: &T) -> Vec<u8> {
        let mut memory = [0xaau8; 4096];
        let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
        value.encode(&mut writer).unwrap();
        writer.flush();
        let bytes = writer.len();
        memory[..bytes].to_vec()
    }

    fn taken<T: Value, R: Representation>(head: &[u8]) -> Result<T, Invalid> {
        let mut reader = Reader::<R>::represented(Window::from(head));
        let value = T::decode(&mut reader)?;
        reader.finish().map(|()| value)
    }

    fn round_trip<T: Value + PartialEq + core::fmt::Debug>(value: T) {
        let native = head::<T, Native>(&value);
        assert_eq!(taken::<T, Native>(&native).as_ref(), Ok(&value));
        assert_eq!(taken::<T, Swapped>(&head::<T, Swapped>(&value)).as_ref(), Ok(&value));
        for short in 0..native.len() {
            assert!(taken::<T, Native>(&native[..short]).is_err());
        }
    }

    #[test]
    fn values_of_the_library_round_trip() {
        let epoch = SystemTime::UNIX_EPOCH;
        round_trip(Duration::MAX);
        round_trip(Duration::from_nanos(1_500_000_001));
        round_trip(epoch);
        round_trip(epoch + Duration::from_nanos(1_700_000_000_123_456_789));
        round_trip(epoch - Duration::from_nanos(1));
        round_trip(epoch - Duration::from_secs(3));
        round_trip("192.0.2.7".parse::<IpAddr>().unwrap());
        round_trip("2001:db8::7".parse::<IpAddr>().unwrap());
        round_trip("192.0.2.7:7193".parse::<SocketAddr>().unwrap());
        round_trip(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 80, 7, 3)));
        round_trip(PathBuf::from("/etc/hosts"));
        round_trip(OsString::from_vec(vec![b'a', 0xff, b'/']));
    }

    #[test]
    fn times_are_seconds_rounded_down_and_nanoseconds() {
        let time = SystemTime::UNIX_EPOCH - Duration::from_nanos(1);
        let mut expected = (-1i64).to_ne_bytes().to_vec();
        expected.extend(999_999_999u32.to_ne_bytes());
        assert_eq!(head::<_, Native>(&time), expected);
        expected[8..].copy_from_slice(&NANOS.to_ne_bytes());
        assert_eq!(taken::<SystemTime, Native>(&expected), Err(Invalid::Bits));
        assert_eq!(taken::<Duration, Native>(&expected), Err(Invalid::Bits));
        expected[8..].copy_from_slice(&0u32.to_ne_bytes());
        expected[..8].copy_from_slice(&i64::MIN.to_ne_bytes());
        // It depends on the system whether such an early time exists. Reading it must not panic.
        let _ = taken::<SystemTime, Native>(&expected);
    }
}
