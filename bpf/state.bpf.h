/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Maps, tunables and the per-cgroup state that every policy shares, and the
 * report of a changed decision.
 */
#ifndef MTHP_STATE_BPF_H
#define MTHP_STATE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "abi.h"
#include "decide.h"
#include "headroom.bpf.h"
#include "sparse.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Read-only: constants to the verifier, which drops the rules that are off.
 * The policy file says which rules it has; mthp_ext reads them from here.  In a
 * section, and so in a map, of their own: compilers put tables into .rodata.
 */
const volatile struct mthp_tunables tunables SEC(".rodata.mthp") = {
	.magic = MTHP_MAGIC,
	.abi = MTHP_ABI,
	.rules = MTHP_POLICY_RULES,
};

/*
 * The tunables without their volatile: it keeps clang from using the values above
 * and would make it read each of them again and again.  That it cannot see where
 * the pointer comes from is enough; the verifier can.
 */
static __always_inline const struct mthp_tunables *mthp_tunables(void)
{
	const struct mthp_tunables *t = (const struct mthp_tunables *)&tunables;

	asm volatile("" : "+r"(t));
	return t;
}

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

/* A cgroup whose headroom wavers must not flood the log: one line per this. */
#define MTHP_REPORT_EVERY_NS	100000000ULL

extern struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, int level) __ksym;
extern void bpf_cgroup_release(struct cgroup *cgrp) __ksym;

/* Pressure verdict of the nearest ancestor that has one; 0 without any. */
static __always_inline __u32 mthp_inherited_pressure(struct cgroup *cgrp)
{
	struct mthp_cgroup *state;
	struct cgroup *up;
	__u32 high = 0;
	int level;

	for (level = cgrp->level - 1; level >= 0 && level < MTHP_MAX_DEPTH; level--) {
		up = bpf_cgroup_ancestor(cgrp, level);
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

/* Does @cgrp count its own memory? */
static __always_inline __u32 mthp_accounted(struct cgroup *cgrp)
{
	return cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)] != 0;
}

#define MTHP_FRESH(pressure, accounted)	{						\
	.stall.high = (pressure),							\
	/* Nothing was there before: all that is charged now is its memory. */		\
	.memory_known = (accounted),							\
	.host_bytes = MTHP_NO_LIMIT,							\
	.room_bytes = MTHP_NO_LIMIT,							\
	.reported = { MTHP_EACH_REASON(MTHP_ALL_ORDERS) },				\
}

/* How a state can begin.  It would be most of the stack of a program. */
static const struct mthp_cgroup mthp_fresh[2][2] = {
	{ MTHP_FRESH(0, 0), MTHP_FRESH(0, 1) },
	{ MTHP_FRESH(1, 0), MTHP_FRESH(1, 1) },
};

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
	if (state)
		return state;
	/* Another CPU made it at the same time and was first: now there is one. */
	return bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
}

/*
 * mthp_headroom() of a cgroup.  A global function: the verifier follows its loop
 * once, and not again for each reason and each state before the call.
 */
__noinline __u64 mthp_nearest_limit(struct cgroup *cgrp __arg_trusted, __u64 cache_bytes, __u32 share)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_counters counters;

	mthp_counters(&counters, cgrp);
	return mthp_headroom(&counters, cache_bytes >> t->page_shift, share, t);
}

/*
 * Does no limit bind @cgrp?  The walk is a third of what a request costs, and most
 * cgroups have none: so this is asked now and then, and remembered in between.
 */
__noinline __u32 mthp_no_limit(struct cgroup *cgrp __arg_trusted)
{
	struct mthp_counters counters;

	mthp_counters(&counters, cgrp);
	return !mthp_any_limit(&counters, mthp_tunables());
}

/* The nearest limit, if a rule asks for it; @state may be NULL. */
static __always_inline __u64 mthp_room(struct cgroup *cgrp, const struct mthp_cgroup *state,
				       const struct mthp_tunables *t)
{
	if (!(t->rules & MTHP_RULE(HEADROOM)))
		return MTHP_NO_LIMIT;
	return mthp_nearest_limit(cgrp, state ? state->cache_bytes : 0, t->limit_share);
}

/* The same for a request: a limit of its own it sees at once, a new one above it soon. */
static __always_inline __u64 mthp_room_now(struct cgroup *cgrp, const struct mthp_cgroup *state,
					   const struct mthp_tunables *t)
{
	if ((t->rules & MTHP_RULE(HEADROOM)) && state->unlimited && !mthp_own_limit(cgrp, t))
		return MTHP_NO_LIMIT;
	return mthp_room(cgrp, state, t);
}

/*
 * What the host has left, if a rule asks for it.  A policy without the rule does not
 * include host.bpf.h, and so does not name the kernel's sums: its loading need not read
 * all of kallsyms.
 */
