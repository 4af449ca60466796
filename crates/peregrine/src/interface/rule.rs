//! The rules for differences between the interfaces of client and server (docs/EVOLUTION.md).

/// A rule that a difference between two interfaces follows or breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// A procedure was added.
    ProcedureAdded,
    /// A procedure was removed.
    ProcedureRemoved,
    /// A name has changed, and the part with the new name has the attribute `#[was("old")]`.
    Renamed,
    /// A field or parameter with a default was added or removed.
    Default,
    /// The sender has a variant that the receiver does not have, and the receiver's enum has a variant for
    /// unknown variants.
    OpenEnum,
    /// The receiver of an enum knows more variants than the sender can send.
    VariantNotSent,
    /// The error of a procedure may be a variant that the client does not know.
    UnknownError,
    /// An integer has another width, and both sides have `#[widens]`.
    Widened,
    /// The server's `max_len` is larger, or the `max_len` of an `Out` buffer differs.
    MoreRoom,
    /// `#[idempotent]` was added.
    MayRunTwice,
    /// The interfaces have different names or versions.
    Interface,
    /// The server's interface contains no procedure of the client's interface.
    NoProcedure,
    /// A field or parameter without a default was added or removed.
    NoDefault,
    /// Fields or parameters are in another order.
    Order,
    /// The receiver of an enum would receive a variant that it does not have, and has no variant for unknown
    /// variants.
    ClosedEnum,
    /// An integer has another width, and one side does not have `#[widens]`.
    Width,
    /// A type differs in a way that no other rule covers.
    Type,
    /// A parameter is passed in another way.
    Passing,
    /// The server's `max_len` is smaller.
    LessRoom,
    /// `#[idempotent]` was removed.
    MayNotRunTwice,
    /// `#[oneway]` was added or removed.
    OneWay,
    /// A description is incomplete, or too complex to be compared.
    Description,
}

impl Rule {
    /// All rules.
    pub const ALL: &'static [Self] = &[
        Self::ProcedureAdded,
        Self::ProcedureRemoved,
        Self::Renamed,
        Self::Default,
        Self::OpenEnum,
        Self::VariantNotSent,
        Self::UnknownError,
        Self::Widened,
        Self::MoreRoom,
        Self::MayRunTwice,
        Self::Interface,
        Self::NoProcedure,
        Self::NoDefault,
        Self::Order,
        Self::ClosedEnum,
        Self::Width,
        Self::Type,
        Self::Passing,
        Self::LessRoom,
        Self::MayNotRunTwice,
        Self::OneWay,
        Self::Description,
    ];

    /// Returns whether a client can use the server despite a difference of this rule.
    pub const fn fits(self) -> bool {
        (self as usize) < Self::Interface as usize
    }

    /// Returns the word for the rule in JSON output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProcedureAdded => "procedure-added",
            Self::ProcedureRemoved => "procedure-removed",
            Self::Renamed => "renamed",
            Self::Default => "default",
            Self::OpenEnum => "open-enum",
            Self::VariantNotSent => "variant-not-sent",
            Self::UnknownError => "unknown-error",
            Self::Widened => "widened",
            Self::MoreRoom => "more-room",
            Self::MayRunTwice => "may-run-twice",
            Self::Interface => "interface",
            Self::NoProcedure => "no-procedure",
            Self::NoDefault => "no-default",
            Self::Order => "order",
            Self::ClosedEnum => "closed-enum",
            Self::Width => "width",
            Self::Type => "type",
            Self::Passing => "passing",
            Self::LessRoom => "less-room",
            Self::MayNotRunTwice => "may-not-run-twice",
            Self::OneWay => "one-way",
            Self::Description => "description",
        }
    }

    /// Returns the rule as a sentence.
    pub const fn text(self) -> &'static str {
        match self {
            Self::ProcedureAdded => "procedures may be added",
            Self::ProcedureRemoved => {
                "procedures may be removed: calls of them are refused and not executed"
            }
            Self::Renamed => "a name may change if the new one has `#[was(\"old\")]`",
            Self::Default => "fields and parameters with a default may be added and removed",
            Self::OpenEnum => "the `#[other]` variant of an enum receives unknown variants",
            Self::VariantNotSent => "the receiver of an enum may know more variants",
            Self::UnknownError => "an unknown variant of an error becomes a `CallError`",
            Self::Widened => "an integer with `#[widens]` on both sides may have another width",
            Self::MoreRoom => "the server may allow more elements",
            Self::MayRunTwice => "`#[idempotent]` may be added",
            Self::Interface => "the name and the version of an interface must not change",
            Self::NoProcedure => "at least one procedure of the client must remain",
            Self::NoDefault => {
                "fields and parameters can only be added or removed if they have a default: \
                 an `Option`, or `#[default]`"
            }
            Self::Order => "fields and parameters must keep their order",
            Self::ClosedEnum => {
                "variants can only be added to an enum with an `#[other]` variant, or to an error"
            }
            Self::Width => "an integer can only change its width with `#[widens]` on both sides",
            Self::Type => "a type must not change",
            Self::Passing => "the way in which a parameter is passed must not change",
            Self::LessRoom => "the server must allow as many elements as the client",
            Self::MayNotRunTwice => "`#[idempotent]` must not be removed",
            Self::OneWay => "`#[oneway]` must be neither added nor removed",
            Self::Description => "a description must be whole, and not too intricate",
        }
    }
}
