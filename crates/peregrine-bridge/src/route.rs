//! Leads each request to the code that answers it.

use core::time::Duration;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response};
use percent_encoding::percent_decode_str;
use tokio::sync::{Mutex, Semaphore};

use crate::answer::{self, Content};
use crate::call::{Call, sides};
use crate::failure::Failure;
use crate::guard;
use crate::lines::{Event, Lines};
use crate::setup::Limits;
use crate::target::Target;
use crate::{openapi, page};

/// The header with the time limit of a call in milliseconds.
const TIMEOUT: &str = "peregrine-timeout-ms";
/// The beginning of the headers that become metadata of the call. The rest of the name is the key.
const METADATA: &str = "peregrine-meta-";
/// The largest time limit of a call: a day.
const TIMEOUT_MS_MAX: u64 = 86_400_000;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) targets: Vec<Arc<Target>>,
    pub(crate) limits: Limits,
    /// The permits: one for each call that may be answered at the same time.
    pub(crate) permits: Arc<Semaphore>,
    /// A request holds this lock while it asks all servers for their descriptions.
    asks: Arc<Mutex<()>>,
}

impl Shared {
    pub(crate) fn new(targets: Vec<Target>, limits: Limits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.calls));
        let targets = targets.into_iter().map(Arc::new).collect();
        Self { targets, limits, permits, asks: Arc::default() }
    }

    /// Answers a request that arrived at the address `here`.
    pub(crate) async fn answer(
        &self,
        request: Request<Incoming>,
        here: IpAddr,
    ) -> Response<Content> {
        let answered = self.route(request, here).await;
        answered.unwrap_or_else(|failure| answer::failure(&failure))
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        here: IpAddr,
    ) -> Result<Response<Content>, Failure> {
        let (parts, body) = request.into_parts();
        guard::check(&parts, here, &self.limits.hosts)?;
        let path = parts.uri.path().to_owned();
        let file = matches!(&*path, "/" | "/openapi.json" | "/page.css" | "/page.js");
        match (file, &parts.method) {
            (true, &Method::GET | &Method::HEAD) => self.file(&path).await,
            (true, _) => Err(Failure::method("GET, HEAD")),
            (false, &Method::POST) => self.call(&path, &parts, body).await,
            (false, &Method::GET | &Method::HEAD) => match self.procedure(&path) {
                Ok(_) => Err(Failure::method("POST")),
                Err(failure) => Err(failure),
            },
            (false, _) => Err(Failure::method("POST")),
        }
    }

    /// Returns the web page, one of its files, or the OpenAPI document of all exports.
    async fn file(&self, path: &str) -> Result<Response<Content>, Failure> {
        match path {
            "/page.css" => return Ok(answer::file("text/css; charset=utf-8", page::CSS)),
            "/page.js" => return Ok(answer::file("text/javascript; charset=utf-8", page::SCRIPT)),
            _ => {}
        }
        let asks = Arc::clone(&self.asks).lock_owned().await;
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Failure::busy())?;
        // The tasks that ask the servers continue if the client disconnects. So each of them holds the lock
        // and the permit.
        let held = Arc::new((asks, permit));
        let asked: Vec<_> = self
            .targets
            .iter()
            .map(|target| {
                let (target, held) = (Arc::clone(target), Arc::clone(&held));
                tokio::task::spawn_blocking(move || {
                    let bound = target.renewed().map_err(Failure::from);
                    drop(held);
                    bound
                })
            })
            .collect();
        drop(held);
        let mut views = Vec::new();
        for (target, asked) in self.targets.iter().zip(asked) {
            let bound = asked.await.unwrap_or_else(|_| Err(Failure::internal()));
            views.push((&**target, bound));
        }
        Ok(match path {
            "/" => answer::file("text/html; charset=utf-8", page::html(&views)),
            _ => answer::json(&openapi::document(&views)),
        })
    }

    /// Returns the target and the name of the procedure that a path names.
    fn procedure(&self, path: &str) -> Result<(Arc<Target>, String), Failure> {
        let form = || {
            Failure::no_such(
                format!("`{path}` is no path of this bridge"),
                "send POST /EXPORT/PROCEDURE, or GET / for a page",
            )
        };
        let (export, procedure) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or_else(form)?;
        let decode = |part: &str| percent_decode_str(part).decode_utf8().map(String::from);
        let (Ok(export), Ok(procedure)) = (decode(export), decode(procedure)) else {
            return Err(form());
        };
        let target = self.targets.iter().find(|target| target.name == export).ok_or_else(|| {
            let names: Vec<_> = self.targets.iter().map(|target| &*target.name).collect();
            let text = format!("the bridge offers no `{export}`");
            Failure::no_such(text, format!("it offers {}", names.join(", ")))
        })?;
        Ok((Arc::clone(target), procedure))
    }

    async fn call(
        &self,
        path: &str,
        parts: &Parts,
        body: Incoming,
    ) -> Result<Response<Content>, Failure> {
        let (target, procedure) = self.procedure(path)?;
        guard::check_json(parts)?;
        let metadata = metadata(parts)?;
        let begun = Instant::now();
        let deadline = timeout(parts)?.map(|limit| begun + limit);
        let default_deadline = begun.checked_add(self.limits.call_limit);
        let permit = Arc::clone(&self.permits);
        let permit = permit.try_acquire_owned().map_err(|_| Failure::busy())?;
        let body = self.body(body).await?;
        let is_repeated = false;
        let call =
            Call { target, procedure, body, metadata, deadline, default_deadline, is_repeated };
        let (call, permit) = match call.run_here(permit).await {
            Ok(end) => return end.map(answer::result),
            Err(call) => call,
        };
        let (mut pending, reporter) = sides();
        tokio::task::spawn_blocking(move || call.run(reporter, permit));
        match pending.events.recv().await {
            Some(Event::Item(first)) => Ok(answer::lines(Lines::new(first, pending))),
            Some(Event::End(end)) => end.map(answer::result),
            None => Err(Failure::internal()),
        }
    }

    /// Receives the body of a request.
    async fn body(&self, body: Incoming) -> Result<Bytes, Failure> {
        let most = self.limits.body_bytes;
        if body.size_hint().lower() > most as u64 {
            return Err(Failure::body_too_large(most));
        }
        let received = Limited::new(body, most).collect();
        match tokio::time::timeout(self.limits.client_limit, received).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Failure::body_too_large(most)),
            Ok(Err(error)) => {
                Err(Failure::bad_request(format!("the body is not complete: {error}")))
            }
            Err(_) => Err(Failure::slow_body()),
        }
    }
}

