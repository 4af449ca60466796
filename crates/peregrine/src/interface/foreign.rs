//! What other RPC systems need to know of an interface, beyond what its identity contains: the numbers of
//! programs, procedures and variants, and the largest counts. The text form of this is the *foreign text*
//! (docs/FOREIGN.md, part 5).

use core::fmt::Write as _;
use std::borrow::Cow;

use super::described::{
    Described, DescribedBody, DescribedField, DescribedNamed, DescribedType, DescribedVariant,
};
use super::text::TextError;
use super::{Body, Field, Interface, Program, System, Variant};
use crate::limits;

/// How other RPC systems identify a variant of an enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// The number of the variant: `#[foreign(case = N)]`, or the discriminant in an enum without fields.
    Number(i64),
    /// All numbers that no other variant has: `#[foreign(default)]`. The first field of the variant is the
    /// number.
    Default,
    /// The number of an error that Courier procedures report: `#[foreign(error = N)]`.
    Error(u16),
}

impl Case {
    /// Returns the case of the variant with the index `index` and the number `number`. Returns `None` if
    /// `index` and `number` are equal.
    #[must_use]
    pub const fn numbered(index: i64, number: i64) -> Option<Self> {
        if index == number { None } else { Some(Self::Number(number)) }
    }
}

/// Each system, with its name in foreign texts.
pub(crate) const SYSTEMS: &[(&str, System)] = &[("onc", System::Onc), ("courier", System::Courier)];

fn write_programs(programs: &[Program], text: &mut String) {
    for Program { system, number, version, procedures } in programs {
        let name = SYSTEMS.iter().find(|(_, one)| one == system).map_or("", |(name, _)| name);
        let _ = write!(text, "program {name} {number} version {version} procedures");
        for procedure in procedures.iter() {
            let _ = write!(text, " {procedure}");
        }
        text.push('\n');
    }
}

fn write_max(place: &str, max: Option<u32>, text: &mut String) {
    if let Some(max) = max {
        let _ = writeln!(text, "{place} max {max}");
    }
}

fn write_case(place: &str, case: Option<Case>, text: &mut String) {
    let _ = match case {
        None => Ok(()),
        Some(Case::Number(number)) => writeln!(text, "{place} case {number}"),
        Some(Case::Default) => writeln!(text, "{place} default"),
        Some(Case::Error(number)) => writeln!(text, "{place} error {number}"),
    };
}

impl Interface {
    /// Returns the foreign text of the interface, like [`Described::foreign_text`].
    pub fn foreign_text(&self) -> String {
        let mut text = String::new();
        write_programs(self.programs, &mut text);
        let fields = |place: String, fields: &[Field], text: &mut String| {
            for (index, field) in fields.iter().enumerate() {
                write_max(&format!("{place} field {index}"), field.max, text);
            }
        };
        for (number, named) in self.text_and_types().1.into_iter().enumerate() {
            match (named.body)() {
                Body::Struct(all) => fields(format!("type {number}"), all, &mut text),
                Body::Enum(variants) => {
                    for (index, Variant { fields: all, case, .. }) in variants.iter().enumerate() {
                        let place = format!("type {number} variant {index}");
                        write_case(&place, *case, &mut text);
                        fields(place, all, &mut text);
                    }
                }
                Body::Plain { .. } | Body::PlainEnum { .. } | Body::Interface(_) => {}
            }
        }
        text
    }

    /// Returns the description as owned data, without the documentation.
    ///
    /// # Errors
    /// If the interface has more types, or more deeply nested types, than a description may have.
    pub fn described(&self) -> Result<Described, TextError> {
        Described::parse(&self.canonical_text())?.with_foreign_text(&self.foreign_text())
    }
}

impl Described {
    /// Returns what other RPC systems need to know of the interface, one fact in a line: the programs, the
    /// numbers of variants, and the largest counts. A server sends this text beside the canonical text. The
    /// identity does not contain it.
    ///
    /// ```
    /// use peregrine::interface::Described;
    ///
    /// let text = "interface Names version 1\nfind(in key: Key#0) -> unit or CallError#1\n\
    ///             Key#0 = struct {name: text}\nCallError#1 = struct {chain: text}\n";
    /// let foreign = "program onc 536870912 version 1 procedures 4\ntype 0 field 0 max 255\n";
    /// let names = Described::parse(text)?.with_foreign_text(foreign)?;
    /// assert_eq!(names.programs[0].procedures[..], [4]);
    /// assert_eq!((names.to_string(), names.foreign_text()), (text.into(), foreign.into()));
    /// # Ok::<(), peregrine::interface::TextError>(())
    /// ```
    pub fn foreign_text(&self) -> String {
        let mut text = String::new();
        write_programs(&self.programs, &mut text);
        let fields = |place: String, fields: &[DescribedField], text: &mut String| {
            for (index, field) in fields.iter().enumerate() {
                write_max(&format!("{place} field {index}"), field.max, text);
            }
        };
        for (number, DescribedNamed { body, .. }) in self.types.iter().enumerate() {
            match body {
                DescribedBody::Struct(all) => fields(format!("type {number}"), all, &mut text),
                DescribedBody::Enum(variants) => {
                    for (index, one) in variants.iter().enumerate() {
                        let place = format!("type {number} variant {index}");
                        write_case(&place, one.case, &mut text);
                        fields(place, &one.fields, &mut text);
                    }
                }
                _ => {}
            }
        }
        text
    }

