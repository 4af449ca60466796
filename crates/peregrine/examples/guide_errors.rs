//! The program of the chapter about errors in docs/GUIDE.md.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use peregrine::{CallError, Executed, Server, Value, interface};

/// Accounts with a name.
#[interface]
pub trait Accounts {
    /// Adds an amount, and returns the new balance.
    fn deposit(&self, name: &str, amount: i64) -> Result<i64, AccountError>;
    /// Returns the balance.
    #[idempotent]
    fn balance(&self, name: &str) -> Result<i64, AccountError>;
}

/// What can go wrong: the procedure refuses, or the call fails.
#[derive(Debug, Value)]
pub enum AccountError {
    /// There is no such account.
    Unknown(String),
    /// The call failed.
    Call(CallError),
}

impl From<CallError> for AccountError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

#[derive(Default)]
struct Ledger(Mutex<HashMap<String, i64>>);

impl Accounts for Ledger {
    fn deposit(&self, name: &str, amount: i64) -> Result<i64, AccountError> {
        let mut ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let balance = ledger.entry(name.to_owned()).or_default();
        *balance += amount;
        Ok(*balance)
    }
    fn balance(&self, name: &str) -> Result<i64, AccountError> {
        let ledger = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.get(name).copied().ok_or_else(|| AccountError::Unknown(name.to_owned()))
    }
}

fn main() -> Result<(), AccountError> {
    let ledger = AccountsServer::new(Ledger::default());
    let running = Server::new().export("accounts", ledger)?.spawn()?;
    let accounts = AccountsClient::bind("accounts")?;
    println!("ada has {}", accounts.deposit("ada", 5)?);
    if let Err(AccountError::Unknown(name)) = accounts.balance("bob") {
        println!("{name} has no account");
    }
    running.stop();
    if let Err(AccountError::Call(error)) = accounts.deposit("ada", 5) {
        println!("{:?}: {}", error.kind(), error.executed());
        println!("try again later: {}", error.executed() == Executed::No);
    }
    Ok(())
}
