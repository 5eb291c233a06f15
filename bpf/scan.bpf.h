/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scan: a sleepable program that brings the pressure verdict and the size of the cgroups
 * of the subtree up to date.  mthp_ext runs it once per window and at each PSI event;
 * mthp_choose only reads what it left.
 *
 * As long as nobody stalls it visits those that are awake.  The totals of the root tell: they
 * grow with those of any cgroup below.
 *
 * It lists the cgroups under RCU and then visits them one by one.  A cgroup iterator would
 * hold cgroup_mutex over the whole walk, and make everybody wait who makes, removes or
 * configures a cgroup.
 */
#ifndef MTHP_SCAN_BPF_H
#define MTHP_SCAN_BPF_H

#include "awake.bpf.h"
#include "facts/cache.bpf.h"
#include "heartbeat.bpf.h"
#include "missed.h"
#include "report.bpf.h"
#include "state.bpf.h"
#include "stall.h"
#include "walk.h"

/* Weak: a policy without the rule pressure does without the scan, and without these. */
extern int bpf_cgroup_flush_stats(struct cgroup *cgrp) __ksym __weak;
extern __u64 bpf_cgroup_stall(struct cgroup *cgrp, __u32 state) __ksym __weak;
extern struct mem_cgroup *bpf_get_mem_cgroup(struct cgroup_subsys_state *css) __ksym __weak;
extern void bpf_put_mem_cgroup(struct mem_cgroup *memcg) __ksym __weak;
extern void bpf_mem_cgroup_flush_stats(struct mem_cgroup *memcg) __ksym __weak;
extern unsigned long bpf_mem_cgroup_page_state(struct mem_cgroup *memcg, int idx) __ksym __weak;
/*
 * Of the module, for kernels without the four above: the cgroup's own lists, as of now.  Where it is missing, libbpf
 * looks for it in what all modules bring, some time for each.  That takes CAP_SYS_ADMIN, which the unit does not
 * have; and there is no way to leave out one extern of an object.
 */
extern __u64 bpf_cgroup_anon_pages(struct cgroup *cgrp) __ksym __weak;

extern unsigned long bpf_mem_cgroup_vm_events(struct mem_cgroup *memcg, enum vm_event_item event) __ksym __weak;

#define MTHP_STAT(memcg, item)	\
	bpf_mem_cgroup_page_state(memcg, bpf_core_enum_value(enum node_stat_item, item))
#define MTHP_EVENTS(memcg, item)	\
	bpf_mem_cgroup_vm_events(memcg, bpf_core_enum_value(enum vm_event_item, item))

/*
 * How large it is, and what of that is page cache.  @below: to the nearest limit,
 * whatever the share of large folios.
 */
__noinline int mthp_scan_memory(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state __arg_nonnull,
				__u64 below, const struct mthp_tunables *t __arg_nonnull)
{
	int cache = mthp_cache_counts(state, t);
	struct mem_cgroup *memcg;
	__u64 bytes, own, inactive = 0, busy = 0;

	if (!cache) {
		state->cache_bytes = 0;
		/* Those below may count it: none beyond what is free here is credited to them. */
		state->dropped_bytes = below;
		state->cache_beyond = 0;
	}
	if (!state->populated) {
		/* What its last process left behind says nothing about the next one ... */
		state->memory_bytes = 0;
		state->now_bytes = 0;
		state->usage_pages = mthp_usage(cgrp);
		state->sparse = 0;
		/* ... but page cache makes room for those below. */
		if (!cache)
			return 0;
	}
	if (bpf_ksym_exists(bpf_get_mem_cgroup)) {
		memcg = bpf_get_mem_cgroup(&cgrp->self);
		if (!memcg) {
			state->memory_known = 0;
			return 0;
		}
		bpf_mem_cgroup_flush_stats(memcg);
		bytes = MTHP_STAT(memcg, NR_ANON_MAPPED) + MTHP_STAT(memcg, NR_SHMEM);
		if (cache) {
			inactive = MTHP_STAT(memcg, NR_INACTIVE_FILE);
			busy = MTHP_STAT(memcg, NR_FILE_DIRTY) + MTHP_STAT(memcg, NR_WRITEBACK);
		}
		bpf_put_mem_cgroup(memcg);
	} else {
		/* Page cache of cgroups below counts as used. */
		if (!bpf_ksym_exists(bpf_cgroup_anon_pages) || !mthp_accounted(cgrp)) {
			state->memory_known = 0;
			return 0;
		}
		bytes = bpf_cgroup_anon_pages(cgrp) << mthp_load()->page_shift;
		if (cache)
			inactive = mthp_own_cache(cgrp);
	}

	if (cache) {
		own = mthp_own_cache(cgrp);
		state->cache_beyond = mthp_cache_beyond(inactive, busy, own);
		mthp_room_of_cache(cgrp, state, mthp_cache_now(own, state->cache_beyond), below, 1);
	}
	if (!state->populated)
		return 0;
	state->memory_bytes = bytes;
	state->now_bytes = bytes;
	state->usage_pages = mthp_usage(cgrp);
	state->memory_known = 1;
	return 0;
}

