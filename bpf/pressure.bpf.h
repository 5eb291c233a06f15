/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scan: one sleepable iterator run over the subtree brings every cgroup's
 * pressure verdict and size up to date.  mthp_ext runs it once per window and
 * at each PSI event; mthp_choose only reads what it left.
 */
#ifndef MTHP_PRESSURE_BPF_H
#define MTHP_PRESSURE_BPF_H

#include "state.bpf.h"
#include "stall.h"

extern void bpf_cgroup_flush_stats(struct cgroup *cgrp) __ksym;
extern __u64 bpf_cgroup_stall(struct cgroup *cgrp, __u32 state) __ksym;
extern struct mem_cgroup *bpf_get_mem_cgroup(struct cgroup_subsys_state *css) __ksym;
extern void bpf_put_mem_cgroup(struct mem_cgroup *memcg) __ksym;
extern void bpf_mem_cgroup_flush_stats(struct mem_cgroup *memcg) __ksym;
extern unsigned long bpf_mem_cgroup_page_state(struct mem_cgroup *memcg, int idx) __ksym;
extern int bpf_iter_css_task_new(struct bpf_iter_css_task *it,
				 struct cgroup_subsys_state *css, unsigned int flags) __ksym;
extern struct task_struct *bpf_iter_css_task_next(struct bpf_iter_css_task *it) __ksym;
extern void bpf_iter_css_task_destroy(struct bpf_iter_css_task *it) __ksym;

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

static __always_inline void mthp_scan_memory(struct cgroup *cgrp, struct mthp_cgroup *state)
{
	struct mem_cgroup *memcg;
	__u64 bytes;

	memcg = bpf_get_mem_cgroup(&cgrp->self);
	if (!memcg) {
		state->memory_known = 0;
		return;
	}
	bpf_mem_cgroup_flush_stats(memcg);
	bytes = bpf_mem_cgroup_page_state(memcg,
			bpf_core_enum_value(enum node_stat_item, NR_ANON_MAPPED));
	bytes += bpf_mem_cgroup_page_state(memcg,
			bpf_core_enum_value(enum node_stat_item, NR_SHMEM));
	bpf_put_mem_cgroup(memcg);

	state->memory_bytes = bytes;
	state->usage_pages = mthp_usage(cgrp);
	state->memory_known = 1;
}

SEC("iter.s/cgroup")
int mthp_scan(struct bpf_iter__cgroup *ctx)
{
	struct cgroup *cgrp = ctx->cgroup;
	struct mthp_cgroup *state;
	const struct mthp_tunables *t = mthp_tuned();
	__u32 inherited = 0;
	__u64 now, total;

	if (!cgrp)
		return 0;	/* the call that says the walk is over */
	state = bpf_cgrp_storage_get(&mthp_cgroups, cgrp, 0, 0);
	if (!state) {
		/* Parents come before children: the parent's verdict is fresh. */
		state = mthp_adopt(cgrp);
		if (!state)
			return 0;	/* out of memory: this cgroup waits, the others do not */
	}
	if (!state->stall.seen)
		inherited = mthp_inherited_pressure(cgrp);

	bpf_cgroup_flush_stats(cgrp);
	total = bpf_cgroup_stall(cgrp, t->psi_full ?
			bpf_core_enum_value(enum psi_states, PSI_MEM_FULL) :
			bpf_core_enum_value(enum psi_states, PSI_MEM_SOME));
	now = bpf_ktime_get_ns();
	mthp_stall_step(&state->stall, now, total, inherited, t);
	state->scanned_ns = now;

	mthp_look_for_limits(cgrp, state, t);
	state->populated = mthp_populated(cgrp);
	if (state->populated) {
		mthp_scan_memory(cgrp, state);
		mthp_tell(cgrp, state, 1);
	} else {
		/* What its last process left behind says nothing about the next one. */
		state->memory_bytes = 0;
		state->usage_pages = mthp_usage(cgrp);
		state->sparse = 0;
	}
	return 0;
}

#endif /* MTHP_PRESSURE_BPF_H */
