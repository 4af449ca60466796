//! Tests that programs of other authors and Peregrine understand each other over ONC RPC. docs/INTEROP.md
//! lists the programs. A test is skipped if its programs are not installed.

mod support;

#[path = "onc_interop/c_programs.rs"]
mod c_programs;
#[path = "onc_interop/clients.rs"]
mod clients;
#[path = "onc_interop/machine.rs"]
mod machine;
#[path = "onc_interop/nfs.rs"]
mod nfs;
#[path = "onc_interop/our_rpcbind.rs"]
mod our_rpcbind;
#[path = "onc_interop/registry.rs"]
mod registry;
#[path = "onc_interop/servers.rs"]
mod servers;
#[path = "onc_interop/show.rs"]
mod show;

/// The address of the machine that a test in namespaces has to itself.
const HOST: &str = "127.0.0.1";
/// The name of this machine.
const NAME: &str = "localhost";

/// Declares modules with the Rust text of interface files. The tests of `peregrine-idl` check that the text
/// is what the importer prints.
macro_rules! imported {
    ($($name:ident),*) => {$(
        #[allow(dead_code, missing_docs, unreachable_pub, clippy::enum_variant_names, clippy::use_self)]
        mod $name {
            include!(concat!("onc_interop/imported/", stringify!($name), ".txt"));
        }
    )*};
}

imported!(every, mount, nfs3, nis, rpcb_prot, rstat, rusers, rusers2, sm_inter, statd, wall, yp);
