//! Tests the directory with a name server of this test, which counts questions, keeps silent, and lies.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hickory_resolver::proto::op::{Message, OpCode, Query, ResponseCode};
use hickory_resolver::proto::rr::rdata::{A, CNAME, NS, SOA, SRV};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use peregrine::Kind;
use peregrine::directory::{Directory, Offers};
use peregrine_dns::Dns;

/// What the name server sends for a question: any number of packets.
type Script = Box<dyn FnMut(&Message) -> Vec<Vec<u8>> + Send>;

/// A question that was received. A retransmission has the number of the question, and is not listed.
#[derive(Clone, Debug)]
struct Asked {
    number: u16,
    text: String,
    at: Instant,
}

#[derive(Default)]
struct Log {
    asked: Mutex<Vec<Asked>>,
    is_new: Condvar,
}

/// A name server. It ends when it is dropped.
struct NameServer {
    port: u16,
    script: Arc<Mutex<Script>>,
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    fn start(script: impl FnMut(&Message) -> Vec<Vec<u8>> + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
        let log = Arc::new(Log::default());
        let (own_script, own_log) = (Arc::clone(&script), Arc::clone(&log));
        let thread = thread::spawn(move || {
            let mut packet = [0; 4096];
            loop {
                let (length, from) = socket.recv_from(&mut packet).unwrap();
                if length == 0 {
                    return;
                }
                let question = Message::from_vec(&packet[..length]).unwrap();
                let at = Instant::now();
                let number = question.metadata.id;
                let asked = &question.queries[0];
                let text = format!("{} {}", asked.query_type(), asked.name());
                let mut all = own_log.asked.lock().unwrap();
                if !all.iter().any(|one| (one.number, &one.text) == (number, &text)) {
                    all.push(Asked { number, text, at });
                }
                drop(all);
                own_log.is_new.notify_all();
                for reply in (own_script.lock().unwrap())(&question) {
                    socket.send_to(&reply, from).unwrap();
                }
            }
        });
        Self { port, script, log, thread: Some(thread) }
    }

    fn set(&self, script: impl FnMut(&Message) -> Vec<Vec<u8>> + Send + 'static) {
        *self.script.lock().unwrap() = Box::new(script);
    }

    fn directory(&self) -> Dns {
        Dns::open(&format!("//127.0.0.1:{}/example.org", self.port)).unwrap()
    }

    fn asked(&self) -> Vec<Asked> {
        self.log.asked.lock().unwrap().clone()
    }

    /// Returns the texts of all questions, in order.
    fn texts(&self) -> Vec<String> {
        let mut texts: Vec<_> = self.asked().into_iter().map(|one| one.text).collect();
        texts.sort();
        texts
    }

    fn count(&self, text: &str) -> usize {
        self.asked().iter().filter(|one| one.text == text).count()
    }

    /// Waits until a question was asked this number of times.
    fn wait(&self, text: &str, times: usize) {
        let is_missing =
            |all: &mut Vec<Asked>| all.iter().filter(|one| one.text == text).count() < times;
        drop(self.log.is_new.wait_while(self.log.asked.lock().unwrap(), is_missing).unwrap());
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[], ("127.0.0.1", self.port)).unwrap();
        let ended = self.thread.take().unwrap().join();
        if !thread::panicking() {
            ended.unwrap();
        }
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

fn a(owner: &str, ttl: u32, last: u8) -> Record {
    Record::from_rdata(name(owner), ttl, RData::A(A(Ipv4Addr::new(192, 0, 2, last))))
}

fn srv(owner: &str, ttl: u32, port: u16, target: &str) -> Record {
    Record::from_rdata(name(owner), ttl, RData::SRV(SRV::new(0, 0, port, name(target))))
}

fn alias(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 3600, RData::CNAME(CNAME(name(target))))
}

