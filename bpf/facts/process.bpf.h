/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How densely a process fills the memory it spans, by its own counts.  A page
 * table of 4 KiB has places for 512 pages: a process that fills few of them would
 * have its memory multiplied by large folios.
 */
#ifndef MTHP_PROCESS_BPF_H
#define MTHP_PROCESS_BPF_H

#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include "decide.h"

/* Pages of a process. */
struct mthp_process {
	__u64 spanned;	/* places in its page tables, as far as they may be of anonymous memory */
	__u64 present;	/* anonymous, in memory ... */
	__u64 swapped;	/* ... and in swap: those keep their place */
};

/*
 * Samples the process that asks, which in a fault is the one that gets the memory
 * (but for a debugger's).  Files have tables too: what is private and writable bounds
 * those of anonymous memory.  The counts lag behind by a batch for each processor,
 * which makes it seem sparser than it is; a large folio is more than a batch and counts
 * at once.
 */
static __noinline void mthp_sample_process(struct mthp_process *process)
{
	struct mm_struct *mm = bpf_get_current_task_btf()->mm;
	__u64 spanned, private;
	__s64 present, swapped;

	if (!mm || !process)
		return;
	spanned = mm->pgtables_bytes.counter / sizeof(__u64);
	private = mm->data_vm;
	present = mm->rss_stat[MM_ANONPAGES].count;
	swapped = mm->rss_stat[MM_SWAPENTS].count;
	process->spanned = spanned < private ? spanned : private;
	process->present = present > 0 ? present : 0;
	process->swapped = swapped > 0 ? swapped : 0;
}

#endif /* MTHP_PROCESS_BPF_H */
