//! Compares ARCHITECTURE.md with the imports of the source files. The folder `path/` consists of parts, and
//! each part may use only the parts that the document allows. Each step of the figure in "The walk of a call"
//! must exist in the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, UseTree, Visibility};

/// The parts of each call path, each with the parts that it may use. A part uses only parts of earlier lines.
const PARTS: &[(&str, &[&str])] = &[
    ("region", &[]),
    ("wire", &[]),
    ("peer", &["region", "wire"]),
    ("sealed", &["peer", "wire"]),
    ("client", &["peer", "region", "sealed", "wire"]),
    ("lookup", &["client", "peer", "region", "wire"]),
    ("connect", &["client", "lookup", "peer", "region", "sealed", "wire"]),
    ("capture", &["connect", "wire"]),
    ("server", &["lookup", "peer", "region", "sealed", "wire"]),
    // Two paths of Courier, whose folders consist of parts with the same names.
    ("packet", &["wire"]),
    ("exchange", &["wire"]),
];

/// The only use of a part by a part of another folder: messages of Courier pass over the path of UDP. In the
/// pair, the first part uses the second one.
const ACROSS: &[(&str, &str)] = &[("courier/exchange", "datagram/connect")];

/// The folders below `path/` that are divided into [`PARTS`].
const FAMILIES: &[&str] = &["callback", "local", "stream", "datagram", "onc", "courier"];

/// The modules of `path/` that each of the [`FAMILIES`] may use.
const SHARED: &[&str] = &[
    "auth_sys",
    "balance",
    "bind",
    "connections",
    "foreign",
    "leader",
    "options",
    "receivers",
    "rings",
    "security",
    "slots",
    "tidying",
    "yielding",
];

type Segments = Vec<String>;

/// One module of the library.
#[derive(Default)]
struct Module {
    file: String,
    children: BTreeSet<String>,
    /// Public and private names that the module gives to items of other modules.
    aliases: BTreeMap<String, Segments>,
    /// The names that the module's code uses, outside of tests.
    named: BTreeSet<Segments>,
}

/// All modules of the library.
struct Modules(BTreeMap<Segments, Module>);

fn is_for_tests(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        attribute.path().is_ident("cfg")
            && attribute.meta.require_list().is_ok_and(|list| {
                let condition = list.tokens.to_string();
                condition == "test"
                    || condition.contains("any (test")
                    || condition.contains("any(test")
            })
    };
    attributes.iter().any(is_test)
}

/// Collects the names that a file uses.
struct Collector<'a> {
    at: &'a Segments,
    module: Module,
}

