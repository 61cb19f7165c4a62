//! Faults, one after the other, on a cluster under load: what homes saw of each, and whether the
//! promise was kept.
//!
//! ```text
//!   event --> before | fault | until every shard has its copies, and longer | connections called
//!             '----------------- window: probes, connections, map, routes ------------------'
//!                                          --> observation --> promise kept? --> table, picture
//! ```

mod accounts;
mod act;
mod event;
mod observation;
mod observer;
mod picture;
mod plot;
mod promise;
mod repetition;
mod route_history;
mod route_watch;
mod table;
mod timeline;
mod upgrade;

pub use accounts::{AtRest, Leftovers, Memory};
pub use event::{CONTROL, EVENTS, Event, Moment, RunProgress, repeatable};
pub use observation::{Around, BIN, Observation, OfVersion, Side};
pub use observer::{Observer, Pace};
pub use plot::picture;
pub use promise::Promise;
pub use repetition::TRIES_MAX;
pub use route_history::{Departures, RouteChange, RouteHistory};
pub use table::{head, render, row, summary};
pub use timeline::{MapSample, Timeline};
