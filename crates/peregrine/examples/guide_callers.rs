//! Who may call what: procedures that only some callers may call.

use peregrine::secure::{Identity, Trust, TrustedKey};
use peregrine::{BindOptions, ExportOptions, Server, interface};

#[interface]
trait Archive {
    /// Returns the number of documents.
    fn count(&self) -> peregrine::Result<u32>;
    /// Erases a document. On this machine, user 34 may do so, too.
    #[callers("ops/*", "backup", "uid:34")]
    fn erase(&self, document: u32) -> peregrine::Result<()>;
}

struct Shelf;

impl Archive for Shelf {
    fn count(&self) -> peregrine::Result<u32> {
        Ok(3)
    }
    fn erase(&self, document: u32) -> peregrine::Result<()> {
        let identity = peregrine::caller().and_then(|caller| caller.identity());
        let name = identity.map_or("a stranger".to_owned(), |identity| identity.to_string());
        println!("{name} erases {document}");
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [own, backup, ada] = [Identity::generate()?, Identity::generate()?, Identity::generate()?];
    let key = |name: &str, peer: &Identity| TrustedKey::new(name, peer.public_key(), "");

    // The server trusts three clients, and offers the export to two of them.
    let eve = Identity::generate()?;
    let trust = Trust::of_keys([key("backup", &backup)?, key("ada", &ada)?, key("eve", &eve)?])?;
    let options = ExportOptions::default().identities(["backup", "ada"]);
    let server = Server::new()
        .on_denied(|denied| println!("denied: {denied}"))
        .export_with("archive", ArchiveServer::new(Shelf), options)?
        .listen_beyond_this_machine("tcp:127.0.0.1:0", (own.clone(), trust))?;
    let running = server.spawn()?;
    let address = format!("{}/archive", running.addresses()[0]);

    let trust = Trust::of_keys([key("server", &own)?])?;
    let bind = |identity: Identity| {
        let options = BindOptions::default().secure(identity, trust.clone());
        ArchiveClient::bind_with(&address, &options)
    };
    bind(backup)?.erase(1)?;
    let archive = bind(ada)?;
    println!("ada counts {}", archive.count()?);
    let error = archive.erase(2).expect_err("ada may not erase");
    println!("ada: {}, {}", error.kind().text(), error.detail());
    let error = bind(eve).expect_err("eve may not bind");
    println!("eve: {}, {}", error.kind().text(), error.detail());
    Ok(())
}
