/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A context of rte_acl for flows: kind, remote and local address, both ports. Built without a limit on memory, and
 * classified by the widest instructions that the library was built for and the processor has.
 */
#include <stddef.h>
#include <stdlib.h>

#include <rte_acl.h>
#include <rte_errno.h>
#include <rte_memory.h>

/* A question in network byte order, the kind one bit of an octet. */
struct flow {
	uint8_t kind;
	uint8_t unused[3];
	uint32_t remote;
	uint32_t local;
	uint16_t remote_port;
	uint16_t local_port;
};

/* A rule in host byte order. Kind 0: any. */
struct filter {
	uint32_t rule;
	uint32_t remote;
	uint32_t local;
	uint16_t remote_ports[2];
	uint16_t local_ports[2];
	uint8_t remote_bits;
	uint8_t local_bits;
	uint8_t kind;
	uint8_t unused;
};

enum { KIND, REMOTE, LOCAL, REMOTE_PORT, LOCAL_PORT, FIELDS };

RTE_ACL_RULE_DEF(acl_filter, FIELDS);

static const struct rte_acl_field_def fields[FIELDS] = {
	{ RTE_ACL_FIELD_TYPE_BITMASK, 1, KIND, 0, offsetof(struct flow, kind) },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, REMOTE, 1, offsetof(struct flow, remote) },
	{ RTE_ACL_FIELD_TYPE_MASK, 4, LOCAL, 2, offsetof(struct flow, local) },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, REMOTE_PORT, 3, offsetof(struct flow, remote_port) },
	{ RTE_ACL_FIELD_TYPE_RANGE, 2, LOCAL_PORT, 3, offsetof(struct flow, local_port) },
};

static int add_and_build(struct rte_acl_ctx *context, const struct filter *filters, uint32_t count)
{
	struct rte_acl_config config = { .num_categories = 1, .num_fields = FIELDS };
	struct acl_filter *rules = calloc(count, sizeof(*rules));
	int error;

	if (rules == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		const struct filter *filter = &filters[i];
		struct acl_filter *rule = &rules[i];

		rule->data.category_mask = 1;
		rule->data.priority = RTE_ACL_MAX_PRIORITY - filter->rule;
		rule->data.userdata = filter->rule + 1;
		rule->field[KIND].value.u8 = filter->kind;
		rule->field[KIND].mask_range.u8 = filter->kind ? 0xff : 0;
		rule->field[REMOTE].value.u32 = filter->remote;
		rule->field[REMOTE].mask_range.u32 = filter->remote_bits;
		rule->field[LOCAL].value.u32 = filter->local;
		rule->field[LOCAL].mask_range.u32 = filter->local_bits;
		rule->field[REMOTE_PORT].value.u16 = filter->remote_ports[0];
		rule->field[REMOTE_PORT].mask_range.u16 = filter->remote_ports[1];
		rule->field[LOCAL_PORT].value.u16 = filter->local_ports[0];
		rule->field[LOCAL_PORT].mask_range.u16 = filter->local_ports[1];
	}
	for (int i = 0; i < FIELDS; i++)
		config.defs[i] = fields[i];
	error = rte_acl_add_rules(context, (const struct rte_acl_rule *)rules, count);
	free(rules);
	return error ? error : rte_acl_build(context, &config);
}

/* Returns NULL and a negative error number if the context cannot be built. */
struct rte_acl_ctx *weir_benches_rte_acl_build(const struct filter *filters, uint32_t count, int *error)
{
	struct rte_acl_param parameters = {
		.name = "rules",
		.socket_id = SOCKET_ID_ANY,
		.rule_size = RTE_ACL_RULE_SZ(FIELDS),
		.max_rule_num = count,
	};
	struct rte_acl_ctx *context = rte_acl_create(&parameters);

	*error = context ? add_and_build(context, filters, count) : -rte_errno;
	if (*error && context) {
		rte_acl_free(context);
		context = NULL;
	}
	return context;
}

int weir_benches_rte_acl_find(const struct rte_acl_ctx *context, const struct flow *flows, uint32_t *found,
			      uint32_t count)
{
	const uint8_t *data[64];

	for (uint32_t i = 0; i < count; i++)
		data[i] = (const uint8_t *)&flows[i];
	return rte_acl_classify(context, data, found, count, 1);
}
