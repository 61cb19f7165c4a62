//! Chains with their jumps as one list of which the first entry that fits decides.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use weir_config::RedirectSetting;

use super::destination;
use super::family::AddressFamily;
use super::flow_set::{FlowSet, HOME, INTERNET};
use super::ruleset::{BaseChain, NameInTable, NftChain, NftRule, NftRuleset, RulePlace};
use super::statements::{NftVerdict, References, Understood};

/// The most entries, and the most rules looked at on the way: a rule is looked at once for each
/// way that leads to it.
pub(super) const ENTRIES_MAX: usize = 20_000;
const STEPS_MAX: usize = 200_000;
/// The longest way of jumps, as in the kernel.
const JUMPS_MAX: usize = 16;

/// What an entry of the list does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlatOutcome {
    Accept,
    Drop,
    Reject,
    /// As accept, and packets go to another destination.
    Redirect(RedirectSetting),
    /// As if no rule fitted.
    Default,
}

/// An entry of the list, and the rule or the chain's policy that it comes from.
#[derive(Clone, Debug)]
pub(super) struct FlatEntry<'a> {
    pub flows: FlowSet,
    pub outcome: FlatOutcome,
    pub place: &'a RulePlace,
    pub comment: Option<&'a str>,
}

/// What has become of a rule.
#[derive(Debug)]
pub(super) enum Fate {
    Understood(Understood),
    NotCarriedOver(String),
}

/// The list, and the fate of each rule that packets reach.
#[derive(Debug, Default)]
pub(super) struct FlatList<'a> {
    pub entries: Vec<FlatEntry<'a>>,
    pub fates: BTreeMap<&'a RulePlace, Fate>,
}

struct ChainWalk<'a> {
    ruleset: &'a NftRuleset,
    references: References<'a>,
    /// The base chains of one hook that forwarded packets pass, in order.
    bases: Vec<&'a NftChain>,
    list: FlatList<'a>,
    steps: usize,
}

/// The type and the hook of the chains that translate destinations, and of those that filter.
const TRANSLATES: (&str, &str) = ("nat", "prerouting");
const FILTERS: (&str, &str) = ("filter", "forward");

/// Whether the rules of a base chain may become rules of weir.
pub(super) fn is_known(base: &BaseChain) -> bool {
    [TRANSLATES, FILTERS].contains(&(&base.kind, &base.hook))
}

/// The base chains of a type and a hook that packets of a family pass, by priority.
fn base_chains<'a>(
    ruleset: &'a NftRuleset,
    (kind, hook): (&str, &str),
    family: AddressFamily,
) -> Vec<&'a NftChain> {
    let is_known = |chain: &&NftChain| {
        let table = &chain.place.table;
        family.passes(table)
            && !ruleset.flagged.contains(table)
            && chain.base.as_ref().is_some_and(|it| it.kind == kind && it.hook == hook)
    };
    let mut chains: Vec<&NftChain> = ruleset.chains.values().filter(is_known).collect();
    chains.sort_by_key(|chain| chain.base.as_ref().map(|base| base.priority));
    chains
}

/// Returns the list of the flows of one family, that of the references.
///
/// # Errors
/// When the list would be too long, a chain is missing, or jumps lead too deep.
pub(super) fn flatten<'a>(
    ruleset: &'a NftRuleset,
    references: References<'a>,
) -> anyhow::Result<FlatList<'a>> {
    let family = references.family;
    let (bases, list) = (base_chains(ruleset, TRANSLATES, family), FlatList::default());
    let mut walk = ChainWalk { ruleset, references, bases, list, steps: 0 };
    walk.enter_base(0, &FlowSet::all(family))?;
    let nat = std::mem::take(&mut walk.list.entries);
    walk.bases = base_chains(ruleset, FILTERS, family);
    walk.enter_base(0, &FlowSet::all(family))?;
    let FlatList { entries, mut fates } = walk.list;
    let entries = destination::redirect(nat, entries, &mut fates)?;
    Ok(FlatList { entries, fates })
}

impl<'a> ChainWalk<'a> {
    /// Lists what a base chain and those behind it do with flows.
    fn enter_base(&mut self, number: usize, flows: &FlowSet) -> anyhow::Result<()> {
        let Some(&chain) = self.bases.get(number) else { return Ok(()) };
        self.walk(number, chain, vec![flows.clone()], 0)?;
        let drops = chain.base.as_ref().is_some_and(|it| it.drops_by_policy);
        if !drops && number + 1 < self.bases.len() {
            return self.enter_base(number + 1, flows);
        }
        let outcome = if drops { FlatOutcome::Drop } else { FlatOutcome::Default };
        self.list(flows.clone(), outcome, &chain.place, Some("policy"));
        Ok(())
    }

