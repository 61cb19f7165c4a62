//! Shows the state of the routes as a table with a summary, or as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};
use weir_routes::RouteSide;
use weir_routes::comparison::{ComparisonLine, Difference, SeenRoute};

use super::{Look, SessionFault};
use crate::table::{Align, Table};

pub(super) fn table(look: &Look) -> io::Result<()> {
    write_table(look, &mut io::stdout().lock())
}

pub(super) fn json(look: &Look) -> io::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string_pretty(&object(look))?)
}

fn write_table(look: &Look, out: &mut impl Write) -> io::Result<()> {
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("shard", Align::Right),
        ("side", Align::Left),
        ("prefix", Align::Left),
        ("next hop", Align::Left),
        ("metric", Align::Right),
        ("set", Align::Left),
        ("kernel", Align::Left),
        ("exported", Align::Left),
        ("", Align::Left),
    ]);
    for line in &look.lines {
        table.row(row(look, line));
    }
    table.print(out)?;
    writeln!(out, "\n{}", summary(look))?;
    for SessionFault { side, is_of_side, why } in &look.faults {
        match is_of_side {
            true => writeln!(out, "what the {side} switch receives is not known: {why}")?,
            false => writeln!(out, "a session of the {side} side exports nothing: {why}")?,
        }
    }
    Ok(())
}

fn row(look: &Look, line: &ComparisonLine) -> Vec<String> {
    let status = look.status(line);
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let is_set = |is_set: bool| if is_set { "yes" } else { "no" };
    let exported = if look.is_silent(line.side) {
        "no answer".to_owned()
    } else {
        seen(line, line.exported, "MED")
    };
    let words: Vec<&str> = line.differences.iter().map(|it| it.words()).collect();
    vec![
        or_none(status.map(|status| status.worker.to_string())),
        or_none(look.shard(line).map(|shard| shard.to_string())),
        line.side.to_string(),
        line.prefix.to_string(),
        or_none(line.wanted.map(|route| route.next_hop.to_string())),
        or_none(line.wanted.map(|route| route.metric.to_string())),
        or_none(status.map(|status| is_set(status.is_set).to_owned())),
        seen(line, line.kernel, "metric"),
        exported,
        words.join(", "),
    ]
}

/// Describes a route that was seen, in full only if it is not as wanted.
fn seen(line: &ComparisonLine, seen: Option<SeenRoute>, number: &str) -> String {
    let Some(seen) = seen else { return "-".to_owned() };
    let is_as_wanted = line.wanted.is_some_and(|route| {
        (seen.next_hop, seen.metric) == (Some(route.next_hop), Some(route.metric))
    });
    if is_as_wanted {
        return "as wanted".to_owned();
    }
    let next_hop = seen.next_hop.map_or_else(|| "nowhere".to_owned(), |it| format!("via {it}"));
    let metric = seen.metric.map_or_else(|| "none".to_owned(), |it| it.to_string());
    format!("{next_hop} {number} {metric}")
}

fn summary(look: &Look) -> String {
    let of_side = |side: RouteSide| look.lines.iter().filter(move |line| line.side == side);
    let wanted = |side: RouteSide| of_side(side).filter(|line| line.wanted.is_some()).count();
    let (access, internet) = (wanted(RouteSide::Access), wanted(RouteSide::Internet));
    let is_known = !look.is_silent(RouteSide::Access) && !look.is_silent(RouteSide::Internet);
    let what = match (look.differences(), is_known) {
        (0, true) => "all in the kernel and exported as wanted".to_owned(),
        (0, false) => "all in the kernel as wanted".to_owned(),
        (1, _) => "1 route differs".to_owned(),
        (count, _) => format!("{count} routes differ"),
    };
    format!("{} routes wanted, {access} access and {internet} internet: {what}", access + internet)
}

