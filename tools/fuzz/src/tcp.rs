use bolero::check;
use weir_wire::tcp::{self, SYN, Tcp};

/// The header ends within the segment.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        let parsed = tcp::parse(bytes);
        assert_eq!(parsed.is_ok(), tcp::parse_mut(&mut bytes.to_vec()).is_ok());
        let Ok(header) = parsed else { return };
        assert!((Tcp::LEN..=60).contains(&header.header_len()));
        assert!(header.header_len() <= bytes.len());
        let mut copy = [0; Tcp::LEN];
        header.emit(&mut copy);
        assert_eq!(copy, bytes[..Tcp::LEN]);
    });
}

/// The option is only lowered, and only in a SYN; the checksum stays correct and all other bytes
/// unchanged.
#[test]
fn clamp_mss() {
    check!().for_each(|bytes: &[u8]| {
        clamp(bytes, 1400);
        let mut syn = bytes.to_vec();
        if let Some(offset_and_flags) = syn.get_mut(12..14) {
            offset_and_flags[0] = 0x50 + (offset_and_flags[0] & 0xf0) % 0xb0;
            offset_and_flags[1] |= SYN;
        }
        clamp(&syn, 1400);
        // Random options are seldom the MSS option: put one behind the first byte or two.
        for at in 21..23 {
            if let Some(option) = syn.get_mut(at..at + 2) {
                option.copy_from_slice(&[2, 4]);
                syn[20..at].fill(1);
                let max = u16::from_be_bytes([syn[0], syn[1]]);
                clamp(&syn, max);
            }
        }
    });
}

fn clamp(segment: &[u8], max: u16) {
    let (source, destination) = (0x0a00_0001, 0xc633_6401);
    let mut before = segment.to_vec();
    let checksum = tcp::checksum(source, destination, &before);
    if let Some(field) = before.get_mut(16..18) {
        field.copy_from_slice(&checksum.to_be_bytes());
    }
    let mut after = before.clone();
    let has_changed = tcp::clamp_mss(&mut after, max);
    assert_eq!(has_changed, before != after);
    if !has_changed {
        return;
    }
    let header = tcp::parse(&before).expect("an edited segment has a whole header");
    assert!(header.has(SYN));
    assert!(tcp::checksum_ok(source, destination, &after));
    assert_eq!(before[..16], after[..16]);
    assert_eq!(before[18..20], after[18..20]);
    assert_eq!(before[header.header_len()..], after[header.header_len()..]);
    let (old, new) = (tcp::mss(&before), tcp::mss(&after));
    assert!(old.is_some() && new.is_some_and(|new| new <= max) && new <= old);
    assert!(!tcp::clamp_mss(&mut after, max), "a second time there is nothing left to lower");
}
