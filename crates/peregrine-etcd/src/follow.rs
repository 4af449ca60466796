//! Reads all keys once, and then follows the changes, at whichever member answers.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::time::{sleep, sleep_until};

use crate::gateway::{Gateway, Lines, OUT_OF_RANGE, Trouble, bytes, encoded, number};
use crate::known::{KEYS_MAX, Known, revision};
use crate::pause::{Pause, random_part};
use crate::place::Place;
use crate::shared::Shared;

/// The pauses between attempts. After the loss of a member, all its clients come to the other members within
/// the first pause.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Processes that must read everything again, for example because the cluster was begun anew, do so within
/// this time after the pause.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Processes that have come back ask for the number of keys within this time. For this, the member goes
/// through all keys.
const COUNT_WITHIN: Duration = Duration::from_secs(10);
/// The largest number of keys in one answer.
pub(crate) const PAGE: usize = 512;

/// Why a watch has ended.
enum End {
    /// Changes since the last answer are not lost: the cluster keeps them until it compacts.
    Watch(Trouble),
    /// All keys must be read again, for this reason.
    Known(&'static str),
}

impl From<Trouble> for End {
    fn from(trouble: Trouble) -> Self {
        Self::Watch(trouble)
    }
}

/// Follows the directory as long as the returned future is polled.
pub(crate) async fn follow(gateway: &Gateway, place: &Place, shared: &Shared) {
    let mut pause = Pause::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut reads = true;
    loop {
        let begun = Instant::now();
        let mut has_watched = false;
        let done = async {
            if reads {
                read(gateway, place, shared).await?;
            }
            changes(gateway, place, shared, !reads, &mut has_watched).await
        };
        match done.await {
            Ok(never) => match never {},
            Err(End::Known(why)) => {
                shared.lose(why.to_owned());
                reads = true;
            }
            Err(End::Watch(trouble)) => {
                shared.lose(trouble.to_string());
                reads = shared.with_known(|known| known.revision) == 0;
            }
        }
        // A member that ends each watch at once is not asked more and more often.
        if has_watched && begun.elapsed() > LONGEST_PAUSE {
            pause.reset();
        }
        sleep(next_pause(&mut pause, reads)).await;
    }
}

/// Returns the pause before the next attempt. Before a reading it is longer, because a reading costs more.
pub(crate) fn next_pause(pause: &mut Pause, reads: bool) -> Duration {
    let spread = if reads { random_part(READ_WITHIN) } else { Duration::ZERO };
    pause.next() + spread
}

/// Reads all keys, in parts of one revision.
async fn read(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<(), Trouble> {
    let garbled = |why: &str| Trouble::Garbled(why.to_owned());
    let mut new = Known::nothing(place.clone());
    let (mut from, mut page, mut seen) = (place.prefix.clone().into_bytes(), PAGE, 0);
    loop {
        let mut wanted = json!({
            "key": encoded(&from),
            "range_end": encoded(place.end()),
            "limit": page.to_string(),
        });
        if new.revision > 0 {
            wanted["revision"] = new.revision.to_string().into();
        }
        let answer = match gateway.ask("kv/range", &wanted).await {
            // Values may be long, also those that are no servers.
            Err(Trouble::TooLong) if page > 1 => {
                page /= 2;
                continue;
            }
            answer => answer?,
        };
        if revision(&answer).is_none_or(|revision| revision < 1) {
            return Err(garbled("the revision is missing"));
        }
        let pairs = answer.get("kvs").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        seen += pairs.len();
        let has_room = new.read(&answer) && seen < KEYS_MAX;
        if answer.get("more").and_then(Value::as_bool) != Some(true) {
            break;
        }
        if !has_room {
            // The number is that of the keys in this part and after it.
            let count = number(answer.get("count")).unwrap_or_default();
            new.leave_out(usize::try_from(count).unwrap_or(0).saturating_sub(pairs.len()).max(1));
            break;
        }
        let last = pairs.last().and_then(|pair| bytes(pair.get("key")));
        page = (page * 2).min(PAGE);
        let mut next = last.ok_or_else(|| garbled("a key is missing"))?;
        if next < from {
            return Err(garbled("the keys are not in order"));
        }
        next.push(0);
        from = next;
    }
    shared.learn(|known| known.replace(new, Instant::now()));
    Ok(())
}

/// Follows the changes until the member ends. With `continues`, the process comes back after a loss, and
/// checks that the cluster is the one that it knows.
async fn changes(
    gateway: &Gateway,
    place: &Place,
    shared: &Shared,
    continues: bool,
    has_watched: &mut bool,
) -> Result<Infallible, End> {
    let from = shared.with_known(|known| known.revision) + 1;
    let wanted = json!({ "create_request": {
        "key": encoded(&place.prefix),
        "range_end": encoded(place.end()),
        "start_revision": from.to_string(),
        "progress_notify": true,
    } });
    let mut lines = gateway.follow("watch", &wanted).await?;
    let mut counts_at = None;
    loop {
        let line = tokio::select! {
            line = next_line(gateway, place, shared, &mut lines) => line,
            () = until(counts_at) => {
                counts_at = None;
                compare_count(gateway, place, shared).await?;
                continue;
            }
        };
        let line = match line {
            Ok(Some(line)) => line,
            Ok(None) => {
                gateway.move_on(&lines);
                return Err(Trouble::Away("the member has ended the watch".to_owned()).into());
            }
            // Without a reading, they would be too long again.
            Err(Trouble::TooLong) => return Err(End::Known("the changes are too long")),
            Err(trouble) => {
                gateway.move_on(&lines);
                return Err(trouble.into());
            }
        };
        let is = |member: &str| line.get(member).and_then(Value::as_bool) == Some(true);
        if is("canceled") {
            // The cluster has compacted the changes that this process has missed.
            if number(line.get("compact_revision")).is_some_and(|revision| revision > 0) {
                return Err(End::Known("the cluster has compacted its changes"));
            }
            // A member also ends the watch for a token that it does not know any more.
            gateway.forget_token();
            gateway.move_on(&lines);
            let why = line.get("cancel_reason").and_then(Value::as_str).unwrap_or("no reason");
            return Err(Trouble::Ended(why.to_owned()).into());
        }
        if !is("created") {
            shared.learn(|known| known.change(&line));
            continue;
        }
        // A cluster that was begun anew counts from 1 again, and would be silent until it reached the old
        // revision.
        if shared.with_known(|known| known.is_anew(&line)) {
            return Err(End::Known(ANEW));
        }
        // The watch ends if the cluster is begun anew from now on.
        if continues {
            compare_last(gateway, place, shared).await?;
            counts_at = Some(Instant::now() + random_part(COUNT_WITHIN));
        }
        *has_watched = true;
        shared.learn(|_| BTreeSet::new());
    }
}

const ANEW: &str = "the cluster was begun anew";

/// Waits until this time, or for ever.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// Waits for the next line. Meanwhile drops servers whose grace time has passed, and asks the member from
/// time to time whether it runs.
async fn next_line(
    gateway: &Gateway,
    place: &Place,
    shared: &Shared,
    lines: &mut Lines,
) -> Result<Option<Value>, Trouble> {
    let check_after = place.check_after();
    let next_check = || Instant::now() + check_after - random_part(check_after / 4);
    let mut check = next_check();
    loop {
        let next_end = shared.with_known(Known::next_end);
        let until = next_end.map_or(check, |end| end.min(check));
        tokio::select! {
            line = lines.next() => return line,
            () = sleep_until(until.into()) => {}
        }
        if Instant::now() >= check {
            gateway.check(lines).await?;
            check = next_check();
        }
        if next_end.is_some_and(|end| end <= Instant::now()) {
            shared.learn(|known| known.expire(Instant::now()));
        }
    }
}

/// Compares the last key that is known with that of the cluster. This costs the member little.
async fn compare_last(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<(), End> {
    let (is_whole, key) = shared.with_known(|known| (known.is_whole(), known.last_key()));
    if !is_whole {
        return Err(End::Known("not all keys are known"));
    }
    match key {
        Some(key) => {
            let range = json!({ "key": encoded(key), "keys_only": true });
            compare(gateway, shared, range, Known::fits_last).await
        }
        // Nothing has to be counted.
        None => compare_count(gateway, place, shared).await,
    }
}

/// Compares the number of keys that are known with that of the cluster. The member counts all of them.
async fn compare_count(gateway: &Gateway, place: &Place, shared: &Shared) -> Result<(), End> {
    let all = encoded(&place.prefix);
    let range = json!({ "key": all, "range_end": encoded(place.end()), "count_only": true });
    compare(gateway, shared, range, Known::fits_count).await
}

/// Asks for a range as of the known revision, and compares the answer with what is known.
async fn compare(
    gateway: &Gateway,
    shared: &Shared,
    mut range: Value,
    fits: fn(&Known, &Value) -> bool,
) -> Result<(), End> {
    range["revision"] = shared.with_known(|known| known.revision).to_string().into();
    match gateway.ask("kv/range", &range).await {
        Ok(answer) if shared.with_known(|known| fits(known, &answer)) => Ok(()),
        // The revision was compacted, or lies in the future. A reading shows which.
        Err(Trouble::Refused(code, _)) if code == OUT_OF_RANGE => {
            Err(End::Known("the cluster does not have the known revision"))
        }
        Ok(_) => {
            shared.learn_of_loss();
            Err(End::Known(ANEW))
        }
        Err(trouble) => Err(trouble.into()),
    }
}
