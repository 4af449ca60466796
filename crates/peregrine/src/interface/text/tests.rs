//! Texts of every shape are read and printed back; nothing else is taken, and nothing panics.

use proptest::prelude::*;

use super::*;

/// Named types of a made-up interface, before they are numbered as a text numbers them.
#[derive(Clone, Debug)]
struct Pool {
    procedures: Vec<DescribedProcedure>,
    bodies: Vec<DescribedBody>,
}

const POOL: usize = 6;

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_]{0,6}", Just("größe".to_owned()), Just("str".to_owned())]
}

fn integer() -> impl Strategy<Value = DescribedType> {
    let integers: Vec<_> =
        SIMPLE.iter().map(|(_, ty)| ty.clone()).filter(DescribedType::is_integer).collect();
    prop::sample::select(integers)
}

fn ty() -> impl Strategy<Value = DescribedType> {
    let simple: Vec<_> = SIMPLE.iter().map(|(_, ty)| ty.clone()).collect();
    let leaf = prop_oneof![prop::sample::select(simple), (0..POOL).prop_map(DescribedType::Named)];
    leaf.prop_recursive(4, 12, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        prop_oneof![
            (boxed.clone(), any::<u64>()).prop_map(|(one, n)| DescribedType::Array(one, n)),
            boxed.clone().prop_map(DescribedType::Sequence),
            boxed.clone().prop_map(DescribedType::Option),
            (boxed.clone(), boxed).prop_map(|(ok, err)| DescribedType::Result(ok, err)),
            prop::collection::vec(inner, 1..4).prop_map(DescribedType::Tuple),
        ]
    })
}

fn field() -> impl Strategy<Value = DescribedField> {
    (name(), ty()).prop_map(|(name, ty)| DescribedField { name, ty })
}

fn fields() -> impl Strategy<Value = Vec<DescribedField>> {
    prop::collection::vec(field(), 0..4)
}

fn plain() -> impl Strategy<Value = DescribedBody> {
    let field = (name(), integer(), 1..5u64).prop_map(|(name, ty, count)| {
        let ty = if count > 1 { DescribedType::Array(Box::new(ty), count) } else { ty };
        DescribedField { name, ty }
    });
    prop::collection::vec(field, 1..4).prop_map(|fields| {
        let bytes = |field: &DescribedField| match &field.ty {
            DescribedType::Array(one, count) => one.primitive_bytes().unwrap() * count,
            one => one.primitive_bytes().unwrap(),
        };
        DescribedBody::Plain { size: fields.iter().map(bytes).sum(), align: 1, fields }
    })
}

fn body() -> impl Strategy<Value = DescribedBody> {
    let discriminants = prop::collection::vec((name(), any::<i128>()), 0..4);
    let plain_enum = discriminants
        .prop_map(|variants| DescribedBody::PlainEnum { repr: DescribedType::I128, variants });
    let variant = (name(), fields()).prop_map(|(name, fields)| DescribedVariant { name, fields });
    prop_oneof![
        plain(),
        plain_enum,
        fields().prop_map(DescribedBody::Struct),
        prop::collection::vec(variant, 0..4).prop_map(DescribedBody::Enum),
    ]
}

fn parameter() -> impl Strategy<Value = DescribedParameter> {
    let shapes = vec![
        (Direction::In, Shape::One),
        (Direction::In, Shape::Buffer),
        (Direction::In, Shape::Text),
        (Direction::Lent, Shape::Buffer),
        (Direction::Out, Shape::Buffer),
        (Direction::InOut, Shape::One),
        (Direction::InOut, Shape::Buffer),
    ];
    (name(), prop::sample::select(shapes), ty(), any::<Option<u32>>()).prop_map(
        |(name, (direction, shape), ty, max_len)| {
            let ty = if shape == Shape::Text { DescribedType::Text } else { ty };
            DescribedParameter { name, direction, shape, ty, max_len }
        },
    )
}

