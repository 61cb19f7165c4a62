//! The XDP program on an interface: remains of a killed process are replaced; a program that is in
//! use or foreign is left alone.
//!
//! AF_XDP delivers through a small program that libxdp attaches to the interface. It outlives a
//! killed process, and the driver would then join the old program, whose socket map is gone. The
//! claims of the ports show its state:
//!
//! ```text
//!   our queue is claimed, also after a while      in use by another process: error
//!   another queue is claimed                      the program is alive and shared: leave it
//!   no other claim                                stale if it is libxdp's (or the operator
//!                                                 named the program): detach
//! ```

use std::fs;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use nix::net::if_::if_nametoindex;

use crate::device::Device;
use crate::error::DpdkError;
use crate::netlink::{attribute, attributes, request, u32_at};
use crate::xdp_claim::{XdpClaim, claim, claimed_queues};

const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
/// struct ifinfomsg { u8 family, pad; u16 type; i32 index; u32 flags, change }.
const IFINFOMSG_BYTES: usize = 16;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_FLAGS: u16 = 3;
const IFLA_XDP_PROG_ID: u16 = 4;
/// The names of libxdp's programs: the dispatcher, and the redirect program where dispatching is
/// not possible.
const LIBXDP_NAMES: [&str; 2] = ["xdp_dispatcher", "xsk_def_prog"];
/// State of an interface, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct InterfaceState {
    is_up: bool,
    program: Option<Program>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Program {
    id: u32,
    /// XDP_ATTACHED_*: 1 driver, 2 generic, 3 hardware.
    mode: u8,
}

