//! Defines the changes of procedures, fields and parameters.

use super::*;

pub(crate) mod procedures {
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

    pub(crate) fn change() -> Change {
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

pub(crate) mod fields {
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

    pub(crate) fn change() -> Change {
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

pub(crate) mod options {
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

    pub(crate) fn change() -> Change {
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

pub(crate) mod plain_fields {
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
                points.put(&[Point { x: 1, y: 2 }]).expect("enough space");
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
                points.put(&[Point { x: 3, z: [4, 5], y: 6 }]).expect("enough space");
                Ok(points.capacity() as u32)
            }
        }
    }

    pub(crate) fn change() -> Change {
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

pub(crate) mod parameters {
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

    pub(crate) fn change() -> Change {
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

pub(crate) mod buffers {
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

    pub(crate) fn change() -> Change {
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
