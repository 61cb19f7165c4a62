//! Asks nodes for their reports over HTTP, one request per connection.
//!
//! It does not report why a node gave no answer: a node that cannot be asked is not thereby lost.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use weir_map::map::EntryError;
use weir_map::{Incarnation, NodeId, ShardEntry, ShardId};

use crate::records::{ActingAnswer, DoubtAnswer, NodeAnswer, TROUBLES_MAX};
use crate::run::Reports;
use crate::state::{BirdDown, NodeDoubts, NodeReport, NodeTroubles};

/// Longest text, in characters, that is kept of a trouble that a node reports of itself.
const WORDS_MAX: usize = 200;

const PATH: &str = "/report";
/// Longest answer: a worker that is acting primary of all shards of the largest cluster answers
/// with 1 MiB.
const ANSWER_BYTES_MAX: usize = 4 << 20;

type ReportError = Box<dyn Error + Send + Sync>;

/// Asks each node at the address that its record names.
#[derive(Clone, Copy, Debug)]
pub struct HttpReports;

impl Reports for HttpReports {
    async fn ask(&self, node: &NodeId, admin: Option<SocketAddr>) -> Option<NodeReport> {
        let admin = admin?;
        let report = match fetch(admin).await {
            Ok(body) => understand(node, &body),
            Err(error) => Err(error),
        };
        report
            .inspect_err(|error| tracing::debug!(%node, %admin, %error, "a node gave no report"))
            .ok()
    }
}

async fn fetch(admin: SocketAddr) -> Result<Bytes, ReportError> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get(PATH).header(header::HOST, admin.to_string());
    let request = request.body(Empty::<Bytes>::new())?;
    let answer = async {
        let response = sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("it answered {}", response.status()).into());
        }
        Ok(Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes())
    };
    // The connection ends with this request. If it ends before, `send_request` returns the error.
    let carry = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        answer = answer => answer,
        never = carry => match never {},
    }
}

fn understand(asked: &NodeId, body: &[u8]) -> Result<NodeReport, ReportError> {
    let answer: NodeAnswer = serde_json::from_slice(body)?;
    if answer.node != asked.as_str() {
        return Err(format!("{} answered", answer.node).into());
    }
    let hears = answer.hears.into_iter();
    let hears = hears.map(|(node, is_heard)| NodeId::new(&node).map(|node| (node, is_heard)));
    // Doubts that cannot be parsed are dropped: there is no telling which shards they name.
    let doubts = doubts_of(answer.doubts, answer.doubts_total).unwrap_or_default();
    let own = answer.acting.into_iter().filter(|acting| acting.worker.node == *asked);
    let bird_down = answer.bird_down.iter().filter_map(|it| BirdDown::new(&it.side, &it.cause));
    let mut bird_down: Vec<BirdDown> = bird_down.collect();
    bird_down.sort();
    bird_down.dedup_by_key(|it| it.side);
    Ok(NodeReport {
        node: asked.clone(),
        hears: hears.collect::<Result<_, _>>()?,
        loads: answer.loads.into_iter().map(|(shard, load)| (ShardId(shard), load)).collect(),
        broken: answer.broken,
        bird_down,
        doubts,
        generation: answer.generation,
        troubles: NodeTroubles {
            is_still: answer.is_still,
            why: answer.troubles.iter().take(TROUBLES_MAX).map(|why| shortened(why)).collect(),
        },
        acting: own
            .map(|ActingAnswer { shard, worker, boot_id, term }| {
                (ShardId(shard), Incarnation { worker, boot_id }, term)
            })
            .collect(),
    })
}

/// Cuts a text to the length that a report in etcd has room for.
fn shortened(words: &str) -> String {
    words.chars().take(WORDS_MAX).collect()
}

fn doubts_of(doubts: Vec<DoubtAnswer>, total: Option<usize>) -> Result<NodeDoubts, EntryError> {
    let doubts = doubts.into_iter().map(|doubt| {
        let held = doubt.entry.map(|entry| ShardEntry::from_json(entry.to_string().as_bytes()));
        Ok((ShardId(doubt.shard), (doubt.known, held.transpose()?)))
    });
    let shards: BTreeMap<_, _> = doubts.collect::<Result<_, EntryError>>()?;
    // A node of an earlier version does not state the total.
    let are_all = total.is_some_and(|total| total <= shards.len());
    Ok(NodeDoubts { shards, are_all })
}

#[cfg(test)]
mod tests {
    use bolero::check;

    use super::*;

    /// Pieces of an answer, joined in any order and any number of times.
    const FIELDS: [&str; 16] = [
        r#""node":"n1""#,
        r#""node":"n2""#,
        r#""hears":{"n2":true,"n3":false}"#,
        r#""hears":{"../n2":true}"#,
        r#""loads":{"7":18446744073709551615,"8":0}"#,
        r#""loads":{"-1":1}"#,
        r#""broken":[0,65535]"#,
        r#""acting":[{"shard":7,"worker":"n1/0","boot_id":"00000000000000000000000000000001","term":4294967295}]"#,
        r#""acting":[{"shard":7,"worker":"n2/0","boot_id":"00000000000000000000000000000001","term":1}]"#,
        r#""doubts":[{"shard":7,"known":18446744073709551615}]"#,
        r#""doubts":[{"shard":7,"known":9,"entry":{"term":1}}]"#,
        r#""bird_down":[{"side":"access","cause":"no-answer"},{"side":"access","cause":"x"}]"#,
        r#""bird_down":[{"side":"internet","cause":"not-exporting"},{"side":"up","cause":""}]"#,
        r#""doubts_total":1"#,
        r#""doubts_total":18446744073709551615"#,
        r#""later":{"a":[]}"#,
    ];

    /// Checks that an accepted answer names the node that was asked and reports only that node's
    /// own workers.
    #[test]
    fn answer() {
        let asked = NodeId::new("n1").unwrap();
        check!().with_type::<(Vec<u8>, Vec<(u16, u8)>, Vec<u8>)>().for_each(
            |(fields, edits, any)| {
                let fields = fields.iter().map(|at| FIELDS[usize::from(*at) % FIELDS.len()]);
                let fields: Vec<&str> = fields.take(8).collect();
                let mut text = format!("{{{}}}", fields.join(",")).into_bytes();
                for (at, value) in edits.iter().take(3) {
                    let at = usize::from(*at) % text.len();
                    text[at] = *value;
                }
                for body in [&text, any] {
                    let Ok(report) = understand(&asked, body) else { continue };
                    let answer: NodeAnswer = serde_json::from_slice(body).unwrap();
                    assert_eq!((&report.node, answer.node.as_str()), (&asked, "n1"));
                    assert!(report.acting.iter().all(|(_, who, _)| who.worker.node == asked));
                    assert_eq!(report.loads.len(), answer.loads.len());
                    assert!(report.bird_down.len() <= answer.bird_down.len().min(2));
                    // The doubts count as complete only if the answer stated their total.
                    assert!(!report.doubts.are_all || answer.doubts_total.is_some());
                    let again = serde_json::to_vec(&answer).unwrap();
                    assert_eq!(serde_json::from_slice::<NodeAnswer>(&again).unwrap(), answer);
                }
            },
        );
    }
}
