//! Tests that a server stub serves calls of other RPC systems: the bytes of the arguments become the
//! arguments of a method, and its outcome becomes the bytes of the results.

use peregrine::__rt::{ForeignCall, Serve as _};
use peregrine::call::ForeignAnswer;
use peregrine::foreign::{Foreign, System, Xdr, from_bytes, to_bytes};
use peregrine::{CallError, Executed, Kind, interface};

#[derive(Debug, peregrine::Value, Foreign)]
enum Lack {
    #[foreign(error = 3)]
    Short {
        by: u16,
    },
    Failed(CallError),
}

impl From<CallError> for Lack {
    fn from(error: CallError) -> Self {
        Self::Failed(error)
    }
}

#[interface(onc(program = 0x2000_0001, version = 2))]
trait Store {
    #[onc(1)]
    fn join(&self, #[max_len(4)] words: &[String], by: &str) -> peregrine::Result<String>;
    #[onc(7)]
    fn fail(&self) -> peregrine::Result<()>;
}

#[interface(courier(program = 5, version = 1))]
trait Stock {
    #[courier(0)]
    fn take(&self, count: u16) -> Result<u32, Lack>;
}

struct Object;

impl Store for Object {
    fn join(&self, words: &[String], by: &str) -> peregrine::Result<String> {
        Ok(words.join(by))
    }
    fn fail(&self) -> peregrine::Result<()> {
        // No server has this name.
        NothingClient::bind("local:no-such-export").map(drop)
    }
}

#[interface]
trait Nothing {
    fn nothing(&self) -> peregrine::Result<()>;
}

impl Stock for Object {
    fn take(&self, count: u16) -> Result<u32, Lack> {
        if count > 3 { Err(Lack::Short { by: count - 3 }) } else { Ok(count.into()) }
    }
}

/// Serves a call, and returns the outcome and the results. Checks that the server stub writes the results
/// after two bytes that the path has already written.
fn served(
    system: System,
    procedure: u32,
    arguments: &[u8],
) -> Result<(ForeignAnswer, Vec<u8>), (Kind, Executed)> {
    let (program, version) = if system == System::Onc { (0x2000_0001, 2) } else { (5, 1) };
    let call = ForeignCall { system, program, version, procedure, arguments };
    let mut results = vec![0xaa; 2];
    let answer = match system {
        System::Onc => StoreServer::new(Object).serve_foreign(&call, &mut results),
        _ => StockServer::new(Object).serve_foreign(&call, &mut results),
    };
    let answer = answer.map_err(|refusal| (refusal.kind(), refusal.executed()))?;
    assert_eq!(results[..2], [0xaa; 2]);
    Ok((answer, results.split_off(2)))
}

#[test]
fn arguments_and_results_are_xdr() {
    let words: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
    let arguments = [to_bytes::<Xdr>(&words), to_bytes::<Xdr>(&"--".to_owned())];
    let arguments = arguments.map(Result::unwrap).concat();
    let (answer, results) = served(System::Onc, 1, &arguments).unwrap();
    assert_eq!(answer, ForeignAnswer::Returned);
    assert_eq!(from_bytes::<Xdr, String>(&results).unwrap(), "a--b--c");
}

#[test]
fn wrong_arguments_are_not_executed() {
    let no = |kind| Err((kind, Executed::No));
    assert_eq!(served(System::Onc, 1, &[0; 3]), no(Kind::BadArguments));
    // The arguments are followed by a further cell.
    assert_eq!(served(System::Onc, 1, &[0; 12]), no(Kind::BadArguments));
    let five = to_bytes::<Xdr>(&vec![String::new(); 5]).unwrap();
    assert_eq!(served(System::Onc, 1, &[five, vec![0; 4]].concat()), no(Kind::TooLarge));
    // The number of elements is checked before the elements, as in the interpreted server.
    assert_eq!(served(System::Onc, 1, &[0, 0, 0, 5]), no(Kind::TooLarge));
    assert_eq!(served(System::Onc, 2, &[]), no(Kind::NoSuchProcedure));
}

#[test]
fn failure_that_onc_cannot_carry_may_have_executed() {
    assert_eq!(served(System::Onc, 7, &[]), Err((Kind::Relayed, Executed::Maybe)));
}

#[test]
fn errors_of_courier_are_reported_with_their_arguments() {
    let (answer, results) = served(System::Courier, 0, &[0, 5]).unwrap();
    assert_eq!((answer, &*results), (ForeignAnswer::Reported(3), &[0, 2][..]));
    let (answer, results) = served(System::Courier, 0, &[0, 2]).unwrap();
    assert_eq!((answer, &*results), (ForeignAnswer::Returned, &[0, 0, 0, 2][..]));
}

#[test]
fn interface_says_which_programs_it_is() {
    let [program] = StoreClient::INTERFACE.programs else { panic!("one program") };
    assert_eq!((program.system, program.number, program.version), (System::Onc, 0x2000_0001, 2));
    assert_eq!(program.procedures[..], [1, 7]);
    assert_eq!((program.index_of(7), program.index_of(2)), (Some(1), None));
}
