//! BPF instructions, as far as two short XDP programs need them (RFC 9669).
//!
//! An instruction is eight bytes: opcode, the registers, a 16-bit offset and a 32-bit immediate.

/// A register of the BPF machine. R1 holds the context at the start, R0 the verdict at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reg {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
}

/// Number of bytes that are loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Two = 0x08,
    Four = 0x00,
    Eight = 0x18,
}

/// Arithmetic on 64 bits, the opcode of RFC 9669 section 4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// Condition of a jump, the opcode of RFC 9669 section 4.3. Unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum If {
    Above = 0x20,
    NotEqual = 0x50,
    Below = 0xa0,
}

/// A jump that has no target yet.
#[must_use]
#[derive(Debug)]
pub(super) struct Jump(usize);

const LDX_MEM: u8 = 0x61;
const ST_MEM: u8 = 0x62;
const STX_MEM: u8 = 0x63;
const ALU64_IMM: u8 = 0x07;
const ALU64_REG: u8 = 0x0f;
const JMP_REG: u8 = 0x0d;
const JMP32_IMM: u8 = 0x06;
const TO_BIG_ENDIAN: u8 = 0xdc;
const EXIT: u8 = 0x95;
const LD_IMM64: u8 = 0x18;
/// Source register of LD_IMM64: the immediate is a map's file descriptor and stands for the address
/// of its value.
const PSEUDO_MAP_VALUE: u8 = 2;

/// A program being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    instructions: Vec<u64>,
}

impl Assembler {
    /// `target` = the `size` bytes at `base + offset`, zero-extended.
    pub(super) fn load(&mut self, size: Size, target: Reg, base: Reg, offset: i16) {
        self.emit(LDX_MEM | size as u8, target as u8, base as u8, offset, 0);
    }

    pub(super) fn store(&mut self, size: Size, base: Reg, offset: i16, source: Reg) {
        self.emit(STX_MEM | size as u8, base as u8, source as u8, offset, 0);
    }

    /// Stores a constant of four bytes.
    pub(super) fn store_bytes(&mut self, base: Reg, offset: i16, bytes: [u8; 4]) {
        self.emit(ST_MEM | Size::Four as u8, base as u8, 0, offset, i32::from_ne_bytes(bytes));
    }

    /// `target` = `target` `op` `constant`, the constant sign-extended.
    pub(super) fn constant(&mut self, op: Op, target: Reg, constant: i32) {
        self.emit(ALU64_IMM | op as u8, target as u8, 0, 0, constant);
    }

    pub(super) fn register(&mut self, op: Op, target: Reg, source: Reg) {
        self.emit(ALU64_REG | op as u8, target as u8, source as u8, 0, 0);
    }

    /// Turns the lower 16 or 32 bits into network order and clears the others.
    pub(super) fn network_order(&mut self, target: Reg, bits: i32) {
        self.emit(TO_BIG_ENDIAN, target as u8, 0, 0, bits);
    }

    /// Loads the address of the one value of an array map.
    pub(super) fn value_address(&mut self, target: Reg, map: i32) {
        self.emit(LD_IMM64, target as u8, PSEUDO_MAP_VALUE, 0, map);
        self.emit(0, 0, 0, 0, 0);
    }

    /// Jumps to the landing point of the returned jump if `condition` holds for `left` and `right`.
    pub(super) fn jump(&mut self, condition: If, left: Reg, right: Reg) -> Jump {
        self.emit(JMP_REG | condition as u8, left as u8, right as u8, 0, 0);
        Jump(self.instructions.len() - 1)
    }

    /// Like `jump`, on the lower 32 bits and with a constant.
    pub(super) fn jump32(&mut self, condition: If, left: Reg, right: u32) -> Jump {
        self.emit(JMP32_IMM | condition as u8, left as u8, 0, 0, right as i32);
        Jump(self.instructions.len() - 1)
    }

    /// Makes the next instruction the target of the jump.
    pub(super) fn land(&mut self, jump: Jump) {
        let distance = (self.instructions.len() - jump.0 - 1) as i16;
        self.instructions[jump.0] |= u64::from(distance as u16) << 16;
    }

    /// Ends the program with a verdict.
    pub(super) fn exit(&mut self, verdict: i32) {
        self.constant(Op::Move, Reg::R0, verdict);
        self.emit(EXIT, 0, 0, 0, 0);
    }

    pub(super) fn finish(self) -> Vec<u64> {
        self.instructions
    }

    /// struct bpf_insn on a little-endian machine: the first byte is the lowest.
    fn emit(&mut self, opcode: u8, target: u8, source: u8, offset: i16, immediate: i32) {
        self.instructions.push(
            u64::from(opcode)
                | u64::from(target) << 8
                | u64::from(source) << 12
                | u64::from(offset as u16) << 16
                | u64::from(immediate as u32) << 32,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(write: impl FnOnce(&mut Assembler)) -> [u8; 8] {
        let mut assembler = Assembler::default();
        write(&mut assembler);
        assembler.finish()[0].to_le_bytes()
    }

    /// The examples of the instruction set's document and of the kernel's own disassembly.
    #[test]
    fn instructions_have_the_bytes_of_the_standard() {
        use Reg::*;
        // r0 = 2; r4 += 60; r5 &= 63; r4 -= r0
        assert_eq!(one(|a| a.constant(Op::Move, R0, 2)), [0xb7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(one(|a| a.constant(Op::Add, R4, 60)), [0x07, 4, 0, 0, 60, 0, 0, 0]);
        assert_eq!(one(|a| a.constant(Op::And, R5, 63)), [0x57, 5, 0, 0, 63, 0, 0, 0]);
        assert_eq!(one(|a| a.register(Op::Sub, R4, R0)), [0x1f, 4, 0, 0, 0, 0, 0, 0]);
        // r2 = *(u32 *)(r1 + 4); *(u16 *)(r2 + 34) = r7; *(u32 *)(r2 - 4) = 1
        assert_eq!(one(|a| a.load(Size::Four, R2, R1, 4)), [0x61, 0x12, 4, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Size::Two, R2, 34, R7)), [0x6b, 0x72, 34, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store(Size::Eight, R2, 0, R7)), [0x7b, 0x72, 0, 0, 0, 0, 0, 0]);
        assert_eq!(one(|a| a.store_bytes(R2, -4, [1, 2, 3, 4])), [0x62, 2, 0xfc, 0xff, 1, 2, 3, 4]);
        // r7 = be16 r7
        assert_eq!(one(|a| a.network_order(R7, 16)), [0xdc, 7, 0, 0, 16, 0, 0, 0]);
    }

    #[test]
    fn jump_skips_the_instructions_in_between() {
        let mut assembler = Assembler::default();
        let jump = assembler.jump(If::Above, Reg::R4, Reg::R3);
        assembler.constant(Op::Move, Reg::R0, 2);
        assembler.constant(Op::Move, Reg::R0, 3);
        assembler.land(jump);
        assembler.exit(0);
        let bytes = assembler.finish()[0].to_le_bytes();
        assert_eq!(bytes, [0x2d, 0x34, 2, 0, 0, 0, 0, 0], "if r4 > r3 goto +2");
    }

    #[test]
    fn an_address_of_a_value_takes_two_instructions() {
        let mut assembler = Assembler::default();
        assembler.value_address(Reg::R1, 7);
        let program = assembler.finish();
        assert_eq!(program[0].to_le_bytes(), [0x18, 0x21, 0, 0, 7, 0, 0, 0]);
        assert_eq!(program[1], 0);
    }
}
