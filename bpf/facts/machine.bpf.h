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

/* Bytes until it is full; MTHP_NO_LIMIT while large folios may have their share. */
static __always_inline __u64 mthp_machine_room(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	__u64 total = 0;
	__s64 spare, room;

	if (!bpf_ksym_exists(bpf_cgroup_spare_pages))
		return MTHP_NO_LIMIT;
	spare = bpf_cgroup_spare_pages(cgrp, t->count_nodes, &total);
	room = mthp_level_room(total, total - spare, MTHP_NOT_COUNTED, t->limit_share, t);
	return mthp_key_bytes(mthp_level_key(room, 0), t);
}

/* The same, if a rule asks for it. */
static __always_inline __u64 mthp_machine_now(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(ROOM)) && t->count_machine ? mthp_machine_room(cgrp, t) : MTHP_NO_LIMIT;
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
	r->limit_bytes = total << t->page_shift;
	r->used_bytes = (total - spare) << t->page_shift;
}

#endif /* MTHP_MACHINE_BPF_H */
