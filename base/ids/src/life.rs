//! One incarnation of a worker.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::NameError;
use crate::worker::WorkerId;

/// Identifies one incarnation of a worker: 128 bits, drawn at random when the worker starts and
/// again when its guard has fenced it, so that no two are ever equal. Written as 32 hexadecimal
/// digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootId(pub u128);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl TryFrom<String> for BootId {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        number.map(Self).ok_or(NameError::Boot(text))
    }
}

impl From<BootId> for String {
    fn from(boot_id: BootId) -> Self {
        boot_id.to_string()
    }
}

/// A worker and one of its runs, from a start to its end: the holder of granted roles.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    pub worker: WorkerId,
    pub boot_id: BootId,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.worker, self.boot_id)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:?}", self.worker, self.boot_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boot_id_is_parsed_as_it_is_written() {
        let boot_id = BootId(0xfe);
        assert_eq!(boot_id.to_string(), "000000000000000000000000000000fe");
        assert_eq!(BootId::try_from(boot_id.to_string()), Ok(boot_id));
    }

    #[test]
    fn a_text_other_than_32_hexadecimal_digits_is_no_boot_id() {
        for text in ["", "fe", &"0".repeat(31), &"0".repeat(33), &format!("+{}", "0".repeat(31))] {
            assert!(BootId::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
