/* SPDX-License-Identifier: GPL-2.0-only */
/* What the decision is asked in its unit tests: usual facts, and random ones. */
#ifndef MTHP_FACTS_H
#define MTHP_FACTS_H

#include "unit.h"
#include "decide.h"

static const __u32 page_shifts[] = { 12, 14, 16 };

/* A large, calm cgroup without limits. */
static inline struct mthp_facts calm(__u32 reason)
{
	return (struct mthp_facts){
		.orders = MTHP_ALL_ORDERS, .memory_bytes = 100 * MIB,
		.headroom_bytes = MTHP_NO_LIMIT, .host_bytes = MTHP_NO_LIMIT, .reason = reason,
		.memory_known = 1, .populated = 1,
	};
}

static inline __u64 decide(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	__u32 rules;

	return mthp_decide(f, t, &rules);
}

static inline struct mthp_facts nasty_facts(void)
{
	return (struct mthp_facts){
		.orders = nasty_u64(), .flags = nasty_u64(),
		.memory_bytes = nasty_u64(), .headroom_bytes = nasty_u64(),
		.host_bytes = nasty_u64(),
		.reason = random_u64() % (MTHP_NR_REASONS + 2), .pressure = random_u64() % 2,
		.memory_known = random_u64() % 2, .populated = random_u64() % 2,
		.sparse = random_u64() % 2,
	};
}

static inline struct mthp_tunables nasty_tunables(void)
{
	struct mthp_tunables t = defaults();

	t.rules = random_u64();
	t.page_shift = page_shifts[random_u64() % 3];
	for (int reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
		t.max_order[reason] = random_u64() % 66;
	t.narrow_advised = random_u64() % 2;
	t.narrow_collapse = random_u64() % 2;
	t.min_memory = nasty_u64();
	t.headroom_factor = nasty_u64();
	t.host_factor = nasty_u64();
	t.sparse_bytes = nasty_u64();
	t.bind_khugepaged = random_u64() % 2;
	t.limit_share = random_u64() % 1025;
	t.sparse_share = random_u64() % 1025;
	t.pressure_order = random_u64() % 63;
	return t;
}

#endif /* MTHP_FACTS_H */
