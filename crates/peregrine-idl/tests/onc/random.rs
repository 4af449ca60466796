//! Random trees of interface files, in which all names are declared.

use peregrine_idl::onc::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// Returns documentation texts as they occur in comments.
fn docs() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z.]{1,9}( [a-z.]{1,9})?", "[a-z]{1,5}\n[a-z]{1,5}"]
}

fn number() -> impl Strategy<Value = Value> {
    (0..100_i128).prop_map(Value::Number)
}

fn scalar() -> impl Strategy<Value = Type> {
    use Type::*;
    let all = [
        Bool,
        Char,
        UnsignedChar,
        Short,
        UnsignedShort,
        Int,
        UnsignedInt,
        Hyper,
        UnsignedHyper,
        Float,
        Double,
        Quadruple,
    ];
    prop::sample::select(all.to_vec())
}

/// Returns a type. It may use the first `before` declared types, and may nest types without names up to
/// `depth` levels.
fn ty(before: usize, depth: u32, path: String) -> BoxedStrategy<Type> {
    let named = (0..before.max(1)).prop_map(move |number| match before {
        0 => Type::Int,
        _ => Type::Named(format!("t{number}").as_str().into()),
    });
    let base = prop_oneof![3 => scalar(), 2 => named];
    let base = match depth {
        0 => base.boxed(),
        depth => {
            let inline =
                body(before, depth - 1, path).prop_map(|body| Type::Inline(Box::new(body)));
            prop_oneof![5 => base, 1 => inline].boxed()
        }
    };
    let shaped = (base, 0..8, option::of(number()), number());
    let shaped = shaped.prop_map(|(of, shape, max, count)| match shape {
        0 => Type::String(max),
        1 => Type::Bytes(max),
        2 => Type::Opaque(count),
        3 => Type::Array(Box::new(of), count),
        4 => Type::Sequence(Box::new(of), max),
        5 => Type::Pointer(Box::new(of)),
        _ => of,
    });
    shaped.boxed()
}

fn fields(before: usize, depth: u32, path: String) -> impl Strategy<Value = Vec<Declaration>> {
    let one = move |number: usize| {
        let ty = ty(before, depth, format!("{path}_{number}"));
        (docs(), ty).prop_map(move |(docs, ty)| Declaration {
            docs,
            name: format!("f{number}").as_str().into(),
            ty,
        })
    };
    (0..4_usize).prop_flat_map(move |count| (0..count).map(&one).collect::<Vec<_>>())
}

fn body(before: usize, depth: u32, path: String) -> BoxedStrategy<Body> {
    let members = vec((docs(), option::of(number())), 1..4).prop_map({
        let path = path.clone();
        move |all| {
            let one = |(number, (docs, value)): (usize, (String, Option<Value>))| Member {
                docs,
                name: format!("M{path}_{number}").as_str().into(),
                value,
            };
            Body::Enum(all.into_iter().enumerate().map(one).collect())
        }
    });
    let structure = fields(before, depth, format!("{path}_s")).prop_map(Body::Struct);
    let data = fields(before, depth, format!("{path}_u"));
    let union = (data, docs(), option::of(docs()), any::<bool>());
    let union = union.prop_map(|(data, comment, default, has_void)| {
        let mut arms: Vec<Arm> = data
            .into_iter()
            .enumerate()
            .map(|(number, one)| Arm {
                docs: one.docs.clone(),
                cases: [2 * number, 2 * number + 1].map(|one| Value::Number(one as i128)).into(),
                data: Some(Declaration { docs: String::new(), ..one }),
            })
            .collect();
        let void = Arm { docs: comment, cases: vec![Value::Number(-1)], data: None };
        arms.extend((has_void || arms.is_empty()).then_some(void));
        let switch = Declaration { docs: String::new(), name: "which".into(), ty: Type::Int };
        let default = default.map(|docs| DefaultArm { docs, data: None });
        Body::Union(Box::new(Union { switch, arms, default }))
    });
    prop_oneof![members, structure, union].boxed()
}

fn definition(number: usize) -> BoxedStrategy<Definition> {
    let name: Name = format!("t{number}").as_str().into();
    let alias = ty(number, 1, format!("a{number}")).prop_map(|ty| match ty {
        Type::Inline(body) => *body,
        ty => Body::Alias(ty),
    });
    let body = prop_oneof![2 => body(number, 2, format!("b{number}")), 1 => alias];
    (docs(), body)
        .prop_map(move |(docs, body)| {
            Definition::Type(TypeDefinition { docs, name: name.clone(), body })
        })
        .boxed()
}

/// Returns types that a file can use for arguments and results.
fn passed(types: usize) -> BoxedStrategy<Type> {
    ty(types, 0, String::new())
}

fn program(types: usize) -> impl Strategy<Value = Definition> {
    let argument = passed(types).prop_map(|ty| Argument { name: Some("x".into()), ty });
    let result = passed(types).prop_map(|ty| match ty {
        Type::String(_) => Type::String(None),
        Type::Array(of, _) | Type::Sequence(of, _) => *of,
        Type::Opaque(_) | Type::Bytes(_) => Type::Void,
        ty => ty,
    });
    let procedures = vec((docs(), vec(argument, 0..3), result), 0..4);
    let versions = vec((docs(), procedures), 1..3);
    (docs(), versions).prop_map(|(docs, versions)| {
        let version = |(number, (docs, procedures)): (usize, (String, Vec<_>))| Version {
            docs,
            name: format!("V{number}").as_str().into(),
            number: Value::Number(number as i128),
            procedures: procedures.into_iter().enumerate().map(procedure).collect(),
        };
        let versions = versions.into_iter().enumerate().map(version).collect();
        Definition::Program(Program {
            docs,
            name: "PPROG".into(),
            number: Value::Number(77),
            versions,
        })
    })
}

fn procedure(
    (number, (docs, arguments, result)): (usize, (String, Vec<Argument>, Type)),
) -> Procedure {
    Procedure {
        docs,
        name: format!("PPROC_{number}x").as_str().into(),
        number: Value::Number(number as i128 + 1),
        arguments,
        result,
    }
}

pub(super) fn specification() -> impl Strategy<Value = Specification> {
    (0..6_usize).prop_flat_map(|types| {
        let all = (0..types).map(definition).collect::<Vec<_>>();
        (all, option::of(program(types)), docs()).prop_map(|(mut definitions, program, docs)| {
            definitions.extend(program);
            let value = ConstantValue::Text("t\"\\x\n\u{1}2".to_owned());
            definitions.push(Definition::Constant(Constant { docs, name: "C".into(), value }));
            Specification { definitions }
        })
    })
}
