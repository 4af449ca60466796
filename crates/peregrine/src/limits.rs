//! Every bound of the system: what it is, its default, and what happens beyond it.
//!
//! | bound | default | beyond it |
//! |---|---|---|
//! | [`DEPTH_MAX`] | 256 | `BadArguments` or `BadResult`: structures nested too deeply |
//! | [`EMPTY_VALUES_MAX`] | 65536 | `TooLarge` or `BadResult`: more values than that which take no bytes |
//! | [`NAME_BYTES_MAX`] | 64 | refused when exporting or binding |
//! | [`MESSAGE_BYTES_MAX`] | 1 GiB | refused at bind: the A-stack would be too large |
//! | [`MESSAGE_BYTES`] | 16 KiB | `TooLarge`, not executed: declare `max_len`, or ask for more at bind |
//! | [`EXPORT_MESSAGE_BYTES`] | 1 MiB | refused at bind: raise `ExportOptions::message_bytes_max` |
//! | [`ESTACK_BYTES_KEPT`] | 1 MiB | larger memory for arguments is given back after use |
//! | [`ASTACKS`] / [`ASTACKS_MAX`] | 8 / 1024 | the caller waits until an A-stack is given back |
//! | [`REGION_BYTES_MAX`] | 4 GiB | refused at bind |
//! | [`WORKERS_MAX`] | 64 | a call rings and is queued |
//! | [`QUEUE_MAX`] | 1024 | `Overloaded`, not executed |
//! | [`SESSIONS_MAX`] | 4096 | the session is refused at bind |
//! | [`HANDSHAKE_BYTES_MAX`] | 64 KiB | the session is closed |
//! | [`TEXT_BYTES_MAX`] | 2048 | error texts that cross a binding are cut |

/// How deep structures may nest (`Vec`, `Option`, `Result`, `Box`), when sent and when received.
///
/// Decoding recurses, so this bounds the stack that a peer can make us use.
pub const DEPTH_MAX: u32 = 256;

/// How many values that take no bytes (`Box<()>`, a struct without fields) a sequence may have.
///
/// Nothing that is sent bounds their number, so this bounds the time a peer can make us spend.
pub const EMPTY_VALUES_MAX: usize = 1 << 16;

/// Bytes in the name of an export.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes that an A-stack offers each way, unless the interface or the binding asks for more.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// Bytes that an export lets an A-stack have each way, unless its interface or its options say
/// more: a client makes the server take that much.
pub const EXPORT_MESSAGE_BYTES: usize = 1 << 20;

/// Bytes of private argument memory that a thread keeps from call to call.
pub const ESTACK_BYTES_KEPT: usize = 1 << 20;

/// Bytes that an A-stack may offer each way.
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// A-stacks of a binding: calls in flight before callers wait.
pub const ASTACKS: u32 = 8;

/// The most A-stacks that a binding may ask for.
pub const ASTACKS_MAX: u32 = 1024;

/// Bytes of shared memory that one binding may take.
pub const REGION_BYTES_MAX: usize = 4 << 30;

/// Bytes that an A-stack offers each way at least: any refusal with its text fits.
pub const MESSAGE_BYTES_MIN: usize = 4096;

/// Threads of a server that run procedures.
pub const WORKERS_MAX: usize = 64;

/// Calls that may wait for a thread of the server.
pub const QUEUE_MAX: usize = 1024;

/// Sessions that a server accepts at one time.
pub const SESSIONS_MAX: usize = 4096;

/// Bytes of one message of the handshake.
pub const HANDSHAKE_BYTES_MAX: usize = 64 << 10;

/// Bytes of an error's text that cross a binding.
pub const TEXT_BYTES_MAX: usize = 2048;
