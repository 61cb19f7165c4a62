//! A patch panel between kernel links and memif: testpmd forwards frames unchanged.

use std::time::Duration;

use anyhow::Result;

use crate::lab::Lab;
use crate::namespace::Namespace;

/// Time limit for testpmd to open its ports.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Joins `acc0` and `net0` of `namespace` to a memif each; returns the devargs of the other ends,
/// access and internet.
pub(crate) fn start(lab: &Lab, namespace: &Namespace) -> Result<(String, String)> {
    let socket = |side: &str| lab.directory().join(format!("memif-{side}.sock"));
    // Line-buffered: otherwise testpmd would write its first lines to a file only at its end.
    let mut command = namespace.command("stdbuf");
    command.args(["-oL", "dpdk-testpmd"]);
    // Two lcores on one processor: the other processor is weir's.
    command.args(["--lcores=0@0,1@0", "--no-huge", "-m", "256", "--no-pci"]);
    command.arg(format!("--file-prefix={}", namespace.name()));
    for (number, side) in ["acc", "net"].into_iter().enumerate() {
        // Not net_af_packet: with its sockets the kernel reassembles IP fragments.
        command.arg(format!("--vdev=net_af_xdp{number},iface={side}0"));
        command.arg(format!(
            "--vdev=net_memif{number},role=server,id=0,socket={},socket-abstract=no",
            socket(side).display()
        ));
    }
    // Ports pair up in order: link and memif of the access side, then of the internet side. With a
    // statistics period testpmd runs until a signal instead of until a key is pressed.
    command.args(["--", "--forward-mode=io", "--stats-period=3600"]);
    command.args(["--total-num-mbufs=16384", "--disable-link-check"]);
    let process = lab.start("testpmd", &mut command)?;
    process.wait_words("io packet forwarding - ports=4", START_DEADLINE)?;
    let device = |number: usize, side: &str| {
        format!(
            "net_memif{number},role=client,id=0,socket={},socket-abstract=no",
            socket(side).display()
        )
    };
    Ok((device(0, "acc"), device(1, "net")))
}
