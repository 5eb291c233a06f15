// SPDX-License-Identifier: GPL-2.0-only
/* What the carrier's kfuncs return for a cgroup, for tests to compare with the files of the kernel. */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

extern struct cgroup *bpf_cgroup_from_id(__u64 id) __ksym;
extern void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
extern int bpf_cgroup_flush_stats(struct cgroup *cgrp) __ksym;
extern __u64 bpf_cgroup_stall(struct cgroup *cgrp, __u32 state) __ksym;
extern __u64 bpf_cgroup_cold_file_pages(struct cgroup *cgrp) __ksym;
extern __s64 bpf_cgroup_spare_pages(struct cgroup *cgrp, _Bool by_nodes, __u64 *total) __ksym;
/* The module's own. */
extern __u64 bpf_cgroup_anon_pages(struct cgroup *cgrp) __ksym __weak;

/* Shared with lab/hook/src/figures.rs. */
struct figures {
	__u64 id;	/* of the cgroup */
	__u64 flush;	/* in: whether; out: whether it was refused */
	__u64 some, full;	/* stall, ns */
	__u64 cold, anon, total;	/* pages */
	__s64 spare;
};

SEC("syscall")
int read_figures(struct figures *f)
{
	struct cgroup *cgrp = bpf_cgroup_from_id(f->id);
	__u64 total = 0;

	if (!cgrp)
		return 1;
	if (f->flush)
		f->flush = bpf_cgroup_flush_stats(cgrp) != 0;
	f->some = bpf_cgroup_stall(cgrp, bpf_core_enum_value(enum psi_states, PSI_MEM_SOME));
	f->full = bpf_cgroup_stall(cgrp, bpf_core_enum_value(enum psi_states, PSI_MEM_FULL));
	f->cold = bpf_cgroup_cold_file_pages(cgrp);
	if (bpf_ksym_exists(bpf_cgroup_anon_pages))
		f->anon = bpf_cgroup_anon_pages(cgrp);
	f->spare = bpf_cgroup_spare_pages(cgrp, 0, &total);
	f->total = total;
	bpf_cgroup_release(cgrp);
	return 0;
}
