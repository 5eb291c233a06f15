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

/* What there is, in pages. */
struct mthp_machine {
	__u64 total;	/* 0: not known */
	__s64 spare;
};

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

/* Does the profile look at it? */
static __always_inline int mthp_counts_machine(const struct mthp_tunables *t)
{
	return mthp_has(t, MTHP_RULE(ROOM)) && t->count_machine;
}

/* Bytes until it is full, with pages used @ahead; MTHP_NO_LIMIT while large folios may have their share. */
static __always_inline __u64 mthp_machine_ahead(const struct mthp_machine *machine, __u64 ahead,
						const struct mthp_tunables *t)
{
	__u64 total = machine->total;
	__s64 room;

	if (!total)
		return MTHP_NO_LIMIT;
	room = mthp_level_room(total, total - machine->spare + ahead, MTHP_NOT_COUNTED, t->limit_share, t);
	return mthp_key_bytes(mthp_level_key(room, 0), t);
}

static __always_inline __u64 mthp_machine_room(const struct mthp_machine *machine, const struct mthp_tunables *t)
{
	return mthp_machine_ahead(machine, 0, t);
}

/* The same as of now, if a rule asks for it. */
static __always_inline __u64 mthp_machine_now(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	struct mthp_machine machine;

	if (!mthp_counts_machine(t))
		return MTHP_NO_LIMIT;
	mthp_read_machine(&machine, cgrp, t->count_nodes);
	return mthp_machine_room(&machine, t);
}

/* The same for a PUD. */
static __always_inline __u64 mthp_machine_for_pud(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	struct mthp_machine machine;

	if (!mthp_counts_machine(t))
		return MTHP_NO_LIMIT;
	mthp_read_machine(&machine, cgrp, t->count_nodes);
	return mthp_machine_ahead(&machine, mthp_pud_ahead(t), t);
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