    /// Lists what a chain does with flows, sets of which no two overlap. What it does not decide
    /// is left to the entries that follow.
    fn walk(
        &mut self,
        base: usize,
        chain: &'a NftChain,
        mut flows: Vec<FlowSet>,
        jumps: usize,
    ) -> anyhow::Result<()> {
        if jumps > JUMPS_MAX {
            bail!("{}: more than {JUMPS_MAX} jumps lead here, or a loop", chain.place);
        }
        for rule in &chain.rules {
            for (arm, verdict) in self.arms(rule) {
                self.steps += flows.len();
                if self.steps > STEPS_MAX || self.list.entries.len() > ENTRIES_MAX {
                    bail!("{}: the chains make more than {ENTRIES_MAX} rules", rule.place);
                }
                let fits: Vec<FlowSet> = flows.iter().map(|it| it & &arm).collect();
                let fits: Vec<FlowSet> = fits.into_iter().filter(|it| !it.is_empty()).collect();
                if fits.is_empty() {
                    continue;
                }
                self.apply(base, rule, &verdict, fits, jumps)?;
                match verdict {
                    NftVerdict::Continue | NftVerdict::Jump(_) => {}
                    // What returns is not decided, so later rules of this chain must not fit it.
                    NftVerdict::Return | NftVerdict::Goto(_) => {
                        flows = flows.iter().flat_map(|it| it.without(&arm)).collect();
                    }
                    _ => flows.retain(|it| it & &arm != *it),
                }
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        base: usize,
        rule: &'a NftRule,
        verdict: &NftVerdict,
        fits: Vec<FlowSet>,
        jumps: usize,
    ) -> anyhow::Result<()> {
        let outcome = match verdict {
            NftVerdict::Continue | NftVerdict::Return => return Ok(()),
            NftVerdict::Jump(name) | NftVerdict::Goto(name) => {
                let key: NameInTable = (rule.place.table.clone(), name.clone());
                let chain = self.ruleset.chains.get(&key);
                let chain =
                    chain.with_context(|| format!("{}: there is no chain {name}", rule.place))?;
                return self.walk(base, chain, fits, jumps + 1);
            }
            NftVerdict::Accept if base + 1 < self.bases.len() => {
                return fits.iter().try_for_each(|flows| self.enter_base(base + 1, flows));
            }
            NftVerdict::Accept => FlatOutcome::Accept,
            NftVerdict::Drop => FlatOutcome::Drop,
            NftVerdict::Reject => FlatOutcome::Reject,
            NftVerdict::Redirect(to) => FlatOutcome::Redirect(*to),
        };
        for flows in fits {
            self.list(flows, outcome, &rule.place, rule.comment.as_deref());
        }
        Ok(())
    }

    fn arms(&mut self, rule: &'a NftRule) -> Vec<(FlowSet, NftVerdict)> {
        let references = self.references;
        let fate = self.list.fates.entry(&rule.place).or_insert_with(|| {
            match references.understand(rule) {
                Ok(understood) => Fate::Understood(understood),
                Err(reason) => Fate::NotCarriedOver(reason),
            }
        });
        match fate {
            Fate::Understood(understood) => understood.arms.clone(),
            Fate::NotCarriedOver(_) => Vec::new(),
        }
    }

    fn list(
        &mut self,
        flows: FlowSet,
        outcome: FlatOutcome,
        place: &'a RulePlace,
        comment: Option<&'a str>,
    ) {
        self.list.entries.push(FlatEntry { flows, outcome, place, comment });
    }
}

/// Replaces the entries of a policy `accept` that stand before others: homes' flows are accepted.
/// Returns the places of those that decide on packets from the internet before other entries do,
/// which no rule of weir can say: there the filtering decides.
pub(super) fn settle_defaults<'a>(entries: &mut Vec<FlatEntry<'a>>) -> Vec<&'a RulePlace> {
    let mut unsettled = Vec::new();
    let mut settled: Vec<FlatEntry<'a>> = Vec::new();
    // Backwards: what matters of an entry is whether a later one would decide instead.
    for mut entry in std::mem::take(entries).into_iter().rev() {
        let is_needed = |side: u8| {
            let flows = entry.flows.of_side(side);
            let decides = |later: &&FlatEntry<'_>| !(&later.flows & &flows).is_empty();
            settled.iter().any(|later| decides(&later))
        };
        if entry.outcome == FlatOutcome::Default {
            if is_needed(INTERNET) {
                unsettled.push(entry.place);
            }
            if !is_needed(HOME) {
                continue;
            }
            entry.flows.from = HOME;
            entry.outcome = FlatOutcome::Accept;
        }
        settled.push(entry);
    }
    settled.reverse();
    *entries = settled;
    unsettled
}
