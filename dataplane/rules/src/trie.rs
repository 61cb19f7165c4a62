//! Hot. Longest-prefix look-up: a poptrie.

use crate::address::{IpAddress, Prefix};

/// Bits that choose a root, and bits that a node decides on.
const ROOT_BITS: u32 = 16;
const STRIDE: u32 = 6;
const SLOTS: usize = 1 << STRIDE;

/// Marks a root that is a value and no node.
const VALUE: u32 = 1 << 31;
/// Marks a step of a walk that is the place of a value.
const PLACE: u32 = 1 << 30;

/// How far a look-up has come: a node, the place of a value, or a value.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TrieWalk(u32);

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
    /// Most nodes on the way to a value.
    depth: u32,
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
    pub fn new<A: IpAddress>(mut entries: Vec<(Prefix<A>, u32)>, other: u32) -> Self {
        let is_value = |&value: &u32| value < Self::VALUES;
        assert!(is_value(&other) && entries.iter().all(|(_, value)| is_value(value)));
        entries.sort_unstable_by_key(|&(prefix, _)| prefix);
        debug_assert!(entries.windows(2).all(|pair| pair[0].0 != pair[1].0));
        if entries.is_empty() {
            let (nodes, values) = (Vec::new(), Vec::new());
            return Self { roots: [VALUE | other].into(), nodes, values, depth: 0 };
        }
        let mut trie = Self {
            roots: vec![VALUE | other; 1 << ROOT_BITS].into(),
            nodes: Vec::new(),
            values: Vec::new(),
            depth: 0,
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
        assert!(trie.nodes.len().max(trie.values.len()) < PLACE as usize, "30 bits number them");
        trie.nodes.shrink_to_fit();
        trie.values.shrink_to_fit();
        trie
    }

    /// Fills the node that decides on the bits from `depth` on.
    fn fill<A: IpAddress>(&mut self, node: usize, entries: Entries<'_, A>, depth: u32, other: u32) {
        let end = depth + STRIDE;
        self.depth = self.depth.max((end - ROOT_BITS) / STRIDE);
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

    /// Step 1 of a burst of look-ups: prefetches the root of an address.
    #[inline(always)]
    pub fn prefetch<A: IpAddress>(&self, address: A) {
        weir_flow::prefetch(&self.roots, self.root(address));
    }

    /// Step 2: begins the walk of an address.
    #[inline(always)]
    pub(crate) fn begin<A: IpAddress>(&self, address: A) -> TrieWalk {
        let root = self.roots[self.root(address)];
        if root & VALUE == 0 {
            weir_flow::prefetch(&self.nodes, root as usize);
        }
        TrieWalk(root)
    }

    /// Steps 3 to 2 + [`depth`](Self::depth): goes from the node that decides on the bits from
    /// `depth` on to the next one, if the walk has come to one.
    #[inline(always)]
    pub(crate) fn step<A: IpAddress>(&self, walk: TrieWalk, address: A, depth: u32) -> TrieWalk {
        if walk.0 & (VALUE | PLACE) != 0 {
            return walk;
        }
        let node = &self.nodes[walk.0 as usize];
        let slot = address.bits(depth, STRIDE) as u32;
        let upto = upto(slot);
        if node.children >> slot & 1 == 0 {
            let place = node.first_value + (node.starts & upto).count_ones() - 1;
            weir_flow::prefetch(&self.values, place as usize);
            TrieWalk(place | PLACE)
        } else {
            let child = node.first_child + (node.children & upto).count_ones() - 1;
            weir_flow::prefetch(&self.nodes, child as usize);
            TrieWalk(child)
        }
    }

    /// The last step: returns the value to which a walk has come.
    #[inline(always)]
    pub(crate) fn end(&self, walk: TrieWalk) -> u32 {
        match walk.0 & VALUE {
            0 => self.values[(walk.0 & !PLACE) as usize],
            _ => walk.0 & !VALUE,
        }
    }

    /// Returns the value of the longest prefix that the address is in.
    #[inline]
    pub fn find<A: IpAddress>(&self, address: A) -> u32 {
        let mut at = self.roots[self.root(address)];
        let mut depth = ROOT_BITS;
        // As a walk, without what makes several of them interleave.
        while at & VALUE == 0 {
            let node = &self.nodes[at as usize];
            let slot = address.bits(depth, STRIDE) as u32;
            let upto = upto(slot);
            if node.children >> slot & 1 == 0 {
                let place = node.first_value + (node.starts & upto).count_ones() - 1;
                return self.values[place as usize];
            }
            at = node.first_child + (node.children & upto).count_ones() - 1;
            depth += STRIDE;
        }
        at & !VALUE
    }

    /// Returns the number of the address's root: there is one, or one for each 16 bits.
    #[inline(always)]
    fn root<A: IpAddress>(&self, address: A) -> usize {
        address.bits(0, ROOT_BITS) & (self.roots.len() - 1)
    }

    /// Returns the largest number of nodes on the way to a value.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the bytes of memory that the trie takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.roots) + size_of_val(&*self.nodes) + size_of_val(&*self.values)
    }
}

/// Returns the first bit of each step of walks through at most so many nodes.
#[inline(always)]
pub(crate) fn depths(nodes: u32) -> impl Iterator<Item = u32> {
    (0..nodes).map(|step| ROOT_BITS + step * STRIDE)
}

/// Returns the bits of the slots up to this one.
#[inline(always)]
fn upto(slot: u32) -> u64 {
    u64::MAX >> (u64::BITS - 1 - slot)
}

/// Whether a prefix is no longer than `end` bits.
fn is_within<A: IpAddress>(prefix: &Prefix<A>, end: u32) -> bool {
    u32::from(prefix.bits()) <= end
}

/// Returns the entries longer than `end` bits of those that have their first `end` bits in common:
/// the others are among the first, since they end here.
fn deeper<'a, A: IpAddress>(entries: Entries<'a, A>, end: u32) -> Entries<'a, A> {
    let ended = entries.iter().take_while(|(prefix, _)| is_within(prefix, end)).count();
    &entries[ended..]
}

/// Returns the slots of `count` bits from `depth` on that a prefix, at most that long, fills.
fn slots<A: IpAddress>(prefix: &Prefix<A>, depth: u32, count: u32) -> std::ops::Range<usize> {
    let first = prefix.address().bits(depth, count);
    first..first + (1 << (depth + count - u32::from(prefix.bits())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the value of the longest prefix, by looking at all.
    fn longest<A: IpAddress>(entries: Entries<'_, A>, address: A) -> Option<u32> {
        let found = entries.iter().filter(|(prefix, _)| prefix.contains(address));
        found.max_by_key(|(prefix, _)| prefix.bits()).map(|&(_, value)| value)
    }

    fn check<A: IpAddress>(random: impl Fn(&mut fastrand::Rng) -> A, near: impl Fn(A, u128) -> A) {
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
