//! Requests to a cluster, by the JSON gateway of etcd (version 3.4 and later): numbers of 64 bits are texts,
//! keys and values are in base64, and a watch is a response that does not end.

use core::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::access::{Access, Files, Login};
use crate::pause::random;

/// The longest answer. A key of etcd with its value has at most 1.5 MiB, unless the cluster has other limits.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// The longest line of a watch, which may contain a thousand changes.
const LINE_BYTES_MAX: usize = 64 << 20;
/// How long one member may take to answer.
const MEMBER_LIMIT: Duration = Duration::from_secs(2);
/// How long a member may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// The code of gRPC for a token that is not valid any more.
const UNAUTHENTICATED: i64 = 16;
/// What etcd says if a request has no user, or the token of one that the member does not know any more.
const NO_USER: &str = "user name is empty";
/// What etcd says if users or roles have changed after the token was made.
const OLD_TOKEN: &str = "revision of auth store is old";
/// The code of gRPC for a user who may not do this.
pub(crate) const DENIED: i64 = 7;
/// The code of gRPC for something that does not exist, such as a lease.
pub(crate) const NOT_FOUND: i64 = 5;
/// The code of gRPC for a revision that the cluster does not have any more, or not yet.
pub(crate) const OUT_OF_RANGE: i64 = 11;
/// The code of gRPC for a member that cannot answer now, for example without a leader.
const UNAVAILABLE: i64 = 14;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No member answers.
    Away(String),
    /// The cluster refuses the request: the code of gRPC, and the text.
    Refused(i64, String),
    /// An answer that is not one of etcd.
    Garbled(String),
    /// The cluster has ended a watch.
    Ended(String),
    /// A file that this process needs cannot be used.
    Unusable(String),
    /// The answer has more than [`ANSWER_BYTES_MAX`] bytes, or a line more than [`LINE_BYTES_MAX`].
    TooLong,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) => write!(f, "no member of the cluster answers: {why}"),
            Self::Refused(code, text) => {
                write!(f, "etcd refuses the request: {text} (code {code})")?;
                match text {
                    text if text.contains(NO_USER) => f.write_str(": set a user and its password"),
                    _ if *code == DENIED => {
                        f.write_str(": set a user that may read and write below the prefix")
                    }
                    _ => Ok(()),
                }
            }
            Self::Ended(why) => write!(f, "the cluster has ended the watch: {why}"),
            Self::Unusable(why) => f.write_str(why),
            Self::Garbled(why) => write!(f, "the answer is not one of etcd: {why}"),
            Self::TooLong => f.write_str("an answer of the cluster is too long"),
        }
    }
}

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// The members of a cluster.
pub(crate) struct Gateway {
    client: Mutex<Http>,
    /// The beginning of each member's URLs, in a random order. So not all processes ask the same member first,
    /// and the clients of a member that is lost go to all others.
    members: Vec<String>,
    /// The member that answered last.
    current: AtomicUsize,
    access: Access,
    /// What proves the login. `None` until it is needed.
    token: Mutex<Option<Zeroizing<String>>>,
}

/// Returns a client. Without a configuration of TLS, it does not encrypt.
fn client(tls: Option<rustls::ClientConfig>) -> Http {
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT_LIMIT));
    // A watch is silent for long. A member whose machine has vanished is noticed within 20 seconds.
    tcp.set_keepalive(Some(Duration::from_secs(10)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(3)));
    tcp.set_keepalive_retries(Some(3));
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    // Without TLS, the configuration is not used.
    let config = tls.unwrap_or_else(|| {
        let roots = rustls::RootCertStore::empty();
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()
    });
    let builder = HttpsConnectorBuilder::new().with_tls_config(config).https_or_http();
    Client::builder(TokioExecutor::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(builder.enable_http1().wrap_connector(tcp))
}

impl Gateway {
    /// Returns the members at these hosts.
    ///
    /// # Errors
    /// Which file of TLS is not valid.
    pub(crate) fn new(members: &[String], access: Access) -> Result<Self, String> {
        let tls = access.tls.as_ref().map(Files::load).transpose()?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut members: Vec<_> = members.iter().map(|host| format!("{scheme}://{host}")).collect();
        members.sort_by_cached_key(|_| random());
        Ok(Self {
            client: Mutex::new(client(tls)),
            members,
            current: AtomicUsize::new(0),
            access,
            token: Mutex::new(None),
        })
    }

