//! The patterns that say which callers may call what, and the server stub that refuses calls of procedures which a
//! client may not call.
//!
//! A pattern is looked at when a client binds, and not when it calls. A binding whose client may call every
//! procedure uses the exported stub itself, so limits of other clients cost its calls nothing. Any other
//! binding uses a [`Limited`] stub, which looks at one flag for each call.

use core::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use super::procedure::catching;
use crate::call::{
    Caller, CallerIdentity, CallerInfo, ForeignCall, Identified, PathKind, Refusal, Reply, Request,
    Serve, Served, ServedForeign, caller,
};
use crate::counters::Page;
use crate::error::{CallError, Kind, Phase};
use crate::interface::InterfaceRef;
#[cfg(feature = "secure")]
use crate::secure::IdentityPattern;
use crate::sync::Mutex;
use crate::sys::Credentials;
use crate::value::ByteOrder;

/// A pattern that some callers match.
#[derive(Clone, Debug)]
enum Pattern {
    /// The user of a process of this machine: `uid:N`.
    User(u32),
    /// A group of a process of this machine: `gid:N`.
    Group(u32),
    #[cfg(feature = "secure")]
    Peer(IdentityPattern),
    /// A pattern for peers in a library without the feature `secure`. No caller matches it.
    #[cfg(not(feature = "secure"))]
    Peer,
}

impl Pattern {
    /// # Errors
    /// If the text is no pattern. The error says why.
    fn parse(text: &str) -> Result<Self, String> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse().ok().filter(|number| *number != u32::MAX && is_number);
            number.ok_or_else(|| format!("`{}` does not end with a number", text.escape_debug()))
        };
        if let Some(user) = text.strip_prefix("uid:") {
            return number(user).map(Self::User);
        }
        if let Some(group) = text.strip_prefix("gid:") {
            return number(group).map(Self::Group);
        }
        #[cfg(feature = "secure")]
        return text
            .parse()
            .map(Self::Peer)
            .map_err(|error: crate::secure::KeyError| error.to_string());
        #[cfg(not(feature = "secure"))]
        return Ok(Self::Peer);
    }

    #[cfg(feature = "secure")]
    fn matches_peer(&self, peer: &Identified) -> bool {
        matches!(self, Self::Peer(pattern) if pattern.matches(peer))
    }

    #[cfg(not(feature = "secure"))]
    const fn matches_peer(&self, peer: &Identified) -> bool {
        match *peer {}
    }
}

/// Patterns, of which a caller must match one.
#[derive(Clone, Debug, Default)]
pub(super) struct Patterns(Vec<Pattern>);

impl Patterns {
    fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, String> {
        texts
            .into_iter()
            .map(|text| Pattern::parse(text.as_ref()))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Returns whether some process of another user of this machine may match.
    fn has_local(&self) -> bool {
        self.0.iter().any(|one| matches!(one, Pattern::User(_) | Pattern::Group(_)))
    }

    fn match_peer(&self, peer: &Identified) -> bool {
        self.0.iter().any(|pattern| pattern.matches_peer(peer))
    }

    /// Returns whether a process matches. `groups` returns its supplementary groups, and is called only if
    /// they decide.
    fn match_process(&self, user: u32, group: u32, groups: impl FnOnce() -> Vec<u32>) -> bool {
        let at_once = |one: &Pattern| match *one {
            Pattern::User(one) => one == user,
            Pattern::Group(one) => one == group,
            _ => false,
        };
        if self.0.iter().any(at_once) {
            return true;
        }
        let mut wanted = self.0.iter().filter_map(|one| match one {
            Pattern::Group(group) => Some(*group),
            _ => None,
        });
        let Some(first) = wanted.next() else { return false };
        let theirs = groups();
        theirs.contains(&first) || wanted.any(|group| theirs.contains(&group))
    }
}

/// Whom an export admits, as its options say. It may be wrong until it is [checked](Self::check).
#[derive(Clone, Debug, Default)]
pub(super) struct Access {
    /// Who may bind. `None`: the options do not say, and everybody may who can bind otherwise.
    identities: Option<Patterns>,
    /// Who may call procedures with these names.
    named: Vec<(String, Patterns)>,
    /// Who may call procedures with these numbers. Others may be called by everybody who may bind.
    numbered: Vec<(u32, Patterns)>,
    /// What is wrong with the options.
    problem: Option<String>,
}

impl Access {
    /// Reads patterns. Notes why they cannot be read.
    fn read<T: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = T>) -> Patterns {
        Patterns::parse(texts).unwrap_or_else(|problem| {
            self.problem.get_or_insert(problem);
            Patterns::default()
        })
    }

