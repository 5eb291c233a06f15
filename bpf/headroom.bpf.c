// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ours: an order is allowed only while its folio fits K times between usage and
 * the nearest limit, or into what the host has left.  Decided at fault time; needs no PSI
 * and no scan.
 */
#define MTHP_POLICY_RULES	(MTHP_RULE(HEADROOM) | MTHP_RULE(HOST) | MTHP_RULE(MAX_ORDER))

#include "choose.bpf.h"

SEC("struct_ops/mthp_choose")
unsigned long BPF_PROG(headroom_choose, struct cgroup *cgrp, enum tva_type type,
		       unsigned long vm_flags, unsigned long orders)
{
	return mthp_answer(cgrp, type, vm_flags, orders);
}

SEC(".struct_ops.link")
struct bpf_mthp_ops headroom = {
	.mthp_choose = (void *)headroom_choose,
};
