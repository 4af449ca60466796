//! Prints a default as an expression of literals, which `crate::default` evaluates again.

use peregrine::interface::{Described, DescribedBody, DescribedField, DescribedType};

/// Returns the expression of a default. `path` returns the path of a named type.
///
/// The bytes are a value of the type, because the description was checked when it was read.
pub(super) fn expression(
    described: &Described,
    ty: &DescribedType,
    bytes: &[u8],
    path: &dyn Fn(usize) -> String,
) -> String {
    Reader { described, bytes, at: 0, path }.value(ty)
}

struct Reader<'a> {
    described: &'a Described,
    bytes: &'a [u8],
    at: usize,
    path: &'a dyn Fn(usize) -> String,
}

impl<'a> Reader<'a> {
    fn take(&mut self, align: usize, count: usize) -> &'a [u8] {
        let at = self.at.next_multiple_of(align.max(1));
        self.at = at + count;
        self.bytes.get(at..at + count).unwrap_or(&[])
    }

    /// Takes an unsigned integer.
    fn number(&mut self, bytes: usize) -> u128 {
        let mut all = [0; 16];
        let taken = self.take(bytes, bytes);
        all[..taken.len()].copy_from_slice(taken);
        u128::from_le_bytes(all)
    }

    fn values(&mut self, one: &DescribedType, count: u64) -> String {
        let all: Vec<_> = (0..count).map(|_| self.value(one)).collect();
        all.join(", ")
    }

    fn value(&mut self, ty: &DescribedType) -> String {
        match ty {
            DescribedType::Unit => "()".into(),
            DescribedType::Text => {
                let count = self.number(4) as usize;
                format!("{:?}.to_owned()", String::from_utf8_lossy(self.take(1, count)))
            }
            DescribedType::Array(one, count) => format!("[{}]", self.values(one, *count)),
            DescribedType::Sequence(one) => {
                let count = self.number(4) as u64;
                format!("vec![{}]", self.values(one, count))
            }
            DescribedType::Option(one) => match self.number(1) {
                0 => "None".into(),
                _ => format!("Some({})", self.value(one)),
            },
            DescribedType::Result(ok, error) => match self.number(1) {
                0 => format!("Ok({})", self.value(ok)),
                _ => format!("Err({})", self.value(error)),
            },
            DescribedType::Tuple(parts) => {
                let all: Vec<_> = parts.iter().map(|part| self.value(part)).collect();
                format!("({}{})", all.join(", "), if all.len() == 1 { "," } else { "" })
            }
            DescribedType::Named(number) => self.named(*number),
            simple => self.simple(simple),
        }
    }

    fn named(&mut self, number: usize) -> String {
        let described = self.described;
        let Some(named) = described.types.get(number) else { return "()".into() };
        let path = (self.path)(number);
        match &named.body {
            DescribedBody::Struct(fields) => format!("{path}{}", self.fields(fields)),
            DescribedBody::Plain { size, align, fields } => {
                let bytes = self.take(*align as usize, *size as usize);
                let mut at = 0;
                let mut all = Vec::new();
                for field in fields {
                    let size = described.plain_bytes(&field.ty).unwrap_or(0) as usize;
                    let bytes = bytes.get(at..at + size).unwrap_or(&[]);
                    all.push(expression(described, &field.ty, bytes, self.path));
                    at += size;
                }
                format!("{path}{}", written(fields, &all))
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let size = described.plain_bytes(repr).unwrap_or(1) as usize;
                let value = self.number(size);
                // Only the bits that the integer has are compared.
                let is_same =
                    |one: i128| one as u128 & (u128::MAX >> (128 - 8 * size.min(16))) == value;
                let variant = variants.iter().find(|one| is_same(one.value));
                format!("{path}::{}", variant.map_or("", |one| &*one.name))
            }
            DescribedBody::Enum(variants) => {
                let number = self.number(4) as usize;
                match variants.get(number) {
                    Some(one) => format!("{path}::{}{}", one.name, self.fields(&one.fields)),
                    None => path,
                }
            }
            _ => path,
        }
    }

    fn fields(&mut self, fields: &[DescribedField]) -> String {
        let all: Vec<_> = fields.iter().map(|field| self.value(&field.ty)).collect();
        written(fields, &all)
    }

    fn simple(&mut self, ty: &DescribedType) -> String {
        let bytes = self.described.plain_bytes(ty).unwrap_or(1) as usize;
        let value = self.number(bytes);
        let shift = 128 - 8 * bytes as u32;
        match ty {
            DescribedType::Bool => (value != 0).to_string(),
            DescribedType::Char => {
                format!("{:?}", char::from_u32(value as u32).unwrap_or_default())
            }
            DescribedType::F32 => float(f64::from(f32::from_bits(value as u32))),
            DescribedType::F64 => float(f64::from_bits(value as u64)),
            DescribedType::I8
            | DescribedType::I16
            | DescribedType::I32
            | DescribedType::I64
            | DescribedType::I128 => (((value << shift) as i128) >> shift).to_string(),
            _ => value.to_string(),
        }
    }
}

/// Returns a float as a literal, or as `NaN` or `inf`, which have no literal.
fn float(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { format!("{value}") }
}

/// Returns the values of fields as they follow the name of a struct or a variant.
fn written(fields: &[DescribedField], all: &[String]) -> String {
    if all.is_empty() {
        return String::new();
    }
    if super::numbered(fields) {
        return format!("({})", all.join(", "));
    }
    let pairs = fields
        .iter()
        .zip(all)
        .map(|(field, value)| format!("{}: {value}", super::name(&field.name)));
    format!(" {{ {} }}", pairs.collect::<Vec<_>>().join(", "))
}
