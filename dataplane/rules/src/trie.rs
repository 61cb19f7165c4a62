//! Hot. Longest-prefix look-up: a poptrie.

use crate::address::{Address, Prefix};

/// Bits that choose a root, and bits that a node decides on.
const ROOT_BITS: u32 = 16;
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;

/// Marks a root that is a value and no node.
const VALUE: u32 = 1 << 31;

/// A node decides on six bits: each of 64 slots is a child node or a value.
#[derive(Clone, Copy, Debug, Default)]
struct TrieNode {
    /// The slots that are child nodes, bit by bit.
    children: u64,
    /// The slots at which a value begins that goes for the following slots, too, as far as they
    /// are no child nodes.
    starts: u64,
    first_child: u32,
    first_value: u32,
}

/// Maps each address to the value of the longest prefix that it is in.
#[derive(Clone, Debug)]
pub struct PrefixTrie {
    roots: Box<[u32]>,
    nodes: Vec<TrieNode>,
    values: Vec<u32>,
}

/// The prefixes and their values, sorted by address, the shorter of equal addresses first: so each
/// prefix comes before those that lie in it.
type Entries<'a, A> = &'a [(Prefix<A>, u32)];

impl PrefixTrie {
    /// Values are below this.
    pub const VALUES: u32 = VALUE;

    /// Makes the trie of these prefixes, each of which occurs once. An address in none of them has
    /// the value `other`.
    ///
    /// # Panics
    /// If a value is not below [`VALUES`](Self::VALUES).
    pub fn new<A: Address>(mut entries: Vec<(Prefix<A>, u32)>, other: u32) -> Self {
        let is_value = |&value: &u32| value < Self::VALUES;
        assert!(is_value(&other) && entries.iter().all(|(_, value)| is_value(value)));
        entries.sort_unstable_by_key(|&(prefix, _)| prefix);
        debug_assert!(entries.windows(2).all(|pair| pair[0].0 != pair[1].0));
        if entries.is_empty() {
            return Self { roots: [VALUE | other].into(), nodes: Vec::new(), values: Vec::new() };
        }
        let mut trie = Self {
            roots: vec![VALUE | other; 1 << ROOT_BITS].into(),
            nodes: Vec::new(),
            values: Vec::new(),
        };
        for &(prefix, value) in entries.iter().filter(|(prefix, _)| is_within(prefix, ROOT_BITS)) {
            trie.roots[slots(&prefix, 0, ROOT_BITS)].fill(VALUE | value);
        }
        let root = |(prefix, _): &(Prefix<A>, u32)| prefix.address().bits(0, ROOT_BITS);
        for group in entries.chunk_by(|a, b| root(a) == root(b)) {
            let deeper = deeper(group, ROOT_BITS);
            if !deeper.is_empty() {
                let at = root(&deeper[0]);
                let inherited = trie.roots[at] & !VALUE;
                trie.roots[at] = trie.nodes.len() as u32;
                trie.nodes.push(TrieNode::default());
                trie.fill(trie.nodes.len() - 1, deeper, ROOT_BITS, inherited);
            }
        }
        trie.nodes.shrink_to_fit();
        trie.values.shrink_to_fit();
        trie
    }

    /// Fills the node that decides on the bits from `depth` on.
    fn fill<A: Address>(&mut self, node: usize, entries: Entries<'_, A>, depth: u32, other: u32) {
        let end = depth + STRIDE;
        let mut values = [other; SLOTS];
        for (prefix, value) in entries.iter().filter(|(prefix, _)| is_within(prefix, end)) {
            values[slots(prefix, depth, STRIDE)].fill(*value);
        }
        let slot = |(prefix, _): &(Prefix<A>, u32)| prefix.address().bits(depth, STRIDE);
        let children: Vec<Entries<'_, A>> = entries
            .chunk_by(|a, b| slot(a) == slot(b))
            .map(|group| deeper(group, end))
            .filter(|group| !group.is_empty())
            .collect();
        let mut filled = TrieNode {
            first_child: self.nodes.len() as u32,
            first_value: self.values.len() as u32,
            ..TrieNode::default()
        };
        filled.children = children.iter().fold(0, |set, group| set | 1 << slot(&group[0]));
        let mut last = None;
        for (at, &value) in values.iter().enumerate() {
            if filled.children >> at & 1 == 0 && last.replace(value) != Some(value) {
                filled.starts |= 1 << at;
                self.values.push(value);
            }
        }
        self.nodes[node] = filled;
        self.nodes.resize(self.nodes.len() + children.len(), TrieNode::default());
        for (child, group) in (filled.first_child as usize..).zip(children) {
            self.fill(child, group, end, values[slot(&group[0])]);
        }
    }

    /// Prefetches the root of an address.
    #[inline(always)]
    pub fn prefetch<A: Address>(&self, address: A) {
        weir_flow::prefetch(&self.roots, self.root(address));
    }

