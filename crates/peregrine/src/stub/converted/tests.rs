//! Conversion of random values between random interfaces and those that they grew into, compared with the
//! same on values in memory, which is slow and simple.

use proptest::prelude::*;

use super::Program;
use super::convert::Stopped;
use crate::interface::{
    Counterpart, Described, DescribedBody, DescribedField, DescribedGrowth, DescribedType,
    DescribedVariant, Sides, compare,
};
use crate::stub::Program as Interpreter;
use crate::value::{Dynamic, Native, Reader, Representation, Space, Swapped, Window, Writer};
