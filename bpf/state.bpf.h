/* SPDX-License-Identifier: GPL-2.0-only */
/* What is kept of a cgroup, and the facts that a decision about it rests on. */
#ifndef MTHP_STATE_BPF_H
#define MTHP_STATE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "decide.h"
#include "facts/machine.bpf.h"
#include "facts/limits.bpf.h"
#include "missed.h"
#include "tunables.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/* Freed with the cgroup, by the kernel. */
struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct mthp_cgroup);
} mthp_cgroups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} mthp_events SEC(".maps");

extern struct cgroup *bpf_cgroup_from_id(__u64 id) __ksym;
extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
extern void bpf_cgroup_release(struct cgroup *cgrp) __ksym;

/* For those who visit the cgroups below one. */
extern int bpf_iter_css_new(struct bpf_iter_css *it, struct cgroup_subsys_state *start,
			    unsigned int flags) __ksym __weak;
extern struct cgroup_subsys_state *bpf_iter_css_next(struct bpf_iter_css *it) __ksym __weak;
extern void bpf_iter_css_destroy(struct bpf_iter_css *it) __ksym __weak;

extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;

/*
 * Pressure verdict of the nearest ancestor that has one; 0 without any, or without the rule.
 * A global function, which the verifier follows once and not from each caller.  Of a loop by
 * bpf_for() it follows three rounds, not 64.
 */
__noinline __u32 mthp_inherited_pressure(struct cgroup *cgrp __arg_trusted)
{
	struct mthp_cgroup *state;
	struct cgroup *up;
	__u32 high = 0;
	int above;

	if (!(mthp_load()->rules & MTHP_RULE(PRESSURE)))
		return 0;
	bpf_for(above, 1, MTHP_MAX_DEPTH + 1) {
		if (above > cgrp->level)
			break;
		up = bpf_cgroup_ancestor(cgrp, cgrp->level - above);
		if (!up)
			break;
		state = bpf_cgrp_storage_get(&mthp_cgroups, up, 0, 0);
		if (state)
			high = state->stall.high;
		bpf_cgroup_release(up);
		if (state)
			break;
	}
	return high;
}

/*
 * The profile of a cgroup that was assigned none, or one that is gone: that of the nearest
 * ancestor that has one, else that of slot 0.  Kept, so that only this request walks up.
 * A global function, which the verifier follows once.  Returns the id.
 */
__noinline __u32 mthp_follow(struct cgroup *cgrp __arg_trusted)
{
	struct mthp_cgroup *state;
	struct cgroup *up;
	__u32 was = 0, id = 0;
	int above;

	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (state) {
		was = state->profile;
		id = state->assigned;
	}
	/* It lost what it was assigned to a request that looked above meanwhile. */
	if (mthp_is_profile(id)) {
		state->profile = id;
		return id;
	}
	id = 0;
	bpf_for(above, 1, MTHP_MAX_DEPTH + 1) {
		if (above > cgrp->level)
			break;
		up = bpf_cgroup_ancestor(cgrp, cgrp->level - above);
		if (!up)
			break;
		state = bpf_cgrp_storage_get(&mthp_cgroups, up, 0, 0);
		if (state)
			id = state->profile;
		bpf_cgroup_release(up);
		if (mthp_is_profile(id))
			break;
		id = 0;
	}
	if (!id)
		id = mthp_profiles[0].id;
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	/* Not over what somebody has assigned since. */
	if (state)
		__sync_val_compare_and_swap(&state->profile, was, id);
	return id;
}

/* The profile of a cgroup of which nothing is kept. */
static __always_inline const struct mthp_tunables *mthp_profile_above(struct cgroup *cgrp)
{
	return mthp_profile(mthp_follow(cgrp));
}

