//! Implements a call with iceoryx2: a request in memory that both processes share, and its response.
//!
//! Services are created as in iceoryx2's own benchmark, for one client and one server. There is one
//! difference: a client sends a request only after the response to the previous one, as in a call.

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
use crate::orders::{ChildSlot, Order, Report};
use crate::peers::{ANSWER, call_as_ordered};
use crate::run_directory::shared_names;
use crate::subject::Failure;

type Service<P> = PortFactory<ipc::Service, P, (), u8, ()>;

/// The number of polls for a response between two checks of whether this process has to end.
const LOOKS: u32 = 1 << 16;

/// A request of a fixed number of bytes.
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

/// Answers requests of `bytes` bytes, where `bytes` is 1 or 200.
pub(crate) fn serve(slot: ChildSlot, bytes: usize) -> Result<(), Failure> {
    match bytes {
        200 => serve_of::<[u8; 200]>(slot),
        _ => serve_of::<[u8; 1]>(slot),
    }
}

/// Sends requests of `bytes` bytes, where `bytes` is 1 or 200. Each command says how many requests to send.
pub(crate) fn call(slot: ChildSlot, bytes: usize) -> Result<(), Failure> {
    match bytes {
        200 => call_of::<[u8; 200]>(slot),
        _ => call_of::<[u8; 1]>(slot),
    }
}

/// Returns the service whose requests are of the type `P`. The service uses the directory of this run and a
/// name prefix of this run, so two runs do not influence each other.
fn service<P: Payload>() -> Result<Service<P>, Failure> {
    set_log_level(LogLevel::Error);
    let directory = crate::run_directory::of_this_run()?;
    let mut config = Config::default();
    config.global.set_root_path(&Path::new(directory.join("iceoryx2").as_os_str().as_bytes())?);
    config.global.prefix = FileName::new(shared_names(&directory).as_bytes())?;
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

fn serve_of<P: Payload>(mut slot: ChildSlot) -> Result<(), Failure> {
    let service = service::<P>()?;
    let server: Server<ipc::Service, P, (), u8, ()> = service.server_builder().create()?;
    slot.ready();
    while let Some(order) = slot.next() {
        if order != Order::Serve {
            slot.report(Report::default());
            continue;
        }
        while !slot.is_superseded() {
            let Some(request) = server.receive()? else { continue };
            // The server reads one word of each cache line of the payload. So each line is transferred, as
            // in the measurement of Peregrine.
            black_box(sum_of_lines(request.payload().bytes()));
            request.loan_uninit()?.write_payload(ANSWER).send()?;
        }
    }
    Ok(())
}

fn call_of<P: Payload>(slot: ChildSlot) -> Result<(), Failure> {
    let service = service::<P>()?;
    let client: Client<ipc::Service, P, (), u8, ()> = service.client_builder().create()?;
    call_as_ordered(slot, |slot| {
        let request = client.loan_uninit()?.write_payload(black_box(P::REQUEST));
        let pending = request.send()?;
        let mut looks = 0;
        while pending.receive()?.is_none() {
            looks += 1;
            if looks % LOOKS == 0 && slot.is_superseded() {
                return Err("stopped while a request was in progress".into());
            }
        }
        Ok(())
    })
}
