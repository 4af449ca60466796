//! Accounts of where the time of Peregrine's calls goes.
//!
//! An account divides a call into *parts*, and measures each part at the client or at the server. The parts
//! add up to the time of the whole call, except for a *rest* of a few per cent, which the account shows. This is
//! Lampson's way of accounting for time, and that of the papers about Firefly RPC (3.3) and Peregrine (5).
//!
//! The time that data takes from one side to the other, the *transfer*, is measured with calls that carry the
//! same number of bytes, and that no object takes part in (*echoes*). It is the time between the sending of an
//! echo and the arrival of its result, without what the server takes in between. So the transfer includes the
//! operating system, and the time until the waiting thread runs. No part is what remains of the call itself when
//! its other parts are subtracted.
//!
//! The rest shows whether the calls of an account and its echoes were alike: whether the transfer took as long
//! in both. It does not show whether the parts within one side are divided correctly.
//!
//! A *stamp* notes the time of one step. It takes about 20 ns, as long as some parts of a local call. So each
//! call has few stamps, and one call after another has them at other steps. The time of a stamp is measured,
//! and subtracted from each part.
//!
//! ```
//! use peregrine::{Server, interface};
//! use peregrine_account::{Account, Options};
//!
//! #[interface]
//! trait Echo {
//!     fn echo(&self, x: u32) -> peregrine::Result<u32>;
//! }
//!
//! struct Same;
//! impl Echo for Same {
//!     fn echo(&self, x: u32) -> peregrine::Result<u32> {
//!         Ok(x)
//!     }
//! }
//!
//! let server = Server::new().export("echo", EchoServer::new(Same))?;
//! let running = server.listen("udp:127.0.0.1:0")?.spawn()?;
//! let echo = EchoClient::bind(&format!("{}/echo", running.addresses()[0]))?;
//! let account = Account::of_null(echo.binding(), &Options::quick())?;
//! println!("{account}");
//! assert_eq!(account.parts.len(), 10);
//! # Ok::<(), peregrine::CallError>(())
//! ```

mod load;
mod measure;
mod picture;
mod statistics;

use core::fmt;
use core::time::Duration;

use serde_json::{Value, json};

pub use load::{
    Amdahl, Caller, Cause, ClosedRun, FastPath, Level, Load, LoadOptions, ServerCounts, Times,
};
pub use measure::Calls;
use peregrine::{Accounting, Binding, CallError};

/// How long an account is measured.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of rounds. Each round measures each part.
    pub rounds: usize,
    /// The account ends before all rounds are over if they take longer than this time. It has at least three
    /// rounds, and one that only shows how long the procedure takes. A round makes 1,008 calls.
    pub limit: Duration,
}

impl Default for Options {
    /// 41 rounds, in at most ten seconds.
    fn default() -> Self {
        Self { rounds: 41, limit: Duration::from_secs(10) }
    }
}

impl Options {
    /// Returns options for an account that is measured in about a second if its calls are short, and less
    /// exactly.
    pub fn quick() -> Self {
        Self { rounds: 9, limit: Duration::from_secs(1) }
    }
}

/// The side at which a part of a call happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
    /// Between both.
    Between,
}

/// A part of a call.
#[derive(Clone, Debug)]
pub struct Part {
    /// What happens in this part.
    pub name: &'static str,
    /// The side at which it happens.
    pub side: Side,
    /// How long the part takes, in nanoseconds: the mean of all rounds, without calls that were interrupted. A
    /// part that takes less time than a stamp may appear to take less than none.
    pub ns: f64,
    /// The difference between the third and the first quartile of the rounds, in nanoseconds.
    pub spread_ns: f64,
}

