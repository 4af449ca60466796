//! Runs the cluster with faults, and checks the files for systemd and Kubernetes.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A run with faults. It is killed on drop, and its processes end with it.
struct Run(Child);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Run {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
        command.args(["chaos", "--format", "json"]).args(words);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program starts"))
    }

    /// Waits for the end. Returns the exit code, the result, and what was printed to standard error.
    fn ended(mut self) -> (Option<i32>, String, String) {
        let (mut out, mut errors) = (String::new(), String::new());
        let mut stderr = self.0.stderr.take().unwrap();
        let reads = std::thread::spawn(move || {
            let _ = stderr.read_to_string(&mut errors);
            errors
        });
        self.0.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let code = self.0.wait().unwrap().code();
        (code, out, reads.join().unwrap())
    }

    /// Returns whether there are namespaces of this run.
    fn has_namespaces(id: u32) -> bool {
        let name = format!("peregrine-cluster-{id}-");
        let entries = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        entries.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&name))
    }
}

/// Returns whether clusters can run here. If not, prints why.
fn can_run() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root");
        return false;
    }
    for program in ["etcd", "setpriv"] {
        if Command::new(program).arg("--version").output().is_err() {
            println!("skipped: there is no `{program}`");
            return false;
        }
    }
    let name = format!("peregrine-cluster-test-{}", std::process::id());
    let ip = |words: [&str; 3]| {
        let done = Command::new("ip").args(words).stderr(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let can = ip(["netns", "add", &name]) && ip(["netns", "del", &name]);
    if !can {
        println!("skipped: cannot make a network namespace");
    }
    can
}

#[test]
fn cluster_survives_each_fault() {
    if !can_run() {
        return;
    }
    let run = Run::start(&["--quick", "--rate", "50", "--keys", "200"]);
    let id = run.0.id();
    let (code, out, errors) = run.ended();
    assert_eq!(code, Some(0), "{out}\n{errors}");
    let report: Value = serde_json::from_str(&out).expect("a result");
    let faults = report["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 6);
    for fault in faults {
        assert!(fault["recovered_s"].is_f64() && fault["violations"] == 0, "{fault}");
        for window in fault["windows"].as_array().unwrap() {
            let calls = |of: &str| window[of]["calls"].as_u64().unwrap();
            assert!(calls("store") > 0 && calls("pool") > 0, "{window}");
        }
    }
    // One server was started again, and five replaced others. Each was seen in the pool.
    assert_eq!(report["joined_us"].as_array().unwrap().len(), 6);
    assert!(report["verified"]["keys"].as_u64().unwrap() > 0);
    assert_eq!(report["verified"]["lost"], 0);
    assert!(!Run::has_namespaces(id));
}

#[test]
fn lost_values_are_noticed() {
    if !can_run() {
        return;
    }
    let words = ["--quick", "--rate", "50", "--keys", "50", "--fault", "wipe", "--servers", "3"];
    let (code, out, errors) = Run::start(&words).ended();
    assert_eq!(code, Some(1), "{out}\n{errors}");
    assert!(errors.contains("is lost"), "{errors}");
}

#[test]
fn interrupted_run_removes_everything() {
    if !can_run() {
        return;
    }
    let mut run = Run::start(&["--seconds", "3600", "--servers", "3"]);
    let id = run.0.id();
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("before")), "the run begins");
    assert!(Run::has_namespaces(id));
    kill_process(Pid::from_raw(id.try_into().unwrap()).unwrap(), Signal::INT).unwrap();
    assert!(lines.any(|line| line.unwrap().contains("interrupted")));
    assert_eq!(run.0.wait().unwrap().code(), Some(2));
    assert!(!Run::has_namespaces(id));
}

#[test]
fn killed_run_is_cleared_away_by_the_next_one() {
    if !can_run() {
        return;
    }
    let mut run = Run::start(&["--seconds", "3600", "--servers", "3"]);
    let id = run.0.id();
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("starting the load")));
    run.0.kill().unwrap();
    run.0.wait().unwrap();
    // The kernel ends its processes, whose standard error is a file. Those of the run end with it.
    let mut next = Run::start(&["--seconds", "3600", "--servers", "3"]);
    let mut lines = BufReader::new(next.0.stderr.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("starting etcd")));
    let begun = Instant::now();
    while Run::has_namespaces(id) {
        assert!(begun.elapsed() < Duration::from_secs(60), "namespaces of the killed run are left");
        std::thread::sleep(Duration::from_millis(50));
    }
    kill_process(Pid::from_raw(next.0.id().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    assert!(lines.any(|line| line.unwrap().contains("interrupted")));
    assert_eq!(next.0.wait().unwrap().code(), Some(2));
}

fn read(file: &str) -> String {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn unit_is_valid() {
    let directory = tempfile::tempdir().unwrap();
    // systemd checks whether the program exists. It need not be installed for this test.
    let unit = read("cluster.service").replace("/usr/local/bin/cluster", "/bin/true");
    let path = directory.path().join("cluster@.service");
    std::fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(directory.path().join("cluster@0.service"))
        .env("SYSTEMD_UNIT_PATH", format!("{}:", directory.path().display()))
        .output();
    let Ok(output) = verified else {
        return println!("skipped: there is no systemd-analyze");
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let about_this: Vec<&str> = said.lines().filter(|line| line.contains("cluster@")).collect();
    assert!(about_this.is_empty(), "{said}");
}

/// The command of the unit, and that of the manifest, are commands that the program accepts.
#[test]
fn commands_of_the_files_are_accepted() {
    let unit = read("cluster.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let manifest = read("cluster.yaml");
    let at = manifest.find("exec cluster serve").expect("a command");
    let script: Vec<&str> = manifest[at..].lines().take(2).map(str::trim).collect();
    let script = script.join(" ");
    let words = [start.split_once(' ').unwrap().1, script.strip_prefix("exec cluster ").unwrap()];
    for words in words {
        let words = words.replace("%i", "3").replace("\"${HOSTNAME##*-}\"", "3");
        let words = words.replace("\"$POD_IP:7193\"", "127.0.0.1:0");
        // The directory is not valid, so the program ends as soon as it has accepted its command.
        let mut command = Command::new(env!("CARGO_BIN_EXE_cluster"));
        command.args(words.split_whitespace()).env("PEREGRINE_DIRECTORY", "etcd://");
        let output = command.stdin(Stdio::null()).output().expect("the program starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.starts_with("cluster: ") && errors.contains("etcd"), "{errors}");
    }
}

#[test]
fn manifest_is_valid() {
    let check = "import sys, yaml\n\
                 all = [one for one in yaml.safe_load_all(open(sys.argv[1]))]\n\
                 for one in all: assert one['apiVersion'] and one['metadata']['name'], one\n\
                 print(' '.join(one['kind'] for one in all))";
    let path = format!("{}/cluster.yaml", env!("CARGO_MANIFEST_DIR"));
    let Ok(output) = Command::new("python3").args(["-c", check, &path]).output() else {
        return println!("skipped: there is no python3");
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("No module named 'yaml'") {
        return println!("skipped: python3 has no parser for YAML");
    }
    assert!(output.status.success(), "{errors}");
    let kinds = String::from_utf8_lossy(&output.stdout);
    assert_eq!(kinds.trim(), "ConfigMap Service StatefulSet PodDisruptionBudget Deployment");
}
