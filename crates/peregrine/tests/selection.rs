//! Tests which path binding selects, and what it reports about the other paths. One unchanged client program
//! uses four paths, depending only on what its server offers.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use peregrine::directory::{Directory, Hosts};
use peregrine::{
    Address, BindOptions, CallError, Executed, Kind, PathKind, Running, Server, Verdict, interface,
};
use support::link::{ENDS, Link};
use support::{alone, own_directory, until};

#[interface]
trait Way {
    /// Returns the name of the path over which the server received the call.
    fn path(&self) -> peregrine::Result<String>;
}

struct Object;

impl Way for Object {
    fn path(&self) -> peregrine::Result<String> {
        Ok(peregrine::caller().unwrap().path().to_string())
    }
}

fn server(name: &str, endpoints: &[&str]) -> Running {
    let mut server = Server::new().export(name, WayServer::new(Object)).unwrap();
    for endpoint in endpoints {
        server = server.listen(endpoint).unwrap();
    }
    server.spawn().unwrap()
}

fn port(running: &Running) -> u16 {
    running.addresses()[0].place().port()
}

/// Binds, makes a call, and checks that client and server report the same path. Returns the path, and the
/// verdict and reason for each candidate path.
fn bound(address: &str, options: &BindOptions) -> (PathKind, [Verdict; 4], [String; 4]) {
    let way = WayClient::bind_with(address, options).unwrap_or_else(|error| panic!("{error}"));
    let explanation = way.binding().explain();
    let chosen = explanation.chosen().expect("a path");
    assert_eq!(way.path().unwrap(), chosen.to_string());
    assert_eq!(explanation.address(), address);
    let candidates: &[_; 4] = explanation.candidates().try_into().expect("four paths");
    assert_eq!(
        candidates.each_ref().map(|candidate| candidate.path),
        [PathKind::Local, PathKind::Ethernet, PathKind::Udp, PathKind::Tcp]
    );
    (
        chosen,
        candidates.each_ref().map(|candidate| candidate.verdict),
        candidates.each_ref().map(|candidate| candidate.reason.clone()),
    )
}

use Verdict::{Chosen, Excluded, Failed, NotNeeded};

