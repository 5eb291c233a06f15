/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the machine could still give out: the limit of the root.  If the policy counts nodes,
 * of those that a cgroup is bound to.
 *
 * On a full node of a host with memory elsewhere reclaim mostly succeeds, as swap need not be
 * on that node.  Stall shows the few times when it does not, and narrowing by what the node has
 * left costs 3 % of a server's rate (hostpressure/node of `make bench`).  A policy that does
 * not see stall would be OOM-killed there, and counts nodes.
 */
#ifndef MTHP_MACHINE_BPF_H
#define MTHP_MACHINE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "decide.h"
#include "tunables.bpf.h"

/* Of the series; where the carrier lacks it, the rule has no opinion on the machine. */
extern __s64 bpf_cgroup_spare_pages(struct cgroup *cgrp, _Bool by_nodes, __u64 *total) __ksym __weak;

/* Does the profile look at it? */
static __always_inline int mthp_counts_machine(const struct mthp_tunables *t)
{
	return mthp_has(t, MTHP_RULE(ROOM)) && t->count_machine;
}

/* That of all nodes, or of those that @cgrp is bound to. */
static __always_inline void mthp_read_machine(struct mthp_machine *machine, struct cgroup *cgrp, _Bool by_nodes)
{
	__u64 total = 0;

	machine->total = 0;
	if (!bpf_ksym_exists(bpf_cgroup_spare_pages))
		return;
	machine->spare = bpf_cgroup_spare_pages(cgrp, by_nodes, &total);
	machine->total = total;
}

/* The same as of now, as a profile sees it; nothing if none of its rules does. */
static __always_inline struct mthp_machine mthp_machine_now(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	struct mthp_machine machine = {};

	if (mthp_counts_machine(t))
		mthp_read_machine(&machine, cgrp, t->count_nodes);
	return machine;
}

/* What it has left is kept; for a PUD as well, where there are any. */
static __always_inline void mthp_keep_machine(struct mthp_cgroup *state, const struct mthp_machine *machine,
					      const struct mthp_tunables *t)
{
	state->machine_bytes = mthp_machine_room(machine, 0, t);
	if (mthp_load()->pud_pages)
		state->pud_machine_bytes = mthp_machine_room(machine, 1, t);
}

/* The machine as the level that leaves the least. */
static __always_inline void mthp_describe_machine(struct mthp_record *r, struct cgroup *cgrp,
						  const struct mthp_tunables *t)
{
	__u64 total = 0, all = 0;
	__s64 spare;

	if (!bpf_ksym_exists(bpf_cgroup_spare_pages))
		return;
	spare = bpf_cgroup_spare_pages(cgrp, t->count_nodes, &total);
	/* Its cpuset may leave all nodes. */
	if (t->count_nodes)
		bpf_cgroup_spare_pages(cgrp, 0, &all);
	r->level_nodes = total < all;
	r->limit_bytes = total << mthp_common(t)->page_shift;
	r->used_bytes = (total - spare) << mthp_common(t)->page_shift;
}

#endif /* MTHP_MACHINE_BPF_H */
