//! All limits of the system, with their defaults and what happens beyond them.
//!
//! An A-stack is the memory for the messages of one call at a time. On one machine, client and server share
//! this memory. A session is the connection between a client process and a server process on one machine, and
//! has several A-stacks. Each call has a message in each direction: the call and the result. `Exhausted`,
//! `TooLarge` and similar names are kinds of errors.
//!
//! Limits of values and messages:
//!
//! * [`DEPTH_MAX`] (256): structures that are nested more deeply are refused with `BadArguments` or
//!   `BadResult`.
//! * [`DEPTH_BYTES_MAX`] (128 KiB): large values that are nested in large values are refused in the same way.
//! * [`INTERPRETED_DEPTH_MAX`] (512): like [`DEPTH_MAX`], but for interpreted stubs, where all types count.
//! * [`LIST_NODES_MAX`] (10,000): a call with a longer linked list is refused with `TooLarge`, not executed.
//!   A result with a longer list is unreadable. `#[list]` removes the limit.
//! * [`EMPTY_VALUES_MAX`] (65,536): a larger number of values without bytes is refused with `TooLarge` or
//!   `BadResult`.
//! * [`MESSAGE_BYTES`] (16 MiB): larger messages are refused with `TooLarge`, not executed. Declare
//!   `max_len`, or ask for more on both sides.
//! * [`MESSAGE_BYTES_MAX`] (1 GiB): larger messages are refused at bind, because the A-stack would be too
//!   large.
//! * [`CANONICAL_BYTES_MAX`], [`CANONICAL_DEPTH_MAX`] (1 MiB, 64): a longer or more deeply nested description
//!   of an interface is refused.
//! * [`TEXT_BYTES_MAX`] (2048): longer error texts are truncated when they are sent.
//!
//! Limits of names:
//!
//! * [`NAME_BYTES_MAX`] (64): longer names are refused when exporting or binding.
//! * [`HOSTS_BYTES_MAX`], [`OFFERS_MAX`] (1 MiB, 64): a larger hosts file is refused. A name with more
//!   addresses is also refused.
//!
//! Limits of directories:
//!
//! * [`ADDRESSES_MAX`] (8): an offer with more addresses is refused.
//! * [`SERVERS_MAX`], [`RECORD_BYTES_MAX`] (1024, 64 KiB): further servers of a name, and larger files of
//!   a tree, are left out, with a remark.
//! * [`REMARKS_MAX`], [`SCHEMES_MAX`] (16, 8): further remarks are not kept, and further kinds of
//!   directories are not added.
//!
//! Limits of keys and certificates, with the feature `secure`:
//!
//! * [`TRUSTED_BYTES_MAX`], [`TRUSTED_KEYS_MAX`], [`TRUSTED_LINE_BYTES_MAX`] (1 MiB, 4096, 4096 bytes): a
//!   larger list of trusted keys is refused, and so is a longer line. If the file is changed while it is in
//!   use, what is beyond the limit is ignored.
//! * [`PUBLIC_KEY_TEXT_MAX`], [`KEY_COMMENT_MAX`], [`SPIFFE_ID_BYTES_MAX`] (1536, 256, 2048): longer keys,
//!   comments, and SPIFFE IDs or patterns are refused.
//! * [`TRUST_PROBLEMS_MAX`], [`REMOVED_KEYS_MAX`] (16, 4096): further problems of a list are not reported.
//!   Further keys that were removed from it are refused as unknown keys.
//! * [`AUTHORITIES_BYTES_MAX`], [`AUTHORITIES_MAX`] (1 MiB, 256): a file with more CAs is refused.
//! * [`IDENTITY_BYTES_MAX`], [`CERTIFICATES_MAX`] (64 KiB, 8): a larger certificate or key is refused, and so
//!   is a peer with more certificates.
//! * [`CHAIN_BYTES_MAX`] (13 KiB): an identity with larger certificates is refused.
//! * [`TLS_SESSIONS_MAX`], [`TLS_SESSION_BYTES_MAX`], [`TLS_SESSION_TIME`] (1024, 8 KiB, 1 hour): a server
//!   keeps this number of handshakes that clients may resume. Others make a full handshake.
//! * [`KEY_LOG_CONNECTIONS_MAX`] (16,384): a key log with more connections is refused.
//! * [`TLS_SERVERS_MAX`] (64): a client resumes handshakes with the servers that it used last.
//!
//! Limits of memory and sessions on one machine:
//!
//! * [`ESTACK_BYTES_KEPT`] (1 MiB): larger memory for arguments is released after use.
//! * [`ASTACK_BYTES_KEPT`] (64 KiB in each direction): memory that larger messages used is released after two
//!   idle seconds.
//! * [`ASTACKS`], [`ASTACKS_SPARSE`], [`ASTACKS_MAX`] (8, 256, 1024): beyond the first number, more A-stacks
//!   become active, up to the second number. Then callers wait until an A-stack is released. The third number
//!   is the most that a binding may ask for.
//! * [`REGION_BYTES_MAX`] (8 GiB): a larger session is refused at bind.
//! * [`ASTACKS_OF_OTHERS`] (64): a session of another user than the server's gets at most this number of
//!   A-stacks, unless the export allows more.
//! * [`REGION_BYTES_PER_USER`] (32 GiB): for all sessions of one user together, if this user is not the
//!   server's. The less of this memory is left, the fewer and smaller A-stacks a new session gets. If too
//!   little is left, `Exhausted` at bind.
//! * [`SESSIONS_MAX`], [`SESSIONS_PER_USER`] (4096, 2048): `Exhausted` at bind.
//! * [`BINDINGS_MAX`], [`BINDINGS_PER_USER`] (65,536, 262,144): `Exhausted` at bind.
//! * [`TOKENS_MAX`] (8): at bind, a client offers at most this number of its existing sessions.
//! * [`UNBOUND_PER_USER`], [`UNBOUND_TIME`] (256, 5 s): more connections that have not bound yet are refused.
//!   A connection that does not bind in time is closed.
//! * [`HANDSHAKE_BYTES_MAX`] (64 KiB): after a larger message of the handshake, the session or connection is
//!   closed.
//! * [`CAPTURES_MAX`] (4): a further program that wants to capture calls is refused with `Exhausted`.
//! * [`CAPTURE_RECORDS`], [`CAPTURE_QUEUE_BYTES`] (4096, 8 MiB): calls that a program captures and has not
//!   received yet. Further calls are left out, and counted.
//! * [`CAPTURE_BYTES`], [`CAPTURE_BYTES_MAX`] (4 KiB, 32 KiB): larger arguments are cut in captures.
//! * [`CLOSING_MAX`] (256): before Linux 6.16, no client is admitted while this number of sockets with
//!   descriptors of a peer wait to be closed.
//!
//! Limits of threads and calls:
//!
//! * [`WORKERS_MAX`] (256): further calls wait in the queue.
//! * [`REPLACED_MAX`] (64): no more threads are started to replace threads that run abandoned calls. Further
//!   calls wait.
//! * [`DEFERRED_MAX`], [`DEFERRED_BYTES_MAX`] (131,072, 256 MiB): further calls of async procedures keep a
//!   thread each until they end. This also applies to more than [`ASTACKS_MAX`] calls of one connection. A
//!   process, or a host, may use at most a quarter of what is left.
//! * [`LANE_CALLS_MAX`] (65,536): further async calls of a binding do not share batches.
//! * [`CALLBACK_CALLS_MAX`] (64): further calls of a callback wait until a call has ended.
//! * [`STREAM_WINDOW`] (256 KiB): the sender of a stream waits while it is this far ahead of its receiver.
//!   Larger items are refused with `TooLarge`.
//! * [`LANE_TIME`] (60 s): the calls of a client that have arrived in batches are cancelled, if the client
//!   sends no further batch for this time.
//! * [`ONEWAY_BYTES`] (1 MiB): a caller of a further one-way call of a binding waits until earlier ones have
//!   ended.
//! * [`ONEWAY_DROP_TIME`] (1 s): the drop of the last handle of a binding waits this long for its one-way
//!   calls. Calls that have not ended then may be lost.
//! * [`QUEUE_MAX`] (1024): further calls get `Overloaded`, not executed.
//! * [`CHAIN_MAX`] (32): `Exhausted`, not executed, because calls are nested too deeply.
//! * [`METADATA_PAIRS_MAX`], [`METADATA_BYTES_MAX`], [`METADATA_KEY_BYTES_MAX`] (32, 3072, 64): a client with
//!   more metadata is not made. A call that brings more is refused with `BadArguments`, not executed.
//! * [`LAYERS_MAX`] (8): the program panics when it adds one more layer.
//! * [`STALL_TIME`] (10 ms): if a caller stops in the middle of a large message, it posts the whole message
//!   again. A silent connection occupies no thread for longer than this time.
//! * [`LENT_STALL_TIME`] (100 ms): a procedure gets an error if it reads a `Lent` buffer that has not
//!   arrived.
//! * [`ARRIVAL_BYTES_PER_SECOND`] (256 MiB/s): a message that arrives more slowly uses up [`STALL_TIME`] or
//!   [`LENT_STALL_TIME`].
//!
//! Limits of calls over networks. The limits of calls over TCP also apply to calls of ONC RPC over TCP, which
//! are counted separately. The limits of calls over datagrams apply to Peregrine's own protocol, unless ONC
//! RPC is named:
//!
//! * [`CONNECTIONS_MAX`], [`CONNECTIONS_PER_HOST`] (4096, 256): `Exhausted`, and the connection is closed.
//!   `Server::connections` and `Server::connections_per_host` allow more.
//! * [`BINDINGS_PER_CONNECTION`] (4096): `Exhausted` at bind.
//! * [`SILENCE`] (10 s): over TCP, a peer that is silent for longer counts as gone.
//! * [`CALL_SILENCE`] (2.3 s): over TCP, a server that is silent for longer during a call counts as gone.
//!   Over UDP and raw Ethernet, a client waits this long for the handle of a further call. For servers of
//!   ONC RPC only [`SILENCE`] applies.
//! * [`UNREAD_TIME`] (100 ms, 10 s): a connection whose client does not read a reply is closed after this
//!   time. The shorter time applies if other connections wait for a thread.
//! * [`UNSENT_BYTES_MAX`], [`UNSENT_BYTES_PER_HOST`] (1 GiB, 256 MiB): if more bytes of results wait to be
//!   sent over TCP, a call of an async procedure gets `Exhausted` instead of its result. The call may have
//!   executed. A host may use at most a quarter of the memory that is left.
//! * [`MESSAGE_TIME`], [`MESSAGE_RATE`] (10 s, 16 KiB/s): a connection whose message arrives more slowly is
//!   closed, if other connections wait for memory.
//! * [`PARTIAL_BYTES_MAX`] (256 MiB): a connection whose message needs more is not read until memory is free.
//!   While procedures wait for nested calls, a message may arrive beyond this limit. If its call is not
//!   nested and would have to wait, the call is refused with `Overloaded`, not executed. Over datagrams,
//!   calls also wait until memory is free.
//! * [`PARTIAL_BYTES_PER_HOST`] (64 MiB): over datagrams, further calls of the host wait until its other
//!   calls have ended. If the other calls make no progress, the waiting calls are refused with `Exhausted`,
//!   not executed. Over TCP, a host may use at most a quarter of the memory that is left.
//! * [`CALLERS_MAX`], [`CALLERS_PER_HOST`] (16,384, 4096): over datagrams, a further client evicts the client
//!   that was idle longest, which then binds again. If no client can be evicted, the further client gets
//!   `Exhausted` at bind. Callers of ONC RPC do not bind. A further caller evicts the oldest caller, which
//!   does not notice the eviction.
//! * [`RETAINED_BYTES_MAX`], [`RETAINED_BYTES_PER_HOST`] (256 MiB, 64 MiB): over datagrams, calls wait until
//!   clients acknowledge results. If no client does, the calls are refused with `Exhausted`, not executed.
//!   Large results of async procedures wait in the same way. The refusal then says that the call may have
//!   executed.
//! * [`SPARE_BYTES_MAX`] (16 MiB): unused memory for calls or results beyond this number is released.
//! * [`SOCKETS_PER_SERVER`] (16): over datagrams, all further calling threads share one more socket. At this
//!   socket, one of these threads receives for all of them.
//!
//! Limits of counters:
//!
//! * [`COUNTED_THREADS`] (128): further threads share one row of counters, and use locked instructions.
//! * [`COUNTED_EXPORTS`] (64): further exports are counted as one export.
//! * [`COUNTED_SESSIONS`], [`COUNTED_BINDINGS`] (8192 each): `stat` shows only the number of further sessions
//!   and bindings. Their calls are counted with the calls of their export.
//! * [`COUNTED_PROCEDURES`] (512): `stat` does not show further procedures.
//! * [`TOLD_ROWS`] (1024): over networks, `stat` shows at most this number of sessions, and of bindings.
//! * [`WATCHERS`] (16): a server sends its counters as a stream to at most this number of clients.

