//! A call by iceoryx2: a request in memory that both processes share, and its response.
//!
//! As its own benchmark makes services, for one client and one server; unlike there, every request
//! gets its response, as a call does.

use std::fmt::Debug;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;

use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::{
    Config, FileName, LogLevel, NodeBuilder, Path, SemanticString, SignalHandlingMode,
    ZeroCopySend, ipc, set_log_level,
};
use iceoryx2::service::port_factory::request_response::PortFactory;

use crate::interfaces::sum_of_lines;
use crate::orders::{Order, Post, Report};
use crate::peers::{ANSWER, call_as_ordered, room};
use crate::rooms::shared_names;
use crate::subject::Failure;

type Service<P> = PortFactory<ipc::Service, P, (), u8, ()>;

/// Looks for a response between two at whether this process is to end.
const LOOKS: u32 = 1 << 16;

/// A request of so many bytes.
trait Payload: Debug + ZeroCopySend + Copy + 'static {
    const REQUEST: Self;
    fn bytes(&self) -> &[u8];
}

impl<const N: usize> Payload for [u8; N] {
    const REQUEST: Self = [0xa5; N];
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// Answers requests of so many bytes.
pub(crate) fn serve(post: Post, bytes: usize) -> Result<(), Failure> {
    match bytes {
        200 => serve_of::<[u8; 200]>(post),
        _ => serve_of::<[u8; 1]>(post),
    }
}

/// Sends requests of so many bytes, as often as it is told to.
pub(crate) fn call(post: Post, bytes: usize) -> Result<(), Failure> {
    match bytes {
        200 => call_of::<[u8; 200]>(post),
        _ => call_of::<[u8; 1]>(post),
    }
}

/// The service of a size, under this run's directory and names: two runs know nothing of each other.
fn service<P: Payload>() -> Result<Service<P>, Failure> {
    set_log_level(LogLevel::Error);
    let room = room()?;
    let mut config = Config::default();
    config.global.set_root_path(&Path::new(room.join("iceoryx2").as_os_str().as_bytes())?);
    config.global.prefix = FileName::new(shared_names(&room).as_bytes())?;
    let node = NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<ipc::Service>()?;
    let name = format!("call-{}", size_of::<P>());
    let service = node
        .service_builder(&name.as_str().try_into()?)
        .request_response::<P, u8>()
        .max_servers(1)
        .max_clients(1)
        .max_response_buffer_size(1)
        .open_or_create()?;
    Ok(service)
}

fn serve_of<P: Payload>(mut post: Post) -> Result<(), Failure> {
    let service = service::<P>()?;
    let server: Server<ipc::Service, P, (), u8, ()> = service.server_builder().create()?;
    post.ready();
    while let Some(order) = post.next() {
        if order != Order::Serve {
            post.report(Report::default());
            continue;
        }
        while !post.is_called_off() {
            let Some(request) = server.receive()? else { continue };
            // Nothing is copied for it, but every line comes over, as with ours.
            black_box(sum_of_lines(request.payload().bytes()));
            request.loan_uninit()?.write_payload(ANSWER).send()?;
        }
    }
    Ok(())
}

fn call_of<P: Payload>(post: Post) -> Result<(), Failure> {
    let service = service::<P>()?;
    let client: Client<ipc::Service, P, (), u8, ()> = service.client_builder().create()?;
    call_as_ordered(post, |post| {
        let request = client.loan_uninit()?.write_payload(black_box(P::REQUEST));
        let pending = request.send()?;
        let mut looks = 0;
        while pending.receive()?.is_none() {
            looks += 1;
            if looks % LOOKS == 0 && post.is_called_off() {
                return Err("called off while a request was under way".into());
            }
        }
        Ok(())
    })
}
