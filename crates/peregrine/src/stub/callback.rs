//! [`Callback`]: a parameter by which a procedure calls an object of its caller.

use core::ops::Deref;
use std::sync::Arc;

use crate::binding::Binding;
use crate::call::{Refusal, Reply, Request, Serve, Served};
use crate::error::CallError;
use crate::interface::{Interface, InterfaceRef, Type};

/// An interface that a callback can have: `dyn Listener` for each trait `Listener` with `#[interface]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an interface",
    note = "a callback has the type `Callback<'_, dyn Listener>`, where `Listener` is a trait with `#[interface]`"
)]
pub trait Callable {
    /// The description of the interface.
    const INTERFACE: &'static Interface;
    /// The interface as the type of a parameter.
    const TYPE: Type;
    /// The client of the interface.
    type Client: Clone + Send + Sync + 'static;

    /// Makes a client from its binding.
    fn client(binding: Binding) -> Self::Client;

    /// Returns a client as an object of the interface.
    fn of_client(client: &Self::Client) -> &Self;

    /// Serves a call of the interface with a client, which makes the same call.
    fn serve_client(
        client: &Self::Client,
        request: &mut Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Served;
}

/// An interface whose calls an object or a pointer `P` can serve.
pub trait CallableBy<P>: Callable {
    /// Returns the object.
    fn of(object: &P) -> &Self;

    /// Serves a call with the object.
    fn serve(object: &P, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served;
}

/// An interface that has an async client.
#[cfg(feature = "async")]
pub trait CallableAsync: Callable {
    /// The async client of the interface.
    type AsyncClient: Clone + Send + Sync + 'static;

    /// Makes an async client from the binding of a client.
    fn async_client(client: &Self::Client) -> Self::AsyncClient;
}

/// An object that serves calls, and can be called directly.
trait ObjectOf<L: ?Sized>: Serve {
    fn object(&self) -> &L;
}

/// An object or a pointer to an object.
struct Pointed<P, L: ?Sized>(P, core::marker::PhantomData<fn(&L)>);

impl<P: Send + Sync, L: CallableBy<P> + ?Sized> Serve for Pointed<P, L> {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::from(L::INTERFACE)
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        L::serve(&self.0, request, reply)
    }
}

impl<P: Send + Sync, L: CallableBy<P> + ?Sized> ObjectOf<L> for Pointed<P, L> {
    fn object(&self) -> &L {
        L::of(&self.0)
    }
}

/// The caller's object, as a procedure has it.
struct Remote<L: ?Sized + Callable>(L::Client);

impl<L: Callable + ?Sized> Serve for Remote<L> {
    fn interface(&self) -> InterfaceRef {
        InterfaceRef::from(L::INTERFACE)
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        L::serve_client(&self.0, request, reply)
    }
}

impl<L: Callable + ?Sized> ObjectOf<L> for Remote<L> {
    fn object(&self) -> &L {
        L::of_client(&self.0)
    }
}

/// An object with a server of its own, such as one whose methods are async.
struct WithServer<L: ?Sized + Callable> {
    server: Arc<dyn Serve>,
    client: L::Client,
}

impl<L: Callable + ?Sized> Serve for WithServer<L> {
    fn interface(&self) -> InterfaceRef {
        self.server.interface()
    }

    fn is_async(&self) -> bool {
        self.server.is_async()
    }

    fn shared(&self) -> Option<Arc<dyn Serve>> {
        self.server.shared()
    }

    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        self.server.serve(request, reply)
    }
}

impl<L: Callable + ?Sized> ObjectOf<L> for WithServer<L> {
    fn object(&self) -> &L {
        L::of_client(&self.client)
    }
}

/// A parameter by which a procedure calls an object of its caller while the call runs.
pub struct Callback<'a, L: ?Sized + Callable + 'a> {
    object: Box<dyn ObjectOf<L> + 'a>,
    client: Option<L::Client>,
}

impl<'a, L: Callable + ?Sized + 'a> Callback<'a, L> {
    /// Makes a callback from an object, or from a reference, a `Box` or an `Arc` of an object.
    pub fn new<P: Send + Sync + 'a>(object: P) -> Self
    where
        L: CallableBy<P>,
    {
        Self { object: Box::new(Pointed(object, core::marker::PhantomData)), client: None }
    }

    /// Returns the server of the object.
    pub(in crate::stub) fn into_serve(self) -> Box<dyn Serve + 'a> {
        self.object
    }

    /// Makes a callback from a server, such as one of an object whose methods are async.
    ///
    /// # Errors
    /// If the server has another interface.
    pub fn served(server: impl Serve + 'static) -> Result<Self, CallError> {
        let _ = server;
        todo!()
    }

    /// Returns a client whose calls do not block the thread.
    ///
    /// # Errors
    /// If the object is called directly, without a client.
    #[cfg(feature = "async")]
    pub fn async_client(&self) -> Result<L::AsyncClient, CallError>
    where
        L: CallableAsync,
    {
        let _ = &self.client;
        todo!()
    }
}

impl<L: Callable + ?Sized> Deref for Callback<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        self.object.object()
    }
}

impl<L: Callable + ?Sized> core::fmt::Debug for Callback<'_, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

/// Takes the callback of a procedure.
///
/// # Errors
/// If the bytes are not a callback of the caller.
pub fn open_callback<'a, L: Callable + ?Sized + 'a>(
    request: &mut Request<'_>,
) -> Result<Callback<'a, L>, Refusal> {
    let _ = (request, |client| Remote::<L>(client));
    todo!()
}
