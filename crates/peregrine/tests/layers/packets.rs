//! Tests that layers see how many packets of a call were sent again.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::support::KeepGoing;
use super::support::impairments::Impairments;
use super::support::relay::Relay;
use super::*;

/// Counts the retransmissions of calls.
struct Retransmissions(Arc<AtomicU32>);

impl Layer for Retransmissions {
    type State = LayerSide;

    fn begin(&self, call: &mut LayerCall<'_>) -> Result<LayerSide, LayerRefusal> {
        Ok(call.side())
    }

    fn end(&self, side: LayerSide, end: &LayerEnd<'_>) {
        assert!(side == LayerSide::Client || end.retransmissions() == 0);
        self.0.fetch_add(end.retransmissions(), Ordering::Relaxed);
    }
}

#[test]
fn retransmissions_of_lost_packets_are_counted() {
    const CLEAN: Impairments = Impairments {
        lost: 0,
        duplicated: 0,
        delayed: 0,
        delayed_us: 0,
        damaged: 0,
        delay_us: 0,
        cut_ms: (0, 0),
    };
    let _alone = alone();
    let _directory = own_directory();
    let count = Arc::new(AtomicU32::new(0));
    let layer = || Retransmissions(Arc::clone(&count));
    let server = Server::new().layer(layer());
    let server = server.export("work", WorkServer::new(Object::default())).unwrap();
    let running = server.listen("udp:127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = running.addresses()[0].to_string();
    let place = endpoint.strip_prefix("udp:").unwrap().parse().unwrap();
    let mut relay = Relay::new("127.0.0.1:0".parse().unwrap(), place, CLEAN, 7);
    let at = format!("udp:{}/work", relay.address());
    let (going, loses) = (AtomicBool::new(true), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _going = KeepGoing::new(&going);
        scope.spawn(|| {
            while going.load(Ordering::Relaxed) {
                let lost = if loses.load(Ordering::Relaxed) { 200 } else { 0 };
                relay.impair(Impairments { lost, ..CLEAN });
                relay.step(&mut |_, _| ());
            }
        });
        let work = client(&at, BindOptions::default().layer(layer()));
        let awaited = WorkAsyncClient::from(work.clone());
        let copies = |blocks: bool| {
            let mut into = Vec::with_capacity(8000);
            let out = Out::from(&mut into);
            match blocks {
                true => work.copy(&[7; 8000], out).unwrap(),
                false => block_on(WorkAsync::copy(&awaited, &[7; 8000], out)).unwrap(),
            }
            assert_eq!(into, [7; 8000]);
        };
        [true, false].into_iter().for_each(copies);
        assert_eq!(count.load(Ordering::Relaxed), 0);
        loses.store(true, Ordering::Relaxed);
        for blocks in [true, false] {
            count.store(0, Ordering::Relaxed);
            until("a packet of a call was lost", || {
                copies(blocks);
                count.load(Ordering::Relaxed) > 0
            });
        }
    });
    running.stop();
}
