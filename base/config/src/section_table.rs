//! Every section of the files, as the reference introduces it: the only list, used by parser and
//! reference.

use crate::file_kind::Files;
use crate::key::SectionDoc;

pub(crate) const SECTIONS: &[SectionDoc] = &[
    SectionDoc {
        id: "",
        title: "Top level",
        about: "The sections of the file. `[[worker]]`, `[[collector]]`, `[[set]]`, `[[group]]`, `[[class]]`, `[[source_pool]]`, `[[rule]]`, `[[delegation]]`, `[[pool]]` and `[[shard]]` are repeated, one for each worker, collector, set, group, class, source pool, rule, delegation, pool and shard.",
        files: Files::ALL,
    },
    SectionDoc { id: "node", title: "`[node]`", about: "The process.", files: Files::NODE },
    SectionDoc {
        id: "worker",
        title: "`[[worker]]`",
        about: "A thread pinned to a core, with its own port, MAC and address on each side.",
        files: Files::NODE,
    },
    SectionDoc {
        id: "interface",
        title: "`worker.access` and `worker.internet`",
        about: "One side of a worker. The access side faces the homes, the internet side the world.",
        files: Files::NODE,
    },
    SectionDoc {
        id: "collector",
        title: "`[[collector]]`",
        about: "A collector that the NAT log is sent to: port blocks that are given and taken back, and what each lane holds, once an hour and when a worker takes it; what is refused to homes for want of ports or sessions; with `node.session_log` sessions.",
        files: Files::NODE,
    },
    SectionDoc {
        id: "cluster",
        title: "`[cluster]`",
        about: "In the cluster file: what all nodes share. In a node's file: which cluster it belongs to, and how it is reached.",
        files: Files::OF_CLUSTERS,
    },
    SectionDoc {
        id: "access",
        title: "`[access]`",
        about: "How homes reach weir, and which.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "nat",
        title: "`[nat]`",
        about: "Translation and filtering, the same for every shard.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "timeouts",
        title: "`[timeouts]`",
        about: "How long a session may be idle until it is removed. A key set here overrides the profile.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "fragments",
        title: "`[fragments]`",
        about: "Limits of each worker for packets that arrive in fragments.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "limits",
        title: "`[limits]`",
        about: "Bounds of what one home takes of the tables and rates that all homes of a worker share. Each limit of homes has a drop reason of its own, and no answered flow ends because of one.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "set",
        title: "`[[set]]`",
        about: "Prefixes under a name, for rules: `\"@name\"`. Its entries stand in a file of their own or here.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "group",
        title: "`[[group]]`",
        about: "Homes under a name, for rules and for limits of their own. At most 15 groups, and a home is in one of them or in none.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "group-limits",
        title: "`group.limits`",
        about: "What one home of the group may have. `weir subscriber check ADDRESS` shows it with what the home has.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "class",
        title: "`[[class]]`",
        about: "What flows get beside the verdict of the rule that lets them begin, and that names the class: timers of their own, and a codepoint in the headers of their packets. A flow keeps the number of its class as long as it lives, also after a failover; what the number stands for follows the file. Packets of such flows cost about as much as those of further sessions.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "class-timeouts",
        title: "`class.timeouts`",
        about: "Idle timers of the flows of the class, where they are not those of `[timeouts]`.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "source_pool",
        title: "`[[source_pool]]`",
        about: "Public addresses for the flows of the rules that name the pool, and for no others but static mappings. An address is of the shard that has it in `public`, and a home gets one that its shard has: where the shard has none, such flows are refused (`ports-exhausted`). A home is paired with one address of each pool that it uses, as with one that is in none (`nat.pooling`); `nat.ports_per_subscriber` counts its ports of all of them. Each shard needs an address that is in no pool. At most 7 source pools; a change is taken at once, and live flows keep their public address.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "rule",
        title: "`[[rule]]`",
        about: "Decides on flows that begin: the first rule in the order of the file that fits one. Packets of live flows ask no rule, and a change of the rules ends no live flow, unless a rule has `rematch`. If none fits, flows from homes are accepted, and `nat.filtering` decides on packets from the internet. One list of rules is about IPv4 and IPv6: a rule without addresses fits flows of both families, a rule with prefixes of one family those of that family, and a rule with prefixes of both fits the flows of each family between its prefixes of that family. A rule with `redirect` or `source_pool` is about IPv4 alone, as IPv6 is not translated. Every list may be one value without brackets.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "public",
        title: "`[public]`",
        about: "Public addresses and ports that are not for all homes.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "ipv6",
        title: "`[ipv6]`",
        about: "IPv6 of the homes, which every shard with `public6` serves. Addresses are not translated: weir is a stateful firewall for them. These keys say which home may send from an address, so that no home takes its neighbour's (BCP 38).",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "delegation",
        title: "`[[delegation]]`",
        about: "An IPv6 prefix of a home behind a tunnel, with `ipv6.delegation = \"static\"`. A home may have several. Not in plain mode: there the prefix itself names the home.",
        files: Files::SERVICE,
    },
    SectionDoc {
        id: "pool",
        title: "`[[pool]]`",
        about: "Prefixes that are cut into shards of one size. Shards are numbered in the order of the prefixes, so a pool grows at its end.",
        files: Files::CLUSTER,
    },
    SectionDoc {
        id: "shard",
        title: "`[[shard]]`",
        about: "A fixed group of homes with their public addresses, served by one worker.",
        files: Files::SERVICE,
    },
];
