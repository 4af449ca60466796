//! Runs the process at the far end of a link. This process reads commands ([`Order`]) from its standard
//! input, one per line. The far process answers each command with the ports at which it serves. Then it
//! serves until the command is complete.
//!
//! The far process ends when its standard input ends. The kernel kills it if the near process (the one that
//! measures) is killed.

use std::fmt::{Display, Write as _};
use std::io::{self, BufRead, BufReader, Lines, StdinLock, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::str::{FromStr, SplitWhitespace};
use std::time::Duration;

use clap::Args;
use peregrine::sys::{Address, Datagrams, pin_to};

use super::link::Link;
use super::path::Path;
use super::raw::{self, Device, Place};
use super::wire::{self, Exchange, Packets, Stream};
use super::{echo, order, own};
use crate::cases::Waiting;
use crate::foreign::bridge::Bridged;
use crate::foreign::onc::{self, Protocol};
use crate::larus::calls::{self, Carrier};
use crate::machine::{cpu_time, own_cpu_time};
use crate::run_directory::end_with_parent;
use crate::secure::tls::{self, Work};
use crate::subject::Failure;

/// The arguments of the far process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The link between the processes
    #[arg(long, value_enum)]
    link: Link,
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
}

/// A command: the service that the far process provides next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The far side of the limits `udp-pingpong` and `blast-ack`.
    Udp(Exchange),
    /// The far side of an exchange in raw Ethernet frames, through this device.
    Raw(Device, Exchange),
    /// The far side of the limit `tcp-pingpong`.
    Tcp(Stream),
    /// An echo by a number of sleeping threads. The flag says whether the threads share one socket.
    Echo(usize, bool),
    /// A number of blasts (messages of many packets), whose packets are sent one by one. The flag says
    /// whether the first packet of a blast is sent last.
    Blast(bool, u32),
    /// A server of Peregrine with a number of threads, until [`Far::end_order`].
    Serve(Path, Waiting, usize),
    /// A server of Peregrine that accepts encrypted calls only, until [`Far::end_order`].
    Secure(Path, Waiting),
    /// The far side of the limits `rustls-pingpong` and `rustls-handshake`.
    Tls(Work),
    /// A server of Peregrine for clients of ONC RPC, until [`Far::end_order`].
    Onc(Protocol, Waiting),
    /// A server of Peregrine, and a bridge that calls it, until [`Far::end_order`].
    Bridge(Waiting),
    /// A server of the paper's test programs on Courier, until [`Far::end_order`].
    Words(Carrier),
}

impl Order {
    fn line(self) -> String {
        let mut line = String::new();
        let written = match self {
            Self::Udp(what) => writeln!(line, "udp {}", words_of(what)),
            Self::Raw(device, what) => writeln!(line, "raw {} {}", device.name(), words_of(what)),
            Self::Tcp(Stream { spin, there, back, trips }) => {
                writeln!(line, "tcp {} {there} {back} {trips}", u8::from(spin))
            }
            Self::Echo(threads, shared) => writeln!(line, "echo {threads} {}", u8::from(shared)),
            Self::Blast(first_last, trips) => {
                writeln!(line, "blast {} {trips}", u8::from(first_last))
            }
            Self::Serve(path, wait, threads) => {
                writeln!(line, "serve {} {} {threads}", path.name(), wait.name())
            }
            Self::Secure(path, wait) => writeln!(line, "secure {} {}", path.name(), wait.name()),
            Self::Tls(Work::Pingpong(trips)) => writeln!(line, "tls-pingpong {trips}"),
            Self::Tls(Work::Handshakes(count)) => writeln!(line, "tls-handshakes {count}"),
            Self::Onc(protocol, wait) => writeln!(line, "{} {}", protocol.name(), wait.name()),
            Self::Bridge(wait) => writeln!(line, "bridge {}", wait.name()),
            Self::Words(carrier) => writeln!(line, "words {}", carrier.name()),
        };
        written.expect("a string accepts all text");
        line
    }

