//! Compiles what the feature `peers` brings along that is not Rust: ONC RPC as the C library has it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "peers")]
    peers();
}

#[cfg(feature = "peers")]
fn peers() {
    const SOURCE: &str = "native/onc.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let place = std::env::var("OUT_DIR").expect("cargo says where to build");
    let program = std::path::Path::new(&place).join("onc");
    let compiler = cc::Build::new().opt_level(2).get_compiler();
    let mut command = compiler.to_command();
    command.args(["-I/usr/include/tirpc", SOURCE, "-ltirpc", "-o"]).arg(&program);
    // Without its headers there is no such peer, and the program says so.
    let made = command.output().is_ok_and(|done| done.status.success());
    let program = if made { program.to_string_lossy().into_owned() } else { String::new() };
    println!("cargo::rustc-env=PEREGRINE_BENCH_ONC={program}");
}
