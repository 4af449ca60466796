//! What a server keeps for each procedure.

use std::sync::Arc;

use super::Server;
use crate::serving::descriptors::Late;

impl Server {
    /// Makes a census of all procedures, as LRPC's authors did before they built their system: how many bytes
    /// the arguments and the results of calls have, and how many calls come from other machines.
    ///
    /// `peregrine stat` shows it, and [`Stat::procedures`](crate::counters::Stat::procedures) has it. The census
    /// costs each call two or three relaxed increments, and the server about 600 bytes of memory for each
    /// procedure and each processor, up to eight processors.
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// #[interface]
    /// trait Notes { fn add(&self, text: &str) -> peregrine::Result<u32>; }
    /// # struct Pad;
    /// # impl Notes for Pad { fn add(&self, _: &str) -> peregrine::Result<u32> { Ok(1) } }
    /// # let name = format!("doc-census-{}", std::process::id());
    /// let running = Server::new().census().export(&name, NotesServer::new(Pad))?.spawn()?;
    /// let notes = NotesClient::bind(&name)?;
    /// notes.add("milk")?;
    /// notes.add(&"bread ".repeat(1000))?;
    ///
    /// let stat = running.stat();
    /// let census = stat.procedure(&name, "add").and_then(|add| add.census.as_ref()).expect("a census");
    /// assert_eq!((census.calls(), census.remote), (2, 0));
    /// assert_eq!((census.arguments.in_one_packet(), census.results.in_one_packet()), (1, 2));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn census(mut self) -> Self {
        self.procedures.get_or_insert_default().make_census();
        self
    }

    /// Calls `hook` when a procedure breaks the promise of its `#[within(TIME)]`, and when it keeps it again.
    /// `peregrine stat` shows the same ([`WithinStat`](crate::counters::WithinStat)).
    ///
    /// `#[within(20ms)]` promises that 99 % of the calls take at most 20 milliseconds. The promise is broken when
    /// more than 10 of the last 1,000 calls took longer. It is kept again when 1,000 calls have ended since then,
    /// of which at most 10 took longer. So the hook is called at most twice in 1,000 calls of a procedure, and
    /// not for each late call.
    ///
    /// A call takes from before its arguments are read until its result is complete. A call of an async procedure
    /// takes until the procedure has ended. A call without a result, for example because the procedure panicked,
    /// counts only if it took longer than the limit. The hook runs on the thread on which the call ended, before
    /// the result is sent, and should return soon. If it panics, the server continues.
    ///
    /// ```
    /// # use peregrine::{interface, Server};
    /// #[interface]
    /// trait Images {
    ///     #[within(20ms)]
    ///     fn load(&self, number: u32) -> peregrine::Result<u32>;
    ///     #[within(1.5s, of = 99.9)]
    ///     fn resize(&self, number: u32) -> peregrine::Result<u32>;
    /// }
    /// # struct Studio;
    /// # impl Images for Studio {
    /// #     fn load(&self, number: u32) -> peregrine::Result<u32> { Ok(number) }
    /// #     fn resize(&self, number: u32) -> peregrine::Result<u32> { Ok(number) }
    /// # }
    /// # let name = format!("doc-late-{}", std::process::id());
    /// let server = Server::new().on_late(|late| eprintln!("{late}"));
    /// let running = server.export(&name, ImagesServer::new(Studio))?.spawn()?;
    /// ImagesClient::bind(&name)?.load(7)?;
    /// let load = running.stat().procedure(&name, "load").and_then(|load| load.within).expect("a promise");
    /// assert_eq!((load.limit_ns, load.promised, load.calls), (20_000_000, 990, 1));
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn on_late(mut self, hook: impl Fn(&Late<'_>) + Send + Sync + 'static) -> Self {
        self.procedures.get_or_insert_default().set_on_late(Arc::new(hook));
        self
    }
}
