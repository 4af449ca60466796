//! A name service: a server in front of any directory of Peregrine, which finds servers for its clients, and
//! makes calls for them.
//!
//! A client that knows the address of a name service needs to know nothing else. It asks for the servers of
//! a name ([`NameService`] answers from its directory), or it lets the name service make the call: the *second
//! call*. The name service describes the procedure and converts the arguments, so that the client needs
//! neither the interface nor a path to the server. Chung and others describe this idea for the name service of
//! the HCS project (Schwartz, Zahorjan and Notkin, 1987).
//!
//! ```
//! use std::sync::Arc;
//!
//! use peregrine::directory::{Directory, Tree};
//! use peregrine::{ExportOptions, Server, interface};
//! use peregrine_names::{Lookup, LookupClient, NameService, Names};
//!
//! # #[interface] trait Double { fn double(&self, x: u32) -> peregrine::Result<u32>; }
//! # struct Doubler;
//! # impl Double for Doubler { fn double(&self, x: u32) -> peregrine::Result<u32> { Ok(2 * x) } }
//! # let shared = tempfile::tempdir().unwrap();
//! # let export = format!("doc-names-{}", std::process::id());
//! let tree = Tree::at(shared.path());
//! let options = ExportOptions::default().networks_only();
//! let server = Server::new().export_with("double", DoubleServer::new(Doubler), options)?;
//! let _running = server.listen("127.0.0.1:0")?.advertise("127.0.0.1")?.register_in(tree.clone()).spawn()?;
//!
//! let service = NameService::new(Arc::new(tree));
//! let running = service.export(Server::new(), &export, &ExportOptions::default())?;
//! let running = running.listen("tcp:127.0.0.1:0")?.spawn()?;
//! let address = format!("{}/{export}", running.addresses()[0]);
//!
//! // The service makes the call.
//! let names = LookupClient::bind(&address)?;
//! let returned = names.call("double", "double", r#"{"x": 21}"#).unwrap();
//! assert_eq!(returned.json, r#"{"result":42}"#);
//!
//! // The service is a directory.
//! let names = Names::at(&address, Default::default())?;
//! assert_eq!(names.names()?, ["double"]);
//! # Ok::<(), peregrine::CallError>(())
//! ```
//!
//! # Whose rights the second call has
//!
//! The second call never has more rights than its caller has. The name service shows no identity to the
//! server. On some paths, the server sees the user of the calling process. The name service uses such a path
//! only if the caller is the same user on the same machine, and the name service has no supplementary groups.
//! For callers on other machines, it calls no loopback address, because they could not call it themselves. So
//! a server whose procedures are limited to users, groups or identities refuses the second call. The caller
//! must then call the server itself.
//!
//! # At most once
//!
//! A failure says whether the second call may have run ([`Failure::may_have_executed`]). The name service
//! makes a call again, at this server or at another one, only if it certainly has not run.

mod access;
mod bindings;
mod client;
mod follow;
mod interface;
mod keeper;
mod memory;
mod second;
mod service;
mod shares;
mod watching;

pub use client::{Names, install, install_with};
pub use interface::{
    Failure, Interface, Known, Lookup, LookupAsync, LookupAsyncClient, LookupAsyncServer,
    LookupClient, LookupServer, NAME, NameWatch, NameWatchAsync, NameWatchAsyncClient,
    NameWatchAsyncServer, NameWatchClient, NameWatchServer, NamedServer, NamesError, Page,
    Returned, watch_name,
};
pub use service::NameService;
