//! Cooper's form of Courier, in 4.1c and 4.2BSD. It carries values of Courier, but none of the messages of
//! the standard: there are no versions, transaction numbers, rejections or errors.
//!
//! The client sends the name of a program, and the server answers with a zero byte once it has started the
//! program. A call is the number of the procedure, a count of words and the arguments. A reply is a count of
//! words and the results. A procedure without results has no reply.

use super::words::WORD;

/// The largest number of bytes of arguments or results. The count of their words is itself one word.
pub(crate) const BYTES_MAX: usize = u16::MAX as usize * WORD;
/// The largest number of bytes of the name of a program.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// The largest number of bytes of the text with which a server refuses a program.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;
/// The server's answer after it has started the program.
pub(crate) const STARTED: [u8; 1] = [0];

/// Why a stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The name of the program is too long, is empty, or could be a path.
    BadName,
    /// The server's refusal is longer than [`TEXT_BYTES_MAX`].
    TooLong,
    /// The stream ended within a message.
    Truncated,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::BadName => "the name of the program is not valid",
            Self::TooLong => "the server's refusal is longer than allowed",
            Self::Truncated => "the stream ends within a message",
        })
    }
}

/// Returns whether a program may have this name. Cooper's server looks for a file with this name in one
/// directory.
fn is_name(name: &[u8]) -> bool {
    let is_path = name.contains(&b'/') || name.contains(&0) || name.starts_with(b".");
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !is_path
}

/// Returns the bytes with which a client asks for a program, or `None` if no program may have this name.
pub(crate) fn activation(name: &str) -> Option<Vec<u8>> {
    if !is_name(name.as_bytes()) {
        return None;
    }
    let mut bytes = (name.len() as u16).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    Some(bytes)
}

/// Returns the bytes with which a server refuses a program.
pub(crate) fn refusal(text: &str) -> Vec<u8> {
    // If the first byte were zero, it would mean that the program was started. A later zero would end the
    // text.
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).take(TEXT_BYTES_MAX).collect();
    let text = if text.is_empty() { b"refused".to_vec() } else { text };
    [&text[..], &[0]].concat()
}

fn words(bytes: usize) -> Option<[u8; 2]> {
    let is_whole = bytes.is_multiple_of(WORD) && bytes <= BYTES_MAX;
    is_whole.then(|| ((bytes / WORD) as u16).to_be_bytes())
}

/// Returns the header of a call. The arguments follow. Returns `None` if the arguments are too long, or are
/// not whole words.
pub(crate) fn call_header(procedure: u16, argument_bytes: usize) -> Option<[u8; 4]> {
    let ([a, b], [c, d]) = (procedure.to_be_bytes(), words(argument_bytes)?);
    Some([a, b, c, d])
}

/// Returns the header of a reply. The results follow. Returns `None` if the results are too long, or are not
/// whole words.
pub(crate) fn reply_header(result_bytes: usize) -> Option<[u8; 2]> {
    words(result_bytes)
}

/// Collects one part of a request or response, such as its header, until all bytes of the part have arrived.
#[derive(Debug)]
struct Part {
    bytes: Vec<u8>,
    wanted: usize,
}

impl Part {
    const fn of(wanted: usize) -> Self {
        Self { bytes: Vec::new(), wanted }
    }

