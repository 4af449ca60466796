//! Every bound of the system: what it is, its default, and what happens beyond it.
//!
//! | bound | default | beyond it |
//! |---|---|---|
//! | [`DEPTH_MAX`] | 256 | `BadArguments` or `BadResult`: structures nested too deeply |
//! | [`DEPTH_BYTES_MAX`] | 128 KiB | the same: large values within large values |
//! | [`EMPTY_VALUES_MAX`] | 65536 | `TooLarge` or `BadResult`: more values than that which take no bytes |
//! | [`NAME_BYTES_MAX`] | 64 | refused when exporting or binding |
//! | [`HOSTS_BYTES_MAX`], [`OFFERS_MAX`] | 1 MiB, 64 | a hosts file is refused, and so is a name with more addresses in it |
//! | [`MESSAGE_BYTES_MAX`] | 1 GiB | refused at bind: the A-stack would be too large |
//! | [`MESSAGE_BYTES`] | 16 MiB | `TooLarge`, not executed: declare `max_len`, or ask for more on both sides |
//! | [`ESTACK_BYTES_KEPT`] | 1 MiB | larger memory for arguments is given back after use |
//! | [`ASTACK_BYTES_KEPT`] | 64 KiB each way | what a larger message touched is given back when idle for two seconds |
//! | [`ASTACKS`] / [`ASTACKS_SPARSE`] / [`ASTACKS_MAX`] | 8 / 256 / 1024 | further ones come into use, up to the second number; then the caller waits until an A-stack is released |
//! | [`REGION_BYTES_MAX`] | 8 GiB | refused at bind |
//! | [`ASTACKS_OF_OTHERS`] | 64 | a session of another user than the server's has no more, unless the export says so |
//! | [`REGION_BYTES_PER_USER`] | 32 GiB | the same, together: sessions get fewer and smaller A-stacks, then `Exhausted` at bind |
//! | [`WORKERS_MAX`] | 256 | a call rings and is queued |
//! | [`REPLACED_MAX`] | 64 | calls wait: procedures whose callers have given them up are replaced by no more threads than that |
//! | [`QUEUE_MAX`] | 1024 | `Overloaded`, not executed |
//! | [`SESSIONS_MAX`] / [`SESSIONS_PER_USER`] | 4096 / 2048 | `Exhausted` at bind |
//! | [`BINDINGS_MAX`] / [`BINDINGS_PER_USER`] | 65,536 / 262,144 | `Exhausted` at bind |
//! | [`UNBOUND_PER_USER`], [`UNBOUND_TIME`] | 256, 5 s | connections that have not bound yet are refused, or closed |
//! | [`CLOSING_MAX`] | 256 | before Linux 6.16: while more sockets wait to be closed, with descriptors that a peer sent, no client is let in |
//! | [`CHAIN_MAX`] | 32 | `Exhausted`, not executed: calls nest too deeply |
//! | [`STALL_TIME`] | 10 ms | a caller that stops in the middle of a large message posts it again, whole; a connection that says nothing keeps no thread longer |
//! | [`LENT_STALL_TIME`] | 100 ms | a procedure that reads a `Lent` buffer which has not come gets an error |
//! | [`ARRIVAL_BYTES_PER_SECOND`] | 256 MB | a large message that comes more slowly has used up the time of one of these two |
//! | [`TOKENS_MAX`] | 8 | further sessions with the same process are not offered at bind |
//! | [`INTERPRETED_DEPTH_MAX`] | 512 | interpreted stubs: as [`DEPTH_MAX`], every type counted |
//! | [`CANONICAL_BYTES_MAX`], [`CANONICAL_DEPTH_MAX`] | 1 MiB, 64 | an interface's description is not read |
//! | [`HANDSHAKE_BYTES_MAX`] | 64 KiB | the session or connection is closed |
//! | [`CONNECTIONS_MAX`] / [`CONNECTIONS_PER_HOST`] | 4096 / 256 | `Exhausted`, and the connection is closed; `Server::connections` and `connections_per_host` allow more |
//! | [`CALLERS_MAX`] / [`CALLERS_PER_HOST`] | 16,384 / 4,096 | over datagrams: the caller that is idle longest is forgotten and binds again, or `Exhausted` at bind |
//! | [`RETAINED_BYTES_MAX`] / [`RETAINED_BYTES_PER_HOST`] | 256 MiB / 64 MiB | over datagrams: calls wait until results are acknowledged; `Exhausted`, not executed, if none is |
//! | [`PARTIAL_BYTES_PER_HOST`] | 64 MiB | over datagrams: calls of one host wait until others have ended; `Exhausted`, not executed, if those do not go on; over TCP at most a quarter of what is left |
//! | [`SPARE_BYTES_MAX`] | 16 MiB | memory for calls and for results that is not needed is given back |
//! | [`SOCKETS_PER_SERVER`] | 16 | over datagrams: further calling threads share one more socket, at which one receives for all |
//! | [`BINDINGS_PER_CONNECTION`] | 4096 | `Exhausted` at bind |
//! | [`PARTIAL_BYTES_MAX`] | 256 MiB | a connection is not read until memory is free again, and its call is `Overloaded`, not executed, if nested calls have to pass it; over datagrams calls wait in the same way |
//! | [`MESSAGE_TIME`], [`MESSAGE_RATE`] | 10 s, 16 KiB/s | a connection whose message comes more slowly is closed, if others wait for memory |
//! | [`UNREAD_TIME`] | 100 ms, 10 s | a connection that takes no reply is closed: at once if others wait, else after the longer time |
//! | [`SILENCE`] | 10 s | over TCP: a peer of which nothing is heard is gone |
//! | [`CALL_SILENCE`] | 2.3 s | over TCP: the same, for a client with calls in flight |
//! | [`COUNTED_THREADS`] | 128 | further threads count together, in one line, with locked instructions |
//! | [`COUNTED_EXPORTS`] | 64 | further exports are counted as one |
//! | [`COUNTED_SESSIONS`], [`COUNTED_BINDINGS`] | 8,192 each | `stat` does not show further ones, but says how many they are; their calls are counted with their export's |
//! | [`TOLD_ROWS`] | 1,024 | over networks `stat` shows no more sessions, and no more bindings |
//! | [`TEXT_BYTES_MAX`] | 2048 | error texts that cross a binding are cut |

