//! Checks whether this processor can run the program at all: the build is for x86-64-v3 with AES
//! (`.cargo/config.toml`).
//!
//! Without this check an older processor would end the process with SIGILL somewhere, and say
//! nothing.

use std::io::{Write, stderr};

use weir_dpdk::ProcessorFeatures;

/// Exit code of an insufficient processor, one of [`EXIT_CODES`](crate::EXIT_CODES).
pub const EXIT_CODE: u8 = 22;

/// Bits of XCR0 for the XMM and YMM registers.
const AVX_STATE: u64 = 0b110;

/// A required feature: its name, and a test whether the processor has it. Bits from Intel's manual,
/// volume 2A, instruction CPUID.
type Need = (&'static str, fn(&ProcessorFeatures) -> bool);

const NEEDS: [Need; 8] = [
    ("AVX2", |features| features.leaf_7_ebx & 1 << 5 != 0),
    ("BMI1", |features| features.leaf_7_ebx & 1 << 3 != 0),
    ("BMI2", |features| features.leaf_7_ebx & 1 << 8 != 0),
    ("FMA", |features| features.leaf_1_ecx & 1 << 12 != 0),
    ("MOVBE", |features| features.leaf_1_ecx & 1 << 22 != 0),
    ("LZCNT", |features| features.extended_1_ecx & 1 << 5 != 0),
    ("F16C", |features| features.leaf_1_ecx & 1 << 29 != 0),
    ("AES", |features| features.leaf_1_ecx & 1 << 25 != 0),
];

const PROCESSOR_ADVICE: &str = "weir is built for x86-64-v3 with AES: Intel since Haswell, AMD since Zen. Run it on such a \
     processor; give a virtual machine the processor model of its host; or change target-cpu in .cargo/config.toml and \
     build again";
const SYSTEM_ADVICE: &str = "the operating system does not save AVX registers: start the kernel without `noxsave` and \
     `clearcpuid`, and let the hypervisor offer XSAVE";

/// Returns the names of the missing features, in the order of `NEEDS`.
fn missing(features: &ProcessorFeatures) -> impl Iterator<Item = &'static str> {
    NEEDS.iter().filter(|(_, is_met)| !is_met(features)).map(|(name, _)| *name)
}

fn saves_avx_state(features: &ProcessorFeatures) -> bool {
    features.xcr0 & AVX_STATE == AVX_STATE
}

/// Whether the program can run here; if not, stderr gets the reason and the remedy.
///
/// Integer code without formatting, so that the compiler has no use for a newer instruction on this
/// path.
pub fn is_sufficient() -> bool {
    let features = ProcessorFeatures::read();
    let lacks_some = missing(&features).next().is_some();
    if !lacks_some && saves_avx_state(&features) {
        return true;
    }
    // A closed stderr has no reader.
    let _ = explain(&features, &mut stderr());
    false
}

fn explain(features: &ProcessorFeatures, out: &mut dyn Write) -> std::io::Result<()> {
    out.write_all(b"weir: ")?;
    let mut separator = "this processor lacks ";
    for name in missing(features) {
        out.write_all(separator.as_bytes())?;
        out.write_all(name.as_bytes())?;
        separator = ", ";
    }
    if separator == ", " {
        out.write_all(b"; ")?;
        out.write_all(PROCESSOR_ADVICE.as_bytes())?;
    } else {
        out.write_all(SYSTEM_ADVICE.as_bytes())?;
    }
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ProcessorFeatures = ProcessorFeatures {
        leaf_1_ecx: 1 << 12 | 1 << 22 | 1 << 25 | 1 << 27 | 1 << 29,
        leaf_7_ebx: 1 << 3 | 1 << 5 | 1 << 8,
        extended_1_ecx: 1 << 5,
        xcr0: 0b111,
    };

    fn explained(features: &ProcessorFeatures) -> String {
        let mut text = Vec::new();
        explain(features, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn every_need_is_a_bit_of_its_own() {
        assert_eq!(missing(&ALL).count(), 0);
        let without = [
            ("AVX2", ProcessorFeatures { leaf_7_ebx: ALL.leaf_7_ebx & !(1 << 5), ..ALL }),
            ("BMI1", ProcessorFeatures { leaf_7_ebx: ALL.leaf_7_ebx & !(1 << 3), ..ALL }),
            ("BMI2", ProcessorFeatures { leaf_7_ebx: ALL.leaf_7_ebx & !(1 << 8), ..ALL }),
            ("FMA", ProcessorFeatures { leaf_1_ecx: ALL.leaf_1_ecx & !(1 << 12), ..ALL }),
            ("MOVBE", ProcessorFeatures { leaf_1_ecx: ALL.leaf_1_ecx & !(1 << 22), ..ALL }),
            ("LZCNT", ProcessorFeatures { extended_1_ecx: 0, ..ALL }),
            ("F16C", ProcessorFeatures { leaf_1_ecx: ALL.leaf_1_ecx & !(1 << 29), ..ALL }),
            ("AES", ProcessorFeatures { leaf_1_ecx: ALL.leaf_1_ecx & !(1 << 25), ..ALL }),
        ];
        for (name, features) in without {
            assert_eq!(missing(&features).collect::<Vec<_>>(), [name]);
        }
        assert_eq!(missing(&ProcessorFeatures::default()).count(), NEEDS.len());
    }

    #[test]
    fn the_operating_system_must_save_both_halves_of_a_register() {
        assert!(saves_avx_state(&ALL));
        for xcr0 in [0, 0b001, 0b011, 0b101] {
            assert!(!saves_avx_state(&ProcessorFeatures { xcr0, ..ALL }));
        }
    }

    #[test]
    fn the_message_names_what_is_missing_and_what_to_do() {
        let text = explained(&ProcessorFeatures { leaf_7_ebx: 1 << 3, ..ALL });
        assert!(text.starts_with("weir: this processor lacks AVX2, BMI2; weir is built"), "{text}");
        assert!(text.ends_with("build again\n"), "{text}");
        let text = explained(&ProcessorFeatures { xcr0: 0b011, ..ALL });
        assert!(text.starts_with("weir: the operating system does not save AVX"), "{text}");
    }

    #[test]
    fn this_processor_will_do_and_the_exit_code_is_documented() {
        assert!(is_sufficient());
        assert!(crate::EXIT_CODES.iter().any(|(code, _)| *code == EXIT_CODE));
    }
}
