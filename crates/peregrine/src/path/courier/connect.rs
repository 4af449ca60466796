//! Binds to a program of Courier. The client checks that its interface is this program. With the messages of
//! the standard, the client also calls a procedure that the program does not have, so that a missing program
//! or version is reported at once. In Cooper's form, the server starts the program by its name.

use core::net::SocketAddr;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Instant;

use super::client::{Calls, Courier, CourierLink, CourierPath};
use crate::address::{Address, Place};
use crate::call::{Frames, PathKind};
use crate::device::tcp::{Stream, WaitFor};
use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, connect, needs_place, system, violated,
};
use crate::path::courier::wire::program::{
    bind_error, free_procedure, is_well, undescribed, version_of,
};
use crate::path::foreign::client::Wire;
use crate::path::foreign::program::{Chosen, chosen};
use crate::path::options::CourierForm;
use crate::protocol::courier::arrival::Form;
use crate::protocol::courier::cooper::{self, ClientInput, Response, activation};
use crate::protocol::courier::failure::Failure;
use crate::protocol::courier::stream::Framing;

/// The client's implementation of Courier over TCP.
pub(crate) struct CourierTcp;

const NO_NAME: &str = "write the name of the program, such as courier+tcp:HOST/Clock";

impl Connect for CourierTcp {
    fn kind(&self) -> PathKind {
        PathKind::CourierTcp
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        needs_place(target)
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        let program = Program::of(wanted)?;
        let mut addresses = target.place()?.resolve()?;
        for address in addresses.iter_mut().filter(|address| address.port() == 0) {
            address.set_port(Place::COURIER_PORT);
        }
        let congestion = wanted.options.congestion.as_deref();
        let stream = connect(&addresses, congestion, wanted.until)?;
        let address = stream.peer().map_err(system("reading the server's address"))?;
        match program {
            Program::Numbered(chosen, framing) => {
                bind_messages(stream, address, &chosen, framing, wanted)
            }
            Program::Named(name) => bind_cooper(stream, address, &name, wanted),
        }
    }

    fn inquire(&self, _: &Target<'_>, _: &Wanted<'_>) -> Result<Inquiry, CallError> {
        Err(undescribed())
    }
}

/// The program that a client wants, and the form of its calls.
enum Program {
    Numbered(Chosen, Framing),
    /// Cooper's form identifies a program by its name.
    Named(String),
}

impl Program {
    fn of(wanted: &Wanted<'_>) -> Result<Self, CallError> {
        let Wanted { name, interface, options, .. } = *wanted;
        let is_name = !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit());
        match options.courier_form {
            CourierForm::Cooper => {}
            _ if is_name => {}
            CourierForm::Records => {
                return Ok(Self::Numbered(chosen(System::Courier, wanted)?, Framing::Records));
            }
            CourierForm::Frames => {
                return Ok(Self::Numbered(chosen(System::Courier, wanted)?, Framing::Frames));
            }
        }
        if is_name {
            return Ok(Self::Named(name.to_owned()));
        }
        if interface.name().is_empty() {
            let text = "Cooper's form knows programs by their names, and the address has none";
            let error = CallError::not_executed(Kind::BadName, Phase::Bind, text);
            return Err(error.with_advice(NO_NAME));
        }
        // The numbers of an address must be those of the interface, although they are not sent.
        chosen(System::Courier, wanted)?;
        Ok(Self::Named(interface.name().to_owned()))
    }
}

fn bind_messages(
    stream: Stream,
    address: SocketAddr,
    program: &Chosen,
    framing: Framing,
    wanted: &Wanted<'_>,
) -> Result<BoundPath, CallError> {
    let &Chosen { number, ref procedures, .. } = program;
    let (version, ping) = (version_of(program)?, free_procedure(procedures));
    let courier = Courier::new(framing, number, version, ping);
    let link = open(stream, courier, wanted)?;
    let asked = match ping {
        Some(ping) => link.ask(ping.into(), &[], wanted.until)?,
        None => Ok(Vec::new()),
    };
    match asked {
        Err(failure) if !is_well(failure) => {
            return Err(bind_error(&link.bind_error(failure), failure, program, address));
        }
        _ => {}
    }
    let form = match framing {
        Framing::Records => "records",
        Framing::Frames => "frames",
    };
    CourierPath::bound(
        link,
        procedures.clone(),
        wanted.options.wait,
        format!("version {version} of program {number} at {address}, in {form}"),
    )
}