/// Returns the message that has those of these records that belong to the question. If there are none, it
/// says so for a minute.
fn of_zone(question: &Message, records: &[Record]) -> Message {
    let asked = &question.queries[0];
    let mut message = Message::response(question.metadata.id, OpCode::Query);
    message.add_query(asked.clone());
    let found = records.iter().filter(|one| {
        one.name == *asked.name()
            && [asked.query_type(), RecordType::CNAME].contains(&one.record_type())
    });
    message.add_answers(found.cloned());
    if message.answers.is_empty() {
        message.metadata.response_code = ResponseCode::NXDomain;
        let zone = SOA::new(name("ns."), name("admin."), 1, 1, 1, 1, 60);
        message.add_authority(Record::from_rdata(name("example.org."), 3600, RData::SOA(zone)));
    }
    message
}

/// Returns the script of a name server that knows these records.
fn zone(records: Vec<Record>) -> impl FnMut(&Message) -> Vec<Vec<u8>> + Send {
    move |question| vec![of_zone(question, &records).to_vec().unwrap()]
}

fn silence(_: &Message) -> Vec<Vec<u8>> {
    Vec::new()
}

fn servers(offers: &Offers) -> Vec<&str> {
    let mut servers: Vec<_> = offers.servers.iter().map(|one| one.server()).collect();
    servers.sort_unstable();
    servers
}

/// The questions for the name `files` in the order of [`NameServer::texts`].
const ALL: [&str; 6] = [
    "A files.example.org.",
    "AAAA files.example.org.",
    "SRV _files._tcp.example.org.",
    "SRV _files._udp.example.org.",
    "SRV _peregrine._tcp.files.example.org.",
    "SRV _peregrine._udp.files.example.org.",
];

#[test]
fn many_look_ups_and_watches_ask_each_question_once() {
    let server = NameServer::start(zone(vec![
        srv("_files._tcp.example.org.", 3600, 7000, "a.example.org."),
        srv("_files._udp.example.org.", 3600, 7000, "a.example.org."),
        a("a.example.org.", 3600, 1),
        Record::from_rdata(
            name("a.example.org."),
            3600,
            RData::AAAA("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().into()),
        ),
    ]));
    let directory = server.directory();
    let (told, is_told) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..8 {
            let (directory, told) = (&directory, told.clone());
            scope.spawn(move || {
                let mut standing = Vec::new();
                for _ in 0..20 {
                    let found = directory.look_up("files").unwrap();
                    let offer = found.servers[0].to_string();
                    assert_eq!(
                        offer,
                        "a.example.org-7000 at files@192.0.2.1:7000 files@[2001:db8::1]:7000"
                    );
                    let told = told.clone();
                    let watcher = move |offers: Offers| told.send(offers.servers.len()).unwrap();
                    standing.push(directory.watch("files", Box::new(watcher)).unwrap());
                }
                assert!(standing.iter().all(|one| one.problem().is_none()));
            });
        }
    });
    drop(told);
    assert_eq!(is_told.iter().collect::<Vec<_>>(), [1; 160]);
    let expected = [
        "A a.example.org.",
        "AAAA a.example.org.",
        "SRV _files._tcp.example.org.",
        "SRV _files._udp.example.org.",
    ];
    assert_eq!(server.texts(), expected);
}

#[test]
fn addresses_that_the_name_server_adds_are_not_asked_for() {
    let server = NameServer::start(|question| {
        let records = [
            srv("_files._tcp.example.org.", 3600, 7000, "a.example.org."),
            srv("_files._udp.example.org.", 3600, 7000, "a.example.org."),
        ];
        let mut message = of_zone(question, &records);
        message.add_additionals([a("a.example.org.", 3600, 1), a("evil.example.org.", 1, 66)]);
        vec![message.to_vec().unwrap()]
    });
    let found = server.directory().look_up("files").unwrap();
    assert_eq!(found.servers[0].to_string(), "a.example.org-7000 at files@192.0.2.1:7000");
    assert_eq!(server.texts(), ALL[2..4]);
}

#[test]
fn missing_name_is_no_error_and_is_not_asked_for_again() {
    let server = NameServer::start(zone(vec![]));
    let directory = server.directory();
    let begun = Instant::now();
    for _ in 0..100 {
        let found = directory.look_up("files").unwrap();
        assert_eq!((found.servers.len(), found.age), (0, None));
    }
    // The statement that there are no records is valid for a minute.
    assert!(begun.elapsed() > Duration::from_secs(60) || server.texts() == ALL);
    let found = directory.look_up("a..b").unwrap();
    assert_eq!(found.servers.len(), 0);
    assert!(found.remarks[0].contains("no name that DNS can have"), "{:?}", found.remarks);
}

