//! Tests that the numbers and bounds of other RPC systems are read from traits and printed, and that imported
//! interface files become descriptions.

use peregrine::interface::Program;
use peregrine_idl::{parse_trait, to_trait};

#[test]
fn numbers_of_other_systems_are_read_and_printed() {
    let text = "
        use peregrine::foreign::ByteString;
        pub const LONGEST: u32 = 9;
        type Key = [u8; 8];
        #[interface(version = 2, onc(program = 0x2000_0000, version = 2), courier(program = 4, version = 1))]
        trait Store {
            #[onc(1)] #[courier(0)]
            fn find(&self, key: Key, name: ByteString, how: How) -> Result<Found, Lack>;
            #[onc(7)] #[courier(3)]
            fn all(&self) -> Result<Vec<peregrine::foreign::ByteString>, Lack>;
        }
        #[derive(Value, Foreign)]
        struct Name(#[foreign(max = 4)] ByteString);
        #[derive(Value, Foreign)]
        enum How { First, Last = 5, Next, Before = -1 }
        #[derive(Value, Foreign)]
        #[foreign(switch = bool)]
        enum Found {
            #[foreign(case = true)] Yes { #[foreign(max = 16)] names: Vec<Name> },
            #[foreign(case = 0)] No,
            #[foreign(default)] Other(i32, String),
        }
        #[derive(Value, Foreign)]
        enum Lack { #[foreign(error = 3)] Short(u16), Failed(peregrine::CallError) }
    ";
    let store = parse_trait(text).unwrap();
    let foreign = "program onc 536870912 version 2 procedures 1 7\n\
        program courier 4 version 1 procedures 0 3\n";
    let told = store.foreign_text();
    assert!(told.starts_with(foreign), "{told}");
    for fact in [
        "variant 1 case 5",
        "variant 2 case 6",
        "variant 3 case -1",
        "variant 0 case 1\n",
        "variant 1 case 0\n",
        "variant 2 default",
        "variant 0 field 0 max 16",
        "variant 0 error 3",
        " field 0 max 4",
    ] {
        assert!(told.contains(fact), "{fact} is not in {told}");
    }
    let printed = to_trait(&store);
    assert_eq!(parse_trait(&printed).unwrap(), store, "{printed}");
    for (wrong, reason) in [
        (
            "#[interface(onc(program = 1, version = 1))] trait A { fn f(&self) -> peregrine::Result<()>; }",
            "#[onc(N)]",
        ),
        (
            "trait A { fn f(&self, a: B) -> peregrine::Result<()>; } type B = C; type C = B;",
            "contain each other",
        ),
        (
            "trait A { fn f(&self, a: B) -> peregrine::Result<()>; } struct B(#[foreign(max = 1)] u8);",
            "no count",
        ),
        (
            "trait A { fn f(&self, a: B) -> peregrine::Result<()>; } struct B(#[foreign(most = 1)] u8);",
            "expected `max`",
        ),
    ] {
        let error = parse_trait(wrong).unwrap_err().to_string();
        assert!(error.contains(reason), "{wrong}: {error}");
    }
}

#[test]
fn imported_files_become_descriptions() {
    let file = include_str!("onc/shop.x");
    let imported = peregrine_idl::import_onc(file, "shop.x").unwrap();
    let all = peregrine_idl::parse_traits(&imported.rust).unwrap();
    let programs: Vec<_> = all.iter().flat_map(|one| &one.programs).collect();
    let versions: Vec<_> = programs.iter().map(|one| (one.number, one.version)).collect();
    assert_eq!(versions, [(0x2000_0001, 1), (0x2000_0001, 2), (0x2000_0002, 7)]);
    for one in &all {
        let printed = to_trait(one);
        assert_eq!(&parse_trait(&printed).unwrap(), one, "{printed}");
    }
}

#[test]
fn program_that_is_started_by_its_name_has_procedures() {
    let text = "#[interface(courier)] trait Clock { #[courier(7)] fn now(&self) -> peregrine::Result<u32>; }";
    let clock = parse_trait(text).unwrap();
    let Program { number, version, procedures, .. } = &clock.programs[0];
    assert_eq!((*number, *version, &**procedures), (0, 0, &[7][..]));
    let printed = to_trait(&clock);
    assert!(printed.contains("#[interface(courier)]\n"), "{printed}");
    assert_eq!(parse_trait(&printed).unwrap(), clock);
}
