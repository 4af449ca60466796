//! Definitions of the values that come from the standard library and from other crates, written like the
//! types in an interface's text.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use peregrine::interface::{Described, DescribedNamed, DescribedType};
use syn::parse::Parser as _;

use crate::syntax::{Definition, Type, TypeName};
use crate::{parse, scan};

/// The definitions. A test checks that they equal those that `peregrine` has (`value/library.rs`). The
/// definitions from `Uuid` to the end describe types of other crates. Each of these is printed as a struct or
/// an enum.
const TEXT: &str = "
    struct Duration { secs: u64, nanos: u32 }
    struct SystemTime { secs: i64, nanos: u32 }
    struct Ipv4Addr { octets: [u8; 4] }
    struct Ipv6Addr { octets: [u8; 16] }
    enum IpAddr { V4(Ipv4Addr), V6(Ipv6Addr) }
    struct SocketAddrV4 { ip: Ipv4Addr, port: u16 }
    struct SocketAddrV6 { ip: Ipv6Addr, port: u16, flowinfo: u32, scope_id: u32 }
    enum SocketAddr { V4(SocketAddrV4), V6(SocketAddrV6) }
    struct OsString { bytes: Vec<u8> }
    struct PathBuf { bytes: Vec<u8> }
    struct ByteString(Vec<u8>);
    #[derive(Plain)]
    struct Uuid { bytes: [u8; 16] }
    struct SignedDuration { secs: i64, nanos: i32 }
    struct UtcOffset { secs: i32 }
    struct OffsetDateTime { instant: SystemTime, offset: UtcOffset }
    struct LocalDate { year: i32, month: u8, day: u8 }
    struct LocalTime { hour: u8, minute: u8, second: u8, nanos: u32 }
    struct LocalDateTime { date: LocalDate, time: LocalTime }
    enum Weekday { Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday }
    enum Month {
        January, February, March, April, May, June, July, August, September, October, November, December
    }
";

/// Types of other crates. Each entry contains the crate, the name of the type in that crate, and the name of
/// its definition above. In an interface's text, the name may be written with the crate or without it.
///
/// `time::Duration` is not here. After `use std::time;`, this path is a type of the standard library, so its
/// meaning is not certain.
const OTHERS: &[(&str, &str, &str)] = &[
    ("foreign", "ByteString", "ByteString"),
    ("uuid", "Uuid", "Uuid"),
    ("chrono", "FixedOffset", "UtcOffset"),
    ("chrono", "NaiveDate", "LocalDate"),
    ("chrono", "NaiveTime", "LocalTime"),
    ("chrono", "NaiveDateTime", "LocalDateTime"),
    ("chrono", "TimeDelta", "SignedDuration"),
    ("chrono", "Weekday", "Weekday"),
    ("chrono", "Month", "Month"),
    ("time", "UtcDateTime", "SystemTime"),
    ("time", "UtcOffset", "UtcOffset"),
    ("time", "OffsetDateTime", "OffsetDateTime"),
    ("time", "Date", "LocalDate"),
    ("time", "Time", "LocalTime"),
    ("time", "PrimitiveDateTime", "LocalDateTime"),
    ("time", "PlainDateTime", "LocalDateTime"),
    ("time", "SignedDuration", "SignedDuration"),
    ("time", "Weekday", "Weekday"),
    ("time", "Month", "Month"),
];

/// Time zones of `chrono`. For each zone, the second name is the definition that describes `DateTime` with
/// this zone.
const ZONES: &[(&str, &str)] = &[("Utc", "SystemTime"), ("FixedOffset", "OffsetDateTime")];

