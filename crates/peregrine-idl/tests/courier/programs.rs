//! Random programs, and a check that Rust declares the types that it uses.

use std::collections::HashSet;

use peregrine_idl::courier::*;
use proptest::prelude::*;
use syn::{Item, UseTree};

/// Asserts that each path of a type in a file is declared, imported, or known in every module.
pub(crate) fn declared_types(file: &syn::File) {
    let names = names(&file.items);
    check(&file.items, &names, &HashSet::new());
}

/// Returns the names that items declare or import. The name of an item in a module begins with the name of
/// the module.
fn names(items: &[Item]) -> HashSet<String> {
    let mut all = HashSet::new();
    for item in items {
        let name = match item {
            Item::Struct(one) => one.ident.to_string(),
            Item::Enum(one) => one.ident.to_string(),
            Item::Type(one) => one.ident.to_string(),
            Item::Trait(one) => one.ident.to_string(),
            Item::Use(one) => {
                imported(&one.tree, &mut all);
                continue;
            }
            Item::Mod(one) => {
                let content = one.content.as_ref().map_or(&[][..], |content| &content.1);
                all.extend(names(content).into_iter().map(|name| format!("{}::{name}", one.ident)));
                continue;
            }
            _ => continue,
        };
        assert!(all.insert(name.clone()), "`{name}` is declared twice");
    }
    all
}

