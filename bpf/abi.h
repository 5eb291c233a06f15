/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF programs and mthp_ext agree on: the tunables, the state kept
 * per cgroup, the events.  Plain C with fixed-width types and no implicit
 * padding; src/abi.rs mirrors it and a unit test compares every offset.
 *
 * Change MTHP_ABI with any change of layout or meaning: `mthp_ext status` may
 * find maps that another version loaded, and refuses those it cannot read.
 */
#ifndef MTHP_ABI_H
#define MTHP_ABI_H

#include "hook.h"

#define MTHP_MAGIC	0x6d746870u	/* "mthp" */
#define MTHP_ABI	8u

/* Every order but 0: order 0 is always allowed and never in a mask. */
#define MTHP_ALL_ORDERS	(~1ULL)

/* No memory.high and no memory.max on the path to the root. */
#define MTHP_NO_LIMIT	(~0ULL)

/* Value of max_order that caps nothing. */
#define MTHP_NO_MAX_ORDER	63u

/*
 * One more than the last reason known here.  Arrays by reason are indexed by the kernel's
 * numbers; their place 0, which is no reason, stays empty.
 */
#define MTHP_NR_REASONS	(BPF_MTHP_RECLAIM + 1)

/* A later kernel may have more of them. */
#define MTHP_KNOWN(reason)	((reason) != 0 && (reason) < MTHP_NR_REASONS)

/* An array's initialiser: the same for each of them. */
#define MTHP_EACH_REASON(value)						\
	[BPF_MTHP_FAULT] = (value), [BPF_MTHP_SWAPIN] = (value),	\
	[BPF_MTHP_KHUGEPAGED] = (value), [BPF_MTHP_COLLAPSE] = (value),	\
	[BPF_MTHP_RECLAIM] = (value)

/* The rules.  As bits: which are on, and which of them narrowed an answer. */
enum mthp_rule {
	MTHP_PRESSURE,
	MTHP_SMALL,
	MTHP_SPARSE,
	MTHP_HEADROOM,
	MTHP_HOST,
	MTHP_MAX_ORDER,
	MTHP_NR_RULES,
};

#define MTHP_RULE(name)	(1u << MTHP_##name)

/* Set by mthp_ext before load and constant from then on. */
struct mthp_tunables {
	__u32 magic;		/* MTHP_MAGIC */
	__u32 abi;		/* MTHP_ABI */
	__u32 rules;		/* MTHP_RULE() bits that are on */
	__u32 page_shift;	/* of the base page: 12, 14 or 16 */
	__u32 narrow_advised;	/* 1: all rules bind MADV_HUGEPAGE memory */
	__u32 psi_full;		/* 1: judge by "full" stall, 0: by "some" */
	__u32 limit_share;	/* large folios may fill this many 1024ths of a limit */
	__u32 bind_khugepaged;	/* 1: small and sparse hold for khugepaged too */
	__u32 largest_pages;	/* of the largest folio; its order, too: bit n of a mask */
	__u32 max_hold;		/* calm windows a verdict may come to need; 1: never more */
	__u32 narrow_collapse;	/* 1: the rules bind forced collapse as well */
	__u32 max_order[MTHP_NR_REASONS];	/* largest order ever allowed for each reason */
	__u32 count_cache;	/* 1: page cache that reclaim would drop first is used, too */
	__u32 sparse_share;	/* 1024ths of what it spans that a process must fill not to be sparse */
	__u32 sample_mask;	/* a request samples if its number has none of these bits; 2^n - 1 */
	__u32 pressure_order;	/* largest order that pressure leaves; 0: none */
	__u32 pad;
	__u64 threshold_ns;	/* stall within one window that is high pressure */
	__u64 calm_ns;		/* stall within one window that is still not calm */
	__u64 window_ns;
	__u64 min_memory;	/* anon+shmem bytes below which a cgroup is small */
	__u64 headroom_factor;	/* K: a folio may take 1/K of the headroom; >= 1 */
	__u64 host_factor;	/* K of the host's own headroom; >= 1 */
	__u64 sparse_bytes;	/* waste that large folios may mean to a process; 0: the rule is off */
};

/*
 * Defaults of the tunables.  Here and nowhere else: mthp_ext, its help and the unit tests
 * read them from here.  Facts about the machine are not among them.
 */
