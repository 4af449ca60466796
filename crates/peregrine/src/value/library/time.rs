//! Implements `Value` for the types of the crate `time`, with the feature of that name.

use time::{Date, Duration, PrimitiveDateTime, Time, UtcDateTime};

use super::calendar::{
    self, Instant, LocalDate, LocalDateTime, LocalTime, OffsetDateTime, SignedDuration, UtcOffset,
    sent_as,
};
use crate::interface::Type;
use crate::value::{Invalid, Overflow, Reader, Representation, Value, Writer};

fn to_instant(sent: Instant) -> Option<UtcDateTime> {
    let whole = UtcDateTime::from_unix_timestamp(sent.secs).ok()?;
    whole.replace_nanosecond(sent.nanos).ok()
}

fn of_offset(offset: &time::UtcOffset) -> UtcOffset {
    UtcOffset { secs: offset.whole_seconds() }
}

fn to_offset(sent: UtcOffset) -> Option<time::UtcOffset> {
    time::UtcOffset::from_whole_seconds(sent.secs).ok()
}

fn of_date(date: &Date) -> LocalDate {
    LocalDate { year: date.year(), month: date.month().into(), day: date.day() }
}

fn to_date(sent: LocalDate) -> Option<Date> {
    let month = time::Month::try_from(sent.month).ok()?;
    Date::from_calendar_date(sent.year, month, sent.day).ok()
}

fn of_time(time: &Time) -> LocalTime {
    let (hour, minute, second, nanos) = time.as_hms_nano();
    LocalTime { hour, minute, second, nanos }
}

fn to_time(sent: LocalTime) -> Option<Time> {
    Time::from_hms_nano(sent.hour, sent.minute, sent.second, sent.nanos).ok()
}

fn of_span(span: &Duration) -> SignedDuration {
    SignedDuration { secs: span.whole_seconds(), nanos: span.subsec_nanoseconds() }
}

fn to_span(sent: SignedDuration) -> Option<Duration> {
    sent.checked().map(|sent| Duration::new(sent.secs, sent.nanos))
}

sent_as! {
    /// An instant in UTC is sent as a `SystemTime`.
    UtcDateTime => Instant {
        |at| Instant { secs: at.unix_timestamp(), nanos: at.nanosecond() },
        to_instant,
    }

    /// A received value, converted to UTC, must also be in the range of `UtcDateTime`. Otherwise some methods
    /// would panic.
    time::OffsetDateTime => OffsetDateTime {
        |at| OffsetDateTime {
            instant: Instant { secs: at.unix_timestamp(), nanos: at.nanosecond() },
            offset: of_offset(&at.offset()),
        },
        |sent| to_instant(sent.instant)?.checked_to_offset(to_offset(sent.offset)?),
    }

    time::UtcOffset => UtcOffset { of_offset, to_offset }
    Date => LocalDate { of_date, to_date }
    Time => LocalTime { of_time, to_time }

    PrimitiveDateTime => LocalDateTime {
        |at| LocalDateTime { date: of_date(&at.date()), time: of_time(&at.time()) },
        |sent| Some(Self::new(to_date(sent.date)?, to_time(sent.time)?)),
    }

    Duration => SignedDuration { of_span, to_span }

    time::Weekday => calendar::Weekday {
        |day| calendar::Weekday(day.number_days_from_monday()),
        |sent| Some(Self::Monday.nth_next(sent.0)),
    }

    time::Month => calendar::Month {
        |month| calendar::Month(u8::from(*month) - 1),
        |sent| Self::try_from(sent.0 + 1).ok(),
    }
}
