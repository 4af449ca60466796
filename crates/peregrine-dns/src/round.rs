//! One round of questions for a name. An answer that is still valid is used again. If there is no new answer
//! to a question, the last one is used.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use hickory_resolver::proto::rr::Name;
use tokio::time::timeout_at;

use crate::answer::{Answer, Entry};
use crate::ask::NameServers;
use crate::found::Found;
use crate::place::Place;
use crate::question::{Question, Step, addresses, steps};

/// The maximum number of questions for the addresses of hosts at the same time, and in a round.
const HOSTS_AT_A_TIME: usize = 32;
const QUESTIONS_MAX: usize = 512;
/// When the questions for the addresses of hosts end, after the beginning of the round, so that a look-up
/// gets what is known by then. They have at least [`HOSTS_LIMIT_MIN`].
const HOSTS_LIMIT: Duration = Duration::from_secs(3);
const HOSTS_LIMIT_MIN: Duration = Duration::from_secs(1);
/// How long a question for the address of a host is not repeated that got no answer.
const FAILED_FOR: Duration = Duration::from_secs(60);
/// How long such a question must have waited for an answer.
const ASKED_MIN: Duration = Duration::from_secs(1);
/// Why a question was not asked.
const NO_TIME: &str = "there are too many hosts to ask for all of them at once";

/// An answer, and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    answer: Arc<Answer>,
    pub(crate) came: Instant,
    until: Instant,
}

/// A question for the address of a host that got no answer.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    why: String,
    /// The question is not repeated before this time.
    until: Instant,
}

/// The last answers to the questions for a name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) kept: HashMap<Question, Kept>,
    failed: HashMap<Question, Failed>,
}

/// What is known of a question: an answer, and why there is no new one.
type Got = (Option<Kept>, Option<String>);

/// What a round has found.
#[derive(Debug)]
pub(crate) struct Round {
    /// The servers, or why nothing is known.
    pub(crate) found: Result<Found, String>,
    /// When the oldest answer came that is not valid any more and was used all the same.
    pub(crate) stale: Option<Instant>,
    /// Why a question has no new answer.
    pub(crate) trouble: Option<String>,
    /// Until when all answers are valid.
    pub(crate) until: Option<Instant>,
    /// The answers that were used.
    pub(crate) answers: Answers,
}

/// A round that is under way.
struct Asking<'a> {
    name_servers: &'a NameServers,
    before: &'a Answers,
    begun: Instant,
    round: Round,
}

/// Asks for the servers of a name. `before` has the answers of the last round.
pub(crate) async fn ask(
    name_servers: &NameServers,
    place: &Place,
    name: &str,
    before: &Answers,
) -> Round {
    let found = Ok(Found::default());
    let answers = Answers::default();
    let round = Round { found, stale: None, trouble: None, until: None, answers };
    let mut asking = Asking { name_servers, before, begun: Instant::now(), round };
    asking.round.found = asking.find(place, name).await;
    asking.round
}

