//! `describe --format c`: an interface as a header for a program in C.
//!
//! The names and the documentation come from a peer: what they may become is a macro's name, a string
//! or the inside of a comment, whatever stands in them.

use core::fmt::Write;
use std::collections::BTreeSet;

use peregrine::interface::{
    Described, DescribedBody, DescribedField, DescribedParameter, DescribedProcedure,
    DescribedType, Direction, Shape,
};

/// The header of an interface.
pub(crate) fn of(described: &Described) -> String {
    let mut header = Header {
        described,
        prefix: macro_name(&described.name),
        taken: BTreeSet::new(),
        text: String::new(),
    };
    header.write();
    header.text
}

struct Header<'a> {
    described: &'a Described,
    /// What all names begin with.
    prefix: String,
    /// Names that are defined.
    taken: BTreeSet<String>,
    text: String,
}

impl Header<'_> {
    fn write(&mut self) {
        let described = self.described;
        let title = format!("Interface {} version {}.", described.name, described.version);
        let made = "Made by `peregrine describe --format c`; the bytes are those of \
                    docs/REPRESENTATION.md.";
        self.comment(&[&title, &described.docs, made]);
        let guard = format!("PEREGRINE_{}_H", self.prefix);
        let _ = writeln!(self.text, "#ifndef {guard}\n#define {guard}\n");
        self.define("NAME", &quoted(&described.name));
        self.define("VERSION", &format!("{}u", described.version));
        let digest: Vec<String> =
            described.digest().0.iter().map(|byte| format!("0x{byte:02x}")).collect();
        self.define("DIGEST", &format!("{{ {} }}", digest.join(", ")));
        self.define("PROCEDURES", &format!("{}u", described.procedures.len()));
        let text = described.to_string();
        let lines: Vec<String> = text.split_inclusive('\n').map(quoted).collect();
        self.define("CANONICAL", &format!("\\\n    {}", lines.join(" \\\n    ")));
        for number in 0..described.types.len() {
            self.named(number);
        }
        for (number, procedure) in described.procedures.iter().enumerate() {
            self.procedure(number, procedure, &procedure.docs);
        }
        let _ = writeln!(self.text, "\n#endif");
    }

    /// A comment of several paragraphs, of which empty ones are left out.
    fn comment(&mut self, paragraphs: &[&str]) {
        let lines = paragraphs.iter().filter(|one| !one.is_empty()).flat_map(|one| one.lines());
        let mut text = String::new();
        for (i, line) in lines.enumerate() {
            let line = line.replace("*/", "* /").replace("/*", "/ *");
            let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let _ = write!(text, "{}{line}", if i > 0 { "\n * " } else { "" });
        }
        let text = text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        let _ = writeln!(self.text, "/* {text} */");
    }

    /// Defines a name that nothing else has.
    fn define(&mut self, name: &str, value: &str) {
        let wanted = format!("{}_{}", self.prefix, macro_name(name));
        let mut name = wanted.clone();
        for number in 2.. {
            if self.taken.insert(name.clone()) {
                break;
            }
            name = format!("{wanted}_{number}");
        }
        let _ = writeln!(self.text, "#define {name} {value}");
    }

    fn named(&mut self, number: usize) {
        let described = self.described;
        let Some(named) = described.types.get(number) else { return };
        let twin = described.types[..number].iter().any(|other| other.name == named.name);
        let name = if twin { format!("{}_{number}", named.name) } else { named.name.clone() };
        let whole = described.to_string();
        let begins = format!("{}#{number} = ", named.name);
        let line = whole.lines().find(|line| line.starts_with(&begins)).unwrap_or_default();
        let _ = writeln!(self.text);
        self.comment(&[line]);
        match &named.body {
            DescribedBody::Plain { size, align, fields } => {
                self.define(&format!("{name}_SIZE"), &size.to_string());
                self.define(&format!("{name}_ALIGN"), &align.to_string());
                let mut at = 0u64;
                for DescribedField { name: field, ty } in fields {
                    self.define(&format!("{name}_{field}_AT"), &at.to_string());
                    at = at.saturating_add(described.plain_bytes(ty).unwrap_or(0));
                }
            }
            DescribedBody::PlainEnum { repr, variants } => {
                let size = described.plain_bytes(repr).unwrap_or(0);
                self.define(&format!("{name}_SIZE"), &size.to_string());
                for (variant, value) in variants {
                    match constant(*value) {
                        Some(value) => self.define(&format!("{name}_{variant}"), &value),
                        None => self.comment(&[&format!("{variant} is {value}")]),
                    }
                }
            }
            DescribedBody::Enum(variants) => {
                for (number, variant) in variants.iter().enumerate() {
                    self.define(&format!("{name}_{}", variant.name), &format!("{number}u"));
                }
            }
            _ => {}
        }
    }

    fn procedure(&mut self, number: usize, one: &DescribedProcedure, docs: &str) {
        let parts = self.parts(one);
        let part = |name: &str, parts: &[String]| {
            if parts.is_empty() { String::new() } else { format!("{name}: {}", parts.join("; ")) }
        };
        let signature = self.described.procedure_text(one);
        let error = format!("error: {}", self.described.type_text(&one.error));
        let _ = writeln!(self.text);
        self.comment(&[
            &signature,
            docs,
            &part("call, head", &parts.call_head),
            &part("call, blocks", &parts.call_blocks),
            &part("reply, table and blocks", &parts.reply_blocks),
            &part("reply, head", &parts.reply_head),
            &error,
        ]);
        self.define(&one.name, &format!("{number}u"));
        self.define(&format!("{}_BLOCKS", one.name), &format!("{}u", parts.reply_blocks.len()));
        for parameter in &one.parameters {
            if let Some(max_len) = parameter.max_len {
                let name = format!("{}_{}_MAX", one.name, parameter.name);
                self.define(&name, &format!("{max_len}u"));
            }
        }
    }

    /// What a procedure's parameters become (REPRESENTATION.md, part 3).
    fn parts(&self, procedure: &DescribedProcedure) -> Parts {
        let mut parts = Parts::default();
        if procedure.result != DescribedType::Unit {
            parts.reply_head.push(format!("Ok {}", self.described.type_text(&procedure.result)));
        }
        let mut lent = Vec::new();
        for parameter in &procedure.parameters {
            let DescribedParameter { name, direction, shape, ty, max_len } = parameter;
            let element = self.described.type_text(ty);
            let most = max_len.map_or(String::new(), |most| format!(", at most {most}"));
            let plain = self.described.plain_bytes(ty);
            let of = |bytes: u64| format!("{name} ({element}, {bytes} bytes each)");
            match (direction, shape, plain) {
                (Direction::In, Shape::One, _) => parts.call_head.push(format!("{name} {element}")),
                (Direction::InOut, Shape::One, _) => {
                    parts.call_head.push(format!("{name} {element}"));
                    parts.reply_head.push(format!("{name} {element}"));
                }
                (_, Shape::Text, _) => {
                    parts.call_head.push(format!("bytes of {name} u32{most}"));
                    parts.call_blocks.push(format!("{name} (UTF-8)"));
                }
                (Direction::Out, _, bytes) => {
                    parts.call_head.push(format!("capacity of {name} u32{most}"));
                    parts.reply_blocks.push(of(bytes.unwrap_or(0)));
                }
                (Direction::Lent, _, bytes) => {
                    parts.call_head.push(format!("count of {name} u32{most}"));
                    lent.push(format!("{}, lent", of(bytes.unwrap_or(0))));
                }
                (Direction::In | Direction::InOut, _, Some(bytes)) => {
                    parts.call_head.push(format!("count of {name} u32{most}"));
                    parts.call_blocks.push(of(bytes));
                    if *direction == Direction::InOut {
                        parts.reply_blocks.push(of(bytes));
                    }
                }
                (Direction::In | Direction::InOut, _, None) => {
                    let sequence = format!("count of {name} u32{most}, so many {element}");
                    parts.call_blocks.push(format!("{name}, empty"));
                    if *direction == Direction::InOut {
                        parts.reply_blocks.push(format!("{name}, empty"));
                        parts.reply_head.push(sequence.clone());
                    }
                    parts.call_head.push(sequence);
                }
            }
        }
        parts.call_blocks.append(&mut lent);
        parts
    }
}

