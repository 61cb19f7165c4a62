#!/usr/bin/env bash
# Installs the Debian packages that building, testing and the demo need. Says nothing when none is missing;
# without root or apt it names what is missing and stops.
set -euo pipefail

build=(
    build-essential pkg-config git
    libclang-dev            # bindgen
    libdpdk-dev             # packet I/O
    libpcap-dev             # capture filters
    protobuf-compiler libprotobuf-dev   # the messages of etcd
)
run=(
    dpdk-dev                # testpmd, the baseline of the benchmark
    nftables                # the kernel's NAT, the other baseline
    python3                 # the frame injector of the tests
    iproute2 ethtool iputils-ping traceroute curl
    nginx-light dnsmasq-base bind9-dnsutils iperf3
    bird2                   # BGP on the nodes and on a switch of the tests
    frr                     # another switch of the tests
    coturn                  # a STUN server and turnutils_natdiscovery (RFC 5780)
    valgrind                # counts instructions per packet
    etcd-server etcd-client openssl     # the cluster's store, and certificates for it
    tcpdump                 # reads what `weir capture` wrote
    prometheus              # promtool, which checks the alerts
    nfdump                  # a collector, which reads the NAT log
)

if ! command -v cargo >/dev/null; then
    echo "deps: Rust 1.87 or newer is the one prerequisite: install it from rustup.rs, then run this again" >&2
    exit 1
fi

if ! command -v dpkg-query >/dev/null; then
    echo "deps: this is not Debian: install the equivalents of: ${build[*]} ${run[*]}" >&2
    exit 1
fi

missing=()
for package in "${build[@]}" "${run[@]}"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "deps: missing packages: ${missing[*]}" >&2
    echo "deps: install them as root: apt-get install ${missing[*]}" >&2
    exit 1
fi

echo "deps: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Daemons are started by the demo and the tests themselves, in namespaces, never by the package.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
log=$(mktemp)
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "deps: the installation failed; the whole log is in $log" >&2
    exit 1
fi
rm -f "$log"