/* What went to swap when the scan began was at somebody else's cost: space was short, or the device waits. */
__u32 mthp_swap_dear SEC(".data.scan") = 0;

/*
 * Of the levels from @cgrp's up, the highest whose limit is reached: all below it may miss what goes.
 * MTHP_NONE_REACHED: it is somebody else who takes.  0: something is scarce at one of them.
 */
__noinline __u32 mthp_reached(struct cgroup *cgrp __arg_trusted, const struct mthp_tunables *t __arg_nonnull)
{
	__u32 reached = MTHP_NONE_REACHED, scarce = cgrp->level > MTHP_MAX_DEPTH;
	const struct page_counter *swap;
	struct mthp_counters counters;
	struct cgroup *at;
	__s64 limit;
	int n, level;

	bpf_for(n, 0, MTHP_MAX_DEPTH) {
		level = cgrp->level - n;
		if (level < 1)
			break;
		at = bpf_cgroup_ancestor(cgrp, level);
		if (!at)
			break;
		bpf_rcu_read_lock();
		mthp_counters(&counters, at);
		if (counters.own) {
			swap = mthp_swap_counter(counters.own);
			limit = mthp_min(counters.own->high, counters.own->max);
			scarce |= mthp_scarce(limit, swap->usage.counter, swap->max, t);
			if (counters.own->usage.counter + (__s64)mthp_much(t) > limit)
				reached = level;
		}
		bpf_rcu_read_unlock();
		bpf_cgroup_release(at);
	}
	return scarce ? 0 : reached;
}

/*
 * What went to swap and came back of a cgroup and those below it; from zswap to a disk it goes once.
 * @flush: or it is that of a cgroup above.
 */
static __always_inline int mthp_read_taken(struct cgroup *cgrp, int flush, __u64 *went, __u64 *came)
{
	struct mem_cgroup *memcg = bpf_get_mem_cgroup(&cgrp->self);

	if (!memcg)
		return -1;
	if (flush)
		bpf_mem_cgroup_flush_stats(memcg);
	*went = MTHP_EVENTS(memcg, PSWPOUT);
	*came = MTHP_EVENTS(memcg, PSWPIN) + MTHP_STAT(memcg, WORKINGSET_REFAULT_FILE);
	if (bpf_core_enum_value_exists(enum vm_event_item, ZSWPWB)) {
		*went += MTHP_EVENTS(memcg, ZSWPOUT) - MTHP_EVENTS(memcg, ZSWPWB);
		*came += MTHP_EVENTS(memcg, ZSWPIN);
	}
	bpf_put_mem_cgroup(memcg);
	return 0;
}

/*
 * Does that lift its rules?  Not where the machine is short.  Nor where its nodes are, whatever the
 * profile counts: a full node stalls those alone who are bound to it.
 */
static __always_inline __u32 mthp_scan_lifts(struct cgroup *cgrp, __u32 unmissed, __u64 machine_bytes,
					     const struct mthp_tunables *t)
{
	struct mthp_machine nodes = {};

	if (!mthp_lifts(unmissed, machine_bytes, t))
		return 0;
	if (!mthp_counts_machine(t))
		return 1;
	mthp_read_machine(&nodes, cgrp, 1);
	return mthp_lifts(1, mthp_machine_room(&nodes, 0, t), t);
}

/*
 * Is what reclaim takes of it missed?  That is asked below a limit alone, of a profile with both rules
 * that it lifts, and where large folios may fill a limit: there too much can be taken back.  A neighbour
 * below the same limit may be the one that misses it, so all of that limit is looked at.  Whatever
 * cannot be read is missed.
 */
