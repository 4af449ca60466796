//! A chat: `cargo run --example chat -- serve` in one terminal, and `cargo run --example chat -- NAME` in
//! others.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::time::Duration;

use peregrine::{CallError, Callback, Server, Value, interface};

/// How long the room waits for a member that takes no messages. Then the room removes the member.
const PATIENCE: Duration = Duration::from_secs(1);

/// A member of a chat room. The room calls this object, which is in the member's process.
#[interface]
pub trait Member {
    /// Hears what a member says.
    #[oneway]
    fn hear(&self, name: &str, text: &str) -> peregrine::Result<()>;
}

/// A chat room.
#[interface]
pub trait Room {
    /// Lets a member hear what is said from now on. Returns the names of the other members.
    fn join(
        &self,
        name: &str,
        member: Callback<'static, dyn Member>,
    ) -> Result<Vec<String>, RoomError>;
    /// Says something to all other members.
    fn say(&self, name: &str, text: &str) -> Result<(), RoomError>;
}

/// Why a room refuses a member.
#[derive(Debug, Value)]
pub enum RoomError {
    /// A member has this name already.
    Taken,
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for RoomError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

#[derive(Default)]
struct Hall(Mutex<HashMap<String, MemberClient>>);

impl Room for Hall {
    fn join(
        &self,
        name: &str,
        member: Callback<'static, dyn Member>,
    ) -> Result<Vec<String>, RoomError> {
        let client = member.client().expect("members are in other processes");
        let mut members = self.0.lock().unwrap();
        // The name of a member that has gone can be used again.
        members.retain(|_, member| member.binding().is_alive());
        if members.contains_key(name) {
            return Err(RoomError::Taken);
        }
        members.insert(name.to_owned(), client.with_timeout(PATIENCE));
        Ok(members.keys().filter(|other| *other != name).cloned().collect())
    }
    fn say(&self, name: &str, text: &str) -> Result<(), RoomError> {
        let mut members = self.0.lock().unwrap();
        members.retain(|other, member| other == name || member.hear(name, text).is_ok());
        Ok(())
    }
}

/// Prints what is said.
struct Screen;

impl Member for Screen {
    fn hear(&self, name: &str, text: &str) -> peregrine::Result<()> {
        println!("{name}: {text}");
        Ok(())
    }
}

fn main() -> Result<(), RoomError> {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => {
            let room = RoomServer::new(Hall::default());
            Server::new().export("chat", room)?.stop_on_signals().run()?;
        }
        Some(name) => {
            let room = RoomClient::bind("chat")?;
            let others = room.join(name, Callback::new(Screen))?;
            println!("in the room: {}", others.join(", "));
            io::stdin().lines().map_while(Result::ok).try_for_each(|line| room.say(name, &line))?;
        }
        None => println!("usage: chat serve | chat NAME"),
    }
    Ok(())
}
