//! Which pages the tables lie on that a packet of an established flow reads at random.

use weir_flow::PageSize;

use crate::nat::Nat;

/// Page sizes of a worker's largest tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TablePages {
    /// Of the mapping records.
    pub mappings: PageSize,
    pub outbound_index: PageSize,
    pub inbound_index: PageSize,
}

impl TablePages {
    /// Returns each table with its name, as metrics label it.
    pub const fn named(&self) -> [(&'static str, PageSize); 3] {
        [
            ("mappings", self.mappings),
            ("outbound-index", self.outbound_index),
            ("inbound-index", self.inbound_index),
        ]
    }

    /// Returns the smallest of the sizes.
    pub fn smallest(&self) -> PageSize {
        self.mappings.min(self.outbound_index).min(self.inbound_index)
    }

    /// Returns the smaller page size of the two indexes.
    pub fn indexes(&self) -> PageSize {
        self.outbound_index.min(self.inbound_index)
    }
}

impl Nat {
    /// Returns the page sizes of the tables.
    pub(crate) fn table_pages(&self) -> TablePages {
        TablePages {
            mappings: self.mappings.page_size(),
            outbound_index: self.outbound_index.page_size(),
            inbound_index: self.inbound_index.page_size(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_page_size_of_any_table_counts() {
        let (small, medium, large) = (PageSize::Kib4, PageSize::Mib2, PageSize::Gib1);
        let pages = TablePages { mappings: large, outbound_index: medium, inbound_index: large };
        assert_eq!((pages.smallest(), pages.indexes()), (medium, medium));
        let pages = TablePages { mappings: small, ..pages };
        assert_eq!((pages.smallest(), pages.indexes()), (small, medium));
    }
}
