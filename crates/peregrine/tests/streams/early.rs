//! Tests server stubs that return before they have opened all streams of their call.

use peregrine::__rt::{Refusal, Reply, Request, Serve, Served};
use peregrine::interface;

use super::*;

/// A procedure with two sinks and a source.
#[interface]
pub(crate) trait Pair {
    /// Sends the number 1 over the first sink.
    fn both(
        &self,
        how: u32,
        one: Sink<'_, u64>,
        more: Source<'_, u64>,
        two: Sink<'_, u64>,
    ) -> peregrine::Result<()>;
}

/// A server whose stub ends in the way that the first argument selects.
struct Early(PairServer<Nothing>);

struct Nothing;

impl Pair for Nothing {
    fn both(
        &self,
        _: u32,
        mut one: Sink<'_, u64>,
        _: Source<'_, u64>,
        _: Sink<'_, u64>,
    ) -> peregrine::Result<()> {
        one.send(1)
    }
}

impl Serve for Early {
    fn interface(&self) -> peregrine::__rt::InterfaceRef {
        self.0.interface()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        match request.value::<u32>()? {
            0 => panic!("on purpose"),
            1 => return reply.ok(&(), |_| Ok(())),
            2 => return Err(Refusal::no_such_procedure(1)),
            how => {
                let mut one = request.sink::<u64>()?;
                let _ = matches!(how, 6 | 7).then(|| one.send(1));
                match how % 3 {
                    0 => panic!("on purpose"),
                    1 => return reply.ok(&(), |_| Ok(())),
                    _ => {}
                }
            }
        }
        // This sink is wrong on purpose: the next parameter of the procedure is a source.
        request.sink::<u64>().map(drop)?;
        Err(Refusal::no_such_procedure(1))
    }
}

#[test]
fn calls_end_although_their_streams_were_not_opened() {
    let _alone = alone();
    let _directory = own_directory();
    let start = || {
        let server = Server::new().export("pair", Early(PairServer::new(Nothing)));
        (server.unwrap(), ())
    };
    on_each_path("pair", start, |address, ()| {
        let client = PairClient::bind(address).unwrap();
        for how in 0..8 {
            println!("{address}, {how}");
            let mut received = [const { Vec::new() }; 2];
            let [one, two] = &mut received;
            let made = client.both(how, Sink::from(one), Source::new(0..), Sink::from(two));
            assert_eq!(received, [vec![1; usize::from(matches!(how, 6 | 7))], Vec::new()]);
            let kind = made.err().map(|error| error.kind());
            let expected = match how {
                1 | 4 | 7 => None,
                2 | 5 => Some(Kind::NoSuchProcedure),
                _ => Some(Kind::Panicked),
            };
            assert_eq!(kind, expected);
        }
    });
}
