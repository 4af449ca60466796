//! Fuzz targets for the packet exchange, the protocol of calls over datagrams. They test the packets, and
//! both ends of the exchange with any packets in any order. A handle identifies the calls of one caller. A
//! record is the server's state of one handle. A driver is the code that runs an end of the exchange. As a
//! driver does, the targets record which parts of a message have arrived.

use core::cell::RefCell;
use core::ops::Range;
use std::collections::BTreeMap;

use crate::protocol::exchange::bind::{
    BIND_BYTES, BODY_BYTES, BindExchange, BindMessage, BindOutcome, BindRequest, Cookies,
    ExportName, Grant, GrantedHandle,
};
use crate::protocol::exchange::client_end::{
    self, BeginError, ClientEnd, Executed, Handled, Outcome,
};
use crate::protocol::exchange::flow::Flow;
use crate::protocol::exchange::header::{
    CONTROL_BYTES_MAX, Flags, HEADER_BYTES, Handle, Header, PacketKind, VERSION, checksum,
    set_version,
};
use crate::protocol::exchange::message::{PIECE_MAX, Shape, TOTAL_MAX};
use crate::protocol::exchange::server_end::{self, Action, RecordPhase, Retain, ServerEnd};
use crate::protocol::exchange::time::{MILLISECOND, Moment, SECOND};
use crate::protocol::exchange::versions;

const KINDS: [PacketKind; 16] = [
    PacketKind::Call,
    PacketKind::Result,
    PacketKind::HaveCall,
    PacketKind::HaveResult,
    PacketKind::Probe,
    PacketKind::Cancel,
    PacketKind::Released,
    PacketKind::Refused,
    PacketKind::Bye,
    PacketKind::Hello,
    PacketKind::Cookie,
    PacketKind::Bind,
    PacketKind::Bound,
    PacketKind::Unbound,
    PacketKind::Ask,
    PacketKind::Shake,
];
const TOTALS: [u32; 12] =
    [0, 1, 511, 512, 1025, 1500, 4096, 20_000, 20_001, 600_000, TOTAL_MAX, u32::MAX];
const PIECES: [u32; 8] = [512, 528, 1024, 1408, PIECE_MAX, 496, 0, 16 * 0xffff];
/// The length in bytes of the largest call in the targets.
const CALL_MAX: u32 = 600_000;
/// The length in bytes of the largest result in the targets.
const RESULT_MAX: u32 = 20_000;
const TABLE: u64 = 0x0123_4567_89ab_cdef;
const NOW: Moment = Moment(1000 * SECOND);
/// The largest number of packets that an end sends in one step.
const SENT_MAX: usize = 64;

/// The part of an input that was not read yet. After the end of the input, zeros are read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn half(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    /// Returns a header that a peer might send, and the bytes that follow the header. For a piece of a
    /// message, no bytes are returned. Returns `None` if no reader would accept the header.
    fn packet(&mut self, handle: Handle, sequence: u32) -> Option<(Header, Vec<u8>)> {
        let kind = self.one_of(&[&KINDS[..9], &KINDS[14..]].concat());
        let bits = self.byte();
        let all = [Flags::REPORT, Flags::RESENT, Flags::ALL, Flags::REPLIED];
        let set = |flags: Flags, (at, flag)| flags.with_if(bits >> at & 1 != 0, flag);
        let flags = all.into_iter().enumerate().fold(Flags::NONE, set);
        let total = self.one_of(&TOTALS);
        let total = if bits & 128 == 0 { total } else { self.half().into() };
        let shape = Shape {
            what: self.byte().into(),
            total,
            head: u32::from(self.byte()).min(total),
            at: u32::from(self.byte() & 15),
            extension: u16::from(self.byte() & 3) * 8,
        };
        let mut header = Header {
            flags,
            shape,
            piece: self.one_of(&PIECES),
            serial: self.byte().into(),
            echo: self.byte().into(),
            credits: self.byte().into(),
            ..Header::new(kind, handle, sequence.wrapping_add_signed(self.byte() as i8 as i32 / 32))
        };
        let fragment = self.half();
        header.fragment = if fragment == u16::MAX { u32::MAX } else { fragment.into() };
        let mut behind = Vec::new();
        let mut payload = 0;
        if kind.carries() {
            if header.piece == 0 {
                return None;
            }
            let count = total.div_ceil(header.piece).max(1);
            if bits & 64 == 0 {
                header.fragment %= count;
            }
            // The length of the fragment. A fragment that does not exist is refused whatever its length
            // is.
            payload = if header.fragment == 0 {
                total - (count - 1) * header.piece
            } else {
                header.piece
            } as usize;
        } else if matches!(kind, PacketKind::HaveCall | PacketKind::HaveResult) {
            behind = (0..self.byte() % 130).map(|_| self.byte()).collect();
            payload = behind.len();
            header.flags = header.flags.with_if(payload > 0, Flags::CHECKED);
            header.check = checksum(&behind).wrapping_add(u32::from(bits & 64 != 0));
        } else if kind == PacketKind::Refused {
            let generation = u32::from(self.half() & 1);
            (header.shape, header.fragment) = (Shape::default(), 0);
            let flags = header.flags;
            let table = TABLE ^ u64::from(bits & 64);
            header = Header { echo: header.echo, ..Header::refusal(&header, table, generation) };
            header.flags = flags.with_if(bits & 32 != 0, Flags::ELSEWHERE);
        }
        let mut bytes = [0; HEADER_BYTES];
        header.emit(&mut bytes);
        let read = Header::parse(&bytes, payload).ok()?;
        assert_eq!(read, header, "what was read is not what was written");
        Some((header, behind))
    }
}

