/* SPDX-License-Identifier: GPL-2.0-only */
/* The record of a cgroup's decisions, and the report of one that changed. */
#ifndef MTHP_REPORT_BPF_H
#define MTHP_REPORT_BPF_H

#include "state.bpf.h"

/* A cgroup whose room wavers must not flood the log: one line per this. */
#define MTHP_REPORT_EVERY_NS	100000000ULL

/* The level that leaves the least: its limit, and what of that is in use. */
__noinline int mthp_describe_level(struct mthp_record *r __arg_nonnull, struct cgroup *cgrp __arg_trusted,
				   __u32 level, const struct mthp_tunables *t __arg_nonnull)
{
	struct mthp_counters counters;
	struct cgroup *at;

	r->limit_bytes = 0;
	r->used_bytes = 0;
	r->swapped_bytes = 0;
	r->level_id = 0;
	r->level_high = 0;
	r->level_nodes = 0;
	if (!mthp_has(t, MTHP_RULE(ROOM)) || r->room_bytes == MTHP_NO_LIMIT)
		return 0;
	if (!level) {
		mthp_describe_machine(r, cgrp, t);
		return 0;
	}
	at = bpf_cgroup_ancestor(cgrp, level);
	if (!at)
		return 0;
	mthp_counters(&counters, at);
	if (counters.own) {
		r->level_high = counters.own->high < counters.own->max;
		r->limit_bytes = (r->level_high ? counters.own->high : counters.own->max) << mthp_common(t)->page_shift;
		r->used_bytes = counters.own->usage.counter << mthp_common(t)->page_shift;
		r->swapped_bytes = mthp_swap_usage(counters.own) << mthp_common(t)->page_shift;
	}
	r->level_id = at->kn->id;
	bpf_cgroup_release(at);
	return 0;
}

/*
 * Where room took no more away than a PUD at page faults it is the level that has none for one that is
 * shown.  Page cache makes no room for one.
 */
static __always_inline void mthp_describe_pud(struct mthp_record *r, struct cgroup *cgrp,
					      const struct mthp_facts *pud, const struct mthp_tunables *t)
{
	const struct mthp_decision *fault = &r->decided[BPF_MTHP_FAULT];
	__u32 reason;
	__u64 left;

	if (fault->rule != MTHP_ROOM || !(fault->orders & mthp_common(t)->largest_pages))
		return;
	for (reason = BPF_MTHP_FAULT + 1; reason < MTHP_NR_REASONS; reason++)
		if (r->decided[reason].rule == MTHP_ROOM)
			return;
	r->room_bytes = pud->room_bytes;
	r->cache_bytes = 0;
	mthp_describe_level(r, cgrp, pud->level, t);
	left = r->limit_bytes - r->used_bytes;
	r->room_bytes = (__s64)left > 0 ? left : 0;
}

/* Decides from facts that are complete.  A global function: the verifier follows one reason, not five. */
__noinline int mthp_decide_known(struct mthp_facts *f __arg_nonnull, const struct mthp_tunables *t __arg_nonnull,
				 struct mthp_decision *decided __arg_nonnull)
{
	*decided = mthp_decide(f, t, mthp_room_is_known, 0);
	return 0;
}

/* Decides for each reason; @decided has a place for each.  @pud: the facts of a PUD; NULL: nobody can have one. */
static __always_inline void mthp_decide_each(struct mthp_decision *decided, struct mthp_facts *f,
					     struct mthp_facts *pud, const struct mthp_tunables *t)
{
	__u32 reason;

	/* One call: the verifier goes through what gets a pointer to the stack once more for each. */
#pragma clang loop unroll(disable)
	for (reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		f->reason = reason;
		mthp_decide_known(f, t, &decided[reason]);
	}
	if (pud) {
		mthp_decide_known(pud, t, &decided[0]);
		mthp_join_pud(&decided[BPF_MTHP_FAULT], &decided[0], t);
	}
	decided[0] = (struct mthp_decision){};
}