/// Returns the keys and values of the headers that become metadata of the call.
fn metadata(parts: &Parts) -> Result<Vec<(String, String)>, Failure> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in &parts.headers {
        let Some(key) = name.as_str().strip_prefix(METADATA) else { continue };
        let unfit = |why| Failure::bad_request(format!("`Peregrine-Meta-{key}` {why}"));
        let value = str::from_utf8(value.as_bytes()).map_err(|_| unfit("must be UTF-8"))?;
        if parts.headers.get_all(name).iter().nth(1).is_some() {
            return Err(unfit("must occur once"));
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Ok(pairs)
}

/// Returns the time limit that a request asks for.
fn timeout(parts: &Parts) -> Result<Option<Duration>, Failure> {
    let mut given = parts.headers.get_all(TIMEOUT).iter();
    let Some(first) = given.next() else { return Ok(None) };
    let ms = first.to_str().ok().and_then(|ms| ms.parse::<u64>().ok());
    match ms.filter(|ms| (1..=TIMEOUT_MS_MAX).contains(ms) && given.next().is_none()) {
        Some(ms) => Ok(Some(Duration::from_millis(ms))),
        None => Err(Failure::bad_request(format!(
            "`Peregrine-Timeout-Ms` must be one number from 1 to {TIMEOUT_MS_MAX}"
        ))),
    }
}
