//! A server that only trusted clients reach, and calls that no host on the way can read.

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{BindOptions, Server, interface};

/// A clerk who knows the customers.
#[interface]
trait Clerk {
    /// Greets the caller by name.
    fn greet(&self) -> peregrine::Result<String>;
}

struct Desk;

impl Clerk for Desk {
    fn greet(&self) -> peregrine::Result<String> {
        let caller = peregrine::caller().expect("a procedure has a caller");
        // A key that the server trusts has a name in the server's list.
        let name = caller.identity().map_or("stranger".to_owned(), |one| one.to_string());
        Ok(format!("good morning, {name}"))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Two machines in one program. Real ones read `KeyDirectory::of_environment()?`.
    let (ada, bob) = (Identity::generate()?, Identity::generate()?);
    let trust = |name: &str, peer: &Identity| {
        Trust::of_keys([TrustedKey::new(name, peer.public_key(), "")?])
    };

    // Bob's machine serves, and trusts Ada.
    let server = Server::new().export("clerk", ClerkServer::new(Desk))?;
    let own = (bob.clone(), trust("ada", &ada)?);
    let running = server.listen_beyond_this_machine("tcp:127.0.0.1:0", own)?.spawn()?;
    let address = format!("{}/clerk", running.addresses()[0]);

    // Ada's machine calls, and trusts Bob.
    let options = BindOptions::default().secure(ada.clone(), trust("bob", &bob)?);
    let clerk = ClerkClient::bind_with(&address, &options)?;
    println!("{}", clerk.greet()?);

    // Eve has a key, too, but the server does not trust it.
    let options = BindOptions::default().secure(Identity::generate()?, trust("bob", &bob)?);
    let error = ClerkClient::bind_with(&address, &options).expect_err("Eve is refused");
    println!("Eve: {}", error.kind().text());
    Ok(())
}
