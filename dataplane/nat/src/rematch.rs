//! Asks the rules about live flows, where a rule says so: once after a change of the rules, and
//! after this worker has taken over a lane.
//!
//! ```text
//!   further sessions, then first sessions, in slot order, a piece in each call of `Nat::expire`:
//!       a rule with rematch decides on it, and refuses it  -->  the session ends
//! ```
//!
//! Further sessions come first, so that what takes the place of a first session that ends was asked
//! about before. Only flows in lanes owned here are asked about: the owner of a lane ends its
//! flows, and copies follow.

use weir_flow::{Cursor, RecordId};
use weir_rules::{DecidingRule, FlowOrigin, RuleAction};

use crate::endpoint::Tick;
use crate::nat::Nat;
use crate::rules::Asked;
use crate::sessions::mapping::{Mapping, Remote};
use crate::sessions::session_state::SessionState;

/// Slots that are looked at in one call, and questions after which no further slots are.
const SLOTS_MAX: usize = 256;
const QUESTIONS_MAX: usize = 16;
/// Slots between two counts of the questions.
const STEP: usize = 16;

/// How far the live flows have been asked about.
#[derive(Debug, Default)]
pub(crate) struct Rematch {
    stage: RematchStage,
    cursor: Cursor,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RematchStage {
    #[default]
    Done,
    Sessions,
    Mappings,
}

/// The rule that ends a session, and what it was asked.
type Refusing = (DecidingRule, FlowOrigin, Asked);

impl Rematch {
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.stage != RematchStage::Done
    }
}

impl Nat {
    /// Begins to ask about all live flows, if a rule wants that.
    pub(crate) fn begin_rematch(&mut self) {
        let stage = match self.rules.set.has_rematch() {
            true => RematchStage::Sessions,
            false => RematchStage::Done,
        };
        self.rematch = Rematch { stage, cursor: Cursor::default() };
    }

    /// Asks about some of the live flows, and ends those that are refused.
    #[cold]
    pub(crate) fn rematch_piece(&mut self, now: Tick) {
        let mut asked = 0;
        for _ in 0..SLOTS_MAX / STEP {
            let has_wrapped = match self.rematch.stage {
                RematchStage::Done => return,
                RematchStage::Sessions => self.rematch_sessions(&mut asked),
                RematchStage::Mappings => self.rematch_mappings(now, &mut asked),
            };
            if has_wrapped {
                let stage = match self.rematch.stage {
                    RematchStage::Sessions => RematchStage::Mappings,
                    RematchStage::Mappings | RematchStage::Done => RematchStage::Done,
                };
                self.rematch = Rematch { stage, cursor: Cursor::default() };
            }
            if asked >= QUESTIONS_MAX {
                return;
            }
        }
    }

    fn rematch_sessions(&mut self, asked: &mut usize) -> bool {
        let Self { sessions, due, lanes, rematch, .. } = self;
        let has_wrapped = sessions.walk(&mut rematch.cursor, STEP, |id, slab, session| {
            if !session.is_address() && lanes.get(slab).is_owned {
                due.push(id);
            }
        });
        *asked += self.due.len();
        while let Some(id) = self.due.pop() {
            let session = self.sessions.get(id);
            if let Some(refusing) = self.refusing(session.mapping, &session.remote) {
                self.count_rematched(refusing);
                self.end_session(id);
            }
        }
        has_wrapped
    }

    fn rematch_mappings(&mut self, now: Tick, asked: &mut usize) -> bool {
        let Self { mappings, due, lanes, rematch, .. } = self;
        let has_wrapped = mappings.walk(&mut rematch.cursor, STEP, |id, slab, mapping| {
            if mapping.kind.is_in_use() && lanes.get(slab).is_owned {
                due.push(id);
            }
        });
        *asked += self.due.len();
        while let Some(id) = self.due.pop() {
            let Mapping { first, sessions, kind, .. } = *self.mappings.get(id);
            if kind.is_ipv6() {
                self.rematch_flow6(id);
                continue;
            }
            let Some(refusing) = self.refusing(id, &first) else { continue };
            self.count_rematched(refusing);
            match sessions {
                0 => self.end_mapping(id, now),
                _ => self.promote_session(id),
            }
        }
        has_wrapped
    }

    fn rematch_flow6(&mut self, id: RecordId) {
        if self.is_refused_flow6(id) {
            self.totals.flow_rematched += 1;
            self.end_flow6(id);
        }
    }

    fn count_rematched(&mut self, (refusing, origin, asked): Refusing) {
        let _refusal = self.count_refused(refusing, origin, asked);
        self.totals.flow_rematched += 1;
    }

    /// Returns the rule that ends this session of a mapping.
    fn refusing(&self, mapping: RecordId, remote: &Remote) -> Option<Refusing> {
        let (set, mapping) = (&*self.rules.set, self.mappings.get(mapping));
        let origin = match remote.state.has(SessionState::OPENED_BY_REMOTE) {
            true => FlowOrigin::Internet,
            false => FlowOrigin::Home,
        };
        // A rule is about the destination that the home asks.
        let remote = mapping.asked().unwrap_or(remote.endpoint());
        let asked = (mapping.protocol, mapping.outer, mapping.inside(), remote);
        let deciding = set.find(&self.question(origin, asked))?;
        let is_refusing = deciding.action != RuleAction::Accept && set.is_rematch(deciding.rule);
        is_refusing.then_some((deciding, origin, asked))
    }
}
