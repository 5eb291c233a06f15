/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The body of mthp_choose.  A policy is a set of rules (MTHP_POLICY_RULES); those
 * it has not cost nothing, as the verifier removes them at load.
 */
#ifndef MTHP_CHOOSE_BPF_H
#define MTHP_CHOOSE_BPF_H

#include "cache.bpf.h"
#include "state.bpf.h"

/*
 * A rule refuses every order.  Such a cgroup asks the most often, so there the limits,
 * which could change nothing, are not read.
 */
static __noinline unsigned long mthp_refuse(struct cgroup *cgrp, struct mthp_cgroup *state,
					    __u32 reason, __u32 rule)
{
	if (!cgrp || !state || !MTHP_KNOWN(reason) || rule >= MTHP_NR_RULES)
		return 0;
	state->asked[reason]++;
	state->narrowed[reason][rule]++;
	if (state->reported[reason])
		mthp_report(cgrp, state, 0);
	return 0;
}

/*
 * No memory for the state: the rules that need none still hold.  All that is charged may
 * be anon, as in a new cgroup.
 */
static __noinline unsigned long mthp_answer_without_state(struct cgroup *cgrp, __u32 reason,
							  __u64 flags, unsigned long orders)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_facts f = {
		.orders = MTHP_ALL_ORDERS,
		.flags = flags,
		.reason = reason,
		.populated = 1,
	};
	__u32 rules = 0;

	if (!cgrp)
		return orders;
	if (t->rules & MTHP_RULE(SMALL)) {
		f.memory_known = mthp_accounted(cgrp);
		f.memory_bytes = mthp_usage(cgrp) << t->page_shift;
		if (mthp_small(&f, t))
			return 0;
	}
	f.headroom_bytes = mthp_room(cgrp, 0, t);
	f.host_bytes = mthp_host_now(cgrp, t);
	return orders & mthp_fitting(&f, t, &rules);
}

/*
 * Sampled by only some requests of a cgroup, so that the average request does not feel it:
 * the process, the host, and limits above where there were none.  At reclaim by each: they
 * are few, and what is at stake is dear.
 */
static __noinline void mthp_sample(struct cgroup *cgrp, struct mthp_cgroup *state,
				 const struct mthp_tunables *t, __u32 reason)
{
	struct mthp_process process = {};
	__u64 usage, bytes;

	if (!cgrp || !state)
		return;
	mthp_sample_limits(cgrp, state, t);
	if (mthp_cache_counts(state, t))
		mthp_sample_cache(cgrp);
	/* The process at hand is the one that asks only in a fault. */
	if (reason == BPF_MTHP_FAULT && (t->rules & (MTHP_RULE(SMALL) | MTHP_RULE(SPARSE))))
		mthp_sample_process(&process);
	if (reason == BPF_MTHP_FAULT && (t->rules & MTHP_RULE(SPARSE)))
		state->sparse = mthp_wasteful(process.spanned, process.present + process.swapped, t);
	if (!(t->rules & MTHP_RULE(SMALL)) || state->memory_bytes >= t->min_memory)
		return;
	usage = mthp_usage(cgrp);
	bytes = mthp_memory_now(state, usage, t);
	/*
	 * Where page cache makes room for what a process asks for, what is charged does not
	 * grow with it, and the cgroup would stay small until the next scan.  Not what the
	 * process had elsewhere: that is not charged here.
	 */
	if (process.present <= usage && process.present << t->page_shift > bytes) {
		bytes = process.present << t->page_shift;
		state->memory_bytes = bytes;
		state->usage_pages = usage;
	}
	state->now_bytes = bytes;
}

