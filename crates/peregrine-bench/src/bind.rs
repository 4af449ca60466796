//! The experiment `bind`: compares the time of binding with the time of the system calls that binding needs.
//! It also measures how soon a binding works again after its server has been restarted.
//!
//! A *session* is the connection and the shared memory of a client process and a server process. If a binding
//! creates a new session, the limit is the time of the necessary system calls of two processes. The processes
//! connect, exchange one question and one answer, and pass one memory descriptor. They map the memory on both
//! sides, and each opens a descriptor of the other process.
//!
//! If a binding joins an existing session, the limit is the time in which two processes connect, and exchange
//! one question and one answer.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use peregrine::sys::{Memory, pin_to};
use peregrine::{BindOptions, Server};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
    connect, listen, recv, recvmsg, send, sendmsg, socket_with, sockopt,
};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::cases::Placement;
use crate::child::READY;
use crate::interfaces::{Object, Small, SmallClient, SmallServer};
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::statistics::percentile;
use crate::subject::{Failure, Sample};
use crate::{Progress, Selection};

/// The case of a binding that creates a session.
const SESSION: &str = "bind-session";
/// The case of a binding that joins an existing session.
const FURTHER: &str = "bind-further";
/// The cases that measure the time from the restart of a server to the first call that succeeds: the median
/// and the 99th percentile.
const REBIND: [&str; 2] = ["rebind-p50", "rebind-p99"];

/// The names of all measurements.
pub(crate) const CASES: [&str; 4] = [SESSION, FURTHER, REBIND[0], REBIND[1]];

/// The name of the export.
const NAME: &str = "bound";
/// The first byte of a question that asks the raw server (the server of the limit) for a session.
const A_SESSION: u8 = 1;
/// The size in bytes of the memory that the raw server shares with a client. Peregrine's sessions have the
/// same size. Binding accesses little of this memory.
const MEMORY_BYTES: usize = 384 << 20;
/// The size of a question in bytes, about the same as the size of Peregrine's questions.
const QUESTION: usize = 64;
/// The size of an answer in bytes, about the same as the size of Peregrine's answers.
const ANSWER: usize = 56;

/// Options of the server process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
    /// The port at which the server listens, in addition to the local path
    #[arg(long, default_value_t = 0)]
    port: u16,
}

fn raw_address() -> Result<SocketAddrUnix, Failure> {
    let directory = std::env::var_os("PEREGRINE_DIR").ok_or("no runtime directory")?;
    Ok(SocketAddrUnix::new(PathBuf::from(directory).join(".raw"))?)
}

fn raw_socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// Runs a server of Peregrine and the raw server (of the limit) until the parent has ended.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let server = Server::new().export(NAME, SmallServer::new(Object))?;
    let running = server.listen(&format!("127.0.0.1:{}", options.port))?.spawn()?;
    let address = raw_address()?;
    if let Some(path) = address.path() {
        let _ = std::fs::remove_file(std::ffi::OsStr::new(path.to_str()?));
    }
    let listener = raw_socket()?;
    bind(&listener, &address)?;
    listen(&listener, 1)?;
    std::thread::spawn(move || while answer(&listener).is_ok() {});
    println!("{}", running.addresses()[0].place().port());
    println!("{READY}");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Serves one client of the raw server, from its connection to its disconnection. The raw server makes only
