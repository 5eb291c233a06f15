/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How densely a process fills the memory it spans, by its own counts.  A page
 * table of 4 KiB has places for 512 pages: a process that fills few of them would
 * have its memory multiplied by large folios.
 */
#ifndef MTHP_SPARSE_BPF_H
#define MTHP_SPARSE_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "decide.h"

/*
 * Looks at the process that asks, which in a fault is the one that gets the memory
 * (but for a debugger's).  Pages in swap keep their place in a table, so they count.
 * Files have tables too: what is private and writable bounds those of anonymous memory.
 * The counts lag behind by a batch for each processor, which makes it look sparser
 * than it is; a large folio is more than a batch and counts at once.
 */
static __noinline __u32 mthp_looks_wasteful(const struct mthp_tunables *t)
{
	struct mm_struct *mm = bpf_get_current_task_btf()->mm;
	__u64 spanned, private;
	__s64 present;

	if (!mm)
		return 0;
	spanned = mm->pgtables_bytes.counter / sizeof(__u64);
	private = mm->data_vm;
	present = mm->rss_stat[MM_ANONPAGES].count + mm->rss_stat[MM_SWAPENTS].count;
	return mthp_wasteful(spanned < private ? spanned : private, present > 0 ? present : 0, t);
}

#endif /* MTHP_SPARSE_BPF_H */
