use bolero::check;
use weir_wire::Malformed;
use weir_wire::ethernet::{self, ETHERTYPE_VLAN, Ethernet, Mac, Vlan};

/// The link header ends within the frame, is 4 bytes longer with a tag, and holds the fields on the
/// wire.
#[test]
fn parse() {
    check!().for_each(|bytes: &[u8]| {
        link(bytes);
        let mut tagged = bytes.to_vec();
        if let Some(ethertype) = tagged.get_mut(12..14) {
            ethertype.copy_from_slice(&ETHERTYPE_VLAN.to_be_bytes());
            link(&tagged);
        }
    });
}

fn link(bytes: &[u8]) {
    let link = match ethernet::parse_link(bytes) {
        Ok(link) => link,
        Err(error) => {
            assert_eq!(error, Malformed::Truncated);
            assert!(bytes.len() < Ethernet::LEN + Vlan::LEN);
            return;
        }
    };
    assert!(link.len <= bytes.len());
    let tag_len = if link.vlan.is_some() { Vlan::LEN } else { 0 };
    assert_eq!(link.len, Ethernet::LEN + tag_len);
    assert_eq!(link.destination.0, bytes[..6]);
    assert_eq!(link.source.0, bytes[6..12]);
    assert_eq!(link.ethertype.to_be_bytes(), bytes[link.len - 2..link.len]);
    assert!(link.vlan.is_none_or(|id| id <= 0x0fff));

    let mut copy = vec![0; bytes.len()];
    ethernet::parse(bytes).expect("a link header begins with it").emit(&mut copy);
    assert_eq!(copy[..Ethernet::LEN], bytes[..Ethernet::LEN]);
}

/// Any text is an address or refused; an address survives being written and read.
#[test]
fn mac_text() {
    check!().for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(mac) = text.parse::<Mac>() {
            assert!(mac.to_string().eq_ignore_ascii_case(&text.replace('-', ":")));
        }
        if let Some(mac) = bytes.first_chunk() {
            let mac = Mac(*mac);
            assert_eq!(mac.to_string().parse(), Ok(mac));
        }
    });
}
