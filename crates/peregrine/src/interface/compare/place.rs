//! The place of a difference in an interface. It is converted to a text only if the difference is listed.

use core::fmt::{self, Display};

use super::super::brief::Brief;
use super::super::matching::Part;
use super::items::Within;

/// The maximum number of names that a text lists.
const NAMES_MAX: usize = 20;

/// A place in the interface of the client.
#[derive(Clone, Copy, Default)]
pub(super) struct Place<'a> {
    is_inside: bool,
    procedure: Option<&'a str>,
    pub(super) portion: Portion<'a>,
    /// The interface of a callback that contains the place, and a procedure of this interface.
    nested: (Option<&'a str>, Option<&'a str>),
    /// The named type that contains the place. `variant` and `field` say where in this type the place is.
    ty: Option<&'a str>,
    variant: Option<&'a str>,
    pub(super) field: Option<&'a str>,
}

/// A part of a procedure.
#[derive(Clone, Copy, Default)]
pub(super) enum Portion<'a> {
    #[default]
    Whole,
    Parameter(&'a str),
    Result,
    Error,
}

impl<'a> Place<'a> {
    pub(super) fn interface() -> Self {
        Self { is_inside: true, ..Self::default() }
    }

    pub(super) fn procedure(name: &'a str) -> Self {
        Self { procedure: Some(name), ..Self::interface() }
    }

    pub(super) fn enter_type(&mut self, name: &'a str) {
        *self = Self { ty: Some(name), variant: None, field: None, ..*self };
    }

    pub(super) fn enter_variant(&mut self, name: &'a str) {
        (self.variant, self.field) = (Some(name), None);
    }

    /// Enters the interface of a callback.
    pub(super) fn enter_callback(&mut self, Within { interface, procedure, ty }: Within<'a>) {
        *self = Self { nested: (interface, procedure), ty, ..*self };
    }

    pub(super) fn leave_callback(&mut self) {
        self.enter_callback(Within::default());
    }

    pub(super) fn leave_type(&mut self) {
        *self = Self { ty: None, variant: None, field: None, ..*self };
    }

    /// Returns the place as a text. `interface` is the name of the interface.
    pub(super) fn text(&self, interface: &str) -> String {
        if !self.is_inside {
            return String::new();
        }
        let mut text = format!("interface `{}`", Brief(interface));
        if let Some(name) = self.procedure {
            text += &format!(", procedure `{}`", Brief(name));
        }
        match self.portion {
            Portion::Whole => {}
            Portion::Parameter(name) => text += &format!(", parameter `{}`", Brief(name)),
            Portion::Result => text += ", result",
            Portion::Error => text += ", error",
        }
        text
    }

    /// Returns the place in the interface of a callback, or in a named type, as a text. The text is empty if
    /// the place is in neither.
    pub(super) fn inside_text(&self) -> String {
        let parts = [
            ("interface", self.nested.0),
            ("procedure", self.nested.1),
            ("type", self.ty),
            ("variant", self.variant),
            ("field", self.field),
        ];
        let mut text = String::new();
        for (what, name) in parts {
            if let Some(name) = name {
                text += if text.is_empty() { "in " } else { ", " };
                text += &format!("{what} `{}`", Brief(name));
            }
        }
        text
    }
}

/// The names of several parts. At most [`NAMES_MAX`] of them are shown.
pub(super) struct Names<'a> {
    shown: Vec<&'a str>,
    all: usize,
    quote: &'static str,
}

impl<'a> Names<'a> {
    pub(super) fn of<P: Part + 'a>(parts: impl IntoIterator<Item = &'a P>) -> Self {
        let (mut shown, mut all) = (Vec::new(), 0);
        for part in parts {
            all += 1;
            if all <= NAMES_MAX {
                shown.push(part.names().0);
            }
        }
        Self { shown, all, quote: "`" }
    }

    /// Returns the names without quotes.
    pub(super) fn plain(self) -> Self {
        Self { quote: "", ..self }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all == 0
    }
}

impl Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quote = self.quote;
        let names: Vec<_> =
            self.shown.iter().map(|name| format!("{quote}{}{quote}", Brief(name))).collect();
        write!(f, "{}", Brief(names.join(", ")))?;
        match self.all - self.shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
