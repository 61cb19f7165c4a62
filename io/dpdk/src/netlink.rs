//! The part of route netlink (rtnetlink(7)) that weir needs: one request, its answers.

use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};

const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
/// Longest datagram that the kernel sends in answer to one request, bytes.
const DATAGRAM_BYTES_MAX: usize = 32 * 1024;

/// Sends one request and returns the payloads of its answers.
pub(crate) fn request(kind: u16, payload: &[u8]) -> nix::Result<Vec<Vec<u8>>> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    let mut message = Vec::with_capacity(HEADER_BYTES + payload.len());
    message.extend(((HEADER_BYTES + payload.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    // Sequence number and port id: there is one request on the socket, and the kernel fills in the
    // port.
    message.extend([0; 8]);
    message.extend(payload);
    send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
    answers(&socket)
}

/// Reads answers until the acknowledgement.
fn answers(socket: &OwnedFd) -> nix::Result<Vec<Vec<u8>>> {
    let mut answers = Vec::new();
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let len = recv(socket.as_raw_fd(), &mut datagram, MsgFlags::empty())?;
        let mut rest = &datagram[..len];
        while rest.len() >= HEADER_BYTES {
            let size = (u32_at(rest, 0) as usize).clamp(HEADER_BYTES, rest.len());
            let payload = &rest[HEADER_BYTES..size];
            match u16_at(rest, 4) {
                NLMSG_ERROR => {
                    return match u32_at(payload, 0) as i32 {
                        0 => Ok(answers),
                        code => Err(Errno::from_raw(code.wrapping_neg())),
                    };
                }
                _ => answers.push(payload.to_vec()),
            }
            rest = &rest[size.next_multiple_of(4).min(rest.len())..];
        }
    }
}

/// Returns the attributes in `bytes`, as (kind, value).
pub(crate) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.len() < 4 {
            return None;
        }
        let size = usize::from(u16_at(rest, 0)).clamp(4, rest.len());
        // The two top bits say how the value is encoded.
        let attribute = (u16_at(rest, 2) & 0x3fff, &rest[4..size]);
        rest = &rest[size.next_multiple_of(4).min(rest.len())..];
        Some(attribute)
    })
}

/// Returns one attribute, padded to four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + value.len());
    bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Returns the native-endian number at `offset`; 0 if the bytes end before it.
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..offset + 4)
        .map_or(0, |field| u32::from_ne_bytes([field[0], field[1], field[2], field[3]]))
}

fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes.get(offset..offset + 2).map_or(0, |field| u16::from_ne_bytes([field[0], field[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_survive_a_round_trip_and_lying_lengths() {
        let mut bytes = attribute(3, &[1, 2, 3, 4, 5]);
        bytes.extend(attribute(7 | 0x8000, b"x"));
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(3, &[1u8, 2, 3, 4, 5][..]), (7, &b"x"[..])]);
        assert_eq!(attributes(&[0xff, 0xff, 1, 0, 9]).collect::<Vec<_>>(), [(1, &[9u8][..])]);
        assert_eq!(attributes(&[0, 0, 1, 0]).collect::<Vec<_>>(), [(1, &[][..])]);
    }

    #[test]
    fn the_loopback_interface_describes_itself() {
        // RTM_GETLINK, struct ifinfomsg with index 1.
        let mut payload = [0; 16];
        payload[4] = 1;
        let answers = request(18, &payload).expect("anyone may ask");
        // IFLA_IFNAME is attribute 3.
        assert!(attributes(&answers[0][16..]).any(|(kind, value)| kind == 3 && value == b"lo\0"));
    }
}
