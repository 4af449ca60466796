//! An honest service with every kind of parameter, and calls whose results are checked.

use peregrine::{CallError, Executed, Kind, Lent, Out, Server, Value, interface};

/// A value whose nesting depth the sender chooses.
#[derive(Clone, Debug, PartialEq, Value)]
pub(crate) struct Tree {
    pub(crate) name: String,
    pub(crate) children: Vec<Self>,
}

#[derive(Debug, PartialEq, Value)]
pub(crate) enum Fault {
    Call(String),
    Odd(u64),
}

impl From<CallError> for Fault {
    fn from(error: CallError) -> Self {
        Self::Call(error.to_string())
    }
}

#[interface]
pub(crate) trait Vault {
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64>;
    fn copy(&self, text: &str, from: &[u16], into: Out<'_, u8>) -> peregrine::Result<u64>;
    fn turn(&self, flags: &mut [bool], names: &mut [String]) -> peregrine::Result<bool>;
    fn sum(&self, key: u32, #[max_len(65536)] of: Lent<'_, u8>) -> peregrine::Result<u64>;
    fn grow(&self, tree: Tree) -> Result<Tree, Fault>;
}

pub(crate) struct Honest;

impl Vault for Honest {
    fn add(&self, a: u64, b: u64) -> peregrine::Result<u64> {
        Ok(a.wrapping_add(b))
    }
    fn copy(&self, text: &str, from: &[u16], mut into: Out<'_, u8>) -> peregrine::Result<u64> {
        // A client may claim a buffer that is too small for the text. Then the client gets fewer bytes.
        let bytes = &text.as_bytes()[..text.len().min(into.remaining())];
        into.put(bytes).expect("space for the bytes");
        Ok(from.iter().map(|x| u64::from(*x)).sum())
    }
    fn turn(&self, flags: &mut [bool], names: &mut [String]) -> peregrine::Result<bool> {
        flags.reverse();
        names.reverse();
        Ok(flags.is_empty())
    }
    fn sum(&self, key: u32, of: Lent<'_, u8>) -> peregrine::Result<u64> {
        let mut sum = u64::from(key);
        // Many short reads give a hostile client many chances to stop in the middle of its message.
        let mut chunk = [0; 64];
        for at in (0..of.len()).step_by(chunk.len()) {
            let chunk = &mut chunk[..(of.len() - at).min(64)];
            of.copy_to(at, chunk).map_err(|invalid| {
                CallError::new(Kind::BadArguments, Executed::Maybe, invalid.to_string())
            })?;
            sum += chunk.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        }
        Ok(sum)
    }
    fn grow(&self, mut tree: Tree) -> Result<Tree, Fault> {
        if tree.name.is_empty() {
            return Err(Fault::Odd(tree.children.len() as u64));
        }
        tree.children.push(Tree { name: "new".into(), children: vec![] });
        Ok(tree)
    }
}

/// Runs a server: exports an honest vault as `vault`, prints `ready`, and serves until it is killed.
pub(crate) fn serve() {
    let server = Server::new().export("vault", VaultServer::new(Honest)).unwrap();
    let running = server.spawn().unwrap();
    println!("\nready");
    running.wait();
}

/// Makes the call that the number `n` selects, and checks its result.
///
/// # Panics
/// If the result is wrong.
pub(crate) fn check(vault: &VaultClient, n: u64) -> Result<(), CallError> {
    match n % 5 {
        0 => assert_eq!(vault.add(n, 7)?, n + 7),
        1 => {
            let mut buffer = [0; 64];
            let mut out = Out::from(&mut buffer);
            let text = format!("number {n}");
            assert_eq!(vault.copy(&text, &[1, 2, n as u16], out.by_ref())?, 3 + (n & 0xffff));
            assert_eq!(&buffer[..text.len()], text.as_bytes());
        }
        2 => {
            let (mut flags, mut names) =
                ([true, false, n.is_multiple_of(2)], [n.to_string(), "x".into()]);
            assert!(!vault.turn(&mut flags, &mut names)?);
            assert_eq!((flags, &*names[1]), ([n.is_multiple_of(2), false, true], &*n.to_string()));
        }
        3 => {
            let lent = vec![n as u8; 1 + (n % 4096) as usize];
            let sum = 9 + (lent.len() * usize::from(n as u8)) as u64;
            assert_eq!(vault.sum(9, Lent::from(&*lent))?, sum);
        }
        _ => {
            let leaf = Tree { name: n.to_string(), children: vec![] };
            match vault.grow(Tree { name: "root".into(), children: vec![leaf.clone()] }) {
                Ok(grown) => assert_eq!((grown.children.len(), &grown.children[0]), (2, &leaf)),
                Err(Fault::Odd(odd)) => panic!("{odd} is not the expected error"),
                Err(Fault::Call(text)) => {
                    return Err(CallError::new(Kind::Relayed, Executed::Maybe, text));
                }
            }
            let fault = vault.grow(Tree { name: String::new(), children: vec![leaf] });
            if let Err(Fault::Call(text)) = fault {
                return Err(CallError::new(Kind::Relayed, Executed::Maybe, text));
            }
            assert_eq!(fault, Err(Fault::Odd(1)));
        }
    }
    Ok(())
}
