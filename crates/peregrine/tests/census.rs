//! Tests the census: how many bytes the calls of each procedure carry, and where they come from.

mod support;

use std::task::Poll;

use peregrine::counters::{Census, Stat};
use peregrine::{CallError, ExportOptions, Insecure, Lent, Out, Server, Sink, interface};
use support::futures::{block_on, join_all};
use support::link::{ENDS, Link, at_far_end, at_near_end};

#[interface]
trait Store {
    fn put(&self, bytes: &[u8]) -> peregrine::Result<()>;
    fn lend(&self, bytes: Lent<'_, u8>) -> peregrine::Result<()>;
    fn get(&self, bytes: u32, into: Out<'_, u8>) -> peregrine::Result<()>;
    fn fails(&self, number: u64) -> Result<(), Failure>;
    fn panics(&self) -> peregrine::Result<()>;
    fn list(&self, items: Sink<'_, u64>) -> peregrine::Result<()>;
    #[oneway]
    fn note(&self, number: u64) -> peregrine::Result<()>;
    #[at_most(3)]
    fn echo(&self, number: u64) -> peregrine::Result<u64>;
}

/// The error of a procedure.
#[derive(Debug, PartialEq, peregrine::Value)]
enum Failure {
    Number(u64),
    Call(String),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

struct Shelf;

impl Store for Shelf {
    fn put(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }
    fn lend(&self, _: Lent<'_, u8>) -> peregrine::Result<()> {
        Ok(())
    }
    fn get(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![7; bytes as usize]).expect("enough space");
        Ok(())
    }
    fn fails(&self, number: u64) -> Result<(), Failure> {
        Err(Failure::Number(number))
    }
    fn panics(&self) -> peregrine::Result<()> {
        panic!("the shelf is broken")
    }
    fn list(&self, mut items: Sink<'_, u64>) -> peregrine::Result<()> {
        (0..1000).try_for_each(|item| items.send(item))
    }
    fn note(&self, _: u64) -> peregrine::Result<()> {
        Ok(())
    }
    fn echo(&self, number: u64) -> peregrine::Result<u64> {
        Ok(number)
    }
}

/// Ends at the second poll, so that the call is deferred.
async fn later() {
    let mut polled = false;
    std::future::poll_fn(|context| {
        if core::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl StoreAsync for Shelf {
    async fn put(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }
    async fn lend(&self, _: Lent<'_, u8>) -> peregrine::Result<()> {
        Ok(())
    }
    async fn get(&self, bytes: u32, mut into: Out<'_, u8>) -> peregrine::Result<()> {
        into.put(&vec![7; bytes as usize]).expect("enough space");
        Ok(())
    }
    async fn fails(&self, number: u64) -> Result<(), Failure> {
        later().await;
        Err(Failure::Number(number))
    }
    async fn panics(&self) -> peregrine::Result<()> {
        panic!("the shelf is broken")
    }
    async fn list(&self, mut items: Sink<'_, u64>) -> peregrine::Result<()> {
        for item in 0..1000 {
            items.send_async(item).await?;
        }
        Ok(())
    }
    async fn note(&self, _: u64) -> peregrine::Result<()> {
        Ok(())
    }
    async fn echo(&self, number: u64) -> peregrine::Result<u64> {
        later().await;
        Ok(number)
    }
}

fn server(is_async: bool) -> Server {
    let server = Server::new().census();
    match is_async {
        false => server.export("store", StoreServer::new(Shelf)),
        true => server.export("store", StoreAsyncServer::new(Shelf)),
    }
    .unwrap()
}

fn census(stat: &Stat, procedure: &str) -> Census {
    let found = stat.procedure("store", procedure).expect("the procedure has a row");
    found.census.clone().expect("the server makes a census")
}

/// Makes calls of all procedures, and checks the census of each. All calls come from other machines, or none.
fn check(address: &str, is_remote: bool, stat: impl Fn() -> Stat) {
    let store = StoreClient::bind(address).unwrap();
    for bytes in [0, 100, 1000, 5000, 5000, 70_000] {
        store.put(&vec![7; bytes]).unwrap();
        store.lend(Lent::from(&vec![7; bytes][..])).unwrap();
    }
    let mut buffer = vec![0; 6000];
    for bytes in [0, 100, 5000] {
        store.get(bytes, Out::from(&mut buffer)).unwrap();
    }
    assert_eq!(store.fails(7), Err(Failure::Number(7)));
    assert!(store.panics().is_err());
    let mut items = Vec::new();
    store.list(Sink::from(&mut items)).unwrap();
    assert_eq!(items.len(), 1000);
    // More one-way calls may be sent by a thread that is not in the namespace of the link.
    let notes = if is_remote { 1 } else { 20 };
    for number in 0..notes {
        store.note(number).unwrap();
    }
    store.flush().unwrap();
    for number in 0..3 {
        assert_eq!(store.echo(number).unwrap(), number);
    }
    let stat = stat();
    let with_remote = |census: &Census| {
        assert_eq!(census.remote, if is_remote { census.calls() } else { 0 });
        assert_eq!(census.calls(), census.results.calls());
        census.calls()
    };
    for put in ["put", "lend"] {
        let put = census(&stat, put);
        assert_eq!((with_remote(&put), put.arguments.in_one_packet()), (6, 3));
        let of = |bytes: u64| {
            let mut buckets = put.arguments.buckets();
            buckets.find(|(range, _)| range.contains(&bytes)).unwrap().1
        };
        assert_eq!((of(5010), of(70_010)), (2, 1));
        assert_eq!(put.results.in_one_packet(), 6);
    }
    let get = census(&stat, "get");
    assert_eq!((with_remote(&get), get.results.in_one_packet()), (3, 2));
    assert_eq!((get.arguments.in_one_packet(), get.results.percentile(1.0)), (3, Some(8191)));
    let fails = census(&stat, "fails");
    assert_eq!(with_remote(&fails), 1);
    assert!(fails.results.percentile(1.0) >= Some(8), "the error has bytes");
    // There is no result of a panic.
    assert_eq!(with_remote(&census(&stat, "panics")), 0);
    assert_eq!(with_remote(&census(&stat, "list")), 1);
    assert_eq!(with_remote(&census(&stat, "note")), notes);
    assert_eq!(with_remote(&census(&stat, "echo")), 3);
    let echo = stat.procedure("store", "echo").unwrap().at_most.unwrap();
    assert_eq!((echo.most, echo.running, echo.refused), (3, 0, 0));
    let text = stat.to_prometheus();
    let labels = "{export=\"store\",procedure=\"put\"}";
    assert!(text.contains(&format!("\nperegrine_procedure_argument_bytes_count{labels} 6\n")));
}

#[test]
fn sizes_and_places_are_counted_on_every_path() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        let start = || (server(is_async), ());
        support::paths::on_each_path("store", start, |address, ()| {
            check(address, false, || peregrine::stat("store").unwrap());
        });
        at_near_end(Link::new(), |_| {
            let at = format!("eth:{}:0", ENDS[1]);
            let trusts = Insecure::ITrustThisNetwork;
            let server = server(is_async).listen_beyond_this_machine(&at, trusts).unwrap();
            let running = at_far_end(|| server.spawn().unwrap());
            let address = format!("{}/store", running.addresses()[0]);
            check(&address, true, || running.stat());
        });
    }
}

#[test]
fn calls_in_batches_are_counted_one_by_one() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    for is_async in [false, true] {
        let start = || (server(is_async), ());
        support::paths::on_each_path("store", start, |address, ()| {
            let store = block_on(StoreAsyncClient::bind(address)).unwrap();
            let calls = (0..300).map(|number| {
                let store = store.clone();
                async move { store.fails(number).await }
            });
            let outcomes = join_all(calls);
            assert!(outcomes.into_iter().all(|outcome| outcome.is_err()));
            let fails = census(&peregrine::stat("store").unwrap(), "fails");
            assert_eq!((fails.calls(), fails.results.in_one_packet()), (300, 300));
        });
    }
}

#[test]
fn networks_read_what_they_may_know() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let own = ExportOptions::default().users([12_345]);
    let server = server(false).export_with("secret", StoreServer::new(Shelf), own).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    let address = running.addresses()[0].to_string();
    StoreClient::bind(&format!("{address}/store")).unwrap().echo(7).unwrap();
    let far = peregrine::stat(&address.replace("tcp:", "tcp:@")).unwrap();
    assert_eq!(census(&far, "echo").calls(), 1);
    assert_eq!(far.procedures.as_ref().unwrap().len(), 8);
    assert!(far.procedure("secret", "echo").is_none());
    let near = peregrine::stat("store").unwrap();
    assert_eq!(near.procedures.as_ref().unwrap().len(), 16);
    assert!(near.procedure("secret", "echo").is_some());
    // The rows of an export that was withdrawn are used again.
    for _ in 0..300 {
        assert!(running.withdraw("secret"));
        running.export_with("secret", StoreServer::new(Shelf), ExportOptions::default()).unwrap();
    }
    assert!(peregrine::stat("store").unwrap().procedure("secret", "echo").is_some());
}

#[test]
fn server_without_a_census_counts_only_what_has_a_limit() {
    let _alone = support::alone();
    let _directory = support::own_directory();
    let running = Server::new().export("store", StoreServer::new(Shelf)).unwrap().spawn().unwrap();
    StoreClient::bind("store").unwrap().echo(7).unwrap();
    let stat = running.stat();
    assert_eq!(stat.procedures.as_ref().unwrap().len(), 1);
    assert_eq!(stat.procedure("store", "echo").unwrap().census, None);
}