impl Asking<'_> {
    /// Takes the steps for the name until one of them has records.
    async fn find(&mut self, place: &Place, name: &str) -> Result<Found, String> {
        let steps = steps(place, name);
        if steps.is_empty() {
            let mut found = Found::default();
            found.remark(format!("`{name}` is no name that DNS can have"));
            return Ok(found);
        }
        for step in steps {
            let (Step::Services(questions) | Step::Machines(questions)) = &step;
            let [one, other] = questions;
            let (one, other) = join(self.get(one), self.get(other)).await;
            let both = [self.note(&questions[0], one), self.note(&questions[1], other)];
            let has_records = both.iter().flatten().any(|answer| !answer.entries.is_empty());
            let mut missing = both.iter().find_map(|one| one.as_ref().err()).cloned();
            if !has_records {
                match missing {
                    None => continue,
                    Some(why) => return Err(why),
                }
            }
            let answers = both.each_ref().map(|one| one.as_deref().ok());
            let mut found = match step {
                Step::Machines(_) => Found::machines(place, name, answers),
                Step::Services(_) if place.name_servers.is_empty() => {
                    Found::services(place, name, answers, None)
                }
                Step::Services(_) => {
                    let (hosts, why) = self.hosts(answers).await;
                    missing = missing.or(why);
                    let of_host = |host: &str| hosts.get(host).cloned().unwrap_or_default();
                    Found::services(place, name, answers, Some(&of_host))
                }
            };
            if let Some(why) = missing {
                found.remark_first(format!("some servers may be missing: {why}"));
            }
            return Ok(found);
        }
        Ok(Found::default())
    }

    /// Returns the addresses of the hosts of services. The name servers may have added them to their answers.
    /// The system may not know these hosts, because they are in the domain of chosen name servers. Also
    /// returns why some are missing.
    async fn hosts(
        &mut self,
        services: [Option<&Answer>; 2],
    ) -> (HashMap<String, Vec<IpAddr>>, Option<String>) {
        let host = |name: &Name| {
            let host = name.to_lowercase().to_ascii();
            host.strip_suffix('.').unwrap_or(&host).to_owned()
        };
        let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
        let mut order = Vec::new();
        for entry in services.into_iter().flatten().flat_map(|answer| &answer.entries) {
            if let Entry::Service { priority, target, .. } = entry {
                order.push((*priority, host(target)));
            }
        }
        // The hosts of preferred servers come first, and each one once.
        order.sort_by_key(|(priority, _)| *priority);
        order.retain(|(_, host)| hosts.insert(host.clone(), Vec::new()).is_none());
        let order: Vec<_> = order.into_iter().map(|(_, host)| host).collect();
        for (name, address) in services.into_iter().flatten().flat_map(|answer| &answer.added) {
            if let Some(addresses) = hosts.get_mut(&host(name)) {
                addresses.push(*address);
            }
        }
        let (answers, missing) = self.ask_for_hosts(&hosts, &order).await;
        for (question, answer) in answers {
            let Ok(answer) = self.note(&question, answer) else { continue };
            for entry in &answer.entries {
                if let (Entry::Machine(address), Some(addresses)) =
                    (entry, hosts.get_mut(&host(&question.name)))
                {
                    addresses.push(*address);
                }
            }
        }
        (hosts, missing)
    }

    /// Asks for the addresses of those of these hosts that have none yet, in this order. Returns the answers,
    /// and why some are missing.
    async fn ask_for_hosts(
        &mut self,
        hosts: &HashMap<String, Vec<IpAddr>>,
        order: &[String],
    ) -> (Vec<(Question, Got)>, Option<String>) {
        let unknown = order.iter().filter(|host| hosts.get(*host).is_some_and(Vec::is_empty));
        let mut questions: Vec<_> = unknown.flat_map(|host| addresses(host)).flatten().collect();
        // Questions that got no answer lately must not hide others.
        questions.sort_by_key(|question| self.before.failed.contains_key(question));
        let until = (self.begun + HOSTS_LIMIT).max(Instant::now() + HOSTS_LIMIT_MIN);
        let mut left = QUESTIONS_MAX;
        let prepared = questions.into_iter().map(|question| {
            let known = self.known(&question);
            let may_ask = known.is_some() || left > 0;
            left -= usize::from(known.is_none() && may_ask);
            (question, known, may_ask)
        });
        let this = &*self;
        let all =
            stream::iter(prepared.collect::<Vec<_>>()).map(async |(question, known, may_ask)| {
                let begun = Instant::now();
                let got = match known {
                    Some(got) => got,
                    None if !may_ask || begun >= until => {
                        (this.before.kept.get(&question).cloned(), Some(NO_TIME.to_owned()))
                    }
                    None => match timeout_at(until.into(), this.get(&question)).await {
                        Ok(got) => got,
                        Err(_) => {
                            let why = "the name server does not answer".to_owned();
                            (this.before.kept.get(&question).cloned(), Some(why))
                        }
                    },
                };
                (question, got, begun)
            });
        let answers: Vec<_> = all.buffer_unordered(HOSTS_AT_A_TIME).collect().await;
        let mut missing = None;
        let is_new = |got: &Got| got.0.as_ref().is_some_and(|kept| kept.came >= self.begun);
        let answers_now = self.round.answers.kept.values().any(|kept| kept.came >= self.begun)
            || answers.iter().any(|(_, got, _)| is_new(got));
        let now = Instant::now();
        let mut got = Vec::new();
        for (question, answer, begun) in answers {
            if let (None, Some(why)) = &answer {
                missing.get_or_insert_with(|| why.clone());
            }
            let before = self.before.failed.get(&question);
            let failed = match &answer.1 {
                None => None,
                Some(_) if before.is_some_and(|failed| now < failed.until) => before.cloned(),
                // If the name server answers nothing at all, it may do so soon.
                Some(why) if answers_now && begun + ASKED_MIN <= now && why != NO_TIME => {
                    Some(Failed { why: why.clone(), until: now + FAILED_FOR })
                }
                Some(_) => before.cloned(),
            };
            if let Some(failed) = failed {
                self.round.answers.failed.insert(question.clone(), failed);
            }
            got.push((question, answer));
        }
        (got, missing)
    }

    /// Returns what is known of the address of a host without a question: an answer that is still valid, or
    /// that there was none a moment ago.
    fn known(&self, question: &Question) -> Option<Got> {
        let now = Instant::now();
        let last = self.before.kept.get(question);
        if let Some(last) = last.filter(|last| now < last.until) {
            return Some((Some(last.clone()), None));
        }
        let failed = self.before.failed.get(question).filter(|failed| now < failed.until)?;
        Some((last.cloned(), Some(failed.why.clone())))
    }

    /// Returns the answer to a question: the one that is still valid, or else a new one, or else the last one
    /// with the reason why there is no new one.
    async fn get(&self, question: &Question) -> Got {
        let last = self.before.kept.get(question);
        if let Some(last) = last.filter(|last| Instant::now() < last.until) {
            return (Some(last.clone()), None);
        }
        match self.name_servers.ask(question).await {
            Ok(answer) => {
                let came = Instant::now();
                let until = came + answer.ttl;
                (Some(Kept { answer: Arc::new(answer), came, until }), None)
            }
            Err(why) => (last.cloned(), Some(why)),
        }
    }

    /// Notes what is known of a question. Returns the answer, or the reason why no answer came.
    fn note(&mut self, question: &Question, (kept, why): Got) -> Result<Arc<Answer>, String> {
        let round = &mut self.round;
        if let Some(why) = &why {
            round.trouble.get_or_insert_with(|| why.clone());
        }
        let Some(kept) = kept else { return Err(why.unwrap_or_default()) };
        let answer = Arc::clone(&kept.answer);
        match why {
            None => round.until = Some(round.until.map_or(kept.until, |one| one.min(kept.until))),
            Some(_) => round.stale = Some(round.stale.map_or(kept.came, |one| one.min(kept.came))),
        }
        round.answers.kept.insert(question.clone(), kept);
        Ok(answer)
    }
}
