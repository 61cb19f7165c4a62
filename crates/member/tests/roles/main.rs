//! A small cluster of [`Roles`](weir_member::Roles): roles, orders, routes and changes through failures.

mod by_hand;
mod dice;
mod guests;
mod hand;
mod histories;
mod lost;
mod scenarios;
mod set_back;
mod store;
mod worker;
mod world;
