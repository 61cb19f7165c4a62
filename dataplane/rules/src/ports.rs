//! Hot. From a port to a list: ports with the same list are a class.

use crate::lists::ListStart;

/// Number of ports.
pub(crate) const PORTS: usize = 1 << 16;

/// The list of each port.
#[derive(Clone, Debug)]
pub(crate) struct PortLists {
    /// The class of each port; of all ports, if there is one class.
    classes: Box<[u16]>,
    /// The list of each class.
    lists: Vec<ListStart>,
}

impl PortLists {
    /// Makes it of the lists of consecutive ranges: the last port of each, and its list. The last
    /// range ends with the last port.
    pub(crate) fn new(ranges: &[(u16, ListStart)]) -> Self {
        let mut lists: Vec<ListStart> = ranges.iter().map(|&(_, list)| list).collect();
        lists.sort_unstable();
        lists.dedup();
        if let [list] = *lists {
            return Self { classes: [0].into(), lists: vec![list] };
        }
        let mut classes = Vec::with_capacity(PORTS);
        for (last, list) in ranges {
            let class = lists.binary_search(list).expect("each list is among the lists") as u16;
            classes.resize(usize::from(*last) + 1, class);
        }
        Self { classes: classes.into(), lists }
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, port: u16) {
        weir_flow::prefetch(&self.classes, self.place(port));
    }

    #[inline(always)]
    pub(crate) fn find(&self, port: u16) -> ListStart {
        self.lists[usize::from(self.classes[self.place(port)])]
    }

    #[inline(always)]
    fn place(&self, port: u16) -> usize {
        usize::from(port) & (self.classes.len() - 1)
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.classes) + size_of_val(&*self.lists)
    }
}
