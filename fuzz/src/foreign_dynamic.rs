//! Passes any arguments in XDR or Courier to the interpreted server of any description.

use std::borrow::Cow;

use peregrine::call::{ForeignAnswer, ForeignCall, Serve};
use peregrine::interface::{Described, Program, System};
use peregrine::{Dynamic, GenericParameter, GenericServer};

/// Serves a call twice. The input consists of a description, the byte 0xff, the description for other
/// systems, the byte 0xff, the number of the procedure, and its arguments. The procedure returns its first
/// argument. If the first call returns a result, a second call with this result as its argument must return
/// the same bytes.
///
/// # Panics
/// Panics if a result is not read as the same value again.
pub fn run(bytes: &[u8]) {
    let mut parts = bytes.splitn(3, |byte| *byte == 0xff);
    let (Some(text), Some(foreign), Some([procedure, arguments @ ..])) =
        (parts.next(), parts.next(), parts.next())
    else {
        return;
    };
    let (Ok(text), Ok(foreign)) = (core::str::from_utf8(text), core::str::from_utf8(foreign))
    else {
        return;
    };
    let Ok(described) = Described::parse(text) else { return };
    let Ok(mut described) = described.with_foreign_text(foreign) else { return };
    for system in [System::Onc, System::Courier] {
        let procedures: Cow<'_, [u32]> = (0..described.procedures.len() as u32).collect();
        described.programs = vec![Program { system, number: 1, version: 1, procedures }];
        serve(&described, system, u32::from(*procedure), arguments);
    }
}

fn serve(described: &Described, system: System, procedure: u32, arguments: &[u8]) {
    let server = GenericServer::new(described.clone(), |call| {
        Ok(match call.parameters().first_mut() {
            Some(GenericParameter::In(value)) => Ok(core::mem::take(value)),
            _ => Err(Dynamic::Unit),
        })
    });
    let mut first = Vec::new();
    let call = ForeignCall { system, program: 1, version: 1, procedure, arguments };
    if !matches!(server.serve_foreign(&call, &mut first), Ok(ForeignAnswer::Returned)) {
        return;
    }
    let known = &described.procedures[procedure as usize];
    let [parameter] = &known.parameters[..] else { return };
    if parameter.ty != known.result || parameter.shape != peregrine::interface::Shape::One {
        return;
    }
    assert_eq!(first.len(), arguments.len());
    let mut second = Vec::new();
    let call = ForeignCall { arguments: &first, ..call };
    assert!(matches!(server.serve_foreign(&call, &mut second), Ok(ForeignAnswer::Returned)));
    assert_eq!(first, second);
}
