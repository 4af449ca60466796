//! Offers Peregrine servers as JSON over HTTP.
//!
//! A [`Bridge`] offers exports at any addresses. It needs no code of their interfaces: it asks each server for
//! its description, and calls with a generic client. `docs/BRIDGE.md` in the repository describes requests,
//! answers, failures and limits.
//!
//! ```no_run
//! use peregrine_bridge::Bridge;
//!
//! let bridge = Bridge::new().offer("files")?.offer("tcp:clock@192.0.2.7:7000")?;
//! let running = bridge.listen("127.0.0.1:8080")?.spawn()?;
//! println!("http://{}/", running.addresses()[0]);
//! running.wait();
//! # Ok::<(), peregrine_bridge::SetupError>(())
//! ```
//!
//! `POST /files/size` with the body `{"path": "hosts"}` then calls the procedure `size` of `files`.

mod answer;
mod arguments;
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