/// These checks are in one test, because they change environment variables, which all tests of a process
/// share.
#[test]
fn fastest_working_path_is_selected() {
    let _alone = alone();
    let directory = own_directory();
    let options = BindOptions::default();
    let hosts = directory.path().join("no-hosts");
    let options = options.directory(Hosts::of([hosts]));

    let all = server("way", &["127.0.0.1:0"]);
    let at = format!("way@127.0.0.1:{}", port(&all));
    // Bind on this machine, first by name and then by address.
    let (chosen, verdicts, reasons) = bound("way", &options);
    assert_eq!((chosen, verdicts), (PathKind::Local, [Chosen, Excluded, Excluded, Excluded]));
    assert!(reasons[0].contains("process"), "{reasons:?}");
    assert!(reasons[3].contains("not in hosts file"), "{reasons:?}");
    let (chosen, verdicts, _) = bound(&at, &options);
    assert_eq!((chosen, verdicts), (PathKind::Local, [Chosen, NotNeeded, NotNeeded, NotNeeded]));
    // A scheme in the address selects the path.
    for (scheme, path) in [("udp", PathKind::Udp), ("tcp", PathKind::Tcp)] {
        let (chosen, _, reasons) = bound(&format!("{scheme}:{at}"), &options);
        assert_eq!(chosen, path);
        assert!(reasons[0].contains(&format!("asks for {scheme}")), "{reasons:?}");
    }
    // If the runtime directory does not contain the server's name, binding can use only the server's
    // endpoints.
    let other = tempfile::tempdir().unwrap();
    std::fs::rename(directory.path().join("way"), other.path().join("way")).unwrap();
    let (chosen, verdicts, reasons) = bound(&at, &options);
    assert_eq!((chosen, verdicts), (PathKind::Udp, [Excluded, Failed, Chosen, NotNeeded]));
    assert!(reasons[1].contains("does not speak raw Ethernet"), "{reasons:?}");
    std::fs::rename(other.path().join("way"), directory.path().join("way")).unwrap();

    // Two local servers have the name `other`. An address with a port means the server that listens at that
    // port.
    let tcp = server("other", &["tcp:127.0.0.1:0"]);
    for file in ["other", ".other.lock"] {
        std::fs::rename(directory.path().join(file), other.path().join(file)).unwrap();
    }
    let _here = server("other", &[]);
    let (chosen, verdicts, reasons) = bound(&format!("other@localhost:{}", port(&tcp)), &options);
    assert_eq!((chosen, verdicts), (PathKind::Tcp, [Excluded, Failed, Failed, Chosen]));
    assert!(reasons[0].contains("does not listen at"), "{reasons:?}");

    // Bind to a name that only the hosts file contains. The export itself has another name.
    let file = directory.path().join("hosts");
    std::fs::write(&file, format!("far tcp:way@127.0.0.1:{}\n", port(&all))).unwrap();
    let known = options.clone().directory(Hosts::of([file.clone()]));
    let (chosen, verdicts, _) = bound("far", &known);
    assert_eq!((chosen, verdicts), (PathKind::Tcp, [Failed, Excluded, Excluded, Chosen]));
    let (chosen, ..) = bound("tcp:far", &known);
    assert_eq!(chosen, PathKind::Tcp);
    std::fs::write(&file, format!("far {at}\n")).unwrap();
    let (chosen, verdicts, _) = bound("far", &known);
    assert_eq!((chosen, verdicts), (PathKind::Local, [Chosen, NotNeeded, NotNeeded, NotNeeded]));

    // Use a directory service that the program implements.
    #[derive(Debug)]
    struct Central(String);
    impl Directory for Central {
        fn offers(&self, name: &str) -> Result<Vec<Address>, CallError> {
            if name == "central" { Ok(vec![self.0.parse()?]) } else { Ok(Vec::new()) }
        }
        fn describe(&self) -> String {
            "the centre".to_owned()
        }
    }
    let central = options.clone().directory(Central(format!("udp:{at}")));
    assert_eq!(bound("central", &central).0, PathKind::Udp);

    // No server is left. One error must list what failed on each path.
    all.stop();
    let error = WayClient::bind_with(&at, &options).unwrap_err();
    assert_eq!((error.kind(), error.executed()), (Kind::Unreachable, Executed::No));
    let text = error.to_string();
    for part in [&*at, "local: no such export", "ethernet, udp: the server", "tcp: the server"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let (explanation, bound_to) = peregrine::explain("nobody", &central);
    assert!(bound_to.is_err() && explanation.chosen().is_none());
    assert_eq!(explanation.candidates()[0].verdict, Failed);
    assert!(explanation.candidates()[3].reason.contains("not in the centre"), "{explanation}");
    assert_eq!(explanation.to_string().lines().count(), 4);
    // An invalid hosts file does not affect names that are exported on this machine.
    std::fs::write(&file, "nobody x\nother x\n").unwrap();
    let (explanation, bound_to) = peregrine::explain("nobody", &known);
    let error = bound_to.unwrap_err();
    assert_eq!(error.kind(), Kind::BadName);
    assert!(explanation.candidates()[2].reason.contains("hosts:1"), "{explanation}");
    assert_eq!(bound("other", &known).0, PathKind::Local);
}

/// Returns the path of an example, which Cargo builds next to the test programs.
fn example(name: &str) -> PathBuf {
    let programs = std::env::current_exe().unwrap();
    programs.parent().unwrap().parent().unwrap().join("examples").join(name)
}

/// A child process that is killed on drop.
struct KillOnDrop(std::process::Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn in_namespace(name: &str, program: &str, arguments: &[&str], directory: &Path) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name]).arg(example(program)).args(arguments);
    command.env("PEREGRINE_DIR", directory).env("PEREGRINE_HOSTS", directory.join("hosts"));
    command
}

