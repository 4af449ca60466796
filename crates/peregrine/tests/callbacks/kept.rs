//! Callbacks that procedures keep after the calls that brought them.

use super::*;

#[test]
fn kept_callback_is_called_after_its_call() {
    each(2, |client, object| {
        let doubler = Arc::new(Doubler::new(None));
        client.keep(1, Callback::new(Arc::clone(&doubler))).unwrap();
        for number in 0..100 {
            assert_eq!(client.call(1, number + 20).unwrap(), 2 * (number + 20));
        }
        // The object calls the listener while no call of this client runs.
        let listener = object.listener(1);
        assert_eq!(listener.double(7).unwrap(), 14);
        drop(listener);
        assert_eq!(doubler.calls.load(Ordering::SeqCst), 101);
        client.release(1).unwrap();
        until("the object is released", || Arc::strong_count(&doubler) == 1);
        // The client's thread that served the first listener may have ended. A second listener must
        // be called nevertheless.
        client.keep(2, Callback::new(Arc::clone(&doubler))).unwrap();
        assert_eq!(client.call(2, 5).unwrap(), 10);
        client.release(2).unwrap();
    });
}

#[test]
fn revoked_callback_is_not_called() {
    each(2, |client, object| {
        let doubler = Arc::new(Doubler::new(None));
        let (callback, registration) = Callback::registered(Arc::clone(&doubler));
        client.keep(1, callback).unwrap();
        assert_eq!(client.call(1, 5).unwrap(), 10);
        drop(registration);
        until("the object is released", || Arc::strong_count(&doubler) == 1);
        let listener = object.listener(1);
        until("the server learns of the revocation", || listener.double(1).is_err());
        let Err(Refusal::Failed(error)) = listener.double(1) else { panic!("no error") };
        assert_eq!(error.executed(), Executed::No, "{error}");
        assert!(error.to_string().contains("revoked"), "{error}");
        assert_eq!(doubler.calls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn callback_ends_with_the_last_client() {
    each(2, |client, object| {
        let doubler = Arc::new(Doubler::new(None));
        let own = ServiceClient::bind(client.binding().address());
        // A client of an object in this process cannot be bound again, so the test skips it.
        let Ok(own) = own else { return };
        own.keep(1, Callback::new(Arc::clone(&doubler))).unwrap();
        let clone = own.clone();
        drop(own);
        assert_eq!(clone.call(1, 5).unwrap(), 10);
        drop(clone);
        until("the object is released", || Arc::strong_count(&doubler) == 1);
        let listener = object.listener(1);
        until("the server learns that the callback has ended", || listener.double(1).is_err());
        assert_eq!(doubler.calls.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn call_in_flight_ends_when_the_callback_is_revoked() {
    each(2, |client, object| {
        let doubler = Arc::new(Doubler::new(None));
        let (callback, registration) = Callback::registered(Arc::clone(&doubler));
        client.keep(1, callback).unwrap();
        let listener = object.listener(1);
        std::thread::scope(|scope| {
            let calls = scope.spawn(|| {
                let mut made = 0;
                loop {
                    match listener.double(1) {
                        Ok(_) => made += 1,
                        Err(Refusal::Failed(error)) => return (made, error),
                        Err(refusal) => panic!("{refusal:?}"),
                    }
                }
            });
            until("calls run", || doubler.calls.load(Ordering::SeqCst) > 100);
            drop(registration);
            let (made, error) = calls.join().unwrap();
            assert_eq!(error.executed(), Executed::No, "{error}");
            assert_eq!(doubler.calls.load(Ordering::SeqCst), made);
        });
    });
}
