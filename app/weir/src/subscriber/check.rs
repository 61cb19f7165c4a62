//! `weir subscriber check`: is a home at one of its limits, and what does its worker refuse?

use std::collections::BTreeMap;
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;
use weir_admin::HomeName;
use weir_admin::api::{DropCount, SubscriberStatus};
use weir_admin::client::{Client, ClientError};

use crate::role;
use crate::table::{Align, Table};

/// Time between the two readings.
const SPAN: Duration = Duration::from_secs(1);
/// Drop reasons of packets that would have opened something.
const REFUSALS: [&str; 9] = [
    "flows-per-subscriber",
    "sessions-per-subscriber",
    "new-flows",
    "ports-exhausted",
    "table-full",
    "subscribers-max",
    "new-homes",
    "slow-path-limit",
    "inbound-sessions-max",
];

/// Refused packets by worker and reason.
type RefusedTotals = BTreeMap<(usize, String), u64>;

/// A resource of a home: how much of it the home has and may have.
struct Share {
    what: &'static str,
    used: u32,
    limit: Option<u32>,
    /// Drop reason of packets at the limit; none if some may still pass.
    reason: Option<&'static str>,
}

/// # Errors
/// When the node does not answer, the home holds nothing, or is at one of its limits.
pub(super) fn run(client: &Client, name: HomeName, out: &mut impl Write) -> anyhow::Result<()> {
    let path = super::path_of(name);
    let (before, refused_before) = (client.get::<Vec<SubscriberStatus>>(&path)?, refused(client)?);
    sleep(SPAN);
    let (after, refused_after) = (client.get::<Vec<SubscriberStatus>>(&path)?, refused(client)?);
    let mut reached = Vec::new();
    for home in &after {
        let is_same = |it: &&SubscriberStatus| {
            (it.worker, it.shard, it.gre_key) == (home.worker, home.shard, home.gre_key)
        };
        reached.extend(print(out, home, before.iter().find(is_same))?);
        let meanwhile = refused_after.iter().filter(|((worker, _), _)| *worker == home.worker);
        let meanwhile = meanwhile.filter_map(|(of, count)| {
            let new = count - refused_before.get(of).copied().unwrap_or(0).min(*count);
            (new > 0).then(|| format!("{} +{new}", of.1))
        });
        let meanwhile: Vec<String> = meanwhile.collect();
        let words = if meanwhile.is_empty() { "nothing".into() } else { meanwhile.join(", ") };
        writeln!(out, "refused meanwhile by worker {}, of all homes: {words}\n", home.worker)?;
    }
    if !reached.is_empty() {
        bail!("{name} is at its limit: what it begins is dropped as {}", reached.join(", "));
    }
    Ok(())
}

fn refused(client: &Client) -> Result<RefusedTotals, ClientError> {
    let counts: Vec<DropCount> = client.get("/drops")?;
    let refusals = counts.into_iter().filter(|it| REFUSALS.contains(&it.reason.as_str()));
    Ok(refusals.map(|it| ((it.worker, it.reason), it.packets_total)).collect())
}

