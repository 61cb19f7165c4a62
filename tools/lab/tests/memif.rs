//! weir on memif instead of AF_XDP: the same clients, another DPDK device.

use anyhow::ensure;
use weir_lab::clients::{self, Direction};
use weir_lab::services::{self, SERVER};
use weir_lab::{Datapath, OneNode, Options};

#[test]
fn clients_work_over_memif() {
    let options = Options { datapath: Datapath::Memif, ..Options::default() };
    OneNode::test(&options, |net| {
        let home = &net.homes[0];
        let file = services::start_http(&net.lab, &net.internet, 20_000_000)?;
        services::start_iperf3(&net.lab, &net.internet)?;
        services::start_dns(&net.lab, &net.internet)?;
        clients::ping(home, SERVER, 3, 56)?;
        clients::download(home, &file)?;
        clients::iperf3(home, Direction::Up, 2)?;
        clients::iperf3(home, Direction::Down, 2)?;
        clients::resolve_big(home)?;
        ensure!(net.weir.process().ended().is_none());
        Ok(())
    });
}
