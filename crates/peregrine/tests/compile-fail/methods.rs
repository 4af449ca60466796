//! The macro refuses methods that an interface must not contain.

use peregrine::interface;

#[interface]
trait Methods {
    fn generic<T>(&self) -> peregrine::Result<()>;
    fn lifetime<'a>(&self) -> peregrine::Result<()>;
    fn number<const N: u8>(&self) -> peregrine::Result<()>;
    fn clause(&self) -> peregrine::Result<()>
    where
        u8: Copy;
    async fn asynchronous(&self) -> peregrine::Result<()>;
    unsafe fn unsafe_(&self) -> peregrine::Result<()>;
    extern "C" fn extern_(&self) -> peregrine::Result<()>;
    fn body(&self) -> peregrine::Result<()> {
        Ok(())
    }

    fn no_receiver(a: u8) -> peregrine::Result<()>;
    fn nothing() -> peregrine::Result<()>;
    fn by_value(self) -> peregrine::Result<()>;
    fn by_mut(&mut self) -> peregrine::Result<()>;
    fn typed(self: &Self) -> peregrine::Result<()>;
    fn named<'a>(&'a self) -> peregrine::Result<()>;

    fn no_result(&self);
    fn plain_result(&self) -> u32;
    fn option(&self) -> Option<u32>;

    fn bind(&self) -> peregrine::Result<()>;
    fn bind_with(&self) -> peregrine::Result<()>;
    fn in_process(&self) -> peregrine::Result<()>;
    fn in_process_with(&self) -> peregrine::Result<()>;
    fn with_timeout(&self) -> peregrine::Result<()>;
    fn with_deadline(&self) -> peregrine::Result<()>;
    fn with_metadata(&self) -> peregrine::Result<()>;
    fn with_metadata_of(&self) -> peregrine::Result<()>;
    fn binding(&self) -> peregrine::Result<()>;
    fn is_alive(&self) -> peregrine::Result<()>;
    fn clone(&self) -> peregrine::Result<()>;
    fn fmt(&self) -> peregrine::Result<()>;
}

fn main() {}
