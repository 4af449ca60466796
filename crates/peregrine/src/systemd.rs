//! Tells systemd how a service is: that it is ready, that it stops, and that it is alive. See `sd_notify(3)`.
//!
//! [`Server::notify_systemd`](crate::Server::notify_systemd) does this for a server. A program with several
//! servers, or with other services, uses a [`Notifier`].
//!
//! `docs/peregrine.service` in the repository is a unit file.

use core::fmt;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::error::{CallError, Kind, Phase};
use crate::sys;

/// How long [`Notifier::ready`] tries to send its message.
const SEND_TIME: Duration = Duration::from_secs(5);
/// The largest number of bytes of a status.
const STATUS_BYTES_MAX: usize = 512;

/// Sends messages to the supervisor that has started this process: systemd, or another program that sets the
/// environment variable `NOTIFY_SOCKET`.
///
/// ```
/// use peregrine::systemd::Notifier;
///
/// # fn main() -> peregrine::Result<()> {
/// let notifier = Notifier::from_environment()?;
/// // Here, the program starts its services.
/// if let Some(notifier) = &notifier {
///     notifier.ready("serving files")?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Notifier {
    socket: UnixDatagram,
    to: SocketAddr,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Returns a notifier for the supervisor that `NOTIFY_SOCKET` names. Returns `None` if the variable is
    /// not set.
    ///
    /// If the process has a single thread, this function removes the variables `NOTIFY_SOCKET`,
    /// `WATCHDOG_USEC` and `WATCHDOG_PID` from the environment, so that child processes do not notify the
    /// supervisor. Call it before the program starts threads.
    ///
    /// # Errors
    /// If one of the variables is invalid, or no descriptor is left.
    pub fn from_environment() -> Result<Option<Self>, CallError> {
        let Some(name) = sys::trusted_variable("NOTIFY_SOCKET") else { return Ok(None) };
        let to = address(&name)?;
        let variable = |name| sys::trusted_variable(name);
        let (time, process) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        let watchdog = watchdog(time.as_deref(), process.as_deref(), std::process::id())?;
        let opened = UnixDatagram::unbound()
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket = opened.map_err(|error| {
            CallError::system(Phase::Export, "cannot open a socket for systemd", error)
        })?;
        sys::forget_variables(&["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"]);
        Ok(Some(Self { socket, to, watchdog }))
    }

    /// Reports that the service is ready. `status` is shown to users, for example by `systemctl status`.
    ///
    /// # Errors
    /// If the supervisor does not receive the message within 5 seconds.
    pub fn ready(&self, status: &str) -> Result<(), CallError> {
        /// How long to wait while the queue of the supervisor's socket is full.
        const PAUSE: Duration = Duration::from_millis(10);
        let message = format!("READY=1\n{}", status_line(status));
        let begun = Instant::now();
        loop {
            match self.send(&message) {
                Ok(()) => return Ok(()),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) && begun.elapsed() < SEND_TIME =>
                {
                    std::thread::sleep(PAUSE);
                }
                Err(error) => {
                    let what = format!("cannot report to systemd at {self}");
                    return Err(CallError::system(Phase::Export, what, error)
                        .with_advice("unset NOTIFY_SOCKET if no supervisor listens there"));
                }
            }
        }
    }

    /// Reports that the service stops. `status` is shown to users. A message that cannot be sent at once is
    /// lost.
    pub fn stopping(&self, status: &str) {
        let _ = self.send(&format!("STOPPING=1\n{}", status_line(status)));
    }

    /// Returns how long the supervisor waits for [`keep_alive`](Self::keep_alive) before it restarts the
    /// service. Returns `None` if it does not wait for that. Call `keep_alive` twice in this time.
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Reports that the service is alive. A message that cannot be sent at once is lost.
    pub fn keep_alive(&self) {
        let _ = self.send("WATCHDOG=1\n");
    }

    fn send(&self, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &self.to).map(drop)
    }
}

impl fmt::Display for Notifier {
    /// Writes the address of the supervisor.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.to.as_pathname(), self.to.as_abstract_name()) {
            (Some(path), _) => write!(f, "{}", path.display()),
            (None, name) => write!(f, "@{}", String::from_utf8_lossy(name.unwrap_or_default())),
        }
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Notifier").field(&self.to_string()).finish()
    }
}

