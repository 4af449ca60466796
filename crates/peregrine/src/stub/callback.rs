//! [`Callback`]: a parameter by which a procedure calls an object of its caller.

use core::marker::PhantomData;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::Waker;
use std::sync::Arc;

use crate::binding::{BindOptions, Binding};
use crate::call::{Refusal, Reply, Request, Serve, Served};
use crate::error::{CallError, Kind, Phase};
use crate::interface::{Interface, InterfaceRef, Type};
use crate::sync::Mutex;

/// An interface that a callback can have: `dyn Listener` for each trait `Listener` with `#[interface]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an interface",
    note = "a callback has the type `Callback<'_, dyn Listener>`, where `Listener` is a trait with `#[interface]`"
)]
pub trait Callable {
    /// The type that implements this trait, as in [`Travels`](super::Travels).
    type Is: Callable + ?Sized;
    /// The description of the interface.
    const INTERFACE: &'static Interface;
    /// The interface as the type of a parameter.
    const TYPE: Type;
    /// The client of the interface.
    type Client: Clone + Send + Sync + 'static;

    /// Makes a client from its binding.
    fn client(binding: Binding) -> Self::Client;

    /// Reads the callback that a call passes to its procedure. The callback ends with the call.
    ///
    /// # Errors
    /// If the bytes are not a callback of the caller.
    fn open<'a>(request: &mut Request<'_>) -> Result<Callback<'a, Self>, Refusal>
    where
        Self: 'a,
    {
        open(request, false)
    }

    /// Reads the callback that a call passes to its procedure. The procedure may keep the callback after the
    /// call.
    ///
    /// # Errors
    /// If the bytes are not a callback of the caller.
    fn open_kept(request: &mut Request<'_>) -> Result<Callback<'static, Self>, Refusal>
    where
        Self: 'static,
    {
        open(request, true)
    }

    /// Returns a client as an object of the interface.
    fn of_client(client: &Self::Client) -> &Self;

    /// Serves a call of the interface: makes the same call with the client.
    fn serve_client(
        client: &Self::Client,
        request: &mut Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Served;
}

/// An interface whose calls a `P` can serve. `P` is an object, or a pointer to an object.
pub trait CallableBy<P>: Callable {
    /// Returns `object`, or the object to which it points.
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

    /// Returns the client that calls the object, if the object is not called directly.
    fn client(&self) -> Option<&L::Client>
    where
        L: Callable,
    {
        None
    }
}

/// An object or a pointer to an object.
struct Pointed<P, L: ?Sized>(P, PhantomData<fn(&L)>);

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

/// The caller's object in a procedure. Its methods call the caller.
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

    fn client(&self) -> Option<&L::Client> {
        Some(&self.0)
    }
}

/// An object that is called through its own server, for example because its methods are async.
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

    fn client(&self) -> Option<&L::Client> {
        Some(&self.client)
    }
}

/// Whether a caller has revoked a callback.
#[derive(Debug, Default)]
pub(in crate::stub) struct Revocation {
    revoked: AtomicBool,
    /// The waker of the thread or task that runs the calls of the callback.
    waker: Mutex<Option<Waker>>,
}

impl Revocation {
    /// Returns whether the callback was revoked. If not, a later revocation wakes `waker`.
    pub(in crate::stub) fn is_revoked(&self, waker: &Waker) -> bool {
        *self.waker.lock() = Some(waker.clone());
        self.revoked.load(Ordering::SeqCst)
    }
}

/// A callback that its caller can revoke. The procedure can call the object while this value exists.
///
/// [`Callback::registered`] has an example.
#[derive(Debug)]
pub struct Registration(Arc<Revocation>);

