//! [`BindOptions`]: the options of a client that binds.

use core::time::Duration;
use std::sync::Arc;

use crate::call::{Limit, OnExhausted, Wait, frames_that_fit};
use crate::device::LinkDevice;
use crate::directory::Directory;
use crate::error::{CallError, Kind, Phase};
use crate::interface::InterfaceRef;
use crate::limits;
use crate::observe::{Layer, Layers};
use crate::path::auth_sys::AuthSys;
use crate::path::balance::Balance;
use crate::path::security::ClientSecurity;
#[cfg(feature = "secure")]
use crate::secure::{Expected, Identity, Trust};

/// The device through which raw Ethernet frames are sent and received.
///
/// The default is [`Any`](Self::Any) at addresses that begin with `eth:`. At addresses without a scheme it is
/// [`Packet`](Self::Packet). AF_XDP attaches a program to the network interface, and many drivers then reset
/// the interface. AF_XDP is therefore used only if this option or an `eth:` address requests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum EthernetDevice {
    /// AF_XDP if this process can get queue 0 of the interface, which only one process can use at a time.
    /// Otherwise AF_PACKET. With either, the kernel copies each frame once in each direction.
    #[default]
    Any,
    /// AF_PACKET. Any number of processes can use it at a time, and it reserves no queue.
    Packet,
    /// As [`Any`](Self::Any), but without the kernel's copies if the driver supports that. The driver then
    /// receives all frames of the queue into this process's memory, including the frames for other programs.
    /// The kernel copies each frame for another program once more.
    ZeroCopy,
}

impl EthernetDevice {
    /// Returns the device to use. `set` is the option. `asked` is true if the address names raw Ethernet.
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

/// What a binding does when a call finds that the server is gone.
///
/// Binding again repeats all steps of binding: the client looks up the name, selects the fastest path that
/// works, and compares the interfaces. The client binds again between two attempts at a call, once for each
/// call that fails, and within the limit of the call. If binding again fails, the call fails with the error
/// of its first attempt. There is one exception: the call fails with the error of binding if the call was not
/// executed, and a new server does not fit the client or refuses the client.
///
/// ```
/// use peregrine::{BindOptions, Rebind};
///
/// let options = BindOptions::default().rebind(Rebind::Never);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rebind {
    /// After the server is gone, all calls of the binding fail until the program itself binds again.
    Never,
    /// The binding binds again and repeats the call if the call was certainly not executed. A call that may
    /// have executed fails. The next call then binds again.
    #[default]
    WhenNotExecuted,
    /// As [`WhenNotExecuted`](Self::WhenNotExecuted), but a call that may have executed is also repeated if
    /// its procedure is `#[idempotent]`.
    Idempotent,
}

/// How a client of Courier sends its calls over TCP. Courier needs to know where a message ends, which TCP does not
/// say, and the standard predates TCP. So other systems have used several forms. A server recognizes the form
/// from the first bytes.
///
/// ```no_run
/// use peregrine::{BindOptions, CourierForm};
/// # use peregrine::interface;
/// # #[interface(courier(program = 2, version = 3))]
/// # trait Clock { #[courier(0)] fn now(&self) -> peregrine::Result<u32>; }
///
/// let options = BindOptions::default().courier_form(CourierForm::Frames);
/// let clock = ClockClient::bind_with("courier+tcp:clock.example.org:5000", &options)?;
/// // The name of a program means Cooper's form, without an option.
/// let clock = ClockClient::bind("courier+tcp:vax.example.org/Clock")?;
/// # Ok::<(), peregrine::CallError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CourierForm {
    /// Each message is a record of ONC RPC, as in Xerox's ILU.
    #[default]
    Records,
    /// Each message consists of frames. Their headers carry what Xerox's Sequenced Packet Protocol gave to
    /// Courier, such as the mark of the end of a message.
    Frames,
    /// The form of Eric Cooper's Courier, in 4.1c and 4.2BSD. The client names the program at the start of the
    /// connection: by the name in the address, or else by the name of its interface. This form has neither
    /// errors nor rejections, so calls need a [limit](BindOptions::timeout): a server does not answer calls that
    /// it does not understand. A procedure without results has no reply, so its call ends when it is sent.
    Cooper,
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
    pub(crate) onc_auth_sys: Option<AuthSys>,
    pub(crate) courier_form: CourierForm,
    /// What encrypts the calls over networks. `None`: they are not encrypted.
    pub(crate) security: Option<ClientSecurity>,
    pub(crate) layers: Layers,
    /// Which of several servers is called. `None`: the program has not said.
    pub(crate) balance: Option<Balance>,
    pub(crate) nearest_first: bool,
    /// The number of servers that a pool uses.
    pub(crate) servers: u32,
    pub(crate) wait_for: Duration,
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
            onc_auth_sys: None,
            courier_form: CourierForm::Records,
            security: None,
            layers: Layers::none(),
            balance: None,
            nearest_first: true,
            servers: limits::POOL_SERVERS,
            wait_for: Duration::ZERO,
        }
    }
}

