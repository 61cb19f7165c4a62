//! One run in a process of its own: EAL, two ports, one generator.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{Eal, EalConfig, HugePages, MbufPool, Port, PortConfig};

use crate::gateway::Gateway;
use crate::generator::{Flood, FloodPlan, Generator, GeneratorError};
use crate::scenario::Scenario;
use crate::side::Side;
use crate::table::{Device, Table};

const BUFFERS: u32 = 16_384;
const DESCRIPTORS: u16 = 1024;
const MTU: u16 = 1500;
const MEMORY_MB: usize = 128;
/// How long the device may take to connect, and to answer ARP.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);

/// One port of a run.
#[derive(Clone, Debug)]
pub struct SidePlan {
    /// DPDK device arguments or a PCI address.
    pub device: String,
    /// The gateway the generator plays, host order.
    pub gateway: u32,
    /// The address of the device under test, host order.
    pub device_address: u32,
}

#[derive(Clone, Debug)]
pub struct RunPlan {
    pub access: SidePlan,
    pub internet: SidePlan,
    pub scenario: Scenario,
    pub device: Device,
    pub flood: FloodPlan,
    /// The core the generator runs on.
    pub core: usize,
    pub file_prefix: String,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "event")]
pub enum Event {
    /// The ports are up.
    Started {
        huge_pages: bool,
    },
    /// Every flow has its public endpoint; from here on all flows are established.
    Learned {
        sent: u64,
        wrong: u64,
    },
    Finished(Flood),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Dpdk(#[from] weir_dpdk::Error),
    #[error(transparent)]
    Generator(#[from] GeneratorError),
}

/// Runs all phases and reports each as it ends; the ports stay up while `report` takes the last event. Once per process: DPDK has one EAL.
/// The generator runs in the calling thread, which DPDK knows as its main one: its buffers come from a private cache.
pub fn run(plan: &RunPlan, mut report: impl FnMut(Event)) -> Result<(), RunError> {
    let eal = Eal::init(EalConfig {
        file_prefix: plan.file_prefix.clone(),
        control_cores: vec![plan.core],
        memory_mb: MEMORY_MB,
        hugepages: HugePages::Auto,
        extra: Vec::new(),
    })?;
    let table = Table::new(&plan.scenario, plan.device);
    let pool = MbufPool::new("traffic", BUFFERS, MbufPool::data_room_for(MTU), -1)?;
    let access = side(&eal, &plan.access, &pool)?;
    let internet = side(&eal, &plan.internet, &pool)?;
    report(Event::Started { huge_pages: eal.uses_huge_pages() });

    let mut generator = Generator::new(access, internet, table);
    generator.connect(DEVICE_PATIENCE)?;
    if plan.device == Device::Translates {
        generator.resolve(DEVICE_PATIENCE)?;
        let learned = generator.learn()?;
        report(Event::Learned { sent: learned.sent, wrong: learned.wrong });
    }
    report(Event::Finished(generator.flood(plan.flood)));
    Ok(())
}

fn side(eal: &Eal, plan: &SidePlan, pool: &MbufPool) -> Result<Side, weir_dpdk::Error> {
    let config = PortConfig {
        rx_descriptors: DESCRIPTORS,
        tx_descriptors: DESCRIPTORS,
        mtu: MTU,
        mac: None,
        pool: pool.clone(),
        socket: -1,
    };
    let port = Port::attach(eal, &plan.device, config)?;
    let gateway = Gateway {
        mac: port.mac(),
        address: plan.gateway,
        device_address: plan.device_address,
        device_mac: None,
    };
    Ok(Side::new(port, pool.clone(), gateway))
}
