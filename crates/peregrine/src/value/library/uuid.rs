//! Implements `Value` for `Uuid`, with the feature `uuid`. A `Uuid` is a plain type (`value/plain.rs`) of 16
//! bytes.

use uuid::Uuid;

use crate::interface::{Body, Field, Growth, Named, Type};
use crate::value::Value;

/// A `Uuid` is sent as its bytes, in the order of the written digits, on every machine.
impl Value for Uuid {
    const TYPE: Type = Type::Named(Named {
        name: "Uuid",
        path: core::any::type_name::<Self>,
        body: || Body::Plain {
            size: 16,
            align: 1,
            fields: const {
                &[Field { name: "bytes", ty: &<[u8; 16]>::TYPE, growth: Growth::NONE, max: None }]
            },
        },
    });
    crate::__plain_value!();
}
