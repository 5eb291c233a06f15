/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page cache that reclaim would drop first: below a limit it is room.  A scan learns
 * how much there is in each subtree; in between, requests look at the inactive list of
 * their own cgroup.
 */
#ifndef MTHP_CACHE_BPF_H
#define MTHP_CACHE_BPF_H

#include "state.bpf.h"

/* More nodes are legal; the page cache on those beyond waits for the scan. */
#define MTHP_MAX_NODES	8
#define MTHP_MAX_ZONES	8

/* May page cache be room for @state's cgroup?  Only below a limit. */
static __always_inline int mthp_cache_counts(const struct mthp_cgroup *state,
					     const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(HEADROOM)) && !t->count_cache && !state->unlimited;
}

/* Where a cgroup keeps the lengths of its lists, by zone and list; 0 if nobody knows. */
static __always_inline __u64 mthp_list_sizes(void)
{
	if (bpf_core_field_exists(struct mem_cgroup_per_node___flat, lru_zone_size))
		return bpf_core_field_offset(struct mem_cgroup_per_node___flat, lru_zone_size);
	if (bpf_core_field_exists(struct mem_cgroup_per_node, lru_zone_size))
		return bpf_core_field_offset(struct mem_cgroup_per_node, lru_zone_size);
	return 0;
}

/*
 * Pages of files on the inactive lists of @cgrp itself, as of now: these sums are the
 * kernel's own and exact, while its statistics lag behind by seconds until somebody
 * flushes them.  A node without memory ends the count.
 */
__noinline __u64 mthp_own_idle_pages(struct cgroup *cgrp __arg_trusted)
{
	__u64 lists = bpf_core_enum_value(enum lru_list, NR_LRU_LISTS);
	__u64 list = bpf_core_enum_value(enum lru_list, LRU_INACTIVE_FILE);
	__u32 zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	__u64 memcg = (__u64)cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)];
	__u64 infos = memcg + bpf_core_field_offset(struct mem_cgroup, nodeinfo);
	__u64 pages = 0, node, sizes = mthp_list_sizes();
	__u32 n, z;

	if (!memcg || !sizes)
		return 0;
	for (n = 0; n < MTHP_MAX_NODES; n++) {
		node = mthp_kernel_word((const void *)infos, n);
		/* The array is as long as the host has nodes: what lies beyond does not point back. */
		if (!node || (__u64)mthp_kernel_word((const void *)(node + bpf_core_field_offset(
						     struct mem_cgroup_per_node, memcg)), 0) != memcg)
			break;
		for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++)
			pages += mthp_kernel_word((const void *)(node + sizes), z * lists + list);
	}
	return pages;
}

/*
 * How much further the nearest limit would be without @files bytes of page cache.
 * What faults use of it unseen stalls somebody, and that brings the next scan at once.
 *
 * At each level it is the page cache of the whole subtree that makes room, so the
 * least of these rooms comes down from the parent, which the scan met before; above
 * the cgroup that the policy is attached to page cache counts as used.  @bare is the
 * room with all of it used.
 */
static __noinline void mthp_room_of_cache(struct cgroup *cgrp, struct mthp_cgroup *state,
					  __u64 files, __u64 bare)
{
	const struct mthp_tunables *t = mthp_tuned();
	struct mthp_counters counters;
	__u64 roomy = MTHP_NO_LIMIT;
	struct mthp_cgroup *above;
	struct cgroup *parent;
	__s64 limit, room;

	if (!cgrp || !state)
		return;
	parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (parent) {
		above = bpf_cgrp_storage_get(&mthp_cgroups, parent, 0, 0);
		roomy = above && above->scanned_ns ? above->roomy_bytes : mthp_nearest_limit(parent, 0, 0);
		bpf_cgroup_release(parent);
	}
	mthp_counters(&counters, cgrp);
	if (counters.own) {
		limit = mthp_min(counters.own->high, counters.own->max);
		room = ((limit - counters.own->usage.counter) << t->page_shift) + files;
		if (limit < (__s64)mthp_unlimited(t) && (__u64)room < roomy)
			roomy = room > 0 ? room : 0;
	}
	state->roomy_bytes = roomy;
	state->cache_bytes = bare < roomy && roomy != MTHP_NO_LIMIT ? roomy - bare : 0;
}

/*
 * What a request looks at: where page cache could make room, how much there is by now
 * in its own cgroup; of that below, and of what must be written, what the last scan saw.
 * A global function, which the verifier follows once.
 */
__noinline int mthp_look_at_cache(struct cgroup *cgrp __arg_trusted)
{
	const struct mthp_tunables *t = mthp_tuned();
	struct mthp_cgroup *state;
	__s64 files;

	if (mthp_nearest_limit(cgrp, 0, t->limit_share) == MTHP_NO_LIMIT)
		return 0;
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state)
		return 0;
	files = (mthp_own_idle_pages(cgrp) << t->page_shift) + state->cache_beyond;
	mthp_room_of_cache(cgrp, state, files > 0 ? files : 0, mthp_nearest_limit(cgrp, 0, 0));
	return 0;
}

#endif /* MTHP_CACHE_BPF_H */
