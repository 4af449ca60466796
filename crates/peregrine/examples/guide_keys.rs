//! Two peers, of which one trusts the key of the other one.

use peregrine::secure::{Expected, Identity, IdentityPattern, KeyError, Trust, TrustedKey};

fn main() -> Result<(), KeyError> {
    // At Bob's machine: a key, and the line to hand over. `peregrine keys new` does the same in files.
    let bob = Identity::generate()?;
    let line = format!("bob {} bob@desk", bob.public_key());

    // At Ada's machine: the keys that she trusts, as in the file `trusted`.
    let trust = Trust::of_keys([line.parse::<TrustedKey>()?])?;
    let known = trust.key_of("bob").expect("the key that was added");
    println!("{} has the key of Bob: {}", known.name(), known.fingerprint() == bob.fingerprint());

    // Which server a client expects.
    for text in ["key:bob", "fs.example.org", "spiffe://example.org/fs"] {
        println!("{:?}", text.parse::<Expected>()?);
    }

    // Patterns select the peers that may do something.
    let operators: IdentityPattern = "ops/*".parse()?;
    for id in ["spiffe://example.org/ops/backup", "spiffe://example.org/dev/test"] {
        println!("{id}: {}", operators.matches_spiffe(&id.parse()?));
    }

    // Each change of the list has a number, so a connection knows when to ask again.
    let before = trust.changes();
    trust.set_keys([])?;
    println!("changed: {}, known: {}", trust.changes() != before, trust.key_of("bob").is_some());
    Ok(())
}
