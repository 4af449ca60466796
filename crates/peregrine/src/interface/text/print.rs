//! Prints a description as a canonical text. If the description was read from a text, the result is the same
//! text.

use core::fmt::{self, Display};

use super::{
    DIRECTIONS, Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure,
    DescribedType, SIMPLE,
};
use crate::interface::growth::Hex;
use crate::interface::{DescribedGrowth, Shape};

/// A part of a description, with the whole description, which contains the names of the types.
pub(in crate::interface) struct InDescription<'a, T: ?Sized>(
    pub(in crate::interface) &'a Described,
    pub(in crate::interface) &'a T,
);

fn separated<'a, T: 'a>(
    f: &mut fmt::Formatter<'_>,
    whole: &'a Described,
    parts: &'a [T],
) -> fmt::Result
where
    InDescription<'a, T>: Display,
{
    separated_by(", ", f, whole, parts)
}

fn separated_by<'a, T: 'a>(
    separator: &str,
    f: &mut fmt::Formatter<'_>,
    whole: &'a Described,
    parts: &'a [T],
) -> fmt::Result
where
    InDescription<'a, T>: Display,
{
    for (i, part) in parts.iter().enumerate() {
        write!(f, "{}{}", if i > 0 { separator } else { "" }, InDescription(whole, part))?;
    }
    Ok(())
}

fn was(f: &mut fmt::Formatter<'_>, was: &[String]) -> fmt::Result {
    was.iter().try_for_each(|name| write!(f, " was {name}"))
}

fn growth(f: &mut fmt::Formatter<'_>, growth: &DescribedGrowth) -> fmt::Result {
    was(f, &growth.was)?;
    if growth.widens {
        write!(f, " widens")?;
    }
    growth.default.as_ref().map_or(Ok(()), |default| write!(f, " = {}", Hex(default)))
}

fn other(is_other: bool) -> &'static str {
    if is_other { " other" } else { "" }
}

impl Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "interface {} version {}", self.name, self.version)?;
        for procedure in &self.procedures {
            writeln!(f, "{}", InDescription(self, procedure))?;
        }
        for (number, named) in self.types.iter().enumerate() {
            writeln!(f, "{}#{number} = {}", named.name, InDescription(self, &named.body))?;
        }
        Ok(())
    }
}

impl Described {
    /// Returns a type in the form of the canonical text.
    pub fn type_text(&self, ty: &DescribedType) -> String {
        InDescription(self, ty).to_string()
    }

    /// Returns a parameter in the form of the canonical text.
    pub fn parameter_text(&self, parameter: &DescribedParameter) -> String {
        InDescription(self, parameter).to_string()
    }

    /// Returns the body of a named type, in the form of the canonical text. There it follows the `=` in the
    /// type's line.
    pub fn body_text(&self, body: &DescribedBody) -> String {
        InDescription(self, body).to_string()
    }

    /// Returns the line of the canonical text that describes a procedure.
    pub fn procedure_text(&self, procedure: &DescribedProcedure) -> String {
        InDescription(self, procedure).to_string()
    }
}

impl Display for InDescription<'_, DescribedProcedure> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(whole, one) = self;
        write!(f, "{}", if one.idempotent { "idempotent " } else { "" })?;
        write!(f, "{}{}", if one.oneway { "oneway " } else { "" }, one.name)?;
        was(f, &one.was)?;
        write!(f, "(")?;
        separated(f, whole, &one.parameters)?;
        write!(
            f,
            ") -> {} or {}",
            InDescription(whole, &one.result),
            InDescription(whole, &one.error)
        )
    }
}

impl Display for InDescription<'_, DescribedParameter> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(whole, one) = self;
        let direction = DIRECTIONS.iter().find(|(_, direction)| *direction == one.direction);
        write!(f, "{}{}: ", direction.map_or("", |(text, _)| text), one.name)?;
        match one.shape {
            Shape::One => write!(f, "{}", InDescription(whole, &one.ty))?,
            Shape::Buffer => write!(f, "[{}]", InDescription(whole, &one.ty))?,
            Shape::Text => write!(f, "str")?,
        }
        one.max_len.map_or(Ok(()), |max_len| write!(f, " max {max_len}"))?;
        growth(f, &one.growth)
    }
}

impl Display for InDescription<'_, DescribedType> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(whole, ty) = self;
        match ty {
            DescribedType::Array(one, count) => {
                write!(f, "[{}; {count}]", InDescription(whole, &**one))
            }
            DescribedType::Sequence(one) => write!(f, "sequence<{}>", InDescription(whole, &**one)),
            DescribedType::Option(one) => write!(f, "option<{}>", InDescription(whole, &**one)),
            DescribedType::Result(ok, err) => {
                write!(
                    f,
                    "result<{}, {}>",
                    InDescription(whole, &**ok),
                    InDescription(whole, &**err)
                )
            }
            DescribedType::Tuple(parts) => {
                write!(f, "tuple<")?;
                separated(f, whole, parts)?;
                write!(f, ">")
            }
            DescribedType::Named(number) => {
                let name = whole.types.get(*number).map_or("", |named| &named.name);
                write!(f, "{name}#{number}")
            }
            simple => {
                let name = SIMPLE.iter().find(|(_, one)| one == *simple);
                f.write_str(name.map_or("", |(name, _)| name))
            }
        }
    }
}

impl Display for InDescription<'_, DescribedField> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.1.name, InDescription(self.0, &self.1.ty))?;
        growth(f, &self.1.growth)
    }
}

impl Display for InDescription<'_, DescribedBody> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(whole, body) = self;
        match body {
            DescribedBody::Plain { size, align, fields } => {
                write!(f, "plain {size} align {align} {{")?;
                separated(f, whole, fields)?;
                write!(f, "}}")
            }
            DescribedBody::PlainEnum { repr, variants } => {
                write!(f, "plain enum {}", InDescription(whole, repr))?;
                for variant in variants {
                    write!(f, "{} {}", other(variant.is_other), variant.name)?;
                    was(f, &variant.was)?;
                    write!(f, "={}", variant.value)?;
                }
                Ok(())
            }
            DescribedBody::Struct(fields) => {
                write!(f, "struct {{")?;
                separated(f, whole, fields)?;
                write!(f, "}}")
            }
            DescribedBody::Enum(variants) => {
                write!(f, "enum")?;
                for variant in variants {
                    write!(f, "{} {}", other(variant.is_other), variant.name)?;
                    was(f, &variant.was)?;
                    write!(f, " {{")?;
                    separated(f, whole, &variant.fields)?;
                    write!(f, "}}")?;
                }
                Ok(())
            }
            DescribedBody::Interface { version, procedures } => {
                write!(f, "interface version {version} {{")?;
                separated_by("; ", f, whole, procedures)?;
                write!(f, "}}")
            }
        }
    }
}