    pub(super) fn limit<T: AsRef<str>>(&mut self, texts: impl IntoIterator<Item = T>) {
        let more = self.read(texts);
        self.identities.get_or_insert_default().0.extend(more.0);
    }

    pub(super) fn limit_procedure<T: AsRef<str>>(
        &mut self,
        procedure: &str,
        texts: impl IntoIterator<Item = T>,
    ) {
        let more = self.read(texts);
        match self.named.iter_mut().find(|(name, _)| name == procedure) {
            Some((_, patterns)) => patterns.0.extend(more.0),
            None => self.named.push((procedure.to_owned(), more)),
        }
    }

    /// Finds the procedures of `serve` that are limited, by the options or by the interface's attributes.
    ///
    /// # Errors
    /// If a pattern cannot be read, or there is no such procedure.
    pub(super) fn check(&mut self, serve: &dyn Serve) -> Result<(), CallError> {
        let invalid = |text| CallError::not_executed(Kind::BadName, Phase::Export, text);
        let interface = serve.interface();
        let mut named = core::mem::take(&mut self.named);
        // What the exporting program says replaces what the interface says.
        for (procedure, texts) in serve.allowed() {
            if named.iter().all(|(name, _)| name != procedure) {
                let patterns = self.read(*texts);
                named.push(((*procedure).to_owned(), patterns));
            }
        }
        if let Some(problem) = self.problem.take() {
            return Err(invalid(format!("cannot read a pattern for callers: {problem}")));
        }
        let count = interface.procedures() as u32;
        for (name, patterns) in named {
            let number = (0..count).find(|one| interface.procedure_name(*one) == Some(&name));
            let Some(number) = number else {
                let text = format!("the interface has no procedure `{}`", name.escape_debug());
                return Err(invalid(text));
            };
            self.numbered.push((number, patterns));
        }
        Ok(())
    }

    /// Returns whether clients must prove who they are to bind over a network.
    pub(super) const fn is_limited(&self) -> bool {
        self.identities.is_some()
    }

    /// Returns whether processes of other users of this machine may bind because of these options.
    pub(super) fn is_for_others(&self) -> bool {
        self.identities.as_ref().is_some_and(Patterns::has_local)
    }

    /// Returns whether a process of this machine may bind because of these options.
    pub(super) fn admits_process(
        &self,
        peer: &Credentials,
        groups: impl FnOnce() -> Vec<u32>,
    ) -> bool {
        let identities = self.identities.as_ref();
        identities.is_some_and(|patterns| patterns.match_process(peer.uid, peer.gid, groups))
    }

    /// Returns whether a client of a network may bind.
    pub(super) fn admits_peer(&self, peer: &Identified) -> bool {
        self.identities.as_ref().is_none_or(|patterns| patterns.match_peer(peer))
    }

    /// Returns a flag for each procedure, up to the last one that is limited: whether `caller` may not call
    /// it. `None` if the caller may call all of them.
    fn forbidden(
        &self,
        caller: &CallerInfo,
        groups: impl FnOnce() -> Vec<u32>,
    ) -> Option<Box<[bool]>> {
        let last = self.numbered.iter().map(|(number, _)| *number).max()?;
        let is_local = caller.path == PathKind::Local;
        // These users could do to the server's process whatever they want.
        if is_local && (caller.user == 0 || caller.user == rustix::process::geteuid().as_raw()) {
            return None;
        }
        let mut groups = Some(groups);
        let mut known: Option<Vec<u32>> = None;
        let mut forbidden = vec![false; last as usize + 1];
        for (number, patterns) in &self.numbered {
            let may = match &caller.identity {
                Some(peer) => patterns.match_peer(peer),
                None if is_local => patterns.match_process(caller.user, caller.group, || {
                    let groups = &mut groups;
                    let look_up = || groups.take().map(|groups| groups()).unwrap_or_default();
                    known.get_or_insert_with(look_up).clone()
                }),
                None => false,
            };
            forbidden[*number as usize] = !may;
        }
        forbidden.contains(&true).then(|| forbidden.into())
    }

    /// Returns the stub that serves the calls of `caller`: `serve`, or one that refuses some of them.
    pub(super) fn serve_for(
        &self,
        serve: &Arc<dyn Serve>,
        caller: &CallerInfo,
        denials: &Arc<Denials>,
        groups: impl FnOnce() -> Vec<u32>,
    ) -> Arc<dyn Serve> {
        match self.forbidden(caller, groups) {
            None => Arc::clone(serve),
            Some(forbidden) => {
                let terms = Terms {
                    forbidden,
                    export: caller.export.clone().into(),
                    identity: CallerIdentity::of(caller),
                    from: caller.from,
                    denials: Arc::clone(denials),
                };
                Arc::new(Limited { serve: Arc::clone(serve), terms: Arc::new(terms) })
            }
        }
    }
}

