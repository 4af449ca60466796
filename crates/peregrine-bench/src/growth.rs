//! The experiment `growth`: measures calls to a server whose interface has more fields than that of the
//! client. For such a server, the client converts the arguments (docs/EVOLUTION.md). Each call is compared
//! with the call of an interpreted client to a server that has the client's interface.
//!
//! The procedure is `structure` of the study of stubs (`stubs/shipped.rs`). In one grown interface, the last
//! parameter of the procedure is a record with one field more. In the other grown interface, the records in
//! the buffer `e` have one field more, so the client must copy each of these records separately.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use peregrine::call::Serve;
use peregrine::sys::pin_to;
use peregrine::{BindOptions, Binding, Server, Wait};

use crate::cases::Placement;
use crate::local::{in_turn, split};
use crate::row::Row;
use crate::stubs::{Calling, Data, ThreeClient, equal_server};
use crate::subject::{Failure, Sample};
use crate::{Progress, Selection};

/// The names of the measurements of calls. A name says which part of the interface has grown, and whether the
/// client is compiled or interpreted.
pub(crate) const CALLS: [&str; 4] =
    ["grown-compiled", "grown-interpreted", "grown-records-compiled", "grown-records-interpreted"];
/// The name of the measurement of binding.
pub(crate) const BIND: &str = "bind-grown-100";

/// The interface of the study of stubs after growth: the record at the end of `structure` has one field more.
mod grown {
    use peregrine::{Value, interface};
    use std::hint::black_box;

    use crate::stubs::Triple;

    #[derive(Clone, Debug, Value)]
    pub(super) struct Labelled {
        n: i32,
        #[default]
        unit: u32,
        s: String,
    }

    #[interface]
    pub(super) trait Three {
        fn one(&self, i: i32) -> peregrine::Result<()>;
        fn array(&self, #[max_len(256)] a: &[i32]) -> peregrine::Result<()>;
        fn structure(
            &self,
            a: i32,
            b: i32,
            c: i32,
            #[max_len(256)] d: &[i32],
            #[max_len(86)] e: &[Triple],
            f: &Labelled,
        ) -> peregrine::Result<()>;
    }

    pub(super) struct Object;

    impl Three for Object {
        fn one(&self, i: i32) -> peregrine::Result<()> {
            black_box(i);
            Ok(())
        }
        fn array(&self, a: &[i32]) -> peregrine::Result<()> {
            black_box(a);
            Ok(())
        }
        fn structure(
            &self,
            a: i32,
            b: i32,
            c: i32,
            d: &[i32],
            e: &[Triple],
            f: &Labelled,
        ) -> peregrine::Result<()> {
            black_box((a, b, c, d, e, f));
            Ok(())
        }
    }
}

/// The interface of the study of stubs after growth: the records in the buffer `e` have one field more.
mod records {
    use peregrine::{Plain, interface};
    use std::hint::black_box;

    use crate::stubs::Labelled;

    #[derive(Clone, Copy, Debug, Plain)]
    #[repr(C)]
    pub(super) struct Triple {
        first: i32,
        second: i32,
        #[default(7)]
        further: i32,
        third: i32,
    }

    #[interface]
    pub(super) trait Three {
        fn one(&self, i: i32) -> peregrine::Result<()>;
        fn array(&self, #[max_len(256)] a: &[i32]) -> peregrine::Result<()>;
        fn structure(
            &self,
            a: i32,
            b: i32,
            c: i32,
            #[max_len(256)] d: &[i32],
            #[max_len(86)] e: &[Triple],
            f: &Labelled,
        ) -> peregrine::Result<()>;
    }

    pub(super) struct Object;

