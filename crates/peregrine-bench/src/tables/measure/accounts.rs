//! Makes accounts of calls: where their time goes.

use peregrine::{Accounting, BindOptions, Out};
use peregrine_account::{Account, Calls, Options};

use super::super::measured::Measured;
use crate::cases::{Case, Placement, Size, Waiting};
use crate::interfaces::{Small as _, SmallClient};
use crate::local::in_each_placement;
use crate::network::link::Link;
use crate::network::own::Own;
use crate::network::path::Path;
use crate::network::{Filter, on_each_link};
use crate::subject::{Failure, quiet};
use crate::{Progress, Selection};

/// A null call on the local path, both processes on one processor.
pub(crate) const LOCAL: &str = "local";
/// A null call over UDP and veth. Both sides poll.
pub(crate) const SPIN: &str = "udp-spin";
/// A null call over UDP and veth. Both sides sleep.
pub(crate) const BLOCK: &str = "udp-block";
/// A call over UDP and veth that returns 1440 bytes. Both sides sleep.
pub(crate) const RESULT: &str = "udp-block-result";

/// All accounts.
#[cfg(test)]
pub(crate) const ALL: [&str; 4] = [LOCAL, SPIN, BLOCK, RESULT];

/// Makes all accounts.
pub(crate) fn measure(
    into: &mut Measured,
    selection: &Selection,
    progress: &Progress,
) -> Result<(), Failure> {
    let mut selection = selection.clone();
    let options = if selection.quick { Options::quick() } else { Options::default() };
    selection.placements = vec![Placement::OneCore];
    in_each_placement(&selection, |_, peer| {
        progress.show("tables: account of a local call");
        let (name, wait) = (peer.export(Waiting::Block, Size::Small), Waiting::Block.wait());
        let client = SmallClient::bind_with(&name, &BindOptions::default().wait(wait))?;
        into.accounts.insert(LOCAL, Account::of_null(client.binding(), &options)?);
        drop(client);
        quiet(&name)
    })?;
    selection.placements = vec![Placement::TwoCores];
    on_each_link(&selection, &Filter::only(Link::Veth), Placement::TwoCores, |_, far| {
        let accounts = [
            (SPIN, "null", Waiting::Spin),
            (BLOCK, "null", Waiting::Block),
            (RESULT, "out-1440", Waiting::Block),
        ];
        for (name, case, wait) in accounts {
            progress.show(&format!("tables: account {name}"));
            let case = Case::named(case).ok_or("there is no such case")?;
            let own = Own { path: Path::Udp, case, wait, check: None };
            let client = SmallClient::bind_with(&own.address(far, 2)?, &own.options())?;
            into.accounts.insert(name, account(&client, case.out_bytes, &options)?);
            drop(client);
            far.end_order()?;
        }
        Ok(())
    })
}

/// Makes an account of a call that returns `back` bytes.
fn account(client: &SmallClient, back: usize, options: &Options) -> Result<Account, Failure> {
    if back == 0 {
        return Ok(Account::of_null(client.binding(), options)?);
    }
    let accounting = Accounting::begin(client.binding())?;
    let accounted = client.with_accounting(&accounting);
    let (mut plain, mut recorded) = (vec![0; back], vec![0; back]);
    let calls = Calls {
        plain: &mut || client.give(Out::from(&mut plain[..])),
        accounted: &mut || accounted.give(Out::from(&mut recorded[..])),
    };
    Ok(Account::of(&accounting, calls, options)?)
}
