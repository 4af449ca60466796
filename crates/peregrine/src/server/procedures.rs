//! What a server keeps for each procedure, beyond what the attributes of its interface say.

use super::Server;

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
}
