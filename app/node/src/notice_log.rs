//! One log line per notice.

use crate::watch::{StatusChange, WatchedSide};

/// Logs the notice with its event name.
pub(crate) fn log_notice(notice: &StatusChange) {
    match notice {
        StatusChange::Ready => tracing::info!(event = "node-ready", "ready"),
        StatusChange::WorkerHung { worker, silent_ms } => {
            tracing::error!(event = "worker-hung", worker, silent_ms, "worker hangs");
        }
        StatusChange::WorkerResumed { worker } => {
            tracing::warn!(event = "worker-resumed", worker, "worker goes on");
        }
        StatusChange::LinkUp(WatchedSide { worker, side, device, .. }) => {
            tracing::info!(event = "link-up", worker, side, device, "link is up");
        }
        StatusChange::LinkDown(WatchedSide { worker, side, device, .. }) => {
            tracing::warn!(event = "link-down", worker, side, device, "link is down");
        }
        StatusChange::GatewayUp(WatchedSide { worker, side, gateways, .. }) => {
            tracing::info!(event = "gateway-up", worker, side, gateways, "gateway answers");
        }
        StatusChange::GatewayDown(WatchedSide { worker, side, .. }, why) => {
            tracing::warn!(
                event = "gateway-down",
                worker,
                side,
                why,
                "side cannot forward any more"
            );
        }
        StatusChange::GatewayMoved(WatchedSide { worker, side, gateways, .. }, mac) => {
            tracing::warn!(
                event = "gateway-moved",
                worker,
                side,
                gateways,
                mac,
                "gateway answers at another MAC than before"
            );
        }
        StatusChange::ChecksumsWrong(WatchedSide { worker, side, device, .. }) => {
            tracing::warn!(
                event = "checksums-wrong",
                worker,
                side,
                device,
                "TCP comes with wrong checksums, so nobody answers it: a kernel on the other end of a virtual link leaves \
                 them unfinished (there: `ethtool -K INTERFACE tx off tso off gso off gro off`), or they are broken on the way"
            );
        }
        StatusChange::ClaimRefused(side, claims, mac) => log_refused_claims(side, *claims, mac),
        StatusChange::AddressConflict(side, messages, mac) => {
            log_address_conflict(side, *messages, mac);
        }
        StatusChange::GatewaySilent(WatchedSide { worker, side, .. }, why) => {
            tracing::warn!(
                event = "gateway-silent",
                worker,
                side,
                why,
                "side cannot forward yet; asking on"
            );
        }
    }
}

fn log_refused_claims(
    WatchedSide { worker, side, gateways, .. }: &WatchedSide,
    claims: u64,
    mac: &str,
) {
    tracing::warn!(
        event = "neighbor-claim-refused",
        worker,
        side,
        gateways,
        claims,
        mac,
        "ARP named another MAC for a neighbour that answers at its own"
    );
}

fn log_address_conflict(WatchedSide { worker, side, .. }: &WatchedSide, messages: u64, mac: &str) {
    tracing::warn!(
        event = "duplicate-address",
        worker,
        side,
        messages,
        mac,
        "another station claims an IPv6 address of this side: one of the two must change"
    );
}
