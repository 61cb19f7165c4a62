//! Every key of the file, with type, range, unit, default and meaning. The one list behind parser and reference.

use crate::key::{Key, Kind, Preset, SectionDoc};

use Kind::{Boolean, Choice, Form, Integer};
use Preset::{Absent, Profile, Required, Value};

pub(crate) const SECTIONS: &[SectionDoc] = &[
    SectionDoc {
        id: "",
        title: "Top level",
        about: "The sections of the file. `[[worker]]` and `[[shard]]` are repeated, one for each worker and shard.",
    },
    SectionDoc { id: "node", title: "`[node]`", about: "The process." },
    SectionDoc {
        id: "worker",
        title: "`[[worker]]`",
        about: "A thread pinned to a core, with its own port, MAC and address on each side.",
    },
    SectionDoc {
        id: "interface",
        title: "`worker.access` and `worker.internet`",
        about: "One side of a worker. The access side faces the homes, the internet side the world.",
    },
    SectionDoc { id: "access", title: "`[access]`", about: "How homes reach weir, and which." },
    SectionDoc {
        id: "nat",
        title: "`[nat]`",
        about: "Translation and filtering, the same for every shard.",
    },
    SectionDoc {
        id: "timeouts",
        title: "`[timeouts]`",
        about: "How long a session may be idle until it is removed. A key set here overrides the profile.",
    },
    SectionDoc {
        id: "fragments",
        title: "`[fragments]`",
        about: "Limits of each worker for packets that arrive in fragments.",
    },
    SectionDoc {
        id: "shard",
        title: "`[[shard]]`",
        about: "A fixed group of homes with their public addresses, served by one worker.",
    },
];

const fn key(
    section: &'static str,
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    default: Preset,
    about: &'static str,
) -> Key {
    Key { section, name, kind, unit, default, about }
}

const PREFIXES: Kind =
    Form("list of strings", "IPv4 prefixes `\"a.b.c.d/length\"` without host bits, none twice");
const TIMER: Kind = Integer(1, 86_400 * 7);