impl BindOptions {
    /// Sets the number of calls that can be in flight at one time, 1 to [`limits::ASTACKS_MAX`]. Further
    /// callers wait, unless [`BindOptions::on_exhausted`] changes that.
    ///
    /// By default, a caller that finds all A-stacks in use adds a further A-stack if earlier calls take long
    /// ([`OnExhausted::Adaptive`]). There are at most [`limits::ASTACKS_SPARSE`] A-stacks, or fewer if the
    /// server grants fewer.
    ///
    /// # Panics
    /// If `count` is 0 or more than [`limits::ASTACKS_MAX`].
    pub const fn astacks(mut self, count: u32) -> Self {
        assert!(count >= 1 && count <= limits::ASTACKS_MAX, "A-stacks out of range");
        self.astacks = count;
        if self.on_exhausted.is_none() {
            self.on_exhausted = Some(OnExhausted::Wait);
        }
        self
    }

    /// Sets which of several servers of the name is called. By default, a client that binds takes the first
    /// server that answers, and a pool takes the less loaded of two ([`Balance::LeastLoaded`]).
    pub fn balance(mut self, balance: Balance) -> Self {
        self.balance = Some(balance);
        self
    }

    /// Sets whether servers that are reached over a faster path are preferred: those of this machine, then
    /// raw Ethernet, UDP and TCP. True by default. If false, a pool spreads its calls over all servers.
    pub const fn nearest_first(mut self, nearest_first: bool) -> Self {
        self.nearest_first = nearest_first;
        self
    }

    /// Sets how many servers a pool uses, 1 to [`limits::POOL_SERVERS_MAX`]. If there are more servers, each
    /// client uses others of them, so that the load of all servers is about the same.
    ///
    /// # Panics
    /// If `count` is 0 or more than [`limits::POOL_SERVERS_MAX`].
    pub const fn servers(mut self, count: u32) -> Self {
        assert!(count >= 1 && count <= limits::POOL_SERVERS_MAX, "servers of a pool out of range");
        self.servers = count;
        self
    }

    /// Makes binding wait for a server if the name has none, or none of them answers. By default, binding
    /// fails at once. A call of a pool waits as long, unless its own limit is shorter.
    pub const fn wait_for(mut self, time: Duration) -> Self {
        self.wait_for = time;
        self
    }

