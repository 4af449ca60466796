//! One-way calls. The client does not wait for the replies, although the standard requires a reply to each
//! call.

use std::sync::mpsc::{Receiver, channel};

use super::*;

#[interface(courier(program = 0x0002_0001, version = 2))]
trait Log {
    #[courier(7)]
    fn double(&self, number: u16) -> peregrine::Result<u16>;
    #[courier(12)]
    #[oneway]
    fn note(&self, number: u16) -> peregrine::Result<()>;
    #[courier(13)]
    #[oneway]
    fn texts(&self, texts: Vec<String>) -> peregrine::Result<()>;
}

/// Starts a server for a client. If `goes` is given, the server reads nothing until the test sends to this
/// channel. `answer` returns the replies to one-way calls. Returns the address, and a channel that receives
/// the procedure and the arguments of each call.
fn serve_log(
    framing: Framing,
    goes: Option<Receiver<()>>,
    answer: impl Fn(&Received) -> Vec<u8> + Send + 'static,
) -> (String, Receiver<(u16, Vec<u8>)>) {
    let (calls, received) = channel();
    let address = serve_first(framing, move |mut connection| {
        if let Some(goes) = goes {
            goes.recv().unwrap();
        }
        while let Some(call) = connection.call() {
            let reply = if call.procedure == 7 { usual(&call).remove(0) } else { answer(&call) };
            let _ = calls.send((call.procedure, call.arguments));
            connection.send(&reply);
        }
    });
    (address, received)
}

fn done(call: &Received) -> Vec<u8> {
    words(&[2, call.tid])
}

#[test]
fn calls_without_results_do_not_wait() {
    for framing in BOTH {
        let (go, goes) = channel();
        let (address, received) = serve_log(framing, Some(goes), done);
        let log = LogClient::bind_with(&address, &options(framing)).unwrap();
        // The server does not read these calls yet.
        for number in 0..500 {
            log.note(number).unwrap();
        }
        log.texts(vec!["a".into(), "bcd".into()]).unwrap();
        go.send(()).unwrap();
        // A call with a result runs after the one-way calls before it.
        assert_eq!(log.double(4).unwrap(), 8);
        for number in 0..500 {
            assert_eq!(received.recv().unwrap(), (12, words(&[number])), "{framing:?}");
        }
        let texts = words(&[2, 1, 0x6100, 3, 0x6263, 0x6400]);
        assert_eq!(received.recv().unwrap(), (13, texts));
        assert_eq!(received.recv().unwrap(), (7, words(&[4])));
        log.flush().unwrap();
    }
}

#[test]
fn queued_calls_are_sent_although_the_client_does_nothing_more() {
    let (address, received) = serve_log(Framing::Records, None, done);
    let log = LogClient::bind(&address).unwrap();
    for number in 0..50 {
        log.note(number).unwrap();
    }
    for number in 0..50 {
        assert_eq!(received.recv_timeout(LONG).unwrap(), (12, words(&[number])));
    }
}

#[test]
fn failures_are_told_by_the_next_call_or_by_flush() {
    for framing in BOTH {
        let answer = |call: &Received| match word(&call.arguments, 0) {
            1 => words(&[1, call.tid, 3]),
            2 => words(&[1, call.tid, 0xffff]),
            3 => words(&[3, call.tid, 9]),
            _ => words(&[2, call.tid]),
        };
        let (address, received) = serve_log(framing, None, answer);
        let log = LogClient::bind_with(&address, &options(framing)).unwrap();
        for number in 0..5 {
            log.note(number).unwrap();
        }
        let error = log.flush().unwrap_err();
        assert_eq!((error.kind(), error.oneway_failed()), (Kind::OneWay, 3), "{error}");
        assert!(error.detail().contains("cannot read the arguments"), "{error}");
        log.flush().unwrap();
        log.note(3).unwrap();
        let error = log.double(1).unwrap_err();
        assert_eq!((error.kind(), error.oneway_failed()), (Kind::OneWay, 1), "{error}");
        assert_eq!(log.double(1).unwrap(), 2);
        assert_eq!(received.iter().take(7).count(), 7);
    }
}

#[test]
fn calls_after_a_lost_connection_use_another_one() {
    let address = serve_first(Framing::Records, |mut connection| {
        let call = connection.call().unwrap();
        connection.send(&done(&call));
        // The server reads the second call, and ends the connection. So the call may have executed.
        connection.call().unwrap();
    });
    let log = LogClient::bind(&address).unwrap();
    log.note(1).unwrap();
    log.flush().unwrap();
    log.note(2).unwrap();
    let error = log.flush().unwrap_err();
    assert_eq!((error.oneway_failed(), error.oneway_not_run()), (1, 1), "{error}");
    // This call runs on another connection, so the client has bound again.
    assert_eq!(log.double(3).unwrap(), 6);
}

#[test]
fn large_arguments_are_sent_in_place() {
    let (address, received) = serve_log(Framing::Records, None, done);
    let log = LogClient::bind(&address).unwrap();
    log.note(1).unwrap();
    let text = "x".repeat(50_000);
    log.texts(vec![text.clone(), text]).unwrap();
    log.note(2).unwrap();
    log.flush().unwrap();
    let procedures = received.iter().take(3).map(|(procedure, _)| procedure);
    assert!(procedures.eq([12, 13, 12]));
}

#[test]
fn coopers_form_has_no_replies_to_them() {
    let (calls, received) = channel();
    let address = serve_cooper("Log", move |call| {
        calls.send((call.procedure, call.arguments.clone())).unwrap();
        if call.procedure == 7 { words(&[1, 2]) } else { Vec::new() }
    });
    let log = LogClient::bind(&format!("{address}/Log")).unwrap();
    for number in 0..100 {
        log.note(number).unwrap();
    }
    assert_eq!(log.double(1).unwrap(), 2);
    assert!(received.iter().take(100).eq((0..100).map(|number| (12, words(&[number])))));
}

#[cfg(feature = "async")]
#[test]
fn futures_make_one_way_calls() {
    use futures_lite::future::block_on;
    let (address, received) = serve_log(Framing::Frames, None, done);
    block_on(async {
        let log = LogAsyncClient::bind_with(&address, &options(Framing::Frames)).await.unwrap();
        for number in 0..200 {
            log.note(number).await.unwrap();
        }
        let text = "x".repeat(50_000);
        log.texts(vec![text.clone(), text]).await.unwrap();
        log.flush().await.unwrap();
        assert_eq!(log.double(2).await.unwrap(), 4);
    });
    assert!(received.iter().take(200).eq((0..200).map(|number| (12, words(&[number])))));
}
