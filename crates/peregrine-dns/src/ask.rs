//! Asks name servers: over UDP, and over TCP if an answer is too long.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{NameServerConfig, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::{DnsHandle as _, FirstAnswer as _, RetryDnsHandle};
use hickory_resolver::net::{DnsError, NetError};
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

type Pool = RetryDnsHandle<NameServerPool<TokioRuntimeProvider>>;

/// The name servers of a directory.
pub(crate) struct NameServers {
    pool: Mutex<Pool>,
    is_of_system: bool,
}

impl NameServers {
    /// Prepares questions to these name servers, or to those of the system if the list is empty.
    ///
    /// # Errors
    /// If the system names no name servers.
    pub(crate) fn new(servers: &[SocketAddr]) -> Result<Self, String> {
        let is_of_system = servers.is_empty();
        let pool =
            if is_of_system { system()? } else { pool(servers.iter().map(over_udp_and_tcp))? };
        Ok(Self { pool: Mutex::new(pool), is_of_system })
    }

    /// Reads the system's name servers again. They change when a machine moves to another network.
    pub(crate) fn refresh(&self) {
        if self.is_of_system
            && let Ok(new) = system()
        {
            *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = new;
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
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let query = Query::query(question.name.clone(), question.sort);
        match pool.lookup(query, DnsRequestOptions::default()).first_answer().await {
            Ok(message) => read(question, &message, aliases),
            Err(NetError::Dns(DnsError::NoRecordsFound(nothing))) => {
                // A name server that refers to others does not know whether there are records.
                let is_referral = nothing.response_code == ResponseCode::NoError
                    && nothing.ns.is_some()
                    && nothing.soa.is_none();
                if is_referral {
                    return Err("the name server refers to other name servers".to_owned());
                }
                Ok(Said::Answer(Answer::nothing(nothing.negative_ttl)))
            }
            Err(NetError::Dns(DnsError::ResponseCode(code))) => {
                Err(format!("the name server answers `{code}`"))
            }
            Err(NetError::Timeout) => Err("the name server does not answer".to_owned()),
            Err(error) => Err(format!("the name server cannot be asked: {error}")),
        }
    }
}

fn over_udp_and_tcp(server: &SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    for connection in &mut config.connections {
        connection.port = server.port();
    }
    config
}

fn system() -> Result<Pool, String> {
    let text = std::fs::read(SYSTEM).map_err(|error| format!("cannot read {SYSTEM}: {error}"))?;
    // A line that this program does not know does not make the others wrong.
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    if config.nameservers.is_empty() {
        return Err(format!("{SYSTEM} names no name server"));
    }
    pool(config.nameservers.iter().map(|ip| NameServerConfig::udp_and_tcp(ip.into())))
}

fn pool(servers: impl Iterator<Item = NameServerConfig>) -> Result<Pool, String> {
    let mut options = ResolverOpts::default();
    options.timeout = ATTEMPT_LIMIT;
    let tls = TlsConfig::new().map_err(|error| error.to_string())?;
    let context = Arc::new(PoolTerms::new(options, tls));
    let pool = NameServerPool::from_config(servers, context, TokioRuntimeProvider::default());
    Ok(RetryDnsHandle::new(pool, FURTHER_ATTEMPTS))
}