    /// Reads the files of TLS again: certificates are replaced while processes run.
    fn reload(&self) -> Result<(), Trouble> {
        let Some(files) = &self.access.tls else { return Ok(()) };
        let config = files.load().map_err(Trouble::Unusable)?;
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = client(Some(config));
        Ok(())
    }

    fn client(&self) -> Http {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets the next request get a new token.
    pub(crate) fn forget_token(&self) {
        self.set_token(None);
    }

    fn token(&self) -> Option<Zeroizing<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_token(&self, token: Option<Zeroizing<String>>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }

    /// Makes a request.
    pub(crate) async fn ask(&self, what: &str, body: &Value) -> Result<Value, Trouble> {
        let body = Bytes::from(body.to_string());
        let ask = async |token: Option<&str>| {
            let one = async |member| self.ask_one(member, what, body.clone(), token).await;
            self.first_answer(one).await
        };
        self.with_login(ask).await
    }

    /// Begins a request whose answer has many lines, and does not end.
    pub(crate) async fn follow(&self, what: &str, body: &Value) -> Result<Lines, Trouble> {
        let body = Bytes::from(body.to_string());
        let follow = async |token: Option<&str>| {
            let one = async |member| {
                let body = self.send(member, what, body.clone(), token).await?;
                Ok(Lines { member, body, buffer: Vec::new() })
            };
            self.first_answer(one).await
        };
        self.with_login(follow).await
    }

    /// Asks the members one after the other until one answers.
    async fn first_answer<T>(
        &self,
        ask: impl AsyncFn(usize) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let mut trouble = Trouble::Away("there are no members".to_owned());
        for member in self.in_turn() {
            trouble = match timeout(MEMBER_LIMIT, ask(member)).await {
                Ok(Ok(answer)) => {
                    self.current.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Ok(Err(Trouble::Refused(code, text))) if code != UNAVAILABLE => {
                    return Err(Trouble::Refused(code, text));
                }
                Ok(Err(Trouble::Refused(_, text))) => self.away(member, &text),
                Ok(Err(Trouble::TooLong)) => return Err(Trouble::TooLong),
                Ok(Err(trouble)) => trouble,
                Err(_) => self.away(member, "it does not answer"),
            };
        }
        self.reload()?;
        Err(trouble)
    }

    /// Lets the next request begin with another member than the one that answers with these lines.
    pub(crate) fn move_on(&self, lines: &Lines) {
        let (left, next) = (lines.member, (lines.member + 1) % self.members.len());
        // Another request may have moved on already.
        let (set, failed) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.current.compare_exchange(left, next, set, failed);
    }

    /// Returns whether the member that answers with these lines runs. A member that hangs, or whose machine
    /// does, keeps the connection open and is silent, as is one without changes. The question is for the
    /// version of the member, which needs no other member and no login.
    ///
    /// # Errors
    /// Why the member does not seem to run.
    pub(crate) async fn check(&self, lines: &Lines) -> Result<(), Trouble> {
        let member = lines.member;
        let request = Request::get(format!("{}/version", self.members[member]));
        let request = request.body(Full::default());
        let request = request.map_err(|error| Trouble::Garbled(error.to_string()))?;
        match timeout(MEMBER_LIMIT, self.client().request(request)).await {
            Ok(Ok(answer)) => {
                // The connection is used again only after the answer was read.
                let _ = timeout(MEMBER_LIMIT, self.whole(member, answer.into_body())).await;
                Ok(())
            }
            Ok(Err(error)) => Err(self.away(member, &error.to_string())),
            Err(_) => Err(self.away(member, "it does not answer")),
        }
    }

    /// Returns the numbers of all members, beginning with the current one.
    fn in_turn(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.current.load(Ordering::Relaxed), self.members.len());
        (0..count).map(move |n| first.wrapping_add(n) % count)
    }

    fn hint(&self, why: &str) -> &'static str {
        let tls = self.access.tls.as_ref();
        hint(why, tls.is_some(), tls.is_some_and(Files::has_own))
    }

    fn away(&self, member: usize, why: &str) -> Trouble {
        Trouble::Away(format!("{}: {why}", self.members[member]))
    }

