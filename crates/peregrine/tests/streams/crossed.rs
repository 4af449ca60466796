//! Tests calls with streams whose items depend on other calls of the same binding.

use peregrine::{ExportOptions, interface};

use super::*;

/// Procedures with streams, and procedures without streams.
#[interface]
pub(crate) trait Mixed {
    /// Sends the numbers below `end`.
    fn count(&self, end: u64, numbers: Sink<'_, u64>) -> peregrine::Result<()>;
    /// Returns the sum of the numbers.
    fn sum(&self, numbers: Source<'_, u64>) -> peregrine::Result<u64>;
    /// Returns `number` + 1.
    fn after(&self, number: u64) -> peregrine::Result<u64>;
    /// Notes a number.
    #[oneway]
    fn note(&self, number: u64) -> peregrine::Result<()>;
    /// Returns the sum of all notes.
    fn noted(&self) -> peregrine::Result<u64>;
}

#[derive(Default)]
struct Object(AtomicU64);

impl Mixed for Object {
    fn count(&self, end: u64, mut numbers: Sink<'_, u64>) -> peregrine::Result<()> {
        (0..end).try_for_each(|number| numbers.send(number))
    }
    fn sum(&self, mut numbers: Source<'_, u64>) -> peregrine::Result<u64> {
        let mut sum = 0;
        while let Some(number) = numbers.next()? {
            sum += number;
        }
        Ok(sum)
    }
    fn after(&self, number: u64) -> peregrine::Result<u64> {
        Ok(number + 1)
    }
    fn note(&self, number: u64) -> peregrine::Result<()> {
        self.0.fetch_add(number, Ordering::SeqCst);
        Ok(())
    }
    fn noted(&self) -> peregrine::Result<u64> {
        Ok(self.0.load(Ordering::SeqCst))
    }
}

/// Calls `test` with a client on each path. The client asks for `asked` A-stacks, and the server allows
/// `allowed` A-stacks.
fn each_mixed(asked: u32, allowed: u32, test: impl Fn(&MixedClient)) {
    let _alone = alone();
    let _directory = own_directory();
    let bind = BindOptions::default().astacks(asked);
    println!("in process");
    test(&MixedClient::in_process_with(Object::default(), &bind));
    let options = ExportOptions::default().astacks_max(allowed);
    let mixed = MixedServer::new(Object::default());
    let server = Server::new().export_with("mixed", mixed, options).unwrap();
    let running = server.listen("127.0.0.1:0").unwrap().spawn().unwrap();
    let endpoint = running.addresses()[0].to_string();
    let port = endpoint.rsplit(':').next().unwrap();
    for path in ["local", "tcp", "udp"] {
        println!("{path}");
        let address = match path {
            "local" => "local:mixed".to_owned(),
            path => format!("{path}:mixed@127.0.0.1:{port}"),
        };
        test(&MixedClient::bind_with(&address, &bind).unwrap());
    }
}

/// The caller's code that receives or makes items also makes calls over the same binding.
#[test]
fn items_may_depend_on_calls_of_their_binding() {
    for (asked, allowed) in [(1, 4), (2, 4), (1, 100)] {
        each_mixed(asked, allowed, |client| {
            let mut sum = 0;
            client.count(10, Sink::new(|number| sum += client.after(number).unwrap())).unwrap();
            assert_eq!(sum, 55);
            let numbers = (0..10).map(|number| client.after(number).unwrap());
            assert_eq!(client.sum(Source::new(numbers)).unwrap(), 55);
            let before = client.noted().unwrap();
            let note = |number| {
                client.note(number).unwrap();
                client.flush().unwrap();
            };
            client.count(10, Sink::new(note)).unwrap();
            assert_eq!(client.noted().unwrap(), before + 45);
        });
    }
}

/// The items of one call with streams come from another call with streams.
#[test]
fn streams_may_depend_on_each_other() {
    each_mixed(2, 6, |client| {
        let numbers = (0..10).map(|end| {
            let mut count = 0;
            let inner = client.count(end, Sink::new(|_| count += 1));
            inner.unwrap();
            count
        });
        assert_eq!(client.sum(Source::new(numbers)).unwrap(), 45);
    });
}

/// With too few A-stacks, the inner call fails, and does not wait for the outer call.
#[test]
fn streams_that_depend_on_each_other_fail_without_a_stacks() {
    let _alone = alone();
    let _directory = own_directory();
    let options = ExportOptions::default().astacks_max(4);
    let mixed = MixedServer::new(Object::default());
    let _running = Server::new().export_with("mixed", mixed, options).unwrap().spawn().unwrap();
    let client = MixedClient::bind("local:mixed").unwrap();
    let mut refused = Vec::new();
    let receive = |_| refused.push(client.sum(Source::new(0..10)).unwrap_err());
    client.count(2, Sink::new(receive)).unwrap();
    assert_eq!(refused.len(), 2);
    for error in refused {
        let outcome = (error.kind(), error.executed());
        assert_eq!(outcome, (Kind::Exhausted, Executed::No), "{error}");
    }
    assert_eq!(client.sum(Source::new(0..10)).unwrap(), 45);
}
