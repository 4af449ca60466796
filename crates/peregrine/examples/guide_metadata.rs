//! The program of the chapter about metadata in docs/GUIDE.md.

use peregrine::{CallError, Executed, Kind, Server, caller, interface};

/// Keeps notes for several tenants.
#[interface]
pub trait Notes {
    /// Returns whose notes the caller sees.
    fn tenant(&self) -> peregrine::Result<String>;
}

/// Answers for another server.
#[interface]
pub trait Front {
    /// Returns what `Notes` returns to this server.
    fn ask(&self) -> peregrine::Result<String>;
}

struct Shelf;

impl Notes for Shelf {
    fn tenant(&self) -> peregrine::Result<String> {
        let caller = caller().expect("a procedure has a caller");
        let tenant = caller.metadata().get("tenant").ok_or_else(|| {
            let text = "the metadata has no `tenant`";
            CallError::new(Kind::Denied, Executed::Maybe, text)
        })?;
        Ok(format!("{tenant} ({} pairs)", caller.metadata().len()))
    }
}

struct Desk(NotesClient);

impl Front for Desk {
    fn ask(&self) -> peregrine::Result<String> {
        let caller = caller().expect("a procedure has a caller");
        // Without `with_metadata_of`, the notes would see none of the caller's metadata.
        self.0.with_metadata_of(&caller)?.with_metadata("by", "front")?.tenant()
    }
}

fn main() -> peregrine::Result<()> {
    let _running = Server::new().export("notes", NotesServer::new(Shelf))?.spawn()?;
    let notes = NotesClient::bind("notes")?;
    let birds = notes.with_metadata("tenant", "birds")?;
    println!("{}", birds.tenant()?);
    println!("{}", notes.tenant().is_err());

    let desk = Desk(notes);
    let _front = Server::new().export("front", FrontServer::new(desk))?.spawn()?;
    let front = FrontClient::bind("front")?.with_metadata("tenant", "fish")?;
    println!("{}", front.ask()?);
    Ok(())
}
