//! Tests calls with every type of XDR between Peregrine and C programs. The C programs use libtirpc. `rpcgen`
//! generates their stubs from the same interface file (`every.x`) that Peregrine imports.

#![allow(clippy::clone_on_copy, reason = "a macro clones values of all types")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use peregrine::foreign::ByteString;
use peregrine::{AuthSys, BindOptions, CallError, Executed, Kind, Server, interface};
use tempfile::TempDir;

use super::every::{
    Answer, Blob, Brief, Colour, Every, Fixed, Hypers, Label, Labels, List, Node, Perhaps, Place,
    Point, Points, Shape, Shorts, Shown, Tree, Types, TypesClient, TypesServer,
};
use super::machine::{Daemon, are_installed};
use super::show::Show;
use crate::support::{alone, own_directory};

/// The interface file of the program that both sides have: its name and its text.
const INTERFACE: (&str, &str) = ("every.x", include_str!("every.x"));
/// The names and the texts of the files in C.
const SOURCES: [(&str, &str); 4] = [
    ("every_c.h", include_str!("every_c.h")),
    ("every.c", include_str!("every.c")),
    ("every_client.c", include_str!("every_client.c")),
    ("every_server.c", include_str!("every_server.c")),
];

/// Runs a command, which must succeed. Returns its output.
#[track_caller]
fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("a program that can be started");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// Returns the compiler's options for programs that use libtirpc. Returns `None` if libtirpc is not
/// installed.
pub(crate) fn library_flags() -> Option<String> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libtirpc"]).output();
    let flags = flags.ok().filter(|output| output.status.success());
    let Some(flags) = flags else {
        eprintln!("skipped: the headers of libtirpc are not installed");
        return None;
    };
    Some(String::from_utf8(flags.stdout).expect("options"))
}

/// Compiles a program of these files in the directory `place`.
pub(crate) fn compile(place: &Path, program: &str, files: &[&str], flags: &str) {
    let mut gcc = Command::new("gcc");
    gcc.current_dir(place).args(["-std=gnu11", "-w", "-o", program]);
    done(gcc.args(files).args(flags.split_whitespace()));
}

/// Compiles the client and the server in C. Returns `None` if the compilers are not installed.
fn compiled() -> Option<TempDir> {
    if !are_installed(&["rpcgen", "gcc", "pkg-config"]) {
        return None;
    }
    let flags = library_flags()?;
    let place = tempfile::tempdir().expect("a temporary directory");
    for (name, text) in SOURCES.iter().chain([&INTERFACE]) {
        fs::write(place.path().join(name), text).expect("a file");
    }
    let generated =
        [("-h", "every.h"), ("-c", "every_xdr.c"), ("-l", "stubs.c"), ("-m", "dispatch.c")];
    for (option, file) in generated {
        let mut rpcgen = Command::new("rpcgen");
        rpcgen.current_dir(&place).args(["-N", "-M", option, "-o", file, INTERFACE.0]);
        done(&mut rpcgen);
    }
    for (program, files) in
        [("client", ["every_client.c", "stubs.c"]), ("server", ["every_server.c", "dispatch.c"])]
    {
        let files = [&files[..], &["every.c", "every_xdr.c"]].concat();
        compile(place.path(), program, &files, &flags);
    }
    Some(place)
}

/// The server in C, with the ports that it has printed.
struct CServer {
    _daemon: Daemon,
    udp: u16,
    tcp: u16,
}

impl CServer {
    fn start(place: &Path) -> Self {
        let mut command = Command::new(place.join("server"));
        let mut daemon = Daemon::spawn(command.stdout(Stdio::piped()));
        let output = daemon.child().stdout.take().expect("a pipe");
        let mut lines = BufReader::new(output).lines();
        let mut port = |transport: &str| {
            let line = lines.next().expect("a line").expect("text");
            let port = line.strip_prefix(transport).expect("the transport").trim();
            port.parse().expect("a port")
        };
        let (udp, tcp) = (port("udp"), port("tcp"));
        Self { _daemon: daemon, udp, tcp }
    }

    fn address(&self, transport: &str) -> String {
        let port = if transport == "udp" { self.udp } else { self.tcp };
        format!("onc+{transport}:127.0.0.1:{port}")
    }
}

fn shown(value: &impl Show) -> peregrine::Result<Shown> {
    Ok(ByteString::from(value.show()))
}

/// The object of the server in Rust.
struct Object;

