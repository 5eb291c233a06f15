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

/*
 * Counter of the cgroup that pays for @cgrp's memory: its own, or where the
 * memory controller is not enabled that far down, the nearest ancestor's.
 * The caller holds RCU, which keeps cgroup and css alive.
 *
 * Loads through a cast pointer are guarded, eight machine instructions each:
 * the code below is written to need few of them.
 */
static __always_inline struct page_counter *mthp_counter(struct cgroup *cgrp)
{
	__u32 id = bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	struct cgroup_subsys_state *css = cgrp->subsys[id], *up;
	struct mem_cgroup *memcg;
	int i;

	if (!css) {
		cgrp = bpf_rdonly_cast(cgrp, bpf_core_type_id_kernel(struct cgroup));
		for (i = 0; i < MTHP_MAX_DEPTH && !css; i++) {
			up = cgrp->self.parent;
			if (!up)
				return 0;
			cgrp = up->cgroup;
			css = cgrp->subsys[id];
		}
		if (!css)
			return 0;
	}
	/* The css is the first member of struct mem_cgroup. */
	memcg = bpf_rdonly_cast(css, bpf_core_type_id_kernel(struct mem_cgroup));
	return bpf_rdonly_cast(&memcg->memory,
			       bpf_core_type_id_kernel(struct page_counter));
}

/*
 * Minimum without a branch, for values far from the ends of 64 bits.  From a
 * branch the verifier would learn a range for each side, take them for different
 * states, and follow every combination of them through the loop below.
 */
static __always_inline __s64 mthp_min(__s64 a, __s64 b)
{
	__s64 less = a - b;

	asm volatile("" : "+r"(less));	/* or clang sees a minimum and branches */
	return b + (less & (less >> 63));
}

/*
 * Bytes until the nearest limit: the minimum over the counter and its ancestors
 * of (min(high, max) - usage).  Without any limit MTHP_NO_LIMIT: host-wide
 * headroom is not looked at, so there the rule has no opinion.
 */
static __always_inline __u64 mthp_headroom(struct page_counter *counter, __u32 page_shift)
{
	/* PAGE_COUNTER_MAX, what the kernel stores for "max" */
	const __u64 unlimited = 0x7fffffffffffffffULL >> page_shift;
	struct page_counter *up;
	__s64 least = unlimited;
	__u64 high, max;
	int i;

	for (i = 0; i < MTHP_MAX_DEPTH && counter; i++) {
		up = counter->parent;
		if (!up)
			break;	/* the root has no limits */
		high = counter->high;
		max = counter->max;
		if (high < unlimited)
			least = mthp_min(least, high - counter->usage.counter);
		if (max < unlimited)
			least = mthp_min(least, max - counter->usage.counter);
		counter = up;
	}
	if (least >= (__s64)unlimited)
		return MTHP_NO_LIMIT;
	return least > 0 ? (__u64)least << page_shift : 0;
}

#endif /* MTHP_HEADROOM_BPF_H */
