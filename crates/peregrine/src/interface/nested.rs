//! The interfaces of callbacks, which a description contains as named types.

use super::brief::Brief;
use super::{
    Described, DescribedBody, DescribedGrowth, DescribedNamed, DescribedParameter,
    DescribedProcedure, DescribedType, Direction, Shape,
};

impl Described {
    /// Returns the interface of a callback as a separate description. Returns `None` if `ty` is not such an
    /// interface. The returned interface has no documentation, because a description contains none for
    /// callbacks.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let chat = Described::parse(
    ///     "interface Chat version 0\n\
    ///      join(in name: text, callback listener: Listener#0) -> CallError#1 or CallError#1\n\
    ///      Listener#0 = interface version 2 {said(in text: str) -> unit or CallError#1}\n\
    ///      CallError#1 = struct {chain: text}\n",
    /// )?;
    /// let listener = chat.interface_of(&chat.procedures[0].parameters[1].ty).unwrap();
    /// assert_eq!(
    ///     listener.to_string(),
    ///     "interface Listener version 2\n\
    ///      said(in text: str) -> unit or CallError#0\n\
    ///      CallError#0 = struct {chain: text}\n"
    /// );
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn interface_of(&self, ty: &DescribedType) -> Option<Self> {
        let DescribedType::Named(number) = ty else { return None };
        let named = self.types.get(*number)?;
        let DescribedBody::Interface { version, procedures } = &named.body else { return None };
        let mut numbers = Numbers { of: vec![None; self.types.len()], order: Vec::new() };
        let mut procedures = procedures.clone();
        procedures.iter_mut().for_each(|one| numbers.procedure(one));
        let mut types: Vec<DescribedNamed> = Vec::new();
        // The body of one type may mention further types.
        while let Some(&number) = numbers.order.get(types.len()) {
            let mut named = self.types.get(number)?.clone();
            numbers.body(&mut named.body);
            types.push(named);
        }
        let (name, docs) = (named.name.clone(), String::new());
        Some(Self { name, version: *version, docs, procedures, types, programs: Vec::new() })
    }

    /// Finds the first callback parameter that is not possible, or the first interface that is used as the
    /// type of values. Returns its line in the canonical text, and the reason.
    pub(super) fn impossible_callback(&self) -> Option<(usize, String)> {
        let types = self.procedures.len() + 2;
        let own = (2..)
            .zip(&self.procedures)
            .find_map(|(line, one)| self.misused_in_procedure(one).map(|what| (line, what)));
        own.or_else(|| {
            (types..).zip(&self.types).find_map(|(line, named)| {
                self.misused_in_body(&named.body).map(|what| (line, what))
            })
        })
    }

    fn misused_in_procedure(&self, one: &DescribedProcedure) -> Option<String> {
        let result = || self.misused(&one.result).or_else(|| self.misused(&one.error));
        one.parameters.iter().find_map(|one| self.misused_in_parameter(one)).or_else(result)
    }

    fn misused_in_parameter(&self, one: &DescribedParameter) -> Option<String> {
        if one.direction != Direction::Callback {
            return self.misused(&one.ty);
        }
        let name = Brief(&one.name);
        if !self.is_interface(&one.ty) || one.shape != Shape::One {
            return Some(format!("the type of the callback `{name}` is not an interface"));
        }
        let DescribedGrowth { widens, default, was: _ } = &one.growth;
        let has = match (one.max_len, widens, default) {
            (None, false, None) => return None,
            (Some(_), ..) => "a maximum length",
            (_, true, _) => "`widens`",
            _ => "a default",
        };
        Some(format!("the callback `{name}` has {has}"))
    }

    fn misused_in_body(&self, body: &DescribedBody) -> Option<String> {
        match body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                fields.iter().find_map(|one| self.misused(&one.ty))
            }
            DescribedBody::PlainEnum { .. } => None,
            DescribedBody::Enum(variants) => {
                let mut fields = variants.iter().flat_map(|one| &one.fields);
                fields.find_map(|one| self.misused(&one.ty))
            }
            DescribedBody::Interface { procedures, .. } => {
                procedures.iter().find_map(|one| self.misused_in_procedure(one))
            }
        }
    }

    /// Returns why values cannot have a type, if this type is an interface or contains an interface.
    fn misused(&self, ty: &DescribedType) -> Option<String> {
        match ty {
            DescribedType::Array(one, _)
            | DescribedType::Sequence(one)
            | DescribedType::Option(one) => self.misused(one),
            DescribedType::Result(ok, error) => self.misused(ok).or_else(|| self.misused(error)),
            DescribedType::Tuple(parts) => parts.iter().find_map(|one| self.misused(one)),
            DescribedType::Named(number) if self.is_interface(ty) => {
                let name = Brief(&self.types[*number].name);
                Some(format!("the interface `{name}` may only be the type of a callback"))
            }
            _ => None,
        }
    }

    fn is_interface(&self, ty: &DescribedType) -> bool {
        let DescribedType::Named(number) = ty else { return false };
        let body = self.types.get(*number).map(|named| &named.body);
        matches!(body, Some(DescribedBody::Interface { .. }))
    }
}

/// The types that a part of a description mentions, numbered in the order of their first mention.
struct Numbers {
    /// The new number of each type.
    of: Vec<Option<usize>>,
    /// The old number of each type that has a new number.
    order: Vec<usize>,
}

impl Numbers {
    fn procedure(&mut self, one: &mut DescribedProcedure) {
        one.parameters.iter_mut().for_each(|one| self.ty(&mut one.ty));
        self.ty(&mut one.result);
        self.ty(&mut one.error);
    }

    fn body(&mut self, body: &mut DescribedBody) {
        match body {
            DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                fields.iter_mut().for_each(|one| self.ty(&mut one.ty));
            }
            DescribedBody::PlainEnum { .. } => {}
            DescribedBody::Enum(variants) => {
                let fields = variants.iter_mut().flat_map(|one| &mut one.fields);
                fields.for_each(|one| self.ty(&mut one.ty));
            }
            DescribedBody::Interface { procedures, .. } => {
                procedures.iter_mut().for_each(|one| self.procedure(one));
            }
        }
    }

    fn ty(&mut self, ty: &mut DescribedType) {
        match ty {
            DescribedType::Array(one, _)
            | DescribedType::Sequence(one)
            | DescribedType::Option(one) => self.ty(one),
            DescribedType::Result(ok, error) => {
                self.ty(ok);
                self.ty(error);
            }
            DescribedType::Tuple(parts) => parts.iter_mut().for_each(|one| self.ty(one)),
            DescribedType::Named(number) => {
                let Some(known) = self.of.get_mut(*number) else { return };
                *number = *known.get_or_insert_with(|| {
                    self.order.push(*number);
                    self.order.len() - 1
                });
            }
            _ => {}
        }
    }
}
