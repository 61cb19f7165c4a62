//! Reasons that a valid configuration has no compiled form.

use weir_config::PolicySettings;
use weir_rules::{OUTCOMES_MAX, TooManyFilters};

/// Most rules that an error names.
const NAMED_MAX: usize = 5;

/// Why the rules cannot be compiled. The rules of before stay in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("the entries of set {set} are not here")]
    SetNotLoaded { rule: String, set: String },
    /// The product of a rule's lists, or the sum of all rules.
    #[error(
        "the combinations of subscribers, remotes and ports up to rule {rule} are {count}, \
         at most {max} fit: its lists are {lists}; divide the rule, or leave one of the lists out"
    )]
    TooManyCombinations {
        rule: String,
        count: u64,
        max: u64,
        /// The lengths of the lists.
        lists: String,
    },
    #[error(
        "rule {rule} has subscribers of {subscribers} alone and remotes of {remotes} alone, so no \
         flow fits it; write both in one family, or a rule of its own for each"
    )]
    TwoFamilies {
        rule: String,
        /// Names of the families.
        subscribers: &'static str,
        remotes: &'static str,
    },
    #[error(
        "{reason}, and belong to rules {}; put the addresses of rules that do the same into one \
         [[set]], or give the rules addresses or ports that differ",
        named(rules)
    )]
    TooManyCandidates {
        /// Names, in order.
        rules: Vec<String>,
        reason: String,
    },
    #[error(
        "the rules have {count} combinations of action, class, source pool and destination, at \
         most {OUTCOMES_MAX} fit: rule {rule} and those after it need more; redirect to fewer \
         destinations, or give fewer combinations"
    )]
    TooManyOutcomes {
        /// The first rule that has one too many.
        rule: String,
        count: usize,
    },
}

impl PolicyError {
    pub(crate) fn candidates(policy: &PolicySettings, error: &TooManyFilters) -> Self {
        let name = |rule: &u32| policy.rules[*rule as usize].name.clone();
        let rules = error.rules.iter().map(name).collect();
        Self::TooManyCandidates { rules, reason: error.to_string() }
    }

    /// Returns the name of the rule that the error is about; the first, if there are several.
    pub fn rule(&self) -> &str {
        match self {
            Self::SetNotLoaded { rule, .. }
            | Self::TwoFamilies { rule, .. }
            | Self::TooManyCombinations { rule, .. }
            | Self::TooManyOutcomes { rule, .. } => rule,
            Self::TooManyCandidates { rules, .. } => rules.first().map_or("", String::as_str),
        }
    }
}

/// Returns names as a part of a sentence, with the number of those that are left out.
pub(crate) fn named(names: &[String]) -> String {
    let shown = names.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
