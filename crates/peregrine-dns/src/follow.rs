//! The task of a name. It asks while a look-up wants to know, and while there are watches. There is only one
//! task for a name, so many look-ups and watches cause no more questions than one.

use std::sync::Arc;

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
        tokio::spawn(async move { asks.follow(&name).await });
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