/// Prints a home, and returns the reasons for which its packets are dropped now.
fn print(
    out: &mut impl Write,
    home: &SubscriberStatus,
    before: Option<&SubscriberStatus>,
) -> anyhow::Result<Vec<&'static str>> {
    let key = home.gre_key.map(|key| format!(" GRE key {key}")).unwrap_or_default();
    let role = role::suffix(home.role.as_deref());
    let (shard, worker) = (home.shard, home.worker);
    writeln!(out, "subscriber {}{key}: shard {shard} on worker {worker}{role}", home.subscriber)?;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("now", Align::Right),
        ("of", Align::Right),
        ("in a second", Align::Right),
    ]);
    let old = before.map(shares);
    let shares = shares(home);
    for (at, share) in shares.iter().enumerate() {
        let change = old.as_ref().map(|old| i64::from(share.used) - i64::from(old[at].used));
        table.row(vec![
            share.what.into(),
            share.used.to_string(),
            share.limit.map_or_else(|| "-".into(), |limit| limit.to_string()),
            change.map_or_else(|| "-".into(), |change| format!("{change:+}")),
        ]);
    }
    table.print(out)?;
    let is_reached = |share: &&Share| share.limit.is_some_and(|limit| share.used >= limit);
    let mut reached: Vec<&str> =
        shares.iter().filter(is_reached).filter_map(|it| it.reason).collect();
    if let Some(per_sec) = home.limits.new_flows_per_sec {
        let left = home.new_flows_left;
        writeln!(out, "new flows: {left} left in this second, {per_sec} come with each")?;
        if left == 0 {
            reached.push("new-flows");
        }
    }
    let new = before.map_or(0, |before| home.refused_total.saturating_sub(before.refused_total));
    writeln!(
        out,
        "refused to it: {} packets that would have begun flows, {new} in a second",
        home.refused_total
    )?;
    Ok(reached)
}

fn shares(home: &SubscriberStatus) -> [Share; 6] {
    let share = |what, used, limit, reason| Share { what, used, limit, reason };
    let limits = &home.limits;
    [
        share("flows", home.flows, limits.flows, Some("flows-per-subscriber")),
        share("of them IPv6", home.flows6, None, None),
        share("further sessions", home.sessions, limits.sessions, Some("sessions-per-subscriber")),
        share("mappings", home.mappings, None, None),
        share("ports", home.ports_used, None, None),
        // There may be free ports in the last block.
        share("port blocks", home.blocks_held, limits.blocks, None),
    ]
}

#[cfg(test)]
mod tests {
    use weir_admin::api::SubscriberLimits;
    use weir_engine::DropReason;

    use super::*;

    fn home(flows: u32, new_flows_left: u32) -> SubscriberStatus {
        SubscriberStatus {
            worker: 0,
            shard: 7,
            subscriber: "10.200.0.1".parse().unwrap(),
            gre_key: None,
            public_address: None,
            blocks: Vec::new(),
            claims: Vec::new(),
            ports_used: 3,
            mappings: 2,
            flows,
            flows6: 1,
            sessions: 2,
            blocks_held: 1,
            new_flows_left,
            refused_total: 6,
            limits: SubscriberLimits {
                blocks: Some(1),
                flows: Some(5),
                new_flows_per_sec: Some(10),
                ..SubscriberLimits::default()
            },
            role: Some("synced".into()),
        }
    }

    #[test]
    fn refusals_are_drop_reasons() {
        let is_reason = |name: &str| DropReason::ALL.iter().any(|reason| reason.name() == name);
        let unknown: Vec<_> = REFUSALS.iter().filter(|name| !is_reason(name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        for share in shares(&home(4, 9)) {
            assert!(share.reason.is_none_or(|reason| REFUSALS.contains(&reason)), "{}", share.what);
        }
    }

    #[test]
    fn a_home_is_shown_with_its_limits_rates_and_the_limits_it_has_reached() {
        let mut text = Vec::new();
        assert!(print(&mut text, &home(4, 9), Some(&home(1, 9))).unwrap().is_empty());
        let text = String::from_utf8(text).unwrap();
        let expected = "subscriber 10.200.0.1: shard 7 on worker 0, copy (synced)\n\
            \x20                 now  of  in a second\n\
            flows               4   5           +3\n\
            of them IPv6        1   -           +0\n\
            further sessions    2   -           +0\n\
            mappings            2   -           +0\n\
            ports               3   -           +0\n\
            port blocks         1   1           +0\n\
            new flows: 9 left in this second, 10 come with each\n\
            refused to it: 6 packets that would have begun flows, 0 in a second\n";
        assert_eq!(text, expected);
        let reached = print(&mut Vec::new(), &home(5, 0), None).unwrap();
        assert_eq!(reached, ["flows-per-subscriber", "new-flows"]);
    }
}
