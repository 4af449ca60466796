//! Runs the contract tests, which every path must pass, with calls within one process.

mod contract;
mod support;

use contract::{Client, pressure};
use peregrine::{BindOptions, OnExhausted};

#[test]
fn contract_holds() {
    let options = BindOptions::default();
    contract::suite("in process", &|server, form| Client::in_process(form, server, &options));
}

#[test]
fn contract_holds_on_an_executor() {
    let options = BindOptions::default();
    contract::suite_on_an_executor("in process", &|server, form| {
        Client::in_process(form, server, &options)
    });
}

#[test]
fn contract_holds_when_a_stacks_are_made_on_demand() {
    let options = BindOptions::default().astacks(1).on_exhausted(OnExhausted::More);
    contract::suite("in process", &|server, form| Client::in_process(form, server, &options));
}

#[test]
fn calls_within_their_bounds_wait_for_each_other() {
    let options = BindOptions::default();
    pressure::calls_within_their_bounds_wait_for_each_other(&|server, form| {
        pressure::Client::in_process(form, server, &options)
    });
}