fn bind_cooper(
    stream: Stream,
    address: SocketAddr,
    name: &str,
    wanted: &Wanted<'_>,
) -> Result<BoundPath, CallError> {
    let at = format!("the program `{name}` at {address}");
    activate(&stream, name, &at, wanted.until)?;
    let interface = wanted.interface;
    let procedures = interface.program(System::Courier).map(|program| program.procedures.clone());
    let procedures = procedures.unwrap_or_default();
    let silent = procedures.iter().enumerate().filter(|(at, _)| !interface.has_results(*at));
    let silent = silent.map(|(_, procedure)| *procedure).collect();
    let link = open(stream, Courier::cooper(silent), wanted)?;
    CourierPath::bound(link, procedures, wanted.options.wait, format!("{at}, in Cooper's form"))
}

/// Makes the server start the program with this name. `at` describes the program in error messages.
fn activate(stream: &Stream, name: &str, at: &str, until: Instant) -> Result<(), CallError> {
    let failed = |error| CallError::system(Phase::Bind, format!("activating {at}"), error);
    let Some(wanted) = activation(name) else {
        let text = format!("`{name}` cannot be the name of a program in Cooper's form");
        return Err(CallError::not_executed(Kind::BadName, Phase::Bind, text).with_advice(NO_NAME));
    };
    let late = || {
        let text = format!("{at}: the server does not answer");
        CallError::not_executed(Kind::TimedOut, Phase::Bind, text)
    };
    let wait = |what| match stream.wait(what, Some(until)).map_err(failed) {
        Ok(_) if Instant::now() >= until => Err(late()),
        waited => waited.map(|_| ()),
    };
    let may_pass = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted);
    let mut rest = &wanted[..];
    while !rest.is_empty() {
        match stream.send_some(rest) {
            Ok(bytes) => rest = &rest[bytes..],
            Err(error) if may_pass(error.kind()) => wait(WaitFor::Writable)?,
            Err(error) => return Err(failed(error)),
        }
    }
    let (mut input, mut memory) = (ClientInput::new(), [0; cooper::TEXT_BYTES_MAX]);
    loop {
        wait(WaitFor::Readable)?;
        let mut arrived = match stream.receive(&mut memory, false) {
            Ok(0) => return Err(violated(format!("{at}: the server has closed the connection"))),
            Ok(bytes) => &memory[..bytes],
            Err(error) if may_pass(error.kind()) => continue,
            Err(error) => return Err(failed(error)),
        };
        match input.take(&mut arrived) {
            Ok(None) => {}
            Ok(Some(Response::Started)) if arrived.is_empty() => return Ok(()),
            Ok(Some(Response::Refused(why))) => {
                let text = format!("{at}: {}: {why}", Failure::NotActivated);
                return Err(CallError::not_executed(Kind::NotFound, Phase::Bind, text));
            }
            Ok(Some(Response::Started | Response::Results(_))) => {
                return Err(violated(format!("{at}: results arrived without a call")));
            }
            Err(broken) => return Err(violated(format!("{at}: {broken}"))),
        }
    }
}

/// Makes a link from a connection.
fn open(
    stream: Stream,
    courier: Courier,
    wanted: &Wanted<'_>,
) -> Result<Arc<CourierLink>, CallError> {
    let Wanted { interface, options, .. } = *wanted;
    let most = options.message_bytes_for(interface);
    let bytes = match courier.form() {
        Form::Cooper => most.min(cooper::BYTES_MAX),
        Form::Messages(_) => most,
    };
    let frames = Frames::private(options.room_for(bytes), options.astacks, bytes)
        .map_err(system("cannot allocate frames"))?;
    Ok(CourierLink::new(Wire::Tcp(stream), PathKind::CourierTcp, courier, Calls::new(), frames))
}