/// The maximum nesting of structures (`Vec`, `Option`, `Result`, `Box`), in values that are sent or received.
///
/// Decoding is recursive. So this limits how much stack a peer can make a thread use.
pub const DEPTH_MAX: u32 = 256;

/// The maximum number of nodes in a linked list, in values that are sent or received. A linked list is a
/// struct whose last field is `Option<Box<Self>>`. `#[list]` at this field removes the limit.
///
/// Lists are encoded and decoded in a loop. But the compiler's code for dropping a list is recursive: it
/// calls itself for each node. Each of these calls needs about 80 bytes of stack in debug builds.
pub const LIST_NODES_MAX: usize = 10_000;

/// The maximum sum of the sizes, in bytes, of values that contain each other. For example, lists whose
/// elements have 4 KiB may be nested 32 deep when they are received.
///
/// While a value is decoded, several copies of the value may be on the stack. A limit on the nesting alone
/// would bound the number of stack frames, but not the size of these frames.
pub const DEPTH_BYTES_MAX: usize = 128 << 10;

/// The maximum number of values without bytes (`Box<()>`, a struct without fields) in all sequences of a
/// head. A head is the first part of a message.
///
/// The size of a message does not limit the number of such values. So this limits how much time and memory a
/// peer can make a process spend.
pub const EMPTY_VALUES_MAX: usize = 1 << 16;

