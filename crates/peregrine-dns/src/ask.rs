//! Asks name servers: over UDP, and over TCP if an answer is too long. If the first answer is that a name
//! server cannot or may not answer, each of them is asked, so that such a name server does not hide another
//! one that knows the answer.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hickory_resolver::config::{NameServerConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::{DnsHandle as _, FirstAnswer as _, RetryDnsHandle};
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::{DnsRequestOptions, Query, ResponseCode};
use hickory_resolver::{NameServerPool, PoolContext as PoolTerms, TlsConfig};

use crate::answer::{Answer, Said, read};
use crate::question::Question;

/// How long one attempt may take. Two attempts fit into the time limit of binding.
const ATTEMPT_LIMIT: Duration = Duration::from_millis(1900);
/// The number of further attempts.
const FURTHER_ATTEMPTS: usize = 1;

/// The file with the system's name servers.
const SYSTEM: &str = "/etc/resolv.conf";

type Pool = NameServerPool<TokioRuntimeProvider>;

/// The name servers of a directory.
pub(crate) struct NameServers {
    pools: Mutex<Pools>,
    is_of_system: bool,
}

impl NameServers {
    /// Prepares questions to these name servers, or to those of the system if the list is empty.
    ///
    /// # Errors
    /// If the system names no name servers.
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let is_of_system = servers.is_empty();
        let all = match is_of_system {
            true => system()?,
            false => Pools::new(servers.iter().map(over_udp_and_tcp).collect())?,
        };
        Ok(Self { pools: Mutex::new(all), is_of_system })
    }

    /// Reads the system's name servers again. They change when a machine moves to another network.
    pub(crate) fn refresh(&self) {
        if self.is_of_system
            && let Ok(new) = system()
        {
            *self.pools.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }

    /// Asks a question, and follows aliases.
    ///
    /// # Errors
    /// Why there is no answer, for people.
    pub(crate) async fn ask(&self, question: &Question) -> Result<Answer, String> {
        let mut asked = question.clone();
        let (mut aliases, mut limit) = (0, Duration::MAX);
        loop {
            match self.ask_once(&asked, &mut aliases).await? {
                Said::Answer(mut answer) => {
                    answer.limit(limit);
                    return Ok(answer);
                }
                Said::Alias(name, ttl) => {
                    asked.name = name;
                    limit = limit.min(ttl);
                }
            }
        }
    }

    async fn ask_once(&self, question: &Question, aliases: &mut usize) -> Result<Said, String> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let query = Query::query(question.name.clone(), question.sort);
        let terms = DnsRequestOptions::default();
        let mut answer = pools.all.lookup(query.clone(), terms).first_answer().await;
        if is_refusal(&answer) && pools.each.len() > 1 {
            let ask = |pool: &Pool| pool.lookup(query.clone(), terms).first_answer();
            let mut answers: FuturesUnordered<_> = pools.each.iter().map(ask).collect();
            while let Some(other) = answers.next().await {
                if other.is_ok() || is_nothing(&other) {
                    answer = other;
                    break;
                }
            }
        }
        match answer {
            Ok(message) => read(question, &message, aliases),
            Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) if !is_referral(&nothing) => {
                Ok(Said::Answer(Answer::nothing(nothing.negative_ttl)))
            }
            Err(NetError::Dns(DnsError::NoRecordsFound(_))) => {
                Err("the name server refers to other name servers".to_owned())
            }
            Err(NetError::Dns(DnsError::ResponseCode(code))) => {
                Err(format!("the name server answers `{code}`"))
            }
            Err(NetError::Timeout) => Err("the name server does not answer".to_owned()),
            Err(error) => Err(format!("the name server cannot be asked: {error}")),
        }
    }
}

/// Returns whether a name server refers to others: it does not know whether there are records.
fn is_referral(nothing: &NoRecords) -> bool {
    nothing.response_code == ResponseCode::NoError && nothing.ns.is_some() && nothing.soa.is_none()
}

/// Returns whether a name server has answered that there are no records.
fn is_nothing<T>(answer: &Result<T, NetError>) -> bool {
    let Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) = answer else { return false };
    !is_referral(nothing)
}

/// Returns whether a name server has answered that it cannot or may not answer.
fn is_refusal<T>(answer: &Result<T, NetError>) -> bool {
    match answer {
        Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => is_referral(nothing),
        Err(NetError::Dns(DnsError::ResponseCode(_))) => true,
        _ => false,
    }
}

fn over_udp_and_tcp(server: &SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    for connection in &mut config.connections {
        connection.port = server.port();
    }
    config
}

fn system() -> Result<Pools, String> {
    let text = std::fs::read(SYSTEM).map_err(|error| format!("cannot read {SYSTEM}: {error}"))?;
    // A line that this program does not know does not make the others wrong.
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    if config.nameservers.is_empty() {
        return Err(format!("{SYSTEM} names no name server"));
    }
    let servers = config.nameservers.iter();
    Pools::new(servers.map(|ip| NameServerConfig::udp_and_tcp(ip.into())).collect())
}

/// The name servers.
#[derive(Clone)]
struct Pools {
    /// All of them, of which the fastest answer counts.
    all: RetryDnsHandle<Pool>,
    /// Each of them alone.
    each: Arc<[Pool]>,
}

impl Pools {
    fn new(servers: Vec<NameServerConfig>) -> Result<Self, String> {
        let mut options = ResolverOpts::default();
        options.timeout = ATTEMPT_LIMIT;
        let tls = TlsConfig::new().map_err(|error| error.to_string())?;
        let terms = Arc::new(PoolTerms::new(options, tls));
        let pool = |servers: Vec<NameServerConfig>| {
            Pool::from_config(servers, Arc::clone(&terms), TokioRuntimeProvider::default())
        };
        let each = servers.iter().map(|one| pool(vec![one.clone()])).collect();
        Ok(Self { all: RetryDnsHandle::new(pool(servers), FURTHER_ATTEMPTS), each })
    }
}