/* What the decisions rest on.  @pud and @state may be NULL. */
static __always_inline void mthp_describe_facts(struct mthp_record *r, const struct mthp_facts *f,
						const struct mthp_facts *pud,
						struct cgroup *cgrp, const struct mthp_cgroup *state,
						const struct mthp_tunables *t)
{
	r->memory_bytes = f->memory_bytes;
	/* Only that rule has it looked at. */
	r->memory_known = f->memory_known && mthp_has(t, MTHP_RULE(SMALL));
	r->profile = t->id;
	r->pressure = f->pressure;
	r->unmissed = f->lifted;
	r->pad = 0;
	r->room_bytes = f->room_bytes;
	r->stall_ns = state ? state->stall.stall_ns : 0;
	r->elapsed_ns = state ? state->stall.elapsed_ns : 0;
	r->seen = state ? state->stall.seen : 0;
	r->cache_bytes = state ? state->cache_bytes : 0;
	if (state)
		r->gaps = state->gaps;
	else
		__builtin_memset(&r->gaps, 0, sizeof(r->gaps));
	mthp_describe_level(r, cgrp, f->level, t);
	if (pud)
		mthp_describe_pud(r, cgrp, pud, t);
}

/* A change of decision, which counts as reported from here on. */
static __noinline void mthp_fill_event(struct mthp_event *e, struct cgroup *cgrp, struct mthp_cgroup *state,
				       __u64 now)
{
	__u32 reason;

	if (!e || !cgrp || !state)
		return;
	e->t_ns = now;
	e->cgroup_id = cgrp->kn->id;
	e->suppressed = state->suppressed;
	e->from[0] = 0;
	for (reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
		e->from[reason] = state->reported[reason];
		if (state->reported[reason] != e->now.decided[reason].orders)
			state->changed_ns[reason] = now;
		state->reported[reason] = e->now.decided[reason].orders;
	}
	state->suppressed = 0;
}

/*
 * Report the decision of @state's cgroup if it is not the one last reported.
 * @force: from the scan, which is rare; a request is bound to the rate limit.
 * What cannot be sent now stays a difference and is sent by a later call: then it returns -1.
 * A global function, which the verifier follows once and not from each caller.
 */
__noinline int mthp_report(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state, int force)
{
	struct mthp_decision decided[MTHP_NR_REASONS];
	const struct mthp_tunables *t;
	struct mthp_place place;
	struct mthp_facts f = {}, pud, *of_pud = 0;
	struct mthp_event *e;
	__u64 now, before;
	int differs = 0;
	__u32 reason;

	if (!state)
		return 0;
	before = state->reported_ns;
	now = bpf_ktime_get_ns();
	if (!force && now - before < MTHP_REPORT_EVERY_NS) {
		state->suppressed++;
		return 0;
	}
	t = mthp_profile_of(cgrp, state);
	place = (struct mthp_place){ cgrp, state, t, 0 };
	/* As the requests until the next sample find them. */
	mthp_kept_facts(&f, state, 0);
	if (mthp_load()->pud_pages && mthp_pud_on) {
		pud = f;
		mthp_facts_of_pud(&pud, &place, state->pud_machine_bytes);
		of_pud = &pud;
	}
	if (mthp_has(t, MTHP_RULE(ROOM)))
		mthp_walk_to_root(&f, &place);
	mthp_decide_each(decided, &f, of_pud, t);
	for (reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++)
		differs |= decided[reason].orders != state->reported[reason];
	if (!differs)
		return 0;
	/* Another CPU may have found the same change: one of them reports it. */
	if (__sync_val_compare_and_swap(&state->reported_ns, before, now) != before)
		return 0;

	e = bpf_ringbuf_reserve(&mthp_events, sizeof(*e), 0);
	if (!e) {
		state->suppressed++;
		return -1;
	}
	__builtin_memcpy(e->now.decided, decided, sizeof(decided));
	mthp_describe_facts(&e->now, &f, of_pud, cgrp, state, t);
	mthp_fill_event(e, cgrp, state, now);
	bpf_ringbuf_submit(e, 0);
	return 1;
}

#endif /* MTHP_REPORT_BPF_H */