/// Makes the interface of an AF_XDP device ready for a new program, and claims its queues. The port
/// keeps the claim.
pub(crate) fn prepare(device: &Device, warnings: &mut Vec<String>) -> Result<XdpClaim, DpdkError> {
    let Some(name) = device.option("iface") else {
        return Err(device.error("names no interface", None, "add iface=NAME"));
    };
    let Ok(index) = if_nametoindex(name) else {
        return Err(device.error(
            format!("interface {name} does not exist"),
            None,
            "create it, or correct iface=",
        ));
    };
    let number = |key: &str, default: u32| {
        device.option(key).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let count = number("queue_count", 1);
    let claim = claim(index, number("start_queue", 0), count).map_err(|queue| {
        let problem = format!("queue {queue} of interface {name} is in use by another port");
        device.error(problem, None, "stop the other process, or choose another start_queue")
    })?;
    let interface = look(index).map_err(|errno| {
        device.error(
            format!("interface {name} cannot be looked at"),
            Some(errno.desc().to_lowercase()),
            "check the interface",
        )
    })?;
    if !interface.is_up {
        warnings.push(format!(
            "interface {name} is down: no packet passes before `ip link set dev {name} up`"
        ));
    }
    match interface.program {
        Some(program) if claimed_queues(index) <= count as usize => {
            replace(device, name, index, program)?
        }
        _ => {}
    }
    Ok(claim)
}

fn replace(device: &Device, name: &str, index: u32, program: Program) -> Result<(), DpdkError> {
    let fix = format!("remove it with `ip link set dev {name} xdp off`");
    let program_name = program_name(program.id).unwrap_or_default();
    let is_libxdp = program_name.is_empty() || LIBXDP_NAMES.contains(&program_name.as_str());
    if !is_libxdp && device.option("xdp_prog").is_none() {
        return Err(device.error(
            format!("interface {name} has the XDP program \"{program_name}\" of somebody else"),
            None,
            fix,
        ));
    }
    detach(index, program).map_err(|errno| {
        device.error(
            format!("the stale XDP program of interface {name} cannot be removed"),
            Some(errno.desc().to_lowercase()),
            fix,
        )
    })?;
    forget_pins(index, program.id);
    Ok(())
}

fn look(index: u32) -> nix::Result<InterfaceState> {
    let answers = request(RTM_GETLINK, &ifinfomsg(index))?;
    let link = answers.first().map(Vec::as_slice).unwrap_or_default();
    let is_up = u32_at(link, 8) & libc::IFF_UP as u32 != 0;
    let (mut id, mut mode) = (0, 0);
    for (kind, value) in attributes(link.get(IFINFOMSG_BYTES..).unwrap_or_default()) {
        if kind != IFLA_XDP {
            continue;
        }
        for (kind, value) in attributes(value) {
            match kind {
                IFLA_XDP_PROG_ID => id = u32_at(value, 0),
                IFLA_XDP_ATTACHED => mode = value.first().copied().unwrap_or(0),
                _ => {}
            }
        }
    }
    Ok(InterfaceState { is_up, program: (id != 0).then_some(Program { id, mode }) })
}

fn detach(index: u32, program: Program) -> nix::Result<()> {
    // XDP_FLAGS_SKB_MODE, _DRV_MODE and _HW_MODE by XDP_ATTACHED_*: a program is removed only in
    // its own mode.
    let flags: u32 = match program.mode {
        1 => 1 << 2,
        2 => 1 << 1,
        3 => 1 << 3,
        _ => 0,
    };
    let mut nested = attribute(IFLA_XDP_FD, &(-1i32).to_ne_bytes());
    nested.extend(attribute(IFLA_XDP_FLAGS, &flags.to_ne_bytes()));
    let mut payload = ifinfomsg(index).to_vec();
    payload.extend(attribute(IFLA_XDP | 0x8000, &nested));
    request(RTM_SETLINK, &payload).map(drop)
}

fn ifinfomsg(index: u32) -> [u8; IFINFOMSG_BYTES] {
    let mut message = [0; IFINFOMSG_BYTES];
    message[4..8].copy_from_slice(&index.to_ne_bytes());
    message
}

/// Removes the pins of a dispatcher, which libxdp makes where a BPF file system is mounted;
/// otherwise they would stay permanently.
fn forget_pins(index: u32, program_id: u32) {
    let folder = format!("/sys/fs/bpf/xdp/dispatch-{index}-{program_id}");
    // Absent on most machines; remains never prevent the next program.
    let _ = fs::remove_dir_all(folder);
}

/// Returns the name with which a BPF program was loaded, up to 15 bytes; `None` if this process may
/// not query it.
fn program_name(id: u32) -> Option<String> {
    const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
    const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
    // struct bpf_prog_info of linux/bpf.h: the name is the 16 bytes from offset 64 on.
    const INFO_BYTES: usize = 80;

    let mut by_id = [id, 0, 0, 0];
    // JUSTIFICATION: libc has no wrapper of bpf(2).
    // SAFETY: the kernel reads and writes no more than the size given, which is that of the array.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, by_id.as_mut_ptr(), size_of_val(&by_id))
    };
    if fd < 0 {
        return None;
    }
    // JUSTIFICATION: the descriptor must be closed.
    // SAFETY: the kernel has just returned it, and no other code has it.
    let program = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut info = [0u8; INFO_BYTES];
    let by_fd = BpfInfoByFd {
        fd: program.as_raw_fd() as u32,
        info_bytes: INFO_BYTES as u32,
        info: info.as_mut_ptr() as u64,
    };
    // JUSTIFICATION: libc has no wrapper of bpf(2).
    // SAFETY: the kernel reads the struct, whose size is given, and writes at most `info_bytes` to
    // `info`.
    let code = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_OBJ_GET_INFO_BY_FD,
            &raw const by_fd,
            size_of::<BpfInfoByFd>(),
        )
    };
    if code < 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&info[64..]).trim_end_matches('\0').to_owned())
}

/// The part of union bpf_attr that BPF_OBJ_GET_INFO_BY_FD uses.
#[repr(C)]
struct BpfInfoByFd {
    fd: u32,
    info_bytes: u32,
    info: u64,
}
