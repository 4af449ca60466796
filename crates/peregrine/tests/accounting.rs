//! What servers record of calls that belong to accounts, and what becomes of other calls meanwhile.

mod support;

use std::time::Duration;

use peregrine::{
    Accounting, BindOptions, CallTimes, Executed, Kind, Running, Server, Step, Wait, interface,
};
use support::{alone, own_directory, until};

#[interface]
trait Work {
    fn double(&self, number: u32) -> peregrine::Result<u32>;
    fn fail(&self) -> peregrine::Result<()>;
    fn sleep(&self, milliseconds: u64) -> peregrine::Result<()>;
    fn panics(&self) -> peregrine::Result<()>;
}

struct Worker;

impl Work for Worker {
    fn double(&self, number: u32) -> peregrine::Result<u32> {
        Ok(2 * number)
    }
    fn fail(&self) -> peregrine::Result<()> {
        Err(peregrine::CallError::new(Kind::BadArguments, Executed::Maybe, "as wanted"))
    }
    fn sleep(&self, milliseconds: u64) -> peregrine::Result<()> {
        std::thread::sleep(Duration::from_millis(milliseconds));
        Ok(())
    }
    fn panics(&self) -> peregrine::Result<()> {
        panic!("a procedure's own panic");
    }
}

fn serve() -> (Running, [String; 3]) {
    let server = Server::new().export("work", WorkServer::new(Worker)).unwrap();
    let server = server.listen("udp:127.0.0.1:0").unwrap().listen("tcp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let [udp, tcp] = [0, 1].map(|at| format!("{}/work", running.addresses()[at]));
    (running, ["local:work".to_owned(), udp, tcp])
}

/// Returns the records of `count` calls. A server adds the record of a call after it has sent the result.
fn records(accounting: &Accounting, count: usize) -> Vec<CallTimes> {
    let mut records = Vec::new();
    let complete = || {
        records.extend(accounting.server_calls().unwrap());
        records.len() >= count
    };
    until("the server adds all records", complete);
    assert_eq!(records.len(), count);
    records
}

/// Serves, and calls `test` with each address of the server, a client, and an account of the client.
fn for_each_path(test: impl Fn(&str, &WorkClient, &Accounting)) {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve();
    for address in &addresses {
        let work = WorkClient::bind(address).unwrap();
        let accounting = Accounting::begin(work.binding()).unwrap();
        test(address, &work, &accounting);
    }
}

/// Returns the steps that a call has passed at one side, in the order of their times.
fn steps(times: &CallTimes) -> Vec<Step> {
    use Step::{
        Admitted, AdmittedAgain, Begun, Called, Entered, Received, Returned, Sending, Sent, Taken,
    };
    let all =
        [Begun, Entered, Sending, Sent, Received, Taken, Admitted, AdmittedAgain, Called, Returned];
    let mut passed: Vec<_> =
        all.into_iter().filter_map(|step| times.at(step).map(|at| (at, step))).collect();
    passed.sort_by_key(|(at, _)| *at);
    passed.into_iter().map(|(_, step)| step).collect()
}

#[test]
fn calls_of_an_account_pass_their_steps_in_order() {
    let _alone = alone();
    let _directory = own_directory();
    let (running, addresses) = serve();
    for (address, wait) in addresses.iter().zip([Wait::Block, Wait::Adaptive, Wait::Adaptive]) {
        let work = WorkClient::bind_with(address, &BindOptions::default().wait(wait)).unwrap();
        let accounting = Accounting::begin(work.binding()).unwrap();
        let accounted = work.with_accounting(&accounting);
        for number in 0..70 {
            Accounting::before_call();
            assert_eq!(accounted.double(number).unwrap(), 2 * number);
            Accounting::after_call();
            let client = steps(&Accounting::last_call());
            let expected = [Step::Called, Step::Begun, Step::Entered, Step::Sending];
            assert_eq!(client[..4], expected, "{address}");
            // Over a network, the reply may arrive before the system call that sends has returned.
            let sent = client.iter().position(|step| *step == Step::Sent).unwrap();
            assert!((4..=5).contains(&sent), "{address}: {client:?}");
            assert_eq!(client[6..], [Step::Taken, Step::Returned], "{address}");
            assert_eq!(work.double(1).unwrap(), 2, "calls outside of the account");
        }
        // Each call of the account has a record with at most two steps, except for the first call that a thread
        // of the server serves. Together they have all steps.
        let records = records(&accounting, 70);
        let passed: Vec<_> = records.iter().map(steps).collect();
        assert!(passed[1..].iter().all(|steps| steps.len() <= 2), "{passed:?}");
        for pair in [
            [Step::Received, Step::Admitted],
            [Step::Received, Step::Called],
            [Step::Received, Step::Returned],
            [Step::Received, Step::Sending],
            [Step::Admitted, Step::AdmittedAgain],
        ] {
            let found = passed.iter().filter(|steps| **steps == pair).count();
            assert!(found >= 5, "{address}: {pair:?} in {passed:?}");
        }
        assert!(accounting.server_calls().unwrap().is_empty());
    }
    drop(running);
}

#[test]
fn calls_of_an_account_end_as_other_calls_do() {
    for_each_path(|address, work, accounting| {
        let accounted = work.with_accounting(accounting);
        accounted.binding().ping().unwrap();
        let mut back = [1; 3000];
        accounting.echo(&[5; 2000], &mut back, Duration::from_micros(20)).unwrap();
        assert!(back == [0; 3000], "{address}");
        accounting.echo(&[], &mut [], Duration::ZERO).unwrap();
        let outcome = |error: peregrine::CallError| (error.kind(), error.executed());
        for (one, other) in [
            (work.fail(), accounted.fail()),
            (work.panics(), accounted.panics()),
            (
                work.with_timeout(Duration::from_millis(200)).sleep(1000),
                accounted.with_timeout(Duration::from_millis(200)).sleep(1000),
            ),
        ] {
            assert_eq!(outcome(one.unwrap_err()), outcome(other.unwrap_err()), "{address}");
        }
        // Over UDP, the call that timed out has ended the account.
        assert_eq!(accounted.double(4).unwrap(), 8);
    });
}

#[test]
fn echo_occupies_the_server_only_for_an_account() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, [local, ..]) = serve();
    let work = WorkClient::bind(&local).unwrap();
    let accounting = Accounting::begin(work.binding()).unwrap();
    let busy = |accounting: &Accounting| {
        (0..70).for_each(|_| accounting.echo(&[1], &mut [], Duration::from_secs(60)).unwrap());
        let records = records(accounting, 70);
        let took = records.iter().filter_map(|one| one.between(Step::Received, Step::Sending));
        took.collect::<Vec<_>>()
    };
    let took = busy(&accounting);
    assert!(took.len() >= 5 && took.iter().all(|ns| *ns >= 1_000_000), "{took:?}");
    assert!(took.iter().min() < Some(&50_000_000), "an echo takes a millisecond at most: {took:?}");
}