/// Implements `echo` and `show` for each type.
macro_rules! object {
    ($($echo:ident $show:ident $type:ty;)*) => {
        impl Types for Object {
            $(
                fn $echo(&self, value: $type) -> peregrine::Result<$type> {
                    Ok(value)
                }
                fn $show(&self, value: $type) -> peregrine::Result<Shown> {
                    shown(&value)
                }
            )*
            fn nothing(&self) -> peregrine::Result<()> {
                Ok(())
            }
            fn show_two(&self, value: i32, label: Label) -> peregrine::Result<Shown> {
                Ok(ByteString::from(value.show() + &label.show()))
            }
            fn fail(&self) -> peregrine::Result<()> {
                // No server has this name.
                TypesClient::bind("local:no-such-export").map(drop)
            }
            fn user(&self) -> peregrine::Result<u32> {
                Ok(claimed_user())
            }
        }
    };
}

object! {
    echo_int show_int i32;
    echo_unsigned show_unsigned u32;
    echo_hyper show_hyper i64;
    echo_uhyper show_uhyper u64;
    echo_char show_char i8;
    echo_uchar show_uchar u8;
    echo_short show_short i16;
    echo_ushort show_ushort u16;
    echo_long show_long i32;
    echo_bool show_bool bool;
    echo_float show_float f32;
    echo_double show_double f64;
    echo_quadruple show_quadruple [u8; 16];
    echo_colour show_colour Colour;
    echo_blob show_blob Blob;
    echo_brief show_brief Brief;
    echo_label show_label Label;
    echo_shorts show_shorts Shorts;
    echo_hypers show_hypers Hypers;
    echo_labels show_labels Labels;
    echo_fixed show_fixed Fixed;
    echo_point show_point Point;
    echo_points show_points Points;
    echo_shape show_shape Shape;
    echo_answer show_answer Answer;
    echo_perhaps show_perhaps Perhaps;
    echo_place show_place Place;
    echo_list show_list List;
    echo_tree show_tree Tree;
    echo_every show_every Every;
}

/// Returns the user that the caller claims to be, or `u32::MAX`.
fn claimed_user() -> u32 {
    let caller = peregrine::caller().expect("a caller");
    caller.claimed().map_or(u32::MAX, |claimed| claimed.user)
}

/// Lets the C client call a server in Rust.
fn c_client_calls(transport: &str) {
    let Some(place) = compiled() else { return };
    let (_alone, _directory) = (alone(), own_directory());
    let name = format!("every-{transport}");
    let server = Server::new().export(&name, TypesServer::new(Object)).expect("an export");
    let endpoint = format!("onc+{transport}:127.0.0.1:0");
    let running = server.listen(&endpoint).expect("a port").spawn().expect("a server");
    let port = running.addresses()[0].place().port().to_string();
    let mut client = Command::new("timeout");
    client.args(["--signal=KILL", "60"]).arg(place.path().join("client")).args([transport, &port]);
    let output = done(&mut client);
    assert!(output.ends_with("all is well\n"), "{output}");
    // The client prints a line for each of 30 types, 10 other lines, and the last line.
    assert_eq!(output.lines().count(), 41, "{output}");
}

#[test]
fn c_client_calls_our_server_over_udp() {
    c_client_calls("udp");
}

#[test]
fn c_client_calls_our_server_over_tcp() {
    c_client_calls("tcp");
}

/// Sends values to the C server. Checks that the server returns the expected text of each value, and the
/// value itself.
macro_rules! check {
    ($client:expr, $echo:ident $show:ident: $($value:expr),+ $(,)?) => {
        for value in [$($value),+] {
            let text = $client.$show(value.clone()).expect(stringify!($show));
            assert_eq!(text.to_text(), value.show(), stringify!($show));
            let back = $client.$echo(value.clone()).expect(stringify!($echo));
            assert_eq!(back.show(), value.show(), stringify!($echo));
        }
    };
}

fn label(text: &str) -> Label {
    Label(text.into())
}

fn point(x: i32, y: i64, z: u8) -> Point {
    Point { x, y, z }
}

/// Returns a list of these numbers.
fn list(values: impl DoubleEndedIterator<Item = i32>) -> List {
    values.rev().fold(None, |next, value| Some(Box::new(Node { value, next })))
}

fn leaf(name: &str) -> Option<Box<Tree>> {
    Some(Box::new(Tree { left: None, name: label(name), right: None }))
}