/// Reads the input as a packet, either unchanged or with corrected checksums. Reading must not panic, and
/// writing what was read must yield the same bytes. A message about binding in the packet is written and read
/// again, and then passed to both sides of a binding.
pub fn packets(bytes: &[u8]) {
    let Some((how, packet)) = bytes.split_first() else { return };
    let mut packet = packet.to_vec();
    if how & 2 != 0 {
        packet.resize(BIND_BYTES, 0);
    }
    if how & 1 != 0
        && let Some((header, behind)) = packet.split_first_chunk_mut::<HEADER_BYTES>()
    {
        header[..3].copy_from_slice(&[b'P', b'X', VERSION]);
        header[56..60].copy_from_slice(&checksum(behind).to_le_bytes());
        header[4..8].fill(0);
        let check = checksum(header);
        header[4..8].copy_from_slice(&check.to_le_bytes());
    }
    let Some((header, behind)) = packet.split_first_chunk() else { return };
    let Ok(read) = Header::parse(header, behind.len()) else { return };
    let mut written = [0; HEADER_BYTES];
    read.emit(&mut written);
    assert_eq!(written, *header);
    if read.kind.carries() {
        let range = read.fragments().range(read.fragment);
        assert!(range.len() == behind.len() && range.end <= read.shape.total);
    }
    if !read.kind.binds() {
        return;
    }
    if let Some(said) = BindMessage::parse(&read, behind) {
        let mut again = [0; BIND_BYTES];
        said.emit(read.handle.secret, read.serial, read.echo, &mut again);
        let (header, body) = again.split_first_chunk().expect("a whole packet");
        let header = Header::parse(header, BODY_BYTES).expect("a written header");
        assert_eq!(BindMessage::parse(&header, body), Some(said));
    }
    bound_by(&read, behind);
}

