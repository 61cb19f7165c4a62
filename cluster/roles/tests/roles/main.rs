//! [`Roles`](weir_roles::Roles) of one node, driven by hand. A whole cluster of nodes plays in
//! `tools/sim/`: its scenarios stand in `tools/sim/src/world/scenarios`, its random histories in
//! `tools/sim/tests`.

mod by_hand;
mod guests;
mod hand;
mod lost;
mod set_back;