__noinline int mthp_scan_taken(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state __arg_nonnull,
			       const struct mthp_tunables *t __arg_nonnull)
{
	struct mthp_taken_now taken = {};
	struct cgroup *above = 0;
	__u64 went, came;
	int failed = 1;

	/* Nobody asks; what was found ages. */
	if (!state->populated)
		return 0;
	if (!mthp_never_fits(t->limit_share, t) && mthp_has(t, MTHP_RULE(PRESSURE)) && mthp_has(t, MTHP_RULE(ROOM)) &&
	    !state->unlimited && !mthp_swap_dear && bpf_ksym_exists(bpf_mem_cgroup_vm_events) &&
	    bpf_ksym_exists(bpf_cgroup_spare_pages))
		taken.reached = mthp_reached(cgrp, t);
	if (taken.reached) {
		taken.level = mthp_looks_at(&state->taken, taken.reached);
		/* There is none of MTHP_NONE_REACHED. */
		above = bpf_cgroup_ancestor(cgrp, taken.level);
	}
	if (above) {
		failed = mthp_read_taken(above, 1, &went, &came);
		if (!failed)
			failed = mthp_read_taken(cgrp, 0, &taken.went, &taken.came);
		bpf_cgroup_release(above);
	}
	if (failed) {
		__builtin_memset(&state->taken, 0, sizeof(state->taken));
	} else {
		taken.others = came > taken.came ? came - taken.came : 0;
		taken.now = bpf_ktime_get_ns();
		mthp_taken_step(&state->taken, &taken, t);
	}
	/* Once, as requests read it. */
	state->lifted = mthp_scan_lifts(cgrp, state->taken.unmissed >= MTHP_UNMISSED_WINDOWS, state->machine_bytes, t);
	return 0;
}

/*
 * What the machine had left when the scan began: the same for every cgroup it meets, unless
 * its profile counts the nodes of each.  Not static: clang would take the parts for variables
 * of their own, of which its type information is wrong.
 */
struct mthp_machine mthp_scan_machine;

/* The same, as a profile sees it. */
static __always_inline struct mthp_machine mthp_scanned_machine(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	if (t->count_nodes || !mthp_counts_machine(t))
		return mthp_machine_now(cgrp, t);
	return mthp_scan_machine;
}

/* The root's total of the last scan ... */
__u64 mthp_root_stall SEC(".data.scan") = 0;
/* ... and the last one to which it had not grown since the one before: nobody stalled. */
__u64 mthp_calm_until SEC(".data.scan") = 0;
/* Scans until the next one that visits all. */
__u32 mthp_left SEC(".data.scan") = 0;

/* Its verdict of pressure.  Returns when. */
__noinline __u64 mthp_judge(struct cgroup *cgrp __arg_trusted, struct mthp_stall *stall __arg_nonnull,
			    const struct mthp_tunables *t __arg_nonnull)
{
	__u32 inherited = 0;
	__u64 now, total;

	if (bpf_cgroup_flush_stats(cgrp)) {
		/* Its pressure is off (cgroup.pressure): a total that stands still is no calm. */
		mthp_stall_blind(stall, mthp_inherited_pressure(cgrp));
		return bpf_ktime_get_ns();
	}
	if (!stall->seen)
		inherited = mthp_inherited_pressure(cgrp);
	mthp_stall_rest(stall, mthp_calm_until, t);
	total = bpf_cgroup_stall(cgrp, t->some_stall ?
			bpf_core_enum_value(enum psi_states, PSI_MEM_SOME) :
			bpf_core_enum_value(enum psi_states, PSI_MEM_FULL));
	now = bpf_ktime_get_ns();
	mthp_stall_step(stall, now, total, inherited, t);
	return now;
}

/* One cgroup.  Made of global functions, each of which the verifier follows once. */
__noinline int mthp_visit(struct cgroup *cgrp __arg_trusted, __u32 lightly)
{
	struct mthp_cgroup *state;
	const struct mthp_tunables *t;
	struct mthp_machine machine;
	__u64 below = MTHP_NO_LIMIT;
	__u32 populated;
	int asleep, unsent = 0;

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state) {
		/* Parents come before children: the parent's verdict is fresh. */
		state = mthp_adopt(cgrp);
		if (!state)
			return 0;	/* out of memory: this cgroup waits, the others do not */
	}
	asleep = lightly && state->scanned_ns && !mthp_was_awake(state);
	if (!asleep) {
		mthp_announce(cgrp, state);
		/* A request may have looked above while somebody assigned. */
		mthp_follow(cgrp);
	}
	t = mthp_profile_of(cgrp, state);

	state->scanned_ns = mthp_judge(cgrp, &state->stall, t);
	if (asleep && mthp_stall_is_over(&state->stall))
		return 0;

	machine = mthp_scanned_machine(cgrp, t);
	mthp_keep_machine(state, &machine, t);
	if (mthp_load()->rules & MTHP_RULE(ROOM)) {
		below = mthp_below_limits(cgrp);
		state->unlimited = below == MTHP_NO_LIMIT;
	}
	/* The next request samples, and wakes it for the next scan. */
	__builtin_memset(state->due, 0, sizeof(state->due));
	populated = mthp_populated(cgrp);
	/*
	 * A process that has asked meanwhile lives there, if only since.  Where each request samples,
	 * which is for measuring, nothing is ever due: then its next fault says it again.
	 */
	if (populated || !state->due[BPF_MTHP_FAULT])
		state->populated = populated;
	mthp_scan_memory(cgrp, state, below, t);
	mthp_scan_taken(cgrp, state, t);
	if (state->populated)
		unsent = mthp_report(cgrp, state, 1) < 0;
	if (mthp_load()->announces && !state->announced)
		unsent = 1;
	if (unsent || !mthp_stall_is_over(&state->stall))
		mthp_wake(cgrp);
	return 0;
}

