//! Changes of an interface that clients and servers survive in at least one direction. In each module, `old`
//! and `new` are two ages of the same interface.

use std::sync::Arc;

use peregrine::call::Serve;
use peregrine::interface::{Interface, Rule};
use peregrine::{Binding, CallError, Lent, Out, Plain, Result, Value, interface};

use crate::forbidden;
use crate::interpreted::{Call, told};

/// A change, and the outcomes of calls between clients and servers of both ages.
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// The outcome for a new client and an old server, in words.
    pub(crate) forwards: &'static str,
    /// The outcome for an old client and a new server, in words.
    pub(crate) backwards: &'static str,
    pub(crate) old: Age,
    pub(crate) new: Age,
}

/// An interface at one time.
pub(crate) struct Age {
    pub(crate) interface: &'static Interface,
    pub(crate) server: fn() -> Arc<dyn Serve>,
    /// Makes all calls by compiled stubs.
    pub(crate) compiled: fn(Binding) -> Vec<String>,
    /// The same calls, for interpreted stubs.
    pub(crate) calls: &'static [Call],
    /// The outcomes that a client of this age must get from a server of the other age.
    pub(crate) expected: Expected,
}

pub(crate) enum Expected {
    /// The client is refused when it binds, by this rule.
    Refused(Rule),
    /// The client can bind, and its calls have these outcomes: one text for each call.
    Calls { compiled: &'static [&'static str], interpreted: &'static [&'static str] },
}

/// Returns an age of the trait `Shop` in a module, with its calls by a compiled client.
macro_rules! age {
    ($module:ident, |$client:ident| [$($call:expr),* $(,)?], $calls:expr, $expected:expr) => {
        Age {
            interface: $module::ShopClient::INTERFACE,
            server: || Arc::new($module::ShopServer::new($module::Object)),
            compiled: |binding| {
                use $module::Shop as _;
                let $client = $module::over(binding);
                vec![$(told($call)),*]
            },
            calls: $calls,
            expected: $expected,
        }
    };
}

/// Defines the items that the module of each age needs.
macro_rules! shop {
    () => {
        use super::super::*;

        pub(crate) struct Object;

        pub(crate) fn over(binding: Binding) -> ShopClient {
            ShopClient { binding }
        }
    };
}

pub(crate) fn all() -> Vec<Change> {
    let mut all = vec![
        procedures::change(),
        fields::change(),
        options::change(),
        plain_fields::change(),
        parameters::change(),
        buffers::change(),
        open_enums::change(),
        nameless::change(),
        errors::change(),
        names::change(),
        widths::change(),
        narrow::change(),
        receivers::change(),
        room::change(),
        twice::change(),
    ];
    all.extend(forbidden::all());
    all
}

mod procedures {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn count(&self) -> Result<u32>;
        }
        impl Shop for Object {
            fn count(&self) -> Result<u32> {
                Ok(5)
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn clear(&self) -> Result<()>;
            fn count(&self) -> Result<u32>;
        }
        impl Shop for Object {
            fn clear(&self) -> Result<()> {
                Ok(())
            }
            fn count(&self) -> Result<u32> {
                Ok(6)
            }
        }
    }

    pub(super) fn change() -> Change {
        const LACKING: &str = "NoSuchProcedure, executed No: the server has no procedure `clear`";
        Change {
            name: "a procedure",
            forwards: "its calls: not executed",
            backwards: "works",
            old: age!(
                old,
                |shop| [shop.count()],
                &[("count", "{}")],
                Expected::Calls { compiled: &["6"], interpreted: &["6"] }
            ),
            new: age!(
                new,
                |shop| [shop.count(), shop.clear(), Ok::<_, CallError>(shop.binding().lacks())],
                &[("count", "{}"), ("clear", "{}")],
                Expected::Calls {
                    compiled: &["5", LACKING, "[\"clear\"]"],
                    interpreted: &["5", LACKING],
                }
            ),
        }
    }
}

