//! `CallError` as a value. The failed call of a procedure is sent as text, with the kind `Relayed`.

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Body, Field, Named, Type};
use crate::limits;

impl CallError {
    /// Returns the text that is sent.
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

    /// Makes an error of the kind `Relayed`, whatever the kind was on the other side: another call has
    /// failed, and it is not known what the procedure did before.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self::new(Kind::Relayed, Executed::Maybe, String::decode(head)?))
    }
}
