//! The program that makes the traffic: each run writes the frame of the next flow and passes it to
//! the stack.
//!
//! The kernel recycles the pages of live frames as the stack left them, translated and with a
//! smaller TTL, so a run writes all 42 bytes of headers. Checksums are computed as the template's
//! sum plus the words that differ from flow to flow (RFC 1071).

use weir_wire::checksum;
use weir_wire::ethernet::Ethernet;
use weir_wire::ipv4::{Ipv4, PROTOCOL_UDP};

use super::assembler::{Assembler, If, Op, Reg, Size};
use super::bpf::{Program, Value};
use super::flow::{
    Direction, FIRST_PORT, FRAME_BYTES, Flow, HOMES, PORT_BITS, PUBLIC, REMOTE_BITS, REMOTES,
};

const XDP_ABORTED: i32 = 0;
const XDP_PASS: i32 = 2;

const IP: usize = Ethernet::LEN;
const UDP: usize = IP + Ipv4::LEN;
const IP_CHECKSUM: usize = IP + 10;
const SOURCE: usize = IP + 12;
const DESTINATION: usize = IP + 16;
const SOURCE_PORT: usize = UDP;
const DESTINATION_PORT: usize = UDP + 2;
const UDP_CHECKSUM: usize = UDP + 6;

/// The value of the map: next flow, step to the one after it, number of flows, as u32.
const STATE_BYTES: usize = 12;

/// A loaded program for one direction.
#[derive(Debug)]
pub(super) struct Feeder {
    program: Program,
    state: Value,
    template: Vec<u8>,
    interface: u32,
}

impl Feeder {
    /// Makes a feeder whose frames seem to be received by the interface with this index.
    pub(super) fn new(direction: Direction, interface: u32) -> nix::Result<Feeder> {
        let state = Value::new(STATE_BYTES)?;
        let template = Flow::new(0).frame(direction);
        let program = Program::load(&instructions(direction, &template, state.fd()))?;
        Ok(Feeder { program, state, template, interface })
    }

    /// Makes the next frames those of the flows `0, step, 2 step, ...` modulo `flows`.
    pub(super) fn start(&self, flows: u32, step: u32) -> nix::Result<()> {
        let words = [0, step, flows].map(u32::to_ne_bytes);
        self.state.write(words.as_flattened())
    }

    /// Sends `count` frames up the stack, on this core.
    pub(super) fn send(&self, count: u32) -> nix::Result<()> {
        self.program.run_live(&self.template, self.interface, count)
    }
}

