//! The program of the interface file, in Rust.

use std::sync::Mutex;
use std::time::Duration;

use peregrine::foreign::ByteString;
use peregrine::{CallError, Executed, Kind, Running, Server};

use crate::interop::*;

/// The program, and the notes that were made.
#[derive(Default)]
pub(crate) struct Program(Mutex<Vec<ByteString>>);

/// Defines methods that return their argument.
macro_rules! echo {
    ($($name:ident: $type:ty;)*) => {$(
        fn $name(&self, value: $type) -> peregrine::Result<$type> {
            Ok(value)
        }
    )*};
}

pub(crate) fn text(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

pub(crate) fn ada() -> Person {
    Person { name: text("Ada"), age: 36, flags: [true, false] }
}

impl Interop for Program {
    fn nothing(&self) -> peregrine::Result<()> {
        Ok(())
    }

    echo! {
        echo_boolean: bool;
        echo_cardinal: u16;
        echo_long_cardinal: u32;
        echo_integer: i16;
        echo_long_integer: i32;
        echo_unspecified: u16;
        echo_long_unspecified: u32;
        echo_string: ByteString;
        echo_colour: Colour;
        echo_array: [u16; 3];
        echo_sequence: Vec<u32>;
        echo_record: Person;
        echo_empties: Vec<()>;
        echo_choice: Shape;
        echo_answer: Answer;
        echo_tree: Tree;
        echo_list: List;
        echo_stream: StreamOfCardinal;
    }

    fn echo_bounded(&self, value: EchoBoundedValue) -> peregrine::Result<EchoBoundedResult> {
        Ok(EchoBoundedResult(value.0))
    }

    fn add(&self, a: i32, b: i32) -> Result<i32, AddError> {
        a.checked_add(b).ok_or(AddError::Overflow)
    }

    fn divide(&self, dividend: i32, divisor: i32) -> Result<DivideResults, DivideError> {
        match (dividend.checked_div(divisor), dividend.checked_rem(divisor)) {
            (Some(quotient), Some(remainder)) => Ok(DivideResults { quotient, remainder }),
            _ if divisor == 0 => Err(DivideError::DivisionByZero { dividend }),
            _ => Err(DivideError::Overflow),
        }
    }

    fn fail(&self, failure: Failure) -> Result<(), FailError> {
        Err(match failure {
            Failure::None => return Ok(()),
            Failure::Plain => FailError::Plain,
            Failure::Text => FailError::Text { text: text("the reason") },
            Failure::Record => FailError::Detailed { person: ada(), codes: vec![1, 2, 3] },
            Failure::Undeclared => {
                FailError::Call(CallError::new(Kind::Relayed, Executed::Maybe, "as the test asks"))
            }
        })
    }

    fn sleep(&self, milliseconds: u16) -> peregrine::Result<u16> {
        std::thread::sleep(Duration::from_millis(milliseconds.into()));
        Ok(milliseconds)
    }

    fn note(&self, text: ByteString) -> peregrine::Result<()> {
        self.0.lock().unwrap().push(text);
        Ok(())
    }

    fn notes(&self) -> peregrine::Result<Vec<ByteString>> {
        Ok(self.0.lock().unwrap().clone())
    }
}

/// Starts a server of the program for clients that send calls in the form `carrier`. Returns the server and
/// its port.
pub(crate) fn serve(carrier: &str, name: &str) -> (Running, u16) {
    let scheme = if carrier == "udp" { "courier+udp" } else { "courier+tcp" };
    let server = Server::new()
        .export(
            &format!("courier-{carrier}-{name}-{}", std::process::id()),
            InteropServer::new(Program::default()),
        )
        .unwrap()
        .listen(&format!("{scheme}:127.0.0.1:0"))
        .unwrap()
        .spawn()
        .unwrap();
    let at = server.addresses()[0].to_string();
    let port = at.rsplit_once(':').expect("a port").1.parse().expect("a number");
    (server, port)
}
