// SPDX-License-Identifier: GPL-2.0-only
/*
 * Three programs to measure the hook with: one that does nothing, so that what it
 * costs is the hook's own price, one that refuses everything, which is no more work,
 * and one that counts how often it is asked.
 */
#include "hook.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Read and reset by the guest's program; counted on one CPU only. */
__u64 calls;

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(empty_choose, struct cgroup *cgrp, struct cgroup *attached,
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)
{
	return orders;
}

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(count_choose, struct cgroup *cgrp, struct cgroup *attached,
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)
{
	calls++;
	return orders;
}

SEC(".struct_ops.link")
struct bpf_mthp_ops empty = {
	.mthp_choose = (void *)empty_choose,
};

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(refuse_choose, struct cgroup *cgrp, struct cgroup *attached,
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)
{
	return 0;
}

SEC(".struct_ops.link")
struct bpf_mthp_ops refuse = {
	.mthp_choose = (void *)refuse_choose,
};

SEC(".struct_ops.link")
struct bpf_mthp_ops count = {
	.mthp_choose = (void *)count_choose,
};
