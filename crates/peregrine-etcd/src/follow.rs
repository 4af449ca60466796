//! Reads all keys once, and then follows the changes, at whichever member answers.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::gateway::{Gateway, Trouble, encoded, number};
use crate::known::revision;
use crate::pause::Pause;
use crate::place::Place;
use crate::shared::Shared;

/// What to do next.
enum Next {
    Read,
    Follow,
}

/// Follows the directory as long as the returned future is polled.
pub(crate) async fn follow(gateway: &Gateway, place: &Place, shared: &Shared) {
    let mut pause = Pause::new(Duration::from_millis(50), Duration::from_secs(5));
    let mut next = Next::Read;
    loop {
        let done = match next {
            Next::Read => read(gateway, place, shared).await.map(|()| Next::Follow),
            Next::Follow => changes(gateway, place, shared).await,
        };
        next = match done {
            Ok(done) => {
                pause.reset();
                done
            }
            Err(trouble) => {
                shared.lose(trouble.to_string());
                sleep(pause.next()).await;
                // Changes since the last answer are not lost: the cluster keeps them until it compacts.
                if shared.revision() > 0 { Next::Follow } else { Next::Read }
            }
        };
    }
}

async fn read(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<(), Trouble> {
    let keys = json!({ "key": encoded(&place.prefix), "range_end": encoded(&place.end()) });
    let answer = gateway.ask("kv/range", &keys).await?;
    if revision(&answer).is_none() {
        return Err(Trouble::Garbled("the revision is missing".to_owned()));
    }
    shared.learn(|known| known.replace(&answer));
    Ok(())
}

/// Follows the changes until the member ends. Returns what to do if the cluster ends the watch.
async fn changes(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<Next, Trouble> {
    let from = shared.revision() + 1;
    let wanted = json!({ "create_request": {
        "key": encoded(&place.prefix),
        "range_end": encoded(&place.end()),
        "start_revision": from.to_string(),
        "progress_notify": true,
    } });
    let mut lines = gateway.follow("watch", &wanted).await?;
    loop {
        let Some(line) = lines.next().await? else {
            gateway.move_on();
            return Err(Trouble::Away("the member has ended the watch".to_owned()));
        };
        let is = |member: &str| line.get(member).and_then(Value::as_bool) == Some(true);
        if is("canceled") {
            // The cluster has compacted the changes that this process has missed.
            if number(line.get("compact_revision")).is_some_and(|revision| revision > 0) {
                return Ok(Next::Read);
            }
            gateway.move_on();
            let why = line.get("cancel_reason").and_then(Value::as_str).unwrap_or("no reason");
            return Err(Trouble::Away(format!("the cluster has ended the watch: {why}")));
        }
        // A cluster that was begun anew counts from 1 again, and would be silent until it reached the old
        // revision.
        if is("created") && revision(&line).is_some_and(|now| now + 1 < from) {
            return Ok(Next::Read);
        }
        shared.take(&line);
    }
}