/// How deep structures may nest (`Vec`, `Option`, `Result`, `Box`), when sent and when received.
///
/// Decoding recurses, so this bounds the stack that a peer can make us use.
pub const DEPTH_MAX: u32 = 256;

/// Bytes that values may have which stand within each other, beyond which one goes no deeper when
/// receiving: a list whose elements have 4 KiB may be 32 long.
///
/// What is taken stands on the stack, a few times over, until its place is known. Depth alone would
/// bound the number of frames and not their size.
pub const DEPTH_BYTES_MAX: usize = 128 << 10;

/// How many values that take no bytes (`Box<()>`, a struct without fields) the sequences of one head
/// may have, all together.
///
/// Nothing that is sent bounds their number, so this bounds the time and the memory that a peer can
/// make us spend.
pub const EMPTY_VALUES_MAX: usize = 1 << 16;

/// Bytes in the canonical text of an interface that somebody else describes.
pub const CANONICAL_BYTES_MAX: usize = 1 << 20;

/// Types within each other that an interpreted stub follows, of whatever kind: struct in struct, which
/// takes compiled stubs no stack, takes it some.
pub const INTERPRETED_DEPTH_MAX: u32 = 512;

/// How deep the types of such a text may nest within one line. Reading and printing them recurses.
pub const CANONICAL_DEPTH_MAX: usize = 64;

/// Bytes in the name of an export.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of a hosts file.
pub const HOSTS_BYTES_MAX: usize = 1 << 20;

/// Addresses of one name in a hosts file.
pub const OFFERS_MAX: usize = 64;

/// Bytes that a message may have each way, unless the interface declares that it needs more, or
/// both sides ask for it with `message_bytes` and `message_bytes_max`. Either side may lower it.
///
/// Memory for a message is allocated when it is first touched, so this size does not make idle sessions
/// more expensive.
pub const MESSAGE_BYTES: usize = 16 << 20;

/// Bytes that a client requests when it binds, unless its interface needs more or its options say less.
/// Every server grants this size, and may grant up to [`MESSAGE_BYTES`]. If memory is short, the A-stacks
/// of a session have this size.
pub const MESSAGE_BYTES_ASKED: usize = 1 << 20;

/// Bytes of private argument memory that a thread keeps from call to call.
pub const ESTACK_BYTES_KEPT: usize = 1 << 20;

