//! Tests `stat --prometheus`: the text, its documents, the HTTP endpoint, and Debian's Prometheus that reads a
//! server through the endpoint.

mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use peregrine::counters::{ExportStat, PROMETHEUS_CONTENT_TYPE, Stat};
use peregrine::{ExportOptions, Server, interface};
use rustix::process::Signal;
use sandbox::{Process, Sandbox, TIMEOUT, until};
use serde_json::Value;

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    fs::read_to_string(path).unwrap()
}

/// A metric, as its text or the document describes it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Metric {
    kind: String,
    unit: String,
    labels: BTreeSet<String>,
    help: String,
}

/// Returns the unit that the name of a metric contains.
fn unit_of(name: &str) -> &'static str {
    let is_part = |unit: &str| name.split('_').any(|part| part == unit);
    ["seconds", "bytes"].into_iter().find(|unit| is_part(unit)).unwrap_or_default()
}

/// Returns the name, the labels and the value of a sample. Checks the form of each part.
fn sample(line: &str) -> (&str, BTreeMap<String, String>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, rest) = series.split_once('{').unwrap_or((series, "}"));
    assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
    let mut labels = BTreeMap::new();
    for label in rest.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty()) {
        let (label, text) = label.split_once('=').unwrap();
        let text = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap();
        assert!(labels.insert(label.to_owned(), text.to_owned()).is_none(), "{line}");
    }
    (name, labels, value.parse().unwrap())
}

/// Returns the metrics of a text, by name.
fn metrics_of(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").map(|l| l.split_once(' ').unwrap())
        {
            let (unit, help) = (unit_of(name).to_owned(), help.to_owned());
            let before =
                metrics.insert(name.to_owned(), Metric { unit, help, ..Metric::default() });
            assert_eq!(before, None, "{name} is described twice");
            name.clone_into(&mut current);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let kind = kind.strip_prefix(&*current).unwrap().trim_start();
            kind.clone_into(&mut metrics.get_mut(&current).unwrap().kind);
        } else {
            let (name, labels, _) = sample(line);
            let metric = metrics.get_mut(&current).unwrap();
            let part = name.strip_prefix(&*current).unwrap();
            let parts: &[&str] = match &*metric.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(parts.contains(&part), "{line}");
            metric.labels.extend(labels.into_keys().filter(|label| label != "le"));
        }
    }
    metrics
}

/// Returns the metrics that the document lists: `` * `name` (type, unit, by `label`): help ``.
fn metrics_documented() -> BTreeMap<String, Metric> {
    let text = document("METRICS.md");
    let mut metrics = BTreeMap::new();
    for entry in text.split("\n* ").skip(1) {
        let entry = entry.split("\n\n").next().unwrap().split_whitespace().collect::<Vec<_>>();
        let entry = entry.join(" ");
        let (head, help) = entry.split_once("): ").unwrap();
        let (name, head) = head.strip_prefix('`').unwrap().split_once("` (").unwrap();
        let (head, labels) = head.split_once(", by ").unwrap_or((head, ""));
        let (kind, unit) = head.split_once(", ").unwrap_or((head, ""));
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        let (kind, unit, help) = (kind.to_owned(), unit.to_owned(), help.to_owned());
        let before = metrics.insert(name.to_owned(), Metric { kind, unit, labels, help });
        assert!(before.is_none(), "{name} is documented twice");
    }
    metrics
}

#[interface]
trait Notes {
    #[at_most(3)]
    #[within(20ms)]
    fn count(&self) -> peregrine::Result<u32>;
}

struct Pad;

impl Notes for Pad {
    fn count(&self) -> peregrine::Result<u32> {
        Ok(2)
    }
}