static __always_inline __u64 mthp_host_now(struct cgroup *cgrp, const struct mthp_tunables *t)
{
#ifdef MTHP_HOST_BPF_H
	if (t->rules & MTHP_RULE(HOST))
		return mthp_host_room(cgrp, t);
#else
	_Static_assert(!(MTHP_POLICY_RULES & MTHP_RULE(HOST)), "the rule host is in host.bpf.h");
#endif
	return MTHP_NO_LIMIT;
}

/* What is remembered from one sample to the next; a scan brings it up to date, too. */
static __always_inline void mthp_sample_limits(struct cgroup *cgrp, struct mthp_cgroup *state,
						 const struct mthp_tunables *t)
{
	if (t->rules & MTHP_RULE(HEADROOM))
		state->unlimited = mthp_no_limit(cgrp);
	state->host_bytes = mthp_host_now(cgrp, t);
}

/* Charged pages of the cgroup that pays for @cgrp; 0 without the memory controller. */
static __always_inline __u64 mthp_usage(struct cgroup *cgrp)
{
	struct mthp_counters counters;

	mthp_counters(&counters, cgrp);
	return counters.own ? counters.own->usage.counter : 0;
}

/*
 * How large is it?  What was charged since the last sample may be anon or shmem: count it
 * as such, or a program that starts and fills its heap would stay small for up to a
 * window.
 */
static __always_inline __u64 mthp_memory_now(const struct mthp_cgroup *state, __u64 usage,
					     const struct mthp_tunables *t)
{
	__u64 since = usage > state->usage_pages ? usage - state->usage_pages : 0;

	return state->memory_bytes + (since << t->page_shift);
}

/* Facts about the cgroup but its headroom; the caller adds those about the request. */
static __always_inline void mthp_cgroup_facts(struct mthp_facts *f, struct cgroup *cgrp,
					      const struct mthp_cgroup *state,
					      const struct mthp_tunables *t)
{
	f->memory_bytes = state->now_bytes;
	f->memory_known = state->memory_known;
	f->populated = state->populated;
	f->host_bytes = state->host_bytes;
	f->sparse = state->sparse;
	f->pressure = state->stall.high;
}

/*
 * Report the decision of @state's cgroup if it is not the one last reported.
 * @force: from the scan, which is rare; a request is bound to the rate limit.
 * What cannot be sent now stays a difference and is sent by a later call.
 * A global function, which the verifier follows once and not from each caller.
 */
__noinline int mthp_report(struct cgroup *cgrp __arg_trusted, struct mthp_cgroup *state, int force)
{
	const struct mthp_tunables *t = mthp_tunables();
	struct mthp_facts f = { .orders = MTHP_ALL_ORDERS };
	__u64 to[MTHP_NR_REASONS], now, before;
	struct mthp_event *e;
	__u32 rules, all = 0;
	int r, changed = 0;

	if (!state)
		return 0;
	before = state->reported_ns;
	now = bpf_ktime_get_ns();
	if (!force && now - before < MTHP_REPORT_EVERY_NS) {
		state->suppressed++;
		return 0;
	}

	mthp_cgroup_facts(&f, cgrp, state, t);
	f.headroom_bytes = mthp_room(cgrp, state, t);
	for (r = BPF_MTHP_FAULT; r < MTHP_NR_REASONS; r++) {
		f.reason = r;
		to[r] = mthp_decide(&f, t, &rules);
		all |= rules;
		changed |= to[r] != state->reported[r];
	}
	if (!changed)
		return 0;
	/* Another CPU may have found the same change: one of them reports it. */
	if (__sync_val_compare_and_swap(&state->reported_ns, before, now) != before)
		return 0;

	e = bpf_ringbuf_reserve(&mthp_events, sizeof(*e), 0);
	if (!e) {
		state->suppressed++;
		return 0;
	}
	e->t_ns = now;
	e->cgroup_id = cgrp->kn->id;
	e->from[0] = 0;
	e->to[0] = 0;
	for (r = BPF_MTHP_FAULT; r < MTHP_NR_REASONS; r++) {
		e->from[r] = state->reported[r];
		e->to[r] = to[r];
		state->reported[r] = to[r];
	}
	e->stall_ns = state->stall.stall_ns;
	e->elapsed_ns = state->stall.elapsed_ns;
	e->memory_bytes = f.memory_bytes;
	e->headroom_bytes = f.headroom_bytes;
	e->host_bytes = f.host_bytes;
	e->suppressed = state->suppressed;
	e->rules = all;
	e->memory_known = f.memory_known;
	e->hold = state->stall.hold;
	e->pad = 0;
	state->suppressed = 0;
	bpf_ringbuf_submit(e, 0);
	return 1;
}

#endif /* MTHP_STATE_BPF_H */
