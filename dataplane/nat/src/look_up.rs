//! Hot. The look-ups of a burst: each step for the whole burst, so that no packet waits for its
//! cache lines.

use weir_flow::{Candidate, Hash, Index, RecordId};

use crate::fast_path::{InboundKey, OutboundKey};
use crate::nat::Nat;

/// Look-ups whose steps interleave.
const TOGETHER: usize = u64::BITS as usize;

/// The look-up of a packet while its burst is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookUp {
    pub hash: Hash,
    /// The record that the index returned: probably the packet's mapping. `RecordId::NONE`: none.
    pub candidate: RecordId,
}

impl LookUp {
    pub const EMPTY: Self = Self { hash: Hash(0), candidate: RecordId::NONE };

    /// Returns the record that the index returned.
    pub fn found(&self) -> Option<RecordId> {
        (self.candidate != RecordId::NONE).then_some(self.candidate)
    }
}

impl AsMut<Self> for LookUp {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

/// The key of a packet of one direction, and with it the index that has the mappings of its
/// packets.
pub trait PacketKey: Copy + Default + std::fmt::Debug {
    fn index(nat: &Nat) -> &Index;

    fn hash(&self, nat: &Nat) -> Hash;

    /// Returns the remote's word of the record.
    fn remote_word(&self) -> u64;
}

impl PacketKey for OutboundKey {
    #[inline(always)]
    fn index(nat: &Nat) -> &Index {
        &nat.outbound_index
    }

    #[inline(always)]
    fn hash(&self, nat: &Nat) -> Hash {
        nat.hash_outbound(self.hashed())
    }

    #[inline(always)]
    fn remote_word(&self) -> u64 {
        self.remote
    }
}

impl PacketKey for InboundKey {
    #[inline(always)]
    fn index(nat: &Nat) -> &Index {
        &nat.inbound_index
    }

    #[inline(always)]
    fn hash(&self, nat: &Nat) -> Hash {
        nat.hash_inbound(self.hashed())
    }

    #[inline(always)]
    fn remote_word(&self) -> u64 {
        self.remote
    }
}

impl Nat {
    /// Step 1 of a burst: prefetches the index line of a hash.
    #[inline(always)]
    pub fn begin_look_up<K: PacketKey>(&self, hash: Hash) {
        K::index(self).prefetch(hash);
    }

    /// Steps 2 and 3, after step 1 of the whole burst: finds the record of each hash and prefetches
    /// it.
    #[inline(never)]
    pub fn look_up<K: PacketKey, T: AsMut<LookUp>>(&self, burst: &mut [T]) {
        let index = K::index(self);
        for burst in burst.chunks_mut(TOGETHER) {
            // Look-ups whose record may be in the alternate bucket, one bit each.
            let mut elsewhere = 0_u64;
            for (at, packet) in burst.iter_mut().enumerate() {
                let look_up = packet.as_mut();
                match index.candidate(look_up.hash) {
                    Candidate::Found(id) => look_up.candidate = self.prefetched(id),
                    Candidate::Absent => look_up.candidate = RecordId::NONE,
                    Candidate::Elsewhere => elsewhere |= 1 << at,
                }
            }
            while elsewhere != 0 {
                let look_up = burst[elsewhere.trailing_zeros() as usize].as_mut();
                let found = index.candidate_elsewhere(look_up.hash);
                look_up.candidate = found.map_or(RecordId::NONE, |id| self.prefetched(id));
                elsewhere &= elsewhere - 1;
            }
        }
    }

    #[inline(always)]
    fn prefetched(&self, id: u32) -> RecordId {
        self.mappings.prefetch(RecordId(id));
        RecordId(id)
    }
}
