//! Offers servers of one RPC system to clients of another, and as JSON over HTTP.
//!
//! A [`Bridge`] offers exports of Peregrine and programs of ONC RPC and Courier, at any addresses. It needs
//! no code of their interfaces: it calls with a generic client, which uses the description that a server
//! sends or that is in a [file](InterfaceFile). Clients of HTTP call all exports and programs as JSON.
//! Clients of Peregrine, ONC RPC and Courier call them as exports or programs of the client's own system.
//! `docs/BRIDGE.md` in the repository describes addresses, requests, answers, failures and limits.
//!
//! ```no_run
//! use peregrine_bridge::Bridge;
//!
//! let bridge = Bridge::new().offer("files")?.offer("tcp:clock@192.0.2.7:7000")?;
//! let bridge = bridge.listen("127.0.0.1:8080")?.export_at("tcp:127.0.0.1:7000")?;
//! let running = bridge.spawn()?;
//! println!("http://{}/", running.addresses()[0]);
//! running.wait();
//! # Ok::<(), peregrine_bridge::SetupError>(())
//! ```
//!
//! `POST /files/size` with the body `{"path": "hosts"}` then calls the procedure `size` of `files`, and a
//! client of Peregrine finds `files` at `tcp:files@127.0.0.1:7000`.

mod answer;
mod call;
mod failure;
mod forward;
mod fronts;
mod guard;
mod interface_file;
mod lines;
mod openapi;
mod page;
mod patience;
mod route;
mod running;
mod schema;
mod setup;
mod target;

pub use interface_file::InterfaceFile;
pub use running::{Running, StopHandle};
pub use setup::{Bridge, SetupError};
