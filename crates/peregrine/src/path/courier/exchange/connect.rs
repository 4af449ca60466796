//! Binds to a program of Courier over the packet exchange. The client binds to the export that has the
//! reserved name of the program.

use std::sync::Arc;

use super::client::ExchangePath;
use super::name_of;
use crate::address::Address;
use crate::call::PathKind;
use crate::error::{CallError, Kind, Phase};
use crate::interface::System;
use crate::path::bind::{
    BoundPath, Connect, Exclusion, Inquiry, Target, Wanted, needs_place, system,
};
use crate::path::courier::wire::program::version_of;
use crate::path::datagram::OverUdp;
use crate::path::foreign::program::chosen;
use crate::value::ByteOrder;

/// The client's implementation of Courier over Peregrine's packet exchange.
pub(crate) struct CourierExchange;

impl Connect for CourierExchange {
    fn kind(&self) -> PathKind {
        PathKind::CourierExchange
    }

    fn leads_to(&self, target: &Address) -> Result<(), Exclusion> {
        needs_place(target)
    }

    fn bind(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<BoundPath, CallError> {
        let program = chosen(System::Courier, wanted)?;
        let (number, version) = (program.number, version_of(&program)?);
        let name = name_of(number, version.into());
        // The values have Courier's representation, whatever interface the server has. So no digest is
        // compared.
        let bound = OverUdp.bind(target, &Wanted { name: &name, digest: None, ..*wanted });
        let BoundPath { path, frames, .. } = bound.map_err(|error| match error.kind() {
            Kind::NotFound => {
                let text = format!("the server has no version {version} of program {number}");
                CallError::not_executed(Kind::NotFound, Phase::Bind, text)
            }
            _ => error,
        })?;
        let over = ExchangePath::over(path, frames, &program, version);
        let (path, frames) = over.map_err(system("cannot allocate frames"))?;
        let (path, frames) = (Box::new(path), Arc::new(frames));
        Ok(BoundPath { path, frames, order: ByteOrder::NATIVE })
    }

    /// Asks for the description of the export. Other servers of Courier do not describe their programs.
    fn inquire(&self, target: &Target<'_>, wanted: &Wanted<'_>) -> Result<Inquiry, CallError> {
        let program = chosen(System::Courier, wanted)?;
        let name = name_of(program.number, program.version);
        OverUdp.inquire(target, &Wanted { name: &name, ..*wanted })
    }
}
