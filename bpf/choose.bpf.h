/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The way of a request: facts, mthp_decide(), counters, report, answer.  Rules that are off
 * cost nothing, as the verifier removes them at load.
 */
#ifndef MTHP_CHOOSE_BPF_H
#define MTHP_CHOOSE_BPF_H

#include "awake.bpf.h"
#include "count.bpf.h"
#include "facts/cache.bpf.h"
#include "facts/process.bpf.h"
#include "heartbeat.bpf.h"
#include "report.bpf.h"
#include "state.bpf.h"

/* The rules whose facts are sampled. */
#define MTHP_SAMPLED	(MTHP_RULE(SMALL) | MTHP_RULE(SPARSE) | MTHP_RULE(ROOM))

/*
 * Sampled by only some requests of a cgroup, so that the average request does not feel it:
 * the process, the machine, and limits above where there were none.  By the first since the
 * last scan, which may have left the cgroup out.  At reclaim by each: they are few, and each may
 * split what is in use.  A global function, as all that a request calls
 * seldom: the verifier follows it once.
 */
__noinline int mthp_sample(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state __arg_nonnull,
			   const struct mthp_tunables *t __arg_nonnull, __u32 reason)
{
	struct mthp_process process = {};
	struct mthp_machine machine;
	__u64 usage, bytes;

	/* There are places for more reasons than are known; a comparison clang would make of a copy. */
	state->due[reason & 7] = t->sample_mask;
	if (mthp_is_asleep(state))
		mthp_wake(cgrp);
	if (mthp_has(t, MTHP_RULE(ROOM)))
		state->unlimited = mthp_no_limit(cgrp);
	machine = mthp_machine_now(cgrp, t);
	mthp_keep_machine(state, &machine, t);
	/* A sample only ends it: what a scan may have found meanwhile is newer. */
	if (state->lifted && !mthp_still_lifted(state, state->machine_bytes, t))
		state->lifted = 0;
	if (mthp_cache_counts(state, t))
		mthp_sample_cache(cgrp);
	/* The process at hand is the one that asks only in a fault. */
	if (reason == BPF_MTHP_FAULT && mthp_has(t, MTHP_RULE(SMALL) | MTHP_RULE(SPARSE)))
		mthp_sample_process(&process);
	if (reason == BPF_MTHP_FAULT && mthp_has(t, MTHP_RULE(SPARSE)) && t->sparse_bytes)
		mthp_sparse_now(&process, state, t);
	/* The rule that asks how large it is binds no folio that is there. */
	if (!mthp_has(t, MTHP_RULE(SMALL)) || reason == BPF_MTHP_RECLAIM)
		return 0;
	usage = mthp_usage(cgrp);
	bytes = mthp_memory_now(state, usage, t);
	/* What is charged from here on is new, and counts. */
	if (usage < state->usage_pages) {
		state->memory_bytes = bytes;
		state->usage_pages = usage;
	}
	/*
	 * Where page cache makes room for what a process asks for, what is charged does not
	 * grow with it, and the cgroup would stay small until the next scan.  Not what the
	 * process had elsewhere: that is not charged here.
	 */
	if (bytes < t->min_memory && process.present <= usage &&
	    process.present << mthp_common(t)->page_shift > bytes) {
		bytes = process.present << mthp_common(t)->page_shift;
		state->memory_bytes = bytes;
		state->usage_pages = usage;
	}
	state->now_bytes = bytes;
	return 0;
}

/* A request was narrowed by @rule. */
static __always_inline void mthp_count(struct mthp_cgroup *state, __u32 reason, __u32 rule)
{
	/* clang knows which rules there are, and computes their number; the verifier has to see it. */
	asm volatile("" : "+r"(rule));
	if (rule < MTHP_NR_RULES)
		mthp_add(&state->narrowed[reason][rule], 1);
}

/* Does a page fault ask for a PUD?  Where the kernel has none the verifier knows that it does not. */
static __always_inline int mthp_asks_for_pud(unsigned long orders)
{
	return (orders & mthp_load()->pud_pages) != 0;
}

/*
 * Is what a request found news?  One that does not ask for a PUD says nothing about those, and one that
 * does about nothing else.
 */
static __always_inline int mthp_is_news(__u64 differs, int pud)
{
	__u64 puds = mthp_load()->pud_pages;

	return (differs & (pud ? puds : ~puds)) != 0;
}

/* What the kernel hears: in a dry run, that it may do as it would without this policy. */
static __always_inline unsigned long mthp_allow(unsigned long orders, __u64 allowed)
{
	return mthp_load()->dry_run ? orders : orders & allowed;
}

