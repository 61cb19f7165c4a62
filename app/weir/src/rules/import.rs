//! `weir rules import`: the rules of nftables as rules of weir, and a list of what has no
//! counterpart.
//!
//! ```text
//!   JSON -> ruleset -> statements, match_key -> flatten, destination -> family -> rule_text
//!           chains     flows, verdicts          a list of IPv4,        one list   TOML
//!                                               a list of IPv6
//! ```
//!
//! A set of flows is a product of ranges, so that what a rule fits, what it does not fit and what
//! two rules both fit can be said exactly. What cannot is listed, never approximated.

mod destination;
mod family;
mod flatten;
mod flow_set;
mod interfaces;
mod match_key;
mod ranges;
mod rule_text;
mod ruleset;
mod statements;

#[cfg(test)]
mod interpreter;
#[cfg(test)]
mod random_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use family::{AddressFamily, MergedEntry, merge, merge_fates};
use flatten::Fate;
use flow_set::INTERNET;
use interfaces::SideInterfaces;
use match_key::{Fit, MatchKey, MatchOperator};
use rule_text::{FamilyAddresses, RuleWriter};
use ruleset::{NftChain, NftRule, NftRuleset, NftSet, RulePlace, TableName};
use statements::References;

/// Translate the rules of nftables for forwarded packets into rules of weir.
///
/// Reads the output of `nft -j list ruleset` and writes [[set]] and [[rule]] to stdout. Rules of
/// iptables come through iptables-restore-translate and nft. It takes chains "type filter hook
/// forward" of tables ip, ip6 and inet, with the chains that they jump to, and of chains "type nat
/// hook prerouting" what gives IPv4 packets of homes another destination. What is alike in IPv4 and
/// IPv6 becomes one rule. Everything that is not carried
/// over is listed on stderr with its table, chain, handle and the reason.
///
///   nft -j list ruleset > nft.json
///   weir rules import --home-interface lan0 --internet-interface wan0 nft.json > rules.toml
///
/// Exit codes: 0 all is carried over, 1 something is not, 2 the input is no ruleset.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The output of `nft -j list ruleset`; `-` is stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Interfaces on the side of the homes, separated by commas; `ppp*` for all that begin so.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    home_interface: Vec<String>,
    /// Interfaces on the side of the internet.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    internet_interface: Vec<String>,
}

/// What became of a ruleset.
#[derive(Debug, Default)]
struct Import {
    text: String,
    rules: usize,
    not_carried_over: Vec<String>,
    notes: Vec<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let interfaces = SideInterfaces {
        home: args.home_interface.clone(),
        internet: args.internet_interface.clone(),
    };
    let name = args.file.display();
    let import = read(&args.file).and_then(|text| import(&text, &interfaces));
    let import = match import {
        Ok(import) => import,
        Err(error) => {
            crate::print_error(&format!("{name}: {error:#}"));
            return ExitCode::from(2);
        }
    };
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().write_all(import.text.as_bytes());
    for note in &import.notes {
        eprintln!("note: {note}");
    }
    for line in &import.not_carried_over {
        eprintln!("not carried over: {line}");
    }
    eprintln!("{name}: {} rules, {} not carried over", import.rules, import.not_carried_over.len());
    if import.not_carried_over.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path != Path::new("-") {
        return Ok(std::fs::read_to_string(path)?);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("stdin")?;
    Ok(text)
}

/// # Errors
/// When the text is not the JSON of a ruleset, or its chains make too many rules.
fn import(text: &str, interfaces: &SideInterfaces) -> anyhow::Result<Import> {
    let ruleset = NftRuleset::parse(text)?;
    let of =
        |family| flatten::flatten(&ruleset, References { family, sets: &ruleset.sets, interfaces });
    let (mut ipv4, mut ipv6) = (of(AddressFamily::Ipv4)?, of(AddressFamily::Ipv6)?);
    let mut import = Import::default();
    import.report(&ruleset, &merge_fates(ipv4.fates, ipv6.fates));
    let unsettled = [&mut ipv4.entries, &mut ipv6.entries].map(flatten::settle_defaults);
    for place in unsettled.into_iter().flatten().collect::<BTreeSet<_>>() {
        import.not_carried_over.push(format!(
            "{place}: its policy accept for packets from the internet, before rules that fit them, \
             too: no rule leaves them to nat.filtering"
        ));
    }
    let entries = merge(ipv4.entries, ipv6.entries);
    let is_open = |it: &MergedEntry<'_>| {
        it.entry.flows.from & INTERNET != 0 && it.entry.outcome == flatten::FlatOutcome::Accept
    };
    if entries.iter().any(is_open) {
        import.notes.push(
            "rules that accept packets from the internet let remotes in to mappings, whatever \
             nat.filtering is"
                .to_owned(),
        );
    }
    if entries.iter().any(|it| it.entry.flows.limits_homes()) {
        import.notes.push(
            "subscribers are the outer addresses of tunnels, without tunnels the homes' own: check \
             the ones that come from the addresses of packets"
                .to_owned(),
        );
    }
    let mut writer = RuleWriter::new(address_sets(&ruleset, interfaces));
    entries.iter().for_each(|entry| writer.add(entry));
    import.rules = writer.rules_written;
    import.notes.extend(writer.unused_sets().map(|name| format!("set {name}: no rule needs it")));
    import.text = writer.finish().trim_start().to_owned();
    Ok(import)
}

