//! Duplicate address detection (RFC 4862 section 5.4) of a kernel that is given weir's address.

use std::time::Duration;

use anyhow::{Result, ensure};
use weir_lab::one_node::ipv6::WEIR_INTERNET;
use weir_lab::{Echo, OneNode, wait_for};

use crate::worlds::{ECHO, dual_stack_behind_gre, reaches_echo};

/// Time within which the kernel must have found that the address is taken: it asks once, a second
/// long.
const DETECTION_DEADLINE: Duration = Duration::from_secs(10);

#[test]
fn kernel_that_is_given_weirs_address_learns_that_it_is_taken_and_weir_goes_on() {
    OneNode::test(&dual_stack_behind_gre(), |net| -> Result<()> {
        let _echo = Echo::udp(&net.internet, ECHO)?;
        ensure!(reaches_echo(&net.homes[0])?, "no answer before the conflict");
        net.core.sysctl("ipv6/conf/weir0/accept_dad", 1)?;
        net.core.ip(&format!("addr add {WEIR_INTERNET}/128 dev weir0"))?;
        wait_for("the kernel's verdict about the address", DETECTION_DEADLINE, || {
            let args = ["-6", "addr", "show", "dev", "weir0"];
            let shown = net.core.run(DETECTION_DEADLINE, "ip", &args).ok()?;
            shown.stdout.contains("dadfailed").then_some(())
        })?;
        ensure!(reaches_echo(&net.homes[0])?, "weir gave its address up to a later station");
        Ok(())
    });
}
