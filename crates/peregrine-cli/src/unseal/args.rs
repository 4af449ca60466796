//! The options of `unseal`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Options of `unseal`.
#[derive(Args, Debug)]
pub(crate) struct Unseal {
    /// The capture of packets, in the format pcap or pcapng
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) input: PathBuf,
    /// The keys: the file that PEREGRINE_KEY_LOG named, at the client or at the server
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keys: PathBuf,
    /// The file to write, in the format pcap. Only its owner can read it
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
}