/* No memory for the state, so neither counts nor reports. */
__noinline unsigned long mthp_answer_without_state(struct cgroup *cgrp __arg_trusted, __u32 reason,
						   __u64 flags, unsigned long orders)
{
	struct mthp_facts f = { .flags = flags, .reason = reason };
	struct mthp_place place = { .cgrp = cgrp };
	struct mthp_machine machine;

	place.t = mthp_profile_above(cgrp);
	mthp_new_facts(cgrp, &f);
	f.populated = 1;
	if (reason == BPF_MTHP_FAULT && mthp_asks_for_pud(orders)) {
		machine = mthp_machine_now(cgrp, place.t);
		f.room_bytes = mthp_machine_room(&machine, 1, place.t);
		place.pud = 1;
	}
	if (mthp_passes_all(place.t))
		return orders;
	return mthp_allow(orders, mthp_decide(&f, place.t, mthp_walk_for_request, &place).orders);
}

/*
 * A page fault has a copy of its own, where its reason is constant.  The facts stay in registers:
 * nothing that is called here may take their address.  One for a PUD is in the other copy: it is rare,
 * so it can sample each time, and the usual one costs nothing for it.
 */
static __always_inline unsigned long mthp_answer_for(__u32 reason, struct cgroup *cgrp, __u64 flags,
						     unsigned long orders, int pud)
{
	struct mthp_facts f = { .flags = flags, .reason = reason };
	struct mthp_place place = { .cgrp = cgrp, .pud = pud };
	const struct mthp_tunables *t;
	struct mthp_cgroup *state;
	struct mthp_decision d;
	__u32 size;

	/* Without a profile that binds it, nothing is looked up. */
	if (reason == BPF_MTHP_COLLAPSE && !(mthp_load()->bind & MTHP_BIND_COLLAPSE))
		return orders;

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	/* Where memory is reclaimed none is asked for: of a cgroup not seen yet all stays. */
	if (!state && reason == BPF_MTHP_RECLAIM)
		return orders;
	if (!state)
		state = mthp_adopt(cgrp);
	if (!state)
		return mthp_answer_without_state(cgrp, reason, flags, orders);
	t = mthp_profile_of(cgrp, state);
	if (!mthp_governed(reason, t))
		return orders;
	/* The process that asks lives here, whatever the last scan saw. */
	if (reason == BPF_MTHP_FAULT)
		state->populated = 1;
	/* A scan makes it due. */
	if (reason != BPF_MTHP_RECLAIM && !pud && state->due[reason])
		state->due[reason]--;
	else if (mthp_wakes() || mthp_has(t, MTHP_SAMPLED))
		mthp_sample(cgrp, state, t, reason);
	mthp_kept_facts(&f, state, pud);
	/* A scan a moment earlier may have found no process. */
	if (reason == BPF_MTHP_FAULT)
		f.populated = 1;
	place.state = state;
	place.t = t;
	d = mthp_decide(&f, t, mthp_walk_for_request, &place);

	size = mthp_size(orders);
	if (orders & ~d.orders) {
		/* Asked here, it costs those nothing that get what they want. */
		if (mthp_passes_all(t)) {
			mthp_add(&state->allowed[reason][size], 1);
			return orders;
		}
		mthp_add(&state->denied[reason][size], 1);
		mthp_count(state, reason, d.rule);
		if (mthp_load()->dry_run && !pud)
			mthp_add(&state->spared_pages[reason],
				 mthp_largest(orders) - mthp_largest(orders & d.orders));
	} else {
		mthp_add(&state->allowed[reason][size], 1);
	}
	/* What is reported is the decision for those who do not ask. */
	if (d.orders != state->reported[reason] && !mthp_wanted(&f, t) &&
	    mthp_is_news(d.orders ^ state->reported[reason], pud)) {
		if (pud)
			mthp_pud_on = 1;
		mthp_report(cgrp, state, 0);
	}
	return mthp_allow(orders, d.orders);
}

/* Rarer than page faults, so they share a copy: the verifier follows it once, and not for each. */
static __noinline unsigned long mthp_answer_other(__u32 reason, struct cgroup *cgrp, __u64 flags,
						  unsigned long orders)
{
	/* clang takes another number for the bound of one; the verifier has to see this one's. */
	asm volatile("" : "+r"(reason));
	if (reason >= MTHP_NR_REASONS)
		return orders;
	return mthp_answer_for(reason, cgrp, flags, orders, mthp_load()->pud_pages && reason == BPF_MTHP_FAULT);
}

/* A reason that is not known here passes: a later kernel has more of them. */
static __always_inline unsigned long mthp_answer(struct cgroup *cgrp, __u32 reason, __u64 flags,
						 unsigned long orders)
{
	if (likely(reason == BPF_MTHP_FAULT && !mthp_asks_for_pud(orders)))
		return mthp_answer_for(BPF_MTHP_FAULT, cgrp, flags, orders, 0);
	return MTHP_KNOWN(reason) ? mthp_answer_other(reason, cgrp, flags, orders) : orders;
}

#endif /* MTHP_CHOOSE_BPF_H */
