//! Runs the contract tests, which every path must pass, with calls within one process.

mod contract;

use contract::ContractClient;
use peregrine::{BindOptions, OnExhausted};

#[test]
fn contract_holds() {
    contract::suite(&ContractClient::in_process);
}

#[test]
fn contract_holds_when_a_stacks_are_made_on_demand() {
    let options = BindOptions::default().astacks(1).on_exhausted(OnExhausted::More);
    contract::suite(&|object| ContractClient::in_process_with(object, &options));
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    use contract::pressure::{
        PressureClient, calls_within_their_bounds_wait_for_each_other as calls,
    };
    calls(&PressureClient::in_process);
}