#[test]
fn watch_asks_when_answers_end_and_reports_only_changes() {
    let asked = "A files.example.org.";
    let server = NameServer::start(zone(vec![a("files.example.org.", 1, 1)]));
    let directory = server.directory();
    let (told, is_told) = mpsc::channel();
    let second = told.clone();
    let watcher = move |offers: Offers| told.send(servers(&offers).join(" ")).unwrap();
    let standing = directory.watch("files", Box::new(watcher)).unwrap();
    let watcher = move |offers: Offers| second.send(servers(&offers).join(" ")).unwrap();
    let other = directory.watch("files", Box::new(watcher)).unwrap();
    server.wait(asked, 4);
    assert_eq!(is_told.try_iter().collect::<Vec<_>>(), ["192.0.2.1", "192.0.2.1"]);
    server.set(zone(vec![a("files.example.org.", 1, 2)]));
    assert_eq!(is_told.recv().unwrap(), "192.0.2.2");
    assert_eq!(is_told.recv().unwrap(), "192.0.2.2");
    drop(other);
    server.set(zone(vec![]));
    assert_eq!(is_told.recv().unwrap(), "", "the last server is gone");
    assert_eq!(standing.problem(), None);
    drop(standing);
    assert!(is_told.recv().is_err(), "a watcher was kept");
    let times: Vec<_> =
        server.asked().into_iter().filter(|one| one.text == asked).map(|one| one.at).collect();
    let shortest = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(shortest >= Duration::from_secs(1), "{shortest:?}");
}

#[test]
fn ended_watch_asks_no_more() {
    let records = ["one.example.org.", "other.example.org."].map(|owner| a(owner, 1, 1));
    let server = NameServer::start(zone(records.to_vec()));
    let directory = server.directory();
    let one = directory.watch("one", Box::new(|_| ())).unwrap();
    let other = directory.watch("other", Box::new(|_| ())).unwrap();
    server.wait("A one.example.org.", 2);
    drop(one);
    // A question may be under way.
    server.wait("A other.example.org.", server.count("A other.example.org.") + 1);
    let before = server.count("A one.example.org.");
    server.wait("A other.example.org.", server.count("A other.example.org.") + 3);
    assert_eq!(server.count("A one.example.org."), before);
    drop(other);
}

#[test]
fn watcher_may_end_its_own_watch_and_look_up_names() {
    let server = NameServer::start(zone(vec![a("files.example.org.", 1, 1)]));
    let directory = Arc::new(server.directory());
    let (pass, passed) = mpsc::channel();
    let (told, is_told) = mpsc::channel();
    let own = Arc::clone(&directory);
    let watcher = move |offers: Offers| {
        if servers(&offers) == ["192.0.2.2"] {
            let found = own.look_up("files").unwrap();
            drop(passed.recv().unwrap());
            told.send(servers(&found).join(" ")).unwrap();
        }
    };
    pass.send(directory.watch("files", Box::new(watcher)).unwrap()).unwrap();
    server.set(zone(vec![a("files.example.org.", 1, 2)]));
    assert_eq!(is_told.recv().unwrap(), "192.0.2.2");
    assert!(is_told.recv().is_err(), "the watch has not ended");
}

#[test]
fn last_answer_is_used_while_the_name_server_is_silent() {
    let server = NameServer::start(zone(vec![a("files.example.org.", 1, 1)]));
    let directory = server.directory();
    let standing = directory.watch("files", Box::new(|_| ())).unwrap();
    assert_eq!(directory.look_up("files").unwrap().age, None);
    server.set(silence);
    let stale = loop {
        let found = directory.look_up("files").unwrap();
        assert_eq!(servers(&found), ["192.0.2.1"]);
        if found.age.is_some() && standing.problem().is_some() {
            break found;
        }
    };
    assert!(stale.age.unwrap() >= Duration::from_secs(1), "{stale:?}");
    assert!(stale.remarks[0].starts_with("this is the last answer of DNS: "), "{stale:?}");
    server.set(zone(vec![a("files.example.org.", 1, 2)]));
    loop {
        let found = directory.look_up("files").unwrap();
        if found.age.is_none() {
            assert_eq!((servers(&found), found.remarks.len()), (vec!["192.0.2.2"], 0));
            break;
        }
    }
    drop(standing);
}

