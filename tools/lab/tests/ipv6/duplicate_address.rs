//! Duplicate address detection (RFC 4862 section 5.4) against a kernel that has weir's address.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::metrics::metric_sum;
use weir_lab::one_node::ipv6::WEIR_INTERNET;
use weir_lab::services::SERVER;
use weir_lab::{Echo, OneNode, Options, clients, wait_for};

use crate::names::ADDRESS_CONFLICTS;
use crate::worlds::{ECHO, dual_stack_behind_gre, reaches_echo};

/// Time within which weir must have seen the conflict.
const CONFLICT_DEADLINE: Duration = Duration::from_secs(10);
/// Time within which weir must use its address after the other station has gone: it probes again
/// every 10 s.
const REPAIR_DEADLINE: Duration = Duration::from_secs(40);

#[test]
fn weir_reports_a_station_that_has_its_address_and_does_not_use_it() {
    let options = Options { duplicate_address6: true, ..dual_stack_behind_gre() };
    OneNode::test(&options, |net| -> Result<()> {
        let _echo = Echo::udp(&net.internet, ECHO)?;
        wait_for("report of the duplicate address", CONFLICT_DEADLINE, || {
            let text = net.weir.metrics().ok()?;
            let conflicts = metric_sum(&text, ADDRESS_CONFLICTS, "side=\"internet\"")?;
            (conflicts > 0).then_some(())
        })?;
        clients::ping(&net.homes[0], SERVER, 1, 56)?;
        ensure!(!reaches_echo(&net.homes[0])?, "weir uses an address that another station has");

        net.core.ip(&format!("addr del {WEIR_INTERNET}/128 dev weir0"))?;
        wait_for("IPv6 after the other station has gone", REPAIR_DEADLINE, || {
            reaches_echo(&net.homes[0]).ok()?.then_some(())
        })
    });
}
