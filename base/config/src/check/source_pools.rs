//! Source pools: no two have an address in common, and every shard keeps addresses for the flows
//! that are of none.

use std::collections::BTreeSet;

use crate::check::address_plan::{AddressPlan, AddressSet, PlannedShard};
use crate::check::{addresses, overlaps};
use crate::findings::Findings;
use crate::policy_types::{PolicySettings, SOURCE_POOLS_MAX, SourcePoolSettings};

/// Most shards that a warning names.
const NAMED_MAX: usize = 3;

pub(crate) fn check(policy: &PolicySettings, plan: &AddressPlan<'_>, findings: &mut Findings<'_>) {
    let pools = &policy.source_pools;
    if !plan.is_translated {
        for index in 0..pools.len() {
            let message = "there are no public addresses without translation";
            let fix = "remove it, or write nat.enabled = true";
            findings.error(&format!("source_pool[{index}]"), message, fix);
        }
        return;
    }
    if pools.len() > SOURCE_POOLS_MAX {
        let message = format!("{} source pools, at most {SOURCE_POOLS_MAX} fit", pools.len());
        let fix = "use fewer source pools: several rules may name one";
        findings.error(&format!("source_pool[{SOURCE_POOLS_MAX}]"), message, fix);
    }
    overlaps::source_pools(pools, findings);
    warn_of_strangers(pools, plan, findings);
    let are_whole = (0..pools.len()).all(|it| findings.is_whole(&format!("source_pool[{it}]")));
    if let Some(shards) = plan.shards.as_ref().filter(|_| are_whole) {
        check_rest(pools, shards, findings);
        warn_of_use(policy, shards, findings);
    }
}

/// Warns of prefixes that no shard has.
fn warn_of_strangers(
    pools: &[SourcePoolSettings],
    plan: &AddressPlan<'_>,
    findings: &mut Findings<'_>,
) {
    let public = plan.public_addresses();
    for (index, pool) in pools.iter().enumerate() {
        let key = format!("source_pool[{index}].public");
        if !findings.is_whole(&key) {
            continue;
        }
        for (at, net) in pool.public.iter().enumerate() {
            let known = public.count_of(&[*net]);
            let message = match known {
                0 => format!("{net} is in no shard's public prefixes"),
                _ if known < addresses(&[*net]) => {
                    format!("{net} reaches beyond the shards' public prefixes")
                }
                _ => continue,
            };
            let fix = "write addresses of shards, or add the prefix to a shard's public ones";
            findings.warning(&findings.element(&key, at), message, fix);
        }
    }
}

/// Homes are paired with a public address that is in no source pool.
fn check_rest(pools: &[SourcePoolSettings], shards: &[PlannedShard], findings: &mut Findings<'_>) {
    let pooled = AddressSet::pooled(pools);
    for shard in shards.iter().filter(|shard| !shard.public.is_empty()) {
        let count = addresses(&shard.public);
        if pooled.count_of(&shard.public) == count && findings.is_whole(&shard.key) {
            let message = format!(
                "all {count} public addresses of shard {} are in source pools: its homes need one \
                 that is in none",
                shard.id
            );
            let fix = "take an address of it out of a [[source_pool]], or give it a further one";
            findings.error(&shard.key, message, fix);
        }
    }
}

/// Warns of pools that no rule names, and of shards that have no address of one that a rule names.
fn warn_of_use(policy: &PolicySettings, shards: &[PlannedShard], findings: &mut Findings<'_>) {
    let named: BTreeSet<&str> =
        policy.rules.iter().filter_map(|rule| rule.source_pool.as_deref()).collect();
    for (index, pool) in policy.source_pools.iter().enumerate() {
        let key = |name: &str| format!("source_pool[{index}].{name}");
        if !named.contains(pool.name.as_str()) {
            let message = "no rule names it: no flow gets its addresses";
            findings.warning(&key("name"), message, "remove it, or name it in a rule");
            continue;
        }
        let addresses = AddressSet::of(pool.public.iter().copied());
        let without = shards.iter().filter(|shard| addresses.count_of(&shard.public) == 0);
        let without: Vec<String> = without.map(|shard| shard.id.to_string()).collect();
        if without.is_empty() {
            continue;
        }
        let shards = match without.len() {
            1 => format!("shard {} has", without[0]),
            2..=NAMED_MAX => format!("shards {} have", without.join(", ")),
            count => {
                let named = without[..NAMED_MAX].join(", ");
                format!("shards {named} and {} more have", count - NAMED_MAX)
            }
        };
        let rules = policy.rules.iter().filter(|it| it.source_pool.as_deref() == Some(&pool.name));
        let rules: Vec<&str> = rules.map(|rule| rule.name.as_str()).collect();
        let more = if rules.len() > NAMED_MAX { " and more" } else { "" };
        let plural = if rules.len() == 1 { "" } else { "s" };
        let message = format!(
            "{shards} no address of it: homes there are refused the flows of rule{plural} {}{more} \
             (ports-exhausted)",
            rules[..rules.len().min(NAMED_MAX)].join(", ")
        );
        findings.warning(&key("public"), message, "add an address of each of these shards");
    }
}