/* The profile of a cgroup: its own, or the one that it took over. */
static __always_inline const struct mthp_tunables *mthp_profile_of(struct cgroup *cgrp,
								   const struct mthp_cgroup *state)
{
	__u32 id = state->profile;
	const struct mthp_tunables *t = mthp_profile(id);

	/* Slot 0, which id 0 is of, is never free: no id is of no profile. */
	if (likely(t->id == id))
		return t;
	t = mthp_profile_above(cgrp);
	/* Or clang would join both ways before the profile is looked up, and do that twice. */
	asm volatile("" : "+r"(t));
	return t;
}

/* Does @cgrp count its own memory? */
static __always_inline __u32 mthp_accounted(struct cgroup *cgrp)
{
	return cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)] != 0;
}

extern int bpf_iter_css_task_new(struct bpf_iter_css_task *it,
				 struct cgroup_subsys_state *css, unsigned int flags) __ksym __weak;
extern struct task_struct *bpf_iter_css_task_next(struct bpf_iter_css_task *it) __ksym __weak;
extern void bpf_iter_css_task_destroy(struct bpf_iter_css_task *it) __ksym __weak;

/*
 * Does a process live in this very cgroup?  Asked of the task iterator and not
 * of the populated counters in struct cgroup: those have been renamed and
 * rearranged between releases.  Descendants do not matter, as a decision is
 * always made for the cgroup the process itself is in.
 */
static __always_inline int mthp_populated(struct cgroup *cgrp)
{
	struct bpf_iter_css_task it;
	struct task_struct *task;

	bpf_iter_css_task_new(&it, &cgrp->self, CSS_TASK_ITER_PROCS);
	task = bpf_iter_css_task_next(&it);
	bpf_iter_css_task_destroy(&it);
	return task != 0;
}

#define MTHP_FRESH(pressure, accounted)	{						\
	.stall.high = (pressure),							\
	/* Nothing was there before: all that is charged now is its memory. */		\
	.memory_known = (accounted),							\
	.machine_bytes = MTHP_NO_LIMIT,							\
	.pud_machine_bytes = MTHP_NO_LIMIT,						\
	.dropped_bytes = MTHP_NO_LIMIT,							\
	.reported = { MTHP_EACH_REASON(MTHP_ALL_ORDERS) },				\
}

/* How a state can begin.  It would be most of the stack of a program. */
static const struct mthp_cgroup mthp_fresh[2][2] = {
	{ MTHP_FRESH(0, 0), MTHP_FRESH(0, 1) },
	{ MTHP_FRESH(1, 0), MTHP_FRESH(1, 1) },
};

/* User space looks if there is a profile for a cgroup.  What cannot be sent now the next scan sends. */
static __noinline void mthp_announce(struct cgroup *cgrp, struct mthp_cgroup *state)
{
	__u64 *id;

	if (!cgrp || !state || !mthp_load()->announces || state->announced)
		return;
	id = bpf_ringbuf_reserve(&mthp_events, sizeof(*id), 0);
	if (!id)
		return;
	*id = cgrp->kn->id;
	bpf_ringbuf_submit(id, 0);
	state->announced = 1;
}

/*
 * First request of a cgroup the scan has not met yet.  It gets its state here,
 * with the verdict it inherits, so that only this one request walks up.  The
 * state is complete before another CPU can see it.
 */
static __noinline struct mthp_cgroup *mthp_adopt(struct cgroup *cgrp)
{
	const struct mthp_cgroup *fresh =
		&mthp_fresh[mthp_inherited_pressure(cgrp) != 0][mthp_accounted(cgrp)];
	struct mthp_cgroup *state;

	/* It is only read, which the helper's prototype does not say. */
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, (void *)fresh,
				     BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (state) {
		state->met_ns = bpf_ktime_get_ns();
		mthp_announce(cgrp, state);
		return state;
	}
	/* Another CPU made it at the same time and was first: now there is one. */
	return bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
}

/* Does what a scan lifted stay so?  @machine_bytes: what the machine has left now. */
static __always_inline __u32 mthp_still_lifted(const struct mthp_cgroup *state, __u64 machine_bytes,
					       const struct mthp_tunables *t)
{
	return mthp_lifts(!mthp_is_old(bpf_ktime_get_ns() - state->taken.anchor_ns, t), machine_bytes, t);
}

