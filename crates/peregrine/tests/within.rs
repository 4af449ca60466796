//! Tests `#[within(TIME)]`: whether the calls of a procedure take the times that its interface promises.

mod support;

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use peregrine::counters::{Stat, WithinStat};
use peregrine::{Insecure, Kind, Server, interface};
use support::futures::{block_on, join_all};
use support::link::{ENDS, Link, at_far_end, at_near_end};
use support::until;

#[interface]
trait Images {
    /// Every call is late.
    #[within(1ns)]
    fn slow(&self, number: u32) -> peregrine::Result<u32>;
    /// No call is late.
    #[within("1000s", of = 100)]
    fn quick(&self, number: u32) -> peregrine::Result<u32>;
    /// Takes some milliseconds.
    #[within(300ms, of = 99.5)]
    #[at_most(20)]
    fn nap(&self, ms: u32) -> peregrine::Result<u32>;
    #[within(1ns, of = 99.9)]
    fn panics_late(&self) -> peregrine::Result<()>;
    #[within(1000s)]
    fn panics_in_time(&self) -> peregrine::Result<()>;
    fn plain(&self, number: u32) -> peregrine::Result<u32>;
}

struct Studio;

impl Images for Studio {
    fn slow(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
    fn quick(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
    fn nap(&self, ms: u32) -> peregrine::Result<u32> {
        std::thread::sleep(Duration::from_millis(ms.into()));
        Ok(ms)
    }
    fn panics_late(&self) -> peregrine::Result<()> {
        panic!("the image is broken")
    }
    fn panics_in_time(&self) -> peregrine::Result<()> {
        panic!("the image is broken")
    }
    fn plain(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

/// Ends when some time has passed, and occupies no thread of the server until then.
async fn nap(ms: u32) {
    if ms == 0 {
        return;
    }
    let state: Arc<Mutex<(bool, Option<Waker>)>> = Arc::default();
    let sleeper = Arc::clone(&state);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(ms.into()));
        let mut state = sleeper.lock().unwrap();
        state.0 = true;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    });
    std::future::poll_fn(|context| {
        let mut state = state.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    })
    .await;
}

impl ImagesAsync for Studio {
    async fn slow(&self, number: u32) -> peregrine::Result<u32> {
        nap(number % 2).await;
        Ok(number)
    }
    async fn quick(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
    async fn nap(&self, ms: u32) -> peregrine::Result<u32> {
        nap(ms).await;
        Ok(ms)
    }
    async fn panics_late(&self) -> peregrine::Result<()> {
        panic!("the image is broken")
    }
    async fn panics_in_time(&self) -> peregrine::Result<()> {
        panic!("the image is broken")
    }
    async fn plain(&self, number: u32) -> peregrine::Result<u32> {
        Ok(number)
    }
}

type Reports = Arc<Mutex<Vec<String>>>;

fn server(is_async: bool) -> (Server, Reports) {
    let reports = Reports::default();
    let told = Arc::clone(&reports);
    let server = Server::new().on_late(move |late| {
        let (procedure, limit) = (late.procedure(), late.limit());
        let (is_late, count) = (late.is_late(), late.late());
        assert!(late.export() == "images" && late.to_string().contains(procedure));
        told.lock().unwrap().push(format!("{procedure} {limit:?} {is_late} {count}"));
    });
    let server = match is_async {
        false => server.export("images", ImagesServer::new(Studio)),
        true => server.export("images", ImagesAsyncServer::new(Studio)),
    };
    (server.unwrap(), reports)
}

fn within(stat: &Stat, procedure: &str) -> WithinStat {
    stat.procedure("images", procedure).expect("a row").within.expect("a promise")
}

/// Checks what the server at `address` reports of calls of a blocking client.
fn check(address: &str, reports: &Reports, stat: impl Fn() -> Stat) {
    let images = ImagesClient::bind(address).unwrap();
    for number in 0..10 {
        images.slow(number).unwrap();
        images.quick(number).unwrap();
        images.plain(number).unwrap();
    }
    let slow = within(&stat(), "slow");
    assert_eq!((slow.limit_ns, slow.promised, slow.calls), (1, 990, 10));
    assert_eq!((slow.late, slow.late_now, slow.late_for_ms), (10, 10, None));
    assert_eq!(*reports.lock().unwrap(), [""; 0]);
    for number in 0..50 {
        images.slow(number).unwrap();
    }
    let (slow, quick) = (within(&stat(), "slow"), within(&stat(), "quick"));
    assert_eq!((slow.calls, slow.late, slow.late_now), (60, 60, 60));
    assert!(slow.late_for_ms.is_some());
    assert_eq!((quick.limit_ns, quick.promised), (1_000_000_000_000, 1000));
    assert_eq!((quick.calls, quick.late, quick.late_for_ms), (10, 0, None));
    // A change is reported once, and not each late call.
    assert_eq!(*reports.lock().unwrap(), ["slow 1ns true 11"]);
    for _ in 0..3 {
        assert_eq!(images.panics_late().unwrap_err().kind(), Kind::Panicked);
        assert_eq!(images.panics_in_time().unwrap_err().kind(), Kind::Panicked);
    }
    assert_eq!(
        (within(&stat(), "panics_late").late, within(&stat(), "panics_in_time").calls),
        (3, 0)
    );
    assert_eq!(*reports.lock().unwrap(), ["slow 1ns true 11", "panics_late 1ns true 2"]);
    assert!(stat().procedure("images", "plain").is_none());
    let text = stat().to_prometheus();
    for line in [
        "in_time{export=\"images\",procedure=\"slow\"} 0",
        "in_time{export=\"images\",procedure=\"quick\"} 1",
    ] {
        assert!(text.contains(&format!("\nperegrine_procedure_{line}\n")), "{text}");
    }
}

#[test]
fn broken_promise_is_reported_once_on_every_path() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        support::paths::on_each_path(
            "images",
            || server(is_async),
            |address, reports| check(address, reports, || peregrine::stat("images").unwrap()),
        );
        at_near_end(Link::new(), |_| {
            let (server, reports) = server(is_async);
            let at = format!("eth:{}:0", ENDS[1]);
            let trusts = Insecure::ITrustThisNetwork;
            let server = server.listen_beyond_this_machine(&at, trusts).unwrap();
            let running = at_far_end(|| server.spawn().unwrap());
            let address = format!("{}/images", running.addresses()[0]);
            check(&address, &reports, || running.stat());
        });
    }
}

