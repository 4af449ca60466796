//! Sends batches of datagrams of one length with one system call. Linux calls this generic segmentation
//! offload (GSO). A batch that the kernel segments in this way is called a GSO batch here.

use std::io;

use super::socket::Socket;
use super::udp::BYTES_MAX;
use crate::sys::Address;
use crate::value::{Space, Window};

/// The largest number of datagrams in a batch. All kernels with GSO accept this number.
pub(crate) const GSO_DATAGRAMS_MAX: usize = 64;
/// The largest size in bytes of a message part that is copied into the buffer of the batch. Larger parts are
/// gathered from the caller's memory. Measurements show that copying is cheaper for parts of 1408 bytes, and
/// that there is no difference for parts of 65,440 bytes. The limit between these sizes is an estimate.
const COPIED_MAX: usize = 2048;
/// The largest number of gathered parts in a batch.
const PARTS_MAX: usize = 160;

/// A socket that sends datagrams alone and in batches.
pub(crate) trait SendDatagrams {
    /// Sends one datagram, which consists of `parts`, to `to`. If `to` is `None`, sends to the peer of the
    /// socket.
    ///
    /// # Errors
    /// If the datagram was not sent.
    fn send(&self, parts: &[Window<'_>], to: Option<&Address>) -> io::Result<()>;

    /// Sends the bytes of `parts` as datagrams of `segment` bytes. The last datagram may be shorter.
    ///
    /// # Errors
    /// If sending failed. Over UDP, an error means that no datagram was sent.
    fn send_batch(
        &self,
        parts: &[Window<'_>],
        segment: usize,
        to: Option<&Address>,
    ) -> io::Result<()>;
}

/// A batch of datagrams of one length, of which the last may be shorter. A batch is sent with as few system
/// calls as possible.
///
/// Headers and small parts are copied into a buffer one after another. Large parts are sent from the
/// caller's memory.
pub(crate) struct GsoBatch<'a> {
    buffer: Space<'a>,
    /// The number of bytes of the buffer that are in use.
    used: usize,
    parts: [Window<'a>; PARTS_MAX],
    count: usize,
    /// Whether the last part lies in the buffer. Then further copied bytes extend that part.
    grows: bool,
    datagrams: usize,
    /// The size in bytes of each datagram except the last.
    segment: usize,
    bytes: usize,
    /// Whether a datagram shorter than `segment` was added. Such a datagram must be the last.
    complete: bool,
    /// Parts up to this size in bytes are copied.
    copied_max: usize,
}

impl<'a> GsoBatch<'a> {
    /// Creates an empty batch for a socket. A buffer of [`BYTES_MAX`] bytes always suffices. A smaller buffer
    /// may hold fewer datagrams.
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

    /// Returns the number of datagrams in the batch.
    pub(crate) const fn len(&self) -> usize {
        self.datagrams
    }

    /// Adds a datagram. The header is copied. The bytes of `payload` must stay unchanged until the batch is
    /// sent. Returns false if the datagram does not fit. In that case, the caller sends the batch and then
    /// adds the datagram again.
    ///
    /// An empty batch rejects a datagram for one of three reasons only. The datagram is larger than
    /// [`BYTES_MAX`]. Its copied parts are larger than the buffer. Its payload has at least `PARTS_MAX / 2`
    /// parts that are too large to copy.
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
        // The free space was checked above, so nothing below fails.
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
        // Each large part can need two entries of `parts`: one for itself, and one for the copied bytes that
        // follow.
        self.used + header + copied <= self.buffer.window().len()
            && self.count + 2 * large < PARTS_MAX
    }

    /// Appends bytes to the buffer. If the last part lies in the buffer, the new bytes extend that part.
    fn copy(&mut self, bytes: usize, write: impl FnOnce(Space<'a>) -> Option<()>) {
        if bytes == 0 {
            return;
        }
        let place = self.buffer.part(self.used, bytes).expect("`has_room` has checked the size");
        write(place).expect("source and place have the same length");
        if self.grows {
            let last = &mut self.parts[self.count - 1];
            let start = self.used - last.len();
            let grown = self.buffer.part(start, last.len() + bytes);
            *last =
                grown.expect("the last part and the new bytes are adjacent in the buffer").window();
        } else {
            self.parts[self.count] = place.window();
            (self.count, self.grows) = (self.count + 1, true);
        }
        self.used += bytes;
    }

    /// Sends the datagrams, and empties the batch.
    ///
    /// # Errors
    /// As for [`Socket::send`]. Over UDP, an error means that no datagram was sent.
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

/// Divides the bytes of `parts` into packets of `segment` bytes, of which the last may be shorter. Passes
/// each packet to the function `packet`.
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

    /// Sends a message as one batch of datagrams. Each datagram contains a header and `piece` bytes of the
    /// message. The header contains the number of the datagram. Returns the number of datagrams.
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

    /// Receives and checks the datagrams of `message`, in any number of arrivals. Returns the number of
    /// arrivals.
    fn check_train(far: &Udp, message: &[u8], piece: usize) -> usize {
        let mut buffer = vec![0; BYTES_MAX];
        let (mut arrivals, mut expected) = (0, message.chunks(piece).enumerate());
        while expected.len() > 0 {
            let arrival = received(far, &mut buffer, None);
            assert!(!arrival.cut);
            arrivals += 1;
            for place in datagrams(arrival) {
                let (number, piece) = expected.next().expect("no more datagrams than were sent");
                let (head, body) = buffer[place].split_at(HEADER);
                assert_eq!(head, header(number));
                assert!(body == piece, "datagram {number}");
            }
        }
        arrivals
    }

    #[test]
    fn batches_arrive_whole_with_gro_and_singly_without() {
        let (near, far) = pair(loopback());
        let message = pattern(48_000, 3);
        assert_eq!(send_batch(&near, None, &message, 1408), 35);
        assert_eq!(check_train(&far, &message, 1408), 35);
        if let Err(error) = far.enable_gro() {
            eprintln!("skipped in part: this kernel delivers no batches: {error}");
            return;
        }
        send_batch(&near, None, &message, 1408);
        let arrivals = check_train(&far, &message, 1408);
        assert!(arrivals <= 2, "{arrivals} system calls for one batch");
        // Here an unconnected socket sends. The payloads are too large to copy.
        let to = Address::from(near.local().unwrap());
        let message = pattern(3 * 16_000 + 5, 9);
        assert_eq!(send_batch(&far, Some(&to), &message, 16_000), 4);
        assert_eq!(check_train(&near, &message, 16_000), 4);
    }

    #[test]
    fn batch_is_scattered_to_the_places_of_its_datagrams() {
        const PIECE: usize = 1408;
        let (near, far) = pair(loopback());
        if let Err(error) = far.enable_gro() {
            eprintln!("skipped: this kernel delivers no batches: {error}");
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
    fn batch_accepts_what_fits_and_nothing_after_a_short_datagram() {
        let mut buffer = vec![0; BYTES_MAX];
        let mut batch = GsoBatch::copying(&mut buffer, COPIED_MAX);
        let (long, large) = ([1; 1408], vec![2; 40_000]);
        let header = header(1);
        while batch.push(&header, &[Window::of(&long)]) {}
        assert_eq!(batch.len(), 44);
        assert_eq!(batch.count, 1, "adjacent copied bytes form one part");
        let (near, far) = pair(loopback());
        batch.send(&near, None).unwrap();
        assert!(batch.push(&header, &[Window::of(&long[..100])]));
        assert!(!batch.push(&header, &[Window::of(&long)]), "longer than the first datagram");
        assert!(batch.push(&header, &[Window::of(&long[..99])]));
        assert!(!batch.push(&header, &[Window::of(&long[..99])]), "after a shorter datagram");
        batch.send(&near, None).unwrap();
        while batch.push(&[], &[Window::of(&long[..9])]) {}
        assert_eq!(batch.len(), GSO_DATAGRAMS_MAX);
        batch.send(&near, None).unwrap();
        assert!(
            !batch.push(&header, &[Window::of(&large), Window::of(&large)]),
            "larger than `BYTES_MAX`"
        );
        let mixed = [Window::of(&long), Window::of(&large), Window::of(&long)];
        assert!(batch.push(&header, &mixed));
        assert_eq!(batch.count, 3);
        assert!(!batch.push(&header, &mixed), "both together are larger than `BYTES_MAX`");
        batch.send(&near, None).unwrap();
        // This buffer is too small for the parts of a second datagram.
        let mut small = [0; 200];
        let mut batch = GsoBatch::copying(&mut small, COPIED_MAX);
        assert!(batch.push(&header, &[Window::of(&long[..100])]));
        assert!(!batch.push(&header, &[Window::of(&long[..100])]));
        let mut arrived = 0;
        let mut buffer = vec![0; BYTES_MAX];
        while let Ok(Some(arrival)) = far.receive(&[Space::of_mut(&mut buffer)], None, Until::Now) {
            arrived += arrival.bytes;
        }
        let sent = 44 * 1472 + 164 + 163 + 64 * 9 + 64 + 40_000 + 2 * 1408;
        assert_eq!(arrived, sent);
    }

    #[test]
    fn batch_refused_by_the_kernel_is_sent_singly() {
        let (near, far) = pair(loopback());
        let message = pattern(5000, 2);
        let head = header(0);
        let parts = [Window::of(&head), Window::of(&message)];
        send_singly(&parts, 1000, |part| near.send(part, None)).unwrap();
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

    /// Two network namespaces that a veth pair connects. A child process keeps each namespace alive. The
    /// child ends when its standard input closes. So the namespaces vanish even if this process is killed.
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
                let mut output = child.stdout.take().ok_or("no pipe")?;
                io::Read::read_exact(&mut output, &mut ready).map_err(text)?;
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

        /// Runs `make` on a new thread, in the first namespace (`which` is 0) or in the second (`which` is
        /// 1).
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
    fn batches_cross_a_link_between_two_namespaces() {
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
        // The kernel refuses datagrams larger than the link's MTU, alone and in a batch, unless
        // fragmentation is allowed.
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
