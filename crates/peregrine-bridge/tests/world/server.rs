//! The server of the tests, which runs in a process of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use peregrine::{CallError, Callback, Out, Server, Sink, Source, Value, caller, interface};
use tempfile::TempDir;

#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) struct Point {
    x: i32,
    y: i32,
}

#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) enum Trouble {
    Refused(String),
    Call(String),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

#[interface]
pub(crate) trait Told {
    fn tell(&self, text: &str) -> peregrine::Result<()>;
}

/// Procedures with every kind of parameter.
#[interface]
pub(crate) trait Demo {
    /// Adds two numbers.
    fn add(&self, a: i64, b: i64) -> peregrine::Result<i64>;
    /// Adds points.
    fn sum(&self, points: Vec<Point>, scale: Option<i32>) -> peregrine::Result<Point>;
    /// Fails.
    fn refuse(&self, why: &str, hard: bool) -> Result<(), Trouble>;
    /// Panics.
    fn panic(&self) -> peregrine::Result<()>;
    /// Doubles the numbers, and fills a buffer with as many bytes as fit.
    fn fill(&self, values: &mut [u32], into: Out<'_, u8>) -> peregrine::Result<u64>;
    /// Sends the numbers below `end`.
    fn count(&self, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<u64>;
    /// Sends a number, waits until `go` is called, and sends another one.
    fn two(&self, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    fn go(&self) -> peregrine::Result<()>;
    /// Sends texts until its caller wants no more.
    fn endless(&self, texts: Sink<'_, String>) -> peregrine::Result<()>;
    /// Returns the sum of the numbers.
    fn total(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Waits until its caller gives up.
    fn wait(&self) -> peregrine::Result<()>;
    /// Returns how many calls of `wait` run.
    fn waiting(&self) -> peregrine::Result<u32>;
    /// Waits until `count` calls of `wait` and `endless` were given up.
    fn given_up(&self, count: u32) -> peregrine::Result<()>;
    /// Fails if the text is empty.
    #[oneway]
    fn note(&self, text: &str) -> peregrine::Result<()>;
    fn ask(&self, told: Callback<'_, dyn Told>) -> peregrine::Result<()>;
    /// Returns the metadata of the call.
    fn metadata(&self) -> peregrine::Result<Vec<String>>;
    /// Fails if the call has no metadata.
    #[oneway]
    fn note_metadata(&self) -> peregrine::Result<()>;
}

/// A different interface with the name `Demo`, for a server that is started again.
#[interface(name = "Demo", version = 1)]
pub(crate) trait Next {
    fn subtract(&self, a: i64, b: i64) -> peregrine::Result<i64>;
}

struct Newer;

impl Next for Newer {
    fn subtract(&self, a: i64, b: i64) -> peregrine::Result<i64> {
        Ok(a - b)
    }
}

#[derive(Default)]
struct State {
    went: u32,
    waiting: u32,
    given_up: u32,
}

#[derive(Default)]
struct Object {
    state: Mutex<State>,
    changed: Condvar,
}

impl Object {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    fn wait_until(&self, done: impl Fn(&State) -> bool) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| !done(state)).unwrap());
    }
}

impl Demo for Object {
    fn add(&self, a: i64, b: i64) -> peregrine::Result<i64> {
        Ok(a.wrapping_add(b))
    }

    fn sum(&self, points: Vec<Point>, scale: Option<i32>) -> peregrine::Result<Point> {
        let scale = scale.unwrap_or(1);
        let sum = |part: fn(&Point) -> i32| points.iter().map(part).sum::<i32>() * scale;
        Ok(Point { x: sum(|one| one.x), y: sum(|one| one.y) })
    }

    fn refuse(&self, why: &str, _: bool) -> Result<(), Trouble> {
        Err(Trouble::Refused(why.to_owned()))
    }

    fn panic(&self) -> peregrine::Result<()> {
        panic!("as asked");
    }

    fn fill(&self, values: &mut [u32], mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        values.iter_mut().for_each(|value| *value *= 2);
        let bytes = vec![b'a'; into.capacity()];
        let _ = into.put(&bytes);
        Ok(bytes.len() as u64)
    }

    fn count(&self, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<u64> {
        (0..end).try_for_each(|number| numbers.send(number)).map(|()| end)
    }

    fn two(&self, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        numbers.send(1)?;
        self.wait_until(|state| state.went > 0);
        numbers.send(2)
    }

    fn go(&self) -> peregrine::Result<()> {
        self.change(|state| state.went += 1);
        Ok(())
    }

    fn endless(&self, mut texts: Sink<'_, String>) -> peregrine::Result<()> {
        while texts.send("x".repeat(1000)).is_ok() {}
        self.change(|state| state.given_up += 1);
        Ok(())
    }

    fn total(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        numbers.sum()
    }

    fn wait(&self) -> peregrine::Result<()> {
        self.change(|state| state.waiting += 1);
        while !caller().is_some_and(|caller| caller.is_cancelled()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.change(|state| {
            (state.waiting, state.given_up) = (state.waiting - 1, state.given_up + 1)
        });
        Ok(())
    }

    fn waiting(&self) -> peregrine::Result<u32> {
        Ok(self.state.lock().unwrap().waiting)
    }

    fn given_up(&self, count: u32) -> peregrine::Result<()> {
        self.wait_until(|state| state.given_up >= count);
        Ok(())
    }

    fn note(&self, text: &str) -> peregrine::Result<()> {
        assert!(!text.is_empty(), "there is no text");
        Ok(())
    }

    fn ask(&self, told: Callback<'_, dyn Told>) -> peregrine::Result<()> {
        told.tell("hello")
    }

    fn metadata(&self) -> peregrine::Result<Vec<String>> {
        let caller = caller().expect("a procedure has a caller");
        let pairs = caller.metadata().iter();
        Ok(pairs.map(|(key, value)| format!("{key}={value}")).collect())
    }

    fn note_metadata(&self) -> peregrine::Result<()> {
        assert_eq!(self.metadata()?, ["tenant=birds"]);
        Ok(())
    }
}

/// The environment variable that says what the process of a server serves.
const SERVES: &str = "PEREGRINE_BRIDGE_TEST_SERVES";

/// The process of a server. It is no test: [`Running::start`] runs it.
#[test]
#[ignore = "the process of a server, which other tests start"]
fn server_process() {
    let Ok(serves) = std::env::var(SERVES) else { return };
    let (age, endpoint) = serves.split_once(' ').unwrap();
    let server = Server::new().threads(64).listen(endpoint).unwrap();
    let server = match age {
        "new" => server.export("demo", NextServer::new(Newer)),
        _ => server.export("demo", DemoServer::new(Object::default())),
    };
    let running = server.unwrap().spawn().unwrap();
    // The line break comes first, because the test framework may have printed the name of the test
    // on this line.
    println!("\nready {}", running.addresses()[0]);
    std::io::stdout().flush().unwrap();
    // This input ends when the test that started this process ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// A running server. It is killed when this value is dropped.
pub(crate) struct Running {
    process: Child,
    /// Kept open: if this pipe were closed, the process would end when it prints something.
    _output: BufReader<ChildStdout>,
    /// The endpoint of the server, such as `tcp:127.0.0.1:7000`.
    pub(crate) endpoint: String,
    _directory: TempDir,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::of_age("old", "tcp:127.0.0.1:0")
    }

    /// Starts a server at an endpoint. `age` is `old` for the interface [`Demo`], or `new` for
    /// [`Next`].
    pub(crate) fn of_age(age: &str, endpoint: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let test = concat!(module_path!(), "::server_process").split_once("::").unwrap().1;
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .env("PEREGRINE_DIR", directory.path())
            .env(SERVES, format!("{age} {endpoint}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let lines = output.by_ref().lines().map(Result::unwrap);
        let mut ready = lines.filter_map(|line| Some(line.strip_prefix("ready ")?.to_owned()));
        let endpoint = ready.next().expect("the server should be ready");
        Self { process, _output: output, endpoint, _directory: directory }
    }

    pub(crate) fn address(&self) -> String {
        format!("{}/demo", self.endpoint)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