/* Has nobody below @root stalled since the last scan?  Without its pressure nobody knows. */
__noinline int mthp_is_calm(struct cgroup *root __arg_trusted)
{
	__u64 total, now = bpf_ktime_get_ns();

	if (bpf_cgroup_flush_stats(root))
		return 0;
	total = bpf_cgroup_stall(root, bpf_core_enum_value(enum psi_states, PSI_MEM_SOME));
	if (total != mthp_root_stall) {
		mthp_root_stall = total;
		return 0;
	}
	mthp_calm_until = now;
	return 1;
}

/* A scan begins: what holds for all of it.  Without its root there is nothing to visit. */
static __noinline int mthp_begin(struct mthp_walk *walk)
{
	__u32 turn = mthp_turn;
	struct cgroup *root;
	int calm;

	root = bpf_cgroup_from_id(walk->root_id);
	if (!root)
		return 0;
	calm = mthp_is_calm(root);
	mthp_swap_dear = walk->swap_dear;
	mthp_pud_on = walk->pud_on;
	if (mthp_load()->rules & MTHP_RULE(ROOM))
		mthp_read_machine(&mthp_scan_machine, root, 0);
	bpf_cgroup_release(root);
	/* From here on those that wake are visited by the next scan. */
	mthp_awake[(turn + 1) & 1] = 0;
	mthp_turn = turn + 1;
	mthp_walk_begin(walk, turn, mthp_awake[turn & 1], calm, &mthp_left);
	return 0;
}

/*
 * Make the next list.  Cgroups that come or go before its end may be in no list of this
 * scan, or in two: they wait for the next scan, or are looked at twice.
 */
static __noinline int mthp_make_list(struct mthp_walk *walk)
{
	struct cgroup_subsys_state *css;
	struct cgroup *root;
	__u64 *id;
	__u32 n;

	root = bpf_cgroup_from_id(walk->root_id);
	if (!root)
		return 0;
	bpf_rcu_read_lock();
	bpf_for_each(css, css, &root->self, BPF_CGROUP_ITER_DESCENDANTS_PRE) {
		if (!mthp_walk_meets_new(walk))
			continue;
		n = walk->listed;
		if (n >= MTHP_LIST)
			break;
		id = bpf_map_lookup_elem(&mthp_list, &n);
		if (!id)
			break;
		*id = css->cgroup->kn->id;
		walk->listed = n + 1;
	}
	bpf_rcu_read_unlock();
	bpf_cgroup_release(root);
	return 0;
}

/* A part of the scan.  Returns 1 if there is more to do. */
SEC("syscall")
int mthp_scan(struct mthp_walk *walk)
{
	struct cgroup *cgrp;
	__u32 n, more;
	__u64 *id;
	int i;

	if (!walk->begun)
		mthp_begin(walk);
	if (walk->whole && mthp_walk_is_through(walk)) {
		mthp_walk_turn(walk);
		mthp_make_list(walk);
	}
	bpf_for(i, 0, MTHP_VISITS) {
		if (mthp_walk_is_through(walk))
			break;
		n = walk->from + walk->next;
		walk->next++;
		id = bpf_map_lookup_elem(&mthp_list, &n);
		if (!id)
			break;
		cgrp = bpf_cgroup_from_id(*id);
		if (!cgrp)
			continue;	/* removed meanwhile */
		mthp_visit(cgrp, walk->lightly);
		bpf_cgroup_release(cgrp);
	}
	more = mthp_walk_goes_on(walk);
	if (!more)
		mthp_scanned = bpf_ktime_get_ns();
	return more;
}

#endif /* MTHP_SCAN_BPF_H */
