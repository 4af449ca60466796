//! Texts of values, which are the same as in `every.c`: numbers in decimal, bytes and floats in hexadecimal.

use peregrine::foreign::ByteString;

use super::every::{
    Answer, Brief, Colour, Every, Fixed, Hypers, Label, Node, Perhaps, Point, Points, Shape, Tree,
};

/// A value with a text.
pub(crate) trait Show {
    fn show(&self) -> String;
}

macro_rules! decimal {
    ($($type:ty),*) => {$(
        impl Show for $type {
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

decimal!(i32, u32, i64, u64, i8, i16, u16, bool);

impl Show for f32 {
    fn show(&self) -> String {
        format!("{:08x}", self.to_bits())
    }
}

impl Show for f64 {
    fn show(&self) -> String {
        format!("{:016x}", self.to_bits())
    }
}

/// Bytes that are shown as opaque data. A single `u8` is shown as a number.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Show for Bytes<'_> {
    fn show(&self) -> String {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("<{digits}>")
    }
}

impl Show for u8 {
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Vectors and arrays of bytes are opaque.
impl Show for Vec<u8> {
    fn show(&self) -> String {
        Bytes(self).show()
    }
}

impl<const N: usize> Show for [u8; N] {
    fn show(&self) -> String {
        Bytes(self).show()
    }
}

impl Show for ByteString {
    fn show(&self) -> String {
        Bytes(&self.0).show()
    }
}

fn all<T: Show>(values: &[T]) -> String {
    let texts: Vec<_> = values.iter().map(Show::show).collect();
    format!("[{}]", texts.join(" "))
}

macro_rules! sequences {
    ($($type:ty),*) => {$(
        impl Show for Vec<$type> {
            fn show(&self) -> String {
                all(self)
            }
        }
    )*};
}

sequences!(i16, Label);

impl Show for Brief {
    fn show(&self) -> String {
        self.0.show()
    }
}

impl Show for Label {
    fn show(&self) -> String {
        self.0.show()
    }
}

impl Show for Hypers {
    fn show(&self) -> String {
        all(&self.0)
    }
}

impl Show for Points {
    fn show(&self) -> String {
        all(&self.0)
    }
}

impl Show for Colour {
    fn show(&self) -> String {
        let number = match self {
            Self::Black => i32::MIN,
            Self::Red => -1,
            Self::Green => 0,
            Self::Blue => i32::MAX,
        };
        number.to_string()
    }
}

impl Show for Fixed {
    fn show(&self) -> String {
        let (digest, triple) = (self.digest.show(), all(&self.triple));
        [digest, triple, all(&self.pair), all(&self.letters)].concat()
    }
}

impl Show for Point {
    fn show(&self) -> String {
        format!("{}/{}/{}", self.x, self.y, self.z)
    }
}

impl Show for Shape {
    fn show(&self) -> String {
        match self {
            Self::Red(number) => format!("-1:{number}"),
            Self::Green(label) => format!("0:{}", label.show()),
            Self::Blue(label) => format!("{}:{}", i32::MAX, label.show()),
            Self::Default(other) => format!("{other}:"),
        }
    }
}

impl Show for Answer {
    fn show(&self) -> String {
        match self {
            Self::Case0 => "0:".to_owned(),
            Self::CaseMinus1(far) => format!("-1:{far}"),
            Self::Default(which, rest) => format!("{which}:{}", rest.show()),
        }
    }
}

impl Show for Perhaps {
    fn show(&self) -> String {
        match self {
            Self::True(value) => format!("true{}", value.show()),
            Self::False => "false".to_owned(),
        }
    }
}

impl Show for Option<Box<Point>> {
    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "-".to_owned(), |point| point.show())
    }
}

impl Show for Option<Box<Node>> {
    fn show(&self) -> String {
        let mut text = String::new();
        let mut next = self;
        while let Some(node) = next {
            text += &format!("{},", node.value);
            next = &node.next;
        }
        text + "."
    }
}

impl Show for Tree {
    fn show(&self) -> String {
        let branch =
            |branch: &Option<Box<Self>>| branch.as_ref().map_or_else(String::new, |it| it.show());
        format!("({}{}{})", branch(&self.left), self.name.show(), branch(&self.right))
    }
}

impl Show for Every {
    fn show(&self) -> String {
        let numbers = [self.yes.show(), self.lengths.show(), self.corners.show(), self.form.show()];
        let rest = [self.real.show(), self.r#where.show(), self.names.show(), self.values.show()];
        [numbers.concat(), rest.concat()].concat()
    }
}
