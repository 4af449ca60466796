//! Exports `whereabouts` on this machine, and also listens at the given endpoints: `cargo run --example
//! anywhere_server -- [ENDPOINT]...`

pub mod anywhere;

use anywhere::{Whereabouts, WhereaboutsServer};
use peregrine::{CallError, Insecure, Server};

struct Here;

impl Whereabouts for Here {
    fn path(&self) -> peregrine::Result<String> {
        Ok(peregrine::caller().map_or_else(String::new, |caller| caller.path().to_string()))
    }
}

fn main() -> Result<(), CallError> {
    let mut server = Server::new().export("whereabouts", WhereaboutsServer::new(Here))?;
    for endpoint in std::env::args().skip(1) {
        server = server.listen_beyond_this_machine(&endpoint, Insecure::ITrustThisNetwork)?;
    }
    server.stop_on_signals().run()
}
