//! Checks the bytes of values whose types are defined in libraries. If types of different crates mean the
//! same, their values have the same bytes.

use std::time::{self as std_time, SystemTime};

use bytes::{Bytes, BytesMut};
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveTime, TimeDelta, Timelike as _, Utc};
use peregrine::value::{Invalid, Native, Swapped};
use time::{Date, PrimitiveDateTime, Time, UtcDateTime, UtcOffset};
use uuid::Uuid;

use crate::document::check;
use crate::values::{big, encode_in, holds, refused};

pub(crate) const VALUES: &[&str] = &[
    "instant",
    "offset",
    "instant with offset",
    "date",
    "time of day",
    "time of a leap second",
    "date and time",
    "signed duration",
    "weekday",
    "month",
    "uuid",
    "bytes",
];

const HALF_NANOS: u32 = 500_000_000;

#[test]
fn values_of_std_uuid_and_bytes() {
    let span = std_time::Duration::new(1, HALF_NANOS);
    holds("duration", span);
    holds("instant", SystemTime::UNIX_EPOCH - std_time::Duration::new(0, HALF_NANOS));
    holds("uuid", Uuid::from_u128(0x67e5_5044_10b1_426f_9247_bb68_0e5f_e0c8));
    holds("bytes", vec![7u8, 8]);
    holds("bytes", Bytes::from_static(&[7, 8]));
    holds("bytes", BytesMut::from(&[7, 8][..]));
}

#[test]
fn values_of_chrono() {
    let at = DateTime::from_timestamp(-1, HALF_NANOS).unwrap();
    let offset = FixedOffset::west_opt(3600).unwrap();
    let date = NaiveDate::from_ymd_opt(2024, 2, 29).unwrap();
    let time = NaiveTime::from_hms_nano_opt(23, 59, 59, HALF_NANOS).unwrap();
    holds::<DateTime<Utc>>("instant", at);
    holds("offset", offset);
    holds("instant with offset", at.with_timezone(&offset));
    holds("date", date);
    holds("time of day", time);
    holds("date and time", date.and_time(time));
    holds("signed duration", TimeDelta::milliseconds(-1500));
    holds("weekday", chrono::Weekday::Sun);
    holds("month", chrono::Month::February);
    let leap = time.with_nanosecond(1_500_000_000).unwrap();
    check("time of a leap second", &encode_in::<_, Native>(&leap));
    check(&big("time of a leap second"), &encode_in::<_, Swapped>(&leap));
}

#[test]
fn values_of_time() {
    let at = UtcDateTime::from_unix_timestamp_nanos(-500_000_000).unwrap();
    let offset = UtcOffset::from_whole_seconds(-3600).unwrap();
    let date = Date::from_calendar_date(2024, time::Month::February, 29).unwrap();
    let time = Time::from_hms_nano(23, 59, 59, HALF_NANOS).unwrap();
    holds("instant", at);
    holds("offset", offset);
    holds("instant with offset", at.to_offset(offset));
    holds("date", date);
    holds("time of day", time);
    holds("time of a leap second", time.replace_nanosecond(999_999_999).unwrap());
    holds("date and time", PrimitiveDateTime::new(date, time));
    holds("signed duration", time::Duration::milliseconds(-1500));
    holds("weekday", time::Weekday::Sunday);
    holds("month", time::Month::February);
}

pub(crate) const INVALID: &[&str] = &[
    "not an instant",
    "not an offset",
    "not a date",
    "not a time of day",
    "not a leap second",
    "not a signed duration",
    "not a weekday",
    "not a month",
];

#[test]
fn values_that_are_out_of_range_are_refused() {
    refused::<std_time::Duration>("not a duration", Invalid::Bits);
    refused::<SystemTime>("not an instant", Invalid::Bits);
    refused::<DateTime<Utc>>("not an instant", Invalid::Bits);
    refused::<UtcDateTime>("not an instant", Invalid::Bits);
    refused::<FixedOffset>("not an offset", Invalid::Bits);
    refused::<UtcOffset>("not an offset", Invalid::Bits);
    refused::<NaiveDate>("not a date", Invalid::Bits);
    refused::<Date>("not a date", Invalid::Bits);
    for name in ["not a time of day", "not a leap second"] {
        refused::<NaiveTime>(name, Invalid::Bits);
        refused::<Time>(name, Invalid::Bits);
    }
    refused::<TimeDelta>("not a signed duration", Invalid::Bits);
    refused::<time::Duration>("not a signed duration", Invalid::Bits);
    refused::<chrono::Weekday>("not a weekday", Invalid::Bits);
    refused::<time::Weekday>("not a weekday", Invalid::Bits);
    refused::<chrono::Month>("not a month", Invalid::Bits);
    refused::<time::Month>("not a month", Invalid::Bits);
}
