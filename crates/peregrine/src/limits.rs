//! All limits of the system, with their defaults and what happens beyond them.
//!
//! | limit | default | beyond it |
//! |---|---|---|
//! | [`DEPTH_MAX`] | 256 | `BadArguments` or `BadResult`: structures nested too deeply |
//! | [`DEPTH_BYTES_MAX`] | 128 KiB | the same: large values nested in large values |
//! | [`EMPTY_VALUES_MAX`] | 65536 | `TooLarge` or `BadResult`: more values without bytes |
//! | [`NAME_BYTES_MAX`] | 64 | refused when exporting or binding |
//! | [`HOSTS_BYTES_MAX`], [`OFFERS_MAX`] | 1 MiB, 64 | a larger hosts file is refused, and so is a name with more addresses |
//! | [`MESSAGE_BYTES_MAX`] | 1 GiB | refused at bind: the A-stack would be too large |
//! | [`MESSAGE_BYTES`] | 16 MiB | `TooLarge`, not executed: declare `max_len`, or ask for more on both sides |
//! | [`ESTACK_BYTES_KEPT`] | 1 MiB | larger memory for arguments is released after use |
//! | [`ASTACK_BYTES_KEPT`] | 64 KiB each way | memory that larger messages used is released after two idle seconds |
//! | [`ASTACKS`] / [`ASTACKS_SPARSE`] / [`ASTACKS_MAX`] | 8 / 256 / 1024 | more A-stacks are made active, up to the second number; then callers wait until an A-stack is released |
//! | [`REGION_BYTES_MAX`] | 8 GiB | refused at bind |
//! | [`ASTACKS_OF_OTHERS`] | 64 | a session of another user than the server's gets no more, unless the export allows it |
//! | [`REGION_BYTES_PER_USER`] | 32 GiB | for all sessions of such a user: they get fewer and smaller A-stacks, then `Exhausted` at bind |
//! | [`WORKERS_MAX`] | 256 | calls wait in the queue |
//! | [`REPLACED_MAX`] | 64 | calls wait: no more threads replace those that run abandoned calls |
//! | [`DEFERRED_MAX`], [`DEFERRED_BYTES_MAX`] | 131,072, 256 MiB | further calls of async procedures keep a thread each until they end |
//! | [`QUEUE_MAX`] | 1024 | `Overloaded`, not executed |
//! | [`SESSIONS_MAX`] / [`SESSIONS_PER_USER`] | 4096 / 2048 | `Exhausted` at bind |
//! | [`BINDINGS_MAX`] / [`BINDINGS_PER_USER`] | 65,536 / 262,144 | `Exhausted` at bind |
//! | [`UNBOUND_PER_USER`], [`UNBOUND_TIME`] | 256, 5 s | connections that have not bound yet are refused, or closed |
//! | [`CLOSING_MAX`] | 256 | before Linux 6.16: no client is admitted while this number of sockets that hold descriptors of a peer wait to be closed |
//! | [`CHAIN_MAX`] | 32 | `Exhausted`, not executed: calls nest too deeply |
//! | [`STALL_TIME`] | 10 ms | a caller that stops in the middle of a large message posts the whole message again; a silent connection occupies no thread for longer |
//! | [`LENT_STALL_TIME`] | 100 ms | a procedure that reads a `Lent` buffer that has not arrived gets an error |
//! | [`ARRIVAL_BYTES_PER_SECOND`] | 256 MiB/s | a slower message uses up one of the two times above |
//! | [`TOKENS_MAX`] | 8 | a client does not offer more sessions with the same process at bind |
//! | [`LIST_NODES_MAX`] | 10,000 | `TooLarge`, not executed, or an unreadable result; `#[list]` removes the limit |
//! | [`INTERPRETED_DEPTH_MAX`] | 512 | like [`DEPTH_MAX`], for interpreted stubs: all types count |
//! | [`CANONICAL_BYTES_MAX`], [`CANONICAL_DEPTH_MAX`] | 1 MiB, 64 | the description of an interface is refused |
//! | [`HANDSHAKE_BYTES_MAX`] | 64 KiB | the session or connection is closed |
//! | [`CONNECTIONS_MAX`] / [`CONNECTIONS_PER_HOST`] | 4096 / 256 | `Exhausted`, and the connection is closed; `Server::connections` and `connections_per_host` allow more |
//! | [`CALLERS_MAX`] / [`CALLERS_PER_HOST`] | 16,384 / 4,096 | over datagrams: the client that was idle longest is evicted and binds again, or `Exhausted` at bind |
//! | [`RETAINED_BYTES_MAX`] / [`RETAINED_BYTES_PER_HOST`] | 256 MiB / 64 MiB | over datagrams: calls wait until clients acknowledge results; `Exhausted`, not executed, if none does |
//! | [`PARTIAL_BYTES_PER_HOST`] | 64 MiB | over datagrams: calls of one host wait until others have ended; `Exhausted`, not executed, if those make no progress; over TCP at most a quarter of what is left |
//! | [`SPARE_BYTES_MAX`] | 16 MiB | unused memory for calls and results is released |
//! | [`SOCKETS_PER_SERVER`] | 16 | over datagrams: more calling threads share one more socket, where one of them receives for all |
//! | [`BINDINGS_PER_CONNECTION`] | 4096 | `Exhausted` at bind |
//! | [`PARTIAL_BYTES_MAX`] | 256 MiB | a connection is not read until memory is free, and its call is `Overloaded`, not executed, if nested calls must overtake it; over datagrams calls wait in the same way |
//! | [`MESSAGE_TIME`], [`MESSAGE_RATE`] | 10 s, 16 KiB/s | a connection whose message arrives more slowly is closed, if others wait for memory |
//! | [`UNREAD_TIME`] | 100 ms, 10 s | a connection that does not read a reply is closed: after the shorter time if others wait, else after the longer |
//! | [`SILENCE`] | 10 s | over TCP: a silent peer counts as gone |
//! | [`CALL_SILENCE`] | 2.3 s | over TCP: the same, for a client with calls in flight |
//! | [`COUNTED_THREADS`] | 128 | more threads share one row of counters, with locked instructions |
//! | [`COUNTED_EXPORTS`] | 64 | more exports are counted as one |
//! | [`COUNTED_SESSIONS`], [`COUNTED_BINDINGS`] | 8,192 each | `stat` shows only the number of the others; their calls are counted with their export's |
//! | [`TOLD_ROWS`] | 1,024 | over networks `stat` shows no more sessions, and no more bindings |
//! | [`TEXT_BYTES_MAX`] | 2048 | longer error texts are truncated when they are sent |

