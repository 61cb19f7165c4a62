//! All reasons for which a packet can end inside the worker. A drop is not an error: it is counted
//! under its reason.

use weir_nat::Refusal;

macro_rules! drop_reasons {
    ($($variant:ident $name:literal $help:literal;)+) => {
        /// Reason for which a packet was dropped. One packet, one reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $help] $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of their discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the label in metrics and commands.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns one sentence for an operator.
            pub const fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)+ }
            }
        }
    };
}

drop_reasons! {
    FrameTruncated "frame-truncated" "Shorter than its Ethernet header.";
    FrameSegmented "frame-segmented" "Spread over several buffers: larger than the port's MTU allows.";
    NotOurMac "not-our-mac" "Sent to another MAC address.";
    Vlan "vlan" "Tagged with another VLAN, or tagged or untagged against the configuration.";
    EtherType "ethertype" "Neither IPv4 nor ARP, nor IPv6 on a side that has an IPv6 address.";
    ArpMalformed "arp-malformed" "ARP that is not IPv4 over Ethernet, truncated, or from a MAC that no neighbour has.";
    NdpMalformed "ndp-malformed" "Neighbor discovery that RFC 4861 section 7.1 or RFC 6980 says to discard, or from an address or MAC that no neighbour has.";
    NdpIgnored "ndp-ignored" "A router advertisement, a router solicitation or a redirect, none of which a worker follows.";
    AddressUnusable "address-unusable" "To an IPv6 address of the worker that it does not use: another station has it, or may have it (RFC 4862 section 5.4).";
    IpMalformed "ip-malformed" "Bad version, header length or total length of the IPv4 header.";
    IpChecksum "ip-checksum" "Wrong IPv4 header checksum.";
    NotLocal "not-local" "Addressed neither to a tunnel endpoint nor to a public prefix nor to the worker.";
    LocalProtocol "local-protocol" "Addressed to the worker itself, but not a ping.";
    OuterFragment "outer-fragment" "A fragment of a tunnel packet that could not be put together: others did not come in time or overlap it, its home or all together have more such fragments than may be held, or no buffer has room for the whole.";
    OuterProtocol "outer-protocol" "Sent to a tunnel endpoint, but neither GRE nor a ping.";
    TunnelIcmp "tunnel-icmp" "An ICMP error about a tunnel packet, from the access network.";
    GreMalformed "gre-malformed" "Bad GRE header: version, reserved bits, routing, checksum or length.";
    GreProtocol "gre-protocol" "GRE that carries something other than IPv4 and IPv6.";
    EcnCongestion "ecn-congestion" "Congestion marked on the tunnel of a packet that cannot carry the mark (RFC 6040 section 4.2).";
    InnerMalformed "inner-malformed" "Bad version, header length or total length of the inner IPv4 header.";
    InnerChecksum "inner-checksum" "Wrong inner IPv4 header checksum.";
    Ip6Malformed "ip6-malformed" "Bad version, payload length or extension header of IPv6.";
    Ip6Extension "ip6-extension" "IPv6 extension headers that are not let pass: more than 8 or than 256 bytes, a jumbo payload, or a routing header of type 0 (RFC 5095).";
    Martian "martian" "An address that must not be there: loopback, multicast, zero, broadcast, or source equal to destination.";
    SourceRoute "source-route" "A source route among the IP options (RFC 7126 section 4.3); forward_source_routes lets it pass.";
    Protocol "protocol" "A transport protocol other than TCP, UDP and ICMP.";
    TransportMalformed "transport-malformed" "Bad length or header of TCP, UDP or ICMP.";
    PortZero "port-zero" "UDP or TCP from or to port 0, which no mapping can have: UDP that wants no answer (RFC 768), or an error.";
    IcmpChecksum "icmp-checksum" "Wrong checksum of an ICMP error or of the header it quotes (RFC 5508 REQ-3).";
    IcmpKind "icmp-kind" "An ICMP message that a NAT does not carry.";
    IcmpUnsolicited "icmp-unsolicited" "An echo request from the internet, or an unsolicited echo reply.";
    IcmpErrorUnmatched "icmp-error-unmatched" "An ICMP error about no known session (RFC 5508 REQ-4, REQ-5).";
    NotSubscriber "not-subscriber" "The home is not inside the configured subscriber prefixes.";
    SubscribersMax "subscribers-max" "The shard already serves subscribers_max homes.";
    PortsExhausted "ports-exhausted" "The subscriber's quota or its public address has no free port.";
    TableFull "table-full" "The table of flows, or that of further sessions, is full; ports in quarantine count.";
    FlowsPerSubscriber "flows-per-subscriber" "The home holds as many flows as it may (limits.flows).";
    SessionsPerSubscriber "sessions-per-subscriber" "The home has as many remotes beside the first of each port as it may, or half of them opened from the internet (limits.sessions).";
    NewFlows "new-flows" "The home begins more flows than it may in a second (limits.new_flows_per_sec, new_flows_burst).";
    NewHomes "new-homes" "A home that was not here, of a shard that has admitted as many as it may in this second (limits.new_homes_per_sec).";
    NoMapping "no-mapping" "From the internet to a public address and port that no home holds; in IPv6, of no flow, and no rule lets it in.";
    OwnSource "own-source" "From the internet, with a source in a public prefix that this worker alone serves: forged, or a route leads back.";
    Filtered "filtered" "From a remote endpoint that the mapping's filtering does not admit.";
    RuleDrop "rule-drop" "A rule with the action drop fits the flow that it would begin.";
    RuleReject "rule-reject" "A rule with the action reject fits the flow that it would begin; the sender gets a TCP reset or an ICMP error.";
    TcpNotSyn "tcp-not-syn" "TCP without a session and not a SYN.";
    AddressConflict "address-conflict" "Firewall mode: the address is another home's, or was until quarantine_sec ago.";
    ClaimConflict "claim-conflict" "IPv6: the source address, or the flow, is another home's, or was until claim_hold_sec ago.";
    NotDelegated "not-delegated" "IPv6: the source address is in no prefix of the home's shard, or was delegated to no home.";
    InsideNotPublic "inside-not-public" "Firewall mode: the home's address is not one of its shard's public addresses.";
    InboundSessionsMax "inbound-sessions-max" "The mapping already has inbound_sessions_max sessions opened from the internet.";
    SlowPathLimit "slow-path-limit" "The home sends or gets more packets a second than it may that the fast path does not take, or a remote more fragments before their first (limits.slow_path_packets_per_sec).";
    FragmentTiny "fragment-tiny" "A fragment made to hide the transport header (RFC 1858, RFC 3128).";
    FragmentOverlap "fragment-overlap" "An IPv6 fragment that overlaps the first one of its datagram (RFC 5722).";
    FragmentLimit "fragment-limit" "Came before its first fragment, and its sender or all together have more such fragments than may be held: the oldest of the greediest go first.";
    FragmentTimeout "fragment-timeout" "Its first fragment did not come in time, or was refused.";
    DontFragment "dont-fragment" "Too big for the next link and not to be fragmented; the sender gets an ICMP error.";
    TtlExceeded "ttl-exceeded" "Its time to live ended here; the sender gets an ICMP error.";
    GatewayUnresolved "gateway-unresolved" "No gateway of that side and family answers.";
    NotServing "not-serving" "Of a shard whose packets this worker does not translate.";
    MissRefused "miss-refused" "Without a mapping, of a shard in which this worker may make none.";
    RedirectLimit "redirect-limit" "More packets of a home, of a remote or of all to redirect to other workers than may be in a second.";
    PeerUnresolved "peer-unresolved" "To be redirected to a worker that is unknown or does not answer ARP.";
    PeerNoSession "peer-no-session" "To be redirected to a worker with which there is no session of replication.";
    RedirectUnsealed "redirect-unsealed" "A redirected packet in the clear from a worker that seals them, or with which there is no session: forged, or late.";
    NotPeer "not-peer" "Replication or a redirected packet from an address that is no worker's of this cluster.";
    ReplicationMalformed "replication-malformed" "A replication datagram with a bad length or checksum, or in fragments.";
    TooFewReplicas "too-few-replicas" "It makes or changes a flow of a shard that fewer replicas have than are to have the change, or more changes wait than may (commit_on_timeout = \"drop\").";
    CommitTimeout "commit-timeout" "Held for commit_timeout_ms, and too few replicas had what it depends on; or held when its worker ended, or stood still.";
    CommitLimit "commit-limit" "As many packets wait for replicas as may (commit_on_timeout = \"drop\").";
    NoBuffer "no-buffer" "No free packet buffer, no headroom, or the output is full.";
}