    /// Returns the value of the longest prefix that the address is in.
    #[inline]
    pub fn find<A: Address>(&self, address: A) -> u32 {
        let root = self.roots[self.root(address)];
        if root & VALUE != 0 {
            return root & !VALUE;
        }
        let mut node = &self.nodes[root as usize];
        let mut depth = ROOT_BITS;
        loop {
            let slot = address.bits(depth, STRIDE) as u32;
            // The bits up to this slot.
            let upto = u64::MAX >> (u64::BITS - 1 - slot);
            if node.children >> slot & 1 == 0 {
                let before = (node.starts & upto).count_ones() - 1;
                return self.values[(node.first_value + before) as usize];
            }
            let before = (node.children & upto).count_ones() - 1;
            node = &self.nodes[(node.first_child + before) as usize];
            depth += STRIDE;
        }
    }

    /// Returns the number of the address's root: there is one, or one for each 16 bits.
    #[inline(always)]
    fn root<A: Address>(&self, address: A) -> usize {
        address.bits(0, ROOT_BITS) & (self.roots.len() - 1)
    }

    /// Returns the largest number of nodes on the way to a value.
    pub fn depth(&self) -> u32 {
        let roots = self.roots.iter().filter(|&&root| root & VALUE == 0);
        roots.map(|&root| self.depth_of(root as usize)).max().unwrap_or(0)
    }

    fn depth_of(&self, node: usize) -> u32 {
        let TrieNode { children, first_child, .. } = self.nodes[node];
        let children =
            (first_child..first_child + children.count_ones()).map(|child| child as usize);
        1 + children.map(|child| self.depth_of(child)).max().unwrap_or(0)
    }

    /// Returns the bytes of memory that the trie takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.roots) + size_of_val(&*self.nodes) + size_of_val(&*self.values)
    }
}

/// Whether a prefix is no longer than `end` bits.
fn is_within<A: Address>(prefix: &Prefix<A>, end: u32) -> bool {
    u32::from(prefix.bits()) <= end
}

/// Returns the entries longer than `end` bits of those that have their first `end` bits in common:
/// the others are among the first, since they end here.
fn deeper<'a, A: Address>(entries: Entries<'a, A>, end: u32) -> Entries<'a, A> {
    let ended = entries.iter().take_while(|(prefix, _)| is_within(prefix, end)).count();
    &entries[ended..]
}

/// Returns the slots of `count` bits from `depth` on that a prefix, at most that long, fills.
fn slots<A: Address>(prefix: &Prefix<A>, depth: u32, count: u32) -> std::ops::Range<usize> {
    let first = prefix.address().bits(depth, count);
    first..first + (1 << (depth + count - u32::from(prefix.bits())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of the longest prefix, by looking at all.
    fn longest<A: Address>(entries: Entries<'_, A>, address: A) -> Option<u32> {
        let found = entries.iter().filter(|(prefix, _)| prefix.contains(address));
        found.max_by_key(|(prefix, _)| prefix.bits()).map(|&(_, value)| value)
    }

    fn check<A: Address>(random: impl Fn(&mut fastrand::Rng) -> A, near: impl Fn(A, u128) -> A) {
        for seed in 0..200 {
            let rng = &mut fastrand::Rng::with_seed(seed);
            let mut entries: Vec<(Prefix<A>, u32)> = Vec::new();
            for value in 0..rng.u32(0..200) {
                let address = match entries.is_empty() || rng.bool() {
                    true => random(rng),
                    false => entries[rng.usize(0..entries.len())].0.address(),
                };
                let prefix = Prefix::new(address, rng.u8(0..=A::BITS as u8));
                if entries.iter().all(|(other, _)| *other != prefix) {
                    entries.push((prefix, value));
                }
            }
            let trie = PrefixTrie::new(entries.clone(), 7777);
            for _ in 0..500 {
                let address = match entries.is_empty() || rng.u8(0..4) == 0 {
                    true => random(rng),
                    false => {
                        let prefix = entries[rng.usize(0..entries.len())].0;
                        near(prefix.address(), rng.u128(..) >> rng.u32(0..128))
                    }
                };
                let expected = longest(&entries, address).unwrap_or(7777);
                assert_eq!(trie.find(address), expected, "seed {seed}, {address:x?}");
            }
        }
    }

    #[test]
    fn the_longest_prefix_is_found() {
        check::<u32>(|rng| rng.u32(..), |address, change| address ^ change as u32);
        check::<u128>(|rng| rng.u128(..), |address, change| address ^ change);
    }

    #[test]
    fn a_trie_without_prefixes_is_small() {
        let trie = PrefixTrie::new::<u32>(Vec::new(), 5);
        assert_eq!((trie.find(0_u32), trie.find(u32::MAX), trie.bytes()), (5, 5, 4));
        assert_eq!(trie.depth(), 0);
    }
}