/// Passes a packet to both sides of a binding. Then does the same with a valid cookie in the packet.
fn bound_by(header: &Header, body: &[u8]) {
    let nonce = header.handle.secret;
    let cookies = Cookies::new([7; 16]);
    let cookie = cookies.make(NOW, b"here", &nonce);
    let mut proven = body.to_vec();
    if let Some(place) = proven.get_mut(..16) {
        place.copy_from_slice(&cookie);
    }
    for body in [body, &proven] {
        let header = Header { check: checksum(body), ..*header };
        let _ = cookies.asked(NOW, b"here", &header, body);
        let wish = BindRequest {
            name: ExportName::new(b"name").expect("a name"),
            digest: None,
            handles: 3,
            piece: 1408,
            result_bytes_max: RESULT_MAX,
            credits: 9,
            payload_check: false,
        };
        let mut binding = BindExchange::new(NOW, nonce, wish);
        let mut out = [0; BIND_BYTES];
        for _ in 0..2 {
            let _ = binding.poll_send(NOW, &mut out);
            binding.handle(NOW, &header, body);
        }
        let mut packet = [0; BIND_BYTES];
        if body.len() == BODY_BYTES {
            let (head, behind) = packet.split_at_mut(HEADER_BYTES);
            header.emit(head.try_into().expect("a header"));
            behind.copy_from_slice(body);
            // The packet now gets another version in its header.
            set_version(packet.first_chunk_mut().expect("a header"), header.serial as u8);
            let answer = versions::refuse(&packet, 1);
            assert!(answer.is_none_or(|answer| versions::refuse(&answer, 1).is_none()));
            BindExchange::new(NOW, nonce, wish).receive(NOW, &packet);
        }
        if let Some(BindOutcome::Granted(grant, _)) = binding.outcome() {
            assert!(Grant::handles(grant).len() <= 16);
        }
    }
}

/// The ranges of a message that have arrived.
#[derive(Debug, Default)]
struct ArrivedRanges(BTreeMap<u32, u32>);

impl ArrivedRanges {
    fn put(&mut self, range: &Range<u32>) {
        let end = self.0.entry(range.start).or_insert(range.end);
        *end = range.end.max(*end);
    }

    /// Returns whether every byte up to `total` was placed at least once.
    fn covers(&self, total: u32) -> bool {
        let mut reached = 0;
        for (start, end) in self.0.iter().take_while(|(start, _)| **start < total) {
            if *start > reached {
                return false;
            }
            reached = reached.max(*end);
        }
        reached >= total
    }
}

/// The state that a driver keeps for a record.
struct Record {
    flow: RefCell<Flow>,
    call: Option<(u32, ArrivedRanges)>,
    running: bool,
    result: Option<u32>,
    /// The number of the last call that was executed.
    last: Option<u32>,
}

/// Runs the server's end of a handle, with packets, results and refusals in any order.
pub fn server_end(bytes: &[u8]) {
    let mut input = Input(bytes);
    let terms = server_end::ServerTerms {
        piece: 1408,
        credits: input.byte().into(),
        credits_here: input.byte().into(),
        bytes_max: CALL_MAX,
    };
    let mut server_end = ServerEnd::vacant(5);
    server_end.assign(NOW, [0xfe; 12], 1, &terms);
    let handle = server_end.bound_handle();
    let (mut now, mut record) = (NOW, Record::new());
    while !input.0.is_empty() {
        now = now.after(MILLISECOND);
        match input.byte() % 8 {
            0 => {
                let total = input.one_of(&TOTALS).min(TOTAL_MAX);
                record.reply(&mut server_end, total);
            }
            1 => record.poll(now, &mut server_end),
            3 if input.byte() < 64 => {
                now = now.after(u64::from(input.byte()) * 10 * MILLISECOND);
                let before = server_end.is_cancelled();
                let again = server_end.check_caller(now);
                assert!(again.is_none_or(|again| again > now));
                assert!(before <= server_end.is_cancelled(), "the cancellation was undone");
            }
            2 if server_end.phase() == RecordPhase::Idle => {
                // The handle is revoked and bound again.
                server_end.forget();
                server_end.assign(now, [0xfe; 12], 1, &terms);
                record = Record::new();
            }
            _ => {
                let Some((header, bitmap)) = input.packet(handle, server_end.sequence()) else {
                    continue;
                };
                // The server's end checks only bitmaps. A driver checks the payloads of other packets.
                if server_end.accepts(&header, 1) {
                    record.hear(&mut server_end, now, &header, &bitmap);
                }
            }
        }
        assert_eq!(server_end.phase() == RecordPhase::Running, record.running);
        assert_eq!(server_end.phase() == RecordPhase::Assembling, record.call.is_some());
        assert_eq!(server_end.phase() == RecordPhase::Replied, record.result.is_some());
    }
    record.poll(now, &mut server_end);
}

impl Record {
    fn new() -> Self {
        let flow = RefCell::new(Flow::new(None));
        Self { flow, call: None, running: false, result: None, last: None }
    }