/// Returns the metrics of a server that keeps all there is to keep for procedures.
fn metrics_of_procedures() -> BTreeMap<String, Metric> {
    let options = ExportOptions::default().networks_only();
    let server = Server::new().census().export_with("notes", NotesServer::new(Pad), options);
    let running = server.unwrap().listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let mut metrics = metrics_of(&running.stat().to_prometheus());
    metrics.retain(|name, _| name.starts_with("peregrine_procedure_"));
    metrics
}

#[test]
fn document_lists_exactly_the_metrics_of_a_server() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&[]);
    let done = sandbox.run(&["stat", "files", "--prometheus"]);
    assert_eq!(done.code, 0, "{done:?}");
    let (mut told, documented) = (metrics_of(&done.out), metrics_documented());
    assert!(told.len() > 25, "{told:?}");
    told.extend(metrics_of_procedures());
    for (name, metric) in &told {
        assert_eq!(Some(metric), documented.get(name), "{name}");
    }
    assert_eq!(told.keys().collect::<Vec<_>>(), documented.keys().collect::<Vec<_>>());
    // The conventions of Prometheus.
    for (name, metric) in &told {
        assert!(name.starts_with("peregrine_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == "counter", "{name}");
    }
}

/// Returns the queries of the dashboard and of the document.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&document("grafana.json")).unwrap();
    let mut expressions = Vec::new();
    members(&dashboard["panels"], "expr", &mut expressions);
    let mut queries: Vec<String> =
        expressions.into_iter().map(|one| one.as_str().unwrap().to_owned()).collect();
    assert!(queries.len() > 12);
    let document = document("METRICS.md");
    let listed = document.split("```promql\n").nth(1).unwrap().split("```").next().unwrap();
    // Each query follows a comment.
    let listed = listed.split("# ").skip(1).map(|one| one.split_once('\n').unwrap().1.to_owned());
    queries.extend(listed);
    queries
}

/// Returns all members `name` of a JSON value, at any depth.
fn members<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| members(one, name, found)),
        Value::Object(all) => {
            found.extend(all.get(name));
            all.values().for_each(|one| members(one, name, found));
        }
        _ => {}
    }
}

/// Returns the names of metrics in an expression.
fn names_in(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("peregrine_")).collect()
}

/// Returns the metric to which the samples `name` belong.
fn metric_of<'a>(name: &'a str, metrics: &BTreeMap<String, Metric>) -> Option<&'a str> {
    let is_histogram = |name: &str| metrics.get(name).is_some_and(|one| one.kind == "histogram");
    let parts = ["_bucket", "_sum", "_count"].iter().filter_map(|part| name.strip_suffix(part));
    let simple = metrics.contains_key(name) && !is_histogram(name);
    simple.then_some(name).or_else(|| parts.into_iter().find(|name| is_histogram(name)))
}

#[test]
fn dashboard_and_queries_use_only_documented_metrics() {
    let metrics = metrics_documented();
    let dashboard: Value = serde_json::from_str(&document("grafana.json")).unwrap();
    let mut variables = Vec::new();
    members(&dashboard["templating"], "definition", &mut variables);
    let mut expressions = queries();
    assert_eq!(variables.len(), 3);
    expressions.extend(variables.into_iter().map(|one| one.as_str().unwrap().to_owned()));
    let mut used = BTreeSet::new();
    for expression in &expressions {
        let names = names_in(expression);
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            let metric = metric_of(name, &metrics);
            used.insert(metric.unwrap_or_else(|| panic!("no metric {name}: {expression}")));
        }
    }
    for needed in [
        "peregrine_export_calls_total",
        "peregrine_export_failed_calls_total",
        "peregrine_export_call_duration_seconds",
        "peregrine_export_calls_in_flight",
        "peregrine_queued_calls",
        "peregrine_refused_calls_total",
    ] {
        assert!(used.contains(needed), "{needed}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().map(|one| one["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len(), "two panels have one number");
    assert_eq!(metric_of("peregrine_export_call_duration_seconds", &metrics), None);
    assert_eq!(metric_of("peregrine_calls_total_count", &metrics), None);
}

