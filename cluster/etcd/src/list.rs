//! A list of a whole range at one revision, page by page.

use crate::error::Cause;
use crate::message::{EtcdAnswer, EtcdRequest, RequestFailure, end_of};
use crate::revision::{HistoryPosition, Versioned};

/// Keys of one page: with values of 4 KiB a page takes a quarter of the largest message.
const PAGE_KEYS: usize = 256;

/// A list under way. The first page is linearizable, the others are of the same revision.
#[derive(Debug)]
pub(crate) struct KeyListing {
    end: String,
    /// Path at which the next page begins.
    next: String,
    position: Option<HistoryPosition>,
    found: Vec<(String, Versioned)>,
    keys_max: usize,
}

/// The paths of a range with their values, in order.
pub(crate) type ListedKeys = (HistoryPosition, Vec<(String, Versioned)>);

impl KeyListing {
    /// Starts a list of the paths that begin with `prefix`; a list of more than `keys_max` keys
    /// fails.
    pub(crate) fn new(prefix: &str, keys_max: usize) -> Self {
        let (end, next) = (end_of(prefix), prefix.to_owned());
        Self { end, next, position: None, found: Vec::new(), keys_max }
    }

    /// Returns the request for the next page.
    pub(crate) fn request(&self) -> EtcdRequest {
        EtcdRequest::Range {
            start: self.next.clone(),
            end: self.end.clone(),
            limit: PAGE_KEYS,
            revision: self.position.map(|position| position.revision),
        }
    }

    /// Takes a page. None: another page is to be requested.
    ///
    /// # Errors
    /// When there are more keys than `keys_max`, or the page cannot follow the previous one.
    pub(crate) fn take(&mut self, page: EtcdAnswer) -> Result<Option<ListedKeys>, RequestFailure> {
        let failed = |cause, detail| Err(RequestFailure::Failed { cause, detail });
        let EtcdAnswer::Range { position, found, has_more } = page else {
            return failed(Cause::Other, "this is no answer to a list".to_owned());
        };
        let position = *self.position.get_or_insert(position);
        self.found.extend(found);
        if self.found.len() > self.keys_max {
            return failed(Cause::TooLarge, format!("more than keys_max = {}", self.keys_max));
        }
        let next = match self.found.last() {
            Some((last, _)) if has_more => format!("{last}\0"),
            _ => return Ok(Some((position, std::mem::take(&mut self.found)))),
        };
        // A path that is not UTF-8 may be decoded to one that sorts before it.
        if next <= self.next {
            return failed(
                Cause::Other,
                format!("{last} is no path", last = next.trim_end_matches('\0')),
            );
        }
        self.next = next;
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::revision::{LeaseId, Revision};

    fn page(revision: i64, paths: &[&str], has_more: bool) -> EtcdAnswer {
        let position =
            HistoryPosition { cluster_id: 1, revision: Revision(revision), raft_term: 2 };
        let held = Versioned {
            value: Vec::new(),
            create_revision: Revision(1),
            mod_revision: Revision(1),
            lease: None::<LeaseId>,
        };
        let found = paths.iter().map(|path| ((*path).to_owned(), held.clone())).collect();
        EtcdAnswer::Range { position, found, has_more }
    }

    #[test]
    fn all_pages_are_of_the_revision_of_the_first() {
        let mut listing = KeyListing::new("/a/", 9);
        assert_eq!(listing.take(page(7, &["/a/1", "/a/2"], true)), Ok(None));
        let EtcdRequest::Range { start, end, revision, .. } = listing.request() else { panic!() };
        assert_eq!((start.as_str(), end.as_str()), ("/a/2\0", "/a0"));
        assert_eq!(revision, Some(Revision(7)));
        let (position, found) = listing.take(page(9, &["/a/3"], false)).unwrap().unwrap();
        assert_eq!((position.revision, found.len()), (Revision(7), 3));
    }

    #[test]
    fn a_list_that_is_too_long_or_goes_back_fails() {
        let mut listing = KeyListing::new("/a/", 1);
        assert!(listing.take(page(7, &["/a/1", "/a/2"], true)).is_err());
        let mut listing = KeyListing::new("/a/", 9);
        assert_eq!(listing.take(page(7, &["/a/2"], true)), Ok(None));
        assert!(listing.take(page(7, &["/a/1"], true)).is_err());
    }
}
