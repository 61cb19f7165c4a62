//! The kernel's BPF: an array of one value, XDP programs, and runs of them on made-up frames
//! (bpf(2)).
//!
//! Every object is a file descriptor: it disappears with its owner, even when the process is
//! killed.

// JUSTIFICATION: neither std nor nix nor libc wraps bpf(2); all of it is in this file.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::libc::{SYS_bpf, c_int, syscall};

const BPF_MAP_CREATE: c_int = 0;
const BPF_MAP_LOOKUP_ELEM: c_int = 1;
const BPF_MAP_UPDATE_ELEM: c_int = 2;
const BPF_PROG_LOAD: c_int = 5;
const BPF_PROG_RUN: c_int = 10;
const BPF_LINK_CREATE: c_int = 28;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_ATTACH_XDP: u32 = 37;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// Run XDP in the driver: veth hands over the packet without the detour of generic XDP.
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// The programs call no GPL-only helper.
const LICENSE: &[u8] = b"Apache-2.0\0";

/// Frames that the kernel runs and passes to its stack at a time: the budget of a NAPI poll of a
/// driver.
const BATCH: u32 = 64;

/// An array map with one value.
#[derive(Debug)]
pub(super) struct Value {
    map: OwnedFd,
    bytes: usize,
}

impl Value {
    /// Makes a value of `bytes` zero bytes.
    pub(super) fn new(bytes: usize) -> nix::Result<Value> {
        let mut attr =
            MapCreate { kind: BPF_MAP_TYPE_ARRAY, key: 4, value: bytes as u32, entries: 1 };
        // SAFETY: the attributes hold no address.
        let fd = unsafe { bpf(BPF_MAP_CREATE, &mut attr) }?;
        Ok(Value { map: owned(fd), bytes })
    }

    pub(super) fn fd(&self) -> i32 {
        self.map.as_raw_fd()
    }

    pub(super) fn write(&self, value: &[u8]) -> nix::Result<()> {
        assert_eq!(value.len(), self.bytes, "the kernel reads a whole value");
        let key = 0u32;
        let mut attr = self.element(&key, value.as_ptr() as u64);
        // SAFETY: the kernel reads the key and, asserted above, no more than the slice; both
        // outlive the call.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    pub(super) fn read(&self) -> nix::Result<Vec<u8>> {
        let mut value = vec![0; self.bytes];
        let key = 0u32;
        let mut attr = self.element(&key, value.as_mut_ptr() as u64);
        // SAFETY: the kernel reads the key and writes as many bytes as the map was made with; both
        // outlive the call.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &mut attr) }?;
        Ok(value)
    }

    fn element(&self, key: &u32, value: u64) -> MapElement {
        MapElement { fd: self.fd(), pad: 0, key: &raw const *key as u64, value, flags: 0 }
    }
}

/// A loaded XDP program.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

/// A program attached to an interface; dropping it detaches the program.
#[derive(Debug)]
pub(super) struct Link {
    _link: OwnedFd,
}

impl Program {
    /// Loads instructions, after the kernel has verified them.
    pub(super) fn load(instructions: &[u64]) -> nix::Result<Program> {
        let mut attr = ProgramLoad {
            kind: BPF_PROG_TYPE_XDP,
            instructions_len: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            license: LICENSE.as_ptr() as u64,
        };
        // SAFETY: the kernel reads `instructions_len` words and the terminated license; both
        // outlive the call.
        let fd = unsafe { bpf(BPF_PROG_LOAD, &mut attr) }?;
        Ok(Program(owned(fd)))
    }

    /// Attaches the program to an interface of the thread's network namespace.
    pub(super) fn attach(&self, interface: u32) -> nix::Result<Link> {
        let mut attr = LinkCreate {
            program: self.0.as_raw_fd(),
            interface,
            kind: BPF_ATTACH_XDP,
            flags: XDP_FLAGS_DRV_MODE,
        };
        // SAFETY: the attributes hold no address.
        let fd = unsafe { bpf(BPF_LINK_CREATE, &mut attr) }?;
        Ok(Link { _link: owned(fd) })
    }

