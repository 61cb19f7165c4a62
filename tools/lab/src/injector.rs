//! Hand-made frames, sent on a link unchanged: malformed traffic.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use weir_wire::ethernet::Mac;

use crate::lab::Lab;
use crate::namespace::Namespace;

/// Time limit for sending one batch.
const DEADLINE: Duration = Duration::from_secs(30);

/// Sends each line of a file, in hexadecimal, as one frame. Python needs no library for a packet
/// socket.
const SENDER: &str = "\
import socket, sys
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
for line in open(sys.argv[2]):
    link.send(bytes.fromhex(line))
";

/// The end of a link that faces weir.
#[derive(Debug)]
pub struct Injector<'a> {
    lab: &'a Lab,
    namespace: &'a Namespace,
    interface: &'a str,
}

impl<'a> Injector<'a> {
    /// Makes an injector on `interface` of `namespace`.
    pub fn new(lab: &'a Lab, namespace: &'a Namespace, interface: &'a str) -> Self {
        Self { lab, namespace, interface }
    }

    /// Returns the MAC address of this end.
    pub fn mac(&self) -> Result<Mac> {
        mac_of(self.namespace, self.interface)
    }

    /// Sends the frames in order, each at least as long as an Ethernet header.
    pub fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        let path = self.lab.directory().join("frames.hex");
        let lines: Vec<String> = frames.iter().map(|frame| hexadecimal(frame)).collect();
        fs::write(&path, lines.join("\n"))?;
        let path = path.to_string_lossy();
        self.namespace
            .run(DEADLINE, "python3", &["-c", SENDER, self.interface, &path])?
            .success()?;
        Ok(())
    }
}

/// Returns the MAC address of an interface.
pub fn mac_of(namespace: &Namespace, interface: &str) -> Result<Mac> {
    let path = format!("/sys/class/net/{interface}/address");
    let finished = namespace.run(DEADLINE, "cat", &[&path])?.success()?;
    let text = finished.stdout.trim();
    text.parse().ok().with_context(|| format!("not a MAC address: {text}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
