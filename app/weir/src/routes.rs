//! `weir routes`: compares the routes that a node wants with the kernel's and with those that BIRD
//! exports.

mod exports;
mod show;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use ipnet::{IpNet, Ipv4Net};
use weir_admin::api::{MemberStatus, RouteStatus, ShardStatus};
use weir_admin::client::{Client, ClientError};
use weir_routes::comparison::{ComparisonLine, SideRoutes, compare};
use weir_routes::{GuardOptions, Route, RouteSide, bird, dump};

use self::exports::SideExports;
use crate::node_socket::NodeSocket;

/// Most looks: a change that is under way is no difference, since it is done by a later look.
const LOOKS: usize = 3;
/// Time between two looks: longer than between two updates of the node's own status.
const PAUSE: Duration = Duration::from_millis(500);
/// Exit code if nothing differs as far as is known, but the node or BIRD did not answer.
const EXIT_UNKNOWN: u8 = 3;
/// Status code of a node that is in no cluster.
const NOT_FOUND: u16 = 404;

/// List the routes of a node in a cluster: as wanted, in the kernel, and as BIRD exports them.
///
/// Run it on the node, and in its network namespace if it has one. What differs is marked in words;
/// a change that is under way is waited for. BIRD and its protocols are those that the node watches
/// (`bird_socket`, `bird_access` and `bird_internet` of its file) unless options name others.
///
///   weir routes
///   weir routes --config /etc/weir/weir.toml --bird /run/bird-weir.ctl
///   weir routes --internet-protocol internet_switch,internet_switch6
///   weir routes --json | jq '.routes[] | select(.differences != [])'
///
/// Exit codes: 0 all is as wanted, 1 something differs, 3 the node or BIRD did not answer or a
/// session is down, and nothing else differs.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    node: NodeSocket,
    /// The node's file, which tells its admin socket.
    #[arg(long, value_name = "FILE", conflicts_with = "socket")]
    config: Option<PathBuf>,
    /// Control socket of BIRD. If the node watches no BIRD: /run/bird/bird.ctl.
    #[arg(long, value_name = "PATH")]
    bird: Option<PathBuf>,
    /// BIRD's protocols to the access switches. If the node watches none: access_switch.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    access_protocol: Vec<String>,
    /// BIRD's protocols to the internet switches. If the node watches none: internet_switch.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    internet_protocol: Vec<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// State of all routes at one moment.
struct Look {
    cluster: String,
    /// The node's own status of each route that it wants.
    wanted: BTreeMap<Route, RouteStatus>,
    shards: BTreeMap<(RouteSide, IpNet), u32>,
    lines: Vec<ComparisonLine>,
    /// Reasons why sessions of BIRD export nothing, or why that is not known.
    faults: Vec<SessionFault>,
}

/// Why a session of a side exports nothing, or why that is not known.
struct SessionFault {
    side: RouteSide,
    /// Whether the exports of the whole side are not known.
    is_of_side: bool,
    why: String,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    let look = match look_until_settled(args) {
        Ok(look) => look,
        Err(error) => {
            eprintln!("weir: {error:#}");
            return ExitCode::from(EXIT_UNKNOWN);
        }
    };
    let printed = if args.json { show::json(&look) } else { show::table(&look) };
    match printed {
        // The reader of the output may have seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => ExitCode::from(EXIT_UNKNOWN),
        _ => look.exit_code(),
    }
}

fn look_until_settled(args: &Args) -> anyhow::Result<Look> {
    let client = match &args.config {
        Some(file) => args.node.of_file(file)?,
        None => args.node.client()?,
    };
    let mut look = look(&client, args)?;
    for _ in 1..LOOKS {
        if look.differences() == 0 {
            break;
        }
        sleep(PAUSE);
        look = self::look(&client, args)?;
    }
    Ok(look)
}

fn look(client: &Client, args: &Args) -> anyhow::Result<Look> {
    let member = client.get::<MemberStatus>("/member").map_err(|error| match error {
        ClientError::Refused { code: NOT_FOUND, error } => anyhow::anyhow!(
            "{error}: it announces no routes; the routes to it stand in the switches themselves"
        ),
        error => error.into(),
    })?;
    let bird = exports::sessions_to_ask(args, member.bird_sessions);
    let shards = shards_by_prefix(&client.get::<Vec<ShardStatus>>("/shards")?);
    let wanted = by_route(member.routes)?;
    let routes: Vec<Route> = wanted.keys().copied().collect();
    let tables = GuardOptions::default().tables;
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    for (side, protocols) in
        [(RouteSide::Access, &bird.access), (RouteSide::Internet, &bird.internet)]
    {
        let table = tables.of(side);
        let kernel = dump(table).with_context(|| format!("the kernel's table {table}"))?;
        let exports =
            SideExports::read(protocols, |protocol| bird::exported(&bird.socket, protocol));
        let exported = exports.routes.as_deref();
        lines.extend(compare(&routes, SideRoutes { side, kernel: &kernel, exported }));
        let is_of_side = exported.is_none();
        let reasons = exports.faults.iter().map(ToString::to_string);
        faults.extend(reasons.map(|why| SessionFault { side, is_of_side, why }));
    }
    Ok(Look { cluster: member.cluster, wanted, shards, lines, faults })
}

fn by_route(statuses: Vec<RouteStatus>) -> anyhow::Result<BTreeMap<Route, RouteStatus>> {
    let route = |status: &RouteStatus| {
        let sides = [RouteSide::Access, RouteSide::Internet];
        let side = sides.into_iter().find(|side| side.to_string() == status.side)?;
        let prefix = status.prefix.parse().ok()?;
        Some(Route { side, prefix, metric: status.metric, next_hop: status.next_hop })
    };
    let pair = |status| Ok((route(&status).with_context(|| format!("{status:?}"))?, status));
    statuses.into_iter().map(pair).collect()
}

/// Returns the shard of each prefix, as far as the node's shards show it: they do not show the
/// address by which the switches steer a shard without a tunnel.
fn shards_by_prefix(shards: &[ShardStatus]) -> BTreeMap<(RouteSide, IpNet), u32> {
    let mut by_prefix = BTreeMap::new();
    for shard in shards {
        let endpoint = shard.endpoint.map(|it| (RouteSide::Access, Ipv4Net::from(it).into()));
        let public = shard.public.iter().chain(&shard.public6).filter_map(|it| it.parse().ok());
        let public = public.map(|it: IpNet| (RouteSide::Internet, it.trunc()));
        by_prefix.extend(endpoint.into_iter().chain(public).map(|key| (key, shard.shard)));
    }
    by_prefix
}

impl Look {
    /// Returns the number of routes with differences.
    fn differences(&self) -> usize {
        self.lines.iter().filter(|line| !line.differences.is_empty()).count()
    }

    fn status(&self, line: &ComparisonLine) -> Option<&RouteStatus> {
        self.wanted.get(&line.wanted?)
    }

    fn shard(&self, line: &ComparisonLine) -> Option<u32> {
        self.shards.get(&(line.side, line.prefix)).copied()
    }

    /// Whether the exports of a side are not known.
    fn is_silent(&self, side: RouteSide) -> bool {
        self.faults.iter().any(|fault| fault.side == side && fault.is_of_side)
    }

    fn exit_code(&self) -> ExitCode {
        match (self.differences(), self.faults.is_empty()) {
            (0, true) => ExitCode::SUCCESS,
            (0, false) => ExitCode::from(EXIT_UNKNOWN),
            _ => ExitCode::FAILURE,
        }
    }
}
