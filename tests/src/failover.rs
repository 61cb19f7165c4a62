//! Faults, one after the other, on a cluster under load: what homes saw of each, and whether that is what is promised.
//!
//! ```text
//!   event --> before | fault | until every shard has its copies, and a while longer | all connections are called
//!             '------------------------- window: probes, connections, map, routes -------------------------'
//!                                          --> observation --> promise kept? --> table, timeline
//! ```

mod accounts;
mod act;
mod event;
mod observation;
mod observer;
mod plot;
mod promise;
mod route_history;
mod route_watch;
mod table;
mod timeline;
mod upgrade;

pub use accounts::{AtRest, Leftovers, Memory};
pub use event::{CONTROL, EVENTS, Event, Moment, TRIES_MAX};
pub use observation::{Observation, Side};
pub use observer::{Observer, Pace};
pub use promise::Promise;
pub use route_history::{Departures, RouteChange, RouteHistory};
pub use table::{render, summary};
pub use timeline::{MapSample, Timeline};