    /// Adds a [`Layer`], which sees each call of the binding and may refuse it. It is inside of the layers
    /// that were added before.
    ///
    /// Calls of a binding with layers do not share messages: an async call has a message of its own, and a
    /// one-way call waits until it has ended. If the binding passes a callback, the layers also see the calls
    /// to the object of the callback ([`LayerSide::Server`](crate::LayerSide::Server)).
    ///
    /// # Panics
    /// If there are [`limits::LAYERS_MAX`] layers.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.add(layer);
        self
    }

    /// Sets what a caller does if all A-stacks are in use. The default is [`OnExhausted::Adaptive`], or
    /// [`OnExhausted::Wait`] if [`BindOptions::astacks`] was set.
    ///
    /// With [`OnExhausted::Wait`], there are only the A-stacks that [`BindOptions::astacks`] requested.
    /// Otherwise, there can be up to [`limits::ASTACKS_SPARSE`] A-stacks, or the requested number if that is
    /// larger. The server may grant fewer. If all these A-stacks are in use, callers wait.
    pub const fn on_exhausted(mut self, choice: OnExhausted) -> Self {
        self.on_exhausted = Some(choice);
        self
    }

    /// Sets the size in bytes of the largest message. An interface that needs larger messages overrides
    /// this size. The server must [allow](crate::ExportOptions::message_bytes_max) the resulting size.
    ///
    /// By default it is [`limits::MESSAGE_BYTES`], or the size that the server allows if that is smaller. If
    /// [`BindOptions::astacks`] requests more than [`limits::ASTACKS_SPARSE`], the default is
    /// [`limits::MESSAGE_BYTES_ASKED`]: with that many A-stacks, larger messages would need too much address
    /// space.
    pub const fn message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// Sets how callers wait for results.
    pub const fn wait(mut self, wait: Wait) -> Self {
        self.wait = wait;
        self
    }

    /// Sets how long each call may take. By default there is no limit, because the death of a server is
    /// detected even without a limit.
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.limit = Limit::Within(limit);
        self
    }

    /// Sets how long binding may take. The default is 5 seconds.
    pub const fn bind_timeout(mut self, limit: Duration) -> Self {
        self.bind_limit = limit;
        self
    }

    /// Sets the congestion control of a new TCP connection. `name` is the name that the kernel uses. The
    /// default is the system's default. The setting affects only what the client sends.
    ///
    /// `cubic` and `reno` interpret a lost packet as congestion, so they send slowly where packets are lost
    /// for other reasons. `bbr` instead sends at the rate that it has measured. It underestimates this rate
    /// where calls are short and rare. On a fast network, the pacing of `bbr` needs many timers, which cost
    /// processor time. The first version of `bbr` takes more than its share of a link that other connections
    /// also use. The algorithm must be loaded or built into the kernel. An unprivileged process may only use
    /// the algorithms that `net.ipv4.tcp_allowed_congestion_control` lists.
    pub fn congestion(mut self, name: &str) -> Self {
        self.congestion = Some(name.to_owned());
        self
    }

    /// Sets whether both sides check messages over UDP and raw Ethernet with a CRC32C. The default is on for
    /// raw Ethernet, and off for UDP, which has its own checksum.
    ///
    /// UDP's checksum has 16 bits. Network cards compute and verify this checksum, and devices that rewrite
    /// addresses compute it again. The checksum therefore does not detect damage inside these cards and
    /// devices. The CRC32C does detect it: a damaged packet is dropped and retransmitted like a lost one. The
    /// CRC32C costs each side one more pass over all bytes that it sends and receives. Headers are always
    /// checked.
    pub const fn payload_check(mut self, check: bool) -> Self {
        self.payload_check = Some(check);
        self
    }

    /// Sets how long a caller over UDP or raw Ethernet waits for a packet from the server before the caller
    /// sends its first probe. This is a minimum: the caller waits longer where answers take longer. The
    /// default is 5 ms, the maximum 10 s.
    ///
    /// Where threads wait long for a processor, a longer time saves probes for packets that are only late.
    /// The longer time delays the detection of a lost packet, or of the death of a server, by the same
    /// amount.
    pub const fn ask_after(mut self, silence: Duration) -> Self {
        self.ask_after = silence;
        self
    }

    /// Sets the device for raw Ethernet: see [`EthernetDevice`].
    pub const fn ethernet_device(mut self, device: EthernetDevice) -> Self {
        self.ethernet = Some(device);
        self
    }

    /// Sets the directory that lists the machines which serve a name. The default is the [hosts
    /// file](crate::directory::Hosts). Names that this machine serves are always found, and have precedence.
    pub fn directory(mut self, directory: impl Directory + 'static) -> Self {
        self.directory = Some(Arc::new(directory));
        self
    }

    /// Sets what happens to calls when the server is gone. The default is [`Rebind::WhenNotExecuted`].
    pub const fn rebind(mut self, policy: Rebind) -> Self {
        self.rebind = policy;
        self
    }

    /// Sets the identity that the client claims in calls of ONC RPC. By default it claims none (AUTH_NONE). The
    /// option has no effect on other paths. [`AuthSys`] says what the claim is worth.
    pub fn onc_auth_sys(mut self, identity: AuthSys) -> Self {
        self.onc_auth_sys = Some(identity);
        self
    }

    /// Sets how the client sends its calls over `courier+tcp:`. The default is [`CourierForm::Records`], unless
    /// the address names the program by a name, which means [`CourierForm::Cooper`]. The option has no effect
    /// on other paths.
    pub const fn courier_form(mut self, form: CourierForm) -> Self {
        self.courier_form = form;
        self
    }

    /// Encrypts the calls, proves to the server who the client is, and accepts only a server that is trusted.
    ///
    /// Such a binding uses TLS 1.3 over TCP, or a path within this machine. It never uses a path that is not
    /// encrypted: binding fails if the server does not use TLS. It expects a server with the name or the
    /// address of the host in the binding's address; [`expect`](Self::expect) changes this. A server whose
    /// key is in the list of trusted keys needs no name.
    ///
    /// ```
    /// # use peregrine::interface;
    /// use peregrine::secure::{Identity, Trust, TrustedKey};
    /// use peregrine::{BindOptions, Server};
    ///
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// # let name = format!("doc-secure-{}", std::process::id());
    /// let (ada, bob) = (Identity::generate()?, Identity::generate()?);
    /// let trusts = |name: &str, peer: &Identity| {
    ///     Trust::of_keys([TrustedKey::new(name, peer.public_key(), "")?])
    /// };
    /// let server = Server::new().export(&name, EchoServer::new(Same))?;
    /// let own = (bob.clone(), trusts("ada", &ada)?);
    /// let running = server.listen_beyond_this_machine("tcp:127.0.0.1:0", own)?.spawn()?;
    ///
    /// let options = BindOptions::default().secure(ada.clone(), trusts("bob", &bob)?);
    /// let echo = EchoClient::bind_with(&format!("{}/{name}", running.addresses()[0]), &options)?;
    /// assert_eq!(echo.echo(7)?, 7);
    /// assert!(echo.binding().explain().summary().contains("encrypted by TLS 1.3"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn secure(mut self, identity: Identity, trust: Trust) -> Self {
        self.security = Some(ClientSecurity::new(identity, trust));
        self
    }

    /// Sets which server a [secure](Self::secure) binding expects, wherever it is. By default, the server has
    /// the name or the address of the host in the binding's address.
    ///
    /// # Panics
    /// If [`secure`](Self::secure) was not called before.
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    #[track_caller]
    pub fn expect(mut self, server: Expected) -> Self {
        let security = self.security.as_mut();
        security.expect("`BindOptions::secure` is called before `expect`").expect(server);
        self
    }

    /// Returns what a caller does if all A-stacks are in use. By default, callers add A-stacks if earlier
    /// calls take long.
    pub(crate) fn on_exhausted_or_default(&self) -> OnExhausted {
        self.on_exhausted.unwrap_or(OnExhausted::Adaptive)
    }

    /// Returns the number of A-stacks for which space is reserved, if the largest message has `bytes` bytes.
    /// This includes A-stacks that are not used at first and may be added later.
    pub(crate) fn room_for(&self, bytes: usize) -> u32 {
        match self.on_exhausted_or_default() {
            OnExhausted::Wait => self.astacks,
            OnExhausted::More | OnExhausted::Adaptive => {
                self.astacks.max(frames_that_fit(limits::ASTACKS_SPARSE, bytes))
            }
        }
    }

    /// Returns the size in bytes of the largest message that the client uses if the server allows this size.
    pub(crate) fn message_bytes_for(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(self.message_bytes_default(), interface)
    }

    /// Returns the size in bytes of the largest message if the program sets none. The size is smaller for
    /// more than [`limits::ASTACKS_SPARSE`] A-stacks, because there is not enough address space for large
    /// messages in all of them.
    pub(crate) const fn message_bytes_default(&self) -> usize {
        if self.astacks > limits::ASTACKS_SPARSE {
            limits::MESSAGE_BYTES_ASKED
        } else {
            limits::MESSAGE_BYTES
        }
    }

    /// Returns the smallest size that the client accepts for the largest message: what its interface or an
    /// option requires.
    pub(crate) fn message_bytes_needed(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(limits::MESSAGE_BYTES_MIN, interface)
    }

    /// Returns the size in bytes that the client requests for the largest message: the size that every server
    /// grants, or more if the client needs more.
    pub(crate) fn message_bytes_asked(&self, interface: &InterfaceRef) -> usize {
        self.message_bytes_or(limits::MESSAGE_BYTES_ASKED, interface)
    }

    /// Checks the size of the largest message that a server has granted.
    ///
    /// # Errors
    /// If the granted size is less than the client needs.
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
    fn on_exhausted_more_reserves_space_for_all_astacks_that_fit() {
        let options = BindOptions::default().astacks(3);
        assert_eq!(options.room_for(4096), 3);
        let more = options.on_exhausted(OnExhausted::More);
        assert_eq!(more.room_for(4096), limits::ASTACKS_SPARSE);
        assert_eq!(more.clone().astacks(300).room_for(4096), 300);
        assert_eq!(more.message_bytes_default(), limits::MESSAGE_BYTES);
        assert_eq!(more.clone().astacks(300).message_bytes_default(), limits::MESSAGE_BYTES_ASKED);
        // A region has at most 8 GiB. A larger explicit request is not reduced here: the server refuses it.
        assert_eq!(more.clone().astacks(1).room_for(256 << 20), 15);
        assert_eq!(more.astacks(16).room_for(256 << 20), 16);
    }
}