/// The maximum size in bytes of the canonical text with which a peer describes an interface.
pub const CANONICAL_BYTES_MAX: usize = 1 << 20;

/// The maximum nesting of types of any kind in interpreted stubs. In interpreted stubs, a struct in a struct
/// needs stack. In compiled stubs, it does not.
pub const INTERPRETED_DEPTH_MAX: u32 = 512;

/// The maximum nesting of types within one line of a canonical text. The code that reads and prints types is
/// recursive.
pub const CANONICAL_DEPTH_MAX: usize = 64;

/// The maximum number of bytes in the name of an export.
pub const NAME_BYTES_MAX: usize = 64;

/// The maximum size in bytes of a hosts file.
pub const HOSTS_BYTES_MAX: usize = 1 << 20;

/// The maximum number of addresses of one server in a directory.
pub const ADDRESSES_MAX: usize = 8;

/// The number of servers that a pool uses if the program sets none.
pub const POOL_SERVERS: u32 = 16;

/// The maximum number of servers that a pool uses.
pub const POOL_SERVERS_MAX: u32 = 256;

/// The maximum number of servers that a directory returns for one name.
pub const SERVERS_MAX: usize = 1024;

/// The maximum size in bytes of a file in which servers register.
pub const RECORD_BYTES_MAX: usize = 64 << 10;

