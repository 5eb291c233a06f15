/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What would be decided for a cgroup by a request that samples now, and why: asked by
 * `mthp_ext status`, of the very programs that decide.  Changes nothing.  Only what a process
 * has, and page cache that came or went, is as of the last sample.
 */
#ifndef MTHP_EXPLAIN_BPF_H
#define MTHP_EXPLAIN_BPF_H

#include "heartbeat.bpf.h"
#include "report.bpf.h"
#include "state.bpf.h"

/* Writes down what is decided for @cgrp, and from what.  @state may be NULL.  @pud_on: about a PUD, too. */
__noinline int mthp_describe(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state,
			     struct mthp_record *r, __u32 pud_on)
{
	const struct mthp_tunables *t;
	struct mthp_place place;
	struct mthp_facts f = {}, pud, *of_pud = 0;
	struct mthp_machine machine;

	if (!r)
		return 0;
	t = state ? mthp_profile_of(cgrp, state) : mthp_profile_above(cgrp);
	place = (struct mthp_place){ cgrp, state, t, 0 };
	machine = mthp_machine_now(cgrp, t);
	/* An old room beside a fresh limit would be neither. */
	if (state) {
		mthp_kept_facts(&f, state, 0);
		f.room_bytes = mthp_machine_room(&machine, 0, t);
		f.lifted = f.lifted && mthp_still_lifted(state, f.room_bytes, t);
	} else {
		mthp_new_facts(cgrp, &f);
	}
	/* Whoever lives there may ask next, whatever the last scan saw. */
	if (mthp_has(t, MTHP_RULE(SMALL)) && (f.populated || mthp_populated(cgrp))) {
		f.populated = 1;
		if (state)
			f.memory_bytes = mthp_memory_now(state, mthp_usage(cgrp), t);
	}
	if (mthp_load()->pud_pages && pud_on) {
		pud = f;
		mthp_facts_of_pud(&pud, &place, mthp_machine_room(&machine, 1, t));
		of_pud = &pud;
	}
	if (mthp_has(t, MTHP_RULE(ROOM)))
		mthp_walk_to_root(&f, &place);
	mthp_decide_each(r->decided, &f, of_pud, t);
	mthp_describe_facts(r, &f, of_pud, cgrp, state, t);
	return 0;
}

/* Nobody looks at a rule. */
static __always_inline void mthp_pass(struct mthp_decision *d)
{
	*d = (struct mthp_decision){ .orders = MTHP_ALL_ORDERS, .rule = MTHP_NONE };
}

SEC("syscall")
int mthp_explain(struct mthp_explained *e)
{
	struct mthp_cgroup *state;
	struct cgroup *cgrp;
	int reason;

	__builtin_memset(e->since_ns, 0, sizeof(e->since_ns));
	cgrp = bpf_cgroup_from_id(e->cgroup_id);
	e->found = cgrp != 0;
	if (!cgrp)
		return 0;
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	e->kept = state != 0;
	mthp_describe(cgrp, state, &e->now, e->pud_on);
	/* Where a sample would find something else than the last did, the next one will. */
	for (reason = BPF_MTHP_FAULT; state && reason < MTHP_NR_REASONS; reason++)
		if (e->now.decided[reason].orders == state->reported[reason])
			e->since_ns[reason] = state->changed_ns[reason] ?: state->met_ns;
	/* Of a cgroup not seen yet all stays, where reclaim asks. */
	if (!state)
		mthp_pass(&e->now.decided[BPF_MTHP_RECLAIM]);
	if (mthp_passes_all(mthp_profile(e->now.profile)))
		for (reason = BPF_MTHP_FAULT; reason < MTHP_NR_REASONS; reason++) {
			mthp_pass(&e->now.decided[reason]);
			e->since_ns[reason] = mthp_stale_since();
		}
	if (state) {
		__builtin_memcpy(e->allowed, state->allowed, sizeof(e->allowed));
		__builtin_memcpy(e->denied, state->denied, sizeof(e->denied));
		__builtin_memcpy(e->spared_pages, state->spared_pages, sizeof(e->spared_pages));
		__builtin_memcpy(e->narrowed, state->narrowed, sizeof(e->narrowed));
	}
	bpf_cgroup_release(cgrp);
	return 0;
}

#endif /* MTHP_EXPLAIN_BPF_H */
