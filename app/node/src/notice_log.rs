//! One log line per notice.

use crate::watch::{Notice, Place};

/// Logs the notice with its event name.
pub(crate) fn log_notice(notice: &Notice) {
    match notice {
        Notice::Ready => tracing::info!(event = "node-ready", "ready"),
        Notice::WorkerHung { worker, silent_ms } => {
            tracing::error!(event = "worker-hung", worker, silent_ms, "worker hangs");
        }
        Notice::WorkerResumed { worker } => {
            tracing::warn!(event = "worker-resumed", worker, "worker goes on");
        }
        Notice::LinkUp(Place { worker, side, device, .. }) => {
            tracing::info!(event = "link-up", worker, side, device, "link is up");
        }
        Notice::LinkDown(Place { worker, side, device, .. }) => {
            tracing::warn!(event = "link-down", worker, side, device, "link is down");
        }
        Notice::GatewayUp(Place { worker, side, gateways, .. }) => {
            tracing::info!(event = "gateway-up", worker, side, gateways, "gateway answers");
        }
        Notice::GatewayDown(Place { worker, side, gateways, .. }) => {
            tracing::warn!(
                event = "gateway-down",
                worker,
                side,
                gateways,
                "gateway does not answer"
            );
        }
        Notice::GatewayMoved(Place { worker, side, gateways, .. }, mac) => {
            tracing::warn!(
                event = "gateway-moved",
                worker,
                side,
                gateways,
                mac,
                "gateway answers at another MAC than before"
            );
        }
        Notice::ChecksumsWrong(Place { worker, side, device, .. }) => {
            tracing::warn!(
                event = "checksums-wrong",
                worker,
                side,
                device,
                "TCP comes with wrong checksums, so nobody answers it: a kernel on the other end of a virtual link leaves \
                 them unfinished (there: `ethtool -K INTERFACE tx off tso off gso off gro off`), or they are broken on the way"
            );
        }
        Notice::ClaimRefused(Place { worker, side, gateways, .. }, claims, mac) => {
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
        Notice::GatewaySilent(Place { worker, side, gateways, .. }) => {
            tracing::warn!(
                event = "gateway-silent",
                worker,
                side,
                gateways,
                "gateway has not answered ARP yet; asking on"
            );
        }
    }
}