#[test]
fn refusal_leaves_the_last_answer() {
    let server = NameServer::start(zone(vec![a("files.example.org.", 1, 1)]));
    let directory = server.directory();
    assert_eq!(directory.look_up("files").unwrap().servers.len(), 1);
    server.set(|question| {
        let mut message = of_zone(question, &[]);
        message.metadata.response_code = ResponseCode::ServFail;
        vec![message.to_vec().unwrap()]
    });
    let stale = loop {
        let found = directory.look_up("files").unwrap();
        assert_eq!(servers(&found), ["192.0.2.1"]);
        if found.age.is_some() {
            break found;
        }
    };
    assert!(stale.remarks[0].contains("Server Failure"), "{stale:?}");
}

#[test]
fn silent_name_server_is_an_error_if_nothing_is_known() {
    let server = NameServer::start(silence);
    let directory = server.directory();
    let error = directory.look_up("files").unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable);
    let text = error.to_string();
    assert!(text.contains("name server"), "{text}");
    assert!(directory.watch("files", Box::new(|_| ())).is_err());
}

#[test]
fn hosts_in_lame_zones_do_not_hide_the_others() {
    // The name server answers nothing for most hosts. The known one comes last in the alphabet.
    let mut records: Vec<_> = (0..24)
        .map(|n| srv("_files._tcp.example.org.", 3600, 7000, &format!("h{n}.lame.org.")))
        .collect();
    records.push(srv("_files._tcp.example.org.", 3600, 7000, "z.example.org."));
    records.push(a("z.example.org.", 3600, 1));
    let mut known = zone(records);
    let server = NameServer::start(move |question| {
        let is_lame = question.queries[0].name().to_ascii().contains("lame");
        if is_lame { Vec::new() } else { known(question) }
    });
    let directory = server.directory();
    let mut found = None;
    until_reported(|| {
        found = directory.look_up("files").ok();
        found.as_ref().is_some_and(|found| found.servers.len() == 1)
    });
    let found = found.unwrap();
    assert_eq!(servers(&found), ["z.example.org-7000"]);
    let first = &found.remarks[0];
    assert!(first.starts_with("some servers may be missing: "), "{first}");
    // Hosts without an answer are not asked for in each round.
    let asked = server.count("A h0.lame.org.");
    for _ in 0..3 {
        directory.look_up("files").unwrap();
    }
    assert!(asked > 0 && server.count("A h0.lame.org.") == asked);
}

#[test]
fn forged_packets_are_ignored() {
    let server = NameServer::start(|question| {
        let asked = &question.queries[0];
        let evil = [a("files.example.org.", 3600, 66)];
        let mut wrong_number = of_zone(question, &evil);
        wrong_number.metadata.id ^= 1;
        let mut other_question = of_zone(question, &evil);
        other_question.queries = vec![Query::query(name("evil.example.org."), asked.query_type())];
        other_question.answers = vec![a("evil.example.org.", 3600, 66)];
        let mut truth = of_zone(question, &[a("files.example.org.", 3600, 1)]);
        if asked.query_type() == RecordType::A {
            truth.add_answers([a("evil.example.org.", 3600, 66)]);
        }
        vec![
            wrong_number.to_vec().unwrap(),
            vec![7],
            vec![0; 40],
            other_question.to_vec().unwrap(),
            truth.to_vec().unwrap(),
        ]
    });
    let found = server.directory().look_up("files").unwrap();
    assert_eq!(found.servers.len(), 1, "{found:?}");
    assert_eq!(found.servers[0].to_string(), "192.0.2.1 at files@192.0.2.1:7193");
}