    fn read(line: &str) -> Option<Self> {
        fn next<T: FromStr>(words: &mut SplitWhitespace<'_>) -> Option<T> {
            words.next()?.parse().ok()
        }
        let mut words = line.split_whitespace();
        let kind = words.next()?;
        let words = &mut words;
        let flag = |words: &mut SplitWhitespace<'_>| Some(next::<u8>(words)? != 0);
        let packets = |words: &mut SplitWhitespace<'_>| {
            Some(Packets { bytes: next(words)?, segment: next(words)? })
        };
        let exchange = |words: &mut SplitWhitespace<'_>| {
            let (spin, there) = (flag(words)?, packets(words)?);
            Some(Exchange { spin, there, back: packets(words)?, trips: next(words)? })
        };
        let wait = |words: &mut SplitWhitespace<'_>| {
            let wait = words.next()?;
            Waiting::ALL.into_iter().find(|one| one.name() == wait)
        };
        let path = |words: &mut SplitWhitespace<'_>| {
            let path = words.next()?;
            Path::ALL.into_iter().find(|one| one.name() == path)
        };
        Some(match kind {
            "udp" => Self::Udp(exchange(words)?),
            "raw" => {
                let device = words.next()?;
                let device = Device::ALL.into_iter().find(|one| one.name() == device)?;
                Self::Raw(device, exchange(words)?)
            }
            "tcp" => Self::Tcp(Stream {
                spin: flag(words)?,
                there: next(words)?,
                back: next(words)?,
                trips: next(words)?,
            }),
            "echo" => Self::Echo(next(words)?, flag(words)?),
            "blast" => Self::Blast(flag(words)?, next(words)?),
            "serve" => Self::Serve(path(words)?, wait(words)?, next(words)?),
            "secure" => Self::Secure(path(words)?, wait(words)?),
            "tls-pingpong" => Self::Tls(Work::Pingpong(next(words)?)),
            "tls-handshakes" => Self::Tls(Work::Handshakes(next(words)?)),
            "bridge" => Self::Bridge(wait(words)?),
            "words" => {
                let carrier = words.next()?;
                Self::Words(Carrier::ALL.into_iter().find(|one| one.name() == carrier)?)
            }
            kind => {
                let protocol = Protocol::ALL.into_iter().find(|one| one.name() == kind)?;
                Self::Onc(protocol, wait(words)?)
            }
        })
    }
}

/// Returns the words that describe an exchange in a command.
fn words_of(Exchange { spin, there, back, trips }: Exchange) -> String {
    let spin = u8::from(spin);
    format!("{spin} {} {} {} {} {trips}", there.bytes, there.segment, back.bytes, back.segment)
}

/// The means by which the near process controls the far process. Dropping this value kills the far process.
#[derive(Debug)]
pub(crate) struct Far {
    child: Child,
    orders: ChildStdin,
    output: BufReader<ChildStdout>,
    link: Link,
}

