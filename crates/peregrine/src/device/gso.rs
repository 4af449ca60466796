//! Trains: datagrams of one length that go in one system call.

use std::io;

use super::socket::Socket;
use super::udp::BYTES_MAX;
use crate::sys::Address;
use crate::value::{Space, Window};

/// Datagrams in a train, at most: all kernels that make trains take as many.
pub(crate) const GSO_DATAGRAMS_MAX: usize = 64;
/// Parts of a message up to this are copied behind each other rather than gathered. Measured with
/// parts of 1408 bytes, which are cheaper to copy, and of 65,440, where it is all the same; the border
/// between is an estimate.
const COPIED_MAX: usize = 2048;
/// Gathered parts of a train.
const PARTS_MAX: usize = 160;

/// What trains are sent by.
pub(crate) trait SendDatagrams {
    /// Sends one datagram made of these parts.
    ///
    /// # Errors
    /// If it did not go.
    fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()>;

    /// Sends what lies in these parts as datagrams of `segment` bytes, whose last may be shorter.
    ///
    /// # Errors
    /// If they did not go: over UDP, none of them did.
    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()>;
}

/// Datagrams of one length, the last perhaps shorter, that go in as few system calls as can be.
///
/// Headers and small parts are copied into a buffer behind each other, large parts are sent from
/// where they lie.
pub(crate) struct GsoBatch<'a> {
    buffer: Space<'a>,
    /// Bytes of the buffer that are taken.
    used: usize,
    parts: [Window<'a>; PARTS_MAX],
    count: usize,
    /// Whether the last part is the buffer's, and may grow.
    grows: bool,
    datagrams: usize,
    /// Bytes of each datagram but the last.
    segment: usize,
    bytes: usize,
    /// Nothing may follow what is shorter than the others.
    complete: bool,
    /// Parts up to so many bytes are copied.
    copied_max: usize,
}

impl<'a> GsoBatch<'a> {
    /// An empty train that is to be sent by a socket. A buffer of [`BYTES_MAX`] bytes is as much as can be needed; with a smaller
    /// one fewer datagrams fit.
    pub(crate) fn new(buffer: &'a mut [u8], by: &Socket) -> Self {
        Self::copying(buffer, if by.prefers_gathering() { 0 } else { COPIED_MAX })
    }

    fn copying(buffer: &'a mut [u8], copied_max: usize) -> Self {
        Self {
            copied_max,
            buffer: Space::of_mut(buffer),
            used: 0,
            parts: [Window::empty(); PARTS_MAX],
            count: 0,
            grows: false,
            datagrams: 0,
            segment: 0,
            bytes: 0,
            complete: false,
        }
    }

    /// How many datagrams there are.
    pub(crate) const fn len(&self) -> usize {
        self.datagrams
    }

