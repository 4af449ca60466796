//! Tests readers that never read, and streams that never end.

use std::time::{Duration, Instant};

use peregrine::{Sink, Source, limits};

use super::support::{alone, until};
use super::*;

/// The number of streams that are never read.
const STREAMS: u64 = 30;

/// Waits until a number does not change any more. Returns it.
fn settled(number: &AtomicU64) -> u64 {
    let mut before = (number.load(Ordering::SeqCst), Instant::now());
    until("a number settles", || {
        let now = number.load(Ordering::SeqCst);
        if now != before.0 {
            before = (now, Instant::now());
        }
        now > 0 && before.1.elapsed() > Duration::from_millis(200)
    });
    before.0
}

#[test]
fn streams_that_are_not_read_hold_bounded_memory_and_delay_no_other_call() {
    let _alone = alone();
    for way in Way::ALL {
        println!("{way:?}");
        let world = World::new(way);
        let (client, seen) = (&world.client, world.seen());
        std::thread::scope(|scope| {
            let unread = (0..STREAMS).map(|_| {
                let (sink, items) = Sink::channel(1);
                (scope.spawn(move || client.count(u64::MAX, 1000, sink)), items)
            });
            let unread: Vec<_> = unread.collect();
            until("all procedures run", || seen.running.load(Ordering::SeqCst) == STREAMS);
            // For each stream, the procedure can send at most the items of the window, and the few
            // items that each side has already decoded.
            let sent = settled(&seen.sent);
            let most = STREAMS * (limits::STREAM_WINDOW as u64 / 1000 + 40);
            assert!(sent <= most, "{sent} items were sent, and at most {most} are expected");
            for number in 0..100 {
                assert_eq!(client.add(number).unwrap(), 1);
            }
            (0..100).for_each(|number| client.note(number).unwrap());
            client.flush().unwrap();
            let items = (0..5000).map(|number| Item::new(number, 100));
            assert_eq!(client.check(Source::new(items)).unwrap(), 5000);
            assert_eq!(settled(&seen.sent), sent);
            for (call, items) in unread {
                drop(items);
                let taken = call.join().unwrap().unwrap();
                assert!(taken.is_some_and(|taken| taken <= 2), "{taken:?}");
            }
        });
        until("all procedures end", || seen.running.load(Ordering::SeqCst) == 0);
        assert!(seen.notes.lock().unwrap().iter().copied().eq(0..100));
    }
}