/// What the comment of a procedure lists.
#[derive(Default)]
struct Parts {
    call_head: Vec<String>,
    call_blocks: Vec<String>,
    reply_head: Vec<String>,
    reply_blocks: Vec<String>,
}

/// `SOME_NAME` of `SomeName`: letters, digits and `_` of ASCII only.
fn macro_name(name: &str) -> String {
    let mut text = String::new();
    let mut small = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && small {
            text.push('_');
        }
        small = c.is_ascii_lowercase() || c.is_ascii_digit();
        match c {
            '0'..='9' | 'a'..='z' | 'A'..='Z' => text.push(c.to_ascii_uppercase()),
            _ if c.is_ascii() => text.push('_'),
            _ => {
                let _ = write!(text, "U{:04X}", u32::from(c));
            }
        }
    }
    text
}

/// A string of C.
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for byte in text.bytes() {
        match byte {
            b'\n' => quoted.push_str("\\n"),
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted + "\""
}

/// An integer constant of C; none is wider than 64 bits.
fn constant(value: i128) -> Option<String> {
    if value == i128::from(i64::MIN) {
        return Some("(-9223372036854775807LL - 1)".into());
    }
    match (i32::try_from(value), i64::try_from(value), u64::try_from(value)) {
        (Ok(i32::MIN), ..) => Some("(-2147483647 - 1)".into()),
        (Ok(value), ..) if value < 0 => Some(format!("({value})")),
        (Ok(value), ..) => Some(value.to_string()),
        (_, Ok(value), _) => Some(format!("({value}LL)")),
        (.., Ok(value)) => Some(format!("{value}ULL")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
interface Golden.x version 3
read(in path: str, in offset: u64, out into: [Point#0] max 24, inout names: [text]) -> u64 or CallError#1
lend(lent a: [u8], in b: [u16]) -> unit or CallError#1
Point#0 = plain 16 align 8 {id: u64, at: [i16; 2], colour: Colour#2, pad: [u8; 2]}
CallError#1 = struct {chain: text}
Colour#2 = plain enum i16 Red=-1 DarkGreen=300
";

    fn said(text: &str, docs: &[&str]) -> Described {
        let docs: Vec<String> = docs.iter().map(|&one| one.into()).collect();
        Described::parse(text).unwrap().with_docs(&docs)
    }

    #[test]
    fn a_header_has_numbers_offsets_and_parts() {
        let header = of(&said(TEXT, &["all", "reads */ evil", ""]));
        for line in [
            "#define GOLDEN_X_VERSION 3u",
            "#define GOLDEN_X_READ 0u",
            "#define GOLDEN_X_READ_BLOCKS 2u",
            "#define GOLDEN_X_READ_INTO_MAX 24u",
            "#define GOLDEN_X_LEND 1u",
            "#define GOLDEN_X_POINT_SIZE 16",
            "#define GOLDEN_X_POINT_COLOUR_AT 12",
            "#define GOLDEN_X_COLOUR_RED (-1)",
            "#define GOLDEN_X_COLOUR_DARK_GREEN 300",
            " * reads * / evil",
            " * call, head: bytes of path u32; offset u64; capacity of into u32, at most 24; \
             count of names u32, so many text",
            " * call, blocks: path (UTF-8); names, empty",
            " * reply, table and blocks: into (Point#0, 16 bytes each); names, empty",
            " * reply, head: Ok u64; count of names u32, so many text",
            " * call, blocks: b (u16, 2 bytes each); a (u8, 1 bytes each), lent",
        ] {
            assert!(header.lines().any(|one| one == line), "{line}\n{header}");
        }
    }

    #[test]
    fn what_a_peer_says_stays_a_name_a_string_or_a_comment() {
        let text = "interface A version 0\nÜb\u{200b}er() -> B#0 or B#1\nB#0 = struct {}\nB#1 = enum A {} a {} A {}\n";
        let header = of(&said(text, &["*/\n#define EVIL\\\n/*", "\u{1b}[1m"]));
        assert!(header.lines().all(|line| line != "#define EVIL\\" && !line.contains('\u{1b}')));
        assert_eq!(header.matches("*/").count(), header.matches("/*").count(), "{header}");
        assert!(header.contains("#define A_U00DCBU200BER 0u"), "{header}");
        for name in ["A_B_1_A 0u", "A_B_1_A_2 1u", "A_B_1_A_3 2u"] {
            assert!(header.contains(name), "{header}");
        }
    }

    #[test]
    fn constants_are_those_of_c() {
        assert_eq!(constant(0).unwrap(), "0");
        assert_eq!(constant(-5).unwrap(), "(-5)");
        assert_eq!(constant(1 << 31).unwrap(), "(2147483648LL)");
        assert_eq!(constant(i128::from(u64::MAX)).unwrap(), "18446744073709551615ULL");
        assert_eq!(constant(i128::from(u64::MAX) + 1), None);
    }
}