/// the system calls that binding needs.
fn answer(listener: &OwnedFd) -> io::Result<()> {
    let client = accept(listener)?;
    let mut question = [0; QUESTION];
    let (bytes, _) = recv(&client, &mut question[..], RecvFlags::empty())?;
    if bytes == 0 || question[0] != A_SESSION {
        send(&client, &[0; ANSWER], SendFlags::NOSIGNAL)?;
        let _ = recv(&client, &mut question[..], RecvFlags::empty())?;
        return Ok(());
    }
    let peer = sockopt::socket_peercred(&client)?;
    let _process = pidfd_open(peer.pid, PidfdFlags::empty())?;
    let (_memory, file) = Memory::shared(MEMORY_BYTES)?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    let files = [file.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(&client, &[IoSlice::new(&[0; ANSWER])], &mut control, SendFlags::NOSIGNAL)?;
    drop(file);
    let _ = recv(&client, &mut question[..], RecvFlags::empty())?;
    Ok(())
}

/// Runs the raw client of the case `what`: makes the system calls that binding needs, and disconnects.
fn raw(what: &str, address: &SocketAddrUnix) -> Result<(), Failure> {
    let server = raw_socket()?;
    connect(&server, address)?;
    let peer = sockopt::socket_peercred(&server)?;
    let mut answer = [0; ANSWER];
    if what == FURTHER {
        send(&server, &[0; QUESTION], SendFlags::NOSIGNAL)?;
        recv(&server, &mut answer[..], RecvFlags::empty())?;
        return Ok(());
    }
    send(&server, &[A_SESSION; QUESTION], SendFlags::NOSIGNAL)?;
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(&server, &mut [IoSliceMut::new(&mut answer)], &mut control, flags)?;
    let mut files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    let file =
        files.next().and_then(|mut files| files.next()).ok_or("no memory descriptor arrived")?;
    let _process = pidfd_open(peer.pid, PidfdFlags::empty())?;
    black_box(Memory::received(file.as_fd(), MEMORY_BYTES)?);
    Ok(())
}

/// The server process. Dropping this value kills the process.
struct Far {
    child: Child,
    _input: ChildStdin,
    port: u16,
}

impl Far {
    fn start(cpu: Option<u32>, port: u16) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["binder", "--port", &port.to_string()]);
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let mut output = BufReader::new(child.stdout.take().ok_or("no pipe")?).lines();
        let port = output.next().ok_or("the other process ended")??.parse()?;
        match output.next() {
            Some(Ok(line)) if line == READY => Ok(Self { child, _input: input, port }),
            _ => Err("the other process ended".into()),
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Repeats the operation `what` for about the time `slice`, and returns the mean time of one repetition.
fn timed(
    slice: Duration,
    mut what: impl FnMut() -> Result<(), Failure>,
) -> Result<Sample, Failure> {
    what()?;
    let (start, mut times) = (Instant::now(), 0);
    while start.elapsed() < slice || times < 5 {
        what()?;
        times += 1;
    }
    Ok(Sample { ns: start.elapsed().as_nanos() as f64 / f64::from(times), cpu_ns: None })
}

/// Measures everything that was selected.
pub(crate) fn measure(
    selection: &Selection,
    allowed: &[u32],
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    let Some([here, there]) = Placement::TwoCores.processors(allowed) else {
        return Err("only one processor may be used".into());
    };
    if let Some(cpu) = here {
        pin_to(cpu)?;
    }
    let mut rows = Vec::new();
    let row = |case, path| Row {
        path: Some(path),
        placement: Some(Placement::TwoCores.name()),
        bindings: 1,
        ..Row::new(case)
    };
    let far = Far::start(there, 0)?;
    let address = raw_address()?;
    for case in [SESSION, FURTHER].into_iter().filter(|case| selection.has_case(case)) {
        progress.show(&format!("local: {case}"));
        let name = format!("local:{NAME}");
        let held = (case == FURTHER).then(|| SmallClient::bind(&name)).transpose()?;
        let samples = in_turn(selection.rounds(), 2, |which| match which {
            0 => timed(selection.slice() * 5, || raw(case, &address)),
            _ => timed(selection.slice() * 5, || {
                drop(black_box(SmallClient::bind(&name)?));
                Ok(())
            }),
        })?;
        drop(held);
        let ((raw, _), (ours, cpu)) = (split(&samples[0]), split(&samples[1]));
        let row = row(case, "local").ours(&ours, &cpu).limit("system-calls", &raw);
        rows.push(row.ratio(&ours, &raw));
    }
    if REBIND.iter().any(|case| selection.has_case(case)) {
        let mut far = far;
        for path in ["local", "udp", "tcp"] {
            let mut waited = Vec::new();
            for round in 0..selection.rounds() {
                progress.show(&format!("{path}: round {round} of rebinding"));
                waited.push(time_rebind(&mut far, there, path)?.as_nanos() as f64);
            }
            for (case, fraction) in REBIND.into_iter().zip([0.50, 0.99]) {
                let link = if path == "local" { "memory" } else { "loopback" };
                let row = Row { link: Some(link), ..row(case, path) };
                rows.push(row.ours(&[percentile(&waited, fraction)], &[]));
            }
        }
    }
    Ok(rows)
}

/// Kills the server of a bound client, and starts another server in its place. Returns the time from the
/// moment at which the new server is ready until a call has succeeded.
fn time_rebind(far: &mut Far, cpu: Option<u32>, path: &str) -> Result<Duration, Failure> {
    const LIMIT: Duration = Duration::from_secs(20);
    let address = match path {
        "local" => format!("local:{NAME}"),
        _ => format!("{path}:{NAME}@127.0.0.1:{}", far.port),
    };
    let client = SmallClient::bind_with(&address, &BindOptions::default())?;
    client.null()?;
    far.kill();
    *far = Far::start(cpu, far.port)?;
    let back = Instant::now();
    loop {
        match client.null() {
            Ok(()) => return Ok(back.elapsed()),
            Err(error) if back.elapsed() > LIMIT => return Err(error.into()),
            // This call was sent before the client knew that the server had ended. The call fails, because
            // the server may have executed it. The client then makes another call.
            Err(_) => {}
        }
    }
}