/// The largest nesting of structures (`Vec`, `Option`, `Result`, `Box`), when sent and when received.
///
/// Decoding is recursive, so this limits the stack that a peer can make a thread use.
pub const DEPTH_MAX: u32 = 256;

/// The largest number of nodes in a linked list (a struct whose last field is `Option<Box<Self>>`), when sent
/// and when received. `#[list]` at that field removes the limit.
///
/// Lists are encoded and decoded in a loop. But the code that the compiler makes for dropping a list calls
/// itself for each node. Each of these calls needs about 80 bytes of stack in debug builds.
pub const LIST_NODES_MAX: usize = 10_000;

/// The largest sum of the sizes in bytes of nested values. For example, lists whose elements have 4 KiB may
/// be nested 32 deep when they are received.
///
/// While a value is decoded, several copies of it may be on the stack. A limit on the nesting alone would
/// bound the number of stack frames, but not their size.
pub const DEPTH_BYTES_MAX: usize = 128 << 10;

/// The largest number of values without bytes (`Box<()>`, a struct without fields) in all sequences of a
/// head.
///
/// The size of a message does not limit the number of such values. So this limits the time and memory that a
/// peer can make a process spend.
pub const EMPTY_VALUES_MAX: usize = 1 << 16;

/// The largest size in bytes of the canonical text of an interface that a peer describes.
pub const CANONICAL_BYTES_MAX: usize = 1 << 20;

