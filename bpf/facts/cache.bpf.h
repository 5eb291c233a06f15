/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page cache that reclaim would drop first: below a limit it is room.  A scan learns
 * how much there is in each subtree; in between, requests read the lists of their own
 * cgroup.  What an old scan has learnt counts as used.
 */
#ifndef MTHP_CACHE_BPF_H
#define MTHP_CACHE_BPF_H

#include "facts/limits.bpf.h"
#include "heartbeat.bpf.h"
#include "state.bpf.h"

/* Of the series.  It counts as of now; statistics lag behind until somebody flushes them. */
extern __u64 bpf_cgroup_cold_file_pages(struct cgroup *cgrp) __ksym __weak;

/* May page cache be room for @state's cgroup?  Only below a limit. */
static __always_inline int mthp_cache_counts(const struct mthp_cgroup *state,
					     const struct mthp_tunables *t)
{
	return mthp_has(t, MTHP_RULE(ROOM)) && t->spare_cache && !state->unlimited;
}

/* Bytes of it in @cgrp itself by now.  Where the carrier lacks the kfunc, the last scan has them all. */
static __always_inline __u64 mthp_own_cache(struct cgroup *cgrp)
{
	if (!bpf_ksym_exists(bpf_cgroup_cold_file_pages))
		return 0;
	return bpf_cgroup_cold_file_pages(cgrp) << mthp_load()->page_shift;
}

/*
 * How much further the nearest limit would be without @files bytes of page cache.
 * What faults use of it unseen stalls somebody, and that brings the next scan at once.
 *
 * At each level it is the page cache of the whole subtree that makes room, so the
 * least of these rooms comes down from the parent, which the scan met before; above
 * the cgroup that the policy is attached to page cache counts as used.  @below is what
 * is left with all of it used.  Not @fresh: what scans have learnt of the parent is too old.
 */
__noinline int mthp_room_of_cache(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state __arg_nonnull,
				  __u64 files, __u64 below, int fresh)
{
	const struct mthp_tunables *t = mthp_any_profile();
	struct mthp_counters counters;
	__u64 room = MTHP_NO_LIMIT;
	struct mthp_cgroup *above;
	struct cgroup *parent;
	__s64 limit, own;

	parent = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (parent) {
		above = bpf_cgrp_storage_get(&mthp_cgroups, parent, 0, 0);
		room = fresh && above && above->scanned_ns ? above->dropped_bytes :
							      mthp_below_limits(parent);
		bpf_cgroup_release(parent);
	}
	mthp_counters(&counters, cgrp);
	if (counters.own) {
		limit = mthp_min(counters.own->high, counters.own->max);
		own = ((limit - counters.own->usage.counter) << mthp_load()->page_shift) + files;
		if (limit < (__s64)mthp_unlimited(t) && (__u64)own < room)
			room = own > 0 ? own : 0;
	}
	state->dropped_bytes = room;
	state->cache_bytes = below < room && room != MTHP_NO_LIMIT ? room - below : 0;
	return 0;
}

/*
 * What a request samples: where page cache could make room, how much there is by now
 * in its own cgroup; of that below, and of what must be written, what the last scan saw.
 * A global function, which the verifier follows once.
 */
__noinline int mthp_sample_cache(struct cgroup *cgrp __arg_trusted)
{
	const struct mthp_tunables *t;
	struct mthp_cgroup *state;
	int fresh = !mthp_is_stale();

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state)
		return 0;
	t = mthp_profile_of(cgrp, state);
	if (mthp_key_bytes(mthp_limit_that_binds(cgrp, 0, 0, t), t) == MTHP_NO_LIMIT)
		return 0;
	mthp_room_of_cache(cgrp, state, mthp_cache_now(mthp_own_cache(cgrp), fresh ? state->cache_beyond : 0),
			   mthp_below_limits(cgrp), fresh);
	return 0;
}

#endif /* MTHP_CACHE_BPF_H */
