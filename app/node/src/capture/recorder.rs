//! The reader's side of a capture: capture points of one or more workers become one pcapng stream.

use std::time::Duration;

use pcap_file::PcapError;
use weir_engine::Side;

use super::capture_point::CaptureReader;
use super::filter::{Filter, FilterError, Layer};
use super::inner::inner;
use super::pcapng::PcapngWriter;
use crate::clock::Clock;

/// Frames taken from each worker per call, so that a capture does not hold up the other control
/// tasks.
const FRAMES_PER_POLL: usize = 1024;

/// Options of a capture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CaptureOptions {
    /// `None`: all workers.
    pub worker: Option<usize>,
    /// `None`: both sides.
    pub side: Option<Side>,
    /// Whether to record the homes' packets without Ethernet, outer IPv4 and GRE.
    pub inner: bool,
    /// Filter in tcpdump's language.
    pub filter: Option<String>,
    /// Packets after which the capture ends.
    pub count: Option<u64>,
}

/// One running capture.
#[derive(Debug)]
pub(crate) struct CaptureRecorder {
    readers: Vec<WorkerReader>,
    filter: Option<Filter>,
    writer: PcapngWriter,
    left: Option<u64>,
    clock: Clock,
}

#[derive(Debug)]
struct WorkerReader {
    reader: CaptureReader,
    lost_reported: u64,
}

/// Why a capture cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecorderError {
    #[error(transparent)]
    Filter(#[from] FilterError),
    #[error("pcapng: {0}")]
    Write(#[from] PcapError),
}

impl CaptureRecorder {
    /// Starts a capture from `readers`, each with the number of its worker.
    ///
    /// # Errors
    /// When the filter is not valid.
    pub(crate) fn new(
        node: &str,
        options: &CaptureOptions,
        readers: Vec<(usize, CaptureReader)>,
        clock: Clock,
    ) -> Result<Self, RecorderError> {
        let layer = if options.inner { Layer::Ip } else { Layer::Ethernet };
        let filter =
            options.filter.as_deref().map(|text| Filter::compile(text, layer)).transpose()?;
        let workers: Vec<usize> = readers.iter().map(|(worker, _)| *worker).collect();
        let readers = readers
            .into_iter()
            .map(|(_, reader)| WorkerReader { reader, lost_reported: 0 })
            .collect();
        let writer = PcapngWriter::new(node, &workers, layer)?;
        Ok(Self { readers, filter, writer, left: options.count, clock })
    }

    /// Whether the wanted number of packets is recorded.
    pub(crate) fn is_done(&self) -> bool {
        self.left == Some(0)
    }

    /// Returns the number of frames that found no room since the start.
    pub(crate) fn lost(&self) -> u64 {
        self.readers.iter().map(|worker| worker.reader.lost()).sum()
    }

    /// Takes what the workers copied since the last call. Returns bytes of the file, possibly none.
    ///
    /// # Errors
    /// None in practice: the file is in memory.
    pub(crate) fn poll(&mut self) -> Result<Vec<u8>, RecorderError> {
        for position in 0..self.readers.len() {
            for _ in 0..FRAMES_PER_POLL {
                if self.is_done() || !self.record(position)? {
                    break;
                }
            }
        }
        Ok(self.writer.take())
    }

    /// Records one frame of one worker; false if there is none.
    fn record(&mut self, position: usize) -> Result<bool, RecorderError> {
        let worker = &mut self.readers[position];
        let Some(captured) = worker.reader.next() else { return Ok(false) };
        let packet = match self.writer.layer() {
            Layer::Ethernet => Some(captured.bytes.as_slice()),
            Layer::Ip => inner(&captured.bytes),
        };
        let wanted = packet.filter(|packet| self.filter.as_ref().is_none_or(|f| f.matches(packet)));
        if let Some(packet) = wanted {
            let lost = worker.reader.lost();
            let at: Duration = self.clock.wall(captured.at);
            let since = lost - worker.lost_reported;
            self.writer.packet(position, captured.side, captured.direction, at, since, packet)?;
            worker.lost_reported = lost;
            self.left = self.left.map(|left| left - 1);
        }
        worker.reader.recycle(captured);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
    use pcap_file::pcapng::{Block, PcapNgReader};
    use weir_admin::CaptureTally;
    use weir_engine::Direction;

    use super::*;
    use crate::capture::capture_point;

    /// Ethernet, outer IPv4, GRE, IPv4, UDP to `port`.
    fn tunnel_frame(port: u16) -> Vec<u8> {
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 52, 0, 0, 0, 0, 64, 47, 0, 0, 10, 1, 0, 9, 10, 1, 0, 1]);
        frame.extend([0, 0, 8, 0]);
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 168, 1, 2, 1, 1, 1, 1]);
        frame.extend([3, 232]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    }

    fn packets(file: &[u8]) -> Vec<(u32, Vec<u8>, Vec<EnhancedPacketOption<'static>>)> {
        let mut reader = PcapNgReader::new(file).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap().into_owned() {
                packets.push((packet.interface_id, packet.data.into_owned(), packet.options));
            }
        }
        packets
    }

    #[test]
    fn frames_come_out_as_pcapng_filtered_and_counted() {
        let clock = Clock::start();
        let (mut point, reader) = capture_point(None, 2048);
        let options = CaptureOptions {
            inner: true,
            filter: Some("dst port 53".into()),
            count: Some(2),
            ..CaptureOptions::default()
        };
        let mut recorder = CaptureRecorder::new("n1", &options, vec![(3, reader)], clock).unwrap();
        let frames: Vec<Vec<u8>> = [53, 80, 53, 53].map(tunnel_frame).into();
        let bursts = || frames.iter().map(Vec::as_slice);
        point.copy(Side::Access, Direction::Receive, clock.now(), bursts());
        let mut file = recorder.poll().unwrap();
        assert!(recorder.is_done());
        file.extend(recorder.poll().unwrap());
        let packets = packets(&file);
        assert_eq!(packets.len(), 2);
        for (interface, data, options) in packets {
            assert_eq!((interface, &data[..]), (0, &tunnel_frame(53)[38..]));
            assert_eq!(options, [EnhancedPacketOption::Flags(1)]);
        }
    }

    #[test]
    fn losses_are_reported_with_the_next_packet() {
        let clock = Clock::start();
        let (mut point, reader) = capture_point(None, 2048);
        let mut recorder =
            CaptureRecorder::new("n1", &CaptureOptions::default(), vec![(0, reader)], clock)
                .unwrap();
        let frame = tunnel_frame(53);
        let burst = std::iter::repeat_n(&frame[..], 5000);
        let lost = point.copy(Side::Internet, Direction::Transmit, clock.now(), burst);
        assert!(lost > 0);
        let mut file = Vec::new();
        loop {
            let bytes = recorder.poll().unwrap();
            if bytes.is_empty() {
                break;
            }
            file.extend(bytes);
        }
        let packets = packets(&file);
        assert_eq!(packets.len() as u64, 5000 - lost);
        assert_eq!(packets[0].0, 1);
        assert_eq!(
            packets[0].2,
            [EnhancedPacketOption::Flags(2), EnhancedPacketOption::DropCount(lost)]
        );
        let mut tally = CaptureTally::default();
        for piece in file.chunks(7) {
            tally.add(piece);
        }
        assert_eq!((tally.packets(), tally.lost()), (5000 - lost, lost));
    }
}
