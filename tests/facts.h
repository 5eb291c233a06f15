/* SPDX-License-Identifier: GPL-2.0-only */
/* What the decision is asked in its unit tests: usual facts, and random ones. */
#ifndef MTHP_FACTS_H
#define MTHP_FACTS_H

#include "unit.h"
#include "decide.h"

static const __u32 page_shifts[] = { 12, 14, 16 };

/* 1 GiB of 4 KiB each. */
#define PUD_PAGES	(1u << 18)

/* A large, calm cgroup without limits. */
static inline struct mthp_facts calm(__u32 reason)
{
	return (struct mthp_facts){
		.memory_bytes = 100 * MIB, .room_bytes = MTHP_NO_LIMIT, .reason = reason,
		.memory_known = 1, .populated = 1,
	};
}

/* How often the decision read the room. */
static int rooms_read;

static inline void count_read(struct mthp_facts *f, const void *of)
{
	(void)f;
	(void)of;
	rooms_read++;
}

/* The composition that a page fault runs; the room is read, and counted, where it is asked for. */
static inline struct mthp_decision decided(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	struct mthp_facts copy = *f;

	return mthp_decide(&copy, t, count_read, 0);
}

static inline __u64 decide(const struct mthp_facts *f, const struct mthp_tunables *t)
{
	return decided(f, t).orders;
}

static inline struct mthp_facts nasty_facts(void)
{
	return (struct mthp_facts){
		.flags = nasty_u64(), .memory_bytes = nasty_u64(), .room_bytes = nasty_u64(),
		.reason = random_u64() % (MTHP_NR_REASONS + 2), .pressure = random_u64() % 2,
		.memory_known = random_u64() % 2, .populated = random_u64() % 2,
		.sparse = random_u64() % 2, .lifted = random_u64() % 2,
	};
}

static inline struct mthp_tunables nasty_tunables(void)
{
	struct mthp_tunables t = defaults();

	t.rules = random_u64();
	t.page_shift = page_shifts[random_u64() % 3];
	for (int reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
		t.cap[reason] = random_u64() % 66;
	t.bind = random_u64() % 4;
	t.bind_khugepaged = random_u64() % 2;
	t.takes_back = random_u64() % 2;
	t.min_memory = nasty_u64();
	t.room_factor = nasty_u64();
	t.sparse_bytes = nasty_u64();
	t.limit_share = random_u64() % 1025;
	t.pud_pages = random_u64() % 2 ? PUD_PAGES : 0;
	return t;
}

#endif /* MTHP_FACTS_H */