    /// Takes bytes from the front of `bytes`. Returns the part when it is complete, and `None` before. Memory
    /// is allocated only for bytes that have arrived.
    fn take(&mut self, bytes: &mut &[u8]) -> Option<Vec<u8>> {
        let (now, later) = bytes.split_at(bytes.len().min(self.wanted - self.bytes.len()));
        self.bytes.extend_from_slice(now);
        *bytes = later;
        (self.bytes.len() == self.wanted).then(|| core::mem::take(&mut self.bytes))
    }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// What a server receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The client asks for this program. This request is always the first one, and occurs once.
    Activate(String),
    Call {
        procedure: u16,
        arguments: Vec<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerPlace {
    NameLength,
    Name(usize),
    Header,
    Arguments(u16),
}

/// The server's end of a connection.
#[derive(Debug)]
pub(crate) struct ServerInput {
    place: ServerPlace,
    part: Part,
}

impl ServerInput {
    pub(crate) const fn new() -> Self {
        Self { place: ServerPlace::NameLength, part: Part::of(WORD) }
    }

    fn next(&mut self, place: ServerPlace, wanted: usize) {
        (self.place, self.part) = (place, Part::of(wanted));
    }

    /// Returns the memory of the part of a request that has arrived.
    pub(crate) const fn part(&mut self) -> &mut Vec<u8> {
        &mut self.part.bytes
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// Fails if only a part of a request has arrived.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn end(&self) -> Result<(), Broken> {
        let begins = matches!(self.place, ServerPlace::NameLength | ServerPlace::Header);
        if begins && self.part.bytes.is_empty() { Ok(()) } else { Err(Broken::Truncated) }
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a request. Returns `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// Fails if the name of the program is not valid. The stream is of no use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Request>, Broken> {
        while let Some(part) = self.part.take(bytes) {
            match self.place {
                ServerPlace::NameLength => {
                    let length = usize::from(number(&part, 0));
                    if length == 0 || length > NAME_BYTES_MAX {
                        return Err(Broken::BadName);
                    }
                    self.next(ServerPlace::Name(length), length.next_multiple_of(WORD));
                }
                ServerPlace::Name(length) => {
                    let name = part[..length].to_vec();
                    if !is_name(&name) {
                        return Err(Broken::BadName);
                    }
                    let name = String::from_utf8(name).map_err(|_| Broken::BadName)?;
                    self.next(ServerPlace::Header, 2 * WORD);
                    return Ok(Some(Request::Activate(name)));
                }
                ServerPlace::Header => {
                    let (procedure, count) = (number(&part, 0), number(&part, WORD));
                    self.next(ServerPlace::Arguments(procedure), usize::from(count) * WORD);
                }
                ServerPlace::Arguments(procedure) => {
                    self.next(ServerPlace::Header, 2 * WORD);
                    return Ok(Some(Request::Call { procedure, arguments: part }));
                }
            }
        }
        Ok(None)
    }
}

/// What a client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// The server has started the program. This response is the first one, unless the server refuses.
    Started,
    /// The server does not start the program, for this reason. It closes the connection.
    Refused(String),
    /// The results of the oldest call that waits for results. If no call waits for results, the code of the
    /// path closes the connection.
    Results(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientPlace {
    Start,
    Refusal,
    Refused,
    Header,
    Results,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(crate) struct ClientInput {
    place: ClientPlace,
    part: Part,
    text: Vec<u8>,
}

impl ClientInput {
    pub(crate) const fn new() -> Self {
        Self { place: ClientPlace::Start, part: Part::of(1), text: Vec::new() }
    }

    /// Makes the client's end of a connection whose server has started the program.
    pub(crate) const fn started() -> Self {
        Self { place: ClientPlace::Header, part: Part::of(WORD), text: Vec::new() }
    }

    fn next(&mut self, place: ClientPlace, wanted: usize) {
        (self.place, self.part) = (place, Part::of(wanted));
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    /// Fails if only a part of a response has arrived.
    pub(crate) fn end(&self) -> Result<(), Broken> {
        let is_between = match self.place {
            ClientPlace::Start | ClientPlace::Header => self.part.bytes.is_empty(),
            ClientPlace::Refused => true,
            ClientPlace::Refusal | ClientPlace::Results => false,
        };
        if is_between { Ok(()) } else { Err(Broken::Truncated) }
    }

    /// Takes received bytes from the front of `bytes`, up to the end of a response. Returns `None` if more
    /// bytes are needed.
    ///
    /// # Errors
    /// Fails if a refusal is too long. The stream is of no use any more.
    pub(crate) fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<Response>, Broken> {
        while self.place != ClientPlace::Refused
            && let Some(part) = self.part.take(bytes)
        {
            match self.place {
                ClientPlace::Start if part == STARTED => {
                    self.next(ClientPlace::Header, WORD);
                    return Ok(Some(Response::Started));
                }
                ClientPlace::Refusal if part == [0] => {
                    self.next(ClientPlace::Refused, 0);
                    let text = core::mem::take(&mut self.text);
                    return Ok(Some(Response::Refused(
                        String::from_utf8_lossy(&text).into_owned(),
                    )));
                }
                ClientPlace::Start | ClientPlace::Refusal => {
                    if self.text.len() == TEXT_BYTES_MAX {
                        return Err(Broken::TooLong);
                    }
                    self.text.extend(part);
                    self.next(ClientPlace::Refusal, 1);
                }
                ClientPlace::Header => {
                    self.next(ClientPlace::Results, usize::from(number(&part, 0)) * WORD);
                }
                ClientPlace::Results => {
                    self.next(ClientPlace::Header, WORD);
                    return Ok(Some(Response::Results(part)));
                }
                ClientPlace::Refused => return Ok(None),
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn requests(stream: &[u8], piece: usize) -> Result<Vec<Request>, Broken> {
        let (mut input, mut all) = (ServerInput::new(), Vec::new());
        for mut bytes in stream.chunks(piece) {
            while let Some(request) = input.take(&mut bytes)? {
                all.push(request);
            }
        }
        input.end()?;
        Ok(all)
    }

    fn responses(stream: &[u8], piece: usize) -> Result<Vec<Response>, Broken> {
        let (mut input, mut all) = (ClientInput::new(), Vec::new());
        for mut bytes in stream.chunks(piece) {
            while let Some(response) = input.take(&mut bytes)? {
                all.push(response);
            }
        }
        input.end()?;
        Ok(all)
    }

    #[test]
    fn program_is_activated_by_its_name() {
        let mut stream = activation("Clock").expect("a name");
        assert_eq!(stream, b"\0\x05Clock\0");
        stream.extend(call_header(2, 4).expect("a short call"));
        stream.extend([0, 0, 0, 9]);
        stream.extend(call_header(0, 0).expect("a short call"));
        let expected = [
            Request::Activate("Clock".into()),
            Request::Call { procedure: 2, arguments: vec![0, 0, 0, 9] },
            Request::Call { procedure: 0, arguments: Vec::new() },
        ];
        for piece in 1..=stream.len() {
            assert_eq!(requests(&stream, piece).as_deref(), Ok(&expected[..]));
        }
        for end in 1..stream.len() {
            let is_whole = [8, 16].contains(&end);
            assert_eq!(requests(&stream[..end], 99).is_ok(), is_whole, "{end}");
        }
    }

    #[test]
    fn names_that_could_be_paths_are_refused() {
        for name in ["", "/bin/sh", "../x", ".profile", "a/b", "a\0b"] {
            assert_eq!(activation(name), None, "{name}");
            let mut bytes = (name.len() as u16).to_be_bytes().to_vec();
            bytes.extend(name.as_bytes());
            bytes.extend([0, 0]);
            assert_eq!(requests(&bytes, 99), Err(Broken::BadName), "{name}");
        }
        assert_eq!(activation(&"n".repeat(NAME_BYTES_MAX + 1)), None);
        assert_eq!(requests(&[1, 0], 99), Err(Broken::BadName));
        assert_eq!(requests(&[0, 1, 0xff, 0], 99), Err(Broken::BadName));
        let longest = activation(&"n".repeat(NAME_BYTES_MAX)).expect("a name");
        assert_eq!(requests(&longest, 7).map(|all| all.len()), Ok(1));
    }

    #[test]
    fn results_follow_the_start_in_the_order_of_the_calls() {
        let mut stream = STARTED.to_vec();
        stream.extend(reply_header(2).expect("short results"));
        stream.extend([0, 7]);
        stream.extend(reply_header(0).expect("no results"));
        let results = [vec![0, 7], Vec::new()].map(Response::Results);
        let expected = [&[Response::Started], &results[..]].concat();
        for piece in 1..=stream.len() {
            assert_eq!(responses(&stream, piece).as_deref(), Ok(&expected[..]));
        }
        assert_eq!(responses(&stream[..4], 99), Err(Broken::Truncated));
    }

    #[test]
    fn refusal_is_a_text_of_bounded_length() {
        let refused = |text: &str| Ok(vec![Response::Refused(text.into())]);
        assert_eq!(refusal("no\0pe"), b"nope\0");
        let more = [&refusal("nope")[..], b"and more"].concat();
        for piece in 1..=more.len() {
            assert_eq!(responses(&more, piece), refused("nope"));
        }
        assert_eq!(responses(&refusal(""), 99), refused("refused"));
        let longest = "x".repeat(TEXT_BYTES_MAX);
        assert_eq!(responses(&refusal(&longest), 99), refused(&longest));
        let endless = vec![b'x'; TEXT_BYTES_MAX + 1];
        assert_eq!(responses(&endless, 99), Err(Broken::TooLong));
        assert_eq!(responses(b"nop", 99), Err(Broken::Truncated));
    }

    #[test]
    fn counts_are_whole_words_and_fit_one_word() {
        assert_eq!(call_header(1, BYTES_MAX), Some([0, 1, 0xff, 0xff]));
        assert_eq!(call_header(1, BYTES_MAX + 2), None);
        assert_eq!((call_header(1, 3), reply_header(3)), (None, None));
        let mut input = ServerInput::new();
        let name = activation("a").expect("a name");
        assert!(matches!(input.take(&mut &name[..]), Ok(Some(Request::Activate(_)))));
        let mut bytes: &[u8] = &[0, 1, 0xff, 0xff];
        assert_eq!(input.take(&mut bytes), Ok(None));
        assert_eq!(input.part.bytes.capacity(), 0);
    }

    proptest! {
        #[test]
        fn calls_arrive_whole_and_in_order(
            calls in vec((any::<u16>(), vec(any::<u16>(), 0..20)), 0..6), piece in 1_usize..30,
        ) {
            let mut stream = activation("Clock").expect("a name");
            let mut expected = vec![Request::Activate("Clock".into())];
            for (procedure, words) in calls {
                let arguments: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
                stream.extend(call_header(procedure, arguments.len()).expect("a short call"));
                stream.extend(&arguments);
                expected.push(Request::Call { procedure, arguments });
            }
            prop_assert_eq!(requests(&stream, piece), Ok(expected));
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes in vec(0_u8..4, 0..200)) {
            let _ = (requests(&bytes, 3), responses(&bytes, 3));
        }
    }
}
