//! An async object that implements the contract. None of its procedures ends at its first poll, so the server
//! defers every call.

use std::task::Poll;

use peregrine::{Lent, Out};

use super::object::{
    Chain, Colour, Contract as _, ContractAsync, Fault, Object, Person, Pixel, Place, Point,
};

/// Yields to the executor before each procedure runs.
pub(crate) struct Deferring(pub(crate) Object);

/// Returns [`Poll::Pending`] once.
async fn yielded() {
    let mut first = true;
    std::future::poll_fn(move |context| {
        if std::mem::take(&mut first) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

macro_rules! deferred {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*) => {
        $(async fn $name(&self, $($argument: $type),*) -> $result {
            yielded().await;
            self.0.$name($($argument),*)
        })*
    };
}

#[allow(clippy::too_many_arguments)]
impl ContractAsync for Deferring {
    deferred! {
        fn nothing() -> peregrine::Result<()>;
        fn ran() -> peregrine::Result<u32>;
        fn numbers(a: u8, b: i64, c: u128, d: f32) -> peregrine::Result<(u8, i64, u128, f32)>;
        fn letters(yes: bool, letter: char) -> peregrine::Result<(bool, char)>;
        fn point(point: &Point) -> peregrine::Result<Point>;
        fn pixel(pixel: Pixel) -> peregrine::Result<Pixel>;
        fn person(person: &Person) -> peregrine::Result<Person>;
        fn place(place: Place) -> peregrine::Result<Place>;
        fn chain(chain: Chain) -> peregrine::Result<Chain>;
        fn array(array: &[u16; 5], pairs: [Option<u32>; 2]) -> peregrine::Result<u32>;
        fn owned(text: String, values: Vec<u64>) -> peregrine::Result<(Vec<u64>, String)>;
        fn shout(text: &str) -> peregrine::Result<String>;
        fn sum(values: &[u32]) -> peregrine::Result<u64>;
        fn names(people: &[Person]) -> peregrine::Result<Vec<String>>;
        fn count_bytes(first: Lent<'_, u8>, second: Lent<'_, Point>) -> peregrine::Result<u64>;
        fn all_in(
            text: &str,
            a: u8,
            words: &[u16],
            lent: Lent<'_, u8>,
            people: &[Person],
            last: &[u64],
        ) -> peregrine::Result<(u64, String)>;
        fn fill(count: u32, into: Out<'_, u32>) -> peregrine::Result<u32>;
        fn colours(into: Out<'_, Colour>, letters: Out<'_, char>) -> peregrine::Result<()>;
        fn double(value: &mut u32) -> peregrine::Result<()>;
        fn rename(person: &mut Person) -> peregrine::Result<()>;
        fn sort(values: &mut [u64]) -> peregrine::Result<()>;
        fn invert(bits: &mut [bool], colours: &mut [Colour]) -> peregrine::Result<()>;
        fn birthday(people: &mut [Person], years: u8) -> peregrine::Result<()>;
        fn mixed(
            first: Out<'_, u8>,
            values: &mut [u16],
            total: &mut u64,
            people: &mut [Person],
            second: Out<'_, Point>,
            person: &mut Person,
            bits: &mut [bool],
        ) -> peregrine::Result<String>;
        fn fails(
            fail: bool,
            text: &str,
            into: Out<'_, u8>,
            value: &mut u32,
            values: &mut [u32],
            people: &mut [Person],
        ) -> Result<u32, Fault>;
        fn relays() -> peregrine::Result<()>;
        fn panics(values: &mut [u32]) -> peregrine::Result<()>;
        fn bounded(
            text: &str,
            values: &[u32],
            both: &mut [u8],
            lent: Lent<'_, u8>,
        ) -> peregrine::Result<()>;
        fn bounded_out(into: Out<'_, u8>) -> peregrine::Result<u64>;
        fn large(data: &[u8], back: Out<'_, u8>) -> peregrine::Result<()>;
        fn repeat(text: &str, times: u32) -> peregrine::Result<String>;
        fn who() -> peregrine::Result<Option<u32>>;
        fn through(text: &str) -> peregrine::Result<String>;
        fn left() -> peregrine::Result<(Option<u64>, bool)>;
        fn outlive(into: &mut u32) -> peregrine::Result<u32>;
    }
}
