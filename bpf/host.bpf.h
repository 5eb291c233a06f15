/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the host as a whole could still give out.  Where no cgroup on the path has a
 * limit, its memory is the limit.
 */
#ifndef MTHP_HOST_BPF_H
#define MTHP_HOST_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "abi.h"
#include "decide.h"

/*
 * The kernel's own sums over all nodes and zones.  No BTF describes them, so they come
 * from kallsyms; a kernel that does not list data (CONFIG_KALLSYMS_ALL) leaves them 0,
 * and the rule has no opinion there.
 */
extern const void vm_zone_stat __ksym __weak;
extern const void vm_node_stat __ksym __weak;
extern const void _totalram_pages __ksym __weak;
extern const void totalreserve_pages __ksym __weak;

/* Type 0 is void: plain words, read with a guard. */
static __always_inline __s64 mthp_kernel_word(const void *array, __u64 index)
{
	const __s64 *words = bpf_rdonly_cast((const __s64 *)array + index, 0);

	return *words;
}

/*
 * Free pages, and those of files, which reclaim gets back first, less what the zones
 * keep back: their watermarks and lowmem reserves.  The kernel's sums lag behind by a
 * batch for each processor.
 */
static __always_inline __s64 mthp_host_available(void)
{
	return mthp_kernel_word(&vm_zone_stat, bpf_core_enum_value(enum zone_stat_item, NR_FREE_PAGES)) +
	       mthp_kernel_word(&vm_node_stat, bpf_core_enum_value(enum node_stat_item, NR_INACTIVE_FILE)) +
	       mthp_kernel_word(&vm_node_stat, bpf_core_enum_value(enum node_stat_item, NR_ACTIVE_FILE)) -
	       mthp_kernel_word(&totalreserve_pages, 0);
}

/* Bytes until the host is full; MTHP_NO_LIMIT while large folios may have their share. */
static __noinline __u64 mthp_host_room(const struct mthp_tunables *t)
{
	__s64 total, left;

	if (!&vm_zone_stat || !&vm_node_stat || !&_totalram_pages || !&totalreserve_pages)
		return MTHP_NO_LIMIT;
	total = mthp_kernel_word(&_totalram_pages, 0);
	left = mthp_host_available();
	left = mthp_level_room(total, total - left, t->limit_share, t);
	if (left >= (__s64)mthp_unlimited(t))
		return MTHP_NO_LIMIT;
	return left > 0 ? (__u64)left << t->page_shift : 0;
}

#endif /* MTHP_HOST_BPF_H */
