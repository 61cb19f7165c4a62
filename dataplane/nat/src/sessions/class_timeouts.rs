//! Hot. What the flows of each class get: idle timers and a mark.

use weir_rules::{CLASSES, FlowClass};

use crate::endpoint::Protocol;
use crate::sessions::session_state::SessionState;
use crate::sessions::timeouts::Timeouts;

/// What the flows of a class get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    pub timeouts: Timeouts,
    /// Codepoint of their packets in both directions, below 64 (DSCP, RFC 2474 section 3); `None`:
    /// as they came.
    pub dscp: Option<u8>,
}

/// Idle timeouts, by class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassTimeouts([Timeouts; CLASSES]);

impl ClassTimeouts {
    /// Returns the timeouts that `of` gives to each class.
    pub(crate) fn new(of: impl Fn(FlowClass) -> Timeouts) -> Self {
        Self(by_class(of))
    }

    /// Returns the idle time in seconds at which a session in this state ends.
    #[inline]
    pub(crate) fn of(&self, state: SessionState, protocol: Protocol) -> u32 {
        self.0[state.class().number() as usize].of(state.phase(protocol))
    }

    /// Returns the timer of a settled session, which has no class.
    #[inline]
    pub(crate) const fn of_settled(&self, protocol: Protocol) -> u32 {
        self.0[FlowClass::NONE.number() as usize].of_settled(protocol)
    }
}

/// Returns a value for each class, by its number.
pub(crate) fn by_class<T>(of: impl Fn(FlowClass) -> T) -> [T; CLASSES] {
    std::array::from_fn(|number| {
        of(FlowClass::new(number as u8).expect("below the number of classes"))
    })
}