/// The largest nesting of types of any kind in interpreted stubs. A struct in a struct needs stack there,
/// but not in compiled stubs.
pub const INTERPRETED_DEPTH_MAX: u32 = 512;

/// The largest nesting of types within one line of a canonical text. Reading and printing types is recursive.
pub const CANONICAL_DEPTH_MAX: usize = 64;

/// The largest number of bytes in the name of an export.
pub const NAME_BYTES_MAX: usize = 64;

/// The largest size of a hosts file in bytes.
pub const HOSTS_BYTES_MAX: usize = 1 << 20;

/// The largest number of addresses of one name in a hosts file.
pub const OFFERS_MAX: usize = 64;

/// The largest size in bytes of a message each way, unless the interface declares more, or both sides ask for
/// more with `message_bytes` and `message_bytes_max`. Either side may lower it.
///
/// Memory for a message is allocated when it is first touched, so this size does not make idle sessions
/// more expensive.
pub const MESSAGE_BYTES: usize = 16 << 20;

/// The message size in bytes that a client requests when it binds, unless its interface needs more or its
/// options say less. A server grants this size unless its export allows less, and may grant up to
/// [`MESSAGE_BYTES`]. If memory is short, the A-stacks of a session have this size.
pub const MESSAGE_BYTES_ASKED: usize = 1 << 20;

/// The size in bytes of the private memory for arguments that a thread keeps between calls.
pub const ESTACK_BYTES_KEPT: usize = 1 << 20;

/// The number of bytes of each half of an A-stack that stay allocated after they were touched.
pub const ASTACK_BYTES_KEPT: usize = 64 << 10;

/// The largest size in bytes of a message each way that a binding may ask for.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The number of A-stacks that stay active while a session is idle.
pub const ASTACKS: u32 = 8;

/// The number of A-stacks that a session has, unless a binding asks for more. This is also the number of
/// calls in flight between two processes before callers wait. With messages of 16 MiB, 227 A-stacks fit
/// [`REGION_BYTES_MAX`]. Memory that was never touched costs nothing.
pub const ASTACKS_SPARSE: u32 = 256;

/// The smallest number of A-stacks of a session, if the process has no address space for more.
pub const ASTACKS_SPARING: u32 = 4;

/// The largest number of A-stacks that a binding may ask for.
pub const ASTACKS_MAX: u32 = 1024;

/// The largest size in bytes of the shared memory of one session: 4 GiB of messages, and for each of 1024
/// A-stacks 2 MiB each way, through which large messages are sent.
pub const REGION_BYTES_MAX: usize = 8 << 30;

/// The number of A-stacks of a session whose client belongs neither to the server's user nor to root, unless
/// `ExportOptions::astacks_max` allows more.
///
/// Memory that the server touches first is charged to the server, but the client determines what the server
/// touches.
pub const ASTACKS_OF_OTHERS: u32 = 64;

/// The largest size in bytes of all regions together that one user has with a server, if this user is neither
/// the server's user nor root. This is enough for about 300 sessions, unless their exports have large
/// messages. Most of this memory is never touched. The less of the limit is left, the fewer and smaller
/// A-stacks a new session gets.
pub const REGION_BYTES_PER_USER: usize = 32 << 30;

/// The smallest message size in bytes of an A-stack each way. Every refusal with its text fits into it.
pub const MESSAGE_BYTES_MIN: usize = 4096;

/// The largest number of threads of a server that run procedures.
pub const WORKERS_MAX: usize = 256;

/// The largest number of threads of a server that wait for calls on connections, in addition to those that
/// run procedures.
pub const READERS_MAX: usize = 64;