#[test]
fn server_has_few_accounts_which_end_with_their_clients() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve();
    for address in addresses {
        let clients: Vec<_> = (0..17).map(|_| WorkClient::bind(&address).unwrap()).collect();
        let begun: Vec<_> =
            clients.iter().map(|client| Accounting::begin(client.binding())).collect();
        let refused: Vec<_> = begun.iter().filter_map(|begun| begun.as_ref().err()).collect();
        assert_eq!(refused.len(), 1, "{address}: {refused:?}");
        assert_eq!((refused[0].kind(), refused[0].executed()), (Kind::Exhausted, Executed::No));
        drop(begun);
        // All of them have ended, and each client may begin one again.
        for client in &clients {
            let accounting = Accounting::begin(client.binding()).unwrap();
            client.with_accounting(&accounting).double(3).unwrap();
            records(&accounting, 1);
        }
    }
}

#[test]
fn some_bindings_have_no_accounts() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, addresses) = serve();
    let in_process = WorkClient::in_process(Worker);
    let pool = WorkPool::bind("work").unwrap();
    for (binding, why) in
        [(in_process.binding(), "within the process"), (pool.binding(), "needs one server")]
    {
        let error = Accounting::begin(binding).unwrap_err();
        assert_eq!((error.kind(), error.executed()), (Kind::BadArguments, Executed::No));
        assert!(error.to_string().contains(why), "{error}");
    }
    let [local, ..] = addresses;
    let work = WorkClient::bind(&local).unwrap();
    let noted = work.with_metadata("trace", "7").unwrap();
    let error = Accounting::begin(noted.binding()).unwrap_err();
    assert!(error.to_string().contains("no metadata"), "{error}");
    let accounting = Accounting::begin(work.binding()).unwrap();
    let error = work.with_accounting(&accounting).with_metadata("trace", "7").unwrap_err();
    assert!(error.to_string().contains("no metadata"), "{error}");
}