/// Bytes of each half of an A-stack whose memory stays, once touched.
pub const ASTACK_BYTES_KEPT: usize = 64 << 10;

/// Bytes that an A-stack may offer each way.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// A-stacks of a session that stay in use while it is idle.
pub const ASTACKS: u32 = 8;

/// A-stacks that a session has room for, unless a binding asks for more. This is also the number of calls
/// in flight between two processes before callers wait. With messages of 16 MiB, 227 A-stacks fit
/// [`REGION_BYTES_MAX`]. Memory that was never touched costs nothing.
pub const ASTACKS_SPARSE: u32 = 256;

/// The fewest A-stacks of a session whose process has no address space for more.
pub const ASTACKS_SPARING: u32 = 4;

/// The most A-stacks that a binding may ask for.
pub const ASTACKS_MAX: u32 = 1024;

/// Bytes of shared memory that one session may take: 4 GiB of messages, and for each of 1024
/// A-stacks the 2 MiB each way through which its large messages run.
pub const REGION_BYTES_MAX: usize = 8 << 30;

/// A-stacks of a session with a client of another user than the server's own, or root, unless
/// `ExportOptions::astacks_max` allows more.
///
/// Memory that the server is first to touch counts as the server's, though a client steers what it
/// touches.
pub const ASTACKS_OF_OTHERS: u32 = 64;

/// Bytes of all regions of one such user with a server: some 300 sessions, unless their exports have
/// large messages. Most of this memory is never touched. The less is left, the fewer and smaller
/// A-stacks a new session gets.
pub const REGION_BYTES_PER_USER: usize = 32 << 30;

/// Bytes that an A-stack offers each way at least: any refusal with its text fits.
pub const MESSAGE_BYTES_MIN: usize = 4096;

/// Threads of a server that run procedures.
pub const WORKERS_MAX: usize = 256;

/// Threads of a server that wait for calls on connections, in addition to those that run procedures.
pub const READERS_MAX: usize = 64;

/// Threads beyond a pool's bound that replace those whose calls were given up by their callers: of
/// calls of this machine, of calls over TCP, and of calls at each datagram socket.
pub const REPLACED_MAX: usize = 64;

/// Calls that may wait for a thread of the server: calls of each user of this machine, and calls over
/// networks.
pub const QUEUE_MAX: usize = 1024;

/// Sessions that a server accepts at one time.
pub const SESSIONS_MAX: usize = 4096;

/// Sessions of one user with a server: processes of that user.
pub const SESSIONS_PER_USER: usize = 2048;

/// Bindings of one session.
pub const BINDINGS_MAX: usize = 1 << 16;

/// Bindings of one user with a server.
pub const BINDINGS_PER_USER: usize = 1 << 18;

/// Connections of one user that have not bound yet.
pub const UNBOUND_PER_USER: usize = 256;

/// How long a connection may take to bind.
pub const UNBOUND_TIME: core::time::Duration = core::time::Duration::from_secs(5);

/// Sockets in which a peer left descriptors, and that wait for one of 16 threads which close such
/// sockets and may be lost: the close of a descriptor of a peer's choice may wait for ever.
///
/// While there are more, nobody is let in. From Linux 6.16 on no descriptors come.
pub const CLOSING_MAX: usize = 256;

/// Processes that a chain of nested calls may come through.
///
/// A call that comes back into a process gets a thread beyond the pool's bound there, so this
/// bounds the threads that calls in a circle can take.
pub const CHAIN_MAX: usize = 32;

/// How long a server's thread waits for a client in the middle of a message, all waits for that
/// message together, besides the time that [`ARRIVAL_BYTES_PER_SECOND`] allows for its bytes. The call
/// is then dropped as not executed, and the client posts it again once all of it is in place.
pub const STALL_TIME: core::time::Duration = core::time::Duration::from_millis(10);

/// The same for all reads of a call's `Lent` buffers by its procedure, which get an error then. Longer,
/// because that call has begun and cannot be posted again.
pub const LENT_STALL_TIME: core::time::Duration = core::time::Duration::from_millis(100);

/// Bytes per second that a large message must come with, once it has used up [`STALL_TIME`] or
/// [`LENT_STALL_TIME`]. Memory is twenty times as fast, so a client may be without a processor for
/// most of the time.
pub const ARRIVAL_BYTES_PER_SECOND: u64 = 256 << 20;