fn pool() -> impl Strategy<Value = Pool> {
    let parameters = prop::collection::vec(parameter(), 0..4);
    let procedure = (name(), any::<bool>(), parameters, ty(), ty()).prop_map(
        |(name, idempotent, parameters, result, error)| DescribedProcedure {
            docs: String::new(),
            name,
            idempotent,
            parameters,
            result,
            error,
        },
    );
    (prop::collection::vec(procedure, 0..4), prop::collection::vec(body(), POOL))
        .prop_map(|(procedures, bodies)| Pool { procedures, bodies })
}

impl Pool {
    /// The interface, its types numbered in the order in which its text mentions them.
    fn described(mut self) -> Described {
        let mut order = Vec::new();
        for procedure in &mut self.procedures {
            for parameter in &mut procedure.parameters {
                number(&mut parameter.ty, &mut order);
            }
            number(&mut procedure.result, &mut order);
            number(&mut procedure.error, &mut order);
        }
        let mut types = Vec::new();
        while let Some(&one) = order.get(types.len()) {
            let mut body = self.bodies[one].clone();
            let all: Vec<&mut DescribedField> = match &mut body {
                DescribedBody::Plain { fields, .. } | DescribedBody::Struct(fields) => {
                    fields.iter_mut().collect()
                }
                DescribedBody::Enum(variants) => {
                    variants.iter_mut().flat_map(|variant| &mut variant.fields).collect()
                }
                DescribedBody::PlainEnum { .. } => Vec::new(),
            };
            all.into_iter().for_each(|field| number(&mut field.ty, &mut order));
            types.push(DescribedNamed { name: format!("T{}", one / 2), body });
        }
        Described {
            name: "Made-up".into(),
            version: 7,
            docs: String::new(),
            procedures: self.procedures,
            types,
        }
    }
}

