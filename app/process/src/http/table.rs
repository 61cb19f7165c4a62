//! The connections of a listener: how many may be open, and which one gives way to a newer one.
//!
//! At a limit, a newer connection takes the slot of one that waits: of its own remote if that has
//! as many as it may have, else of the remote with the most. So no remote locks others out, and a
//! remote that opens connections without end displaces its own. Slots of the machine itself are
//! separate.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use super::connection::ClientConnection;
use super::limits::ListenerLimits;

/// The other end of a connection, as the limits distinguish remotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionRemote {
    /// The machine itself, over TCP.
    Loopback,
    /// An IPv4 address, or the /64 of an IPv6 address: what one host has.
    Network(IpAddr),
    /// A user of the socket file; `None`: the kernel did not say.
    User(Option<u32>),
}

impl ConnectionRemote {
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Self::Network(Ipv6Addr::from(network).into())
            }
            address => Self::Network(address),
        }
    }

    /// Whether its slots are separate from those of all others.
    fn has_own_slots(self) -> bool {
        matches!(self, Self::Loopback | Self::User(Some(0)))
    }
}

/// All open connections of a listener.
#[derive(Debug, Default)]
pub(super) struct ConnectionTable {
    next: u64,
    open: HashMap<u64, (ConnectionRemote, Arc<ClientConnection>)>,
    counts: HashMap<ConnectionRemote, usize>,
}

impl ConnectionTable {
    /// Returns a slot for a connection of this remote, and its number; `None` if no slot can be
    /// freed.
    pub(super) fn admit(
        &mut self,
        remote: ConnectionRemote,
        limits: &ListenerLimits,
        now: Instant,
    ) -> Option<(u64, Arc<ClientConnection>)> {
        let is_own_full = self.count(remote) >= limits.connections_per_remote_max;
        let shared = || self.open.values().filter(|(remote, _)| !remote.has_own_slots()).count();
        let is_full = !remote.has_own_slots() && shared() >= limits.connections_max;
        if is_own_full {
            self.displace(|other| other == remote)?;
        } else if is_full {
            self.displace(|other| !other.has_own_slots())?;
        }
        let (number, connection) = (self.next, Arc::new(ClientConnection::new(now)));
        self.next += 1;
        self.open.insert(number, (remote, Arc::clone(&connection)));
        *self.counts.entry(remote).or_default() += 1;
        Some((number, connection))
    }

    /// Ends the connection that has waited longest, among those of the remote with the most.
    fn displace(&mut self, is_among: impl Fn(ConnectionRemote) -> bool) -> Option<()> {
        let waiting = self.open.iter().filter(|(_, (remote, _))| is_among(*remote));
        let waiting = waiting.filter_map(|(&number, (remote, connection))| {
            let since = connection.waits_since()?;
            Some((self.count(*remote), std::cmp::Reverse((since, number)), number))
        });
        let (.., number) = waiting.max_by_key(|&(count, since, _)| (count, since))?;
        let (_, connection) = self.open.get(&number)?;
        connection.displace();
        self.remove(number);
        Some(())
    }

    /// Removes a connection that has ended; it may have lost its slot before.
    pub(super) fn remove(&mut self, number: u64) {
        let Some((remote, _)) = self.open.remove(&number) else { return };
        let count = self.counts.get_mut(&remote).expect("a remote with connections is counted");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&remote);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    fn count(&self, remote: ConnectionRemote) -> usize {
        self.counts.get(&remote).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::http::refusals::ConnectionRefusal;

    const LIMITS: ListenerLimits = ListenerLimits {
        connections_max: 6,
        connections_per_remote_max: 4,
        ..ListenerLimits::METRICS
    };

    fn host(last: u8) -> ConnectionRemote {
        ConnectionRemote::of(IpAddr::from([192, 0, 2, last]))
    }

    fn is_displaced(connection: &ClientConnection, now: Instant) -> bool {
        connection.deadline(&LIMITS, now) == Err(ConnectionRefusal::Displaced)
    }

    #[test]
    fn a_remote_with_all_its_connections_displaces_its_own_longest_waiting_one() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        let other = table.admit(host(2), &LIMITS, start).unwrap().1;
        let at = |second| start + Duration::from_secs(second);
        let own: Vec<_> =
            (1..5).map(|second| table.admit(host(1), &LIMITS, at(second)).unwrap().1).collect();
        own[0].begin_answer(at(5));
        table.admit(host(1), &LIMITS, at(5)).unwrap();
        let displaced: Vec<bool> = own.iter().map(|own| is_displaced(own, start)).collect();
        assert_eq!(displaced, [false, true, false, false], "the first is being answered");
        assert!(!is_displaced(&other, start));
        assert_eq!((table.len(), table.count(host(1))), (5, 4));
    }

    #[test]
    fn a_full_listener_takes_a_newcomer_in_place_of_one_of_the_remote_with_the_most() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        let few = [table.admit(host(2), &LIMITS, start), table.admit(host(3), &LIMITS, start)];
        let many: Vec<_> =
            (0..4).map(|_| table.admit(host(1), &LIMITS, start).unwrap().1).collect();
        table.admit(host(4), &LIMITS, start).unwrap();
        let displaced = many.iter().filter(|connection| is_displaced(connection, start));
        assert_eq!(displaced.count(), 1);
        assert!(few.iter().flatten().all(|(_, connection)| !is_displaced(connection, start)));
        assert_eq!(table.len(), 6);
    }

    #[test]
    fn a_newcomer_is_refused_only_while_all_others_are_being_answered() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        let all: Vec<_> =
            (0..6).map(|last| table.admit(host(last), &LIMITS, start).unwrap()).collect();
        all.iter().for_each(|(_, connection)| connection.begin_answer(start));
        assert!(table.admit(host(9), &LIMITS, start).is_none());
        // A connection whose client does not read its answer.
        all[3].1.begin_body(false, start);
        all[3].1.has_written(None, LIMITS.stall_bytes_min, start);
        assert!(table.admit(host(9), &LIMITS, start).is_some());
        assert!(is_displaced(&all[3].1, start));
        table.remove(all[3].0);
        assert_eq!(table.len(), 6);
    }

    #[test]
    fn the_machine_itself_and_root_have_slots_of_their_own() {
        let (mut table, start) = (ConnectionTable::default(), Instant::now());
        let all: Vec<_> =
            (0..6).map(|last| table.admit(host(last), &LIMITS, start).unwrap().1).collect();
        all.iter().for_each(|connection| connection.begin_answer(start));
        for own in
            [ConnectionRemote::of(IpAddr::from([127, 0, 0, 1])), ConnectionRemote::User(Some(0))]
        {
            for _ in 0..LIMITS.connections_per_remote_max {
                assert!(table.admit(own, &LIMITS, start).is_some());
            }
        }
        // Nor do they take slots of others.
        for (index, connection) in all.iter().enumerate() {
            assert!(!is_displaced(connection, start), "{index}");
        }
        assert!(table.admit(ConnectionRemote::User(Some(1000)), &LIMITS, start).is_none());
    }

    #[test]
    fn addresses_of_one_ipv6_host_are_one_remote() {
        let of = |text: &str| ConnectionRemote::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), host(1));
        assert_eq!(of("::1"), ConnectionRemote::Loopback);
        assert_eq!(of("::ffff:127.0.0.1"), ConnectionRemote::Loopback);
    }
}
