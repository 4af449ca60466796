//! An XDP program of a few instructions, and the map in which the program looks up sockets. The kernel runs
//! the program for each frame that arrives at an interface.

#![allow(unsafe_code)]

use core::mem::size_of;
use core::ptr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::XdpSocket;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
const BPF_FUNC_REDIRECT_MAP: i32 = 51;

/// An eBPF instruction in the kernel's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The lower four bits are the destination register, and the upper four bits the source register.
    registers: u8,
    offset: i16,
    immediate: i32,
}

#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    rest: [u32; 15],
}

#[repr(C)]
struct MapElement {
    map: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    program_type: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    rest: [u32; 20],
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    rest: [u32; 12],
}

fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_int> {
    let bytes = size_of::<T>();
    // SAFETY: the kernel reads `bytes` bytes of attributes. The memory to which addresses in the attributes
    // point outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), bytes) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as libc::c_int) }
}

fn descriptor<T>(command: libc::c_int, attributes: &mut T) -> io::Result<OwnedFd> {
    let fd = bpf(command, attributes)?;
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it. The kernel sets
    // close-on-exec on all BPF descriptors.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Selects the frames that the program redirects: frames with this Ethernet type that arrive in this queue,
/// and whose first byte after the Ethernet header is `tag`. The byte after `tag` is the number of a slot of
/// the map. The frame goes to the socket in that slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ours {
    /// The type in the Ethernet header.
    pub ether_type: u16,
    /// The receive queue to which the sockets are bound.
    pub queue: u32,
    /// The first byte of every endpoint number of this process.
    pub tag: u8,
}

/// An XDP program attached to an interface. The program is detached when this value is dropped or the process
/// ends.
#[derive(Debug)]
pub struct XdpProgram {
    // Dropped first: the program is detached before its map is closed.
    _link: OwnedFd,
    map: OwnedFd,
    in_driver: bool,
}

/// The largest number of sockets to which one program can redirect frames.
pub const XDP_SOCKETS_MAX: u32 = 256;

/// Returns the instructions of the program. The program redirects the selected frames to the socket that they
/// name, and passes all other frames on to the kernel.
fn instructions(map: i32, ours: Ours) -> [Instruction; 19] {
    const LOAD_BYTE: u8 = 0x71;
    const LOAD_HALF: u8 = 0x69;
    const LOAD_WORD: u8 = 0x61;
    const MOVE: u8 = 0xbf;
    const MOVE_NUMBER: u8 = 0xb7;
    const ADD_NUMBER: u8 = 0x07;
    const IF_GREATER: u8 = 0x2d;
    const IF_NOT_NUMBER: u8 = 0x55;
    const LOAD_MAP: u8 = 0x18;
    const MAP: u8 = 1;
    const CALL: u8 = 0x85;
    const EXIT: u8 = 0x95;
    const FIRST: i16 = 12;
    let op = |code, to: u8, from: u8, offset, immediate| Instruction {
        code,
        registers: to | from << 4,
        offset,
        immediate,
    };
    let ether_type = i32::from(u16::from_ne_bytes(ours.ether_type.to_be_bytes()));
    // `out` is the distance of a jump from the instruction `from` to the second-to-last instruction.
    // Distances count from the instruction after the jump.
    let out = |from: i16| 17 - from - 1;
    [
        // Registers 2 and 3 hold the start and the end of the frame.
        op(LOAD_WORD, 2, 1, 0, 0),
        op(LOAD_WORD, 3, 1, 4, 0),
        op(MOVE, 4, 2, 0, 0),
        op(ADD_NUMBER, 4, 0, 0, 16),
        op(IF_GREATER, 4, 3, out(4), 0),
        op(LOAD_HALF, 5, 2, FIRST, 0),
        op(IF_NOT_NUMBER, 5, 0, out(6), ether_type),
        op(LOAD_BYTE, 5, 2, FIRST + 2, 0),
        op(IF_NOT_NUMBER, 5, 0, out(8), i32::from(ours.tag)),
        op(LOAD_WORD, 5, 1, 16, 0),
        op(IF_NOT_NUMBER, 5, 0, out(10), ours.queue.cast_signed()),
        op(LOAD_BYTE, 2, 2, FIRST + 3, 0),
        op(LOAD_MAP, 1, MAP, 0, map),
        op(0, 0, 0, 0, 0),
        // If the slot of a frame has no socket, this default action passes the frame on to the kernel.
        op(MOVE_NUMBER, 3, 0, 0, XDP_PASS),
        op(CALL, 0, 0, 0, BPF_FUNC_REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_NUMBER, 0, 0, 0, XDP_PASS),
        op(EXIT, 0, 0, 0, 0),
    ]
}