/// Types of the standard library. Each entry contains the name of the type, its path in Rust, and its body in
/// a canonical text. In this body, the numbers of types are left out.
const PRINTED: &[(&str, &str, &str)] = &[
    ("Duration", "std::time::Duration", "struct {secs: u64, nanos: u32}"),
    ("SystemTime", "std::time::SystemTime", "struct {secs: i64, nanos: u32}"),
    ("Ipv4Addr", "std::net::Ipv4Addr", "struct {octets: [u8; 4]}"),
    ("Ipv6Addr", "std::net::Ipv6Addr", "struct {octets: [u8; 16]}"),
    ("IpAddr", "std::net::IpAddr", "enum V4 {0: Ipv4Addr} V6 {0: Ipv6Addr}"),
    ("SocketAddrV4", "std::net::SocketAddrV4", "struct {ip: Ipv4Addr, port: u16}"),
    (
        "SocketAddrV6",
        "std::net::SocketAddrV6",
        "struct {ip: Ipv6Addr, port: u16, flowinfo: u32, scope_id: u32}",
    ),
    ("SocketAddr", "std::net::SocketAddr", "enum V4 {0: SocketAddrV4} V6 {0: SocketAddrV6}"),
    ("OsString", "std::ffi::OsString", "struct {bytes: sequence<u8>}"),
    ("PathBuf", "std::path::PathBuf", "struct {bytes: sequence<u8>}"),
    ("ByteString", "peregrine::foreign::ByteString", "struct {0: sequence<u8>}"),
];

/// How an expression creates a struct of the standard library. The fields of such a struct are private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Constructor {
    /// `new`, with all fields as arguments.
    New,
    /// `from`, with the only field as its argument.
    From,
    /// `from`, with a string as its argument. The bytes of the string are the only field.
    FromText,
}

/// The structs of the standard library that an expression can create from literals.
const CONSTRUCTORS: &[(&str, Constructor)] = &[
    ("Duration", Constructor::New),
    ("Ipv4Addr", Constructor::From),
    ("Ipv6Addr", Constructor::From),
    ("SocketAddrV4", Constructor::New),
    ("SocketAddrV6", Constructor::New),
    ("OsString", Constructor::FromText),
    ("PathBuf", Constructor::FromText),
];

/// Returns how an expression creates a value of this struct of the standard library.
pub(crate) fn constructor_of(described: &Described, named: &DescribedNamed) -> Option<Constructor> {
    let (_, constructor) = CONSTRUCTORS.iter().find(|(name, _)| *name == named.name)?;
    path_of(described, named).map(|_| *constructor)
}

/// Returns the definitions by their names.
pub(crate) fn definitions() -> HashMap<String, Definition> {
    let tokens = scan::tokens(TEXT).unwrap_or_default();
    parse::definitions.parse2(tokens).unwrap_or_default()
}

/// Returns whether there is a definition of this name.
pub(crate) fn has(name: &str) -> bool {
    static NAMES: OnceLock<HashSet<String>> = OnceLock::new();
    NAMES.get_or_init(|| definitions().into_keys().collect()).contains(name)
}

/// Returns the type that replaces a type of another crate, such as `LocalDate` for `chrono::NaiveDate`.
/// Returns `None` if no replacement is known, or if the path already names the replacement.
pub(crate) fn other(name: &TypeName) -> Option<Type> {
    let (crate_name, last) = match name.path.split_once("::") {
        Some((crate_name, last)) => (Some(crate_name), last),
        None => (None, &*name.path),
    };
    let is_of = |one: &str| crate_name.is_none_or(|name| name == one);
    let described = match (last, &*name.arguments) {
        ("Bytes" | "BytesMut", []) if is_of("bytes") => {
            return Some(Type::Sequence(Box::new(Type::Simple(DescribedType::U8))));
        }
        ("DateTime", [Type::Named(zone)]) if is_of("chrono") => {
            let zone = zone.path.strip_prefix("chrono::").unwrap_or(&zone.path);
            ZONES.iter().find(|(name, _)| *name == zone)?.1
        }
        (_, []) => {
            let same = |(from, name, _): &&(&str, &str, &str)| is_of(from) && *name == last;
            OTHERS.iter().find(same)?.2
        }
        _ => return None,
    };
    (described != name.path).then(|| {
        let (path, span) = (described.to_owned(), name.span);
        Type::Named(TypeName { path, span, module: None, arguments: Vec::new() })
    })
}

/// Returns the path of the type of the standard library that has this name and this body. Returns `None` if
/// there is no such type.
pub(crate) fn path_of(described: &Described, named: &DescribedNamed) -> Option<&'static str> {
    let (_, path, body) = PRINTED.iter().find(|(name, ..)| *name == named.name)?;
    let mut text = String::new();
    let mut in_number = false;
    for letter in described.body_text(&named.body).chars() {
        in_number = letter == '#' || in_number && letter.is_ascii_digit();
        if !in_number {
            text.push(letter);
        }
    }
    (text == *body).then_some(*path)
}
