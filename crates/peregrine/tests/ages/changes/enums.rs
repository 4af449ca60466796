//! Defines the changes of enums, error types, names, widths of integers, and bounds of lengths.

use super::*;

pub(crate) mod open_enums {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Drink {
            Tea,
            #[other]
            Unknown(String),
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, drinks: &[Drink]) -> Result<String>;
            fn get(&self) -> Result<Vec<Drink>>;
        }
        impl Shop for Object {
            fn put(&self, drinks: &[Drink]) -> Result<String> {
                Ok(format!("{drinks:?}"))
            }
            fn get(&self) -> Result<Vec<Drink>> {
                Ok(vec![Drink::Unknown("x".into()), Drink::Tea])
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Drink {
            Coffee {
                sugar: u8,
                milk: bool,
            },
            Tea,
            #[other]
            Unknown(String),
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, drinks: &[Drink]) -> Result<String>;
            fn get(&self) -> Result<Vec<Drink>>;
        }
        impl Shop for Object {
            fn put(&self, drinks: &[Drink]) -> Result<String> {
                Ok(format!("{drinks:?}"))
            }
            fn get(&self) -> Result<Vec<Drink>> {
                Ok(vec![Drink::Coffee { sugar: 1, milk: true }, Drink::Tea])
            }
        }
    }

    pub(crate) fn change() -> Change {
        use new::Drink;
        Change {
            name: "a variant, `#[other] Unknown(String)`",
            forwards: "`Unknown` with its name",
            backwards: "`Unknown` with its name",
            old: age!(
                old,
                |shop| [shop.put(&[old::Drink::Tea, old::Drink::Unknown("y".into())]), shop.get()],
                &[("put", r#"{"drinks": ["Tea", {"Unknown": "y"}]}"#), ("get", "{}")],
                Expected::Calls {
                    compiled: &[r#""[Tea, Unknown(\"y\")]""#, r#"[Unknown("Coffee"), Tea]"#],
                    interpreted: &[r#""[Tea, Unknown(\"y\")]""#, r#"[{"Unknown":"Coffee"},"Tea"]"#],
                }
            ),
            new: age!(
                new,
                |shop| [
                    shop.put(&[Drink::Coffee { sugar: 0, milk: false }, Drink::Tea]),
                    shop.get()
                ],
                &[
                    ("put", r#"{"drinks": [{"Coffee": {"sugar": 0, "milk": false}}, "Tea"]}"#),
                    ("get", "{}")
                ],
                Expected::Calls {
                    compiled: &[r#""[Unknown(\"Coffee\"), Tea]""#, r#"[Unknown("x"), Tea]"#],
                    interpreted: &[r#""[Unknown(\"Coffee\"), Tea]""#, r#"[{"Unknown":"x"},"Tea"]"#],
                }
            ),
        }
    }
}

pub(crate) mod nameless {
    use super::*;

    mod old {
        shop!();
        #[derive(Clone, Copy, Debug, Plain)]
        #[repr(u16)]
        pub(crate) enum Size {
            Small = 1,
            #[other]
            Other = 99,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, sizes: &[Size]) -> Result<String>;
            fn get(&self) -> Result<Size>;
        }
        impl Shop for Object {
            fn put(&self, sizes: &[Size]) -> Result<String> {
                Ok(format!("{sizes:?}"))
            }
            fn get(&self) -> Result<Size> {
                Ok(Size::Small)
            }
        }
    }
    mod new {
        shop!();
        #[derive(Clone, Copy, Debug, Plain)]
        #[repr(u16)]
        pub(crate) enum Size {
            Small = 1,
            Large = 2,
            #[other]
            Other = 99,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, sizes: &[Size]) -> Result<String>;
            fn get(&self) -> Result<Size>;
        }
        impl Shop for Object {
            fn put(&self, sizes: &[Size]) -> Result<String> {
                Ok(format!("{sizes:?}"))
            }
            fn get(&self) -> Result<Size> {
                Ok(Size::Large)
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "a variant of a `Plain` enum, `#[other]`",
            forwards: "the `#[other]` variant",
            backwards: "the `#[other]` variant",
            old: age!(
                old,
                |shop| [shop.put(&[old::Size::Small, old::Size::Other]), shop.get()],
                &[("put", r#"{"sizes": ["Small", "Other"]}"#), ("get", "{}")],
                Expected::Calls {
                    compiled: &[r#""[Small, Other]""#, "Other"],
                    interpreted: &[r#""[Small, Other]""#, r#""Other""#],
                }
            ),
            new: age!(
                new,
                |shop| [shop.put(&[new::Size::Small, new::Size::Large]), shop.get()],
                &[("put", r#"{"sizes": ["Small", "Large"]}"#), ("get", "{}")],
                Expected::Calls {
                    compiled: &[r#""[Small, Other]""#, "Small"],
                    interpreted: &[r#""[Small, Other]""#, r#""Small""#],
                }
            ),
        }
    }
}

pub(crate) mod errors {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Trouble {
            Call(CallError),
            SoldOut(u32),
        }
        impl From<CallError> for Trouble {
            fn from(error: CallError) -> Self {
                Self::Call(error)
            }
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(&self, item: u32) -> std::result::Result<u32, Trouble>;
        }
        impl Shop for Object {
            fn buy(&self, item: u32) -> std::result::Result<u32, Trouble> {
                Err(Trouble::SoldOut(item))
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Trouble {
            Call(CallError),
            Closed { until: u32 },
            SoldOut(u32),
        }
        impl From<CallError> for Trouble {
            fn from(error: CallError) -> Self {
                Self::Call(error)
            }
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(&self, item: u32) -> std::result::Result<u32, Trouble>;
        }
        impl Shop for Object {
            fn buy(&self, item: u32) -> std::result::Result<u32, Trouble> {
                Err(if item > 9 { Trouble::SoldOut(item) } else { Trouble::Closed { until: 8 } })
            }
        }
    }

    /// Returns `Err` if the call failed. Every other outcome, including an error that the procedure returned,
    /// becomes a text.
    fn of_old(outcome: std::result::Result<u32, old::Trouble>) -> Result<String> {
        match outcome {
            Err(old::Trouble::Call(error)) => Err(error),
            other => Ok(format!("{other:?}")),
        }
    }

    pub(crate) fn change() -> Change {
        const UNKNOWN: &str = "BadResult, executed Maybe: this client does not know the variant `Closed` of `Trouble`";
        Change {
            name: "a variant of an error, no `#[other]`",
            forwards: "works",
            backwards: "`CallError` with its name",
            old: age!(
                old,
                |shop| [of_old(shop.buy(10)), of_old(shop.buy(1))],
                &[("buy", r#"{"item": 10}"#), ("buy", r#"{"item": 1}"#)],
                Expected::Calls {
                    compiled: &[r#""Err(SoldOut(10))""#, UNKNOWN],
                    interpreted: &[r#"error {"SoldOut":10}"#, UNKNOWN],
                }
            ),
            new: age!(
                new,
                |shop| [Ok::<_, CallError>(format!("{:?}", shop.buy(3)))],
                &[("buy", r#"{"item": 3}"#)],
                Expected::Calls {
                    compiled: &[r#""Err(SoldOut(3))""#],
                    interpreted: &[r#"error {"SoldOut":3}"#],
                }
            ),
        }
    }
}

pub(crate) mod names {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Item {
            Tea { grams: u32 },
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, item: &Item) -> Result<String>;
        }
        impl Shop for Object {
            fn put(&self, item: &Item) -> Result<String> {
                Ok(format!("{item:?}"))
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Goods {
            #[was("Tea")]
            Leaves {
                #[was("grams")]
                weight: u32,
            },
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            #[was("add", "put")]
            fn store(&self, #[was("item")] goods: &Goods) -> Result<String>;
        }
        impl Shop for Object {
            fn store(&self, goods: &Goods) -> Result<String> {
                Ok(format!("{goods:?}"))
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "other names, with `#[was]`",
            forwards: "works",
            backwards: "works",
            old: age!(
                old,
                |shop| [shop.put(&old::Item::Tea { grams: 5 })],
                &[("put", r#"{"item": {"Tea": {"grams": 5}}}"#)],
                Expected::Calls {
                    compiled: &[r#""Leaves { weight: 5 }""#],
                    interpreted: &[r#""Leaves { weight: 5 }""#],
                }
            ),
            new: age!(
                new,
                |shop| [shop.store(&new::Goods::Leaves { weight: 6 })],
                &[("store", r#"{"goods": {"Leaves": {"weight": 6}}}"#)],
                Expected::Calls {
                    compiled: &[r#""Tea { grams: 6 }""#],
                    interpreted: &[r#""Tea { grams: 6 }""#],
                }
            ),
        }
    }
}

pub(crate) mod widths {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            #[widens]
            pub(crate) price: u16,
            #[widens]
            pub(crate) sizes: Vec<Option<i8>>,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, item: Item, #[widens] counts: &[u8]) -> Result<String>;
            fn get(&self) -> Result<Item>;
        }
        impl Shop for Object {
            fn put(&self, item: Item, counts: &[u8]) -> Result<String> {
                Ok(format!("{item:?} {counts:?}"))
            }
            fn get(&self) -> Result<Item> {
                Ok(Item { price: 3, sizes: vec![Some(-1), None] })
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            #[widens]
            pub(crate) price: u64,
            #[widens]
            pub(crate) sizes: Vec<Option<i32>>,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, item: Item, #[widens] counts: &[u32]) -> Result<String>;
            fn get(&self) -> Result<Item>;
        }
        impl Shop for Object {
            fn put(&self, item: Item, counts: &[u32]) -> Result<String> {
                Ok(format!("{item:?} {counts:?}"))
            }
            fn get(&self) -> Result<Item> {
                Ok(Item { price: 4, sizes: vec![Some(-100)] })
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "wider integers, `#[widens]` on both sides",
            forwards: "works if they fit",
            backwards: "works if they fit",
            old: age!(
                old,
                |shop| [
                    shop.put(old::Item { price: 9, sizes: vec![Some(-7)] }, &[1, 2]),
                    shop.get()
                ],
                &[
                    ("put", r#"{"item": {"price": 9, "sizes": [-7]}, "counts": [1, 2]}"#),
                    ("get", "{}")
                ],
                Expected::Calls {
                    compiled: &[
                        r#""Item { price: 9, sizes: [Some(-7)] } [1, 2]""#,
                        "Item { price: 4, sizes: [Some(-100)] }",
                    ],
                    interpreted: &[
                        r#""Item { price: 9, sizes: [Some(-7)] } [1, 2]""#,
                        r#"{"price":4,"sizes":[-100]}"#,
                    ],
                }
            ),
            new: age!(
                new,
                |shop| [
                    shop.put(new::Item { price: 9, sizes: vec![None, Some(-7)] }, &[1, 255]),
                    shop.get()
                ],
                &[
                    ("put", r#"{"item": {"price": 9, "sizes": [null, -7]}, "counts": [1, 255]}"#),
                    ("get", "{}")
                ],
                Expected::Calls {
                    compiled: &[
                        r#""Item { price: 9, sizes: [None, Some(-7)] } [1, 255]""#,
                        "Item { price: 3, sizes: [Some(-1), None] }",
                    ],
                    interpreted: &[
                        r#""Item { price: 9, sizes: [None, Some(-7)] } [1, 255]""#,
                        r#"{"price":3,"sizes":[-1,null]}"#,
                    ],
                }
            ),
        }
    }
}

pub(crate) mod narrow {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn turn(&self, #[widens] price: &mut u8, #[widens] counts: &[i8]) -> Result<()>;
        }
        impl Shop for Object {
            fn turn(&self, price: &mut u8, _: &[i8]) -> Result<()> {
                *price += 1;
                Ok(())
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn turn(&self, #[widens] price: &mut u32, #[widens] counts: &[i64]) -> Result<()>;
        }
        impl Shop for Object {
            fn turn(&self, price: &mut u32, _: &[i64]) -> Result<()> {
                *price *= 100;
                Ok(())
            }
        }
    }

    pub(crate) fn change() -> Change {
        const OUT: &str =
            "BadArguments, executed No: the integer 256 does not fit the 8 bits of the server";
        const BELOW: &str =
            "BadArguments, executed No: the integer -129 does not fit the 8 bits of the server";
        const BACK: &str =
            "BadResult, executed Maybe: the integer 300 does not fit the 8 bits of the client";
        Change {
            name: "wider integers that do not fit",
            forwards: "argument: not executed",
            backwards: "result: may have run",
            old: age!(
                old,
                |shop| [{
                    let mut price = 3;
                    shop.turn(&mut price, &[])
                }],
                &[("turn", r#"{"price": 3, "counts": []}"#)],
                Expected::Calls { compiled: &[BACK], interpreted: &[BACK] }
            ),
            new: age!(
                new,
                |shop| [shop.turn(&mut 256, &[]), shop.turn(&mut 1, &[-129])],
                &[
                    ("turn", r#"{"price": 256, "counts": []}"#),
                    ("turn", r#"{"price": 1, "counts": [-129]}"#),
                ],
                Expected::Calls { compiled: &[OUT, BELOW], interpreted: &[OUT, BELOW] }
            ),
        }
    }
}

pub(crate) mod receivers {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Order {
            Tea,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn order(&self, order: Order) -> Result<String>;
        }
        impl Shop for Object {
            fn order(&self, order: Order) -> Result<String> {
                Ok(format!("{order:?}"))
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) enum Order {
            Coffee,
            Tea,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn order(&self, order: Order) -> Result<String>;
        }
        impl Shop for Object {
            fn order(&self, order: Order) -> Result<String> {
                Ok(format!("{order:?}"))
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "a variant of an enum that clients send",
            forwards: "",
            backwards: "works",
            old: age!(
                old,
                |shop| [shop.order(old::Order::Tea)],
                &[("order", r#"{"order": "Tea"}"#)],
                Expected::Calls { compiled: &[r#""Tea""#], interpreted: &[r#""Tea""#] }
            ),
            new: age!(
                new,
                |shop| [shop.order(new::Order::Coffee)],
                &[],
                Expected::Refused(Rule::ClosedEnum)
            ),
        }
    }
}

pub(crate) mod room {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, #[max_len(4)] items: &[u32]) -> Result<u32>;
        }
        impl Shop for Object {
            fn put(&self, items: &[u32]) -> Result<u32> {
                Ok(items.iter().sum())
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, #[max_len(8)] items: &[u32]) -> Result<u32>;
        }
        impl Shop for Object {
            fn put(&self, items: &[u32]) -> Result<u32> {
                Ok(items.iter().sum())
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "a larger `#[max_len]`",
            forwards: "",
            backwards: "works",
            old: age!(
                old,
                |shop| [shop.put(&[1, 2])],
                &[("put", r#"{"items": [1, 2]}"#)],
                Expected::Calls { compiled: &["3"], interpreted: &["3"] }
            ),
            new: age!(new, |shop| [shop.put(&[])], &[], Expected::Refused(Rule::LessRoom)),
        }
    }
}

pub(crate) mod twice {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn count(&self) -> Result<u32>;
        }
        impl Shop for Object {
            fn count(&self) -> Result<u32> {
                Ok(1)
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            #[idempotent]
            fn count(&self) -> Result<u32>;
        }
        impl Shop for Object {
            fn count(&self) -> Result<u32> {
                Ok(2)
            }
        }
    }

    pub(crate) fn change() -> Change {
        Change {
            name: "`#[idempotent]`",
            forwards: "",
            backwards: "works",
            old: age!(
                old,
                |shop| [shop.count()],
                &[("count", "{}")],
                Expected::Calls { compiled: &["2"], interpreted: &["2"] }
            ),
            new: age!(new, |shop| [shop.count()], &[], Expected::Refused(Rule::MayNotRunTwice)),
        }
    }
}
