//! A queue of jobs with 1,000 async workers: `cargo run --example jobs -- serve` in one terminal,
//! `cargo run --example jobs -- work` in others, and `cargo run --example jobs -- submit 10000` to do some work.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use peregrine::{CallError, Server, Source, interface};
use tokio::sync::{Notify, oneshot};

/// The number of workers of a process.
const WORKERS: usize = 1000;

/// A queue of jobs: numbers whose squares are wanted.
#[interface]
pub trait Jobs {
    /// Lets workers square the numbers. Returns the sum of the squares.
    fn submit(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Waits for a job. Returns its identifier and its number.
    fn take(&self) -> peregrine::Result<(u64, u64)>;
    /// Completes a job.
    fn complete(&self, job: u64, square: u64) -> peregrine::Result<()>;
}

#[derive(Default)]
struct Queue {
    /// The jobs that wait for a worker.
    waiting: Mutex<VecDeque<(u64, u64)>>,
    /// What waits for each job.
    submitted: Mutex<HashMap<u64, oneshot::Sender<u64>>>,
    last: AtomicU64,
    added: Notify,
}

impl JobsAsync for Queue {
    async fn submit(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let mut squares = Vec::new();
        while let Some(number) = numbers.next_async().await? {
            let (sender, square) = oneshot::channel();
            let job = self.last.fetch_add(1, Ordering::Relaxed);
            self.submitted.lock().unwrap().insert(job, sender);
            self.waiting.lock().unwrap().push_back((job, number));
            self.added.notify_one();
            squares.push(square);
        }
        let mut sum = 0;
        for square in squares {
            sum += square.await.expect("jobs are not dropped");
        }
        Ok(sum)
    }
    async fn take(&self) -> peregrine::Result<(u64, u64)> {
        loop {
            let added = self.added.notified();
            if let Some(job) = self.waiting.lock().unwrap().pop_front() {
                return Ok(job);
            }
            added.await;
        }
    }
    async fn complete(&self, job: u64, square: u64) -> peregrine::Result<()> {
        if let Some(sender) = self.submitted.lock().unwrap().remove(&job) {
            // The client that has submitted the job may have gone.
            let _ = sender.send(square);
        }
        Ok(())
    }
}

/// Runs workers until the server ends.
#[tokio::main(flavor = "current_thread")]
async fn work() -> Result<(), CallError> {
    let jobs = JobsAsyncClient::bind("jobs").await?;
    let worker = async |jobs: JobsAsyncClient| loop {
        let (job, number) = jobs.take().await?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        jobs.complete(job, number * number).await?;
    };
    try_join_all((0..WORKERS).map(|_| worker(jobs.clone()))).await.map(|_: Vec<()>| ())
}

fn main() -> Result<(), CallError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve"] => {
            let queue = JobsAsyncServer::new(Queue::default());
            Server::new().export("jobs", queue)?.stop_on_signals().run()?;
        }
        ["work"] => work()?,
        ["submit", count] => {
            let count: u64 = count.parse().expect("a number of jobs");
            println!("{}", JobsClient::bind("jobs")?.submit(Source::new(1..=count))?);
        }
        _ => println!("usage: jobs serve | jobs work | jobs submit COUNT"),
    }
    Ok(())
}