#[rustfmt::skip]
pub(crate) const KEYS: &[Key] = &[
    key("", "node", Form("table", "see below"), "", Absent("all defaults"), "The process."),
    key("", "worker", Form("tables", "at least one"), "", Required, "The workers."),
    key("", "access", Form("table", "see below"), "", Required, "How homes reach weir."),
    key("", "nat", Form("table", "see below"), "", Absent("all defaults"), "Translation and filtering."),
    key("", "timeouts", Form("table", "see below"), "", Absent("all defaults"), "Idle times of sessions."),
    key("", "fragments", Form("table", "see below"), "", Absent("all defaults"), "Limits for fragments."),
    key("", "shard", Form("tables", "at least one"), "", Required, "The shards."),

    key("node", "name", Form("string", "1 to 63 letters, digits, `.`, `_`, `-`; begins with a letter or digit"), "", Value("\"weir\""),
        "Name of this node, in logs, in the block log and in the default socket path. Two processes on one machine need two names."),
    key("node", "poll", Choice(&["adaptive", "busy"]), "", Value("\"adaptive\""),
        "How workers wait for packets: `adaptive` sleeps in steps when idle, `busy` never sleeps and gives the lowest latency."),
    key("node", "control_cores", Form("list of integers", "1 to 1024 core numbers 0..=1023, best none of a worker"), "", Absent("all cores without a worker; core 0 if there are none"),
        "Cores of all threads that are not workers: main thread, admin API, log writer."),
    key("node", "hugepages", Choice(&["auto", "never"]), "", Value("\"auto\""),
        "`auto` uses huge pages when the machine has some."),
    key("node", "memory_mb", Integer(64, 1_048_576), "MiB", Absent("computed from the workers' ports"),
        "Memory of the EAL, for packet buffers."),
    key("node", "eal", Form("list of strings", "no empty string"), "", Value("[]"),
        "Extra DPDK EAL arguments, added to those weir builds."),
    key("node", "admin_socket", Form("string", "absolute path, at most 107 bytes"), "", Absent("`/run/weir/<name>.sock`"),
        "Unix socket of the admin API."),
    key("node", "admin_group", Form("string", "a group name"), "", Absent("`weir` where that group exists, else the group of the process"),
        "Group that may read the admin socket."),
    key("node", "metrics", Form("string", "`\"address:port\"`, IPv6 as `\"[address]:port\"`"), "", Absent("no metrics endpoint"),
        "Where Prometheus metrics are served, e.g. `\"127.0.0.1:9105\"`."),
    key("node", "log_level", Choice(&["error", "warn", "info", "debug", "trace"]), "", Value("\"info\""),
        "Least severity that is logged."),
    key("node", "log_format", Choice(&["text", "json"]), "", Value("\"text\""), "Form of the operational log."),
    key("node", "block_log", Form("string", "a path"), "", Absent("no block log"),
        "File of the NAT block log: JSON lines, one per port block allocated or released; reopened on SIGHUP."),

    key("worker", "core", Integer(0, 1023), "", Required, "CPU core of the thread. No two workers share one."),
    key("worker", "access", Form("table", "see below"), "", Required, "The side of the homes."),
    key("worker", "internet", Form("table", "see below"), "", Required, "The side of the Internet."),
    key("worker", "rx_descriptors", Integer(64, 32_768), "descriptors", Value("1024"), "Receive ring of each port; a power of two."),
    key("worker", "tx_descriptors", Integer(64, 32_768), "descriptors", Value("1024"), "Transmit ring of each port; a power of two."),

    key("interface", "device", Form("string", "a PCI address or DPDK device arguments without spaces"), "", Required,
        "The port: `\"0000:01:00.0\"`, `\"net_af_xdp0,iface=eth1\"`, `\"net_memif0,socket=/run/m.sock\"`, ... Each device once."),
    key("interface", "address", Form("string", "`\"a.b.c.d/length\"`, length 1..=31"), "", Required,
        "The worker's own address on this side with the length of the connected prefix."),
    key("interface", "gateway", Form("string or list of strings", "1 to 16 addresses in the connected prefix"), "", Required,
        "Next hops. Live ones share the flows."),
    key("interface", "vlan", Integer(1, 4094), "", Absent("untagged"), "802.1Q VLAN."),
    key("interface", "mtu", Integer(576, 9216), "bytes", Value("1500"), "Largest IPv4 packet, without Ethernet and VLAN headers."),
    key("interface", "mac", Form("string", "six hex bytes `\"02:00:00:00:00:01\"`, unicast"), "", Absent("the device's own"), "MAC address to set on the port."),

    key("access", "mode", Choice(&["gre", "plain"]), "", Value("\"gre\""),
        "`gre`: a home is the outer source of a GRE tunnel, its shard the outer destination. `plain`: a home is an inside address, its shard the prefix it lies in."),
    key("access", "subscribers", PREFIXES, "", Required,
        "Homes outside these prefixes are not served: outer sources in gre mode, inside addresses in plain mode."),
    key("access", "gre_key", Choice(&["ignore", "subscriber"]), "", Value("\"ignore\""),
        "`subscriber`: the GRE key belongs to the identity of the home, so one outer source may carry several. `ignore`: the key is only echoed."),

    key("nat", "enabled", Boolean, "", Value("true"), "`false`: a stateful firewall without translation."),
    key("nat", "filtering", Choice(&["address-and-port-dependent", "address-dependent", "endpoint-independent"]), "", Value("\"address-and-port-dependent\""),
        "Who outside may send to a mapping (RFC 4787 section 5)."),
    key("nat", "port_block", Integer(64, 8192), "ports", Value("256"), "Ports of a block, a power of two. The block log has a record for each."),
    key("nat", "ports_per_subscriber", Integer(64, 65_536), "ports", Value("2048"),
        "Quota of a home, opened block by block on its public address; a multiple of `port_block`."),
    key("nat", "flows_max", Integer(1024, 200_000_000), "sessions", Value("4_000_000"),
        "Sessions of each worker. A port in quarantine counts as one: it keeps its record."),
    key("nat", "sessions_max", Integer(1024, 200_000_000), "sessions", Absent("a quarter of `flows_max`, at least 65,536; never more than `flows_max`"),
        "How many of the sessions of each worker may share a port with an older one: all but the first of each mapping."),
    key("nat", "flows_per_subscriber", Integer(16, 200_000_000), "sessions", Absent("no limit"), "Sessions of one home (RFC 6888 REQ-5)."),
    key("nat", "quarantine_sec", Integer(0, 86_400), "s", Value("120"), "How long a released port stays unused (RFC 6888 REQ-8); 0 gives it back at once."),
    key("nat", "pooling", Choice(&["hard", "soft"]), "", Value("\"hard\""),
        "When the public address of a home has no block left: `hard` refuses the flow, `soft` uses another address (RFC 7857 section 4)."),
    key("nat", "udp_inbound_refresh", Boolean, "", Value("false"), "Whether inbound packets keep UDP and ICMP sessions alive (RFC 4787 REQ-6)."),
    key("nat", "inbound_sessions_max", Integer(1, 65_535), "sessions", Value("256"),
        "TCP sessions of one mapping that remotes may open, with a filtering that lets them (RFC 7857 section 5)."),
    key("nat", "mss_clamp", Form("boolean or integer", "`true`, `false`, 536..=9176"), "bytes", Absent("`true` in gre mode, `false` in plain mode"),
        "Lowers the maximum segment size in TCP SYN: `true` to what the MTUs leave, a number to that."),

    key("timeouts", "profile", Choice(&["rfc", "carrier"]), "", Value("\"rfc\""),
        "`rfc`: RFC 4787, 5382, 5508, 7857. `carrier`: the shorter values mobile carriers run with, below the minima of the RFCs."),
    key("timeouts", "tcp_syn_sent_sec", TIMER, "s", Profile(240, 60), "TCP, a SYN from the home, no answer."),
    key("timeouts", "tcp_syn_received_sec", TIMER, "s", Profile(240, 60), "TCP, SYNs from both sides, the handshake not complete."),
    key("timeouts", "tcp_established_sec", TIMER, "s", Profile(7440, 600), "TCP, open."),
    key("timeouts", "tcp_fin_wait_sec", TIMER, "s", Profile(7440, 60), "TCP, the home has closed its half."),
    key("timeouts", "tcp_close_wait_sec", TIMER, "s", Profile(7440, 45), "TCP, the remote has closed its half."),
    key("timeouts", "tcp_last_ack_sec", TIMER, "s", Profile(240, 30), "TCP, both halves closed, the last FIN not acknowledged."),
    key("timeouts", "tcp_time_wait_sec", TIMER, "s", Profile(240, 120), "TCP, both halves closed and acknowledged."),
    key("timeouts", "tcp_close_sec", TIMER, "s", Profile(240, 10), "TCP, after an RST."),
    key("timeouts", "udp_sec", TIMER, "s", Profile(300, 30), "UDP, not answered."),
    key("timeouts", "udp_stream_sec", TIMER, "s", Profile(300, 60), "UDP, answered."),
    key("timeouts", "icmp_sec", TIMER, "s", Profile(60, 30), "ICMP queries."),

    key("fragments", "datagrams_max", Integer(16, 1_048_576), "datagrams", Value("4096"), "Fragmented packets followed at once, half of them in each direction."),
    key("fragments", "held_max", Integer(0, 65_536), "packets", Value("512"), "Fragments held, in all, until their first one comes; half of them in each direction."),
    key("fragments", "held_per_datagram_max", Integer(0, 64), "packets", Value("16"), "Fragments held for one packet."),
    key("fragments", "timeout_sec", Integer(2, 60), "s", Value("5"), "How long a fragmented packet is followed."),

    key("shard", "id", Integer(1, 4_294_967_295), "", Required, "Number of the shard, for ever. Each once."),
    key("shard", "endpoint", Form("string", "an IPv4 address"), "", Absent("required in gre mode, refused in plain mode"),
        "The homes' tunnel endpoint, routed to the worker's access address. Each once."),
    key("shard", "subscribers", PREFIXES, "", Absent("required in plain mode, refused in gre mode"),
        "The homes' prefixes, inside `access.subscribers`."),
    key("shard", "public", PREFIXES, "", Absent("required, except for a firewall in plain mode: the shard's `subscribers`"),
        "Public addresses of the homes, routed to the worker's internet address; no two shards share any. All shards of a worker have at most 65,536."),
    key("shard", "subscribers_max", Integer(1, 65_535), "homes", Value("256"), "Homes served at once."),
    key("shard", "worker", Integer(0, 1023), "", Absent("shards go round the workers in file order"), "Core of the worker that serves the shard."),
];