    impl Three for Object {
        fn one(&self, i: i32) -> peregrine::Result<()> {
            black_box(i);
            Ok(())
        }
        fn array(&self, a: &[i32]) -> peregrine::Result<()> {
            black_box(a);
            Ok(())
        }
        fn structure(
            &self,
            a: i32,
            b: i32,
            c: i32,
            d: &[i32],
            e: &[Triple],
            f: &Labelled,
        ) -> peregrine::Result<()> {
            black_box((a, b, c, d, e, f));
            Ok(())
        }
    }
}

/// Defines an interface of 100 procedures. Each procedure takes an `Item` and returns an `Item`.
macro_rules! hundred {
    ($module:ident { $($item:tt)* } $($procedure:ident)*) => {
        mod $module {
            use peregrine::{Value, interface};

            #[derive(Clone, Debug, Value)]
            pub(super) struct Item {
                $($item)*
            }

            #[interface]
            pub(super) trait Hundred {
                $(fn $procedure(&self, item: Item) -> peregrine::Result<Item>;)*
            }

            pub(super) struct Object;

            impl Hundred for Object {
                $(fn $procedure(&self, item: Item) -> peregrine::Result<Item> { Ok(item) })*
            }
        }
    };
}

macro_rules! both_hundreds {
    ($($procedure:ident)*) => {
        hundred!(hundred_old { name: String, price: u32 } $($procedure)*);
        hundred!(hundred_new { name: String, #[default] unit: String, price: u32 } $($procedure)*);
    };
}

both_hundreds! {
    p00 p01 p02 p03 p04 p05 p06 p07 p08 p09 p10 p11 p12 p13 p14 p15 p16 p17 p18 p19
    p20 p21 p22 p23 p24 p25 p26 p27 p28 p29 p30 p31 p32 p33 p34 p35 p36 p37 p38 p39
    p40 p41 p42 p43 p44 p45 p46 p47 p48 p49 p50 p51 p52 p53 p54 p55 p56 p57 p58 p59
    p60 p61 p62 p63 p64 p65 p66 p67 p68 p69 p70 p71 p72 p73 p74 p75 p76 p77 p78 p79
    p80 p81 p82 p83 p84 p85 p86 p87 p88 p89 p90 p91 p92 p93 p94 p95 p96 p97 p98 p99
}

/// Binds the client of the study to an object of this process.
fn in_process(serve: Arc<dyn Serve>) -> Result<Calling, Failure> {
    let options = BindOptions::default();
    let binding = Binding::in_process_as(ThreeClient::INTERFACE, serve, &options)?;
    Ok(Calling::over(binding))
}

/// Repeats the operation `what` for about the time `slice`, and returns the mean time of one repetition.
fn timed(slice: Duration, mut what: impl FnMut() -> Option<()>) -> Result<Sample, Failure> {
    const AT_ONCE: u32 = 16;
    what().ok_or("a call failed")?;
    let (start, mut times) = (Instant::now(), 0);
    while start.elapsed() < slice {
        (0..AT_ONCE).try_for_each(|_| what()).ok_or("a call failed")?;
        times += AT_ONCE;
    }
    Ok(Sample { ns: start.elapsed().as_nanos() as f64 / f64::from(times), cpu_ns: None })
}

/// Measures everything that was selected.
pub(crate) fn measure(
    selection: &Selection,
    allowed: &[u32],
    progress: &Progress,
) -> Result<Vec<Row>, Failure> {
    if let Some([Some(here), _]) = Placement::OneCore.processors(allowed) {
        pin_to(here)?;
    }
    let mut rows = calls(selection, progress)?;
    if selection.has_case(BIND) {
        progress.show(BIND);
        rows.push(bind(selection)?);
    }
    Ok(rows)
}

/// Measures calls within this process. Such a call consists only of the stubs and of the conversion.
fn calls(selection: &Selection, progress: &Progress) -> Result<Vec<Row>, Failure> {
    let mut equal = in_process(equal_server())?;
    let mut grown = in_process(Arc::new(grown::ThreeServer::new(grown::Object)))?;
    let mut records = in_process(Arc::new(records::ThreeServer::new(records::Object)))?;
    progress.show("calls");
    let slice = selection.slice();
    let cases: Vec<_> = CALLS.into_iter().filter(|case| selection.has_case(case)).collect();
    let samples = in_turn(selection.rounds(), 1 + cases.len(), |which| {
        match which.checked_sub(1).map(|which| cases[which]) {
            None => timed(slice, || black_box(&mut equal).interpreted(Data::Structure)),
            Some("grown-compiled") => timed(slice, || black_box(&grown).compiled(Data::Structure)),
            Some("grown-interpreted") => {
                timed(slice, || black_box(&mut grown).interpreted(Data::Structure))
            }
            Some("grown-records-compiled") => {
                timed(slice, || black_box(&records).compiled(Data::Structure))
            }
            Some(_) => timed(slice, || black_box(&mut records).interpreted(Data::Structure)),
        }
    })?;
    let (limit, _) = split(&samples[0]);
    Ok(cases
        .into_iter()
        .zip(&samples[1..])
        .map(|(case, samples)| {
            let (ours, _) = split(samples);
            let row = Row { path: Some("in-process"), bindings: 1, ..Row::new(case) };
            row.ours(&ours, &[]).limit("interpreted", &limit).ratio(&ours, &limit)
        })
        .collect())
}

/// Measures the time of binding over the local path to two exports of this process: one has the client's
/// interface, and one has a grown interface. The session (connection and shared memory) exists already.
fn bind(selection: &Selection) -> Result<Row, Failure> {
    let server = Server::new().wait(Wait::Block);
    let server = server.export("equal", hundred_old::HundredServer::new(hundred_old::Object))?;
    let server = server.export("grown", hundred_new::HundredServer::new(hundred_new::Object))?;
    let _running = server.spawn()?;
    let options = BindOptions::default().wait(Wait::Block);
    let _session = hundred_old::HundredClient::bind_with("equal", &options)?;
    let slice = selection.slice();
    let samples = in_turn(selection.rounds(), 2, |which| {
        let name = ["equal", "grown"][which];
        timed(slice, || hundred_old::HundredClient::bind_with(name, &options).ok().map(|_| ()))
    })?;
    let ((equal, _), (grown, _)) = (split(&samples[0]), split(&samples[1]));
    let row = Row { path: Some("local"), wait: Some("block"), bindings: 1, ..Row::new(BIND) };
    Ok(row.ours(&grown, &[]).limit("bind-equal", &equal).ratio(&grown, &equal))
}
