//! [`AuthSys`]: the identity that a client claims in its calls of ONC RPC.

use crate::error::{CallError, Kind, Phase};
use crate::protocol::onc::message::{self, Auth, Flavour, Groups};
use crate::sys;

/// The identity that a client claims in its calls of ONC RPC: the flavour AUTH_SYS, which is also called
/// AUTH_UNIX.
///
/// This is a claim only. Any program can claim any identity, and any machine on the way can change it.
/// Servers of NFS, for example, believe the claim if it comes from a machine and a port that they trust.
///
/// ```
/// use peregrine::{AuthSys, BindOptions};
///
/// let identity = AuthSys::new(1000, 100).groups(&[27, 44]).machine("desk");
/// let options = BindOptions::default().onc_auth_sys(identity);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct AuthSys {
    machine: String,
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl AuthSys {
    /// The largest number of groups in addition to the main group.
    pub const GROUPS_MAX: usize = 16;

    /// Claims the number of a user and of the user's main group.
    pub const fn new(user: u32, group: u32) -> Self {
        Self { machine: String::new(), user, group, groups: Vec::new() }
    }

    /// Claims the effective user and group of this process, its further groups, and the name of this machine.
    /// If the process has more than 16 further groups, only the first 16 are used.
    pub fn of_process() -> Self {
        use rustix::process::{getegid, geteuid, getgroups};
        let groups = getgroups().unwrap_or_default();
        let groups = groups.iter().map(|group| group.as_raw()).take(Self::GROUPS_MAX).collect();
        Self {
            machine: sys::machine_name(),
            user: geteuid().as_raw(),
            group: getegid().as_raw(),
            groups,
        }
    }

    /// Claims groups in addition to the main group, at most [16](Self::GROUPS_MAX).
    pub fn groups(mut self, groups: &[u32]) -> Self {
        groups.clone_into(&mut self.groups);
        self
    }

    /// Claims the name of the client's machine, of at most 255 bytes.
    pub fn machine(mut self, name: &str) -> Self {
        name.clone_into(&mut self.machine);
        self
    }

    /// Writes the body of the credential to `body`.
    ///
    /// # Errors
    /// If there are too many groups, or the name of the machine is too long.
    pub(crate) fn credential<'b>(
        &self,
        body: &'b mut [u8; message::AUTH_BYTES_MAX],
    ) -> Result<Auth<'b>, CallError> {
        let Self { machine, user, group, groups } = self;
        let written = Groups::new(groups).and_then(|groups| {
            let (user, group) = (*user, *group);
            message::AuthSys { stamp: 0, machine: machine.as_bytes(), user, group, groups }
                .emit(&mut body[..])
        });
        let Some(length) = written else {
            let text = format!(
                "the identity has {} groups and a name of {} bytes, and AUTH_SYS allows {} and 255",
                groups.len(),
                machine.len(),
                Self::GROUPS_MAX
            );
            return Err(CallError::not_executed(Kind::BadName, Phase::Bind, text));
        };
        Ok(Auth { flavour: Flavour::SYS, body: &body[..length] })
    }
}
