//! What a server receives on a connection. A server accepts three forms at one port. The first two bytes that a
//! client sends say which form it uses.

use super::cooper::{self, Request, ServerInput};
use super::stream::{self, Event, Framing, Input};
use super::words::WORD;

/// How a client sends its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As messages of the standard.
    Messages(Framing),
    /// In Cooper's form.
    Cooper,
}

impl Form {
    /// Returns the form of a client that begins with these bytes.
    ///
    /// A record whose marker says that it is the last fragment begins with a set bit. The first frame has the
    /// type 0 and the flags 0 or 1, or is the frame of the end. All else is the length of a name.
    pub(crate) const fn of(first: [u8; WORD]) -> Self {
        match first {
            [0, 0 | 1] | [254, 0] => Self::Messages(Framing::Frames),
            [0x80..=0xff, _] => Self::Messages(Framing::Records),
            _ => Self::Cooper,
        }
    }
}

/// What has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The client uses this form. It is the first arrival, and occurs once.
    Begins(Form),
    /// A message of the standard.
    Message(Vec<u8>),
    /// The client sends no more data. This side answers with [`super::frames::END_REPLY_FRAME`].
    End,
    /// What arrives in Cooper's form.
    Cooper(Request),
}

/// Why the connection is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    Messages(stream::Broken),
    Cooper(cooper::Broken),
}

#[derive(Debug)]
enum State {
    /// This many of the first bytes have arrived.
    First([u8; WORD], usize),
    Messages(Input),
    Cooper(ServerInput),
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct Arrivals {
    bytes_max: usize,
    state: State,
}

impl Arrivals {
    /// Makes the input of a new connection. A message of the standard may have up to `bytes_max` bytes.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: State::First([0; WORD], 0) }
    }

    /// Returns the memory of the message that has arrived in part.
    pub(crate) const fn message(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.state {
            State::First(..) => None,
            State::Messages(input) => Some(input.message()),
            State::Cooper(input) => Some(input.part()),
        }
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed. Call it again until it returns `None`, because `bytes` may contain several messages.
    ///
    /// # Errors
    /// Fails if the bytes do not have the client's form, or if a limit is exceeded. The connection is of no use
    /// any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrival>, Broken> {
        match &mut self.state {
            State::First(first, have) => {
                while *have < WORD {
                    let Some((byte, later)) = bytes.split_first() else { return Ok(None) };
                    first[*have] = *byte;
                    *have += 1;
                    *bytes = later;
                }
                let first = *first;
                let form = Form::of(first);
                self.state = match form {
                    Form::Messages(framing) => State::Messages(Input::new(framing, self.bytes_max)),
                    Form::Cooper => State::Cooper(ServerInput::new()),
                };
                // Two bytes are no complete message in any form.
                let nothing = self.take(&mut &first[..])?;
                debug_assert_eq!(nothing, None);
                Ok(Some(Arrival::Begins(form)))
            }
            State::Messages(input) => loop {
                return Ok(match input.take(bytes).map_err(Broken::Messages)? {
                    // This side never sends the frame of the end first.
                    Some(Event::EndReply) => continue,
                    Some(Event::Message(message)) => Some(Arrival::Message(message)),
                    Some(Event::End) => Some(Arrival::End),
                    None => None,
                });
            },
            State::Cooper(input) => {
                Ok(input.take(bytes).map_err(Broken::Cooper)?.map(Arrival::Cooper))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::courier::cooper::{activation, call_header};
    use crate::protocol::courier::frames::END_FRAME;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn received(stream: &[u8], piece: usize) -> Result<Vec<Arrival>, Broken> {
        let (mut arrivals, mut all) = (Arrivals::new(100), Vec::new());
        for mut bytes in stream.chunks(piece) {
            while let Some(arrival) = arrivals.take(&mut bytes)? {
                all.push(arrival);
            }
        }
        Ok(all)
    }

    #[test]
    fn form_is_known_from_the_first_bytes() {
        for framing in [Framing::Records, Framing::Frames] {
            let first = [0, 3, 0, 3, 9, 9];
            let (before, _) = framing.piece(first.len(), 0).expect("a short message");
            let stream = [&before[..], &first].concat();
            let begins = Arrival::Begins(Form::Messages(framing));
            for piece in 1..=stream.len() {
                let expected = vec![begins.clone(), Arrival::Message(vec![9, 9])];
                assert_eq!(received(&stream, piece), Ok(expected));
            }
        }
        let end = vec![Arrival::Begins(Form::Messages(Framing::Frames)), Arrival::End];
        assert_eq!(received(&END_FRAME, 1), Ok(end));
        let call = call_header(7, 2).expect("a short call");
        let stream = [&activation("Clock").expect("a name")[..], &call, &[1, 2]].concat();
        let cooper = vec![
            Arrival::Begins(Form::Cooper),
            Arrival::Cooper(Request::Activate("Clock".into())),
            Arrival::Cooper(Request::Call { procedure: 7, arguments: vec![1, 2] }),
        ];
        for piece in 1..=stream.len() {
            assert_eq!(received(&stream, piece).as_ref(), Ok(&cooper));
        }
    }

    #[test]
    fn bytes_of_another_protocol_have_no_form() {
        let broken = Err(Broken::Cooper(cooper::Broken::BadName));
        assert_eq!(received(b"GET / HTTP/1.1\r\n", 3), broken);
        assert_eq!(received(&[0x7f, 0xff], 1), broken);
        let long = received(&[0xff; 8], 8);
        assert!(matches!(long, Err(Broken::Messages(_))), "{long:?}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in vec(any::<u8>(), 0..60), piece in 1_usize..9) {
            let whole = received(&bytes, bytes.len().max(1));
            prop_assert_eq!(received(&bytes, piece), whole);
        }
    }
}