impl Drop for Registration {
    fn drop(&mut self) {
        self.0.revoked.store(true, Ordering::SeqCst);
        let waker = self.0.waker.lock().take();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A parameter by which a procedure calls an object of its caller.
///
/// If the trait of the object is `Listener`, `L` is `dyn Listener`. The trait has
/// [`#[interface]`](macro@crate::interface). The caller makes a callback from an [object](Self::new). The
/// procedure calls the methods of the trait on the callback, which dereferences to the object. The calls use
/// the binding of the caller, so the caller listens at no address.
///
/// * `Callback<'_, dyn Listener>` ends with the call of the procedure.
/// * `Callback<'static, dyn Listener>` may be kept by the procedure. It ends when the procedure's side drops
///   it, or when the caller's [`Registration`] is dropped. It also ends when the last client of the binding
///   is dropped, or when the server ends.
///
/// The object's methods run one at a time, on the thread that waits for the procedure. If the call of the
/// procedure is a future, the methods run when the future is polled. The methods of an object that was kept
/// run on a thread of the binding. A method may call the server of the procedure. A method that waits for
/// another callback of the same call waits for ever, because both need the same thread.
///
/// After the end of a callback, calls to its object fail with [`Kind::Stopped`], and are not executed. The
/// arguments of a call to the object, and the result of this call, have at most
/// [`STREAM_WINDOW`](crate::limits::STREAM_WINDOW) bytes less 1 KiB. The limit is lower if the messages of
/// the binding are smaller. At most [`CALLBACK_CALLS_MAX`](crate::limits::CALLBACK_CALLS_MAX) calls are in
/// flight at a time, and others wait.
///
/// If a program calls an implementation of the procedure directly, without a client, the callback is the
/// caller's object itself.
///
/// ```
/// use peregrine::{Callback, interface};
///
/// #[interface]
/// trait Progress {
///     fn percent(&self, done: u32) -> peregrine::Result<()>;
/// }
///
/// #[interface]
/// trait Work {
///     fn work(&self, progress: Callback<'_, dyn Progress>) -> peregrine::Result<()>;
/// }
///
/// struct Worker;
/// impl Work for Worker {
///     fn work(&self, progress: Callback<'_, dyn Progress>) -> peregrine::Result<()> {
///         (1..=4).try_for_each(|quarter| progress.percent(25 * quarter))
///     }
/// }
///
/// #[derive(Default)]
/// struct Bar(std::sync::Mutex<Vec<u32>>);
/// impl Progress for Bar {
///     fn percent(&self, done: u32) -> peregrine::Result<()> {
///         self.0.lock().unwrap().push(done);
///         Ok(())
///     }
/// }
///
/// let bar = Bar::default();
/// WorkClient::in_process(Worker).work(Callback::new(&bar))?;
/// assert_eq!(bar.0.into_inner().unwrap(), [25, 50, 75, 100]);
/// # Ok::<(), peregrine::CallError>(())
/// ```
pub struct Callback<'a, L: ?Sized + 'a> {
    object: Box<dyn ObjectOf<L> + 'a>,
    revocation: Option<Arc<Revocation>>,
}

impl<'a, L: ?Sized + 'a> Callback<'a, L> {
    /// Returns the server of the object, and the revocation if the callback can be revoked.
    pub(in crate::stub) fn into_parts(self) -> (Box<dyn Serve + 'a>, Option<Arc<Revocation>>) {
        (self.object, self.revocation)
    }
}

impl<'a, L: Callable + ?Sized + 'a> Callback<'a, L> {
    /// Makes a callback from an object, or from a reference, a `Box` or an `Arc` of an object. The procedure
    /// may call the object until the procedure ends. If the type of the parameter is `Callback<'static, _>`,
    /// the procedure may keep the callback.
    pub fn new<P: Send + Sync + 'a>(object: P) -> Self
    where
        L: CallableBy<P>,
    {
        let object = Box::new(Pointed(object, PhantomData));
        Self { object, revocation: None }
    }