/// A server stub for a client that may not call all procedures.
struct Limited {
    serve: Arc<dyn Serve>,
    terms: Arc<Terms>,
}

struct Terms {
    /// For each procedure, whether the client may not call it.
    forbidden: Box<[bool]>,
    export: String,
    identity: Option<CallerIdentity>,
    from: Option<SocketAddr>,
    denials: Arc<Denials>,
}

impl Limited {
    #[inline]
    fn is_forbidden(&self, procedure: u32) -> bool {
        self.terms.forbidden.get(procedure as usize).copied().unwrap_or(false)
    }

    /// Refuses a call, whose message has `bytes` bytes. Layers see the refusal.
    #[cold]
    fn refuse(&self, procedure: u32, bytes: usize) -> Refusal {
        let interface = self.serve.interface();
        let Terms { export, identity, from, denials, .. } = &*self.terms;
        let denied = Denied {
            export,
            procedure: interface.procedure_name(procedure),
            identity: identity.as_ref(),
            from: *from,
        };
        denials.report(&denied);
        let refusal = Refusal::new(Kind::Denied, denied.to_string());
        if let Some(caller) = caller() {
            self.serve.refused(procedure, bytes, &caller, &refusal);
        }
        refusal
    }
}

impl Serve for Limited {
    fn interface(&self) -> InterfaceRef {
        self.serve.interface()
    }

    fn byte_order(&self) -> ByteOrder {
        self.serve.byte_order()
    }

    fn is_async(&self) -> bool {
        self.serve.is_async()
    }

    fn shared(&self) -> Option<Arc<dyn Serve>> {
        let serve = self.serve.shared()?;
        Some(Arc::new(Self { serve, terms: Arc::clone(&self.terms) }))
    }

    fn refused(&self, procedure: u32, bytes: usize, caller: &Caller, refusal: &Refusal) {
        self.serve.refused(procedure, bytes, caller, refusal);
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        let interface = self.serve.interface();
        let is_it = |program: &&crate::interface::Program| {
            program.system == call.system
                && program.number == call.program
                && program.version == call.version
        };
        let procedure = interface.programs().iter().find(is_it);
        let procedure = procedure.and_then(|program| program.index_of(call.procedure));
        match procedure {
            Some(procedure) if self.is_forbidden(procedure) => {
                Err(self.refuse(procedure, call.arguments.len()))
            }
            _ => self.serve.serve_foreign(call, results),
        }
    }

    #[inline]
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        let procedure = request.procedure();
        if self.is_forbidden(procedure) {
            return Err(self.refuse(procedure, request.bytes()));
        }
        self.serve.serve(request, reply)
    }
}

/// A call, or a request to bind, that a server refused because of who makes it:
/// [`Server::on_denied`](crate::Server::on_denied).
///
/// Displayed, it is a phrase such as `` `ada` may not call `erase` of `files` ``.
#[derive(Debug)]
pub struct Denied<'a> {
    pub(super) export: &'a str,
    pub(super) procedure: Option<&'a str>,
    pub(super) identity: Option<&'a CallerIdentity>,
    pub(super) from: Option<SocketAddr>,
}

impl Denied<'_> {
    /// Returns the name of the export.
    pub const fn export(&self) -> &str {
        self.export
    }

    /// Returns the name of the procedure. `None` if the client may not bind.
    pub const fn procedure(&self) -> Option<&str> {
        self.procedure
    }

    /// Returns who was refused. `None` if nothing proves who it is.
    pub const fn identity(&self) -> Option<&CallerIdentity> {
        self.identity
    }

    /// Returns the address and port of the client, on IP networks.
    pub const fn from(&self) -> Option<SocketAddr> {
        self.from
    }
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.identity {
            Some(identity) => write!(f, "`{identity}` may not ")?,
            None => f.write_str("a caller whose identity is not proven may not ")?,
        }
        match self.procedure {
            Some(procedure) => write!(f, "call `{procedure}` of `{}`", self.export),
            None => write!(f, "bind to `{}`", self.export),
        }
    }
}

