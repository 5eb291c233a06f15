/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the limits on the way from a cgroup to the root leave, read at fault time straight
 * from the page counters: no daemon and no helper call in between.
 */
#ifndef MTHP_LIMITS_BPF_H
#define MTHP_LIMITS_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "decide.h"
#include "tunables.bpf.h"

/* Those who look above for what others left go so far: deeper trees are legal but unheard of. */
#define MTHP_MAX_DEPTH	64

/*
 * Condition of a loop: goes on, up to more rounds than any tree is deep.  The kernel's may_goto,
 * for which clang 17 has no mnemonic, costs four instructions a round; the verifier follows
 * a few rounds, and not as many as there may be.
 */
#define MTHP_GOES_ON ({								\
	__label__ ended, on;							\
	int goes = 1;								\
	asm volatile goto("1: .byte 0xe5; .byte 0;"				\
			  ".long ((%l[ended] - 1b - 8) / 8) & 0xffff; .short 0"	\
			  :::: ended);						\
	goto on;								\
ended:	goes = 0;								\
on:;	goes;									\
})

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;

/* The counters that bind a cgroup: from its own up to, not including, the root's. */
struct mthp_counters {
	struct page_counter *own;	/* NULL without the memory controller */
	__u32 nr;
};

/*
 * The nearest ancestor that has the memory controller, NULL if there is none.
 * Hardly ever called, so kept out of the way of the usual case.
 */
static __noinline struct cgroup *mthp_payer_above(struct cgroup *cgrp)
{
	__u64 id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *up;

	cgrp = bpf_rdonly_cast(cgrp, bpf_core_type_id_kernel(struct cgroup));
	while (MTHP_GOES_ON) {
		up = cgrp->self.parent;
		if (!up)
			return 0;
		cgrp = up->cgroup;
		if (cgrp->subsys[id])
			return cgrp;
	}
	return 0;
}

/* The css is the first member of struct mem_cgroup. */
static __always_inline struct page_counter *mthp_memory_counter(struct cgroup_subsys_state *css)
{
	return bpf_rdonly_cast((void *)css + bpf_core_field_offset(struct mem_cgroup, memory),
			       bpf_core_type_id_kernel(struct page_counter));
}

/*
 * Counters of the cgroup that pays for @cgrp's memory: its own, or where the
 * memory controller is not enabled that far down, the nearest ancestor's.
 * The caller holds RCU, which keeps cgroup and css alive.
 *
 * Loads through a cast pointer are guarded, eight machine instructions each:
 * the code below is written to need few of them.
 */
static __always_inline void mthp_counters(struct mthp_counters *counters, struct cgroup *cgrp)
{
	__u64 id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *css = cgrp->subsys[id];
	struct cgroup *above;
	__u32 level = cgrp->level;

	/* Loaded here and now: from a pointer that may be either it would be guarded. */
	asm volatile("" : "+r"(level));
	counters->own = 0;
	counters->nr = 0;
	if (!css) {
		above = mthp_payer_above(cgrp);
		if (!above)
			return;
		css = above->subsys[id];
		level = above->level;
	}
	counters->nr = level;
	counters->own = mthp_memory_counter(css);
}

/* What the cgroup of @counter, which is that of its memory, has in swap, and may have. */
static __always_inline const struct page_counter *mthp_swap_counter(const struct page_counter *counter)
{
	return bpf_rdonly_cast((void *)counter + bpf_core_field_offset(struct mem_cgroup, swap) -
			       bpf_core_field_offset(struct mem_cgroup, memory),
			       bpf_core_type_id_kernel(struct page_counter));
}

/* What it has there, in pages. */
static __always_inline __u64 mthp_swap_usage(const struct page_counter *counter)
{
	return mthp_swap_counter(counter)->usage.counter;
}

