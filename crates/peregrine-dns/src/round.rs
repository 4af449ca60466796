//! One round of questions for a name. An answer that is still valid is used again. If there is no new answer
//! to a question, the last one is used.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join;
use futures_util::stream::{self, StreamExt as _};
use hickory_resolver::proto::rr::Name;

use crate::answer::{Answer, Entry};
use crate::ask::NameServers;
use crate::found::Found;
use crate::place::Place;
use crate::question::{Question, Step, addresses, steps};

/// The maximum number of hosts of one name whose addresses are asked for at the same time.
const HOSTS_AT_A_TIME: usize = 8;

/// An answer, and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    answer: Arc<Answer>,
    pub(crate) came: Instant,
    until: Instant,
}

/// The last answers to the questions for a name.
pub(crate) type Answers = HashMap<Question, Kept>;

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
    let round = Round { found, stale: None, trouble: None, until: None, answers: HashMap::new() };
    let mut asking = Asking { name_servers, before, round };
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
            let missing = both.iter().find_map(|one| one.as_ref().err()).cloned();
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
                    let hosts = self.hosts(answers).await;
                    let of_host = |host: &str| hosts.get(host).cloned().unwrap_or_default();
                    Found::services(place, name, answers, Some(&of_host))
                }
            };
            if let Some(why) = missing {
                found.remark(format!("some servers may be missing: {why}"));
            }
            return Ok(found);
        }
        Ok(Found::default())
    }

    /// Returns the addresses of the hosts of services. The name servers may have added them to their answers.
    /// The system may not know these hosts, because they are in the domain of chosen name servers.
    async fn hosts(&mut self, services: [Option<&Answer>; 2]) -> HashMap<String, Vec<IpAddr>> {
        let host = |name: &Name| {
            let host = name.to_lowercase().to_ascii();
            host.strip_suffix('.').unwrap_or(&host).to_owned()
        };
        let mut hosts: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for entry in services.into_iter().flatten().flat_map(|answer| &answer.entries) {
            if let Entry::Service { target, .. } = entry {
                hosts.entry(host(target)).or_default();
            }
        }
        for (name, address) in services.into_iter().flatten().flat_map(|answer| &answer.added) {
            if let Some(addresses) = hosts.get_mut(&host(name)) {
                addresses.push(*address);
            }
        }
        let unknown = hosts.iter().filter(|(_, known)| known.is_empty());
        let questions: Vec<_> = unknown.flat_map(|(host, _)| addresses(host)).flatten().collect();
        let answers: Vec<_> = {
            let this = &*self;
            let all = stream::iter(questions.into_iter().map(async |question| {
                let answer = this.get(&question).await;
                (question, answer)
            }));
            all.buffer_unordered(HOSTS_AT_A_TIME).collect().await
        };
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
        hosts
    }

    /// Returns the answer to a question: the one that is still valid, or else a new one, or else the last one
    /// with the reason why there is no new one.
    async fn get(&self, question: &Question) -> (Option<Kept>, Option<String>) {
        let last = self.before.get(question);
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
    fn note(
        &mut self,
        question: &Question,
        (kept, why): (Option<Kept>, Option<String>),
    ) -> Result<Arc<Answer>, String> {
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
        round.answers.insert(question.clone(), kept);
        Ok(answer)
    }
}