/// What a program is told of callers that were refused.
pub(crate) type OnDenied = dyn Fn(&Denied<'_>) + Send + Sync;

/// Counts and reports callers that were refused because of who they are.
#[derive(Default)]
pub(crate) struct Denials {
    /// Where the server counts. Unset until it runs.
    page: OnceLock<Arc<Page>>,
    hook: Mutex<Option<Arc<OnDenied>>>,
}

impl Denials {
    /// Counts in these pages from now on.
    pub(super) fn count_in(&self, page: &Arc<Page>) {
        let _ = self.page.set(Arc::clone(page));
    }

    pub(crate) fn set_hook(&self, hook: Arc<OnDenied>) {
        *self.hook.lock() = Some(hook);
    }

    /// Returns how many calls and requests to bind were refused.
    pub(crate) fn count(&self) -> u64 {
        self.page.get().map_or(0, |page| page.denied())
    }

    #[cold]
    pub(super) fn report(&self, denied: &Denied<'_>) {
        if let Some(page) = self.page.get() {
            page.count_denied();
        }
        let hook = self.hook.lock().clone();
        if let Some(hook) = hook {
            // The call is refused in any case, also if the hook panics.
            let _ = catching(|| hook(denied));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Three;

    impl Serve for Three {
        fn interface(&self) -> InterfaceRef {
            InterfaceRef::none()
        }
        fn serve(&self, _: &mut Request<'_>, _: &mut Reply<'_>) -> Served {
            Ok(())
        }
    }

    fn local(user: u32, group: u32) -> CallerInfo {
        CallerInfo { user, group, ..CallerInfo::stranger(PathKind::Local, "three") }
    }

    fn unasked() -> Vec<u32> {
        panic!("the groups were looked up needlessly")
    }

    fn of(numbered: &[(u32, &[&str])]) -> Access {
        let numbered = numbered.iter().map(|(number, texts)| {
            (*number, Patterns::parse(*texts).expect("the patterns can be read"))
        });
        Access { numbered: numbered.collect(), ..Access::default() }
    }

    /// Returns for each procedure whether `caller` may not call it. `None` if the stub itself serves it.
    fn forbidden(access: &Access, caller: &CallerInfo, groups: fn() -> Vec<u32>) -> Option<String> {
        let serve: Arc<dyn Serve> = Arc::new(Three);
        let chosen = access.serve_for(&serve, caller, &Arc::default(), groups);
        let flags = access.forbidden(caller, groups);
        assert_eq!(Arc::ptr_eq(&chosen, &serve), flags.is_none());
        flags.map(|flags| flags.iter().map(|flag| if *flag { 'x' } else { '-' }).collect())
    }

    #[test]
    fn client_that_may_call_everything_uses_the_stub_itself() {
        let own = rustix::process::geteuid().as_raw();
        let limited = of(&[(0, &["uid:1000"]), (2, &["gid:50", "uid:1000"])]);
        assert_eq!(forbidden(&Access::default(), &local(7, 7), unasked), None);
        assert_eq!(forbidden(&limited, &local(1000, 7), unasked), None);
        for all in [own, 0] {
            assert_eq!(forbidden(&limited, &local(all, 7), unasked), None);
        }
        assert_eq!(forbidden(&limited, &local(7, 50), unasked).as_deref(), Some("x--"));
        assert_eq!(forbidden(&limited, &local(7, 7), || vec![5, 50]).as_deref(), Some("x--"));
        assert_eq!(forbidden(&limited, &local(7, 7), || vec![5, 51]).as_deref(), Some("x-x"));
    }

    #[test]
    fn caller_whose_user_nothing_proves_matches_no_pattern() {
        let limited = of(&[(1, &["uid:0", "uid:1000", "gid:0"])]);
        for path in [PathKind::Tcp, PathKind::Udp, PathKind::Ethernet, PathKind::OncTcp] {
            // Such numbers in a caller of a network would be a mistake of the path.
            for user in [0, 1000, CallerInfo::NOBODY] {
                let caller = CallerInfo { path, ..local(user, 0) };
                assert_eq!(forbidden(&limited, &caller, unasked).as_deref(), Some("-x"));
            }
        }
    }

    #[test]
    fn groups_are_looked_up_once() {
        let limited = of(&[(0, &["gid:1"]), (1, &["gid:2"]), (2, &["gid:3"])]);
        static LOOKED: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
        let groups = || {
            LOOKED.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
            vec![2]
        };
        assert_eq!(
            limited.forbidden(&local(7, 7), groups).as_deref(),
            Some(&[true, false, true][..])
        );
        assert_eq!(LOOKED.load(core::sync::atomic::Ordering::Relaxed), 1);
    }
}