/// The largest number of calls of async procedures that a server keeps without a thread. Each further call keeps its
/// thread until its procedure ends.
pub const DEFERRED_MAX: usize = 1 << 17;

/// The largest number of bytes in the messages of these calls.
pub const DEFERRED_BYTES_MAX: usize = 256 << 20;

/// The largest number of additional threads that a server starts to replace those that run abandoned calls.
/// The limit applies separately to local calls, to calls over TCP, and to calls at each datagram socket.
pub const REPLACED_MAX: usize = 64;

/// The number of calls that may wait for a thread of the server. It applies to each user of this machine, and
/// to all calls over networks together.
pub const QUEUE_MAX: usize = 1024;

/// The largest number of sessions of a server.
pub const SESSIONS_MAX: usize = 4096;

/// The largest number of sessions of a server with processes of one user.
pub const SESSIONS_PER_USER: usize = 2048;

/// The largest number of bindings of one session.
pub const BINDINGS_MAX: usize = 1 << 16;

/// The largest number of bindings that one user has with a server.
pub const BINDINGS_PER_USER: usize = 1 << 18;

/// The largest number of connections of one user that have not bound yet.
pub const UNBOUND_PER_USER: usize = 256;

/// The time that a connection has to bind.
pub const UNBOUND_TIME: core::time::Duration = core::time::Duration::from_secs(5);

/// The number of sockets with descriptors from a peer that may wait to be closed. Closing a descriptor that a
/// peer chose may block for ever. So up to 16 threads that do nothing else close such sockets.
///
/// While this number of sockets or more wait, no client is admitted. From Linux 6.16 on, the server receives
/// no descriptors, so no sockets wait.
pub const CLOSING_MAX: usize = 256;

/// The number of processes that a chain of nested calls may pass through.
///
/// A call that comes back to a process gets a thread beyond the limit of the process's pool. So this limits
/// the threads that circular calls can occupy.
pub const CHAIN_MAX: usize = 32;

/// How long a server's thread waits for a client in the middle of a message, for all waits together, in
/// addition to the time that [`ARRIVAL_BYTES_PER_SECOND`] allows for its bytes. Then the call is dropped,
/// not executed, and the client posts it again once the whole message is in place.
pub const STALL_TIME: core::time::Duration = core::time::Duration::from_millis(10);

/// As [`STALL_TIME`], but for all reads of a call's `Lent` buffers by its procedure. Afterwards these reads
/// fail. The time is longer, because this call has begun and cannot be posted again.
pub const LENT_STALL_TIME: core::time::Duration = core::time::Duration::from_millis(100);

/// The lowest rate in bytes per second at which a large message may arrive once it has used up [`STALL_TIME`]
/// or [`LENT_STALL_TIME`]. Memory is twenty times as fast, so a client reaches this rate even if it has no
/// processor for most of the time.
pub const ARRIVAL_BYTES_PER_SECOND: u64 = 256 << 20;

/// The largest number of existing sessions that a client offers to a server when it binds.
pub const TOKENS_MAX: usize = 8;

/// The largest size in bytes of one message of the handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// The largest size in bytes of the text of an error that is sent to a peer.
pub const TEXT_BYTES_MAX: usize = 2048;

/// The largest number of network connections of a server.
pub const CONNECTIONS_MAX: usize = 4096;

/// The largest number of network connections of a server from one host: one IPv4 address, or one /64 network
/// of IPv6.
pub const CONNECTIONS_PER_HOST: usize = 256;

/// The largest number of records of callers that a server keeps at one datagram socket.
pub const CALLERS_MAX: usize = 1 << 14;

/// As [`CALLERS_MAX`], but for one group of hosts. A secret of the server determines the group of a host.
pub const CALLERS_PER_HOST: usize = 1 << 12;

