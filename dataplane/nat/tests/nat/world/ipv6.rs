//! Homes whose IPv6 addresses are not translated: their packets, and what they may send from.

use std::sync::Arc;

use weir_nat::*;
use weir_rules::{FlowKind, FlowKinds, FlowOrigin, Prefix, RuleFilter, RuleSet};

use super::pair::{pair, pair_config};
use super::{ACK, SYN, SYN_ACK, World, config};

pub(crate) const HOLD_SEC: u32 = 300;

pub(crate) fn with_ipv6(mut config: NatConfig, delegation: Delegation) -> NatConfig {
    config.delegation = Some(delegation);
    config.shards[0].public6 = vec!["2001:db8:1000::/40".parse().unwrap()];
    config.shards[1].public6 = vec!["2001:db8:2000::/40".parse().unwrap()];
    config
}

pub(crate) fn claiming() -> World {
    World::new(with_ipv6(config(), Delegation::Claim { hold_sec: HOLD_SEC }))
}

/// Returns a host of the n-th /64 of the first shard.
pub(crate) fn host6(n: u16, port: u16) -> Endpoint6 {
    Endpoint6::new(0x2001_0db8_1000_0000_0000_0000_0000_0007 | u128::from(n) << 64, port)
}

pub(crate) fn server6(n: u16) -> Endpoint6 {
    Endpoint6::new(0x2001_0db8_9000_0000_0000_0000_0000_0000 | u128::from(n), 443)
}

impl World {
    fn packet6(
        &self,
        inside: Endpoint6,
        remote: Endpoint6,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> (Hash, Packet6) {
        let key = FlowKey6::new(inside, remote, protocol, false);
        (PacketKey::hash(&key, &self.nat), Packet6 { key, protocol, tcp_flags })
    }

    pub(crate) fn out6(
        &mut self,
        home: Home,
        inside: Endpoint6,
        remote: Endpoint6,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> Result<FlowClass, Refusal> {
        let (hash, packet) = self.packet6(inside, remote, protocol, tcp_flags);
        match self.nat.outbound6_known(hash, &home, &packet, self.now)? {
            Some(class) => Ok(class),
            None => {
                self.nat.open_outbound6(hash, (&home, LikelySubscriber::NONE), &packet, self.now)
            }
        }
    }

    pub(crate) fn back6(
        &mut self,
        inside: Endpoint6,
        remote: Endpoint6,
        protocol: Protocol,
        tcp_flags: u8,
    ) -> Result<Home, Refusal> {
        let (hash, packet) = self.packet6(inside, remote, protocol, tcp_flags);
        if let Some(delivery) = self.nat.inbound6_known(hash, &packet, self.now) {
            return Ok(delivery.home);
        }
        let shard = self.nat.shard_of_inside6(inside.address).ok_or(Refusal::NoMapping)?;
        self.nat.open_inbound6(hash, shard, &packet, self.now).map(|delivery| delivery.home)
    }

    pub(crate) fn udp_out6(
        &mut self,
        home: Home,
        inside: Endpoint6,
        remote: Endpoint6,
    ) -> Result<FlowClass, Refusal> {
        self.out6(home, inside, remote, Protocol::Udp, 0)
    }

    pub(crate) fn udp_back6(
        &mut self,
        inside: Endpoint6,
        remote: Endpoint6,
    ) -> Result<Home, Refusal> {
        self.back6(inside, remote, Protocol::Udp, 0)
    }

    pub(crate) fn connect6(&mut self, home: Home, inside: Endpoint6, remote: Endpoint6) {
        self.out6(home, inside, remote, Protocol::Tcp, SYN).unwrap();
        self.back6(inside, remote, Protocol::Tcp, SYN_ACK).unwrap();
        self.out6(home, inside, remote, Protocol::Tcp, ACK).unwrap();
    }

    /// Puts one rule in force, about packets of this origin to or from the servers' /48.
    pub(crate) fn set_rule(&mut self, origin: FlowOrigin, action: RuleAction) {
        let kinds: FlowKinds =
            [6, 17, 58].into_iter().filter_map(|number| FlowKind::new6(origin, number)).collect();
        let remote = Prefix::new(server6(0).address, 48);
        let filter = RuleFilter { kinds, remote, ..RuleFilter::all(0) };
        let set = RuleSet::new(&[], vec![action], Vec::new()).unwrap();
        let set = set.with_ipv6(&[filter], Vec::new()).unwrap().with_rematch(vec![0]);
        _ = self.nat.admin_mut().swap_rules(Box::new(ActiveRules::new(Arc::new(set))));
    }

    pub(crate) fn flows6(&self) -> u32 {
        self.nat.admin().audit();
        self.nat.admin().gauges().flows6
    }
}

pub(crate) fn pair6() -> (World, World) {
    pair(&with_ipv6(pair_config(), Delegation::Claim { hold_sec: HOLD_SEC }))
}