/// Runs the client program. It knows only the name of the export.
fn call(link: &Link, directory: &Path) -> Output {
    in_namespace(link.ends()[0], "anywhere_client", &[], directory).output().unwrap()
}

/// Checks that the guide shows this output of the client. Before the comparison, replaces the address and the
/// process number by those of the guide, and removes the interface name.
fn check_output_in_guide(output: &str) {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/GUIDE.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    for line in output.lines().filter(|line| !line.is_empty()) {
        let mut line = line.replace(ENDS[1], "192.0.2.7");
        if let Some((before, _)) = line.split_once("at `pr") {
            // The end of this line names the kind of the socket, which differs between kernels.
            let before = before.split("chosen").next().unwrap_or(before);
            line = format!("{before}chosen      AF_");
        }
        if let Some((before, _)) = line.split_once("process ") {
            line = format!("{before}process 4711");
        }
        assert!(guide.contains(&format!("\n    {line}")), "the guide lacks\n{line}");
    }
}

#[test]
fn one_client_program_uses_the_path_that_its_server_offers() {
    let _alone = alone();
    let link = match Link::new() {
        Ok(link) => link,
        Err(why) => return println!("skipped: {why}"),
    };
    let (near, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = format!("{}:7000", ENDS[1]);
    let hosts = format!("whereabouts whereabouts@{place}\n");
    std::fs::write(near.path().join("hosts"), hosts).unwrap();
    let (tcp, udp) = (format!("tcp:{place}"), format!("udp:{place}"));
    for (end, endpoint, path) in [
        (1, &tcp, "tcp"),
        (1, &udp, "udp"),
        (1, &place, "ethernet"),
        // This server listens at no endpoint, so only programs on its own machine can call it.
        (0, &String::new(), "local"),
    ] {
        let home = if end == 0 { near.path() } else { far.path() };
        let arguments: &[&str] = if endpoint.is_empty() { &[] } else { &[endpoint] };
        let mut server = in_namespace(link.ends()[end], "anywhere_server", arguments, home);
        let server = KillOnDrop(server.spawn().unwrap());
        let mut output = String::new();
        until("the server is ready", || {
            let called = call(&link, near.path());
            output = String::from_utf8_lossy(&called.stdout).into_owned();
            called.status.success()
        });
        println!("\n{endpoint}\n{output}");
        check_output_in_guide(&output);
        assert!(output.starts_with(&format!("called over {path}\n")), "{output}");
        assert_eq!(output.lines().count(), 5, "{output}");
        let chosen = output.lines().find(|line| line.contains("chosen")).expect("a path");
        assert!(chosen.starts_with(path), "{output}");
        drop(server);
        until("the server is gone", || !call(&link, near.path()).status.success());
    }
}

/// The UDP port receives packets but never answers. Binding must still try TCP before the bind's time limit.
#[test]
fn silent_path_does_not_prevent_the_next_one() {
    let _alone = alone();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let directory = tempfile::tempdir().unwrap();
    let options = BindOptions::default()
        .bind_timeout(Duration::from_secs(20))
        .directory(Hosts::of([directory.path().join("none")]));
    let Ok(_listener) = std::net::TcpListener::bind(("127.0.0.1", port)) else {
        return println!("skipped: TCP port {port} is in use");
    };
    // TCP does not answer either. So binding uses up its whole time limit, and then the test checks the
    // explanation.
    let options = options.bind_timeout(Duration::from_secs(3));
    let (explanation, bound) = peregrine::explain(&format!("way@127.0.0.1:{port}"), &options);
    assert_eq!(bound.unwrap_err().kind(), Kind::TimedOut);
    let candidates = explanation.candidates();
    assert!(candidates[1].reason.contains("does not answer"), "{explanation}");
    assert!(candidates[2].reason.contains("does not answer"), "{explanation}");
    assert!(candidates[3].reason.contains("answer"), "{explanation}");
}
