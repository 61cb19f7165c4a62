//! Counters of one worker: one writer, any number of readers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_nat::IpFamily;
use weir_wire::ethernet::Mac;

use crate::{DropReason, Side};

/// A counter with one writer: a relaxed load and store, no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only the worker that owns the counter may call this.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// One TCP SYN in so many has its checksum verified.
const SYNS_PER_LOOK: u64 = 64;

/// Direction of a packet, as the worker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Receive,
    Transmit,
}

/// Why a packet was sent before its dependency was on the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyRelease {
    /// It had waited for the longest permitted time.
    Timeout,
    /// The limit of waiting packets was reached.
    Limit,
}

impl EarlyRelease {
    pub const ALL: [Self; 2] = [Self::Timeout, Self::Limit];

    /// Returns the label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Limit => "limit",
        }
    }
}

/// Counters of one worker since it started.
#[derive(Debug)]
pub struct EngineCounters {
    drops: [Counter; DropReason::ALL.len()],
    packets: [[Counter; 2]; 2],
    bytes: [[Counter; 2]; 2],
    redirected: [Counter; 2],
    icmp_errors: [Counter; 2],
    icmp_errors_limited: [Counter; 2],
    resets: [Counter; 2],
    resets_limited: [Counter; 2],
    held: Counter,
    early: [Counter; EarlyRelease::ALL.len()],
    /// 1 while the side can forward.
    gateway_up: [AtomicU64; 2],
    /// 1 while a gateway of the family answers on the side.
    family_up: [[AtomicU64; IpFamily::ALL.len()]; 2],
    /// 1 while another station has an IPv6 address of the side.
    address_conflict: [AtomicU64; 2],
    address_conflicts: [Counter; 2],
    /// The MAC of the last station in such a conflict, as a number.
    duplicate: [AtomicU64; 2],
    refused_claims: [Counter; 2],
    /// The MAC of the last refused claim, as a number.
    claimant: [AtomicU64; 2],
    gateway_moves: [Counter; 2],
    /// The MAC to which a gateway moved last, as a number.
    moved_to: [AtomicU64; 2],
    syns: [Counter; 2],
    wrong_checksums: [Counter; 2],
}

impl Default for EngineCounters {
    fn default() -> Self {
        Self {
            drops: std::array::from_fn(|_| Counter::default()),
            packets: Default::default(),
            bytes: Default::default(),
            redirected: Default::default(),
            icmp_errors: Default::default(),
            icmp_errors_limited: Default::default(),
            resets: Default::default(),
            resets_limited: Default::default(),
            held: Counter::default(),
            early: Default::default(),
            gateway_up: Default::default(),
            family_up: Default::default(),
            address_conflict: Default::default(),
            address_conflicts: Default::default(),
            duplicate: Default::default(),
            refused_claims: Default::default(),
            claimant: Default::default(),
            gateway_moves: Default::default(),
            moved_to: Default::default(),
            syns: Default::default(),
            wrong_checksums: Default::default(),
        }
    }
}

