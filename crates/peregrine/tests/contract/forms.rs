//! Common types for both forms of clients and servers: blocking and async. So a case is written once, and
//! runs with each form of the client and each form of the server.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peregrine::Executor;
use peregrine::call::{Reply, Request, Serve, Served};
use peregrine::interface::InterfaceRef;
use peregrine::value::ByteOrder;

use crate::support::futures::{block_on, woken_by_a_thread, yielded};

/// The form of a client or of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Blocking,
    Async,
}

/// The forms of a client and of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forms {
    pub(crate) client: Form,
    pub(crate) server: Form,
}

impl Forms {
    /// All combinations.
    pub(crate) const ALL: [Self; 4] = [
        Self { client: Form::Blocking, server: Form::Blocking },
        Self { client: Form::Async, server: Form::Blocking },
        Self { client: Form::Blocking, server: Form::Async },
        Self { client: Form::Async, server: Form::Async },
    ];
}

/// A server stub of either form.
pub(crate) struct AnyServer(Box<dyn Serve>);

impl AnyServer {
    pub(crate) fn new(serve: impl Serve + 'static) -> Self {
        Self(Box::new(serve))
    }
}

impl Serve for AnyServer {
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
    fn serve(&self, request: &mut Request<'_>, reply: &mut Reply<'_>) -> Served {
        self.0.serve(request, reply)
    }
}

/// An object whose procedures are async. They do what the procedures of a blocking object do.
pub(crate) struct Yielding<O> {
    pub(crate) object: O,
    /// The number of procedures that have begun.
    begun: AtomicU32,
}

impl<O> Yielding<O> {
    pub(crate) const fn new(object: O) -> Self {
        Self { object, begun: AtomicU32::new(0) }
    }

    /// Returns the number of the procedure that begins now.
    pub(super) fn begin(&self) -> u32 {
        self.begun.fetch_add(1, Ordering::Relaxed)
    }

    /// Runs a procedure. Of each five procedures, two begin by yielding to the executor, and one begins by
    /// waiting for another thread. One yields when it has its result. One ends at its first poll.
    pub(crate) async fn run<T>(&self, procedure: impl FnOnce(&O) -> T) -> T {
        let number = self.begin() % 5;
        match number {
            0 | 1 => yielded().await,
            2 => woken_by_a_thread().await,
            _ => {}
        }
        let result = procedure(&self.object);
        if number == 3 {
            yielded().await;
        }
        result
    }
}

/// Runs each procedure on a separate thread.
pub(crate) struct ThreadEach;

impl Executor for ThreadEach {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        std::thread::spawn(|| block_on(future));
    }
}

