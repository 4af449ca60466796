//! What a client may choose when it binds.

use core::time::Duration;
use std::sync::Arc;

use crate::call::{Limit, OnExhausted, Wait, frames_that_fit};
use crate::device::LinkDevice;
use crate::directory::Directory;
use crate::error::{CallError, Kind, Phase};
use crate::interface::InterfaceRef;
use crate::limits;

/// By which device raw Ethernet is spoken.
///
/// Unless one is set, it is [`Any`](Self::Any) at addresses that begin with `eth:`. At addresses without a
/// scheme it is [`Packet`](Self::Packet): AF_XDP attaches a program to the network interface, for which
/// many drivers reset it, and that is done only where it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetDevice {
    /// AF_XDP if this process can have queue 0 of the interface, which one process can at a time;
    /// otherwise AF_PACKET. The kernel copies each frame once each way.
    #[default]
    Any,
    /// AF_PACKET, which any number of processes can have, and which leaves queues to others.
    Packet,
    /// As [`Any`](Self::Any), but without the kernel's copies if the driver supports that. The driver
    /// then receives all frames of the queue into this process's memory, also those of other
    /// programs. The kernel copies these once more for the programs.
    ZeroCopy,
}

impl EthernetDevice {
    /// Returns the device for an address at which it was set, or not; `asked`: the address names raw
    /// Ethernet.
    pub(crate) const fn by(set: Option<Self>, asked: bool) -> LinkDevice {
        match set {
            Some(Self::Any) => LinkDevice::Xdp { zero_copy: false },
            Some(Self::ZeroCopy) => LinkDevice::Xdp { zero_copy: true },
            Some(Self::Packet) => LinkDevice::Packet,
            None if asked => LinkDevice::Xdp { zero_copy: false },
            None => LinkDevice::PacketByDefault,
        }
    }
}

/// What a binding does whose server has gone, when it is called.
///
/// Binding again is all that binding was: the name is looked up, the fastest path is taken that works,
/// the interfaces are compared. It happens between two attempts at a call, within the time that the
/// call may take, once for each call that fails. If it does not help, the call fails as it did; if what is
/// there now does not fit the client, or does not serve it, with the error of binding.
///
/// ```
/// use peregrine::{BindOptions, Rebind};
///
/// let options = BindOptions::default().rebind(Rebind::Never);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebind {
    /// It fails for ever: whoever bound binds again, if they wish.
    Never,
    /// It binds again, and repeats the call, if that certainly was not executed. A call of which
    /// nobody knows fails; the next one finds the server again.
    #[default]
    WhenNotExecuted,
    /// The same, and repeats calls of which nobody knows if their procedure is `#[idempotent]`.
    Idempotent,
}

/// Options of a binding; the defaults suit most programs.
///
/// ```
/// use core::time::Duration;
/// use peregrine::{BindOptions, Wait};
///
/// # use peregrine::interface;
/// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
/// # struct Same;
/// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
/// let options = BindOptions::default()
///     .astacks(2)
///     .wait(Wait::Block)
///     .timeout(Duration::from_secs(1));
/// let echo = EchoClient::in_process_with(Same, &options);
/// assert_eq!(echo.echo(7)?, 7);
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct BindOptions {
    pub(crate) astacks: u32,
    pub(crate) on_exhausted: Option<OnExhausted>,
    pub(crate) message_bytes: Option<usize>,
    pub(crate) wait: Wait,
    pub(crate) limit: Limit,
    pub(crate) bind_limit: Duration,
    pub(crate) congestion: Option<String>,
    pub(crate) payload_check: Option<bool>,
    pub(crate) ask_after: Duration,
    pub(crate) ethernet: Option<EthernetDevice>,
    pub(crate) directory: Option<Arc<dyn Directory>>,
    pub(crate) rebind: Rebind,
}

impl Default for BindOptions {
    fn default() -> Self {
        Self {
            astacks: limits::ASTACKS,
            on_exhausted: None,
            message_bytes: None,
            wait: Wait::Adaptive,
            limit: Limit::None,
            bind_limit: Duration::from_secs(5),
            congestion: None,
            payload_check: None,
            ask_after: Duration::ZERO,
            ethernet: None,
            directory: None,
            rebind: Rebind::WhenNotExecuted,
        }
    }
}

