/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything weir uses of DPDK, as plain C functions over plain C types.
 *
 * Rust binds to this header alone: it includes no DPDK header, so no DPDK type, macro or inline
 * function crosses the border. Data path functions take a whole burst per call.
 *
 * Conventions: a function that can fail returns 0 or a negative errno value, unless it says
 * otherwise. Ports are DPDK port ids. Lengths are bytes.
 */
#ifndef WEIR_DPDK_H
#define WEIR_DPDK_H

#include <stddef.h>
#include <stdint.h>

/*
 * The first bytes of an rte_mbuf, so that packet data is reached without a call. The shim's source
 * asserts every offset at compile time. Fields named reserved are DPDK's own.
 *
 *      buf_addr          data                                       end of buffer
 *      |<-- data_off --->|<---- data_len ---->|                     |
 *      |<------------------------ buf_len ------------------------->|
 */
struct weir_mbuf {
	uint8_t *buf_addr;
	uint64_t reserved_iova;
	uint16_t data_off;
	uint16_t reserved_refcnt;
	uint16_t nb_segs;
	uint16_t reserved_port;
	uint64_t ol_flags;
	uint32_t reserved_packet_type;
	uint32_t pkt_len;
	uint16_t data_len;
	uint16_t reserved_vlan_tci;
	uint32_t reserved_hash[2];
	uint16_t reserved_vlan_tci_outer;
	uint16_t buf_len;
};

struct weir_pool;

struct weir_port_info {
	char driver[64];
	uint8_t mac[6];
	uint16_t mtu_max;          /* largest MTU the driver accepts */
	uint16_t mtu_min;
	int32_t socket;            /* NUMA node of the device, -1 unknown */
};

struct weir_port_stats {
	uint64_t rx_packets;
	uint64_t tx_packets;
	uint64_t rx_bytes;
	uint64_t tx_bytes;
	uint64_t rx_missed;        /* arrived, lost for lack of receive descriptors */
	uint64_t rx_errors;
	uint64_t tx_errors;
	uint64_t rx_no_mbuf;       /* lost because the pool was empty */
};

/* ---- messages: what DPDK, libbpf and libxdp log, kept instead of printed ---- */

/* Captures the log from now on. Lines are also written to stderr when echo is not 0. Call before weir_eal_init. */
int weir_log_capture(int echo);
/* Captures the messages of libbpf and libxdp, once the AF_XDP driver has loaded them. */
void weir_log_capture_xdp(void);
/* Forgets the captured lines. */
void weir_log_clear(void);
/* Copies the captured errors, oldest first, '\n' after each; returns the bytes written (<= size). */
size_t weir_log_read(char *buffer, size_t size);

/* ---- EAL ---- */

int weir_eal_init(int argc, char **argv);
int weir_eal_has_huge_pages(void);
/* The folder for files shared with other processes, for the life of the process. */
const char *weir_eal_runtime_dir(void);
/* Registers the calling thread, so that its mbufs go through a per-thread cache. */
int weir_thread_register(void);
void weir_thread_unregister(void);
uint64_t weir_tsc(void);
uint64_t weir_tsc_hz(void);

/* ---- mbuf pools ---- */

/* data_room: bytes of each buffer, with the headroom. socket: NUMA node, -1 any. NULL and *error on failure. */
struct weir_pool *weir_pool_create(const char *name, uint32_t count, uint16_t data_room, int socket, int *error);
/* Buffers not in the pool: in rings, with the caller, or in no cache. */
uint32_t weir_pool_in_use(const struct weir_pool *pool);

/* An empty mbuf with the default headroom, or NULL. */
struct weir_mbuf *weir_mbuf_alloc(struct weir_pool *pool);
void weir_mbuf_free(struct weir_mbuf *mbuf);
void weir_mbuf_free_bulk(struct weir_mbuf **mbufs, uint32_t count);
uint16_t weir_mbuf_headroom(void);

/* ---- ports ---- */

/* Probes one device. On success *port is its first port id. */
int weir_port_probe(const char *devargs, const char *name, uint16_t *port);
int weir_port_exists(const char *name);
int weir_port_info(uint16_t port, struct weir_port_info *info);
/* One receive and one transmit queue, no offload. */
int weir_port_configure(uint16_t port, uint16_t mtu);
/* Adjusts the ring sizes to what the device allows. */
int weir_port_descriptors(uint16_t port, uint16_t *rx, uint16_t *tx);
int weir_port_rx_queue(uint16_t port, uint16_t descriptors, int socket, struct weir_pool *pool);
int weir_port_tx_queue(uint16_t port, uint16_t descriptors, int socket);
int weir_port_set_mtu(uint16_t port, uint16_t mtu);
int weir_port_set_mac(uint16_t port, const uint8_t *mac);
int weir_port_set_promiscuous(uint16_t port);
int weir_port_start(uint16_t port);
int weir_port_link_up(uint16_t port);
int weir_port_stats(uint16_t port, struct weir_port_stats *stats);
/* Stops and closes the port and detaches its device, as far as each step applies. */
int weir_port_remove(uint16_t port);

/* ---- data path: queue 0 of a port, one thread at a time per direction ---- */

uint16_t weir_rx_burst(uint16_t port, struct weir_mbuf **mbufs, uint16_t max);
/* Returns how many were taken, from the front; those belong to the driver. */
uint16_t weir_tx_burst(uint16_t port, struct weir_mbuf **mbufs, uint16_t count);

#endif