    /// Makes a request with the token of the login, and once more with a new token if that one has expired.
    async fn with_login<T>(
        &self,
        request: impl AsyncFn(Option<&str>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let Some(login) = &self.access.login else { return request(None).await };
        if let Some(token) = self.token() {
            match request(Some(&token)).await {
                Err(Trouble::Refused(code, text)) if is_stale(code, &text) => self.forget_token(),
                answer => return answer,
            }
        }
        let body = proof(login)?;
        let log_in =
            async |member| self.ask_one(member, "auth/authenticate", body.clone(), None).await;
        let answer = self.first_answer(log_in).await;
        let token = answer?.get("token").and_then(Value::as_str).map(str::to_owned);
        let token = token.ok_or_else(|| Trouble::Garbled("the token is missing".to_owned()))?;
        let token = Zeroizing::new(token);
        self.set_token(Some(token.clone()));
        request(Some(&token)).await
    }

    /// Sends a request to one member. Returns the body of an answer that is no error.
    async fn send(
        &self,
        member: usize,
        what: &str,
        body: Bytes,
        token: Option<&str>,
    ) -> Result<Incoming, Trouble> {
        let url = format!("{}/v3/{what}", self.members[member]);
        let mut request = Request::post(url).header("content-type", "application/json");
        // A member that has lost its leader ends watches, instead of keeping silent.
        request = request.header("grpc-metadata-hasleader", "true");
        if let Some(token) = token {
            request = request.header("authorization", token);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Trouble::Garbled(error.to_string()))?;
        let answer = self.client().request(request).await.map_err(|error| {
            let mut why = error.to_string();
            let mut cause = core::error::Error::source(&error);
            while let Some(error) = cause {
                why = format!("{why}: {error}");
                cause = error.source();
            }
            self.away(member, &(why.clone() + self.hint(&why)))
        })?;
        if answer.status() == StatusCode::OK {
            return Ok(answer.into_body());
        }
        let status = answer.status();
        let text = self.whole(member, answer.into_body()).await?;
        match serde_json::from_slice::<Value>(&text) {
            Ok(value) if value.get("code").is_some() => Err(refusal(&value)),
            _ => {
                let text: String = String::from_utf8_lossy(&text).chars().take(100).collect();
                let (member, hint) = (&self.members[member], self.hint(&text));
                let text = text.trim_end();
                Err(Trouble::Garbled(format!("{member} answers {status}: {text}{hint}")))
            }
        }
    }

    async fn whole(&self, member: usize, body: Incoming) -> Result<Bytes, Trouble> {
        let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let failed = |error: Box<dyn core::error::Error + Send + Sync>| match error
            .is::<LengthLimitError>()
        {
            true => Trouble::TooLong,
            false => self.away(member, &error.to_string()),
        };
        Ok(whole.map_err(failed)?.to_bytes())
    }

    async fn ask_one(
        &self,
        member: usize,
        what: &str,
        body: Bytes,
        token: Option<&str>,
    ) -> Result<Value, Trouble> {
        let body = self.send(member, what, body, token).await?;
        let text = self.whole(member, body).await?;
        let answer: Value =
            serde_json::from_slice(&text).map_err(|error| Trouble::Garbled(error.to_string()))?;
        // Methods that answer with a stream report errors in it.
        match answer.get("error") {
            Some(error) if error.is_object() => Err(refusal(error)),
            _ => Ok(answer),
        }
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd at {}", self.members.join(", "))
    }
}

/// Returns the body of the request for a token. Its memory is overwritten when it is not used any more.
fn proof(login: &Login) -> Result<Bytes, Trouble> {
    let text = |text: &str| serde_json::to_string(text).map(Zeroizing::new);
    let password = login.password().map_err(Trouble::Unusable)?;
    let failed = |error: serde_json::Error| Trouble::Unusable(error.to_string());
    let (name, password) = (text(&login.user).map_err(failed)?, text(&password).map_err(failed)?);
    let body = format!("{{\"name\":{},\"password\":{}}}", *name, *password);
    Ok(Bytes::from_owner(Zeroizing::new(body.into_bytes())))
}

/// Returns whether a new token may help.
fn is_stale(code: i64, text: &str) -> bool {
    code == UNAUTHENTICATED || text.contains(NO_USER) || text.contains(OLD_TOKEN)
}

/// Returns what to do about some failures of TLS, whose texts do not say it. `is_tls`: this process uses TLS.
/// `has_own`: it shows a certificate.
fn hint(why: &str, is_tls: bool, has_own: bool) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| why.contains(part));
    if has(&["HTTP request to an HTTPS server"]) {
        return ": set `ca`, which turns TLS on";
    }
    // A member may close the connection instead of saying so.
    if !is_tls && has(&["connection closed before message completed"]) {
        return ": if the member wants TLS, set `ca`, which turns TLS on";
    }
    if has(&["InvalidContentType", "tls handshake eof"]) {
        return ": it seems not to use TLS: leave out `ca`, or check the port";
    }
    // A member without TLS answers in plain text and closes the connection, and the reset may overtake the text.
    if is_tls && has(&["(Connect): Connection reset by peer"]) {
        return ": if it does not use TLS, leave out `ca`, or check the port";
    }
    if has(&["UnknownIssuer"]) {
        return ": the CA in `ca` has not signed the certificate of the member";
    }
    // Members of different versions send different alerts.
    match has(&["BadCertificate", "CertificateRequired", "UnknownCA", "DecryptError"]) {
        true if has_own => ": the member does not accept the certificate in `cert`",
        true => ": the member wants a certificate: set `cert` and `key`",
        false => "",
    }
}

