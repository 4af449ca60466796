//! The layers of a server.

use super::Server;
use crate::observe::Layer;

impl Server {
    /// Adds a [`Layer`], which sees each call of all exports and may refuse it. It is inside of the layers that
    /// were added before, and outside of the layers of an [export](crate::ExportOptions::layer). It does not
    /// matter whether it is added before or after an export.
    ///
    /// The layers see calls over all paths. They also see calls that the server refuses before the procedure
    /// begins, for example because all threads are busy. They do not see calls that reach no export, and calls
    /// by which clients ask the server about itself.
    ///
    /// ```no_run
    /// # use peregrine::{interface, Server};
    /// # #[interface] trait Echo { fn echo(&self, x: u32) -> peregrine::Result<u32>; }
    /// # struct Same;
    /// # impl Echo for Same { fn echo(&self, x: u32) -> peregrine::Result<u32> { Ok(x) } }
    /// use peregrine::{Layer, LayerCall, LayerEnd, LayerRefusal};
    ///
    /// /// Prints each call.
    /// struct Print;
    ///
    /// impl Layer for Print {
    ///     type State = ();
    ///
    ///     fn begin(&self, _: &mut LayerCall<'_>) -> Result<(), LayerRefusal> {
    ///         Ok(())
    ///     }
    ///
    ///     fn end(&self, _: (), end: &LayerEnd<'_>) {
    ///         println!("{}: {:?} after {:?}", end.procedure(), end.outcome(), end.took());
    ///     }
    /// }
    ///
    /// Server::new().layer(Print).export("echo", EchoServer::new(Same))?.run()?;
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    ///
    /// # Panics
    /// If there are [`LAYERS_MAX`](crate::limits::LAYERS_MAX) layers.
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.add(layer);
        self
    }
}
