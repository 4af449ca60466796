//! Reads the vectors of `docs/REPRESENTATION.md`, `docs/FOREIGN.md`, `docs/PROTOCOL.md` and `docs/STAT.md`. A
//! vector is a name and the bytes that belong to it, in a block marked `golden`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// The bytes of a vector. `None` matches any byte.
pub(crate) type Pattern = Vec<Option<u8>>;

/// Returns all vectors of all documents.
pub(crate) fn vectors() -> &'static BTreeMap<String, Pattern> {
    static VECTORS: OnceLock<BTreeMap<String, Pattern>> = OnceLock::new();
    VECTORS.get_or_init(|| {
        let mut vectors = BTreeMap::new();
        for document in ["REPRESENTATION.md", "FOREIGN.md", "PROTOCOL.md", "STAT.md"] {
            let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
            let text = std::fs::read_to_string(docs.join(document)).expect("the document");
            parse(&text, &mut vectors);
        }
        vectors
    })
}

pub(crate) fn parse(text: &str, vectors: &mut BTreeMap<String, Pattern>) {
    let (mut golden, mut name) = (false, String::new());
    for line in text.lines() {
        if line.starts_with("```") {
            golden = line == "```golden";
            continue;
        }
        if !golden {
            continue;
        }
        let line = line.split('#').next().unwrap_or("");
        let bytes = match line.split_once(':') {
            Some((new, bytes)) => {
                name = new.trim().to_owned();
                let before = vectors.insert(name.clone(), Vec::new());
                assert!(before.is_none(), "{name} occurs twice in the documents");
                bytes
            }
            None => line,
        };
        let pattern = vectors.get_mut(&name).expect("bytes after a name");
        for word in bytes.split_whitespace().filter(|word| *word != "|") {
            match word.strip_prefix("..") {
                Some("") => pattern.push(None),
                Some(times) => {
                    let times = times.trim_start_matches('*').parse().expect("how often");
                    pattern.extend(vec![None; times]);
                }
                None => pattern.push(Some(u8::from_str_radix(word, 16).expect("a byte"))),
            }
        }
    }
}

pub(crate) fn pattern(name: &str) -> &'static Pattern {
    vectors().get(name).unwrap_or_else(|| panic!("no document contains `{name}`"))
}

/// Returns the bytes of the vector `name`, with `anything` where any byte is allowed.
pub(crate) fn bytes(name: &str, anything: u8) -> Vec<u8> {
    pattern(name).iter().map(|byte| byte.unwrap_or(anything)).collect()
}

fn hex(bytes: &[u8]) -> String {
    let words: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    words.join(" ")
}

pub(crate) fn check(name: &str, found: &[u8]) {
    let pattern = pattern(name);
    let fits = pattern.len() == found.len()
        && pattern.iter().zip(found).all(|(byte, found)| byte.is_none_or(|byte| byte == *found));
    assert!(fits, "{name}: the document says\n  {}\nfound\n  {}", shown(pattern), hex(found));
}

fn shown(pattern: &Pattern) -> String {
    let word = |byte: &Option<u8>| byte.map_or("..".to_owned(), |byte| format!("{byte:02x}"));
    pattern.iter().map(word).collect::<Vec<_>>().join(" ")
}
