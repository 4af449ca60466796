//! `Exported`: a served object. Its drop may panic on any thread, because any thread may release the last
//! reference.

use super::request::Refusal;
use super::{ForeignCall, Reply, Request, Serve, Served, ServedForeign};
use crate::interface::InterfaceRef;
use crate::sys::Fragile;
use crate::value::ByteOrder;
use core::any::Any;
use std::sync::Arc;

type Report = Box<dyn Fn(Box<dyn Any + Send>) + Send + Sync>;

/// A server stub whose object may panic when it is dropped. The panic is caught here.
pub(crate) struct Exported<S>(Fragile<S, Report>);

impl<S: Serve> Exported<S> {
    /// Wraps a stub. `report` receives the text of a panic.
    pub(crate) fn new(serve: S, report: impl Fn(String) + Send + Sync + 'static) -> Self {
        Self(Fragile::new(serve, Box::new(move |panic| report(Refusal::panicked(panic).text))))
    }
}

impl<S: Serve> Serve for Exported<S> {
    fn interface(&self) -> InterfaceRef {
        self.0.interface()
    }

    fn byte_order(&self) -> ByteOrder {
        self.0.byte_order()
    }

    fn is_async(&self) -> bool {
        self.0.is_async()
    }

    fn shared(&self) -> Option<Arc<dyn Serve>> {
        self.0.shared()
    }

    fn allowed(&self) -> &'static [(&'static str, &'static [&'static str])] {
        self.0.allowed()
    }

    fn at_most(&self) -> &'static [(&'static str, u32)] {
        self.0.at_most()
    }

    fn within(&self) -> &'static [(&'static str, (u64, u32))] {
        self.0.within()
    }

    fn serve_foreign(&self, call: &ForeignCall<'_>, results: &mut Vec<u8>) -> ServedForeign {
        self.0.serve_foreign(call, results)
    }

    #[inline]
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        self.0.serve(request, reply)
    }
}