    /// Adds the content of a foreign text to the interface, and returns the interface.
    ///
    /// # Errors
    /// If the text is not the foreign text of an interface with these procedures and types.
    pub fn with_foreign_text(mut self, text: &str) -> Result<Self, TextError> {
        if text.len() > limits::CANONICAL_BYTES_MAX {
            let max = limits::CANONICAL_BYTES_MAX;
            return Err(TextError::foreign(1, format!("{} bytes are more than {max}", text.len())));
        }
        for (line, text) in (1..).zip(text.lines()) {
            let words: Vec<&str> = text.split(' ').collect();
            self.read_fact(&words).map_err(|what| TextError::foreign(line, what))?;
        }
        match self.foreign_text() == text {
            true => {
                self.impossible_case().map_or(Ok(self), |what| Err(TextError::foreign(1, what)))
            }
            false => {
                let what = "the lines are not in order, or a number is not in its shortest form";
                Err(TextError::foreign(1, what.into()))
            }
        }
    }

    /// Reads one line of a foreign text, which consists of these words.
    fn read_fact(&mut self, words: &[&str]) -> Result<(), String> {
        match words {
            ["program", system, program, "version", version, "procedures", procedures @ ..] => {
                let found = SYSTEMS.iter().find(|(name, _)| name == system);
                let (_, system) = found.ok_or("expected `onc` or `courier`")?;
                let procedures: Vec<u32> =
                    procedures.iter().map(|one| number(one)).collect::<Result<_, _>>()?;
                self.programs.push(Program {
                    system: *system,
                    number: number(program)?,
                    version: number(version)?,
                    procedures: Cow::Owned(procedures),
                });
                Ok(())
            }
            ["type", ty, rest @ ..] => {
                let named = self.types.get_mut(number::<usize>(ty)?);
                let body = &mut named.ok_or("there is no such type")?.body;
                match (body, rest) {
                    (DescribedBody::Struct(fields), rest) => read_max(fields, rest),
                    (DescribedBody::Enum(variants), ["variant", variant, rest @ ..]) => {
                        let variant = variants.get_mut(number::<usize>(variant)?);
                        read_variant(variant.ok_or("there is no such variant")?, rest)
                    }
                    _ => Err("expected a fact that a type of this kind can have".into()),
                }
            }
            _ => Err("expected `program` or `type`".into()),
        }
    }

    /// Returns why other RPC systems cannot use the interface with its present numbers and largest counts.
    /// Returns `None` if they can.
    pub(super) fn impossible_case(&self) -> Option<String> {
        for (index, program) in self.programs.iter().enumerate() {
            if self.programs[..index].iter().any(|one| one.system == program.system) {
                return Some(format!("two programs of {}", program.system));
            }
            let mut numbers = program.procedures.to_vec();
            numbers.sort_unstable();
            let distinct = numbers.windows(2).all(|pair| pair[0] != pair[1]);
            if numbers.len() != self.procedures.len() || !distinct {
                return Some("each procedure of a program needs a number of its own".into());
            }
        }
        self.types.iter().find_map(|DescribedNamed { name, body }| match body {
            DescribedBody::Struct(fields) => self.impossible_max(fields),
            DescribedBody::Enum(variants) => {
                let max = variants.iter().find_map(|one| self.impossible_max(&one.fields));
                max.or_else(|| impossible_cases(name, variants))
            }
            _ => None,
        })
    }

    fn impossible_max(&self, fields: &[DescribedField]) -> Option<String> {
        let wrong = fields.iter().find(|one| one.max.is_some() && !self.has_count(&one.ty))?;
        Some(format!("`{}` has a largest count, but no count", super::brief::Brief(&wrong.name)))
    }

    /// Returns whether other RPC systems send a value of this type with a count that can be bounded.
    fn has_count(&self, ty: &DescribedType) -> bool {
        match ty {
            DescribedType::Text | DescribedType::Sequence(_) => true,
            DescribedType::Named(number) => self.is_byte_string(*number),
            _ => false,
        }
    }