    fn hear(&mut self, server_end: &mut ServerEnd, now: Moment, header: &Header, bitmap: &[u8]) {
        let effect = server_end.handle(now, &self.flow, header, bitmap);
        if effect.release {
            assert!(self.result.take().is_some(), "a result that was not kept was released");
        }
        let total = header.shape.total;
        match effect.action {
            Action::Nothing | Action::Dropped(_) => {}
            Action::Begin(range) => {
                assert!(total <= CALL_MAX && !self.running);
                self.call = Some((total, ArrivedRanges::default()));
                self.place(&range, header);
            }
            Action::Place(range) => self.place(&range, header),
            Action::Execute(range) => {
                if range == (0..total) && header.fragments().count() == 1 {
                    self.call = None;
                } else {
                    self.place(&range, header);
                    let (total, placed) = self.call.take().expect("an assembly");
                    assert!(
                        placed.covers(total),
                        "a call runs although it has not arrived completely"
                    );
                }
                assert!(!self.running && self.result.is_none(), "two calls at a time");
                let newer = |last| header.sequence.wrapping_sub(last) as i32 > 0;
                assert!(self.last.is_none_or(newer), "{} ran before", header.sequence);
                (self.running, self.last) = (true, Some(header.sequence));
            }
            Action::Discard => assert!(self.call.take().is_some(), "no call to discard"),
            Action::Forget => {
                assert!(!self.running);
                self.call = None;
                // A server could now assign the place of this record to another client. Here the record is
                // kept, as if the handle had been bound again at once with the same secret.
            }
        }
    }

    fn place(&mut self, range: &Range<u32>, header: &Header) {
        let (total, placed) = self.call.as_mut().expect("a call that has begun");
        assert_eq!(*total, header.shape.total);
        assert!(range.end <= *total, "the fragment lies outside of the message");
        assert_eq!(*range, header.fragments().range(header.fragment));
        placed.put(range);
    }

    /// Ends the procedure, or refuses a call that has begun to arrive.
    fn reply(&mut self, server_end: &mut ServerEnd, total: u32) {
        let open = self.running || self.call.is_some();
        let shape = Shape { total, ..Shape::default() };
        let retain = server_end.complete(shape);
        // The result is kept even if the client was presumed dead, because the client may only be silent.
        let kept = matches!(server_end.phase(), RecordPhase::Replied);
        assert_eq!(retain == Retain::Keep, open && kept);
        (self.running, self.call) = (false, None);
        if retain == Retain::Keep {
            self.result = Some(total);
        }
    }

    fn poll(&self, now: Moment, server_end: &mut ServerEnd) {
        let mut out = [0; CONTROL_BYTES_MAX];
        for _ in 0..SENT_MAX {
            let Some(send) = server_end.poll_send(now, &self.flow, &mut out) else { return };
            let header = sent(&out, send.bytes, &send.range);
            assert!(header.kind != PacketKind::Result || self.result.is_some());
            assert!(
                send.range.end <= self.result.unwrap_or(0),
                "the end sends bytes after the end of the result"
            );
        }
    }
}

/// Reads the header of a packet that one end of the exchange has written.
fn sent(out: &[u8; CONTROL_BYTES_MAX], bytes: usize, range: &Range<u32>) -> Header {
    let (header, rest) = out[..bytes].split_first_chunk().expect("a header");
    let header = Header::parse(header, rest.len() + range.len()).expect("a packet of ours");
    assert!(header.kind.carries() || (range.is_empty() && header.holds(rest)));
    assert!(!header.kind.carries() || rest.is_empty());
    header
}

/// The state that a driver keeps for a call in progress.
#[derive(Default)]
struct Open {
    total: u32,
    placed: ArrivedRanges,
    /// Whether a part of the call was sent.
    sent: bool,
    /// Whether the server has shown that it has received the whole call.
    taken: bool,
    /// Whether the last packet was a refusal which proves that the server has discarded no result of the
    /// handle.
    refused: bool,
}