/// Defines an interface, a client of either form, and an async object that uses the blocking object.
///
/// `$procedure!(self METHOD ARGUMENTS...)` must expand to the body of the async object's procedure `METHOD`.
macro_rules! interface_in_both_forms {
    (
        client: $client:ident = $blocking_client:ident | $async_client:ident,
        server: $object:ident = $blocking_server:ident | $async_server:ident,
        async form: $async_trait:ident by $procedure:ident!,
        $(#[$($attribute:tt)*])*
        $visibility:vis trait $name:ident { $($methods:tt)* }
    ) => {
        $(#[$($attribute)*])*
        $visibility trait $name { $($methods)* }

        /// A client of either form.
        #[derive(Clone, Debug)]
        $visibility enum $client {
            Blocking($blocking_client),
            Async($async_client),
        }

        impl $client {
            /// Binds a client of this form to the export at an address.
            $visibility fn bind(
                form: $crate::contract::Form,
                address: &str,
                options: &::peregrine::BindOptions,
            ) -> ::peregrine::Result<Self> {
                Ok(match form {
                    $crate::contract::Form::Blocking => {
                        Self::Blocking($blocking_client::bind_with(address, options)?)
                    }
                    $crate::contract::Form::Async => {
                        let bound = $async_client::bind_with(address, options);
                        Self::Async($crate::support::futures::block_on(bound)?)
                    }
                })
            }

            /// Returns a client of this form that uses a binding that the test has made.
            $visibility fn over(
                form: $crate::contract::Form,
                binding: ::peregrine::Binding,
            ) -> Self {
                let client = $blocking_client { binding };
                match form {
                    $crate::contract::Form::Blocking => Self::Blocking(client),
                    $crate::contract::Form::Async => Self::Async(client.into()),
                }
            }

            $visibility fn in_process(
                form: $crate::contract::Form,
                server: $crate::contract::AnyServer,
                options: &::peregrine::BindOptions,
            ) -> Self {
                Self::over(form, ::peregrine::Binding::in_process(::std::sync::Arc::new(server), options))
            }

            $visibility fn with_timeout(&self, limit: ::std::time::Duration) -> Self {
                match self {
                    Self::Blocking(client) => Self::Blocking(client.with_timeout(limit)),
                    Self::Async(client) => Self::Async(client.with_timeout(limit)),
                }
            }

            $visibility fn with_metadata(&self, key: &str, value: &str) -> ::peregrine::Result<Self> {
                Ok(match self {
                    Self::Blocking(client) => Self::Blocking(client.with_metadata(key, value)?),
                    Self::Async(client) => Self::Async(client.with_metadata(key, value)?),
                })
            }

            $visibility fn with_metadata_of(&self, caller: &::peregrine::Caller) -> ::peregrine::Result<Self> {
                Ok(match self {
                    Self::Blocking(client) => Self::Blocking(client.with_metadata_of(caller)?),
                    Self::Async(client) => Self::Async(client.with_metadata_of(caller)?),
                })
            }

            $visibility fn binding(&self) -> &::peregrine::Binding {
                match self {
                    Self::Blocking(client) => client.binding(),
                    Self::Async(client) => client.binding(),
                }
            }

            $visibility fn is_alive(&self) -> bool {
                match self {
                    Self::Blocking(client) => client.is_alive(),
                    Self::Async(client) => client.is_alive(),
                }
            }

            /// Returns an async client with the same binding.
            $visibility fn to_async(&self) -> $async_client {
                match self {
                    Self::Blocking(client) => client.clone().into(),
                    Self::Async(client) => client.clone(),
                }
            }
        }

        impl $object {
            /// Returns a server of this form, which calls this object.
            $visibility fn server(
                self,
                form: $crate::contract::Form,
            ) -> $crate::contract::AnyServer {
                match form {
                    $crate::contract::Form::Blocking => {
                        $crate::contract::AnyServer::new($blocking_server::new(self))
                    }
                    $crate::contract::Form::Async => {
                        let object = $crate::contract::Yielding::new(self);
                        $crate::contract::AnyServer::new($async_server::new(object))
                    }
                }
            }
        }

        impl $object {
            /// Returns an async server, which calls this object on the executor.
            $visibility fn server_on(
                self,
                executor: impl ::peregrine::Executor,
            ) -> $crate::contract::AnyServer {
                let object = $crate::contract::Yielding::new(self);
                let server = $async_server::new(object).with_executor(executor);
                $crate::contract::AnyServer::new(server)
            }
        }

        $crate::contract::interface_in_both_forms! {
            @delegate $name $client $async_trait $object $procedure $($methods)*
        }
    };
    (
        @delegate
        $name:ident $client:ident $async_trait:ident $object:ident $procedure:ident
        $(
            $(#[$($attribute:tt)*])*
            fn $method:ident(
                &self
                $(, $(#[$($of_argument:tt)*])* $argument:ident: $type:ty)*
                $(,)?
            ) -> $returns:ty;
        )*
    ) => {
        impl $name for $client {
            $(
                fn $method(&self, $($argument: $type),*) -> $returns {
                    match self {
                        Self::Blocking(client) => $name::$method(client, $($argument),*),
                        Self::Async(client) => {
                            let called = $async_trait::$method(client, $($argument),*);
                            $crate::support::futures::block_on(called)
                        }
                    }
                }
            )*
        }

        impl $async_trait for $crate::contract::Yielding<$object> {
            $(
                async fn $method(&self, $($argument: $type),*) -> $returns {
                    $procedure!(self $method $($argument)*)
                }
            )*
        }
    };
}

pub(crate) use interface_in_both_forms;
