//! Tests many threads that call through one client. No result may be lost, and no result may reach another
//! caller.

mod support;

use peregrine::{Out, Server, interface};

#[interface]
trait Echo {
    fn echo(&self, thread: u32, x: u64) -> peregrine::Result<u64>;
    fn bytes(&self, from: &[u8], into: Out<'_, u8>) -> peregrine::Result<u32>;
}

struct Same;

impl Echo for Same {
    fn echo(&self, thread: u32, x: u64) -> peregrine::Result<u64> {
        Ok(x ^ u64::from(thread) << 40)
    }
    fn bytes(&self, from: &[u8], mut into: Out<'_, u8>) -> peregrine::Result<u32> {
        into.put(from).expect("space for the data");
        Ok(from.len() as u32)
    }
}

#[test]
fn results_of_eight_threads_are_not_mixed_up() {
    const THREADS: u32 = 8;
    const CALLS: u64 = 1_000_000 / THREADS as u64;
    let _directory = support::own_directory();
    let running = Server::new().export("echo", EchoServer::new(Same)).unwrap().spawn().unwrap();
    // There are fewer A-stacks than threads. So each A-stack is used by many threads, one after the other.
    let options = peregrine::BindOptions::default().astacks(5);
    let echo = EchoClient::bind_with("echo", &options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let echo = &echo;
            scope.spawn(move || {
                let mut buffer = [0u8; 96];
                for x in 0..CALLS {
                    if x % 16 == 0 {
                        let sent = [(thread as u8) ^ (x as u8); 96];
                        let length = 1 + (x as usize / 16) % 96;
                        let mut out = Out::from(&mut buffer);
                        let answer = echo.bytes(&sent[..length], out.by_ref()).unwrap();
                        assert_eq!((answer as usize, out.filled()), (length, length));
                        assert_eq!(buffer[..length], sent[..length]);
                    } else {
                        let answer = echo.echo(thread, x).unwrap();
                        assert_eq!(answer, x ^ u64::from(thread) << 40);
                    }
                }
            });
        }
    });
    running.stop();
}