/* One copy of this for each reason, which is a constant then. */
static __always_inline unsigned long mthp_answer_for(__u32 reason, struct cgroup *cgrp,
						     __u64 flags, unsigned long orders)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_facts f = {
		.orders = MTHP_ALL_ORDERS,
		.flags = flags,
		.reason = reason,
	};
	struct mthp_cgroup *state;
	__u32 rules = 0;
	__u64 allowed;

	if (!mthp_governed(reason, t))
		return orders;

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	/* Where memory is reclaimed none is asked for: of a cgroup not seen yet all stays. */
	if (!state && reason == BPF_MTHP_RECLAIM)
		return orders;
	if (!state)
		state = mthp_adopt(cgrp);
	if (!state)
		return mthp_answer_without_state(cgrp, reason, flags, orders);
	/* The process that asks lives here, whatever the last scan saw. */
	if (reason == BPF_MTHP_FAULT)
		state->populated = 1;
	if ((t->rules & (MTHP_RULE(SMALL) | MTHP_RULE(SPARSE) | MTHP_RULE(HEADROOM) | MTHP_RULE(HOST))) &&
	    (reason == BPF_MTHP_RECLAIM || !(state->asked[reason] & t->sample_mask)))
		mthp_sample(cgrp, state, t, reason);
	mthp_cgroup_facts(&f, cgrp, state, t);
	/* A scan a moment earlier may have found no process. */
	if (reason == BPF_MTHP_FAULT)
		f.populated = 1;
	if (mthp_pressed(&f, t))
		return mthp_refuse(cgrp, state, reason, MTHP_PRESSURE);
	if (mthp_small(&f, t))
		return mthp_refuse(cgrp, state, reason, MTHP_SMALL);
	if (mthp_sparse(&f, t))
		return mthp_refuse(cgrp, state, reason, MTHP_SPARSE);

	/*
	 * Decide on all orders, not on the offer: the decision then changes only
	 * when the facts do, and not with the size of each mapping.
	 */
	f.headroom_bytes = mthp_room_now(cgrp, state, t);
	allowed = mthp_fitting(&f, t, &rules);

	state->asked[reason]++;
	if (orders & ~allowed)
		state->narrowed[reason][rules & MTHP_RULE(PRESSURE) ? MTHP_PRESSURE :
					rules & MTHP_RULE(HEADROOM) ? MTHP_HEADROOM :
					rules & MTHP_RULE(HOST) ? MTHP_HOST : MTHP_MAX_ORDER]++;
	/* What is reported is the decision for those who do not ask. */
	if (allowed != state->reported[reason] && !mthp_wanted(&f, t))
		mthp_report(cgrp, state, 0);
	return orders & allowed;
}

/* Rare, so these two are kept out of the way of the others. */
static __noinline unsigned long mthp_answer_collapse(struct cgroup *cgrp, __u64 flags,
						     unsigned long orders)
{
	return mthp_answer_for(BPF_MTHP_COLLAPSE, cgrp, flags, orders);
}

static __noinline unsigned long mthp_answer_reclaim(struct cgroup *cgrp, __u64 flags,
						    unsigned long orders)
{
	return mthp_answer_for(BPF_MTHP_RECLAIM, cgrp, flags, orders);
}

/* A reason that is not known here passes: a later kernel has more of them. */
static __always_inline unsigned long mthp_answer(struct cgroup *cgrp, __u32 reason, __u64 flags,
						 unsigned long orders)
{
	if (likely(reason == BPF_MTHP_FAULT))
		return mthp_answer_for(BPF_MTHP_FAULT, cgrp, flags, orders);
	switch (reason) {
	case BPF_MTHP_SWAPIN:
		return mthp_answer_for(BPF_MTHP_SWAPIN, cgrp, flags, orders);
	case BPF_MTHP_KHUGEPAGED:
		return mthp_answer_for(BPF_MTHP_KHUGEPAGED, cgrp, flags, orders);
	case BPF_MTHP_COLLAPSE:
		return mthp_answer_collapse(cgrp, flags, orders);
	case BPF_MTHP_RECLAIM:
		return mthp_answer_reclaim(cgrp, flags, orders);
	default:
		return orders;
	}
}

/* The program and the ops of the policy that the file is called after. */
#define MTHP_POLICY(name)								\
SEC("struct_ops/mthp_choose")								\
unsigned long BPF_PROG(name##_choose, struct cgroup *cgrp, struct cgroup *attached,	\
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)	\
{											\
	return mthp_answer(cgrp, reason, flags, orders);				\
}											\
											\
SEC(".struct_ops.link")									\
struct bpf_mthp_ops name = {								\
	.mthp_choose = (void *)name##_choose,						\
}

#endif /* MTHP_CHOOSE_BPF_H */
