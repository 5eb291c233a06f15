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

/* By pid: what the growth of a process is measured from.  Of more, some that are idle are met anew. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct mthp_growth);
} mthp_growths SEC(".maps");

/*
 * Samples the process that asks, which in a fault is the one that gets the memory
 * (but for a debugger's).  The counts lag behind by a batch for each processor, which
 * makes it seem sparser than it is.  Up to 256 processors a folio of 2 MiB is a batch at least.
 */
static __noinline void mthp_sample_process(struct mthp_process *process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;
	__s64 present, swapped, mapped, threads;

	if (!mm || !process)
		return;
	mapped = mm->rss_stat[MM_FILEPAGES].count + mm->rss_stat[MM_SHMEMPAGES].count;
	present = mm->rss_stat[MM_ANONPAGES].count;
	swapped = mm->rss_stat[MM_SWAPENTS].count;
	threads = task->signal->nr_threads;
	process->pid = task->tgid;
	process->mm = (__u64)mm;
	process->places = mm->pgtables_bytes.counter / sizeof(__u64);
	process->private = mm->data_vm;
	process->mapped = mapped > 0 ? mapped : 0;
	process->threads = threads > 1 ? threads - 1 : 0;
	process->present = present > 0 ? present : 0;
	process->swapped = swapped > 0 ? swapped : 0;
}

/*
 * For how many more samples is the cgroup sparse, whose process was sampled, and by which gaps?  Of
 * threads that are sampled at once the last one's growth is kept.  A global function, which the
 * verifier follows once.
 */
__noinline int mthp_sparse_now(const struct mthp_process *process __arg_nonnull,
			       struct mthp_cgroup *state __arg_nonnull,
			       const struct mthp_tunables *t __arg_nonnull)
{
	struct mthp_growth *growth, now;
	__u32 before = state->sparse;

	if (!process->mm)
		return 0;
	growth = bpf_map_lookup_elem(&mthp_growths, &process->pid);
	if (growth && growth->mm == process->mm) {
		now = *growth;
		mthp_grow(&now, process, t);
		*growth = now;
	} else {
		mthp_meet(&now, process, t);
		bpf_map_update_elem(&mthp_growths, &process->pid, &now, BPF_ANY);
	}
	state->sparse = mthp_sparse_after(before, &now, process, t);
	mthp_show_gaps(&state->gaps, before, state->sparse, &now, process);
	return 0;
}

#endif /* MTHP_PROCESS_BPF_H */
