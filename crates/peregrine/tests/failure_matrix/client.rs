//! The client with which the failure matrix makes calls. It has three forms: its calls block, they are async,
//! or they block and are encrypted on networks.

use core::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use peregrine::secure::{Identity, KeyDirectory, Trust};
use peregrine::{BindOptions, CallError, Callback, Out, Sink, Source};

use super::subject::{
    Called, Deadly, Subject, SubjectAsync as _, SubjectAsyncClient, SubjectClient, other,
};
use super::support::futures::block_on;

/// The form of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Blocking,
    Async,
    /// Blocking calls, which are encrypted on networks.
    Sealed,
}

impl Form {
    pub(crate) const ALL: [Self; 3] = [Self::Blocking, Self::Async, Self::Sealed];
}

impl Form {
    /// Returns the options of a binding with this form of calls.
    fn with(self, options: &BindOptions) -> BindOptions {
        match self {
            Self::Sealed => {
                let (identity, trust) = keys();
                options.clone().secure(identity, trust)
            }
            _ => options.clone(),
        }
    }
}

/// Returns the key that clients and servers show to each other, and the list with only this key.
pub(crate) fn keys() -> (Identity, Trust) {
    static KEYS: LazyLock<(Identity, Trust)> = LazyLock::new(|| {
        let directory = KeyDirectory::of_environment().expect("a directory of keys");
        (directory.identity().expect("a key"), directory.trust().expect("a list"))
    });
    KEYS.clone()
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Blocking => "blocking",
            Self::Async => "async",
            Self::Sealed => "sealed",
        })
    }
}

/// A client whose calls all have one form.
#[derive(Clone)]
pub(crate) struct Client {
    client: SubjectClient,
    form: Form,
}

impl Client {
    pub(crate) fn bind(
        form: Form,
        address: &str,
        options: &BindOptions,
    ) -> Result<Self, CallError> {
        let client = match form {
            Form::Blocking | Form::Sealed => {
                SubjectClient::bind_with(address, &form.with(options))?
            }
            Form::Async => block_on(SubjectAsyncClient::bind_with(address, options))?.into(),
        };
        Ok(Self { client, form })
    }

    /// Binds to the export at `address` with an incompatible interface.
    pub(crate) fn bind_other(
        form: Form,
        address: &str,
        options: &BindOptions,
    ) -> Result<(), CallError> {
        match form {
            Form::Blocking | Form::Sealed => {
                other::SubjectClient::bind_with(address, &form.with(options)).map(drop)
            }
            Form::Async => {
                block_on(other::SubjectAsyncClient::bind_with(address, options)).map(drop)
            }
        }
    }

    pub(crate) fn with_timeout(&self, limit: Duration) -> Self {
        Self { client: self.client.with_timeout(limit), form: self.form }
    }

    /// Returns a client of the same binding whose calls block.
    pub(crate) fn blocking(&self) -> Self {
        Self { client: self.client.clone(), form: Form::Blocking }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.client.is_alive()
    }

    pub(crate) fn flush(&self) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.flush(),
            Form::Async => block_on(self.as_async().flush()),
        }
    }

    fn as_async(&self) -> SubjectAsyncClient {
        SubjectAsyncClient::from(self.client.clone())
    }
}

impl Subject for Client {
    fn echo(&self, x: u32) -> peregrine::Result<u32> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.echo(x),
            Form::Async => block_on(self.as_async().echo(x)),
        }
    }
    fn wait(&self, ms: u32) -> peregrine::Result<u32> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.wait(ms),
            Form::Async => block_on(self.as_async().wait(ms)),
        }
    }
    fn last(&self) -> peregrine::Result<Deadly> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.last(),
            Form::Async => block_on(self.as_async().last()),
        }
    }
    fn panic(&self) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.panic(),
            Form::Async => block_on(self.as_async().panic()),
        }
    }
    fn relay(&self) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.relay(),
            Form::Async => block_on(self.as_async().relay()),
        }
    }
    fn swallow(&self, bytes: &[u8]) -> peregrine::Result<u32> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.swallow(bytes),
            Form::Async => block_on(self.as_async().swallow(bytes)),
        }
    }
    fn fill(&self, half: bool, into: Out<'_, u8>) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.fill(half, into),
            Form::Async => block_on(self.as_async().fill(half, into)),
        }
    }
    fn outlive(&self) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.outlive(),
            Form::Async => block_on(self.as_async().outlive()),
        }
    }
    fn note(&self, ms: u32) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.note(ms),
            Form::Async => block_on(self.as_async().note(ms)),
        }
    }
    fn send(&self, panics: bool, numbers: Sink<'_, u32>) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.send(panics, numbers),
            Form::Async => block_on(self.as_async().send(panics, numbers)),
        }
    }
    fn take(&self, numbers: Source<'_, u32>) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.take(numbers),
            Form::Async => block_on(self.as_async().take(numbers)),
        }
    }
    fn call_back(&self, ms: u32, object: Callback<'_, dyn Called>) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.call_back(ms, object),
            Form::Async => block_on(self.as_async().call_back(ms, object)),
        }
    }
    fn keep(&self, object: Callback<'static, dyn Called>) -> peregrine::Result<()> {
        match self.form {
            Form::Blocking | Form::Sealed => self.client.keep(object),
            Form::Async => block_on(self.as_async().keep(object)),
        }
    }
}