#[test]
fn garbage_is_an_error() {
    let server = NameServer::start(|question| {
        let [high, low] = question.metadata.id.to_be_bytes();
        vec![[high, low, 0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0, 0xc0, 0x0c, 0xff, 0xff].to_vec()]
    });
    let error = server.directory().look_up("files").unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
}

#[test]
fn alias_of_a_service_is_followed() {
    let server = NameServer::start(|question| {
        let records = [
            alias("_files._tcp.example.org.", "_real._tcp.example.net."),
            srv("_real._tcp.example.net.", 3600, 7000, "a.example.net."),
            a("a.example.net.", 3600, 1),
        ];
        let mut message = of_zone(question, &records);
        if question.queries[0].name() == &name("_files._tcp.example.org.") {
            message.add_answers([records[1].clone()]);
        }
        vec![message.to_vec().unwrap()]
    });
    let found = server.directory().look_up("files").unwrap();
    assert_eq!(found.servers[0].to_string(), "a.example.net-7000 at tcp:files@192.0.2.1:7000");
    // The same, if each message has one alias.
    let server = NameServer::start(zone(vec![
        alias("files.example.org.", "b.example.org."),
        alias("b.example.org.", "c.example.org."),
        a("c.example.org.", 3600, 1),
    ]));
    let found = server.directory().look_up("files").unwrap();
    assert_eq!(servers(&found), ["192.0.2.1"]);
}

#[test]
fn loop_of_aliases_ends() {
    let server = NameServer::start(zone(vec![
        alias("_files._tcp.example.org.", "b.example.org."),
        alias("b.example.org.", "_files._tcp.example.org."),
    ]));
    let error = server.directory().look_up("files").unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable);
    assert!(error.to_string().contains("more than 8 aliases"), "{error}");
    assert_eq!(server.asked().len(), 10, "nine questions over TCP, and one over UDP");
}

#[test]
fn name_server_that_refers_to_others_does_not_know() {
    let server = NameServer::start(|question| {
        let mut message = of_zone(question, &[]);
        message.metadata.response_code = ResponseCode::NoError;
        let data = RData::NS(NS(name("ns.example.net.")));
        message.authorities = vec![Record::from_rdata(name("org."), 3600, data)];
        vec![message.to_vec().unwrap()]
    });
    let error = server.directory().look_up("files").unwrap_err();
    assert!(error.to_string().contains("refers to other name servers"), "{error}");
}

#[test]
fn truncated_answers_without_tcp_are_an_error() {
    let server = NameServer::start(|question| {
        let mut message = of_zone(question, &[]);
        message.metadata.response_code = ResponseCode::NoError;
        message.metadata.truncation = true;
        vec![message.to_vec().unwrap()]
    });
    let error = server.directory().look_up("files").unwrap_err();
    assert_eq!(error.kind(), Kind::Unreachable, "{error}");
}

#[test]
fn second_name_server_answers_in_place_of_a_silent_one() {
    let silent = NameServer::start(silence);
    let server = NameServer::start(zone(vec![a("files.example.org.", 3600, 1)]));
    let place = format!("//127.0.0.1:{},127.0.0.1:{}/example.org", silent.port, server.port);
    let directory = Dns::open(&place).unwrap();
    assert_eq!(servers(&directory.look_up("files").unwrap()), ["192.0.2.1"]);
}

#[test]
fn name_server_that_cannot_answer_does_not_hide_another_one() {
    for code in [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::NotImp] {
        let refuses = move |question: &Message| {
            let mut message = of_zone(question, &[]);
            message.metadata.response_code = code;
            message.authorities.clear();
            vec![message.to_vec().unwrap()]
        };
        let (one, two) = (NameServer::start(refuses), NameServer::start(refuses));
        // This one answers later than the others.
        let mut answer = zone(vec![a("files.example.org.", 3600, 1)]);
        let server = NameServer::start(move |question| {
            thread::sleep(Duration::from_millis(50));
            answer(question)
        });
        for ports in [[one.port, two.port, server.port], [server.port, one.port, two.port]] {
            let places = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
            let directory = Dns::open(&format!("//{places}/example.org")).unwrap();
            let found = directory.look_up("files").unwrap();
            assert_eq!((servers(&found), found.remarks.len()), (vec!["192.0.2.1"], 0));
            let nothing = directory.look_up("nothing").unwrap();
            assert!(nothing.servers.is_empty());
        }
        let both = format!("//127.0.0.1:{},127.0.0.1:{}/example.org", one.port, two.port);
        let error = Dns::open(&both).unwrap().look_up("files").unwrap_err();
        assert!(error.to_string().contains("the name server answers"), "{error}");
    }
}