mod fields {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            pub(crate) name: String,
            pub(crate) price: u16,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, items: Vec<Item>) -> Result<String>;
            fn get(&self) -> Result<Item>;
        }
        impl Shop for Object {
            fn put(&self, items: Vec<Item>) -> Result<String> {
                Ok(format!("{items:?}"))
            }
            fn get(&self) -> Result<Item> {
                Ok(Item { name: "tea".into(), price: 3 })
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            #[default("g")]
            pub(crate) unit: String,
            pub(crate) name: String,
            #[default(vec![1, 2])]
            pub(crate) sizes: Vec<u32>,
            pub(crate) price: u16,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn put(&self, items: Vec<Item>) -> Result<String>;
            fn get(&self) -> Result<Item>;
        }
        impl Shop for Object {
            fn put(&self, items: Vec<Item>) -> Result<String> {
                Ok(format!("{items:?}"))
            }
            fn get(&self) -> Result<Item> {
                Ok(Item { unit: "kg".into(), name: "salt".into(), sizes: vec![9], price: 4 })
            }
        }
    }

    pub(super) fn change() -> Change {
        Change {
            name: "a field with a default, in a struct",
            forwards: "default",
            backwards: "default",
            old: age!(
                old,
                |shop| [shop.put(vec![old::Item { name: "tea".into(), price: 3 }]), shop.get()],
                &[("put", r#"{"items": [{"name": "tea", "price": 3}]}"#), ("get", "{}")],
                Expected::Calls {
                    compiled: &[
                        r#""[Item { unit: \"g\", name: \"tea\", sizes: [1, 2], price: 3 }]""#,
                        r#"Item { name: "salt", price: 4 }"#,
                    ],
                    interpreted: &[
                        r#""[Item { unit: \"g\", name: \"tea\", sizes: [1, 2], price: 3 }]""#,
                        r#"{"name":"salt","price":4}"#,
                    ],
                }
            ),
            new: age!(
                new,
                |shop| [
                    shop.put(vec![new::Item {
                        unit: "kg".into(),
                        name: "salt".into(),
                        sizes: vec![],
                        price: 4
                    }]),
                    shop.get()
                ],
                &[
                    (
                        "put",
                        r#"{"items": [{"unit": "kg", "name": "salt", "sizes": [], "price": 4}]}"#
                    ),
                    ("get", "{}")
                ],
                Expected::Calls {
                    compiled: &[
                        r#""[Item { name: \"salt\", price: 4 }]""#,
                        r#"Item { unit: "g", name: "tea", sizes: [1, 2], price: 3 }"#,
                    ],
                    interpreted: &[
                        r#""[Item { name: \"salt\", price: 4 }]""#,
                        r#"{"name":"tea","price":3,"sizes":[1,2],"unit":"g"}"#,
                    ],
                }
            ),
        }
    }
}

mod options {
    use super::*;

    mod old {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            pub(crate) name: String,
            pub(crate) next: Option<Box<Self>>,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn turn(&self, item: &mut Item) -> Result<String>;
        }
        impl Shop for Object {
            fn turn(&self, item: &mut Item) -> Result<String> {
                let text = format!("{item:?}");
                item.next = Some(Box::new(Item { name: "end".into(), next: None }));
                Ok(text)
            }
        }
    }
    mod new {
        shop!();
        #[derive(Debug, Value)]
        pub(crate) struct Item {
            pub(crate) name: String,
            pub(crate) note: Option<u64>,
            pub(crate) next: Option<Box<Self>>,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn turn(&self, item: &mut Item) -> Result<String>;
        }
        impl Shop for Object {
            fn turn(&self, item: &mut Item) -> Result<String> {
                let text = format!("{item:?}");
                item.note = Some(7);
                Ok(text)
            }
        }
    }

    pub(super) fn change() -> Change {
        Change {
            name: "a field that is an `Option`",
            forwards: "default: `None`",
            backwards: "default: `None`",
            old: age!(
                old,
                |shop| [{
                    let mut item = old::Item {
                        name: "a".into(),
                        next: Some(Box::new(old::Item { name: "b".into(), next: None })),
                    };
                    shop.turn(&mut item).map(|text| (text, item))
                }],
                &[("turn", r#"{"item": {"name": "a", "next": {"name": "b", "next": null}}}"#)],
                Expected::Calls {
                    compiled: &[
                        r#"("Item { name: \"a\", note: None, next: Some(Item { name: \"b\", note: None, next: None }) }", Item { name: "a", next: Some(Item { name: "b", next: None }) })"#,
                    ],
                    interpreted: &[
                        r#""Item { name: \"a\", note: None, next: Some(Item { name: \"b\", note: None, next: None }) }", item {"name":"a","next":{"name":"b","next":null}}"#,
                    ],
                }
            ),
            new: age!(
                new,
                |shop| [{
                    let mut item = new::Item { name: "a".into(), note: Some(1), next: None };
                    shop.turn(&mut item).map(|text| (text, item))
                }],
                &[("turn", r#"{"item": {"name": "a", "note": 1, "next": null}}"#)],
                Expected::Calls {
                    compiled: &[
                        r#"("Item { name: \"a\", next: None }", Item { name: "a", note: None, next: Some(Item { name: "end", note: None, next: None }) })"#,
                    ],
                    interpreted: &[
                        r#""Item { name: \"a\", next: None }", item {"name":"a","next":{"name":"end","next":null,"note":null},"note":null}"#,
                    ],
                }
            ),
        }
    }
}

mod plain_fields {
    use super::*;

    mod old {
        shop!();
        #[derive(Clone, Copy, Debug, Plain)]
        #[repr(C)]
        pub(crate) struct Point {
            pub(crate) x: u32,
            pub(crate) y: u32,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn sent(&self, points: &[Point]) -> Result<String>;
            fn lent(&self, points: Lent<'_, Point>) -> Result<String>;
            fn turned(&self, points: &mut [Point]) -> Result<String>;
            fn filled(&self, points: Out<'_, Point>) -> Result<u32>;
        }
        impl Shop for Object {
            fn sent(&self, points: &[Point]) -> Result<String> {
                Ok(format!("{points:?}"))
            }
            fn lent(&self, points: Lent<'_, Point>) -> Result<String> {
                let mut all = vec![Point { x: 0, y: 0 }; points.len()];
                points.copy_to(0, &mut all).expect("points");
                Ok(format!("{all:?}"))
            }
            fn turned(&self, points: &mut [Point]) -> Result<String> {
                let text = format!("{points:?}");
                points.iter_mut().for_each(|point| point.y += 1);
                Ok(text)
            }
            fn filled(&self, mut points: Out<'_, Point>) -> Result<u32> {
                points.put(&[Point { x: 1, y: 2 }]).expect("room");
                Ok(points.capacity() as u32)
            }
        }
    }
    mod new {
        shop!();
        #[derive(Clone, Copy, Debug, Plain)]
        #[repr(C)]
        pub(crate) struct Point {
            pub(crate) x: u32,
            #[default([7, 8])]
            pub(crate) z: [u16; 2],
            pub(crate) y: u32,
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn sent(&self, points: &[Point]) -> Result<String>;
            fn lent(&self, points: Lent<'_, Point>) -> Result<String>;
            fn turned(&self, points: &mut [Point]) -> Result<String>;
            fn filled(&self, points: Out<'_, Point>) -> Result<u32>;
        }
        impl Shop for Object {
            fn sent(&self, points: &[Point]) -> Result<String> {
                Ok(format!("{points:?}"))
            }
            fn lent(&self, points: Lent<'_, Point>) -> Result<String> {
                let mut all = vec![Point { x: 0, z: [0; 2], y: 0 }; points.len()];
                points.copy_to(0, &mut all).expect("points");
                Ok(format!("{all:?}"))
            }
            fn turned(&self, points: &mut [Point]) -> Result<String> {
                let text = format!("{points:?}");
                points.iter_mut().for_each(|point| point.x += 10);
                Ok(text)
            }
            fn filled(&self, mut points: Out<'_, Point>) -> Result<u32> {
                points.put(&[Point { x: 3, z: [4, 5], y: 6 }]).expect("room");
                Ok(points.capacity() as u32)
            }
        }
    }

    pub(super) fn change() -> Change {
        const OLD: [old::Point; 2] = [old::Point { x: 1, y: 2 }, old::Point { x: 3, y: 4 }];
        const NEW: [new::Point; 1] = [new::Point { x: 1, z: [2, 3], y: 4 }];
        Change {
            name: "a field with a default, in a `Plain` type",
            forwards: "default",
            backwards: "default",
            old: age!(
                old,
                |shop| [
                    shop.sent(&OLD),
                    shop.lent(Lent::from(&OLD)),
                    {
                        let mut points = OLD;
                        shop.turned(&mut points).map(|text| (text, points))
                    },
                    {
                        let mut points = Vec::with_capacity(3);
                        shop.filled(Out::from(&mut points)).map(|room| (room, points))
                    },
                ],
                &[
                    ("sent", r#"{"points": [{"x": 1, "y": 2}, {"x": 3, "y": 4}]}"#),
                    ("lent", r#"{"points": [{"x": 1, "y": 2}]}"#),
                    ("turned", r#"{"points": [{"x": 1, "y": 2}]}"#),
                    ("filled", r#"{"points": 3}"#),
                ],
                Expected::Calls {
                    compiled: &[
                        r#""[Point { x: 1, z: [7, 8], y: 2 }, Point { x: 3, z: [7, 8], y: 4 }]""#,
                        r#""[Point { x: 1, z: [7, 8], y: 2 }, Point { x: 3, z: [7, 8], y: 4 }]""#,
                        r#"("[Point { x: 1, z: [7, 8], y: 2 }, Point { x: 3, z: [7, 8], y: 4 }]", [Point { x: 11, y: 2 }, Point { x: 13, y: 4 }])"#,
                        r#"(3, [Point { x: 3, y: 6 }])"#,
                    ],
                    interpreted: &[
                        r#""[Point { x: 1, z: [7, 8], y: 2 }, Point { x: 3, z: [7, 8], y: 4 }]""#,
                        r#""[Point { x: 1, z: [7, 8], y: 2 }]""#,
                        r#""[Point { x: 1, z: [7, 8], y: 2 }]", points [{"x":11,"y":2}]"#,
                        r#"3, points [{"x":3,"y":6}]"#,
                    ],
                }
            ),
            new: age!(
                new,
                |shop| [
                    shop.sent(&NEW),
                    shop.lent(Lent::from(&NEW)),
                    {
                        let mut points = NEW;
                        shop.turned(&mut points).map(|text| (text, points))
                    },
                    {
                        let mut points = Vec::with_capacity(2);
                        shop.filled(Out::from(&mut points)).map(|room| (room, points))
                    },
                ],
                &[
                    ("sent", r#"{"points": [{"x": 1, "z": [2, 3], "y": 4}]}"#),
                    ("lent", r#"{"points": [{"x": 1, "z": [2, 3], "y": 4}]}"#),
                    ("turned", r#"{"points": [{"x": 1, "z": [2, 3], "y": 4}]}"#),
                    ("filled", r#"{"points": 2}"#),
                ],
                Expected::Calls {
                    compiled: &[
                        r#""[Point { x: 1, y: 4 }]""#,
                        r#""[Point { x: 1, y: 4 }]""#,
                        r#"("[Point { x: 1, y: 4 }]", [Point { x: 1, z: [7, 8], y: 5 }])"#,
                        r#"(2, [Point { x: 1, z: [7, 8], y: 2 }])"#,
                    ],
                    interpreted: &[
                        r#""[Point { x: 1, y: 4 }]""#,
                        r#""[Point { x: 1, y: 4 }]""#,
                        r#""[Point { x: 1, y: 4 }]", points [{"x":1,"y":5,"z":[7,8]}]"#,
                        r#"2, points [{"x":1,"y":2,"z":[7,8]}]"#,
                    ],
                }
            ),
        }
    }
}

mod parameters {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(&self, item: &str) -> Result<String>;
        }
        impl Shop for Object {
            fn buy(&self, item: &str) -> Result<String> {
                Ok(item.into())
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(
                &self,
                item: &str,
                #[default(1)] count: u32,
                note: Option<String>,
            ) -> Result<String>;
        }
        impl Shop for Object {
            fn buy(&self, item: &str, count: u32, note: Option<String>) -> Result<String> {
                Ok(format!("{count} {item} {note:?}"))
            }
        }
    }

    pub(super) fn change() -> Change {
        Change {
            name: "parameters with a default",
            forwards: "works",
            backwards: "default",
            old: age!(old, |shop| [shop.buy("tea")], &[("buy", r#"{"item": "tea"}"#)], {
                Expected::Calls {
                    compiled: &[r#""1 tea None""#],
                    interpreted: &[r#""1 tea None""#],
                }
            }),
            new: age!(
                new,
                |shop| [shop.buy("tea", 5, Some("hot".into()))],
                &[("buy", r#"{"item": "tea", "count": 5, "note": "hot"}"#)],
                Expected::Calls { compiled: &[r#""tea""#], interpreted: &[r#""tea""#] }
            ),
        }
    }
}

mod buffers {
    use super::*;

    mod old {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(&self, item: &[u16]) -> Result<String>;
        }
        impl Shop for Object {
            fn buy(&self, item: &[u16]) -> Result<String> {
                Ok(format!("{item:?}"))
            }
        }
    }
    mod new {
        shop!();
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn buy(
                &self,
                #[default] note: &str,
                item: &[u16],
                #[default] sizes: &[u32],
                #[default] data: Lent<'_, u64>,
                #[default] into: Out<'_, u16>,
            ) -> Result<String>;
        }
        impl Shop for Object {
            fn buy(
                &self,
                note: &str,
                item: &[u16],
                sizes: &[u32],
                data: Lent<'_, u64>,
                into: Out<'_, u16>,
            ) -> Result<String> {
                Ok(format!("{note:?} {item:?} {sizes:?} {} {}", data.len(), into.capacity()))
            }
        }
    }

    pub(super) fn change() -> Change {
        Change {
            name: "buffers and texts with `#[default]`",
            forwards: "out buffers are empty",
            backwards: "default: empty",
            old: age!(old, |shop| [shop.buy(&[1, 2])], &[("buy", r#"{"item": [1, 2]}"#)], {
                Expected::Calls {
                    compiled: &[r#""\"\" [1, 2] [] 0 0""#],
                    interpreted: &[r#""\"\" [1, 2] [] 0 0""#],
                }
            }),
            new: age!(
                new,
                |shop| [{
                    let mut into = Vec::with_capacity(4);
                    let data = Lent::from(&[1, 2, 3]);
                    shop.buy("x", &[1, 2], &[3], data, Out::from(&mut into))
                        .map(|text| (text, into))
                }],
                &[(
                    "buy",
                    r#"{"note": "x", "item": [1, 2], "sizes": [3], "data": [1, 2, 3], "into": 4}"#
                )],
                Expected::Calls {
                    compiled: &[r#"("[1, 2]", [])"#],
                    interpreted: &[r#""[1, 2]", into []"#],
                }
            ),
        }
    }
}

mod open_enums {
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

    pub(super) fn change() -> Change {
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

mod nameless {
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

    pub(super) fn change() -> Change {
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

mod errors {
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

    /// Returns the error of a failed call. Every other outcome, also an error of the procedure, becomes a
    /// text.
    fn of_old(outcome: std::result::Result<u32, old::Trouble>) -> Result<String> {
        match outcome {
            Err(old::Trouble::Call(error)) => Err(error),
            other => Ok(format!("{other:?}")),
        }
    }

    pub(super) fn change() -> Change {
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

mod names {
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

    pub(super) fn change() -> Change {
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

mod widths {
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

    pub(super) fn change() -> Change {
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

mod narrow {
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

    pub(super) fn change() -> Change {
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

mod receivers {
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

    pub(super) fn change() -> Change {
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

mod room {
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

    pub(super) fn change() -> Change {
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

mod twice {
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

    pub(super) fn change() -> Change {
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
