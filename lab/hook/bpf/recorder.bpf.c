// SPDX-License-Identifier: GPL-2.0-only
/* A policy that writes down what it is asked, and answers as it was told. */
#include "hook.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

#define CALLS 64

/* Shared with lab/hook/src/recorder.rs. */
struct call {
	__u64 cgrp, attached, reason, flags, orders, pid;
};

struct {
	__u64 keep;	/* of what is offered */
	__u64 more;	/* beside it, offered or not */
	__u64 asked;	/* how often so far */
	struct call calls[CALLS];
} record;

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(record_choose, struct cgroup *cgrp, struct cgroup *attached,
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)
{
	__u64 at = __sync_fetch_and_add(&record.asked, 1);

	if (at < CALLS) {
		struct call *call = &record.calls[at];

		call->cgrp = cgrp->kn->id;
		call->attached = attached->kn->id;
		call->reason = reason;
		call->flags = flags;
		call->orders = orders;
		call->pid = bpf_get_current_pid_tgid() >> 32;
	}
	return (orders & record.keep) | record.more;
}

SEC(".struct_ops.link")
struct bpf_mthp_ops record_ops = {
	.mthp_choose = (void *)record_choose,
};
