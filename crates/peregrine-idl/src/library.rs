//! The types of the standard library that are values, as a text would define them.

use std::collections::HashMap;

use peregrine::interface::{Described, DescribedNamed};
use syn::parse::Parser as _;

use crate::syntax::Definition;
use crate::{parse, scan};

/// The definitions. They must equal those that `peregrine` has (`value/library.rs`), which a test checks.
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
";

/// For each type, its name, its path in Rust, and its body in a canonical text without the numbers of types.
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
];

/// Returns the definitions by their names.
pub(crate) fn definitions() -> HashMap<String, Definition> {
    let tokens = scan::tokens(TEXT).unwrap_or_default();
    parse::definitions.parse2(tokens).unwrap_or_default()
}

/// Returns the path of the type of the standard library that has this name and body, if there is one.
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
