//! Uses the page of a bridge in chromium, with the keyboard alone, on a narrow and on a wide screen.

#[path = "world/mod.rs"]
mod world;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use peregrine_bridge::Bridge;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser, which the test controls with the DevTools protocol over two pipes.
struct Browser {
    process: Child,
    requests: File,
    answers: BufReader<File>,
    session: Option<String>,
    number: u64,
    _directory: TempDir,
}

impl Browser {
    /// Starts chromium. Returns `None` if it is not installed.
    fn start() -> Option<Self> {
        let version = Command::new("chromium").arg("--version").output();
        if !version.is_ok_and(|version| version.status.success()) {
            eprintln!("skipped: chromium is not installed, so the page is not tested");
            return None;
        }
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["requests", "answers"] {
            assert!(Command::new("mkfifo").arg(path(name)).status().unwrap().success());
        }
        // The browser reads requests from descriptor 3, and writes answers to descriptor 4.
        let mut process = Command::new("sh");
        process.args(["-c", "exec \"$@\" 3< requests 4> answers", "sh", "chromium"]);
        process.args(["--headless=new", "--remote-debugging-pipe", "--no-sandbox"]);
        process.args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        process.arg(format!("--user-data-dir={}", path("profile").display()));
        process.current_dir(directory.path()).env("HOME", directory.path());
        let process = process.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let requests = File::options().write(true).open(path("requests")).unwrap();
        let answers = BufReader::new(File::open(path("answers")).unwrap());
        let (session, number) = (None, 0);
        Some(Self { process, requests, answers, session, number, _directory: directory })
    }

    /// Sends a request, and returns its result.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.number += 1;
        let mut request = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            request["sessionId"] = json!(session);
        }
        self.requests.write_all(format!("{request}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            self.answers.read_until(0, &mut answer).unwrap();
            assert_eq!(answer.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Opens a page.
    fn open(&mut self, url: &str) {
        let target = self.ask("Target.createTarget", json!({ "url": url }))["targetId"].take();
        let parameters = json!({ "targetId": target, "flatten": true });
        let session = self.ask("Target.attachToTarget", parameters);
        self.session = Some(session["sessionId"].as_str().unwrap().to_owned());
    }

    /// Returns the value of an expression in the page.
    fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut answer = self.ask("Runtime.evaluate", parameters);
        assert!(answer["exceptionDetails"].is_null(), "{answer}");
        answer["result"]["value"].take()
    }

    fn until(&mut self, expression: &str) {
        world::until(expression, || self.value(expression) == true);
    }

    /// Presses a key. `text` is what the key types.
    fn press(&mut self, key: &str, code: u32, text: &str) {
        for kind in ["keyDown", "keyUp"] {
            let typed = if kind == "keyDown" { text } else { "" };
            let parameters = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": typed,
            });
            self.ask("Input.dispatchKeyEvent", parameters);
        }
    }

    fn tab(&mut self) {
        self.press("Tab", 9, "");
    }

    fn enter(&mut self) {
        self.press("Enter", 13, "\r");
    }

    fn write(&mut self, text: &str) {
        for letter in text.chars() {
            self.press(&letter.to_string(), 0, &letter.to_string());
        }
    }

    /// Presses the tab key until the focus is on the element that the expression names.
    fn tab_to(&mut self, expression: &str) {
        for _ in 0..100 {
            self.tab();
            if self.value(&format!("document.activeElement === {expression}")) == true {
                return;
            }
        }
        panic!("the keyboard does not reach {expression}");
    }

    fn set_width(&mut self, width: u32) {
        let parameters = json!({
            "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false,
        });
        self.ask("Emulation.setDeviceMetricsOverride", parameters);
        self.until(&format!("innerWidth === {width}"));
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns an expression for the form of a procedure.
fn form(procedure: &str) -> String {
    format!("document.querySelector('form[data-path=\"/demo/{procedure}\"]')")
}

#[test]
fn page_is_used_with_the_keyboard_on_every_width() {
    let Some(mut browser) = Browser::start() else { return };
    let server = world::server::Running::start();
    let bridge = Bridge::new().offer(&server.address()).unwrap();
    let bridge = bridge.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    browser.open(&format!("http://{}/", bridge.addresses()[0]));
    for width in [360, 1280] {
        browser.set_width(width);
        let reload = json!({ "expression": "window.isOld = true; location.reload()" });
        browser.ask("Runtime.evaluate", reload);
        browser.until("!window.isOld && document.readyState === 'complete'");

        // The form of `sum` has a required field, and an optional one that stays empty.
        let sum = form("sum");
        browser.tab_to(&format!("{sum}.closest('details').querySelector('summary')"));
        browser.enter();
        browser.tab_to(&format!("{sum}.elements.points"));
        browser.write(r#"[{"x":1,"y":2},{"x":3,"y":4}]"#);
        browser.tab_to(&format!("{sum}.querySelector('button')"));
        browser.enter();
        browser.until(&format!(
            "{sum}.querySelector('[role=status]').textContent.includes('executed: yes')"
        ));
        let answer = browser.value(&format!("{sum}.querySelector('[role=log]').textContent"));
        assert_eq!(answer, r#"{"result":{"x":4,"y":6}}"#);

        // A failure is shown. A text field sends the form when the enter key is pressed.
        let refuse = form("refuse");
        browser.tab_to(&format!("{refuse}.closest('details').querySelector('summary')"));
        browser.enter();
        browser.tab_to(&format!("{refuse}.elements.why"));
        browser.write("late");
        browser.enter();
        browser.until(&format!(
            "{refuse}.querySelector('[role=log]').textContent.includes('Refused')"
        ));

        // The page shows the items of a stream when they arrive, and can stop the stream.
        let endless = form("endless");
        browser.tab_to(&format!("{endless}.closest('details').querySelector('summary')"));
        browser.enter();
        browser.tab_to(&format!("{endless}.querySelector('button')"));
        browser.enter();
        browser
            .until(&format!("{endless}.querySelector('[role=log]').textContent.includes('item')"));
        browser.tab_to(&format!("{endless}.querySelector('button[type=button]')"));
        browser.enter();
        browser
            .until(&format!("{endless}.querySelector('[role=status]').textContent === 'Stopped'"));

        // All parts of the page are opened. No part may be wider than the screen.
        browser.value("document.querySelectorAll('details').forEach((one) => one.open = true)");
        let fits = "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
        assert_eq!(browser.value(fits), true, "the page scrolls sideways at {width} pixels");
        let fields = "[...document.querySelectorAll('input, textarea, select')]\
                      .every((one) => one.labels.length === 1)";
        assert_eq!(browser.value(fields), true, "a field has no label");
    }
    drop(server);
}
