//! Tests types of the crates `uuid`, `bytes`, `chrono` and `time` in interfaces. Programs that use different
//! crates can call each other. Bytes that a peer sends never become a value that is out of range.

mod support;

use core::fmt::Debug;
use core::hint::black_box;
use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use chrono::{
    DateTime, Datelike as _, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta,
};
use chrono::{Timelike as _, Utc};
use peregrine::value::{Native, Reader, Representation, Space, Swapped, Window, Writer};
use peregrine::{Invalid, Out, Plain, Server, Value, interface};
use proptest::prelude::*;
use support::swapped::SwappedServer;
use time::{Date, OffsetDateTime, PrimitiveDateTime, Time, UtcDateTime, UtcOffset};
use uuid::Uuid;

// Programs that use different types.

/// The interface with types of the standard library. Where the standard library has no suitable type, this
/// module defines one.
mod with_std {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Plain)]
    #[repr(transparent)]
    pub(super) struct Uuid {
        pub(super) bytes: [u8; 16],
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct SignedDuration {
        pub(super) secs: i64,
        pub(super) nanos: i32,
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct UtcOffset {
        pub(super) secs: i32,
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct OffsetDateTime {
        pub(super) instant: SystemTime,
        pub(super) offset: UtcOffset,
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct LocalDate {
        pub(super) year: i32,
        pub(super) month: u8,
        pub(super) day: u8,
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct LocalTime {
        pub(super) hour: u8,
        pub(super) minute: u8,
        pub(super) second: u8,
        pub(super) nanos: u32,
    }
    #[derive(Debug, PartialEq, Value)]
    pub(super) struct LocalDateTime {
        pub(super) date: LocalDate,
        pub(super) time: LocalTime,
    }
    #[derive(Debug, PartialEq, Value)]
    #[rustfmt::skip]
    pub(super) enum Weekday { Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday }
    #[derive(Debug, PartialEq, Value)]
    #[rustfmt::skip]
    pub(super) enum Month {
        January, February, March, April, May, June,
        July, August, September, October, November, December,
    }

    #[interface]
    pub(super) trait Calendar {
        fn later(&self, at: SystemTime, by: SignedDuration) -> peregrine::Result<SystemTime>;
        fn seen_at(&self, at: SystemTime, offset: UtcOffset) -> peregrine::Result<OffsetDateTime>;
        fn local(&self, at: &OffsetDateTime) -> peregrine::Result<LocalDateTime>;
        fn parts(&self, at: LocalDateTime) -> peregrine::Result<(LocalDate, LocalTime)>;
        fn names(&self, days: &[LocalDate]) -> peregrine::Result<Vec<(Weekday, Month)>>;
        fn tag(&self, ids: &[Uuid], text: Vec<u8>) -> peregrine::Result<Vec<u8>>;
        fn make(&self, text: Vec<u8>, ids: Out<'_, Uuid>) -> peregrine::Result<Uuid>;
    }
}

/// Appends the number of ids to a text.
fn tagged(ids: &[Uuid], text: &[u8]) -> Vec<u8> {
    [text, format!(" {}", ids.len()).as_bytes()].concat()
}

/// Puts one id for each letter of a text into `ids`. If there are more letters than `ids` can hold, ignores
/// the remaining ones. Returns the nil id.
fn made(text: &[u8], ids: &mut Out<'_, Uuid>) -> Uuid {
    let of_letter = |letter: &u8| Uuid::from_bytes([*letter; 16]);
    let all: Vec<Uuid> = text.iter().map(of_letter).take(ids.capacity()).collect();
    ids.put(&all).unwrap();
    Uuid::nil()
}

mod with_chrono {
    use super::*;
    use chrono::{Month, Weekday};

    #[interface]
    pub(super) trait Calendar {
        fn later(&self, at: DateTime<Utc>, by: TimeDelta) -> peregrine::Result<DateTime<Utc>>;
        fn seen_at(
            &self,
            at: DateTime<Utc>,
            offset: FixedOffset,
        ) -> peregrine::Result<DateTime<FixedOffset>>;
        fn local(&self, at: &DateTime<FixedOffset>) -> peregrine::Result<NaiveDateTime>;
        fn parts(&self, at: NaiveDateTime) -> peregrine::Result<(NaiveDate, NaiveTime)>;
        fn names(&self, days: &[NaiveDate]) -> peregrine::Result<Vec<(Weekday, Month)>>;
        fn tag(&self, ids: &[Uuid], text: Bytes) -> peregrine::Result<BytesMut>;
        fn make(&self, text: &Bytes, ids: Out<'_, Uuid>) -> peregrine::Result<Uuid>;
    }

    pub(super) struct Almanac;

    impl Calendar for Almanac {
        fn later(&self, at: DateTime<Utc>, by: TimeDelta) -> peregrine::Result<DateTime<Utc>> {
            Ok(at + by)
        }
        fn seen_at(
            &self,
            at: DateTime<Utc>,
            offset: FixedOffset,
        ) -> peregrine::Result<DateTime<FixedOffset>> {
            Ok(at.with_timezone(&offset))
        }
        fn local(&self, at: &DateTime<FixedOffset>) -> peregrine::Result<NaiveDateTime> {
            Ok(at.naive_local())
        }
        fn parts(&self, at: NaiveDateTime) -> peregrine::Result<(NaiveDate, NaiveTime)> {
            Ok((at.date(), at.time()))
        }
        fn names(&self, days: &[NaiveDate]) -> peregrine::Result<Vec<(Weekday, Month)>> {
            let month = |day: &NaiveDate| Month::try_from(day.month() as u8).unwrap();
            Ok(days.iter().map(|day| (day.weekday(), month(day))).collect())
        }
        fn tag(&self, ids: &[Uuid], text: Bytes) -> peregrine::Result<BytesMut> {
            Ok(BytesMut::from(&tagged(ids, &text)[..]))
        }
        fn make(&self, text: &Bytes, mut ids: Out<'_, Uuid>) -> peregrine::Result<Uuid> {
            Ok(made(text, &mut ids))
        }
    }
}

mod with_time {
    use super::*;
    use time::{Month, Weekday};

    #[interface]
    pub(super) trait Calendar {
        fn later(&self, at: UtcDateTime, by: time::Duration) -> peregrine::Result<UtcDateTime>;
        fn seen_at(&self, at: UtcDateTime, offset: UtcOffset) -> peregrine::Result<OffsetDateTime>;
        fn local(&self, at: &OffsetDateTime) -> peregrine::Result<PrimitiveDateTime>;
        fn parts(&self, at: PrimitiveDateTime) -> peregrine::Result<(Date, Time)>;
        fn names(&self, days: &[Date]) -> peregrine::Result<Vec<(Weekday, Month)>>;
        fn tag(&self, ids: &[Uuid], text: BytesMut) -> peregrine::Result<Bytes>;
        fn make(&self, text: &BytesMut, ids: Out<'_, Uuid>) -> peregrine::Result<Uuid>;
    }

    pub(super) struct Almanac;

    impl Calendar for Almanac {
        fn later(&self, at: UtcDateTime, by: time::Duration) -> peregrine::Result<UtcDateTime> {
            Ok(at + by)
        }
        fn seen_at(&self, at: UtcDateTime, offset: UtcOffset) -> peregrine::Result<OffsetDateTime> {
            Ok(at.to_offset(offset))
        }
        fn local(&self, at: &OffsetDateTime) -> peregrine::Result<PrimitiveDateTime> {
            Ok(PrimitiveDateTime::new(at.date(), at.time()))
        }
        fn parts(&self, at: PrimitiveDateTime) -> peregrine::Result<(Date, Time)> {
            Ok((at.date(), at.time()))
        }
        fn names(&self, days: &[Date]) -> peregrine::Result<Vec<(Weekday, Month)>> {
            Ok(days.iter().map(|day| (day.weekday(), day.month())).collect())
        }
        fn tag(&self, ids: &[Uuid], text: BytesMut) -> peregrine::Result<Bytes> {
            Ok(Bytes::from(tagged(ids, &text)))
        }
        fn make(&self, text: &BytesMut, mut ids: Out<'_, Uuid>) -> peregrine::Result<Uuid> {
            Ok(made(text, &mut ids))
        }
    }
}

#[test]
fn types_of_all_crates_give_one_interface() {
    let of_std = with_std::CalendarClient::INTERFACE.canonical_text();
    assert_eq!(with_chrono::CalendarClient::INTERFACE.canonical_text(), of_std);
    assert_eq!(with_time::CalendarClient::INTERFACE.canonical_text(), of_std);
}

/// If an interface uses both a type of `chrono` and the corresponding type of `time`, its description
/// contains only one type for both.
#[test]
fn types_of_different_crates_share_one_description() {
    #[interface]
    trait Mixed {
        fn both(&self, chrono: NaiveDateTime, time: PrimitiveDateTime) -> peregrine::Result<Date>;
        fn zones(&self, at: OffsetDateTime) -> peregrine::Result<DateTime<FixedOffset>>;
        fn days(&self, day: time::Weekday) -> peregrine::Result<chrono::Weekday>;
    }
    let text = MixedClient::INTERFACE.canonical_text();
    for name in ["LocalDateTime", "LocalDate", "LocalTime", "OffsetDateTime", "Weekday"] {
        let defined = text.lines().filter(|line| line.starts_with(&format!("{name}#")));
        assert_eq!(defined.count(), 1, "{name} in\n{text}");
    }
}

/// Calls every procedure of a server as a client with types of the standard library.
fn call_with_std(name: &str) {
    use with_std::{Calendar as _, LocalDate, LocalDateTime, LocalTime, Month, Weekday};

    let calendar = with_std::CalendarClient::bind(name).unwrap();
    let at = SystemTime::UNIX_EPOCH + Duration::new(1_709_164_799, 500_000_000);
    let back = with_std::SignedDuration { secs: -1_709_164_800, nanos: -1 };
    let before = SystemTime::UNIX_EPOCH - Duration::new(0, 500_000_001);
    assert_eq!(calendar.later(at, back).unwrap(), before);
    let west = || with_std::UtcOffset { secs: -3600 };
    let seen = calendar.seen_at(at, west()).unwrap();
    assert_eq!(seen, with_std::OffsetDateTime { instant: at, offset: west() });
    let local = || LocalDateTime {
        date: LocalDate { year: 2024, month: 2, day: 28 },
        time: LocalTime { hour: 22, minute: 59, second: 59, nanos: 500_000_000 },
    };
    assert_eq!(calendar.local(&seen).unwrap(), local());
    assert_eq!(calendar.parts(local()).unwrap(), (local().date, local().time));
    let days =
        [LocalDate { year: 2024, month: 2, day: 29 }, LocalDate { year: -1, month: 12, day: 31 }];
    let named = [(Weekday::Thursday, Month::February), (Weekday::Friday, Month::December)];
    assert_eq!(calendar.names(&days).unwrap(), named);
    let ids = [with_std::Uuid { bytes: [7; 16] }; 3];
    assert_eq!(calendar.tag(&ids, b"falcon".to_vec()).unwrap(), b"falcon 3");
    let mut made = Vec::with_capacity(4);
    calendar.make(b"abcde".to_vec(), Out::from(&mut made)).unwrap();
    assert_eq!(made.len(), 4);
    assert_eq!(made[3].bytes, [b'd'; 16]);
    // The client can send a day that does not exist, but the server refuses it.
    let none = calendar.names(&[LocalDate { year: 2023, month: 2, day: 29 }]);
    assert_eq!(none.unwrap_err().kind(), peregrine::Kind::BadArguments);
}

#[test]
fn clients_with_std_call_servers_with_other_types() {
    let _directory = support::own_directory();
    let _running = Server::new()
        .export("chrono", with_chrono::CalendarServer::new(with_chrono::Almanac))
        .unwrap()
        .export("time", with_time::CalendarServer::new(with_time::Almanac))
        .unwrap()
        .export("swapped", SwappedServer::new(with_time::CalendarServer::new(with_time::Almanac)))
        .unwrap()
        .spawn()
        .unwrap();
    for name in ["chrono", "time", "swapped"] {
        call_with_std(name);
    }
    // The client uses the types of `chrono`, and the server uses those of `time`.
    use with_chrono::Calendar as _;
    let calendar = with_chrono::CalendarClient::bind("swapped").unwrap();
    let at = DateTime::from_timestamp(86_399, 1_500_000_000).unwrap();
    let leap = at.with_timezone(&FixedOffset::east_opt(3600).unwrap());
    let local = calendar.local(&leap).unwrap();
    assert_eq!((local.hour(), local.second(), local.nanosecond()), (0, 59, 999_999_999));
    let text = calendar.tag(&[Uuid::max()], Bytes::from_static(b"kite")).unwrap();
    assert_eq!(&text[..], b"kite 1");
}

// Values that a peer sends.

fn encoded<T: Value, R: Representation>(value: &T) -> Vec<u8> {
    let mut memory = [0xaa; 512];
    let mut writer = Writer::<R>::represented(Space::of_mut(&mut memory));
    value.encode(&mut writer).unwrap();
    writer.flush();
    let bytes = writer.len();
    memory[..bytes].to_vec()
}

fn decoded<T: Value, R: Representation>(bytes: &[u8]) -> Result<T, Invalid> {
    let mut reader = Reader::<R>::represented(Window::from(bytes));
    let value = T::decode(&mut reader)?;
    reader.finish().map(|()| value)
}

/// Encodes a value of type `T` and decodes its bytes as type `U`, in both byte orders.
fn received<T: Value, U: Value + PartialEq + Debug>(sent: &T) -> Result<U, Invalid> {
    let native = encoded::<_, Native>(sent);
    let value = decoded::<U, Native>(&native);
    assert_eq!(decoded::<U, Swapped>(&encoded::<_, Swapped>(sent)), value);
    for short in 0..native.len() {
        assert!(decoded::<U, Native>(&native[..short]).is_err());
    }
    value
}

/// Encodes `sent`, a value of type `S`, and decodes its bytes as type `T`. Returns the decoded value, or
/// `None` if `T` has no such value. Checks that the decoded value is encoded as the same bytes as `sent`.
fn accepted<T: Value + PartialEq + Debug, S: Value>(sent: &S) -> Option<T> {
    match received::<S, T>(sent) {
        Ok(value) => {
            assert_eq!(encoded::<_, Native>(&value), encoded::<_, Native>(sent), "{value:?}");
            assert_eq!(encoded::<_, Swapped>(&value), encoded::<_, Swapped>(sent), "{value:?}");
            black_box(format!("{value:?}"));
            Some(value)
        }
        Err(error) => {
            assert_eq!(error, Invalid::Bits);
            None
        }
    }
}

/// Checks that a value is unchanged after it was encoded and decoded.
fn same<T: Value + PartialEq + Debug>(value: T) {
    assert_eq!(received::<T, T>(&value).as_ref(), Ok(&value));
}

#[test]
fn bounds_of_types_are_values() {
    for at in [DateTime::<Utc>::MIN_UTC, DateTime::UNIX_EPOCH, DateTime::<Utc>::MAX_UTC] {
        same(at);
        same(at.naive_utc());
        same(at.date_naive());
        same(at.fixed_offset());
        same(at.time());
    }
    for span in [TimeDelta::MIN, TimeDelta::zero(), TimeDelta::nanoseconds(-1), TimeDelta::MAX] {
        same(span);
    }
    for secs in [-86_399, 0, 86_399] {
        same(FixedOffset::east_opt(secs).unwrap());
    }
    for at in [UtcDateTime::MIN, UtcDateTime::UNIX_EPOCH, UtcDateTime::MAX] {
        same(at);
        same(at.date());
        same(at.time());
        same(at.to_offset(UtcOffset::UTC));
        same(PrimitiveDateTime::new(at.date(), at.time()));
    }
    for span in [time::Duration::MIN, time::Duration::ZERO, time::Duration::MAX] {
        same(span);
    }
    for secs in [-93_599, 0, 93_599] {
        same(UtcOffset::from_whole_seconds(secs).unwrap());
    }
    for day in 0..7 {
        same(chrono::Weekday::try_from(day).unwrap());
        same(time::Weekday::Monday.nth_next(day));
    }
    for month in 1..=12 {
        same(chrono::Month::try_from(month).unwrap());
        same(time::Month::try_from(month).unwrap());
    }
    same(Bytes::new());
    same(BytesMut::new());
    same(Bytes::from_static(b"falcon"));
    same(BytesMut::from(&b"falcon"[..]));
    same([Uuid::nil(), Uuid::max()]);
    same((1u8, Uuid::max(), vec![Uuid::nil()]));
}

#[test]
fn leap_seconds_are_sent_as_the_last_nanosecond_before() {
    let leap = NaiveTime::from_hms_nano_opt(23, 59, 59, 1_999_999_999).unwrap();
    let last = NaiveTime::from_hms_nano_opt(23, 59, 59, 999_999_999).unwrap();
    assert_eq!(received(&leap), Ok(last));
    let date = NaiveDate::from_ymd_opt(2016, 12, 31).unwrap();
    assert_eq!(received(&date.and_time(leap)), Ok(date.and_time(last)));
    let at = |time| date.and_time(time).and_utc();
    assert_eq!(received(&at(leap)), Ok(at(last)));
    let zoned = |time| at(time).with_timezone(&FixedOffset::west_opt(3600).unwrap());
    assert_eq!(received(&zoned(leap)), Ok(zoned(last)));
    // The instant can also be received as a `SystemTime`.
    let instant = SystemTime::UNIX_EPOCH + Duration::new(1_483_228_799, 999_999_999);
    assert_eq!(received(&at(leap)), Ok(instant));
}

#[test]
fn instants_out_of_range_in_utc_or_in_local_time_are_refused() {
    let offset = |secs| with_std::UtcOffset { secs };
    let at = |secs, away| with_std::OffsetDateTime {
        instant: if secs < 0 {
            SystemTime::UNIX_EPOCH - Duration::from_secs(i64::unsigned_abs(secs))
        } else {
            SystemTime::UNIX_EPOCH + Duration::from_secs(secs as u64)
        },
        offset: offset(away),
    };
    let (first, last) =
        (DateTime::<Utc>::MIN_UTC.timestamp(), DateTime::<Utc>::MAX_UTC.timestamp());
    for (secs, away, is_value) in [
        (first, 0, true),
        (first, 1, true),
        (first, -1, false),
        (first - 1, 1, false),
        (last, 0, true),
        (last, -1, true),
        (last, 1, false),
        (last + 1, -1, false),
    ] {
        let zoned = accepted::<DateTime<FixedOffset>, _>(&at(secs, away));
        assert_eq!(zoned.is_some(), is_value, "{secs} at {away}");
        let local = zoned.map(|zoned| zoned.naive_local());
        assert_eq!(local.is_some(), is_value);
    }
    let (first, last) = (UtcDateTime::MIN.unix_timestamp(), UtcDateTime::MAX.unix_timestamp());
    for (secs, away, is_value) in [
        (first, 0, true),
        (first, 1, true),
        (first, -1, false),
        (first - 1, 1, false),
        (last, 0, true),
        (last, -1, true),
        (last, 1, false),
        (last + 1, -1, false),
    ] {
        let zoned = accepted::<OffsetDateTime, _>(&at(secs, away));
        assert_eq!(zoned.is_some(), is_value, "{secs} at {away}");
        let utc = zoned.map(|zoned| zoned.to_offset(UtcOffset::UTC));
        assert_eq!(utc.is_some(), is_value);
    }
}

#[test]
fn claimed_count_of_bytes_allocates_nothing() {
    let head = [0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
    assert_eq!(decoded::<Bytes, Native>(&head), Err(Invalid::Short));
    assert_eq!(decoded::<BytesMut, Native>(&head), Err(Invalid::Short));
    assert_eq!(decoded::<Vec<Uuid>, Native>(&head), Err(Invalid::Short));
    assert_eq!(decoded::<Vec<NaiveDate>, Native>(&head), Err(Invalid::Short));
}

/// Generates values: about half of them from `any`, and the others from `bounds`.
fn near<T: Copy + Debug>(any: BoxedStrategy<T>, bounds: &'static [T]) -> BoxedStrategy<T> {
    prop_oneof![any, prop::sample::select(bounds)].boxed()
}

fn secs() -> BoxedStrategy<i64> {
    let days = (-100_000_000i64..100_000_000).prop_map(|days| days * 86_400).boxed();
    let recent = prop_oneof![days, -5_000_000_000i64..5_000_000_000, any::<i64>()].boxed();
    near(recent, &[i64::MIN, i64::MIN / 1000 - 1, -1, 0, 1, i64::MAX / 1000, i64::MAX])
}

fn nanos() -> BoxedStrategy<u32> {
    near((0..1_000_000_000u32).boxed(), &[0, 999_999_999, 1_000_000_000, 1_999_999_999, u32::MAX])
}

fn small() -> BoxedStrategy<u8> {
    prop_oneof![0u8..62, any::<u8>()].boxed()
}

/// An instant as a peer may send it: seconds and nanoseconds. The description of the type also allows numbers
/// that are out of range.
type Instant = (i64, u32);
/// A date as a peer may send it: year, month and day, perhaps out of range.
type Day = (i32, u8, u8);
/// A time of day as a peer may send it: hours, minutes, seconds and nanoseconds, perhaps out of range.
type Hour = (u8, u8, u8, u32);

fn day() -> impl Strategy<Value = Day> {
    let years = near((-12_000..12_000).boxed(), &[i32::MIN, -262_143, 262_142, i32::MAX]);
    (years, 0u8..15, 0u8..34)
}

fn hour() -> impl Strategy<Value = Hour> {
    (small(), small(), small(), nanos())
}

proptest! {
    #[test]
    fn any_instant_is_the_same_in_all_types_or_refused(at in (secs(), nanos())) {
        let of_std = accepted::<SystemTime, Instant>(&at);
        let of_chrono = accepted::<DateTime<Utc>, Instant>(&at);
        let of_time = accepted::<UtcDateTime, Instant>(&at);
        prop_assert!(of_std.is_some() >= of_chrono.is_some());
        prop_assert!(of_chrono.is_some() >= of_time.is_some());
        if let Some((of_chrono, of_time)) = of_chrono.zip(of_time) {
            prop_assert_eq!(received::<_, SystemTime>(&of_chrono).ok(), of_std);
            prop_assert_eq!(received::<_, DateTime<Utc>>(&of_time), Ok(of_chrono));
            prop_assert_eq!(of_time.year(), of_chrono.year());
        }
        if (-300_000_000_000..250_000_000_000).contains(&at.0) {
            prop_assert_eq!(of_time.is_some(), at.1 < 1_000_000_000);
        }
    }

    #[test]
    fn any_instant_with_offset_is_the_same_in_all_types_or_refused(
        at in (secs(), nanos()),
        offset in near((-100_000..100_000).boxed(), &[i32::MIN, i32::MAX]),
    ) {
        let of_chrono = accepted::<DateTime<FixedOffset>, (Instant, i32)>(&(at, offset));
        let of_time = accepted::<OffsetDateTime, (Instant, i32)>(&(at, offset));
        // These methods panic if a part is out of range.
        let local = of_chrono.map(|at| (at.naive_local(), at.date_naive(), at.fixed_offset()));
        black_box(local);
        if let Some(at) = of_time {
            black_box((at.to_offset(UtcOffset::UTC), at.date(), at.to_iso_week_date()));
        }
        if let Some((of_chrono, of_time)) = of_chrono.zip(of_time) {
            prop_assert_eq!(of_chrono.ordinal(), u32::from(of_time.ordinal()));
            prop_assert_eq!(received::<_, OffsetDateTime>(&of_chrono), Ok(of_time));
        }
        if (-300_000_000_000..250_000_000_000).contains(&at.0) {
            let is_value = at.1 < 1_000_000_000;
            prop_assert_eq!(of_chrono.is_some(), is_value && offset.unsigned_abs() < 86_400);
            prop_assert_eq!(of_time.is_some(), is_value && offset.unsigned_abs() < 93_600);
        }
    }

    #[test]
    fn any_day_is_the_same_in_both_types_or_refused(day in day()) {
        let of_chrono = accepted::<NaiveDate, Day>(&day);
        let of_time = accepted::<Date, Day>(&day);
        let is_of_time = of_chrono.is_some() && day.0.unsigned_abs() <= 9999;
        prop_assert_eq!(of_time.is_some(), is_of_time);
        if let Some((of_chrono, of_time)) = of_chrono.zip(of_time) {
            prop_assert_eq!(of_chrono.ordinal(), u32::from(of_time.ordinal()));
            let weekday = received::<_, time::Weekday>(&of_chrono.weekday());
            prop_assert_eq!(weekday, Ok(of_time.weekday()));
        }
    }

    #[test]
    fn any_time_of_day_is_the_same_in_both_types_or_refused(day in day(), hour in hour()) {
        let of_chrono = accepted::<NaiveTime, Hour>(&hour);
        let of_time = accepted::<Time, Hour>(&hour);
        let is_value = hour.0 < 24 && hour.1 < 60 && hour.2 < 60 && hour.3 < 1_000_000_000;
        prop_assert_eq!((of_chrono.is_some(), of_time.is_some()), (is_value, is_value));
        let both = accepted::<NaiveDateTime, (Day, Hour)>(&(day, hour));
        let date = accepted::<NaiveDate, Day>(&day);
        prop_assert_eq!(both.is_some(), is_value && date.is_some());
        let both = accepted::<PrimitiveDateTime, (Day, Hour)>(&(day, hour));
        let date = accepted::<Date, Day>(&day);
        prop_assert_eq!(both, date.zip(of_time).map(|(date, time)| PrimitiveDateTime::new(date, time)));
    }

    #[test]
    fn any_span_is_the_same_in_both_types_or_refused(
        secs in secs(),
        nanos in near((-1_000_000_000..=1_000_000_000).boxed(), &[i32::MIN, -1, 0, 1, i32::MAX]),
    ) {
        let of_time = accepted::<time::Duration, (i64, i32)>(&(secs, nanos));
        let of_chrono = accepted::<TimeDelta, (i64, i32)>(&(secs, nanos));
        let is_one_sign = secs == 0 || nanos == 0 || (secs < 0) == (nanos < 0);
        prop_assert_eq!(of_time.is_some(), is_one_sign && nanos.unsigned_abs() < 1_000_000_000);
        prop_assert!(of_time.is_some() >= of_chrono.is_some());
        if let Some((of_chrono, of_time)) = of_chrono.zip(of_time) {
            prop_assert_eq!(received::<_, TimeDelta>(&of_time), Ok(of_chrono));
            let millis = of_time.whole_milliseconds();
            prop_assert_eq!(i128::from(of_chrono.num_milliseconds()), millis);
        }
        if secs.unsigned_abs() < i64::MAX as u64 / 1000 {
            prop_assert_eq!(of_chrono.is_some(), of_time.is_some());
        }
    }

    #[test]
    fn any_number_is_a_day_of_the_week_or_a_month_or_refused(number in prop_oneof![0..20u32, any::<u32>()]) {
        let days = (
            accepted::<chrono::Weekday, u32>(&number).is_some(),
            accepted::<time::Weekday, u32>(&number).is_some(),
        );
        prop_assert_eq!(days, (number < 7, number < 7));
        let months = (
            accepted::<chrono::Month, u32>(&number).is_some(),
            accepted::<time::Month, u32>(&number).is_some(),
        );
        prop_assert_eq!(months, (number < 12, number < 12));
    }

    #[test]
    fn bytes_and_ids_are_those_that_were_sent(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (shared, own) = (received::<_, Bytes>(&bytes), received::<_, BytesMut>(&bytes));
        prop_assert_eq!(shared.as_deref(), Ok(&bytes[..]));
        prop_assert_eq!(own.as_deref(), Ok(&bytes[..]));
        prop_assert_eq!(received(&Bytes::copy_from_slice(&bytes)), Ok(bytes.clone()));
        prop_assert_eq!(received(&BytesMut::from(&bytes[..])), Ok(bytes.clone()));
        let ids: Vec<[u8; 16]> = bytes.as_chunks().0.to_vec();
        let expected: Vec<Uuid> = ids.iter().copied().map(Uuid::from_bytes).collect();
        prop_assert_eq!(received(&ids), Ok(expected));
    }
}
