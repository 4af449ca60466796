//! Calls `whereabouts` over the fastest path that works, and prints why that path was chosen: `cargo run
//! --example anywhere_client -- [ADDRESS]`

pub mod anywhere;

use anywhere::{Whereabouts, WhereaboutsClient};
use peregrine::CallError;

fn main() -> Result<(), CallError> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "whereabouts".to_owned());
    let whereabouts = WhereaboutsClient::bind(&address)?;
    println!("called over {}", whereabouts.path()?);
    println!("{}", whereabouts.binding().explain());
    Ok(())
}