/// The maximum number of remarks about what a directory knows of a name.
pub const REMARKS_MAX: usize = 16;

/// The maximum number of characters of such a remark.
pub const REMARK_MAX: usize = 200;

/// The maximum number of kinds of directories that other crates add.
pub const SCHEMES_MAX: usize = 8;

/// The maximum size in bytes of a list of trusted keys.
pub const TRUSTED_BYTES_MAX: usize = 1 << 20;

/// The maximum number of keys in a list of trusted keys.
pub const TRUSTED_KEYS_MAX: usize = 4096;

/// The maximum number of bytes in a line of a list of trusted keys.
pub const TRUSTED_LINE_BYTES_MAX: usize = 4096;

/// The maximum number of characters of a public key in base64. An RSA key of 8192 bits has fewer.
pub const PUBLIC_KEY_TEXT_MAX: usize = 1536;

/// The maximum number of characters in the comment of a trusted key.
pub const KEY_COMMENT_MAX: usize = 256;

/// The maximum number of bytes of a SPIFFE ID, and of a pattern for identities.
pub const SPIFFE_ID_BYTES_MAX: usize = 2048;

/// The maximum number of problems of its files that a `Trust` reports.
pub const TRUST_PROBLEMS_MAX: usize = 16;

/// The maximum number of keys that a `Trust` remembers as removed from its list.
pub const REMOVED_KEYS_MAX: usize = 4096;

/// The maximum size in bytes of a file with certificates of CAs.
pub const AUTHORITIES_BYTES_MAX: usize = 1 << 20;

/// The maximum number of trusted CAs.
pub const AUTHORITIES_MAX: usize = 256;

/// The maximum size in bytes of a file with the certificates, or the private key, of an identity.
pub const IDENTITY_BYTES_MAX: usize = 64 << 10;

