//! Malformed and hostile traffic: each packet is dropped under its reason, and weir goes on.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_lab::injector::{Injector, mac_of};
use weir_lab::malformed::{self, Case};
use weir_lab::services::SERVER;
use weir_lab::{Echo, OneNode, Options, exchange, wait_for};

/// Time until the drops of a batch must be counted.
const DROP_DEADLINE: Duration = Duration::from_secs(5);
/// Copies of each malformed frame.
const COPIES: usize = 10;
/// Random frames on each side.
const RANDOM_FRAMES: usize = 5000;

/// Sends every case separately and checks that it is counted under its reason, and only there.
fn every_reason(net: &OneNode, injector: &Injector<'_>, cases: &[Case]) -> Result<()> {
    let mut wrong = Vec::new();
    for (name, frame, reason) in cases {
        let before = all_drops(net)?;
        injector.send(&vec![frame.clone(); COPIES])?;
        let counted = wait_for(name, DROP_DEADLINE, || {
            let difference = difference(&before, &all_drops(net).ok()?);
            (difference.values().sum::<u64>() >= COPIES as u64).then_some(difference)
        });
        let expected = BTreeMap::from([((*reason).to_owned(), COPIES as u64)]);
        match counted {
            Ok(counted) if counted == expected => {}
            Ok(counted) => wrong.push(format!("{name}: {reason} expected, {counted:?} counted")),
            Err(_) => wrong.push(format!("{name}: {reason} expected, nothing counted")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn all_drops(net: &OneNode) -> Result<BTreeMap<String, u64>> {
    let counts = net.weir.json(&["drops"])?;
    let counts = counts.as_array().context("no list of drops")?;
    Ok(counts
        .iter()
        .filter_map(|count| {
            Some((count["reason"].as_str()?.to_owned(), count["packets_total"].as_u64()?))
        })
        .collect())
}

fn difference(
    before: &BTreeMap<String, u64>,
    after: &BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    after
        .iter()
        .map(|(reason, count)| (reason.clone(), count - before.get(reason).unwrap_or(&0)))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// Checks that a client still works.
fn still_works(net: &OneNode) -> Result<()> {
    let server = SocketAddrV4::new(SERVER, 7000);
    let _echo = Echo::udp(&net.internet, server)?;
    ensure!(exchange::udp(&net.homes[0].udp(0)?, server, b"alive")?, "no answer after all that");
    ensure!(net.weir.process().ended().is_none(), "weir has ended");
    Ok(())
}

#[test]
fn malformed_from_the_access_side() {
    OneNode::test(&Options::default(), |net| {
        let injector = Injector::new(&net.lab, &net.access, "weir0");
        let cases = malformed::access_cases(mac_of(&net.node, "acc0")?, injector.mac()?);
        every_reason(net, &injector, &cases)?;
        still_works(net)
    });
}

#[test]
fn malformed_from_the_internet_side() {
    OneNode::test(&Options::default(), |net| {
        let injector = Injector::new(&net.lab, &net.core, "weir0");
        let cases = malformed::internet_cases(mac_of(&net.node, "net0")?, injector.mac()?);
        every_reason(net, &injector, &cases)?;
        still_works(net)
    });
}

#[test]
fn random_frames_do_no_harm() {
    OneNode::test(&Options::default(), |net| {
        let sides = [(&net.access, "acc0", 1), (&net.core, "net0", 2)];
        for (namespace, port, seed) in sides {
            let injector = Injector::new(&net.lab, namespace, "weir0");
            let weir = mac_of(&net.node, port)?;
            let frames = malformed::random_frames(weir, injector.mac()?, RANDOM_FRAMES, seed);
            injector.send(&frames)?;
            still_works(net)?;
        }
        Ok(())
    });
}