impl XdpProgram {
    /// Attaches the program to an interface. The program runs in the driver if the driver can run programs.
    /// Otherwise it runs after the driver (generic mode), where the kernel has already spent more time on
    /// each frame.
    ///
    /// # Errors
    /// `ResourceBusy` if the interface has another program; `PermissionDenied` without `CAP_BPF` and
    /// `CAP_NET_ADMIN`.
    pub fn attach(interface: u32, ours: Ours) -> io::Result<Self> {
        let program = Program::new(ours)?;
        match program.attach(interface, XDP_FLAGS_DRV_MODE) {
            Ok(link) => Ok(Self { _link: link, map: program.map, in_driver: true }),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(error),
            Err(_) => program.attach_behind(interface),
        }
    }

    /// Attaches the program so that it runs after the driver (generic mode), even if the driver could run it.
    ///
    /// On a veth pair, generic mode is faster. Before the driver of a veth pair runs a program, it copies
    /// into a page each frame that comes from the rest of the kernel. Without that copy the round trip of a
    /// small frame takes a quarter less time.
    ///
    /// # Errors
    /// As for [`attach`](Self::attach).
    pub fn attach_behind(interface: u32, ours: Ours) -> io::Result<Self> {
        Program::new(ours)?.attach_behind(interface)
    }

    /// Returns whether the interface's driver runs the program.
    pub const fn is_in_driver(&self) -> bool {
        self.in_driver
    }

    /// Redirects frames whose slot byte is `slot` to a socket, until the socket is closed.
    ///
    /// # Errors
    /// Fails if the socket is not bound.
    pub fn lead(&self, slot: u8, socket: &XdpSocket) -> io::Result<()> {
        let (key, value) = (u32::from(slot), socket.as_fd().as_raw_fd());
        let mut element = MapElement {
            map: self.map.as_raw_fd().cast_unsigned(),
            _pad: 0,
            key: ptr::from_ref(&key) as u64,
            value: ptr::from_ref(&value) as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &mut element).map(drop)
    }

    /// Stops redirecting frames whose slot byte is `slot`. Such frames go to the rest of the kernel again.
    pub fn leave(&self, slot: u8) {
        let key = u32::from(slot);
        let mut element = MapElement {
            map: self.map.as_raw_fd().cast_unsigned(),
            _pad: 0,
            key: ptr::from_ref(&key) as u64,
            value: 0,
            flags: 0,
        };
        let _ = bpf(BPF_MAP_DELETE_ELEM, &mut element);
    }
}

/// The program, loaded but not attached.
struct Program {
    fd: OwnedFd,
    map: OwnedFd,
}

impl Program {
    fn new(ours: Ours) -> io::Result<Self> {
        let map = descriptor(
            BPF_MAP_CREATE,
            &mut MapCreate {
                map_type: BPF_MAP_TYPE_XSKMAP,
                key_size: 4,
                value_size: 4,
                max_entries: XDP_SOCKETS_MAX,
                map_flags: 0,
                rest: [0; 15],
            },
        )?;
        Ok(Self { fd: load(&instructions(map.as_raw_fd(), ours))?, map })
    }

    fn attach(&self, interface: u32, flags: u32) -> io::Result<OwnedFd> {
        let program = self.fd.as_raw_fd().cast_unsigned();
        let rest = [0; 12];
        let mut link = LinkCreate { program, interface, attach_type: BPF_XDP, flags, rest };
        descriptor(BPF_LINK_CREATE, &mut link)
    }

    fn attach_behind(self, interface: u32) -> io::Result<XdpProgram> {
        let link = self.attach(interface, XDP_FLAGS_SKB_MODE)?;
        Ok(XdpProgram { _link: link, map: self.map, in_driver: false })
    }
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let license = c"MIT OR Apache-2.0";
    descriptor(
        BPF_PROG_LOAD,
        &mut ProgramLoad {
            program_type: BPF_PROG_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: license.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            rest: [0; 20],
        },
    )
}

impl AsFd for XdpProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_accepts_the_program() {
        match Program::new(Ours { ether_type: 0x88b5, queue: 0, tag: 1 }) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: {error}");
            }
            loaded => drop(loaded.unwrap()),
        }
    }
}