/// The maximum number of bytes that the certificates of an identity have together, without the encoding of
/// PEM. A handshake over packets has at most 16 KiB from each side, also with the largest key and signature.
pub const CHAIN_BYTES_MAX: usize = 13 << 10;

/// The maximum number of certificates that an identity has, or that a peer shows.
pub const CERTIFICATES_MAX: usize = 8;

/// The maximum number of connections in a key log with which sealed packets are opened.
pub const KEY_LOG_CONNECTIONS_MAX: usize = 16_384;

/// The maximum number of handshakes that a server lets its clients resume.
pub const TLS_SESSIONS_MAX: usize = 1024;

/// The maximum number of bytes that a server keeps of a handshake. They contain the certificates of the
/// client.
pub const TLS_SESSION_BYTES_MAX: usize = 8 << 10;

/// How long a handshake can be resumed.
pub const TLS_SESSION_TIME: core::time::Duration = core::time::Duration::from_secs(3600);

/// The maximum number of servers whose handshakes a client resumes with one identity and one trust.
pub const TLS_SERVERS_MAX: usize = 64;

/// The maximum number of addresses that a hosts file lists for one name.
pub const OFFERS_MAX: usize = 64;

/// The maximum size in bytes of a message in each direction. An interface may declare a larger size. A client
/// may also ask for more with `message_bytes`, if the server allows that with `message_bytes_max`. Either
/// side may lower the limit.
///
/// Memory for a message is allocated when it is first touched, so this size does not make idle sessions more
/// expensive.
pub const MESSAGE_BYTES: usize = 16 << 20;

/// The message size in bytes that a client requests when it binds. The client requests more if its interface
/// needs more, and less if its options say so. A server grants this size unless its export allows less. The
/// A-stacks of a session may have up to [`MESSAGE_BYTES`]. If memory is short, they have only the requested
/// size.
pub const MESSAGE_BYTES_ASKED: usize = 1 << 20;

/// The size in bytes of the private memory for arguments (E-stack) that a thread keeps between calls.
pub const ESTACK_BYTES_KEPT: usize = 1 << 20;

/// The number of bytes that stay allocated in each half of an A-stack after they were touched. One half
/// contains the call, the other half contains the result.
pub const ASTACK_BYTES_KEPT: usize = 64 << 10;

/// The maximum size in bytes of a message in each direction that a binding may ask for.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// The number of A-stacks that stay active while a session is idle.
pub const ASTACKS: u32 = 8;

/// The maximum number of calls that a procedure has in flight to an object of its caller at a time (a
/// [callback](crate::Callback)).
pub const CALLBACK_CALLS_MAX: u32 = 64;

/// The number of A-stacks that a session has, unless a binding asks for more. This is also how many calls can
/// be in flight between two processes before callers wait. With messages of 16 MiB, 227 A-stacks fit
/// [`REGION_BYTES_MAX`]. Memory that was never touched costs nothing.
pub const ASTACKS_SPARSE: u32 = 256;

/// The minimum number of A-stacks of a session. It applies if the process has no address space for more.
pub const ASTACKS_SPARING: u32 = 4;

/// The maximum number of A-stacks that a binding may ask for.
pub const ASTACKS_MAX: u32 = 1024;

/// The maximum size in bytes of the shared memory of one session. It consists of 4 GiB for messages, and of 2
/// MiB in each direction for each of 1024 A-stacks. Large messages are sent through these 2 MiB.
pub const REGION_BYTES_MAX: usize = 8 << 30;

/// The number of A-stacks of a session whose client runs neither as the server's user nor as root.
/// `ExportOptions::astacks_max` can allow more.
///
/// The kernel charges memory to the process that touches it first, and the client determines which memory the
/// server touches. So a client of another user could make the server pay for the client's memory.
pub const ASTACKS_OF_OTHERS: u32 = 64;

/// The maximum size in bytes of the shared memory of all sessions together that one user has with a server.
/// It applies if this user is neither the server's user nor root. It suffices for about 300 sessions, unless
/// their exports have large messages. Most of this memory is never touched. The less of the limit is left,
/// the fewer and smaller A-stacks a new session gets.
pub const REGION_BYTES_PER_USER: usize = 32 << 30;

/// The minimum message size in bytes of an A-stack in each direction. Every refusal, including its text, fits
/// this size.
pub const MESSAGE_BYTES_MIN: usize = 4096;