fn invalid(text: String) -> CallError {
    CallError::not_executed(Kind::BadName, Phase::Export, text)
        .with_advice("start the program by systemd, or unset the variable")
}

/// Reads the value of `NOTIFY_SOCKET`: an absolute path, or `@` and the name of an abstract socket.
fn address(value: &OsStr) -> Result<SocketAddr, CallError> {
    let shown = || value.to_string_lossy().into_owned();
    let address = match value.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(value),
        [b'@', name @ ..] if !name.is_empty() => SocketAddr::from_abstract_name(name),
        _ => {
            let text = "neither an absolute path nor `@` and a name";
            return Err(invalid(format!("NOTIFY_SOCKET is {:?}: {text}", shown())));
        }
    };
    address.map_err(|error| invalid(format!("NOTIFY_SOCKET is {:?}", shown())).because(error))
}

/// Reads the values of `WATCHDOG_USEC` and `WATCHDOG_PID` in the process `own`.
fn watchdog(
    time: Option<&OsStr>,
    process: Option<&OsStr>,
    own: u32,
) -> Result<Option<Duration>, CallError> {
    let Some(time) = time else { return Ok(None) };
    let number = |value: &OsStr| value.to_str().and_then(|value| value.parse::<u64>().ok());
    if let Some(process) = process {
        let Some(process) = number(process) else {
            return Err(invalid(format!("WATCHDOG_PID is {process:?}, which is no process ID")));
        };
        if process != u64::from(own) {
            return Ok(None);
        }
    }
    match number(time) {
        Some(time) if time > 0 => Ok(Some(Duration::from_micros(time))),
        _ => Err(invalid(format!("WATCHDOG_USEC is {time:?}, and not a number of microseconds"))),
    }
}

/// Returns the line that reports a status. A status has one line.
fn status_line(status: &str) -> String {
    let status = &status[..status.floor_char_boundary(STATUS_BYTES_MAX)];
    format!("STATUS={}\n", status.replace(|c: char| c.is_control(), " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<T: fmt::Debug>(read: Result<T, CallError>) -> String {
        let error = read.unwrap_err();
        assert_eq!(error.kind(), Kind::BadName);
        error.detail().to_owned()
    }

    #[test]
    fn addresses_are_paths_or_abstract_names() {
        let path = address(OsStr::new("/run/systemd/notify")).unwrap();
        assert_eq!(path.as_pathname().unwrap().to_str(), Some("/run/systemd/notify"));
        let name = address(OsStr::new("@notify")).unwrap();
        assert_eq!(name.as_abstract_name(), Some(&b"notify"[..]));
        for wrong in ["notify", "@", "vsock:2:1234"] {
            let expected =
                format!("NOTIFY_SOCKET is {wrong:?}: neither an absolute path nor `@` and a name");
            assert_eq!(text(address(OsStr::new(wrong))), expected);
        }
        for long in ["/", "@"].map(|first| format!("{first}{}", "x".repeat(200))) {
            assert!(text(address(OsStr::new(&long))).starts_with("NOTIFY_SOCKET is "));
        }
    }

    #[test]
    fn watchdog_is_for_the_process_that_the_variables_name() {
        let read = |time, process: Option<&'static str>| {
            watchdog(Some(OsStr::new(time)), process.map(OsStr::new), 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(None, None, 7).unwrap(), None);
        assert_eq!(read("1000000", None).unwrap(), second);
        assert_eq!(read("1000000", Some("7")).unwrap(), second);
        assert_eq!(read("1000000", Some("8")).unwrap(), None);
        assert_eq!(text(read("1", Some("me"))), "WATCHDOG_PID is \"me\", which is no process ID");
        for wrong in ["0", "-1", "soon", ""] {
            let expected = format!("WATCHDOG_USEC is {wrong:?}, and not a number of microseconds");
            assert_eq!(text(read(wrong, None)), expected);
        }
    }

    #[test]
    fn status_has_one_line_of_bounded_length() {
        assert_eq!(status_line("a\nREADY=0"), "STATUS=a READY=0\n");
        assert_eq!(status_line(&"ü".repeat(1000)).len(), "STATUS=\n".len() + STATUS_BYTES_MAX);
    }
}