fn number(ty: &mut DescribedType, order: &mut Vec<usize>) {
    match ty {
        DescribedType::Named(one) => {
            let known = order.iter().position(|known| known == one);
            *one = known.unwrap_or_else(|| {
                order.push(*one);
                order.len() - 1
            });
        }
        DescribedType::Array(one, _)
        | DescribedType::Sequence(one)
        | DescribedType::Option(one) => number(one, order),
        DescribedType::Result(ok, err) => {
            number(ok, order);
            number(err, order);
        }
        DescribedType::Tuple(parts) => parts.iter_mut().for_each(|one| number(one, order)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(pool in pool()) {
        let described = pool.described();
        let text = described.to_string();
        prop_assert_eq!(Described::parse(&text), Ok(described), "{}", text);
    }

    #[test]
    fn what_is_taken_prints_the_same_text(
        pool in pool(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        const LETTERS: &[u8] = b"abstru#=<>[](){}:;, -018\n";
        let mut text = pool.described().to_string().into_bytes();
        for (at, what) in edits {
            let at = at.index(text.len());
            match LETTERS.get(usize::from(what) % (LETTERS.len() + 1)) {
                Some(letter) if what < 128 => text[at] = *letter,
                Some(letter) => text.insert(at, *letter),
                None => drop(text.remove(at)),
            }
            prop_assume!(!text.is_empty());
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(described) = Described::parse(&text) {
            prop_assert_eq!(described.to_string(), text);
        }
    }
}

const HEAD: &str = "interface A version 0\n";

fn refused(rest: &str) -> String {
    Described::parse(&format!("{HEAD}{rest}")).expect_err(rest).to_string()
}

#[test]
fn refusals_say_where_and_why() {
    let texts = [
        ("f( -> unit or unit\n", "line 2", "a direction"),
        ("f() -> unit or unit \n", "line 2", "the line's end"),
        ("f() -> u9 or unit\n", "line 2", "`u9 or unit` stands where a type should"),
        ("f() -> tuple<> or unit\n", "line 2", "a type"),
        ("f() -> option<u8, u8> or unit\n", "line 2", "a type"),
        ("f() -> [u8; 01] or unit\n", "line 2", "a number"),
        ("f() -> [u8; 18446744073709551616] or unit\n", "line 2", "a number"),
        ("f(out x: u8) -> unit or unit\n", "line 2", "a slice"),
        ("f(inout x: str) -> unit or unit\n", "line 2", "a slice"),
        ("f(in x: u8 max 4294967296) -> unit or unit\n", "line 2", "a number"),
        ("f() -> A#0 or unit\n", "line 2", "`A#0` is described nowhere"),
        ("f() -> A#1 or unit\n", "line 2", "`A#1` is not the type of that number"),
        ("f() -> A#0 or B#0\nA#0 = struct {}\n", "line 2", "`B#0`"),
        ("f() -> unit or unit\nA#0 = struct {}\n", "line 3", "was not mentioned"),
        ("f() -> A#0 or unit\nA#0 = struct {}\ng() -> unit or unit\n", "line 4", "`#`"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 4 {a: u16}\n", "line 3", "4 bytes has"),
        ("f() -> A#0 or unit\nA#0 = plain 0 align 1 {}\n", "line 3", "0 bytes"),
        ("f() -> A#0 or unit\nA#0 = plain 6 align 4 {a: [u16; 3]}\n", "line 3", "aligned"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 1 {a: text}\n", "line 3", "is not plain"),
        ("f() -> A#0 or unit\nA#0 = plain 4 align 4 {a: A#0}\n", "line 3", "contains itself"),
        ("f() -> A#0 or unit\nA#0 = plain enum u8 B=256\n", "line 3", "outside"),
        ("f() -> A#0 or unit\nA#0 = plain enum i8 B=-129\n", "line 3", "outside"),
        ("f() -> A#0 or unit\nA#0 = plain enum f32 B=1\n", "line 3", "an integer"),
        (
            "f() -> A#0 or unit\nA#0 = plain 8 align 1 {a: [[u8; 4294967296]; 4294967296]}\n",
            "line 3",
            "is not plain",
        ),
        ("f() -> \u{1b} or unit\n", "line 2", "`\\u{1b} or unit`"),
        ("f() -> unit or", "line 2", "line feed"),
    ];
    for (text, line, why) in texts {
        let said = refused(text);
        assert!(said.contains(line) && said.contains(why), "{text:?}: {said}");
    }
    assert!(Described::parse("").is_err() && Described::parse("\n").is_err());
}

#[test]
fn depth_and_length_are_bounded() {
    let nested = |depth: usize| {
        let (open, close) = ("option<".repeat(depth), ">".repeat(depth));
        format!("{HEAD}f() -> {open}u8{close} or unit\n")
    };
    assert!(Described::parse(&nested(limits::CANONICAL_DEPTH_MAX)).is_ok());
    assert!(Described::parse(&nested(limits::CANONICAL_DEPTH_MAX + 1)).is_err());
    assert!(Described::parse(&nested(100_000)).is_err());
    let long = format!("{HEAD}{}\n", "x".repeat(limits::CANONICAL_BYTES_MAX));
    assert!(Described::parse(&long).is_err());
}

#[test]
fn plain_types_in_a_long_row_are_read() {
    let mut text = format!("{HEAD}f() -> A#0 or unit\n");
    for number in 0..2000 {
        text += &format!("A#{number} = plain 1 align 1 {{a: A#{}}}\n", number + 1);
    }
    text += "A#2000 = plain enum u8 One=1\n";
    let described = Described::parse(&text).unwrap();
    assert_eq!(described.plain_bytes(&DescribedType::Named(0)), Some(1));
    assert_eq!(described.plain_alignment(&described.procedures[0].result), Some(1));
}

#[test]
fn a_sequence_of_texts_is_no_text() {
    let text =
        "interface A version 0\nf(in a: str, in b: [text], inout c: [text]) -> unit or unit\n";
    let described = Described::parse(text).unwrap();
    let shapes: Vec<Shape> =
        described.procedures[0].parameters.iter().map(|one| one.shape).collect();
    assert_eq!(shapes, [Shape::Text, Shape::Buffer, Shape::Buffer]);
    assert_eq!(described.to_string(), text);
}
