//! `net_pcap`: frames read from a file, edited at both ends, written to another, compared byte by
//! byte.

mod setup;

use std::fs;
use std::path::Path;

use weir_wire::frame::Frame;

const FRAMES: usize = 200;

#[test]
fn frames_edited_at_both_ends_arrive_as_edited() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (input, output) = (folder.path().join("in.pcap"), folder.path().join("out.pcap"));
    write_pcap(&input, (0..FRAMES).map(setup::bytes));
    let eal = setup::eal();
    let pool = setup::pool();
    let port = setup::attach(
        &eal,
        &format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display()),
        &pool,
    );
    let (mut rx, mut tx) = port.queues();

    let mut frames = Vec::new();
    let mut count = 0;
    while count < FRAMES {
        let received = rx.burst(&mut frames, 32);
        for frame in &mut frames {
            assert_eq!(frame.data(), setup::bytes(count), "frame {count}");
            assert!(frame.push(8));
            frame.data_mut()[..8].fill(0xaa);
            let len = frame.data().len();
            frame.truncate(len - 10);
            assert!(frame.extend(2));
            frame.data_mut()[len - 10..].fill(0xbb);
            frame.pull(4);
            count += 1;
        }
        assert_eq!(tx.burst(&mut frames), received);
    }
    drop((port, rx, tx));

    let expected: Vec<Vec<u8>> =
        (0..FRAMES).map(setup::bytes).map(|bytes| edited(&bytes)).collect();
    assert_eq!(read_pcap(&output), expected);
    assert_eq!(pool.in_use(), 0);
}

fn edited(bytes: &[u8]) -> Vec<u8> {
    let mut edited = vec![0xaa; 4];
    edited.extend(&bytes[..bytes.len() - 10]);
    edited.extend([0xbb; 2]);
    edited
}

/// Writes the classic format: a 24-byte header (magic, 2.4, zone, figures, snapshot length,
/// Ethernet), 16 bytes before each packet.
fn write_pcap(path: &Path, packets: impl Iterator<Item = Vec<u8>>) {
    let mut file = Vec::new();
    for field in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(u32::to_le_bytes(field));
    }
    for packet in packets {
        for field in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(u32::to_le_bytes(field));
        }
        file.extend(packet);
    }
    fs::write(path, file).expect("the temporary folder takes a file");
}

fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = fs::read(path).expect("the device wrote it");
    let mut rest = &file[24..];
    let mut packets = Vec::new();
    while let Some(header) = rest.get(..16) {
        let len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) as usize;
        packets.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    packets
}