impl Collector<'_> {
    /// Converts a name, as it is written in this module, to an absolute path. Returns `None` if that is
    /// impossible.
    fn absolute(&self, written: &[String]) -> Option<Segments> {
        let (first, rest) = written.split_first()?;
        let mut base = match &**first {
            "crate" => Vec::new(),
            "self" => self.at.clone(),
            "super" => self.at[..self.at.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        for segment in rest {
            match &**segment {
                "super" => drop(base.pop()),
                "self" => {}
                _ => base.push(segment.clone()),
            }
        }
        Some(base)
    }

    fn add_use(&mut self, before: &mut Segments, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.add_use(before, &path.tree);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.add_use(before, tree));
            }
            UseTree::Name(name) => self.add_leaf(before, &name.ident.to_string(), None),
            UseTree::Rename(rename) => {
                let alias = Some(rename.rename.to_string());
                self.add_leaf(before, &rename.ident.to_string(), alias);
            }
            UseTree::Glob(_) => {
                self.module.named.extend(self.absolute(before));
            }
        }
    }

    fn add_leaf(&mut self, before: &Segments, name: &str, alias: Option<String>) {
        let mut written = before.clone();
        if name != "self" {
            written.push(name.to_owned());
        }
        // `use client::X` names a child of this module.
        let relative = written.first().is_some_and(|first| self.module.children.contains(first));
        let absolute = match relative {
            true => Some(self.at.iter().chain(&written).cloned().collect()),
            false => self.absolute(&written),
        };
        let Some(absolute) = absolute else { return };
        let alias = alias.or_else(|| absolute.last().cloned()).unwrap_or_default();
        self.module.aliases.insert(alias, absolute.clone());
        self.module.named.insert(absolute);
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if is_for_tests(&item.attrs) {
            return;
        }
        // A re-export does not count as a use of the item, but a use of the re-exported name counts.
        let named = self.module.named.clone();
        self.add_use(&mut Vec::new(), &item.tree);
        if !matches!(item.vis, Visibility::Inherited) {
            self.module.named = named;
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(in crate::path)` uses nothing.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let written: Vec<_> = path.segments.iter().map(|one| one.ident.to_string()).collect();
        if written.len() > 1 {
            self.module.named.extend(self.absolute(&written));
        }
        visit::visit_path(self, path);
    }
}

impl Modules {
    fn read() -> Self {
        let mut modules = Self(BTreeMap::new());
        modules.add(Vec::new(), "lib.rs".to_owned());
        modules
    }

    fn add(&mut self, at: Segments, file: String) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(&file);
        let text = std::fs::read_to_string(&source).expect("a source file");
        let parsed = syn::parse_file(&text).expect("Rust");
        let children = parsed.items.iter().filter_map(|item| match item {
            Item::Mod(child) if child.content.is_none() && !is_for_tests(&child.attrs) => {
                Some(child.ident.to_string())
            }
            _ => None,
        });
        let children: BTreeSet<String> = children.collect();
        let module = Module { file: file.clone(), children: children.clone(), ..Module::default() };
        let mut collector = Collector { at: &at, module };
        collector.visit_file(&parsed);
        let module = collector.module;
        self.0.insert(at.clone(), module);
        let directory = match file.strip_suffix("/mod.rs").or_else(|| file.strip_suffix("lib.rs")) {
            Some(directory) => directory.to_owned(),
            None => file.trim_end_matches(".rs").to_owned(),
        };
        for child in children {
            let prefix = if directory.is_empty() { String::new() } else { format!("{directory}/") };
            let here = [format!("{prefix}{child}.rs"), format!("{prefix}{child}/mod.rs")];
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
            let Some(file) = here.into_iter().find(|file| source.join(file).exists()) else {
                continue;
            };
            self.add(at.iter().cloned().chain([child]).collect(), file);
        }
    }

    /// Returns the file that defines the item of an absolute path.
    fn file_of(&self, path: &[String], depth: usize) -> Option<&str> {
        let mut at = Segments::new();
        for (i, segment) in path.iter().enumerate() {
            let module = self.0.get(&at)?;
            if module.children.contains(segment) {
                at.push(segment.clone());
                if !self.0.contains_key(&at) {
                    return None;
                }
                continue;
            }
            if let Some(target) = module.aliases.get(segment)
                && depth < 16
            {
                let target: Vec<_> = target.iter().chain(&path[i + 1..]).cloned().collect();
                return self.file_of(&target, depth + 1);
            }
            break;
        }
        self.0.get(&at).map(|module| &*module.file)
    }

    /// Returns pairs of files. The first file of each pair uses the second one.
    fn edges(&self) -> BTreeSet<(String, String)> {
        let mut edges = BTreeSet::new();
        for module in self.0.values() {
            let files = module.named.iter().filter_map(|path| self.file_of(path, 0));
            let others = files.filter(|file| *file != module.file);
            edges.extend(others.map(|file| (module.file.clone(), file.to_owned())));
        }
        edges
    }
}

/// Returns the folder below `path/` to which a file belongs, and the part of that folder.
fn part(file: &str) -> Option<(&str, &str)> {
    let inside = file.strip_prefix("path/")?;
    let (family, rest) = match inside.split_once('/') {
        Some((family, rest)) => (family, rest),
        None => (inside.trim_end_matches(".rs"), ""),
    };
    Some((family, rest.split('/').next().unwrap_or(rest).trim_end_matches(".rs")))
}

/// Returns why the file `from` inside `path/` must not use the file `to`. Returns `None` if it may.
fn wrong(from: &str, to: &str) -> Option<String> {
    let ((family, own), (other, used)) = (part(from)?, part(to)?);
    let is_shared = SHARED.contains(&other);
    let across = (format!("{family}/{own}"), format!("{other}/{used}"));
    if ACROSS.contains(&(&*across.0, &*across.1)) {
        return None;
    }
    let fits = if family == other {
        let allowed = PARTS.iter().find(|(part, _)| *part == own);
        !FAMILIES.contains(&family)
            || own == used
            || own == "mod"
            || allowed.is_some_and(|(_, allowed)| allowed.contains(&used))
    } else {
        is_shared && (!SHARED.contains(&family) || family != other)
    };
    (!fits).then(|| format!("{from}: `{family}/{own}` may not use `{other}/{used}` ({to})"))
}

#[test]
fn parts_of_a_path_use_only_those_below() {
    let edges = Modules::read().edges();
    assert!(edges.len() > 300, "only {} edges were found", edges.len());
    let wrong: Vec<_> = edges.iter().filter_map(|(from, to)| wrong(from, to)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

// Checks of the figure in "The walk of a call".

/// One step of the figure in ARCHITECTURE.md.
#[derive(Debug, PartialEq, Eq)]
struct Step {
    from: String,
    to: String,
    /// Whether the step is a call of a trait that `call/` defines.
    is_virtual: bool,
}

/// Returns the steps of a figure. Each line of the figure consists of files or folders with arrows between
/// them.
fn steps(figure: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in figure.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        for at in words.windows(3) {
            let [from, arrow, to] = at else { continue };
            let is_virtual = match *arrow {
                "─▶" => false,
                "═▶" => true,
                _ => continue,
            };
            steps.push(Step { from: (*from).to_owned(), to: (*to).to_owned(), is_virtual });
        }
    }
    steps
}

/// Returns whether a place in the figure contains a file. The place can be a file or a whole folder, such as
/// `path/local/client` or `call/`.
fn has(place: &str, file: &str) -> bool {
    let rest = file.strip_prefix(place.trim_end_matches(".rs"));
    rest.is_some_and(|rest| place.ends_with('/') || rest == ".rs" || rest.starts_with('/'))
}

/// Returns what is wrong with a step, or `None`. In each pair of `edges`, the first file uses the second one.
fn misstep(step: &Step, edges: &BTreeSet<(String, String)>) -> Option<String> {
    let uses = |a: &str, b: &str| edges.iter().any(|(from, to)| has(a, from) && has(b, to));
    let Step { from, to, is_virtual } = step;
    let reason = if uses(to, from) {
        "is a step up"
    } else if *is_virtual && uses(from, to) {
        "is no virtual call"
    } else if *is_virtual && !(uses(from, "call/") && uses(to, "call/")) {
        "has no trait in `call/`"
    } else if !is_virtual && !uses(from, to) {
        "is not in the code"
    } else {
        return None;
    };
    Some(format!("`{from}` to `{to}` {reason}"))
}

/// Returns the folders and files of call paths to which no step of the figure leads.
fn paths_without_walk(families: &[&str], steps: &[Step]) -> Vec<String> {
    let folders = families.iter().map(|family| format!("path/{family}/"));
    let mut places: Vec<_> = folders.chain(["path/in_process.rs".to_owned()]).collect();
    places.retain(|place| !steps.iter().any(|step| step.to.starts_with(&**place)));
    places
}

#[test]
fn families_are_the_folders_of_paths() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/path");
    let entries = std::fs::read_dir(source).expect("the folder of paths");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let folders = entries.filter(|entry| entry.path().is_dir());
    let folders = folders.map(|folder| folder.file_name().into_string().expect("a name"));
    let folders: BTreeSet<_> = folders.filter(|folder| !SHARED.contains(&&**folder)).collect();
    assert_eq!(folders, FAMILIES.iter().map(|family| (*family).to_owned()).collect());
}

#[test]
fn walk_of_a_call_takes_no_step_up() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map");
    let section = text.split("\n## ").find(|section| section.starts_with("The walk of a call"));
    let steps = steps(section.expect("the walk of a call"));
    assert!(steps.len() >= 20, "only {} steps were found", steps.len());
    let edges = Modules::read().edges();
    let wrong: Vec<_> = steps.iter().filter_map(|step| misstep(step, &edges)).collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    assert_eq!(paths_without_walk(FAMILIES, &steps), [""; 0]);
}

#[test]
fn steps_that_are_not_in_the_code_are_found() {
    let found = steps("tcp  a/ ═▶ b/c.rs ─▶ d/e\n     with words");
    let step =
        |from: &str, to: &str, is_virtual| Step { from: from.into(), to: to.into(), is_virtual };
    assert_eq!(found, [step("a/", "b/c.rs", true), step("b/c.rs", "d/e", false)]);
    let edge = |(from, to): (&str, &str)| (from.to_owned(), to.to_owned());
    let edges = BTreeSet::from(
        [("a/x.rs", "call/mod.rs"), ("b/c.rs", "call/mod.rs"), ("b/c.rs", "d/e/f.rs")].map(edge),
    );
    assert_eq!(found.iter().find_map(|step| misstep(step, &edges)), None);
    assert!(misstep(&step("d/e", "b/c.rs", false), &edges).is_some());
    assert!(misstep(&step("b/c.rs", "d/e", true), &edges).is_some());
    assert!(misstep(&step("a/", "d/e", false), &edges).is_some());
    assert!(misstep(&step("a/", "d/e", true), &edges).is_some());
    let walks = [step("stub/", "path/in_process.rs", true), step("stub/", "path/b/client", true)];
    assert_eq!(paths_without_walk(&["b"], &walks), [""; 0]);
    assert_eq!(paths_without_walk(&["b", "c"], &walks), ["path/c/"]);
    assert_eq!(paths_without_walk(&["b"], &walks[1..]), ["path/in_process.rs"]);
}

#[test]
fn edges_against_the_flow_are_found() {
    assert!(wrong("path/local/client.rs", "path/local/server/pool.rs").is_some());
    assert!(wrong("path/stream/client.rs", "path/local/region.rs").is_some());
    assert!(wrong("path/local/client/large.rs", "path/local/region/word.rs").is_none());
    assert!(wrong("path/local/connect.rs", "path/bind.rs").is_none());
    assert!(wrong("path/bind.rs", "path/local/client.rs").is_some());
}