impl From<Refusal> for DropReason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotSubscriber => Self::NotSubscriber,
            Refusal::SubscribersMax => Self::SubscribersMax,
            Refusal::PortsExhausted => Self::PortsExhausted,
            Refusal::TableFull => Self::TableFull,
            Refusal::FlowsPerSubscriber => Self::FlowsPerSubscriber,
            Refusal::SessionsPerSubscriber => Self::SessionsPerSubscriber,
            Refusal::NewFlows => Self::NewFlows,
            Refusal::NewHomes => Self::NewHomes,
            Refusal::NoMapping => Self::NoMapping,
            Refusal::Filtered => Self::Filtered,
            Refusal::RuleDrop => Self::RuleDrop,
            Refusal::RuleReject => Self::RuleReject,
            // Not dropped: whoever asks sends such a packet (`bypass.rs`).
            Refusal::RuleBypass => Self::RuleDrop,
            Refusal::TcpNotSyn => Self::TcpNotSyn,
            Refusal::AddressConflict => Self::AddressConflict,
            Refusal::InsideNotPublic => Self::InsideNotPublic,
            Refusal::InboundSessionsMax => Self::InboundSessionsMax,
            Refusal::TooFewReplicas => Self::TooFewReplicas,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_ordered() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            let same = DropReason::ALL.iter().filter(|other| other.name() == reason.name()).count();
            assert_eq!(same, 1, "{}", reason.name());
        }
    }
}