/// Returns whether a program is installed. Says so if it is not.
fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    let found = version.is_ok_and(|version| version.status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

#[test]
fn prometheus_accepts_the_text_also_with_hostile_names() {
    if !is_installed("promtool") {
        return;
    }
    let names = ["files", "a\"} 9\nb\\c\0\u{1b}[2J", "", "n", "n", "\u{feff}ü\u{2028}"];
    let export = |name: &&str| ExportStat {
        name: (*name).to_owned(),
        interface: "I\\\"\r\n# TYPE x counter".to_owned(),
        ..ExportStat::default()
    };
    let mut stat = Stat { exports: names.iter().map(export).collect(), ..Stat::default() };
    stat.server.in_flight = Some(Default::default());
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut check = check.stdout(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(stat.to_prometheus().as_bytes()).unwrap();
    let done = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr) + String::from_utf8_lossy(&done.stdout);
    // The tool also reports names that differ from the conventions.
    assert!(done.status.success() && said.is_empty(), "{said}");
}

/// An endpoint for Prometheus.
struct Endpoint {
    process: Process,
    /// The host and the port.
    at: String,
}

impl Endpoint {
    fn start(sandbox: &Sandbox, address: &str) -> Self {
        let arguments =
            ["stat", address, "--prometheus", "--listen", "127.0.0.1:0", "--format", "json"];
        let mut process = Process::start(&mut sandbox.command(&arguments));
        let ready: Value = serde_json::from_str(&process.line()).unwrap();
        assert_eq!(ready["ready"], true);
        let url = ready["http"][0].as_str().unwrap();
        let at = url.strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
        Self { process, at }
    }

    /// Sends a request. Returns the status, the header and the body of the answer.
    fn ask(&self, line: &str) -> (u16, String, String) {
        ask(&self.at, &format!("{line} HTTP/1.1\r\nHost: {}\r\n\r\n", self.at))
    }

    /// Returns the value of a sample.
    fn value(&self, series: &str) -> f64 {
        let (status, _, text) = self.ask("GET /metrics");
        assert_eq!(status, 200, "{text}");
        value_in(&text, series)
    }
}

fn value_in(text: &str, series: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in:\n{text}")).parse().unwrap()
}

/// Sends a request to `at`, and reads until the connection is closed.
fn ask(at: &str, request: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_lowercase(), body.to_owned())
}

#[test]
fn endpoint_serves_the_numbers_of_stat() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&["--name", "photos"]);
    let endpoint = Endpoint::start(&sandbox, "photos");
    let series = "peregrine_export_calls_total{export=\"photos\"}";
    assert_eq!(endpoint.value(series), 0.0);
    assert_eq!(sandbox.run(&["ping", "photos", "--count", "100"]).code, 0);
    // The server counts the last call after its result, and the end of the client's session later.
    until("the client has ended", || {
        endpoint.value("peregrine_sessions") == 0.0
            && endpoint.value("peregrine_calls_in_flight") == 0.0
    });
    let (code, stat) = sandbox.json(&["stat", "photos", "--interval", "20ms"]);
    assert_eq!(code, 0, "{stat}");
    let counts = &stat["exports"].as_array().unwrap()[0];
    assert_eq!(counts["name"], "photos");
    let (_, head, text) = endpoint.ask("GET /metrics");
    assert!(head.contains(&format!("content-type: {PROMETHEUS_CONTENT_TYPE}")), "{head}");
    let calls = counts["calls"].as_u64().unwrap();
    assert!(calls >= 100);
    assert_eq!(value_in(&text, series), calls as f64);
    let received = "peregrine_export_received_bytes_total{export=\"photos\"}";
    assert_eq!(value_in(&text, received), counts["bytes_in"].as_u64().unwrap() as f64);
    // The command prints the same samples, except for the age.
    let printed = sandbox.run(&["stat", "photos", "--prometheus"]).out;
    let lasting = |text: &str| {
        let changes =
            ["peregrine_uptime", "peregrine_sleeps", "peregrine_spun", "peregrine_threads"];
        let is_lasting = |line: &&str| !changes.iter().any(|name| line.starts_with(name));
        text.lines().filter(is_lasting).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lasting(&printed), lasting(&text));
    let (_, json) = sandbox.json(&["stat", "photos", "--prometheus"]);
    assert_eq!(json["content_type"], PROMETHEUS_CONTENT_TYPE);
    assert_eq!(lasting(json["text"].as_str().unwrap()), lasting(&text));
}