#define MTHP_DEFAULTS_OF_ALL						\
	.psi_full = 1,							\
	.max_order = { MTHP_EACH_REASON(MTHP_NO_MAX_ORDER) },		\
	.limit_share = 512,						\
	.sparse_share = 512,						\
	.sample_mask = 15,						\
	.threshold_ns = 100000000,					\
	.window_ns = 1000000000,					\
	.headroom_factor = 1024,					\
	.host_factor = 1024,						\
	.sparse_bytes = 64 << 20

#define MTHP_DEFAULTS	{						\
	MTHP_DEFAULTS_OF_ALL,						\
	.max_hold = 64,							\
	.calm_ns = 50000000,						\
	.min_memory = 8 << 20,						\
}

/*
 * The policy `reactive` is the proposal's rule: no back-off, and so no hysteresis, and the
 * proposal's size of a small cgroup.
 */
#define MTHP_DEFAULTS_REACTIVE	{					\
	MTHP_DEFAULTS_OF_ALL,						\
	.max_hold = 1,							\
	.calm_ns = 100000000,						\
	.min_memory = 16 << 20,						\
}

/* Pressure verdict of one cgroup and what it rests on. */
struct mthp_stall {
	__u64 anchor_ns;	/* when the running window began */
	__u64 anchor_stall_ns;	/* total stall at that time */
	__u64 stall_ns;		/* stall of the last judgement ... */
	__u64 elapsed_ns;	/* ... and the time it was gathered in */
	__u32 high;		/* the verdict */
	__u32 seen;		/* 0: no anchor yet */
	__u32 hold;		/* calm windows it takes to fall; 0: high was never, or long ago */
	__u32 calm;		/* calm windows: if high, in a row; else since hold last changed */
};

/* Value of the cgroup storage map. */
struct mthp_cgroup {
	struct mthp_stall stall;
	__u64 scanned_ns;	/* last scan, CLOCK_MONOTONIC; 0: none yet */
	__u64 memory_bytes;	/* anon+shmem when last sampled: by a scan, or from a process */
	__u64 usage_pages;	/* charged pages at that time */
	__u64 now_bytes;	/* anon+shmem at most, as of the last sample: with what was charged since */
	__u64 host_bytes;	/* headroom of the host when last sampled; MTHP_NO_LIMIT */
	__u64 cache_bytes;	/* of that usage: page cache that would make room */
	__u64 room_bytes;	/* headroom if all such page cache were dropped; MTHP_NO_LIMIT */
	__s64 cache_beyond;	/* bytes of such page cache beyond what its own lists show */
	__u32 memory_known;	/* 0: no memory controller here: no opinion on size */
	__u32 populated;	/* 1: a process lived in this very cgroup at the last scan */
	__u32 sparse;		/* 1: the process sampled last uses little of what it spans */
	__u32 unlimited;	/* 1: no limit was on the path when last sampled */
	/* The decision last reported, and the limit on how often that is. */
	__u64 reported[MTHP_NR_REASONS];
	__u64 reported_ns;
	__u64 suppressed;		/* calls whose change the limit kept from being reported */
	/*
	 * Counters are plain increments: two CPUs may lose one to each other.
	 * They show proportions; an atomic per fault would cost more than the rule.
	 */
	__u64 asked[MTHP_NR_REASONS];
	__u64 narrowed[MTHP_NR_REASONS][MTHP_NR_RULES];
};

/*
 * How far a scan has come.  All but root_id begin as 0; the rest is the scan's own, from
 * one call to the next.
 */
struct mthp_walk {
	__u64 root_id;		/* of the cgroup whose subtree is scanned */
	__u64 passed;		/* cgroups of the lists before this one */
	__u64 met;		/* cgroups met so far while a list is made */
	__u32 listed;		/* cgroups of this list ... */
	__u32 next;		/* ... and the one that is next */
};

/* One changed decision, sent through the ring buffer. */
struct mthp_event {
	__u64 t_ns;		/* CLOCK_MONOTONIC */
	__u64 cgroup_id;
	__u64 from[MTHP_NR_REASONS];
	__u64 to[MTHP_NR_REASONS];
	__u64 stall_ns;
	__u64 elapsed_ns;
	__u64 memory_bytes;
	__u64 headroom_bytes;	/* MTHP_NO_LIMIT: none */
	__u64 host_bytes;	/* the same of the host */
	__u64 suppressed;		/* changes not reported since the last event of this cgroup */
	__u32 rules;		/* MTHP_RULE() bits that narrow `to` */
	__u32 memory_known;
	__u32 hold;		/* of the pressure verdict, as in struct mthp_stall */
	__u32 pad;
};

#endif /* MTHP_ABI_H */