/// Sessions that a client offers a server to bind in.
pub const TOKENS_MAX: usize = 8;

/// Bytes of one message of the handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// Bytes of an error's text that cross a binding.
pub const TEXT_BYTES_MAX: usize = 2048;

/// Network connections of a server, whomever they come from.
pub const CONNECTIONS_MAX: usize = 4096;

/// Network connections from one host: one address of IPv4, one /64 of IPv6.
pub const CONNECTIONS_PER_HOST: usize = 256;

/// Callers that a server knows at one datagram socket: calls that may be under way at one time, and
/// records of those that were.
pub const CALLERS_MAX: usize = 1 << 14;

/// The same of one group of hosts; who is in a group is decided by a secret.
pub const CALLERS_PER_HOST: usize = 1 << 12;

/// Bytes of large results that a server keeps at one datagram socket until their callers have
/// acknowledged them, besides those that the procedures which run are just making.
///
/// Small ones, of up to 1472 bytes, are bounded by their number: 24 MiB for [`CALLERS_MAX`] of them.
pub const RETAINED_BYTES_MAX: usize = 256 << 20;

/// The same for one group of hosts. A caller acknowledges a result of 1 MiB or more at once, and others
/// with its next call, or within 100 ms.
pub const RETAINED_BYTES_PER_HOST: usize = 64 << 20;

/// Bytes of calls of several packets that have not ended, of one group of hosts at one datagram
/// socket; a host's only one may be larger. The same number of bytes of messages that have not come
/// whole, or whose calls wait for a permit, over all connections of one host.
pub const PARTIAL_BYTES_PER_HOST: usize = 64 << 20;

/// Bytes of memory for calls, and of memory for results, that a datagram socket keeps at hand for the
/// next ones.
pub const SPARE_BYTES_MAX: usize = 16 << 20;

/// Calling threads of a process that have a datagram socket of their own to one server address; all
/// others share one more.
///
/// On its own socket a thread is woken by the kernel with what it waits for, and who spins must be
/// alone there. With more callers than this the processors are what limits them: one who receives for
/// all costs a little then, and a thousand sockets would be all the descriptors that a process has.
pub const SOCKETS_PER_SERVER: u32 = 16;

/// Bindings of one network connection.
pub const BINDINGS_PER_CONNECTION: usize = 4096;

/// Bytes of messages that have not come whole, or whose calls wait for a permit, of all connections of
/// a server; the same number again of those at each datagram socket that wait or run. Messages of up to 16 KiB are not
/// counted: there is at most one of each connection.
pub const PARTIAL_BYTES_MAX: usize = 256 << 20;

/// How long a message may take to come over a connection, and bytes that it must have brought each
/// second beyond that, while other connections wait for memory.
pub const MESSAGE_TIME: core::time::Duration = core::time::Duration::from_secs(10);

/// Bytes a second of the same.
pub const MESSAGE_RATE: usize = 16 << 10;

/// How long a thread of a server waits for a connection to take a reply: if others wait for a
/// thread, and if nobody does.
pub const UNREAD_TIME: [core::time::Duration; 2] =
    [core::time::Duration::from_millis(100), core::time::Duration::from_secs(10)];

/// How long nothing may be heard from the other end of a network connection, although it was asked
/// (keepalive) or owes an acknowledgement, until it counts as gone.
pub const SILENCE: core::time::Duration = core::time::Duration::from_secs(10);

/// How long a client that waits for a reply over TCP hears nothing of the server's machine, although
/// it asks, until it takes it to be gone.
///
/// Of a way that is cut for a second one hears again before that.
pub const CALL_SILENCE: core::time::Duration = core::time::Duration::from_millis(2300);

/// Threads of a server that count in lines of their own.
pub const COUNTED_THREADS: usize = 128;

/// Exports of a server that have counters of their own.
pub const COUNTED_EXPORTS: usize = 64;

/// Sessions, connections and associations of a server that are shown.
pub const COUNTED_SESSIONS: usize = 8192;

/// Bindings of a server that are shown, [`COUNTED_EXPORTS`] among them, which stand for all others.
pub const COUNTED_BINDINGS: usize = 8192;

/// Sessions, and bindings, that a server shows over a network.
pub const TOLD_ROWS: usize = 1024;