/// The maximum number of threads of a server that run procedures.
pub const WORKERS_MAX: usize = 256;

/// The maximum number of threads of a server that wait for calls on connections. Threads that run procedures
/// are not included.
pub const READERS_MAX: usize = 64;

/// The largest number of calls of async procedures that a server keeps without a thread. Each further call
/// keeps its thread until its procedure ends. The calls of one process, or of one host, may be at most a
/// quarter of the number that is left.
pub const DEFERRED_MAX: usize = 1 << 17;

/// The largest number of bytes in the messages of the calls that [`DEFERRED_MAX`] limits. The calls of one
/// process, or of one host, may have at most a quarter of the number that is left. The first call of each
/// process or host may have more.
pub const DEFERRED_BYTES_MAX: usize = 256 << 20;

/// The number of bytes that the sender of a stream may be ahead of its receiver. While the sender is this far
/// ahead, it waits. Each item counts as 16 bytes more than its encoded size.
///
/// The number is also the size of the largest message with items. The largest item is 64 bytes smaller.
/// Larger items are refused with `TooLarge`. If the binding allows smaller messages, items must be smaller,
/// too.
pub const STREAM_WINDOW: usize = 256 << 10;

/// The largest number of calls of one binding that share batches and have no result yet. Further calls are
/// made alone.
pub const LANE_CALLS_MAX: usize = 1 << 16;

/// How long a server keeps the calls of a client that have arrived in batches, if the client sends no further
/// batch. A client that waits for results sends its next batch at once, so this time usually passes only if
/// the client has gone.
pub const LANE_TIME: core::time::Duration = core::time::Duration::from_secs(60);

/// The maximum number of bytes of the one-way calls of a binding that are queued or under way.
pub const ONEWAY_BYTES: usize = 1 << 20;

/// How long the drop of the last handle of a binding waits for its one-way calls.
pub const ONEWAY_DROP_TIME: core::time::Duration = core::time::Duration::from_secs(1);

/// The maximum number of additional threads that a server starts to replace threads that run abandoned calls.
/// The limit applies separately to local calls, to calls over TCP, and to calls at each datagram socket.
/// Threads that run calls of ONC RPC or Courier are not replaced.
pub const REPLACED_MAX: usize = 64;

/// The maximum number of calls that may wait for a thread of the server. The limit applies to each user of
/// this machine, and to all clients on networks together.
pub const QUEUE_MAX: usize = 1024;

/// The maximum number of sessions of a server.
pub const SESSIONS_MAX: usize = 4096;

/// The maximum number of sessions that a server has with processes of one user.
pub const SESSIONS_PER_USER: usize = 2048;

/// The maximum number of bindings of one session.
pub const BINDINGS_MAX: usize = 1 << 16;

/// The maximum number of bindings that one user has with a server.
pub const BINDINGS_PER_USER: usize = 1 << 18;

/// The maximum number of connections of one user that have not bound yet.
pub const UNBOUND_PER_USER: usize = 256;

/// How long a connection may take to bind. After this time, the server closes the connection. A client of ONC
/// RPC does not bind: it must make its first call in this time.
pub const UNBOUND_TIME: core::time::Duration = core::time::Duration::from_secs(5);

/// The maximum number of sockets with descriptors from a peer that may wait to be closed. Closing a
/// descriptor that a peer chose may block for ever. So separate threads (at most 16) close such
/// sockets.
///
/// While this number of sockets or more wait, no client is admitted. From Linux 6.16 on, the server receives
/// no descriptors, so no sockets wait.
pub const CLOSING_MAX: usize = 256;

/// The maximum number of processes through which a chain of nested calls may pass.
///
/// A call that comes back to a process gets a thread in addition to those that the process may otherwise use.
/// So this limits how many threads circular calls can occupy.
pub const CHAIN_MAX: usize = 32;

/// The maximum number of bytes of everything that a call carries besides its message: the chain of nested
/// calls, the deadline and the metadata. Servers of all versions accept this number over TCP.
pub(crate) const EXTENSION_BYTES_MAX: u32 = 4096;

/// The maximum number of pairs in the [metadata](crate::Metadata) of a call.
///
/// The number bounds the work of a server that compares each key with all others.
pub const METADATA_PAIRS_MAX: usize = 32;

