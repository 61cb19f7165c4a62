/* SPDX-License-Identifier: Apache-2.0 */
/* Pools and mbufs, and the proof that struct weir_mbuf lies on top of struct rte_mbuf. */
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "weir_dpdk.h"

#define SAME_FIELD(ours, theirs)                                                                                   \
	_Static_assert(offsetof(struct weir_mbuf, ours) == offsetof(struct rte_mbuf, theirs), #theirs " moved");    \
	_Static_assert(sizeof(((struct weir_mbuf *)0)->ours) == sizeof(((struct rte_mbuf *)0)->theirs), #theirs " changed size")

SAME_FIELD(buf_addr, buf_addr);
SAME_FIELD(data_off, data_off);
SAME_FIELD(reserved_refcnt, refcnt);
SAME_FIELD(nb_segs, nb_segs);
SAME_FIELD(reserved_port, port);
SAME_FIELD(ol_flags, ol_flags);
SAME_FIELD(pkt_len, pkt_len);
SAME_FIELD(data_len, data_len);
SAME_FIELD(buf_len, buf_len);
_Static_assert(sizeof(struct weir_mbuf) <= sizeof(struct rte_mbuf), "the view is longer than the mbuf");

/* Mbufs a thread keeps for itself: several bursts, so that most allocations touch no shared ring. */
#define CACHE_MBUFS 256

struct weir_pool *weir_pool_create(const char *name, uint32_t count, uint16_t data_room, int socket, int *error)
{
	/* DPDK refuses a cache larger than two thirds of the pool. */
	unsigned int cache = count >= 2 * CACHE_MBUFS ? CACHE_MBUFS : 0;
	struct rte_mempool *pool = rte_pktmbuf_pool_create(name, count, cache, 0, data_room, socket);

	if (pool == NULL)
		*error = -rte_errno;
	return (struct weir_pool *)pool;
}

uint32_t weir_pool_in_use(const struct weir_pool *pool)
{
	return rte_mempool_in_use_count((const struct rte_mempool *)pool);
}

struct weir_mbuf *weir_mbuf_alloc(struct weir_pool *pool)
{
	return (struct weir_mbuf *)rte_pktmbuf_alloc((struct rte_mempool *)pool);
}

void weir_mbuf_free(struct weir_mbuf *mbuf)
{
	rte_pktmbuf_free((struct rte_mbuf *)mbuf);
}

void weir_mbuf_free_bulk(struct weir_mbuf **mbufs, uint32_t count)
{
	rte_pktmbuf_free_bulk((struct rte_mbuf **)mbufs, count);
}

uint16_t weir_mbuf_headroom(void)
{
	return RTE_PKTMBUF_HEADROOM;
}
