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

/*
 * By process, what its growth is measured from.  Where more are at work, the one that was not
 * looked at for longest is met anew.  A pid that is used again belongs to a process that has less,
 * so it is measured from there.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct mthp_growth);
} mthp_growths SEC(".maps");

/*
 * Samples the process that asks, which in a fault is the one that gets the memory
 * (but for a debugger's).  Files have tables too, and so has each thread: a stack by glibc
 * fills little of one, and asks for no large folio.  The counts lag behind by a batch for each
 * processor, which makes it seem sparser than it is; a large folio is more than a batch and
 * counts at once.
 */
static __noinline void mthp_sample_process(struct mthp_process *process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	__s64 present, swapped, mapped, threads;

	if (!mm || !process)
		return;
	threads = task->signal->nr_threads - 1;
	mapped = mm->rss_stat[MM_FILEPAGES].count + mm->rss_stat[MM_SHMEMPAGES].count;
	present = mm->rss_stat[MM_ANONPAGES].count;
	swapped = mm->rss_stat[MM_SWAPENTS].count;
	process->pid = task->tgid;
	process->places = mm->pgtables_bytes.counter / sizeof(__u64);
	process->others = mapped > 0 ? mapped : 0;
	process->others += threads * ((1ULL << mthp_load()->page_shift) / sizeof(__u64));
	process->private = mm->data_vm;
	process->present = present > 0 ? present : 0;
	process->swapped = swapped > 0 ? swapped : 0;
}

/* Is the cgroup sparse, whose process was sampled?  @before: what was said of it last. */
static __noinline __u32 mthp_sparse_now(const struct mthp_process *process, __u32 before,
					const struct mthp_tunables *t)
{
	struct mthp_growth *growth, first;

	if (!process || !t)
		return before;
	growth = bpf_map_lookup_elem(&mthp_growths, &process->pid);
	if (growth)
		return mthp_grow(growth, process, t);
	mthp_meet(&first, process, before, t);
	bpf_map_update_elem(&mthp_growths, &process->pid, &first, BPF_ANY);
	return first.sparse;
}

#endif /* MTHP_PROCESS_BPF_H */