/* Facts about a cgroup, @pud: for a PUD.  Its room is that of the machine, until the walk to the root. */
static __always_inline void mthp_kept_facts(struct mthp_facts *f, const struct mthp_cgroup *state, int pud)
{
	f->memory_bytes = state->now_bytes;
	f->memory_known = state->memory_known;
	f->populated = state->populated;
	f->sparse = state->sparse;
	f->pressure = state->stall.high;
	f->lifted = pud ? 0 : state->lifted;
	f->room_bytes = pud ? state->pud_machine_bytes : state->machine_bytes;
	f->level = 0;
}

/*
 * Those of a cgroup of which nothing is kept: it was not met yet, or there is no memory to
 * keep it in.  As of a new one: all that is charged may be anon.
 */
__noinline int mthp_new_facts(struct cgroup *cgrp __arg_trusted, struct mthp_facts *f)
{
	const struct mthp_tunables *t = mthp_profile_above(cgrp);
	struct mthp_machine machine;

	if (!f)
		return 0;
	machine = mthp_machine_now(cgrp, t);
	f->memory_bytes = mthp_usage(cgrp) << mthp_common(t)->page_shift;
	f->memory_known = mthp_accounted(cgrp);
	f->populated = 0;
	f->sparse = 0;
	f->pressure = mthp_inherited_pressure(cgrp);
	f->lifted = 0;
	f->room_bytes = mthp_machine_room(&machine, 0, t);
	f->level = 0;
	return 0;
}

/* Whose room it is. */
struct mthp_place {
	struct cgroup *cgrp;
	const struct mthp_cgroup *state;	/* may be NULL */
	const struct mthp_tunables *t;
	int pud;				/* 1: for a PUD */
};

/*
 * The one walk: from the cgroup to the root.  The root's limit is the machine, of which the
 * facts have what is left; a limit below it binds where it leaves no more.
 */
static __always_inline void mthp_walk_to_root(struct mthp_facts *f, const void *of)
{
	const struct mthp_place *place = of;
	const struct mthp_tunables *t = place->t;
	__u64 cache = place->state ? place->state->cache_bytes : 0;
	__s64 key = mthp_limit_that_binds(place->cgrp, cache, place->pud, t);
	__u64 room = mthp_key_bytes(key, t);

	if (room == MTHP_NO_LIMIT || room > f->room_bytes)
		return;
	f->room_bytes = room;
	f->level = mthp_key_level(key);
}

/* No limit was on the path a moment ago, and its own is seen at once. */
static __always_inline int mthp_is_unlimited(const struct mthp_place *place)
{
	return place->state && place->state->unlimited && !mthp_own_limit(place->cgrp, place->t);
}

/* The same for a request: a limit of its own it sees at once, a new one above it soon. */
static __always_inline void mthp_walk_for_request(struct mthp_facts *f, const void *of)
{
	if (mthp_is_unlimited(of))
		return;
	mthp_walk_to_root(f, of);
}

/*
 * Is 1 GiB a size that somebody may have?  As of the last scan, or of a request for it, which nobody
 * makes while it is switched off.  It says what is reported: about a PUD that is asked for it is
 * decided in any case.
 */
__u32 mthp_pud_on SEC(".data.scan") = 0;

/* Makes of the facts of a cgroup those of a PUD there.  @machine_bytes: what the machine has for one. */
static __always_inline void mthp_facts_of_pud(struct mthp_facts *f, const struct mthp_place *place,
					      __u64 machine_bytes)
{
	struct mthp_place of_pud = *place;

	of_pud.pud = 1;
	f->reason = BPF_MTHP_FAULT;
	f->lifted = 0;
	f->room_bytes = machine_bytes;
	f->level = 0;
	if (mthp_has(place->t, MTHP_RULE(ROOM)))
		mthp_walk_to_root(f, &of_pud);
}

#endif /* MTHP_STATE_BPF_H */
