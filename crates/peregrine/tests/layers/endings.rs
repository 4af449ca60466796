//! Tests what layers see when a call ends early, because its caller gives it up.

use std::pin::pin;
use std::task::{Context, Waker};

use super::*;

#[test]
fn call_that_is_given_up_has_timed_out() {
    let _alone = alone();
    let _directory = own_directory();
    let timed_out = "TimedOut may have executed";
    everywhere(true, |at, log| {
        let options = BindOptions::default().layer(writes("client", log));
        let limited = client(at, options.timeout(Duration::from_millis(50)));
        assert_eq!(limited.waits().unwrap_err().kind(), Kind::TimedOut);
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
        // The future of a call is dropped.
        let options = BindOptions::default().layer(writes("client", log));
        let awaited = WorkAsyncClient::from(client(at, options));
        {
            let mut call = pin!(WorkAsync::waits(&awaited));
            let context = &mut Context::from_waker(Waker::noop());
            until("the procedure has begun", || {
                assert!(call.as_mut().poll(context).is_pending());
                log.0.lock().unwrap().len() == 3
            });
        }
        let lines = log.wait(6);
        for name in ["client", "server", "export"] {
            assert_eq!(count(&lines, name, timed_out), 1, "{lines:?}");
        }
    });
}
