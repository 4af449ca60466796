//! Instants, dates, times of day and spans of time in the form in which they are sent. The form does not
//! depend on the crate that has the type.
//!
//! Each of these types has one description and one encoding for all crates. So peers that use different
//! crates are compatible. Each crate checks the range of its own type when it receives a value.

use super::{NANOS, SystemTime, variant};
use crate::interface::{Body, Named, Type};
use crate::value::{Invalid, Overflow, Reader, Representation, Value, Writer};

/// Implements [`Value`] for a type of another crate, by means of a type of this file. The first function
/// makes the value that is sent. The second function converts a received value back, or returns `None` if the
/// value is out of range.
macro_rules! sent_as {
    ($($(#[$attribute:meta])* $type:ty => $sent:ty { $to:expr, $from:expr $(,)? })*) => {$(
        $(#[$attribute])*
        impl Value for $type {
            const TYPE: Type = <$sent as Value>::TYPE;

            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                let to: fn(&Self) -> $sent = $to;
                to(self).encode(head)
            }

            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                let from: fn($sent) -> Option<Self> = $from;
                from(Value::decode(head)?).ok_or(Invalid::Bits)
            }
        }
    )*};
}
pub(super) use sent_as;

/// An instant, described as a [`SystemTime`]: whole seconds since the beginning of 1970 (UTC), rounded down,
/// and the remaining nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct Instant {
    pub(super) secs: i64,
    pub(super) nanos: u32,
}

impl Value for Instant {
    const TYPE: Type = SystemTime::TYPE;

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        head.plain(&self.secs)?;
        head.plain(&self.nanos)
    }

    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        let (secs, nanos) = (head.plain()?, head.plain()?);
        if nanos < NANOS { Ok(Self { secs, nanos }) } else { Err(Invalid::Bits) }
    }
}

/// The number of seconds by which local time is ahead of UTC. It is negative where local time is behind UTC.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct UtcOffset {
    pub(super) secs: i32,
}

/// An instant, and the offset from UTC of the local time at a place.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct OffsetDateTime {
    pub(super) instant: Instant,
    pub(super) offset: UtcOffset,
}

/// A day of the proleptic Gregorian calendar. Year 0 is 1 BC. Months and days count from 1.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct LocalDate {
    pub(super) year: i32,
    pub(super) month: u8,
    pub(super) day: u8,
}

/// A time of day. Leap seconds do not exist.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct LocalTime {
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
    pub(super) nanos: u32,
}

/// A date and a time of day at an unknown place.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct LocalDateTime {
    pub(super) date: LocalDate,
    pub(super) time: LocalTime,
}

/// A span of time that may be negative: whole seconds, rounded towards zero, and the remaining nanoseconds.
/// Seconds and nanoseconds do not have opposite signs.
#[derive(Clone, Copy, peregrine_macros::Value)]
pub(super) struct SignedDuration {
    pub(super) secs: i64,
    pub(super) nanos: i32,
}

impl SignedDuration {
    /// Returns the span if its nanoseconds are in range, and do not have the opposite sign of its seconds.
    pub(super) fn checked(self) -> Option<Self> {
        let is_one_sign = self.secs.signum() * i64::from(self.nanos.signum()) >= 0;
        (is_one_sign && self.nanos.unsigned_abs() < NANOS).then_some(self)
    }
}

/// Defines types that hold the number of a variant, and are described as an enum without fields.
macro_rules! choices {
    ($($(#[$attribute:meta])* $type:ident: $name:literal { $($variant:literal)* })*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        pub(super) struct $type(pub(super) u8);

        impl Value for $type {
            const TYPE: Type = Type::Named(Named {
                name: $name,
                path: core::any::type_name::<Self>,
                body: || Body::Enum(const { &[$(variant($variant, &[])),*] }),
            });

            fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
                head.plain(&u32::from(self.0))
            }

            fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
                const COUNT: u8 = [$($variant),*].len() as u8;
                let number: u32 = head.plain()?;
                let number = u8::try_from(number).ok().filter(|number| *number < COUNT);
                number.map(Self).ok_or(Invalid::Bits)
            }
        }
    )*};
}
choices! {
    /// The number of days since Monday.
    Weekday: "Weekday" { "Monday" "Tuesday" "Wednesday" "Thursday" "Friday" "Saturday" "Sunday" }
    /// The number of months since January.
    Month: "Month" {
        "January" "February" "March" "April" "May" "June"
        "July" "August" "September" "October" "November" "December"
    }
}