fn object(look: &Look) -> Value {
    let lines = look.lines.iter().map(|line| {
        let status = look.status(line);
        let seen = |seen: Option<SeenRoute>| {
            seen.map(|seen| json!({"next_hop": seen.next_hop, "metric": seen.metric}))
        };
        let wanted = status.map(|status| {
            json!({"next_hop": status.next_hop, "metric": status.metric, "is_set": status.is_set})
        });
        json!({
            "worker": status.map(|status| status.worker),
            "shard": look.shard(line),
            "side": line.side.to_string(),
            "prefix": line.prefix,
            "wanted": wanted,
            "kernel": seen(line.kernel),
            "exported": seen(line.exported),
            "differences": line.differences.iter().map(|it| name(*it)).collect::<Vec<_>>(),
        })
    });
    let fault = |side: RouteSide| {
        let of_side = look.faults.iter().filter(|fault| fault.side == side);
        let reasons: Vec<&str> = of_side.map(|fault| fault.why.as_str()).collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    };
    json!({
        "cluster": look.cluster,
        "differences": look.differences(),
        "bird_errors": {"access": fault(RouteSide::Access), "internet": fault(RouteSide::Internet)},
        "routes": lines.collect::<Vec<_>>(),
    })
}

/// Joins the words of a difference into one, for programs.
fn name(difference: Difference) -> String {
    difference.words().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::ExitCode;

    use weir_admin::api::{RouteStatus, ShardStatus};
    use weir_routes::bird::ExportedRoute;
    use weir_routes::comparison::{SideRoutes, compare};
    use weir_routes::{KernelRoute, Route};

    use super::super::{by_route, shards_by_prefix};
    use super::*;

    fn status(side: &str, prefix: &str, next_hop: &str, metric: u32) -> RouteStatus {
        let (prefix, next_hop) = (prefix.to_owned(), next_hop.parse().unwrap());
        RouteStatus { worker: 0, side: side.to_owned(), prefix, next_hop, metric, is_set: true }
    }

    /// Returns the routes of two shards. The kernel has those of the first, and a foreign one; BIRD
    /// exports the access route of the first, and does not answer for the internet side.
    fn sample() -> Look {
        let routes = vec![
            status("access", "10.100.0.1/32", "10.9.0.10", 7),
            status("access", "10.100.0.2/32", "10.9.0.10", 8),
            status("internet", "203.0.113.0/28", "10.10.0.10", 7),
            status("internet", "2001:db8:5::/48", "fd00:2::100", 7),
        ];
        let kernel = |prefix: &str, next_hop: &str, metric| KernelRoute {
            prefix: prefix.parse().unwrap(),
            metric,
            next_hop: next_hop.parse().ok(),
            interface: Some(9),
        };
        let access = [kernel("10.100.0.1/32", "10.9.0.10", 7), kernel("10.100.0.9/32", "-", 0)];
        let internet = [
            kernel("203.0.113.0/28", "10.10.0.10", 7),
            kernel("2001:db8:5::/48", "fd00:2::100", 7),
        ];
        let exported = [ExportedRoute {
            prefix: "10.100.0.1/32".parse().unwrap(),
            med: Some(6),
            next_hop: "10.9.0.10".parse().ok(),
        }];
        let shard = ShardStatus {
            shard: 5,
            worker: 0,
            endpoint: "10.100.0.1".parse().ok(),
            public: vec!["203.0.113.0/28".to_owned()],
            public6: vec!["2001:db8:5::/48".to_owned()],
            subscribers: 0,
            subscribers_max: 1,
            ports_used: 0,
            blocks_free: 0,
            blocks_total: 0,
        };
        let wanted = by_route(routes).unwrap();
        let routes: Vec<Route> = wanted.keys().copied().collect();
        let sides = [
            SideRoutes { side: RouteSide::Access, kernel: &access, exported: Some(&exported) },
            SideRoutes { side: RouteSide::Internet, kernel: &internet, exported: None },
        ];
        Look {
            cluster: "north".to_owned(),
            wanted,
            shards: shards_by_prefix(&[shard]),
            lines: sides.into_iter().flat_map(|side| compare(&routes, side)).collect(),
            faults: vec![fault(RouteSide::Internet, true, "BIRD does not run here")],
        }
    }

    fn fault(side: RouteSide, is_of_side: bool, why: &str) -> SessionFault {
        SessionFault { side, is_of_side, why: why.to_owned() }
    }

    #[test]
    fn a_table_says_what_differs_and_why_something_is_not_known() {
        let mut text = Vec::new();
        write_table(&sample(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "\
worker  shard  side      prefix           next hop     metric  set  kernel            exported             
     0      5  access    10.100.0.1/32    10.9.0.10         7  yes  as wanted         via 10.9.0.10 MED 6  metric differs as exported
     0      -  access    10.100.0.2/32    10.9.0.10         8  yes  -                 -                    missing in the kernel, not exported
     -      -  access    10.100.0.9/32    -                 -  -    nowhere metric 0  -                    no role wants it
     0      5  internet  203.0.113.0/28   10.10.0.10        7  yes  as wanted         no answer
     0      5  internet  2001:db8:5::/48  fd00:2::100       7  yes  as wanted         no answer

4 routes wanted, 2 access and 2 internet: 3 routes differ
what the internet switch receives is not known: BIRD does not run here
";
        let trimmed: Vec<&str> = expected.lines().map(str::trim_end).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), trimmed, "{text}");
    }

    #[test]
    fn json_has_every_route_with_its_differences() {
        let object = object(&sample());
        assert_eq!(object["differences"], 3);
        assert_eq!(object["bird_errors"]["access"], Value::Null);
        assert_eq!(object["bird_errors"]["internet"], "BIRD does not run here");
        let first = &object["routes"][0];
        assert_eq!(first["wanted"], json!({"next_hop": "10.9.0.10", "metric": 7, "is_set": true}));
        assert_eq!(first["exported"]["metric"], 6);
        assert_eq!(first["differences"], json!(["metric-differs-as-exported"]));
        assert_eq!(object["routes"][2]["wanted"], Value::Null);
        assert_eq!(object["routes"][3]["differences"], json!([]));
    }

    #[test]
    fn session_that_is_down_is_named_beside_what_others_of_its_side_export() {
        let mut look = sample();
        look.lines.retain(|line| line.side == RouteSide::Access && line.exported.is_some());
        look.lines[0].differences.clear();
        let why = ["BIRD on access_switch6: down", "BIRD on access_switch7: down"];
        look.faults = why.map(|why| fault(RouteSide::Access, false, why)).into();
        let mut text = Vec::new();
        write_table(&look, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let expected = "\
1 routes wanted, 1 access and 0 internet: all in the kernel and exported as wanted
a session of the access side exports nothing: BIRD on access_switch6: down
a session of the access side exports nothing: BIRD on access_switch7: down
";
        assert!(text.ends_with(expected) && text.contains("via 10.9.0.10 MED 6"), "{text}");
        assert_eq!(object(&look)["bird_errors"]["access"], why.join("; "));
        assert_eq!(look.exit_code(), ExitCode::from(3));
    }

    #[test]
    fn the_last_line_and_the_exit_code_say_whether_all_is_well() {
        let mut look = sample();
        assert_eq!(look.exit_code(), ExitCode::FAILURE);
        look.lines.retain(|line| line.differences.is_empty());
        assert!(summary(&look).ends_with("2 internet: all in the kernel as wanted"));
        assert_eq!(look.exit_code(), ExitCode::from(3));
        look.faults.clear();
        assert!(summary(&look).ends_with("all in the kernel and exported as wanted"));
        assert_eq!(look.exit_code(), ExitCode::SUCCESS);
        look.shards = BTreeMap::new();
        assert_eq!(look.shard(&look.lines[0]), None);
    }
}