#[test]
fn endpoint_reads_a_server_over_a_network() {
    let sandbox = Sandbox::new();
    let (_server, ready) =
        sandbox.serve_files(&["--name", "photos", "--listen", "tcp:127.0.0.1:0"]);
    let address = ready["addresses"][0].as_str().unwrap();
    assert_eq!(sandbox.run(&["ping", address, "--count", "50"]).code, 0);
    let endpoint = Endpoint::start(&sandbox, &address.replacen("photos@", "@", 1));
    let calls = endpoint.value("peregrine_export_calls_total{export=\"photos\"}");
    assert!(calls >= 50.0, "{calls}");
    // Each request is a call of the export by which the server describes itself.
    let asked = || endpoint.value("peregrine_export_calls_total{export=\".server\"}");
    let before = asked();
    until("the server counts the requests", || asked() > before);
}

#[test]
fn endpoint_answers_503_while_the_server_is_gone() {
    let sandbox = Sandbox::new();
    let endpoint = Endpoint::start(&sandbox, "photos");
    let gone = || {
        let (status, head, text) = endpoint.ask("GET /metrics");
        assert_eq!(status, 503, "{text}");
        assert!(head.contains("content-type: text/plain"), "{head}");
        assert!(text.starts_with("The counters of `photos` cannot be read: "), "{text}");
        assert!(text.ends_with(". The next request asks again.\n"), "{text}");
    };
    gone();
    for signal in [Signal::KILL, Signal::TERM] {
        let mut server = sandbox.serve(&["--name", "photos"]);
        let process = format!("peregrine_server_info{{process=\"{}\"}}", server.0.id());
        assert_eq!(endpoint.value(&process), 1.0);
        server.signal(signal);
        server.wait();
        gone();
    }
}

/// Returns whether all threads of a process are stopped by a signal.
fn are_stopped(process: u32) -> bool {
    let mut threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.all(|thread| {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("State:\tT"))
    })
}

#[test]
fn endpoint_answers_503_while_the_server_is_halted() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--name", "photos"]);
    let endpoint = Endpoint::start(&sandbox, "photos");
    server.signal(Signal::STOP);
    until("each thread of the server has stopped", || are_stopped(server.0.id()));
    let (status, _, text) = endpoint.ask("GET /metrics");
    assert_eq!(status, 503, "{text}");
    server.signal(Signal::CONT);
    assert_eq!(endpoint.value("peregrine_calls_total"), 0.0);
}

#[test]
fn endpoint_refuses_other_requests() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&["--name", "photos"]);
    let mut endpoint = Endpoint::start(&sandbox, "photos");
    let (status, head, body) = endpoint.ask("HEAD /metrics");
    assert_eq!((status, &*body), (200, ""));
    assert!(head.contains("connection: close"), "{head}");
    let (status, head, _) = endpoint.ask("POST /metrics");
    assert!(status == 405 && head.contains("allow: get, head"), "{status} {head}");
    assert_eq!(endpoint.ask("GET /").0, 404);
    assert_eq!(endpoint.ask("GET /metrics/").0, 404);
    assert_eq!(endpoint.ask("GET /metrics?name=x").0, 200);
    let foreign = "GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    assert_eq!(ask(&endpoint.at, foreign).0, 421);
    assert_eq!(ask(&endpoint.at, "GET /metrics HTTP/1.0\r\n\r\n").0, 200);
    let long = "x".repeat(20 << 10);
    let large = format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: {long}\r\n\r\n");
    assert_eq!(ask(&endpoint.at, &large).0, 431);
    assert_eq!(ask(&endpoint.at, "nonsense\r\n\r\n").0, 400);
    // The endpoint does not read a body, and closes the connection.
    let body = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000000000\r\n\r\n";
    assert_eq!(ask(&endpoint.at, body).0, 405);
    endpoint.process.signal(Signal::TERM);
    assert_eq!(endpoint.process.wait().code(), Some(0));
}

