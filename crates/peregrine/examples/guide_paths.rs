//! The program of the chapter about choosing a path in docs/GUIDE.md.

use peregrine::{Server, interface};

/// Reports by which path it was called.
#[interface]
pub trait Whereabouts {
    /// Returns the path of this call, as the server sees it.
    fn path(&self) -> peregrine::Result<String>;
}

struct Here;

impl Whereabouts for Here {
    fn path(&self) -> peregrine::Result<String> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        Ok(caller.path().to_string())
    }
}

fn main() -> peregrine::Result<()> {
    let server = Server::new().export("whereabouts", WhereaboutsServer::new(Here))?;
    // Port 0 is any free port.
    let running = server.listen("udp:127.0.0.1:0")?.listen("tcp:127.0.0.1:0")?.spawn()?;

    println!("{}", WhereaboutsClient::bind("whereabouts")?.path()?);
    let [udp, tcp] = [0, 1].map(|i| running.addresses()[i].place());
    println!("{}", WhereaboutsClient::bind(&format!("udp:whereabouts@{udp}"))?.path()?);
    println!("{}", WhereaboutsClient::bind(&format!("tcp:whereabouts@{tcp}"))?.path()?);
    println!("{}", WhereaboutsClient::in_process(Here).path()?);
    Ok(())
}
