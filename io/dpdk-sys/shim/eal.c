/* SPDX-License-Identifier: Apache-2.0 */
/* The EAL, threads and the cycle counter. */
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "weir_dpdk.h"

int weir_eal_init(int argc, char **argv)
{
	int failed = rte_eal_init(argc, argv) < 0;

	/* What it printed must not appear after the caller has restored its streams. */
	fflush(stdout);
	return failed ? -rte_errno : 0;
}

int weir_eal_has_huge_pages(void)
{
	return rte_eal_has_hugepages();
}

const char *weir_eal_runtime_dir(void)
{
	return rte_eal_get_runtime_dir();
}

int weir_thread_register(void)
{
	return rte_thread_register() < 0 ? -rte_errno : 0;
}

void weir_thread_unregister(void)
{
	rte_thread_unregister();
}

uint64_t weir_tsc(void)
{
	return rte_rdtsc();
}

uint64_t weir_tsc_hz(void)
{
	return rte_get_tsc_hz();
}
