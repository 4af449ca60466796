//! Tests `account`: what it measures, what it writes, and what it refuses.

mod sandbox;

use std::fs;

use sandbox::Sandbox;
use serde_json::Value;

fn sum(report: &Value) -> f64 {
    let parts = report["parts"].as_array().expect("parts");
    parts.iter().map(|part| part["ns"].as_f64().expect("a time")).sum()
}

#[test]
fn account_has_parts_a_sum_and_a_rest() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("files/hosts"), "127.0.0.1 localhost\n").unwrap();
    let (_server, ready) =
        sandbox.serve_files(&["--listen", "tcp:127.0.0.1:0", "--listen", "udp:127.0.0.1:0"]);
    let places: Vec<_> = ready["addresses"].as_array().unwrap().iter().collect();
    let far = places.iter().map(|place| place.as_str().unwrap().to_owned());
    for address in ["files".to_owned()].into_iter().chain(far) {
        for words in [&["size", "path=hosts"][..], &[]] {
            let mut arguments = vec!["account", &address];
            arguments.extend(words);
            arguments.extend(["--rounds", "3"]);
            let (code, report) = sandbox.json(&arguments);
            assert_eq!(code, 0, "{report}");
            assert_eq!(report["address"], *address);
            let procedure = words.first().map_or(Value::Null, |name| Value::from(*name));
            assert_eq!((&report["procedure"], &report["rounds"]), (&procedure, &3.into()));
            let number = |name: &str| report[name].as_f64().expect("a number");
            assert!((sum(&report) - number("sum_ns")).abs() < 1.0, "{report}");
            let rest = (number("whole_ns") - number("sum_ns")) / number("whole_ns");
            assert!((rest - number("rest_ratio")).abs() < 1e-6, "{report}");
            assert!(
                report["parts"].as_array().unwrap().iter().all(|part| part["how"] == "measured")
            );
            assert!(number("transfer_ns") > 0.0 && number("plain_ns") > 0.0);
        }
    }
}

#[test]
fn account_is_shown_as_a_table_a_picture_and_a_page() {
    let sandbox = Sandbox::new();
    let (_server, _) = sandbox.serve_files(&[]);
    let (svg, html) = (sandbox.path("a.svg"), sandbox.path("a.html"));
    let done = sandbox.run(&["account", "files", "--rounds", "3", "--svg", &svg, "--html", &html]);
    assert_eq!(done.code, 0, "{}", done.err);
    for text in
        ["a call that does nothing at files, local, adaptive", "transfer, there and back", "rest "]
    {
        assert!(done.out.contains(text), "{}", done.out);
    }
    assert!(done.err.contains("a stamp takes"), "{}", done.err);
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    let html = fs::read_to_string(html).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.contains(&svg), "{html}");
    let done =
        sandbox.run(&["account", "files", "--rounds", "3", "--svg", "/no-such-directory/a.svg"]);
    assert!(
        done.code != 0 && done.err.contains("cannot write /no-such-directory/a.svg"),
        "{}",
        done.err
    );
}

#[test]
fn load_has_levels_models_and_closed_runs() {
    let sandbox = Sandbox::new();
    let (_server, _) = sandbox.serve_files(&[]);
    fs::write(sandbox.path("files/hosts"), "127.0.0.1 localhost\n").unwrap();
    let (svg, html) = (sandbox.path("l.svg"), sandbox.path("l.html"));
    let load = ["--load", "--limit", "300ms", "--svg", &svg, "--html", &html];
    for words in [&[][..], &["size", "path=hosts", "--callers", "2"]] {
        let arguments = [&["account", "files"], words, &load].concat();
        let (code, report) = sandbox.json(&arguments);
        assert_eq!(code, 0, "{report}");
        let callers = 1 + u64::from(!words.is_empty());
        assert_eq!((&report["callers"], &report["path"]), (&callers.into(), &"local".into()));
        let levels = report["levels"].as_array().expect("levels");
        assert_eq!(levels.len(), 10);
        for level in levels {
            for times in [&level["response"], &level["models"]["M/D/1"], &level["models"]["M/G/1"]]
            {
                assert!(times["mean_ns"].as_f64() > Some(0.0), "{level}");
                assert!(times["p99_ns"].as_f64() >= times["p50_ns"].as_f64(), "{level}");
            }
            assert!(
                level["cause"].is_string() && level["slept_ratio"]["server"].is_f64(),
                "{level}"
            );
        }
        assert_eq!(report["closed"].as_array().unwrap().len(), 2 * callers as usize);
        assert_eq!(report["amdahl"].is_null(), callers == 1);
        let svg = fs::read_to_string(&svg).unwrap();
        assert!(svg.starts_with("<svg ") && fs::read_to_string(&html).unwrap().contains(&svg));
    }
    let done = sandbox.run(&["account", "files", "--load", "--limit", "300ms"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains("LONGER THAN A QUEUE") && done.out.contains("N/X - Z"),
        "{}",
        done.out
    );
}

#[test]
fn watch_makes_one_account_after_the_other() {
    let sandbox = Sandbox::new();
    let (_server, _) = sandbox.serve_files(&[]);
    let watch = ["account", "files", "--watch", "--interval", "20ms", "--count", "3"];
    let (code, report) = sandbox.json(&watch);
    let accounts = report["accounts"].as_array().expect("accounts");
    assert_eq!((code, accounts.len()), (0, 3), "{report}");
    assert!(accounts.iter().all(|one| one["parts"].is_array() && one["address"] == "files"));
    let done = sandbox.run(&watch);
    assert_eq!((done.code, done.out.lines().count()), (0, 5), "{}{}", done.out, done.err);
    assert!(done.out.contains("LONGEST PART"), "{}", done.out);
    let done = sandbox.run(&[&watch[..], &["--format", "ndjson"]].concat());
    let lines: Vec<Value> =
        done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 3 && lines.iter().all(|one| one["rest_ratio"].is_f64()), "{}", done.out);
}

#[test]
fn what_has_no_account_is_refused() {
    let sandbox = Sandbox::new();
    let (_server, _) = sandbox.serve_files(&[]);
    for (arguments, code, text) in [
        (&["account", "no-such-export"][..], 3, "no-such-export"),
        (&["account", "files", "no-such-procedure"], 2, "no-such-procedure"),
        (&["account", "files", "size"], 2, "path"),
        (&["account", "files", "size", "path=missing"], 1, "missing"),
        (&["account", "files", "--rounds", "2"], 2, "2"),
        (&["account", "files", "--callers", "2"], 2, "--load"),
        (&["account", "files", "--watch"], 2, "--count"),
        (&["account", "files", "--count", "2"], 2, "--watch"),
        (&["account", "files", "--load", "--rounds", "9"], 2, "--rounds"),
        (&["account", "files", "size", "--load"], 2, "path"),
    ] {
        let (done, report) = sandbox.json(arguments);
        assert_eq!(done, code, "{arguments:?}: {report}");
        assert!(report["error"].to_string().contains(text), "{arguments:?}: {report}");
    }
}