impl Import {
    /// Says of each object what is not carried over of it.
    fn report(&mut self, ruleset: &NftRuleset, fates: &BTreeMap<&RulePlace, Fate>) {
        for object in &ruleset.others {
            let table = object.table.as_ref().map(ToString::to_string).unwrap_or_default();
            let line = format!("{table} {} {} handle {}", object.kind, object.name, object.handle);
            match &*object.kind {
                "counter" => self.notes.push(format!("{line}: weir counts for each rule")),
                _ => self.not_carried_over.push(format!("{line}: weir has no such object")),
            }
        }
        for chain in ruleset.chains.values() {
            let place = &chain.place;
            let reason = reason_of(ruleset, chain);
            if let (Some(reason), Some(true)) =
                (&reason, chain.base.as_ref().map(|base| base.drops_by_policy))
            {
                self.not_carried_over.push(format!("{place}: policy drop: {reason}"));
            }
            for rule in &chain.rules {
                let place = &rule.place;
                match fates.get(place) {
                    None if is_snat(rule) => {
                        let reason = statements::reason("snat");
                        self.not_carried_over.push(format!("{place}: {reason}"));
                    }
                    None => {
                        let reason = reason.as_deref().unwrap_or(
                            "no packet gets here: rules before it decide, or what jumps here is \
                             not carried over",
                        );
                        self.not_carried_over.push(format!("{place}: {reason}"));
                    }
                    Some(Fate::NotCarriedOver(reason)) => {
                        self.not_carried_over.push(format!("{place}: {reason}"));
                    }
                    Some(Fate::Understood(understood)) => {
                        let missing = understood.missing.iter();
                        self.not_carried_over.extend(missing.map(|it| format!("{place}: {it}")));
                        let notes = understood.notes.iter();
                        self.notes.extend(notes.map(|it| format!("{place}: {it}")));
                        if let Some(why) = understood.implied {
                            self.notes.push(format!("{place}: not needed: {why}"));
                        }
                    }
                }
            }
        }
    }
}

/// Whether a rule gives packets another source.
fn is_snat(rule: &NftRule) -> bool {
    is_known_family(&rule.place.table) && rule.statements.iter().any(|it| it.get("snat").is_some())
}

/// Whether packets of IPv4 or of IPv6 pass the chains of a table.
fn is_known_family(table: &TableName) -> bool {
    AddressFamily::BOTH.iter().any(|family| family.passes(table))
}

/// Returns why a chain's rules are not carried over, whatever they say.
fn reason_of(ruleset: &NftRuleset, chain: &NftChain) -> Option<String> {
    let table = &chain.place.table;
    if !is_known_family(table) {
        return Some(format!("family {}: weir's rules are about IPv4 and IPv6", table.family));
    }
    if ruleset.flagged.contains(table) {
        return Some("the table has a flag: it is dormant, or a process owns it".to_owned());
    }
    let base = chain.base.as_ref()?;
    let is_known = flatten::is_known(base);
    let name = || format!("type {} hook {}: weir's rules are about flows", base.kind, base.hook);
    (!is_known).then(|| match &*base.kind {
        "nat" if table.family == "ip6" => "type nat: weir does not translate IPv6".to_owned(),
        "nat" => "type nat: weir translates addresses itself".to_owned(),
        _ => format!("{} between homes and the internet", name()),
    })
}

/// Returns the names of the sets of addresses.
fn address_sets(
    ruleset: &NftRuleset,
    interfaces: &SideInterfaces,
) -> BTreeMap<FamilyAddresses, String> {
    let addresses = |set: &NftSet, family: AddressFamily| {
        let key = MatchKey::Address { family, is_source: true };
        let elements: Vec<_> =
            set.elements.iter().cloned().map(statements::without_details).collect();
        match key.fit(MatchOperator::Equal, &elements, interfaces, family) {
            Ok(Fit::New(flows, _)) if !set.is_changing => Some((family, flows.addresses.source)),
            _ => None,
        }
    };
    let mut names = BTreeMap::new();
    for ((_, name), set) in &ruleset.sets {
        let known = AddressFamily::BOTH.into_iter().find_map(|family| addresses(set, family));
        names.extend(known.map(|known| (known, name.clone())));
    }
    names
}
