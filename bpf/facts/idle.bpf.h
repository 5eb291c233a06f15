/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Pages of files of one memory cgroup that reclaim would take first, read from its LRU
 * lists.  All that is known of those lists stands here.
 */
#ifndef MTHP_IDLE_BPF_H
#define MTHP_IDLE_BPF_H

#include "facts/limits.bpf.h"

/* More nodes are legal; the page cache on those beyond waits for the scan. */
#define MTHP_MAX_NODES	8

/* The kernel's MAX_NR_GENS, MIN_NR_GENS, ANON_AND_FILE and LRU_GEN_FILE: macros, and an enum without a name. */
#define MTHP_MAX_GENS	4
#define MTHP_MIN_GENS	2
#define MTHP_GEN_KINDS	2
#define MTHP_GEN_FILE	1

/* Offset of an array of arrays in a kernel struct, 0 if there is none.  Tools describe them in two ways. */
#define MTHP_ARRAYS(type, field)							\
	(bpf_core_field_exists(struct type##___flat, field) ?				\
		bpf_core_field_offset(struct type##___flat, field) :			\
	 bpf_core_field_exists(struct type, field) ?					\
		bpf_core_field_offset(struct type, field) : 0)

/* Pages on the classic LRU's inactive list of files; 0 while the multi-gen LRU has them all. */
static __always_inline __s64 mthp_inactive_files(__u64 node, __u32 zones)
{
	__u64 lists = bpf_core_enum_value(enum lru_list, NR_LRU_LISTS);
	__u64 list = bpf_core_enum_value(enum lru_list, LRU_INACTIVE_FILE);
	__u64 sizes = MTHP_ARRAYS(mem_cgroup_per_node, lru_zone_size);
	__s64 pages = 0;
	__u32 z;

	if (!sizes)
		return 0;
	for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++)
		pages += mthp_kernel_word((const void *)(node + sizes), z * lists + list);
	return pages;
}

/*
 * The multi-gen LRU calls all but its two youngest generations inactive; what is read
 * once starts in the oldest.  But when those two are all there are, reclaim takes the
 * older of them next: @oldest counts that one, too.
 */
static __always_inline __s64 mthp_old_files(__u64 node, __u32 zones, __u32 oldest)
{
	__u64 sizes = MTHP_ARRAYS(lru_gen_folio, nr_pages);
	__u64 lrugen, seq, last;
	__s64 pages = 0;
	__u32 i, z;

	if (!bpf_core_field_exists(struct lruvec, lrugen) || !sizes)
		return 0;
	lrugen = node + bpf_core_field_offset(struct mem_cgroup_per_node, lruvec) +
		 bpf_core_field_offset(struct lruvec, lrugen);
	seq = mthp_kernel_word((const void *)(lrugen + bpf_core_field_offset(struct lru_gen_folio, min_seq)),
			       MTHP_GEN_FILE);
	last = mthp_kernel_word((const void *)(lrugen + bpf_core_field_offset(struct lru_gen_folio, max_seq)), 0) -
	       MTHP_MIN_GENS;
	if (oldest && (__s64)(last - seq) < 0)
		last = seq;
	for (i = 0; i < MTHP_MAX_GENS && (__s64)(last - seq) >= 0; i++, seq++)
		for (z = 0; z < MTHP_MAX_ZONES && z < zones; z++)
			pages += mthp_kernel_word((const void *)(lrugen + sizes),
						  ((seq % MTHP_MAX_GENS) * MTHP_GEN_KINDS + MTHP_GEN_FILE) *
						  zones + z);
	return pages;
}

/*
 * Pages of files of @cgrp itself that reclaim would take first, as of now: these sums are
 * the kernel's own and exact, while its statistics lag behind by seconds until somebody
 * flushes them.  Without @oldest what those statistics would call inactive.  Each of the
 * two LRUs has what the other has not.  A node without memory ends the count.
 */
__noinline __s64 mthp_own_idle_pages(struct cgroup *cgrp __arg_trusted, __u32 oldest)
{
	__u32 zones = bpf_core_enum_value(enum zone_type, __MAX_NR_ZONES);
	__u64 memcg = (__u64)cgrp->subsys[bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id)];
	__u64 infos = memcg + bpf_core_field_offset(struct mem_cgroup, nodeinfo);
	__s64 pages = 0;
	__u64 node;
	__u32 n;

	if (!memcg)
		return 0;
	for (n = 0; n < MTHP_MAX_NODES; n++) {
		node = mthp_kernel_word((const void *)infos, n);
		/* The array is as long as the host has nodes: what lies beyond does not point back. */
		if (!node || (__u64)mthp_kernel_word((const void *)(node + bpf_core_field_offset(
						     struct mem_cgroup_per_node, memcg)), 0) != memcg)
			break;
		pages += mthp_inactive_files(node, zones) + mthp_old_files(node, zones, oldest);
	}
	return pages;
}

#endif /* MTHP_IDLE_BPF_H */
