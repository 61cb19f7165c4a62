/* SPDX-License-Identifier: Apache-2.0 */
/* Hot: one call per burst. */
#include <rte_ethdev.h>

#include "weir_dpdk.h"

uint16_t weir_rx_burst(uint16_t port, struct weir_mbuf **mbufs, uint16_t max)
{
	return rte_eth_rx_burst(port, 0, (struct rte_mbuf **)mbufs, max);
}

uint16_t weir_tx_burst(uint16_t port, struct weir_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, 0, (struct rte_mbuf **)mbufs, count);
}