fn imported(tree: &UseTree, all: &mut HashSet<String>) {
    match tree {
        UseTree::Path(path) => imported(&path.tree, all),
        UseTree::Name(name) => drop(all.insert(name.ident.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|one| imported(one, all)),
        _ => panic!("an unknown form of `use`"),
    }
}

fn check(items: &[Item], names: &HashSet<String>, around: &HashSet<String>) {
    for item in items {
        match item {
            Item::Struct(one) => one.fields.iter().for_each(|one| ty(&one.ty, names, around)),
            Item::Enum(one) => {
                let fields = one.variants.iter().flat_map(|one| &one.fields);
                fields.for_each(|one| ty(&one.ty, names, around));
            }
            Item::Type(one) => ty(&one.ty, names, around),
            Item::Const(one) => ty(&one.ty, names, around),
            Item::Fn(one) => result(&one.sig, names, around),
            Item::Trait(one) => {
                for item in &one.items {
                    let syn::TraitItem::Fn(method) = item else { panic!("an unknown item") };
                    result(&method.sig, names, around);
                }
            }
            Item::Mod(one) => {
                let content = one.content.as_ref().map_or(&[][..], |content| &content.1);
                check(content, &self::names(content), names);
            }
            _ => {}
        }
    }
}

fn result(signature: &syn::Signature, names: &HashSet<String>, around: &HashSet<String>) {
    for input in &signature.inputs {
        if let syn::FnArg::Typed(one) = input {
            ty(&one.ty, names, around);
        }
    }
    if let syn::ReturnType::Type(_, one) = &signature.output {
        ty(one, names, around);
    }
}

fn ty(one: &syn::Type, names: &HashSet<String>, around: &HashSet<String>) {
    const KNOWN: [&str; 10] =
        ["bool", "u16", "u32", "i16", "i32", "str", "Vec", "Box", "Result", "peregrine::Result"];
    match one {
        syn::Type::Array(one) => ty(&one.elem, names, around),
        syn::Type::Reference(one) => ty(&one.elem, names, around),
        syn::Type::Tuple(one) => one.elems.iter().for_each(|one| ty(one, names, around)),
        syn::Type::Path(path) => {
            let parts: Vec<String> =
                path.path.segments.iter().map(|one| one.ident.to_string()).collect();
            let name = parts.join("::");
            let is_known = match name.strip_prefix("super::") {
                Some(name) => around.contains(name),
                None => names.contains(&name) || KNOWN.contains(&&*name),
            };
            assert!(is_known, "`{name}` is not declared");
            for segment in &path.path.segments {
                let syn::PathArguments::AngleBracketed(all) = &segment.arguments else { continue };
                for argument in &all.args {
                    if let syn::GenericArgument::Type(one) = argument {
                        ty(one, names, around);
                    }
                }
            }
        }
        _ => panic!("an unknown form of a type"),
    }
}

fn named(name: impl Into<String>) -> Reference {
    Reference { program: None, name: Name::from(&*name.into()) }
}

fn number(number: i64) -> Count {
    Count::Number(number, Span::default())
}

/// Returns a number, or the constant `limit`, which each program has.
fn count() -> impl Strategy<Value = Count> {
    prop_oneof![(0_i64..400).prop_map(number), Just(Count::Named(named("limit")))]
}

/// Returns distinct names with a number each.
fn tags() -> impl Strategy<Value = Vec<Tag>> {
    prop::collection::btree_map("[a-z][a-zA-Z0-9]{0,5}_?", any::<u8>(), 1..5).prop_map(|tags| {
        let tags = tags.into_iter().enumerate();
        let tag = |(place, (name, gap)): (usize, (String, u8))| Tag {
            name: Name::from(&*name),
            number: Some(number(place as i64 * 256 + i64::from(gap))),
        };
        tags.map(tag).collect()
    })
}

fn fields(of: impl Strategy<Value = Type> + Clone) -> impl Strategy<Value = Vec<Fields>> {
    let groups = prop::collection::vec((1_usize..3, of), 0..4);
    (groups, "[a-zA-Z]{1,6}_").prop_map(|(groups, prefix)| {
        let mut next = 0;
        let mut group = |(count, ty)| {
            let names = (next..next + count).map(|place| Name::from(&*format!("{prefix}{place}")));
            let fields = Fields { names: names.collect(), ty };
            next += count;
            fields
        };
        groups.into_iter().map(&mut group).collect()
    })
}

/// Returns the name of one of the types `T0` to `T5`. The caller uses it only within a sequence, or in one
/// arm of a choice, so that no type contains itself without end.
fn some_type() -> impl Strategy<Value = Type> {
    (0..6).prop_map(|place| Type::Named(named(format!("T{place}"))))
}

/// Returns a type of data. It has the types `T0` to `T5` only within a sequence, or in one arm of a choice
/// that has another arm without them.
fn data() -> impl Strategy<Value = Type> + Clone {
    let simple = prop::sample::select(vec![
        Simple::Boolean,
        Simple::Cardinal,
        Simple::LongCardinal,
        Simple::Integer,
        Simple::LongInteger,
        Simple::Unspecified,
        Simple::LongUnspecified,
        Simple::String,
    ]);
    let leaf = prop_oneof![
        simple.prop_map(Type::Simple),
        tags().prop_map(Type::Enumeration),
        Just(Type::Named(named("Colour"))),
        (prop::option::of(count()), some_type())
            .prop_map(|(max, of)| Type::Sequence(max, Box::new(of))),
        some_type().prop_map(|of| {
            let arm = |name: &str, ty| Arm {
                tags: vec![Tag { name: Name::from(name), number: None }],
                ty,
            };
            Type::Choice(
                Some(named("Colour")),
                vec![arm("red", Type::Record(vec![])), arm("blue", of)],
            )
        }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (count(), inner.clone()).prop_map(|(count, of)| Type::Array(count, Box::new(of))),
            (prop::option::of(count()), inner.clone())
                .prop_map(|(max, of)| Type::Sequence(max, Box::new(of))),
            fields(inner.clone()).prop_map(Type::Record),
            (tags(), prop::collection::vec(inner, 1..4)).prop_map(|(tags, types)| {
                let each = tags.len().div_ceil(types.len());
                let arms = tags.chunks(each).zip(types);
                Type::Choice(None, arms.map(|(tags, ty)| Arm { tags: tags.to_vec(), ty }).collect())
            }),
        ]
    })
    .boxed()
}

