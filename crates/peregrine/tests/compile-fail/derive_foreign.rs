//! `#[derive(Foreign)]` refuses wrong attributes, and types that have no form.

use peregrine::foreign::Foreign;

#[derive(Foreign)]
enum NoCases {
    Text,
    Number(u32),
}

#[derive(Foreign)]
enum NoNumber {
    #[foreign(default)]
    Other,
}

#[derive(Foreign)]
enum TwoDefaults {
    #[foreign(default)]
    One(i32),
    #[foreign(default)]
    Two(i32),
}

#[derive(Foreign)]
enum Both {
    #[foreign(case = 1, default)]
    One(i32),
}

#[derive(Foreign)]
enum SameNumber {
    #[foreign(case = 1)]
    One(u32),
    #[foreign(case = 1)]
    Two,
}

#[derive(Foreign)]
#[foreign(switch = bool)]
enum NotABool {
    #[foreign(case = true)]
    Yes(u32),
    #[foreign(case = 2)]
    Two,
}

#[derive(Foreign)]
enum Mixed {
    #[foreign(error = 1)]
    Reported,
    #[foreign(case = 2)]
    Sent,
}

#[derive(Foreign)]
struct WrongPlace {
    #[foreign(case = 1)]
    field: u32,
}

#[derive(Foreign)]
#[foreign(switch = u32)]
struct Switched;

#[derive(Foreign)]
struct Twice(#[foreign(max = 1, max = 2)] String);

#[derive(Foreign)]
struct Borrows<'a>(&'a str);

#[derive(Foreign)]
enum Never {}

#[derive(Foreign)]
union Either {
    a: u8,
}

#[derive(Foreign)]
struct NotAList {
    #[list]
    next: Vec<Self>,
}

fn main() {}
