//! `CallError` as a value: a procedure's own failed call crosses a binding as text, kind `Relayed`.

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Body, Field, Named, Type};
use crate::limits;

impl CallError {
    /// What of it crosses a binding.
    pub(crate) fn relayed_text(&self) -> String {
        let mut chain = self.chain();
        chain.truncate(chain.floor_char_boundary(limits::TEXT_BYTES_MAX));
        chain
    }
}

impl Value for CallError {
    const TYPE: Type = Type::Named(Named {
        name: "CallError",
        path: || "peregrine::CallError",
        body: || Body::Struct(&[Field { name: "chain", ty: &Type::Text }]),
    });

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.relayed_text().encode(head)
    }

    /// Whatever it was on the other side, here it is the failure of somebody else's call: what
    /// this caller's own procedure did before is not known.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self::new(Kind::Relayed, Executed::Maybe, String::decode(head)?))
    }
}
