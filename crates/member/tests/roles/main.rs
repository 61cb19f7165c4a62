//! [`Roles`](weir_member::Roles) of one node, told by hand. A whole cluster of nodes plays in `sim/`: its scenarios stand in
//! `sim/src/world/scenarios`, its random histories in `sim/tests`.

mod by_hand;
mod guests;
mod hand;
mod lost;
mod set_back;
