//! Forbidden changes of an interface. After such a change, an old client cannot bind to a new server, and a
//! new client cannot bind to an old server.

use std::sync::Arc;

use peregrine::call::Serve;
use peregrine::interface::{Described, Rule};
use peregrine::{Binding, Callback, GenericServer, Plain, Result, Sink, Value, interface};

use crate::changes::{Age, Change, Expected};
use crate::interpreted::told;

/// Returns a server that no client can call.
fn refusing(text: String) -> Arc<dyn Serve> {
    let described = Described::parse(&text).expect("a description");
    Arc::new(GenericServer::new(described, |_| panic!("no client can bind")))
}

macro_rules! refused {
    ($module:ident, $rule:ident) => {
        Age {
            interface: $module::ShopClient::INTERFACE,
            server: || refusing($module::ShopClient::INTERFACE.canonical_text()),
            compiled: |binding| vec![told($module::ping(binding))],
            calls: &[],
            expected: Expected::Refused(Rule::$rule),
        }
    };
}

/// Defines a change after which the old client and the new client are both refused.
macro_rules! forbidden {
    (
        $name:literal, $module:ident, $rule:ident,
        old { $($old:tt)* } new { $($new:tt)* }
    ) => {
        mod $module {
            use super::*;

            mod old {
                use super::super::*;
                $($old)*
                pub(crate) fn ping(binding: Binding) -> Result<()> {
                    ShopClient { binding }.binding.ping()
                }
            }
            mod new {
                use super::super::*;
                $($new)*
                pub(crate) fn ping(binding: Binding) -> Result<()> {
                    ShopClient { binding }.binding.ping()
                }
            }

            pub(super) fn change() -> Change {
                Change {
                    name: $name,
                    forwards: "",
                    backwards: "",
                    old: refused!(old, $rule),
                    new: refused!(new, $rule),
                }
            }
        }
    };
}

pub(crate) fn all() -> Vec<Change> {
    vec![
        no_default::change(),
        bare_parameter::change(),
        order::change(),
        width::change(),
        sign::change(),
        ty::change(),
        passing::change(),
        one_way::change(),
        items::change(),
        callback::change(),
        closed::change(),
        discriminant::change(),
        none_left::change(),
        version::change(),
    ]
}

forbidden! {
    "a field without a default", no_default, NoDefault,
    old {
        #[derive(Value)]
        pub(crate) struct Item { name: String }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, item: &Item) -> Result<()>; }
    }
    new {
        #[derive(Value)]
        pub(crate) struct Item { name: String, price: u32 }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, item: &Item) -> Result<()>; }
    }
}

forbidden! {
    "a parameter without a default", bare_parameter, NoDefault,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: u32) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: u32, b: &str) -> Result<()>; }
    }
}

forbidden! {
    "another order of fields", order, Order,
    old {
        #[derive(Value)]
        pub(crate) struct Item { name: String, unit: String }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn get(&self) -> Result<Item>; }
    }
    new {
        #[derive(Value)]
        pub(crate) struct Item { unit: String, name: String }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn get(&self) -> Result<Item>; }
    }
}

forbidden! {
    "wider integers, `#[widens]` on one side", width, Width,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: u32) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, #[widens] a: u64) -> Result<()>; }
    }
}

forbidden! {
    "a signed integer instead of an unsigned one", sign, Type,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, #[widens] a: u32) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, #[widens] a: i64) -> Result<()>; }
    }
}

forbidden! {
    "another type", ty, Type,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: Option<u32>) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: Vec<u32>) -> Result<()>; }
    }
}

forbidden! {
    "another way to pass a parameter", passing, Passing,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: Vec<u32>) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: &[u32]) -> Result<()>; }
    }
}

forbidden! {
    "`#[oneway]`", one_way, OneWay,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, a: u32) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            #[oneway]
            fn put(&self, a: u32) -> Result<()>;
        }
    }
}

forbidden! {
    "any change of a stream's items", items, Type,
    old {
        #[derive(Value)]
        pub(crate) struct Item { name: String }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn watch(&self, items: Sink<'_, Item>) -> Result<()>; }
    }
    new {
        #[derive(Value)]
        pub(crate) struct Item { name: String, price: Option<u32> }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn watch(&self, items: Sink<'_, Item>) -> Result<()>; }
    }
}

forbidden! {
    "any change of a callback's interface", callback, Type,
    old {
        #[interface]
        pub(crate) trait Listener { fn said(&self, text: &str) -> Result<()>; }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn watch(&self, listener: Callback<'_, dyn Listener>) -> Result<()>;
        }
    }
    new {
        #[interface]
        pub(crate) trait Listener {
            fn said(&self, text: &str) -> Result<()>;
            fn bye(&self) -> Result<()>;
        }
        #[interface(name = "Shop")]
        pub(crate) trait Shop {
            fn watch(&self, listener: Callback<'_, dyn Listener>) -> Result<()>;
        }
    }
}

forbidden! {
    "a variant of an enum that both send", closed, ClosedEnum,
    old {
        #[derive(Value)]
        pub(crate) enum Drink { Tea }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn turn(&self, drink: &mut Drink) -> Result<()>; }
    }
    new {
        #[derive(Value)]
        pub(crate) enum Drink { Tea, Coffee }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn turn(&self, drink: &mut Drink) -> Result<()>; }
    }
}

forbidden! {
    "another value of a `Plain` enum's variant", discriminant, Type,
    old {
        #[derive(Clone, Copy, Plain)]
        #[repr(u8)]
        pub(crate) enum Size { Small = 1 }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, size: Size) -> Result<()>; }
    }
    new {
        #[derive(Clone, Copy, Plain)]
        #[repr(u8)]
        pub(crate) enum Size { Small = 2 }
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self, size: Size) -> Result<()>; }
    }
}

forbidden! {
    "other names of all procedures, no `#[was]`", none_left, NoProcedure,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn store(&self) -> Result<()>; }
    }
}

forbidden! {
    "another version of the interface", version, Interface,
    old {
        #[interface(name = "Shop")]
        pub(crate) trait Shop { fn put(&self) -> Result<()>; }
    }
    new {
        #[interface(name = "Shop", version = 2)]
        pub(crate) trait Shop { fn put(&self) -> Result<()>; }
    }
}
