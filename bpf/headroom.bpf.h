/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How far a cgroup is from its nearest limit, read at fault time straight from
 * the page counters: no daemon and no helper call in between.
 */
#ifndef MTHP_HEADROOM_BPF_H
#define MTHP_HEADROOM_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi.h"

/*
 * The verifier wants a bound.  Deeper cgroup trees are legal but unheard of;
 * there the limits nearest to the process count.
 */
#define MTHP_MAX_DEPTH	64

extern void *bpf_rdonly_cast(const void *obj, __u32 btf_id) __ksym;

struct mthp_room {
	__u64 headroom_bytes;	/* MTHP_NO_LIMIT: no limit on the path */
	__u64 usage_pages;	/* charged to the nearest cgroup with a counter */
};

/*
 * Counter of the cgroup that pays for @cgrp's memory: its own, or where the
 * memory controller is not enabled that far down, the nearest ancestor's.
 * The caller holds RCU, which keeps cgroup and css alive.
 */
static __always_inline struct page_counter *mthp_counter(struct cgroup *cgrp)
{
	__u32 id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *css, *up;
	struct mem_cgroup *memcg;
	int i;

	cgrp = bpf_rdonly_cast(cgrp, bpf_core_type_id_kernel(struct cgroup));
	css = cgrp->subsys[id];
	for (i = 0; i < MTHP_MAX_DEPTH && !css; i++) {
		up = cgrp->self.parent;
		if (!up)
			return 0;
		cgrp = up->cgroup;
		css = cgrp->subsys[id];
	}
	if (!css)
		return 0;
	/* The css is the first member of struct mem_cgroup. */
	memcg = bpf_rdonly_cast(css, bpf_core_type_id_kernel(struct mem_cgroup));
	return bpf_rdonly_cast(&memcg->memory,
			       bpf_core_type_id_kernel(struct page_counter));
}

/*
 * Minimum without a branch, for values far from the ends of 64 bits.  With
 * branches the verifier would follow every path through every level of the
 * loop below: five to the power of the depth.
 */
static __always_inline __s64 mthp_min(__s64 a, __s64 b)
{
	__s64 less = a - b;

	asm volatile("" : "+r"(less));	/* or clang sees a minimum and branches */
	return b + (less & (less >> 63));
}

/*
 * Minimum over the cgroup and its ancestors of (min(high, max) - usage).
 * Host-wide headroom (no limit on the path) is not looked at: there the rule
 * has no opinion.  Without @limits only the usage is read.
 */
static __always_inline void mthp_measure_room(struct mthp_room *room, struct cgroup *cgrp,
					      __u32 page_shift, int limits)
{
	/* PAGE_COUNTER_MAX, what the kernel stores for "max": above any real memory. */
	const __s64 unlimited = 0x7fffffffffffffffLL >> page_shift;
	struct page_counter *counter = mthp_counter(cgrp);
	__s64 least = unlimited;
	int i;

	room->headroom_bytes = MTHP_NO_LIMIT;
	room->usage_pages = 0;
	if (!counter)
		return;
	room->usage_pages = counter->usage.counter;
	if (!limits)
		return;
	for (i = 0; i < MTHP_MAX_DEPTH && counter; i++) {
		least = mthp_min(least, mthp_min(counter->high, counter->max) -
					counter->usage.counter);
		counter = counter->parent;
	}
	/* An unlimited level leaves "max" minus what is used: no limit either. */
	if (least < unlimited / 2)
		room->headroom_bytes = least > 0 ? (__u64)least << page_shift : 0;
}

#endif /* MTHP_HEADROOM_BPF_H */
