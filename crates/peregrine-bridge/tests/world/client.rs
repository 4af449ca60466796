//! A client that sends any bytes, and reads answers of HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::TIMEOUT;

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The header, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let head = head.to_ascii_lowercase();
        let is_chunked = head.contains("transfer-encoding: chunked");
        let body = if is_chunked { whole(body) } else { body.to_owned() };
        Self { status, head, body }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Checks the status of a failure, and that header and body agree. Returns the text of the failure.
    #[track_caller]
    pub(crate) fn failure(&self, status: u16, kind: &str, executed: &str) -> String {
        let error = &self.json()["error"];
        let got =
            (self.status, error["kind"].as_str().unwrap(), error["executed"].as_str().unwrap());
        assert_eq!(got, (status, kind, executed), "{self:?}");
        assert_eq!(self.header("peregrine-executed"), Some(executed), "{self:?}");
        assert!(!error["advice"].as_str().unwrap().is_empty(), "{self:?}");
        error["text"].as_str().unwrap().to_owned()
    }
}

/// Puts the chunks of a body together.
fn whole(mut chunks: &str) -> String {
    let mut body = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let (chunk, rest) = rest.split_at(size);
        body.push_str(chunk);
        chunks = rest.strip_prefix("\r\n").unwrap();
    }
    body
}

/// Opens a connection and sends bytes.
pub(crate) fn send(to: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// Reads until the bridge closes the connection.
pub(crate) fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // If the bridge closes a connection from which it has not read everything, the client may see a reset.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    bytes
}

/// Sends a request, and returns its answer.
pub(crate) fn ask(to: SocketAddr, bytes: &[u8]) -> Answer {
    Answer::parse(&rest(send(to, bytes)))
}

/// Returns the bytes of the HTTP request that makes a call.
pub(crate) fn post(to: SocketAddr, path: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}

/// Makes a call.
pub(crate) fn call(to: SocketAddr, path: &str, body: &str) -> Answer {
    ask(to, &post(to, path, "", body))
}

/// Gets a file of the page.
pub(crate) fn get(to: SocketAddr, path: &str) -> Answer {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    ask(to, request.as_bytes())
}