    /// Adds a datagram: a header, which is copied, and parts that stay where they are until the
    /// train has been sent. False if it does not fit: then send what there is, and add it again.
    ///
    /// A datagram that is refused by an empty train is larger than [`BYTES_MAX`] or the buffer, or
    /// in more than [`PARTS_MAX`] parts.
    pub(crate) fn push(&mut self, header: &[u8], payload: &[Window<'a>]) -> bool {
        let bytes = header.len() + payload.iter().map(Window::len).sum::<usize>();
        let fits = !self.complete
            && self.datagrams < GSO_DATAGRAMS_MAX
            && self.bytes + bytes <= BYTES_MAX
            && (self.datagrams == 0 || bytes <= self.segment)
            && self.has_room(header.len(), payload);
        if !fits {
            return false;
        }
        // Everything fits from here on.
        self.copy(header.len(), |space| space.write(0, header));
        for part in payload {
            if part.len() <= self.copied_max {
                self.copy(part.len(), |space| {
                    space.copy_from(*part);
                    Some(())
                });
            } else {
                self.parts[self.count] = *part;
                (self.count, self.grows) = (self.count + 1, false);
            }
        }
        if self.datagrams == 0 {
            self.segment = bytes;
        }
        (self.datagrams, self.bytes) = (self.datagrams + 1, self.bytes + bytes);
        self.complete = bytes < self.segment;
        true
    }

    fn has_room(&self, header: usize, payload: &[Window<'a>]) -> bool {
        let small = |part: &&Window<'_>| part.len() <= self.copied_max;
        let copied: usize = payload.iter().filter(small).map(Window::len).sum();
        let large = payload.iter().filter(|part| !small(part)).count();
        // Each large part may begin a new run of copied ones behind it.
        self.used + header + copied <= self.buffer.window().len()
            && self.count + 2 * large < PARTS_MAX
    }

    /// Copies behind what was copied last, into the same part if it is the last.
    fn copy(&mut self, bytes: usize, write: impl FnOnce(Space<'a>) -> Option<()>) {
        if bytes == 0 {
            return;
        }
        let place = self.buffer.part(self.used, bytes).expect("room was looked for");
        write(place).expect("the place is as long");
        if self.grows {
            let last = &mut self.parts[self.count - 1];
            let start = self.used - last.len();
            let grown = self.buffer.part(start, last.len() + bytes);
            *last = grown.expect("both lie in the buffer").window();
        } else {
            self.parts[self.count] = place.window();
            (self.count, self.grows) = (self.count + 1, true);
        }
        self.used += bytes;
    }

    /// Sends all that there is, and empties the train.
    ///
    /// # Errors
    /// As for [`Socket::send`]: over UDP, none of the datagrams went.
    pub(crate) fn send(&mut self, by: &impl SendDatagrams, to: Option<&Address>) -> io::Result<()> {
        let parts = &self.parts[..self.count];
        let sent = match self.datagrams {
            0 => Ok(()),
            1 => by.send(parts, to),
            _ => by.send_batch(parts, self.segment, to),
        };
        (self.used, self.count, self.grows) = (0, 0, false);
        (self.datagrams, self.segment, self.bytes) = (0, 0, 0);
        self.complete = false;
        sent
    }
}

/// Packets of `segment` bytes each, but for the last, of what lies in these parts: one after the other.
pub(super) fn cut(
    parts: &[Window<'_>],
    segment: usize,
    packet: &mut dyn FnMut(&[Window<'_>]) -> io::Result<()>,
) -> io::Result<()> {
    let mut pieces = [Window::empty(); PARTS_MAX];
    let (mut count, mut bytes) = (0, 0);
    for part in parts {
        let mut at = 0;
        while at < part.len() {
            let more = (part.len() - at).min(segment - bytes);
            *pieces.get_mut(count).ok_or(io::ErrorKind::InvalidInput)? = part.range(at, more);
            (count, bytes, at) = (count + 1, bytes + more, at + more);
            if bytes == segment {
                packet(&pieces[..count])?;
                (count, bytes) = (0, 0);
            }
        }
    }
    if count > 0 { packet(&pieces[..count]) } else { Ok(()) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::udp::tests::{HEADER, SOON, loopback, pair, pattern, received};
    use super::super::udp::{Udp, Until, datagrams, is_gso_refused, send_singly};
    use super::*;
    use std::os::fd::AsFd;

    fn header(number: usize) -> [u8; HEADER] {
        [number as u8 ^ 0x80; HEADER]
    }

    /// Sends `total` bytes in pieces, as a train for which the header of each says its number.
    fn send_batch(near: &Udp, to: Option<&Address>, message: &[u8], piece: usize) -> usize {
        let mut buffer = vec![0; BYTES_MAX];
        let mut batch = GsoBatch::copying(&mut buffer, COPIED_MAX);
        for (number, piece) in message.chunks(piece).enumerate() {
            let halves = piece.split_at(piece.len() / 3);
            assert!(batch.push(&header(number), &[Window::of(halves.0), Window::of(halves.1)]));
        }
        let datagrams = batch.len();
        batch.send(near, to).unwrap();
        assert_eq!(batch.len(), 0);
        datagrams
    }

    /// Receives a train, whose datagrams must be those of `message`, in as many arrivals as it takes.
    fn check_train(far: &Udp, message: &[u8], piece: usize) -> usize {
        let mut buffer = vec![0; BYTES_MAX];
        let (mut arrivals, mut expected) = (0, message.chunks(piece).enumerate());
        while expected.len() > 0 {
            let arrival = received(far, &mut buffer, None);
            assert!(!arrival.cut);
            arrivals += 1;
            for place in datagrams(arrival) {
                let (number, piece) = expected.next().expect("no more than was sent");
                let (head, body) = buffer[place].split_at(HEADER);
                assert_eq!(head, header(number));
                assert!(body == piece, "datagram {number}");
            }
        }
        arrivals
    }

    #[test]
    fn trains_arrive_whole_where_they_may_and_singly_where_not() {
        let (near, far) = pair(loopback());
        let message = pattern(48_000, 3);
        assert_eq!(send_batch(&near, None, &message, 1408), 35);
        assert_eq!(check_train(&far, &message, 1408), 35);
        if let Err(error) = far.enable_gro() {
            eprintln!("skipped in part: no trains are received here: {error}");
            return;
        }
        send_batch(&near, None, &message, 1408);
        let arrivals = check_train(&far, &message, 1408);
        assert!(arrivals <= 2, "{arrivals} system calls for one batch");
        // Parts that are too large to copy, from an unconnected socket.
        let to = Address::from(near.local().unwrap());
        let message = pattern(3 * 16_000 + 5, 9);
        assert_eq!(send_batch(&far, Some(&to), &message, 16_000), 4);
        assert_eq!(check_train(&near, &message, 16_000), 4);
    }

    #[test]
    fn a_train_is_scattered_to_where_each_datagram_belongs() {
        const PIECE: usize = 1408;
        let (near, far) = pair(loopback());
        if let Err(error) = far.enable_gro() {
            eprintln!("skipped: no trains are received here: {error}");
            return;
        }
        let message = pattern(4 * PIECE + 100, 5);
        send_batch(&near, None, &message, PIECE);
        let (mut headers, mut whole) = ([[0; HEADER]; 6], vec![0; 6 * PIECE]);
        let places = headers.iter_mut().zip(whole.chunks_mut(PIECE));
        let into: Vec<Space<'_>> =
            places.flat_map(|(head, body)| [Space::of_mut(head), Space::of_mut(body)]).collect();
        let arrival = far.receive(&into, None, SOON).unwrap().unwrap();
        assert_eq!((arrival.segment, datagrams(arrival).len()), (HEADER + PIECE, 5));
        assert!(whole[..message.len()] == message);
        assert_eq!(headers[..5], [0, 1, 2, 3, 4].map(header));
    }

    #[test]
    fn a_train_takes_what_fits_and_nothing_behind_a_short_one() {
        let mut buffer = vec![0; BYTES_MAX];
        let mut batch = GsoBatch::copying(&mut buffer, COPIED_MAX);
        let (long, large) = ([1; 1408], vec![2; 40_000]);
        let header = header(1);
        while batch.push(&header, &[Window::of(&long)]) {}
        assert_eq!(batch.len(), 44);
        assert_eq!(batch.count, 1, "what is copied is one part");
        let (near, far) = pair(loopback());
        batch.send(&near, None).unwrap();
        assert!(batch.push(&header, &[Window::of(&long[..100])]));
        assert!(!batch.push(&header, &[Window::of(&long)]), "longer than the first");
        assert!(batch.push(&header, &[Window::of(&long[..99])]));
        assert!(!batch.push(&header, &[Window::of(&long[..99])]), "behind a short one");
        batch.send(&near, None).unwrap();
        while batch.push(&[], &[Window::of(&long[..9])]) {}
        assert_eq!(batch.len(), GSO_DATAGRAMS_MAX);
        batch.send(&near, None).unwrap();
        assert!(!batch.push(&header, &[Window::of(&large), Window::of(&large)]), "too large");
        let mixed = [Window::of(&long), Window::of(&large), Window::of(&long)];
        assert!(batch.push(&header, &mixed));
        assert_eq!(batch.count, 3);
        assert!(!batch.push(&header, &mixed), "more than a packet may have");
        batch.send(&near, None).unwrap();
        // A buffer that is too small for what would be copied.
        let mut small = [0; 200];
        let mut batch = GsoBatch::copying(&mut small, COPIED_MAX);
        assert!(batch.push(&header, &[Window::of(&long[..100])]));
        assert!(!batch.push(&header, &[Window::of(&long[..100])]));
        let mut came = 0;
        let mut buffer = vec![0; BYTES_MAX];
        while let Ok(Some(arrival)) = far.receive(&[Space::of_mut(&mut buffer)], None, Until::Now) {
            came += arrival.bytes;
        }
        let sent = 44 * 1472 + 164 + 163 + 64 * 9 + 64 + 40_000 + 2 * 1408;
        assert_eq!(came, sent);
    }

    #[test]
    fn a_train_that_the_kernel_refuses_goes_one_by_one() {
        let (near, far) = pair(loopback());
        let message = pattern(5000, 2);
        let head = header(0);
        let parts = [Window::of(&head), Window::of(&message)];
        send_singly(&near, &parts, 1000, None).unwrap();
        let mut lengths = Vec::new();
        let mut whole = Vec::new();
        for _ in 0..6 {
            let mut buffer = [0; 2000];
            let arrival = received(&far, &mut buffer, None);
            lengths.push(arrival.bytes);
            whole.extend_from_slice(&buffer[..arrival.bytes]);
        }
        assert_eq!(lengths, [1000, 1000, 1000, 1000, 1000, 64]);
        assert!(whole == [&head[..], &message].concat());
        let refused = |code| is_gso_refused(&io::Error::from_raw_os_error(code));
        assert!(refused(libc::EIO) && refused(libc::EINVAL) && refused(libc::EMSGSIZE));
        assert!(!refused(libc::ECONNREFUSED) && !refused(libc::ENOBUFS));
    }

    /// Two network namespaces joined by a veth pair. They are held by processes that end when their
    /// input does, and vanish with them, however this one ends.
    pub(crate) struct Namespaces([std::process::Child; 2]);

    impl Namespaces {
        pub(crate) fn new() -> Result<Self, String> {
            use std::process::{Command, Stdio};
            let text = |error: io::Error| error.to_string();
            let hold = || {
                let hold = "ip link set lo up && echo ready && exec cat > /dev/null";
                let mut command = Command::new("unshare");
                command.args(["--net", "sh", "-c", hold]).stdin(Stdio::piped());
                let mut child = command.stdout(Stdio::piped()).spawn().map_err(text)?;
                let mut ready = [0; 6];
                let mut said = child.stdout.take().ok_or("no pipe")?;
                io::Read::read_exact(&mut said, &mut ready).map_err(text)?;
                Ok::<_, String>(child)
            };
            let both = Self([hold()?, hold()?]);
            let [near, far] = both.0.each_ref().map(|child| child.id().to_string());
            let make = format!("link add near type veth peer name far netns {far}");
            for (pid, words) in [
                (&near, &*make),
                (&near, "addr add 10.1.1.1/24 dev near"),
                (&near, "link set near up"),
                (&far, "addr add 10.1.1.2/24 dev far"),
                (&far, "link set far up"),
            ] {
                let mut command = Command::new("nsenter");
                command.args(["--net", "--target", pid, "ip"]).args(words.split(' '));
                if !command.status().map_err(text)?.success() {
                    return Err(format!("ip {words} failed"));
                }
            }
            Ok(both)
        }

        /// Makes something in the first or the second.
        pub(crate) fn within<T: Send>(&self, which: usize, make: impl FnOnce() -> T + Send) -> T {
            use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
            let place = format!("/proc/{}/ns/net", self.0[which].id());
            let file = std::fs::File::open(place).unwrap();
            std::thread::scope(|scope| {
                let enter = || {
                    let kind = Some(LinkNameSpaceType::Network);
                    move_into_link_name_space(file.as_fd(), kind).unwrap();
                    make()
                };
                scope.spawn(enter).join().unwrap()
            })
        }
    }

    impl Drop for Namespaces {
        fn drop(&mut self) {
            for child in &mut self.0 {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }

    #[test]
    fn trains_cross_a_link_between_two_namespaces() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: namespaces need root");
            return;
        }
        let namespaces = match Namespaces::new() {
            Ok(namespaces) => namespaces,
            Err(why) => return eprintln!("skipped: {why}"),
        };
        let far = namespaces.within(1, || Udp::bound("10.1.1.2:0".parse().unwrap()).unwrap());
        let to = far.local().unwrap();
        let near = namespaces.within(0, || Udp::connected(to).unwrap());
        assert_eq!(near.payload(HEADER).unwrap(), 1408);
        let message = pattern(48_000, 3);
        assert_eq!(send_batch(&near, None, &message, 1408), 35);
        assert_eq!(check_train(&far, &message, 1408), 35);
        far.enable_gro().unwrap();
        send_batch(&near, None, &message, 1408);
        let arrivals = check_train(&far, &message, 1408);
        assert!(arrivals <= 2, "{arrivals} system calls for one batch");
        // Datagrams larger than the link: the kernel makes no train of them, and cuts none up unless told.
        let message = pattern(20_000, 6);
        let refused = near.gather(&[Window::of(&message)], 3072);
        assert!(is_gso_refused(&refused.unwrap_err()));
        let refused = near.send(&[Window::of(&message[..3008])], None).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE));
        near.allow_fragmentation().unwrap();
        assert_eq!(send_batch(&near, None, &message, 3008), 7);
        check_train(&far, &message, 3008);
    }
}
