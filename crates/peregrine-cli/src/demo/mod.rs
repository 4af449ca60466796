//! `demo`: copies a file between two processes, makes calls with every kind of parameter, and measures calls.

mod copy;
mod directions;
mod limit;
mod measure;
mod report;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::copy::Copied;
use self::directions::{DirectionResult, Directions, DirectionsClient};
use self::measure::Row;
use self::report::Report;
use crate::args::{Colour, Demo, Format};
use crate::files::FilesClient;
use crate::home::{self, Home};
use crate::link::{self, Link};
use crate::output::{self, Counted, Failure, OrFail};

pub(crate) use self::directions::serve as serve_directions;
pub(crate) use self::limit::echo;

/// The size in bytes of the generated file.
const FILE_BYTES: u64 = 256 << 20;
/// The size in bytes of the generated file with `--quick`.
const QUICK_BYTES: u64 = 16 << 20;

/// Runs the demonstration.
pub(crate) fn run(demo: &Demo, format: Format, colour: Colour) -> Result<(), Failure> {
    let Some(home) = &demo.home else {
        return home::enter(demo, format, colour);
    };
    let begun = Instant::now();
    let home = Home::adopt(home, format)?;
    let shown = show(&home, demo, format);
    if shown.is_err() {
        home.settle();
    }
    drop(home);
    shown?.finish(begun.elapsed(), format)
}

fn show(home: &Home, demo: &Demo, format: Format) -> Result<Report, Failure> {
    report::title(format)?;
    let root = home.path("files");
    std::fs::create_dir(&root).or_fail("cannot create a directory")?;
    let (source, name) = source(demo, &root)?;
    let scratch = FileServer::start(home, &root, "demo", true)?;
    // If the user names a file, a second server exports the directory of the file read-only.
    let other = match source.parent() {
        Some(parent) if demo.file.is_some() => {
            Some(FileServer::start(home, parent, "demo-source", false)?)
        }
        _ => None,
    };
    let served = other.as_ref().unwrap_or(&scratch);
    report::served(format, served)?;

    let copied = copy::copy(&served.client, &name, &source, &home.path("copy"))?;
    report::copied(format, &copied)?;
    check(copied.source == copied.copy, "the copy differs from the file")?;
    let (mut far, mut skipped) = (Vec::new(), None);
    for address in &served.addresses {
        let client = FilesClient::bind(address)?;
        let path = client.binding().path().to_string();
        let copied = copy::copy(&client, &name, &source, &home.path(&format!("copy-{path}")))?;
        report::copied_far(format, address, &path, &copied)?;
        check(copied.source == copied.copy, "the copy over a network path differs from the file")?;
        far.push((path, copied));
    }
    match link::missing().map_or_else(|| Link::new(home), Err) {
        Err(why) => {
            report::skipped(format, "ethernet", &why)?;
            skipped = Some(why);
        }
        Ok(link) => {
            let target = home.path("copy-ethernet");
            let (address, how, copied) = copy_over(&link, home, (&source, &name), &target)?;
            report::copied_far(format, &address, &how, &copied)?;
            check(
                copied.source == copied.copy,
                "the copy over raw Ethernet differs from the file",
            )?;
            far.push(("ethernet".to_owned(), copied));
        }
    }
    let (written, equal) = copy::write(&scratch.client, &root)?;
    report::written(format, written, equal)?;
    check(equal, "the written file differs from the sent bytes")?;
    let directions = call_directions(home, format)?;
    let rows = measure_rows(home, demo.quick)?;
    report::rows(format, &rows)?;
    Ok(Report {
        path: served.path(),
        server_process: served.process,
        bind: served.bind,
        source: source.display().to_string(),
        copied,
        far,
        skipped,
        written,
        directions,
        rows,
    })
}

/// Copies a file from a server at the far end of a link. Returns the address of the server, the network
/// device, and the result of the copy.
fn copy_over(
    link: &Link,
    home: &Home,
    (source, name): (&Path, &str),
    target: &Path,
) -> Result<(String, String, Copied), Failure> {
    let root = source.parent().and_then(Path::to_str).unwrap_or("/");
    let addresses = link.serve(home, (root, "demo-link"), "eth:")?;
    let address = addresses.into_iter().next().unwrap_or_default();
    let (how, copied) = link.near(|| {
        let client = FilesClient::bind(&address)?;
        let copied = copy::copy(&client, name, source, target)?;
        Ok((client.binding().explain().summary(), copied))
    })?;
    Ok((address, how, copied))
}

fn check(is_right: bool, otherwise: &str) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err(Failure::Refused(otherwise.to_owned())) }
}

/// Returns the path of the file to copy, and the name of the file in its directory.
fn source(demo: &Demo, root: &Path) -> Result<(PathBuf, String), Failure> {
    let Some(file) = &demo.file else {
        let bytes = demo.bytes.unwrap_or(if demo.quick { QUICK_BYTES } else { FILE_BYTES });
        copy::make(&root.join("large"), bytes)?;
        return Ok((root.join("large"), "large".to_owned()));
    };
    let what = format!("cannot copy {}", file.display());
    let source = file.canonicalize().or_fail(&what)?;
    let name = source.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let advice = "use a file whose name is valid UTF-8";
    Ok((source, name.ok_or_else(|| Failure::local(what, advice))?))
}

/// A server process that exports a directory, and a client that is bound to this server.
struct FileServer {
    process: u32,
    client: FilesClient,
    bind: Duration,
    /// The addresses of the server on network paths.
    addresses: Vec<String>,
}

impl FileServer {
    fn start(home: &Home, root: &Path, name: &str, writable: bool) -> Result<Self, Failure> {
        let shown = root.to_str();
        let advice = "use a temporary directory whose name is valid UTF-8";
        let shown = shown.ok_or_else(|| Failure::local("cannot serve a directory", advice))?;
        let mut arguments = vec!["serve", shown, "--name", name];
        arguments.extend(["--listen", "udp:127.0.0.1:0", "--listen", "tcp:127.0.0.1:0"]);
        if writable {
            arguments.push("--writable");
        }
        let (process, ready) = home.spawn(&arguments)?;
        let addresses = ready["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|one| one.as_str().map(str::to_owned)).collect();
        let begun = Instant::now();
        let client = FilesClient::bind(name)?;
        Ok(Self { process, client, bind: begun.elapsed(), addresses })
    }

    fn path(&self) -> String {
        self.client.binding().path().to_string()
    }
}

/// Calls one procedure for each parameter direction, in a separate server process.
fn call_directions(home: &Home, format: Format) -> Result<Vec<DirectionResult>, Failure> {
    let (process, _) =
        home.spawn(&["demo-server", "--name", "directions", "--wait", "adaptive"])?;
    let client = DirectionsClient::bind("directions")?;
    let answered = client.process()?;
    let shown = directions::show(&client)?;
    home.stop(process);
    report::directions(format, answered, &shown)?;
    let all = answered == process && shown.iter().all(|one| one.right);
    check(all, "a procedure returned a wrong result")?;
    Ok(shown)
}

fn measure_rows(home: &Home, quick: bool) -> Result<Vec<Row>, Failure> {
    let bar = output::bar(measure::rows() as u64, "measuring", Counted::Steps);
    let rows = measure::run(home, quick, || bar.inc(1));
    bar.finish_and_clear();
    rows
}
