//! Formats an answer for programs.

use weir_nat_log::{Begin, BlockHolder, Holding, LogAnswer, LogVerdict, Missing, TenancyEnd};

use super::text::time;

pub(super) fn of(answer: &LogAnswer) -> serde_json::Value {
    serde_json::json!({
        "verdict": match answer.verdict {
            LogVerdict::Held => "held",
            LogVerdict::Nobody => "nobody",
            LogVerdict::CannotSay => "cannot-say",
        },
        "from": answer.asked.map(|(from, _)| time(from)),
        "until": answer.asked.map(|(_, until)| time(until)),
        "holders": answer.holders.iter().map(holder).collect::<Vec<_>>(),
        "missing": answer.missing.iter().map(missing).collect::<Vec<_>>(),
        "records_lost": answer.records_lost,
        "lines_unreadable": answer.lines_unreadable,
        "files_skipped": answer.files_skipped,
    })
}

fn holder(holder: &BlockHolder) -> serde_json::Value {
    let (ports, prefix) = match holder.holding {
        Holding::Ports { public, first, last } => (Some((public, first, last)), None),
        Holding::Prefix(prefix) => (None, Some(prefix.to_string())),
    };
    serde_json::json!({
        "shard": holder.shard,
        "subscriber": holder.subscriber,
        "gre_key": holder.gre_key,
        "nodes": holder.nodes,
        "public": ports.map(|(public, ..)| public),
        "port_first": ports.map(|(_, first, _)| first),
        "port_last": ports.map(|(.., last)| last),
        "prefix": prefix,
        "from": holder.from.map(time),
        "begin": match holder.begin {
            Begin::Allocated => "allocated",
            Begin::Listed => "listed",
            Begin::Unknown => "unknown",
        },
        "until": holder.until.map(time),
        "end": match holder.end {
            TenancyEnd::Released => "released",
            TenancyEnd::NodeStopped => "node-stopped",
            TenancyEnd::NodeRestarted => "node-restarted",
            TenancyEnd::NotListed => "not-listed",
            TenancyEnd::GivenToAnother => "given-to-another",
            TenancyEnd::Unknown => "unknown",
            TenancyEnd::Open => "open",
        },
    })
}

fn missing(missing: &Missing) -> serde_json::Value {
    serde_json::json!({
        "from": missing.from.map(time),
        "until": missing.until.map(time),
        "shard": missing.shard,
        "lane": missing.lane,
        "node": missing.node,
        "epoch": missing.epoch,
        "reason": missing.reason.code(),
        "text": missing.to_string(),
    })
}