/// Returns a step that visits all of `flows` before it repeats, with neighbours far apart: next to
/// the golden section of them.
pub(super) fn permuting_step(flows: u32) -> u32 {
    let golden = (f64::from(flows) * 0.618_033_988_749_895) as u32;
    (golden..flows).find(|&step| greatest_common_divisor(step, flows) == 1).unwrap_or(0)
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Sums over the template without the words that the program adds: checksum fields, addresses and
/// ports of the flow.
struct Sums {
    ip: u32,
    udp: u32,
}

impl Sums {
    fn new(direction: Direction, template: &[u8]) -> Sums {
        let mut frame = template.to_vec();
        frame[IP_CHECKSUM..][..2].fill(0);
        frame[UDP_CHECKSUM..][..2].fill(0);
        frame[SOURCE..][..4].fill(0);
        match direction {
            Direction::Up => {
                frame[DESTINATION..][..4].fill(0);
                frame[SOURCE_PORT..][..2].fill(0);
            }
            Direction::Down => frame[DESTINATION_PORT..][..2].fill(0),
        }
        let fixed_address = match direction {
            Direction::Up => 0,
            Direction::Down => PUBLIC,
        };
        let udp_len = (frame.len() - UDP) as u16;
        Sums {
            ip: checksum::partial(&frame[IP..UDP]),
            udp: checksum::pseudo_header(0, fixed_address, PROTOCOL_UDP, udp_len)
                + checksum::partial(&frame[UDP..]),
        }
    }
}

fn instructions(direction: Direction, template: &[u8], state: i32) -> Vec<u64> {
    use Reg::{R0, R1, R2, R3, R4, R5, R6, R7, R8};
    let sums = Sums::new(direction, template);
    let mut a = Assembler::default();

    // R2 = the frame. The verifier requires a comparison of its length.
    a.load(Size::Four, R2, R1, 0);
    a.load(Size::Four, R3, R1, 4);
    a.register(Op::Move, R4, R2);
    a.constant(Op::Add, R4, FRAME_BYTES as i32);
    let too_short = a.jump(If::Above, R4, R3);

    // R5 = this flow; the state gets the next one.
    a.value_address(R1, state);
    a.load(Size::Four, R5, R1, 0);
    a.load(Size::Four, R4, R1, 4);
    a.load(Size::Four, R3, R1, 8);
    a.register(Op::Add, R4, R5);
    let no_wrap = a.jump(If::Below, R4, R3);
    a.register(Op::Sub, R4, R3);
    a.land(no_wrap);
    a.store(Size::Four, R1, 0, R4);

    // R6 = home, R7 = port, R8 = remote host, as in `Flow::new`.
    a.register(Op::Move, R6, R5);
    a.constant(Op::ShiftRight, R6, PORT_BITS as i32);
    a.register(Op::Move, R8, R6);
    a.constant(Op::Add, R6, HOMES as i32);
    a.register(Op::Move, R7, R8);
    a.constant(Op::And, R8, (1 << REMOTE_BITS) - 1);
    a.constant(Op::Move, R3, -1);
    a.constant(Op::ShiftRight, R3, 32);
    a.constant(Op::Add, R8, REMOTES as i32);
    a.register(Op::And, R8, R3);
    a.constant(Op::ShiftRight, R7, REMOTE_BITS as i32);
    a.constant(Op::ShiftLeft, R7, PORT_BITS as i32);
    a.constant(Op::And, R5, (1 << PORT_BITS) - 1);
    a.register(Op::Or, R7, R5);
    a.constant(Op::Add, R7, i32::from(FIRST_PORT));

    // R3 = IP checksum, R4 = UDP checksum. 2^16 = 1 modulo 0xffff: words of 32 bits may be added
    // whole.
    a.register(Op::Move, R0, R8);
    if direction == Direction::Up {
        a.register(Op::Add, R0, R6);
    }
    a.register(Op::Move, R3, R0);
    a.constant(Op::Add, R3, sums.ip as i32);
    finish_checksum(&mut a, R3, R5);
    a.register(Op::Move, R4, R0);
    a.register(Op::Add, R4, R7);
    a.constant(Op::Add, R4, sums.udp as i32);
    finish_checksum(&mut a, R4, R5);
    // RFC 768: a sum of zero is sent as all ones.
    let present = a.jump32(If::NotEqual, R4, 0);
    a.constant(Op::Move, R4, 0xffff);
    a.land(present);

    // The headers: first all words of the template, then the words that differ.
    for offset in (0..UDP_CHECKSUM).step_by(4) {
        let word =
            [template[offset], template[offset + 1], template[offset + 2], template[offset + 3]];
        a.store_bytes(R2, offset as i16, word);
    }
    let (source, destination, port) = match direction {
        Direction::Up => (R6, Some(R8), SOURCE_PORT),
        Direction::Down => (R8, None, DESTINATION_PORT),
    };
    for (register, size, bits, offset) in [
        (Some(R3), Size::Two, 16, IP_CHECKSUM),
        (Some(R4), Size::Two, 16, UDP_CHECKSUM),
        (Some(source), Size::Four, 32, SOURCE),
        (destination, Size::Four, 32, DESTINATION),
        (Some(R7), Size::Two, 16, port),
    ] {
        let Some(register) = register else { continue };
        a.network_order(register, bits);
        a.store(size, R2, offset as i16, register);
    }
    a.exit(XDP_PASS);

    a.land(too_short);
    a.exit(XDP_ABORTED);
    a.finish()
}

/// Folds a sum below 2^36 to 16 bits and complements it. Three rounds: 2^36, then below 2^21, then
/// at most 0x1001e, then 16 bits.
fn finish_checksum(a: &mut Assembler, sum: Reg, scratch: Reg) {
    for _ in 0..3 {
        a.register(Op::Move, scratch, sum);
        a.constant(Op::ShiftRight, scratch, 16);
        a.constant(Op::And, sum, 0xffff);
        a.register(Op::Add, sum, scratch);
    }
    a.constant(Op::Xor, sum, 0xffff);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_step_visits_every_flow_once() {
        for flows in [1, 2, 3, 6, 64, 1000, 60_000] {
            let step = permuting_step(flows);
            assert!(step < flows);
            let visited: HashSet<_> =
                (0..flows).map(|i| u64::from(i) * u64::from(step) % u64::from(flows)).collect();
            assert_eq!(visited.len(), flows as usize, "{flows} flows, step {step}");
        }
        let step = permuting_step(60_000);
        assert!(step > 1000 && 60_000 - step > 1000, "neighbours stay neighbours: {step}");
    }

    #[test]
    fn template_sums_and_a_flow_make_right_checksums() {
        for number in [0, 1, 64, 999, 262_144, 4_000_000] {
            let flow = Flow::new(number);
            for (direction, addresses) in [
                (Direction::Up, u64::from(flow.home) + u64::from(flow.remote)),
                (Direction::Down, u64::from(flow.remote)),
            ] {
                let sums = Sums::new(direction, &Flow::new(7).frame(direction));
                let fold = |sum: u64| checksum::finish((sum % 0xffff) as u32);
                let frame = flow.frame(direction);
                let field = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
                assert_eq!(fold(addresses + u64::from(sums.ip)), field(IP_CHECKSUM));
                let udp = addresses + u64::from(flow.port) + u64::from(sums.udp);
                assert_eq!(fold(udp), field(UDP_CHECKSUM));
            }
        }
    }

    /// The kernel runs the program on one frame at a time; device tests run as root.
    #[test]
    fn the_program_writes_the_frames_of_its_flows() {
        for direction in [Direction::Up, Direction::Down] {
            let feeder = Feeder::new(direction, 0).expect("device tests run as root");
            for (flows, step) in [(1, 0), (3, 1), (4_000_000, permuting_step(4_000_000))] {
                feeder.start(flows, step).unwrap();
                // Bytes that the stack left in a page must not show in the next frame.
                let used: Vec<u8> = feeder
                    .template
                    .iter()
                    .enumerate()
                    .map(|(at, &byte)| if at < UDP + 8 { !byte } else { byte })
                    .collect();
                for i in 0..5000u64 {
                    let number = (i * u64::from(step) % u64::from(flows)) as u32;
                    let (verdict, frame) = feeder.program.run_once(&used).unwrap();
                    assert_eq!(verdict, XDP_PASS as u32);
                    assert_eq!(frame, Flow::new(number).frame(direction), "{direction:?} {number}");
                }
            }
        }
    }

    #[test]
    fn a_short_frame_is_left_alone() {
        let feeder = Feeder::new(Direction::Up, 0).expect("device tests run as root");
        let short = [7; 59];
        let (verdict, frame) = feeder.program.run_once(&short).unwrap();
        assert_eq!((verdict, frame.as_slice()), (XDP_ABORTED as u32, short.as_slice()));
    }
}
