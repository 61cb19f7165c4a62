//! The three filtering behaviours as a STUN client sees them (RFC 4787, RFC 5780).

use anyhow::{Result, ensure};
use weir_lab::clients;
use weir_lab::services;
use weir_lab::{OneNode, Options};

fn discover(filtering: &'static str, verdict: &str) {
    let mut options = Options::default();
    options.config.filtering = filtering;
    OneNode::test(&options, |net| -> Result<()> {
        services::start_stun(&net.lab, &net.internet)?;
        let behaviour = clients::nat_behaviour(&net.homes[0])?;
        ensure!(behaviour.mapping == "Endpoint Independent Mapping", "{behaviour:?}");
        ensure!(behaviour.filtering == verdict, "{behaviour:?}");
        Ok(())
    });
}

#[test]
fn address_and_port_dependent_filtering() {
    discover("address-and-port-dependent", "Address and Port Dependent Filtering");
}

#[test]
fn address_dependent_filtering() {
    discover("address-dependent", "Address Dependent Filtering");
}

#[test]
fn endpoint_independent_filtering() {
    discover("endpoint-independent", "Endpoint Independent Filtering");
}