/// The account of a call.
#[derive(Clone, Debug)]
pub struct Account {
    /// The parts, in the order in which a call passes them.
    pub parts: Vec<Part>,
    /// How long the whole call takes in the same rounds, without stamps, in nanoseconds.
    pub whole_ns: f64,
    /// How long the same call takes outside of the account, in the same rounds. The server looks for a mark in
    /// each call of an account, so calls of an account may take longer. Locally, they take up to one more poll
    /// of memory.
    pub plain_ns: f64,
    /// How long a stamp takes at the client and at the server, in nanoseconds. Each part is shorter by this
    /// time than the time between two stamps.
    pub stamp_ns: [f64; 2],
    /// The number of rounds.
    pub rounds: usize,
}

impl Account {
    /// Makes an account of a call that does nothing, over a binding.
    ///
    /// # Errors
    /// If the server cannot make accounts ([`Accounting::begin`]), or a call fails.
    pub fn of_null(binding: &Binding, options: &Options) -> Result<Self, CallError> {
        let accounting = Accounting::begin(binding)?;
        Self::of(
            &accounting,
            Calls { plain: &mut || binding.ping(), accounted: &mut || accounting.binding().ping() },
            options,
        )
    }

    /// Makes an account of any call. Both functions of `calls` make the same call to the same server.
    ///
    /// # Errors
    /// If a call fails. Also if the server records no steps of the calls, because its procedures are async.
    pub fn of(
        accounting: &Accounting,
        calls: Calls<'_>,
        options: &Options,
    ) -> Result<Self, CallError> {
        measure::account(accounting, calls, options)
    }

    /// Returns the sum of the parts, in nanoseconds.
    pub fn sum_ns(&self) -> f64 {
        self.parts.iter().map(|part| part.ns).sum()
    }

    /// Returns which part of the whole is missing in the sum: (whole - sum) / whole. Negative if the sum
    /// exceeds the whole.
    pub fn rest_ratio(&self) -> f64 {
        (self.whole_ns - self.sum_ns()) / self.whole_ns
    }

    /// Returns the account as a picture (SVG), in which each part is a bar that begins where the part before it
    /// ends. `title` says which call it is.
    pub fn to_svg(&self, title: &str) -> String {
        picture::svg(self, title)
    }

    /// Returns the account as a page (HTML) with the [picture](Self::to_svg) and a table.
    pub fn to_html(&self, title: &str) -> String {
        picture::html(self, title)
    }

    /// Returns how long the transfer takes there and back, in nanoseconds. No call is faster than the bytes that
    /// it carries.
    pub fn transfer_ns(&self) -> f64 {
        let between = self.parts.iter().filter(|part| part.side == Side::Between);
        between.map(|part| part.ns).sum()
    }

    /// Returns the account as JSON.
    pub fn to_json(&self) -> Value {
        let parts: Vec<Value> = self.parts.iter().map(Part::to_json).collect();
        json!({
            "parts": parts,
            "sum_ns": shown(self.sum_ns()),
            "whole_ns": shown(self.whole_ns),
            "rest_ratio": self.rest_ratio(),
            "plain_ns": shown(self.plain_ns),
            "transfer_ns": shown(self.transfer_ns()),
            "transfer_ratio": self.whole_ns / self.transfer_ns(),
            "stamp_ns": self.stamp_ns.map(shown),
            "rounds": self.rounds,
        })
    }
}

impl Part {
    fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "side": self.side.to_string(),
            "ns": shown(self.ns),
            "spread_ns": shown(self.spread_ns),
            "how": "measured",
        })
    }
}

/// Rounds a time to what is worth printing.
fn shown(ns: f64) -> f64 {
    (ns * 1e3).round() / 1e3
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Between => "between",
        })
    }
}

impl fmt::Display for Account {
    /// Writes one line for each part, and the sums.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line =
            |side: &str, name: &str, ns: f64| writeln!(f, "{side:8} {name:34} {ns:10.1}");
        for part in &self.parts {
            line(&part.side.to_string(), part.name, part.ns)?;
        }
        line("", "sum", self.sum_ns())?;
        line("", "whole, without stamps", self.whole_ns)?;
        line("", "the same call outside of the account", self.plain_ns)?;
        write!(f, "{:8} {:34} {:9.1} %", "", "rest", 100.0 * self.rest_ratio())
    }
}
