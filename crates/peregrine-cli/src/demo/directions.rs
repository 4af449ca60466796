//! One procedure for each parameter direction, each called once.

use peregrine::{CallError, Lent, Out, Plain, Server, interface};
use rustix::process::Signal;
use serde_json::json;

use crate::args::DemoServer;
use crate::output::{self, Failure};
use crate::serve::end_with;

/// A point in the plane.
#[derive(Clone, Copy, Debug, PartialEq, Plain)]
#[repr(C)]
pub(crate) struct Point {
    /// The horizontal coordinate.
    pub(crate) x: f64,
    /// The vertical coordinate.
    pub(crate) y: f64,
}

/// A procedure for each parameter direction, and procedures for measurements.
#[interface]
pub(crate) trait Directions {
    /// Does nothing.
    fn null(&self) -> peregrine::Result<()>;
    /// Adds two values.
    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32>;
    /// Returns the distance of a point from the origin. The parameter is an `in` structure.
    fn distance(&self, point: &Point) -> peregrine::Result<f64>;
    /// Returns a text in upper case. The parameter is an `in` text.
    fn shout(&self, text: &str) -> peregrine::Result<String>;
    /// Returns the sum of the values. The parameter is an `in` slice.
    fn sum(&self, values: &[u64]) -> peregrine::Result<u64>;
    /// Returns the exclusive or of all bytes. The parameter is a `lent` slice: `in`, but not copied for the
    /// procedure.
    fn parity(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8>;
    /// Fills the buffer with squares. The parameter is an `out` buffer.
    fn squares(&self, into: Out<'_, u64>) -> peregrine::Result<()>;
    /// Increments a value. The parameter is an in-out value.
    fn next(&self, value: &mut u64) -> peregrine::Result<()>;
    /// Sorts the values. The parameter is an in-out slice.
    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()>;
    /// Returns the process ID of the server.
    fn process(&self) -> peregrine::Result<u32>;
    /// Ignores its parameter, which is an `in` slice.
    fn take(&self, bytes: &[u8]) -> peregrine::Result<()>;
    /// Ignores its parameter, which is an in-out slice.
    fn exchange(&self, bytes: &mut [u8]) -> peregrine::Result<()>;
}

/// The implementation of [`Directions`].
struct Answers;

impl Directions for Answers {
    fn null(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn add(&self, a: i32, b: i32) -> peregrine::Result<i32> {
        Ok(a.wrapping_add(b))
    }

    fn distance(&self, point: &Point) -> peregrine::Result<f64> {
        Ok(point.x.hypot(point.y))
    }

    fn shout(&self, text: &str) -> peregrine::Result<String> {
        Ok(text.to_uppercase())
    }

    fn sum(&self, values: &[u64]) -> peregrine::Result<u64> {
        Ok(values.iter().fold(0, |sum, value| sum.wrapping_add(*value)))
    }

    fn parity(&self, bytes: Lent<'_, u8>) -> peregrine::Result<u8> {
        let (mut chunk, mut parity) = ([0; 256], 0);
        for at in (0..bytes.len()).step_by(chunk.len()) {
            let part = &mut chunk[..(bytes.len() - at).min(256)];
            if bytes.copy_to(at, part).is_ok() {
                parity = part.iter().fold(parity, |parity, byte| parity ^ byte);
            }
        }
        Ok(parity)
    }

    fn squares(&self, mut into: Out<'_, u64>) -> peregrine::Result<()> {
        // The iteration stops when the buffer is full.
        (1..).map(|i| i * i).find(|square| into.put(&[*square]).is_err());
        Ok(())
    }

    fn next(&self, value: &mut u64) -> peregrine::Result<()> {
        *value = value.wrapping_add(1);
        Ok(())
    }

    fn sort(&self, values: &mut [u64]) -> peregrine::Result<()> {
        values.sort_unstable();
        Ok(())
    }

    fn process(&self) -> peregrine::Result<u32> {
        Ok(std::process::id())
    }

    fn take(&self, _: &[u8]) -> peregrine::Result<()> {
        Ok(())
    }

    fn exchange(&self, _: &mut [u8]) -> peregrine::Result<()> {
        Ok(())
    }
}

/// Runs the server process of the demonstration. The server runs until a signal stops it.
pub(crate) fn serve(part: &DemoServer) -> Result<(), Failure> {
    end_with(part.parent, Signal::KILL)?;
    let server = Server::new().wait(part.wait.into()).stop_on_signals();
    let server = server.export(&part.name, DirectionsServer::new(Answers))?.spawn()?;
    output::print(json!({ "ready": true, "name": part.name }))?;
    server.wait();
    Ok(())
}

/// A parameter direction, and the result of the call that demonstrates this direction.
pub(super) struct DirectionResult {
    /// The type of the parameter.
    pub(super) direction: &'static str,
    /// The text of the call.
    pub(super) call: &'static str,
    /// The text of the result.
    pub(super) result: String,
    /// Whether the result is correct.
    pub(super) right: bool,
}

/// Calls one procedure for each parameter direction.
pub(super) fn show(server: &impl Directions) -> Result<Vec<DirectionResult>, CallError> {
    let shown =
        |direction, call, result: String, right| DirectionResult { direction, call, result, right };
    let mut all = Vec::new();

    let sum = server.add(2, 40)?;
    all.push(shown("T", "add(2, 40)", sum.to_string(), sum == 42));

    let distance = server.distance(&Point { x: 3.0, y: 4.0 })?;
    let right = (distance - 5.0).abs() < 1e-9;
    all.push(shown("&T", "distance(&Point { x: 3, y: 4 })", distance.to_string(), right));

    let loud = server.shout("peregrine")?;
    all.push(shown("&str", "shout(\"peregrine\")", format!("{loud:?}"), loud == "PEREGRINE"));

    let sum = server.sum(&[1, 2, 3, 4])?;
    all.push(shown("&[T]", "sum(&[1, 2, 3, 4])", sum.to_string(), sum == 10));

    let parity = server.parity(Lent::from(&[0x55; 1001]))?;
    all.push(shown(
        "Lent<T>",
        "parity(Lent::from(&[0x55; 1001]))",
        format!("{parity:#x}"),
        parity == 0x55,
    ));

    let mut squares = [0; 5];
    server.squares(Out::from(&mut squares))?;
    let right = squares == [1, 4, 9, 16, 25];
    all.push(shown("Out<T>", "squares(Out::from(&mut [0; 5]))", format!("{squares:?}"), right));

    let mut value = 41;
    server.next(&mut value)?;
    all.push(shown("&mut T", "next(&mut 41)", value.to_string(), value == 42));

    let mut values = [3, 1, 2];
    server.sort(&mut values)?;
    all.push(shown("&mut [T]", "sort(&mut [3, 1, 2])", format!("{values:?}"), values == [1, 2, 3]));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_of_every_direction_is_correct() {
        let shown = show(&DirectionsClient::in_process(Answers)).unwrap();
        assert_eq!(shown.len(), 8);
        assert!(shown.iter().all(|one| one.right));
    }
}
