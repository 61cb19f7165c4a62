//! A whole range at one revision, page by page.

use etcd_client::{GetOptions, KeyValue};

use crate::error::{Cause, Error};
use crate::keys::Range;
use crate::link::Link;
use crate::revision::{Place, Revision};

/// Keys of one page: with values of 4 KiB a quarter of what one message may have.
const PAGE_KEYS: i64 = 256;

/// The keys of `range` in their order. The first page is linearizable, the others are of the same revision.
///
/// # Errors
/// When etcd does not answer or refuses, compacts that revision meanwhile, or has more than `keys_max` keys.
pub(crate) async fn list(link: &Link, range: Range) -> Result<(Place, Vec<KeyValue>), Error> {
    let start = link.keys.range(range);
    let operation = format!("list {start}");
    let mut end = start.clone().into_bytes();
    // The prefix ends with '/': the first key behind it begins with what follows '/'.
    *end.last_mut().expect("a prefix is not empty") += 1;
    let mut next = start.into_bytes();
    let mut place: Option<Place> = None;
    let mut all: Vec<KeyValue> = Vec::new();
    loop {
        let mut page = GetOptions::new().with_range(end.clone()).with_limit(PAGE_KEYS);
        if let Some(place) = place {
            page = page.with_revision(place.revision.0);
        }
        let mut answer =
            link.request(&operation, async |mut client| client.get(next, Some(page)).await).await?;
        let place = *place.get_or_insert_with(|| place_of(answer.header()));
        all.append(&mut answer.take_kvs());
        if all.len() > link.options.keys_max {
            let detail = format!("more than keys_max = {}", link.options.keys_max);
            return Err(Error::unsent(
                &link.options.endpoints.join(", "),
                &operation,
                Cause::TooLarge,
                detail,
            ));
        }
        let Some(last) = all.last().filter(|_| answer.more()) else { return Ok((place, all)) };
        next = last.key().to_vec();
        next.push(0);
    }
}

fn place_of(header: Option<&etcd_client::ResponseHeader>) -> Place {
    Place {
        cluster_id: header.map_or(0, etcd_client::ResponseHeader::cluster_id),
        revision: Revision(header.map_or(0, etcd_client::ResponseHeader::revision)),
        raft_term: header.map_or(0, etcd_client::ResponseHeader::raft_term),
    }
}
