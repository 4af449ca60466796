//! Implements `Value` for `CallError`. If a call that a procedure made has failed, the procedure can return
//! the error of that call. The error is sent as text, and arrives with the kind `Relayed`.

use super::{Invalid, Overflow, Reader, Representation, Value, Writer};
use crate::error::{CallError, Executed, Kind};
use crate::interface::{Body, Field, Growth, Named, Type};
use crate::limits;

impl CallError {
    /// Returns the text that is sent. If the error was relayed before, the text is that of the first server,
    /// followed by the number of servers that relayed the error.
    pub(crate) fn relayed_text(&self) -> String {
        const BY: &str = " (relayed by ";
        const END: &str = " servers)";
        let (mut text, end) = if self.kind() == Kind::Relayed {
            let counted = self.detail().strip_suffix(END).and_then(|text| text.rsplit_once(BY));
            let counted = counted.and_then(|(text, count)| Some((text, count.parse().ok()?)));
            let (text, count): (&str, u32) = counted.unwrap_or((self.detail(), 1));
            (text.to_owned(), format!("{BY}{}{END}", count.saturating_add(1)))
        } else {
            (self.chain(), String::new())
        };
        text.truncate(text.floor_char_boundary(limits::TEXT_BYTES_MAX - end.len()));
        text + &end
    }
}

impl Value for CallError {
    const TYPE: Type = Type::Named(Named {
        name: "CallError",
        path: || "peregrine::CallError",
        body: || {
            Body::Struct(&[Field {
                name: "chain",
                ty: &Type::Text,
                growth: Growth::NONE,
                max: None,
            }])
        },
    });

    fn encode<R: Representation>(&self, head: &mut Writer<'_, R>) -> Result<(), Overflow> {
        self.relayed_text().encode(head)
    }

    /// Makes an error of the kind `Relayed`, whatever kind the error had on the other side. The outcome is
    /// `Maybe`, because the procedure ran at least until its nested call failed.
    fn decode<R: Representation>(head: &mut Reader<'_, R>) -> Result<Self, Invalid> {
        Ok(Self::new(Kind::Relayed, Executed::Maybe, String::decode(head)?))
    }
}
