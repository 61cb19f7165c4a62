//! The start of DPDK: once per process, without devices, quiet.

use std::ffi::{CStr, CString, OsStr};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use weir_dpdk_sys as sys;

use crate::core_pinning::pin_current_thread_to;
use crate::driver_log;
use crate::eal_arguments;
use crate::error::{DpdkError, errno_text};
use crate::huge_pages;
use crate::iova_mode;
use crate::output_capture::OutputCapture;

static STARTED: AtomicBool = AtomicBool::new(false);
/// Packet memory in MB that cannot grow; 0 with huge pages.
static FIXED_MEMORY_MB: AtomicUsize = AtomicUsize::new(0);

/// Kind of memory for packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Huge pages if enough are free for `memory_mb`, ordinary memory otherwise.
    #[default]
    Auto,
    /// Ordinary memory.
    Never,
}

/// How to start DPDK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EalConfig {
    /// Distinguishes this process's files from those of other DPDK processes.
    pub file_prefix: String,
    /// Cores of the calling thread and of DPDK's own threads (link state, memif control). Empty:
    /// the cores on which the caller may run.
    pub control_cores: Vec<usize>,
    /// Packet memory of the whole process in MB: the pools, rings and driver state. With huge pages
    /// it only decides whether enough are free; without them it is reserved and cannot grow.
    pub memory_mb: usize,
    pub hugepages: HugePages,
    /// Further EAL arguments. `--log-level=...` also sends DPDK's log to stderr.
    pub extra: Vec<String>,
}

impl Default for EalConfig {
    fn default() -> EalConfig {
        EalConfig {
            file_prefix: format!("weir-{}", std::process::id()),
            control_cores: Vec::new(),
            memory_mb: 512,
            hugepages: HugePages::Auto,
            extra: Vec::new(),
        }
    }
}

/// The started EAL: proof that devices can be attached. DPDK runs until the process ends.
#[derive(Debug)]
pub struct Eal {
    uses_huge_pages: bool,
    memory: String,
}

impl Eal {
    /// Starts DPDK without any device. Afterwards the calling thread runs on `control_cores`, and
    /// so do the threads that it starts later unless they pin themselves. Nothing is printed. A
    /// failed start cannot be repeated in the same process.
    pub fn init(config: EalConfig) -> Result<Eal, DpdkError> {
        let mut config = config;
        if config.control_cores.is_empty() {
            config.control_cores = current_cores();
        }
        // DPDK's control threads inherit the affinity that the caller has at this point.
        pin_current_thread_to(&config.control_cores)?;
        let (has_huge_pages, memory) = choose_memory(&config)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::EalTwice);
        }
        let arguments = eal_arguments::build(&config, has_huge_pages, iova_mode::argument());
        start(arguments, eal_arguments::wants_log(&config.extra))?;
        // rte_eal_init has pinned the caller to the first control core.
        pin_current_thread_to(&config.control_cores)?;
        // JUSTIFICATION: DPDK has just loaded the libraries.
        // SAFETY: takes no argument; a library that is not loaded is left alone.
        unsafe { sys::weir_log_capture_xdp() };
        remove_runtime_folder();
        // JUSTIFICATION: `extra` may have changed the requested kind of memory.
        // SAFETY: the EAL has started.
        let uses_huge_pages = unsafe { sys::weir_eal_has_huge_pages() } != 0;
        FIXED_MEMORY_MB
            .store(if uses_huge_pages { 0 } else { config.memory_mb }, Ordering::Relaxed);
        Ok(Eal { uses_huge_pages, memory })
    }

    /// Whether packet memory is on huge pages.
    pub fn uses_huge_pages(&self) -> bool {
        self.uses_huge_pages
    }

    /// Returns which memory is used and why, for the log: `huge pages`, `ordinary memory, 512 MB:
    /// no huge pages are free`.
    pub fn memory(&self) -> &str {
        &self.memory
    }
}