    /// Makes a callback as [`new`](Self::new) does, and a [`Registration`]. When the registration is dropped,
    /// the procedure can make no more calls. Calls that already run in the object still complete.
    ///
    /// ```
    /// # use std::sync::{Arc, Mutex};
    /// # use std::sync::atomic::{AtomicU32, Ordering};
    /// # use peregrine::{Callback, interface};
    /// #[interface]
    /// trait Listener {
    ///     fn news(&self, number: u32) -> peregrine::Result<()>;
    /// }
    ///
    /// #[interface]
    /// trait Newspaper {
    ///     fn subscribe(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()>;
    ///     fn publish(&self, number: u32) -> peregrine::Result<()>;
    /// }
    /// # #[derive(Default)]
    /// # struct Press(Mutex<Vec<Callback<'static, dyn Listener>>>);
    /// # impl Newspaper for Press {
    /// #     fn subscribe(&self, listener: Callback<'static, dyn Listener>) -> peregrine::Result<()> {
    /// #         self.0.lock().unwrap().push(listener);
    /// #         Ok(())
    /// #     }
    /// #     fn publish(&self, number: u32) -> peregrine::Result<()> {
    /// #         self.0.lock().unwrap().retain(|listener| listener.news(number).is_ok());
    /// #         Ok(())
    /// #     }
    /// # }
    /// # #[derive(Default)]
    /// # struct Reader(AtomicU32);
    /// # impl Listener for Reader {
    /// #     fn news(&self, number: u32) -> peregrine::Result<()> {
    /// #         self.0.store(number, Ordering::Relaxed);
    /// #         Ok(())
    /// #     }
    /// # }
    ///
    /// let newspaper = NewspaperClient::in_process(Press::default());
    /// let reader = Arc::new(Reader::default());
    /// let (listener, registration) = Callback::registered(Arc::clone(&reader));
    /// newspaper.subscribe(listener)?;
    /// newspaper.publish(1)?;
    /// drop(registration);
    /// newspaper.publish(2)?;
    /// assert_eq!(reader.0.load(Ordering::Relaxed), 1);
    /// # Ok::<(), peregrine::CallError>(())
    /// ```
    pub fn registered<P: Send + Sync + 'a>(object: P) -> (Self, Registration)
    where
        L: CallableBy<P>,
    {
        let revocation = Arc::new(Revocation::default());
        let registration = Registration(Arc::clone(&revocation));
        (Self { revocation: Some(revocation), ..Self::new(object) }, registration)
    }

    /// Makes a callback from a server, such as `ListenerAsyncServer::new(object)` for an object whose methods
    /// are async. Many of these methods may run at the same time.
    ///
    /// # Errors
    /// If the server has another interface.
    pub fn served(server: impl Serve + 'static) -> Result<Self, CallError> {
        let (ours, theirs) = (L::INTERFACE, server.interface());
        if ours.digest() != theirs.digest() {
            let text =
                format!("the server has the interface `{}`, not `{}`", theirs.name(), ours.name);
            return Err(CallError::not_executed(Kind::InterfaceMismatch, Phase::Bind, text));
        }
        let server: Arc<dyn Serve> = Arc::new(server);
        let client = L::client(Binding::in_process(Arc::clone(&server), &BindOptions::default()));
        let object = Box::new(WithServer::<L> { server, client });
        Ok(Self { object, revocation: None })
    }

    /// Returns the client by which the procedure calls the object. The client can give calls another time
    /// limit, and flush one-way calls. Returns `None` if the object is called directly, without a client.
    pub fn client(&self) -> Option<&L::Client> {
        self.object.client()
    }

    /// Returns a client whose calls do not block the thread, for procedures of an async server.
    ///
    /// # Errors
    /// If the object is called directly, without a client.
    #[cfg(feature = "async")]
    pub fn async_client(&self) -> Result<L::AsyncClient, CallError>
    where
        L: CallableAsync,
    {
        match self.client() {
            Some(client) => Ok(L::async_client(client)),
            None => {
                let text = "the object of the callback is called directly, without a client";
                Err(CallError::not_executed(Kind::NotFound, Phase::Call, text))
            }
        }
    }
}

impl<L: ?Sized> Deref for Callback<'_, L> {
    type Target = L;

    fn deref(&self) -> &L {
        self.object.object()
    }
}

impl<L: ?Sized> core::fmt::Debug for Callback<'_, L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Callback").finish_non_exhaustive()
    }
}

fn open<'a, L: Callable + ?Sized + 'a>(
    request: &mut Request<'_>,
    outlives: bool,
) -> Result<Callback<'a, L>, Refusal> {
    let interface = InterfaceRef::from(L::INTERFACE);
    let client = L::client(Binding::to_caller(&request.value()?, interface, outlives)?);
    Ok(Callback { object: Box::new(Remote::<L>(client)), revocation: None })
}