    /// Runs the program on `count` copies of `frame` as if `interface` had received them; passed
    /// frames go up the stack. A signal ends the run early. EINVAL or E2BIG: the kernel has no live
    /// frames (before 5.18).
    pub(super) fn run_live(&self, frame: &[u8], interface: u32, count: u32) -> nix::Result<()> {
        let context = XdpMd { data_end: frame.len() as u32, interface, ..XdpMd::default() };
        let mut attr = ProgramRun {
            repeat: count,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch: BATCH,
            ..self.run_on(frame, &context)
        };
        // SAFETY: the kernel reads the frame and the context, of the sizes given, and copies
        // nothing out of live frames.
        match unsafe { bpf(BPF_PROG_RUN, &mut attr) } {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Runs the program on one frame. Returns its verdict and the frame, which does not leave the
    /// program.
    #[cfg(test)]
    pub(super) fn run_once(&self, frame: &[u8]) -> nix::Result<(u32, Vec<u8>)> {
        let mut after = vec![0u8; frame.len()];
        let context = XdpMd { data_end: frame.len() as u32, ..XdpMd::default() };
        let mut attr = ProgramRun {
            repeat: 1,
            data_out: after.as_mut_ptr() as u64,
            data_out_bytes: after.len() as u32,
            ..self.run_on(frame, &context)
        };
        // SAFETY: the kernel reads the frame and the context and writes at most `data_out_bytes`;
        // all outlive the call.
        unsafe { bpf(BPF_PROG_RUN, &mut attr) }?;
        Ok((attr.verdict, after))
    }

    fn run_on(&self, frame: &[u8], context: &XdpMd) -> ProgramRun {
        ProgramRun {
            program: self.0.as_raw_fd(),
            data_bytes: frame.len() as u32,
            data: frame.as_ptr() as u64,
            context_bytes: size_of::<XdpMd>() as u32,
            context: &raw const *context as u64,
            ..ProgramRun::default()
        }
    }
}

/// Calls bpf(2). Returns the result of the command.
///
/// # Safety
/// `attr` is laid out as the part of union bpf_attr that `command` uses, and each address in it is
/// valid for the bytes that the kernel reads or writes there during the call.
unsafe fn bpf<Attr>(command: c_int, attr: &mut Attr) -> nix::Result<c_int> {
    let attr: *mut Attr = attr;
    // JUSTIFICATION: libc has no wrapper of bpf(2).
    // SAFETY: the size is that of the struct; the caller guarantees the addresses in it.
    let code = unsafe { syscall(SYS_bpf, command, attr, size_of::<Attr>()) };
    Errno::result(code).map(|code| code as c_int)
}

fn owned(fd: c_int) -> OwnedFd {
    // JUSTIFICATION: the descriptor must be closed.
    // SAFETY: bpf(2) has just returned it, and it has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

// The parts of union bpf_attr (linux/bpf.h) in use; the kernel takes fields beyond a shorter struct
// as zero.

#[repr(C)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
}

#[repr(C)]
struct MapElement {
    fd: i32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramLoad {
    kind: u32,
    instructions_len: u32,
    instructions: u64,
    license: u64,
}

#[repr(C)]
struct LinkCreate {
    program: i32,
    interface: u32,
    kind: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct ProgramRun {
    program: i32,
    verdict: u32,
    data_bytes: u32,
    data_out_bytes: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_bytes: u32,
    context_out_bytes: u32,
    context: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch: u32,
    pad: u32,
}

/// struct xdp_md.
#[repr(C)]
#[derive(Default)]
struct XdpMd {
    data: u32,
    data_end: u32,
    data_meta: u32,
    interface: u32,
    queue: u32,
    egress_interface: u32,
}
