// SPDX-License-Identifier: GPL-2.0-only
/*
 * The one object.  Which rules it applies, and by which values, mthp_ext sets: see policies/.
 */
#include "assign.bpf.h"
#include "choose.bpf.h"
#include "explain.bpf.h"
#include "name.bpf.h"
#include "scan.bpf.h"

/* Puts the flags' names into BTF, from where mthp_ext has their numbers. */
const volatile enum bpf_mthp_flags mthp_flags = BPF_MTHP_ADVISED;

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(mthp_choose, struct cgroup *cgrp, struct cgroup *attached,
		       enum bpf_mthp_reason reason, __u64 flags, unsigned long orders)
{
	return mthp_answer(cgrp, reason, flags, orders);
}

SEC(".struct_ops.link")
struct bpf_mthp_ops mthp = {
	.mthp_choose = (void *)mthp_choose,
};