    /// Returns whether a named type is [`ByteString`](crate::foreign::ByteString).
    pub(crate) fn is_byte_string(&self, number: usize) -> bool {
        let Some(DescribedNamed { name, body: DescribedBody::Struct(fields) }) =
            self.types.get(number)
        else {
            return false;
        };
        let [DescribedField { name: field, ty: DescribedType::Sequence(one), .. }] = &fields[..]
        else {
            return false;
        };
        name == "ByteString" && field == "0" && **one == DescribedType::U8
    }
}

fn number<N: core::str::FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("`{}` is not a number in range", word.escape_debug()))
}

fn read_max(fields: &mut [DescribedField], words: &[&str]) -> Result<(), String> {
    let ["field", field, "max", max] = words else {
        return Err("expected `field N max N`".into());
    };
    let field = fields.get_mut(number::<usize>(field)?).ok_or("there is no such field")?;
    field.max = Some(number(max)?);
    Ok(())
}

fn read_variant(variant: &mut DescribedVariant, words: &[&str]) -> Result<(), String> {
    variant.case = Some(match words {
        ["case", case] => Case::Number(number(case)?),
        ["default"] => Case::Default,
        ["error", error] => Case::Error(number(error)?),
        field => return read_max(&mut variant.fields, field),
    });
    Ok(())
}

/// Returns why variants cannot have these cases, for example because two of them have the same number.
/// Returns `None` if they can.
fn impossible_cases(name: &str, variants: &[DescribedVariant]) -> Option<String> {
    let name = super::brief::Brief(name);
    let has_errors = variants.iter().any(|one| matches!(one.case, Some(Case::Error(_))));
    let (mut numbers, mut defaults) = (Vec::new(), 0);
    for (index, variant) in variants.iter().enumerate() {
        match variant.case {
            Some(Case::Error(number)) => numbers.push(i64::from(number)),
            None if has_errors => {}
            Some(_) if has_errors => {
                return Some(format!("`{name}` has both errors and other numbers"));
            }
            Some(Case::Number(number)) => numbers.push(number),
            None => numbers.push(index as i64),
            Some(Case::Default) => {
                defaults += 1;
                let is_number = variant.fields.first().is_some_and(|one| {
                    matches!(one.ty, DescribedType::I32 | DescribedType::U32 | DescribedType::U16)
                });
                if !is_number {
                    let what = "the first field of the default variant is not its number";
                    return Some(format!("`{name}`: {what}"));
                }
            }
        }
    }
    numbers.sort_unstable();
    let twice = defaults > 1 || numbers.windows(2).any(|pair| pair[0] == pair[1]);
    twice.then(|| format!("two variants of `{name}` have the same number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "interface I version 0\nf(in a: U#0) -> unit or E#1\n\
        U#0 = enum A {} B {0: text, n: sequence<u8>} C {0: i32}\nE#1 = enum X {} Y {}\n";

    fn read(foreign: &str) -> Result<Described, String> {
        let described = Described::parse(TEXT).unwrap();
        described.with_foreign_text(foreign).map_err(|error| error.to_string())
    }

    #[test]
    fn foreign_text_is_read_and_printed() {
        let text = "program onc 100005 version 3 procedures 1\n\
            program courier 15 version 2 procedures 0\n\
            type 0 variant 0 case -7\ntype 0 variant 1 case 9\ntype 0 variant 1 field 0 max 255\n\
            type 0 variant 2 default\ntype 1 variant 1 error 4\n";
        let read = read(text).unwrap();
        assert_eq!(read.foreign_text(), text);
        assert_eq!(read.digest(), Described::parse(TEXT).unwrap().digest());
        assert_eq!(read.to_string(), TEXT);
    }

    #[test]
    fn wrong_foreign_text_is_refused_with_its_reason() {
        for (text, reason) in [
            ("program ice 1 version 1 procedures 1\n", "expected `onc` or `courier`"),
            ("program onc 1 version 1 procedures\n", "a number of its own"),
            ("program onc 1 version 1 procedures 01\n", "shortest form"),
            ("type 2 field 0 max 1\n", "no such type"),
            ("type 0 variant 3 default\n", "no such variant"),
            ("type 0 variant 1 field 2 max 1\n", "no such field"),
            ("type 0 variant 2 field 0 max 1\n", "no count"),
            ("type 0 variant 0 default\n", "not its number"),
            ("type 0 variant 0 case 1\n", "the same number"),
            ("type 0 variant 1 error 1\ntype 0 variant 0 case 5\n", "not in order"),
            ("type 0 variant 0 case 5\ntype 0 variant 1 error 1\n", "both errors and other"),
            ("rubbish", "expected `program` or `type`"),
            ("type 0 variant 0 case 5", "not in order"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(reason), "{text:?}: {error}");
        }
    }
}