fn refusal(value: &Value) -> Trouble {
    let code = value.get("code").or_else(|| value.get("grpc_code")).and_then(Value::as_i64);
    let text = value.get("message").or_else(|| value.get("error")).and_then(Value::as_str);
    Trouble::Refused(code.unwrap_or_default(), text.unwrap_or("no reason").to_owned())
}

/// The answer to [`Gateway::follow`]: one JSON object for each line.
pub(crate) struct Lines {
    /// The number of the member that answers.
    member: usize,
    body: Incoming,
    /// The bytes after the last whole line.
    buffer: Vec<u8>,
}

impl Lines {
    /// Waits for the next line. Returns the member `result` of its object, or `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, Trouble> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                let mut value: Value = serde_json::from_slice(&line)
                    .map_err(|error| Trouble::Garbled(error.to_string()))?;
                if let Some(error) = value.get("error") {
                    return Err(refusal(error));
                }
                let result = value.get_mut("result").map(Value::take);
                return result
                    .map(Some)
                    .ok_or_else(|| Trouble::Garbled("a line without `result`".to_owned()));
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(Trouble::TooLong);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => {
                    let why = error.to_string();
                    let cause = core::error::Error::source(&error).map(ToString::to_string);
                    let why = cause.map_or(why.clone(), |cause| format!("{why}: {cause}"));
                    return Err(Trouble::Away(why));
                }
                Some(Ok(frame)) => self.buffer.extend(frame.data_ref().into_iter().flatten()),
            }
        }
    }
}

/// Returns bytes in base64, as the gateway writes keys and values.
pub(crate) fn encoded(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Returns the bytes of a key or a value. `None`: the member is missing, or is not in base64.
pub(crate) fn bytes(value: Option<&Value>) -> Option<Vec<u8>> {
    STANDARD.decode(value?.as_str()?).ok()
}

/// Returns the text of a key or a value. `None`: the member is missing, or is no text.
pub(crate) fn decoded(value: Option<&Value>) -> Option<String> {
    String::from_utf8(bytes(value)?).ok()
}

/// Returns a number of 64 bits, which the gateway writes as a text.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    let value = value?;
    value.as_i64().or_else(|| value.as_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_the_gateway_writes_them() {
        assert_eq!(encoded("/p/files/"), "L3AvZmlsZXMv");
        assert_eq!(decoded(Some(&json!("L3AvZmlsZXMv"))).as_deref(), Some("/p/files/"));
        assert_eq!((decoded(None), decoded(Some(&json!("?")))), (None, None));
        assert_eq!(decoded(Some(&json!("/w=="))), None, "no UTF-8");
        assert_eq!(bytes(Some(&json!("/w=="))), Some(vec![0xff]));
        let id = "7587899193733478407";
        assert_eq!(number(Some(&json!(id))), Some(7_587_899_193_733_478_407));
        assert_eq!(
            (number(Some(&json!(5))), number(Some(&json!("x"))), number(None)),
            (Some(5), None, None)
        );
    }

    #[test]
    fn processes_begin_with_different_members() {
        let hosts: Vec<String> = (0..3).map(|n| format!("m{n}:2379")).collect();
        let mut counts = [0; 3];
        for _ in 0..300 {
            let gateway = Gateway::new(&hosts, Access::default()).unwrap();
            let first = gateway.in_turn().next().unwrap();
            let at = hosts.iter().position(|host| gateway.members[first].ends_with(host));
            counts[at.unwrap()] += 1;
        }
        // 100 are expected. The bounds are more than seven standard deviations away.
        assert!(counts.iter().all(|count| (40..160).contains(count)), "{counts:?}");
    }
}