/// The largest number of bytes of large results that a server keeps at one datagram socket until the clients
/// acknowledge them, in addition to results that are being made.
///
/// Small results have up to 1472 bytes. There are at most [`CALLERS_MAX`] of them, which together have at
/// most 24 MiB.
pub const RETAINED_BYTES_MAX: usize = 256 << 20;

/// The largest number of bytes of large results that a server keeps at one datagram socket for one group of
/// hosts, until the clients acknowledge them. A client acknowledges a result of 1 MiB or more at once, and
/// other results with its next call, or within 100 ms.
pub const RETAINED_BYTES_PER_HOST: usize = 64 << 20;

/// The largest number of bytes that calls of one group of hosts may have at one datagram socket. Calls of
/// several packets count until they end. If a host has only one such call, this call may be larger. Over TCP,
/// the same limit applies to messages of one host that have not arrived completely, or whose calls wait for a
/// permit.
pub const PARTIAL_BYTES_PER_HOST: usize = 64 << 20;

/// The largest number of bytes of unused memory that a datagram socket keeps for calls. The same number
/// applies to results.
pub const SPARE_BYTES_MAX: usize = 16 << 20;

/// The number of threads of a process that have their own datagram socket to one server address. All other
/// threads share one more socket.
///
/// If a thread has its own socket, the kernel wakes it directly, and the thread can poll. With more callers,
/// the processors are the bottleneck. Then a thread that receives for all callers costs little, and a
/// thousand sockets would use up the descriptors of the process.
pub const SOCKETS_PER_SERVER: u32 = 16;

/// The largest number of bindings of one network connection.
pub const BINDINGS_PER_CONNECTION: usize = 4096;

/// The largest number of bytes in messages that have not arrived completely, or whose calls wait for a
/// permit, on all connections of a server together. The same number applies to calls that wait or run at each
/// datagram socket. Messages of up to 16 KiB are not counted: each connection has at most one.
pub const PARTIAL_BYTES_MAX: usize = 256 << 20;

/// The time that a message may take to arrive over a connection while other connections wait for memory, in
/// addition to the time that [`MESSAGE_RATE`] allows for its bytes.
pub const MESSAGE_TIME: core::time::Duration = core::time::Duration::from_secs(10);

/// The lowest rate in bytes per second of a message that takes longer than [`MESSAGE_TIME`] to arrive.
pub const MESSAGE_RATE: usize = 16 << 10;

/// How long a thread of a server waits for a client to read a reply from its connection. The first time
/// applies if other connections wait for a thread, the second if none does.
pub const UNREAD_TIME: [core::time::Duration; 2] =
    [core::time::Duration::from_millis(100), core::time::Duration::from_secs(10)];

/// How long the other end of a network connection may be silent until it counts as gone. During this time the
/// other end receives keep-alives, or has to acknowledge data.
pub const SILENCE: core::time::Duration = core::time::Duration::from_secs(10);

/// How long the server's machine may be silent over TCP, despite keep-alives, until it counts as gone for a
/// client that waits for a reply.
///
/// This is long enough for a network that is interrupted for a second.
pub const CALL_SILENCE: core::time::Duration = core::time::Duration::from_millis(2300);

/// The number of rows of counters for threads. One row is for all further threads together, so the number of
/// threads with their own row is smaller by one.
pub const COUNTED_THREADS: usize = 128;

/// The number of rows of counters for exports. The last row is for all further exports together, so the
/// number of exports with their own row is smaller by one.
pub const COUNTED_EXPORTS: usize = 64;

/// The number of sessions, connections and associations of a server that are shown.
pub const COUNTED_SESSIONS: usize = 8192;

/// The number of rows for bindings of a server. [`COUNTED_EXPORTS`] of these rows count the bindings that
/// have no row of their own, and are not shown.
pub const COUNTED_BINDINGS: usize = 8192;

/// The number of sessions, and of bindings, that a server shows over a network.
pub const TOLD_ROWS: usize = 1024;