fn fixed() -> Fixed {
    Fixed {
        digest: [0, 1, 2, 254, 255],
        triple: [i16::MIN, -1, i16::MAX],
        pair: [f64::MAX, -0.0],
        letters: [i8::MIN, 0, i8::MAX],
    }
}

/// Three floating-point numbers of 16 bytes each. The first is 1.5. The other two are limits of the normal
/// numbers of a floating-point type of 80 bits: the positive number next to zero, and the negative number
/// farthest from zero.
const QUADRUPLES: [[u8; 16]; 3] = [
    [0x3f, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    [0xff, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0, 0, 0],
];

fn check_numbers(client: &TypesClient) {
    check!(client, echo_int show_int: i32::MIN, -1, 0, 1, i32::MAX);
    check!(client, echo_unsigned show_unsigned: 0, 1, 1 << 31, u32::MAX);
    check!(client, echo_hyper show_hyper: i64::MIN, -1, 0, 1 << 32, i64::MAX);
    check!(client, echo_uhyper show_uhyper: 0, 1 << 32, u64::MAX);
    check!(client, echo_char show_char: i8::MIN, -1, 0, i8::MAX);
    check!(client, echo_uchar show_uchar: 0, 1, 128, u8::MAX);
    check!(client, echo_short show_short: i16::MIN, -1, 0, i16::MAX);
    check!(client, echo_ushort show_ushort: 0, 1, 1 << 15, u16::MAX);
    check!(client, echo_bool show_bool: false, true);
    check!(client, echo_float show_float: 0.0, -0.0, 1.5, f32::MIN, f32::MAX, f32::MIN_POSITIVE,
           f32::from_bits(1), f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7fc1_2345));
    check!(client, echo_double show_double: 0.0, -0.0, 1.5, f64::MIN, f64::MAX, f64::MIN_POSITIVE,
           f64::from_bits(1), f64::INFINITY, f64::NEG_INFINITY, f64::from_bits(0x7ff8_0000_1234_5678));
    check!(client, echo_quadruple show_quadruple: QUADRUPLES[0], QUADRUPLES[1], QUADRUPLES[2], [0; 16]);
    check!(client, echo_colour show_colour: Colour::Black, Colour::Red, Colour::Green, Colour::Blue);
    check!(client, echo_long show_long: i32::MIN, -1, 0, 1, i32::MAX);
}

fn check_bytes_and_arrays(client: &TypesClient, large: usize) {
    let bytes = |count: usize| (0..count).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<_>>();
    check!(client, echo_blob show_blob: bytes(0), bytes(1), bytes(2), bytes(3), bytes(4), bytes(255),
           bytes(large));
    check!(client, echo_brief show_brief: Brief(bytes(0)), Brief(bytes(1)), Brief(bytes(5)));
    check!(client, echo_label show_label: label(""), label("a"), label("abcd"), label("0123456789"),
           Label(b"\x01\x7f\xc3\xa9\xff"[..].into()));
    check!(client, echo_shorts show_shorts: Vec::new(), vec![i16::MIN, 0, i16::MAX], vec![-1; 1000]);
    check!(client, echo_hypers show_hypers: Hypers(Vec::new()), Hypers(vec![i64::MIN, 0, i64::MAX]));
    check!(client, echo_labels show_labels: Vec::new(), vec![label(""), label("x"), label("0123456789")]);
    let zeros = Fixed { digest: [0; 5], triple: [0; 3], pair: [0.0; 2], letters: [0; 3] };
    check!(client, echo_fixed show_fixed: zeros, fixed());
    let ends = [point(i32::MIN, i64::MIN, 0), point(i32::MAX, i64::MAX, u8::MAX)];
    check!(client, echo_point show_point: ends[0].clone(), ends[1].clone());
    check!(client, echo_points show_points: Points(Vec::new()), Points(ends.to_vec()));
}

