//! One run in its own process: EAL, two ports, one generator.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_dpdk::{Eal, EalConfig, HugePages, MbufPool, Port, PortConfig};

use crate::gateway::{Gateway, Gateway6};
use crate::generator::{
    Flood, FloodPlan, Generator, GeneratorError, Load, Progress, Size, Traffic, TrafficError,
};
use crate::scenario::{Protocol, Scenario};
use crate::search::{self, Found, SearchPlan, Step};
use crate::side::Side;
use crate::table::{Device, Table};

const BUFFERS: u32 = 16_384;
const DESCRIPTORS: u16 = 1024;
const MTU: u16 = 1500;
const MEMORY_MB: usize = 128;
/// Time limits for the device to connect, and to answer ARP and neighbor discovery.
const DEVICE_PATIENCE: Duration = Duration::from_secs(10);
/// The same for a device that translates: it may build the tables of sixty million flows first, or
/// compile a million rules.
const TRANSLATOR_PATIENCE: Duration = Duration::from_secs(600);

/// One port of a run.
#[derive(Clone, Debug)]
pub struct SidePlan {
    /// DPDK device arguments or a PCI address.
    pub device: String,
    /// Address of the gateway that the generator simulates, host order.
    pub gateway: u32,
    /// The address of the device under test, host order.
    pub device_address: u32,
    /// The same of IPv6, if the side has it.
    pub gateway6: Option<Gateway6>,
}

/// The task once the device is found.
#[derive(Clone, Copy, Debug)]
pub enum Task {
    Flood(FloodPlan, Load),
    Search(SearchPlan),
}

#[derive(Clone, Debug)]
pub struct RunPlan {
    pub access: SidePlan,
    pub internet: SidePlan,
    pub scenario: Scenario,
    pub device: Device,
    pub protocol: Protocol,
    pub size: Size,
    pub task: Task,
    /// How long flows that the device refuses are tried again before the flood.
    pub learn_patience: Duration,
    /// The core that the generator runs on.
    pub core: usize,
    pub file_prefix: String,
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
        /// Time from the first packet sent to the last flow established.
        #[serde(default)]
        seconds: f64,
        /// Flows established per second.
        #[serde(default)]
        rate: f64,
    },
    Progress(Progress),
    /// One step of a search.
    Step(Step),
    /// The result of a search.
    Found(Found),
    Finished(Flood),
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Dpdk(#[from] weir_dpdk::DpdkError),
    #[error(transparent)]
    Generator(#[from] GeneratorError),
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    #[error("no memory for the records of {flows} flows: {source}")]
    Memory { flows: u32, source: weir_flow::OutOfMemory },
    #[error("a device that passes packets through opens no flows: there is no rate to search")]
    NothingToEstablish,
}

/// Runs all phases and reports each as it ends; the ports stay up while `report` handles the last
/// event. Once per process: DPDK has one EAL. The generator runs in the calling thread, which is
/// DPDK's main thread: its buffers come from a private cache.
pub fn run(plan: &RunPlan, mut report: impl FnMut(Event)) -> Result<(), RunError> {
    let traffic = Traffic {
        access: plan.scenario.access(),
        protocol: plan.protocol,
        families: plan.scenario.families(),
        size: plan.size,
    };
    traffic.check()?;
    let passes_through = plan.device == Device::PassesThrough;
    if passes_through && matches!(&plan.task, Task::Search(search) if search.establishes()) {
        return Err(RunError::NothingToEstablish);
    }
    let eal = Eal::init(EalConfig {
        file_prefix: plan.file_prefix.clone(),
        control_cores: vec![plan.core],
        memory_mb: MEMORY_MB,
        hugepages: HugePages::Auto,
        extra: Vec::new(),
    })?;
    let table = Table::new(&plan.scenario, plan.device)
        .map_err(|source| RunError::Memory { flows: plan.scenario.flows_total(), source })?;
    let pool = MbufPool::new("traffic", BUFFERS, MbufPool::data_room_for(MTU), -1)?;
    let access_mtu = MTU + traffic.access.tunnel_len() as u16;
    let access = side(&eal, &plan.access, &pool, access_mtu)?;
    let internet = side(&eal, &plan.internet, &pool, MTU)?;
    report(Event::Started { huge_pages: eal.uses_huge_pages() });

    let mut generator = Generator::new(access, internet, table, traffic);
    let patience = match plan.device {
        Device::PassesThrough => DEVICE_PATIENCE,
        Device::Translates | Device::TranslatesPerRemote => TRANSLATOR_PATIENCE,
    };
    generator.connect(patience)?;
    if !passes_through {
        generator.resolve(DEVICE_PATIENCE)?;
    }
    let learns = !passes_through && !matches!(&plan.task, Task::Search(s) if s.establishes());
    if learns {
        let learned = generator.learn(plan.learn_patience, |progress| {
            report(Event::Progress(progress));
        })?;
        let (sent, wrong, seconds) = (learned.sent, learned.wrong, learned.seconds);
        report(Event::Learned { sent, wrong, seconds, rate: learned.rate() });
    }
    match plan.task {
        Task::Flood(flood, load) => {
            let flood = generator.flood(flood, load, |progress| report(Event::Progress(progress)));
            report(Event::Finished(flood));
        }
        Task::Search(search) => {
            let found = search::run(&mut generator, &search, |step| report(Event::Step(step)));
            report(Event::Found(found));
        }
    }
    Ok(())
}

fn side(
    eal: &Eal,
    plan: &SidePlan,
    pool: &MbufPool,
    mtu: u16,
) -> Result<Side, weir_dpdk::DpdkError> {
    let config = PortConfig {
        rx_descriptors: DESCRIPTORS,
        tx_descriptors: DESCRIPTORS,
        mtu,
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
        ipv6: plan.gateway6,
    };
    Ok(Side::new(port, pool.clone(), gateway))
}
