//! The experiment `command`: measures the time of a whole process `peregrine call`, from its start to its
//! end. The limit is the time of a process that does nothing (`peregrine --version`).

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::row::Row;
use crate::subject::Failure;
use crate::{Progress, Selection};

/// The name of the case in all rows of this experiment.
pub(crate) const CASE: &str = "command";

/// Returns the path of the program `peregrine`, which is built into the same directory as this program.
fn program() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe()?.with_file_name("peregrine");
    match path.exists() {
        true => Ok(path),
        false => {
            Err("`peregrine` is not in the directory of this program: run `cargo build --release` first".into())
        }
    }
}

/// A server process. Dropping this value kills the process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The name of each path, and the address of the server on that path.
type Addresses = Vec<(&'static str, String)>;

/// Serves a directory with one file. Returns the server and its addresses.
fn serve(program: &PathBuf) -> Result<(Server, Addresses), Failure> {
    let directory = PathBuf::from(std::env::var_os("PEREGRINE_DIR").ok_or("no runtime directory")?);
    let files = directory.join(".files");
    std::fs::create_dir_all(&files)?;
    std::fs::write(files.join("hosts"), "127.0.0.1 localhost\n")?;
    let mut command = Command::new(program);
    command.arg("serve").arg(&files).args(["--name", "files", "--listen", "127.0.0.1:0"]);
    command.args(["--format", "json"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut server = Server(command.spawn()?);
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let ready: Value = serde_json::from_str(&line)?;
    let mut at = vec![("local", "files".to_owned())];
    for path in ["udp", "tcp"] {
        let all = ready["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let own = all.into_iter().find(|one| one.starts_with(path));
        at.push((path, own.ok_or("the server does not listen")?.to_owned()));
    }
    Ok((server, at))
}

/// Runs a command, and returns how long its process took, in nanoseconds.
fn time_of(command: &mut Command) -> Result<f64, Failure> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begun = Instant::now();
    let status = command.status()?;
    let took = begun.elapsed().as_nanos() as f64;
    if status.success() { Ok(took) } else { Err(format!("{command:?} failed").into()) }
}

/// Measures `peregrine call` on each path. Each run of it alternates with a run of the command that does
/// nothing.
pub(crate) fn measure(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let program = program()?;
    let (_server, at) = serve(&program)?;
    let mut rows = Vec::new();
    for (path, address) in at {
        progress.show(&format!("calling over {path}"));
        let (mut ours, mut limit) = (Vec::new(), Vec::new());
        for _ in 0..4 * selection.rounds() {
            let mut call = Command::new(&program);
            ours.push(time_of(call.args(["call", &address, "size", "path=hosts"]))?);
            limit.push(time_of(Command::new(&program).arg("--version"))?);
        }
        let row = Row {
            path: Some(path),
            link: Some(if path == "local" { "memory" } else { "loopback" }),
            wait: Some("block"),
            placement: Some("free"),
            bindings: 1,
            ..Row::new(CASE).ours(&ours, &[])
        };
        rows.push(row.limit("process", &limit).ratio(&ours, &limit));
    }
    Ok(rows)
}