fn constant(value: Value) -> Constant {
    Constant { span: Span::default(), value }
}

/// Returns constants of several types.
fn constants() -> impl Strategy<Value = Vec<(Type, Value)>> {
    let one = prop_oneof![
        any::<bool>().prop_map(|one| (Type::Simple(Simple::Boolean), Value::Boolean(one))),
        any::<i32>().prop_map(|one| (Type::Simple(Simple::LongInteger), Value::Number(one.into()))),
        "[ -~]{0,12}".prop_map(|one| (Type::Simple(Simple::String), Value::Text(one))),
        Just((Type::Named(named("Colour")), Value::Named(named("blue")))),
        Just((Type::Simple(Simple::Cardinal), Value::Named(named("limit")))),
        prop::collection::vec(any::<u16>(), 0..5).prop_map(|all| {
            let of = Box::new(Type::Simple(Simple::Unspecified));
            let all = all.into_iter().map(|one| constant(Value::Number(one.into())));
            (Type::Sequence(Some(number(9)), of), Value::List(all.collect()))
        }),
        any::<i16>().prop_map(|one| {
            let fields = Fields {
                names: vec![Name::from("x"), Name::from("y")],
                ty: Type::Simple(Simple::Integer),
            };
            let value = Value::Fields(vec![(
                vec![Name::from("y"), Name::from("x")],
                constant(Value::Number(one.into())),
            )]);
            (Type::Record(vec![fields]), value)
        }),
    ];
    prop::collection::vec(one, 0..5)
}

/// Returns a program that is correct.
pub(crate) fn program() -> impl Strategy<Value = Program> {
    let docs = "([a-zA-Z.,]{1,8}( [a-z.,]{1,8}){0,3}(\n[a-z]{1,8})?)?";
    let procedure = (fields(data()), fields(data()), prop::collection::vec(0..2_usize, 0..3));
    let numbers = prop::option::of((1..=u32::MAX, any::<u16>()));
    let parts = (
        prop::collection::vec((docs, data()), 6),
        constants(),
        prop::collection::vec((docs, procedure), 0..4),
        prop::collection::vec(fields(data()), 2),
    );
    (docs, numbers, parts).prop_map(|(docs, numbers, (types, constants, procedures, errors))| {
        let declare = |docs: &str, name: String, ty, value: Option<Value>| Declaration {
            docs: docs.to_owned(),
            name: Name::from(&*name),
            ty,
            value: value.map(constant),
        };
        let tag = |name: &str, of| Tag { name: Name::from(name), number: Some(number(of)) };
        let colours = Type::Enumeration(vec![tag("red", 3), tag("blue", 70)]);
        let mut all = vec![declare("", "Colour".into(), colours, None)];
        for (place, (docs, ty)) in types.into_iter().enumerate() {
            all.push(declare(&docs, format!("T{place}"), ty, None));
        }
        for (place, (ty, value)) in constants.into_iter().enumerate() {
            all.push(declare("", format!("constant{place}"), ty, Some(value)));
        }
        for (place, arguments) in errors.into_iter().enumerate() {
            let number = Value::Number(place as i64 + 5);
            all.push(declare("", format!("Error{place}"), Type::Error(arguments), Some(number)));
        }
        for (place, (docs, (arguments, results, mut reports))) in procedures.into_iter().enumerate()
        {
            reports.sort_unstable();
            reports.dedup();
            let reports = reports.into_iter().map(|place| named(format!("Error{place}"))).collect();
            let ty = Type::Procedure(Procedure { arguments, results, reports });
            all.push(declare(&docs, format!("Call{place}"), ty, Some(Value::Number(place as i64))));
        }
        let limit = (Type::Simple(Simple::Cardinal), Some(Value::Number(250)));
        all.push(declare("", "limit".into(), limit.0, limit.1));
        let numbers = numbers.map(|(program, version)| Numbers { program, version });
        Program { docs, name: Name::from("Random"), numbers, depends: vec![], declarations: all }
    })
}
