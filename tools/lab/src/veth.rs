//! A veth pair between two namespaces: one queue each way, no offloads.

use anyhow::Result;

use crate::namespace::{Namespace, setup};

/// Connects `left` and `right` by a veth pair with the given interface names, both up.
///
/// One queue each way, because an AF_XDP socket serves one queue. Offloads are off, because weir
/// reads frames as they are: a checksum or a segmentation left to "hardware" would never be done.
pub fn connect(left: (&Namespace, &str), right: (&Namespace, &str)) -> Result<()> {
    let queues = ["numrxqueues", "1", "numtxqueues", "1"];
    let mut args = vec!["link", "add", "name", left.1];
    args.extend(queues);
    args.extend(["netns", left.0.name(), "type", "veth", "peer", "name", right.1]);
    args.extend(queues);
    args.extend(["netns", right.0.name()]);
    setup("ip", &args)?;
    for (namespace, interface) in [left, right] {
        namespace.ip(&format!("link set {interface} up"))?;
        offloads_off(namespace, interface)?;
    }
    Ok(())
}

fn offloads_off(namespace: &Namespace, interface: &str) -> Result<()> {
    setup(
        "ip",
        &[
            "netns",
            "exec",
            namespace.name(),
            "ethtool",
            "-K",
            interface,
            "tx",
            "off",
            "rx",
            "off",
            "tso",
            "off",
            "gso",
            "off",
            "gro",
            "off",
        ],
    )
}
