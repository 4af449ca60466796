//! Supplies declarations that a file lacks, because C programs get them from other places. These places are
//! the headers of the RPC library, `#define` in lines with `%`, and headers that `rpcgen` makes from other
//! interface files.

use std::collections::{HashMap, HashSet, VecDeque};

use super::ast::*;
use super::check::builtin;
use super::scan::{self, Passed};
use super::source::Sources;
use super::uses::Names;
use super::{ONC_INCLUDES_MAX, Onc, parse};

/// The types that headers of the RPC library declare, in the language of interface files. The integer types
/// are in [`builtin`].
const TYPES: &str = "typedef opaque netobj<1024>;
    typedef opaque des_block[8];
    struct netbuf { unsigned int maxlen; opaque buf<>; };";

/// The constants that headers of the RPC library declare.
const CONSTANTS: &str = "const MAXNETNAMELEN = 255;";

/// Adds the declarations that `specification` needs and lacks, if a header or a line for C programs has them.
/// `passed` contains the headers and the constants in the lines for C programs.
pub(super) fn supply(
    onc: &Onc<'_>,
    specification: &mut Specification,
    passed: Passed,
    sources: &mut Sources,
) {
    let mut names = Names::default();
    specification.definitions.iter().for_each(|one| names.definition(one));
    let mut spare = Spare::default();
    spare.add(library_types());
    spare.add(passed.constants.into_iter().map(Definition::Constant));
    spare.add(library(CONSTANTS));
    let mut headers: VecDeque<String> = passed.headers.into();
    let (mut needed, mut is_all) = spare.needed(&names);
    for _ in 0..ONC_INCLUDES_MAX {
        let Some(header) = headers.pop_front().filter(|_| !is_all) else { break };
        let Some((name, text)) = interface_file(onc, &header) else { continue };
        let (definitions, passed) = read(onc, &text, &name, sources);
        spare.add(definitions);
        spare.add(passed.constants.into_iter().map(Definition::Constant));
        headers.extend(passed.headers);
        (needed, is_all) = spare.needed(&names);
    }
    let needed = needed.into_iter().map(|place| spare.definitions[place].clone());
    specification.definitions.splice(..0, needed);
}

/// Returns the types that headers of the RPC library declare.
pub(super) fn library_types() -> Vec<Definition> {
    library(TYPES)
}

fn library(text: &str) -> Vec<Definition> {
    read(&Onc::new(), text, "", &mut Sources::default()).0
}

fn read(onc: &Onc<'_>, text: &str, name: &str, sources: &mut Sources) -> (Vec<Definition>, Passed) {
    let mut scanned = scan::tokens(onc, text, name, sources);
    let passed = core::mem::take(&mut scanned.passed);
    (parse::specification(scanned, sources).definitions, passed)
}

/// Returns the name and the text of the interface file from which `rpcgen` makes a header, if there is one.
fn interface_file(onc: &Onc<'_>, header: &str) -> Option<(String, String)> {
    let name = header.rsplit('/').next()?.strip_suffix(".h")?;
    let name = format!("{name}.x");
    let text = (onc.include)(&name).ok()?;
    Some((name, text))
}

/// The definitions that an interface file may need, from headers and from other interface files.
#[derive(Default)]
struct Spare {
    definitions: Vec<Definition>,
    /// For each definition, the names that it declares and uses.
    names: Vec<Names>,
    /// For each declared name, the index in `definitions` of the definition that declares it.
    places: HashMap<String, usize>,
}

impl Spare {
    /// Adds definitions. A definition of a name that is already known is not added.
    fn add(&mut self, definitions: impl IntoIterator<Item = Definition>) {
        for one in definitions {
            let mut names = Names::default();
            names.definition(&one);
            let is_known = names.declared.iter().any(|name| self.places.contains_key(name));
            // The programs of another file are not programs of this one.
            if is_known || matches!(one, Definition::Program(_)) {
                continue;
            }
            let place = self.definitions.len();
            self.places.extend(names.declared.iter().map(|name| (name.clone(), place)));
            self.names.push(names);
            self.definitions.push(one);
        }
    }

    /// Returns the places of the definitions that a file needs, in ascending order. Also returns whether
    /// these definitions declare all names that the file needs.
    fn needed(&self, names: &Names) -> (Vec<usize>, bool) {
        let (mut needed, mut is_all) = (Vec::new(), true);
        let mut seen = HashSet::new();
        let mut wanted: Vec<&String> = names.all().collect();
        while let Some(name) = wanted.pop() {
            if !seen.insert(name) || names.declared.contains(name) || builtin(name).is_some() {
                continue;
            }
            // A definition is not added if it also declares a name that the file declares.
            let place = self.places.get(name).copied();
            match place.filter(|place| self.names[*place].declared.is_disjoint(&names.declared)) {
                Some(place) => {
                    needed.push(place);
                    wanted.extend(self.names[place].all());
                }
                None => is_all = false,
            }
        }
        needed.sort_unstable();
        needed.dedup();
        (needed, is_all)
    }
}
