//! Tests of how the window of a flow grows, and how losses reduce it. The window is the number of positions,
//! that is, of packets with a piece of a message, that may be in flight.

use super::*;

const BEGIN: Moment = Moment(SECOND);

/// Returns a flow in slow start whose window has grown to `window`, on a path with the given round trip.
fn grown(window: u32, round_trip: u64) -> Flow {
    let mut flow = Flow::new(Some(round_trip));
    flow.acknowledged(BEGIN, window - WINDOW_FIRST);
    assert_eq!(flow.window(), window);
    flow
}

/// Simulates round trips of the same length. In each round trip the receiver acknowledges a whole window.
struct RoundTrips {
    flow: Flow,
    round_trip: u64,
    now: Moment,
}

impl RoundTrips {
    fn new(flow: Flow, round_trip: u64) -> Self {
        Self { flow, round_trip, now: BEGIN }
    }

    /// Returns the window after `round_trips` more round trips.
    fn after(&mut self, round_trips: u64) -> u32 {
        for _ in 0..round_trips {
            self.flow.acknowledged(self.now, self.flow.window());
            self.now = self.now.after(self.round_trip);
        }
        self.flow.window()
    }
}

#[test]
fn slow_start_doubles_the_window_each_round_trip_until_a_loss() {
    let mut way = RoundTrips::new(Flow::new(None), 10 * MILLISECOND);
    let windows = [1, 1, 1].map(|once| way.after(once));
    assert_eq!(windows, [2, 4, 8].map(|times| times * WINDOW_FIRST));
    way.flow.reduce();
    let reduced = way.flow.window();
    let once = way.after(1);
    assert!(once < reduced + 10, "{reduced} became {once}");
}

/// After the loss, the window needs nine seconds, the cube root of `300 / C`, to return to its former size of
/// 1,000.
#[test]
fn window_recovers_after_a_loss_and_stays_for_a_while() {
    let mut flow = grown(1000, 100 * MILLISECOND);
    flow.reduce();
    assert_eq!(flow.window(), 700);
    let mut way = RoundTrips::new(flow, 100 * MILLISECOND);
    let windows = [45, 30, 15, 15].map(|more| way.after(more));
    // The window grows fast at first. It grows slowly near the size at which the packet was lost.
    let expected = [960..970, 996..1000, 998..1001, 1000..1004];
    for (window, expected) in windows.iter().zip(&expected) {
        assert!(expected.contains(window), "{windows:?}");
    }
}

/// The second loss shows that another flow needs capacity. The window then returns to less than its size at
/// the second loss. It stays there for a while, so that the other flow can grow.
#[test]
fn flow_that_loses_below_its_former_window_leaves_room_for_others() {
    let mut flow = grown(1000, 100 * MILLISECOND);
    flow.reduce();
    flow.reduce();
    assert!((489..=490).contains(&flow.window()));
    let mut way = RoundTrips::new(flow, 100 * MILLISECOND);
    // The window returns to 595, which is 0.85 times the window at the second loss. This takes 6.4 seconds,
    // which is the cube root of `105 / C`.
    let windows = [32, 32].map(|more| way.after(more));
    assert!((575..590).contains(&windows[0]) && (593..598).contains(&windows[1]), "{windows:?}");
}

/// If round trips are short, the cubic curve grows more slowly than Reno's window. The window then follows
/// Reno's window, like the window of the kernel's TCP does. So the flow takes no more of a link than TCP.
#[test]
fn window_grows_as_fast_as_reno_on_short_round_trips() {
    let mut flow = grown(100, MILLISECOND);
    flow.reduce();
    assert_eq!(flow.window(), 70);
    let mut way = RoundTrips::new(flow, MILLISECOND);
    // The window grows by 9/17 of a position each round trip.
    let windows = [17, 34].map(|more| way.after(more));
    assert!((78..=79).contains(&windows[0]) && (96..=97).contains(&windows[1]), "{windows:?}");
}

/// While nothing is sent, the window halves repeatedly, down to the initial window of an unknown path.
#[test]
fn window_halves_for_each_idle_time() {
    let at = |times: u64| BEGIN.after(times * IDLE + MILLISECOND);
    for (times, left) in [(0, 16), (1, 8), (3, 2), (4, 1), (5, 1), (100_000, 1)] {
        let mut flow = grown(16 * WINDOW_FIRST, 10 * MILLISECOND);
        flow.share(at(times), u16::MAX, &mut 0);
        assert_eq!(flow.window(), left * WINDOW_FIRST, "after {times} idle periods");
    }
    // The decay does not depend on how often blocked handles ask for their share of the window.
    for step in [1, 10, 150, 300, 600] {
        let mut flow = grown(16 * WINDOW_FIRST, 10 * MILLISECOND);
        for once in 1..=600 / step {
            flow.share(BEGIN.after(once * step * MILLISECOND), u16::MAX, &mut 0);
        }
        assert_eq!(flow.window(), 2 * WINDOW_FIRST, "a poll every {step} ms");
    }
    // A window that is used does not decay.
    let mut flow = grown(16 * WINDOW_FIRST, 10 * MILLISECOND);
    for once in 1..10 {
        flow.share(BEGIN.after(once * 150 * MILLISECOND), u16::MAX, &mut 0);
        flow.sends(BEGIN.after(once * 150 * MILLISECOND));
    }
    assert_eq!(flow.window(), 16 * WINDOW_FIRST);
    // On a long path, an idle period is two round trips.
    let mut flow = grown(16 * WINDOW_FIRST, SECOND);
    flow.share(at(9), u16::MAX, &mut 0);
    assert_eq!(flow.window(), 16 * WINDOW_FIRST);
    flow.share(at(11), u16::MAX, &mut 0);
    assert_eq!(flow.window(), 8 * WINDOW_FIRST);
}
