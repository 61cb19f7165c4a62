//! Classes of flows.

/// Number of classes: class 0 has the flows that are in no other.
pub const CLASSES: usize = 4;

/// Class of a flow: what its packets and its state get, beside the verdict of the rule that gives
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowClass(u8);

impl FlowClass {
    /// Class 0: none.
    pub const NONE: Self = Self(0);

    /// Returns the class with a number; `None` if it is not below [`CLASSES`].
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < CLASSES { Some(Self(number)) } else { None }
    }

    /// Returns its number, below [`CLASSES`].
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }
}
