//! Two workers with a session: the first redirects packets without a mapping to the second, which
//! makes flows.

use weir_engine::Side;
use weir_map::LaneSet;
use weir_replication::command::{Misses, ShardDuties};
use weir_wire::build;

use crate::cluster::{Cluster, no_duties};
use crate::member::{Member, SHARD, address, peer_id};
use crate::network::{Datagram, Faults};

pub(crate) struct Pair {
    cluster: Cluster,
}

const A: usize = 0;
const B: usize = 1;

impl Pair {
    /// Returns a pair that knows each other while no datagram passes between them.
    pub(crate) fn cut_off() -> Self {
        let cluster = Cluster::new(2, 1, Faults::NONE);
        let mut pair = Self { cluster };
        pair.cluster.network.parted.push(address(A));
        pair.redirect(A, B);
        let duties = ShardDuties {
            serves_hits: true,
            lanes: LaneSet::ALL,
            misses: Misses::Create,
            ..no_duties(SHARD)
        };
        pair.cluster.duties(B, duties);
        pair.cluster.run(200_000);
        pair
    }

    /// Returns a pair with a session: A has no lane and redirects unknown packets to B.
    pub(crate) fn ready() -> Self {
        let mut pair = Self::cut_off();
        pair.cluster.network.parted.clear();
        pair.cluster.run(300_000);
        pair
    }

    fn redirect(&mut self, worker: usize, to: usize) {
        let misses = Misses::Redirect(peer_id(to));
        self.cluster.duties(worker, ShardDuties { serves_hits: true, misses, ..no_duties(SHARD) });
    }

    pub(crate) fn a(&mut self) -> &mut Member {
        self.cluster.worker(A)
    }

    pub(crate) fn b(&mut self) -> &mut Member {
        self.cluster.worker(B)
    }

    /// Runs a turn of A; returns the redirected packets that it sent.
    pub(crate) fn turn_a(&mut self) -> Vec<Vec<u8>> {
        self.cluster.turn(A);
        let sent = std::iter::from_fn(|| self.cluster.network.arrived(u64::MAX));
        sent.filter(Datagram::is_redirect).map(|datagram| datagram.bytes).collect()
    }

    /// Runs a turn of B; returns its packets to the internet, and to homes without their tunnels.
    pub(crate) fn turn_b(&mut self) -> [Vec<Vec<u8>>; 2] {
        self.cluster.turn(B);
        while self.cluster.network.arrived(u64::MAX).is_some() {}
        let [to_homes, to_internet] = self.b().sent();
        [to_internet, to_homes]
    }

    /// Delivers datagrams of A to B.
    pub(crate) fn deliver_to_b(&mut self, datagrams: Vec<Vec<u8>>) -> [Vec<Vec<u8>>; 2] {
        datagrams.iter().for_each(|bytes| self.b().datagram(address(A), bytes));
        self.turn_b()
    }

    /// Delivers a datagram of B to A; returns whether any packet left A to the internet or to a
    /// home.
    pub(crate) fn passes_a(&mut self, datagram: &[u8]) -> bool {
        self.a().datagram(address(B), datagram);
        self.turn_a();
        self.a().sent().iter().any(|packets| !packets.is_empty())
    }

    /// Gives B a packet from another station of the access network, possibly in the name of A.
    pub(crate) fn forge_to_b(&mut self, packet: &[u8]) -> [Vec<Vec<u8>>; 2] {
        self.b().packet_from(build::mac(66), Side::Access, packet);
        self.turn_b()
    }

    /// Ends A's process and starts another one, which sets up a session of its own.
    pub(crate) fn restart_a(&mut self) {
        self.cluster.start(A);
        self.cluster.add_shard(A);
        self.redirect(A, B);
        self.cluster.run(600_000);
    }

    /// Makes each worker redirect unknown packets to the other.
    pub(crate) fn b_redirects_to_a(&mut self) {
        self.redirect(B, A);
    }
}