/// The maximum number of bytes in the [metadata](crate::Metadata) of a call. Each pair counts four bytes more
/// than its key and its value have.
///
/// Servers over TCP have always closed connections whose calls carry more than 4096 bytes besides their
/// messages. With the longest chain of nested calls and a deadline, this size leaves some of them free.
pub const METADATA_BYTES_MAX: usize = 3072;

/// The maximum number of bytes in a key of the [metadata](crate::Metadata) of a call.
///
/// Keys are names for programs, and other systems carry names of this length.
pub const METADATA_KEY_BYTES_MAX: usize = 64;

/// The maximum number of [layers](crate::Layer) of a binding, and of an export together with its server.
///
/// A call that runs has a ticket for each layer, in memory of this size. More layers are a mistake.
pub const LAYERS_MAX: usize = 8;

/// How long a server's thread waits for a client that stops in the middle of a message. It is the sum of all
/// waits for this message. The time that [`ARRIVAL_BYTES_PER_SECOND`] allows for the message's bytes is
/// added. After this time, the call is dropped, not executed. The client posts the call again once it has
/// written the whole message.
pub const STALL_TIME: core::time::Duration = core::time::Duration::from_millis(10);

/// Like [`STALL_TIME`], but for all reads of a call's `Lent` buffers by the procedure. After this time, the
/// reads fail. The time is longer than `STALL_TIME`, because such a call has begun and cannot be posted
/// again.
pub const LENT_STALL_TIME: core::time::Duration = core::time::Duration::from_millis(100);

/// The minimum rate in bytes per second of a large message that has used up [`STALL_TIME`] or
/// [`LENT_STALL_TIME`]. Memory is twenty times as fast as this rate. So a client reaches the rate even if it
/// has no processor for most of the time.
pub const ARRIVAL_BYTES_PER_SECOND: u64 = 256 << 20;

/// The maximum number of existing sessions that a client offers to a server when it binds.
pub const TOKENS_MAX: usize = 8;

/// The maximum size in bytes of one message of the handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// The maximum number of programs that [capture](crate::Capture) calls of a server at a time.
pub const CAPTURES_MAX: u32 = 4;

/// The maximum number of calls that a program captures and has not received yet.
pub const CAPTURE_RECORDS: usize = 4096;

/// The maximum number of bytes of the calls that a program captures and has not received yet.
pub const CAPTURE_QUEUE_BYTES: usize = 8 << 20;

/// The number of bytes of the arguments of a call that a program captures, unless it asks for another number.
pub const CAPTURE_BYTES: usize = 4 << 10;

/// The maximum number of bytes of the arguments of a call that a program captures.
pub const CAPTURE_BYTES_MAX: usize = 32 << 10;

/// The maximum size in bytes of an error's text that is sent to a peer.
pub const TEXT_BYTES_MAX: usize = 2048;

/// The maximum number of network connections of a server.
pub const CONNECTIONS_MAX: usize = 4096;

/// The maximum number of network connections that a server has with one host. A host is one IPv4 address, or
/// one /64 network of IPv6.
pub const CONNECTIONS_PER_HOST: usize = 256;

/// The maximum number of callers that a server keeps state for at one datagram socket.
pub const CALLERS_MAX: usize = 1 << 14;

/// Like [`CALLERS_MAX`], but for one group of hosts. A secret of the server determines to which group a host
/// belongs.
pub const CALLERS_PER_HOST: usize = 1 << 12;

/// The maximum number of bytes of large results that a server keeps at one datagram socket until the clients
/// acknowledge them. Results that running procedures still produce are not included.
///
/// Small results have up to 1472 bytes. There are at most [`CALLERS_MAX`] of them, so together they have at
/// most 24 MiB.
pub const RETAINED_BYTES_MAX: usize = 256 << 20;

/// Like [`RETAINED_BYTES_MAX`], but for one group of hosts. A client acknowledges a result of 1 MiB or more
/// at once. It acknowledges other results with its next call, or within 100 ms.
pub const RETAINED_BYTES_PER_HOST: usize = 64 << 20;

/// The maximum number of bytes of all calls that one group of hosts may have at one datagram socket. Calls
/// that consist of several packets count until they end. If a host has only one such call, this call may be
/// larger. Results of async procedures that wait for [`RETAINED_BYTES_PER_HOST`] count as calls. Over TCP,
/// the same limit applies to some messages of one host: those that have not arrived completely, or whose
/// calls wait for a permit.
pub const PARTIAL_BYTES_PER_HOST: usize = 64 << 20;

