//! What a client sets for all its calls in addition to their arguments: a time limit, and metadata.
//!
//! Most clients set neither. Both types have a variant of their own for that, so that such a call tests one
//! word.

use core::time::Duration;
use std::time::Instant;

use super::{Limit, Metadata, due};
use crate::steps;

/// What a client has set for each of its calls.
#[derive(Clone, Debug)]
pub(crate) enum Terms {
    /// Nothing.
    None,
    /// A time limit, from the beginning of each call.
    Within(Duration),
    /// A moment at which calls must end.
    Until(Instant),
    /// Metadata, and perhaps a limit.
    Metadata { metadata: Metadata, limit: Limit },
    /// The steps of each call are recorded, for an account.
    Accounted(Limit),
}

/// What holds for one call, which has begun.
#[derive(Clone, Copy, Debug)]
pub enum CallTerms<'a> {
    /// The call has neither a deadline nor metadata.
    None,
    /// The call has a deadline, and no metadata.
    Until(Instant),
    /// The call has metadata, and perhaps a deadline.
    Metadata {
        /// The metadata that is sent with the call.
        metadata: &'a Metadata,
        /// The moment at which the call must end.
        deadline: Option<Instant>,
    },
    /// The steps of the call are recorded.
    Accounted {
        /// The moment at which the call must end.
        deadline: Option<Instant>,
    },
}

impl From<Limit> for Terms {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::None => Self::None,
            Limit::Within(limit) => Self::Within(limit),
            Limit::Until(moment) => Self::Until(moment),
        }
    }
}

impl Terms {
    fn limit(&self) -> Limit {
        match self {
            Self::None => Limit::None,
            Self::Within(limit) => Limit::Within(*limit),
            Self::Until(moment) => Limit::Until(*moment),
            Self::Metadata { limit, .. } | Self::Accounted(limit) => *limit,
        }
    }

    /// Returns the metadata of each call.
    pub(crate) const fn metadata(&self) -> &Metadata {
        match self {
            Self::Metadata { metadata, .. } => metadata,
            _ => Metadata::EMPTY,
        }
    }

    /// Returns these terms with another limit.
    pub(crate) fn with_limit(&self, limit: Limit) -> Self {
        match self {
            Self::Metadata { metadata, .. } => Self::Metadata { metadata: metadata.clone(), limit },
            Self::Accounted(_) => Self::Accounted(limit),
            _ => limit.into(),
        }
    }

    /// Returns these terms with other metadata.
    pub(crate) fn with_metadata(&self, metadata: Metadata) -> Self {
        match (self, metadata.is_empty()) {
            (Self::Accounted(_), true) => self.clone(),
            (_, true) => self.limit().into(),
            (_, false) => Self::Metadata { metadata, limit: self.limit() },
        }
    }

    /// Returns terms with the same limit, for calls whose steps are recorded. Such calls have no metadata.
    pub(crate) fn accounted(&self) -> Self {
        Self::Accounted(self.limit())
    }

    /// Returns whether the steps of calls are recorded.
    pub(crate) const fn are_accounted(&self) -> bool {
        matches!(self, Self::Accounted(_))
    }

    /// Returns terms with the same limit, for calls whose steps are not recorded.
    pub(crate) fn unaccounted(&self) -> Self {
        match self {
            Self::Accounted(limit) => (*limit).into(),
            other => other.clone(),
        }
    }

    /// Returns what holds for a call that begins now. A call that a procedure makes may not last longer than
    /// the procedure's own caller waits.
    #[inline]
    pub(crate) fn begun(&self) -> CallTerms<'_> {
        let own = match self {
            Self::None => None,
            // A limit beyond the clock's range counts as no limit.
            Self::Within(limit) => Instant::now().checked_add(*limit),
            Self::Until(moment) => Some(*moment),
            Self::Metadata { metadata, limit } => return begun_with_metadata(metadata, *limit),
            Self::Accounted(limit) => return begun_accounted(*limit),
        };
        match (own, due()) {
            (None, None) => CallTerms::None,
            (Some(one), None) | (None, Some(one)) => CallTerms::Until(one),
            (Some(own), Some(due)) => CallTerms::Until(own.min(due)),
        }
    }
}

#[cold]
fn begun_with_metadata(metadata: &Metadata, limit: Limit) -> CallTerms<'_> {
    let deadline = limit.deadline().into_iter().chain(due()).min();
    CallTerms::Metadata { metadata, deadline }
}

#[cold]
fn begun_accounted(limit: Limit) -> CallTerms<'static> {
    steps::begin();
    let deadline = match (limit.deadline(), due()) {
        (Some(own), Some(due)) => Some(own.min(due)),
        (own, due) => own.or(due),
    };
    CallTerms::Accounted { deadline }
}

impl<'a> CallTerms<'a> {
    /// Returns the terms of a call that has no metadata.
    #[inline]
    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        deadline.map_or(Self::None, Self::Until)
    }

    /// Returns whether the call has neither a deadline nor metadata.
    #[inline]
    pub(crate) const fn are_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the moment at which the call must end.
    #[inline]
    pub(crate) const fn deadline(&self) -> Option<Instant> {
        match *self {
            Self::None => None,
            Self::Until(deadline) => Some(deadline),
            Self::Metadata { deadline, .. } | Self::Accounted { deadline } => deadline,
        }
    }

    /// Returns the metadata of the call, if it has any.
    #[inline]
    pub(crate) const fn metadata(&self) -> Option<&'a Metadata> {
        match *self {
            Self::Metadata { metadata, .. } => Some(metadata),
            Self::None | Self::Until(_) | Self::Accounted { .. } => None,
        }
    }

    /// Returns whether the server must know the terms.
    #[inline]
    pub(crate) const fn are_sent(&self) -> bool {
        !matches!(self, Self::None | Self::Accounted { deadline: None })
    }

    /// Returns whether the steps of the call are recorded.
    #[cold]
    pub(crate) const fn are_accounted(&self) -> bool {
        matches!(self, Self::Accounted { .. })
    }
}

// A call copies its terms several times. Two registers of 16 bytes hold them.
const _: () = assert!(size_of::<CallTerms<'_>>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_and_metadata_do_not_change_each_other() {
        let metadata = Metadata::EMPTY.with([("k", "v")]).unwrap();
        let (long, now) = (Duration::from_secs(60), Instant::now());
        for limit in [Limit::None, Limit::Within(long), Limit::Until(now)] {
            let plain = Terms::from(limit);
            let both = plain.with_metadata(metadata.clone());
            assert_eq!((plain.limit(), both.limit()), (limit, limit));
            assert_eq!(both.begun().metadata(), Some(&metadata));
            assert_eq!(both.begun().deadline().is_some(), limit != Limit::None);
            assert!(plain.begun().metadata().is_none() && plain.metadata().is_empty());
            assert_eq!(plain.begun().are_none(), limit == Limit::None);
            let until = both.with_limit(Limit::Until(now));
            assert_eq!((until.begun().deadline(), until.metadata()), (Some(now), &metadata));
            assert!(both.with_metadata(Metadata::EMPTY.clone()).begun().metadata().is_none());
        }
        assert!(CallTerms::until(None).are_none());
        assert_eq!(CallTerms::until(Some(now)).deadline(), Some(now));
    }
}
