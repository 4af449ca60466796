//! The experiment `swapped`: measures calls of a client that converts values for a server of the other byte
//! order. Each call is compared with the same call to a server of this machine's byte order.
//!
//! The server stubs of both servers are written by hand, and accept messages without conversion. Both read
//! one word of each cache line. So only the client's work differs.

use std::hint::black_box;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use peregrine::call::{Answer, Refusal, Reply, Request, Serve, Served};
use peregrine::interface::InterfaceRef;
use peregrine::sys::pin_to;
use peregrine::value::ByteOrder;
use peregrine::{BindOptions, Invalid, Out, Plain, Server, Wait, interface};

use crate::cases::{LARGE, Placement};
use crate::child::READY;
use crate::interfaces::sum_of_lines;
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::subject::{Failure, Sample};
use crate::{Progress, Selection};

/// Numbers of different widths.
#[derive(Clone, Copy, Debug, Default, Plain)]
#[repr(C)]
struct Mixed {
    long: u64,
    half: [u16; 4],
    word: u32,
    float: f32,
}

#[interface]
trait Words {
    /// Takes two numbers, and returns one.
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    /// Takes numbers.
    fn take(&self, #[max_len(1 << 18)] words: &[u32]) -> peregrine::Result<()>;
    /// Takes structures.
    fn mixed(&self, #[max_len(1 << 16)] values: &[Mixed]) -> peregrine::Result<()>;
    /// Returns a mebibyte of numbers.
    fn give(&self, #[max_len(1 << 18)] into: Out<'_, u32>) -> peregrine::Result<()>;
}

const ADD: &str = "add-swapped";
const IN_1M: &str = "in-1m-swapped";
const IN_1M_MIXED: &str = "in-1m-mixed-swapped";
const OUT_1M: &str = "out-1m-swapped";

/// The names of all measurements.
pub(crate) const CASES: [&str; 4] = [ADD, IN_1M, IN_1M_MIXED, OUT_1M];

/// A server stub that declares a byte order to clients, but reads all messages in the same way.
struct Declared(ByteOrder);

static LARGE_BYTES: [u8; LARGE] = [0x5a; LARGE];

impl Serve for Declared {
    fn interface(&self) -> InterfaceRef {
        WordsClient::INTERFACE.into()
    }

    fn byte_order(&self) -> ByteOrder {
        self.0
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let number = request.procedure();
        let raw = request.raw();
        match WordsClient::INTERFACE.procedures.get(number as usize).map(|one| one.name) {
            Some("add") => reply.raw(Answer::Ok, &[0; 4]),
            Some("take" | "mixed") => {
                black_box(sum_of_lines(raw.copied));
                reply.raw(Answer::Ok, &[])
            }
            Some("give") => {
                reply.expect(1);
                let block = reply.block(LARGE).ok_or_else(|| Refusal::from(Invalid::TooLong))?;
                let _ = block.write(0, black_box(&LARGE_BYTES));
                reply.filled(0, LARGE)?;
                reply.raw(Answer::Ok, &[])
            }
            _ => Err(Refusal::no_such_procedure(number)),
        }
    }
}

/// The arguments of the server process.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The processor to run on
    #[arg(long)]
    cpu: Option<u32>,
}

const NAMES: [(&str, ByteOrder); 2] =
    [("words-native", ByteOrder::NATIVE), ("words-swapped", ByteOrder::NATIVE.other())];

/// Serves until its standard input ends.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if let Some(cpu) = options.cpu {
        pin_to(cpu)?;
    }
    let mut server = Server::new().wait(Wait::Spin);
    for (name, order) in NAMES {
        server = server.export(name, Declared(order))?;
    }
    let running = server.listen("tcp:127.0.0.1:0")?.listen("udp:127.0.0.1:0")?.spawn()?;
    for address in running.addresses() {
        println!("{address}");
    }
    println!("{READY}");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The server process. Dropping this value kills the process.
struct Far {
    child: Child,
    _input: ChildStdin,
    addresses: Vec<String>,
}

impl Far {
    fn start(cpu: Option<u32>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("declared").stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("no pipe")?;
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut addresses = Vec::new();
        for line in output.lines() {
            let line = line?;
            if line == READY {
                return Ok(Self { child, _input: input, addresses });
            }
            addresses.push(line);
        }
        Err("the other process ended".into())
    }

    /// Binds to the export `name` on a path.
    fn bind(&self, path: &str, name: &str) -> Result<WordsClient, Failure> {
        let at = self.addresses.iter().find(|address| address.starts_with(path));
        let address = at.map_or_else(|| name.to_owned(), |at| format!("{at}/{name}"));
        Ok(WordsClient::bind_with(&address, &BindOptions::default().wait(Wait::Spin))?)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A binding, and the arguments of calls through it.
struct Calls {
    client: WordsClient,
    words: Vec<u32>,
    values: Vec<Mixed>,
}

impl Calls {
    fn new(client: WordsClient) -> Self {
        let values = vec![Mixed::default(); LARGE / size_of::<Mixed>()];
        Self { client, words: vec![0x0102_0304; LARGE / 4], values }
    }

    fn call(&mut self, case: &str) -> peregrine::Result<()> {
        let Self { client, words, values } = self;
        match case {
            ADD => client.add(black_box(3), black_box(4)).map(|sum| {
                black_box(sum);
            }),
            IN_1M => client.take(black_box(words)),
            IN_1M_MIXED => client.mixed(black_box(values)),
            _ => client.give(Out::from(black_box(&mut words[..]))),
        }
    }

    fn measure(&mut self, case: &str, slice: Duration) -> Result<Sample, Failure> {
        let mut times = 8;
        for _ in 0..2 {
            self.call(case)?;
        }
        loop {
            let start = Instant::now();
            for _ in 0..times {
                self.call(case)?;
            }
            let took = start.elapsed();
            if took >= slice / 2 {
                return Ok(Sample { ns: took.as_nanos() as f64 / f64::from(times), cpu_ns: None });
            }
            times *= 2;
        }
    }
}

/// Measures each selected case on each path. The calls to the server of the other byte order are compared
/// with the calls to the server of this machine's byte order.
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
    let far = Far::start(there)?;
    let mut rows = Vec::new();
    for (path, link) in [("local", "memory"), ("tcp", "loopback"), ("udp", "loopback")] {
        let mut both = Vec::new();
        for (name, _) in NAMES {
            both.push(Calls::new(far.bind(path, name)?));
        }
        for case in CASES.into_iter().filter(|case| selection.has_case(case)) {
            progress.show(&format!("{path}: {case}"));
            let samples = in_turn(selection.rounds(), both.len(), |which| {
                both[which].measure(case, selection.slice())
            })?;
            let ((native, _), (swapped, cpu)) = (split(&samples[0]), split(&samples[1]));
            let row = Row {
                path: Some(path),
                link: Some(link),
                wait: Some("spin"),
                placement: Some(Placement::TwoCores.name()),
                bindings: 1,
                ..Row::new(case)
            };
            let row = row.ours(&swapped, &cpu).limit("native", &native);
            rows.push(row.ratio(&swapped, &native));
        }
    }
    Ok(rows)
}