#[test]
fn promise_is_kept_again_after_a_thousand_calls() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        let (server, reports) = server(is_async);
        let running = server.spawn().unwrap();
        let images = ImagesClient::bind("images").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                // An async procedure is measured until it has ended, and not until it waits.
                scope.spawn(|| assert_eq!(images.clone().nap(320).unwrap(), 320));
            }
        });
        assert_eq!(*reports.lock().unwrap(), ["nap 300ms true 6"]);
        let nap = || within(&running.stat(), "nap");
        assert!(nap().late_for_ms.is_some());
        for _ in 0..1000 {
            images.nap(0).unwrap();
        }
        until("the promise is kept again", || {
            let is_kept = nap().late_for_ms.is_none();
            // On a machine with much to do, one of the thousand calls may have been late.
            is_kept || images.nap(0).is_err()
        });
        let reports = reports.lock().unwrap();
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert!(reports[1].starts_with("nap 300ms false "), "{reports:?}");
    }
}

#[test]
fn calls_in_batches_are_measured_one_by_one() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        support::paths::on_each_path(
            "images",
            || server(is_async),
            |address, reports| {
                let images = block_on(ImagesAsyncClient::bind(address)).unwrap();
                let calls = (0..200).map(|number| {
                    let images = images.clone();
                    async move { images.slow(number).await }
                });
                assert!(join_all(calls).into_iter().all(|outcome| outcome.is_ok()));
                let slow = within(&peregrine::stat("images").unwrap(), "slow");
                assert_eq!((slow.calls, slow.late, slow.late_now), (200, 200, 200));
                assert_eq!(reports.lock().unwrap().len(), 1);
            },
        );
    }
}

#[test]
fn hook_that_panics_harms_no_call() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let server = Server::new().on_late(|late| panic!("{late}"));
    let server = server.export("images", ImagesServer::new(Studio)).unwrap();
    let _running = server.spawn().unwrap();
    let images = ImagesClient::bind("images").unwrap();
    for number in 0..30 {
        assert_eq!(images.slow(number).unwrap(), number);
    }
    for _ in 0..3 {
        assert_eq!(images.panics_late().unwrap_err().kind(), Kind::Panicked);
    }
    assert!(within(&peregrine::stat("images").unwrap(), "panics_late").late_for_ms.is_some());
}

mod plain {
    use peregrine::interface;

    #[interface]
    pub(crate) trait Till {
        fn take(&self, count: u32) -> peregrine::Result<u32>;
    }
}

mod promised {
    use peregrine::interface;

    #[interface]
    pub(crate) trait Till {
        #[within(1.5ms, of = 99.9)]
        fn take(&self, count: u32) -> peregrine::Result<u32>;
    }
}

#[test]
fn promise_is_no_part_of_the_interface() {
    let [plain, promised] = [plain::TillClient::INTERFACE, promised::TillClient::INTERFACE];
    assert_eq!(plain.canonical_text(), promised.canonical_text());
    assert_eq!(plain.digest(), promised.digest());
}
