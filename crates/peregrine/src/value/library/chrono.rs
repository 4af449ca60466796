//! Implements `Value` for the types of the crate `chrono`, with the feature of that name.
//!
//! `chrono` represents a leap second as a second that has 1,000,000,000 nanoseconds or more. `SystemTime` and
//! the crate `time` have no leap seconds. So a leap second is sent as the last nanosecond of the second
//! before it: 23:59:60.5 is sent as 23:59:59.999999999. A peer cannot send a leap second.

use chrono::{
    DateTime, Datelike as _, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta,
    Timelike as _, Utc,
};

use super::NANOS;
use super::calendar::{
    self, Instant, LocalDate, LocalDateTime, LocalTime, OffsetDateTime, SignedDuration, UtcOffset,
    sent_as,
};
use crate::interface::Type;
use crate::value::{Invalid, Overflow, Reader, Representation, Value, Writer};

/// Returns the nanoseconds of a second. For a leap second, returns the last nanosecond of the second before
/// it.
fn nanos(nanos: u32) -> u32 {
    nanos.min(NANOS - 1)
}

fn of_instant(at: &NaiveDateTime) -> Instant {
    let at = at.and_utc();
    Instant { secs: at.timestamp(), nanos: nanos(at.timestamp_subsec_nanos()) }
}

fn to_instant(sent: Instant) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(sent.secs, sent.nanos)
}

fn of_offset(offset: &FixedOffset) -> UtcOffset {
    UtcOffset { secs: offset.local_minus_utc() }
}

fn to_offset(sent: UtcOffset) -> Option<FixedOffset> {
    FixedOffset::east_opt(sent.secs)
}

fn of_date(date: &NaiveDate) -> LocalDate {
    LocalDate { year: date.year(), month: date.month() as u8, day: date.day() as u8 }
}

fn to_date(sent: LocalDate) -> Option<NaiveDate> {
    NaiveDate::from_ymd_opt(sent.year, sent.month.into(), sent.day.into())
}

fn of_time(time: &NaiveTime) -> LocalTime {
    LocalTime {
        hour: time.hour() as u8,
        minute: time.minute() as u8,
        second: time.second() as u8,
        nanos: nanos(time.nanosecond()),
    }
}

fn to_time(sent: LocalTime) -> Option<NaiveTime> {
    let LocalTime { hour, minute, second, nanos } = sent;
    // `from_hms_nano_opt` also accepts a larger number of nanoseconds, which it takes as a leap second.
    let nanos = Some(nanos).filter(|nanos| *nanos < NANOS)?;
    NaiveTime::from_hms_nano_opt(hour.into(), minute.into(), second.into(), nanos)
}

fn of_span(span: &TimeDelta) -> SignedDuration {
    SignedDuration { secs: span.num_seconds(), nanos: span.subsec_nanos() }
}

fn to_span(sent: SignedDuration) -> Option<TimeDelta> {
    // `TimeDelta::new` expects seconds that are rounded down, but the sent seconds are rounded towards zero.
    let SignedDuration { secs, nanos } = sent.checked()?;
    match u32::try_from(nanos) {
        Ok(nanos) => TimeDelta::new(secs, nanos),
        Err(_) => TimeDelta::new(secs.checked_sub(1)?, NANOS - nanos.unsigned_abs()),
    }
}

sent_as! {
    /// An instant in UTC is sent as a `SystemTime`.
    DateTime<Utc> => Instant { |at| of_instant(&at.naive_utc()), to_instant }

    /// The local time of a received value must also be in the range of `NaiveDateTime`. Otherwise many
    /// methods would panic.
    DateTime<FixedOffset> => OffsetDateTime {
        |at| OffsetDateTime {
            instant: of_instant(&at.naive_utc()),
            offset: of_offset(at.offset()),
        },
        |sent| {
            let (at, offset) = (to_instant(sent.instant)?, to_offset(sent.offset)?);
            at.naive_utc().checked_add_offset(offset)?;
            Some(at.with_timezone(&offset))
        },
    }

    FixedOffset => UtcOffset { of_offset, to_offset }
    NaiveDate => LocalDate { of_date, to_date }
    NaiveTime => LocalTime { of_time, to_time }

    NaiveDateTime => LocalDateTime {
        |at| LocalDateTime { date: of_date(&at.date()), time: of_time(&at.time()) },
        |sent| Some(to_date(sent.date)?.and_time(to_time(sent.time)?)),
    }

    TimeDelta => SignedDuration { of_span, to_span }

    chrono::Weekday => calendar::Weekday {
        |day| calendar::Weekday(day.num_days_from_monday() as u8),
        |sent| Self::try_from(sent.0).ok(),
    }

    chrono::Month => calendar::Month {
        |month| calendar::Month(month.number_from_month() as u8 - 1),
        |sent| Self::try_from(sent.0 + 1).ok(),
    }
}