#[test]
fn silent_clients_do_not_occupy_the_endpoint_for_ever() {
    let sandbox = Sandbox::new();
    let _server = sandbox.serve(&["--name", "photos"]);
    let endpoint = Endpoint::start(&sandbox, "photos");
    // More than the connections that may be open. Each is closed when it has sent no header for 10 seconds.
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(&endpoint.at).unwrap()).collect();
    assert_eq!(endpoint.ask("GET /metrics").0, 200);
    drop(silent);
}

#[test]
fn endpoint_listens_beyond_this_machine_only_if_allowed() {
    let sandbox = Sandbox::new();
    let listen = ["stat", "photos", "--prometheus", "--listen", "192.0.2.7:0"];
    let done = sandbox.run(&listen);
    assert_eq!(done.code, 3, "{done:?}");
    assert!(done.err.contains("other machines can reach `192.0.2.7:0`"), "{done:?}");
    assert!(done.err.contains("--beyond-this-machine"), "{done:?}");
    // The address is of no interface of this machine, so the command fails later.
    let done = sandbox.run(&[&listen[..], &["--beyond-this-machine"]].concat());
    assert!(done.err.contains("cannot listen at `192.0.2.7:0`"), "{done:?}");
    let wrong = sandbox.run(&["stat", "no name", "--prometheus", "--listen", "127.0.0.1:0"]);
    assert_eq!(wrong.code, 3, "{wrong:?}");
    for arguments in [
        &["stat", "photos", "--listen", "127.0.0.1:0"][..],
        &["stat", "photos", "--prometheus", "--watch"],
        &["stat", "photos", "--prometheus", "--beyond-this-machine"],
    ] {
        assert_eq!(sandbox.run(arguments).code, 2, "{arguments:?}");
    }
}

/// A running Prometheus, which reads one endpoint.
struct Prometheus {
    _process: Process,
    at: String,
}

