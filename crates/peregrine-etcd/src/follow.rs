//! Reads all keys once, and then follows the changes, at whichever member answers.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until};

use crate::gateway::{Gateway, Trouble, encoded, number};
use crate::known::{Known, revision};
use crate::pause::Pause;
use crate::place::Place;
use crate::shared::Shared;

/// The pauses between attempts. After the loss of a member, all its clients come to the other members within
/// the first pause.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Follows the directory as long as the returned future is polled.
pub(crate) async fn follow(gateway: &Gateway, place: &Place, shared: &Shared) {
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut reads = true;
    loop {
        let done = async {
            if reads {
                read(gateway, place, shared).await?;
            }
            changes(gateway, place, shared, &mut pause).await
        };
        match done.await {
            Ok(why) => {
                shared.lose(why);
                reads = true;
            }
            Err(trouble) => {
                shared.lose(trouble.to_string());
                // Changes since the last answer are not lost: the cluster keeps them until it compacts.
                reads = shared.with_known(|known| known.revision) == 0;
            }
        }
        sleep(pause.next()).await;
    }
}

async fn read(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<(), Trouble> {
    let keys = json!({ "key": encoded(&place.prefix), "range_end": encoded(&place.end()) });
    let answer = gateway.ask("kv/range", &keys).await?;
    if revision(&answer).is_none() {
        return Err(Trouble::Garbled("the revision is missing".to_owned()));
    }
    shared.learn(|known| known.replace(&answer, Instant::now()));
    Ok(())
}

/// Follows the changes until the member ends. Returns why everything must be read again, if it must.
async fn changes(
    gateway: &Gateway,
    place: &Place,
    shared: &Shared,
    pause: &mut Pause,
) -> Result<String, Trouble> {
    let from = shared.with_known(|known| known.revision) + 1;
    let wanted = json!({ "create_request": {
        "key": encoded(&place.prefix),
        "range_end": encoded(&place.end()),
        "start_revision": from.to_string(),
        "progress_notify": true,
    } });
    let mut lines = gateway.follow("watch", &wanted).await?;
    loop {
        let next_end = shared.with_known(Known::next_end);
        let end = async {
            match next_end {
                Some(end) => sleep_until(end.into()).await,
                None => core::future::pending().await,
            }
        };
        let line = tokio::select! {
            line = lines.next() => line?,
            () = end => {
                shared.learn(|known| known.expire(Instant::now()));
                continue;
            }
        };
        let Some(line) = line else {
            gateway.move_on();
            return Err(Trouble::Away("the member has ended the watch".to_owned()));
        };
        let is = |member: &str| line.get(member).and_then(Value::as_bool) == Some(true);
        if is("canceled") {
            // The cluster has compacted the changes that this process has missed.
            if number(line.get("compact_revision")).is_some_and(|revision| revision > 0) {
                return Ok("the cluster has compacted its changes".to_owned());
            }
            // A member also ends the watch for a token that it does not know any more.
            gateway.forget_token();
            gateway.move_on();
            let why = line.get("cancel_reason").and_then(Value::as_str).unwrap_or("no reason");
            return Err(Trouble::Ended(why.to_owned()));
        }
        // A cluster that was begun anew counts from 1 again, and would be silent until it reached the old
        // revision.
        if is("created") && shared.with_known(|known| known.is_anew(&line)) {
            return Ok("the cluster was begun anew".to_owned());
        }
        pause.reset();
        if is("created") {
            shared.learn(|_| BTreeSet::new());
        } else {
            shared.learn(|known| known.change(&line));
        }
    }
}
