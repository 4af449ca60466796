//! Runs programs of other authors. Makes namespaces in which a test has the network, the mounts and the
//! processes of a machine to itself.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{own_directory, role, until};

/// Limits the run time of a program, in seconds. Tests that succeed do not wait until this limit.
const LIMIT: &str = "60";

/// Returns the path of an installed program, or `None`. Daemons are often outside of the `PATH` of users.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let further = ["/usr/sbin", "/sbin", "/usr/lib/yp"].map(PathBuf::from);
    let directories = std::env::split_paths(&path).chain(further);
    directories.map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Returns whether all programs are installed. If not, prints why the test is skipped.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| installed(program).is_none());
    if let Some(missing) = missing {
        eprintln!("skipped: `{missing}` is not installed");
    }
    missing.is_none()
}

/// Returns a command that runs an installed program. The program is killed if it runs too long.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let path = installed(program).unwrap_or_else(|| panic!("`{program}` is installed"));
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", LIMIT]).arg(path).args(arguments).stdin(Stdio::null());
    command
}

/// Runs a program to its end. Returns its exit code and all of its output.
pub(crate) fn outcome(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } =
        command(program, arguments).output().expect("`timeout` is installed");
    (status.code(), String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned())
}

/// Runs a program, which must succeed. Returns all of its output.
#[track_caller]
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let (code, output) = outcome(program, arguments);
    assert_eq!(code, Some(0), "{program} {arguments:?}: {output}");
    output
}

/// A program that runs until this value is dropped.
pub(crate) struct Daemon(Child);

impl Daemon {
    /// Starts an installed program, which must stay in the foreground.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let path = installed(program).unwrap_or_else(|| panic!("`{program}` is installed"));
        let mut command = Command::new(path);
        Self::spawn(command.args(arguments).stdout(Stdio::null()))
    }

    /// Starts a command.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().expect("a program that can be started"))
    }

    /// Starts Debian's rpcbind, and waits until it answers.
    pub(crate) fn rpcbind() -> Self {
        let it = Self::start("rpcbind", &["-f", "-w"]);
        let path = Path::new("/run/rpcbind.sock");
        until("rpcbind answers", || UnixStream::connect(path).is_ok());
        it
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a version of a program is registered at the rpcbind of this machine.
pub(crate) fn until_registered(program: u32, version: u32, network: &str) {
    let line = [program.to_string(), version.to_string(), network.to_owned()];
    until("a program is registered", || {
        let (_, listed) = outcome("rpcinfo", &["-p", "127.0.0.1"]);
        listed.lines().any(|listed| {
            let words: Vec<_> = listed.split_whitespace().take(3).collect();
            words == line
        })
    });
}

/// Runs a case in namespaces of its own, if the programs that the case needs are installed. `name` is the
/// name of the test function, which this program runs again in the namespaces. In these namespaces, `/run` is
/// empty and the host is named `localhost`. Processes that the case has started end when the case ends.
pub(crate) fn alone(name: &str, programs: &[&str], case: impl FnOnce()) {
    if role().is_some() {
        let _directory = own_directory();
        case();
        println!("done");
        return;
    }
    if !are_installed(programs) {
        return;
    }
    let set_up = "ip link set lo up && mount -t tmpfs tmpfs /run && mkdir /run/rpcbind \
                  && hostname localhost && exec \"$0\" \"$@\"";
    let mut again = command("unshare", &["--net", "--mount", "--uts", "--pid", "--fork"]);
    again.args(["--kill-child", "--mount-proc", "sh", "-c", set_up]);
    again.arg(std::env::current_exe().expect("the path of this program"));
    again
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env("PEREGRINE_TEST_ROLE", name);
    let Output { status, stdout, stderr } = again.output().expect("`timeout` is installed");
    let output = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    if !output.contains("running 1 test") {
        eprintln!("skipped: cannot make namespaces: {output}");
        return;
    }
    assert!(status.success() && output.contains("done"), "{output}");
}