/// Runs the client's end of a handle, with packets, timers and cancellations in any order.
pub fn client_end(bytes: &[u8]) {
    let mut input = Input(bytes);
    let terms = client_end::ClientTerms {
        piece: input.one_of(&PIECES[..5]),
        credits: input.byte().into(),
        credits_here: input.byte().into(),
        call_bytes_max: CALL_MAX,
        result_bytes_max: RESULT_MAX,
        table: TABLE,
    };
    let handle = Handle { place: 5, secret: [0xfe; 12] };
    let granted = GrantedHandle { handle, generation: 1 };
    let mut client_end = ClientEnd::new(granted, terms, 100_000, input.half().into());
    client_end.set_last_heard(NOW);
    let flow = RefCell::new(Flow::new(None));
    let (mut now, mut open, mut sequence) = (NOW, None::<Open>, handle.sequence());
    while !input.0.is_empty() {
        match input.byte() % 12 {
            0 => {
                let shape = Shape { total: input.one_of(&TOTALS), ..Shape::default() };
                match client_end.begin(shape) {
                    Ok(()) => {
                        assert!(open.is_none() && shape.total <= CALL_MAX);
                        open = Some(Open { total: shape.total, ..Open::default() });
                        sequence = sequence.wrapping_add(1);
                    }
                    Err(BeginError::TooLarge) => assert!(shape.total > CALL_MAX),
                    Err(BeginError::Busy | BeginError::Closed) => {}
                }
            }
            1 => {
                let mut out = [0; CONTROL_BYTES_MAX];
                for _ in 0..SENT_MAX {
                    let Some(send) = client_end.poll_send(now, &flow, &mut out) else { break };
                    let header = sent(&out, send.bytes, &send.range);
                    assert!(send.range.is_empty() || header.kind == PacketKind::Call);
                    if let Some(open) = &mut open {
                        assert!(send.range.end <= open.total);
                        if header.kind == PacketKind::Call {
                            open.sent = true;
                        }
                    }
                }
            }
            2 => now = now.after(u64::from(input.byte()) * MILLISECOND / 8),
            3 => {
                if let Some(due) = client_end.next_timer() {
                    now = now.max(due);
                    client_end.handle_timer(now);
                }
            }
            4 if input.byte() < 32 => client_end.cancel(now),
            4 => client_end.note_unreachable(now),
            5 => client_end.acknowledge(),
            6 if input.byte() < 8 => client_end.close(),
            _ => {
                let Some((header, bitmap)) = input.packet(handle, sequence) else { continue };
                let handled = client_end.handle(now, &flow, &header, &bitmap);
                let Some(open) = &mut open else {
                    assert!(
                        !matches!(handled, Handled::Place(_)),
                        "a part of a result arrived although no call waits for it"
                    );
                    continue;
                };
                if header.sequence != sequence {
                    continue;
                }
                // A packet that the client drops, perhaps because it contradicts an earlier one, does not
                // prove that the server has the whole call.
                let heard = !matches!(handled, Handled::Dropped(_));
                let all = header.kind == PacketKind::HaveCall && header.flags.has(Flags::ALL);
                open.taken |= heard && (header.kind == PacketKind::Result || all);
                open.refused = header.kind == PacketKind::Refused
                    && !header.flags.has(Flags::ELSEWHERE)
                    && (header.table(), header.generation()) == (TABLE, 1);
                if let Handled::Place(range) = handled {
                    let total = header.shape.total;
                    assert!(range.end <= total && total <= RESULT_MAX, "{range:?} of {total}");
                    assert_eq!(range, header.fragments().range(header.fragment));
                    open.placed.put(&range);
                }
            }
        }
        if let Some(outcome) = client_end.outcome() {
            let open = open.take().expect("a call in progress");
            match outcome {
                Outcome::Returned(shape) => {
                    assert!(
                        open.placed.covers(shape.total),
                        "a result was returned although it has not arrived completely"
                    );
                }
                Outcome::Failed { executed: Executed::No, why } => {
                    let certain = !open.sent || (open.refused && !open.taken);
                    assert!(certain, "{why:?}: the call may have run");
                    if why == client_end::FailureReason::Cancelled && !client_end.is_closed() {
                        // The call was never sent: its number is used again.
                        sequence = sequence.wrapping_sub(1);
                    }
                }
                Outcome::Failed { executed: Executed::Maybe, .. } => {}
            }
        }
    }
}
