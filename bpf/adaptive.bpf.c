// SPDX-License-Identifier: GPL-2.0-only
/*
 * The default: what headroom and reactive both allow.  Headroom acts before the
 * damage is done; reactive sees stall that no limit of the cgroup explains.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(PRESSURE) | MTHP_RULE(SMALL) | MTHP_RULE(SPARSE) | \
				 MTHP_RULE(HEADROOM) | MTHP_RULE(HOST) | MTHP_RULE(MAX_ORDER))

#include "choose.bpf.h"
#include "pressure.bpf.h"

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(adaptive_choose, struct cgroup *cgrp, enum tva_type type,
		       unsigned long vm_flags, unsigned long orders)
{
	return mthp_answer(cgrp, type, vm_flags, orders);
}

SEC(".struct_ops.link")
struct bpf_mthp_ops adaptive = {
	.mthp_choose = (void *)adaptive_choose,
};
