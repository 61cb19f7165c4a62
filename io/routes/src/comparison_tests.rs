//! Lines as an operator would draw them, and a property for any routes: each is in one line, and
//! none is lost.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::*;

const SIDE: RouteSide = RouteSide::Internet;

/// Returns one of sixteen prefixes; every second one is an IPv6 prefix.
fn prefix(number: u8) -> IpNet {
    if number.is_multiple_of(2) {
        return IpNet::new(Ipv4Addr::new(203, 0, 113, 16 * number).into(), 28).unwrap();
    }
    IpNet::new(Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 0).into(), 48).unwrap()
}

/// Returns a next hop of the family of that prefix.
fn hop(prefix: u8, number: u8) -> IpAddr {
    if prefix.is_multiple_of(2) {
        return Ipv4Addr::new(10, 10, 0, number).into();
    }
    Ipv6Addr::new(0xfd0a, 0, 0, 0, 0, 0, 0, number.into()).into()
}

fn wanted(number: u8, next_hop: u8, metric: u32) -> Route {
    Route { side: SIDE, prefix: prefix(number), metric, next_hop: hop(number, next_hop) }
}

fn kernel(number: u8, next_hop: u8, metric: u32) -> KernelRoute {
    let next_hop = Some(hop(number, next_hop));
    KernelRoute { prefix: prefix(number), metric, next_hop, interface: Some(5) }
}

fn exported(number: u8, next_hop: u8, metric: u32) -> ExportedRoute {
    let next_hop = Some(hop(number, next_hop));
    ExportedRoute { prefix: prefix(number), med: Some(metric), next_hop }
}

fn found(
    wanted: &[Route],
    kernel: &[KernelRoute],
    exported: Option<&[ExportedRoute]>,
) -> Vec<(IpNet, Vec<Difference>)> {
    let lines = compare(wanted, SideRoutes { side: SIDE, kernel, exported });
    lines.into_iter().map(|line| (line.prefix, line.differences)).collect()
}

#[test]
fn routes_as_wanted_have_no_difference() {
    let routes = [wanted(0, 10, 7), wanted(1, 11, 8)];
    let (in_kernel, out) =
        ([kernel(0, 10, 7), kernel(1, 11, 8)], [exported(0, 10, 7), exported(1, 11, 8)]);
    let lines =
        compare(&routes, SideRoutes { side: SIDE, kernel: &in_kernel, exported: Some(&out) });
    assert_eq!(lines.len(), 2);
    for (line, route) in lines.iter().zip(routes) {
        assert_eq!((line.wanted, line.differences.len()), (Some(route), 0), "{line:?}");
        assert_eq!((line.kernel, line.exported), (line.expected(), line.expected()));
    }
    // Routes for the other side's switch are not compared with this one's.
    let access = SideRoutes { side: RouteSide::Access, kernel: &[], exported: Some(&[]) };
    assert_eq!(compare(&routes, access), []);
}

#[test]
fn every_way_to_differ_has_its_words() {
    use Difference::*;
    let missing = found(&[wanted(0, 10, 7)], &[], Some(&[]));
    assert_eq!(missing, [(prefix(0), vec![MissingInKernel, NotExported])]);
    let unexported = found(&[wanted(0, 10, 7)], &[kernel(0, 10, 7)], Some(&[]));
    assert_eq!(unexported, [(prefix(0), vec![NotExported])]);
    let stale = found(&[wanted(0, 10, 7)], &[kernel(0, 10, 9)], Some(&[exported(0, 10, 9)]));
    assert_eq!(stale, [(prefix(0), vec![KernelMetric, ExportedMetric])]);
    let elsewhere = found(&[wanted(0, 10, 7)], &[kernel(0, 11, 7)], Some(&[exported(0, 12, 7)]));
    assert_eq!(elsewhere, [(prefix(0), vec![KernelNextHop, ExportedNextHop])]);
    let unwanted = found(&[], &[kernel(0, 10, 7)], Some(&[exported(0, 10, 7), exported(1, 9, 1)]));
    assert_eq!(unwanted, [(prefix(0), vec![NotWanted]), (prefix(1), vec![NotWanted])]);
    let without_med = ExportedRoute { med: None, ..exported(0, 10, 7) };
    let unmarked = found(&[wanted(0, 10, 7)], &[kernel(0, 10, 7)], Some(&[without_med]));
    assert_eq!(unmarked, [(prefix(0), vec![ExportedMetric])]);
}

