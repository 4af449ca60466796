//! Makes every raw system call of the library, and offers functions with safe signatures.
//!
//! This is one of the modules in which `unsafe` is allowed. All other modules call the operating system
//! through this one.

mod bpf;
mod clock;
mod closing;
mod control;
mod copy;
mod cpu;
mod datagram;
mod file;
mod fork;
mod fragile;
mod futex;
#[cfg(feature = "secure")]
mod hidden;
mod inherited;
mod interface;
mod memory;
mod network;
mod packet;
mod process;
mod published;
mod random;
mod replaceable;
mod signal;
mod socket;
mod tcp;
mod tun;
mod vector;
mod window;
mod xdp;

pub use bpf::{Ours, XDP_SOCKETS_MAX, XdpProgram};
pub(crate) use clock::{boot_ns, moment, to_times};
pub(crate) use closing::is_congested;
pub(crate) use copy::{LANE_BYTES, Shuffles};
#[cfg(feature = "stamps")]
pub use cpu::ticks;
pub use cpu::{current_cpu, leave_cpu, membarrier, online_cpus, pin_to};
pub use datagram::{Address, Arrival, Datagrams, IfFull};
pub use file::{pread, pwrite};
pub(crate) use fork::{ForkMark, PerProcess, process_id};
pub(crate) use fragile::Fragile;
pub(crate) use futex::{FutexSet, futex_wake_one, has_futex_sets};
pub use futex::{futex_wait, futex_wake};
#[cfg(feature = "secure")]
pub(crate) use hidden::Hidden;
pub(crate) use inherited::{copy_of_descriptor, forget_variables, keep_from_children};
pub use interface::{NetworkInterface, interface_of};
pub use memory::Memory;
pub(crate) use network::network_number;
pub use packet::{FRAMES_SENT_MAX, Filter, PacketRing, PacketSocket};
pub(crate) use process::{Process, machine_name, trusted_variable};
pub(crate) use published::{Published, Reading};
pub(crate) use random::random;
pub(crate) use replaceable::Replaceable;
pub(crate) use signal::on_stop_signals;
pub(crate) use socket::{Credentials, Received, Seqpacket};
pub(crate) use tcp::{TcpHealth, tcp_health};
pub use tun::Tun;
pub(crate) use vector::{Parts, receive_two};
pub(crate) use window::fetch;
pub use window::{Space, Window};
pub use xdp::{
    Consumer, Described, LoneUmem, Producer, Queue, QueueRings, SocketRings, Umem, UmemLayout,
    XdpSocket,
};
