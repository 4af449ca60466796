//! Tests that types of the standard library and of other crates are parsed to the definitions that
//! `peregrine` has.

use peregrine::interface;
use peregrine_idl::{parse_trait, to_trait};

/// Compiles a trait, and also keeps its text in a constant.
macro_rules! compiled_and_read {
    ($text:ident: $($token:tt)*) => {
        #[interface]
        $($token)*
        pub(crate) const $text: &str = stringify!($($token)*);
    };
}

compiled_and_read! { STD:
    trait Library {
        fn times(
            &self,
            a: std::time::Duration,
            b: std::time::SystemTime,
        ) -> peregrine::Result<std::collections::HashMap<String, u8>>;
        fn addresses(
            &self,
            a: std::net::IpAddr,
            b: std::net::SocketAddr,
        ) -> peregrine::Result<(std::net::Ipv4Addr, std::net::SocketAddrV6)>;
        fn paths(&self, a: std::path::PathBuf) -> peregrine::Result<std::ffi::OsString>;
    }
}

mod in_full {
    use super::*;

    compiled_and_read! { TEXT:
        pub(crate) trait Others {
            fn ids(&self, a: &[uuid::Uuid], b: bytes::Bytes) -> peregrine::Result<bytes::BytesMut>;
            fn instants(
                &self,
                a: chrono::DateTime<chrono::Utc>,
                b: chrono::DateTime<chrono::FixedOffset>,
                c: time::UtcDateTime,
                d: Vec<time::OffsetDateTime>,
            ) -> peregrine::Result<()>;
            fn offsets(&self, a: chrono::FixedOffset) -> peregrine::Result<time::UtcOffset>;
            fn dates(&self, a: chrono::NaiveDate) -> peregrine::Result<time::Date>;
            fn hours(&self, a: chrono::NaiveTime) -> peregrine::Result<time::Time>;
            fn both(&self, a: chrono::NaiveDateTime) -> peregrine::Result<time::PrimitiveDateTime>;
            fn spans(&self, a: chrono::TimeDelta) -> peregrine::Result<time::SignedDuration>;
            fn days(&self, a: chrono::Weekday) -> peregrine::Result<time::Weekday>;
            fn months(&self, a: chrono::Month) -> peregrine::Result<time::Month>;
        }
    }
}

mod in_short {
    use super::*;
    use bytes::{Bytes, BytesMut};
    use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc};
    use time::{Date, Month, OffsetDateTime, PrimitiveDateTime, SignedDuration, Time};
    use time::{UtcDateTime, UtcOffset, Weekday};
    use uuid::Uuid;

    compiled_and_read! { TEXT:
        pub(crate) trait Others {
            fn ids(&self, a: &[Uuid], b: Bytes) -> peregrine::Result<BytesMut>;
            fn instants(
                &self,
                a: DateTime<Utc>,
                b: DateTime<FixedOffset>,
                c: UtcDateTime,
                d: Vec<OffsetDateTime>,
            ) -> peregrine::Result<()>;
            fn offsets(&self, a: FixedOffset) -> peregrine::Result<UtcOffset>;
            fn dates(&self, a: NaiveDate) -> peregrine::Result<Date>;
            fn hours(&self, a: NaiveTime) -> peregrine::Result<Time>;
            fn both(&self, a: NaiveDateTime) -> peregrine::Result<PrimitiveDateTime>;
            fn spans(&self, a: TimeDelta) -> peregrine::Result<SignedDuration>;
            fn days(&self, a: chrono::Weekday) -> peregrine::Result<Weekday>;
            fn months(&self, a: Month) -> peregrine::Result<Month>;
        }
    }
}

#[test]
fn types_are_read_as_they_are_compiled() {
    for (text, compiled) in [
        (STD, LibraryClient::INTERFACE),
        (in_full::TEXT, in_full::OthersClient::INTERFACE),
        (in_short::TEXT, in_short::OthersClient::INTERFACE),
    ] {
        let read = parse_trait(text).unwrap();
        assert_eq!(read.to_string(), compiled.canonical_text());
        // The printed trait defines the types of other crates, so that it compiles without these crates.
        let printed = to_trait(&read);
        assert!(!printed.contains("chrono") && !printed.contains("uuid::"), "{printed}");
        assert_eq!(parse_trait(&printed).unwrap(), read);
    }
}

#[test]
fn own_type_is_not_taken_for_one_of_another_crate() {
    let read = parse_trait(
        "trait A { fn f(&self, a: Date, b: time::Time, c: Bytes) -> peregrine::Result<DateTime<u8>>; }
         struct Date { days: u32 }
         mod time { struct Time(u64); }
         struct Bytes { all: [u8; 4] }
         struct DateTime<T> { inner: T }",
    );
    let text = read.unwrap().to_string();
    for own in ["{days: u32}", "{0: u64}", "{all: [u8; 4]}", "{inner: u8}"] {
        assert!(text.contains(own), "{own} in\n{text}");
    }
}

#[test]
fn ambiguous_or_unknown_type_is_refused() {
    for ty in ["time::Duration", "chrono::Uuid", "DateTime", "DateTime<Local>", "a::chrono::Month"]
    {
        let text = format!("trait A {{ fn f(&self, a: {ty}) -> peregrine::Result<()>; }}");
        assert!(parse_trait(&text).is_err(), "{ty}");
    }
}
