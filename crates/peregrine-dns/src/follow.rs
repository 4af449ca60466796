//! The task of a name. It asks while a look-up wants to know, and while there are watches. There is only one
//! task for a name, so many look-ups and watches cause no more questions than one.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep_until;

use crate::ask::NameServers;
use crate::place::Place;
use crate::round;
use crate::shared::{Next, Shared};

/// What all tasks of a directory need.
pub(crate) struct Asks {
    pub(crate) place: Place,
    pub(crate) name_servers: NameServers,
    pub(crate) shared: Arc<Shared>,
}

/// Begins a task for each name that is received, until the sender is gone.
pub(crate) async fn follow(asks: Asks, mut names: UnboundedReceiver<String>) {
    let asks = Arc::new(asks);
    while let Some(name) = names.recv().await {
        let asks = Arc::clone(&asks);
        tokio::spawn(async move {
            attended(|| asks.follow(&name), || asks.shared.fail(&name)).await;
        });
    }
}

/// Runs a task until it returns. After each panic, calls `failed`, and runs it again.
async fn attended<F: Future<Output = ()>>(task: impl Fn() -> F, failed: impl Fn()) {
    while AssertUnwindSafe(task()).catch_unwind().await.is_err() {
        failed();
    }
}

impl Asks {
    async fn follow(&self, name: &str) {
        loop {
            match self.shared.next(name) {
                Next::Ask(answers) => self.ask(name, &answers).await,
                Next::Wait(until, wakes) => {
                    tokio::select! {
                        () = sleep_until(until.into()) => {}
                        () = wakes.notified() => {}
                    }
                }
                Next::End => return,
            }
        }
    }

    async fn ask(&self, name: &str, answers: &round::Answers) {
        let round = round::ask(&self.name_servers, &self.place, name, answers).await;
        if round.trouble.is_some() {
            self.name_servers.refresh();
        }
        for (watching, offers) in self.shared.take(name, round) {
            // A watcher may take long, and may look up names itself.
            if watching.note(offers) {
                drop(tokio::task::spawn_blocking(move || watching.run()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn task_goes_on_after_a_panic() {
        let (runs, failures) = (Cell::new(0), Cell::new(0));
        let task = || async {
            runs.set(runs.get() + 1);
            assert!(runs.get() > 2, "the task panics twice");
        };
        attended(task, || failures.set(failures.get() + 1)).await;
        assert_eq!((runs.get(), failures.get()), (3, 2));
    }

    #[test]
    fn look_up_is_answered_after_a_panic_of_the_task() {
        let (shared, limit) = (Shared::default(), Duration::from_secs(60));
        let error = std::thread::scope(|scope| {
            let begin = || {
                scope.spawn(|| {
                    assert!(matches!(shared.next("files"), Next::Ask(_)));
                    shared.fail("files");
                });
            };
            shared.look_up("files", limit, limit, begin).unwrap_err()
        });
        assert!(error.contains("panicked"), "{error}");
        assert!(matches!(shared.next("files"), Next::End));
    }
}
