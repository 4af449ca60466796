//! Compiles the C program of the feature `peers`, which makes and serves calls of ONC RPC (libtirpc).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    peers();
}

#[cfg(feature = "peers")]
fn peers() {
    const SOURCE: &str = "native/onc.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let place = std::env::var("OUT_DIR").expect("cargo sets the output directory");
    let program = std::path::Path::new(&place).join("onc");
    let compiler = cc::Build::new().opt_level(2).get_compiler();
    let mut command = compiler.to_command();
    command.args(["-I/usr/include/tirpc", SOURCE, "-ltirpc", "-o"]).arg(&program);
    // Without the headers of libtirpc, the compilation fails. Then the bench reports that it skips this peer.
    let made = command.output().is_ok_and(|done| done.status.success());
    let program = if made { program.to_string_lossy().into_owned() } else { String::new() };
    println!("cargo::rustc-env=PEREGRINE_BENCH_ONC={program}");
}
