//! What a server receives on a connection. A server accepts three forms at one port. The first two bytes that
//! a client sends say which form it uses.

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

/// If the framing is still not known after this number of bytes, the bytes count as frames.
const HELD_MAX: usize = 1 << 20;

impl Form {
    /// Returns the form of a client that begins with these bytes, or `None` if both records and frames can
    /// begin with them.
    ///
    /// The marker of the last fragment of a record begins with a set bit. The last frame of a message begins
    /// with 0 and 1, and the frame after all data with 254 and 0. A frame that is not the last one begins
    /// with two zeros. So does the marker of a fragment that is not the last one, unless the fragment is
    /// longer than a frame can be. All other bytes are the length of a name in Cooper's form.
    const fn of(first: [u8; WORD]) -> Option<Self> {
        Some(match first {
            [0, 0] => return None,
            [0, 1] | [254, 0] => Self::Messages(Framing::Frames),
            [0x80..=0xff, _] => Self::Messages(Framing::Records),
            _ => Self::Cooper,
        })
    }
}

/// A message or an event that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The client uses this form. This arrival is always the first one, and occurs once.
    Begins(Form),
    /// A message of the standard.
    Message(Vec<u8>),
    /// The client sends no more data. This side answers with [`super::frames::END_REPLY_FRAME`].
    End,
    /// A request in Cooper's form.
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
    /// The form is not known yet. The state holds the bytes that have arrived, and the offset in them at
    /// which the next marker of a fragment or header of a frame begins.
    First(Vec<u8>, usize),
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
    /// Makes the server's end of a new connection. In the forms with messages of the standard, a message may
    /// have up to `bytes_max` bytes.
    pub(crate) const fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: State::First(Vec::new(), 0) }
    }

    /// Returns the memory of the message that has arrived in part.
    pub(crate) const fn message(&mut self) -> &mut Vec<u8> {
        match &mut self.state {
            State::First(held, _) => held,
            State::Messages(input) => input.message(),
            State::Cooper(input) => input.part(),
        }
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a message. Returns `None` if more
    /// bytes are needed. Call it again until it returns `None`, because `bytes` may contain several messages.
    ///
    /// # Errors
    /// Fails if the bytes do not have the client's form, or if a limit is exceeded. The connection is of no
    /// use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Arrival>, Broken> {
        match &mut self.state {
            State::First(held, next) => {
                let Some(form) = recognized(held, next, bytes) else { return Ok(None) };
                let held = core::mem::take(held);
                self.state = match form {
                    Form::Messages(framing) => State::Messages(Input::new(framing, self.bytes_max)),
                    Form::Cooper => State::Cooper(ServerInput::new()),
                };
                // The held bytes end within or after a marker, a header or the length of a name. So they
                // contain no complete message.
                let nothing = self.take(&mut &held[..])?;
                debug_assert_eq!(nothing, None);
                Ok(Some(Arrival::Begins(form)))
            }
            State::Messages(input) => loop {
                return Ok(match input.take(bytes).map_err(Broken::Messages)? {
                    // An answer to `END_FRAME` is ignored, because this side never sends `END_FRAME` first.
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

/// Moves bytes from the front of `bytes` to the end of `held`, until they show the form. `next` is the offset
/// in `held` of the next marker or header.
fn recognized(held: &mut Vec<u8>, next: &mut usize, bytes: &mut &[u8]) -> Option<Form> {
    /// The number of bytes of a marker and of a header.
    const HEADER: usize = 2 * WORD;
    let mut hold_up_to = |held: &mut Vec<u8>, end: usize| {
        let (now, later) = bytes.split_at(end.saturating_sub(held.len()).min(bytes.len()));
        held.extend_from_slice(now);
        *bytes = later;
        held.len() >= end
    };
    loop {
        if !hold_up_to(held, *next + WORD) {
            return None;
        }
        match Form::of([held[*next], held[*next + 1]]) {
            Some(Form::Cooper) if *next > 0 => return Some(Form::Messages(Framing::Frames)),
            Some(form) => return Some(form),
            None if held.len() > HELD_MAX => return Some(Form::Messages(Framing::Frames)),
            None => {}
        }
        if !hold_up_to(held, *next + HEADER) {
            return None;
        }
        let length = u16::from_be_bytes([held[*next + 2], held[*next + 3]]);
        let end = *next + HEADER + usize::from(length);
        if !hold_up_to(held, end) {
            return None;
        }
        *next = end;
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
    fn first_message_may_be_divided() {
        let message = [0, 3, 0, 3, 1, 2, 3, 4, 5];
        for framing in [Framing::Frames, Framing::Records] {
            let header = |bytes: u8, is_last: bool| match framing {
                Framing::Frames => [0, u8::from(is_last), 0, bytes],
                Framing::Records => [if is_last { 0x80 } else { 0 }, 0, 0, bytes],
            };
            for size in [1, 2, 4] {
                let mut stream = Vec::new();
                for part in message.chunks(size) {
                    stream.extend(header(0, false));
                    stream.extend(header(part.len() as u8, false));
                    stream.extend(part);
                }
                stream.extend(header(0, true));
                let begins = Arrival::Begins(Form::Messages(framing));
                let expected = vec![begins, Arrival::Message(vec![1, 2, 3, 4, 5])];
                for piece in [1, 2, 5, stream.len()] {
                    assert_eq!(received(&stream, piece).as_ref(), Ok(&expected));
                }
            }
        }
        // A message that never ends counts as frames, and the number of frames of a message is limited.
        let endless = [0, 0, 0, 0].repeat(1 << 19);
        assert!(matches!(received(&endless, 9999), Err(Broken::Messages(_))));
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