impl Far {
    /// Starts the far process on a processor, and connects it to this process by the link.
    pub(crate) fn start(link: Link, cpu: Option<u32>) -> io::Result<Self> {
        let mut command = link.far_command()?;
        command.args(["far", "--link", link.name()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::other("the far process has no pipes");
        let orders = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut far = Self { child, orders, output, link };
        // The far process has entered its namespace when it writes its first line.
        far.line()?;
        link.join(far.child.id())?;
        far.orders.write_all(b"joined\n")?;
        far.line()?;
        Ok(far)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            return Err(io::Error::other(format!("the far process ended: {status}")));
        }
        Ok(line)
    }

    /// Returns the link between the processes.
    pub(crate) const fn link(&self) -> Link {
        self.link
    }

    /// Returns the command that starts another process in the far namespace.
    #[cfg(feature = "peers")]
    pub(crate) fn second_command(&self) -> io::Result<std::process::Command> {
        self.link.second_far_command(self.child.id())
    }

    /// Gives a command to the far process. Returns the addresses at which the far process serves.
    pub(crate) fn order(&mut self, order: Order) -> io::Result<Vec<SocketAddr>> {
        self.orders.write_all(order.line().as_bytes())?;
        let line = self.line()?;
        let address = |port: &str| Some(SocketAddr::new(self.link.far(), port.parse().ok()?));
        let addresses: Option<Vec<_>> = line.split_whitespace().map(address).collect();
        addresses.filter(|all| !all.is_empty()).ok_or_else(|| refused(&line))
    }

    /// Starts the far side of an exchange in raw Ethernet frames. Returns the hardware address and the
    /// endpoint to which frames must be sent.
    pub(crate) fn order_raw(&mut self, device: Device, what: Exchange) -> io::Result<Place> {
        self.orders.write_all(Order::Raw(device, what).line().as_bytes())?;
        let line = self.line()?;
        line.trim().parse().map_err(|_| refused(&line))
    }

    /// Ends [`Order::Serve`], which does not end by itself. Returns after the far process has released its
    /// resources.
    pub(crate) fn end_order(&mut self) -> io::Result<()> {
        self.orders.write_all(b"end\n")?;
        self.line().map(|_| ())
    }

    /// Kills the far process (SIGKILL).
    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Cuts the link at the far end. From then on, no packet arrives from the far end, and no error is
    /// reported.
    pub(crate) fn cut(&self) -> io::Result<()> {
        self.link.cut(self.child.id())
    }

    /// Returns the processor time of both processes.
    pub(crate) fn cpu_time(&self) -> io::Result<Duration> {
        Ok(own_cpu_time() + cpu_time(self.child.id())?)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns an error that contains the line that the far process wrote instead of its ports.
fn refused(line: &str) -> io::Error {
    io::Error::other(line.trim().to_owned())
}

/// Binds a socket to a free port of an address.
pub(crate) fn listening(at: IpAddr) -> io::Result<(Datagrams, SocketAddr)> {
    let any = Address::from(SocketAddr::new(at, 0));
    let socket = Datagrams::new(&any)?;
    socket.bind(&any)?;
    let address = socket.local()?.into();
    Ok((socket, address))
}

/// Carries out commands until the standard input ends.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    // A polling thread does not notice that the input has ended. So the kernel is asked to kill this process
    // when its parent ends.
    end_with_parent();
    // The process is pinned before it starts any thread, so that all its threads run on this processor.
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let mut orders: Lines<StdinLock<'_>> = io::stdin().lock().lines();
    write_ports(&[])?;
    orders.next().transpose()?;
    write_ports(&[])?;
    let at = options.link.far();
    while let Some(line) = orders.next().transpose()? {
        match Order::read(&line).ok_or_else(|| format!("unknown command `{line}`"))? {
            Order::Udp(what) => {
                let (socket, address) = listening(at)?;
                write_ports(&[address])?;
                wire::udp_follow(&socket, what)?;
            }
            Order::Tcp(what) => {
                let listener = TcpListener::bind((at, 0))?;
                write_ports(&[listener.local_addr()?])?;
                wire::tcp_follow(&listener, what)?;
            }
            Order::Echo(threads, shared) => echo::serve(at, threads, shared, write_ports)?,
            Order::Blast(first_last, trips) => {
                let (socket, address) = listening(at)?;
                write_ports(&[address])?;
                order::follow(&socket, first_last, trips)?;
            }
            Order::Raw(device, what) => raw::follow(device, at, what, write_line)?,
            Order::Serve(path, wait, threads) => {
                until_end(&mut orders, own::serve(path, wait, threads, at), own::addresses)?;
            }
            Order::Secure(path, wait) => {
                until_end(&mut orders, own::serve_secure(path, wait, at), own::addresses)?;
            }
            Order::Tls(work) => {
                let listener = TcpListener::bind((at, 0))?;
                write_ports(&[listener.local_addr()?])?;
                tls::follow(&listener, work)?;
            }
            Order::Onc(protocol, wait) => {
                until_end(&mut orders, onc::serve(protocol, wait, at), own::addresses)?;
            }
            Order::Bridge(wait) => {
                until_end(&mut orders, Bridged::start(wait, at), Bridged::addresses)?;
            }
            Order::Words(carrier) => {
                until_end(&mut orders, calls::serve(carrier, at), own::addresses)?;
            }
        }
    }
    Ok(())
}

/// Writes the ports of the server that was started, and waits for [`Far::end_order`]. If the server did not
/// start, writes the error instead.
fn until_end<T, E: Display>(
    orders: &mut Lines<StdinLock<'_>>,
    started: Result<T, E>,
    addresses: impl Fn(&T) -> Vec<SocketAddr>,
) -> io::Result<()> {
    match started {
        // The error does not end this process, because the near side may only want to check whether the path
        // works.
        Err(error) => write_line(error),
        Ok(running) => {
            write_ports(&addresses(&running))?;
            orders.next().transpose()?;
            drop(running);
            write_ports(&[])
        }
    }
}

/// Writes the ports at which this process serves.
fn write_ports(addresses: &[SocketAddr]) -> io::Result<()> {
    let ports: Vec<_> = addresses.iter().map(|address| address.port().to_string()).collect();
    write_line(ports.join(" "))
}

/// Writes a text in one line.
fn write_line(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", text.to_string().replace('\n', " "))?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_parsed_from_its_line() {
        let [there, back] = [48_000, 0].map(|bytes| Packets::of_message(bytes, Link::Veth));
        for order in [
            Order::Udp(Exchange { spin: true, there, back, trips: 9 }),
            Order::Raw(
                Device::Packet,
                Exchange { spin: false, there: back, back: there, trips: 1 },
            ),
            Order::Tcp(Stream { spin: false, there: 1, back: 1 << 24, trips: u32::MAX }),
            Order::Echo(64, true),
            Order::Blast(true, 7),
            Order::Serve(Path::EthernetPacket, Waiting::Adaptive, 3),
            Order::Secure(Path::Udp, Waiting::Spin),
            Order::Tls(Work::Pingpong(9)),
            Order::Tls(Work::Handshakes(1)),
            Order::Onc(Protocol::Tcp, Waiting::Block),
            Order::Bridge(Waiting::Adaptive),
            Order::Words(Carrier::Packet),
        ] {
            assert_eq!(Order::read(&order.line()), Some(order));
        }
        assert_eq!(Order::read("udp 1 2"), None);
        assert_eq!(Order::read("unknown 1"), None);
    }
}
