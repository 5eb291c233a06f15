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
	__u64 spanned;	/* places in its page tables that may be of its heap */
	__u64 present;	/* anonymous, in memory ... */
	__u64 swapped;	/* ... and in swap: those keep their place */
};

/*
 * Samples the process that asks, which in a fault is the one that gets the memory
 * (but for a debugger's).  The counts lag behind by a batch for each processor, which
 * makes it seem sparser than it is; a large folio is more than a batch and counts at once.
 */
static __noinline void mthp_sample_process(struct mthp_process *process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	struct mthp_tables tables;
	__s64 present, swapped;

	if (!mm || !process)
		return;
	tables.bytes = mm->pgtables_bytes.counter;
	tables.data = mm->data_vm;
	tables.mapped = mm->rss_stat[MM_FILEPAGES].count + mm->rss_stat[MM_SHMEMPAGES].count;
	tables.threads = task->signal->nr_threads - 1;
	tables.stack_bytes = task->signal->rlim[MTHP_RLIMIT_STACK].rlim_cur;
	process->spanned = mthp_spanned(&tables, mthp_load()->page_shift);
	present = mm->rss_stat[MM_ANONPAGES].count;
	swapped = mm->rss_stat[MM_SWAPENTS].count;
	process->present = present > 0 ? present : 0;
	process->swapped = swapped > 0 ? swapped : 0;
}

#endif /* MTHP_PROCESS_BPF_H */
