/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the machine could still give out: the limit of the root.  If the policy counts nodes,
 * of those that a cgroup is bound to.
 */
#ifndef MTHP_MACHINE_BPF_H
#define MTHP_MACHINE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "decide.h"
#include "facts/limits.bpf.h"
#include "tunables.bpf.h"

/*
 * The kernel's own sums over all nodes and zones.  No BTF describes them, so they come
 * from kallsyms; a kernel that does not list data (CONFIG_KALLSYMS_ALL) leaves them 0,
 * and the rule has no opinion there.
 */
extern const void vm_zone_stat __ksym __weak;
extern const void vm_node_stat __ksym __weak;
extern const void _totalram_pages __ksym __weak;
extern const void totalreserve_pages __ksym __weak;

/*
 * The nodes that a cgroup is bound to count if the policy says so (count_nodes).  On a full
 * node of a host with memory elsewhere reclaim mostly succeeds, as swap need not be on that
 * node.  Stall shows the few times when it does not, and narrowing by what the node has left
 * costs 3 % of a server's rate (hostpressure/node of `make bench`).  A policy that does not
 * see stall would be OOM-killed there.  A kernel without CONFIG_NUMA has no node_data.
 */
extern const void node_data __ksym __weak;
extern const void node_states __ksym __weak;

/* Nodes in the first word of a mask.  More are legal but unheard of; those do not count. */
#define MTHP_NODE_BITS	64

/* Pages that there are, and what of them could still be given out. */
struct mthp_space {
	__s64 total;
	__s64 left;
	__u32 nodes;	/* 1: of the nodes that the cgroup is bound to */
	__u32 pad;
};

/* Pages of files by the sums of a node, or of all. */
static __always_inline __s64 mthp_files_by(const void *sums)
{
	return mthp_kernel_word(sums, bpf_core_enum_value(enum node_stat_item, NR_INACTIVE_FILE)) +
	       mthp_kernel_word(sums, bpf_core_enum_value(enum node_stat_item, NR_ACTIVE_FILE));
}

/*
 * Free pages, and those of files, which reclaim gets back first, less what the zones
 * keep back: their watermarks and lowmem reserves.  The kernel's sums lag behind by a
 * batch for each processor.
 */
static __always_inline void mthp_whole_machine(struct mthp_space *space)
{
	space->total = mthp_kernel_word(&_totalram_pages, 0);
	space->left =
		mthp_kernel_word(&vm_zone_stat, bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES)) +
		mthp_files_by(&vm_node_stat) - mthp_kernel_word(&totalreserve_pages, 0);
}

/* The same of one node, added to @space. */
static __always_inline void mthp_add_node(struct mthp_space *space, __u64 node)
{
	__u64 zone = node + bpf_core_field_offset(struct pglist_data, node_zones);
	__u64 stat = node + bpf_core_field_offset(struct pglist_data, vm_stat);
	__u64 zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	__u64 reserve = node + bpf_core_field_offset(struct pglist_data, totalreserve_pages);
	__u32 z;

	space->left += mthp_files_by((const void *)stat) - mthp_kernel_word((const void *)reserve, 0);
	for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++) {
		space->total += mthp_kernel_word((const void *)(zone + bpf_core_field_offset(struct zone,
											managed_pages)), 0);
		space->left += mthp_kernel_word((const void *)(zone + bpf_core_field_offset(struct zone, vm_stat)),
						bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES));
		zone += bpf_core_type_size(struct zone);
	}
}

/* Nodes that have memory, bit n for node n; 0 where there is only one node. */
static __always_inline __u64 mthp_nodes_with_memory(void)
{
	__u64 words, nodes;

	if (!&node_data || !&node_states || !bpf_core_type_exists(struct cpuset) ||
	    !bpf_core_enum_value_exists(enum cgroup_subsys_id, cpuset_cgrp_id))
		return 0;
	words = bpf_core_field_size(struct cpuset, effective_mems) / sizeof(__u64);
	nodes = mthp_kernel_word(&node_states, words * bpf_core_enum_value(enum node_states, N_MEMORY));
	return nodes & (nodes - 1) ? nodes : 0;
}

/*
 * Those of @nodes that the cpuset of @cgrp leaves to it; 0 if it leaves all.  What a
 * process is bound to by a memory policy of its own is not seen.
 */
static __always_inline __u64 mthp_nodes_of(struct cgroup *cgrp, __u64 nodes)
{
	__u64 id = bpf_core_enum_value(enum cgroup_subsys_id, cpuset_cgrp_id);
	struct cgroup_subsys_state *css = cgrp->subsys[id];
	struct cgroup *above;
	__u64 bound;

	if (!css) {
		above = mthp_controlled_above(cgrp, id);
		if (!above)
			return 0;
		css = above->subsys[id];
	}
	/* The css is the first member of struct cpuset. */
	bound = nodes & mthp_kernel_word((const void *)css +
					 bpf_core_field_offset(struct cpuset, effective_mems), 0);
	return bound == nodes ? 0 : bound;
}

/*
 * What there is for @cgrp; 0 where the kernel does not show it.  A global function, which
 * the verifier follows once for all callers.
 */
__noinline int mthp_space_of(struct cgroup *cgrp __arg_trusted, struct mthp_space *space)
{
	__u64 nodes, node;
	__u32 n;

	/* Where it is not used clang would pass anything, and the verifier wants a cgroup. */
	asm volatile("" : : "r"(cgrp));
	if (!space || !&vm_zone_stat || !&vm_node_stat || !&_totalram_pages || !&totalreserve_pages)
		return 0;
	nodes = mthp_tunables()->count_nodes ? mthp_nodes_with_memory() : 0;
	if (nodes)
		nodes = mthp_nodes_of(cgrp, nodes);
	if (!nodes) {
		mthp_whole_machine(space);
		return 1;
	}
	space->nodes = 1;
	space->total = 0;
	space->left = 0;
	for (n = 0; n < MTHP_NODE_BITS && nodes; n++, nodes >>= 1) {
		node = nodes & 1 ? mthp_kernel_word(&node_data, n) : 0;
		if (node)
			mthp_add_node(space, node);
	}
	return 1;
}

/* Bytes until that is full; MTHP_NO_LIMIT while large folios may have their share. */
static __always_inline __u64 mthp_machine_room(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	struct mthp_space space = {};
	__s64 room;

	if (!mthp_space_of(cgrp, &space))
		return MTHP_NO_LIMIT;
	room = mthp_level_room(space.total, space.total - space.left, MTHP_NOT_COUNTED, t->limit_share, t);
	return mthp_key_bytes(mthp_level_key(room, 0), t);
}

/* The same, if a rule asks for it. */
static __always_inline __u64 mthp_machine_now(struct cgroup *cgrp, const struct mthp_tunables *t)
{
	return (t->rules & MTHP_RULE(ROOM)) && t->count_machine ? mthp_machine_room(cgrp, t) : MTHP_NO_LIMIT;
}

#endif /* MTHP_MACHINE_BPF_H */