/// Returns the memory that is available for packets, for a message about a shortage.
pub(crate) fn packet_memory_left() -> String {
    match FIXED_MEMORY_MB.load(Ordering::Relaxed) {
        0 => huge_pages::shortage_text(),
        fixed_mb => format!("{fixed_mb} MB reserved for all packet memory"),
    }
}

/// Returns whether to use huge pages, and the reason in words.
fn choose_memory(config: &EalConfig) -> Result<(bool, String), DpdkError> {
    let wanted_mb = config.memory_mb;
    let free_mb = huge_pages::free_huge_pages_mb();
    let why_not = match config.hugepages {
        HugePages::Auto if free_mb > 0 && free_mb >= wanted_mb => {
            return Ok((true, "huge pages".to_owned()));
        }
        HugePages::Auto if free_mb == 0 => "no huge pages are free".to_owned(),
        HugePages::Auto => format!("only {free_mb} MB are free in huge pages"),
        HugePages::Never => "huge pages are turned off".to_owned(),
    };
    match huge_pages::available_mb() {
        Some(available) if available < wanted_mb => Err(DpdkError::Memory {
            purpose: "packet buffers".into(),
            wanted_mb,
            available: huge_pages::shortage_text(),
            fix: format!(
                "reserve {} huge pages of 2 MB (sysctl vm.nr_hugepages), or use smaller pools",
                wanted_mb.div_ceil(2)
            ),
        }),
        _ => Ok((false, format!("ordinary memory, {wanted_mb} MB: {why_not}"))),
    }
}

/// Removes the folder for shared files, which DPDK makes even if it shares none, and never removes.
fn remove_runtime_folder() {
    // JUSTIFICATION: DPDK chooses the path.
    // SAFETY: the EAL has started; it returns a string that is never freed.
    let folder = unsafe { sys::weir_eal_runtime_dir() };
    // JUSTIFICATION: as above.
    // SAFETY: the string ends with NUL and is never freed.
    let folder = unsafe { CStr::from_ptr(folder) };
    // A folder that is in use is not empty, so it is not removed.
    let _ = fs::remove_dir(Path::new(OsStr::from_bytes(folder.to_bytes())));
}

fn current_cores() -> Vec<usize> {
    match sched_getaffinity(Pid::from_raw(0)) {
        Ok(set) => (0..CpuSet::count()).filter(|&core| set.is_set(core).unwrap_or(false)).collect(),
        Err(_) => vec![0],
    }
}

fn start(arguments: Vec<String>, echo: bool) -> Result<(), DpdkError> {
    let argv: Vec<CString> = arguments
        .iter()
        .map(|argument| CString::new(argument.as_str()).unwrap_or_default())
        .collect();
    // DPDK keeps pointers into its arguments, as a C program may do for its whole life.
    let argv: &'static [CString] = argv.leak();
    let mut pointers: Vec<*mut libc::c_char> =
        argv.iter().map(|argument| argument.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let log = driver_log::start();
    // JUSTIFICATION: DPDK's log goes where the shim directs it.
    // SAFETY: no other thread logs through DPDK before it starts.
    unsafe { sys::weir_log_capture(i32::from(echo)) };
    let output = OutputCapture::start();
    // JUSTIFICATION: there is no other way to start DPDK.
    // SAFETY: `pointers` is an argv as C requires it: argc strings and a null pointer, all of them
    // alive. STARTED makes this the only call in the process.
    let code = unsafe { sys::weir_eal_init(arguments.len() as i32, pointers.as_mut_ptr()) };
    let printed = output.finish();
    if code == 0 {
        if echo {
            eprint!("{printed}");
        }
        return Ok(());
    }
    // getopt reports errors under the program's name, before DPDK prints its usage.
    let refused = printed.lines().find_map(|line| line.strip_prefix("weir: ")).map(str::to_owned);
    let cause = refused.or_else(|| log.cause()).unwrap_or_else(|| errno_text(code));
    Err(DpdkError::Eal { cause: format!("{cause} (arguments: {})", arguments[1..].join(" ")) })
}