#[test]
fn unknown_exports_of_bird_are_no_difference() {
    assert_eq!(found(&[wanted(0, 10, 7)], &[kernel(0, 10, 7)], None), [(prefix(0), vec![])]);
}

#[test]
fn the_routes_of_two_workers_to_one_prefix_are_not_mixed_up() {
    // One worker hands the shard to another of the same node: BGP exports only the better route.
    let both = [wanted(0, 10, 7), wanted(0, 11, 20)];
    let in_kernel = [kernel(0, 11, 20), kernel(0, 10, 7)];
    let better = found(&both, &in_kernel, Some(&[exported(0, 10, 7)]));
    assert_eq!(better, [(prefix(0), vec![]), (prefix(0), vec![])]);
    // If only the worse one is exported, the better one got lost.
    let worse = found(&both, &in_kernel, Some(&[exported(0, 11, 20)]));
    assert_eq!(worse, [(prefix(0), vec![Difference::NotExported]), (prefix(0), vec![])]);
    // A leftover route of one worker gets a line of its own beside the wanted route of the other.
    let leftover = found(&both[1..], &in_kernel, Some(&[exported(0, 10, 7)]));
    assert_eq!(leftover.len(), 2);
    assert_eq!(leftover[1].1, [Difference::NotWanted]);
}

#[test]
fn each_route_is_in_exactly_one_line() {
    type Numbers = Vec<(u8, u8, u8)>;
    bolero::check!().with_type::<(Numbers, Numbers, Numbers)>().for_each(|(ours, theirs, out)| {
        let small = |(number, next_hop, metric): &(u8, u8, u8)| {
            (number % 4, next_hop % 3, u32::from(metric % 3))
        };
        let mut routes: Vec<Route> =
            ours.iter().map(small).map(|(n, h, m)| wanted(n, h, m)).collect();
        // The kernel, and so the list, has one next hop per prefix and metric.
        routes.sort_unstable();
        routes.dedup_by_key(|route| route.key());
        let in_kernel: Vec<_> = theirs.iter().map(small).map(|(n, h, m)| kernel(n, h, m)).collect();
        let exports: Vec<_> = out.iter().map(small).map(|(n, h, m)| exported(n, h, m)).collect();
        let seen = SideRoutes { side: SIDE, kernel: &in_kernel, exported: Some(&exports) };
        let lines = compare(&routes, seen);

        let counts =
            |is_there: fn(&ComparisonLine) -> bool| lines.iter().filter(|it| is_there(it)).count();
        assert_eq!(counts(|line| line.wanted.is_some()), routes.len());
        assert_eq!(counts(|line| line.kernel.is_some()), in_kernel.len());
        assert_eq!(counts(|line| line.exported.is_some()), exports.len());
        for line in &lines {
            let is_unwanted = line.differences.contains(&Difference::NotWanted);
            assert_eq!(is_unwanted, line.wanted.is_none(), "{line:?}");
            let is_missing = line.differences.contains(&Difference::MissingInKernel);
            assert_eq!(is_missing, line.wanted.is_some() && line.kernel.is_none(), "{line:?}");
        }
        // A kernel route that is as wanted is paired with it, whatever else the kernel has.
        for route in &routes {
            let is_there = in_kernel.iter().any(|it| {
                (it.prefix, it.metric, it.next_hop)
                    == (route.prefix, route.metric, Some(route.next_hop))
            });
            let line = lines.iter().find(|line| line.wanted == Some(*route)).unwrap();
            assert_eq!(is_there, line.kernel == line.expected(), "{line:?}");
        }
    });
}
