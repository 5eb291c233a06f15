/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page cache that reclaim would drop first: below a limit it is room.  A scan learns
 * how much there is in each subtree; in between, requests read the lists of their own
 * cgroup.
 */
#ifndef MTHP_CACHE_BPF_H
#define MTHP_CACHE_BPF_H

#include "state.bpf.h"

/* More nodes are legal; the page cache on those beyond waits for the scan. */
#define MTHP_MAX_NODES	8

/* The kernel's MAX_NR_GENS, MIN_NR_GENS, ANON_AND_FILE and LRU_GEN_FILE: macros, and an enum without a name. */
#define MTHP_MAX_GENS	4
#define MTHP_MIN_GENS	2
#define MTHP_GEN_KINDS	2
#define MTHP_GEN_FILE	1

/* May page cache be room for @state's cgroup?  Only below a limit. */
static __always_inline int mthp_cache_counts(const struct mthp_cgroup *state,
					     const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(HEADROOM)) && !t->count_cache && !state->unlimited;
}

/* Offset of an array of arrays in a kernel struct, 0 if there is none.  Tools describe them in two ways. */
#define MTHP_ARRAYS(type, field)							\
	(bpf_core_field_exists(struct type##___flat, field) ?				\
		bpf_core_field_offset(struct type##___flat, field) :			\
	 bpf_core_field_exists(struct type, field) ?					\
		bpf_core_field_offset(struct type, field) : 0)

/* Pages on the classic LRU's inactive list of files; 0 while the multi-gen LRU has them all. */
static __always_inline __s64 mthp_inactive_files(__u64 node, __u32 zones)
{
	__u64 lists = bpf_core_enum_value(enum lru_list, NR_LRU_LISTS);
	__u64 list = bpf_core_enum_value(enum lru_list, LRU_INACTIVE_FILE);
	__u64 sizes = MTHP_ARRAYS(mem_cgroup_per_node, lru_zone_size);
	__s64 pages = 0;
	__u32 z;

	if (!sizes)
		return 0;
	for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++)
		pages += mthp_kernel_word((const void *)(node + sizes), z * lists + list);
	return pages;
}

/*
 * The multi-gen LRU calls all but its two youngest generations inactive; what is read
 * once starts in the oldest.  But when those two are all there are, reclaim takes the
 * older of them next: @oldest counts that one, too.
 */
static __always_inline __s64 mthp_old_files(__u64 node, __u32 zones, __u32 oldest)
{
	__u64 sizes = MTHP_ARRAYS(lru_gen_folio, nr_pages);
	__u64 lrugen, seq, last;
	__s64 pages = 0;
	__u32 i, z;

	if (!bpf_core_field_exists(struct lruvec, lrugen) || !sizes)
		return 0;
	lrugen = node + bpf_core_field_offset(struct mem_cgroup_per_node, lruvec) +
		 bpf_core_field_offset(struct lruvec, lrugen);
	seq = mthp_kernel_word((const void *)(lrugen + bpf_core_field_offset(struct lru_gen_folio, min_seq)),
			       MTHP_GEN_FILE);
	last = mthp_kernel_word((const void *)(lrugen + bpf_core_field_offset(struct lru_gen_folio, max_seq)), 0) -
	       MTHP_MIN_GENS;
	if (oldest && (__s64)(last - seq) < 0)
		last = seq;
	for (i = 0; i < MTHP_MAX_GENS && (__s64)(last - seq) >= 0; i++, seq++)
		for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++)
			pages += mthp_kernel_word((const void *)(lrugen + sizes),
						  ((seq % MTHP_MAX_GENS) * MTHP_GEN_KINDS + MTHP_GEN_FILE) *
						  zones + z);
	return pages;
}

/*
 * Pages of files of @cgrp itself that reclaim would take first, as of now: these sums are
 * the kernel's own and exact, while its statistics lag behind by seconds until somebody
 * flushes them.  Without @oldest what those statistics would call inactive.  Each of the
 * two LRUs has what the other has not.  A node without memory ends the count.
 */
__noinline __s64 mthp_own_idle_pages(struct cgroup *cgrp __arg_trusted, __u32 oldest)
{
	__u32 zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	__u64 memcg = (__u64)cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)];
	__u64 infos = memcg + bpf_core_field_offset(struct mem_cgroup, nodeinfo);
	__s64 pages = 0;
	__u64 node;
	__u32 n;

	if (!memcg)
		return 0;
	for (n = 0; n < MTHP_MAX_NODES; n++) {
		node = mthp_kernel_word((const void *)infos, n);
		/* The array is as long as the host has nodes: what lies beyond does not point back. */
		if (!node || (__u64)mthp_kernel_word((const void *)(node + bpf_core_field_offset(
						     struct mem_cgroup_per_node, memcg)), 0) != memcg)
			break;
		pages += mthp_inactive_files(node, zones) + mthp_old_files(node, zones, oldest);
	}
	return pages;
}

/* Bytes of page cache by now: of @cgrp itself as of now, of those below as of the last scan. */
static __always_inline __u64 mthp_cache_now(struct cgroup *cgrp, const struct mthp_cgroup *state,
					    const struct mthp_tunables *t)
{
	__s64 files = (mthp_own_idle_pages(cgrp, 1) << t->page_shift) + state->cache_beyond;

	return files > 0 ? files : 0;
}

/*
 * How much further the nearest limit would be without @files bytes of page cache.
 * What faults use of it unseen stalls somebody, and that brings the next scan at once.
 *
 * At each level it is the page cache of the whole subtree that makes room, so the
 * least of these rooms comes down from the parent, which the scan met before; above
 * the cgroup that the policy is attached to page cache counts as used.  @headroom is
 * what is left with all of it used.
 */
static __noinline void mthp_room_of_cache(struct cgroup *cgrp, struct mthp_cgroup *state,
					  __u64 files, __u64 headroom)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_counters counters;
	__u64 room = MTHP_NO_LIMIT;
	struct mthp_cgroup *above;
	struct cgroup *parent;
	__s64 limit, own;

	if (!cgrp || !state)
		return;
	parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (parent) {
		above = bpf_cgrp_storage_get(&mthp_cgroups, parent, 0, 0);
		room = above && above->scanned_ns ? above->room_bytes : mthp_nearest_limit(parent, 0, 0);
		bpf_cgroup_release(parent);
	}
	mthp_counters(&counters, cgrp);
	if (counters.own) {
		limit = mthp_min(counters.own->high, counters.own->max);
		own = ((limit - counters.own->usage.counter) << t->page_shift) + files;
		if (limit < (__s64)mthp_unlimited(t) && (__u64)own < room)
			room = own > 0 ? own : 0;
	}
	state->room_bytes = room;
	state->cache_bytes = headroom < room && room != MTHP_NO_LIMIT ? room - headroom : 0;
}

/*
 * What a request samples: where page cache could make room, how much there is by now
 * in its own cgroup; of that below, and of what must be written, what the last scan saw.
 * A global function, which the verifier follows once.
 */
__noinline int mthp_sample_cache(struct cgroup *cgrp __arg_trusted)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_cgroup *state;

	if (mthp_nearest_limit(cgrp, 0, t->limit_share) == MTHP_NO_LIMIT)
		return 0;
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state)
		return 0;
	mthp_room_of_cache(cgrp, state, mthp_cache_now(cgrp, state, t), mthp_nearest_limit(cgrp, 0, 0));
	return 0;
}

#endif /* MTHP_CACHE_BPF_H */