/// The maximum number of bytes of unused memory that a datagram socket keeps for calls. It also keeps at most
/// this number of bytes for results.
pub const SPARE_BYTES_MAX: usize = 16 << 20;

/// The maximum number of threads of a process that have separate datagram sockets to one server address. All
/// other threads share one more socket.
///
/// If a thread has a separate socket, the kernel wakes this thread directly, and the thread can poll. With
/// more callers, the processors are the bottleneck. Then it costs little if one thread receives for all
/// callers. But a thousand sockets would use up the descriptors of the process.
pub const SOCKETS_PER_SERVER: u32 = 16;

/// The maximum number of bindings of one network connection.
pub const BINDINGS_PER_CONNECTION: usize = 4096;

/// The maximum number of bytes of incomplete messages, and of messages whose calls wait for a permit, on all
/// connections of a server together. Messages of up to 16 KiB are not counted: each connection has at most
/// one such message, so the number of connections bounds them.
///
/// At each datagram socket, the same number limits the messages of the calls that wait or run.
pub const PARTIAL_BYTES_MAX: usize = 256 << 20;

/// How long a message may take to arrive over a connection while other connections wait for memory. The time
/// that [`MESSAGE_RATE`] allows for the message's bytes is added.
pub const MESSAGE_TIME: core::time::Duration = core::time::Duration::from_secs(10);

/// The minimum rate in bytes per second of a message that takes longer than [`MESSAGE_TIME`] to arrive.
pub const MESSAGE_RATE: usize = 16 << 10;

/// How long a thread of a server waits for a client to read a reply from the client's connection. The first
/// time applies if other connections wait for a thread. Otherwise the second time applies.
pub const UNREAD_TIME: [core::time::Duration; 2] =
    [core::time::Duration::from_millis(100), core::time::Duration::from_secs(10)];

/// The maximum number of bytes of results that async procedures of a server have returned, and that were not
/// sent over TCP yet. Results of up to a kilobyte are not counted, because [`DEFERRED_MAX`] bounds their
/// number.
///
/// The sum is large only while clients do not read as fast as procedures end. A client that does not read at
/// all is disconnected after [`UNREAD_TIME`].
pub const UNSENT_BYTES_MAX: usize = 1 << 30;

/// Like [`UNSENT_BYTES_MAX`], but for the clients of one host. One result of each host may be larger.
pub const UNSENT_BYTES_PER_HOST: usize = 256 << 20;

/// How long the other end of a network connection may be silent until it counts as gone. During this time,
/// this side sends keep-alives to the other end, or waits for the acknowledgement of data.
pub const SILENCE: core::time::Duration = core::time::Duration::from_secs(10);

/// How long the server's machine may be silent over TCP, despite keep-alives, while a client waits for a
/// reply. After this time, the client treats the server as gone. Over UDP and raw Ethernet, a client waits at
/// most this time for the handle of a further call.
///
/// The time is long enough for an interruption of the network that lasts a second.
pub const CALL_SILENCE: core::time::Duration = core::time::Duration::from_millis(2300);

/// The number of rows of counters for threads. All further threads share one of these rows, and one row has
/// the counters of procedures, so the number of threads with a row of their own is smaller by two.
pub const COUNTED_THREADS: usize = 128;

/// The number of rows of counters for exports. All further exports share the last row, so the number of
/// exports with a row of their own is smaller by one.
pub const COUNTED_EXPORTS: usize = 64;

/// The maximum number of sessions, connections and associations of a server that `stat` shows.
pub const COUNTED_SESSIONS: usize = 8192;

/// The number of rows of counters for the bindings of a server. [`COUNTED_EXPORTS`] of these rows are not
/// shown: they count the bindings that have no row of their own.
pub const COUNTED_BINDINGS: usize = 8192;

/// The number of rows of counters for procedures of which a server keeps something, such as a census. Further
/// procedures are not shown.
pub const COUNTED_PROCEDURES: usize = 512;

/// The number of bytes of a message that fit one packet of a network with an MTU of 1,500 bytes: the
/// length of a piece over UDP and IPv4.
pub const ONE_PACKET_BYTES: usize = 1408;

/// The maximum number of sessions, and of bindings, that a server shows over a network.
pub const TOLD_ROWS: usize = 1024;

/// The maximum number of clients on networks to which a server sends its counters as a stream. For further
/// clients, [`watch`](crate::watch) reads the counters by calls.
pub const WATCHERS: u32 = 16;