fn check_compounds(client: &TypesClient) {
    check!(client, echo_shape show_shape: Shape::Red(i32::MIN), Shape::Green(label("")),
           Shape::Blue(label("0123456789")), Shape::Default(i32::MIN));
    check!(client, echo_answer show_answer: Answer::Case0, Answer::CaseMinus1(i64::MIN),
           Answer::Default(i32::MIN, Vec::new()), Answer::Default(i32::MAX, b"abc".to_vec()));
    check!(client, echo_perhaps show_perhaps: Perhaps::False, Perhaps::True(f64::from_bits(1)));
    let corner = point(i32::MIN, i64::MAX, u8::MAX);
    let place: Place = Some(Box::new(corner.clone()));
    check!(client, echo_place show_place: None, place.clone());
    check!(client, echo_list show_list: None, list(0..1), list(i32::MAX - 200..i32::MAX));
    let branch = Some(Box::new(Tree { left: leaf("left"), name: label(""), right: None }));
    let root = Tree { left: branch, name: label("root"), right: leaf("right") };
    check!(client, echo_tree show_tree: *leaf("leaf").expect("a leaf"), root);
    let every = Every {
        yes: true,
        lengths: fixed(),
        corners: Points(vec![corner]),
        form: Shape::Blue(label("blue")),
        real: Perhaps::True(f64::MAX),
        r#where: place,
        names: vec![label("a"), label("bc")],
        values: list(-1..2),
    };
    check!(client, echo_every show_every: every);
}

/// Procedures that the C program has with other types, or does not have.
#[interface(onc(program = 0x2000_0077, version = 1))]
trait Beyond {
    #[onc(31)]
    fn echo_brief(&self, bytes: Vec<u8>) -> peregrine::Result<Vec<u8>>;
    #[onc(1000)]
    fn missing(&self, number: i32) -> peregrine::Result<()>;
}

#[interface(onc(program = 0x2000_0077, version = 8))]
trait OtherVersion {
    #[onc(1)]
    fn echo_int(&self, number: i32) -> peregrine::Result<i32>;
}

#[interface(onc(program = 0x2000_0076, version = 1))]
trait OtherProgram {
    #[onc(1)]
    fn echo_int(&self, number: i32) -> peregrine::Result<i32>;
}

/// Checks a failure. Compares `executed` over TCP only: over UDP, the client may have sent the call more than
/// once, and then the call may have executed.
#[track_caller]
fn fails<T>(result: Result<T, CallError>, kind: Kind, executed: Executed, address: &str) {
    let Err(error) = result else { panic!("{kind:?} was expected") };
    assert_eq!(error.kind(), kind, "{error}");
    if address.starts_with("onc+tcp") {
        assert_eq!(error.executed(), executed, "{error}");
    }
}

/// Checks that the client reports each refusal of the C server as the right kind of failure.
fn check_refusals(address: &str) {
    let beyond = BeyondClient::bind(address).expect("a server");
    assert_eq!(beyond.echo_brief(b"abcde".to_vec()).expect("bytes"), b"abcde");
    fails(beyond.echo_brief(b"abcdef".to_vec()), Kind::BadArguments, Executed::No, address);
    fails(beyond.missing(7), Kind::NoSuchProcedure, Executed::No, address);
    fails(OtherVersionClient::bind(address), Kind::InterfaceMismatch, Executed::No, address);
    fails(OtherProgramClient::bind(address), Kind::NotFound, Executed::No, address);
}

/// Lets a client in Rust call the C server.
fn c_server_serves(transport: &str, large: usize) {
    let Some(place) = compiled() else { return };
    let (_alone, _directory) = (alone(), own_directory());
    let server = CServer::start(place.path());
    let client = TypesClient::bind(&server.address(transport)).expect("a server");
    client.binding().ping().expect("procedure 0");
    check_numbers(&client);
    check_bytes_and_arrays(&client, large);
    check_compounds(&client);
    client.nothing().expect("no result");
    assert_eq!(
        client.show_two(i32::MIN, label("ab")).expect("a text").to_text(),
        "-2147483648<6162>"
    );
    assert_eq!(client.user().expect("a number"), u32::MAX);
    let address = server.address(transport);
    let identity = AuthSys::new(1234, 56).groups(&[56, 78]).machine("desk");
    let options = BindOptions::default().onc_auth_sys(identity);
    let claiming = TypesClient::bind_with(&address, &options).expect("a server");
    assert_eq!(claiming.user().expect("a number"), 1234);
    fails(client.fail(), Kind::Relayed, Executed::Maybe, &address);
    check_refusals(&address);
}

#[test]
fn c_server_serves_our_client_over_udp() {
    // Datagrams of libtirpc have at most 8,800 bytes, and `show` returns two bytes of text for each byte of
    // its argument.
    c_server_serves("udp", 4000);
}

#[test]
fn c_server_serves_our_client_over_tcp() {
    c_server_serves("tcp", 1_000_000);
}
