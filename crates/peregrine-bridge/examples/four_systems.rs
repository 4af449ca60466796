//! One object that clients of Peregrine, ONC RPC, Courier and HTTP call at the same time.
//!
//! Run it with `cargo run -p peregrine-bridge --example four_systems`.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};

use peregrine::{Server, interface};
use peregrine_bridge::Bridge;

/// A counter of visitors. Each procedure has a number in ONC RPC, and one in Courier.
#[interface(onc(program = 0x2000_0043, version = 1), courier(program = 43, version = 1))]
trait Visitors {
    /// Counts a visitor, and returns how many there were.
    #[onc(1)]
    #[courier(0)]
    fn enter(&self, name: &str) -> peregrine::Result<u32>;
}

#[derive(Default)]
struct Door(AtomicU32);

impl Visitors for Door {
    fn enter(&self, name: &str) -> peregrine::Result<u32> {
        let count = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        println!("visitor {count} is {name}");
        Ok(count)
    }
}

/// Makes a call over HTTP, and returns the answer.
fn post(to: SocketAddr, path: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(to)?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {to}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn main() -> Result<(), Box<dyn Error>> {
    let name = format!("visitors-{}", std::process::id());
    let running = Server::new()
        .export(&name, VisitorsServer::new(Door::default()))?
        .listen("tcp:127.0.0.1:0")?
        .listen("onc+udp:127.0.0.1:0")?
        .listen("onc+tcp:127.0.0.1:0")?
        .listen("courier+tcp:127.0.0.1:0")?
        .spawn()?;
    let bridge = Bridge::new().offer(&format!("visitors=local:{name}"))?;
    let web = bridge.listen("127.0.0.1:0")?.spawn()?;

    // Each client knows only its own system.
    std::thread::scope(|scope| {
        let endpoints = running.addresses().iter().map(ToString::to_string);
        let addresses = endpoints.map(|endpoint| match endpoint.starts_with("tcp:") {
            true => format!("{endpoint}/{name}"),
            false => endpoint,
        });
        for address in addresses.chain([format!("local:{name}")]) {
            scope.spawn(move || {
                let visitors = VisitorsClient::bind(&address).expect("the server runs");
                visitors.enter(&address).expect("a count");
            });
        }
        scope.spawn(|| {
            let answer = post(web.addresses()[0], "/visitors/enter", r#"{"name": "the web"}"#);
            let answer = answer.expect("the bridge runs");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        });
    });
    let count = VisitorsClient::bind(&name)?.enter("the last one")?;
    assert_eq!(count, 7);
    Ok(())
}
