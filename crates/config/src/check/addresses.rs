//! Each of weir's own addresses exists once: those of the workers and the tunnel endpoints.

use crate::check::{interfaces, refuse_repeats};
use crate::findings::Findings;
use crate::types::Config;

pub(crate) fn check(config: &Config, findings: &mut Findings<'_>) {
    let workers =
        interfaces(config).map(|(path, side)| (format!("{path}.address"), side.address.addr()));
    let endpoints =
        config.shards.iter().enumerate().filter_map(|(index, shard)| {
            Some((format!("shard[{index}].endpoint"), shard.endpoint?))
        });
    let own: Vec<_> = workers.chain(endpoints).collect();
    refuse_repeats(own.clone(), "address", findings);

    for (path, side) in interfaces(config) {
        for (index, gateway) in side.gateways.iter().enumerate() {
            let key = findings.element(&format!("{path}.gateway"), index);
            let holder = own.iter().find(|(_, address)| address == gateway);
            if let Some((holder, _)) = holder.filter(|(holder, _)| findings.is_good(holder)) {
                findings.error(
                    &key,
                    format!("{gateway} is weir's own ({holder})"),
                    "name the router",
                );
            }
        }
    }

    for (index, shard) in config.shards.iter().enumerate() {
        let key = format!("shard[{index}].endpoint");
        let access = config.workers.get(shard.worker).map(|worker| worker.access.address);
        let net = access.filter(|net| findings.is_good(&key) && net.prefix_len() > 0);
        if let (Some(net), Some(endpoint)) = (net, shard.endpoint) {
            if net.contains(&endpoint) && net.addr() != endpoint {
                let message = format!("{endpoint} lies in the connected prefix {}", net.trunc());
                let fix =
                    "nobody answers ARP for it: take an address outside and route it to the worker";
                findings.warning(&key, message, fix);
            }
        }
    }
}
