//! The program of the chapter about types in docs/GUIDE.md.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use peregrine::{Server, Value, interface};

/// What a machine has to do.
#[derive(Debug, Value)]
pub struct Job {
    output: PathBuf,
    limit: Duration,
    variables: BTreeMap<String, String>,
    log_to: Option<SocketAddr>,
}

/// A part of a longer list of items of any type.
#[derive(Debug, Value)]
pub struct Page<T> {
    items: Vec<T>,
    next: Option<u64>,
}

/// A linked list of any length.
#[derive(Debug, Default, Value)]
pub struct Steps {
    seconds: u32,
    #[list]
    next: Option<Box<Self>>,
}

/// Machines that build programs.
#[interface]
pub trait Builder {
    /// Returns the first jobs that wait.
    fn waiting(&self) -> peregrine::Result<Page<Job>>;
    /// Returns the sum of the times of all steps.
    fn duration(&self, steps: &Steps) -> peregrine::Result<Duration>;
}

struct Machines;

impl Builder for Machines {
    fn waiting(&self) -> peregrine::Result<Page<Job>> {
        let job = Job {
            output: PathBuf::from("/tmp/build"),
            limit: Duration::from_millis(1500),
            variables: BTreeMap::from([("LANG".into(), "C".into())]),
            log_to: Some(SocketAddr::from(([192, 0, 2, 7], 514))),
        };
        Ok(Page { items: vec![job], next: None })
    }
    fn duration(&self, steps: &Steps) -> peregrine::Result<Duration> {
        let (mut step, mut seconds) = (steps, u64::from(steps.seconds));
        while let Some(next) = &step.next {
            seconds += u64::from(next.seconds);
            step = next;
        }
        Ok(Duration::from_secs(seconds))
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("builder", BuilderServer::new(Machines))?.spawn()?;
    let builder = BuilderClient::bind("builder")?;
    println!("{:?}", builder.waiting()?);

    let last = Steps::default();
    let step = |next, seconds| Steps { seconds, next: Some(Box::new(next)) };
    let steps = (1..100_000).fold(last, |steps, _| step(steps, 2));
    println!("{:?}", builder.duration(&steps)?);
    Ok(())
}