impl BindOptions {
    /// Calls in flight at one time, 1 to [`limits::ASTACKS_MAX`]; more callers wait, unless
    /// [`BindOptions::on_exhausted`] says otherwise.
    ///
    /// Unless set, every calling thread has a call in flight, up to [`limits::ASTACKS_SPARSE`] or the
    /// number that the server grants.
    ///
    /// # Panics
    /// If it is out of that range.
    pub const fn astacks(mut self, count: u32) -> Self {
        assert!(count >= 1 && count <= limits::ASTACKS_MAX, "A-stacks out of range");
        self.astacks = count;
        if self.on_exhausted.is_none() {
            self.on_exhausted = Some(OnExhausted::Wait);
        }
        self
    }

    /// What a caller does if all A-stacks are in use. By default it takes another one into use. If
    /// [`BindOptions::astacks`] was set, it waits by default.
    ///
    /// With [`OnExhausted::More`] there is room for [`limits::ASTACKS_SPARSE`] A-stacks, or for the number
    /// that [`BindOptions::astacks`] requested if that is larger. The server may grant fewer. If all of
    /// these are in use, callers wait.
    pub const fn on_exhausted(mut self, choice: OnExhausted) -> Self {
        self.on_exhausted = Some(choice);
        self
    }

    /// The size in bytes that a message may have. The interface may need more. The server must
    /// [allow](crate::ExportOptions::message_bytes_max) this size.
    ///
    /// By default it is [`limits::MESSAGE_BYTES`], or the size that the server allows if that is smaller.
    /// It is [`limits::MESSAGE_BYTES_ASKED`] if [`BindOptions::astacks`] requests more than
    /// [`limits::ASTACKS_SPARSE`], because so many A-stacks have no address space for larger messages.
    pub const fn message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// How callers wait for results.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// How long each call may take; no limit by default, for a dead server is noticed anyway.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Limit::Within(limit);
        self
    }

    /// How long binding may take: 5 seconds unless set.
    pub const fn bind_timeout(mut self, limit: Duration) -> Self {
        self.bind_limit = limit;
        self
    }

    /// Congestion control of a new TCP connection, by the name that the kernel gives it; the
    /// system's own unless set. It governs what this side sends.
    ///
    /// `cubic` and `reno` take a lost packet for congestion: where packets are lost for other
    /// reasons they send slowly. `bbr` does not, but it paces, sending as fast as it has measured
    /// the path to be: it measures too little where calls are short and seldom, its pacing costs
    /// timers on a fast network, and before Linux 6.x its first version took more than its share
    /// beside others. It has to be loaded or built in, and an unprivileged process may only use
    /// what `net.ipv4.tcp_allowed_congestion_control` lists.
    pub fn congestion(mut self, name: &str) -> Self {
        self.congestion = Some(name.to_owned());
        self
    }

    /// Whether messages over UDP and raw Ethernet are checked on both sides with a CRC32C of ours:
    /// unless set, on over raw Ethernet, and off over UDP, which has a check of its own.
    ///
    /// UDP's own checksum has 16 bits, is made and looked at by network cards, and made anew by
    /// whatever rewrites addresses on the way: what is damaged in such a place comes through. With this
    /// it is noticed, dropped and sent again, as if it had been lost. Each side then looks at all
    /// bytes that it sends and receives once more. Headers are always checked.
    pub const fn payload_check(mut self, check: bool) -> Self {
        self.payload_check = Some(check);
        self
    }

    /// How long a caller over UDP or raw Ethernet hears nothing before it first asks the server about
    /// its call, at least: 5 ms unless set, and more where answers take longer. At most 10 s.
    ///
    /// Where threads wait long for a processor, a longer time saves questions about packets that only
    /// are late. A lost packet, and the death of a server, are noticed that much later.
    pub const fn ask_after(mut self, silence: Duration) -> Self {
        self.ask_after = silence;
        self
    }

    /// By which device raw Ethernet is spoken: see [`EthernetDevice`].
    pub const fn ethernet_device(mut self, device: EthernetDevice) -> Self {
        self.ethernet = Some(device);
        self
    }

    /// Who is asked on which machines a name is served: the [hosts file](crate::directory::Hosts)
    /// unless set. Names of this machine are always found, and first.
    pub fn directory(mut self, directory: impl Directory + 'static) -> Self {
        self.directory = Some(Arc::new(directory));
        self
    }

    /// What becomes of calls when the server has gone: [`Rebind::WhenNotExecuted`] unless set.
    pub const fn rebind(mut self, policy: Rebind) -> Self {
        self.rebind = policy;
        self
    }

    /// Returns what a caller does if all A-stacks are in use. The number of A-stacks is a bound only if
    /// the program has set it.
    pub(crate) fn on_exhausted_or_default(&self) -> OnExhausted {
        self.on_exhausted.unwrap_or(OnExhausted::More)
    }

    /// How many A-stacks of `bytes` bytes there is room for: those in use, and those that may
    /// come into use.
    pub(crate) fn room_for(&self, bytes: usize) -> u32 {
        match self.on_exhausted_or_default() {
            OnExhausted::Wait => self.astacks,
            OnExhausted::More => self.astacks.max(frames_that_fit(limits::ASTACKS_SPARSE, bytes)),
        }
    }

    /// Returns the size that a message may have, if the server allows it.
    pub(crate) fn message_bytes_for(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(self.message_bytes_default(), interface)
    }

    /// Returns the size of message if nothing says otherwise. A number of A-stacks above the default
    /// leaves address space for smaller messages only.
    pub(crate) const fn message_bytes_default(&self) -> usize {
        if self.astacks > limits::ASTACKS_SPARSE {
            limits::MESSAGE_BYTES_ASKED
        } else {
            limits::MESSAGE_BYTES
        }
    }

    /// Returns the size that a message must be able to have, because the interface or an option says so.
    pub(crate) fn message_bytes_needed(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(limits::MESSAGE_BYTES_MIN, interface)
    }

    /// Returns the size that the client requests: the size that every server grants, or more if needed.
    pub(crate) fn message_bytes_asked(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(limits::MESSAGE_BYTES_ASKED, interface)
    }

    /// Checks the size of message that a server has granted.
    ///
    /// # Errors
    /// Fails if it is less than the client needs.
    pub(crate) fn check_granted(
        &self,
        interface: &InterfaceRef,
        granted: usize,
    ) -> Result<(), CallError> {
        let needed = self.message_bytes_needed(interface);
        if granted >= needed {
            return Ok(());
        }
        let text = format!(
            "the client needs messages of {needed} bytes (`BindOptions::message_bytes` or its \
             interface), and the server allows {granted} (`ExportOptions::message_bytes_max`)"
        );
        Err(CallError::not_executed(Kind::TooLarge, Phase::Bind, text))
    }

    fn message_bytes_or(&self, unless_set: usize, interface: &InterfaceRef) -> usize {
        let bytes = self.message_bytes.unwrap_or(unless_set).max(interface.message_bytes());
        let bytes = bytes.clamp(limits::MESSAGE_BYTES_MIN, limits::MESSAGE_BYTES_MAX);
        bytes.next_multiple_of(16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_was_asked_for_and_for_more_what_fits() {
        let options = BindOptions::default().astacks(3);
        assert_eq!(options.room_for(4096), 3);
        let more = options.on_exhausted(OnExhausted::More);
        assert_eq!(more.room_for(4096), limits::ASTACKS_SPARSE);
        assert_eq!(more.clone().astacks(300).room_for(4096), 300);
        assert_eq!(more.message_bytes_default(), limits::MESSAGE_BYTES);
        assert_eq!(more.clone().astacks(300).message_bytes_default(), limits::MESSAGE_BYTES_ASKED);
        // A region has 8 GiB at most; what was asked for is asked for, and refused, as ever.
        assert_eq!(more.clone().astacks(1).room_for(256 << 20), 15);
        assert_eq!(more.astacks(16).room_for(256 << 20), 16);
    }
}
