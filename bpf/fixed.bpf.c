// SPDX-License-Identifier: GPL-2.0-only
/*
 * A cap by order, for each reason its own.  Nothing is watched: what a sysfs
 * setting says for the host, said for one cgroup.
 */
#define MTHP_POLICY_RULES	MTHP_RULE(MAX_ORDER)

#include "choose.bpf.h"

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(fixed_choose, struct cgroup *cgrp, enum tva_type type,
		       unsigned long vm_flags, unsigned long orders)
{
	return mthp_answer(cgrp, type, vm_flags, orders);
}

SEC(".struct_ops.link")
struct bpf_mthp_ops fixed = {
	.mthp_choose = (void *)fixed_choose,
};