/* The same, if the kernel takes back what was given; elsewhere nothing depends on it. */
static __always_inline __u64 mthp_swapped(const struct page_counter *counter,
					  const struct mthp_tunables *t)
{
	return mthp_common(t)->takes_back ? mthp_swap_usage(counter) : 0;
}

static __always_inline int mthp_limited(const struct page_counter *counter, __u64 unlimited)
{
	return counter->high < unlimited || counter->max < unlimited;
}

/* Has @cgrp a limit of its own? */
static __always_inline int mthp_own_limit(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	__u64 id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *css = cgrp->subsys[id];

	return css && mthp_limited(mthp_memory_counter(css), mthp_unlimited(t));
}

/*
 * The limit that leaves the least, as a key: of the counters from the cgroup's own to the
 * one below the root, the room below min(high, max), when @cache of the pages used would
 * make room.  With a @share of 0 each limit matters, whatever fits; @never_fits is of
 * mthp_never_fits().
 */
static __always_inline __s64 mthp_least_room(const struct mthp_counters *counters, __u64 cache,
					     __u32 share, __u64 never_fits)
{
	const struct mthp_tunables *t = mthp_any_profile();
	const __u64 unlimited = mthp_unlimited(t);
	struct page_counter *counter = counters->own;
	__u32 left = counters->nr, level = left;
	__s64 least = mthp_level_key(unlimited, 0);
	__u64 high, max;

	/* The root has no limits; a chain of counters is as long as its cgroup is deep. */
	if (!counter || !left)
		return least;
	/* Or clang would ask for the share again at each level. */
	asm volatile("" : "+r"(never_fits));
	for (; MTHP_GOES_ON; level--) {
		high = counter->high;
		max = counter->max;
		if (high < unlimited || max < unlimited)
			least = mthp_nearer(least, level, mthp_min(high, max), counter->usage.counter - cache,
					    mthp_swapped(counter, t) + never_fits, share, t);
		if (!--left)
			break;
		/* Here, and not before the loop, are the offsets to be added. */
		asm volatile("" : "+r"(counter));
		counter = counter->parent;
	}
	return least;
}

/*
 * The same of a cgroup.  A global function: the verifier follows its loop once, and not
 * again for each reason and each state before the call.
 */
__noinline __s64 mthp_nearest_limit(struct cgroup *cgrp __arg_trusted, __s64 cache_bytes, __u32 share,
				    __u64 never_fits)
{
	struct mthp_counters counters;

	mthp_counters(&counters, cgrp);
	return mthp_least_room(&counters, cache_bytes >> mthp_load()->page_shift, share, never_fits);
}

/* The same by a profile: key of the limit that binds, @pud: a PUD. */
static __always_inline __s64 mthp_limit_that_binds(struct cgroup *cgrp, __u64 cache_bytes, int pud,
						   const struct mthp_tunables *t)
{
	return mthp_nearest_limit(cgrp, mthp_unused(cache_bytes, pud, t), t->limit_share, mthp_no_excuse(pud, t));
}

/* Bytes below it, whatever the share of large folios; MTHP_NO_LIMIT without any. */
static __always_inline __u64 mthp_below_limits(struct cgroup *cgrp)
{
	return mthp_key_bytes(mthp_nearest_limit(cgrp, 0, 0, MTHP_NOT_COUNTED), mthp_any_profile());
}

/*
 * Does no limit bind @cgrp?  The walk is a third of what a request costs, and most
 * cgroups have none: so this is asked now and then, and remembered in between.
 */
static __always_inline __u32 mthp_no_limit(struct cgroup *cgrp)
{
	return mthp_below_limits(cgrp) == MTHP_NO_LIMIT;
}

/* Charged pages of the cgroup that pays for @cgrp; 0 without the memory controller. */
static __always_inline __u64 mthp_usage(struct cgroup *cgrp)
{
	struct mthp_counters counters;

	mthp_counters(&counters, cgrp);
	return counters.own ? counters.own->usage.counter : 0;
}

#endif /* MTHP_LIMITS_BPF_H */