#[test]
#[should_panic(expected = "begun with the binding of another client")]
fn accounting_of_another_client_is_refused() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, [local, ..]) = serve();
    let [one, other] = [0, 1].map(|_| WorkClient::bind(&local).unwrap());
    let accounting = Accounting::begin(one.binding()).unwrap();
    let _ = other.with_accounting(&accounting);
}

/// Calls a server of its own over TCP.
struct Nested(WorkClient);

impl Work for Nested {
    fn double(&self, number: u32) -> peregrine::Result<u32> {
        std::thread::sleep(Duration::from_millis(1));
        let doubled = self.0.double(number)?;
        std::thread::sleep(Duration::from_millis(1));
        Ok(doubled)
    }
    fn fail(&self) -> peregrine::Result<()> {
        Ok(())
    }
    fn sleep(&self, _: u64) -> peregrine::Result<()> {
        Ok(())
    }
    fn panics(&self) -> peregrine::Result<()> {
        Ok(())
    }
}

#[test]
fn calls_of_a_procedure_are_not_in_the_record_of_its_call() {
    let _alone = alone();
    let _directory = own_directory();
    let (_running, [.., tcp]) = serve();
    let nested = Nested(WorkClient::bind(&tcp).unwrap());
    let server = Server::new().export("nested", WorkServer::new(nested)).unwrap();
    let running = server.listen("tcp:127.0.0.1:0").unwrap().spawn().unwrap();
    for address in ["local:nested".to_owned(), format!("{}/nested", running.addresses()[0])] {
        let work = WorkClient::bind(&address).unwrap();
        let accounting = Accounting::begin(work.binding()).unwrap();
        let accounted = work.with_accounting(&accounting);
        (0..21).for_each(|number| assert_eq!(accounted.double(number).unwrap(), 2 * number));
        let records = records(&accounting, 21);
        let took = records.iter().filter_map(|one| one.between(Step::Received, Step::Returned));
        let took: Vec<_> = took.collect();
        assert!(took.len() >= 2 && took.iter().all(|ns| *ns >= 2_000_000), "{address}: {took:?}");
    }
}

#[test]
fn record_of_a_call_has_nothing_of_the_call_before() {
    for_each_path(|address, work, accounting| {
        work.double(1).unwrap();
        // Without `before_call`.
        work.with_accounting(accounting).double(1).unwrap();
        let times = Accounting::last_call();
        assert!(times.between(Step::Begun, Step::Sending).is_some(), "{address}: {times:?}");
        assert!(times.at(Step::Called).is_none(), "{address}: {times:?}");
    });
}

#[cfg(feature = "async")]
#[test]
fn async_procedures_leave_no_records() {
    /// Is ready when it is polled for the second time.
    struct Later;
    impl Later {
        async fn later<T>(&self, value: T) -> peregrine::Result<T> {
            let mut is_first = true;
            std::future::poll_fn(|context| match std::mem::take(&mut is_first) {
                true => {
                    context.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
                false => std::task::Poll::Ready(()),
            })
            .await;
            Ok(value)
        }
    }
    impl WorkAsync for Later {
        async fn double(&self, number: u32) -> peregrine::Result<u32> {
            self.later(2 * number).await
        }
        async fn fail(&self) -> peregrine::Result<()> {
            self.later(()).await
        }
        async fn sleep(&self, _: u64) -> peregrine::Result<()> {
            self.later(()).await
        }
        async fn panics(&self) -> peregrine::Result<()> {
            self.later(()).await
        }
    }
    let _alone = alone();
    let _directory = own_directory();
    let object = WorkAsyncServer::new(Later);
    let server = Server::new().export("work", object).unwrap();
    let server = server.listen("udp:127.0.0.1:0").unwrap().listen("tcp:127.0.0.1:0").unwrap();
    let running = server.spawn().unwrap();
    let [udp, tcp] = [0, 1].map(|at| format!("{}/work", running.addresses()[at]));
    for address in ["local:work", &udp, &tcp] {
        let work = WorkClient::bind(address).unwrap();
        let accounting = Accounting::begin(work.binding()).unwrap();
        let accounted = work.with_accounting(&accounting);
        for number in 0..20 {
            assert_eq!(accounted.double(number).unwrap(), 2 * number, "{address}");
        }
        assert!(accounting.server_calls().unwrap().is_empty(), "{address}");
        // Pings do not reach the object.
        accounted.binding().ping().unwrap();
        records(&accounting, 1);
    }
}
