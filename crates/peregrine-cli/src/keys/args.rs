//! The command line of `keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

/// Options of `keys`.
#[derive(Args, Debug)]
#[command(after_help = KEYS_HELP)]
pub(crate) struct Keys {
    /// The directory of the keys [default: $PEREGRINE_KEYS, or peregrine/keys in $XDG_CONFIG_HOME or
    /// ~/.config]
    #[arg(long, global = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub(crate) action: Action,
}

const KEYS_HELP: &str = "\
Two machines that trust each other:
  ada$ peregrine keys new                       prints a line with the public key
  bob$ peregrine keys trust ada MCowBQYDK2Vw... ada@laptop
  bob$ peregrine keys new                       and the same in the other direction

Files in the directory:
  identity.pem     the certificate
  identity.key     the private key, which only its owner may read
  trusted          the keys that are trusted, one in each line: NAME KEY COMMENT
  authorities.pem  certificates of CAs, by which peers are trusted, too; write it with an editor or `cp`";

/// What to do with keys.
#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Make a key and a certificate, and print the line to hand over to peers
    New {
        /// Replace a key that exists: peers must then trust the new one
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        line: Line,
    },
    /// Print the line to hand over to peers, and which peers are trusted
    Show {
        #[command(flatten)]
        line: Line,
        /// Print only the peers that are trusted
        #[arg(long, conflicts_with_all = ["name", "comment"])]
        trusted: bool,
    },
    /// Trust the key in a line that `keys new` or `keys show` printed on another machine
    Trust {
        /// NAME KEY COMMENT as arguments or as one argument, or `-` for lines from standard input
        #[arg(required = true, value_name = "LINE")]
        line: Vec<String>,
        /// Trust a further key with the same name
        #[arg(long)]
        also: bool,
    },
    /// Trust a key no longer: programs that use the directory notice it without a restart
    Untrust {
        /// The name, the fingerprint or the key
        #[arg(value_name = "NAME|SHA256:...|KEY")]
        which: String,
    },
}

/// The words around the key in the line to hand over.
#[derive(Args, Debug)]
pub(crate) struct Line {
    /// Name of this side in the line; the peer may use another one [default: the user's name]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Comment at the end of the line [default: USER@HOST]
    #[arg(long)]
    pub(crate) comment: Option<String>,
}
