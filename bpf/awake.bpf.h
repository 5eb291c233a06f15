/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which cgroups the next scan visits: those that have asked since the last one began, those that
 * are not at rest, and those above them.  The others stay as they are: nobody has stalled there,
 * and the first one to ask samples.
 */
#ifndef MTHP_AWAKE_BPF_H
#define MTHP_AWAKE_BPF_H

#include "state.bpf.h"
#include "walk.h"

/* Ids of the cgroups to visit, parents before children: of all, and of two turns of those awake. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MTHP_LIST + 2 * MTHP_AWAKE);
	__type(key, __u32);
	__type(value, __u64);
} mthp_list SEC(".maps");

/* Counts the scans.  Requests read it, so what is written meanwhile is in other cache lines. */
volatile __u32 mthp_turn SEC(".data.turn") = 1;

/* Cgroups that woke in this turn, and in the one that the scan visits; may exceed the list's. */
volatile __u32 mthp_awake[2] SEC(".data.awake") = {};

/* Nobody calls them but by the rule pressure: without scans all may sleep. */
static __always_inline int mthp_wakes(void)
{
	return (mthp_load()->rules & MTHP_RULE(PRESSURE)) != 0;
}

/* Would the next scan leave it out? */
static __always_inline int mthp_is_asleep(const struct mthp_cgroup *state)
{
	return mthp_wakes() && state->woken != mthp_turn;
}

/* Is it in the list of this scan, or has it woken since that began? */
static __always_inline int mthp_was_awake(const struct mthp_cgroup *state)
{
	return mthp_turn - state->woken <= 1;
}

/*
 * It goes to the end of the list of its turn.  If a scan begins between the turn's reading and the
 * list's, it is in none: its next sample finds it asleep and wakes it, or the next scan of all does.
 */
__noinline int mthp_wake_one(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state __arg_nonnull)
{
	__u32 turn = mthp_turn, was = state->woken, n;
	__u64 *id;

	/* Of several CPUs one does it. */
	if (was == turn || __sync_val_compare_and_swap(&state->woken, was, turn) != was)
		return 0;
	n = __sync_fetch_and_add(&mthp_awake[turn & 1], 1);
	/* The scan sees that there were more, and visits all. */
	if (n >= MTHP_AWAKE)
		return 0;
	n += mthp_list_of(turn);
	id = bpf_map_lookup_elem(&mthp_list, &n);
	if (id)
		*id = cgrp->kn->id;
	return 0;
}

/* The next scan visits the cgroup, after those above it: verdict and page cache come from there. */
__noinline int mthp_wake(struct cgroup *cgrp __arg_trusted)
{
	struct mthp_cgroup *state;
	struct cgroup *at;
	int n, level, first = cgrp->level - MTHP_MAX_DEPTH;

	/* In a deep tree those at the top are left out, and not the cgroup itself. */
	if (first < 0)
		first = 0;
	bpf_for(n, 0, MTHP_MAX_DEPTH + 1) {
		level = first + n;
		if (level > cgrp->level)
			break;
		at = bpf_cgroup_ancestor(cgrp, level);
		if (!at)
			break;
		state = bpf_cgrp_storage_get(&mthp_cgroups, at, 0, 0);
		if (state)
			mthp_wake_one(at, state);
		bpf_cgroup_release(at);
	}
	return 0;
}

#endif /* MTHP_AWAKE_BPF_H */