impl EngineCounters {
    /// Returns the packets dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].get()
    }

    /// Returns the packets seen on a side.
    pub fn packets(&self, side: Side, direction: Direction) -> u64 {
        self.packets[side as usize][direction as usize].get()
    }

    /// Returns the bytes of Ethernet frames (without FCS) seen on a side.
    pub fn bytes(&self, side: Side, direction: Direction) -> u64 {
        self.bytes[side as usize][direction as usize].get()
    }

    /// Returns the packets that other workers redirected here, or that were redirected to them.
    /// Packets beyond the limit are dropped as [`DropReason::RedirectLimit`].
    pub fn redirected(&self, direction: Direction) -> u64 {
        self.redirected[direction as usize].get()
    }

    /// Returns the ICMP errors of the worker itself to homes ([`Side::Access`]) or to senders on
    /// the internet.
    pub fn icmp_errors(&self, to: Side) -> u64 {
        self.icmp_errors[to as usize].get()
    }

    /// Returns the ICMP errors that were not sent because a limit was reached.
    pub fn icmp_errors_limited(&self, to: Side) -> u64 {
        self.icmp_errors_limited[to as usize].get()
    }

    /// Returns the TCP resets that the worker sent to homes ([`Side::Access`]) or to senders on the
    /// internet, for segments that a rule rejects.
    pub fn resets(&self, to: Side) -> u64 {
        self.resets[to as usize].get()
    }

    /// Returns the TCP resets that were not sent because a limit was reached.
    pub fn resets_limited(&self, to: Side) -> u64 {
        self.resets_limited[to as usize].get()
    }

    /// Returns the packets that waited until their dependency was on replicas, or until the longest
    /// permitted time had passed.
    pub fn held(&self) -> u64 {
        self.held.get()
    }

    /// Returns the packets that were sent before their dependency was on replicas.
    pub fn early(&self, why: EarlyRelease) -> u64 {
        self.early[why as usize].get()
    }

    /// Whether the side can forward: a gateway of each family that the side has answers.
    pub fn gateway_up(&self, side: Side) -> bool {
        self.gateway_up[side as usize].load(Relaxed) != 0
    }

    /// Whether a gateway of this family answers on the side, and the worker may use its address;
    /// false for a family that the side does not have.
    pub fn family_up(&self, side: Side, family: IpFamily) -> bool {
        self.family_up[side as usize][family as usize].load(Relaxed) != 0
    }

    /// Whether the worker does without an IPv6 address of the side, since another station has it
    /// (RFC 4862 section 5.4). The worker probes the address again every 10 s.
    pub fn address_conflict(&self, side: Side) -> bool {
        self.address_conflict[side as usize].load(Relaxed) != 0
    }

    /// Returns how often another station was found to have an IPv6 address of the side, or claimed
    /// one that the worker uses, and the MAC of the last such station.
    pub fn address_conflicts(&self, side: Side) -> (u64, Mac) {
        (self.address_conflicts[side as usize].get(), load_mac(&self.duplicate[side as usize]))
    }

    /// Returns the number of messages of ARP and neighbor discovery that claimed the address of a
    /// gateway or of another worker for a MAC that it does not have, and the MAC of the last such
    /// claim.
    pub fn refused_claims(&self, side: Side) -> (u64, Mac) {
        (self.refused_claims[side as usize].get(), load_mac(&self.claimant[side as usize]))
    }

    /// Returns how often a gateway was found at another MAC than before, and its last new MAC.
    pub fn gateway_moves(&self, side: Side) -> (u64, Mac) {
        (self.gateway_moves[side as usize].get(), load_mac(&self.moved_to[side as usize]))
    }

    /// Returns the TCP SYNs received from a side with a wrong checksum, among those verified: the
    /// first of every 64.
    pub fn wrong_checksums(&self, from: Side) -> u64 {
        self.wrong_checksums[from as usize].get()
    }

    /// Adds a burst. The engine counts what it receives; the owner of the ports counts what it
    /// sent.
    #[inline]
    pub fn count(&self, side: Side, direction: Direction, packets: u64, bytes: u64) {
        self.packets[side as usize][direction as usize].add(packets);
        self.bytes[side as usize][direction as usize].add(bytes);
    }

    #[inline]
    pub(crate) fn count_drops(&self, reason: DropReason, packets: u64) {
        self.drops[reason as usize].add(packets);
    }

    pub(crate) fn count_redirected(&self, direction: Direction) {
        self.redirected[direction as usize].add(1);
    }

    pub(crate) fn count_icmp_error(&self, to: Side) {
        self.icmp_errors[to as usize].add(1);
    }

    pub(crate) fn count_icmp_error_limited(&self, to: Side) {
        self.icmp_errors_limited[to as usize].add(1);
    }

    pub(crate) fn count_reset(&self, to: Side) {
        self.resets[to as usize].add(1);
    }

    pub(crate) fn count_reset_limited(&self, to: Side) {
        self.resets_limited[to as usize].add(1);
    }

    pub(crate) fn count_held(&self, packets: u64) {
        self.held.add(packets);
    }

    pub(crate) fn count_early(&self, why: EarlyRelease, packets: u64) {
        self.early[why as usize].add(packets);
    }

    /// Counts a TCP SYN; true if its checksum is to be verified.
    pub(crate) fn count_syn(&self, from: Side) -> bool {
        let syns = &self.syns[from as usize];
        let is_due = syns.get().is_multiple_of(SYNS_PER_LOOK);
        syns.add(1);
        is_due
    }

    pub(crate) fn count_wrong_checksum(&self, from: Side) {
        self.wrong_checksums[from as usize].add(1);
    }

    pub(crate) fn count_refused_claims(&self, side: Side, claims: u64, claimant: Mac) {
        store_mac(&self.claimant[side as usize], claimant);
        self.refused_claims[side as usize].add(claims);
    }

    pub(crate) fn count_gateway_move(&self, side: Side, to: Mac) {
        store_mac(&self.moved_to[side as usize], to);
        self.gateway_moves[side as usize].add(1);
    }

    pub(crate) fn set_gateway_up(&self, side: Side, is_up: bool) {
        self.gateway_up[side as usize].store(u64::from(is_up), Relaxed);
    }

    pub(crate) fn set_family_up(&self, side: Side, family: IpFamily, is_up: bool) {
        self.family_up[side as usize][family as usize].store(u64::from(is_up), Relaxed);
    }

    pub(crate) fn set_address_conflict(&self, side: Side, has_duplicate: bool) {
        self.address_conflict[side as usize].store(u64::from(has_duplicate), Relaxed);
    }

    pub(crate) fn count_address_conflict(&self, side: Side, with: Mac) {
        store_mac(&self.duplicate[side as usize], with);
        self.address_conflicts[side as usize].add(1);
    }
}

fn store_mac(cell: &AtomicU64, Mac([a, b, c, d, e, f]): Mac) {
    cell.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Relaxed);
}

fn load_mac(cell: &AtomicU64) -> Mac {
    let [_, _, a, b, c, d, e, f] = cell.load(Relaxed).to_be_bytes();
    Mac([a, b, c, d, e, f])
}