#[test]
fn watch_survives_a_panic_and_ends_within_its_limit() {
    let server = NameServer::start(zone(vec![a("files.example.org.", 1, 1)]));
    let directory = server.directory();
    let mut calls = 0;
    let panics = Box::new(move |_: Offers| {
        calls += 1;
        assert!(calls != 2, "the watcher panics at the first change");
    });
    let watch = directory.watch("files", panics).unwrap();
    let ((runs, ran), (go, continues)) = (mpsc::channel(), mpsc::channel::<()>());
    let mut calls = 0;
    let waits = Box::new(move |_: Offers| {
        calls += 1;
        runs.send(()).unwrap();
        if calls == 2 {
            let _ = continues.recv();
        }
    });
    let slow = directory.watch("files", waits).unwrap();
    ran.recv().unwrap();
    assert_eq!(watch.problem(), None);
    server.set(zone(vec![a("files.example.org.", 1, 2)]));
    ran.recv().unwrap();
    until_reported(|| watch.problem().is_some_and(|problem| problem.contains("panicked")));
    // The end of a watch does not wait for ever for its watcher.
    drop(slow);
    go.send(()).unwrap();
    assert!(ran.recv().is_err(), "the watcher was dropped");
    server.set(zone(vec![a("files.example.org.", 1, 3)]));
    until_reported(|| watch.problem().is_none());
    // If the first call panics, there is no watch.
    let panics = Box::new(|_: Offers| panic!("the watcher panics at once"));
    let called = std::panic::AssertUnwindSafe(|| directory.watch("files", panics));
    assert!(std::panic::catch_unwind(called).is_err());
    // A watcher may end its own watch.
    let own: Arc<Mutex<Option<_>>> = Arc::default();
    let (held, (sender, ended)) = (Arc::clone(&own), mpsc::channel());
    let ends = Box::new(move |now: Offers| {
        if servers(&now) == ["192.0.2.4"] {
            drop(held.lock().unwrap().take());
            sender.send(()).unwrap();
        }
    });
    *own.lock().unwrap() = Some(directory.watch("files", ends).unwrap());
    server.set(zone(vec![a("files.example.org.", 1, 4)]));
    ended.recv().unwrap();
    assert!(ended.recv().is_err(), "the watcher was dropped");
}

fn until_reported(mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < limit, "timed out");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn servers_cannot_register_and_names_cannot_be_listed() {
    let server = NameServer::start(silence);
    let directory = server.directory();
    let offer = peregrine::directory::Offer::new("x", ["files@192.0.2.1"]).unwrap();
    let error = directory.register("files", &offer).unwrap_err();
    assert!(error.to_string().contains("cannot register servers"), "{error}");
    let error = directory.names().unwrap_err();
    assert!(error.to_string().contains("cannot list its names"), "{error}");
    assert_eq!(server.asked().len(), 0);
}

#[test]
fn scheme_opens_one_directory_for_a_text() {
    assert!(peregrine_dns::install());
    assert!(peregrine_dns::install());
    let server = NameServer::start(zone(vec![a("files.example.org.", 3600, 1)]));
    let text = format!("dns://127.0.0.1:{}/example.org:7000", server.port);
    let (one, other) = (peregrine::directory::open(&text), peregrine::directory::open(&text));
    let offers = one.unwrap().offers("files").unwrap();
    assert_eq!(offers[0].to_string(), "files@192.0.2.1:7000");
    assert_eq!(other.unwrap().offers("files").unwrap(), offers);
    let questions: BTreeSet<_> = server.texts().into_iter().collect();
    assert_eq!(questions.len(), server.asked().len(), "a question was asked twice");
    assert!(peregrine::directory::open("dns:example..org").is_err());
}
