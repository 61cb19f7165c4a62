/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a port: probe, configure, start, ask, remove. */
#include <errno.h>
#include <string.h>

#include <rte_dev.h>
#include <rte_ethdev.h>

#include "weir_dpdk.h"

int weir_port_exists(const char *name)
{
	uint16_t port;

	return rte_eth_dev_get_port_by_name(name, &port) == 0;
}

/* Some drivers name their port otherwise than the device: look for the port of the device. */
static int find_port(const char *device, uint16_t *found)
{
	struct rte_eth_dev_info info;
	uint16_t port;

	if (rte_eth_dev_get_port_by_name(device, found) == 0)
		return 0;
	RTE_ETH_FOREACH_DEV(port) {
		if (rte_eth_dev_info_get(port, &info) != 0 || info.device == NULL)
			continue;
		if (strcmp(rte_dev_name(info.device), device) == 0) {
			*found = port;
			return 0;
		}
	}
	return -ENODEV;
}

int weir_port_probe(const char *devargs, const char *name, uint16_t *port)
{
	int error = rte_dev_probe(devargs);

	if (error != 0)
		return error < 0 ? error : -EIO;
	return find_port(name, port);
}

int weir_port_info(uint16_t port, struct weir_port_info *out)
{
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	int error = rte_eth_dev_info_get(port, &info);

	if (error == 0)
		error = rte_eth_macaddr_get(port, &mac);
	if (error != 0)
		return error;
	memset(out, 0, sizeof(*out));
	if (info.driver_name != NULL)
		strncpy(out->driver, info.driver_name, sizeof(out->driver) - 1);
	memcpy(out->mac, mac.addr_bytes, sizeof(out->mac));
	out->mtu_min = info.min_mtu;
	out->mtu_max = info.max_mtu;
	/* A driver that knows a frame length only: Ethernet header and checksum are not in the MTU. */
	uint32_t overhead = RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN;
	if (info.max_mtu == UINT16_MAX && info.max_rx_pktlen > overhead &&
	    info.max_rx_pktlen - overhead < out->mtu_max)
		out->mtu_max = (uint16_t)(info.max_rx_pktlen - overhead);
	out->socket = rte_eth_dev_socket_id(port);
	return 0;
}

int weir_port_configure(uint16_t port, uint16_t mtu)
{
	struct rte_eth_conf conf;

	memset(&conf, 0, sizeof(conf));
	conf.rxmode.mtu = mtu;
	return rte_eth_dev_configure(port, 1, 1, &conf);
}

int weir_port_descriptors(uint16_t port, uint16_t *rx, uint16_t *tx)
{
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx, tx);
}

int weir_port_rx_queue(uint16_t port, uint16_t descriptors, int socket, struct weir_pool *pool)
{
	return rte_eth_rx_queue_setup(port, 0, descriptors, (unsigned int)socket, NULL, (struct rte_mempool *)pool);
}

int weir_port_tx_queue(uint16_t port, uint16_t descriptors, int socket)
{
	return rte_eth_tx_queue_setup(port, 0, descriptors, (unsigned int)socket, NULL);
}

int weir_port_set_mtu(uint16_t port, uint16_t mtu)
{
	return rte_eth_dev_set_mtu(port, mtu);
}

int weir_port_set_mac(uint16_t port, const uint8_t *mac)
{
	struct rte_ether_addr address;

	memcpy(address.addr_bytes, mac, sizeof(address.addr_bytes));
	return rte_eth_dev_default_mac_addr_set(port, &address);
}

int weir_port_set_promiscuous(uint16_t port)
{
	return rte_eth_promiscuous_enable(port);
}

int weir_port_start(uint16_t port)
{
	return rte_eth_dev_start(port);
}

int weir_port_link_up(uint16_t port)
{
	struct rte_eth_link link;

	memset(&link, 0, sizeof(link));
	return rte_eth_link_get_nowait(port, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

int weir_port_stats(uint16_t port, struct weir_port_stats *out)
{
	struct rte_eth_stats stats;
	int error = rte_eth_stats_get(port, &stats);

	if (error != 0)
		return error;
	out->rx_packets = stats.ipackets;
	out->tx_packets = stats.opackets;
	out->rx_bytes = stats.ibytes;
	out->tx_bytes = stats.obytes;
	out->rx_missed = stats.imissed;
	out->rx_errors = stats.ierrors;
	out->tx_errors = stats.oerrors;
	out->rx_no_mbuf = stats.rx_nombuf;
	return 0;
}

int weir_port_remove(uint16_t port)
{
	struct rte_eth_dev_info info;
	int error = rte_eth_dev_info_get(port, &info);

	if (error != 0)
		return error;
	rte_eth_dev_stop(port);
	error = rte_eth_dev_close(port);
	if (info.device != NULL && rte_dev_is_probed(info.device)) {
		int detached = rte_dev_remove(info.device);
		if (error == 0)
			error = detached;
	}
	return error;
}