impl Prometheus {
    /// Starts Prometheus at a free port. Its data is in the sandbox.
    fn start(sandbox: &Sandbox, target: &str) -> Self {
        let config = sandbox.path("prometheus.yml");
        let job = format!(
            "scrape_configs:\n  - job_name: peregrine\n    scrape_interval: 1s\n    \
             static_configs:\n      - targets: ['{target}']\n"
        );
        fs::write(&config, job).unwrap();
        // Another program may take the port before Prometheus does. Then Prometheus ends.
        for attempt in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new("prometheus");
            command.arg(format!("--config.file={config}"));
            command
                .arg(format!("--storage.tsdb.path={}", sandbox.path(&format!("tsdb-{attempt}"))));
            command.arg(format!("--web.listen-address={port}"));
            command.args(["--log.level=error"]).current_dir(sandbox.0.path());
            let log = fs::File::create(sandbox.path("prometheus.log")).unwrap();
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let mut process = Process(command.spawn().unwrap());
            let (at, mut has_ended) = (port.to_string(), false);
            until("Prometheus is ready", || {
                has_ended = process.0.try_wait().unwrap().is_some();
                has_ended || Self::request(&at, "/-/ready").is_some_and(|(status, _)| status == 200)
            });
            if !has_ended {
                return Self { _process: process, at };
            }
        }
        let log = fs::read_to_string(sandbox.path("prometheus.log"));
        panic!("Prometheus does not start: {log:?}");
    }

    /// Sends a request of HTTP/1.0, whose answer is not divided into chunks.
    fn request(at: &str, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(at).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: {at}\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Returns the samples of an expression.
    fn samples(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let path = format!("/api/v1/query?query={encoded}");
        let (status, body) = Self::request(&self.at, &path).expect("Prometheus answers");
        assert_eq!(status, 200, "{expression}: {body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        let Value::Array(samples) = answer["data"]["result"].take() else { panic!("{body}") };
        samples
    }

    /// Returns the value of an expression that has one sample, or `None` if it has none.
    fn value(&self, expression: &str) -> Option<f64> {
        let samples = self.samples(expression);
        assert!(samples.len() <= 1, "{expression}: {samples:?}");
        samples.first()?["value"][1].as_str()?.parse().ok()
    }

    fn until(&self, expression: &str, value: f64) {
        let what = format!("`{expression}` is {value}");
        until(&what, || self.value(expression) == Some(value));
    }
}

#[test]
fn prometheus_reads_a_server_through_the_endpoint() {
    if !is_installed("prometheus") {
        return;
    }
    let sandbox = Sandbox::new();
    let serve = ["--name", "photos", "--listen", "tcp:127.0.0.1:0", "--listen", "udp:127.0.0.1:0"];
    let (mut server, ready) = sandbox.serve_files(&serve);
    let endpoint = Endpoint::start(&sandbox, "photos");
    let prometheus = Prometheus::start(&sandbox, &endpoint.at);
    prometheus.until("up{job=\"peregrine\"}", 1.0);
    let networks = ready["addresses"].as_array().unwrap();
    let networks = networks.iter().map(|address| address.as_str().unwrap());
    for address in ["photos"].into_iter().chain(networks) {
        assert_eq!(sandbox.run(&["ping", address, "--count", "70"]).code, 0);
    }
    until("all calls have been counted", || endpoint.value("peregrine_calls_in_flight") == 0.0);
    let series = "peregrine_export_calls_total{export=\"photos\"}";
    let calls = endpoint.value(series);
    assert!(calls >= 210.0);
    prometheus.until(&format!("sum({series})"), calls);
    prometheus.until("count(peregrine_export_info{export=\"photos\", interface!=\"\"})", 1.0);
    // Each bound of the histogram is a number, and the last bucket has all calls that were timed.
    let name = "peregrine_export_call_duration_seconds";
    let buckets = format!("count({name}_bucket{{export=\"photos\"}})");
    prometheus.until(&buckets, 32.0);
    let all = endpoint.value(&format!("{name}_count{{export=\"photos\"}}"));
    assert!(all > 0.0);
    prometheus.until(&format!("sum({name}_bucket{{export=\"photos\", le=\"+Inf\"}})"), all);
    // The queries are valid. Those of the dashboard have samples when there are two readings.
    for query in queries() {
        let concrete = query
            .replace("$__rate_interval", "5m")
            .replace("\"$job\"", "\"peregrine\"")
            .replace("\"$instance\"", "\".*\"")
            .replace("\"$export\"", "\"photos\"");
        assert!(!concrete.contains('$'), "{concrete}");
        let is_answered = || !prometheus.samples(&concrete).is_empty() || !query.contains('$');
        until(&format!("`{concrete}` has samples"), is_answered);
    }
    // The server ends, and comes back.
    server.signal(Signal::KILL);
    server.wait();
    prometheus.until("up{job=\"peregrine\"}", 0.0);
    let (server, _) = sandbox.serve_files(&serve);
    prometheus.until("up{job=\"peregrine\"}", 1.0);
    let process = format!("count(peregrine_server_info{{process=\"{}\"}})", server.0.id());
    prometheus.until(&process, 1.0);
    prometheus.until(&format!("sum({series})"), 0.0);
}
