//! The contract of a call, kept within one process.

mod contract;

use contract::ContractClient;

#[test]
fn the_contract_holds() {
    contract::suite(&ContractClient::in_process);
}
