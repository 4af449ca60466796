//! Refuses requests because of the site that they come from.
//!
//! A browser sends requests on behalf of every page that it shows, also to this machine. A page of another
//! site must not make calls. Its requests are recognized by their origin. If the other site lets a host name
//! lead to this machine (DNS rebinding), they are recognized by the host, which is not a name of the bridge.

use std::net::IpAddr;

use hyper::header::{CONTENT_TYPE, HOST, ORIGIN};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;

use crate::failure::Failure;

/// Checks the host and the origin of a request. `here` is the address to which the client connected. `names`
/// are further names of the bridge.
pub(crate) fn check(request: &Parts, here: IpAddr, names: &[String]) -> Result<(), Failure> {
    let host = host_of(request)?;
    if !is_own(host.host(), here, names) {
        return Err(Failure::misdirected(host.as_str()));
    }
    if let Some(site) = request.headers.get("sec-fetch-site")
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(Failure::cross_site());
    }
    for origin in request.headers.get_all(ORIGIN) {
        let origin = origin.as_bytes().strip_prefix(b"http://");
        if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host.as_str().as_bytes())) {
            return Err(Failure::cross_site());
        }
    }
    Ok(())
}

/// Checks that the body of a request is declared as JSON. A form in a page of another site cannot send this
/// content type.
pub(crate) fn check_json(request: &Parts) -> Result<(), Failure> {
    let named = request.headers.get(CONTENT_TYPE).and_then(|named| named.to_str().ok());
    let essence = named.and_then(|named| named.split(';').next()).map(str::trim);
    match essence {
        Some(essence) if essence.eq_ignore_ascii_case("application/json") => Ok(()),
        _ => Err(Failure::not_json()),
    }
}

/// Returns the host of a request.
fn host_of(request: &Parts) -> Result<Authority, Failure> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let (host, more) = (hosts.next(), hosts.next());
    // If the request line contains a host, too, that host has precedence (RFC 9112, section 3.2.2).
    if let (Some(host), true) = (request.uri.authority(), more.is_none()) {
        return Ok(host.clone());
    }
    let host = host.filter(|_| more.is_none()).and_then(|host| host.to_str().ok());
    let host = host.and_then(|host| host.parse::<Authority>().ok());
    host.ok_or_else(|| Failure::bad_request("the request must have exactly one valid `Host`"))
}

fn is_own(host: &str, here: IpAddr, names: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return address.is_loopback() || address.to_canonical() == here.to_canonical();
    }
    host.eq_ignore_ascii_case("localhost")
        || names.iter().any(|name| host.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use hyper::{Request, StatusCode};

    use super::*;

    fn status(headers: &[(&str, &str)]) -> Option<StatusCode> {
        let mut request = Request::builder().uri("/clock/now");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let here = "192.0.2.7".parse().unwrap();
        check(&parts, here, &["bridge.example".to_owned()]).err().map(|failure| failure.status)
    }

    #[test]
    fn only_names_of_the_bridge_are_hosts() {
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:8080",
            "[::1]:8080",
            "192.0.2.7",
            "bridge.example:80",
        ] {
            assert_eq!(status(&[("host", host)]), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8080", "192.0.2.8", "0.0.0.0:8080"] {
            assert_eq!(status(&[("host", host)]), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        let two = [("host", "localhost"), ("host", "localhost")];
        for headers in [&[][..], &[("host", "")], &[("host", "a b")], &two] {
            assert_eq!(status(headers), Some(StatusCode::BAD_REQUEST), "{headers:?}");
        }
    }

    #[test]
    fn requests_of_foreign_pages_are_refused() {
        let host = ("host", "localhost:8080");
        for own in [
            &[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:8080")][..],
            &[("sec-fetch-site", "none")],
        ] {
            assert_eq!(status(&[&[host], own].concat()), None, "{own:?}");
        }
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://localhost:3000"),
            ("origin", "https://localhost:8080"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert_eq!(status(&[host, foreign]), Some(StatusCode::FORBIDDEN), "{foreign:?}");
        }
    }
}
