//! Hot. From a port to a list.

use std::collections::HashMap;

use crate::lists::{EMPTY, ListStart};

/// Number of ports.
pub(crate) const PORTS: usize = 1 << 16;

/// Ports of a page. Equal pages are stored once.
const PAGE: usize = 1 << 8;

/// The list of each port.
#[derive(Clone, Debug)]
pub(crate) struct PortLists {
    /// Where the page of each [`PAGE`] ports begins in `lists`.
    pages: Box<[u16; PORTS / PAGE]>,
    lists: Box<[ListStart]>,
}

impl PortLists {
    /// Makes it of the lists of consecutive ranges: the last port of each, and its list. The last
    /// range ends with the last port. `None` if all lists are empty.
    pub(crate) fn new(ranges: &[(u16, ListStart)]) -> Option<Self> {
        if ranges.iter().all(|&(_, list)| list == EMPTY) {
            return None;
        }
        let mut all = Vec::with_capacity(PORTS);
        ranges.iter().for_each(|&(last, list)| all.resize(usize::from(last) + 1, list));
        let mut pages = Box::new([0; PORTS / PAGE]);
        let mut lists = Vec::new();
        let mut known = HashMap::new();
        for (page, ports) in pages.iter_mut().zip(all.chunks_exact(PAGE)) {
            *page = *known.entry(ports).or_insert_with(|| {
                let start = lists.len() as u16;
                lists.extend(ports);
                start
            });
        }
        Some(Self { pages, lists: lists.into() })
    }

    #[inline(always)]
    pub(crate) fn find(&self, port: u16) -> ListStart {
        let port = usize::from(port);
        self.lists[usize::from(self.pages[port / PAGE]) + port % PAGE]
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.pages) + size_of_val(&*self.lists)
    }
}
