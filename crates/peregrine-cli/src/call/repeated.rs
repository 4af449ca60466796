//! A call that a command makes again and again with the same arguments.

use peregrine::json::Bytes;
use peregrine::{Argument, BindOptions, CallError, Dynamic, Executed, GenericClient, Kind, Out};

use super::arguments::{PreparedCall, Slot};
use super::streams;
use crate::args::Call;
use crate::output::Failure;

/// A call that can be made many times.
pub(crate) struct RepeatedCall {
    client: GenericClient,
    given: PreparedCall,
}

impl RepeatedCall {
    /// Binds, and reads the arguments.
    ///
    /// # Errors
    /// If the procedure has streams, callbacks or no reply: such a call is not over when it has returned.
    pub(crate) fn prepare(call: &Call, options: BindOptions) -> Result<Self, Failure> {
        let client = GenericClient::bind_with(&call.address, &options)?;
        let given = PreparedCall::read(client.described(), call)?;
        let procedure = &client.described().procedures[given.number as usize];
        let is_source = |slot: &Slot| matches!(slot, Slot::Source(_));
        if procedure.oneway || streams::has_lines(procedure) || given.slots.iter().any(is_source) {
            return Err(Failure::Usage {
                what: format!("`{}` cannot be called again and again", procedure.name),
                causes: vec!["it has streams, callbacks or no reply".to_owned()],
                advice: "choose a procedure with values and buffers only".to_owned(),
                suggestions: Vec::new(),
            });
        }
        let client = match given.message_bytes {
            0 => client,
            bytes => {
                let options = options.message_bytes(bytes);
                GenericClient::bind_as(&call.address, client.described().clone(), &options)?
            }
        };
        Ok(Self { client, given })
    }

    /// Returns the client.
    pub(crate) const fn client(&self) -> &GenericClient {
        &self.client
    }

    /// Makes the call once.
    ///
    /// # Errors
    /// If the call fails, also by an error of the procedure.
    pub(crate) fn try_once(&mut self) -> Result<(), Failure> {
        let client = self.client.clone();
        let Err(error) = self.call(&client)? else { return Ok(()) };
        let described = client.described();
        let procedure = &described.procedures[self.given.number as usize];
        let value = described.value_to_json(&procedure.error, &error, Bytes::Auto);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        Err(Failure::Refused(format!("`{}` returned an error: {text}", procedure.name)))
    }

    /// Makes the call by a client of the same interface.
    ///
    /// # Errors
    /// If the call fails, also by an error of the procedure.
    pub(crate) fn make(&mut self, client: &GenericClient) -> Result<(), CallError> {
        self.call(client)?.map_err(|_| {
            let text = "the procedure returned an error of its own";
            CallError::new(Kind::Relayed, Executed::Maybe, text)
        })
    }

    /// Makes the call. Returns the error of the procedure, if it has failed.
    fn call(&mut self, client: &GenericClient) -> Result<Result<(), Dynamic>, CallError> {
        let arguments = self.given.slots.iter_mut().filter_map(|slot| match slot {
            Slot::In(value) => Some(Argument::In(value)),
            Slot::Bytes(bytes) => Some(Argument::Bytes((&bytes[..]).into())),
            Slot::InOut(value) => Some(Argument::InOut(value)),
            Slot::Out(room) => Some(Argument::Out(Out::from(&mut room[..]))),
            // `prepare` refuses procedures with these parameters.
            Slot::Sink | Slot::Callback | Slot::Source(_) => None,
        });
        let mut arguments: Vec<Argument<'_>> = arguments.collect();
        let mut result = Dynamic::Unit;
        let is_ok = client.call_into(self.given.number, &mut arguments, &mut result)?;
        Ok(if is_ok { Ok(()) } else { Err(result) })
    }
}
