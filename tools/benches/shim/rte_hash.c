/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts the EAL and makes a table; the other functions of rte_hash are called directly. No flag is set: one thread
 * reads and writes, so no lock, no transactional memory, no reader counters and no chained buckets, which is the
 * table at its fastest. The hash function is the default one: CRC32 by instruction where the processor has it.
 */
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_hash.h>
#include <rte_memory.h>

int weir_benches_eal_init(char *core)
{
	char *arguments[] = {
		"benches", "--in-memory", "--no-pci", "--no-telemetry", "--log-level=error", "-l", core,
	};
	int count = sizeof(arguments) / sizeof(arguments[0]);

	return rte_eal_init(count, arguments) < 0 ? -rte_errno : 0;
}

struct rte_hash *weir_benches_rte_hash_create(const char *name, uint32_t entries, uint32_t key_bytes)
{
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = entries,
		.key_len = key_bytes,
		.socket_id = SOCKET_ID_ANY,
	};

	return rte_hash_create(&parameters);
}
