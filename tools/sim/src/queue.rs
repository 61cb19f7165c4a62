//! Future events in the order of virtual time; events of the same moment stay in the order in which
//! they were added.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

#[derive(Debug)]
struct Due<E> {
    at_us: u64,
    number: u64,
    event: E,
}

/// Reversed: the heap has its largest element on top.
impl<E> Ord for Due<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.number).cmp(&(self.at_us, self.number))
    }
}

impl<E> PartialOrd for Due<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Due<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<E> Eq for Due<E> {}

/// Events and their times, microseconds.
#[derive(Debug)]
pub(crate) struct Queue<E> {
    heap: BinaryHeap<Due<E>>,
    pushed: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<E> Queue<E> {
    pub(crate) fn push(&mut self, at_us: u64, event: E) {
        self.pushed += 1;
        self.heap.push(Due { at_us, number: self.pushed, event });
    }

    /// Returns the next event, if it is due by `by_us`.
    pub(crate) fn pop(&mut self, by_us: u64) -> Option<(u64, E)> {
        if self.heap.peek()?.at_us > by_us {
            return None;
        }
        self.heap.pop().map(|due| (due.at_us, due.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_then_of_insertion() {
        let mut queue = Queue::default();
        for (at_us, event) in [(5, 'c'), (3, 'a'), (5, 'd'), (4, 'b'), (9, 'e')] {
            queue.push(at_us, event);
        }
        let due: String = std::iter::from_fn(|| queue.pop(8)).map(|(_, event)| event).collect();
        assert_eq!(due, "abcd");
        assert_eq!(queue.pop(9), Some((9, 'e')));
        assert_eq!(queue.pop(u64::MAX), None);
    }
}
