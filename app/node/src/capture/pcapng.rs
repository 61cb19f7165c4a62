//! Captured frames as pcapng: one interface per worker and side; direction and losses as packet
//! options.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgWriter};
use pcap_file::{DataLink, PcapError};
use weir_engine::{Direction, Side};

use super::filter::Layer;

/// `if_tsresol`: the library counts timestamps in 10^-9 seconds.
const NANOSECONDS: u8 = 9;

/// Writes blocks into memory; its owner takes the bytes out at any time.
pub(super) struct PcapngWriter {
    file: PcapNgWriter<Vec<u8>>,
    layer: Layer,
}

impl std::fmt::Debug for PcapngWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("layer", &self.layer).finish_non_exhaustive()
    }
}

impl PcapngWriter {
    /// Starts a file with an interface for each worker and side: `workers` in ascending order.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    pub(super) fn new(node: &str, workers: &[usize], layer: Layer) -> Result<Self, PcapError> {
        let mut file = PcapNgWriter::new(Vec::new())?;
        let linktype = match layer {
            Layer::Ethernet => DataLink::ETHERNET,
            // Not RAW: libpcap reads 101 back as another number for the second interface and
            // refuses the file.
            Layer::Ip => DataLink::IPV4,
        };
        for worker in workers {
            for side in Side::ALL {
                let name = format!("{node} worker {worker} {}", side.name());
                let mut interface = InterfaceDescriptionBlock::new(linktype, 0);
                interface.options = vec![
                    InterfaceDescriptionOption::IfName(Cow::Owned(name)),
                    InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
                ];
                file.write_block(&Block::InterfaceDescription(interface))?;
            }
        }
        Ok(Self { file, layer })
    }

    /// Returns the layer that packets of this file start with.
    pub(super) fn layer(&self) -> Layer {
        self.layer
    }

    /// Writes one packet of the `position`th worker, captured `at` since the Unix epoch, after
    /// `lost` frames of that worker found no room in the ring.
    ///
    /// # Errors
    /// None in practice: memory takes everything.
    pub(super) fn packet(
        &mut self,
        position: usize,
        side: Side,
        direction: Direction,
        at: Duration,
        lost: u64,
        bytes: &[u8],
    ) -> Result<(), PcapError> {
        // epb_flags bits 0-1: 1 = inbound, 2 = outbound.
        let flags = match direction {
            Direction::Receive => 1,
            Direction::Transmit => 2,
        };
        let mut options = vec![EnhancedPacketOption::Flags(flags)];
        if lost > 0 {
            options.push(EnhancedPacketOption::DropCount(lost));
        }
        let packet = EnhancedPacketBlock {
            interface_id: interface_id(position, side),
            timestamp: at,
            original_len: bytes.len() as u32,
            data: Cow::Borrowed(bytes),
            options,
        };
        self.file.write_block(&Block::EnhancedPacket(packet)).map(drop)
    }

    /// Returns the bytes written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.file.get_mut())
    }
}

fn interface_id(position: usize, side: Side) -> u32 {
    (position * Side::ALL.len() + side as usize) as u32
}
